//! Messages of DataFusion and Arrow in the words of PostgreSQL's users.

/// Prefixes that say which library failed, and nothing of the statement.
const PREFIXES: [&str; 5] =
    ["Arrow error: ", "Cast error: ", "Compute error: ", "Execution error: ", "External error: "];

/// Arrow's names of types, and PostgreSQL's.
const TYPES: &[(&str, &str)] = &[
    ("Int8", "smallint"),
    ("Int16", "smallint"),
    ("Int32", "integer"),
    ("Int64", "bigint"),
    ("Float32", "real"),
    ("Float64", "double precision"),
    ("Boolean", "boolean"),
    ("Date", "date"),
    ("Timestamp", "timestamp"),
    ("Time", "time"),
    ("Decimal", "numeric"),
    ("Interval", "interval"),
];

/// Message without the layers of libraries that it came through; failed casts, divisions by zero and
/// correlated subqueries as PostgreSQL words them.
pub(super) fn reworded(message: String) -> String {
    let mut rest = message.as_str();
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter;
    }
    if rest == "Divide by zero error" {
        return "division by zero".to_owned();
    }
    failed_cast(rest).or_else(|| outer_column(rest)).unwrap_or_else(|| rest.to_owned())
}

/// Message for a string that is no value of a type; `None` if `message` is not about one.
fn failed_cast(message: &str) -> Option<String> {
    let (text, of) = message.strip_prefix("Cannot cast string '")?.rsplit_once("' to value of ")?;
    let name = of.strip_suffix(" type")?;
    let name = TYPES.iter().find(|(arrow, _)| name.starts_with(arrow)).map_or(name, |(_, postgres)| postgres);
    Some(format!("invalid input syntax for type {name}: \"{text}\""))
}

/// Message for a subquery whose use of an outer column no rule could rewrite; `None` if `message` is not
/// about one.
fn outer_column(message: &str) -> Option<String> {
    let (_, field) =
        message.split_once("Physical plan does not support logical expression OuterReferenceColumn(")?;
    let (_, name) = field.split_once("name: \"")?;
    let (name, _) = name.split_once('"')?;
    Some(format!(
        "a subquery that uses column \"{name}\" of an outer query in this way: write it as a join; this"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_value_and_not_the_library() {
        for (message, expected) in [
            ("Arrow error: Divide by zero error", "division by zero"),
            (
                "Arrow error: Cast error: Cannot cast string '2020-02-30' to value of Date32 type",
                "invalid input syntax for type date: \"2020-02-30\"",
            ),
            (
                "Cannot cast string 'it's' to value of Timestamp(us) type",
                "invalid input syntax for type timestamp: \"it's\"",
            ),
            ("Execution error: no such thing", "no such thing"),
            ("anything else: as it was", "anything else: as it was"),
        ] {
            assert_eq!(reworded(message.to_owned()), expected);
        }
    }
}
