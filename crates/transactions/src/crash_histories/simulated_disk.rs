//! A disk beside a crashing pool: its files as they are, and as they were synced.

use entresol_memory::env::{FilesImage, SimulatedFiles};
use entresol_memory::{DomainChoice, Env, JournalOptions, Pool, PoolOptions};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Images that a power failure may leave: what was synced, and all that was written.
pub(super) type DiskImages = [Arc<FilesImage>; 2];

/// Files in memory; lock files are real ones.
pub(super) struct Disk {
    directory: PathBuf,
    seed: u64,
    files: SimulatedFiles,
    /// Images of the last call, and the number of calls that had changed files by then.
    images: Mutex<(usize, DiskImages)>,
    loaded: AtomicU64,
}

impl Disk {
    pub(super) fn new(directory: &Path, seed: u64) -> Disk {
        let files = SimulatedFiles::new();
        files.keep_synced();
        files.record();
        Disk {
            directory: directory.to_path_buf(),
            seed,
            files,
            images: Mutex::default(),
            loaded: AtomicU64::new(0),
        }
    }

    fn options(&self, files: &SimulatedFiles) -> PoolOptions {
        PoolOptions {
            domain: DomainChoice::Journal,
            extent_bytes: 256 << 10,
            address_space_bytes: 64 << 20,
            journal: JournalOptions {
                slot_bytes: 64 << 10,
                checkpoint_bytes: 256 << 10,
                journal_bytes_max: 1 << 20,
                preallocated_slots: 2,
                ..JournalOptions::default()
            },
            env: Env::simulated(self.seed).with_files(Arc::new(files.clone())),
            ..PoolOptions::default()
        }
    }

    /// Makes the pool.
    pub(super) fn create(&self) -> entresol_memory::Result<Arc<Pool>> {
        Pool::create(&self.directory, &self.options(&self.files))
    }

    /// Images that a power failure may leave now.
    pub(super) fn images(&self) -> DiskImages {
        let mut known = self.images.lock();
        let calls = self.files.recorded();
        if known.0 != calls {
            *known = (calls, [self.files.synced_image(), self.files.image()].map(Arc::new));
        }
        known.1.clone()
    }

    /// Opens the pool as a power failure left it.
    pub(super) fn load(&self, image: &FilesImage) -> std::result::Result<Arc<Pool>, String> {
        let number = self.loaded.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory.join(number.to_string());
        std::fs::create_dir(&directory).map_err(|error| error.to_string())?;
        let moved = |path: &PathBuf| directory.join(path.file_name().unwrap_or_default());
        let image: FilesImage = image.iter().map(|(path, bytes)| (moved(path), bytes.clone())).collect();
        let files = SimulatedFiles::new();
        files.load(&image).map_err(|error| error.to_string())?;
        let opened = Pool::open_or_create(&directory, &self.options(&files));
        opened.map_err(|error| error.to_string())
    }
}
