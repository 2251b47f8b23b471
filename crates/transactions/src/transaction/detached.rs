//! Writes that are collected before their transaction begins.
//!
//! Invariants: they are blind: nothing that they depend on was read from a state. So a transaction that takes them over
//! is the same as one that had made them itself, at its snapshot. Nothing of them is visible before, to no reader, and a
//! crash leaves nothing of them.
//!
//! Memory: as of a write set, with the same maximum; a transaction that takes them over takes their reservation.

use crate::context::StateContext;
use crate::context::state::State;
use crate::history::utc;
use crate::mvcc::object::VALUE_BYTES_MAX;
use crate::transaction::Transaction;
use crate::transaction::write_set::WriteSet;
use crate::{Error, Protocol, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Writes without a transaction; see the [module](self).
pub struct DetachedWrites {
    context: Arc<StateContext>,
    writes: WriteSet,
}

impl DetachedWrites {
    /// No writes.
    pub fn new(context: &Arc<StateContext>) -> DetachedWrites {
        DetachedWrites { context: Arc::clone(context), writes: WriteSet::default() }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Adds values in their order; of several with one key the last one stays. After an error some of them are added.
    pub fn write_many<'w>(
        &mut self,
        state: &Arc<State>,
        writes: impl Iterator<Item = (&'w [u8], &'w [u8])>,
    ) -> Result<()> {
        self.context.check_owns(state)?;
        let memory = self.context.pool().memory();
        for (key, value) in writes {
            if value.len() > VALUE_BYTES_MAX {
                return Err(Error::ValueLength { bytes: value.len(), max: VALUE_BYTES_MAX });
            }
            self.writes.put(memory, state, state.normalise(key)?, Some(value))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for DetachedWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DetachedWrites({} keys)", self.writes.keys())
    }
}

impl Transaction {
    /// Takes over writes, behind those that it has. After an error some of them are taken.
    pub fn take_over(&self, detached: DetachedWrites) -> Result<()> {
        if let Some(past) = &self.past {
            return Err(Error::ReadOnlyAsOf { at: utc(past.at()) });
        }
        self.check_not_loading()?;
        let writes = detached.writes;
        for written in writes.states.values() {
            self.context.check_owns(&written.state)?;
            self.check_readable(&written.state)?;
            if written.state.protocol() == Protocol::S2pl {
                let mut keys = written.keys.keys();
                keys.try_for_each(|key| {
                    self.lock(|locks, table| locks.write_key(table, written.state.id, key))
                })?;
            }
        }
        let mut pending = self.pending.write();
        pending.check_running()?;
        self.check_open()?;
        self.check_not_superseded()?;
        let has_writes = !writes.is_empty();
        pending.writes.take_over(self.context.pool().memory(), writes)?;
        if has_writes {
            self.has_writes.store(true, Ordering::Release);
        }
        Ok(())
    }
}
