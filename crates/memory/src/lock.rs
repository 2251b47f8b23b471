//! One process per database directory.

use crate::error::{Error, Result};
use crate::layout::LOCK_FILE;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

/// Lock on the directory's lock file; the operating system releases it when the process ends, however it
/// ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Explicit: a child process that is being started has the descriptor too, until it has started.
        let _ = self.file.unlock();
    }
}

impl DirectoryLock {
    pub(crate) fn acquire(dir: &Path) -> Result<DirectoryLock> {
        let path = dir.join(LOCK_FILE);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| Error::io("open lock file", &path, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(DirectoryLock { file }),
            Err(TryLockError::WouldBlock) => Err(Error::Busy { dir: dir.to_path_buf(), lock: path }),
            Err(TryLockError::Error(e)) => Err(Error::io("lock", &path, &e)),
        }
    }
}
