//! Errors of statements.
//!
//! DataFusion passes the errors of our own scans through as boxed causes; [`Error::from`] extracts them again, so that
//! a conflict or a damaged row has the same error whether a scan or a write returns it.

use std::sync::Arc;

use datafusion::error::DataFusionError;

/// The result of a query call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of this crate or of a crate below it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query text has a syntax error.
    #[error("{0}")]
    Syntax(String),
    /// The statement is invalid: unknown columns, types that do not fit, bad arguments.
    #[error("{0}")]
    Invalid(String),
    /// The statement, or a part of it, is not supported.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// There is no table of this name.
    #[error("relation \"{0}\" does not exist")]
    NoSuchTable(String),
    /// A value that does not fit the column that it is assigned to.
    #[error("table {table}, column {column}: {value} does not fit {expected}")]
    Assignment {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Value, with its type.
        value: String,
        /// Type of the column.
        expected: String,
    },
    /// A statement of this transaction failed: only ROLLBACK (or ROLLBACK TO a savepoint) is possible now.
    #[error(
        "current transaction is aborted, commands ignored until ROLLBACK (an earlier statement failed: {0})"
    )]
    TransactionAborted(String),
    /// COMMIT of a transaction in which a statement failed. It was rolled back.
    #[error("the transaction was rolled back instead of committed, because a statement in it failed: {0}")]
    RolledBack(String),
    /// A query needs more memory than its budget.
    #[error("{0}")]
    MemoryLimit(String),
    /// From DataFusion: an expression that failed, a limit, a defect.
    #[error("{0}")]
    Execution(String),
    /// Error with a SQLSTATE of its own, worded as by PostgreSQL.
    #[error("{message}")]
    Coded {
        /// The SQLSTATE.
        sqlstate: &'static str,
        /// Message of the error.
        message: String,
    },
    /// Row of a COPY that failed.
    #[error("{error} (COPY {table}, line {line})")]
    Copy {
        /// The table.
        table: String,
        /// The line, from 1.
        line: u64,
        /// Error of the row.
        error: Box<Error>,
    },
    /// Defect of the database, not of the statement.
    #[error("internal error: {0}")]
    Internal(String),
    /// Error of the tables.
    #[error(transparent)]
    Tables(#[from] entresol_tables::Error),
    /// Error of the transactions.
    #[error(transparent)]
    Transactions(#[from] entresol_transactions::Error),
}

impl Error {
    /// Unsupported statement or clause.
    pub(crate) fn unsupported(what: impl Into<String>) -> Error {
        Error::Unsupported(what.into())
    }

    /// Error with its SQLSTATE.
    pub(crate) fn coded(sqlstate: &'static str, message: impl Into<String>) -> Error {
        Error::Coded { sqlstate, message: message.into() }
    }

    /// SQLSTATE of the error, as PostgreSQL would report it.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            // Nested too deeply, not malformed.
            Error::Syntax(message) if message.contains("recursion limit") => "54001",
            Error::Syntax(_) => "42601",
            Error::Invalid(message) => by_words(message, "42000"),
            Error::Unsupported(_) => "0A000",
            Error::NoSuchTable(_) => "42P01",
            Error::Assignment { .. } => by_words(&self.to_string(), "42804"),
            Error::Coded { sqlstate, .. } => sqlstate,
            Error::Copy { error, .. } => error.sqlstate(),
            Error::TransactionAborted(_) => "25P02",
            Error::RolledBack(_) => "40000",
            Error::MemoryLimit(_) => "53200",
            Error::Execution(message) => by_words(message, "22000"),
            Error::Internal(message) => by_words(message, "XX000"),
            Error::Tables(error) => error.sqlstate(),
            Error::Transactions(error) => entresol_tables::transactions_sqlstate(error),
        }
    }

    /// Returns true if another transaction committed first: the same statements may succeed when they are retried.
    pub fn is_conflict(&self) -> bool {
        let transactions = match self {
            Error::Transactions(error) | Error::Tables(entresol_tables::Error::Transactions(error)) => error,
            Error::Tables(entresol_tables::Error::TableChanged { .. }) => return true,
            // From a scan whose error several readers share.
            Error::Coded { sqlstate, .. } => return *sqlstate == "40001",
            _ => return false,
        };
        use entresol_transactions::Error::{Conflict, ReadConflict, Restart};
        matches!(transactions, Conflict { .. } | ReadConflict { .. } | Restart { .. })
    }
}

