//! Errors of this crate, with file and offset.

use crate::budget::MemoryLimit;
use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of this crate.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Another process (or another handle of this one) has the directory open.
    #[error("database directory {} is in use by another process (lock file {} is held)", dir.display(), lock.display())]
    Busy {
        /// The database directory.
        dir: PathBuf,
        /// The lock file.
        lock: PathBuf,
    },
    /// The directory contains no pool.
    #[error("no database at {}", dir.display())]
    NotFound {
        /// The database directory.
        dir: PathBuf,
    },
    /// The directory contains a pool already.
    #[error("a database already exists at {}", dir.display())]
    AlreadyExists {
        /// The database directory.
        dir: PathBuf,
    },
    /// A file is damaged.
    #[error("{} is damaged at byte {offset}: {what}", file.display())]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Description: the value found, and the expected one.
        what: String,
    },
    /// The files were written by a newer release.
    #[error("{} has format version {found}; this release reads up to {supported}. Use a newer release", file.display())]
    NewerVersion {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// Newest supported version.
        supported: u32,
    },
    /// The files were written by an older release, in a format that is not supported any more.
    #[error(
        "{} has format version {found}; this release reads version {supported}. Export the tables to CSV with the \
         release that created it, and import them again",
        file.display()
    )]
    OlderVersion {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// Oldest supported version.
        supported: u32,
    },
    /// The operating system refused a call.
    #[error("{action} {}: {message}", file.display())]
    Io {
        /// Failed action, e.g. "write to".
        action: &'static str,
        /// File or directory.
        file: PathBuf,
        /// Kind of the operating system's error.
        kind: io::ErrorKind,
        /// Message of the operating system.
        message: String,
    },
    /// The disk, the address range or the pool's limit is exhausted.
    #[error("out of space: {what}")]
    OutOfSpace {
        /// Description: what could not grow, and to what size.
        what: String,
    },
    /// The memory budget is exhausted.
    #[error(transparent)]
    MemoryLimit(#[from] Box<MemoryLimit>),
    /// An earlier write failed; nothing more can be made durable until the database is opened again.
    #[error(
        "the database is read-only after a failure: {cause}. Fix the cause, then close the database and open it again"
    )]
    Failed {
        /// First failure.
        cause: String,
    },
    /// The pool was closed.
    #[error("the database is closed")]
    Closed,
    /// An option or argument is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The machine does not support the request.
    #[error("{0}")]
    Unsupported(String),
}

impl From<MemoryLimit> for Error {
    fn from(limit: MemoryLimit) -> Error {
        Error::MemoryLimit(Box::new(limit))
    }
}

impl Error {
    /// Wraps an operating-system error with the failed action and the file.
    pub fn io(action: &'static str, file: &Path, error: &io::Error) -> Error {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return Error::OutOfSpace { what: format!("{action} {}: {error}", file.display()) };
        }
        Error::Io { action, file: file.to_path_buf(), kind: error.kind(), message: error.to_string() }
    }

    /// Error of a failed read: damage if the file ended before `offset` plus the requested bytes, else the
    /// operating system's error.
    pub(crate) fn read(file: &Path, offset: u64, error: &io::Error, too_short: &str) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Error::corrupt(file, offset, too_short);
        }
        Error::io("read", file, error)
    }

    /// Error of a damaged file.
    pub fn corrupt(file: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { file: file.to_path_buf(), offset, what: what.into() }
    }
}
