//! ON CONFLICT: what happens to rows whose key or unique values are there already.
//!
//! - A conflict is looked for on the key or the unique index that the target names, or on all of them if DO NOTHING names
//!   none; any other duplicate is an error.
//! - Rows of one statement conflict with each other too: the later is skipped by DO NOTHING; DO UPDATE refuses it (21000),
//!   as a row would be changed twice.
//! - A row that another transaction puts there meanwhile is a conflict of transactions, which runs the statement again.
//!
//! Memory: the keys of all rows of the statement.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, Fields, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{ConflictTarget, DoUpdate, OnConflictAction, OnInsert};
use entresol_tables::{Arbiter, Catalog, Column, Row, Table, Value};
use entresol_transactions::Transaction;

use crate::assignment;
use crate::checks::Checks;
use crate::error::{Error, Result};
use crate::expressions::{Computed, Scope, check_boolean};
use crate::generated;
use crate::rows;
use crate::source;
use crate::syntax::{identifier, table_name};
use crate::types::visible_schema;
use crate::zones::Zone;

/// The relation that stands for the row that was to be inserted.
const EXCLUDED: &str = "excluded";

/// What ON CONFLICT says, for one statement.
pub(crate) struct OnConflict {
    arbiters: Vec<Arbiter>,
    /// Of each arbiter what the rows of the statement had.
    seen: Vec<HashSet<Vec<u8>>>,
    update: Option<Assignments>,
}

/// The rows that a DO UPDATE changes: their old keys, what they become, and which of the rows that were met they are.
struct Changes {
    keys: Vec<Row>,
    changed: Vec<Row>,
    chosen: Vec<usize>,
}

/// DO UPDATE.
struct Assignments {
    assigned: Vec<usize>,
    values: Vec<Computed>,
    condition: Option<Computed>,
    /// Of the row that is there and the excluded one.
    schema: SchemaRef,
    columns: Vec<Column>,
    zone: Zone,
}

impl OnConflict {
    pub(crate) fn new(
        catalog: &Catalog,
        state: &SessionState,
        table: &Table,
        name: &str,
        on: &OnInsert,
    ) -> Result<OnConflict> {
        let OnInsert::OnConflict(on) = on else {
            return Err(Error::unsupported(format!("{on} in INSERT")));
        };
        let (arbiters, update) = match (&on.conflict_target, &on.action) {
            (target, OnConflictAction::DoNothing) => (arbiters(table, target.as_ref())?, None),
            (Some(target), OnConflictAction::DoUpdate(update)) => {
                (arbiters(table, Some(target))?, Some(Assignments::new(catalog, state, table, name, update)?))
            }
            (None, OnConflictAction::DoUpdate(_)) => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                return Err(Error::coded("42601", message));
            }
        };
        let seen = vec![HashSet::new(); arbiters.len()];
        Ok(OnConflict { arbiters, seen, update })
    }

    /// Inserts the rows that meet no other, deals with the rest; returns those that were written.
    pub(crate) fn insert(
        &mut self,
        tx: &Transaction,
        table: &Arc<Table>,
        checks: &Checks,
        rows: Vec<Row>,
    ) -> Result<Vec<Row>> {
        let mut met: Vec<Option<Row>> = vec![None; rows.len()];
        let mut skipped = vec![false; rows.len()];
        for (arbiter, seen) in self.arbiters.iter().zip(&mut self.seen) {
            let identities = table.identities(arbiter, &rows)?;
            let there = table.rows_with(tx, arbiter, &identities)?;
            for (at, (identity, there)) in identities.into_iter().zip(there).enumerate() {
                let Some(identity) = identity.filter(|_| !skipped[at]) else { continue };
                let again = seen.contains(&identity[..]);
                match &self.update {
                    None => skipped[at] = again || there.is_some(),
                    Some(_) if again => {
                        let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                        return Err(Error::coded("21000", message));
                    }
                    Some(_) => met[at] = there,
                }
                if !skipped[at] {
                    seen.insert(identity.to_vec());
                }
            }
        }
        let (mut new, mut old, mut excluded) = (Vec::new(), Vec::new(), Vec::new());
        let (mut new_places, mut old_places) = (Vec::new(), Vec::new());
        for (at, ((row, met), skipped)) in rows.into_iter().zip(met).zip(skipped).enumerate() {
            match met {
                Some(met) => {
                    old.push(met);
                    excluded.push(row);
                    old_places.push(at);
                }
                None if skipped => {}
                None => {
                    new.push(row);
                    new_places.push(at);
                }
            }
        }
        let Some(update) = &self.update else {
            table.insert_many(tx, &new)?;
            return Ok(new);
        };
        let Changes { keys, changed, chosen } = update.apply(table, old, &excluded)?;
        checks.check(&changed)?;
        table.update_many(tx, &keys, &changed)?;
        table.insert_many(tx, &new)?;
        // In the order of the rows that were given.
        let changed_places = chosen.into_iter().map(|at| old_places[at]);
        let mut written: Vec<(usize, Row)> =
            new_places.into_iter().zip(new).chain(changed_places.zip(changed)).collect();
        written.sort_unstable_by_key(|(place, _)| *place);
        Ok(written.into_iter().map(|(_, row)| row).collect())
    }
}

