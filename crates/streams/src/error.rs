//! Errors of streams. Every message names the topology or the operator, source or sink concerned.
//!
//! A failure within a labelled step of a topology ([`crate::TopologyBuilder::label`]) is an [`Error::InStep`]: the label
//! takes the place of the operator's name. Predicates are about the error within ([`Error::cause`]).

use crate::expression::Reason;
use std::fmt;
use std::path::{Path, PathBuf};

/// The result of an operation on streams.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate or of a crate it uses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The topology cannot be built.
    #[error("topology {topology}: {reason}")]
    InvalidTopology {
        /// The topology.
        topology: String,
        /// Reason.
        reason: String,
    },
    /// A tuple that an operator cannot process.
    #[error("operator {operator}: {reason}")]
    Tuple {
        /// The operator.
        operator: String,
        /// Reason.
        reason: String,
    },
    /// Values of a tuple that an expression or a query could not compute.
    #[error("operator {operator}: {reason}")]
    Computation {
        /// The operator.
        operator: String,
        /// Reason.
        reason: Reason,
    },
    /// The query of an operator failed for another reason than its tuples: memory, a file, a defect.
    #[error("operator {operator}: {reason}")]
    Query {
        /// The operator.
        operator: String,
        /// Reason.
        reason: Reason,
        /// True if the same transaction may succeed later.
        is_retriable: bool,
    },
    /// Error within a step of the topology.
    #[error(transparent)]
    InStep(Box<StepError>),
    /// A condition of the topology holds: the transaction is aborted.
    #[error("the transaction is aborted: {condition}")]
    Aborted {
        /// The condition.
        condition: String,
        /// Table for the tuples of the transaction.
        into: Option<String>,
    },
    /// A condition held each time that the transaction was tried.
    #[error(
        "the transaction was aborted {attempts} times: {condition}; its input is read again when the topology is started again"
    )]
    AbortedRepeatedly {
        /// The condition.
        condition: String,
        /// Table for the tuples of the transaction.
        into: Option<String>,
        /// Number of attempts.
        attempts: u32,
    },
    /// Results that had waited for their interval were refused where they were sent. What they are of is committed.
    #[error(
        "results that had waited for their interval were refused: {reason}; they are sent again when the topology is started again"
    )]
    EarlyResultsRefused {
        /// Reason.
        reason: String,
    },
    /// Other transactions wrote first, each time that this one was tried.
    #[error(
        "could not serialize access: {conflict}: another transaction was first in each of {attempts} attempts; the input is read again when the topology is started again"
    )]
    Contended {
        /// Table, and key or index.
        conflict: String,
        /// Number of attempts.
        attempts: u32,
        /// Error of the last one.
        #[source]
        error: Box<Error>,
    },
    /// A limit was exceeded.
    #[error("{resource} has reached its limit of {max}")]
    Limit {
        /// Name of the limited resource.
        resource: String,
        /// Limit.
        max: usize,
    },
    /// The stored position of a source is not the one that this topology stored last.
    #[error(
        "topology {topology}, source {source_name}: position {stored} is stored, {expected} was expected; is the topology running twice?"
    )]
    PositionMoved {
        /// The topology.
        topology: String,
        /// The source.
        source_name: String,
        /// Position in the table.
        stored: i64,
        /// Position that this run stored last.
        expected: i64,
    },
    /// The receiver of a channel sink, or the other end of a queue, is closed.
    #[error("{endpoint}: the other end of the channel is closed")]
    Disconnected {
        /// The sink or source.
        endpoint: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The content of a file is not valid for its source.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A table was redefined so that an operator cannot go on with it.
    #[error(
        "operator {operator}: table {table} was changed so that its stream has other columns; start the topology again"
    )]
    TableChanged {
        /// The operator.
        operator: String,
        /// The table.
        table: String,
    },
    /// The commit of the epoch before has failed; the topology deals with it, and computes this epoch again.
    #[error("the commit of the transaction before has failed")]
    EpochBefore,
    /// The topology's thread panicked.
    #[error("topology {topology} panicked; its open transaction was dropped")]
    Panicked {
        /// The topology.
        topology: String,
    },
    /// From the tables.
    #[error(transparent)]
    Tables(#[from] entresol_tables::Error),
    /// From the transactions.
    #[error(transparent)]
    Transactions(#[from] entresol_transactions::Error),
}

/// Error within a step, with the tuple that the failing operator read.
#[derive(Debug)]
pub struct StepError {
    /// Label of the step.
    pub step: String,
    /// Values of the tuple, by the names of their columns; none if it is not known.
    pub tuple: Option<String>,
    /// SQLSTATE, if it is known.
    pub sqlstate: Option<&'static str>,
    /// Error of the operator.
    pub error: Error,
}

impl StepError {
    /// The error without its tuple, for where that is beside it.
    pub(crate) fn without_tuple(&self) -> String {
        let code = self.sqlstate.map_or_else(String::new, |code| format!(" (SQLSTATE {code})"));
        format!("{}: {}{code}", self.step, self.error.reason())
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_tuple())?;
        self.tuple.as_ref().map_or(Ok(()), |tuple| write!(f, "; row: {tuple}"))
    }
}

