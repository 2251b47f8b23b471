//! The write sets that backward validation looks at (dissertation 5.8.1, competitor 2; Härder 1984): those
//! that were committed, and those of commits that are being written.
//!
//! A transaction begins (TSB) at its snapshot, is validated (TSV) under the lock of this collection, and is
//! complete (TSC) when it is visible. It fails if a write set with a timestamp above its snapshot, so not
//! complete when it began, and validated before it, has a key that it read: equation 5.5 and the intersection
//! of the sets. Reading and writing transactions are validated alike.
//!
//! Invariants:
//! - Commit timestamps are assigned in the order of validation, so the sets ascend, and commit order is the
//!   serial order.
//! - A set is here before anything of it is visible.
//!
//! Volatile: a crash ends all readers. Memory: [`WRITE_SET_KEYS_BYTES_MAX`], reserved in the budget as write sets; sets
//! that no active transaction overlaps go with later commits, and if that is not enough, or the budget has no more, the
//! oldest ones go: transactions that began before them are restarted.

use crate::context::state::State;
use crate::points::READS_VALIDATED;
use crate::transaction::reads::ReadSet;
use crate::transaction::write_set::WriteSet;
use crate::{Error, Result, StateId, Timestamp};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_memory::order::step;
use entresol_structures::KeyBytes;
use parking_lot::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of bytes of keys that are kept for validation.
pub const WRITE_SET_KEYS_BYTES_MAX: usize = 64 << 20;

/// Bytes by which the sets change before their reservation does.
const RESERVED_STEP_BYTES: usize = 64 << 10;

/// Number of commits after which sets are removed: finding the oldest snapshot visits all transactions.
const PURGE_EVERY: usize = 64;

struct CommittedSets {
    cts: Timestamp,
    /// Ascending, of states that ascend.
    states: Vec<(StateId, Vec<KeyBytes>)>,
    bytes: usize,
}

#[derive(Default)]
pub(crate) struct RetainedSets {
    sets: VecDeque<CommittedSets>,
    bytes: usize,
    /// Sets up to here are gone.
    floor: Timestamp,
    since_purge: usize,
    reserved: Option<MemoryReservation>,
}

/// See the module.
pub(crate) struct ValidationSets {
    kept: RwLock<RetainedSets>,
}

/// Reads of a transaction in groups that validate backwards.
#[derive(Default)]
pub(crate) struct ValidatedReads {
    reads: ReadSet,
    /// The snapshot of the first reader.
    since: Option<Timestamp>,
}

impl ValidatedReads {
    pub(crate) fn note(&mut self, snapshot: Timestamp) -> &mut ReadSet {
        self.since.get_or_insert(snapshot);
        &mut self.reads
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_none()
    }
}

/// A validated commit that has not entered yet; no other one is validated meanwhile.
pub(crate) struct Turn<'w> {
    kept: RwLockWriteGuard<'w, RetainedSets>,
}

impl ValidationSets {
    /// No sets; their memory is that of a budget.
    pub(crate) fn new(budget: Option<&Arc<MemoryBudget>>) -> ValidationSets {
        let reserved = budget.map(|budget| budget.empty(MemoryConsumer::WriteSets));
        ValidationSets { kept: RwLock::new(RetainedSets { reserved, ..RetainedSets::default() }) }
    }

    /// Fails with a restart if something that was read has been written since. Other read-only transactions
    /// may do so at the same time.
    pub(crate) fn validate(&self, reads: &ValidatedReads) -> Result<()> {
        step(READS_VALIDATED, || self.kept.read().validate(reads))
    }

    /// The same for a transaction that will write: then it is its turn to [`enter`](Turn::enter).
    pub(crate) fn validate_writer(&self, reads: &ValidatedReads) -> Result<Turn<'_>> {
        let kept = self.kept.upgradable_read();
        step(READS_VALIDATED, || kept.validate(reads))?;
        Ok(Turn { kept: RwLockUpgradableReadGuard::upgrade(kept) })
    }

    /// Number of write sets kept.
    pub(crate) fn count(&self) -> usize {
        self.kept.read().sets.len()
    }
}

