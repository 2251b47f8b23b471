//! Errors of DataFusion's planner in the words of PostgreSQL, with their SQLSTATEs.
//!
//! The words are all that the planner says of most errors: each line of the table of the tests has a statement that makes it
//! say them.

use super::wording::Wording;

const FUNCTION_HINT: &str =
    "No function matches the given name and argument types. You might need to add explicit type casts.";
const OPERATOR_HINT: &str =
    "No operator matches the given name and argument types. You might need to add explicit type casts.";

/// Arrow's names of types, and PostgreSQL's.
const TYPES: &[(&str, &str)] = &[
    ("Boolean", "boolean"),
    ("Int8", "smallint"),
    ("Int16", "smallint"),
    ("Int32", "integer"),
    ("Int64", "bigint"),
    ("UInt", "bigint"),
    ("Float32", "real"),
    ("Float64", "double precision"),
    ("Decimal", "numeric"),
    ("Date", "date"),
    ("Time32", "time without time zone"),
    ("Time64", "time without time zone"),
    ("Interval", "interval"),
    ("Duration", "interval"),
    ("Utf8", "text"),
    ("LargeUtf8", "text"),
    ("Binary", "bytea"),
    ("Null", "unknown"),
    ("Struct", "record"),
];

/// Functions that are computed over windows alone.
const OF_WINDOWS: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// PostgreSQL's name of a type that Arrow shows.
pub(super) fn type_name(shown: &str) -> String {
    let shown = shown.trim();
    if let Some(element) = shown.strip_prefix("List(").and_then(|rest| rest.strip_suffix(')')) {
        return format!("{}[]", type_name(element.strip_prefix("nullable ").unwrap_or(element)));
    }
    if shown.starts_with("Timestamp") {
        let zone = if shown.contains(", ") { "with" } else { "without" };
        return format!("timestamp {zone} time zone");
    }
    let known = TYPES.iter().find(|(arrow, _)| shown.starts_with(arrow));
    known.map_or_else(|| shown.to_lowercase(), |(_, postgres)| (*postgres).to_owned())
}

/// Parts of a text between separators that stand in no parentheses.
fn parts<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let (mut found, mut depth, mut from) = (Vec::new(), 0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && at >= from && text[at..].starts_with(separator) => {
                found.push(&text[from..at]);
                from = at + separator.len();
            }
            _ => {}
        }
    }
    found.push(&text[from..]);
    found
}

fn worded_as(sqlstate: &'static str, message: String) -> Option<Wording> {
    Some(Wording { message, sqlstate: Some(sqlstate), hint: None })
}

/// Wording of an error of the planner; `None` if it is none that is known here.
pub(super) fn worded(message: &str) -> Option<Wording> {
    no_function(message)
        .or_else(|| of_failed_signature(message))
        .or_else(|| no_operator(message))
        .or_else(|| not_boolean(message))
        .or_else(|| no_cast(message))
        .or_else(|| of_clause(message))
        .or_else(|| of_columns(message))
        .or_else(|| of_values(message))
}

/// A function of that name that does not take such arguments.
fn no_function(message: &str) -> Option<Wording> {
    let (_, rest) = message.split_once("No function matches the given name and argument types '")?;
    let (call, _) = rest.split_once("'. You might need")?;
    let (name, arguments) = call.split_once('(')?;
    let arguments = arguments.strip_suffix(')')?;
    let types: Vec<String> =
        parts(arguments, ", ").into_iter().filter(|of| !of.is_empty()).map(type_name).collect();
    without_function(name, &types.join(", "))
}

fn without_function(name: &str, types: &str) -> Option<Wording> {
    let message = format!("function {name}({types}) does not exist");
    Some(Wording { message, sqlstate: Some("42883"), hint: Some(FUNCTION_HINT) })
}

/// An aggregate of one argument that does not take such a one.
fn of_failed_signature(message: &str) -> Option<Wording> {
    let (_, rest) = message.split_once("Function '")?;
    let (name, rest) = rest.split_once("' failed to match any signature")?;
    let mut types = rest.split("(DataType: ").skip(1).map(|rest| match rest.split_once(")") {
        Some((before, _)) if before.contains('(') => type_name(&format!("{before})")),
        Some((before, _)) => type_name(before),
        None => type_name(rest),
    });
    let first = types.next()?;
    types.all(|of| of == first).then(|| without_function(name, &first)).flatten()
}

