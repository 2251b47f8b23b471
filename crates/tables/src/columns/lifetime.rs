//! Beginning and end of the row groups of a table whose layout changes.
//!
//! ```text
//!   layout rows        columns                       rows            columns
//!   ───────────┬──────────────────┬──────────────┬──────────────┬────────────▶
//!              │ store 1          │ drained      │ ended        │ store 2
//! ```
//! All definitions of a table share one [`StoreCell`], so who has an old one finds the row groups too. Row groups
//! that ended are gone for transactions that see the end, and there for the others; the cell has them until no
//! such transaction is left ([`Lifetime::is_over`]). Only then others may follow.
//!
//! All of it is volatile: after a restart there are no old transactions, and the catalog says what there is.

use crate::columns::store::ColumnStore;
use crate::error::Result;
use entresol_transactions::{AtomicTimestamp, INFINITY, State, StateContext, Timestamp, Transaction};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Row groups of a table over the changes of its layout; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct StoreCell(OnceLock<Arc<ColumnStore>>);

impl StoreCell {
    /// Cell of a table that has these row groups.
    pub(crate) fn of(store: Option<Arc<ColumnStore>>) -> Arc<StoreCell> {
        Arc::new(StoreCell(store.map(OnceLock::from).unwrap_or_default()))
    }

    /// Row groups that a transaction may have to read; none if there are none, or none any more.
    pub(crate) fn get(&self) -> Option<&Arc<ColumnStore>> {
        let mut store = self.0.get()?;
        while store.lifetime.is_over(store.context()) {
            store = store.lifetime.successor.get()?;
        }
        Some(store)
    }

    /// Adds row groups; false if those before are not over.
    pub(crate) fn add(&self, added: &Arc<ColumnStore>) -> bool {
        if self.get().is_some() {
            return false;
        }
        let mut cell = &self.0;
        while let Some(store) = cell.get() {
            cell = &store.lifetime.successor;
        }
        cell.set(Arc::clone(added)).is_ok()
    }
}

/// Beginning of the end of a store, and its successor.
#[derive(Debug)]
pub(crate) struct Lifetime {
    /// Statements that let it get no new row groups: one that moves its rows away, or that makes a change log.
    draining: AtomicU32,
    /// Timestamp from which on it is empty; infinite as long as it is the table's.
    ended: AtomicTimestamp,
    /// True once all transactions see the end.
    over: AtomicBool,
    /// Row groups that the table has after it.
    successor: OnceLock<Arc<ColumnStore>>,
}

impl Default for Lifetime {
    fn default() -> Lifetime {
        Lifetime {
            draining: AtomicU32::new(0),
            ended: AtomicTimestamp::new(INFINITY),
            over: AtomicBool::new(false),
            successor: OnceLock::new(),
        }
    }
}

impl Lifetime {
    /// Returns true while it gets no new row groups.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire) > 0
    }

    /// Returns true if the store is the table's no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != INFINITY
    }

    /// Ends it: for transactions that see the timestamp it is empty.
    pub(crate) fn end(&self, at: Timestamp) {
        let before = self.ended.swap(at, Ordering::AcqRel);
        assert_eq!(before, INFINITY, "row groups end once");
    }

    /// Ends it before anyone has seen it.
    pub(crate) fn end_unused(&self) {
        self.end(Timestamp::START);
        self.over.store(true, Ordering::Release);
    }

    /// Returns true if the transaction sees the end of this state. Their version history is gone with them: an
    /// error for a transaction AS OF a time before the end.
    pub(crate) fn is_over_for(&self, tx: &Transaction, state: &State) -> Result<bool> {
        let ended = self.ended.load(Ordering::Acquire);
        match tx.as_of() {
            _ if ended == INFINITY => Ok(false),
            None => Ok(tx.sees(ended)),
            Some(at) if at >= ended => Ok(true),
            Some(at) => Err(state.is_younger(at, ended).into()),
        }
    }

    /// Returns true if all transactions, those that are open and those to come, see its end.
    fn is_over(&self, context: &StateContext) -> bool {
        if self.over.load(Ordering::Acquire) {
            return true;
        }
        let over = self.has_ended() && context.is_seen_by_all(self.ended.load(Ordering::Acquire));
        if over {
            self.over.store(true, Ordering::Release);
        }
        over
    }
}

/// Time in which a store gets no new row groups, neither by merges nor by loads; and writers note the rows that they
/// replace in it.
pub(crate) struct DrainGuard<'s>(&'s ColumnStore);

impl<'s> DrainGuard<'s> {
    /// Begins it behind a merge that is at work. Loads that are in flight have to be refused.
    pub(crate) fn begin(store: &'s ColumnStore) -> DrainGuard<'s> {
        let _no_merge = store.merging.lock();
        store.lifetime.draining.fetch_add(1, Ordering::AcqRel);
        DrainGuard(store)
    }
}

impl Drop for DrainGuard<'_> {
    fn drop(&mut self) {
        let before = self.0.lifetime.draining.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "what ends has begun");
    }
}
