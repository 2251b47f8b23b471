//! Information from the header of a journal file.

use super::position::JournalPosition;
use super::writing::log::Log;
use crate::env::RealFiles;
use crate::error::{Error, Result};
use std::path::Path;

/// Information from the header of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalInfo {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a slot, the unit of recycling.
    pub slot_bytes: u64,
    /// Number of opens of the pool.
    pub opens: u64,
    /// Position from which a recovery replays.
    pub replay_position: JournalPosition,
    /// True after an orderly close: there is nothing to replay.
    pub closed: bool,
}

impl JournalInfo {
    /// Reads the header of a journal file.
    pub(crate) fn read(path: &Path) -> Result<JournalInfo> {
        let file = RealFiles.open_to_read(path).map_err(|e| Error::io("open", path, &e))?;
        let log = Log::open(file.into(), path)?;
        let file_bytes = log.file.len().map_err(|e| Error::io("get the length of", path, &e))?;
        Ok(JournalInfo {
            file_bytes,
            slot_bytes: log.header.slot_bytes,
            opens: log.header.epoch,
            replay_position: log.header.replay_lsn,
            closed: log.header.closed,
        })
    }
}
