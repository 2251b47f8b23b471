//! Errors of DataFusion, Arrow and sqlparser, where they come in.
//!
//! | error | SQLSTATE |
//! | --- | --- |
//! | boxed causes: those of our own scans, functions and writes | their own; a conflict or a damaged row has the same error whether a scan or a write returns it |
//! | a name of a column, an overflow, a division by zero, a value that cannot be parsed, memory, SQL | by type |
//! | all else of DataFusion and Arrow | by the words of [`MESSAGES`] and of [`wording`], or that of the stage |
//!
//! The words are all that these libraries say of such errors. Each line of the table has a test that makes the library
//! say it, so that a new version with other words is noticed.

use super::Error;
use super::names::wrong_name;
use super::wording::{self, Wording};
use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use std::sync::Arc;

/// SQLSTATE of a statement that cannot be planned.
const PLANNING: &str = "42000";

/// Words of a message that has no type of its own.
struct Message {
    words: &'static str,
    sqlstate: &'static str,
}

/// SQLSTATEs of messages without a type; the first match counts.
const MESSAGES: &[Message] = &[
    // The planner has `Plan` for all that is wrong with calls and types.
    Message { words: "No function matches", sqlstate: "42883" },
    Message { words: "Cannot infer common argument type for comparison", sqlstate: "42883" },
    Message { words: "Cannot infer common argument type for logical", sqlstate: "42804" },
    Message { words: "Cannot coerce arithmetic", sqlstate: "42883" },
    // And for columns that are not grouped.
    Message { words: "must appear in the GROUP BY", sqlstate: "42803" },
    Message { words: "must be in GROUP BY", sqlstate: "42803" },
    // Functions have `Execution` for all that is wrong with values.
    Message { words: "cannot take square root", sqlstate: "2201F" },
    Message { words: "raised to a negative power", sqlstate: "2201F" },
    Message { words: "negative count not allowed", sqlstate: "22011" },
    Message { words: "field position must not be zero", sqlstate: "22023" },
    Message { words: "step can't be 0", sqlstate: "22023" },
    Message { words: "Step cannot be zero", sqlstate: "22023" },
    Message { words: "invalid Unicode scalar value", sqlstate: "54000" },
    Message { words: "Unable to parse date from", sqlstate: "22008" },
    Message { words: "Date part '", sqlstate: "22023" },
    Message { words: "Unsupported date_trunc granularity", sqlstate: "22023" },
    Message { words: "LIMIT must be", sqlstate: "2201W" },
    Message { words: "OFFSET must be", sqlstate: "2201X" },
    Message { words: "returned more than one row", sqlstate: "21000" },
    Message { words: "queries have different number of columns", sqlstate: "42601" },
    Message { words: "Inconsistent data length across values list", sqlstate: "42601" },
    Message { words: "Cannot find column with position", sqlstate: "42P10" },
    Message { words: "Order by column out of bounds", sqlstate: "42P10" },
    Message { words: "specified more than once", sqlstate: "42712" },
    Message { words: "must match initial ORDER BY expressions", sqlstate: "42P10" },
    Message { words: "Aggregate functions are not allowed in", sqlstate: "42803" },
    Message { words: "Aggregate function calls cannot be nested", sqlstate: "42803" },
    Message { words: "Cannot create filter with non-boolean predicate", sqlstate: "42804" },
    Message { words: "Invalid qualifier", sqlstate: "42P01" },
    Message { words: " is not defined!", sqlstate: "42704" },
    Message { words: "Error parsing timestamp", sqlstate: "22007" },
    Message { words: "is out of range", sqlstate: "22003" },
    Message { words: "verflow", sqlstate: "22003" },
    // Arrow has `InvalidArgumentError` for decimals with too many digits, among much else.
    Message { words: "too large to store", sqlstate: "22003" },
];

/// Error with the SQLSTATE of its words.
fn by_words(message: String, otherwise: &'static str) -> Error {
    let Wording { message, sqlstate, hint } = wording::reworded(message);
    let found = || MESSAGES.iter().find(|known| message.contains(known.words)).map(|known| known.sqlstate);
    let sqlstate = sqlstate.or_else(found).unwrap_or(otherwise);
    Error::DataFusion { sqlstate, message, hint: hint.map(Into::into) }
}

/// SQLSTATE of a message about a value that has no type of its own.
pub(super) fn sqlstate_of_value(message: &str) -> &'static str {
    execution(message.to_owned()).sqlstate()
}

/// Error of a running plan.
fn execution(message: String) -> Error {
    by_words(message, "22000")
}

