//! ALTER TABLE ... SET (layout = ...): the layout of a table with rows.
//!
//! ```text
//!   to columns   row of the catalog, cut off writers ─▶ merges move the rows into row groups
//!   to rows      no more row groups ─▶ step by step rows go back ─▶ row of the catalog, cut off writers
//!                                                                   ─▶ drop the state of the row groups
//! ```
//! A table by column whose rows are all in its delta store is what a table by row is, so one commit of the catalog
//! changes the layout. Before it a crash leaves the old layout, behind it the new one, and each step of rows is a
//! transaction: readers see all rows at every time. Transactions that began before the change, and wrote the
//! table, get a conflict when they commit; so may one that writes a row which a step moves.
//!
//! *Version history.* Row groups have nothing to tell of the time before they were there, so time travel goes over the
//! change to `columns`. The versions that row groups have go with them: after the change to `rows` the version
//! history begins at it.
//!
//! Memory: the rows of a merge's step, or of a drain's.

use crate::catalog::change::check_writable;
use crate::catalog::{Catalog, check_state};
use crate::columns;
use crate::columns::lifetime::DrainGuard;
use crate::columns::merge::MergeStats;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::schema::definition::{TableDefinition, TableLayout};
use crate::table::Table;
use entresol_transactions::{Cancellation, StateOptions};
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks whether the last transaction before an earlier change has ended.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of looks.
const LOOKS_MAX: u32 = 200;

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
pub(crate) fn with_layout(table: &Table, layout: TableLayout) -> Result<TableDefinition> {
    check_writable(table)?;
    if let Some(owner) = &table.definition().owner {
        let (table, owner) = (table.name().to_owned(), owner.clone());
        return Err(Error::LayoutFixed { table, layout, owner });
    }
    let definition = TableDefinition { layout, ..table.definition().clone() };
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
        layout: TableLayout,
        progress: &mut dyn FnMut(&MergeStats) -> Result<()>,
    ) -> Result<()> {
        self.set_layout_if(&|_| true, statement, table, layout, progress).map(drop)
    }

    /// As [`Catalog::set_layout`], if a condition on the table holds, which is checked when no other change of its
    /// definition is possible any more. Returns false, and does nothing, if it does not.
    pub(crate) fn set_layout_if(
        &self,
        condition: &dyn Fn(&Table) -> bool,
        statement: &Cancellation,
        table: &str,
        layout: TableLayout,
        progress: &mut dyn FnMut(&MergeStats) -> Result<()>,
    ) -> Result<bool> {
        // A log that is made meanwhile would not know of the row groups.
        let _changing_logs = self.changing_logs.lock();
        let old = self.table(table)?;
        if !condition(&old) {
            return Ok(false);
        }
        match (old.definition().layout, layout) {
            (old, new) if old == new => Ok(true),
            (TableLayout::Clustered, _) | (_, TableLayout::Clustered) => {
                Err(Error::ClusteredFixed { table: table.to_owned(), layout })
            }
            (_, TableLayout::Rows) => self.store_by_row(condition, statement, table, progress),
            (_, TableLayout::Columns) => {
                let Some(changed) = self.store_by_column(condition, statement, table)? else {
                    return Ok(false);
                };
                changed.merge(progress).map(|_| true)
            }
        }
    }

    /// Lets a table have row groups; its rows are in the delta store then. None if the condition does not hold.
    fn store_by_column(
        &self,
        condition: &dyn Fn(&Table) -> bool,
        statement: &Cancellation,
        name: &str,
    ) -> Result<Option<Arc<Table>>> {
        let _changing = self.changing.lock();
        let old = self.table(name)?;
        if !condition(&old) {
            return Ok(None);
        }
        if old.definition().layout == TableLayout::Columns {
            return Ok(Some(old));
        }
        let definition = with_layout(&old, TableLayout::Columns)?;
        let (group, tier) = (old.group(), old.definition().placement);
        let width = columns::group::KEY_WIDTH;
        let state = self.context.create_state_with(StateOptions::new(group, width, tier))?;
        state.set_holder(&format!("row groups of table {name}"));
        let id = state.id();
        let store = ColumnStore::open(&self.context, (state, None), &self.pages);
        if let Err(error) = add_columns(statement, &old, &store) {
            self.drop_states(name, vec![id]);
            return Err(error);
        }
        let new = old.redefined(name, definition, old.indexes().to_vec());
        let written = self.keep_history_of_groups(&old, &store).and_then(|()| {
            statement.begin_definite()?;
            self.write_entry(&new)
        });
        statement.end_definite(false);
        if let Err(error) = written {
            store.lifetime.end_unused();
            self.drop_states(name, vec![id]);
            return Err(error);
        }
        self.replace(&old, &new)?;
        Ok(Some(new))
    }

    /// Lets row groups have the version history that the rows have, from its beginning on.
    fn keep_history_of_groups(&self, table: &Table, store: &ColumnStore) -> Result<()> {
        let Some(bounds) = table.history_bounds() else { return Ok(()) };
        Ok(self.context.keep_history_since(store.state().id(), bounds.kept, Some(bounds.horizon))?)
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
        let definition = with_layout(&old, TableLayout::Rows)?;
        let (state, groups) = (old.state().id(), store.state().id());
        let _draining = DrainGuard::begin(&store);
        // No load of row groups is in flight behind this.
        self.context.cut_off_writers(groups, |_| ())?;
        old.drain(&store, statement, progress)?;
        // Nor one of a tombstone: those that begin now see no row group.
        self.context.cut_off_writers(state, |_| ())?;
        old.remove_tombstones(&store, statement)?;
        let ended = self.context.cut_off_writers(state, |_| ())?;
        statement.begin_definite()?;
        // First: earlier versions need the row groups, which the catalog does not name any more behind its commit.
        self.context.forget_history_before(state, ended)?;
        let new = old.redefined(name, definition, old.indexes().to_vec());
        self.write_entry(&new)?;
        store.lifetime.end(ended);
        self.replace(&old, &new)?;
        self.drop_states(name, vec![groups]);
        Ok(true)
    }
}