impl Turn<'_> {
    /// Adds the write set of the commit at `cts`. `oldest` finds the oldest snapshot of an active
    /// transaction.
    pub(crate) fn enter(mut self, cts: Timestamp, writes: &WriteSet, oldest: impl FnOnce() -> Timestamp) {
        let of_bocc = writes.states.values().filter(|writes| writes.state.validates());
        let states: Vec<_> = of_bocc
            .map(|writes| (writes.state.id, writes.keys.keys().cloned().collect::<Vec<_>>()))
            .collect();
        let keys = states.iter().flat_map(|(_, keys)| keys);
        let bytes =
            keys.map(|key| size_of::<KeyBytes>() + key.len()).sum::<usize>() + size_of::<CommittedSets>();
        let kept = &mut *self.kept;
        assert!(
            kept.sets.back().is_none_or(|last| last.cts < cts),
            "timestamps are assigned in the order of validation"
        );
        kept.push(CommittedSets { cts, states, bytes });
        if kept.since_purge >= PURGE_EVERY {
            kept.since_purge = 0;
            let oldest = oldest();
            while kept.sets.front().is_some_and(|set| set.cts <= oldest) {
                kept.drop_first();
            }
        }
        while kept.bytes > WRITE_SET_KEYS_BYTES_MAX && kept.sets.len() > 1 {
            kept.drop_first();
        }
        kept.fit_budget();
    }
}

impl RetainedSets {
    fn push(&mut self, set: CommittedSets) {
        self.bytes += set.bytes;
        self.since_purge += 1;
        self.sets.push_back(set);
    }

    /// Drops the oldest sets for which the budget has no memory.
    fn fit_budget(&mut self) {
        while !self.reserve() && !self.sets.is_empty() {
            self.drop_first();
        }
    }

    /// Reserves memory for the sets; false if there is none.
    fn reserve(&mut self) -> bool {
        let Some(reserved) = &mut self.reserved else { return true };
        let steps = self.bytes.div_ceil(RESERVED_STEP_BYTES) * RESERVED_STEP_BYTES;
        // A few keys are not counted, as those of small write sets.
        let wanted = if self.bytes < RESERVED_STEP_BYTES { 0 } else { steps as u64 };
        reserved.try_resize(wanted).is_ok()
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.sets.pop_front() {
            self.bytes -= first.bytes;
            self.floor = first.cts;
        }
    }

    fn validate(&self, reads: &ValidatedReads) -> Result<()> {
        let Some(since) = reads.since else { return Ok(()) };
        let restart =
            |state: StateId, key: &KeyBytes, reason| Err(Error::Restart { state, key: key.clone(), reason });
        for set in self.sets.iter().rev().take_while(|set| set.cts > since) {
            for (state, keys) in &set.states {
                if let Some(key) = reads.reads.first_read_of(*state, keys) {
                    return restart(
                        *state,
                        key,
                        "it was read, and written by a commit that was not complete then",
                    );
                }
            }
        }
        match reads.reads.any_state() {
            Some(state) if since < self.floor => {
                restart(state.id, &KeyBytes::default(), "the write sets needed for validation were discarded")
            }
            _ => Ok(()),
        }
    }
}

impl ReadSet {
    fn any_state(&self) -> Option<&Arc<State>> {
        self.states().next()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn sets_have_what_the_budget_leaves() {
        let budget = MemoryBudget::new(64 << 20).unwrap();
        let other = budget.try_reserve(MemoryConsumer::Connections, 53 << 20).unwrap();
        let sets = ValidationSets::new(Some(&budget));
        let mut kept = sets.kept.write();
        for number in 1..=5 {
            let cts = Timestamp::from_nanoseconds(number);
            kept.push(CommittedSets { cts, states: Vec::new(), bytes: MIB });
            kept.fit_budget();
        }
        // An eighth of the budget is for pages.
        assert_eq!((kept.sets.len(), kept.floor), (3, Timestamp::from_nanoseconds(2)));
        assert_eq!(budget.usage().used_bytes(), (53 + 3) << 20);
        drop(kept);
        drop(sets);
        drop(other);
        assert_eq!(budget.usage().used_bytes(), 0);
    }
}
