//! Counts and sums of exact numbers, which a row that goes takes back exactly.

use super::expressions::{ExpressionPlanner, RowExpression, Rows};
use crate::error::Result;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Decimal128Type, Int64Type};
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, ExprSchemable};
use entresol_tables::{Value, decimal};

/// Count or sum.
#[derive(Debug)]
pub(super) struct AdditiveAggregate {
    /// None if it counts rows.
    argument: Option<RowExpression>,
    filter: Option<RowExpression>,
    is_sum: bool,
    result: ArrowType,
}

/// Values of an aggregate in a group: their number and sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) count: i64,
    pub(super) sum: i128,
}

/// Change of a group, or its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupTotals {
    pub(super) rows: i64,
    pub(super) totals: Vec<Total>,
}

impl AdditiveAggregate {
    /// Count or sum of exact numbers that an expression of an aggregate is, if it is one. `result` is its type.
    pub(super) fn new(
        planner: &mut ExpressionPlanner<'_>,
        expr: &Expr,
        input: &DFSchema,
        result: &ArrowType,
    ) -> Option<AdditiveAggregate> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias() else {
            return None;
        };
        if params.distinct || !params.order_by.is_empty() || params.args.len() > 1 {
            return None;
        }
        let is_sum = match (func.name(), params.args.first()) {
            ("count", _) => false,
            ("sum", Some(argument)) => {
                let of = argument.get_type(input).ok()?;
                let is_exact = matches!(of, ArrowType::Int64) && *result == ArrowType::Int64
                    || matches!((&of, result), (ArrowType::Decimal128(_, from), ArrowType::Decimal128(_, to)) if from == to);
                if !is_exact {
                    return None;
                }
                true
            }
            _ => return None,
        };
        let argument = match params.args.first() {
            Some(Expr::Literal(value, _)) if !is_sum && !value.is_null() => None,
            Some(argument) if is_sum => Some(planner.summand(argument).ok()?),
            Some(argument) => Some(planner.expression(argument).ok()?),
            None => None,
        };
        let filter = params.filter.as_ref().map(|filter| planner.expression(filter)).transpose().ok()?;
        Some(AdditiveAggregate { argument, filter, is_sum, result: result.clone() })
    }

    /// Value of each row, unscaled; none of rows that do not count.
    pub(super) fn values(&self, rows: &Rows<'_>) -> Result<Vec<Option<i128>>> {
        let counted = self.filter.as_ref().map(|filter| rows.truths(filter)).transpose()?;
        let is_counted = |row: &usize| counted.as_ref().is_none_or(|counted| counted.value(*row));
        let values = |value: &dyn Fn(usize) -> Option<i128>| {
            (0..rows.len()).map(|row| Some(row).filter(is_counted).and_then(value)).collect()
        };
        Ok(match &self.argument {
            None => values(&|_| Some(0)),
            Some(RowExpression::Column(column)) => values(&|row| match rows.value(row, *column) {
                Value::Null => None,
                Value::Int(value) if self.is_sum => Some(i128::from(*value)),
                Value::BigInt(value) if self.is_sum => Some(i128::from(*value)),
                Value::Decimal(value) if self.is_sum => Some(*value),
                _ => Some(0),
            }),
            Some(computed) => {
                let array = rows.array(computed)?;
                values(&|row| {
                    array.is_valid(row).then(|| if self.is_sum { unscaled(&array, row) } else { 0 })
                })
            }
        })
    }

    /// Result of a total; none if it is out of range.
    pub(super) fn result(&self, total: &Total) -> Option<Value> {
        Some(match (self.is_sum, total.count, &self.result) {
            (false, count, _) => Value::BigInt(count),
            (true, ..=0, _) => Value::Null,
            (true, _, ArrowType::Int64) => Value::BigInt(i64::try_from(total.sum).ok()?),
            (true, ..) => Value::Decimal(total.sum),
        })
    }
}

/// Number of an array of BIGINTs or DECIMALs, unscaled.
fn unscaled(array: &ArrayRef, row: usize) -> i128 {
    match array.data_type() {
        ArrowType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        _ => array.as_primitive::<Decimal128Type>().value(row),
    }
}

impl GroupTotals {
    /// Totals of no rows, of so many aggregates.
    pub(super) fn none(aggregates: usize) -> GroupTotals {
        GroupTotals { rows: 0, totals: vec![Total::default(); aggregates] }
    }

    /// Tells whether they change nothing where they are added.
    pub(super) fn is_none(&self) -> bool {
        self.rows == 0 && self.totals.iter().all(|total| *total == Total::default())
    }

    /// Adds others; none if a sum is out of range.
    pub(super) fn add(&mut self, other: &GroupTotals) -> Option<()> {
        self.rows = self.rows.checked_add(other.rows)?;
        for (total, other) in self.totals.iter_mut().zip(&other.totals) {
            total.count = total.count.checked_add(other.count)?;
            total.sum = total
                .sum
                .checked_add(other.sum)
                .filter(|sum| decimal::fits(*sum, decimal::DECIMAL_PRECISION_MAX))?;
        }
        Some(())
    }
}
