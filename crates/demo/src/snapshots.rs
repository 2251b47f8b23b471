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
//! - `feeder_balance` has a row for each half hour of a feeder of which both sides are known.

use crate::error::{Error, Result};
use crate::script::{HOUSEHOLD_SOURCE, HOUSEHOLD_TOPOLOGY, INFRASTRUCTURE_SOURCE, INFRASTRUCTURE_TOPOLOGY};
use crate::sql::{number, rows};
use entresol::{Database, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Pause between two checks of a session: the demo measures streams, not the speed of checks.
const PAUSE: Duration = Duration::from_millis(25);

/// Balances that must be there, less those that are.
const MISSING_BALANCES: &str =
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM feeder_flow GROUP BY feeder, window_start
    HAVING count(*) = 2) pairs) - (SELECT count(*) FROM feeder_balance)";

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
        ("meter", "meter_open", HOUSEHOLD_TOPOLOGY, HOUSEHOLD_SOURCE),
        ("infrastructure", "infrastructure_open", INFRASTRUCTURE_TOPOLOGY, INFRASTRUCTURE_SOURCE),
    ] {
        let in_closed = number(session, &format!("SELECT SUM(readings) FROM {closed}"))?;
        let in_open = number(session, &format!("SELECT SUM(\"count\") FROM {open}"))?;
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
    let missing = number(session, MISSING_BALANCES)?;
    Ok((missing != 0).then(|| format!("feeder_balance lacks {missing} balances of feeder_flow")))
}

/// One check, which says what it finds.
pub fn is_violated(session: &mut Session) -> Result<bool> {
    let violation = check(session)?;
    violation.iter().for_each(|violation| tracing::error!("snapshot violation: {violation}"));
    Ok(violation.is_some())
}

/// The stored position of a source, in tuples.
fn position_sql(topology: &str, source: &str) -> String {
    format!("SELECT tuples FROM streams_positions WHERE topology = '{topology}' AND source = '{source}'")
}

/// Running sessions.
pub struct Checkers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(u64, u64)>>>,
}

impl Checkers {
    /// Starts `count` sessions, each in its own thread.
    pub fn start(database: &Database, count: u32) -> Result<Checkers> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut checkers = Checkers { stop: Arc::clone(&stop), threads: Vec::new() };
        for number in 0..count {
            let (mut session, stop) = (database.session()?, Arc::clone(&stop));
            let work = move || {
                let (mut checks, mut violations) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    violations += u64::from(is_violated(&mut session)?);
                    checks += 1;
                    thread::sleep(PAUSE);
                }
                Ok((checks, violations))
            };
            let thread = thread::Builder::new().name(format!("snapshots-{number}")).spawn(work);
            checkers.threads.push(
                thread.map_err(|error| Error::Check(format!("cannot start a session's thread: {error}")))?,
            );
        }
        Ok(checkers)
    }

    /// Ends all sessions; returns the numbers of their checks and violations, or the first error of one of them.
    pub fn stop(mut self) -> Result<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sums = Ok((0, 0));
        for thread in std::mem::take(&mut self.threads) {
            let ended = thread.join().unwrap_or_else(|_| Err(Error::Check("a session panicked".to_string())));
            sums = sums.and_then(|(checks, violations)| {
                ended.map(|(more, violated)| (checks + more, violations + violated))
            });
        }
        sums
    }
}

impl Drop for Checkers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