/// An operator that there is not for such operands.
fn no_operator(message: &str) -> Option<Wording> {
    const BEGINNINGS: [&str; 5] = [
        "Cannot coerce arithmetic expression ",
        "Cannot infer common argument type for comparison operation ",
        "Cannot infer common argument type for regex operation ",
        "Cannot infer common string type for string concat operation ",
        "Cannot get result type for temporal operation ",
    ];
    let operator = |left: &str, op: &str, right: &str| {
        let message = format!("operator does not exist: {} {op} {}", type_name(left), type_name(right));
        Some(Wording { message, sqlstate: Some("42883"), hint: Some(OPERATOR_HINT) })
    };
    if let Some(rest) = message.strip_prefix("There isn't a common type to coerce ") {
        let (left, rest) = rest.split_once(" and ")?;
        let (right, kind) = rest.split_once(" in ")?;
        let op = if kind.starts_with("ILIKE") { "~~*" } else { "~~" };
        return operator(left, op, right);
    }
    let rest = BEGINNINGS.iter().find_map(|beginning| message.strip_prefix(beginning))?;
    let rest = rest.split_once(" to valid types").map_or(rest, |(operation, _)| operation);
    let rest = rest.split_once(": ").map_or(rest, |(operation, _)| operation);
    match parts(rest, " ").as_slice() {
        [left, op, right] => operator(left, op, right),
        _ => None,
    }
}

/// A value that has to be a BOOLEAN.
fn not_boolean(message: &str) -> Option<Wording> {
    let (clause, of) = if let Some(rest) =
        message.strip_prefix("Cannot infer common argument type for logical boolean operation ")
    {
        match parts(rest, " ").as_slice() {
            [left, op, right] => {
                let wrong = if *left == "Boolean" { right } else { left };
                ((*op).to_owned(), (*wrong).to_owned())
            }
            _ => return None,
        }
    } else if let Some(rest) =
        message.strip_prefix("Unary operator 'NOT' requires a boolean expression, got ")
    {
        ("NOT".to_owned(), rest.to_owned())
    } else {
        let (_, of) = message
            .strip_prefix("Cannot create filter with non-boolean predicate")
            .and_then(|rest| rest.rsplit_once(" returning "))?;
        ("WHERE or HAVING".to_owned(), of.to_owned())
    };
    let message = format!("argument of {clause} must be type boolean, not type {}", type_name(&of));
    worded_as("42804", message)
}

/// A cast that there is not.
fn no_cast(message: &str) -> Option<Wording> {
    let (from, to) = message.strip_prefix("Unsupported CAST from ")?.split_once(" to ")?;
    worded_as("42846", format!("cannot cast type {} to {}", type_name(from), type_name(to)))
}

/// Aggregates, windows and positions in the wrong clause.
fn of_clause(message: &str) -> Option<Wording> {
    if let Some(rest) = message.strip_prefix("Aggregate functions are not allowed in the ") {
        let clause = rest.split_once(" clause").map_or(rest, |(clause, _)| clause);
        return worded_as("42803", format!("aggregate functions are not allowed in {clause}"));
    }
    let known = [
        ("Aggregate function calls cannot be nested", "42803", "aggregate function calls cannot be nested"),
        (
            "Aggregate function calls cannot contain window function calls",
            "42803",
            "aggregate function calls cannot contain window function calls",
        ),
        (
            "Physical plan does not support logical expression AggregateFunction(",
            "42803",
            "aggregate functions are not allowed in this place: they are for SELECT lists, HAVING and ORDER BY",
        ),
        (
            "Physical plan does not support logical expression WindowFunction(",
            "42P20",
            "window functions are not allowed in this place: they are for SELECT lists and ORDER BY",
        ),
        (
            "For SELECT DISTINCT, ORDER BY expressions",
            "42P10",
            "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
        ),
        (
            "In an aggregate with DISTINCT, ORDER BY expressions must appear",
            "42P10",
            "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
        ),
        ("NTILE requires a positive integer", "22014", "argument of ntile must be greater than zero"),
        (
            "Unexpected empty work table",
            "42P19",
            "a recursive query may name itself once, and not within a subquery or an outer join",
        ),
    ];
    if let Some((_, sqlstate, worded)) = known.iter().find(|(words, ..)| message.contains(words)) {
        return worded_as(sqlstate, (*worded).to_owned());
    }
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    if let Some((_, rest)) = message.split_once("Cannot find column with position ") {
        return worded_as("42P10", format!("GROUP BY position {} is not in select list", number(rest)));
    }
    if let Some((_, rest)) = message.split_once("Order by column out of bounds, specified: ") {
        return worded_as("42P10", format!("ORDER BY position {} is not in select list", number(rest)));
    }
    if let Some(name) =
        message.strip_prefix("The window ").and_then(|rest| rest.strip_suffix(" is not defined!"))
    {
        return worded_as("42704", format!("window \"{name}\" does not exist"));
    }
    let (name, _) = message.split_once("Invalid function '")?.1.split_once('\'')?;
    OF_WINDOWS
        .contains(&name)
        .then(|| worded_as("42809", format!("window function {name} requires an OVER clause")))
        .flatten()
}