/// SQLSTATEs of messages of the planner and of DataFusion's kernels, which carry no code; the first match counts.
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
    ("out of range", "22003"),
    ("verflow", "22003"),
    ("too large to store", "22003"),
    ("does not fit", "22003"),
    ("Cannot cast string", "22P02"),
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
    ("savepoint", "3B001"),
    ("values for", "42601"),
    ("Recursion", "54001"),
    ("longest", "54000"),
    ("are possible", "54000"),
    ("violates not-null constraint", "23502"),
];

fn by_words(message: &str, otherwise: &'static str) -> &'static str {
    WORDS.iter().find(|(words, _)| message.contains(words)).map_or(otherwise, |(_, code)| code)
}

/// Wraps an error of the crates below for its way through DataFusion.
pub(crate) fn external(error: impl Into<Error>) -> DataFusionError {
    DataFusionError::External(Box::new(error.into()))
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Error {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(own) => *own,
                Err(other) => Error::Execution(other.to_string()),
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Error::from(*inner),
            DataFusionError::ArrowError(inner, _) => from_arrow(*inner),
            DataFusionError::Shared(inner) => from_shared(&inner),
            DataFusionError::Collection(mut errors) if !errors.is_empty() => {
                Error::from(errors.swap_remove(0))
            }
            DataFusionError::ResourcesExhausted(message) => Error::MemoryLimit(message),
            DataFusionError::SQL(inner, _) => Error::Syntax(format!("syntax error: {inner}")),
            DataFusionError::Plan(message) => plan_error(message),
            DataFusionError::NotImplemented(message) => Error::Unsupported(message),
            DataFusionError::Internal(message) => Error::Internal(message),
            error @ (DataFusionError::SchemaError(..) | DataFusionError::Configuration(_)) => {
                Error::Invalid(first_lines(&error.strip_backtrace()))
            }
            other => Error::Execution(other.strip_backtrace()),
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
            Err(other) => Error::Execution(other.to_string()),
        },
        ArrowError::ArithmeticOverflow(what) => out_of_range(&what),
        ArrowError::DivideByZero => Error::coded("22012", "division by zero: Divide by zero error"),
        // The message is the only distinction between a number out of range and a malformed string.
        ArrowError::CastError(what) if what.starts_with("Can't cast value") => out_of_range(&what),
        other => Error::Execution(other.to_string()),
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
            None => Error::Execution(inner.to_string()),
        },
        other => Error::Execution(other.strip_backtrace()),
    }
}

/// Classifies an error of the planner, which reports unknown tables by message only.
fn plan_error(message: String) -> Error {
    let name = message.strip_prefix("table '").and_then(|rest| rest.strip_suffix("' not found"));
    match name {
        Some(name) => {
            let default = format!("{}.{}.", crate::schema_names::CATALOG, crate::schema_names::SCHEMA);
            Error::NoSuchTable(name.strip_prefix(&default).unwrap_or(name).to_owned())
        }
        None => Error::Invalid(first_lines(&message)),
    }
}

/// Note that DataFusion adds to internal errors, also where a statement is wrong.
const BUG_NOTE: &str = "\nThis issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing a bug \
                        report in our issue tracker: https://github.com/apache/datafusion/issues";

/// Strips the backtrace that some errors of DataFusion carry in their message, and the notes for its developers.
fn first_lines(message: &str) -> String {
    let message = message.split("\n\nbacktrace").next().unwrap_or(message).replace(BUG_NOTE, "");
    message.strip_prefix("Internal error: ").unwrap_or(&message).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_speak_of_the_engines_bugs() {
        let inner = DataFusionError::Internal("Function 'f' failed to match".into());
        let error = Error::from(DataFusionError::Plan(format!("{inner} You might need a cast.")));
        assert!(
            matches!(error, Error::Invalid(message) if message == "Function 'f' failed to match. You might need a cast.")
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
        assert_eq!(Error::Invalid("No field named x.".into()).sqlstate(), "42703");
        assert_eq!(Error::Execution("Arrow error: Divide by zero error".into()).sqlstate(), "22012");
        assert_eq!(Error::Execution("something else".into()).sqlstate(), "22000");
        let copied =
            Error::Copy { table: "t".into(), line: 2, error: Box::new(Error::MemoryLimit("m".into())) };
        assert_eq!(copied.sqlstate(), "53200");
    }

    #[test]
    fn unknown_tables_are_named_as_they_were_written() {
        let error = Error::from(DataFusionError::Plan("table 'entresol.public.meters' not found".into()));
        assert_eq!(error.to_string(), "relation \"meters\" does not exist");
    }
}