impl std::error::Error for StepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl Error {
    /// The error itself, or that within a step.
    pub fn cause(&self) -> &Error {
        match self {
            Error::InStep(step) => step.error.cause(),
            error => error,
        }
    }

    /// Message without the name of the operator.
    fn reason(&self) -> String {
        match self {
            Error::Tuple { reason, .. } => reason.clone(),
            Error::Computation { reason, .. } | Error::Query { reason, .. } => reason.message.clone(),
            error => error.to_string(),
        }
    }

    /// Returns true if it is of a tuple that is not known yet.
    pub(crate) fn lacks_tuple(&self) -> bool {
        let is_alone = matches!(self, Error::InStep(step) if step.tuple.is_none());
        is_alone && self.is_tuple_error() && !matches!(self.cause(), Error::Aborted { .. })
    }

    /// The same error of a step for another one within.
    pub(crate) fn map_cause(self, map: impl FnOnce(Error) -> Error) -> Error {
        match self {
            Error::InStep(step) => Error::InStep(Box::new(StepError { error: map(step.error), ..*step })),
            error => map(error),
        }
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: path.to_owned(), source }
    }

    /// Returns true if the transaction may succeed when it is run again.
    pub fn is_retriable(&self) -> bool {
        match self.cause() {
            Error::Transactions(error) | Error::Tables(entresol_tables::Error::Transactions(error)) => {
                error.is_retryable()
            }
            Error::Query { is_retriable, .. } => *is_retriable,
            Error::Contended { error, .. } => error.is_retriable(),
            _ => false,
        }
    }

    /// Returns true if a table was redefined or dropped since the operators took its definition, or that of a
    /// materialized view since the transaction began.
    pub(crate) fn is_redefinition(&self) -> bool {
        use entresol_tables::Error::{TableChanged, Transactions};
        use entresol_transactions::Error::{Maintenance, NoSuchState};
        match self.cause() {
            Error::Tables(TableChanged { .. }) => true,
            Error::Tables(Transactions(error)) | Error::Transactions(error) => match error {
                NoSuchState(_) => true,
                Maintenance(source) => matches!(source.downcast_ref(), Some(TableChanged { .. })),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns true if the tuples of the transaction caused the error: later transactions may succeed.
    pub fn is_tuple_error(&self) -> bool {
        use entresol_tables::Error as Tables;
        match self.cause() {
            Error::Tuple { .. } | Error::Computation { .. } | Error::Aborted { .. } => true,
            Error::Tables(error) => matches!(
                error,
                Tables::WrongType { .. }
                    | Tables::OutOfRange { .. }
                    | Tables::TooLong { .. }
                    | Tables::DigitsLost { .. }
                    | Tables::InvalidJson { .. }
                    | Tables::NotNull { .. }
                    | Tables::DuplicateKey { .. }
                    | Tables::UniqueViolation { .. }
                    | Tables::CheckViolation { .. }
                    | Tables::NoSuchKey { .. }
                    | Tables::RowTooLarge { .. }
                    | Tables::KeyTooLarge { .. }
            ),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::{Column, DataType, Modifier, Value};

    /// Each value that a column refuses is an error of its tuple.
    #[test]
    fn refused_values_are_errors_of_their_tuples() {
        let text = |modifier| Column::new("c", DataType::Varchar).with_modifier(modifier);
        let exact =
            Column::new("c", DataType::Decimal { precision: 38, scale: 6 }).with_modifier(Modifier::Exact);
        for (column, value) in [
            (text(Modifier::Varchar(2)), "abc"),
            (text(Modifier::Char(2)), "abc"),
            (text(Modifier::Json), "{"),
            (text(Modifier::Jsonb), "{\"a\": nothing}"),
            (exact, "0.1234567"),
        ] {
            let error = Error::from(column.parse(value).unwrap_err());
            assert!(error.is_tuple_error(), "{value}: {error:?}");
        }
        let unique = entresol_tables::Error::UniqueViolation {
            table: "t".to_owned(),
            constraint: "t_name".to_owned(),
            columns: "name".to_owned(),
            values: Value::from("a").to_string(),
        };
        assert!(Error::from(unique).is_tuple_error());
        let early = Error::EarlyResultsRefused { reason: "the target is too narrow".to_owned() };
        assert!(!early.is_tuple_error() && !early.is_retriable());
    }
}
