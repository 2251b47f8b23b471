//! ALTER TABLE ... SET (layout = ...): the layout of a table with rows.
//!
//! ```text
//!   to columns,  row of the catalog, fence off writers ─▶ merges move the rows into row groups
//!   clustered
//!   or elf
//!   between them row of the catalog, fence off writers ─▶ merges write row groups anew
//!   to rows      no more row groups ─▶ step by step rows go back ─▶ row of the catalog, fence off writers
//!                                                                   ─▶ drop the state of the row groups
//! ```
//! A table by column whose rows are all in its delta store is what a table by row is, so one commit of the catalog
//! changes the layout. Before it a crash leaves the old layout, behind it the new one, and each step of rows is a
//! transaction: readers see all rows at every time. Transactions that began before the change, and wrote the
//! table, get a conflict when they commit; so may one that writes a row which a step moves.
//!
//! Row groups in key order and blocks may stand side by side ([`crate::columns::clustering::mixture`]), so the change
//! between `columns`, `elf` and `clustered`, or to other dimensions, is one commit as well. A table that was clustered
//! once has the state of the places of rows until it is stored by row.
//!
//! *Version history.* Row groups have nothing to tell of the time before they were there, so time travel goes over the
//! change to any of them. The versions that row groups have go with them: after the change to `rows` the
//! version history begins at it.
//!
//! Memory: the rows of a merge's step, or of a drain's.

use crate::catalog::change::check_writable;
use crate::catalog::{Catalog, check_state};
use crate::columns;
use crate::columns::lifetime::DrainGuard;
use crate::columns::merge::MergeStats;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::schema::clustering::ClusteringDefinition;
use crate::schema::definition::{TableDefinition, TableLayout};
use crate::schema::elf::ElfLayout;
use crate::table::Table;
use entresol_transactions::{Cancellation, State, StateId, StateOptions};
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks whether the last transaction before an earlier change has ended.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of looks.
const LOOKS_MAX: u32 = 200;

/// Layout that a table gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLayout {
    /// The layout.
    pub layout: TableLayout,
    /// Clustering of the layout `clustered`; none: that of the table's definition.
    pub clustering: Option<ClusteringDefinition>,
    /// Elf of the layout `elf`; none: that of a table which has the layout, else the default.
    pub elf: Option<ElfLayout>,
}

impl From<TableLayout> for NewLayout {
    fn from(layout: TableLayout) -> NewLayout {
        NewLayout { layout, clustering: None, elf: None }
    }
}

impl From<ClusteringDefinition> for NewLayout {
    fn from(clustering: ClusteringDefinition) -> NewLayout {
        NewLayout { layout: TableLayout::Clustered, clustering: Some(clustering), elf: None }
    }
}

impl From<ElfLayout> for NewLayout {
    fn from(elf: ElfLayout) -> NewLayout {
        NewLayout { layout: TableLayout::Elf, clustering: None, elf: Some(elf) }
    }
}

impl NewLayout {
    /// Returns true if a table has it.
    pub(crate) fn is_of(&self, table: &Table) -> bool {
        let definition = table.definition();
        let is_clustering = |of: &ClusteringDefinition| definition.clustering.as_ref() == Some(of);
        let is_elf = self.elf.as_ref().is_none_or(|elf| *elf == definition.elf_layout);
        definition.layout == self.layout && self.clustering.as_ref().is_none_or(is_clustering) && is_elf
    }
}

/// Adds row groups to a table, as soon as no transaction reads earlier ones.
fn add_columns(statement: &Cancellation, table: &Table, store: &Arc<ColumnStore>) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        statement.check()?;
        if table.add_columns(store) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(Error::LayoutInUse { table: table.name().to_owned() })
}

