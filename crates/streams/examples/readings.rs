//! Measures a topology: a million meter readings through a window, an aggregate and two tables.
//!
//! `cargo run --release --example readings [readings] [meters] [tuples per transaction] [volatile|journal]
//! [durability]`
#![allow(clippy::unwrap_used)]

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_streams::{Aggregate, Boundary, GeneratorSource, TimeWindow, ToTable, Topology};
use entresol_tables::{Catalog, Column, DataType, ScanRange, Value};
use entresol_transactions::StateContext;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (readings, meters, every) = (number(1_000_000), number(1_000), number(10_000));
    let domain = arguments.next().unwrap_or_else(|| "volatile".to_owned());
    let durability: Durability = arguments.next().unwrap_or_else(|| "sync".to_owned()).parse()?;
    let directory = tempfile::TempDir::new()?;
    let pool = match domain.as_str() {
        "journal" => {
            let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
            Pool::open_or_create(directory.path(), &options)?
        }
        _ => Pool::volatile(&PoolOptions::default())?,
    };
    let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
    let boundary = if every == 1 { Boundary::EachTuple } else { Boundary::Every(every as usize) };
    let topology = Topology::builder("metering", &catalog).boundary(boundary).durability(durability);
    let columns = vec![
        Column::new("meter", DataType::Int).not_null(),
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("power", DataType::Double),
    ];
    // A reading per millisecond; a window is a minute.
    let source = GeneratorSource::new(columns, move |n| {
        (n < readings).then(|| {
            let meter = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % meters;
            vec![Value::Int(meter as i32), Value::Timestamp(n as i64 * 1000), Value::Double((n % 97) as f64)]
        })
    });
    let stream = topology.source("readings", source);
    stream
        .window(TimeWindow::tumbling("at", Duration::from_secs(60)))
        .group_by(&["meter"])
        .aggregate(&[Aggregate::count(), Aggregate::sum("power"), Aggregate::max("power")], "open_windows")
        .to_table("windows");
    if std::env::var("LATEST").is_ok() {
        stream.to_table(ToTable::upsert("latest").key(&["meter"]));
    }
    let start = Instant::now();
    let report = topology.build()?.run()?;
    let seconds = start.elapsed().as_secs_f64();
    let windows = catalog.table("windows")?.scan(ScanRange::full()).rows(&*catalog.begin()?)?;
    let counted: i64 =
        windows.iter().map(|row| if let Value::BigInt(count) = row[3] { count } else { 0 }).sum();
    assert_eq!(counted as u64, readings);
    println!(
        "{readings} readings, {meters} meters, {every} per transaction, {domain}, {durability}: {seconds:.3} s, {:.0} tuples/s, {} transactions, {} window rows\n{:?}",
        readings as f64 / seconds,
        report.transactions,
        windows.len(),
        report.commit_latencies
    );
    Ok(())
}
