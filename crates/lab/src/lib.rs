//! The lab: measurements that anyone can repeat. One experiment per figure or table of the papers, under the
//! paper's own name, and one race per peer; peers run in the same process on the same data, in turn.

pub mod asked;
pub mod experiments;
pub mod measure;
pub mod media;
pub mod peers;
pub mod plot;
pub mod report;
pub mod workload;

use entresol_memory::Env;
use entresol_memory::env::OpenMode;
use std::path::PathBuf;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Small sizes.
    pub quick: bool,
    /// Seed of all randomness.
    pub seed: u64,
    /// Directory of databases; none: a temporary directory.
    pub dir: Option<PathBuf>,
    /// Path of the file that an experiment makes; none: it is not kept.
    pub out: Option<PathBuf>,
    /// The program `lab`: experiments that kill start it as a process of their own.
    pub program: PathBuf,
    /// Duration, in seconds, of an experiment that samples over time; none: its own.
    pub seconds: Option<u64>,
}

impl RunOptions {
    /// A fresh directory for one database; it is removed when dropped.
    pub fn database_dir(&self) -> Result<tempfile::TempDir, Error> {
        let dir = match &self.dir {
            Some(dir) => tempfile::TempDir::new_in(dir),
            None => tempfile::TempDir::new(),
        };
        dir.map_err(|error| Error::Io { action: "make a directory for the database".to_string(), error })
    }

    /// A fresh directory in the machine's memory (`/dev/shm`), for what stands in for persistent memory; one
    /// as [`RunOptions::database_dir`] gives where there is no room for so many bytes.
    pub fn memory_dir(&self, room_bytes: u64) -> Result<tempfile::TempDir, Error> {
        let with_room = || {
            let dir = tempfile::TempDir::new_in("/dev/shm")?;
            let probe = dir.path().join("probe");
            Env::real().files().open(&probe, OpenMode::Create)?.allocate(0, room_bytes)?;
            std::fs::remove_file(probe)?;
            std::io::Result::Ok(dir)
        };
        with_room().or_else(|_| self.database_dir())
    }
}

/// Errors that end a run early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such experiment.
    #[error("no experiment '{name}'; there are: {known}")]
    Unknown {
        /// Name that was given.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// Arguments that do not go together.
    #[error("{0}")]
    Invalid(String),
    /// Reading or writing a file failed.
    #[error("cannot {action}: {error}")]
    Io {
        /// Action that failed.
        action: String,
        /// Reason.
        error: std::io::Error,
    },
    /// From a store that we race against.
    #[error("{peer}: {error}")]
    Peer {
        /// Name of the store.
        peer: &'static str,
        /// Message of the store.
        error: String,
    },
    /// From the memory floor.
    #[error(transparent)]
    Memory(#[from] entresol_memory::Error),
    /// From the structures floor.
    #[error(transparent)]
    Structures(#[from] entresol_structures::Error),
    /// From the transactions floor.
    #[error(transparent)]
    Transactions(#[from] entresol_transactions::Error),
    /// From the database.
    #[cfg(feature = "database")]
    #[error(transparent)]
    Database(#[from] entresol::Error),
    /// From the demo.
    #[cfg(feature = "database")]
    #[error(transparent)]
    Demo(#[from] entresol_demo::Error),
    /// From the tables floor.
    #[error(transparent)]
    Tables(#[from] entresol_tables::Error),
}
