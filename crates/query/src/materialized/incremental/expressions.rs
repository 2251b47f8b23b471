//! Expressions over a few rows: columns by value, others over arrays that are built when the first of them asks.
//!
//! A commit of one row reads a column of it in nanoseconds; an array of one value, and a kernel over it, take hundreds.
//!
//! # Invariants
//! - A column by value, and a comparison of one with a constant, is what its array gives.
//! - Arrays have the columns that computed expressions read, in the order in which they were planned, and no others.

use crate::error::{Error, Result};
use crate::postgres::overflow::checked;
use crate::postgres::time_zones::UTC;
use crate::postgres::types::column_type;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{cast, filter_record_batch, prep_null_mask_filter};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, IntervalUnit, Schema as ArrowSchema, SchemaRef, TimeUnit,
};
use datafusion::arrow::record_batch::RecordBatchOptions;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use entresol_tables::{ColumnBuilder, DataType, Row, Value, arrow_type, value_at};
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// Digits of the longest BIGINT.
const BIGINT_DIGITS: u8 = 19;

/// Expression over a row.
#[derive(Debug)]
pub(super) enum RowExpression {
    Column(usize),
    Computed(Arc<dyn PhysicalExpr>),
}

/// Condition on a row; NULL is false.
#[derive(Debug)]
pub(super) enum RowPredicate {
    /// Comparison of a column of integers with a constant.
    Comparison {
        column: usize,
        operator: Operator,
        constant: i64,
    },
    Computed(Arc<dyn PhysicalExpr>),
}

/// Columns of rows, of types whose values are those of a column of a table.
#[derive(Debug)]
pub(super) struct RowColumns {
    types: Vec<(DataType, ArrowType)>,
    /// Columns that computed expressions read.
    computed: Vec<usize>,
    schema: SchemaRef,
}

/// Planner of expressions over the columns of a node.
pub(super) struct ExpressionPlanner<'p> {
    state: &'p SessionState,
    node: &'p DFSchema,
    types: Vec<(DataType, ArrowType)>,
    computed: Vec<usize>,
}

