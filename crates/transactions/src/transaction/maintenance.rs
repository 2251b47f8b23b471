//! Work in a transaction before it commits: what depends on states that it wrote is maintained in it.
//!
//! One [`BeforeCommit`] of a context is called for each transaction that wrote a watched state, on the thread
//! that commits it, with nothing locked: it may read and write through the transaction. Its error ends the
//! transaction.

use crate::context::StateContext;
use crate::context::state::State;
use crate::transaction::Transaction;
use crate::transaction::write_set::{WriteSet, WrittenState};
use crate::{Error, Result};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Work before a commit; see the [module](self).
pub trait BeforeCommit: Send + Sync {
    /// Does the work for a transaction that wrote watched states.
    fn before_commit(
        &self,
        transaction: &Arc<Transaction>,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Tells whether the work for a transaction may take longer than its own writes.
    fn may_take_long(&self, _transaction: &Transaction) -> bool {
        true
    }
}

/// Work of a context.
#[derive(Default)]
pub(crate) struct Maintenance {
    work: RwLock<Option<Arc<dyn BeforeCommit>>>,
    /// Set once a state is watched.
    has_watched: AtomicBool,
}

impl StateContext {
    /// Sets the work before commits that wrote watched states ([`StateContext::watch`]).
    pub fn set_before_commit(&self, work: Arc<dyn BeforeCommit>) {
        *self.maintenance.work.write() = Some(work);
    }
}

impl StateContext {
    /// Makes transactions that write the state do the work of the context before they commit. Those that have
    /// passed that point are not stopped: see [`StateContext::refuse_older_writers`].
    pub fn watch(&self, state: &State) {
        state.watched.store(true, Ordering::Release);
        self.maintenance.has_watched.store(true, Ordering::Release);
    }
}

impl Transaction {
    /// Does the work before the commit, if a watched state was written.
    pub(crate) fn maintain(&self) -> Result<()> {
        if !self.has_watched_writes() {
            return Ok(());
        }
        let work = self.context().maintenance.work.read().clone();
        let (Some(work), Some(this)) = (work, self.this.upgrade()) else { return Ok(()) };
        work.before_commit(&this).map_err(Error::from_maintenance)
    }

    /// Returns true if its commit has work to do first that may take long.
    pub fn has_long_maintenance(&self) -> bool {
        let work =
            self.has_watched_writes().then(|| self.context().maintenance.work.read().clone()).flatten();
        work.is_some_and(|work| work.may_take_long(self))
    }

    /// Returns true if it wrote a watched state.
    fn has_watched_writes(&self) -> bool {
        if !self.context().maintenance.has_watched.load(Ordering::Acquire) {
            return false;
        }
        let watched = |writes: &WriteSet| {
            let is_watched = |writes: &WrittenState| writes.state.is_watched() && !writes.keys.is_empty();
            !writes.overlaid.is_moving && writes.states.values().any(is_watched)
        };
        watched(&self.pending.read().writes)
    }
}

impl State {
    /// Returns true if its writers do the work of the context before they commit.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }
}
