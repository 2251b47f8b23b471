//! Errors of the command line. Every message says what to do or names the thing at fault.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the command line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Error of the database; its message is complete.
    #[error("{0}")]
    Database(#[from] entresol::Error),
    /// Error of a table.
    #[error("{0}")]
    Tables(#[from] entresol::tables::Error),
    /// Error of the demo.
    #[error("{0}")]
    Demo(#[from] entresol_demo::Error),
    /// Error of the Star Schema Benchmark.
    #[error("{0}")]
    Ssb(#[from] entresol_ssb::Error),
    /// Error of the server.
    #[error("{0}")]
    Server(#[from] entresol_server::Error),
    /// A role could not be changed.
    #[error("{0}")]
    Role(#[from] entresol_server::roles::Error),
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
    /// Standard output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// Results could not be formatted.
    #[error("cannot format the result: {0}")]
    Format(String),
    /// The call is wrong, or the data does not fit it.
    #[error("{0}")]
    Invalid(String),
    /// A check of the demo or of the benchmark failed.
    #[error("{0}")]
    Check(String),
}

/// Result of the command line's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A file that could not be used.
    pub fn file(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File { action, path: path.to_path_buf(), source }
    }

    /// Returns true if the reader of standard output went away: the program ends quietly.
    pub fn is_closed_output(&self) -> bool {
        matches!(self, Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
