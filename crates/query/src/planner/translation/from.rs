//! Items of FROM: tables of the catalog's schemas, and functions.

use super::rows::{self, FIELD_COLUMNS, ROWS, column_of_fields, is_of_fields};
use super::types::system_name;
use crate::parser::names::{identifier, relation_in};
use crate::parser::own::subscription::SUBSCRIBE;
use crate::parser::statement::query_of;
use crate::schema_names::{
    CATALOG, CHANGES_SCHEMA, INFORMATION_INNER, INFORMATION_SCHEMA, PG_CATALOG, SUBSCRIPTIONS_SCHEMA,
};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, SetExpr, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, Value as Literal,
};

/// DataFusion's name of the column of a series. A statement that uses it keeps it.
pub(super) const SERIES_COLUMN: &str = "value";

/// PostgreSQL's name of the column of WITH ORDINALITY.
const ORDINALITY: &str = "ordinality";

pub(super) fn alias_named(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: Vec::new(), at: None }
}

/// Rewrites tables of the catalog's schemas, and functions in FROM; `names_value` tells that the statement names a
/// column `value`.
pub(super) fn table(factor: &mut TableFactor, names_value: bool) {
    if let TableFactor::UNNEST { with_ordinality: true, .. } = factor {
        numbered(factor);
        return;
    }
    if let TableFactor::UNNEST { alias, array_exprs, .. } = factor {
        let alias = alias.get_or_insert_with(|| alias_named("unnest"));
        if alias.columns.is_empty() && array_exprs.len() == 1 {
            alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
        }
        return;
    }
    let TableFactor::Table { name, alias, args, with_ordinality, .. } = factor else { return };
    let is_numbered = *with_ordinality;
    let qualified = name.0.first().and_then(ObjectNamePart::as_ident);
    if name.0.len() == 3 && qualified.is_some_and(|first| first.value.eq_ignore_ascii_case(CATALOG)) {
        name.0.remove(0);
    }
    let schema = (name.0.len() == 2).then(|| name.0[0].as_ident()).flatten();
    let in_information = schema.is_some_and(|schema| schema.value.eq_ignore_ascii_case(INFORMATION_SCHEMA));
    match args {
        None if in_information => {
            let Some(last) = system_name(name) else { return };
            name.0[0] = ObjectNamePart::Identifier(Ident::with_quote('"', INFORMATION_INNER));
            alias.get_or_insert_with(|| alias_named(&last));
        }
        None => {}
        Some(arguments) => {
            let Some(function) = system_name(name) else { return };
            if let Some((schema, relation)) = changed_relation(&function, &arguments.args) {
                let part = |name: &str| ObjectNamePart::Identifier(Ident::with_quote('"', name));
                alias.get_or_insert_with(|| {
                    alias_named(if function == SUBSCRIBE { SUBSCRIBE } else { &relation })
                });
                *name = ObjectName(vec![part(schema), part(&relation)]);
                *args = None;
                return;
            }
            if function == "pg_get_keywords" {
                *name = ObjectName::from(vec![Ident::new(PG_CATALOG), Ident::new(&function)]);
                *args = None;
                return;
            }
            *name = ObjectName::from(vec![Ident::new(&function)]);
            if let Some(derived) = rows_of(&function, &arguments.args, alias, (is_numbered, names_value)) {
                *factor = derived;
            }
        }
    }
}

/// Returns true for a literal, or one with a sign.
fn is_constant(argument: &FunctionArg) -> bool {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument else { return false };
    match value {
        Expr::UnaryOp { expr, .. } => matches!(**expr, Expr::Value(_)),
        value => matches!(value, Expr::Value(_)),
    }
}

/// Query of the rows of a function in FROM; none where DataFusion has a table of them. `is_numbered`: WITH ORDINALITY.
fn rows_of(
    function: &str,
    arguments: &[FunctionArg],
    alias: &mut Option<TableAlias>,
    (is_numbered, names_value): (bool, bool),
) -> Option<TableFactor> {
    let list = arguments.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if is_of_fields(function) {
        let typed = match arguments {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(object))] => rows::typed(function, object),
            _ => None,
        };
        let object = typed.map_or(list, |typed| typed.to_string());
        return fields_of(function, &object, alias.as_ref(), is_numbered);
    }
    let elements = match function {
        "generate_series" if is_numbered || !arguments.iter().all(is_constant) => {
            Some(format!("generate_series({list})"))
        }
        "unnest" => Some(list.clone()),
        rows if ROWS.contains(&rows) => Some(format!("{rows}({list})")),
        _ => None,
    };
    let value = match (&elements, function) {
        (Some(rows), function) if ROWS.contains(&function) => rows.clone(),
        (Some(elements), _) => format!("unnest({elements})"),
        (None, "generate_series") if !names_value => {
            name_series(alias, function);
            return None;
        }
        (None, "generate_series" | "range") => return None,
        // One row with the value.
        (None, other) => format!("{other}({list})"),
    };
    let quoted = |name: &str| Ident::with_quote('"', name).to_string();
    let columns = alias.as_ref().map_or(&[][..], |alias| &alias.columns);
    let named = |at: usize| columns.get(at).map(|column| identifier(&column.name));
    let shown = alias.as_ref().map_or(function.to_owned(), |alias| identifier(&alias.name));
    let is_of_json = function.contains("_array_elements") && alias.is_none();
    let column = named(0).unwrap_or_else(|| if is_of_json { "value".to_owned() } else { shown.clone() });
    let mut items = format!("{value} AS {}", quoted(&column));
    if is_numbered {
        let number = elements.as_deref().map_or("CAST(1 AS BIGINT)".to_owned(), places_of);
        items += &format!(", {number} AS {}", quoted(named(1).as_deref().unwrap_or(ORDINALITY)));
    }
    first_factor(&format!("SELECT 1 FROM (SELECT {items}) AS {}", quoted(&shown)))
}

