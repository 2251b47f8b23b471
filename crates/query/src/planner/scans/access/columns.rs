//! Filters of a scan by columns: comparisons of a column with literals, and patterns, as conditions on its stored values.

use crate::planner::scans::access::patterns::text_condition;
use crate::planner::scans::access::{AccessOrder, Constraint, Coverage};
use datafusion::logical_expr::Expr;
use entresol_tables::{ColumnCondition, ColumnFilter, DataType, IntegerSet, Schema, Value};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Digits of the decimals that have 64 bits.
const SHORT_DIGITS: u8 = 18;
/// Maximum span of a set of integers.
const SET_BITS_MAX: u64 = 1 << 24;

/// Conditions of a scan, and whether they cover each filter.
#[derive(Debug)]
pub(crate) struct ColumnAnalysis {
    pub(crate) filters: Vec<ColumnFilter>,
    pub(crate) coverage: Vec<Coverage>,
}

/// Conditions that filters of a table with row groups come to.
pub(crate) fn column_filters<'e>(
    schema: &Schema,
    filters: impl IntoIterator<Item = &'e Expr>,
) -> ColumnAnalysis {
    let columns: Vec<usize> = (0..schema.columns().len()).collect();
    let by = AccessOrder { schema, columns: &columns };
    let mut analysis = ColumnAnalysis { filters: Vec::new(), coverage: Vec::new() };
    for filter in filters {
        let condition = null_test(&by, filter).or_else(|| text_condition(&by, filter)).or_else(|| {
            let (column, constraint) = by.constraint_of(filter)?;
            let condition = condition(schema.columns()[column].data_type, constraint)?;
            Some(ColumnFilter { column, condition })
        });
        analysis.coverage.push(match condition.as_ref().map(|filter| &filter.condition) {
            None => Coverage::None,
            Some(ColumnCondition::Doubles { .. }) => Coverage::Partial,
            Some(_) => Coverage::Exact,
        });
        analysis.filters.extend(condition);
    }
    analysis
}

/// Condition of IS NULL or IS NOT NULL of a column.
fn null_test(by: &AccessOrder<'_>, filter: &Expr) -> Option<ColumnFilter> {
    let (expr, condition) = match filter {
        Expr::IsNull(expr) => (expr, ColumnCondition::Null),
        Expr::IsNotNull(expr) => (expr, ColumnCondition::NotNull),
        _ => return None,
    };
    let (column, _) = by.column(expr)?;
    Some(ColumnFilter { column, condition })
}

/// Condition on doubles that contains a constraint: Arrow tells -0.0 from 0.0, and orders NaN.
fn doubles(constraint: &Constraint) -> Option<ColumnCondition> {
    let (least, greatest) = match constraint {
        Constraint::Values(values) => (values.first()?, values.last()?),
        Constraint::Interval(
            Bound::Included(least) | Bound::Excluded(least),
            Bound::Included(greatest) | Bound::Excluded(greatest),
        ) => (least, greatest),
        Constraint::Interval(Bound::Included(least) | Bound::Excluded(least), Bound::Unbounded) => {
            (least, &Value::Double(f64::INFINITY))
        }
        Constraint::Interval(Bound::Unbounded, Bound::Included(greatest) | Bound::Excluded(greatest)) => {
            (&Value::Double(f64::NEG_INFINITY), greatest)
        }
        Constraint::Interval(Bound::Unbounded, Bound::Unbounded) => return None,
    };
    match (least, greatest) {
        (Value::Double(least), Value::Double(greatest)) if !least.is_nan() && !greatest.is_nan() => {
            Some(ColumnCondition::Doubles { least: *least, greatest: *greatest })
        }
        _ => None,
    }
}

