//! Errors, by what the caller should do.

use crate::{GroupId, Interrupt, StateId, Tier, TierChoice, Timestamp};
use entresol_memory::DomainKind;
use entresol_memory::budget::MemoryConsumer;
use entresol_structures::KeyBytes;

/// The result of a transactional call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction committed one of the keys first: begin again and retry.
    #[error(
        "conflict in {state} on key {}: it was committed at {committed}, after this transaction's snapshot {snapshot}",
        hexadecimal(key)
    )]
    Conflict {
        /// The state of the key.
        state: StateId,
        /// The key.
        key: KeyBytes,
        /// The snapshot of the transaction that failed.
        snapshot: Timestamp,
        /// The commit or deletion timestamp that it conflicts with.
        committed: Timestamp,
    },
    /// Another transaction committed something that this serializable one had read: begin again and retry.
    #[error(
        "conflict in {state} on key {}: it was read at snapshot {snapshot} and written at {committed}",
        hexadecimal(key)
    )]
    ReadConflict {
        /// The state of the key.
        state: StateId,
        /// The key; it may be new, in a range that was read.
        key: KeyBytes,
        /// The snapshot of the transaction that failed.
        snapshot: Timestamp,
        /// The commit or deletion timestamp that it conflicts with.
        committed: Timestamp,
    },
    /// The protocol of the group (S2PL, BOCC) ends this transaction because of another one: begin again and
    /// retry.
    #[error("restart because of {state}, {}: {reason}", key_or_range(key))]
    Restart {
        /// The state of the key.
        state: StateId,
        /// The key; empty if it was the entire state.
        key: KeyBytes,
        /// The reason.
        reason: &'static str,
    },
    /// Old snapshots need more versions than may be kept beside the objects: end long transactions and retry.
    #[error(
        "old snapshots need more than {max} bytes of versions, the next one in {state} of key {}: end long transactions",
        hexadecimal(key)
    )]
    OldVersionsFull {
        /// The state of the key.
        state: StateId,
        /// The key.
        key: KeyBytes,
        /// The limit, in bytes.
        max: usize,
    },
    /// The database has no such tier.
    #[error(
        "cannot place anything in '{wanted}': the domain of this database is {domain}, which has {}",
        tiers_beside(*has)
    )]
    NoSuchTier {
        /// The tier that was asked for.
        wanted: TierChoice,
        /// The domain of the database.
        domain: DomainKind,
        /// The tier of the database.
        has: Tier,
    },
    /// Work that the transaction had to do before its commit failed; the transaction is aborted.
    #[error("{0}")]
    Maintenance(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The point in time lies before the horizon of the version history, or the change log.
    #[error("snapshot too old: {of} begins at {horizon}, after {at}")]
    SnapshotTooOld {
        /// The history or log, of the holder of the state, such as a table.
        of: String,
        /// The point in time that was asked for.
        at: String,
        /// The oldest point in time that can be read.
        horizon: String,
    },
    /// The state keeps no version history.
    #[error("{of} keeps no version history: it cannot be read AS OF a point in time")]
    NoHistory {
        /// The holder of the state, such as a table.
        of: String,
    },
    /// The point in time lies in the future.
    #[error("{at} lies in the future: the current time is {now}")]
    InTheFuture {
        /// The point in time that was asked for.
        at: String,
        /// The newest that can be read.
        now: String,
    },
    /// The transaction reads AS OF a point in time, so it is read-only.
    #[error("cannot write in a read-only transaction AS OF {at}")]
    ReadOnlyAsOf {
        /// Its point in time.
        at: String,
    },
    /// The key is too long for a version history.
    #[error("a key of {bytes} bytes of {state} is too long for its version history")]
    HistoryKeyLength {
        /// The state.
        state: StateId,
        /// The length of the key.
        bytes: usize,
    },
    /// The statement was canceled: nothing of it takes effect.
    #[error("{0}")]
    Interrupted(Interrupt),
    /// A bounded resource stayed full: slow down and retry.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// A state of the transaction voted to abort.
    #[error("{0} voted to abort the transaction")]
    VotedAbort(StateId),
    /// The transaction has been committed or aborted already.
    #[error("the transaction is already finished")]
    Finished,
    /// The transaction went on with its next statement, which is the one to write and to commit.
    #[error(
        "the statement was superseded by a later one of its transaction: write and commit with the later one"
    )]
    SupersededStatement,
    /// There is no such state, or it was dropped.
    #[error("{0} does not exist or was dropped")]
    NoSuchState(StateId),
    /// There is no such group.
    #[error("{0} does not exist")]
    NoSuchGroup(GroupId),
    /// A directory of fixed size is full.
    #[error("cannot add another {what}: the maximum of {max} is reached")]
    Full {
        /// The kind of entry that cannot be added.
        what: &'static str,
        /// The maximum number of entries.
        max: usize,
    },
    /// Options that do not go together.
    #[error("{0}")]
    Invalid(String),
    /// The key does not fit the key width of the state.
    #[error("a key of {bytes} bytes does not fit {state}: at most {max}")]
    KeyLength {
        /// The state.
        state: StateId,
        /// The length of the key.
        bytes: usize,
        /// The maximum length.
        max: usize,
    },
    /// The value is too long.
    #[error("a value of {bytes} bytes is too long: at most {max}")]
    ValueLength {
        /// The length of the value.
        bytes: usize,
        /// The maximum length.
        max: usize,
    },
    /// The write set has reached its limit: commit in smaller transactions.
    #[error("the write set has reached its limit of {max} bytes")]
    WriteSetFull {
        /// The limit.
        max: usize,
    },
    /// A bulk load has a key twice.
    #[error("the load of {state} has the key {} twice", hexadecimal(key))]
    LoadedTwice {
        /// The state of the key.
        state: StateId,
        /// The key.
        key: KeyBytes,
    },
    /// The commit was written, but it could not be made durable or visible: after a restart it is there
    /// completely or not at all. Open the database again and check; do not run the transaction again before.
    #[error("the outcome of the commit at {cts} is unknown until the database is opened again: {source}")]
    OutcomeUnknown {
        /// The timestamp of the commit.
        cts: Timestamp,
        /// The reason why it could not be made durable or visible.
        source: Box<Error>,
    },
    /// An earlier commit failed in a way that only opening the database again can repair. Reads go on.
    #[error(
        "the database is poisoned since the commit at {0} failed: commits are refused until it is opened again"
    )]
    Poisoned(Timestamp),
    /// Persistent data contradicts itself.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// Error of the memory crate.
    #[error(transparent)]
    Memory(#[from] entresol_memory::Error),
    /// Error of the structures crate.
    #[error(transparent)]
    Structures(#[from] entresol_structures::Error),
}

impl Error {
    /// The error of work before a commit; one of this crate stays what it is.
    pub(crate) fn from_maintenance(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
        match error.downcast::<Error>() {
            Ok(own) => *own,
            Err(other) => Error::Maintenance(other),
        }
    }

    /// Returns true if the error is about stored bytes that are not what was written.
    pub fn is_corrupt(&self) -> bool {
        let memory = |error: &entresol_memory::Error| matches!(error, entresol_memory::Error::Corrupt { .. });
        match self {
            Error::Corrupt(_) | Error::Structures(entresol_structures::Error::Corrupt { .. }) => true,
            Error::Structures(entresol_structures::Error::Memory(error)) | Error::Memory(error) => {
                memory(error)
            }
            _ => false,
        }
    }

    /// Returns true if the pool or its disk has no room.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Error::Structures(entresol_structures::Error::Memory(error)) | Error::Memory(error) => {
                match error {
                    entresol_memory::Error::OutOfSpace { .. } => true,
                    entresol_memory::Error::MemoryLimit(limit) => {
                        limit.consumer == MemoryConsumer::VolatileStates
                    }
                    entresol_memory::Error::Io { kind, .. } => *kind == std::io::ErrorKind::StorageFull,
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

fn tiers_beside(main: Tier) -> &'static str {
    match main {
        Tier::Dram => "'dram' alone",
        Tier::Pmem => "'dram' and 'pmem'",
        Tier::Disk => "'dram' and 'disk'",
    }
}

fn key_or_range(key: &KeyBytes) -> String {
    if key.is_empty() {
        "a range or the entire state".to_owned()
    } else {
        format!("key {}", hexadecimal(key))
    }
}

fn hexadecimal(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
