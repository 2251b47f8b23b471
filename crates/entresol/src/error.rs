//! The one error of the database: a kind that says what to do, and a message with names and values.

use std::fmt;
use std::sync::Arc;

/// The result of a call to the database.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error, by the action that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another transaction committed first: run the entire transaction again.
    Conflict,
    /// A bounded resource is taken: another process has the directory open, or too many transactions are
    /// running. Wait, close what you do not need, try again.
    Busy,
    /// The call or the statement is wrong: fix it. Running it again fails again.
    Invalid,
    /// The table, key or database does not exist: create it, or correct its name.
    NotFound,
    /// A budget is used up: commit in smaller transactions, ask for less at once, or raise the limit.
    MemoryLimit,
    /// Stored bytes are not what was written; the message names the file and the offset. Restore a backup.
    Corrupt,
    /// The operating system refused: no space, no permission, a failing disk. Repair that and open the
    /// database again; until then it only reads.
    Io,
    /// A commit was written, and is neither known to be durable nor known to be lost: open the database again
    /// and check before the transaction is run again.
    OutcomeUnknown,
    /// The statement was canceled, or exceeded its time limit: nothing of it took effect.
    Cancelled,
    /// The database was closed: open it again.
    Closed,
    /// The database cannot do this, or not this version of it.
    Unsupported,
    /// A defect of the database: please report it.
    Internal,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An error of the database; [`source`](std::error::Error::source) leads to that of the crate below.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// Kind: the action that the error asks for.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Message, with names and values.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

macro_rules! convert {
    ($($source:ty => $kind:path),* $(,)?) => {
        $(impl From<$source> for Error {
            fn from(error: $source) -> Error {
                Error { kind: $kind(&error), message: error.to_string(), source: Some(Arc::new(error)) }
            }
        })*
    };
}

convert! {
    entresol_memory::Error => memory,
    entresol_structures::Error => structures,
    entresol_transactions::Error => transactions,
    entresol_tables::Error => tables,
    entresol_streams::Error => streams,
    entresol_query::Error => query,
}

fn memory(error: &entresol_memory::Error) -> ErrorKind {
    use entresol_memory::Error as E;
    match error {
        E::Busy { .. } => ErrorKind::Busy,
        E::NotFound { .. } => ErrorKind::NotFound,
        E::AlreadyExists { .. } | E::Invalid(_) => ErrorKind::Invalid,
        E::Corrupt { .. } => ErrorKind::Corrupt,
        E::NewerVersion { .. } | E::OlderVersion { .. } | E::Unsupported(_) => ErrorKind::Unsupported,
        E::Io { .. } | E::OutOfSpace { .. } | E::Failed { .. } => ErrorKind::Io,
        E::MemoryLimit(_) => ErrorKind::MemoryLimit,
        E::Closed => ErrorKind::Closed,
    }
}

fn structures(error: &entresol_structures::Error) -> ErrorKind {
    use entresol_structures::Error as E;
    match error {
        E::Memory(error) => memory(error),
        E::KeyTooLong { .. } | E::Invalid(_) => ErrorKind::Invalid,
        E::Corrupt { .. } | E::DamagedElf { .. } => ErrorKind::Corrupt,
    }
}

fn transactions(error: &entresol_transactions::Error) -> ErrorKind {
    use entresol_transactions::Error as E;
    match error {
        E::Conflict { .. } | E::ReadConflict { .. } | E::Restart { .. } | E::VotedAbort(_) => {
            ErrorKind::Conflict
        }
        E::Interrupted(entresol_transactions::Interrupt::SnapshotTooOld) => ErrorKind::Conflict,
        E::Interrupted(_) => ErrorKind::Cancelled,
        E::Busy(_) => ErrorKind::Busy,
        E::NoSuchState(_) | E::NoSuchGroup(_) => ErrorKind::NotFound,
        E::Full { .. } | E::WriteSetFull { .. } | E::OldVersionsFull { .. } => ErrorKind::MemoryLimit,
        E::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        E::NoSuchTier { .. } => ErrorKind::Unsupported,
        E::Poisoned(_) => ErrorKind::Io,
        E::Corrupt(_) => ErrorKind::Corrupt,
        E::Memory(error) => memory(error),
        E::Structures(error) => structures(error),
        _ => ErrorKind::Invalid,
    }
}

fn tables(error: &entresol_tables::Error) -> ErrorKind {
    use entresol_tables::Error as E;
    match error {
        E::NoSuchTable { .. } | E::NoSuchKey { .. } | E::NoSuchIndex { .. } | E::NoSuchRelation { .. } => {
            ErrorKind::NotFound
        }
        E::TableChanged { .. } | E::RelationChanged { .. } => ErrorKind::Conflict,
        E::PlacementFixed { .. }
        | E::LayoutFixed { .. }
        | E::StructureOfLayout { .. }
        | E::StructureOfKey { .. }
        | E::ProtocolOfLayout { .. }
        | E::ElfOfRows { .. }
        | E::ObjectStoreOfRows { .. }
        | E::ObjectStoreFixed { .. }
        | E::ObjectStoreOfVolatile => ErrorKind::Unsupported,
        E::ObjectStore { .. } => ErrorKind::Io,
        E::RowNumbersUsedUp { .. } => ErrorKind::MemoryLimit,
        E::Corrupt { .. } => ErrorKind::Corrupt,
        E::Transactions(error) => transactions(error),
        E::Structures(error) => structures(error),
        E::Memory(error) => memory(error),
        _ => ErrorKind::Invalid,
    }
}

fn streams(error: &entresol_streams::Error) -> ErrorKind {
    use entresol_streams::Error as E;
    match error.cause() {
        E::Contended { .. } => ErrorKind::Conflict,
        E::Limit { .. } => ErrorKind::MemoryLimit,
        E::PositionMoved { .. } => ErrorKind::Conflict,
        E::Disconnected { .. } => ErrorKind::Closed,
        E::Io { .. } => ErrorKind::Io,
        E::Panicked { .. } => ErrorKind::Internal,
        E::Tables(error) => tables(error),
        E::Transactions(error) => transactions(error),
        _ => ErrorKind::Invalid,
    }
}

fn query(error: &entresol_query::Error) -> ErrorKind {
    use entresol_query::Error as E;
    match error {
        E::Unsupported(_) => ErrorKind::Unsupported,
        E::NoSuchTable(_) => ErrorKind::NotFound,
        E::MemoryLimit(_) => ErrorKind::MemoryLimit,
        E::Internal(_) => ErrorKind::Internal,
        E::Copy { error, .. } | E::InStep { error, .. } => query(error),
        E::Coded { sqlstate: "0A000", .. } => ErrorKind::Unsupported,
        E::Coded { sqlstate: "53000", .. } => ErrorKind::MemoryLimit,
        E::Tables(error) => tables(error),
        E::Transactions(error) => transactions(error),
        _ => ErrorKind::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_comes_from_the_innermost_error() {
        let inner = entresol_memory::Error::Closed;
        let error = entresol_query::Error::Tables(entresol_tables::Error::Transactions(inner.into()));
        let error = Error::from(error);
        assert_eq!((error.kind(), error.message()), (ErrorKind::Closed, "the database is closed"));
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        assert!(matches!(
            source,
            Some(entresol_query::Error::Tables(entresol_tables::Error::Transactions(_)))
        ));
    }
}
