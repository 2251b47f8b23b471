//! CHECK constraints: conditions that must not be false for new rows.
//!
//! They are stored as SQL text, planned once per statement, and evaluated over batches of complete new rows
//! before the first of them is written. Column names in them are unqualified, so that tables can be renamed.

use crate::dml::expressions::{ComputedExpression, Scope, check_boolean};
use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::stored_expressions::stored_expression;
use crate::parser::visit::{visit_expressions, visit_expressions_mut};
use crate::postgres::time_zones::Zone;
use crate::postgres::types::visible_schema;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{Expr, Ident};
use entresol_tables::{Check, Column, Row, ScanRange, Schema, Table, batch_to_rows, rows_to_batch};
use entresol_transactions::Transaction;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows verified together when a check is added.
const VERIFY_ROWS: usize = 8192;

/// Checks of a table, ready to be evaluated.
pub(crate) struct Checks {
    table: String,
    columns: Vec<Column>,
    schema: SchemaRef,
    checks: Vec<(String, ComputedExpression)>,
}

impl Checks {
    /// All checks of a table.
    pub(crate) fn new(state: SessionState, table: &Table) -> Result<Checks> {
        Checks::of(state, table.name(), table.schema(), &table.definition().checks)
    }

    /// Plans some checks on the rows of a table.
    pub(crate) fn of(state: SessionState, table: &str, schema: &Schema, checks: &[Check]) -> Result<Checks> {
        let columns = schema.visible_columns().to_vec();
        let schema = visible_schema(schema, Zone::of(state.config_options())?.name());
        let mut planned = Vec::with_capacity(checks.len());
        if !checks.is_empty() {
            let scope = Scope::new(state, &[(table, &schema)])?;
            for check in checks {
                let expr = stored_expression(&check.expression)?;
                planned.push((check.name.clone(), scope.plan("CHECK", &expr)?));
            }
        }
        Ok(Checks { table: table.to_owned(), columns, schema, checks: planned })
    }

    /// Returns true if a check depends on what is fixed for a statement, as the time.
    pub(crate) fn is_of_statement(&self) -> bool {
        self.checks.iter().any(|(_, computed)| computed.is_of_statement)
    }

    /// Verifies rows; see [`Checks::check_batch`].
    pub(crate) fn check(&self, rows: &[Row]) -> Result<()> {
        if self.checks.is_empty() || rows.is_empty() {
            return Ok(());
        }
        // The tables check NOT NULL when the rows are written.
        let nullable = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>()));
        self.check_batch(&rows_to_batch(&schema, &self.columns, rows)?)
    }

    /// Returns [`entresol_tables::Error::CheckViolation`] for the first row of the visible columns that
    /// violates a check.
    pub(crate) fn check_batch(&self, batch: &RecordBatch) -> Result<()> {
        for (name, computed) in &self.checks {
            let met = cast(&computed.evaluate(batch)?, &ArrowType::Boolean)?;
            let met = met.as_boolean();
            if let Some(at) = (0..met.len()).find(|&at| met.is_valid(at) && !met.value(at)) {
                let rows = batch_to_rows(&self.table, &self.columns, &batch.slice(at, 1))?;
                return Err(entresol_tables::Error::CheckViolation {
                    table: self.table.clone(),
                    constraint: name.clone(),
                    row: rows.first().map_or(String::new(), |row| self.display(row)),
                }
                .into());
            }
        }
        Ok(())
    }

    fn display(&self, row: &Row) -> String {
        let text = |(column, value): (&Column, &entresol_tables::Value)| {
            if value.is_null() { "null".to_owned() } else { value.display(column.data_type).to_string() }
        };
        self.columns.iter().zip(row).map(text).collect::<Vec<_>>().join(", ")
    }

    /// Verifies all rows that a transaction sees.
    pub(crate) fn verify(&self, table: &Arc<Table>, tx: &Transaction) -> Result<()> {
        let mut cursor = table.scan(ScanRange::full());
        let mut rows = Vec::new();
        loop {
            let more = cursor.next_batch(tx, |row| rows.push(row.to_row()))?;
            if !more || rows.len() >= VERIFY_ROWS {
                self.check(&rows).map_err(|error| match error {
                    Error::Tables(entresol_tables::Error::CheckViolation { table, constraint, .. }) => {
                        let message = format!(
                            "check constraint \"{constraint}\" of relation \"{table}\" is violated by some row"
                        );
                        Error::coded("23514", message)
                    }
                    other => other,
                })?;
                rows.clear();
            }
            if !more {
                return Ok(());
            }
        }
    }
}

/// SQL text of a check as it is stored; an error unless it is a condition on the columns of the table.
pub(crate) fn normalised(state: SessionState, table: &str, schema: &Schema, check: &Expr) -> Result<String> {
    let columns = visible_schema(schema, Zone::of(state.config_options())?.name());
    let computed = Scope::new(state, &[(table, &columns)])?.plan("CHECK", check)?;
    check_boolean("CHECK", computed.field.data_type())?;
    let mut check = check.clone();
    let visited: ControlFlow<()> = visit_expressions_mut(&mut check, |expr| {
        if let Expr::CompoundIdentifier(parts) = expr
            && let Some(column) = parts.last()
        {
            *expr = Expr::Identifier(column.clone());
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    Ok(check.to_string())
}

/// Positions of the columns that a check names, in the order of the table.
pub(crate) fn columns_of(schema: &Schema, check: &str) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    let visited: ControlFlow<()> = visit_expressions(&stored_expression(check)?, |expr| {
        if let Expr::Identifier(ident) = expr {
            found.extend(schema.column_index(&identifier(ident)));
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// SQL text of a check after a column was renamed.
pub(crate) fn renamed(check: &str, old: &str, new: &str) -> Result<String> {
    let mut expr = stored_expression(check)?;
    let visited: ControlFlow<()> = visit_expressions_mut(&mut expr, |expr| {
        if let Expr::Identifier(ident) = expr
            && identifier(ident) == old
        {
            *ident = Ident::with_quote('"', new);
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    Ok(expr.to_string())
}
