//! Ad-hoc SQL sessions that read snapshots over several states while the streams write them.
//!
//! Each check is one read transaction of several statements. Its results must fit together:
//!
//! - For each channel, `latest` has the window that is the last one in `infrastructure` (one transaction
//!   writes both), and no alarm is newer.
//! - Stream 1: the readings in closed windows (`meter`) and in open ones (`meter_open`) are as many as the
//!   position that the source stored (`streams_positions`): state and position are of one transaction.
//! - Stream 2: the same for `infrastructure`, `infrastructure_open` and its position.
//! - `household` has as many readings as `meter`.

use super::live::LiveCounters;
use super::topology::{HOUSEHOLD_TOPOLOGY, INFRASTRUCTURE_TOPOLOGY};
use crate::error::{Error, Result};
use entresol::arrow::array::RecordBatch;
use entresol::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol::{Database, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Pause between two checks of a session: the demo measures streams, not the speed of checks.
const PAUSE: Duration = Duration::from_millis(25);

/// Rows as strings; NULL is an empty string.
pub fn texts(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::new();
    let mut rows = Vec::new();
    for batch in batches {
        let formatters: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| Error::Check(error.to_string()))?;
        for row in 0..batch.num_rows() {
            rows.push(formatters.iter().map(|formatter| formatter.value(row).to_string()).collect());
        }
    }
    Ok(rows)
}

fn rows(session: &mut Session, sql: &str) -> Result<Vec<Vec<String>>> {
    texts(&session.query(sql)?)
}

/// A single number; NULL and nothing are 0.
fn number(session: &mut Session, sql: &str) -> Result<i64> {
    let rows = rows(session, sql)?;
    Ok(rows.first().and_then(|row| row.first()).and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// One check: returns a description of the first violation, if any.
pub fn check(session: &mut Session) -> Result<Option<String>> {
    session.execute("BEGIN")?;
    let found = check_in_transaction(session);
    // It has only read: there is nothing to commit, and after an error nothing could be.
    session.execute("ROLLBACK")?;
    found
}

fn check_in_transaction(session: &mut Session) -> Result<Option<String>> {
    let last = rows(
        session,
        "SELECT asset, quantity, MAX(window_start) FROM infrastructure GROUP BY asset, quantity ORDER BY 1, 2",
    )?;
    let latest = rows(session, "SELECT asset, quantity, window_start FROM latest ORDER BY 1, 2")?;
    if last != latest {
        return Ok(Some(format!("infrastructure ends with {last:?}, latest has {latest:?}")));
    }
    let newer = "SELECT COUNT(*) FROM alarms a JOIN latest l ON a.asset = l.asset AND a.quantity = l.quantity \
                 WHERE a.window_start > l.window_start";
    let newer = number(session, newer)?;
    if newer > 0 {
        return Ok(Some(format!("{newer} alarms are newer than their channel's latest window")));
    }
    for (closed, open, topology, source) in [
        ("meter", "meter_open", HOUSEHOLD_TOPOLOGY, "household"),
        ("infrastructure", "infrastructure_open", INFRASTRUCTURE_TOPOLOGY, "infrastructure"),
    ] {
        let in_closed = number(session, &format!("SELECT SUM(readings) FROM {closed}"))?;
        let in_open = number(session, &format!("SELECT SUM(readings) FROM {open}"))?;
        let position = number(session, &position_sql(topology, source))?;
        if in_closed + in_open != position {
            return Ok(Some(format!(
                "{closed} has {in_closed} readings and {open} {in_open}, but the position of the source is {position}"
            )));
        }
        if closed == "meter" {
            let household = number(session, "SELECT SUM(readings) FROM household")?;
            if household != in_closed {
                return Ok(Some(format!("meter has {in_closed} readings, household {household}")));
            }
        }
    }
    Ok(None)
}

/// The stored position of a source.
pub fn position_sql(topology: &str, source: &str) -> String {
    format!(
        "SELECT \"position\" FROM streams_positions WHERE topology = '{topology}' AND source = '{source}'"
    )
}

/// Running sessions.
pub struct Checkers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Checkers {
    /// Starts `count` sessions, each in its own thread.
    pub fn start(database: &Database, count: u32, live: &Arc<LiveCounters>) -> Result<Checkers> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut checkers = Checkers { stop: stop.clone(), threads: Vec::new() };
        for number in 0..count {
            let (mut session, stop, live) = (database.session()?, stop.clone(), live.clone());
            let work = move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(violation) = check(&mut session)? {
                        tracing::error!("snapshot violation: {violation}");
                        live.violations.fetch_add(1, Ordering::Relaxed);
                    }
                    live.checks.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
                Ok(())
            };
            let thread = thread::Builder::new().name(format!("snapshots-{number}")).spawn(work);
            checkers.threads.push(
                thread.map_err(|error| Error::Check(format!("cannot start a session's thread: {error}")))?,
            );
        }
        Ok(checkers)
    }

    /// Ends all sessions; the first error of one of them is the result.
    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let mut outcome = Ok(());
        for thread in std::mem::take(&mut self.threads) {
            let ended = thread.join().unwrap_or_else(|_| Err(Error::Check("a session panicked".to_string())));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Drop for Checkers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
