//! Pruning of the oldest part of a version history.
//!
//! Pruning goes in rounds over all records, a leaf of the index at a time: by the thread that reclaims space,
//! by commits where there is none or a round takes too long, a few entries for each key that was written, and
//! in [`StateContext::vacuum`](crate::StateContext::vacuum) all of it. A round begins by moving the horizon
//! to the oldest timestamp that has to stay readable: no further than any AS OF reader, nor than any commit
//! in flight. The horizon is persistent before the first record is removed; each is removed with its entry in
//! one publication.
//!
//! A crash leaves some records that ended before the horizon: they cannot be read, and the next round finds
//! them.

use super::{History, Record};
use crate::context::StateContext;
use crate::context::state::State;
use crate::points::{HORIZON_MOVED, RECORD_WITH_ITS_KEY};
use crate::reclamation::reclaim::WaitPolicy;
use crate::recovery;
use crate::{Result, Timestamp};
use entresol_memory::PoolOffset;
use entresol_memory::order::step;
use entresol_structures::KeyBytes;
use parking_lot::MutexGuard;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of rounds of pruning in the retention time of a version: versions are kept longer than asked for by
/// at most one part of that many.
pub const PRUNE_ROUNDS: u64 = 8;

/// Minimum number of entries that a commit visits for pruning.
const PRUNE_ENTRIES_MIN: usize = 64;

/// Number of keys that are held at a time.
const PRUNE_KEYS: usize = 32;

/// Progress of a round.
#[derive(Default)]
pub(crate) struct Round {
    /// Next position; None: there is no round.
    from: Option<Bound<KeyBytes>>,
    /// Clock time at which it began.
    began_ns: u64,
}

/// The outcome of a step.
struct PruneStep {
    records: u64,
    /// Duration of the round so far.
    round_ns: u64,
    /// Retention of versions.
    retention_ns: u64,
}

impl History {
    /// Holds pruning off until the guard goes: what ends a history or moves its horizon comes between two steps.
    /// Taken before keys or a group are.
    pub(crate) fn hold_pruning(&self) -> MutexGuard<'_, Round> {
        self.round.lock()
    }

    /// Clock time at which pruning has to go on.
    fn prune_due_ns(&self) -> u64 {
        match self.retention_ns.load(Ordering::Acquire) {
            u64::MAX => u64::MAX,
            _ => self.prune_at_ns.load(Ordering::Acquire),
        }
    }
}

impl StateContext {
    /// A step of pruning as for a commit of `keys` keys, in any history that is due. Never waits for a lock.
    /// False: there is nothing to do now.
    pub(crate) fn prune_behind(&self, keys: usize) -> Result<bool> {
        let now_ns = self.clock.now_ns();
        if now_ns < self.prune_due_ns.load(Ordering::Acquire) {
            return Ok(false);
        }
        let Some(states) = self.with_history.try_lock().map(|states| states.clone()) else {
            return Ok(false);
        };
        let due = |state: &Arc<State>| state.history().map_or(u64::MAX, |history| history.prune_due_ns());
        let next = states.iter().map(&due).min().unwrap_or(u64::MAX);
        self.prune_due_ns.store(next, Ordering::Release);
        let Some(state) = states.iter().find(|state| due(state) <= now_ns) else { return Ok(false) };
        let Some(pruned) = self.prune_step(state, PRUNE_ENTRIES_MIN.max(4 * keys), WaitPolicy::Never)? else {
            return Ok(false);
        };
        let is_late = pruned.round_ns > pruned.retention_ns / 2;
        self.prune_is_late.store(is_late, Ordering::Relaxed);
        Ok(true)
    }

    /// Tells whether a round takes so long that commits have to help.
    pub(crate) fn prune_is_late(&self) -> bool {
        self.prune_is_late.load(Ordering::Relaxed)
    }

    /// Prunes the history of a state as far as that is possible now. Returns the number of versions removed.
    pub(crate) fn prune_all(&self, state: &State) -> Result<u64> {
        let Some(history) = state.history() else { return Ok(0) };
        let mut pruned = 0;
        // From the beginning, with a new horizon.
        history.round.lock().from = None;
        history.prune_at_ns.store(0, Ordering::Release);
        loop {
            let Some(step) = self.prune_step(state, PRUNE_ENTRIES_MIN, WaitPolicy::Waits)? else {
                // The history has ended.
                return Ok(pruned);
            };
            pruned += step.records;
            if history.round.lock().from.is_none() {
                return Ok(pruned);
            }
        }
    }

