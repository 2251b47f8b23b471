//! String literals of VALUES beside values of a type: each is one of that type, as in PostgreSQL. DataFusion asks for one
//! type in all rows.

use super::build::{cast_to, null};
use super::types::is_text;
use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr, Interval, TypedString, Value as Literal, Values,
};

/// Types the string literals of columns in which another row has a typed literal or a cast.
pub(super) fn type_strings(values: &mut Values) {
    let width = values.rows.first().map_or(0, |row| row.len());
    for at in 0..width {
        let cells = || values.rows.iter().filter_map(|row| row.get(at));
        if !cells().any(is_string) {
            continue;
        }
        let Some(of) = cells().find_map(stated_type) else { continue };
        for cell in values.rows.iter_mut().filter_map(|row| row.get_mut(at)).filter(|cell| is_string(cell)) {
            *cell = cast_to(std::mem::replace(cell, null()), of.clone());
        }
    }
}

/// Types the string literals of `generate_series(from, to, step)`: the bounds as each other, and the step of times.
pub(super) fn type_series(arguments: &mut [&mut Expr]) {
    if let [from, to, ..] = arguments {
        match (stated_type(from), stated_type(to)) {
            (Some(of), None) if is_string(to) => **to = cast_to(std::mem::replace(*to, null()), of),
            (None, Some(of)) if is_string(from) => **from = cast_to(std::mem::replace(*from, null()), of),
            _ => {}
        }
    }
    if let [_, _, step] = arguments
        && matches!(string_of(step), Some(string) if string.trim().parse::<f64>().is_err())
    {
        let of = SqlType::Interval { fields: None, precision: None };
        **step = cast_to(std::mem::replace(*step, null()), of);
    }
}

fn string_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(string) => Some(string),
            _ => None,
        },
        _ => None,
    }
}

fn is_string(expr: &Expr) -> bool {
    string_of(expr).is_some()
}

/// Type that an expression states: other than of strings, whose literals need none.
fn stated_type(expr: &Expr) -> Option<SqlType> {
    let of = match expr {
        Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => data_type.clone(),
        Expr::Interval(Interval { .. }) => SqlType::Interval { fields: None, precision: None },
        Expr::Nested(inner) => return stated_type(inner),
        _ => return None,
    };
    (!is_text(&of)).then_some(of)
}
