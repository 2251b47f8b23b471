//! The histories of states in the directory.

use super::table::{ENTRIES_MAX, SEGMENT_ENTRIES, TableKind};
use super::{DROPPING_HISTORY, Directory, ENTRY_WORDS, FREE, WORD};
use crate::points::{ERASED_AFTER_HORIZON, HORIZON};
use crate::{Error, Result, StateId, Timestamp};
use entresol_memory::{PoolOffset, Publication};
use std::sync::atomic::Ordering;

/// The history of a state, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryEntry {
    /// The state that it belongs to.
    pub(crate) of: StateId,
    /// Its own number among the states.
    pub(crate) id: StateId,
    /// Timestamps before it cannot be read.
    pub(crate) horizon: Timestamp,
    /// Retention of versions after their end, in nanoseconds; `u64::MAX`: for ever.
    pub(crate) retention_ns: u64,
}

impl Directory {
    pub(crate) fn histories(&self) -> Result<Vec<HistoryEntry>> {
        let mut found = Vec::new();
        for (state, offset) in self.histories.entries() {
            let [id, horizon, retention_ns, _] = self.entry(offset);
            let horizon = Timestamp::from_stored(horizon);
            if id == FREE {
                continue;
            }
            if id > ENTRIES_MAX as u64 {
                return Err(Error::Corrupt(format!("state {state} has the history {id} - 1")));
            }
            let (of, id) = (StateId(state as u32), StateId(id as u32 - 1));
            found.push(HistoryEntry { of, id, horizon, retention_ns });
        }
        Ok(found)
    }

    /// Makes a place for the history of a state, if there is none yet. The caller serialises.
    pub(crate) fn prepare_history(&self, state: StateId) -> Result<()> {
        match self.histories.try_offset(state.0 as usize) {
            Some(_) => Ok(()),
            None => self.add_segment(TableKind::Histories, state.0 as usize / SEGMENT_ENTRIES),
        }
    }

    fn history_offset(&self, state: StateId) -> PoolOffset {
        self.histories.offset(state.0 as usize)
    }

    /// Adds a history to the publication that allocates its index and adds its state.
    pub(crate) fn add_history(&self, entry: &HistoryEntry, publication: &mut Publication<'_>) {
        debug_assert_ne!(entry.id, entry.of, "a history is a state of its own");
        let offset = self.history_offset(entry.of);
        debug_assert_eq!(self.word(offset).load(Ordering::Acquire), FREE, "{} has no history yet", entry.of);
        publication.set(offset.plus(WORD), entry.horizon.stored());
        publication.set(offset.plus(2 * WORD), entry.retention_ns);
        publication.set(offset, u64::from(entry.id.0) + 1);
    }

    pub(super) fn end_history(&self, state: StateId, history: StateId, publication: &mut Publication<'_>) {
        debug_assert_eq!(
            self.word(self.history_offset(state)).load(Ordering::Acquire),
            u64::from(history.0) + 1,
            "the history that ends is that of {state}"
        );
        publication.set(self.history_offset(state), FREE);
        publication.set(self.state_offset(history), DROPPING_HISTORY);
    }

    /// Removes the history of a state; recovery rule: what is left of it is destroyed.
    pub(crate) fn drop_history(&self, state: StateId, history: StateId) -> Result<()> {
        let mut publication = self.pool.publication();
        self.end_history(state, history, &mut publication);
        Ok(publication.publish()?)
    }

    /// Moves the horizon of a state's history; fenced. Recovery rule: versions that ended up to there cannot
    /// be read.
    pub(crate) fn set_horizon(&self, state: StateId, horizon: Timestamp) {
        let stored = self.word(self.history_offset(state).plus(WORD)).load(Ordering::Acquire);
        debug_assert!(stored <= horizon.stored(), "the horizon of {state} does not move back to {horizon}");
        self.set_history_word(state, 1, horizon.stored());
    }

    /// Changes the retention of the history of a state; fenced.
    pub(crate) fn set_retention(&self, state: StateId, retention_ns: u64) {
        self.set_history_word(state, 2, retention_ns);
    }

    fn set_history_word(&self, state: StateId, word: u64, value: u64) {
        debug_assert!(
            (1..ENTRY_WORDS as u64).contains(&word),
            "the first word says whether there is a history"
        );
        debug_assert_ne!(
            self.word(self.history_offset(state)).load(Ordering::Acquire),
            FREE,
            "{state} has a history"
        );
        let offset = self.history_offset(state).plus(word * WORD);
        self.word(offset).store(value, Ordering::Release);
        self.pool.flush_word_at(offset, HORIZON);
        self.pool.fence_at(ERASED_AFTER_HORIZON);
    }
}
