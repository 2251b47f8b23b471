//! Variants of errors, each with its SQLSTATE.

use super::sqlstates::{tables_sqlstate, transactions_sqlstate};
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
    /// The statement, or a part of it, is not supported.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// There is no table of this name.
    #[error("relation \"{0}\" does not exist")]
    NoSuchTable(String),
    /// A value that does not fit the column that it is assigned to.
    #[error("table {table}, column {column}: {value} does not fit {expected}")]
    Assignment {
        /// The SQLSTATE: another type, or out of range.
        sqlstate: &'static str,
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
    /// From DataFusion: a name that it does not find, an expression that failed, a limit.
    #[error("{message}")]
    DataFusion {
        /// The SQLSTATE that PostgreSQL would give it.
        sqlstate: &'static str,
        /// Message of DataFusion.
        message: String,
        /// Proposal to the user.
        hint: Option<Box<str>>,
    },
    /// Error with a SQLSTATE of its own, worded as by PostgreSQL.
    #[error("{message}")]
    Coded {
        /// The SQLSTATE.
        sqlstate: &'static str,
        /// Message of the error.
        message: String,
    },
    /// Row of a COPY that failed.
    #[error("{error} (COPY {place})")]
    Copy {
        /// The table and the line, from 1; of a file also its name, and row group and row of one without lines.
        place: String,
        /// Error of the row.
        error: Box<Error>,
    },
    /// Step of a topology that is refused.
    #[error("{step}{}: {error}", line_of(*place))]
    InStep {
        /// Number, verb and name of the step.
        step: String,
        /// Line and column of the step in the text of the statement, in characters from 1, if they are known.
        place: Option<(u64, u64)>,
        /// Error of the step.
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
    pub fn coded(sqlstate: &'static str, message: impl Into<String>) -> Error {
        Error::Coded { sqlstate, message: message.into() }
    }

    /// Proposal to the user, if there is one.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::DataFusion { hint, .. } => hint.as_deref(),
            Error::Copy { error, .. } if error.sqlstate() == "53200" => {
                Some("COPY ... WITH (COMMIT_ROWS 100000) commits in parts, each of which fits.")
            }
            Error::Copy { error, .. } | Error::InStep { error, .. } => error.hint(),
            _ => None,
        }
    }

    /// SQLSTATE of the error, as PostgreSQL would report it.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Error::Syntax(_) => "42601",
            Error::Unsupported(_) => "0A000",
            Error::NoSuchTable(_) => "42P01",
            Error::Assignment { sqlstate, .. }
            | Error::Coded { sqlstate, .. }
            | Error::DataFusion { sqlstate, .. } => sqlstate,
            Error::Copy { error, .. } | Error::InStep { error, .. } => error.sqlstate(),
            Error::TransactionAborted(_) => "25P02",
            Error::RolledBack(_) => "40000",
            Error::MemoryLimit(_) => "53200",
            Error::Internal(_) => "XX000",
            Error::Tables(error) => tables_sqlstate(error),
            Error::Transactions(error) => transactions_sqlstate(error),
        }
    }

    /// Returns true if another transaction committed first: the same statements may succeed when they are
    /// retried.
    pub fn is_conflict(&self) -> bool {
        let transactions = match self {
            Error::Transactions(error) | Error::Tables(entresol_tables::Error::Transactions(error)) => error,
            Error::Tables(entresol_tables::Error::TableChanged { .. }) => return true,
            // From a scan whose error several readers share.
            Error::Coded { sqlstate, .. } => return *sqlstate == "40001",
            Error::Copy { error, .. } | Error::InStep { error, .. } => return error.is_conflict(),
            _ => return false,
        };
        use entresol_transactions::Error::{Conflict, Maintenance, ReadConflict, Restart};
        if let Maintenance(error) = transactions {
            return error.downcast_ref::<Error>().is_some_and(Error::is_conflict);
        }
        matches!(transactions, Conflict { .. } | ReadConflict { .. } | Restart { .. })
    }
}

/// Text of the line of a step.
fn line_of(place: Option<(u64, u64)>) -> String {
    place.map_or_else(String::new, |(line, _)| format!(", line {line}"))
}

/// Wraps an error of the crates below for its way through DataFusion.
pub(crate) fn external(error: impl Into<Error>) -> DataFusionError {
    DataFusionError::External(Box::new(error.into()))
}
