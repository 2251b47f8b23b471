//! Creating, finding and changing views and sequences; their rows are described in [`super::relations`].

use super::relations::{CatalogRow, sequence_row, view_row};
use super::{Catalog, RelationKind, check_name};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::sequence::{Position, Sequence, SequenceDefinition, SequenceOwner};
use crate::table::Table;
use crate::view::{View, ViewDefinition};
use entresol_memory::Durability;
use entresol_transactions::StateId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// New sequence, created together with the column that owns it.
#[derive(Debug, Clone)]
pub struct NewSequence {
    /// Name of the sequence.
    pub name: String,
    /// Definition; of the owner only the kind of identity counts.
    pub definition: SequenceDefinition,
    /// Visible column that owns it, of the new definition of the table.
    pub column: usize,
    /// Kind of identity, if it makes the column an identity column.
    pub identity: Option<crate::sequence::Identity>,
}

impl Catalog {
    /// Creates a view; it is durable and visible to all when this returns. `replaced` is the view that it
    /// replaces, as it was when the new one was checked against it. [`Error::RelationChanged`] if that, or a
    /// relation that the view reads, has changed meanwhile; [`Error::RecursiveView`] if it would read itself.
    pub fn create_view(
        &self,
        name: &str,
        definition: ViewDefinition,
        replaced: Option<&Arc<View>>,
    ) -> Result<Arc<View>> {
        check_name(name)?;
        let _changing = self.changing.lock();
        let changed =
            |relation: &str| Error::RelationChanged { relation: relation.to_owned(), view: name.to_owned() };
        match replaced {
            None => {
                self.check_free(name)?;
                self.relations.check_room()?;
            }
            Some(replaced) => {
                let now = self.relations.views.read().get(name).cloned();
                now.filter(|now| Arc::ptr_eq(now, replaced)).ok_or_else(|| changed(name))?;
            }
        }
        for read in &definition.reads {
            let columns = self.columns_of(&read.relation).ok_or_else(|| changed(&read.relation))?;
            let has =
                |name: &str| columns.as_ref().is_none_or(|columns| columns.iter().any(|known| known == name));
            if !read.columns.iter().all(|column| has(&column.name)) {
                return Err(changed(&read.relation));
            }
        }
        let view = Arc::new(View::new(name.to_owned(), definition));
        self.check_not_recursive(&view)?;
        let mut rows = vec![view_row(&view)?];
        rows.extend(self.lost_view_comments(name, view.definition().columns.len()));
        self.write_rows(&rows, Durability::Sync)?;
        self.relations.views.write().insert(name.to_owned(), Arc::clone(&view));
        self.changed();
        Ok(view)
    }

    /// Names of a relation's columns: `Some(None)` if it is a sequence, whose columns never change.
    fn columns_of(&self, relation: &str) -> Option<Option<Vec<String>>> {
        if let Some(view) = self.relations.views.read().get(relation) {
            return Some(Some(view.definition().columns.clone()));
        }
        if self.relations.sequences.read().contains_key(relation) {
            return Some(None);
        }
        let table = self.tables.read().get(relation).cloned()?;
        Some(Some(table.schema().visible_columns().iter().map(|column| column.name.clone()).collect()))
    }

    /// Returns an error if a view would read itself, directly or through views.
    fn check_not_recursive(&self, view: &View) -> Result<()> {
        let views = self.relations.views.read();
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = view.definition().reads.iter().map(|read| read.relation.as_str()).collect();
        while let Some(relation) = next.pop() {
            if relation == view.name() {
                return Err(Error::RecursiveView { view: view.name().to_owned() });
            }
            if let Some(under) = views.get(relation).filter(|_| seen.insert(relation)) {
                next.extend(under.definition().reads.iter().map(|read| read.relation.as_str()));
            }
        }
        Ok(())
    }

    /// View of this name.
    pub fn view(&self, name: &str) -> Result<Arc<View>> {
        if let Some(view) = self.relations.views.read().get(name) {
            return Ok(Arc::clone(view));
        }
        Err(self.no_relation(RelationKind::View, name))
    }

    /// All usable views, ordered by name.
    pub fn views(&self) -> Vec<Arc<View>> {
        self.relations.views.read().values().cloned().collect()
    }

    /// Sequence of this name.
    pub fn sequence(&self, name: &str) -> Result<Arc<Sequence>> {
        if let Some(sequence) = self.relations.sequences.read().get(name) {
            return Ok(Arc::clone(sequence));
        }
        Err(self.no_relation(RelationKind::Sequence, name))
    }

    /// All usable sequences, ordered by name.
    pub fn sequences(&self) -> Vec<Arc<Sequence>> {
        self.relations.sequences.read().values().cloned().collect()
    }

    fn no_relation(&self, wanted: RelationKind, name: &str) -> Error {
        let name = name.to_owned();
        match self.relations.missing(wanted, &name) {
            Some(error) => error,
            None if self.relation_kind(&name).is_some() => Error::WrongKind { name, wanted },
            None => Error::NoSuchRelation { name },
        }
    }