    /// Visits about `entries_max` records. Records are removed under the stripes of their keys: a commit that
    /// ends a version again changes its record in place. None: there is no history (any more), or the caller
    /// would have to wait.
    fn prune_step(
        &self,
        state: &State,
        entries_max: usize,
        patience: WaitPolicy,
    ) -> Result<Option<PruneStep>> {
        let Some(history) = state.history() else { return Ok(None) };
        self.check_accepts_commits()?;
        let round = match patience {
            WaitPolicy::Waits => Some(history.round.lock()),
            WaitPolicy::Never => history.round.try_lock(),
        };
        // Its end takes the lock as well: a history that has not ended by now stays until this step is done.
        let has_ended = !state.history().is_some_and(|now| Arc::ptr_eq(&now, &history));
        let Some(mut round) = round.filter(|_| !has_ended) else { return Ok(None) };
        let now_ns = self.clock.now_ns();
        let from = match &round.from {
            Some(from) => from.clone(),
            None => {
                self.begin_round(state, &history);
                round.began_ns = now_ns;
                Bound::Unbounded
            }
        };
        let retention_ns = history.retention_ns.load(Ordering::Acquire);
        let mut done =
            PruneStep { records: 0, round_ns: now_ns.saturating_sub(round.began_ns), retention_ns };
        let horizon = history.horizon();
        let (mut entries, mut over) = (Vec::new(), Vec::new());
        let next = {
            let _guard = state.pool().pin();
            let next = history.index.scan(from.as_ref().map(|key| &key[..]), entries_max, &mut entries)?;
            for (key, word) in entries {
                let record = Record::try_open(state.pool(), PoolOffset::from_word(word));
                let record = record.ok_or_else(|| state.damaged(&key, "a damaged version of the history"))?;
                let (of, cts) = history
                    .keys
                    .decode(&key)
                    .ok_or_else(|| state.damaged(&key, "a damaged key of the history"))?;
                if record.cts() != cts || record.dts() <= cts {
                    return Err(state.damaged(&key, "a version of the history that its key does not name"));
                }
                if self.is_over(state, record, horizon) {
                    over.push((of, key));
                }
            }
            next
        };
        for keys in over.chunks(PRUNE_KEYS) {
            let of_state = || keys.iter().map(|(of, _)| (state.id, &of[..]));
            let held = state.group.hold_keys(of_state, patience);
            let Some(_held) = held else { return Ok(Some(done)) };
            for (_, key) in keys {
                done.records += u64::from(self.prune_record(state, &history, key, horizon)?);
            }
        }
        debug_assert!(done.records <= over.len() as u64, "no records go but those that are over");
        round.from = next.map(Bound::Included);
        if round.from.is_none() {
            history.prune_at_ns.store(now_ns.saturating_add(retention_ns / PRUNE_ROUNDS), Ordering::Release);
        }
        Ok(Some(done))
    }

    fn is_over(&self, state: &State, record: Record<'_>, horizon: Timestamp) -> bool {
        let dts = record.dts();
        dts <= horizon || state.group.invalid.contains(dts)
    }

    /// Removes a record if it is still obsolete. The caller holds its key.
    fn prune_record(&self, state: &State, history: &History, key: &[u8], horizon: Timestamp) -> Result<bool> {
        let Some(word) = history.index.get(key)? else { return Ok(false) };
        let offset = PoolOffset::from_word(word);
        let record = Record::try_open(state.pool(), offset);
        let record = record.ok_or_else(|| state.damaged(key, "a damaged version of the history"))?;
        if !self.is_over(state, record, horizon) {
            return Ok(false);
        }
        debug_assert!(
            horizon <= history.horizon(),
            "{horizon} is not a horizon of the history {}",
            history.id
        );
        let mut publication = state.pool().publication();
        publication.free(offset);
        publication.barrier(RECORD_WITH_ITS_KEY);
        let removed = history.index.remove(key, publication)?;
        assert_eq!(removed, Some(word), "the key that goes led to the record that is freed");
        Ok(true)
    }

