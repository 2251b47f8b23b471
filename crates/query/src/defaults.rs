//! DEFAULT: what columns get that a statement says nothing about.
//!
//! - A default is an expression without columns; it is kept as SQL text and computed for each row when the row is inserted.
//! - The word DEFAULT in VALUES and in SET is replaced by it before anything is planned; a column without one gets NULL.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, Value as Literal};
use entresol_tables::{Column, Row, Schema, Table, TableDefinition, Value};

use crate::assignment;
use crate::error::Result;
use crate::expressions::{self, Computed, Scope};
use crate::source::is_default;

/// The defaults of some columns of a table, ready to be computed.
pub(crate) struct Defaults {
    table: Arc<Table>,
    /// Only columns that have one.
    columns: Vec<usize>,
    computed: Vec<Computed>,
}

impl Defaults {
    /// Of all columns but the `given` ones.
    pub(crate) fn new(state: SessionState, table: &Arc<Table>, given: &[usize]) -> Result<Defaults> {
        let scope = Scope::new(state, &[])?;
        let (mut columns, mut computed) = (Vec::new(), Vec::new());
        for (column, default) in table.definition().defaults.iter().enumerate() {
            if let Some(default) = default.as_ref().filter(|_| !given.contains(&column)) {
                columns.push(column);
                computed.push(scope.plan("DEFAULT", &expressions::parse(default)?)?);
            }
        }
        Ok(Defaults { table: Arc::clone(table), columns, computed })
    }

    /// Puts them into rows.
    pub(crate) fn fill(&self, rows: &mut [Row]) -> Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let batch = values(&self.computed, rows.len())?;
        for (row, mut values) in rows.iter_mut().zip(assignment::rows(&self.table, &self.columns, &batch)?) {
            for &column in &self.columns {
                row[column] = std::mem::replace(&mut values[column], Value::Null);
            }
        }
        Ok(())
    }
}

/// So many values of expressions without columns.
fn values(computed: &[Computed], rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let none = RecordBatch::try_new_with_options(Arc::new(ArrowSchema::empty()), Vec::new(), &options)?;
    let arrays: Result<Vec<ArrayRef>> = computed.iter().map(|computed| computed.evaluate(&none)).collect();
    let fields: Vec<_> = computed.iter().map(|computed| computed.field.clone().with_nullable(true)).collect();
    Ok(RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), arrays?, &options)?)
}

/// The value of a default now, NULL if it may be another for each row; an error if it is no expression for the column.
/// For definitions.
pub(crate) fn evaluate(state: SessionState, table: &str, column: &Column, default: &Expr) -> Result<Value> {
    let computed = Scope::new(state, &[])?.plan("DEFAULT", default)?;
    assignment::check(table, column, computed.field.data_type())?;
    if computed.is_volatile {
        // A look would draw from sequences.
        return Ok(Value::Null);
    }
    let batch = values(&[computed], 1)?;
    let mut value = Value::Null;
    assignment::fill(table, column, batch.column(0), |_, computed| value = computed)?;
    Ok(value)
}

/// The default of a column as an expression of a statement.
pub(crate) fn spelled_out(definition: &TableDefinition, column: usize) -> Result<Expr> {
    match definition.defaults.get(column).and_then(Option::as_ref) {
        Some(default) => Ok(Expr::Nested(Box::new(expressions::parse(default)?))),
        None => Ok(Expr::Value(Literal::Null.into())),
    }
}

/// Replaces DEFAULT in VALUES.
pub(crate) fn spell_out(query: &mut Query, table: &Table, targets: &[usize]) -> Result<()> {
    let SetExpr::Values(values) = query.body.as_mut() else { return Ok(()) };
    for row in &mut values.rows {
        for (expr, &target) in row.iter_mut().zip(targets) {
            if matches!(expr, Expr::Identifier(ident) if is_default(ident)) {
                *expr = spelled_out(table.definition(), target)?;
            }
        }
    }
    Ok(())
}

/// True if a default may give another value for each row.
pub(crate) fn is_volatile(state: SessionState, default: &Expr) -> Result<bool> {
    Ok(Scope::new(state, &[])?.plan("DEFAULT", default)?.is_volatile)
}

/// A schema's columns that a row of NULLs has.
pub(crate) fn empty_row(schema: &Schema) -> Row {
    vec![Value::Null; schema.visible_columns().len()]
}
