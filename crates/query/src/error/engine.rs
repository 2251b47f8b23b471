//! Errors of DataFusion, Arrow and sqlparser, where they come in.
//!
//! DataFusion passes the errors of our own scans through as boxed causes; they are extracted again, so that a
//! conflict or a damaged row has the same error whether a scan or a write returns it. Its own errors carry no
//! code, and those about names of columns a type ([`super::names`]): of the others the words of the message are all
//! there is, and only here they are looked at.

use super::names::wrong_name;
use super::{Error, wording};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use std::sync::Arc;

/// SQLSTATE of a statement that cannot be planned.
const PLANNING: &str = "42000";

/// SQLSTATEs of messages of DataFusion's planner and of Arrow's kernels; the first match counts.
const WORDS: &[(&str, &str)] = &[
    ("No field named", "42703"),
    ("has no column", "42703"),
    ("there is no column", "42703"),
    ("Ambiguous reference", "42702"),
    ("is ambiguous", "42702"),
    ("Invalid function", "42883"),
    ("No function matches", "42883"),
    ("does not exist", "42704"),
    ("Divide by zero", "22012"),
    ("division by zero", "22012"),
    ("cannot take square root", "2201F"),
    ("raised to a negative power", "2201F"),
    ("negative count not allowed", "22011"),
    ("field position must not be zero", "22023"),
    ("step can't be 0", "22023"),
    ("Step cannot be zero", "22023"),
    ("invalid Unicode scalar value", "54000"),
    ("Unable to parse date from", "22008"),
    ("Date part '", "22023"),
    ("Unsupported date_trunc granularity", "22023"),
    ("LIMIT must be", "2201W"),
    ("OFFSET must be", "2201X"),
    ("returned more than one row", "21000"),
    ("queries have different number of columns", "42601"),
    ("Inconsistent data length across values list", "42601"),
    ("Cannot find column with position", "42P10"),
    ("Order by column out of bounds", "42P10"),
    ("must match initial ORDER BY expressions", "42P10"),
    ("Aggregate functions are not allowed in", "42803"),
    ("Aggregate function calls cannot be nested", "42803"),
    ("Cannot create filter with non-boolean predicate", "42804"),
    ("Invalid qualifier", "42P01"),
    (" is not defined!", "42704"),
    ("invalid input syntax for type date", "22007"),
    ("invalid input syntax for type time", "22007"),
    ("invalid input syntax", "22P02"),
    ("out of range", "22003"),
    ("verflow", "22003"),
    ("too large to store", "22003"),
    ("does not fit", "22003"),
    ("Error parsing timestamp", "22007"),
    ("Error parsing", "22P02"),
    ("Parser error", "22P02"),
    ("Cannot infer common argument type", "42883"),
    ("Cannot coerce", "42804"),
    ("could not be coerced", "42804"),
    ("is not of type", "42804"),
    ("Unsupported CAST", "42846"),
    ("must appear in the GROUP BY", "42803"),
    ("in the SELECT list", "42803"),
    ("must be in GROUP BY", "42803"),
    ("invalid regular expression", "2201B"),
    ("Recursion", "54001"),
    ("violates not-null constraint", "23502"),
];

/// Error with the SQLSTATE of its words.
fn by_words(message: String, otherwise: &'static str) -> Error {
    let message = wording::reworded(message);
    let found = WORDS.iter().find(|(words, _)| message.contains(words));
    Error::Engine { sqlstate: found.map_or(otherwise, |(_, code)| code), message, hint: None }
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
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(own) => *own,
                Err(other) => execution(other.to_string()),
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Error::from(*inner),
            DataFusionError::ArrowError(inner, _) => from_arrow(*inner),
            DataFusionError::Shared(inner) => from_shared(&inner),
            DataFusionError::Collection(mut errors) if !errors.is_empty() => {
                Error::from(errors.swap_remove(0))
            }
            DataFusionError::ResourcesExhausted(message) => Error::MemoryLimit(message),
            DataFusionError::SQL(inner, _) => Error::from(*inner),
            DataFusionError::Plan(message) => plan_error(message),
            DataFusionError::NotImplemented(message) => {
                Error::Unsupported(wording::unsupported(wording::reworded(message)))
            }
            DataFusionError::Internal(message) => by_words(format!("internal error: {message}"), "XX000"),
            DataFusionError::SchemaError(error, _) => wrong_name(&error),
            error @ DataFusionError::Configuration(_) => {
                by_words(first_lines(&error.strip_backtrace()), PLANNING)
            }
            other => execution(other.strip_backtrace()),
        }
    }
}

impl From<datafusion::arrow::error::ArrowError> for Error {
    fn from(error: datafusion::arrow::error::ArrowError) -> Error {
        from_arrow(error)
    }
}

fn from_arrow(error: datafusion::arrow::error::ArrowError) -> Error {
    use datafusion::arrow::error::ArrowError;
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<DataFusionError>() {
            Ok(error) => Error::from(*error),
            Err(other) => execution(other.to_string()),
        },
        ArrowError::ArithmeticOverflow(what) => out_of_range(&what),
        ArrowError::DivideByZero => Error::coded("22012", "division by zero"),
        // The message is the only distinction between a number out of range and a malformed string.
        ArrowError::CastError(what) if what.starts_with("Can't cast value") => out_of_range(&what),
        other => execution(other.to_string()),
    }
}

/// Number out of range of its type.
fn out_of_range(what: &str) -> Error {
    Error::coded("22003", format!("number out of range: {what}"))
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
    use super::*;
    use crate::error::external;

    #[test]
    fn errors_do_not_speak_of_the_engines_bugs() {
        let inner = DataFusionError::Internal("Function 'f' failed to match".into());
        let error = Error::from(DataFusionError::Plan(format!("{inner} You might need a cast.")));
        assert!(
            matches!(error, Error::Engine { message, .. } if message == "Function 'f' failed to match. You might need a cast.")
        );
    }

    #[test]
    fn own_errors_come_back_out_of_the_engine() {
        let inner = entresol_tables::Error::NoSuchTable { table: "t".into() };
        let wrapped = external(inner).context("while scanning");
        assert!(matches!(Error::from(wrapped), Error::Tables(entresol_tables::Error::NoSuchTable { .. })));
        let shared = DataFusionError::Shared(Arc::new(DataFusionError::ResourcesExhausted("no room".into())));
        assert!(matches!(Error::from(shared), Error::MemoryLimit(_)));
        let changed = external(entresol_tables::Error::TableChanged { table: "t".into() });
        let shared = Error::from(DataFusionError::Shared(Arc::new(changed)));
        assert_eq!((shared.sqlstate(), shared.is_conflict()), ("40001", true));
    }

    #[test]
    fn words_of_the_engine_have_the_codes_of_postgresql() {
        let plan = |message: &str| Error::from(DataFusionError::Plan(message.to_owned())).sqlstate();
        assert_eq!(plan("No field named x."), "42703");
        assert_eq!(plan("something else"), "42000");
        let execution =
            |message: &str| Error::from(DataFusionError::Execution(message.to_owned())).sqlstate();
        assert_eq!(execution("Arrow error: Divide by zero error"), "22012");
        assert_eq!(execution("something else"), "22000");
        let deep = Error::from(ParserError::RecursionLimitExceeded);
        assert_eq!(deep.sqlstate(), "54001");
        let copied =
            Error::Copy { place: "t, line 2".into(), error: Box::new(Error::MemoryLimit("m".into())) };
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
