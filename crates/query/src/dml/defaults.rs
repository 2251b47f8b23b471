//! DEFAULT: values of columns that a statement leaves out.
//!
//! - A default is an expression without columns; it is stored as SQL text and computed for each row when the
//!   row is inserted.
//! - The word DEFAULT in VALUES and in SET is replaced by it before planning; a column without one gets NULL.

use crate::dml::assignment;
use crate::dml::expressions::{ComputedExpression, Scope};
use crate::dml::source::is_default;
use crate::error::Result;
use crate::parser::sequence_calls;
use crate::parser::stored_expressions::stored_expression;
use crate::postgres::time_zones::Zone;
use crate::session::sequence_functions;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, Value as Literal};
use entresol_tables::{Column, Row, Schema, Table, TableDefinition, Value};
use std::sync::Arc;

/// Defaults of some columns of a table, ready to be computed.
pub(crate) struct Defaults {
    table: Arc<Table>,
    /// Columns that have a default.
    columns: Vec<usize>,
    sources: Vec<Source>,
    zone: Zone,
}

/// Source of the values of a default.
enum Source {
    Expression(ComputedExpression),
    /// Next values of a sequence, which need no planning.
    Sequence {
        nextval: Arc<ScalarUDF>,
        name: String,
    },
}

impl Source {
    fn values(&self, none: &RecordBatch) -> Result<ArrayRef> {
        match self {
            Source::Expression(computed) => computed.evaluate(none),
            Source::Sequence { nextval, name } => {
                sequence_functions::next_values(nextval, name, none.num_rows())
            }
        }
    }

    fn field(&self) -> Field {
        match self {
            Source::Expression(computed) => computed.field.clone().with_nullable(true),
            Source::Sequence { name, .. } => Field::new(name, DataType::Int64, true),
        }
    }
}

impl Defaults {
    /// Defaults of all columns but the `given` ones.
    pub(crate) fn new(state: SessionState, table: &Arc<Table>, given: &[usize]) -> Result<Defaults> {
        let nextval = sequence_functions::nextval(&state);
        let zone = Zone::of(state.config_options())?;
        let scope = Scope::new(state, &[])?;
        let (mut columns, mut sources) = (Vec::new(), Vec::new());
        for (column, default) in table.definition().defaults.iter().enumerate() {
            if let Some(default) = default.as_ref().filter(|_| !given.contains(&column)) {
                columns.push(column);
                sources.push(match (sequence_calls::sequence_of_default(default), &nextval) {
                    (Some(name), Some(nextval)) => {
                        Source::Sequence { nextval: Arc::clone(nextval), name: name.to_owned() }
                    }
                    _ => Source::Expression(scope.plan("DEFAULT", &stored_expression(default)?)?),
                });
            }
        }
        Ok(Defaults { table: Arc::clone(table), columns, sources, zone })
    }

    /// Returns true if a default depends on what is fixed for a statement, as the time.
    pub(crate) fn is_of_statement(&self) -> bool {
        let is = |source: &Source| matches!(source, Source::Expression(computed) if computed.is_of_statement);
        self.sources.iter().any(is)
    }

    /// Returns true if each row gets the same values, in any transaction.
    pub(crate) fn are_constant(&self) -> bool {
        let is = |source: &Source| matches!(source, Source::Expression(computed) if !computed.is_volatile);
        self.sources.iter().all(is) && !self.is_of_statement()
    }

    /// Fills the defaults into rows.
    pub(crate) fn fill(&self, rows: &mut [Row]) -> Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let batch = values(&self.sources, rows.len())?;
        for (row, mut values) in
            rows.iter_mut().zip(assignment::rows(&self.table, &self.columns, &batch, &self.zone)?)
        {
            for &column in &self.columns {
                row[column] = std::mem::replace(&mut values[column], Value::Null);
            }
        }
        Ok(())
    }

    /// Defaults of so many rows, and their columns.
    pub(crate) fn arrays(&self, rows: usize) -> Result<Vec<(usize, ArrayRef)>> {
        if self.columns.is_empty() {
            return Ok(Vec::new());
        }
        let (batch, columns) = (values(&self.sources, rows)?, self.table.schema().columns());
        let computed = self.columns.iter().zip(batch.columns());
        computed
            .map(|(&at, array)| {
                Ok((at, assignment::array(self.table.name(), &columns[at], array, &self.zone)?))
            })
            .collect()
    }
}

/// Computes `rows` values of each source.
fn values(sources: &[Source], rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let none = RecordBatch::try_new_with_options(Arc::new(ArrowSchema::empty()), Vec::new(), &options)?;
    let arrays: Result<Vec<ArrayRef>> = sources.iter().map(|source| source.values(&none)).collect();
    let fields: Vec<Field> = sources.iter().map(Source::field).collect();
    Ok(RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), arrays?, &options)?)
}

/// Value of a default now, NULL if it may differ for each row; an error if the expression does not fit the
/// column. For definitions.
pub(crate) fn evaluate(state: SessionState, table: &str, column: &Column, default: &Expr) -> Result<Value> {
    let zone = Zone::of(state.config_options())?;
    let computed = Scope::new(state, &[])?.plan("DEFAULT", default)?;
    assignment::check(table, column, computed.field.data_type())?;
    if computed.is_volatile {
        // Evaluation would advance sequences.
        return Ok(Value::Null);
    }
    let batch = values(&[Source::Expression(computed)], 1)?;
    let mut value = Value::Null;
    assignment::fill(table, column, batch.column(0), &zone, |_, computed| value = computed)?;
    Ok(value)
}

/// Default of a column as an expression of a statement.
pub(crate) fn spelled_out(definition: &TableDefinition, column: usize) -> Result<Expr> {
    match definition.defaults.get(column).and_then(Option::as_ref) {
        Some(default) => Ok(Expr::Nested(Box::new(stored_expression(default)?))),
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

/// Returns true if a default may give another value for each row.
pub(crate) fn is_volatile(state: SessionState, default: &Expr) -> Result<bool> {
    Ok(Scope::new(state, &[])?.plan("DEFAULT", default)?.is_volatile)
}

/// Row of NULLs for the visible columns of a schema.
pub(crate) fn empty_row(schema: &Schema) -> Row {
    vec![Value::Null; schema.visible_columns().len()]
}