impl<'p> ExpressionPlanner<'p> {
    /// Planner over the output of a node; none if a table has no column for the values of one of its columns.
    pub(super) fn new(state: &'p SessionState, node: &'p DFSchema) -> Option<ExpressionPlanner<'p>> {
        let types = node
            .fields()
            .iter()
            .map(|field| Some((type_of_values(field.data_type())?, field.data_type().clone())));
        Some(ExpressionPlanner {
            state,
            node,
            types: types.collect::<Option<Vec<_>>>()?,
            computed: Vec::new(),
        })
    }

    /// Expression as it is planned. Some functions, those that casts become among them, are others once simplified.
    fn simplified(&self, expr: &Expr) -> Result<Expr> {
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(self.node.clone()))
            .with_config_options(Arc::clone(self.state.config_options()))
            .build();
        Ok(ExprSimplifier::new(context).simplify(expr.clone().unalias())?)
    }

    fn column(&self, expr: &Expr) -> Option<usize> {
        let Expr::Column(column) = expr else { return None };
        self.node.maybe_index_of_column(column)
    }

    /// Plans an expression.
    pub(super) fn expression(&mut self, expr: &Expr) -> Result<RowExpression> {
        let expr = self.simplified(expr)?;
        match self.column(&expr) {
            Some(column) => Ok(RowExpression::Column(column)),
            None => Ok(RowExpression::Computed(self.physical(expr)?)),
        }
    }

    /// Plans the argument of a sum, of which only the unscaled value counts: an integer is that of a DECIMAL of its digits.
    pub(super) fn summand(&mut self, expr: &Expr) -> Result<RowExpression> {
        let simplified = self.simplified(expr)?;
        if let Expr::Cast(cast) = &simplified
            && let ArrowType::Decimal128(BIGINT_DIGITS.., 0) = cast.field.data_type()
            && let Some(column) = self.column(&cast.expr).filter(|column| self.is_integer(*column))
        {
            return Ok(RowExpression::Column(column));
        }
        self.expression(expr)
    }

    /// Plans conditions, and of each those that it consists of; none if one can't be evaluated without a query.
    pub(super) fn all_predicates(&mut self, exprs: &[Expr]) -> Option<Vec<RowPredicate>> {
        let conditions = exprs.iter().flat_map(split_conjunction);
        conditions.map(|condition| self.predicate(condition).ok()).collect()
    }

    fn predicate(&mut self, expr: &Expr) -> Result<RowPredicate> {
        let expr = self.simplified(expr)?;
        if let Expr::BinaryExpr(binary) = &expr
            && matches!(
                binary.op,
                Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
            )
            && let Some(column) = self.column(&binary.left).filter(|column| self.is_integer(*column))
            && let Expr::Literal(literal, _) = binary.right.as_ref()
            && let Some(constant) = integer(literal)
        {
            return Ok(RowPredicate::Comparison { column, operator: binary.op, constant });
        }
        Ok(RowPredicate::Computed(self.physical(expr)?))
    }

    fn is_integer(&self, column: usize) -> bool {
        matches!(self.types[column].0, DataType::SmallInt | DataType::Int | DataType::BigInt)
    }

    fn physical(&mut self, expr: Expr) -> Result<Arc<dyn PhysicalExpr>> {
        let mut read: Vec<usize> = expr
            .column_refs()
            .into_iter()
            .filter_map(|column| self.node.maybe_index_of_column(column))
            .collect();
        read.retain(|column| !self.computed.contains(column));
        read.sort_unstable();
        self.computed.extend(read);
        let fields = self.computed.iter().map(|&column| {
            let (qualifier, field) = self.node.qualified_field(column);
            (qualifier.cloned(), Arc::clone(field))
        });
        let schema = DFSchema::new_with_metadata(fields.collect(), HashMap::new())?;
        let physical = self.state.create_physical_expr(expr, &schema)?;
        Ok(checked(physical, schema.as_arrow())?.data)
    }

    /// Columns that the planned expressions are over.
    pub(super) fn into_columns(self) -> RowColumns {
        // A plan may say that there is no NULL, of rows that are ruled out before it.
        let fields =
            self.computed.iter().map(|&column| self.node.field(column).as_ref().clone().with_nullable(true));
        let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
        RowColumns { types: self.types, computed: self.computed, schema }
    }
}

/// Type of the column of a table that has each value of an Arrow type, if there is one.
fn type_of_values(arrow: &ArrowType) -> Option<DataType> {
    match arrow {
        ArrowType::Timestamp(unit, _) if *unit != TimeUnit::Microsecond => None,
        ArrowType::Interval(unit) if *unit != IntervalUnit::MonthDayNano => None,
        ArrowType::Date64 | ArrowType::Duration(_) => None,
        arrow => column_type(arrow),
    }
}

/// Number of an integer literal.
fn integer(literal: &ScalarValue) -> Option<i64> {
    match literal {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}

impl RowColumns {
    /// Tells whether the values of a column are those of a type.
    pub(super) fn has_values_of(&self, column: usize, data_type: DataType) -> bool {
        self.types[column].0 == data_type
    }
}

/// Value of a row of an array.
pub(super) fn value_of(array: &ArrayRef, row: usize) -> Result<Value> {
    if let Some(value) = value_at(array, row) {
        return Ok(value);
    }
    let no_column = || Error::Internal(format!("no column has values of type {}", array.data_type()));
    let wanted = arrow_type(type_of_values(array.data_type()).ok_or_else(no_column)?, UTC);
    value_at(&cast(&array.slice(row, 1), &wanted)?, 0).ok_or_else(no_column)
}

/// Rows, and their places among those that there were before conditions.
pub(super) struct Rows<'r> {
    columns: &'r RowColumns,
    rows: Vec<&'r [Value]>,
    /// Place of each column in a row.
    places: &'r [usize],
    passed: Vec<usize>,
    arrays: OnceCell<RecordBatch>,
}

