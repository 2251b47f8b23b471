//! Inspection of the headers of a database's files, without opening it: works while another process has it
//! open.

use super::Pool;
use super::lifecycle::{Header, read_header};
use crate::domain::journal::JournalInfo;
use crate::env::RealFiles;
use crate::error::{Error, Result};
use crate::layout::{FORMAT_VERSION, JOURNAL_FILE, POOL_FILE};
use std::path::Path;

/// Headers of a database's files. While another process writes, variable numbers are as of the last
/// checkpoint or later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolInfo {
    /// Format version of the files, which this release supports.
    pub format_version: u32,
    /// UUID of the pool.
    pub uuid: [u64; 2],
    /// Bytes by which the pool grows.
    pub extent_bytes: u64,
    /// Extents in the pool file; the journal may contain more.
    pub extents: u64,
    /// Bytes of the pool file.
    pub pool_file_bytes: u64,
    /// True if the pool was marked as closed orderly at the last checkpoint.
    pub marked_clean: bool,
    /// Journal header; `None` without a journal.
    pub journal: Option<JournalInfo>,
}

impl Pool {
    /// Reads the headers of the files in a directory. Takes no lock, changes nothing.
    pub fn inspect(directory: &Path) -> Result<PoolInfo> {
        let path = directory.join(POOL_FILE);
        if !path.exists() {
            return Err(Error::NotFound { dir: directory.to_path_buf() });
        }
        let file = RealFiles.open_to_read(&path).map_err(|e| Error::io("open", &path, &e))?;
        let Header { uuid, extent_bytes, extents, clean, .. } = read_header(&*file, &path)?;
        let pool_file_bytes = file.len().map_err(|e| Error::io("get the length of", &path, &e))?;
        let journal_path = directory.join(JOURNAL_FILE);
        let journal = if journal_path.exists() { Some(JournalInfo::read(&journal_path)?) } else { None };
        Ok(PoolInfo {
            format_version: FORMAT_VERSION,
            uuid,
            extent_bytes,
            extents,
            pool_file_bytes,
            marked_clean: clean,
            journal,
        })
    }
}
