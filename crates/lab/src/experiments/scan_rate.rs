//! Analytical reads of a row table of ten columns: rows a second of sums and counts by one thread and by two,
//! and times of queries that need few of its rows.

use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::arrow::util::display::array_value_to_string;
use entresol::{Database, Durability, Options, Session};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

const TABLE: &str = "CREATE TABLE wide (id BIGINT PRIMARY KEY, a INT, b INT, c INT, d BIGINT, e BIGINT, x DOUBLE, \
     y DOUBLE, day DATE, name VARCHAR)";

/// Query, and its name, its result over `n` rows, and what is asked of it.
struct Case {
    name: &'static str,
    sql: &'static str,
    result: fn(u64) -> String,
    asked: Goal,
}

/// Asked of a case.
enum Goal {
    /// Million rows of the table a second, by one and by two threads.
    Rows(f64, f64),
    /// Milliseconds.
    Ms(f64),
    /// Nothing: a figure to compare with.
    Nothing,
}

const CASES: [Case; 7] = [
    Case {
        name: "sum of a column",
        sql: "SELECT sum(d) FROM wide",
        result: |n| (n * (n - 1) / 2).to_string(),
        asked: Goal::Rows(25.0, 45.0),
    },
    Case {
        name: "sum under a condition",
        sql: "SELECT sum(d) FROM wide WHERE a < 100",
        result: |n| (0..n).filter(|id| id % 1000 < 100).sum::<u64>().to_string(),
        asked: Goal::Nothing,
    },
    Case { name: "count", sql: "SELECT count(*) FROM wide", result: |n| n.to_string(), asked: Goal::Nothing },
    Case {
        name: "groups",
        sql: "SELECT count(*) FROM (SELECT b, sum(x) FROM wide GROUP BY b)",
        result: |n| n.min(97).to_string(),
        asked: Goal::Nothing,
    },
    Case {
        name: "latest five rows",
        sql: "SELECT min(id) FROM (SELECT id FROM wide ORDER BY id DESC LIMIT 5)",
        result: |n| (n - 5).to_string(),
        asked: Goal::Ms(1.0),
    },
    Case {
        name: "greatest key",
        sql: "SELECT max(id) FROM wide",
        result: |n| (n - 1).to_string(),
        asked: Goal::Ms(1.0),
    },
    Case {
        name: "rows by key",
        sql: "SELECT sum(d) FROM wide WHERE id BETWEEN 1000 AND 1099",
        result: |_| (1000..1100).sum::<u64>().to_string(),
        asked: Goal::Ms(1.0),
    },
];

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let rows: u64 = if options.quick { 20_000 } else { 2_000_000 };
    let dir = options.database_dir()?;
    let path = dir.path().join("db");
    load(&path, rows, report)?;
    for threads in [1, 2] {
        let database = Database::open(&path, Options::default().worker_threads(threads))?;
        let mut session = database.session()?;
        // What was not opened with the database is now.
        session.query("SELECT count(*) FROM wide")?;
        for case in &CASES {
            measure(case, &mut session, rows, threads, options, report)?;
        }
        drop(session);
        database.close()?;
    }
    Ok(())
}

fn load(path: &Path, rows: u64, report: &mut Report) -> Result<(), Error> {
    let database = Database::open(path, Options::default().durability(Durability::None))?;
    let mut session = database.session()?;
    session.execute(TABLE)?;
    let begin = Instant::now();
    for first in (0..rows).step_by(100_000) {
        let last = (first + 100_000).min(rows) - 1;
        session.execute(&format!(
            "INSERT INTO wide SELECT i, i % 1000, i % 97, i % 7, i, -i, i / 2.0, i / 3.0, DATE '2020-01-01', \
             'name ' || i % 5000 FROM generate_series({first}, {last}) g(i)"
        ))?;
    }
    let rate = rows as f64 / begin.elapsed().as_secs_f64();
    report.row(json!({ "rows": rows, "inserted_rows_per_s": rate }));
    drop(session);
    Ok(database.close()?)
}

fn measure(
    case: &Case,
    session: &mut Session,
    rows: u64,
    threads: usize,
    options: &RunOptions,
    report: &mut Report,
) -> Result<(), Error> {
    let mut seconds = Vec::new();
    let mut right = true;
    for _ in 0..if options.quick { 1 } else { 7 } {
        let begin = Instant::now();
        let batches = session.query(case.sql)?;
        seconds.push(begin.elapsed().as_secs_f64());
        let shown = array_value_to_string(batches[0].column(0), 0);
        right &= shown.is_ok_and(|shown| shown == (case.result)(rows));
    }
    let (s, name) = (median(&seconds), case.name);
    let rate = rows as f64 / s / 1e6;
    report.row(json!({ "case": name, "threads": threads, "ms": s * 1e3, "million_rows_per_s": rate }));
    report.check(&format!("{name}, {threads} threads: the result is right"), right);
    let figure = format!("{name}, {threads} threads");
    match case.asked {
        Goal::Rows(one, two) => {
            let asked = if threads == 1 { one } else { two };
            report.asked(AskedFigure::at_least(figure, rate, asked).unit("M rows/s"));
        }
        Goal::Ms(ms) => report.asked(AskedFigure::at_most(figure, s * 1e3, ms).unit("ms")),
        Goal::Nothing => {}
    }
    Ok(())
}
