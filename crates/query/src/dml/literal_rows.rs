//! Fast path of INSERT … VALUES: literals and parameters become rows of the table without planning.
//!
//! Anything but a plain literal or a parameter of a fitting type makes the entire statement take the planned
//! path through DataFusion, which computes and converts, or reports an error. So the fast path never reports
//! an error.

use crate::dml::source::{InsertSource, is_default};
use crate::parser::names::is_plain;
use crate::planner::fast_path::Operand;
use crate::planner::parameters::alone;
use crate::postgres::time_zones::Zone;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr, Query, SetExpr, TimezoneInfo, UnaryOperator, Value as Literal,
};
use entresol_tables::{Column, DataType, Row, Value};

/// Rows of a query that consists of literals and parameters; `None` if it has anything else.
pub(crate) fn rows(
    source: &InsertSource,
    query: &Query,
    parameters: &[ScalarValue],
    zone: &Zone,
) -> Option<Vec<Row>> {
    let InsertSource { table, targets, listed, .. } = source;
    let SetExpr::Values(values) = query.body.as_ref() else { return None };
    if !is_plain(query) {
        return None;
    }
    let columns = table.schema().visible_columns();
    let width = values.rows.first()?.len();
    if width > targets.len() || (*listed && width < targets.len()) {
        return None;
    }
    let mut rows = Vec::with_capacity(values.rows.len());
    for exprs in &values.rows {
        if exprs.len() != width {
            return None;
        }
        let mut row = vec![Value::Null; columns.len()];
        for (expr, &target) in exprs.iter().zip(targets) {
            let column = &columns[target];
            row[target] = match alone(expr) {
                Some(index) => Operand::Parameter(index).value(column.data_type, parameters)?,
                None => literal(expr, column, zone)?,
            };
        }
        rows.push(row);
    }
    Some(rows)
}

fn literal(expr: &Expr, column: &Column, zone: &Zone) -> Option<Value> {
    match expr {
        Expr::Value(value) => plain(&value.value, "", column, zone),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) if matches!(value.value, Literal::Number(..)) => {
                plain(&value.value, "-", column, zone)
            }
            _ => None,
        },
        Expr::Identifier(ident) if is_default(ident) => Some(Value::Null),
        Expr::TypedString(typed) => {
            let fits = matches!(
                (&typed.data_type, column.data_type),
                (SqlType::Date, DataType::Date)
                    | (SqlType::Timestamp(None, TimezoneInfo::None), DataType::Timestamp)
                    | (
                        SqlType::Timestamp(None, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz),
                        DataType::TimestampTz
                    )
            );
            match &typed.value.value {
                Literal::SingleQuotedString(text) if fits => zone.value(column, text).ok(),
                _ => None,
            }
        }
        _ => None,
    }
}

fn plain(literal: &Literal, sign: &str, column: &Column, zone: &Zone) -> Option<Value> {
    match literal {
        Literal::Null => Some(Value::Null),
        Literal::Boolean(value) if column.data_type == DataType::Boolean => Some(Value::Boolean(*value)),
        Literal::SingleQuotedString(text) => zone.value(column, text).ok(),
        Literal::Number(..) => match column.data_type {
            DataType::SmallInt
            | DataType::Int
            | DataType::BigInt
            | DataType::Real
            | DataType::Double
            | DataType::Decimal { .. } => column.parse(&format!("{sign}{literal}")).ok(),
            _ => None,
        },
        _ => None,
    }
}