    /// Creates a sequence; it is durable and visible to all when this returns.
    pub fn create_sequence(&self, name: &str, definition: SequenceDefinition) -> Result<Arc<Sequence>> {
        check_name(name)?;
        definition.check()?;
        let _changing = self.changing.lock();
        self.check_free(name)?;
        self.relations.check_room()?;
        let sequence = Sequence::fresh(name.to_owned(), definition);
        self.write_rows(&[fresh_row(&sequence)], Durability::Sync)?;
        self.adopt(vec![sequence.clone()]);
        self.changed();
        Ok(sequence)
    }

    /// Changes the definition of a sequence, and its position; durable when this returns. Not transactional.
    pub fn alter_sequence(
        &self,
        name: &str,
        change: impl FnOnce(&mut SequenceDefinition, &mut Position) -> Result<()>,
    ) -> Result<()> {
        let _changing = self.changing.lock();
        let sequence = self.sequence(name)?;
        sequence.change(self, Durability::Sync, |definition, position| {
            change(definition, position)?;
            definition.check()?;
            check_position(definition, position.last)
        })?;
        self.changed();
        Ok(())
    }

    /// Next values of a sequence, handed out once: not again after a crash either if a row with one was
    /// committed, or if `durability` requires it. Cost: at most one commit, of one row.
    pub fn next_values(&self, sequence: &Sequence, count: u64, durability: Durability) -> Result<Vec<i64>> {
        sequence.advance(self, count, durability)
    }

    /// Sets the position of a sequence: `setval`.
    pub fn set_position(
        &self,
        sequence: &Sequence,
        position: Position,
        durability: Durability,
    ) -> Result<()> {
        sequence.change(self, durability, |_, at| {
            *at = position;
            Ok(())
        })
    }

    /// Releases the reserved values of sequences that were not handed out, so that the next run leaves no
    /// gap; for closing. A failure leaves a gap and nothing else.
    pub fn release_cached_sequences(&self) {
        for sequence in self.sequences() {
            if let Err(error) = sequence.release_cached(self) {
                tracing::debug!(sequence = sequence.name(), %error, "could not release reserved values of a sequence");
            }
        }
    }

    /// Table and visible column that own a sequence, if the table exists.
    pub fn owner_of(&self, definition: &SequenceDefinition) -> Option<(Arc<Table>, usize)> {
        let owner = definition.owner?;
        let tables = self.tables.read();
        let table = tables.values().find(|table| table.state().id() == owner.table)?;
        Some((Arc::clone(table), table.schema().schema_versions().column_of(owner.column)?))
    }

    /// Owner record of a column, for a sequence that it owns.
    pub fn owner(table: &Table, column: usize) -> Option<SequenceOwner> {
        let column = table.schema().schema_versions().id_of(column)?;
        Some(SequenceOwner { table: table.state().id(), column, identity: None })
    }

    /// Sequences that are created together with the columns of a table.
    pub(super) fn new_sequences(
        &self,
        table: StateId,
        schema: &Schema,
        new: Vec<NewSequence>,
    ) -> Result<Vec<Arc<Sequence>>> {
        let own = |new: NewSequence| {
            check_name(&new.name)?;
            self.check_free(&new.name)?;
            let column = schema.schema_versions().id_of(new.column);
            let column = column
                .ok_or_else(|| crate::schema::invalid(format!("column {} does not exist", new.column)))?;
            let owner = Some(SequenceOwner { table, column, identity: new.identity });
            let definition = SequenceDefinition { owner, ..new.definition };
            definition.check()?;
            Ok(Sequence::fresh(new.name, definition))
        };
        if !new.is_empty() {
            self.relations.check_room()?;
        }
        let made: Vec<Arc<Sequence>> = new.into_iter().map(own).collect::<Result<_>>()?;
        let names: BTreeMap<&str, ()> = made.iter().map(|sequence| (sequence.name(), ())).collect();
        if names.len() == made.len() {
            Ok(made)
        } else {
            Err(Error::RelationExists { name: made[0].name().to_owned() })
        }
    }

    /// Adds sequences whose rows were committed.
    pub(super) fn adopt(&self, sequences: Vec<Arc<Sequence>>) {
        let mut known = self.relations.sequences.write();
        known.extend(sequences.into_iter().map(|sequence| (sequence.name().to_owned(), sequence)));
    }
}

/// Row of a new sequence.
pub(super) fn fresh_row(sequence: &Sequence) -> CatalogRow {
    sequence_row(sequence.name(), &sequence.definition(), sequence.status().position)
}

fn check_position(definition: &SequenceDefinition, last: i64) -> Result<()> {
    let wrong = |than: &str, bound: &str, limit: i64| {
        let reason = format!("RESTART value ({last}) cannot be {than} than {bound} ({limit})");
        Err(Error::InvalidSequence { reason })
    };
    if last < definition.min_value {
        return wrong("less", "MINVALUE", definition.min_value);
    }
    if last > definition.max_value {
        return wrong("greater", "MAXVALUE", definition.max_value);
    }
    Ok(())
}
