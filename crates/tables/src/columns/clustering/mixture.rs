//! Row groups in key order beside blocks: while a table with rows becomes `clustered`, or ceases to be so.
//!
//! ```text
//!   columns      ordered  ordered  ordered
//!   to clustered blocks   blocks   ordered        merges write row groups anew, one after another
//!   clustered    blocks   blocks   blocks
//! ```
//!
//! - A row of a block is found by its place, one of a row group in key order by a search of the groups that span its key.
//!   Each live row is in one of them, so a key that has a place needs no search.
//! - A table all of whose row groups are blocks should not read its directory for a key that it does not have. So a
//!   snapshot is known from which on there are no others; it is volatile, and looked for anew after opening.
//! - A crash leaves both kinds, and the next merge goes on.

use crate::columns::clustering::store::Clustering;
use crate::columns::group::RowGroup;
use crate::columns::store::ColumnStore;
use crate::error::Result;
use entresol_transactions::{SnapshotMark, State, Transaction};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Snapshot from which on a table has no row groups in key order.
pub(super) struct OrderedGroups {
    gone_from: RwLock<GoneFrom>,
    /// True until the directory was read for them once.
    is_uncounted: AtomicBool,
}

#[derive(Default)]
struct GoneFrom {
    /// The snapshot; none while there may be some.
    snapshot: Option<SnapshotMark>,
    /// Number of times that some were expected.
    epoch: u64,
}

impl OrderedGroups {
    /// Of a table that is opened: its directory will say.
    pub(super) fn to_be_counted() -> OrderedGroups {
        OrderedGroups { gone_from: RwLock::default(), is_uncounted: AtomicBool::new(true) }
    }

    /// Of a table that has some.
    pub(super) fn expected() -> OrderedGroups {
        OrderedGroups { gone_from: RwLock::default(), is_uncounted: AtomicBool::new(false) }
    }

    /// Notes that some are about to be written.
    pub(super) fn expect(&self) {
        self.is_uncounted.store(false, Ordering::Release);
        let mut gone_from = self.gone_from.write();
        *gone_from = GoneFrom { snapshot: None, epoch: gone_from.epoch + 1 };
    }

    /// Returns true if the transaction sees none.
    fn are_gone_for(&self, tx: &Transaction) -> bool {
        let sees = |snapshot: SnapshotMark| tx.sees_all_of(&snapshot);
        tx.as_of().is_none() && self.gone_from.read().snapshot.is_some_and(sees)
    }
}

impl ColumnStore {
    /// Adds the state of the places of rows to row groups in key order.
    pub(crate) fn add_places(&self, places: Arc<State>) {
        let is_first = self.clustering.set(Clustering::beside_row_groups(places)).is_ok();
        assert!(is_first, "places are added once");
    }

    /// Row groups in key order that the transaction sees, in the order of their numbers.
    pub(crate) fn ordered_groups(&self, tx: &Transaction) -> Result<Vec<RowGroup>> {
        if let Some(clustering) = self.clustering.get() {
            let ordered = &clustering.ordered;
            if ordered.is_uncounted.swap(false, Ordering::AcqRel) && self.has_blocks() {
                self.count_ordered()?;
            }
            if ordered.are_gone_for(tx) {
                return Ok(Vec::new());
            }
        }
        let mut groups = self.groups(tx)?;
        groups.retain(|group| group.cluster.is_none());
        Ok(groups)
    }

    /// Notes from when on there are no row groups in key order, if there are none. New ones are not written meanwhile: the
    /// caller is a merge of a table with blocks, or the first reader of one.
    pub(super) fn count_ordered(&self) -> Result<()> {
        let Some(clustering) = self.clustering.get().filter(|_| self.has_blocks()) else { return Ok(()) };
        let epoch = {
            let gone_from = clustering.ordered.gone_from.read();
            if gone_from.snapshot.is_some() {
                return Ok(());
            }
            gone_from.epoch
        };
        let tx = self.begin()?;
        if self.groups(&tx)?.iter().all(|group| group.cluster.is_some()) {
            let mut gone_from = clustering.ordered.gone_from.write();
            // Unless the layout has changed meanwhile.
            if gone_from.epoch == epoch {
                gone_from.snapshot = Some(tx.snapshot_mark());
            }
        }
        Ok(())
    }
}
