//! Messages of DataFusion and Arrow in the words of PostgreSQL's users.

use super::planning;

/// Prefixes that say which library failed, and nothing of the statement.
const PREFIXES: [&str; 6] = [
    "Arrow error: ",
    "Cast error: ",
    "Compute error: ",
    "Execution error: ",
    "External error: ",
    "Error during planning: ",
];

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

/// Message as PostgreSQL words it, with its SQLSTATE where the words tell one.
#[derive(Debug, PartialEq)]
pub(super) struct Wording {
    pub(super) message: String,
    pub(super) sqlstate: Option<&'static str>,
    /// Proposal to the user.
    pub(super) hint: Option<&'static str>,
}

/// Message without the layers of libraries that it came through; failed casts, divisions by zero and
/// correlated subqueries as PostgreSQL words them.
pub(super) fn reworded(message: String) -> Wording {
    let mut rest = message.as_str();
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter;
    }
    if rest == "Divide by zero error" {
        return Wording { message: "division by zero".to_owned(), sqlstate: Some("22012"), hint: None };
    }
    let with = |sqlstate| move |message| Wording { message, sqlstate: Some(sqlstate), hint: None };
    if let Some(why) = failed_coercion(rest) {
        return with("42883")(reworded(why.to_owned()).message);
    }
    failed_cast(rest)
        .or_else(|| planning::worded(rest))
        .or_else(|| outer_column(rest).map(with("0A000")))
        .or_else(|| unknown_function(rest).map(with("42883")))
        .or_else(|| malformed_pattern(rest).map(with("2201B")))
        .or_else(|| not_grouped(rest).map(with("42803")))
        .unwrap_or_else(|| Wording { message: rest.to_owned(), sqlstate: None, hint: None })
}

/// Wording for a string that is no value of a type; `None` if `message` is not about one.
fn failed_cast(message: &str) -> Option<Wording> {
    let value =
        ["Cannot cast string '", "Cannot cast value '"].iter().find_map(|of| message.strip_prefix(of));
    let (string, of) = value?.rsplit_once("' to value of ")?;
    let name = of.strip_suffix(" type")?;
    let name = TYPES.iter().find(|(arrow, _)| name.starts_with(arrow)).map_or(name, |(_, postgres)| postgres);
    if name == "numeric"
        && let Some(message) = not_finite(string)
    {
        return Some(Wording { message, sqlstate: Some("0A000"), hint: None });
    }
    let sqlstate = match name {
        "date" | "time" | "timestamp" | "interval" => unreadable_time(string),
        "boolean" => "22P02",
        _ => unreadable_numeral(string),
    };
    let message = match sqlstate {
        "22003" => format!("value \"{string}\" is out of range for type {name}"),
        "22008" => format!("date/time field value out of range: \"{string}\""),
        _ => format!("invalid input syntax for type {name}: \"{string}\""),
    };
    Some(Wording { message, sqlstate: Some(sqlstate), hint: None })
}

/// SQLSTATE of a string that is no value of a numeric type: of digits out of its range, or of other strings.
pub(crate) fn unreadable_numeral(string: &str) -> &'static str {
    let unsigned = string.trim().trim_start_matches(['+', '-']);
    let is_numeral = unsigned.starts_with(|first: char| first.is_ascii_digit())
        && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if is_numeral { "22003" } else { "22P02" }
}

/// SQLSTATE of a string that is no value of a type of time: of a day or a time of day that there is not, or of other
/// strings.
pub(crate) fn unreadable_time(string: &str) -> &'static str {
    let first = string.trim().split([' ', 'T', '.', '+']).next().unwrap_or_default();
    let is_field = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let has_fields = |separator: char| first.split(separator).all(is_field);
    let of_day = first.matches('-').count() == 2 && has_fields('-');
    let of_time = first.matches(':').count() >= 1 && has_fields(':');
    if of_day || of_time { "22008" } else { "22007" }
}

/// Message for a value that its type does not have, from what Arrow says of the cast or the operation.
pub(super) fn out_of_range(what: &str) -> String {
    let cast = what.strip_prefix("Can't cast value ").and_then(|cast| cast.split_once(" to type "));
    match cast {
        Some((value, of)) => format!("value {value} is out of range for type {}", planning::type_name(of)),
        None => {
            format!("number out of range: {}", what.strip_prefix("Overflow happened on: ").unwrap_or(what))
        }
    }
}

/// Refusal of a value of PostgreSQL's NUMERIC that is not finite; `None` for other strings.
pub(crate) fn not_finite(text: &str) -> Option<String> {
    let unsigned = text.trim().trim_start_matches(['+', '-']);
    let is_one = ["nan", "infinity", "inf"].iter().any(|word| unsigned.eq_ignore_ascii_case(word));
    is_one.then(|| {
        format!("unsupported: {text} as a NUMERIC, whose values are finite: DOUBLE PRECISION has NaN and infinities")
    })
}

