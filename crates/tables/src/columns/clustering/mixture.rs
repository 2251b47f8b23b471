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
//! - A table all of whose row groups are blocks should not read its directory for a key that it does not have, and one
//!   none of whose are, not look for places. So for each kind a snapshot is known from which on there are none; it is
//!   volatile, and looked for anew after opening.
//! - A crash leaves both kinds, and the next merge goes on.

use crate::columns::clustering::store::Clustering;
use crate::columns::group::RowGroup;
use crate::columns::store::ColumnStore;
use crate::error::Result;
use entresol_transactions::{SnapshotMark, State, Transaction};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Snapshot from which on a table has no row groups of a kind.
pub(super) struct GroupsOfKind {
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

impl GroupsOfKind {
    /// Of a table that is opened: its directory will say.
    pub(super) fn to_be_counted() -> GroupsOfKind {
        GroupsOfKind { gone_from: RwLock::default(), is_uncounted: AtomicBool::new(true) }
    }

    /// Of a table that has some, or will have.
    pub(super) fn expected() -> GroupsOfKind {
        GroupsOfKind { gone_from: RwLock::default(), is_uncounted: AtomicBool::new(false) }
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

    /// Returns true once, if the directory was not read for them.
    fn begins_count(&self) -> bool {
        self.is_uncounted.load(Ordering::Relaxed) && self.is_uncounted.swap(false, Ordering::AcqRel)
    }
}

impl ColumnStore {
    /// Adds the state of the places of rows to row groups in key order.
    pub(crate) fn add_places(&self, places: Arc<State>) {
        let is_first = self.clustering.set(Clustering::beside_row_groups(places)).is_ok();
        assert!(is_first, "places are added once");
    }

    /// State of the places, unless the transaction sees no block: none was ever written, all have been written anew in key
    /// order, or it sees the end of the row groups.
    pub(crate) fn places_for(&self, tx: &Transaction) -> Result<Option<&Arc<State>>> {
        let Some(clustering) = self.clustering.get() else { return Ok(None) };
        if clustering.blocks.begins_count() && !self.has_blocks() {
            self.count_other_kind()?;
        }
        if clustering.blocks.are_gone_for(tx) || self.lifetime.is_over_for(tx, self.state())? {
            return Ok(None);
        }
        Ok(Some(clustering.places()))
    }

    /// Row groups in key order that the transaction sees, in the order of their numbers.
    pub(crate) fn ordered_groups(&self, tx: &Transaction) -> Result<Vec<RowGroup>> {
        if let Some(clustering) = self.clustering.get() {
            let ordered = &clustering.ordered;
            if ordered.begins_count() && self.has_blocks() {
                self.count_other_kind()?;
            }
            if ordered.are_gone_for(tx) {
                return Ok(Vec::new());
            }
        }
        let mut groups = self.groups(tx)?;
        groups.retain(|group| group.cluster.is_none());
        Ok(groups)
    }

    /// Notes from when on there are no row groups of the kind that the layout does not write, if there are none. They are
    /// not written meanwhile: the caller is a merge, or the first reader of a table.
    pub(crate) fn count_other_kind(&self) -> Result<()> {
        let Some(clustering) = self.clustering.get() else { return Ok(()) };
        let (has_blocks, others, epoch) = {
            // A change of the layout expects the others under this lock.
            let definition = clustering.definition.read();
            let others = if definition.is_some() { &clustering.ordered } else { &clustering.blocks };
            let gone_from = others.gone_from.read();
            if gone_from.snapshot.is_some() {
                return Ok(());
            }
            (definition.is_some(), others, gone_from.epoch)
        };
        let tx = self.begin()?;
        if self.groups(&tx)?.iter().all(|group| group.cluster.is_some() == has_blocks) {
            let mut gone_from = others.gone_from.write();
            // Unless the layout has changed meanwhile.
            if gone_from.epoch == epoch {
                gone_from.snapshot = Some(tx.snapshot_mark());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::clustering::{ClusteringDefinition, Dimension};
    use crate::{
        Catalog, Column, DataType, MergeStats, NewLayout, Row, ScanRange, Schema, Table, TableLayout,
        TableOptions, Value,
    };
    use entresol_memory::{Durability, Pool, PoolOptions};
    use entresol_transactions::{Cancellation, Error as TransactionError, StateContext, Transaction};
    use std::sync::Arc;

    fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
        Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
    }

    /// Creates table `t` with a hundred rows.
    fn create(catalog: &Catalog) {
        let columns = vec![Column::new("id", DataType::Int), Column::new("x", DataType::Int)];
        let schema = Schema::new(columns, &["id"]).unwrap();
        let table = catalog.create_table("t", schema, TableOptions::default()).unwrap();
        let tx = catalog.begin().unwrap();
        let rows: Vec<Row> = (0..100).map(|id| vec![Value::Int(id), Value::Int(id * 37 % 100)]).collect();
        table.insert_many(&tx, &rows).unwrap();
        tx.commit(Durability::Sync).unwrap();
        set(catalog, TableLayout::Columns);
    }

    fn set(catalog: &Catalog, layout: impl Into<NewLayout>) {
        catalog.set_layout(&Cancellation::default(), "t", layout, &mut |_| Ok(())).unwrap();
    }

    fn clustered() -> NewLayout {
        ClusteringDefinition::new(vec![Dimension { column: 1, bits: Some(3) }]).into()
    }

    fn has_places(table: &Table, tx: &Transaction) -> bool {
        table.own_columns().unwrap().places_for(tx).unwrap().is_some()
    }

    fn count(table: &Arc<Table>, tx: &Transaction) -> usize {
        let by_key = (0..100).filter(|id| table.get(tx, &[Value::Int(*id)]).unwrap().is_some()).count();
        assert_eq!(table.scan(ScanRange::full()).rows(tx).unwrap().len(), by_key);
        by_key
    }

    #[test]
    fn no_places_are_looked_for_once_no_blocks_are_left() {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        let catalog = open(&pool);
        create(&catalog);
        set(&catalog, clustered());
        let table = catalog.table("t").unwrap();
        let old = catalog.begin().unwrap();
        assert!(has_places(&table, &old));
        set(&catalog, TableLayout::Columns);
        let now = catalog.begin().unwrap();
        assert!(!has_places(&table, &now), "merges have left no block");
        assert!(has_places(&table, &old), "an old snapshot has them");
        assert_eq!((count(&table, &old), count(&table, &now)), (100, 100));
        drop((now, old, table, catalog));
        let catalog = open(&pool);
        let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
        assert!(table.own_columns().unwrap().places().is_some(), "their state stays");
        assert!(!has_places(&table, &tx), "the directory was read once");
        set(&catalog, clustered());
        let now = catalog.begin().unwrap();
        assert!(has_places(&table, &now));
        assert_eq!((count(&table, &tx), count(&table, &now)), (100, 100));
    }

    #[test]
    fn no_iterator_is_chosen_by_places_while_some_rows_have_none() {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        let catalog = open(&pool);
        create(&catalog);
        let stop = &mut |_: &MergeStats| Err(TransactionError::Busy("the test stops it").into());
        assert!(catalog.set_layout(&Cancellation::default(), "t", clustered(), stop).is_err());
        let table = catalog.table("t").unwrap();
        let choose = || {
            let tx = catalog.begin().unwrap();
            table.choose_iterator(&tx, &[ScanRange::full()], &[]).unwrap()
        };
        assert_eq!(choose(), None, "no key has a place");
        table.merge(|_| Ok(())).unwrap();
        assert!(choose().is_some());
    }
}
