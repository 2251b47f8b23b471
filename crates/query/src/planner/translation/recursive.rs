//! Numbers of recursive queries.
//!
//! DataFusion gives the rows of a recursive query the types of its first term, and a number written `1.0` has one digit behind
//! the point: all further ones would be rounded. A NUMERIC of PostgreSQL has any digits, so the first term has those of a
//! NUMERIC column.

use super::build::{cast_to, null};
use crate::postgres::types::DECIMAL_DEFAULT;
use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, ExactNumberInfo, Expr, Ident, SelectItem, SetExpr, Value as Literal, With,
};

/// Gives the numbers in the first terms of recursive queries the type of NUMERIC columns.
pub(super) fn number_first_terms(with: &mut With) {
    if !with.recursive {
        return;
    }
    for cte in &mut with.cte_tables {
        let SetExpr::SetOperation { left, .. } = cte.query.body.as_mut() else { continue };
        let SetExpr::Select(select) = left.as_mut() else { continue };
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) if is_number(expr) => {
                    let expr = numeric(expr);
                    let alias = Ident::with_quote('"', "?column?");
                    *item = if cte.alias.columns.is_empty() {
                        SelectItem::ExprWithAlias { expr, alias }
                    } else {
                        SelectItem::UnnamedExpr(expr)
                    };
                }
                SelectItem::ExprWithAlias { expr, .. } if is_number(expr) => *expr = numeric(expr),
                _ => {}
            }
        }
    }
}

/// Tells whether an expression is a number with a point, or a cast to NUMERIC.
fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(&value.value, Literal::Number(text, _) if text.contains('.')),
        Expr::Cast { data_type, .. } => matches!(
            data_type,
            SqlType::Numeric(ExactNumberInfo::None) | SqlType::Decimal(ExactNumberInfo::None)
        ),
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_number(inner),
        _ => false,
    }
}

fn numeric(expr: &mut Expr) -> Expr {
    let (precision, scale) = DECIMAL_DEFAULT;
    let digits = ExactNumberInfo::PrecisionAndScale(u64::from(precision), i64::from(scale));
    cast_to(std::mem::replace(expr, null()), SqlType::Numeric(digits))
}
