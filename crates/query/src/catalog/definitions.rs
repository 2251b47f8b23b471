//! Definitions as SQL, for `pg_get_indexdef` and `pg_get_constraintdef`, and quoting.

use super::rows::constraints::Constraint;
use super::view::IndexView;
use crate::parser::stored_expressions::stored_expression;
use crate::schema_names::SCHEMA;
use datafusion::sql::sqlparser::ast::Expr;
use entresol_tables::{DimensionOrder, ElfCaching, Table};

/// CREATE INDEX statement of an index.
pub(crate) fn index(index: &IndexView<'_>) -> String {
    let unique = if index.unique { "UNIQUE " } else { "" };
    let method = index.method();
    let parameters = parameters_of(index);
    let parameters = if parameters.is_empty() { parameters } else { format!(" WITH ({parameters})") };
    format!(
        "CREATE {unique}INDEX {} ON {SCHEMA}.{} USING {method} ({}){parameters}",
        quoted(&index.name),
        quoted(index.table.name()),
        columns(index.table, &index.columns)
    )
}

/// Parameters of an index, but for those with their defaults.
fn parameters_of(index: &IndexView<'_>) -> String {
    let parameters = match index.elf {
        Some(elf) => elf_parameters(elf),
        None => {
            let node_bytes = index.node_bytes.map(|bytes| ("node_bytes", bytes.to_string()));
            let hot_bytes = (index.hot_bytes > 0).then(|| ("hot_bytes", index.hot_bytes.to_string()));
            node_bytes.into_iter().chain(hot_bytes).collect()
        }
    };
    let parameters = parameters.iter().map(|(name, value)| format!("{name}='{value}'"));
    parameters.collect::<Vec<_>>().join(", ")
}

fn elf_parameters((order, caching): (DimensionOrder, ElfCaching)) -> Vec<(&'static str, String)> {
    let mut parameters = caching.parameters();
    if order == DimensionOrder::Auto {
        parameters.insert(0, ("dimension_order", order.name().to_owned()));
    }
    parameters
}

/// Text behind ADD CONSTRAINT name; a condition has parentheses of its own besides, unless it is `pretty`.
pub(crate) fn constraint(constraint: &Constraint<'_>, pretty: bool) -> String {
    let columns = || columns(constraint.table, &constraint.columns);
    match (constraint.kind, constraint.condition) {
        ("p", _) => format!("PRIMARY KEY ({})", columns()),
        ("u", _) => format!("UNIQUE ({})", columns()),
        (_, condition) if pretty => format!("CHECK ({})", condition.unwrap_or_default()),
        (_, condition) => format!("CHECK ({})", parenthesised(condition.unwrap_or_default())),
    }
}

/// PostgreSQL shows a condition with its outer parentheses.
fn parenthesised(condition: &str) -> String {
    match stored_expression(condition) {
        Ok(Expr::Nested(_) | Expr::Function(_) | Expr::Identifier(_)) => condition.to_owned(),
        _ => format!("({condition})"),
    }
}

fn columns(table: &Table, columns: &[usize]) -> String {
    let names = columns.iter().map(|&column| quoted(&table.schema().columns()[column].name));
    names.collect::<Vec<_>>().join(", ")
}

/// An identifier, quoted where it has to be.
pub(crate) fn quoted(name: &str) -> String {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let rest = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if first && rest && !is_reserved(name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Returns true if a word in lower case has to be quoted to be a name.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// String literal.
pub(crate) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// Words that have to be quoted to be names.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_have_to_be() {
        for (name, shown) in [("a_1", "a_1"), ("A", "\"A\""), ("order", "\"order\""), ("x\"y", "\"x\"\"y\"")]
        {
            assert_eq!(quoted(name), shown);
        }
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
        assert_eq!(parenthesised("a > 0"), "(a > 0)");
        assert_eq!(parenthesised("(a > 0)"), "(a > 0)");
    }
}
