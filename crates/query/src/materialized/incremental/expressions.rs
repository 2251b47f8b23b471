//! Expressions over a few rows: columns by value, others over arrays that are built when the first of them asks.
//!
//! A commit of one row reads a column of it in nanoseconds; an array of one value, and a kernel over it, take hundreds.
//!
//! # Invariants
//! - A column by value, and a comparison of one with a constant, is what its array gives.
//! - Arrays have the columns that computed expressions read, in the order in which they were planned, and no others.

use super::value_expression::ValueExpression;
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

/// Rows up to which expressions are computed by value where that is possible.
const FEW_ROWS: usize = 16;

/// Expression over a row.
#[derive(Debug)]
pub(super) enum RowExpression {
    Column(usize),
    /// Few rows are computed by value; others, and what has no result, by the expression.
    ByValue(ValueExpression, Arc<dyn PhysicalExpr>),
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
    /// Columns that any expression reads.
    used: Vec<bool>,
    /// Columns that computed expressions read.
    computed: Vec<usize>,
    schema: SchemaRef,
}

/// Planner of expressions over the columns of a node.
pub(super) struct ExpressionPlanner<'p> {
    state: &'p SessionState,
    /// Columns of the node, which may be NULL: a table may lose its NOT NULL, and a plan speaks of rows that pass its conditions.
    node: DFSchema,
    types: Vec<(DataType, ArrowType)>,
    used: Vec<bool>,
    computed: Vec<usize>,
}

impl<'p> ExpressionPlanner<'p> {
    /// Planner over the output of a node; none if a table has no column for the values of one of its columns.
    pub(super) fn new(state: &'p SessionState, node: &DFSchema) -> Option<ExpressionPlanner<'p>> {
        let types = node
            .fields()
            .iter()
            .map(|field| Some((type_of_values(field.data_type())?, field.data_type().clone())));
        let types = types.collect::<Option<Vec<_>>>()?;
        let fields = node.iter().map(|(qualifier, field)| {
            (qualifier.cloned(), Arc::new(field.as_ref().clone().with_nullable(true)))
        });
        let node = DFSchema::new_with_metadata(fields.collect(), HashMap::new()).ok()?;
        let used = vec![false; types.len()];
        Some(ExpressionPlanner { state, node, types, used, computed: Vec::new() })
    }

    /// Expression as it is planned. Some functions, those that casts become among them, are others once simplified.
    fn simplified(&mut self, expr: &Expr) -> Result<Expr> {
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(self.node.clone()))
            .with_config_options(Arc::clone(self.state.config_options()))
            .build();
        let simplified = ExprSimplifier::new(context).simplify(expr.clone().unalias())?;
        for column in simplified.column_refs() {
            self.used[self.node.index_of_column(column)?] = true;
        }
        Ok(simplified)
    }

    fn column(&self, expr: &Expr) -> Option<usize> {
        let Expr::Column(column) = expr else { return None };
        self.node.maybe_index_of_column(column)
    }

    /// Plans an expression.
    pub(super) fn expression(&mut self, expr: &Expr) -> Result<RowExpression> {
        let expr = self.simplified(expr)?;
        if let Some(column) = self.column(&expr) {
            return Ok(RowExpression::Column(column));
        }
        let by_value = ValueExpression::of(&expr, &self.node);
        let physical = self.physical(expr)?;
        Ok(match by_value {
            Some(by_value) => RowExpression::ByValue(by_value, physical),
            None => RowExpression::Computed(physical),
        })
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

    /// Plans conditions; none if one can't be evaluated without a query.
    pub(super) fn all_predicates(&mut self, exprs: &[Expr]) -> Option<Vec<RowPredicate>> {
        let mut predicates = Vec::with_capacity(exprs.len());
        for expr in exprs {
            predicates.extend(self.predicates(expr).ok()?);
        }
        Some(predicates)
    }

    /// Plans a condition: its comparisons, if it consists of such alone. Others are computed as a whole, which keeps what may
    /// fail from rows that another part rules out.
    fn predicates(&mut self, expr: &Expr) -> Result<Vec<RowPredicate>> {
        let expr = self.simplified(expr)?;
        let comparisons = split_conjunction(&expr).into_iter().map(|part| self.comparison(part));
        match comparisons.collect::<Option<Vec<_>>>() {
            Some(comparisons) => Ok(comparisons),
            None => Ok(vec![RowPredicate::Computed(self.physical(expr)?)]),
        }
    }

    /// Comparison of a column of integers with a constant, if a condition is one.
    fn comparison(&self, expr: &Expr) -> Option<RowPredicate> {
        let Expr::BinaryExpr(binary) = expr else { return None };
        let is_comparison = matches!(
            binary.op,
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        let column = self.column(&binary.left).filter(|column| is_comparison && self.is_integer(*column))?;
        let Expr::Literal(literal, _) = binary.right.as_ref() else { return None };
        Some(RowPredicate::Comparison { column, operator: binary.op, constant: integer(literal)? })
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
        let fields = self.computed.iter().map(|&column| self.node.field(column).as_ref().clone());
        let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
        RowColumns { types: self.types, used: self.used, computed: self.computed, schema }
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
    /// Tells whether an expression reads a column.
    pub(super) fn uses(&self, column: usize) -> bool {
        self.used[column]
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
            RowExpression::Computed(computed) => self.computed(computed),
            RowExpression::ByValue(by_value, computed) => match self.values(by_value) {
                Some(values) => Ok(by_value.array(&values)),
                None => self.computed(computed),
            },
        }
    }

    /// Values of an expression for a column of this type, if they take no array and are of the type.
    pub(super) fn values_for(&self, expr: &RowExpression, data_type: DataType) -> Option<Vec<Value>> {
        match expr {
            RowExpression::Column(column) if self.columns.types[*column].0 == data_type => {
                Some((0..self.len()).map(|row| self.value(row, *column).clone()).collect())
            }
            RowExpression::ByValue(by_value, _) if by_value.result_type() == data_type => {
                self.values(by_value)
            }
            _ => None,
        }
    }

    /// Values of an expression, if there are few rows and it has a result for each.
    fn values(&self, expr: &ValueExpression) -> Option<Vec<Value>> {
        if self.len() > FEW_ROWS {
            return None;
        }
        (0..self.len()).map(|row| expr.value(|column| self.value(row, column))).collect()
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