/// Condition on strings.
fn texts(constraint: Constraint) -> ColumnCondition {
    let text = |value: Option<&Value>| match value {
        Some(Value::Varchar(text)) => Some(text.clone()),
        _ => None,
    };
    match constraint {
        Constraint::Values(values) => ColumnCondition::TextsWithin {
            least: text(values.first()),
            greatest: text(values.last()),
            is_met: Arc::new(move |text| {
                values.iter().any(|value| matches!(value, Value::Varchar(known) if **known == *text))
            }),
        },
        Constraint::Interval(lower, upper) => {
            let end = |bound: &Bound<Value>| match bound {
                Bound::Included(value) | Bound::Excluded(value) => text(Some(value)),
                Bound::Unbounded => None,
            };
            let (least, greatest) = (end(&lower), end(&upper));
            let is_met = Arc::new(move |text: &str| {
                let above = match &lower {
                    Bound::Included(Value::Varchar(lower)) => text >= &**lower,
                    Bound::Excluded(Value::Varchar(lower)) => text > &**lower,
                    _ => true,
                };
                let below = match &upper {
                    Bound::Included(Value::Varchar(upper)) => text <= &**upper,
                    Bound::Excluded(Value::Varchar(upper)) => text < &**upper,
                    _ => true,
                };
                above && below
            });
            ColumnCondition::TextsWithin { least, greatest, is_met }
        }
    }
}

/// Condition on the stored values of a column; none if they do not compare as its values do.
fn condition(data_type: DataType, constraint: Constraint) -> Option<ColumnCondition> {
    match data_type {
        DataType::Real | DataType::Double => doubles(&constraint),
        DataType::Varchar => Some(texts(constraint)),
        DataType::Interval => None,
        // Decimals of more than 64 bits do not meet conditions on integers.
        DataType::Decimal { precision, .. } if precision > SHORT_DIGITS && !is_short(&constraint) => None,
        _ => match constraint {
            Constraint::Values(values) => among(&values),
            Constraint::Interval(lower, upper) => {
                let least = match &lower {
                    Bound::Unbounded => i128::from(i64::MIN),
                    Bound::Included(value) => integer(value)?,
                    Bound::Excluded(value) => integer(value)? + 1,
                };
                let greatest = match &upper {
                    Bound::Unbounded => i128::from(i64::MAX),
                    Bound::Included(value) => integer(value)?,
                    Bound::Excluded(value) => integer(value)? - 1,
                };
                Some(between(least, greatest))
            }
        },
    }
}

/// Tells whether all values and both bounds are there and have 64 bits.
fn is_short(constraint: &Constraint) -> bool {
    let fits = |value: &Value| integer(value).is_some_and(|value| i64::try_from(value).is_ok());
    match constraint {
        Constraint::Values(values) => values.iter().all(fits),
        Constraint::Interval(lower, upper) => [lower, upper].into_iter().all(|bound| match bound {
            Bound::Included(value) | Bound::Excluded(value) => fits(value),
            Bound::Unbounded => false,
        }),
    }
}

fn between(least: i128, greatest: i128) -> ColumnCondition {
    let (lowest, highest) = (i128::from(i64::MIN), i128::from(i64::MAX));
    if least > greatest || least > highest || greatest < lowest {
        return ColumnCondition::Between { least: 1, greatest: 0 };
    }
    // Clamped to 64 bits, which they have then.
    ColumnCondition::Between { least: least.max(lowest) as i64, greatest: greatest.min(highest) as i64 }
}

fn among(values: &BTreeSet<Value>) -> Option<ColumnCondition> {
    let integers: Vec<i128> = values.iter().map(integer).collect::<Option<_>>()?;
    match integers[..] {
        [] => Some(ColumnCondition::Between { least: 1, greatest: 0 }),
        [value] => Some(between(value, value)),
        _ => {
            let integers: Vec<i64> =
                integers.into_iter().map(|value| i64::try_from(value).ok()).collect::<Option<_>>()?;
            Some(ColumnCondition::Among(Arc::new(IntegerSet::new(&integers, SET_BITS_MAX)?)))
        }
    }
}

/// Stored integer of a value.
fn integer(value: &Value) -> Option<i128> {
    Some(match value {
        Value::Boolean(value) => (*value).into(),
        Value::Int(value) | Value::Date(value) => (*value).into(),
        Value::BigInt(value) | Value::Timestamp(value) => (*value).into(),
        // A decimal at the ends of its range has a neighbour still.
        Value::Decimal(value) => (*value).clamp(i128::MIN + 1, i128::MAX - 1),
        Value::Null | Value::Double(_) | Value::Interval(_) | Value::Varchar(_) => return None,
    })
}
