//! Operations on types that PostgreSQL does not have, and DataFusion computes with the numbers behind them.
//!
//! | written | refused |
//! | --- | --- |
//! | `date::int`, `1::timestamp` | 42846 |
//! | `date > 5` | 42883 |

use crate::error::{Error, external};
use crate::postgres::type_names::listed;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable};

fn is_time(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Timestamp(..))
}

/// Tells whether one type is a number and the other a date or time.
fn are_apart(one: &DataType, other: &DataType) -> bool {
    is_time(one) && other.is_numeric() || one.is_numeric() && is_time(other)
}

/// Refuses a cast or a comparison of dates and times with numbers.
pub(crate) fn check(expr: &Expr, schema: &DFSchema) -> DFResult<()> {
    match expr {
        Expr::Cast(Cast { expr, field }) => {
            let from = expr.get_type(schema)?;
            if are_apart(&from, field.data_type()) {
                let (from, to) = (listed(&[from]), listed(&[field.data_type().clone()]));
                let message = format!("cannot cast type {from} to {to}");
                return Err(external(Error::coded("42846", message)));
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            let (one, other) = (left.get_type(schema)?, right.get_type(schema)?);
            if are_apart(&one, &other) {
                let (one, other) = (listed(&[one]), listed(&[other]));
                let message = format!("operator does not exist: {one} {op} {other}");
                return Err(external(Error::coded("42883", message)));
            }
        }
        _ => {}
    }
    Ok(())
}
