//! Schema changes: indexes are created and dropped, tables are redefined and renamed.
//!
//! ```text
//!   new schema version, dropped index        row of the catalog ─▶ refuse older writers ─▶ drop states
//!   additional constraint on rows            refuse older writers ─▶ verify all rows ─▶ row of the catalog
//! ```
//!
//! In the first order a crash leaves a catalog that has all schema versions and names no dropped state. In
//! the second no row that breaks the new constraint is written while the others are verified; if one breaks
//! it, the old definition is restored, which all rows satisfy.
//!
//! Transactions that began before the older writers were refused, and wrote the table, get a conflict when they
//! commit. Only [`Catalog::create_index`] and a verification read rows; the rest takes the same time whatever
//! the table's size.

use super::elf::remove_elves;
use super::named::{NewSequence, fresh_row};
use super::{RelationKind, table_row};
use crate::catalog::{Catalog, check_hot_index, check_name, check_state};
use crate::error::{Error, Result};
use crate::index::build;
use crate::index::{self, Index};
use crate::schema::definition::{IndexDefinition, TableDefinition};
use crate::table::Table;
use entresol_memory::Durability;
use entresol_transactions::{Cancellation, INFINITY, StateOptions, Transaction};
use std::sync::Arc;

/// Verifies that all rows satisfy a new definition, in a transaction that sees them all.
pub type Verify<'v, E> = &'v dyn Fn(&Arc<Table>, &Arc<Transaction>) -> Result<(), E>;

/// Changes made in the same commit as the definition of a table.
#[derive(Debug, Default)]
pub struct Alteration {
    /// Drop views that read a dropped column; otherwise they are an error.
    pub cascade: bool,
    /// New sequences of its columns.
    pub sequences: Vec<NewSequence>,
}

impl Catalog {
    /// Creates an index of a table. Rows may be written meanwhile; those written by transactions that began
    /// before are refused with a conflict. The index is complete, durable and in use when this returns.
    /// [`Error::UniqueViolation`] if rows have the same unique values.
    pub fn create_index(&self, table: &str, definition: IndexDefinition) -> Result<Arc<Index>> {
        self.create_index_for(&Cancellation::default(), table, definition, None)
    }

    /// As [`Catalog::create_index`], for a statement that may be cancelled until all rows have their entries;
    /// nothing of the index remains then. `hot_bytes` of DRAM are for its hot entries.
    pub fn create_index_for(
        &self,
        statement: &Cancellation,
        table: &str,
        definition: IndexDefinition,
        hot_bytes: Option<u64>,
    ) -> Result<Arc<Index>> {
        let _changing = self.changing.lock();
        let old = self.table(table)?;
        self.check_free(&definition.name)?;
        if old.definition().has_constraint(table, &definition.name) {
            return Err(Error::RelationExists { name: definition.name });
        }
        check_writable(&old)?;
        let mut with_index = old.definition().clone();
        with_index.indexes.push(definition.clone());
        with_index.check(table)?;
        let width = index::key_width(old.schema(), &definition);
        check_hot_index(&definition, width, hot_bytes)?;
        let (group, tier) = (old.group(), old.definition().placement);
        let options = StateOptions {
            structure: definition.structure,
            node_bytes: definition.node_bytes,
            hot_bytes,
            ..StateOptions::new(group, width, tier)
        };
        let state = self.context.create_state_with(options)?;
        state.set_holder(&format!("index {} of table {table}", definition.name));
        let id = state.id();
        let index = Index::new(definition, id, Ok(state), INFINITY);
        let mut indexes = old.indexes().to_vec();
        indexes.push(Arc::clone(&index));
        let building = old.redefined(table, with_index, indexes);
        let built = self.replace(&old, &building).and_then(|()| {
            build::fill(&self.context, &building, &index, statement)?;
            statement.begin_definite()?;
            self.write_entry(&building)
        });
        match built {
            Ok(readable_from) => {
                index.set_readable_from(readable_from);
                self.changed();
                Ok(index)
            }
            Err(error) => {
                let back = building.redefined(table, old.definition().clone(), old.indexes().to_vec());
                match self.replace(&building, &back) {
                    Ok(()) => self.drop_states(table, vec![id]),
                    Err(second) => {
                        tracing::error!(table, error = %second, "could not remove an incomplete index")
                    }
                }
                Err(error)
            }
        }
    }

    /// Table with an index of this name.
    pub fn table_of_index(&self, index: &str) -> Result<Arc<Table>> {
        let tables = self.tables.read();
        let table = tables.values().find(|table| table.has_index(index));
        table.cloned().ok_or_else(|| Error::NoSuchIndex { index: index.to_owned() })
    }

