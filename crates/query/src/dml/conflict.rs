//! ON CONFLICT: handling of rows whose key or unique values exist already.
//!
//! - A conflict is searched on the key or the unique index of the conflict target, or on all of them for DO
//!   NOTHING without a target; any other duplicate is an error.
//! - Rows of one statement conflict with each other too: the later is skipped by DO NOTHING; DO UPDATE
//!   refuses it (21000), as a row would be changed twice.
//! - A row that another transaction inserts meanwhile is a conflict of transactions; the statement is
//!   retried.
//!
//! Memory: the keys of all rows of the statement.

use crate::dml::assignment;
use crate::dml::clauses::{Condition, SetClause};
use crate::dml::computation::Computation;
use crate::dml::expressions::Relations;
use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::postgres::types::visible_schema;
use crate::session::core::SessionCore;
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Fields, Schema as ArrowSchema, SchemaRef};
use datafusion::sql::sqlparser::ast::{ConflictTarget, DoUpdate, OnConflictAction, OnInsert};
use entresol_tables::{Column, Row, Table, UniqueKey, Value, rows_to_batch};
use entresol_transactions::Transaction;
use std::collections::HashSet;
use std::sync::Arc;

/// Relation name of the row proposed for insertion.
const EXCLUDED: &str = "excluded";

/// ON CONFLICT clause of one statement.
pub(crate) struct OnConflict {
    conflicts: Conflicts,
    update: Option<Assignments>,
}

/// Search of rows that conflict with stored ones, or with others of their statement.
pub(crate) struct Conflicts {
    unique_keys: Vec<UniqueKey>,
    /// Values of the statement's rows for each unique key.
    seen: Vec<HashSet<Vec<u8>>>,
    /// True for DO UPDATE, false for DO NOTHING.
    updates: bool,
}

/// Rows of a statement, by whether they conflict; those that DO NOTHING skips are gone.
pub(crate) struct Split {
    pub(crate) new: Vec<Row>,
    /// Positions of the new rows among the input rows.
    new_places: Vec<usize>,
    /// Stored rows, and beside each the row that was proposed in its place.
    pub(crate) old: Vec<Row>,
    pub(crate) proposed: Vec<Row>,
    old_places: Vec<usize>,
}

/// Rows of a statement to be written, new and changed.
pub(crate) struct ResolvedRows {
    new: Vec<Row>,
    /// Old keys of the changed rows; their new values follow.
    keys: Vec<Row>,
    changed: Vec<Row>,
    /// Positions, among the input rows, of the new and of the changed ones.
    new_places: Vec<usize>,
    changed_places: Vec<usize>,
}

impl ResolvedRows {
    /// All rows are new.
    pub(crate) fn new(rows: Vec<Row>) -> ResolvedRows {
        let new_places = (0..rows.len()).collect();
        ResolvedRows {
            new: rows,
            keys: Vec::new(),
            changed: Vec::new(),
            new_places,
            changed_places: Vec::new(),
        }
    }

    /// Number of rows to write.
    pub(crate) fn len(&self) -> usize {
        self.new.len() + self.changed.len()
    }

    /// New values of the existing rows.
    pub(crate) fn changed(&self) -> &[Row] {
        &self.changed
    }

    /// Rows to write, in the order of the input rows.
    pub(crate) fn in_order(&self) -> Vec<&Row> {
        let new = self.new_places.iter().zip(&self.new);
        let mut rows: Vec<_> = new.chain(self.changed_places.iter().zip(&self.changed)).collect();
        rows.sort_unstable_by_key(|(place, _)| **place);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Writes the rows.
    pub(crate) fn write(&self, tx: &Transaction, table: &Arc<Table>) -> Result<()> {
        if !self.changed.is_empty() {
            table.update_many(tx, &self.keys, &self.changed)?;
        }
        Ok(table.insert_many(tx, &self.new)?)
    }
}

/// DO UPDATE clause.
struct Assignments {
    set: SetClause,
    condition: Option<Condition>,
    /// Schema of the existing row followed by the excluded one.
    schema: SchemaRef,
    columns: Vec<Column>,
}

impl OnConflict {
    pub(crate) async fn new(
        session: &SessionCore,
        table: &Table,
        name: &str,
        on: &OnInsert,
    ) -> Result<OnConflict> {
        let OnInsert::OnConflict(on) = on else {
            return Err(Error::unsupported(format!("{on} in INSERT")));
        };
        let (unique_keys, update) = match (&on.conflict_target, &on.action) {
            (target, OnConflictAction::DoNothing) => (unique_keys(table, target.as_ref())?, None),
            (Some(target), OnConflictAction::DoUpdate(update)) => {
                let update = Box::pin(Assignments::new(session, table, name, update)).await?;
                (unique_keys(table, Some(target))?, Some(update))
            }
            (None, OnConflictAction::DoUpdate(_)) => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                return Err(Error::coded("42601", message));
            }
        };
        Ok(OnConflict { conflicts: Conflicts::new(unique_keys, update.is_some()), update })
    }

