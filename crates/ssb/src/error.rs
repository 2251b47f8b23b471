//! Errors of the benchmark. Every message says what to do or names the thing at fault.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Error of the database; its message is complete.
    #[error("{0}")]
    Database(#[from] entresol::Error),
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
    /// A line of a `.tbl` file is wrong.
    #[error("{path}, line {line}{column}: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// The column, as in `, column lo_tax`; empty if the line as a whole is wrong.
        column: String,
        /// Description of the fault, with the value.
        message: String,
    },
    /// The arguments do not fit the files or the database.
    #[error("{0}")]
    Invalid(String),
    /// A load failed; the message says in which state the tables are.
    #[error("{source}\n{state}")]
    Load {
        /// The reason.
        source: Box<Error>,
        /// State of the tables.
        state: String,
    },
}

/// Result of the benchmark's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A file that could not be used.
    pub fn file(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File { action, path: path.to_path_buf(), source }
    }

    /// An error of an entire CSV file.
    pub(crate) fn csv(action: &'static str, path: &Path, error: csv::Error) -> Error {
        let text = error.to_string();
        match error.into_kind() {
            csv::ErrorKind::Io(source) => Error::file(action, path, source),
            _ => Error::Invalid(format!("{}: {text}", path.display())),
        }
    }
}
