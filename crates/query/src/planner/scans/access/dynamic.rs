//! Dynamic filters of a scan by columns: what a join or a sort learned before the scan began.
//!
//! Of a filter, the parts that compare a column with literals and the sets of keys of star joins become
//! conditions; others are left out, since the operator that made the filter applies it again.

use crate::planner::star::sideways::KeySetExpr;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, DynamicFilterPhysicalExpr, Literal};
use entresol_tables::{ColumnCondition, ColumnFilter, IntegerSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Conditions of dynamic filters as they are now, the most selective first; columns of expressions are those of
/// `projection`.
pub(crate) fn dynamic_filters(filters: &[Arc<dyn PhysicalExpr>], projection: &[usize]) -> Vec<ColumnFilter> {
    let mut conditions = Vec::new();
    for filter in filters {
        if let Some(dynamic) = filter.downcast_ref::<DynamicFilterPhysicalExpr>()
            && let Ok(current) = dynamic.current()
        {
            add(&current, projection, &mut conditions);
        }
    }
    let mut conditions = joined(conditions);
    conditions.sort_by(|(first, _), (second, _)| first.total_cmp(second));
    conditions.into_iter().map(|(_, condition)| condition).collect()
}

/// Conditions with at most one interval per column, and none where there is a set, which has bounds of its own.
fn joined(conditions: Vec<(f64, ColumnFilter)>) -> Vec<(f64, ColumnFilter)> {
    let (mut intervals, mut others): (BTreeMap<usize, (i64, i64)>, Vec<_>) = (BTreeMap::new(), Vec::new());
    for (share, filter) in conditions {
        if let ColumnCondition::Between { least, greatest } = filter.condition {
            let (low, high) = intervals.entry(filter.column).or_insert((i64::MIN, i64::MAX));
            (*low, *high) = ((*low).max(least), (*high).min(greatest));
        } else {
            others.push((share, filter));
        }
    }
    let has_set = |column: usize| others.iter().any(|(_, filter)| filter.column == column);
    let is_empty = |(least, greatest): &(i64, i64)| least > greatest;
    intervals.retain(|column, interval| is_empty(interval) || !has_set(*column));
    others.extend(intervals.into_iter().map(|(column, (least, greatest))| {
        (1.0, ColumnFilter { column, condition: ColumnCondition::Between { least, greatest } })
    }));
    others
}

/// Adds the conditions that a conjunction comes to, each with the share of values that meet it.
fn add(expr: &Arc<dyn PhysicalExpr>, projection: &[usize], conditions: &mut Vec<(f64, ColumnFilter)>) {
    let table_column = |expr: &Arc<dyn PhysicalExpr>| {
        let column = expr.downcast_ref::<Column>()?;
        projection.get(column.index()).copied()
    };
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        if *binary.op() == Operator::And {
            add(binary.left(), projection, conditions);
            add(binary.right(), projection, conditions);
        } else if let Some(column) = table_column(binary.left())
            && let Some(condition) = compared(*binary.op(), binary.right())
        {
            conditions.push((1.0, ColumnFilter { column, condition }));
        }
    } else if let Some(set) = expr.downcast_ref::<KeySetExpr>() {
        let keys = set.keys();
        if let (Some(column), Some((least, greatest)), Some(bits)) =
            (table_column(set.column()), keys.bounds(), keys.bitmap())
            && let Some(set) = IntegerSet::of_bits(least, greatest, bits)
        {
            let share = keys.distinct() as f64 / (greatest as f64 - least as f64 + 1.0);
            // A set of all values between its bounds rules nothing more out than they do.
            if share < 1.0 {
                let condition = ColumnCondition::Among(Arc::new(set));
                conditions.push((share, ColumnFilter { column, condition }));
            }
        }
    } else if let Some(ScalarValue::Boolean(Some(false))) = literal(expr) {
        // No key joins: no row of any column is wanted.
        if let Some(&column) = projection.first() {
            let condition = ColumnCondition::Between { least: 1, greatest: 0 };
            conditions.push((0.0, ColumnFilter { column, condition }));
        }
    }
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    expr.downcast_ref::<Literal>().map(Literal::value)
}

fn compared(op: Operator, literal_expr: &Arc<dyn PhysicalExpr>) -> Option<ColumnCondition> {
    let value = match literal(literal_expr)? {
        ScalarValue::Int16(Some(value)) => (*value).into(),
        ScalarValue::Int32(Some(value)) | ScalarValue::Date32(Some(value)) => (*value).into(),
        ScalarValue::Int64(Some(value)) => *value,
        _ => return None,
    };
    let (least, greatest) = match op {
        Operator::Eq => (value, value),
        Operator::GtEq => (value, i64::MAX),
        Operator::Gt => (value.checked_add(1)?, i64::MAX),
        Operator::LtEq => (i64::MIN, value),
        Operator::Lt => (i64::MIN, value.checked_sub(1)?),
        _ => return None,
    };
    Some(ColumnCondition::Between { least, greatest })
}