    /// Returns true if it reads tables, so that all rows have to be resolved at once.
    pub(crate) fn reads_tables(&self) -> bool {
        self.computations().any(Computation::reads_tables)
    }

    fn computations(&self) -> impl Iterator<Item = &Computation> {
        self.update.iter().flat_map(|update| {
            let condition = update.condition.as_ref().map(Condition::computation);
            [&update.set.values].into_iter().chain(condition)
        })
    }

    /// Finds the rows that conflict with others, and resolves them. Writes nothing yet.
    pub(crate) async fn resolve(
        &mut self,
        session: &SessionCore,
        tx: &Transaction,
        table: &Arc<Table>,
        rows: Vec<Row>,
    ) -> Result<ResolvedRows> {
        let Split { new, new_places, old, proposed, old_places } = self.conflicts.split(tx, table, rows)?;
        let mut resolved = ResolvedRows {
            new,
            keys: Vec::new(),
            changed: Vec::new(),
            new_places,
            changed_places: Vec::new(),
        };
        if let Some(update) = &self.update {
            update.apply(session, table, old, &proposed, &old_places, &mut resolved).await?;
        }
        Ok(resolved)
    }
}

impl Conflicts {
    /// Search of the rows of one statement by these keys.
    pub(crate) fn new(unique_keys: Vec<UniqueKey>, updates: bool) -> Conflicts {
        let seen = vec![HashSet::new(); unique_keys.len()];
        Conflicts { unique_keys, seen, updates }
    }

    /// Finds the rows that conflict, after a check of NOT NULL: also a row that is skipped must be one of the table.
    /// Writes nothing.
    pub(crate) fn split(&mut self, tx: &Transaction, table: &Arc<Table>, rows: Vec<Row>) -> Result<Split> {
        for (column, value) in rows.iter().flat_map(|row| table.schema().visible_columns().iter().zip(row)) {
            if !column.nullable && *value == Value::Null {
                let (table, column) = (table.name().to_owned(), column.name.clone());
                return Err(entresol_tables::Error::NotNull { table, column }.into());
            }
        }
        let mut met: Vec<Option<Row>> = vec![None; rows.len()];
        let mut found_keys = Vec::with_capacity(self.unique_keys.len());
        for unique_key in &self.unique_keys {
            let of_rows = table.unique_keys(unique_key, &rows)?;
            let there = table.rows_with_unique_keys(tx, unique_key, &of_rows)?;
            met.iter_mut().zip(there).for_each(|(met, there)| *met = met.take().or(there));
            found_keys.push(of_rows);
        }
        let mut skipped = vec![false; rows.len()];
        for at in 0..rows.len() {
            let keys = || found_keys.iter().map(|of_rows| of_rows[at].as_deref());
            let again = keys().zip(&self.seen).any(|(key, seen)| key.is_some_and(|key| seen.contains(key)));
            if again && self.updates {
                let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                return Err(Error::coded("21000", message));
            }
            skipped[at] = !self.updates && (again || met[at].take().is_some());
            if !skipped[at] {
                // A row that is skipped stands in the way of no other.
                keys().zip(&mut self.seen).for_each(|(key, seen)| seen.extend(key.map(<[u8]>::to_vec)));
            }
        }
        Ok(Split::of(rows, met, &skipped))
    }
}

impl Split {
    /// Rows, the stored row that each meets, and whether it is skipped.
    fn of(rows: Vec<Row>, met: Vec<Option<Row>>, skipped: &[bool]) -> Split {
        let (mut new, mut new_places) = (Vec::new(), Vec::new());
        let (mut old, mut proposed, mut old_places) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (row, met)) in rows.into_iter().zip(met).enumerate() {
            match met {
                Some(met) => {
                    old.push(met);
                    proposed.push(row);
                    old_places.push(at);
                }
                None if skipped[at] => {}
                None => {
                    new.push(row);
                    new_places.push(at);
                }
            }
        }
        Split { new, new_places, old, proposed, old_places }
    }
}

