//! A tumbling aggregate of 1,000 groups in SQL beside the same topology in Rust, in alternating runs over the same bids of NEXMark.
//!
//! The rate is of the bids, over the time from the statement, or the building of the topology, to its end.

use super::WINDOW;
use crate::asked::AskedFigure;
use crate::experiments::values::one;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch};
use entresol::arrow::datatypes::Int64Type;
use entresol::streams::{
    Aggregate, Boundary, ColumnExpression, Nexmark, NexmarkEntity, TimeWindow, Topology,
};
use entresol::{Column, DataType, Database, Durability, Options};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUPS: i64 = 1000;
/// Bids before a commit.
const EVERY: usize = 1000;
/// Events in a second of event time: one each 20 microseconds.
const EVENTS_PER_SECOND: u64 = 50_000;
/// Rate in SQL, in rates of Rust.
const ASKED: f64 = 0.9;
/// Wait between two looks at the topology, which take time of the processors.
const LOOK: Duration = Duration::from_millis(50);

const SUMS: &str = "SELECT count(*) || ' ' || sum(n) || ' ' || sum(total) FROM written";

/// Runs both, and compares what they wrote.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let events = if options.quick { 20_000 } else { 8_000_000 };
    let (mut of_sql, mut of_rust) = (Vec::new(), Vec::new());
    for _ in 0..if options.quick { 1 } else { 5 } {
        let (rate, in_sql) = measure(events, in_sql, options)?;
        of_sql.push(rate);
        let (rate, in_rust) = measure(events, in_rust, options)?;
        of_rust.push(rate);
        let what = format!("A in SQL and in Rust leave the same rows ({in_sql}; {in_rust})");
        report.check(&what, in_sql == in_rust);
    }
    let (sql, rust) = (median(&of_sql), median(&of_rust));
    for (case, rate) in [("A over bids, in SQL", sql), ("A over bids, in Rust", rust)] {
        report.row(json!({ "case": case, "threads": 1, "tuples": events, "million_tuples_per_s": rate }));
    }
    report.asked(AskedFigure::at_least("A in SQL beside the same in Rust", sql / rust, ASKED).unit("times"));
    Ok(())
}

/// Million bids a second of a run over a new database, and what it wrote.
fn measure(
    events: u64,
    run: fn(&Database, u64) -> Result<f64, Error>,
    options: &RunOptions,
) -> Result<(f64, String), Error> {
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default())?;
    let s = run(&database, events)?;
    let written = one(&mut database.session()?, SUMS)?;
    database.close()?;
    let bids = bids(events).rows();
    Ok((bids as f64 / s / 1e6, written))
}

/// The bids of so many events.
fn bids(events: u64) -> Nexmark {
    Nexmark { events, events_per_second: EVENTS_PER_SECOND, ..Nexmark::new(NexmarkEntity::Bid) }
}

/// Seconds of the topology in SQL.
fn in_sql(database: &Database, events: u64) -> Result<f64, Error> {
    let mut session = database.session()?;
    session.execute(&format!(
        "CREATE SOURCE bid (auction BIGINT NOT NULL, price BIGINT NOT NULL, date_time TIMESTAMP NOT NULL,
                 WATERMARK FOR date_time AS date_time)
             WITH (connector = 'nexmark', entity = 'bid', events = {events}, events_per_second = {EVENTS_PER_SECOND});
         CREATE TABLE written (meter BIGINT, window_start TIMESTAMP, n BIGINT, total DOUBLE, mean DOUBLE,
             PRIMARY KEY (meter, window_start))"
    ))?;
    let begin = Instant::now();
    session.execute(&format!(
        "CREATE TOPOLOGY rate COMMIT EVERY {EVERY} ROWS WITH (durability = 'none') AS (
             CREATE STREAM measured AS
                 SELECT auction % {GROUPS} AS meter, date_time AS at, price::double precision AS power FROM bid WHERE price >= 0;
             INSERT INTO written SELECT meter, window_start, count(*), sum(power), avg(power)
                 FROM TUMBLE(measured, at, INTERVAL '{} seconds') GROUP BY meter, window_start EMIT ON WINDOW CLOSE)",
        WINDOW.as_secs()
    ))?;
    let state = "SELECT state || coalesce(': ' || error, '') FROM entresol.topologies";
    loop {
        match one(&mut session, state)?.as_str() {
            "ended" => return Ok(begin.elapsed().as_secs_f64()),
            "running" => std::thread::sleep(LOOK),
            failed => return Err(Error::Invalid(format!("A in SQL: {failed}"))),
        }
    }
}

/// Seconds of the topology in Rust.
fn in_rust(database: &Database, events: u64) -> Result<f64, Error> {
    let failed = |error: entresol::streams::Error| Error::Invalid(format!("A in Rust: {error}"));
    let declared = [
        Column::new("auction", DataType::BigInt).not_null(),
        Column::new("price", DataType::BigInt).not_null(),
        Column::new("date_time", DataType::Timestamp).not_null(),
    ];
    let begin = Instant::now();
    let topology = Topology::builder("rate", database.catalog())
        .boundary(Boundary::Every(EVERY))
        .durability(Durability::None);
    let source = bids(events).source(&declared).map_err(Error::Invalid)?;
    let of_value =
        topology.source("bid", source).filter_by(|rows: &RecordBatch| -> Result<ArrayRef, String> {
            Ok(Arc::new(BooleanArray::from_unary(rows.column(1).as_primitive::<Int64Type>(), |price| {
                price >= 0
            })))
        });
    let meter = |rows: &RecordBatch| -> Result<ArrayRef, String> {
        let auctions = rows.column(0).as_primitive::<Int64Type>();
        Ok(Arc::new(auctions.unary::<_, Int64Type>(|auction| auction % GROUPS)))
    };
    let power = |rows: &RecordBatch| -> Result<ArrayRef, String> {
        let prices = rows.column(1).as_primitive::<Int64Type>().values();
        Ok(Arc::new(Float64Array::from_iter_values(prices.iter().map(|&price| price as f64))))
    };
    let measured = of_value.project(vec![
        (Column::new("meter", DataType::BigInt).not_null(), Box::new(meter)),
        (Column::new("at", DataType::Timestamp).not_null(), Box::new(ColumnExpression(2))),
        (Column::new("power", DataType::Double).not_null(), Box::new(power)),
    ]);
    let aggregates =
        [Aggregate::count().named("n"), Aggregate::sum("power").named("total"), Aggregate::avg("power")];
    let windows = measured.window(TimeWindow::tumbling("at", WINDOW));
    windows.group_by(&["meter"]).aggregate(&aggregates, "open_windows").to_table("written");
    topology.build().map_err(failed)?.run().map_err(failed)?;
    Ok(begin.elapsed().as_secs_f64())
}