/// Definition of a table with another layout, if it can have that.
pub(crate) fn with_layout(table: &Table, new: &NewLayout) -> Result<TableDefinition> {
    check_writable(table)?;
    if let Some(owner) = &table.definition().owner {
        let (table, owner) = (table.name().to_owned(), owner.clone());
        return Err(Error::LayoutFixed { table, layout: new.layout, owner });
    }
    let mut definition = TableDefinition { layout: new.layout, ..table.definition().clone() };
    if new.layout == TableLayout::Clustered {
        definition.clustering = new.clustering.clone().or(definition.clustering);
    } else if !definition.auto_layout {
        definition.clustering = None;
    }
    // Of another layout it is the default.
    definition.elf_layout = new.elf.clone().filter(|_| new.layout == TableLayout::Elf).unwrap_or_default();
    if new.layout == TableLayout::Rows && !definition.auto_layout {
        definition.object_store = None;
    }
    definition.check(table.name())?;
    check_state(table, &definition)?;
    Ok(definition)
}

impl Catalog {
    /// Changes the layout of a table; nothing happens if it is that. Others read and write meanwhile. `progress` is
    /// called after each step; an error of it, or the end of the statement, ends the change: that to `rows` has
    /// not happened then, that to `columns` has, and the background moves the rest of the rows. What the
    /// layout cannot have is an error before anything happens.
    pub fn set_layout(
        &self,
        statement: &Cancellation,
        table: &str,
        layout: impl Into<NewLayout>,
        progress: &mut dyn FnMut(&MergeStats) -> Result<()>,
    ) -> Result<()> {
        self.set_layout_if(&|_| true, statement, table, &layout.into(), progress).map(drop)
    }

    /// As [`Catalog::set_layout`], if a condition on the table holds, which is checked when no other change of its
    /// definition is possible any more. Returns false, and does nothing, if it does not.
    pub(crate) fn set_layout_if(
        &self,
        condition: &dyn Fn(&Table) -> bool,
        statement: &Cancellation,
        table: &str,
        new: &NewLayout,
        progress: &mut dyn FnMut(&MergeStats) -> Result<()>,
    ) -> Result<bool> {
        // A log that is made meanwhile would not know of the row groups.
        let _changing_logs = self.changing_logs.lock();
        let old = self.table(table)?;
        if !condition(&old) {
            return Ok(false);
        }
        if new.is_of(&old) {
            return Ok(true);
        }
        let changed = match (old.definition().layout, new.layout) {
            (_, TableLayout::Rows) => return self.store_by_row(condition, statement, table, progress),
            (TableLayout::Rows, _) => self.store_in_row_groups(condition, statement, table, new)?,
            _ => self.store_in_other_row_groups(condition, statement, table, new)?,
        };
        let Some(changed) = changed else { return Ok(false) };
        changed.merge(progress).map(|_| true)
    }

    /// Lets a table have row groups; its rows are in the delta store then. None if the condition does not hold.
    fn store_in_row_groups(
        &self,
        condition: &dyn Fn(&Table) -> bool,
        statement: &Cancellation,
        name: &str,
        new: &NewLayout,
    ) -> Result<Option<Arc<Table>>> {
        let _changing = self.changing.lock();
        let old = self.table(name)?;
        if !condition(&old) {
            return Ok(None);
        }
        if new.is_of(&old) {
            return Ok(Some(old));
        }
        let definition = with_layout(&old, new)?;
        let (group, tier) = (old.group(), old.definition().placement);
        let width = columns::group::KEY_WIDTH;
        let state = self.context.create_state_with(StateOptions::new(group, width, tier))?;
        state.set_holder(&format!("row groups of table {name}"));
        let mut made = vec![state.id()];
        let places = match new.layout {
            TableLayout::Clustered => Some(self.make_places(&old, &mut made)),
            _ => None,
        };
        let added = places.transpose().and_then(|places| {
            let store = ColumnStore::open(&self.context, (state, places), &self.pages);
            add_columns(statement, &old, &store).map(|()| store)
        });
        let store = added.inspect_err(|_| self.drop_states(name, made.clone()))?;
        let new = old.redefined(name, definition, old.indexes().to_vec());
        let history = made.iter().try_for_each(|id| self.keep_history_beside(&old, *id));
        let written = history.and_then(|()| {
            statement.begin_definite()?;
            self.write_entry(&new)
        });
        statement.end_definite(false);
        if let Err(error) = written {
            store.lifetime.end_unused();
            self.drop_states(name, made);
            return Err(error);
        }
        self.replace(&old, &new)?;
        Ok(Some(new))
    }

