//! Casts, and literals of a type.
//!
//! | written | planned |
//! | --- | --- |
//! | `x::regclass`, `x::oid`, `x::bytea`, `x::json`, `x::uuid`, `x::varchar(3)` | functions, or the type that DataFusion has |
//! | `x::numeric` | `numeric_of(x)`, see [`crate::postgres::numeric_casts`]; a literal keeps its digits |
//! | `interval '1 day 04:05'` | in units |
//! | `time '040506'`, `'0405'::time` | `time '04:05:06'`, `time '04:05'` |
//! | `date 'today'`, `timestamp 'now'` | see [`special_times`] |

use super::build::{call, cast_to, null, number, text};
use super::lists::list_literal;
use super::special_times;
use super::types::{alias_of, is_text, known_type, system_name};
use crate::catalog::resolve::Alias;
use crate::parser::refusals::UUID;
use crate::planner::parameters::alone;
use crate::postgres::char_padding::{CHAR_TRUNCATE, VARCHAR_TRUNCATE};
use crate::postgres::functions::BYTEA_IN;
use crate::postgres::intervals::{negated, spelled, spelled_in};
use crate::postgres::json::JsonType;
use crate::postgres::numbers::plain_number;
use crate::postgres::numeric_casts::NUMERIC_OF;
use crate::postgres::types::text_modifier;
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo, Expr, Ident, Interval, ObjectName,
    TypedString, Value as Literal,
};
use entresol_tables::Modifier;

/// Rewrites the literal of an interval in units; a string that is none is left to a cast to refuse.
pub(super) fn interval(expr: &mut Expr) {
    let Expr::Interval(interval) = expr else { return };
    let Expr::Value(value) = interval.value.as_mut() else { return };
    let Literal::SingleQuotedString(text) = &mut value.value else { return };
    let has_more = interval.leading_precision.is_some()
        || interval.last_field.is_some()
        || interval.fractional_seconds_precision.is_some();
    let spelled = match &interval.leading_field {
        _ if has_more => return,
        Some(field) => spelled_in(text, &field.to_string()),
        None => spelled(text),
    };
    match spelled {
        Some(spelled) => {
            *text = spelled;
            interval.leading_field = None;
        }
        None => {
            let refused = Expr::value(Literal::SingleQuotedString(std::mem::take(text)));
            *expr = cast_to(refused, SqlType::Interval { fields: None, precision: None });
        }
    }
}

/// Literal of an interval, rewritten already, behind a sign.
pub(super) fn negated_interval(expr: &Expr) -> Option<Expr> {
    let Expr::Interval(Interval { value, .. }) = expr else { return None };
    let Expr::Value(value) = value.as_ref() else { return None };
    let Literal::SingleQuotedString(text) = &value.value else { return None };
    Some(literal_interval(negated(text)?))
}

/// Literal of the interval that a string is cast to; `None` if it is no literal, or no interval.
fn interval_literal(expr: &Expr) -> Option<Expr> {
    let Expr::Value(value) = expr else { return None };
    let Literal::SingleQuotedString(text) = &value.value else { return None };
    Some(literal_interval(spelled(text)?))
}

fn literal_interval(units: String) -> Expr {
    Expr::Interval(Interval {
        value: Box::new(Expr::value(Literal::SingleQuotedString(units))),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })
}

/// Rewrites `regclass(x)` into `regclass_name(x)`.
pub(super) fn by_name(expr: &mut Expr) {
    if let Expr::Function(function) = expr
        && let Some(alias) = system_name(&function.name).and_then(|name| Alias::named(&name))
    {
        function.name = ObjectName::from(vec![Ident::new(format!("{}_name", alias.name()))]);
    }
}