    /// Drops an index, also a damaged one. Transactions that began before may go on reading it.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        let table = self.table_of_index(name)?;
        if table.index(name).is_some_and(|index| index.definition().constraint) {
            return Err(Error::Needed {
                what: format!("index {name}"),
                by: format!("constraint {name} of table {}; drop the constraint", table.name()),
            });
        }
        let is_elf = table.elf(name).is_some();
        let table = self.redefine(table.name(), None::<Verify<'_, Error>>, |definition| {
            definition.indexes.retain(|index| index.name != name);
            definition.elves.retain(|elf| elf.name != name);
            Ok(())
        })?;
        if is_elf {
            remove_elves(&table);
        }
        Ok(())
    }

    /// Changes the definition of a table: `change` modifies a copy of it. `verify` is called if existing rows
    /// may not satisfy the new one. The placement stays. Indexes may be removed, and their columns may move,
    /// but none can be added. [`Error::Dependents`] if a view reads a column that is dropped or renamed.
    pub fn redefine<E: From<Error>>(
        &self,
        name: &str,
        verify: Option<Verify<'_, E>>,
        change: impl FnOnce(&mut TableDefinition) -> Result<(), E>,
    ) -> Result<Arc<Table>, E> {
        self.redefine_with(name, verify, Alteration::default(), change)
    }

    /// As [`Catalog::redefine`], with further changes in the same commit. A change with `verify` creates no
    /// sequences.
    pub fn redefine_with<E: From<Error>>(
        &self,
        name: &str,
        verify: Option<Verify<'_, E>>,
        alteration: Alteration,
        change: impl FnOnce(&mut TableDefinition) -> Result<(), E>,
    ) -> Result<Arc<Table>, E> {
        let _changing = self.changing.lock();
        let old = self.table(name)?;
        let mut definition = old.definition().clone();
        change(&mut definition)?;
        definition.check(name)?;
        if definition.placement != old.definition().placement {
            return Err(Error::PlacementFixed {
                table: name.to_owned(),
                placement: old.definition().placement,
            }
            .into());
        }
        assert_eq!(definition.layout, old.definition().layout, "`set_layout` alone changes the layout");
        if definition.auto_layout && !old.definition().auto_layout {
            check_state(&old, &definition)?;
        }
        let same_versions = definition.schema.schema_versions() == old.schema().schema_versions();
        assert!(
            verify.is_none() || same_versions,
            "rows of a new schema version are written only once the catalog contains it"
        );
        let lost = self.lost_with(&old, &definition, alteration.cascade)?;
        let sequences = self.new_sequences(old.state().id(), &definition.schema, alteration.sequences)?;
        assert!(verify.is_none() || sequences.is_empty(), "a verified change creates no sequences");
        let remaining = indexes_of(&old, &definition);
        let dropped_states: Vec<_> = old
            .indexes()
            .iter()
            .filter(|index| {
                index.damage().is_none()
                    && remaining.iter().all(|remaining| remaining.state_id() != index.state_id())
            })
            .map(|index| index.state_id())
            .collect();
        let new = old.redefined(name, definition, remaining);
        match verify {
            None => {
                let mut rows = vec![table_row(&new)?];
                rows.extend(sequences.iter().map(|sequence| fresh_row(sequence)));
                rows.extend(self.lost_comments(&new));
                self.write_dropping(rows, &lost)?;
                self.adopt(sequences);
                self.replace(&old, &new)?;
            }
            Some(verify) => {
                self.replace(&old, &new)?;
                let begun = self.begin().map_err(E::from);
                let verified = begun.and_then(|tx| verify(&new, &tx));
                let write = || {
                    let mut rows = vec![table_row(&new)?];
                    rows.extend(self.lost_comments(&new));
                    self.write_rows(&rows, Durability::Sync).map(drop)
                };
                if let Err(error) = verified.and_then(|()| Ok(write()?)) {
                    let back = new.redefined(name, old.definition().clone(), old.indexes().to_vec());
                    self.replace(&new, &back)?;
                    return Err(error);
                }
            }
        }
        self.drop_states(name, dropped_states);
        Ok(new)
    }

    /// Renames a table.
    pub fn rename_table(&self, name: &str, new_name: &str) -> Result<Arc<Table>> {
        check_name(new_name)?;
        let _changing = self.changing.lock();
        let old = self.table(name)?;
        self.check_free(new_name)?;
        self.check_no_readers(RelationKind::Table, name)?;
        let mut definition = old.definition().clone();
        // The constraint keeps its name.
        definition.key_name = (!old.schema().hidden_key()).then(|| definition.key_constraint(name));
        let new = old.redefined(new_name, definition, old.indexes().to_vec());
        self.write_rows(&[(name.as_bytes().to_vec(), None), table_row(&new)?], Durability::Sync)?;
        self.replace(&old, &new)?;
        Ok(new)
    }

    /// Replaces a definition: from here on all transactions write through the new one, and those that wrote
    /// through the old one get a conflict.
    pub(super) fn replace(&self, old: &Arc<Table>, new: &Arc<Table>) -> Result<()> {
        let other_versions = old.schema().schema_versions() != new.schema().schema_versions();
        self.context.refuse_older_writers(old.state().id(), |from| {
            new.validity().begin(from);
            old.validity().end(from, other_versions);
            new.lineage().set_current(new);
            new.use_elves();
            let mut tables = self.tables.write();
            tables.remove(old.name());
            tables.insert(new.name().to_owned(), Arc::clone(new));
        })?;
        if let Some(columns) = old.own_columns().filter(|columns| !columns.lifetime.has_ended()) {
            // New rows may be written there alone.
            columns.state_ids().try_for_each(|id| self.context.refuse_older_writers(id, |_| ()).map(drop))?;
        }
        self.changed();
        Ok(())
    }
}

/// Indexes of a table for another definition of it: the same, by their names.
fn indexes_of(table: &Table, definition: &TableDefinition) -> Vec<Arc<Index>> {
    let known = |wanted: &IndexDefinition| {
        let index = table.index(&wanted.name).expect("a redefinition adds no index");
        if index.definition() == wanted { Arc::clone(index) } else { index.redefined(wanted.clone()) }
    };
    definition.indexes.iter().map(known).collect()
}

/// Returns an error while an index is damaged: it could not be maintained.
pub(super) fn check_writable(table: &Table) -> Result<()> {
    table.indexes().iter().try_for_each(|index| index.state(table.name()).map(drop))
}