    /// Lets new row groups of a table be blocks, blocks of other dimensions, or row groups in key order; merges write
    /// those that are there anew. None if the condition does not hold.
    fn store_in_other_row_groups(
        &self,
        condition: &dyn Fn(&Table) -> bool,
        statement: &Cancellation,
        name: &str,
        new: &NewLayout,
    ) -> Result<Option<Arc<Table>>> {
        let _changing = self.changing.lock();
        let old = self.table(name)?;
        if !condition(&old) {
            return Ok(None);
        }
        let definition = with_layout(&old, new)?;
        let Some(store) = old.own_columns().filter(|_| !new.is_of(&old)) else { return Ok(Some(old)) };
        let mut made = Vec::new();
        let needs_places = new.layout == TableLayout::Clustered && store.places().is_none();
        let places = needs_places.then(|| self.make_places(&old, &mut made)).transpose()?;
        let history = made.iter().try_for_each(|id| self.keep_history_beside(&old, *id));
        // A merge writes row groups of one kind.
        let _no_merge = store.merging.lock();
        if let Err(error) = history.and_then(|()| Ok(statement.begin_definite()?)) {
            self.drop_states(name, made);
            return Err(error);
        }
        // If the row of the catalog cannot be written, they stay for the next change: readers may know them.
        places.into_iter().for_each(|places| store.add_places(places));
        let new = old.redefined(name, definition, old.indexes().to_vec());
        let written = self.write_entry(&new);
        statement.end_definite(false);
        written?;
        self.replace(&old, &new)?;
        Ok(Some(new))
    }

    /// Makes the state of the places of a table's rows; `made` receives it.
    fn make_places(&self, table: &Table, made: &mut Vec<StateId>) -> Result<Arc<State>> {
        let (group, tier) = (table.group(), table.definition().placement);
        let options = StateOptions::new(group, table.schema().key_width(), tier);
        let state = self.context.create_state_with(options)?;
        state.set_holder(&format!("places of rows of table {}", table.name()));
        made.push(state.id());
        Ok(state)
    }

    /// Lets a state of row groups have the version history that the rows have, from its beginning on.
    fn keep_history_beside(&self, table: &Table, state: StateId) -> Result<()> {
        let Some(bounds) = table.history_bounds() else { return Ok(()) };
        Ok(self.context.keep_history_since(state, bounds.kept, Some(bounds.horizon))?)
    }

    /// Moves the rows out of the row groups and ends these. Returns false if the condition does not hold.
    fn store_by_row(
        &self,
        condition: &dyn Fn(&Table) -> bool,
        statement: &Cancellation,
        name: &str,
        progress: &mut dyn FnMut(&MergeStats) -> Result<()>,
    ) -> Result<bool> {
        let _changing = self.changing.lock();
        let old = self.table(name)?;
        if !condition(&old) {
            return Ok(false);
        }
        let Some(store) = old.own_columns().cloned() else { return Ok(true) };
        let definition = with_layout(&old, &TableLayout::Rows.into())?;
        let (state, groups) = (old.state().id(), store.state().id());
        let beside: Vec<StateId> = store.state_ids().collect();
        let _draining = DrainGuard::begin(&store);
        // No load of row groups is in flight behind this.
        self.context.refuse_older_writers(groups, |_| ())?;
        old.drain(&store, statement, progress)?;
        // Nor one of a tombstone: those that begin now see no row group.
        self.context.refuse_older_writers(state, |_| ())?;
        old.remove_tombstones(&store, statement)?;
        let ended = self.context.refuse_older_writers(state, |_| ())?;
        statement.begin_definite()?;
        // First: earlier versions need the row groups, which the catalog does not name any more behind its commit.
        self.context.forget_history_before(state, ended)?;
        let new = old.redefined(name, definition, old.indexes().to_vec());
        self.write_entry(&new)?;
        store.lifetime.end(ended);
        self.replace(&old, &new)?;
        let objects = self.objects_of_dropped(&store);
        self.drop_states(name, beside);
        self.drop_objects(objects);
        Ok(true)
    }
}