impl From<ParserError> for Error {
    fn from(error: ParserError) -> Error {
        let message = format!("syntax error: {error}");
        match error {
            // Nested too deeply, not malformed.
            ParserError::RecursionLimitExceeded => Error::coded("54001", message),
            ParserError::TokenizerError(_) | ParserError::ParserError(_) => Error::Syntax(message),
        }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Error {
        match error {
            DataFusionError::External(inner) => from_boxed(inner),
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Error::from(*inner),
            DataFusionError::ArrowError(inner, _) => from_arrow(*inner),
            DataFusionError::Shared(inner) => from_shared(&inner),
            DataFusionError::Collection(mut errors) if !errors.is_empty() => {
                Error::from(errors.swap_remove(0))
            }
            DataFusionError::ResourcesExhausted(message) => Error::MemoryLimit(message),
            DataFusionError::SQL(inner, _) => Error::from(*inner),
            DataFusionError::Plan(message) => plan_error(message),
            DataFusionError::NotImplemented(message) => match wording::reworded(message) {
                Wording { message, sqlstate: Some(sqlstate), hint } if sqlstate != "0A000" => {
                    Error::DataFusion { sqlstate, message, hint: hint.map(Into::into) }
                }
                other => Error::Unsupported(wording::unsupported(other.message)),
            },
            DataFusionError::Internal(message) => by_words(format!("internal error: {message}"), "XX000"),
            DataFusionError::SchemaError(error, _) => wrong_name(&error),
            error @ DataFusionError::Configuration(_) => {
                coded("42704", first_lines(&error.strip_backtrace()))
            }
            other => execution(other.strip_backtrace()),
        }
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Error {
        from_arrow(error)
    }
}

/// Error that a library passes on, or one of ours.
fn from_boxed(inner: Box<dyn std::error::Error + Send + Sync>) -> Error {
    match inner.downcast::<Error>() {
        Ok(own) => *own,
        Err(inner) => match inner.downcast::<DataFusionError>() {
            Ok(error) => Error::from(*error),
            Err(other) => execution(other.to_string()),
        },
    }
}

fn from_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => from_boxed(inner),
        other => of_kernel(&other),
    }
}

/// Error of a kernel of Arrow.
fn of_kernel(error: &ArrowError) -> Error {
    match error {
        ArrowError::ArithmeticOverflow(what) => out_of_range(what),
        ArrowError::DivideByZero => Error::coded("22012", "division by zero"),
        ArrowError::ParseError(what) => {
            // Strings that are no dates and times, and those that are nothing else.
            let is_time = what.contains("timestamp") || what.contains("date") || what.contains("time");
            coded(if is_time { "22007" } else { "22P02" }, what.clone())
        }
        // The message is the only distinction between a number out of range and a malformed string.
        ArrowError::CastError(what) if what.starts_with("Can't cast value") => out_of_range(what),
        ArrowError::CastError(what) => by_words(what.clone(), "22P02"),
        other => execution(other.to_string()),
    }
}

/// Error of a library whose SQLSTATE its type tells.
fn coded(sqlstate: &'static str, message: String) -> Error {
    Error::DataFusion { sqlstate, message: wording::reworded(message).message, hint: None }
}

/// Number out of range of its type.
fn out_of_range(what: &str) -> Error {
    Error::coded("22003", wording::out_of_range(what))
}

/// Error with the message and the code of a shared error, which cannot be moved out.
fn from_shared(error: &Arc<DataFusionError>) -> Error {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(message) => Error::MemoryLimit(message.clone()),
        DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
            Some(Error::MemoryLimit(message)) => Error::MemoryLimit(message.clone()),
            Some(Error::Tables(entresol_tables::Error::Corrupt { what, reason })) => {
                Error::Tables(entresol_tables::Error::Corrupt { what: what.clone(), reason: reason.clone() })
            }
            // A conflict remains one by its code.
            Some(own) => match own.interrupt() {
                Some(why) => entresol_transactions::Error::Interrupted(why).into(),
                None => Error::coded(own.sqlstate(), own.to_string()),
            },
            None => execution(inner.to_string()),
        },
        DataFusionError::SchemaError(error, _) => wrong_name(error),
        DataFusionError::ArrowError(error, _) => of_kernel(error),
        other => execution(other.strip_backtrace()),
    }
}

/// Classifies an error of the planner, which reports unknown tables by message only.
fn plan_error(message: String) -> Error {
    let name = message.strip_prefix("table '").and_then(|rest| rest.strip_suffix("' not found"));
    match name {
        Some(name) => {
            let catalog = format!("{}.", crate::schema_names::CATALOG);
            let default = format!("{}.", crate::schema_names::SCHEMA);
            let name = name.strip_prefix(&catalog).unwrap_or(name);
            Error::NoSuchTable(name.strip_prefix(&default).unwrap_or(name).to_owned())
        }
        None => by_words(first_lines(&message), PLANNING),
    }
}

