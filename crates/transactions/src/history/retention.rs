//! Turning histories on and off.
//!
//! A crash leaves a state with its history or without: each is one publication. What is left of a dropped
//! history is destroyed in steps, as a dropped state is.

use super::{History, HistoryKeys};
use crate::context::StateContext;
use crate::context::directory::{HistoryEntry, StateEntry};
use crate::context::state::State;
use crate::points::HORIZON_MOVED;
use crate::reclamation::vacuum::DroppedState;
use crate::visibility::snapshot::Class;
use crate::{Error, Result, StateId, Timestamp};
use entresol_memory::PoolOffset;
use entresol_memory::order::step;
use entresol_structures::IndexStructure;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl StateContext {
    /// Keeps the versions of the state's keys from now on, for `kept` after they have ended, `None`: for
    /// ever; or changes the retention if it does so already. Earlier versions cannot be read. Like a creation
    /// it survives a crash with the next commit that does. Its keys may have at most about half of the bytes
    /// that others may.
    pub fn keep_history(&self, id: StateId, kept: Option<Duration>) -> Result<()> {
        self.keep_history_since(id, kept, None)
    }

    /// As [`StateContext::keep_history`], of a state that had no key before: its history can be told from `since`
    /// on, which may be earlier than the state.
    pub fn keep_history_since(
        &self,
        id: StateId,
        retention: Option<Duration>,
        since: Option<Timestamp>,
    ) -> Result<()> {
        let retention_ns =
            retention.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let _ddl = self.ddl.lock();
        let state = self.state(id).ok_or(Error::NoSuchState(id))?;
        if let Some(history) = state.history() {
            self.directory.set_retention(id, retention_ns);
            history.set_retention(retention_ns);
            self.prune_due_ns.store(0, Ordering::Release);
            return Ok(());
        }
        debug_assert!(!state.is_dropped(), "{id} is not dropped while it gets a history");
        self.directory.prepare_history(id)?;
        self.keeps_history.store(true, Ordering::SeqCst);
        let (slot, _) = self.claim()?;
        let (from, made) = {
            // No commit into the state is in flight: those before had nothing to record, those after find the
            // history.
            let _writer = state.group.hold();
            self.active.catch_up(self.clock.now());
            let stamp = self.active.stamp(slot, Class::Slow);
            let from = stamp.cts();
            let horizon = since.map_or(from, |since| since.min(from));
            let made = self.make_history(&state, horizon, retention_ns);
            if let Ok(history) = &made {
                state.set_history(Some(Arc::clone(history)));
            }
            stamp.finish();
            (from, made)
        };
        self.active.release(slot);
        made?;
        self.with_history.lock().push(state);
        self.prune_due_ns.store(0, Ordering::Release);
        self.wait_until_visible(from)
    }

    fn make_history(
        &self,
        state: &Arc<State>,
        horizon: Timestamp,
        retention_ns: u64,
    ) -> Result<Arc<History>> {
        let id = self.directory.free_state()?;
        let width = HistoryKeys::of(state.width()).width();
        let (group, pool) = (state.group.id, state.role());
        let entry = StateEntry {
            id,
            group,
            width,
            pool,
            version_slots: None,
            structure: IndexStructure::default(),
            node_bytes: None,
            hot_bytes: 0,
            root: PoolOffset::NULL,
            dropping: false,
            history: true,
        };
        let history = HistoryEntry { of: state.id, id, horizon, retention_ns };
        let entry = self.create_index(entry, |entry, publication| {
            self.directory.add_state(entry, publication);
            self.directory.add_history(&history, publication);
        })?;
        let history = History::open(state.pool(), &entry, &history, state.width())?;
        // Keys that were removed before cannot be read.
        history.begin_with_removed_up_to(horizon);
        Ok(history)
    }

    /// Moves the horizon of a state's version history: nothing before this timestamp can be read from now on, and
    /// its space is freed by the next rounds of pruning. Does nothing if there is no history. Survives a crash when
    /// it returns.
    pub fn forget_history_before(&self, id: StateId, at: Timestamp) -> Result<()> {
        let _ddl = self.ddl.lock();
        let state = self.state(id).ok_or(Error::NoSuchState(id))?;
        let Some(history) = state.history() else { return Ok(()) };
        // No record goes before the horizon is durable, and no round that began earlier stores an older one.
        let _pruning = history.hold_pruning();
        debug_assert!(
            state.history().is_some_and(|now| Arc::ptr_eq(&now, &history)),
            "the history of {id} has not ended while its horizon moves"
        );
        history.begin_at(at);
        step(HORIZON_MOVED, || self.directory.set_horizon(id, history.horizon()));
        self.prune_due_ns.store(0, Ordering::Release);
        Ok(self.pool().sync()?)
    }

    /// Drops the version history of the state; its space is freed, in steps, once no transaction reads it.
    /// Does nothing if there is none.
    pub fn drop_history(&self, id: StateId) -> Result<()> {
        let _ddl = self.ddl.lock();
        let state = self.state(id).ok_or(Error::NoSuchState(id))?;
        let Some(history) = state.history() else { return Ok(()) };
        let (slot, _) = self.claim()?;
        let dropped_at = {
            let _pruning = history.hold_pruning();
            let _writer = state.group.hold();
            self.directory.drop_history(id, history.id).map(|()| {
                state.set_history(None);
                let stamp = self.active.stamp(slot, Class::Slow);
                let dropped_at = stamp.cts();
                stamp.finish();
                dropped_at
            })
        };
        self.active.release(slot);
        let dropped_at = dropped_at?;
        self.forget_history(&state, &history, dropped_at);
        self.wait_until_visible(dropped_at)
    }

    /// Notes that the history of a state is dropped, and that no reader finds it any more.
    pub(crate) fn forget_history(&self, state: &State, history: &History, dropped_at: Timestamp) {
        self.with_history.lock().retain(|other| other.id != state.id);
        self.dropping.lock().push(DroppedState::new(
            &history.pool,
            history.id,
            history.root,
            dropped_at,
            false,
        ));
    }

    /// Tells whether any state keeps a version history.
    #[inline]
    pub(crate) fn keeps_history(&self) -> bool {
        self.keeps_history.load(Ordering::Relaxed)
    }
}
