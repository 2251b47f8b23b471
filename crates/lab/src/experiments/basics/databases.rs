//! Whole databases: snapshot reads, opening, and the demo's rate.

use super::{BATCH, Sizes};
use crate::asked::AskedFigure;
use crate::measure::{Random, median, ns_per_operation};
use crate::report::Report;
use crate::{Error, RunOptions};
use clap::Parser;
use entresol::tables::{Column, DataType, Schema, Table, TableOptions, Value};
use entresol::{Database, Durability, Options};
use entresol_demo::SmartMeteringArguments;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Two columns: a key and a payload.
fn schema() -> Result<Schema, Error> {
    let column = |name: &str| Column::new(name, DataType::BigInt).not_null();
    Ok(Schema::new(vec![column("id"), column("payload")], &["id"])?)
}

fn row(id: u64) -> [Value; 2] {
    [Value::BigInt(id.cast_signed()), Value::BigInt((id ^ 1).cast_signed())]
}

fn open(dir: &Path) -> Result<Database, Error> {
    Ok(Database::open(dir, Options::default().durability(Durability::None))?)
}

fn fill(database: &Database, table: &Table, ids: std::ops::Range<u64>) -> Result<(), Error> {
    let ids: Vec<u64> = ids.collect();
    for batch in ids.chunks(BATCH) {
        let rows: Vec<[Value; 2]> = batch.iter().map(|id| row(*id)).collect();
        let transaction = database.begin()?;
        table.upsert_many(&transaction, &rows)?;
        transaction.commit(Durability::None)?;
    }
    Ok(())
}

/// One key of a small table that stays in the processor's caches, read at a snapshot through the Rust API.
pub(super) fn snapshot_reads(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    const ROWS: u64 = 1000;
    const READS: usize = 1_000_000;
    let dir = options.database_dir()?;
    let database = open(dir.path())?;
    let table = database.catalog().create_table("hot", schema()?, TableOptions::default())?;
    fill(&database, &table, 0..ROWS)?;
    let transaction = database.begin()?;
    let mut random = Random::new(options.seed);
    let keys: Vec<[Value; 1]> =
        (0..READS).map(|_| [Value::BigInt(random.below(ROWS).cast_signed())]).collect();
    let mut samples = Vec::new();
    let mut right = true;
    for _ in 0..5 {
        samples.push(ns_per_operation(READS, || {
            for key in &keys {
                let payload = table.get_with(&transaction, key, |row| row.bigint(1))?;
                let Value::BigInt(id) = key[0] else { unreachable!("keys are BIGINT") };
                right &= payload == Some(id ^ 1);
            }
            Ok::<(), Error>(())
        })?);
    }
    report.row(json!({"snapshot_read_ns": median(&samples), "rows": ROWS, "reads": READS}));
    report.asked(AskedFigure::at_most("snapshot read of one key", median(&samples), 500.0).unit("ns"));
    report.check("every snapshot read returned its row", right);
    Ok(())
}

/// Opening a database and answering the first SQL query, after closing it and after a crash.
pub(super) fn opening(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    let rows = sizes.keys as u64;
    load(dir.path(), rows, report)?;
    let mut right = true;
    for (after, closes) in [("after closing", true), ("after a crash", false)] {
        let mut samples = Vec::new();
        for round in 0..3 {
            let id = Random::new(options.seed + round).below(rows);
            let start = Instant::now();
            let database = open(dir.path())?;
            let sql = format!("SELECT payload FROM large WHERE id = {id}");
            let answer = database.session()?.query(&sql)?;
            samples.push(start.elapsed().as_secs_f64() * 1e3);
            right &= answer.iter().map(|batch| batch.num_rows()).sum::<usize>() == 1;
            if closes && round < 2 {
                database.close()?;
            } else {
                // Changes that the next open has to replay, then no close: what a crash leaves.
                let table = database.catalog().table("large")?;
                fill(&database, &table, 0..rows.min(200_000))?;
                database.catalog().context().pool().sync().map_err(Error::Memory)?;
            }
        }
        report.row(json!({"open": after, "rows": rows, "first_query_ms": median(&samples)}));
        let name = format!("open and first query {after}");
        report.asked(AskedFigure::at_most(name, median(&samples), 250.0).unit("ms"));
    }
    report.check("the first query after opening found its row", right);
    Ok(())
}

fn load(dir: &Path, rows: u64, report: &mut Report) -> Result<(), Error> {
    let database = open(dir)?;
    let table = database.catalog().create_table("large", schema()?, TableOptions::default())?;
    let ns = ns_per_operation(rows as usize, || fill(&database, &table, 0..rows))?;
    let stats = database.catalog().context().pool().stats();
    report.row(json!({
        "rows": rows,
        "load_ns_per_row": ns,
        "pool_bytes_per_row": stats.pool_bytes as f64 / rows as f64,
    }));
    Ok(database.close()?)
}

/// The demo's arguments, as its command line takes them.
#[derive(Parser)]
struct Demo {
    #[command(flatten)]
    arguments: SmartMeteringArguments,
}

/// The smart metering demo at `group:10ms`.
pub(super) fn demo(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let readings: u64 = if options.quick { 20_000 } else { 1_000_000 };
    let dir = options.database_dir()?;
    let demo = Demo::parse_from([
        "demo".to_string(),
        format!("--readings={readings}"),
        "--durability=group:10ms".to_string(),
        "--print-alarms=0".to_string(),
        format!("--seed={}", options.seed),
        format!("--dir={}", dir.path().display()),
    ]);
    let summary = entresol_demo::run(&demo.arguments)?;
    report.row(summary.to_json());
    report
        .asked(AskedFigure::at_most("demo, a million readings, group:10ms", summary.seconds, 10.0).unit("s"));
    report.check("the demo read all readings", summary.readings == readings);
    report.check("no snapshot of the demo was inconsistent", summary.is_sound());
    Ok(())
}