impl Assignments {
    async fn new(session: &SessionCore, table: &Table, name: &str, update: &DoUpdate) -> Result<Assignments> {
        let visible = visible_schema(table.schema(), session.zone.name());
        let relations = [(name, &visible), (EXCLUDED, &visible)];
        let relations = Relations::of(&relations);
        let set = SetClause::new(session, table, relations, &update.assignments).await?;
        let condition = match &update.selection {
            None => None,
            Some(condition) => Some(Condition::new(session, "WHERE", relations, condition).await?),
        };
        let columns = table.schema().visible_columns();
        let nullable =
            |field: &datafusion::arrow::datatypes::FieldRef| field.as_ref().clone().with_nullable(true);
        let fields: Fields = visible.fields().iter().chain(visible.fields()).map(nullable).collect();
        let columns: Vec<Column> = columns.iter().chain(columns).cloned().collect();
        Ok(Assignments { set, condition, schema: Arc::new(ArrowSchema::new(fields)), columns })
    }

    /// Applies DO UPDATE to the existing rows, each beside the row proposed for insertion, and adds the
    /// result to `resolved`.
    async fn apply(
        &self,
        session: &SessionCore,
        table: &Table,
        old: Vec<Row>,
        excluded: &[Row],
        places: &[usize],
        resolved: &mut ResolvedRows,
    ) -> Result<()> {
        let visible = table.schema().visible_columns().len();
        let both: Vec<Row> = old
            .iter()
            .zip(excluded)
            .map(|(old, excluded)| old[..visible].iter().chain(&excluded[..visible]).cloned().collect())
            .collect();
        let mut batch = rows_to_batch(&self.schema, &self.columns, &both)?;
        let mut chosen: Vec<(usize, Row)> = places.iter().copied().zip(old).collect();
        if let Some(condition) = &self.condition {
            let met = condition.of(session, &batch).await?;
            batch = filter_record_batch(&batch, &met)?;
            let mut met = met.values().iter();
            chosen.retain(|_| met.next() == Some(true));
        }
        let values = self.set.values.of(session, &batch).await?;
        let new = assignment::rows(table, &self.set.assigned, &values, &session.zone)?;
        for ((place, mut row), mut values) in chosen.into_iter().zip(new) {
            resolved.keys.push(table.key_of(&row));
            for &column in &self.set.assigned {
                row[column] = std::mem::replace(&mut values[column], Value::Null);
            }
            resolved.changed.push(row);
            resolved.changed_places.push(place);
        }
        Ok(())
    }
}

/// Unique keys of a conflict target: the primary key or unique indexes.
pub(crate) fn unique_keys(table: &Table, target: Option<&ConflictTarget>) -> Result<Vec<UniqueKey>> {
    let schema = table.schema();
    let mut unique = table.indexes().iter().filter(|index| index.definition().unique);
    match target {
        None => {
            let key = (!schema.hidden_key()).then_some(UniqueKey::Key);
            Ok(key.into_iter().chain(unique.cloned().map(UniqueKey::Index)).collect())
        }
        Some(ConflictTarget::Columns(columns)) => {
            let mut wanted = Vec::with_capacity(columns.len());
            for name in columns.iter().map(identifier) {
                let index = schema.visible_columns().iter().position(|column| column.name == name);
                wanted.push(index.ok_or_else(|| entresol_tables::Error::NoSuchColumn {
                    table: table.name().to_owned(),
                    column: name,
                })?);
            }
            let sorted = |columns: &[usize]| {
                let mut columns = columns.to_vec();
                columns.sort_unstable();
                columns.dedup();
                columns
            };
            let wanted = sorted(&wanted);
            if !schema.hidden_key() && sorted(schema.key()) == wanted {
                return Ok(vec![UniqueKey::Key]);
            }
            let found = unique.find(|index| sorted(&index.definition().columns) == wanted);
            found.map(|index| vec![UniqueKey::Index(Arc::clone(index))]).ok_or_else(|| {
                let message =
                    "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                Error::coded("42P10", message)
            })
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = table_name(name)?;
            if !schema.hidden_key() && table.definition().key_constraint(table.name()) == name {
                return Ok(vec![UniqueKey::Key]);
            }
            let found = unique.find(|index| index.name() == name && index.definition().constraint);
            found.map(|index| vec![UniqueKey::Index(Arc::clone(index))]).ok_or_else(|| {
                let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name());
                Error::coded("42704", message)
            })
        }
    }
}
