//! What the headers of a database's files say, without opening it: works while another process has it open.

use super::Pool;
use super::lifecycle::{Header, read_header};
use crate::domain::journal::JournalInfo;
use crate::env::RealFiles;
use crate::error::{Error, Result};
use crate::layout::{FORMAT_VERSION, JOURNAL_FILE, POOL_FILE};
use std::path::Path;

/// What the headers of a database's files say. While another process writes, numbers that change are from some moment
/// of the last checkpoint or after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolInfo {
    /// The format version of this release, which can read the files.
    pub format_version: u32,
    /// Tells pools apart.
    pub uuid: [u64; 2],
    /// Bytes by which the pool grows.
    pub extent_bytes: u64,
    /// Extents, as the pool file says; the journal may know of more.
    pub extents: u64,
    /// Bytes of the pool file.
    pub pool_file_bytes: u64,
    /// Whether the last checkpoint found the pool marked as closed in order.
    pub marked_clean: bool,
    /// The journal; `None` without one.
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
        let pool_file_bytes = file.len().map_err(|e| Error::io("look at", &path, &e))?;
        let journal_path = directory.join(JOURNAL_FILE);
        let journal = match journal_path.exists() {
            true => Some(JournalInfo::read(&journal_path)?),
            false => None,
        };
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
