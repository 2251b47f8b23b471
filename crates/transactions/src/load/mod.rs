//! Bulk loads: rows of empty states, outside of the write set.
//!
//! ```text
//!   keys, values ─▶ objects ─▶ index beside the state's ─▶ commit: both exchange their contents,
//!                (one version)  (a state that is dropped)          LastCTS of the group moves
//! ```
//! The rows of a load are in an index of their own, which no reader knows, under an entry of the directory that
//! says that it is dropped. The commit exchanges its content with that of the state, which is empty, by the
//! publication that has the new `LastCTS` ([`crate::commit`]); what is left under the entry is destroyed as any
//! dropped state.
//!
//! # Invariants
//! - The versions of a load begin at the start of time: no range of invalid timestamps reaches there. What
//!   they count from is noted in the state: snapshots before the load's commit find nothing in it, and no
//!   writer with such a snapshot commits ([`State::set_loaded`]). After a restart all snapshots are later.
//! - A state that is loaded has no key, dead or alive, when the load begins and when it is committed, no
//!   version history, no change log, and nothing that depends on its writers. A writer that comes in between
//!   makes the load fail with a conflict.
//!
//! # What a crash leaves
//! Before the commit's publication an entry of a dropped state, which the next open destroys; behind it the
//! loaded state, and an entry with an empty index.
//!
//! # Cost and memory
//! Keys that ascend fill leaves one after the other, with a publication for hundreds of them. Others are
//! collected and sorted ([`run`]): the first run fills leaves; a later one adds its keys between those that are
//! there. Memory: a run for each state, within the memory budget.

mod run;
mod state_load;

use crate::context::StateContext;
use crate::context::placement::PoolRole;
use crate::context::state::State;
use crate::transaction::Transaction;
use crate::visibility::snapshot::Snapshot;
use crate::{Error, GroupId, Protocol, Result, StateId, Timestamp};
use entresol_memory::PoolOffset;
use entresol_structures::KeyBytes;
use std::sync::Arc;

pub(crate) use run::RUN_BYTES_MAX;
pub(crate) use state_load::StateLoad;

/// Maximum number of states of a load: those whose exchange, and `LastCTS`, are one publication.
pub const LOADED_STATES_MAX: usize = 15;

/// Load of a transaction.
pub(crate) struct Load {
    pub(crate) states: Vec<StateLoad>,
}

impl Load {
    /// Number of keys in all states.
    pub(crate) fn keys(&self) -> usize {
        self.states.iter().map(StateLoad::keys).sum()
    }

    /// Group of the states.
    fn group(&self) -> GroupId {
        self.states.first().expect("a load has a state").state().group()
    }

    /// Writes what has been collected.
    fn write_rest(&mut self, check_running: &dyn Fn() -> Result<()>) -> Result<()> {
        self.states.iter_mut().try_for_each(|state| state.write_run(check_running))
    }

    /// Returns a conflict if one of the states has been written, or is not what it was; `last` is the newest
    /// commit of the group, which the caller holds.
    pub(crate) fn check(&self, snapshot: Snapshot, last: Timestamp) -> Result<()> {
        self.states.iter().try_for_each(|load| {
            let state = load.state();
            let key = load.any_key();
            state.check_writer(snapshot, &key)?;
            if state.is_dropped() {
                return Err(Error::NoSuchState(state.id));
            }
            if state.is_loadable() && load.is_what_it_was() && state.index.has_no_keys()? {
                return Ok(());
            }
            Err(Error::Conflict {
                state: state.id,
                key,
                snapshot: snapshot.tells_all_up_to(),
                committed: last,
            })
        })
    }
}

impl State {
    /// Returns true if it could be loaded while it is empty.
    pub(crate) fn is_loadable(&self) -> bool {
        self.protocol() == Protocol::MvccInPlace
            && self.role() == PoolRole::Main
            && self.index.takes_content()
            && self.history().is_none()
            && !self.logs_changes()
            && !self.is_watched()
    }
}

impl Transaction {
    /// Begins a load of states of one group; false, with nothing changed, if one of them cannot be loaded or
    /// has a key or is being loaded, or if the transaction does something else. From then on it writes nothing but by
    /// [`Transaction::load_many`], and does not read what it loads.
    pub fn begin_load(&self, states: &[Arc<State>]) -> Result<bool> {
        self.check_open()?;
        let Some(first) = states.first() else { return Ok(false) };
        let of_one_group = states.iter().all(|state| state.group() == first.group());
        if states.len() > LOADED_STATES_MAX || !of_one_group || !self.may_load() {
            return Ok(false);
        }
        for state in states {
            self.context().check_owns(state)?;
            self.check_readable(state)?;
            let _guard = state.pool().pin();
            let sees_the_last = self.seen().sees(state.loaded_at()) && state.admits_writer(self.seen());
            if !state.is_loadable() || !sees_the_last || !state.index.has_no_keys()? {
                return Ok(false);
            }
        }
        let begun = states.iter().map(|state| StateLoad::begin(self.context(), state));
        let Some(states) = begun.collect::<Result<Option<Vec<_>>>>()? else { return Ok(false) };
        self.put_load(Load { states });
        Ok(true)
    }

    /// Adds rows of a state to the load: keys, in any order, and their values. [`Error::LoadedTwice`] for a key
    /// that it has already, perhaps with a later call or the commit; [`Error::Conflict`] if another has written the state
    /// meanwhile. After an error the transaction is aborted.
    pub fn load_many<'v>(
        &self,
        state: StateId,
        keys: Vec<KeyBytes>,
        value: impl Fn(usize) -> &'v [u8],
    ) -> Result<()> {
        self.with_load(|load, check_running| {
            // Not only the commit finds out.
            load.check(self.seen(), self.context().directory.last_cts(load.group()))?;
            let of_state = load.states.iter_mut().find(|load| load.state().id == state);
            of_state.ok_or(Error::NoSuchState(state))?.push(keys, value, check_running)
        })
    }

    /// Writes what the load has collected: keys that it has twice are found now. After an error the transaction
    /// is aborted.
    pub fn finish_load(&self) -> Result<()> {
        self.with_load(|load, check_running| load.write_rest(check_running))
    }

    /// Takes the load for its commit, with all that it has collected written.
    pub(crate) fn take_finished_load(&self) -> Result<Load> {
        self.finish_load()?;
        self.take_load().ok_or(Error::Finished)
    }

    fn with_load(&self, work: impl FnOnce(&mut Load, &dyn Fn() -> Result<()>) -> Result<()>) -> Result<()> {
        self.check_open()?;
        let taken = self.take_load();
        let Some(mut load) = taken else {
            return Err(Error::Invalid("the transaction has not begun a load".to_owned()));
        };
        let done = work(&mut load, &|| self.check_running());
        match done {
            Ok(()) => self.put_load(load),
            Err(_) => self.abort(),
        }
        done
    }
}

impl StateContext {
    /// Makes an index beside that of a state: under an entry of a dropped state, so that a crash leaves it to be
    /// destroyed.
    pub(crate) fn create_beside(&self, state: &State) -> Result<(StateId, PoolOffset)> {
        let _ddl = self.ddl.lock();
        let entry = self.directory.dropped_entry(state.group(), state.width())?;
        assert!(entry.dropping && entry.id != state.id, "a crash destroys the index beside {}", state.id);
        let entry = self.create_index(entry, |entry, with| self.directory.add_state(entry, with))?;
        Ok((entry.id, entry.root))
    }
}