impl<'r> Rows<'r> {
    pub(super) fn new(
        columns: &'r RowColumns,
        places: &'r [usize],
        rows: impl Iterator<Item = &'r Row>,
    ) -> Rows<'r> {
        let rows: Vec<&[Value]> = rows.map(Vec::as_slice).collect();
        Rows { columns, places, passed: (0..rows.len()).collect(), rows, arrays: OnceCell::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn passed(&self) -> &[usize] {
        &self.passed
    }

    pub(super) fn value(&self, row: usize, column: usize) -> &'r Value {
        &self.rows[row][self.places[column]]
    }

    /// Array of an expression.
    pub(super) fn array(&self, expr: &RowExpression) -> Result<ArrayRef> {
        match expr {
            RowExpression::Column(column) => self.array_of(*column),
            RowExpression::Computed(expr) => self.computed(expr),
        }
    }

    /// Array of a column.
    fn array_of(&self, column: usize) -> Result<ArrayRef> {
        let (data_type, wanted) = &self.columns.types[column];
        let built = arrow_type(*data_type, UTC);
        let mut builder = ColumnBuilder::new(*data_type, &built, self.len());
        (0..self.len()).for_each(|row| builder.push(self.value(row, column)));
        Ok(if built == *wanted { builder.finish() } else { cast(&builder.finish(), wanted)? })
    }

    fn computed(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<ArrayRef> {
        let batch = match self.arrays.get() {
            Some(batch) => batch,
            None => {
                let arrays = self.columns.computed.iter().map(|&column| self.array_of(column));
                let arrays = arrays.collect::<Result<Vec<_>>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
                let schema = Arc::clone(&self.columns.schema);
                let batch = RecordBatch::try_new_with_options(schema, arrays, &options)?;
                self.arrays.get_or_init(|| batch)
            }
        };
        Ok(expr.evaluate(batch)?.into_array(batch.num_rows())?)
    }

    /// Truths of an expression for each row; NULL is false.
    pub(super) fn truths(&self, expr: &RowExpression) -> Result<BooleanArray> {
        let condition = self.array(expr)?;
        let condition = condition.as_boolean();
        Ok(if condition.null_count() == 0 { condition.clone() } else { prep_null_mask_filter(condition) })
    }

    /// Retains the rows that all conditions let through, each asked for those that came through the ones before.
    pub(super) fn filter(&mut self, predicates: &'r [RowPredicate]) -> Result<()> {
        for predicate in predicates {
            let selection = match predicate {
                RowPredicate::Comparison { column, operator, constant } => {
                    let holds = |row| comparison_holds(self.value(row, *column), *operator, *constant);
                    (0..self.len()).map(holds).collect()
                }
                RowPredicate::Computed(expr) => {
                    let condition = self.computed(expr)?;
                    let condition = condition.as_boolean();
                    (0..self.len()).map(|row| condition.is_valid(row) && condition.value(row)).collect()
                }
            };
            self.retain(selection)?;
        }
        Ok(())
    }

    fn retain(&mut self, selection: Vec<bool>) -> Result<()> {
        if selection.iter().all(|selected| *selected) {
            return Ok(());
        }
        let mut selected = selection.iter();
        self.rows.retain(|_| *selected.next().unwrap_or(&false));
        let mut selected = selection.iter();
        self.passed.retain(|_| *selected.next().unwrap_or(&false));
        if let Some(batch) = self.arrays.take() {
            // Not set: it was taken.
            let _ = self.arrays.set(filter_record_batch(&batch, &BooleanArray::from(selection))?);
        }
        Ok(())
    }
}

fn comparison_holds(value: &Value, operator: Operator, constant: i64) -> bool {
    let value = match value {
        Value::Int(value) => i64::from(*value),
        Value::BigInt(value) => *value,
        _ => return false,
    };
    let ordering = value.cmp(&constant);
    match operator {
        Operator::Eq => ordering == Ordering::Equal,
        Operator::NotEq => ordering != Ordering::Equal,
        Operator::Lt => ordering == Ordering::Less,
        Operator::LtEq => ordering != Ordering::Greater,
        Operator::Gt => ordering == Ordering::Greater,
        Operator::GtEq => ordering != Ordering::Less,
        _ => false,
    }
}
