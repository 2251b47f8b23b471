//! Dependencies: of views on the relations that they read, of sequences on their columns; and so the objects
//! that a DROP removes.
//!
//! Objects that are dropped together are dropped in one commit of the catalog; a crash leaves the state
//! before or after it. States of tables are dropped behind the commit: those that a crash leaves are orphans
//! of the next open.

use super::relations::{RelationName, Relations};
use super::statistics::deletion;
use super::{Catalog, RelationKind};
use crate::error::{Error, Result};
use crate::schema::definition::TableDefinition;
use crate::table::Table;
use entresol_transactions::StateId;
use std::collections::BTreeSet;

impl Relations {
    /// All views that read one of these, directly or through a view, each with its dependency: `view v
    /// depends on table t`.
    pub(super) fn readers(&self, of: &BTreeSet<RelationName>) -> Vec<(String, String)> {
        let views = self.views.read();
        let mut readers = Vec::new();
        let mut wanted: Vec<RelationName> = of.iter().cloned().collect();
        while let Some((kind, name)) = wanted.pop() {
            for view in views.values().filter(|view| view.definition().read_of(&name).is_some()) {
                let reader = (RelationKind::View, view.name().to_owned());
                let known = of.contains(&reader) || readers.iter().any(|(known, _)| *known == reader.1);
                if !known {
                    readers.push((reader.1.clone(), format!("view {} depends on {kind} {name}", reader.1)));
                    wanted.push(reader);
                }
            }
        }
        readers
    }

    /// Sequences owned by a table's columns, or by those that `is_dropped` selects.
    pub(super) fn owned(&self, table: StateId, is_dropped: impl Fn(u16) -> bool) -> Vec<RelationName> {
        let sequences = self.sequences.read();
        let owned = sequences.values().filter(|sequence| {
            let owner = sequence.definition().owner;
            owner.is_some_and(|owner| owner.table == table && is_dropped(owner.column))
        });
        owned.map(|sequence| (RelationKind::Sequence, sequence.name().to_owned())).collect()
    }
}

impl Catalog {
    /// Drops tables, views and sequences, all in one commit, with their dependents: a table's indexes, the
    /// sequences of its columns, and with `cascade` the views that read them; without it, such views are an
    /// error. Transactions that have read a table may go on reading; its space is freed after them. A damaged
    /// table loses its name; its space is not freed.
    pub fn drop_relations(&self, names: &[(RelationKind, &str)], cascade: bool) -> Result<()> {
        let _changing = self.changing.lock();
        let mut dropped = BTreeSet::new();
        let (mut states, mut statistics, mut stores) = (Vec::new(), Vec::new(), Vec::new());
        for &(kind, name) in names {
            self.check_droppable(kind, name)?;
            dropped.insert((kind, name.to_owned()));
            if kind == RelationKind::Table {
                let table = self.tables.read().get(name).cloned();
                let damaged = self.damaged.read().get(name).and_then(|table| table.state);
                if let Some(state) = table.as_ref().map(|table| table.state().id()).or(damaged) {
                    dropped.extend(self.relations.owned(state, |_| true));
                }
                let analyzed = table.iter().filter(|table| table.analyzed().is_some());
                let analyzed = analyzed.map(|table| table.state().id());
                // Those of a damaged table were not given to it.
                statistics.extend(analyzed.chain(damaged).map(deletion));
                // The objects of a damaged table's states cannot be trusted: they stay allocated.
                states.extend(table.iter().map(|table| table.state().id()));
                let indexes = table.iter().flat_map(|table| table.indexes());
                let sound = indexes.filter(|index| index.damage().is_none());
                states.extend(sound.map(|index| index.state_id()));
                let log = table.as_ref().and_then(|table| table.state().change_log());
                states.extend(log.map(|log| log.state().id()));
                states.extend(table.iter().flat_map(|table| table.row_group_ids()));
                stores.extend(table.iter().filter_map(|table| table.own_columns().cloned()));
            }
        }
        for (view, why) in self.relations.readers(&dropped) {
            if !cascade {
                let what = names.first().map_or(String::new(), |(kind, name)| format!("{kind} {name}"));
                return Err(Error::Dependents { verb: "drop", what, by: why });
            }
            dropped.insert((RelationKind::View, view));
        }
        self.write_dropping(statistics, &dropped)?;
        for (_, name) in dropped.iter().filter(|(kind, _)| *kind == RelationKind::Table) {
            if let Some(table) = self.tables.write().remove(name) {
                self.groups.release_cached(&self.context, table.group());
            }
            self.damaged.write().remove(name);
        }
        self.changed();
        let objects = stores.iter().flat_map(|columns| self.objects_of_dropped(columns)).collect();
        let freed = states.into_iter().try_for_each(|state| Ok(self.context.drop_state(state)?));
        self.drop_objects(objects);
        freed
    }

    /// Names of the views that read a relation, directly or through views.
    pub fn dependent_views(&self, kind: RelationKind, name: &str) -> Vec<String> {
        let of = BTreeSet::from([(kind, name.to_owned())]);
        self.relations.readers(&of).into_iter().map(|(view, _)| view).collect()
    }

    fn check_droppable(&self, kind: RelationKind, name: &str) -> Result<()> {
        match self.relation_kind(name) {
            Some(found) if found == kind => Ok(()),
            Some(_) => Err(Error::WrongKind { name: name.to_owned(), wanted: kind }),
            None if kind == RelationKind::Table => Err(Error::NoSuchTable { table: name.to_owned() }),
            None => Err(Error::NoSuchRelation { name: name.to_owned() }),
        }
    }

    /// Dependents of the columns that a table loses by another definition: with `cascade` the views that read
    /// them, and their sequences. An error if there are such views without it.
    pub(super) fn lost_with(
        &self,
        old: &Table,
        new: &TableDefinition,
        cascade: bool,
    ) -> Result<BTreeSet<RelationName>> {
        let (old_columns, new_columns) = (old.schema().visible_columns(), new.schema.visible_columns());
        let is_gone = |name: &str| {
            let has = |columns: &[crate::schema::Column]| columns.iter().any(|column| column.name == name);
            has(old_columns) && !has(new_columns)
        };
        let verb = if old_columns.len() > new_columns.len() { "drop" } else { "rename" };
        let mut lost = BTreeSet::new();
        for view in self.relations.views.read().values() {
            let Some(read) = view.definition().read_of(old.name()) else { continue };
            if let Some(column) = read.columns.iter().find(|column| column.used && is_gone(&column.name)) {
                if !cascade {
                    let what = format!("column {} of table {}", column.name, old.name());
                    let by = format!("view {} depends on {what}", view.name());
                    return Err(Error::Dependents { verb, what, by });
                }
                lost.insert((RelationKind::View, view.name().to_owned()));
            }
        }
        let above = self.relations.readers(&lost);
        lost.extend(above.into_iter().map(|(view, _)| (RelationKind::View, view)));
        let is_dropped = |column| new.schema.schema_versions().column_of(column).is_none();
        lost.extend(self.relations.owned(old.state().id(), is_dropped));
        Ok(lost)
    }

    /// Returns [`Error::Dependents`] if a view reads a relation that is to be renamed.
    pub(super) fn check_no_readers(&self, kind: RelationKind, name: &str) -> Result<()> {
        let of = BTreeSet::from([(kind, name.to_owned())]);
        match self.relations.readers(&of).into_iter().next() {
            Some((_, by)) => Err(Error::Dependents { verb: "rename", what: format!("{kind} {name}"), by }),
            None => Ok(()),
        }
    }
}
