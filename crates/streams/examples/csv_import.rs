//! Measures the import of a CSV file through a window into tables: parsing in a thread, processing in
//! another.
//!
//! `cargo run --release --example csv_import [lines]`
#![allow(clippy::unwrap_used)]

use entresol_memory::{DomainChoice, Pool, PoolOptions};
use entresol_streams::{Aggregate, Boundary, CsvSource, DateFormat, TimeWindow, Topology};
use entresol_tables::{Catalog, Column, DataType, Value};
use entresol_transactions::StateContext;
use std::fmt::Write;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lines: i64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let directory = tempfile::TempDir::new()?;
    let file = directory.path().join("readings.csv");
    let mut text = "Date;Time;Power;Voltage\n".to_owned();
    for n in 0..lines {
        let at = Value::Timestamp(n * 60 * 1_000_000).to_string();
        let (date, time) = at.split_once(' ').unwrap();
        let day: Vec<&str> = date.split('-').collect();
        write!(text, "{}/{}/{};{time};", day[2], day[1], day[0])?;
        match n % 100 {
            99 => text.push_str("?;?\n"),
            _ => writeln!(text, "{}.216;{}.84", n % 7, 230 + n % 13)?,
        }
    }
    std::fs::write(&file, &text)?;
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(&directory.path().join("db"), &options)?;
    let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
    let topology = Topology::builder("import", &catalog).boundary(Boundary::Every(10_000));
    let columns = vec![
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("Power", DataType::Double),
        Column::new("Voltage", DataType::Decimal { precision: 6, scale: 3 }),
    ];
    let source = CsvSource::new(&file, columns)
        .separator(b';')
        .null("?")
        .date_format(DateFormat::DayMonthYear)
        .timestamp_of("at", "Date", "Time");
    topology
        .source("file", source)
        .window(TimeWindow::tumbling("at", Duration::from_secs(3600)))
        .aggregate(&[Aggregate::count(), Aggregate::avg("Power"), Aggregate::max("Voltage")], "open_hours")
        .to_table("hours");
    let start = Instant::now();
    let report = topology.build()?.run()?;
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!((report.tuples as i64, report.rejected_rows), (lines, 0));
    println!(
        "{lines} lines, {:.0} MB: {seconds:.3} s, {:.0} lines/s, {:.0} MB/s",
        text.len() as f64 / 1e6,
        lines as f64 / seconds,
        text.len() as f64 / 1e6 / seconds
    );
    Ok(())
}
