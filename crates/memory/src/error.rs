//! What can go wrong on this floor, with the file and the place.

use crate::budget::MemoryLimit;
use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the memory floor.
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
    /// There is no pool in the directory.
    #[error("no database at {}", dir.display())]
    NotFound {
        /// The database directory.
        dir: PathBuf,
    },
    /// There is a pool in the directory already.
    #[error("a database already exists at {}", dir.display())]
    AlreadyExists {
        /// The database directory.
        dir: PathBuf,
    },
    /// A file does not hold what it must.
    #[error("{} is damaged at byte {offset}: {what}", file.display())]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },
    /// The files were written by a newer release.
    #[error("{} has format version {found}; this release reads up to {supported}. Use a newer release", file.display())]
    NewerVersion {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that is understood.
        supported: u32,
    },
    /// The files were written by an older release, in a format that this one does not read any more.
    #[error(
        "{} has format version {found}; this release reads version {supported}. Write the tables to CSV with the \
         release that made it, and load them again",
        file.display()
    )]
    OlderVersion {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The oldest version that is understood.
        supported: u32,
    },
    /// The operating system refused a call.
    #[error("{action} {}: {message}", file.display())]
    Io {
        /// What was being done, e.g. "write to".
        action: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// The kind of the operating system's error.
        kind: io::ErrorKind,
        /// The operating system's message.
        message: String,
    },
    /// The disk, the address range or the pool's limit is used up.
    #[error("out of space: {what}")]
    OutOfSpace {
        /// What could not grow, to what size.
        what: String,
    },
    /// The memory budget is used up.
    #[error(transparent)]
    MemoryLimit(#[from] Box<MemoryLimit>),
    /// An earlier write failed; nothing more can be made durable until the database is opened again.
    #[error(
        "the database is read-only since an earlier failure: {cause}. Close it, mend the cause and open it again"
    )]
    Failed {
        /// The first failure.
        cause: String,
    },
    /// The pool was closed.
    #[error("the database is closed")]
    Closed,
    /// An option or argument makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The machine cannot do what was asked for.
    #[error("{0}")]
    Unsupported(String),
}

impl From<MemoryLimit> for Error {
    fn from(limit: MemoryLimit) -> Error {
        Error::MemoryLimit(Box::new(limit))
    }
}

impl Error {
    /// Wraps an operating-system error with what was being done to which file.
    pub fn io(action: &'static str, file: &Path, error: &io::Error) -> Error {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return Error::OutOfSpace { what: format!("{action} {}: {error}", file.display()) };
        }
        Error::Io { action, file: file.to_path_buf(), kind: error.kind(), message: error.to_string() }
    }

    /// A read that failed: damage if the file ended before `offset` plus what was wanted, else what the operating
    /// system said.
    pub(crate) fn read(file: &Path, offset: u64, error: &io::Error, too_short: &str) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Error::corrupt(file, offset, too_short);
        }
        Error::io("read", file, error)
    }

    /// A damaged file.
    pub fn corrupt(file: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { file: file.to_path_buf(), offset, what: what.into() }
    }
}
