//! Fast path of INSERT … VALUES, with or without ON CONFLICT: rows of literals and parameters are written without
//! planning.
//!
//! ```text
//! INSERT INTO t VALUES ($1, $2), …
//! INSERT INTO t VALUES … ON CONFLICT [(k)] DO NOTHING
//! INSERT INTO t VALUES … ON CONFLICT (k) DO UPDATE SET a = excluded.a, n = t.n + excluded.n, c = t.c + 1
//! ```
//!
//! # Invariants
//!
//! - The planned path gives the same rows, counts and errors (`tests/query/fast_path.rs` runs both).
//! - Values that do not fit make a run take the planned path, before anything is written.

use crate::dml::conflict::{Conflicts, Split, unique_keys};
use crate::dml::literal_rows;
use crate::dml::source::InsertSource;
use crate::dml::writer::insert_rows;
use crate::error::Result;
use crate::parser::names::column_name;
use crate::planner::fast_path::{NewValue, Scope, plain_rows};
use crate::planner::parameters::Types;
use crate::postgres::time_zones::Zone;
use crate::session::result::FastPathResult;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{AssignmentTarget, DoUpdate, Insert, OnConflictAction, OnInsert};
use entresol_tables::{Row, UniqueKey};
use entresol_transactions::Transaction;

/// INSERT of literals and parameters; see the [module](self).
#[derive(Debug)]
pub(crate) struct FastPathInsert {
    source: InsertSource,
    /// Time zone of the session when it was planned.
    zone: Zone,
    conflict: Option<FastPathConflict>,
}

/// ON CONFLICT clause that needs no planning.
#[derive(Debug)]
struct FastPathConflict {
    unique_keys: Vec<UniqueKey>,
    /// Assignments of DO UPDATE; `None` for DO NOTHING.
    assigned: Option<Vec<(usize, NewValue)>>,
}

impl FastPathInsert {
    /// Statement whose rows are literals and parameters of fitting types; `None` if it needs planning. Adds the
    /// types of the parameters of DO UPDATE; the statement has `count` parameters.
    pub(crate) fn new(
        source: InsertSource,
        statement: &Insert,
        types: &mut Types,
        count: usize,
        zone: &Zone,
    ) -> Result<Option<FastPathInsert>> {
        // What concerns nothing but the rows themselves.
        if statement.returning.is_some() || !plain_rows(&source.table) {
            return Ok(None);
        }
        let conflict = match &statement.on {
            None => None,
            Some(on) => match FastPathConflict::new(&source, on, types, zone) {
                None => return Ok(None),
                conflict => conflict,
            },
        };
        // Values of the right types, whatever they are, tell whether only they decide.
        let sample = types.sample(count)?;
        let query = source.query.as_ref();
        let rows = query.and_then(|query| literal_rows::rows(&source, query, &sample, zone));
        Ok(rows.map(|_| FastPathInsert { source, zone: zone.clone(), conflict }))
    }

    /// Runs the statement; `None` if its values require the planned path. Nothing was written then.
    pub(crate) fn run(&self, tx: &Transaction, parameters: &[ScalarValue]) -> Result<Option<FastPathResult>> {
        let query = self.source.query.as_ref();
        let rows = query.and_then(|query| literal_rows::rows(&self.source, query, parameters, &self.zone));
        let Some(rows) = rows else { return Ok(None) };
        let written = match &self.conflict {
            None => insert_rows(tx, &self.source.table, &rows)?,
            Some(conflict) => match self.resolve(conflict, tx, rows, parameters)? {
                Some(written) => written,
                None => return Ok(None),
            },
        };
        Ok(Some(FastPathResult::Count("INSERT", written)))
    }

    /// Writes rows, or what becomes of the stored ones that they meet; returns their number, or `None` if a
    /// value has to be planned.
    fn resolve(
        &self,
        conflict: &FastPathConflict,
        tx: &Transaction,
        rows: Vec<Row>,
        parameters: &[ScalarValue],
    ) -> Result<Option<u64>> {
        let table = &self.source.table;
        let FastPathConflict { unique_keys, assigned } = conflict;
        let mut conflicts = Conflicts::new(unique_keys.clone(), assigned.is_some());
        let Split { new, old, proposed, .. } = conflicts.split(tx, table, rows)?;
        let mut changed = Vec::with_capacity(old.len());
        for (old, proposed) in old.iter().zip(&proposed) {
            let mut row = old.clone();
            for (column, value) in assigned.iter().flatten() {
                let data_type = table.schema().columns()[*column].data_type;
                let value = value.of(old, Some(proposed), data_type, parameters);
                let Some(value) = value else { return Ok(None) };
                row[*column] = value;
            }
            changed.push(row);
        }
        if !changed.is_empty() {
            let keys: Vec<Row> = old.iter().map(|row| table.key_of(row)).collect();
            table.update_many(tx, &keys, &changed)?;
        }
        table.insert_many(tx, &new)?;
        Ok(Some((changed.len() + new.len()) as u64))
    }
}

impl FastPathConflict {
    fn new(source: &InsertSource, on: &OnInsert, types: &mut Types, zone: &Zone) -> Option<FastPathConflict> {
        let OnInsert::OnConflict(on) = on else { return None };
        // The planned path words the errors.
        let unique_keys = unique_keys(&source.table, on.conflict_target.as_ref()).ok()?;
        let assigned = match &on.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => {
                on.conflict_target.as_ref()?;
                Some(assigned(source, update)?)
            }
        };
        for (column, value) in assigned.iter().flatten() {
            value.add_types(&source.table.schema().columns()[*column], types, zone);
        }
        Some(FastPathConflict { unique_keys, assigned })
    }
}

/// Assignments of DO UPDATE; `None` if one needs planning, or there is a condition.
fn assigned(source: &InsertSource, update: &DoUpdate) -> Option<Vec<(usize, NewValue)>> {
    if update.selection.is_some() {
        return None;
    }
    let scope = Scope { table: &source.table, name: &source.name, proposes: true };
    let mut assigned: Vec<(usize, NewValue)> = Vec::with_capacity(update.assignments.len());
    for assignment in &update.assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
        let column = scope.position(&column_name(name).ok()?)?;
        if assigned.iter().any(|&(earlier, _)| earlier == column) {
            return None;
        }
        assigned.push((column, scope.new_value(column, &assignment.value)?));
    }
    Some(assigned)
}