/// Message for a subquery whose use of an outer column no rule could rewrite; `None` if `message` is not
/// about one.
fn outer_column(message: &str) -> Option<String> {
    let (_, field) =
        message.split_once("Physical plan does not support logical expression OuterReferenceColumn(")?;
    let (_, name) = field.split_once("name: \"")?;
    let (name, _) = name.split_once('"')?;
    Some(format!("a subquery that uses column \"{name}\" of an outer query in this way: write it as a join"))
}

/// Ends of messages that say that something is not supported.
const UNSUPPORTED: [&str; 8] = [
    " is not supported yet",
    " not supported yet",
    " is not implemented yet",
    " not implemented yet",
    " is not supported",
    " is not implemented",
    " not supported",
    " not implemented",
];

/// Name of what a message says is not supported.
pub(crate) fn unsupported(message: String) -> String {
    let mut name = message.trim_end_matches('.');
    while let Some(shorter) = UNSUPPORTED.iter().find_map(|end| name.strip_suffix(end)) {
        name = shorter;
    }
    match name.split_once(" not supported: ") {
        // DataFusion's refusal of a plan that does not only read.
        Some((kind, what)) => format!("{kind} {what}"),
        None => name.to_owned(),
    }
}

/// Message for a column that is neither grouped nor aggregated; `None` if `message` is not about one.
fn not_grouped(message: &str) -> Option<String> {
    let (before, _) = message.split_once("\" must appear in the GROUP BY clause")?;
    let (_, column) = before.rsplit_once("column \"")?;
    let column = column.replace('\0', "");
    Some(format!(
        "column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"
    ))
}

/// Reason of a function for not taking its arguments, out of DataFusion's words around it.
fn failed_coercion(message: &str) -> Option<&str> {
    let (_, why) = message.split_once(" user-defined coercion failed with: ")?;
    Some(why.split_once(". No function matches").map_or(why, |(why, _)| why))
}

/// Message for a function that there is not; `None` if `message` is not about one. DataFusion proposes the name that is
/// written most alike, which seldom means the same.
fn unknown_function(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("Invalid function '")?;
    let (name, _) = rest.split_once('\'')?;
    Some(format!("function {name} does not exist"))
}

/// Message for a regular expression that is none; `None` if `message` is not about one.
fn malformed_pattern(message: &str) -> Option<String> {
    let (_, picture) = message.split_once("regex parse error:")?;
    let (_, why) = picture.rsplit_once("error: ")?;
    Some(format!("invalid regular expression: {}", why.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_worded() {
        let cast = out_of_range("Can't cast value 70000 to type Int16");
        assert_eq!(cast, "value 70000 is out of range for type smallint");
        let sum = out_of_range("Overflow happened on: 9223372036854775807 + 1");
        assert_eq!(sum, "number out of range: 9223372036854775807 + 1");
    }

    #[test]
    fn messages_name_the_value_and_not_the_library() {
        for (message, expected) in [
            ("Arrow error: Divide by zero error", "division by zero"),
            (
                "Arrow error: Cast error: Cannot cast string '2020-02-30' to value of Date32 type",
                "date/time field value out of range: \"2020-02-30\"",
            ),
            (
                "Cannot cast string '99999999999' to value of Int32 type",
                "value \"99999999999\" is out of range for type integer",
            ),
            (
                "Cannot cast string 'it's' to value of Timestamp(us) type",
                "invalid input syntax for type timestamp: \"it's\"",
            ),
            (
                "Cannot cast value 'x' to value of Boolean type",
                "invalid input syntax for type boolean: \"x\"",
            ),
            ("Execution error: no such thing", "no such thing"),
            (
                "Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, column \"r.a\" must \
                 appear in the GROUP BY clause or must be part of an aggregate function, currently only \"count(Int64(1))\" \
                 appears in the SELECT clause satisfies this requirement",
                "column \"r.a\" must appear in the GROUP BY clause or be used in an aggregate function",
            ),
            (
                "regex parse error:\n    a{\n     ^\nerror: repetition quantifier expects a valid decimal",
                "invalid regular expression: repetition quantifier expects a valid decimal",
            ),
            ("Invalid function 'nope'.\nDid you mean 'log'?", "function nope does not exist"),
            (
                "Function 'age' user-defined coercion failed with: External error: function age(text) does not exist. No function \
                 matches the given name and argument types 'age(Utf8)'. You might need to add explicit type casts.",
                "function age(text) does not exist",
            ),
            ("anything else: as it was", "anything else: as it was"),
        ] {
            assert_eq!(reworded(message.to_owned()).message, expected);
        }
    }

    #[test]
    fn what_is_not_supported_is_a_name() {
        for (message, expected) in [
            ("Query DELETE FROM t not implemented yet", "Query DELETE FROM t"),
            ("Statement not supported: Execute", "Statement Execute"),
            ("FETCH clause is not supported yet", "FETCH clause"),
            ("x", "x"),
        ] {
            assert_eq!(unsupported(message.to_owned()), expected);
        }
    }
}
