//! Real files that are never changed: writes stay in memory and are discarded.
//!
//! Checks of a database open it through these: recovery runs as usual, sees its own writes, and leaves the
//! files as they are. A mapping of such a file must be private and see no later writes; the pool's are.
//!
//! Memory: the written blocks.

use super::files::{Files, OpenMode, RealFiles, StorageFile};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK_BYTES: u64 = 4096;

/// Writes to one file.
#[derive(Default)]
struct FileWrites {
    blocks: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
}

#[derive(Default)]
struct State {
    written: BTreeMap<PathBuf, Arc<Mutex<FileWrites>>>,
    removed: BTreeSet<PathBuf>,
}

/// Real files with changes in memory on top; see the [module](self). Clones share the changes.
#[derive(Clone, Default)]
pub struct OverlayFiles {
    state: Arc<Mutex<State>>,
}

impl OverlayFiles {
    /// Files as they are now.
    pub fn new() -> OverlayFiles {
        OverlayFiles::default()
    }
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "files that only look are not renamed")
}

impl Files for OverlayFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        let below = match (self.exists(path), mode) {
            (true, OpenMode::Create) => return Err(io::Error::from_raw_os_error(libc::EEXIST)),
            // A file created here has nothing below it.
            (false, OpenMode::Create) => Path::new("/dev/null"),
            (true, _) if !path.exists() => Path::new("/dev/null"),
            (true, _) => path,
            (false, _) => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        };
        // Through the page cache: reads need no alignment.
        let file = RealFiles.open_to_read(below)?;
        let state = &mut *self.state.lock();
        state.removed.remove(path);
        let written = state.written.entry(path.to_path_buf()).or_default().clone();
        let bytes = file.len()?;
        let mut overlay = written.lock();
        overlay.bytes = overlay.bytes.max(bytes);
        drop(overlay);
        Ok(Box::new(OverlayFile { file, written }))
    }

    fn sync_directory(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        let state = self.state.lock();
        !state.removed.contains(path) && (state.written.contains_key(path) || RealFiles.exists(path))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(unsupported())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.state.lock();
        state.written.remove(path);
        state.removed.insert(path.to_path_buf());
        Ok(())
    }

    fn create_directory(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOENT)) }
    }
}

struct OverlayFile {
    file: Box<dyn StorageFile>,
    written: Arc<Mutex<FileWrites>>,
}

impl OverlayFile {
    /// Content of a block with the changes applied.
    fn block(&self, written: &FileWrites, block: u64) -> io::Result<Vec<u8>> {
        if let Some(bytes) = written.blocks.get(&block) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let at = block * BLOCK_BYTES;
        let there = self.file.len()?.saturating_sub(at).min(BLOCK_BYTES) as usize;
        self.file.read_at(&mut bytes[..there], at)?;
        Ok(bytes)
    }
}

impl StorageFile for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let written = self.written.lock();
        let end = offset + buffer.len() as u64;
        if end > written.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut changed = written.blocks.range(offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES));
        if changed.next().is_none() && end <= self.file.len()? {
            return self.file.read_at(buffer, offset);
        }
        let mut at = offset;
        while at < end {
            let block = self.block(&written, at / BLOCK_BYTES)?;
            let from = (at % BLOCK_BYTES) as usize;
            let count = (block.len() - from).min((end - at) as usize);
            let to = (at - offset) as usize;
            buffer[to..to + count].copy_from_slice(&block[from..from + count]);
            at += count as u64;
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        let end = offset + buffer.len() as u64;
        let mut at = offset;
        while at < end {
            let number = at / BLOCK_BYTES;
            let mut block = self.block(&written, number)?;
            let from = (at % BLOCK_BYTES) as usize;
            let count = (block.len() - from).min((end - at) as usize);
            let source = (at - offset) as usize;
            block[from..from + count].copy_from_slice(&buffer[source..source + count]);
            written.blocks.insert(number, block);
            at += count as u64;
        }
        written.bytes = written.bytes.max(end);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        written.bytes = written.bytes.max(offset + bytes);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().bytes)
    }

    fn has_coherent_mapping(&self) -> bool {
        false
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn writes_are_seen_and_leave_the_file_alone() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file");
        let before: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &before).unwrap();
        let files = OverlayFiles::new();
        let file = files.open(&path, OpenMode::Open).unwrap();
        let mut expected = before.clone();
        expected.resize(30_000, 0);
        for (at, byte, count) in [(4090, 1, 20), (9990, 2, 100), (20_000, 3, 10_000)] {
            file.write_at(&vec![byte; count], at as u64).unwrap();
            expected[at..at + count].fill(byte);
        }
        let again = files.open(&path, OpenMode::OpenDirect).unwrap();
        let mut seen = vec![0; 30_000];
        again.read_at(&mut seen, 0).unwrap();
        assert!(seen == expected && again.len().unwrap() == 30_000);
        let mut part = vec![0; 10];
        again.read_at(&mut part, 8000).unwrap();
        assert_eq!(part, &before[8000..8010]);
        assert!(again.read_at(&mut part, 29_995).is_err());
        assert!(std::fs::read(&path).unwrap() == before);
        files.remove(&path).unwrap();
        assert!(!files.exists(&path) && path.exists());
    }
}
