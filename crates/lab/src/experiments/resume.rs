//! Topologies that start with their database: from opening it until all run again, each with a commit of new rows.
//! Durability `group:10ms`.
//!
//! Each topology has a source of its own, which never ends, and counts per group in windows, so that there is state to find
//! again. They are stopped by closing the database.

use super::values::one;
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::{Database, Options, Session};
use serde_json::json;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Seconds within which all topologies are asked to run.
const ASKED_S: f64 = 1.0;
/// Commits of each topology before the first stop.
const COMMITS_BEFORE: u64 = 20;
/// Pause between two looks, and the longest wait.
const LOOK: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (topologies, runs) = if options.quick { (10, 1) } else { (200, 3) };
    let dir = options.database_dir()?;
    let path = dir.path().join("db");
    let database = Database::open(&path, Options::default())?;
    let mut session = database.session()?;
    for at in 0..topologies {
        session.execute(&statements(at))?;
    }
    wait_for(&mut session, topologies, COMMITS_BEFORE)?;
    drop(session);
    database.close()?;
    drop(database);
    let (mut running, mut committed) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (run, commit) = resumed(&path, topologies)?;
        running.push(run);
        committed.push(commit);
    }
    let (running, committed) = (median(&running), median(&committed));
    report.row(json!({ "topologies": topologies, "running_s": running, "committed_s": committed }));
    let figure = format!("{topologies} topologies run again");
    report.asked(AskedFigure::at_most(figure, running, ASKED_S).unit("s"));
    Ok(())
}

/// Source, target and topology of a place.
fn statements(at: u64) -> String {
    format!(
        "CREATE SOURCE reading_{at} (at TIMESTAMP NOT NULL, meter INT NOT NULL, kw DOUBLE,
            WATERMARK FOR at AS at - INTERVAL '1 second')
            WITH (connector = 'generator', rows_per_second = 20, step = '1 second', meter.cardinality = 10);
         CREATE TABLE per_minute_{at} (meter INT, minute TIMESTAMP, n BIGINT, kw DOUBLE, PRIMARY KEY (meter, minute));
         CREATE TOPOLOGY count_{at} COMMIT EVERY INTERVAL '20 milliseconds' WITH (durability = 'group:10ms') AS (
            INSERT INTO per_minute_{at} SELECT meter, window_start, count(*), sum(kw)
            FROM TUMBLE(reading_{at}, at, INTERVAL '1 minute') GROUP BY meter, window_start)"
    )
}

/// Seconds from opening a database until its topologies run, and until each has committed new rows.
fn resumed(path: &Path, topologies: u64) -> Result<(f64, f64), Error> {
    let begin = Instant::now();
    let database = Database::open(path, Options::default())?;
    let mut session = database.session()?;
    wait_for(&mut session, topologies, 0)?;
    let running = begin.elapsed().as_secs_f64();
    wait_for(&mut session, topologies, 1)?;
    let committed = begin.elapsed().as_secs_f64();
    drop(session);
    database.close()?;
    drop(database);
    Ok((running, committed))
}

/// Waits until all topologies run, and each has committed rows since it was started.
fn wait_for(session: &mut Session, topologies: u64, commits: u64) -> Result<(), Error> {
    let begin = Instant::now();
    let ready = format!(
        "SELECT count(*) FROM entresol.topologies WHERE state = 'running' AND coalesce(commits, 0) >= {commits}"
    );
    while one(session, &ready)? != topologies.to_string() {
        if begin.elapsed() > WAIT_MAX {
            let failed =
                "SELECT coalesce(min(name || ': ' || error), 'none failed') FROM entresol.topologies";
            let failed = one(session, failed)?;
            return Err(Error::Invalid(format!("not all topologies run after {WAIT_MAX:?}: {failed}")));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}