    /// Moves the horizon to the oldest timestamp that has to stay readable.
    fn begin_round(&self, state: &State, history: &History) {
        let retention_ns = history.retention_ns.load(Ordering::Acquire);
        let wanted = self.clock.now().minus(retention_ns).min(self.active.advanced().all_up_to());
        // A reader that registers later sees the new horizon; one that is registered already holds it back.
        let horizon = {
            let readers = self.as_of_readers.lock();
            let horizon = readers.keys().next().map_or(wanted, |&oldest| wanted.min(oldest));
            history.horizon.fetch_max(horizon, Ordering::SeqCst).max(horizon)
        };
        debug_assert!(horizon <= history.horizon(), "the horizon of {} moves back to {horizon}", state.id);
        step(HORIZON_MOVED, || self.directory.set_horizon(state.id, horizon));
    }

    /// Removes the records of commits that did not finish, before their timestamps are forgotten. The caller
    /// has the state's group, or the context, to itself. Returns their number.
    pub(crate) fn scrub_history(state: &State) -> Result<u64> {
        let Some(history) = state.history() else { return Ok(0) };
        let mut invalid = Vec::new();
        recovery::for_each_entry(&history.index, |key, offset| {
            let record = Record::try_open(state.pool(), offset);
            if record.is_some_and(|record| state.group.invalid.contains(record.dts())) {
                invalid.push((KeyBytes::from_slice(key), offset));
            }
        })?;
        for (key, offset) in &invalid {
            let mut publication = state.pool().publication();
            publication.free(*offset);
            let removed = history.index.remove(key, publication)?;
            assert_eq!(removed, Some(offset.to_word()), "the key that goes led to the record that is freed");
        }
        Ok(invalid.len() as u64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::context::directory::HistoryEntry;
    use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
    use entresol_structures::KeyWidth;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    /// More records than a step visits.
    const KEYS: u64 = 3 * PRUNE_ENTRIES_MIN as u64;

    struct Fixture {
        context: Arc<StateContext>,
        state: Arc<State>,
    }

    impl Fixture {
        fn new() -> Fixture {
            let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
            let pool = Pool::volatile(&options).unwrap();
            let context = StateContext::open_or_create(pool).unwrap();
            let group = context.create_group().unwrap();
            let state = context.create_state(group, KeyWidth::Eight).unwrap();
            Fixture { context, state }
        }

        fn write(&self) {
            let transaction = self.context.begin().unwrap();
            for key in 0..KEYS {
                transaction.write(&self.state, &key.to_be_bytes(), Some(b"value")).unwrap();
            }
            transaction.commit(Durability::None).unwrap();
        }

        fn stored(&self) -> HistoryEntry {
            let histories = self.context.directory.histories().unwrap();
            *histories.iter().find(|history| history.of == self.state.id()).unwrap()
        }

        /// Prunes in another thread while `f` runs here.
        fn while_pruning(&self, f: impl FnOnce()) {
            struct EndGuard<'e>(&'e AtomicBool);
            impl Drop for EndGuard<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Release);
                }
            }
            let ends = AtomicBool::new(false);
            thread::scope(|scope| {
                let pruner = scope.spawn(|| {
                    let mut rounds = 0;
                    while !ends.load(Ordering::Acquire) {
                        self.context.prune_all(&self.state).unwrap();
                        rounds += 1;
                    }
                    rounds
                });
                // Also when `f` panics: the scope waits for the thread.
                let guard = EndGuard(&ends);
                f();
                drop(guard);
                assert!(pruner.join().unwrap() > 0);
            });
        }
    }

    #[test]
    fn the_stored_horizon_does_not_move_back_beside_pruning() {
        let all = Fixture::new();
        all.context.keep_history(all.state.id(), Some(Duration::ZERO)).unwrap();
        all.while_pruning(|| {
            for _ in 0..20_000 {
                let at = all.context.clock.now();
                all.context.forget_history_before(all.state.id(), at).unwrap();
                let stored = all.stored().horizon;
                assert!(stored >= at, "{stored} is stored over {at}");
            }
        });
    }

    #[test]
    fn a_history_that_ends_while_it_is_pruned_leaves_the_next_one_alone() {
        let all = Fixture::new();
        all.while_pruning(|| {
            for _ in 0..200 {
                all.context.keep_history(all.state.id(), None).unwrap();
                let began = all.stored().horizon;
                all.context.keep_history(all.state.id(), Some(Duration::ZERO)).unwrap();
                all.write();
                all.write();
                assert!(all.stored().horizon >= began);
                all.context.drop_history(all.state.id()).unwrap();
            }
        });
    }
}
