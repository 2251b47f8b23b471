//! Topologies on one thread: tuples a second through a filter and a map, through tumbling aggregates into a
//! table, and in transactions of one tuple; the aggregates on two threads beside one, in alternating runs; and one of them in
//! SQL beside Rust ([`in_sql`]). Domain `journal`, durability `none`.
//!
//! Tuples are drawn by a generator, which is part of the time. Windows are of ten seconds; a tuple comes each
//! 20 microseconds of event time, so a window has 500,000 tuples, and the last one is closed at the end.

mod in_sql;

use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::arrow::array::AsArray;
use entresol::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use entresol::arrow::datatypes::{Float64Type, Int32Type};
use entresol::streams::{
    Aggregate, Boundary, ColumnExpression, GeneratorSource, Stream, TimeWindow, ToTable, Topology,
};
use entresol::tables::arrow_schema;
use entresol::{Column, DataType, Database, Durability, Options, ScanRange, Value};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TUPLE_US: u64 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Work of a topology.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TopologyCase {
    /// Of a thousand tuples one is written.
    FilterAndMap,
    /// Count, sum and mean of so many groups, into a table.
    Aggregate { groups: u64, text_key: bool },
    /// Each tuple into a table of a thousand rows.
    Write,
}

struct Case {
    name: &'static str,
    work: TopologyCase,
    /// Tuples of a transaction.
    every: usize,
    /// Tuples, at full size.
    tuples: u64,
    /// Million tuples a second.
    asked: f64,
}

/// Rate of two threads, in rates of one.
const TWO_THREADS_ASKED: f64 = 1.8;

const CASES: [Case; 5] = [
    Case {
        name: "filter and map",
        work: TopologyCase::FilterAndMap,
        every: 1000,
        tuples: 4_000_000,
        asked: 100.0,
    },
    Case {
        name: "A: tumbling aggregate, 1,000 groups",
        work: TopologyCase::Aggregate { groups: 1000, text_key: false },
        every: 1000,
        tuples: 2_000_000,
        asked: 8.0,
    },
    Case {
        name: "B: the same, VARCHAR key",
        work: TopologyCase::Aggregate { groups: 1000, text_key: true },
        every: 1000,
        tuples: 2_000_000,
        asked: 6.0,
    },
    Case {
        name: "C: 100,000 groups",
        work: TopologyCase::Aggregate { groups: 100_000, text_key: false },
        every: 1000,
        tuples: 500_000,
        asked: 3.0,
    },
    Case {
        name: "transactions of one tuple",
        work: TopologyCase::Write,
        every: 1,
        tuples: 200_000,
        asked: 0.5,
    },
];

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    for case in &CASES {
        let tuples = if options.quick { (case.tuples / 100).min(20_000) } else { case.tuples };
        let (mut rates, mut on_two) = (Vec::new(), Vec::new());
        for _ in 0..if options.quick { 1 } else { 3 } {
            rates.push(measure(case, tuples, 1, options, report)?);
            if let TopologyCase::Aggregate { .. } = case.work {
                on_two.push(measure(case, tuples, 2, options, report)?);
            }
        }
        let rate = median(&rates);
        report
            .row(json!({ "case": case.name, "threads": 1, "tuples": tuples, "million_tuples_per_s": rate }));
        report.asked(AskedFigure::at_least(case.name, rate, case.asked).unit("M tuples/s"));
        if !on_two.is_empty() {
            let rate_on_two = median(&on_two);
            report.row(
                json!({ "case": case.name, "threads": 2, "tuples": tuples, "million_tuples_per_s": rate_on_two }),
            );
            let name = format!("{}, two threads beside one", case.name);
            report.asked(AskedFigure::at_least(&name, rate_on_two / rate, TWO_THREADS_ASKED).unit("times"));
        }
    }
    in_sql::run(options, report)
}

fn columns(text_key: bool) -> [Column; 3] {
    [
        Column::new("meter", if text_key { DataType::Varchar } else { DataType::Int }).not_null(),
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("power", DataType::Double).not_null(),
    ]
}

