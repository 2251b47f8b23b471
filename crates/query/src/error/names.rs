//! Errors of DataFusion about names of columns, which have a type: worded as by PostgreSQL.

use super::Error;
use datafusion::common::utils::datafusion_strsim::normalized_levenshtein;
use datafusion::common::{Column, SchemaError};

/// Beginning of DataFusion's names of subqueries whose conditions it has moved; it does not always find them again.
const MOVED: &str = "__correlated_sq";
/// Least likeness of a name that a hint proposes, of at most 1.
const LIKENESS_MIN: f64 = 0.5;

/// Error of a name.
pub(super) fn wrong_name(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => no_column(field, valid_fields),
        SchemaError::AmbiguousReference { field } => {
            named("42702", format!("column reference \"{}\" is ambiguous", shown(&field.name)), None)
        }
        SchemaError::DuplicateQualifiedField { qualifier, .. } => {
            let message = format!("table name \"{}\" specified more than once", shown(qualifier.table()));
            named("42712", message, None)
        }
        SchemaError::DuplicateUnqualifiedField { name } => {
            named("42701", format!("column name \"{}\" appears more than once", shown(name)), None)
        }
    }
}

fn named(sqlstate: &'static str, message: String, hint: Option<Box<str>>) -> Error {
    Error::DataFusion { sqlstate, message, hint }
}

/// Name without the zero characters that make it another than that of another column.
fn shown(name: &str) -> String {
    name.replace('\0', "")
}

/// Column as a statement would name it; none if no statement can.
fn written(column: &Column) -> Option<String> {
    let relation = column.relation.as_ref().map(|relation| shown(relation.table()));
    let name = shown(&column.name);
    let is_hidden =
        |name: &str| name.starts_with('$') || name.starts_with("__") || name.chars().any(char::is_control);
    if is_hidden(&name) || relation.as_deref().is_some_and(is_hidden) {
        return None;
    }
    Some(relation.map_or_else(|| name.clone(), |relation| format!("{relation}.{name}")))
}

fn no_column(field: &Column, known: &[Column]) -> Error {
    let name = shown(&field.name);
    let relation = field.relation.as_ref().map(|relation| shown(relation.table()));
    let is_of = |column: &Column, relation: &str| {
        column.relation.as_ref().is_some_and(|of| of.table().eq_ignore_ascii_case(relation))
    };
    if relation.as_ref().is_some_and(|relation| relation.starts_with(MOVED)) {
        return Error::unsupported(
            "a subquery that uses a column of an outer query in this way: write it as a join",
        );
    }
    if let Some(relation) = &relation
        && !known.iter().any(|column| is_of(column, relation))
    {
        return named("42P01", format!("missing FROM-clause entry for table \"{relation}\""), None);
    }
    let message = match &relation {
        Some(relation) => format!("column {relation}.{name} does not exist"),
        None => format!("column \"{name}\" does not exist"),
    };
    let likeness =
        |column: &Column| normalized_levenshtein(&column.name.to_lowercase(), &field.name.to_lowercase());
    let alike = known.iter().filter(|column| likeness(column) >= LIKENESS_MIN);
    let alike = alike.max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let hint = alike.and_then(written);
    let hint = hint.map(|column| format!("Perhaps you meant to reference the column \"{column}\".").into());
    named("42703", message, hint)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn missing(relation: Option<&str>, name: &str) -> (String, &'static str, Option<String>) {
        let known = ["id", "value"].map(|name| Column::new(Some("t"), name));
        let field = Box::new(Column::new(relation, name));
        let error = wrong_name(&SchemaError::FieldNotFound { field, valid_fields: known.to_vec() });
        let hint = error.hint().map(str::to_owned);
        (error.to_string(), error.sqlstate(), hint)
    }

    #[test]
    fn names_are_worded_as_by_postgresql() {
        assert_eq!(missing(None, "nope"), ("column \"nope\" does not exist".into(), "42703", None));
        let hint = Some("Perhaps you meant to reference the column \"t.value\".".to_owned());
        assert_eq!(missing(Some("t"), "valu"), ("column t.valu does not exist".into(), "42703", hint));
        let expected = ("missing FROM-clause entry for table \"u\"".into(), "42P01", None);
        assert_eq!(missing(Some("u"), "id"), expected);
        let ambiguous = SchemaError::AmbiguousReference { field: Box::new(Column::new_unqualified("id")) };
        let error = wrong_name(&ambiguous);
        let found = (error.to_string(), error.sqlstate());
        assert_eq!(found, ("column reference \"id\" is ambiguous".to_owned(), "42702"));
    }
}