impl Assignments {
    fn new(
        catalog: &Catalog,
        state: &SessionState,
        table: &Table,
        name: &str,
        update: &DoUpdate,
    ) -> Result<Assignments> {
        let zone = Zone::of(state.config_options())?;
        let visible = visible_schema(table.schema(), zone.name());
        let scope = Scope::new(state.clone(), &[(name, &visible), (EXCLUDED, &visible)])?;
        let assigned = source::assigned_columns(table, &update.assignments)?;
        let given = update.assignments.iter().map(|assignment| &assignment.value);
        generated::check_assigned(catalog, table, assigned.iter().copied().zip(given))?;
        let mut values = Vec::with_capacity(assigned.len());
        for (assignment, &column) in update.assignments.iter().zip(&assigned) {
            let value = scope.plan("SET", &source::assigned_value(table, column, &assignment.value)?)?;
            let column = &table.schema().columns()[column];
            assignment::check(table.name(), column, value.field.data_type())?;
            values.push(value);
        }
        let condition =
            update.selection.as_ref().map(|condition| scope.plan("WHERE", condition)).transpose()?;
        condition.as_ref().map_or(Ok(()), |condition| check_boolean("WHERE", condition))?;
        let columns = table.schema().visible_columns();
        let nullable =
            |field: &datafusion::arrow::datatypes::FieldRef| field.as_ref().clone().with_nullable(true);
        let fields: Fields = visible.fields().iter().chain(visible.fields()).map(nullable).collect();
        let columns: Vec<Column> = columns.iter().chain(columns).cloned().collect();
        Ok(Assignments {
            assigned,
            values,
            condition,
            schema: Arc::new(ArrowSchema::new(fields)),
            columns,
            zone,
        })
    }

    fn apply(&self, table: &Table, old: Vec<Row>, excluded: &[Row]) -> Result<Changes> {
        let visible = table.schema().visible_columns().len();
        let both: Vec<Row> = old
            .iter()
            .zip(excluded)
            .map(|(old, excluded)| old[..visible].iter().chain(&excluded[..visible]).cloned().collect())
            .collect();
        let batch = rows::batch(&self.schema, &self.columns, &both)?;
        let chosen = match &self.condition {
            None => vec![true; old.len()],
            Some(condition) => {
                let met = cast(&condition.evaluate(&batch)?, &ArrowType::Boolean)?;
                let met = met.as_boolean();
                (0..met.len()).map(|at| met.is_valid(at) && met.value(at)).collect()
            }
        };
        let fields: Fields =
            self.values.iter().map(|value| value.field.clone().with_nullable(true)).collect();
        let arrays: Result<Vec<_>> = self.values.iter().map(|value| value.evaluate(&batch)).collect();
        let values = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays?)?;
        let new = assignment::rows(table, &self.assigned, &values, &self.zone)?;
        let mut changes = Changes { keys: Vec::new(), changed: Vec::new(), chosen: Vec::new() };
        for (at, ((mut row, mut values), chosen)) in old.into_iter().zip(new).zip(chosen).enumerate() {
            if chosen {
                changes.keys.push(table.key_of(&row));
                for &column in &self.assigned {
                    row[column] = std::mem::replace(&mut values[column], Value::Null);
                }
                changes.changed.push(row);
                changes.chosen.push(at);
            }
        }
        Ok(changes)
    }
}

/// What a target names: the key or unique indexes.
fn arbiters(table: &Table, target: Option<&ConflictTarget>) -> Result<Vec<Arbiter>> {
    let schema = table.schema();
    let mut unique = table.indexes().iter().filter(|index| index.definition().unique);
    match target {
        None => {
            let key = (!schema.hidden_key()).then_some(Arbiter::Key);
            Ok(key.into_iter().chain(unique.cloned().map(Arbiter::Index)).collect())
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
                return Ok(vec![Arbiter::Key]);
            }
            let found = unique.find(|index| sorted(&index.definition().columns) == wanted);
            found.map(|index| vec![Arbiter::Index(Arc::clone(index))]).ok_or_else(|| {
                let message =
                    "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                Error::coded("42P10", message)
            })
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = table_name(name)?;
            if !schema.hidden_key() && table.definition().key_constraint(table.name()) == name {
                return Ok(vec![Arbiter::Key]);
            }
            let found = unique.find(|index| index.name() == name && index.definition().constraint);
            found.map(|index| vec![Arbiter::Index(Arc::clone(index))]).ok_or_else(|| {
                let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name());
                Error::coded("42704", message)
            })
        }
    }
}