/// Numbers and names of columns.
fn of_columns(message: &str) -> Option<Wording> {
    if message.starts_with("Too many columns! The subquery should only return one column") {
        return worded_as("42601", "subquery must return only one column".to_owned());
    }
    if let Some(rest) = message.strip_prefix("Source table contains ") {
        let (available, rest) = rest.split_once(" columns but only ")?;
        let (specified, _) = rest.split_once(' ')?;
        let message = format!("table has {available} columns available but {specified} columns specified");
        return worded_as("42P10", message);
    }
    if let Some(rest) = message.strip_prefix("Invalid qualifier ") {
        return worded_as("42P01", format!("missing FROM-clause entry for table \"{}\"", rest.trim()));
    }
    if let Some(kind) = message.strip_suffix(" queries have different number of columns") {
        return worded_as("42601", format!("each {kind} query must have the same number of columns"));
    }
    if message.starts_with("Inconsistent data length across values list") {
        return worded_as("42601", "VALUES lists must all be the same length".to_owned());
    }
    if message.starts_with("Inconsistent data type across values list") {
        let (one, other) = message.split_once(" Was ")?.1.split_once(" but found ")?;
        let message = format!("VALUES types {} and {} cannot be matched", type_name(one), type_name(other));
        return worded_as("42804", message);
    }
    let (_, rest) = message.split_once("Failed to unify argument types of make_array: [")?;
    let types: Vec<String> = parts(rest.split_once(']')?.0, ", ").into_iter().map(type_name).collect();
    worded_as("42804", format!("ARRAY types {} cannot be matched", types.join(" and ")))
}

/// Values of clauses and types.
fn of_values(message: &str) -> Option<Wording> {
    if message.contains("Scalar subquery returned more than one row") {
        return worded_as(
            "21000",
            "more than one row returned by a subquery used as an expression".to_owned(),
        );
    }
    if let Some((text, _)) =
        message.strip_prefix("Error parsing timestamp from '").and_then(|rest| rest.split_once("': "))
    {
        return worded_as("22007", format!("invalid input syntax for type timestamp: \"{text}\""));
    }
    if let Some((unit, _)) =
        message.strip_prefix("Unsupported date_trunc granularity: '").and_then(|rest| rest.split_once('\''))
    {
        return worded_as("22023", format!("unit \"{unit}\" not recognized"));
    }
    if let Some(rest) = message.strip_prefix("Expected ") {
        let (clause, of) = rest.split_once(" to be an integer or null, but got ")?;
        return worded_as(
            "42804",
            format!("argument of {clause} must be type bigint, not type {}", type_name(of)),
        );
    }
    let name = message.strip_prefix("Unsupported SQL type ")?;
    let is_name = name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    is_name.then(|| worded_as("42704", format!("type \"{name}\" does not exist"))).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn errors_of_the_planner_are_worded_as_by_postgresql() {
        for (message, expected, sqlstate) in [
            (
                "Function 'upper' expects 1 arguments but received 2. No function matches the given name and argument types \
                 'upper(Int64, List(nullable Utf8))'. You might need to add explicit type casts.\n\tCandidate functions:",
                "function upper(bigint, text[]) does not exist",
                "42883",
            ),
            (
                "Internal error: Function 'sum' failed to match any signature, errors: Function 'sum' requires Decimal, but \
                 received String (DataType: Utf8).,Function 'sum' requires UInt64, but received String (DataType: Utf8).",
                "function sum(text) does not exist",
                "42883",
            ),
            (
                "Cannot coerce arithmetic expression Timestamp(µs, \"UTC\") + Int64 to valid types",
                "operator does not exist: timestamp with time zone + bigint",
                "42883",
            ),
            (
                "Cannot get result type for temporal operation Date32 * Int64: Invalid argument error",
                "operator does not exist: date * bigint",
                "42883",
            ),
            (
                "There isn't a common type to coerce Int32 and Utf8 in LIKE expression",
                "operator does not exist: integer ~~ text",
                "42883",
            ),
            (
                "Cannot infer common argument type for logical boolean operation Boolean AND Decimal128(4, 2)",
                "argument of AND must be type boolean, not type numeric",
                "42804",
            ),
            (
                "Cannot create filter with non-boolean predicate 'w.a' returning Int32",
                "argument of WHERE or HAVING must be type boolean, not type integer",
                "42804",
            ),
            ("Unsupported CAST from Boolean to Date32", "cannot cast type boolean to date", "42846"),
            (
                "Aggregate functions are not allowed in the WHERE clause. Consider using HAVING instead",
                "aggregate functions are not allowed in WHERE",
                "42803",
            ),
            (
                "Invalid function 'rank'.\nDid you mean 'trunc'?",
                "window function rank requires an OVER clause",
                "42809",
            ),
            (
                "Source table contains 2 columns but only 3 names given as column alias",
                "table has 2 columns available but 3 columns specified",
                "42P10",
            ),
            ("Unsupported SQL type nosuch", "type \"nosuch\" does not exist", "42704"),
        ] {
            let worded = worded(message).unwrap();
            assert_eq!((worded.message.as_str(), worded.sqlstate), (expected, Some(sqlstate)), "{message}");
        }
        for other in ["Unsupported SQL type FLOAT(3) ARRAY", "no such thing", "Expected something else"] {
            assert_eq!(worded(other), None);
        }
    }
}
