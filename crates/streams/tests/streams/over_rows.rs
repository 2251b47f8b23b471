//! Window functions over rows: streaming equals recomputing over all rows, whatever the transactions, aborts,
//! restarts and partitions in DRAM; what stays in the state; limits.

use crate::support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array};
use entresol_streams::{
    AggregateFunction, Boundary, ChannelSource, ColumnExpression, Element, FrameBound, GROUPS_IN_DRAM_MAX,
    GeneratorSource, GroupState, Punctuation, RankOrder, RowFrame, RowFunction, RowFunctionKind, RowWindows,
    Stream, Topology, TopologyBuilder, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LATENESS_S: i64 = 12;

/// Sum of doubles, with the number of its values.
#[derive(Debug)]
struct Sum;

#[derive(Debug, Default)]
struct SumState {
    sum: f64,
    count: i64,
}

impl AggregateFunction for Sum {
    fn result_type(&self) -> DataType {
        DataType::Double
    }

    fn state_columns(&self) -> Vec<Column> {
        vec![Column::new("sum", DataType::Double), Column::new("count", DataType::BigInt)]
    }

    fn group(&self) -> Result<Box<dyn GroupState>, String> {
        Ok(Box::<SumState>::default())
    }
}

impl GroupState for SumState {
    fn add(&mut self, columns: &[ArrayRef]) -> Result<(), String> {
        let values = columns[0].as_primitive::<Float64Type>();
        self.sum += values.iter().flatten().sum::<f64>();
        self.count += (values.len() - values.null_count()) as i64;
        Ok(())
    }

    fn store(&mut self) -> Result<Vec<ArrayRef>, String> {
        Ok(vec![Arc::new(Float64Array::from(vec![self.sum])), Arc::new(Int64Array::from(vec![self.count]))])
    }

    fn merge(&mut self, stored: &[ArrayRef]) -> Result<(), String> {
        self.sum += stored[0].as_primitive::<Float64Type>().value(0);
        self.count += stored[1].as_primitive::<Int64Type>().value(0);
        Ok(())
    }

    fn result(&mut self) -> Result<ArrayRef, String> {
        Ok(Arc::new(Float64Array::from(vec![(self.count > 0).then_some(self.sum)])))
    }

    fn bytes(&self) -> usize {
        size_of::<SumState>()
    }
}

/// Function and frame of a case.
#[derive(Debug, Clone, Copy)]
enum Called {
    RowNumber,
    Rank,
    DenseRank,
    Lag(usize, Option<i64>),
    First(RowFrame),
    Last(RowFrame),
    Nth(usize, RowFrame),
    Sum(RowFrame),
}

fn frame(start: FrameBound, end: FrameBound) -> RowFrame {
    RowFrame { start, end }
}

fn function(called: Called, name: String) -> RowFunction {
    let none = frame(FrameBound::Rows(0), FrameBound::Rows(0));
    let power = Column::new(name.clone(), DataType::Double);
    let number = Column::new(name, DataType::BigInt);
    let (column, kind, frame) = match called {
        Called::RowNumber => (number, RowFunctionKind::RowNumber, none),
        Called::Rank => (number, RowFunctionKind::Rank, none),
        Called::DenseRank => (number, RowFunctionKind::DenseRank, none),
        Called::Lag(offset, default) => {
            let default = default.map(|value| Arc::new(Float64Array::from(vec![value as f64])) as ArrayRef);
            (power, RowFunctionKind::Lag { offset, default }, none)
        }
        Called::First(frame) => (power, RowFunctionKind::First, frame),
        Called::Last(frame) => (power, RowFunctionKind::Last, frame),
        Called::Nth(number, frame) => (power, RowFunctionKind::Nth(number), frame),
        Called::Sum(frame) => (power, RowFunctionKind::Aggregate(Arc::new(Sum)), frame),
    };
    RowFunction { column, kind, arguments: vec![Box::new(ColumnExpression(2))], frame }
}

/// Sets of functions: each of its own state.
fn cases() -> Vec<Vec<Called>> {
    use FrameBound::{Peers, Rows, Time, Unbounded};
    let seconds = |seconds: i64| Time(seconds * SECOND_US);
    vec![
        vec![Called::RowNumber],
        vec![Called::Lag(2, None), Called::Sum(frame(Rows(3), Rows(0))), Called::Lag(1, Some(-1))],
        vec![Called::Sum(frame(seconds(8), Peers)), Called::First(frame(seconds(5), seconds(2)))],
        vec![Called::Sum(frame(Unbounded, Peers)), Called::First(frame(Unbounded, Rows(0))), Called::Rank],
        vec![
            Called::Sum(frame(Unbounded, Rows(0))),
            Called::DenseRank,
            Called::Last(frame(Unbounded, Peers)),
        ],
        vec![
            Called::Nth(2, frame(Rows(4), Rows(1))),
            Called::Last(frame(Rows(6), Rows(3))),
            Called::Sum(frame(Peers, Peers)),
            Called::RowNumber,
            Called::Sum(frame(Rows(1), Rows(1))),
            Called::Sum(frame(seconds(8), Rows(2))),
        ],
    ]
}

fn windows(case: &[Called], partitions_in_dram: usize) -> RowWindows {
    let functions = case.iter().enumerate().map(|(at, called)| function(*called, format!("value_{at}")));
    RowWindows {
        functions: functions.collect(),
        partition: vec![0],
        order: vec![RankOrder { column: 1, descending: false, nulls_first: false }],
        time: 1,
        lateness: Duration::from_secs(LATENESS_S as u64),
        future_limit: Duration::MAX,
        state_table: "open".to_owned(),
        late: None,
        partitions_in_dram,
    }
}

fn over(stream: &Stream, case: &[Called], partitions_in_dram: usize) {
    stream.over_rows(windows(case, partitions_in_dram)).to_table("values");
}

/// Value of a function for a row of ordered times and powers, as in the table.
fn value(called: Called, rows: &[(i64, f64)], at: usize) -> Value {
    let time = rows[at].0;
    let of = |found: Option<usize>| found.map_or(Value::Null, |found| Value::Double(rows[found].1));
    let peers_before = rows.partition_point(|row| row.0 < time);
    let range = |frame: RowFrame| {
        let start = match frame.start {
            FrameBound::Unbounded => 0,
            FrameBound::Rows(before) => at.saturating_sub(before),
            FrameBound::Time(us) => rows.iter().position(|row| row.0 >= time - us).unwrap(),
            FrameBound::Peers => peers_before,
        };
        let end = match frame.end {
            FrameBound::Rows(before) => (at + 1).saturating_sub(before),
            FrameBound::Time(us) => rows.iter().filter(|row| row.0 <= time - us).count(),
            FrameBound::Peers => rows.iter().filter(|row| row.0 <= time).count(),
            FrameBound::Unbounded => panic!("no frame ends there"),
        };
        start..end.max(start)
    };
    match called {
        Called::RowNumber => Value::BigInt(at as i64 + 1),
        Called::Rank => Value::BigInt(peers_before as i64 + 1),
        Called::DenseRank => {
            let mut times: Vec<i64> = rows[..=at].iter().map(|row| row.0).collect();
            times.dedup();
            Value::BigInt(times.len() as i64)
        }
        Called::Lag(offset, default) => match (at.checked_sub(offset), default) {
            (None, Some(default)) => Value::Double(default as f64),
            (found, _) => of(found),
        },
        Called::First(frame) => of(range(frame).next()),
        Called::Last(frame) => of(range(frame).next_back()),
        Called::Nth(number, frame) => of(range(frame).nth(number - 1)),
        Called::Sum(frame) => {
            let rows = &rows[range(frame)];
            if rows.is_empty() { Value::Null } else { Value::Double(rows.iter().map(|row| row.1).sum()) }
        }
    }
}

/// Rows of all readings but the late ones, and the number of late ones.
fn recompute(readings: &[Tuple], case: &[Called]) -> (Vec<String>, u64) {
    let mut partitions: BTreeMap<i32, Vec<(i64, f64)>> = BTreeMap::new();
    let (mut watermark, mut late) = (i64::MIN, 0);
    for tuple in readings {
        let (Value::Int(meter), Value::Timestamp(at), Value::Double(power)) =
            (&tuple[0], &tuple[1], &tuple[2])
        else {
            panic!("{tuple:?}")
        };
        if *at < watermark {
            late += 1;
            continue;
        }
        watermark = watermark.max(at - LATENESS_S * SECOND_US);
        partitions.entry(*meter).or_default().push((*at, *power));
    }
    let mut all = Vec::new();
    for (meter, mut rows) in partitions {
        rows.sort_by_key(|row| row.0);
        for (at, (time, power)) in rows.iter().enumerate() {
            let row = [Value::Int(meter), Value::Timestamp(*time), Value::Double(*power)];
            let values = case.iter().map(|called| value(*called, &rows, at));
            all.push(format!("{:?}", row.into_iter().chain(values).collect::<Vec<_>>()));
        }
    }
    all.sort_unstable();
    (all, late)
}

fn found(catalog: &Catalog, case: &[Called]) -> Vec<String> {
    let width = 3 + case.len();
    let mut found: Vec<String> =
        rows(catalog, "values").iter().map(|row| format!("{:?}", row[..width].to_vec())).collect();
    found.sort_unstable();
    found
}

fn compare(found: &[String], expected: &[String], what: &str) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "row {at}: {what}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

fn builder(catalog: &Arc<Catalog>, boundary: Boundary) -> TopologyBuilder {
    Topology::builder("t", catalog).boundary(boundary)
}

#[test]
fn streaming_equals_recomputing() {
    let seed = seed();
    for (round, case) in cases().into_iter().enumerate() {
        for (boundary, disorder, partitions) in [
            (Boundary::EachTuple, 9, 1),
            (Boundary::Every(7), 40, GROUPS_IN_DRAM_MAX),
            (Boundary::Every(100_000), 20, 4),
        ] {
            let readings: Vec<Tuple> =
                (0..700).map(|n| random_reading(seed + round as u64, n, 6, disorder)).collect();
            let (expected, late) = recompute(&readings, &case);
            let catalog = volatile();
            let topology = builder(&catalog, boundary);
            let source = GeneratorSource::new(reading_columns(), move |n| readings.get(n as usize).cloned());
            over(&topology.source("readings", source), &case, partitions);
            let report = topology.build().unwrap().run().unwrap();
            let what = format!("{case:?}, {boundary:?}, disorder {disorder}");
            compare(&found(&catalog, &case), &expected, &what);
            assert_eq!((report.late, report.tuples), (late, 700), "{what}");
            assert!(late > 0 || disorder < 12, "{what}");
        }
    }
}

/// The state has the rows that frames reach back to, and no others.
#[test]
fn rows_leave_the_state_that_no_frame_reaches_back_to() {
    use FrameBound::{Peers, Rows, Time, Unbounded};
    for (case, left) in [
        (vec![Called::Sum(frame(Rows(3), Rows(0)))], 6),
        (vec![Called::Sum(frame(Rows(0), Rows(0)))], 0),
        (vec![Called::RowNumber], 2),
        (vec![Called::Sum(frame(Unbounded, Rows(0))), Called::Lag(4, None)], 8),
        // Readings are 20 s apart, and the watermark is behind the last.
        (vec![Called::Sum(frame(Time(50 * SECOND_US), Peers))], 6),
    ] {
        let catalog = volatile();
        let topology = builder(&catalog, Boundary::Every(5));
        let source = GeneratorSource::new(reading_columns(), |n| {
            (n < 60).then(|| reading((n % 2) as i32, 1000 + n as i64 / 2 * 20, n as f64))
        });
        over(&topology.source("readings", source), &case, 1);
        topology.build().unwrap().run().unwrap();
        assert_eq!(rows(&catalog, "values").len(), 60);
        assert_eq!(rows(&catalog, "open").len(), left, "{case:?}");
    }
}

/// Aborted transactions leave no trace; those that are repeated count once.
#[test]
fn aborts_and_restarts_change_nothing() {
    let seed = seed();
    for (round, case) in cases().into_iter().enumerate() {
        let readings: Vec<Tuple> =
            (0..600).map(|n| random_reading(seed + 7 + round as u64, n, 5, 20)).collect();
        let directory = tempfile::tempdir().unwrap();
        let (mut committed, mut late): (Vec<Tuple>, u64) = (Vec::new(), 0);
        for (run, part) in readings.chunks(200).enumerate() {
            let catalog = journal(directory.path());
            let (sender, receiver) = crossbeam_channel::bounded(1024);
            for (n, chunk) in part.chunks(20).enumerate() {
                let is_committed = (n + run) % 3 > 0;
                sender.send(Element::Punctuation(Punctuation::Begin)).unwrap();
                sender.send(Element::Tuples(chunk.to_vec())).unwrap();
                let end = if is_committed { Punctuation::Commit } else { Punctuation::Abort };
                sender.send(Element::Punctuation(end)).unwrap();
                if is_committed {
                    committed.extend_from_slice(chunk);
                }
            }
            let topology = builder(&catalog, Boundary::Punctuated);
            let source = ChannelSource::new(reading_columns(), receiver);
            over(&topology.source("readings", source), &case, 1 + round % 3 * 2);
            let running = topology.build().unwrap().start().unwrap();
            let wanted = (0..10).filter(|n| (n + run) % 3 > 0).count() as u64 * 20;
            if run == 2 {
                drop(sender);
            } else {
                while running.progress().snapshot().tuples < wanted {
                    std::thread::yield_now();
                }
                running.stop();
            }
            late += running.join().unwrap().late;
        }
        let (expected, expected_late) = recompute(&committed, &case);
        let catalog = journal(directory.path());
        compare(&found(&catalog, &case), &expected, &format!("{case:?}"));
        assert_eq!(late, expected_late, "{case:?}");
    }
}

#[test]
fn what_has_no_bound_is_refused() {
    use FrameBound::{Rows, Time, Unbounded};
    type Change = fn(&mut RowWindows);
    let changes: [(Change, &str); 8] = [
        (|w| w.functions.clear(), "there are no functions"),
        (|w| w.functions[0].frame.start = Rows(10_001), "reads 10001 rows before another, at most 10000"),
        (|w| w.functions[0].frame.end = Unbounded, "ends with the first row"),
        (
            |w| w.functions[0].frame = frame(Unbounded, Time(5)),
            "no beginning, and ends before the current row",
        ),
        (|w| w.functions[0].kind = RowFunctionKind::Nth(0), "is of row 0"),
        (
            |w| {
                w.functions[0].kind = RowFunctionKind::Nth(2);
                w.functions[0].frame.start = Unbounded;
            },
            "of a row of a frame without a beginning",
        ),
        (|w| w.order.clear(), "it has no order"),
        (|w| w.order[0].descending = true, "not ordered by the event time, ascending"),
    ];
    for (change, expected) in changes {
        let catalog = volatile();
        let topology = builder(&catalog, Boundary::Every(2));
        let source = GeneratorSource::new(reading_columns(), |_| None);
        let mut refused = windows(&[Called::Sum(frame(Rows(1), Rows(0)))], 1);
        change(&mut refused);
        topology.source("readings", source).over_rows(refused).to_table("values");
        let error = topology.build().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
