//! Names of the five tables, and of their files.

use std::path::{Path, PathBuf};

/// The tables, dimensions first.
pub const TABLES: [&str; 5] = ["customer", "supplier", "part", "date", "lineorder"];

/// File of a table in a directory.
pub(crate) fn file(directory: &Path, table: &str) -> PathBuf {
    directory.join(format!("{table}.tbl"))
}