/// Rewrites a cast.
pub(super) fn cast(expr: &mut Expr) {
    let Expr::Cast { expr: inner, data_type, .. } = expr else { return };
    if let Some(alias) = alias_of(data_type) {
        *expr = call(alias.name(), vec![std::mem::replace(inner, null())]);
        return;
    }
    if let Some(known) = known_type(data_type) {
        *data_type = known;
    }
    if is_text(data_type) {
        by_name(inner);
    }
    if let Some(of) = of_text(data_type, inner) {
        *expr = of;
        return;
    }
    if is_numeric(data_type) && !is_exact(inner) {
        *expr = call(NUMERIC_OF, vec![std::mem::replace(inner, null())]);
        return;
    }
    if matches!(data_type, SqlType::Interval { fields: None, .. })
        && let Some(literal) = interval_literal(inner)
    {
        *expr = literal;
        return;
    }
    // A parameter has the type that it is cast to.
    if *data_type == SqlType::Bytea && alone(inner).is_none() {
        *expr = call(BYTEA_IN, vec![std::mem::replace(inner, null())]);
        return;
    }
    if let Some(json) = json_type(data_type) {
        *expr = call(&format!("{}_in", json.name()), vec![std::mem::replace(inner, null())]);
        return;
    }
    if *data_type == SqlType::Uuid {
        *expr = call(UUID, vec![cast_to(std::mem::replace(inner, null()), SqlType::Text)]);
        return;
    }
    if let Some(Ok(modifier @ (Modifier::Varchar(length) | Modifier::Char(length)))) =
        text_modifier(data_type)
    {
        let function = if matches!(modifier, Modifier::Char(_)) { CHAR_TRUNCATE } else { VARCHAR_TRUNCATE };
        let text = cast_to(std::mem::replace(inner, null()), SqlType::Text);
        *expr = call(function, vec![text, number(i64::from(length))]);
        return;
    }
    if let SqlType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type
        && let Some(elements) = list_literal(inner)
    {
        let cast =
            |word: Option<String>| cast_to(word.map_or_else(null, |word| text(&word)), (**element).clone());
        let elem: Vec<Expr> = elements.into_iter().map(cast).collect();
        if elem.is_empty() {
            **inner = Expr::Array(Array { elem, named: true });
        } else {
            *expr = Expr::Array(Array { elem, named: true });
        }
    }
}

/// JSON type of a cast.
fn json_type(data_type: &SqlType) -> Option<JsonType> {
    let named = |name: &str| [JsonType::Json, JsonType::Jsonb].into_iter().find(|of| of.name() == name);
    match data_type {
        SqlType::JSON => Some(JsonType::Json),
        SqlType::JSONB => Some(JsonType::Jsonb),
        SqlType::Custom(name, arguments) if arguments.is_empty() => named(&system_name(name)?),
        _ => None,
    }
}

/// Rewrites `json '…'`, and the types of other literals.
pub(super) fn typed_literal(expr: &mut Expr) {
    let Expr::TypedString(TypedString { data_type, value, .. }) = expr else { return };
    if let Some(json) = json_type(data_type) {
        *expr = call(&format!("{}_in", json.name()), vec![Expr::Value(value.clone())]);
        return;
    }
    if let Some(known) = known_type(data_type) {
        *data_type = known;
    }
    let literal = Expr::Value(value.clone());
    if let Some(of) = of_text(data_type, &literal) {
        *expr = of;
    } else if is_numeric(data_type) {
        *expr = cast_to(literal, data_type.clone());
        cast(expr);
    }
}

/// Literal of a string that DataFusion does not read as PostgreSQL does; `None` for other expressions and types.
fn of_text(data_type: &SqlType, literal: &Expr) -> Option<Expr> {
    let Expr::Value(value) = literal else { return None };
    let Literal::SingleQuotedString(written) = &value.value else { return None };
    match data_type {
        SqlType::Time(..) => {
            let spelled = special_times::with_colons(written)?;
            Some(cast_to(text(&spelled), data_type.clone()))
        }
        other => special_times::named(other, written),
    }
}

/// Tells whether a type is NUMERIC without precision.
fn is_numeric(data_type: &SqlType) -> bool {
    matches!(
        data_type,
        SqlType::Numeric(ExactNumberInfo::None)
            | SqlType::Decimal(ExactNumberInfo::None)
            | SqlType::Dec(ExactNumberInfo::None)
    )
}

/// Tells whether a cast of an expression to NUMERIC is one of DataFusion's: a literal of at most as many digits as a DECIMAL
/// has, which keeps them, or a parameter, which has the type that it is cast to.
fn is_exact(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => plain_number(text.clone()).is_some(),
            _ => true,
        },
        other => alone(other).is_some(),
    }
}