/// Note that DataFusion adds to internal errors, also where a statement is wrong.
const BUG_NOTE: &str = "\nThis issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing a bug \
                        report in our issue tracker: https://github.com/apache/datafusion/issues";

/// Strips the backtrace that some errors of DataFusion carry in their message, and the notes for its
/// developers.
fn first_lines(message: &str) -> String {
    let message = message.split("\n\nbacktrace").next().unwrap_or(message).replace(BUG_NOTE, "");
    message.strip_prefix("Internal error: ").unwrap_or(&message).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::external;

    #[test]
    fn errors_do_not_speak_of_the_bugs_of_datafusion() {
        let inner = DataFusionError::Internal("Function 'f' failed to match".into());
        let error = Error::from(DataFusionError::Plan(format!("{inner} You might need a cast.")));
        assert!(
            matches!(error, Error::DataFusion { message, .. } if message == "Function 'f' failed to match. You might need a cast.")
        );
    }

    #[test]
    fn own_errors_come_back_out_of_datafusion() {
        let inner = entresol_tables::Error::NoSuchTable { table: "t".into() };
        let wrapped = external(inner).context("while scanning");
        assert!(matches!(Error::from(wrapped), Error::Tables(entresol_tables::Error::NoSuchTable { .. })));
        let shared = DataFusionError::Shared(Arc::new(DataFusionError::ResourcesExhausted("no room".into())));
        assert!(matches!(Error::from(shared), Error::MemoryLimit(_)));
        let changed = external(entresol_tables::Error::TableChanged { table: "t".into() });
        let shared = Error::from(DataFusionError::Shared(Arc::new(changed)));
        assert_eq!((shared.sqlstate(), shared.is_conflict()), ("40001", true));
    }

    /// Statement for which DataFusion or Arrow alone say the words of a line.
    const SAID: &[(&str, &str)] = &[
        ("No function matches", "SELECT lpad(1)"),
        (
            "Cannot infer common argument type for comparison",
            "SELECT a = true FROM (VALUES (DATE '2020-01-01')) AS t (a)",
        ),
        ("Cannot infer common argument type for logical", "SELECT 1 AND true"),
        ("Cannot coerce arithmetic", "SELECT true + 1"),
        ("must appear in the GROUP BY", "SELECT *, count(*) FROM (VALUES (1, 2)) AS t (a, b)"),
        ("must be in GROUP BY", "SELECT a, count(*) FROM (VALUES (1, 2)) AS t (a, b)"),
        ("cannot take square root", "SELECT sqrt(a) FROM (VALUES (-1.0), (2.0)) AS t (a)"),
        ("raised to a negative power", "SELECT power(a, -1) FROM (VALUES (0), (1)) AS t (a)"),
        ("negative count not allowed", "SELECT substr(a, 1, -1) FROM (VALUES ('x'), ('y')) AS t (a)"),
        (
            "field position must not be zero",
            "SELECT split_part(a, ',', 0) FROM (VALUES ('x'), ('y')) AS t (a)",
        ),
        ("step can't be 0", "SELECT range(1, a, 0) FROM (VALUES (5), (6)) AS t (a)"),
        ("Step cannot be zero", "SELECT * FROM generate_series(1, 5, 0)"),
        ("invalid Unicode scalar value", "SELECT chr(a) FROM (VALUES (55296), (65)) AS t (a)"),
        ("Unable to parse date from", "SELECT make_date(2023, 2, a) FROM (VALUES (31), (1)) AS t (a)"),
        (
            "Date part '",
            "SELECT date_part('nope', a) FROM (VALUES (DATE '2020-01-01'), (DATE '2020-01-02')) AS t (a)",
        ),
        (
            "Unsupported date_trunc granularity",
            "SELECT date_trunc('nope', a) FROM (VALUES (DATE '2020-01-01'), (DATE '2020-01-02')) AS t (a)",
        ),
        ("LIMIT must be", "SELECT 1 LIMIT -1"),
        ("OFFSET must be", "SELECT 1 OFFSET -1"),
        ("returned more than one row", "SELECT (SELECT a FROM (VALUES (1), (2)) AS t (a))"),
        ("queries have different number of columns", "SELECT 1 UNION SELECT 1, 2"),
        ("Inconsistent data length across values list", "VALUES (1), (1, 2)"),
        ("Cannot find column with position", "SELECT a FROM (VALUES (1)) AS t (a) GROUP BY 5"),
        ("Order by column out of bounds", "SELECT 1 ORDER BY 5"),
        ("specified more than once", "WITH x AS (SELECT 1), x AS (SELECT 2) SELECT 1"),
        (
            "must match initial ORDER BY expressions",
            "SELECT DISTINCT ON (a) a, b FROM (VALUES (1, 2)) AS t (a, b) ORDER BY b",
        ),
        ("Aggregate functions are not allowed in", "SELECT 1 FROM (VALUES (1)) AS t (a) WHERE count(*) > 1"),
        ("Aggregate function calls cannot be nested", "SELECT sum(sum(a)) FROM (VALUES (1)) AS t (a)"),
        (
            "Cannot create filter with non-boolean predicate",
            "SELECT 1 FROM (VALUES (1)) AS t (a) WHERE a + 1",
        ),
        ("Invalid qualifier", "SELECT nope.* FROM (VALUES (1)) AS t (a)"),
        (" is not defined!", "SELECT sum(a) OVER w FROM (VALUES (1)) AS t (a)"),
        ("Error parsing timestamp", "SELECT to_timestamp(a, '%H') FROM (VALUES ('x'), ('y')) AS t (a)"),
        ("is out of range", "SELECT make_date(2020, a, 1) FROM (VALUES (13), (1)) AS t (a)"),
        ("verflow", "SELECT factorial(a) FROM (VALUES (30), (1)) AS t (a)"),
        (
            "too large to store",
            "SELECT CAST(CAST(a AS DECIMAL(10, 2)) AS DECIMAL(2, 1)) FROM (VALUES (123.4), (1.0)) AS t (a)",
        ),
    ];

    /// Error of a statement that only DataFusion plans and runs.
    async fn said(sql: &str) -> DataFusionError {
        let context = datafusion::prelude::SessionContext::new();
        match context.sql(sql).await {
            Ok(frame) => frame.collect().await.expect_err(sql),
            Err(error) => error,
        }
    }

    #[tokio::test]
    async fn datafusion_still_says_the_words_of_each_line() {
        assert_eq!(SAID.len(), MESSAGES.len(), "each line has a statement");
        let mut wrong = Vec::new();
        for (known, (words, sql)) in MESSAGES.iter().zip(SAID) {
            assert_eq!(known.words, *words, "in the same order");
            let error = said(sql).await;
            let message = error.to_string();
            let sqlstate = Error::from(error).sqlstate();
            if !message.contains(words) || sqlstate != known.sqlstate {
                wrong.push(format!("{sql}: {sqlstate}, {message}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[tokio::test]
    async fn errors_with_a_type_have_its_code_whatever_they_say() {
        for (sql, expected) in [
            ("SELECT nope", "42703"),
            ("SELECT t.nope FROM (VALUES (1)) AS t (a)", "42703"),
            ("SELECT a FROM (VALUES (1)) AS t (a), (VALUES (1)) AS u (a)", "42702"),
            ("SELECT * FROM nope", "42P01"),
            ("SELECT 1 / a FROM (VALUES (0), (1)) AS t (a)", "22012"),
            ("SELECT CAST(a AS INT) FROM (VALUES ('x'), ('1')) AS t (a)", "22P02"),
            ("SELECT CAST(a AS DATE) FROM (VALUES ('x'), ('1')) AS t (a)", "22007"),
            ("SELECT CAST(a AS TIMESTAMP) FROM (VALUES ('x'), ('1')) AS t (a)", "22007"),
            ("SELECT CAST(a AS SMALLINT) FROM (VALUES (100000), (1)) AS t (a)", "22003"),
            ("SET datafusion.nope = 1", "42704"),
            ("SELECT 1 +", "42601"),
        ] {
            let error = said(sql).await;
            let message = error.to_string();
            assert_eq!(Error::from(error).sqlstate(), expected, "{sql}: {message}");
        }
        let boxed = ArrowError::ExternalError(Box::new(Error::coded("22023", "own")));
        assert_eq!(Error::from(boxed).sqlstate(), "22023");
        assert_eq!(Error::from(DataFusionError::Plan("something else".into())).sqlstate(), "42000");
        assert_eq!(Error::from(DataFusionError::Execution("something else".into())).sqlstate(), "22000");
        let deep = Error::from(ParserError::RecursionLimitExceeded);
        assert_eq!(deep.sqlstate(), "54001");
        let copied =
            Error::Copy { place: "t, line 2".into(), error: Box::new(Error::MemoryLimit("m".into())) };
        assert!(copied.hint().is_some_and(|hint| hint.contains("COMMIT_ROWS")));
        assert_eq!(copied.sqlstate(), "53200");
    }

    #[test]
    fn unknown_tables_are_named_as_they_were_written() {
        let error = Error::from(DataFusionError::Plan("table 'entresol.public.meters' not found".into()));
        assert_eq!(error.to_string(), "relation \"meters\" does not exist");
        let error = Error::from(DataFusionError::Plan("table 'entresol.entresol.nope' not found".into()));
        assert_eq!(error.to_string(), "relation \"entresol.nope\" does not exist");
    }
}