/// Query of the fields of an object, a row for each.
fn fields_of(
    function: &str,
    object: &str,
    alias: Option<&TableAlias>,
    is_numbered: bool,
) -> Option<TableFactor> {
    let quoted = |name: &str| Ident::with_quote('"', name).to_string();
    let columns = alias.map_or(&[][..], |alias| &alias.columns);
    let shown = alias.map_or(function.to_owned(), |alias| identifier(&alias.name));
    let named = |at: usize, otherwise: &str| {
        let column = columns.get(at).map(|column| identifier(&column.name));
        quoted(&column.unwrap_or_else(|| otherwise.to_owned()))
    };
    let column = |(at, column): (usize, &&str)| {
        format!("{} AS {}", column_of_fields(function, column, "\"object\""), named(at, column))
    };
    let mut items: Vec<String> = FIELD_COLUMNS.iter().enumerate().map(column).collect();
    if is_numbered {
        let places = places_of(&format!("{function}_keys(\"object\")"));
        items.push(format!("{places} AS {}", named(FIELD_COLUMNS.len(), ORDINALITY)));
    }
    // The object is computed once.
    let items = items.join(", ");
    let table = quoted(&shown);
    first_factor(&format!(
        "SELECT 1 FROM (SELECT {items} FROM (SELECT {object} AS \"object\") AS {table}) AS {table}"
    ))
}

/// Names the column of a series by the alias of the function, as PostgreSQL does.
fn name_series(alias: &mut Option<TableAlias>, function: &str) {
    let alias = alias.get_or_insert_with(|| alias_named(function));
    if alias.columns.is_empty() {
        let mut column = TableAliasColumnDef::from_name(identifier(&alias.name));
        column.name.quote_style = Some('"');
        alias.columns.push(column);
    }
}

/// Schema and name of the relation of `CHANGES(table)`, or of a subscription.
fn changed_relation(function: &str, arguments: &[FunctionArg]) -> Option<(&'static str, String)> {
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = arguments else { return None };
    match (function, argument) {
        ("changes", table) => Some((CHANGES_SCHEMA, relation_in(table)?)),
        (SUBSCRIBE, Expr::Value(value)) => match &value.value {
            Literal::SingleQuotedString(text) => Some((SUBSCRIPTIONS_SCHEMA, text.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// Numbers of the elements of a list, from 1, as rows.
fn places_of(list: &str) -> String {
    format!("unnest(generate_series(1, CAST(array_length({list}) AS BIGINT)))")
}

/// Rewrites `unnest(a, b) WITH ORDINALITY t(x, y, n)`.
pub(super) fn numbered(factor: &mut TableFactor) {
    let TableFactor::UNNEST { alias: Some(alias), array_exprs, .. } = factor else { return };
    let Some(first) = array_exprs.first() else { return };
    let quoted = |name: &str| Ident::with_quote('"', name).to_string();
    let named = |at: usize, otherwise: &str| {
        let column = alias.columns.get(at).map(|column| identifier(&column.name));
        quoted(&column.unwrap_or_else(|| otherwise.to_owned()))
    };
    let table = identifier(&alias.name);
    let values =
        array_exprs.iter().enumerate().map(|(at, list)| format!("unnest({list}) AS {}", named(at, &table)));
    let mut items: Vec<String> = values.collect();
    items.push(format!("{} AS {}", places_of(&first.to_string()), named(array_exprs.len(), ORDINALITY)));
    if let Some(derived) =
        first_factor(&format!("SELECT 1 FROM (SELECT {}) AS {}", items.join(", "), quoted(&table)))
    {
        *factor = derived;
    }
}

/// Parses the first item of a FROM.
pub(crate) fn first_factor(text: &str) -> Option<TableFactor> {
    let DFStatement::Statement(statement) = query_of(text).ok()? else { return None };
    let Statement::Query(mut query) = *statement else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    (!select.from.is_empty()).then(|| select.from.swap_remove(0).relation)
}
