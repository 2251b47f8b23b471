//! Files of rows in columns, for COPY and for streams: Parquet files that are read and written, and columns that are
//! found in files by their names.

pub(crate) mod columns;
pub(crate) mod parquet_file;
pub(crate) mod parquet_writer;

use crate::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Rows and bytes of a row group that is written, and bytes of a batch that is read for a table with row groups.
pub(crate) const GROUP_ROWS: usize = 128 << 10;
pub(crate) const GROUP_BYTES: usize = 32 << 20;

/// Place of the first row of a batch in its file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BatchPlace {
    /// Row group or record batch, from 1.
    pub(crate) group: usize,
    /// Row in it, from 1.
    pub(crate) row: usize,
}

impl BatchPlace {
    /// Place of a row of the batch, for messages.
    pub(crate) fn shown(self, row: usize) -> String {
        format!("row group {}, row {}", self.group, self.row + row)
    }
}

/// Error of a call on a file.
pub(crate) fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    let sqlstate = match error.kind() {
        ErrorKind::NotFound => "58P01",
        ErrorKind::PermissionDenied => "42501",
        ErrorKind::IsADirectory => "42809",
        ErrorKind::StorageFull => "53100",
        _ => "58030",
    };
    Error::coded(sqlstate, format!("could not {what} file \"{}\": {error}", path.display()))
}

/// Error of a file that is not what it should be.
pub(crate) fn damaged(path: &Path, format: &str, error: &dyn std::fmt::Display) -> Error {
    let message = format!("file \"{}\" cannot be read as {format}: {error}", path.display());
    Error::coded("22P04", message)
}

/// Error of rows that a format cannot express.
pub(crate) fn unwritable(path: &Path, format: &str, error: &dyn std::fmt::Display) -> Error {
    Error::coded("0A000", format!("file \"{}\" cannot be written as {format}: {error}", path.display()))
}
