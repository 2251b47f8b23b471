//! Backups of an open pool.
//!
//! A backup is a directory with a state that a power failure during [`Pool::backup`] would have left:
//! everything acknowledged before the call, and a prefix of the later writes. Opening it recovers it. It is
//! made under a temporary name beside its own and renamed when it is complete and durable, so a crash or a
//! full disk leaves no partial backup under the requested name.
//!
//! Writers go on; checkpoints pause. If the journal reaches its bound meanwhile, writers wait for the rest.
//! Memory: a megabyte.

use super::Pool;
use crate::domain::Domain;
use crate::domain::journal::copy::{CopySummary, Target, Targets};
use crate::env::OpenMode;
use crate::error::{Error, Result};
use crate::layout::{CHECKSUMS_FILE, JOURNAL_FILE, POOL_FILE};
use std::io;
use std::path::{Path, PathBuf};

/// Files of a backup.
const FILES: [&str; 3] = [POOL_FILE, JOURNAL_FILE, CHECKSUMS_FILE];

/// Summary of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupReport {
    /// Bytes of the pool file.
    pub pool_bytes: u64,
    /// Bytes of journal that opening the backup reads.
    pub journal_bytes: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
}

/// Suffix of the name of an incomplete backup.
const UNFINISHED: &str = ".unfinished";

impl Pool {
    /// Copies the pool to `destination`, which must not exist, or be an empty directory. Its parent directory
    /// must exist. Only on `journal`: on `dax` a copy of memory that is written meanwhile is not a consistent
    /// state.
    pub fn backup(&self, destination: &Path) -> Result<BackupReport> {
        let started_ns = self.env.now_ns();
        let Domain::Journal(_) = &self.domain else {
            let domain = self.domain();
            let what = format!(
                "a pool on domain {domain} cannot be backed up while it is open; close the database and copy its \
                 directory"
            );
            return Err(Error::Unsupported(what));
        };
        self.check_healthy()?;
        let unfinished = prepare(destination)?;
        let copied = self.copy_files(&unfinished).and_then(|copied| {
            self.publish_backup(&unfinished, destination)?;
            Ok(copied)
        });
        match copied {
            Ok(CopySummary { pool_bytes, journal_bytes }) => {
                let duration_ns = self.env.now_ns().saturating_sub(started_ns);
                Ok(BackupReport { pool_bytes, journal_bytes, duration_ns })
            }
            Err(error) => {
                if let Err(second) = discard(&unfinished) {
                    tracing::warn!(error = %second, "could not remove the unfinished backup {}", unfinished.display());
                }
                Err(error)
            }
        }
    }

    fn copy_files(&self, directory: &Path) -> Result<CopySummary> {
        let Domain::Journal(journal) = &self.domain else { unreachable!("checked by the caller") };
        let files = self.env.files();
        let paths = FILES.map(|name| directory.join(name));
        let open = |path| {
            let file = files.open(path, OpenMode::Create).map_err(|e| Error::io("create", path, &e))?;
            Ok::<_, Error>(Target { file, path })
        };
        let targets =
            Targets { pool: open(&paths[0])?, journal: open(&paths[1])?, checksums: open(&paths[2])? };
        let copied = journal.copy_to(&targets)?;
        for target in [&targets.pool, &targets.journal, &targets.checksums] {
            target.file.sync_data().map_err(|e| Error::io("sync", target.path, &e))?;
        }
        files.sync_directory(directory).map_err(|e| Error::io("sync directory", directory, &e))?;
        Ok(copied)
    }

    /// Renames the backup to its final name, durably.
    fn publish_backup(&self, unfinished: &Path, destination: &Path) -> Result<()> {
        let files = self.env.files();
        // The rename replaces an empty directory.
        files.rename(unfinished, destination).map_err(|e| Error::io("rename to", destination, &e))?;
        let above = directory_above(destination);
        files.sync_directory(&above).map_err(|e| Error::io("sync directory", &above, &e))
    }
}

fn directory_above(path: &Path) -> PathBuf {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Checks the destination and creates the directory that becomes it.
fn prepare(destination: &Path) -> Result<PathBuf> {
    let invalid = |what: String| Err(Error::Invalid(format!("backup to {}: {what}", destination.display())));
    let Some(name) = destination.file_name() else {
        return invalid("expected the name of a new directory".to_string());
    };
    match std::fs::read_dir(destination) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return invalid("the directory is not empty; choose a new one".to_string());
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return invalid("a file of this name exists".to_string());
        }
        Err(e) => return Err(Error::io("read directory", destination, &e)),
    }
    let above = directory_above(destination);
    if !above.is_dir() {
        return invalid(format!("directory {} does not exist", above.display()));
    }
    let mut unfinished_name = name.to_os_string();
    unfinished_name.push(UNFINISHED);
    let unfinished = above.join(unfinished_name);
    discard(&unfinished)?;
    std::fs::create_dir(&unfinished).map_err(|e| Error::io("create directory", &unfinished, &e))?;
    Ok(unfinished)
}

/// Removes the files of an interrupted backup, and nothing else.
fn discard(unfinished: &Path) -> Result<()> {
    for name in FILES {
        let path = unfinished.join(name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", &path, &e)),
            _ => {}
        }
    }
    match std::fs::remove_dir(unfinished) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", unfinished, &e)),
        _ => Ok(()),
    }
}
