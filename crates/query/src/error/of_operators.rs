//! Errors of queries that run within an operator of a topology.
//!
//! | error | in the topology |
//! | --- | --- |
//! | of tables and transactions | as it is: a conflict is tried again, a changed table planned again |
//! | memory, conflicts of shared scans | tried again, as often as a conflict |
//! | files, shutdown, defects | ends the topology: its tuples are not the reason, and none is dropped |
//! | all others | of the tuples: ON ERROR says what becomes of them |

use super::Error;
use super::conversion::sqlstate_of_value;
use super::sqlstates::{tables_sqlstate, transactions_sqlstate};
use entresol_streams::{Error as StreamError, Reason};

/// Classes of SQLSTATEs of which tuples are not the reason: insufficient resources, intervention, system errors, defects.
const NOT_OF_TUPLES: [&str; 5] = ["53", "57", "58", "F0", "XX"];
/// Class of errors of memory and space.
const RESOURCES: &str = "53";

/// Error of a query within an operator.
pub(crate) fn as_stream_error(operator: String, error: Error) -> StreamError {
    let (class, is_conflict) = (error.sqlstate().get(..2).unwrap_or_default(), error.is_conflict());
    match error {
        Error::Tables(error) => error.into(),
        Error::Transactions(error) => error.into(),
        error if is_conflict || NOT_OF_TUPLES.contains(&class) => {
            let is_retriable = is_conflict || class == RESOURCES;
            StreamError::Query { operator, reason: error.into(), is_retriable }
        }
        error => StreamError::Computation { operator, reason: error.into() },
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Reason {
        Reason { sqlstate: Some(error.sqlstate()), message: error.to_string() }
    }
}

/// Message of an error that ended a topology, with its SQLSTATE.
pub(crate) fn topology_error(error: &StreamError) -> String {
    match (error, operator_sqlstate(error)) {
        (StreamError::InStep(_), _) | (_, None) => error.to_string(),
        (error, Some(code)) => format!("{error} (SQLSTATE {code})"),
    }
}

/// SQLSTATE of an error of an operator.
pub(crate) fn operator_sqlstate(error: &StreamError) -> Option<&'static str> {
    match error.cause() {
        StreamError::Tables(error) => Some(tables_sqlstate(error)),
        StreamError::Transactions(error) => Some(transactions_sqlstate(error)),
        StreamError::Computation { reason, .. } => {
            reason.sqlstate.or_else(|| Some(sqlstate_of_value(&reason.message)))
        }
        StreamError::Tuple { reason, .. } => Some(sqlstate_of_value(reason)),
        StreamError::Query { reason, .. } => reason.sqlstate,
        StreamError::Aborted { .. } | StreamError::AbortedRepeatedly { .. } => Some("40000"),
        StreamError::Contended { .. } => Some("40001"),
        StreamError::Limit { .. } => Some("54000"),
        StreamError::Io { .. } | StreamError::File { .. } => Some("58030"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_blamed_for_what_they_cause_alone() {
        let outcome = |error: Error| {
            let error = as_stream_error("join".to_owned(), error);
            (error.is_tuple_error(), error.is_retriable())
        };
        assert_eq!(outcome(Error::coded("22012", "division by zero")), (true, false));
        assert_eq!(outcome(Error::coded("54000", "too large")), (true, false));
        assert_eq!(outcome(Error::MemoryLimit("no room".to_owned())), (false, true));
        assert_eq!(outcome(Error::coded("40001", "conflict")), (false, true));
        assert_eq!(outcome(Error::coded("58030", "device")), (false, false));
        assert_eq!(outcome(Error::Internal("defect".to_owned())), (false, false));
        let changed = entresol_tables::Error::TableChanged { table: "t".to_owned() };
        assert_eq!(outcome(Error::Tables(changed)), (false, false));
    }
}
