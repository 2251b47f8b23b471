//! Score of alarms against known failures: the injected ones, or the labelled ones.

use super::feed::{Channel, KnownFailure, WINDOW_US};
use super::summary::FailureScore;
use crate::error::Result;
use entresol::Database;
use entresol::tables::{ScanRange, Value};
use std::collections::HashSet;

/// (asset, quantity, window start) of all rows of a table with that key.
fn windows(database: &Database, table: &str) -> Result<Vec<(Channel, i64)>> {
    let catalog = database.catalog();
    let transaction = catalog.begin().map_err(entresol::streams::Error::from)?;
    let mut cursor = catalog.table(table)?.scan(ScanRange::full());
    let mut windows = Vec::new();
    loop {
        let more = cursor.next_batch(&transaction, |row| {
            if let Value::Timestamp(start_us) = row.value(2) {
                let channel =
                    Channel { asset: row.varchar(0).to_string(), quantity: row.varchar(1).to_string() };
                windows.push((channel, start_us));
            }
        })?;
        if !more {
            return Ok(windows);
        }
    }
}

/// Compares the alarms of a database with failures; `None` if none is known.
pub fn score(
    database: &Database,
    failures: &[KnownFailure],
    judged: &[std::sync::Arc<Channel>],
) -> Result<Option<FailureScore>> {
    if failures.is_empty() {
        return Ok(None);
    }
    let alarms: HashSet<(Channel, i64)> = windows(database, "alarms")?.into_iter().collect();
    let all = windows(database, "infrastructure")?;
    let end_us = all.iter().map(|(_, start_us)| start_us + WINDOW_US).max().unwrap_or(i64::MIN);
    let overlaps = |failure: &KnownFailure, start_us: i64| {
        start_us + WINDOW_US > failure.from_us && start_us <= failure.until_us
    };
    let mut score = FailureScore { known: 0, hit: 0, windows_outside: 0, alarms_outside: 0 };
    for failure in failures.iter().filter(|failure| failure.until_us < end_us) {
        let hits = |(channel, start_us): &(Channel, i64)| {
            *channel == *failure.channel && overlaps(failure, *start_us)
        };
        score.known += 1;
        score.hit += u64::from(alarms.iter().any(hits));
    }
    for window in &all {
        let is_judged = judged.iter().any(|channel| **channel == window.0);
        let is_failing =
            failures.iter().any(|failure| *failure.channel == window.0 && overlaps(failure, window.1));
        if is_judged && !is_failing {
            score.windows_outside += 1;
            score.alarms_outside += u64::from(alarms.contains(window));
        }
    }
    Ok(Some(score))
}
