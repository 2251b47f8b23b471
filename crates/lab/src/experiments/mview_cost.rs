//! Materialized views in the writer's commit: an UPDATE of one row by its key without views, beside one, three and ten.

use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::arrow::util::display::array_value_to_string;
use entresol::{Database, Durability, Options, Session};
use serde_json::json;
use std::time::Instant;

/// Groups of the table.
const GROUPS: u64 = 1000;

/// Views that are there together, and what a commit may cost beside one without views.
struct Case {
    name: &'static str,
    views: &'static [&'static str],
    asked: Option<f64>,
}

const SUMS: &str = "SELECT meter, count(*) AS n, sum(kw) AS kw FROM reading GROUP BY meter";
const MEAN: &str = "SELECT meter % 10 AS part, avg(kw) AS kw FROM reading WHERE kw > 1 GROUP BY meter % 10";
const TOTAL: &str = "SELECT count(*) AS n, sum(kw) AS kw FROM reading";
const MOST: &str = "SELECT meter, max(kw) AS kw FROM reading GROUP BY meter";

const CASES: [Case; 6] = [
    Case { name: "no view", views: &[], asked: None },
    Case { name: "one view of sums", views: &[SUMS], asked: Some(2.0) },
    Case { name: "one view of a mean", views: &[MEAN], asked: Some(2.0) },
    Case { name: "three views", views: &[SUMS, MEAN, TOTAL], asked: None },
    Case {
        name: "ten views",
        views: &[SUMS, SUMS, SUMS, SUMS, MEAN, MEAN, MEAN, TOTAL, TOTAL, TOTAL],
        asked: None,
    },
    Case { name: "one view of maxima, by its query", views: &[MOST], asked: None },
];

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (rows, updates) = if options.quick { (2000, 100) } else { (10_000, 4000) };
    let mut without = None;
    for case in &CASES {
        let database = Database::volatile(Options::default().durability(Durability::None))?;
        let mut session = database.session()?;
        prepare(&mut session, rows)?;
        for (number, query) in case.views.iter().enumerate() {
            session.execute(&format!("CREATE MATERIALIZED VIEW view_{number} AS {query}"))?;
        }
        let us = update(&mut session, rows, updates)?;
        let name = case.name;
        let ratio = us / *without.get_or_insert(us);
        report.row(json!({ "case": name, "views": case.views.len(), "update_us": us, "ratio": ratio }));
        for number in 0..case.views.len() {
            let differ = format!(
                "SELECT count(*) FROM (SELECT * FROM view_{number} EXCEPT ALL SELECT * FROM view_{number}_query) d"
            );
            let batches = session.query(&differ)?;
            let differ = array_value_to_string(batches[0].column(0), 0);
            report.check(
                &format!("{name}, view {number} equals its query"),
                differ.is_ok_and(|differ| differ == "0"),
            );
        }
        if let Some(asked) = case.asked {
            let figure = format!("commit with {name} beside one without");
            report.asked(AskedFigure::at_most(figure, ratio, asked));
        }
        drop(session);
        database.close()?;
    }
    Ok(())
}

fn prepare(session: &mut Session, rows: u64) -> Result<(), Error> {
    session.execute("CREATE TABLE reading (id INT PRIMARY KEY, meter INT, kw BIGINT)")?;
    session.execute(&format!(
        "INSERT INTO reading SELECT i, i % {GROUPS}, i % 100 FROM generate_series(0, {}) g(i)",
        rows - 1
    ))?;
    Ok(())
}

/// Microseconds of an update, autocommitted.
fn update(session: &mut Session, rows: u64, updates: u64) -> Result<f64, Error> {
    let mut us = Vec::new();
    for number in 0..updates {
        let id = number * 7919 % rows;
        let statement = format!("UPDATE reading SET kw = {} WHERE id = {id}", number % 90);
        let begin = Instant::now();
        session.execute(&statement)?;
        us.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&us))
}
