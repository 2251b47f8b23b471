//! Pruning of change logs, by age.
//!
//! Changes whose commit is older than the retention are deleted as any keys are, in the transaction that
//! stores the horizon; the vacuum frees them. A crash leaves both or neither.

use super::{ChangeLog, HORIZON_KEY, cts_of, horizon_value, key_of};
use crate::context::StateContext;
use crate::transaction::scan::KeyRange;
use crate::{Result, Timestamp};
use entresol_memory::Durability;
use entresol_structures::KeyBytes;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Number of parts that are deleted in a transaction.
const PARTS_PER_STEP: usize = 256;
/// Prunings in the time of a retention.
const ROUNDS: u64 = 8;
/// Least time between two prunings.
const INTERVAL_MIN_NS: u64 = 200_000_000;

impl StateContext {
    /// Deletes changes that are older than the retention of their logs. Returns the number of parts; fewer
    /// than there are if it is called often enough.
    pub fn prune_change_logs(self: &Arc<Self>) -> Result<u64> {
        let logs: Vec<Arc<ChangeLog>> = {
            let mut logs = self.change_logs.lock();
            logs.retain(|log| log.strong_count() > 0);
            logs.iter().filter_map(Weak::upgrade).filter(|log| !log.state.is_dropped()).collect()
        };
        let now_ns = self.clock.now_ns();
        let mut pruned = 0;
        for log in logs {
            let retention_ns = log.retention_ns.load(Ordering::Acquire);
            if retention_ns == u64::MAX || now_ns < log.prune_at_ns.load(Ordering::Acquire) {
                continue;
            }
            let horizon = Timestamp::from_nanoseconds(now_ns).minus(retention_ns).min(self.visible_up_to());
            debug_assert!(
                horizon <= self.visible_up_to(),
                "changes that no snapshot has seen yet stay: {horizon}"
            );
            let parts = self.prune_log(&log, horizon)?;
            pruned += parts as u64;
            if parts < PARTS_PER_STEP {
                let next = now_ns.saturating_add((retention_ns / ROUNDS).max(INTERVAL_MIN_NS));
                log.prune_at_ns.store(next, Ordering::Release);
            }
        }
        Ok(pruned)
    }

    /// Deletes the oldest changes of commits up to a timestamp; those of a commit whole, or not.
    pub(crate) fn prune_log(self: &Arc<Self>, log: &ChangeLog, horizon: Timestamp) -> Result<usize> {
        let transaction = self.begin()?;
        let range = KeyRange {
            lower: Bound::Excluded(KeyBytes::from_slice(&HORIZON_KEY)),
            upper: Bound::Included(KeyBytes::from_slice(&key_of(horizon, u64::MAX))),
        };
        let (mut from, mut keys) = (None, Vec::new());
        // One commit may have more parts than a step has.
        let is_enough = |keys: &[KeyBytes]| {
            let commits = [keys.first(), keys.last()].map(|key| key.map(|key| cts_of(key)));
            keys.len() > PARTS_PER_STEP && commits[0] != commits[1]
        };
        while !is_enough(&keys)
            && transaction.scan_batch(&log.state, &range, &mut from, |key, _| {
                keys.push(KeyBytes::from_slice(key));
            })?
        {}
        if is_enough(&keys) {
            // The last commit may have more.
            let last = keys.last().map(|key| cts_of(key));
            keys.retain(|key| Some(cts_of(key)) != last);
        }
        let Some(last) = keys.last() else { return Ok(0) };
        debug_assert!(cts_of(last) <= horizon, "nothing behind the horizon {horizon} is deleted");
        let horizon = horizon_value(cts_of(last));
        for key in &keys {
            transaction.write(&log.state, key, None)?;
        }
        transaction.write(&log.state, &HORIZON_KEY, Some(&horizon))?;
        transaction.commit(Durability::None)?;
        Ok(keys.len())
    }
}
