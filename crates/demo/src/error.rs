//! Errors of the demo. Every message says what to do or names the thing at fault.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the demo.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Error of the database; its message is complete.
    #[error("{0}")]
    Database(#[from] entresol::Error),
    /// Error of a topology.
    #[error("{0}")]
    Streams(#[from] entresol::streams::Error),
    /// Error of a table.
    #[error("{0}")]
    Tables(#[from] entresol::tables::Error),
    /// A file or directory could not be used.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// The action: "read", "write", ...
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The arguments do not fit the data or the database.
    #[error("{0}")]
    Invalid(String),
    /// A check of the demo failed, or a part of the demo itself.
    #[error("{0}")]
    Check(String),
}

/// Result of the demo's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A file that could not be used.
    pub fn file(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File { action, path: path.to_path_buf(), source }
    }

    /// An error of an entire CSV file (not of one row).
    pub fn csv(path: &Path, error: csv::Error) -> Error {
        let text = error.to_string();
        match error.into_kind() {
            csv::ErrorKind::Io(source) => Error::file("use", path, source),
            _ => Error::Invalid(format!("{}: {text}", path.display())),
        }
    }
}
