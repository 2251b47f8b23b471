//! Runner: the 13 queries on a database, timed, and compared with answers.
//!
//! - A query runs once, and then as often as asked; each result has to be that of the first run. Its time
//!   includes parsing and planning, and lasts until all rows are there.
//! - A query that fails does not end the run: the report says so.

mod answers;
mod plot;
mod queries;
mod report;

pub use plot::render;
pub use queries::{QUERIES, Query, Selection};
pub use report::{QueryReport, Report, Verdict};

use crate::RunArguments;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::tables::TABLES;
use answers::Row;
use entresol::arrow::record_batch::RecordBatch;
use entresol::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol::{Database, Options, Session};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

/// Runs the queries; see the [module](self). Saves results if the arguments say so; JSON and picture are the
/// caller's. Errors: the database or a table does not exist, or an answer cannot be read; all of them before the
/// first query.
pub fn run(arguments: &RunArguments) -> Result<Report> {
    let queries = arguments.queries.queries();
    let answers = match &arguments.answers {
        Some(dir) => {
            queries.iter().map(|query| answers::read(dir, query).map(Some)).collect::<Result<_>>()?
        }
        None => vec![None; queries.len()],
    };
    if let Some(dir) = &arguments.save {
        fs::create_dir_all(dir).map_err(|error| Error::file("make", dir, error))?;
    }
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or_else(cores, usize::from);
    let options = Options {
        memory_max: arguments.memory,
        worker_threads: Some(threads),
        create_if_missing: false,
        starts_topologies: false,
        ..Options::default()
    };
    let database = Database::open(&arguments.dir, options)?;
    check_tables(&database, &arguments.dir)?;
    let mut report = Report {
        queries: Vec::new(),
        lineorder_rows: None,
        memory_max_bytes: database.memory_usage().max_bytes,
        threads,
    };
    let mut session = database.session()?;
    let mut progress = Progress::new("queries");
    for (query, answer) in queries.iter().zip(&answers) {
        progress.note(&format!("q{} ...", query.name));
        let (reported, rows) = run_query(&mut session, query, arguments.repeat, answer.as_deref());
        report.queries.push(reported);
        if let (Some(dir), Some(rows)) = (&arguments.save, rows) {
            answers::save(dir, query, &rows)?;
        }
    }
    progress.clear();
    // Behind the queries: it reads the table.
    report.lineorder_rows = count(&mut session);
    drop(session);
    database.close()?;
    Ok(report)
}

fn check_tables(database: &Database, dir: &Path) -> Result<()> {
    let missing: Vec<&str> =
        TABLES.into_iter().filter(|table| database.catalog().relation_kind(table).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (names, dir) = (missing.join(", "), dir.display());
    Err(Error::Invalid(format!(
        "the database in {dir} has no {names}: `entresol ssb load TBL_DIR --dir {dir}` loads all tables"
    )))
}

fn count(session: &mut Session) -> Option<u64> {
    let rows = rows_of(&session.query("SELECT count(*) FROM lineorder").ok()?).ok()?;
    rows.first()?.first()?.parse().ok()
}

/// Runs a query; returns its result too, unless it failed.
fn run_query(
    session: &mut Session,
    query: &'static Query,
    repeat: u32,
    answer: Option<&[Row]>,
) -> (QueryReport, Option<Vec<Row>>) {
    let mut reported = QueryReport {
        query: query.name,
        rows: 0,
        first_ms: 0.0,
        repeated_ms: Vec::new(),
        verdict: Verdict::NotCompared,
    };
    match try_run(session, query, repeat, &mut reported) {
        Ok(rows) => {
            reported.rows = rows.len();
            if let (Some(answer), Verdict::NotCompared) = (answer, &reported.verdict) {
                let different = answers::difference(query, &rows, answer);
                reported.verdict = different.map_or(Verdict::Same, Verdict::Different);
            }
            (reported, Some(rows))
        }
        Err(error) => {
            reported.verdict = Verdict::Failed(error.to_string());
            (reported, None)
        }
    }
}

/// Takes the times; a run with another result than the first is a verdict.
fn try_run(
    session: &mut Session,
    query: &Query,
    repeat: u32,
    reported: &mut QueryReport,
) -> Result<Vec<Row>> {
    let mut timed = || -> Result<(f64, Vec<Row>)> {
        let begin = Instant::now();
        let batches = session.query(query.sql)?;
        let ms = begin.elapsed().as_secs_f64() * 1000.0;
        Ok((ms, rows_of(&batches)?))
    };
    let (first_ms, rows) = timed()?;
    reported.first_ms = first_ms;
    for number in 0..repeat {
        let (ms, again) = timed()?;
        reported.repeated_ms.push(ms);
        if let Some(difference) = answers::difference(query, &again, &rows) {
            let run = number + 2;
            reported.verdict = Verdict::Different(format!("run {run} is not the first again: {difference}"));
            break;
        }
    }
    Ok(rows)
}

/// Values as strings; NULL is empty.
fn rows_of(batches: &[RecordBatch]) -> Result<Vec<Row>> {
    let options = FormatOptions::new();
    let mut rows = Vec::new();
    for batch in batches {
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let formatters = formatters.collect::<std::result::Result<Vec<_>, _>>();
        let formatters =
            formatters.map_err(|error| Error::Invalid(format!("cannot format the result: {error}")))?;
        let values = |row| formatters.iter().map(|formatter| formatter.value(row).to_string()).collect();
        rows.extend((0..batch.num_rows()).map(values));
    }
    Ok(rows)
}
