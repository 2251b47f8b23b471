//! Set-returning functions: here they return lists, whose elements `unnest` makes rows.
//!
//! | written | planned |
//! | --- | --- |
//! | `jsonb_object_keys(j)` | `unnest(jsonb_object_keys(j))` |
//! | `jsonb_array_elements(j)` | `jsonb_typed(unnest(jsonb_array_elements(j)))`: a list has strings |
//! | `jsonb_each(j)` in FROM | `jsonb_each_keys(j)` and `jsonb_each_values(j)`, unnested side by side |
//! | `jsonb_each(j)`, `(jsonb_each(j)).key` in a SELECT list | `unnest(jsonb_each(j))`: records as strings; `unnest(jsonb_each_keys(j))` |

use super::build::call;
use super::types::system_name;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Value as Literal,
};

/// Set-returning functions that return a list here.
pub(super) const ROWS: [&str; 15] = [
    "pg_partition_ancestors",
    "_pg_expandarray",
    "json_array_elements",
    "json_array_elements_text",
    "json_each",
    "json_each_text",
    "json_object_keys",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_each",
    "jsonb_each_text",
    "jsonb_object_keys",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
];

/// Columns of the fields of an object.
pub(super) const FIELD_COLUMNS: [&str; 2] = ["key", "value"];

/// Returns true for a function of the fields of an object, which has two columns.
pub(super) fn is_of_fields(function: &str) -> bool {
    ["json_each", "json_each_text", "jsonb_each", "jsonb_each_text"].contains(&function)
}

/// Function that gives rows of strings the type that the elements or values of a function have.
fn typing(function: &str) -> Option<&'static str> {
    match function {
        "json_array_elements" | "json_each_values" => Some("json_typed"),
        "jsonb_array_elements" | "jsonb_each_values" => Some("jsonb_typed"),
        _ => None,
    }
}

/// Rows of a list that a function returns.
pub(super) fn unnested(function: &str, list: Expr) -> Expr {
    let rows = call("unnest", vec![list]);
    match typing(function) {
        Some(typed) => call(typed, vec![rows]),
        None => rows,
    }
}

/// Only argument of a call of one of these functions.
fn argument<'e>(expr: &'e Expr, functions: &[&str]) -> Option<&'e Expr> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(only))]
            if functions.contains(&system_name(name)?.as_str()) =>
        {
            Some(only)
        }
        _ => None,
    }
}

/// List whose rows an expression has.
pub(super) fn list_of(expr: &Expr) -> Option<&Expr> {
    if let Expr::Nested(inner) = expr {
        return list_of(inner);
    }
    argument(argument(expr, &["json_typed", "jsonb_typed"]).unwrap_or(expr), &["unnest"])
}

/// Rows of a column of the records of a function of the fields of an object.
pub(super) fn field(records: &Expr, column: &str) -> Option<Expr> {
    let Expr::Function(function) = list_of(records)? else { return None };
    let name = system_name(&function.name).filter(|name| is_of_fields(name))?;
    FIELD_COLUMNS.contains(&column).then(|| {
        let name = part_of(&name, column);
        let list = Function { name: ObjectName::from(vec![Ident::new(&name)]), ..function.clone() };
        unnested(&name, Expr::Function(list))
    })
}

/// Argument of a function of JSONB: a string that has no type becomes JSONB in its normal form.
pub(super) fn typed(function: &str, argument: &Expr) -> Option<Expr> {
    let is_string =
        matches!(argument, Expr::Value(value) if matches!(value.value, Literal::SingleQuotedString(_)));
    (is_string && function.starts_with("jsonb_")).then(|| call("jsonb_in", vec![argument.clone()]))
}

/// Name of the function of a column of the fields of an object.
fn part_of(function: &str, column: &str) -> String {
    format!("{function}_{column}s")
}

/// Expression of a column of the fields of an object.
pub(super) fn column_of_fields(function: &str, column: &str, object: &str) -> String {
    let part = part_of(function, column);
    let rows = format!("unnest({part}({object}))");
    typing(&part).map_or(rows.clone(), |typed| format!("{typed}({rows})"))
}
