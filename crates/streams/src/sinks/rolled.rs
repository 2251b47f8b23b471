//! Files that a sink rolls: formats that cannot be appended to, the names of the files, and when one is full.
//!
//! | file, of the path `dir/rows-{n}.parquet` of the topology `out` | contents |
//! | --- | --- |
//! | `dir/rows-00000007.parquet` | a complete file |
//! | `dir/rows-00000008.parquet.out.rows` | rows that are committed and wait for file 8, as the format appends them |
//! | `dir/rows-00000008.parquet.out.part` | file 8 while it is written |
//!
//! [`crate::operators::rolled_sink`] writes them. Numbers have 8 digits, so that files are in the order of their names.

use crate::error::{Error, Result};
use arrow_array::RecordBatch;
use std::fmt::Debug;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Place of the number in a path.
const NUMBER: &str = "{n}";
/// Digits of a number; more where it is greater.
const DIGITS: usize = 8;

/// Format of files that are written as one. An error of kind `InvalidData` is one of the rows.
pub trait RolledFileFormat: Debug + Send + Sync {
    /// Adds rows to those that wait for their file, behind the bytes of the calls before.
    fn append(&self, rows: &[&RecordBatch], waiting: &mut dyn Write) -> std::io::Result<()>;

    /// Writes all rows that wait into a file, and completes it; returns their number.
    fn complete(&self, waiting: &mut dyn BufRead, file: File) -> std::io::Result<u64>;
}

/// Files of a sink, and when one is full. The transaction that reaches a limit is in it as a whole.
#[derive(Debug, Clone)]
pub struct RolledFiles {
    /// Format of the files.
    pub format: Arc<dyn RolledFileFormat>,
    /// Number of rows of a full file.
    pub rows_max: u64,
    /// Bytes of the rows that wait for a file that is full then.
    pub bytes_max: u64,
    /// Time behind the first of its rows in which a file becomes full.
    pub interval: Duration,
}

/// Names of the files.
#[derive(Debug, Clone)]
pub(crate) struct RolledNames {
    before: String,
    after: String,
    /// Owner of files that are not complete.
    owner: String,
}

impl RolledNames {
    /// Names of the form of a path, in which a number stands for `{n}`.
    pub(crate) fn new(path: &Path, topology: &str) -> Result<RolledNames> {
        let refused = |reason: &str| Error::File { path: path.to_owned(), reason: reason.to_owned() };
        let text = path.to_str().ok_or_else(|| refused("the name is not UTF-8"))?;
        let (before, after) = text.split_once(NUMBER).ok_or_else(|| {
            refused("the file's name has no {n}, the number of the file, as in rows-{n}.parquet")
        })?;
        if after.contains(NUMBER) || after.contains('/') {
            return Err(refused("{n} stands once, in the file's name"));
        }
        // A name may be any string in quotes.
        let plain = |c: char| if c.is_alphanumeric() { c } else { '_' };
        let owner = topology.chars().map(plain).collect();
        Ok(RolledNames { before: before.to_owned(), after: after.to_owned(), owner })
    }

    /// Path of a file as it is stored.
    pub(crate) fn key(&self, number: u64) -> String {
        let RolledNames { before, after, .. } = self;
        format!("{before}{number:0DIGITS$}{after}")
    }

    /// Complete file.
    pub(crate) fn file(&self, number: u64) -> PathBuf {
        self.key(number).into()
    }

    /// Rows that wait for a file.
    pub(crate) fn waiting(&self, number: u64) -> PathBuf {
        format!("{}.{}.rows", self.key(number), self.owner).into()
    }

    /// File that is written.
    pub(crate) fn part(&self, number: u64) -> PathBuf {
        format!("{}.{}.part", self.key(number), self.owner).into()
    }

    /// Number of a complete file by its path; none of others.
    pub(crate) fn number_of(&self, path: &str) -> Option<u64> {
        let digits = path.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        let is_number = digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten()
    }

    /// Number behind those of all files that are there.
    pub(crate) fn first_number(&self) -> Result<u64> {
        let file = self.file(0);
        let folder = file.parent().unwrap_or(Path::new(""));
        let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let io = |source| Error::io(listed, source);
        let mut greatest = 0;
        for entry in std::fs::read_dir(listed).map_err(io)? {
            let path = folder.join(entry.map_err(io)?.file_name());
            greatest = path.to_str().and_then(|path| self.number_of(path)).unwrap_or(0).max(greatest);
        }
        greatest.checked_add(1).ok_or_else(|| self.exhausted())
    }

    /// Number behind another of which there is no file.
    pub(crate) fn number_behind(&self, number: u64) -> Result<u64> {
        let mut next = number;
        loop {
            next = next.checked_add(1).ok_or_else(|| self.exhausted())?;
            if !self.file(next).exists() {
                return Ok(next);
            }
        }
    }

    fn exhausted(&self) -> Error {
        Error::File { path: self.file(u64::MAX), reason: "it has the last number that there is".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_numbers_in_the_order_of_their_names() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("rows-{n}.parquet");
        let names = RolledNames::new(&path, "a/b").unwrap();
        assert_eq!(names.first_number().unwrap(), 1);
        assert!(names.waiting(7).to_str().unwrap().ends_with("/rows-00000007.parquet.a_b.rows"));
        for number in [3, 11, 13] {
            std::fs::write(names.file(number), "").unwrap();
        }
        std::fs::write(names.waiting(99), "").unwrap();
        std::fs::write(directory.path().join("rows-9999.parquet"), "").unwrap();
        assert_eq!(names.first_number().unwrap(), 14);
        assert_eq!([10, 12].map(|number| names.number_behind(number).unwrap()), [12, 14]);
        assert_eq!(names.number_of(&names.key(123_456_789_012)), Some(123_456_789_012));
        assert_eq!(names.number_of(names.part(7).to_str().unwrap()), None);
        for (path, reason) in [
            ("rows.parquet", "has no {n}"),
            ("{n}/rows.parquet", "{n} stands once, in the file's name"),
            ("{n}-{n}", "{n} stands once"),
        ] {
            let error = RolledNames::new(Path::new(path), "t").unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