/// Readings by position, a batch at a time.
fn batches(
    tuples: u64,
    groups: u64,
    text_key: bool,
) -> impl FnMut(u64, usize) -> RecordBatch + Send + 'static {
    let schema = arrow_schema(&columns(text_key), "UTC");
    let names: Vec<String> = (0..groups).map(|meter| format!("meter {meter:05}")).collect();
    // A multiplier without common divisors: all groups come in turn, not in their order.
    let key = move |n: u64| n.wrapping_mul(7919) % groups;
    move |first, tuples_max| {
        let range = first..tuples.min(first + tuples_max as u64);
        let meters: ArrayRef = if text_key {
            let names = range.clone().map(|n| names[key(n) as usize].as_str());
            Arc::new(StringArray::from_iter_values(names))
        } else {
            Arc::new(Int32Array::from_iter_values(range.clone().map(|n| key(n) as i32)))
        };
        let times = range.clone().map(|n| (n * TUPLE_US) as i64);
        let times = Arc::new(TimestampMicrosecondArray::from_iter_values(times));
        let powers = Arc::new(Float64Array::from_iter_values(range.map(|n| n as f64)));
        RecordBatch::try_new(Arc::clone(&schema), vec![meters, times, powers]).expect("arrays of the columns")
    }
}

/// Million tuples a second of one run.
fn measure(
    case: &Case,
    tuples: u64,
    threads: usize,
    options: &RunOptions,
    report: &mut Report,
) -> Result<f64, Error> {
    let failed = |error: entresol::streams::Error| Error::Invalid(format!("{}: {error}", case.name));
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default())?;
    let topology = Topology::builder("rate", database.catalog())
        .boundary(Boundary::Every(case.every))
        .parallelism(threads)
        .durability(Durability::None);
    let (groups, text_key) = match case.work {
        TopologyCase::Aggregate { groups, text_key } => (groups, text_key),
        TopologyCase::FilterAndMap | TopologyCase::Write => (1000, false),
    };
    let source = GeneratorSource::batches(columns(text_key).to_vec(), batches(tuples, groups, text_key));
    let stream = topology.source("readings", source);
    let written = into_table(&stream, case.work);
    let topology = topology.build().map_err(failed)?;
    let begin = Instant::now();
    let ran = topology.run().map_err(failed)?;
    let s = begin.elapsed().as_secs_f64();
    report.check(&format!("{}: every tuple counts once on {threads}", case.name), {
        let tx = database.begin()?;
        let rows = database.catalog().table("written")?.scan(ScanRange::full()).rows(&tx)?;
        ran.tuples == tuples && written(&rows, tuples)
    });
    database.close()?;
    Ok(tuples as f64 / s / 1e6)
}

/// Adds the work behind a stream; returns what its table must hold.
fn into_table(stream: &Stream, work: TopologyCase) -> fn(&[Vec<Value>], u64) -> bool {
    match work {
        TopologyCase::FilterAndMap => {
            let few = stream.filter_by(|rows: &RecordBatch| -> Result<ArrayRef, String> {
                let is_first = |meter| meter == 0;
                Ok(Arc::new(BooleanArray::from_unary(rows.column(0).as_primitive::<Int32Type>(), is_first)))
            });
            let twice = |rows: &RecordBatch| -> Result<ArrayRef, String> {
                let power = rows.column(2).as_primitive::<Float64Type>();
                Ok(Arc::new(power.unary::<_, Float64Type>(|power| 2.0 * power)))
            };
            let [meter, at, power] = columns(false);
            let doubled = few.project(vec![
                (meter, Box::new(ColumnExpression(0))),
                (at, Box::new(ColumnExpression(1))),
                (power, Box::new(twice)),
            ]);
            doubled.to_table(ToTable::upsert("written").key(&["meter", "at"]));
            |rows, tuples| rows.len() as u64 == tuples.div_ceil(1000)
        }
        TopologyCase::Aggregate { .. } => {
            let aggregates = [Aggregate::count(), Aggregate::sum("power"), Aggregate::avg("power")];
            let measured = stream.filter_by(|rows: &RecordBatch| -> Result<ArrayRef, String> {
                let power = rows.column(2).as_primitive::<Float64Type>();
                Ok(Arc::new(BooleanArray::from_unary(power, |power| power >= 0.0)))
            });
            let windows = measured.window(TimeWindow::tumbling("at", WINDOW));
            windows.group_by(&["meter"]).aggregate(&aggregates, "open_windows").to_table("written");
            |rows, tuples| {
                let counts = rows.iter().map(|row| if let Value::BigInt(count) = row[3] { count } else { 0 });
                counts.sum::<i64>() as u64 == tuples
            }
        }
        TopologyCase::Write => {
            stream.to_table(ToTable::upsert("written").key(&["meter"]));
            |rows, tuples| rows.len() as u64 == tuples.min(1000)
        }
    }
}
