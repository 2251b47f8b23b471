//! Files in memory that record their changes.
//!
//! A [`SimulatedFiles`] behaves like a file system and records every call that changes something, in the
//! order in which it took effect. From that record [`crate::power_failure`] computes the states that a power
//! failure could have left at any point, and loads such a state back to be opened.
//!
//! - A file's content is in memory. Only a file that is mapped gets a memory file of the system behind it,
//!   which follows every later write.
//! - The directory is flat and must exist for real: the database's lock file is always a real one.
//! - Memory: all files, and all bytes written while recording.

use super::files::{Files, OpenMode, StorageFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Call that changed something. Files are numbered in the order of their creation.
#[derive(Debug, Clone)]
pub enum FileEvent {
    /// Creation of an empty file.
    Created {
        /// The file.
        file: usize,
        /// Name of the file.
        path: PathBuf,
    },
    /// Write.
    Wrote {
        /// The file.
        file: usize,
        /// Offset in bytes.
        offset: u64,
        /// Written bytes.
        bytes: Arc<[u8]>,
    },
    /// Extension of a file to at least a length.
    Allocated {
        /// The file.
        file: usize,
        /// Length afterwards.
        end: u64,
    },
    /// Release of the blocks of a range, which reads as zeros from now on.
    Released {
        /// The file.
        file: usize,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Shortening of a file.
    Shortened {
        /// The file.
        file: usize,
        /// Length afterwards.
        end: u64,
    },
    /// Sync: all earlier writes to the file are durable.
    Synced {
        /// The file.
        file: usize,
    },
    /// Rename.
    Renamed {
        /// Old name.
        from: PathBuf,
        /// New name.
        to: PathBuf,
    },
    /// Removal of a name.
    Removed {
        /// The name.
        path: PathBuf,
    },
    /// Sync of the directory: all names are durable.
    DirectorySynced,
    /// Note of the history; see [`SimulatedFiles::note`].
    Noted {
        /// Number of an operation that was begun, or acknowledged as durable.
        value: u64,
        /// True if it was acknowledged.
        acknowledged: bool,
    },
}

/// The names and contents of all files.
pub type FilesImage = BTreeMap<PathBuf, Vec<u8>>;

#[derive(Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    events: Option<Vec<FileEvent>>,
    /// True if contents are kept as of their last sync, too.
    keeps_synced: bool,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    mapped: Arc<OnceLock<File>>,
}

impl Content {
    fn write(&mut self, bytes: &[u8], at: usize) -> io::Result<()> {
        self.lengthen(at + bytes.len())?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.mapped.get().map_or(Ok(()), |file| file.write_all_at(bytes, at as u64))
    }

    fn zero(&mut self, range: Range<usize>) -> io::Result<()> {
        let zeros = vec![0; range.len()];
        self.write(&zeros, range.start)
    }

    fn lengthen(&mut self, end: usize) -> io::Result<()> {
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
            return self.mapped.get().map_or(Ok(()), |file| file.set_len(end as u64));
        }
        Ok(())
    }

    fn shorten(&mut self, end: usize) -> io::Result<()> {
        if end < self.bytes.len() {
            self.bytes.truncate(end);
            return self.mapped.get().map_or(Ok(()), |file| file.set_len(end as u64));
        }
        Ok(())
    }

    /// Makes the content equal to an image, touching only pages that differ.
    fn become_like(&mut self, image: &[u8]) -> io::Result<()> {
        const PAGE_BYTES: usize = 4096;
        self.shorten(image.len())?;
        self.lengthen(image.len())?;
        let mapped = self.mapped.get();
        let pages = self.bytes.chunks_mut(PAGE_BYTES).zip(image.chunks(PAGE_BYTES));
        for (number, (page, wanted)) in pages.enumerate().filter(|(_, (page, wanted))| page != wanted) {
            page.copy_from_slice(wanted);
            mapped.map_or(Ok(()), |file| file.write_all_at(wanted, (number * PAGE_BYTES) as u64))?;
        }
        Ok(())
    }
}

/// Files in memory; see the [module](self). Clones share them.
#[derive(Clone, Default)]
pub struct SimulatedFiles {
    state: Arc<Mutex<State>>,
}

impl SimulatedFiles {
    /// Empty file system; nothing is recorded.
    pub fn new() -> SimulatedFiles {
        SimulatedFiles::default()
    }

    /// Starts a new record.
    pub fn record(&self) {
        self.state.lock().events = Some(Vec::new());
    }

    /// Ends the record and returns it.
    pub fn take_record(&self) -> Vec<FileEvent> {
        self.state.lock().events.take().unwrap_or_default()
    }

    /// Records a number: an operation that the history has begun, or (`acknowledged`) that was acknowledged
    /// to it as durable.
    pub fn note(&self, value: u64, acknowledged: bool) {
        push(&mut self.state.lock(), || FileEvent::Noted { value, acknowledged });
    }

    /// Number of calls recorded so far.
    pub fn recorded(&self) -> usize {
        self.state.lock().events.as_ref().map_or(0, Vec::len)
    }

    /// The present files.
    pub fn image(&self) -> FilesImage {
        let state = self.state.lock();
        state.names.iter().map(|(path, file)| (path.clone(), state.files[*file].bytes.clone())).collect()
    }

    /// Enables [`SimulatedFiles::synced_image`]. The present content counts as synced.
    pub fn keep_synced(&self) {
        let state = &mut *self.state.lock();
        state.keeps_synced = true;
        state.files.iter_mut().for_each(|content| content.synced.clone_from(&content.bytes));
    }

    /// Present names, with contents as of their last sync: the least that a power failure leaves, if names
    /// are durable.
    pub fn synced_image(&self) -> FilesImage {
        let state = self.state.lock();
        assert!(state.keeps_synced, "keep_synced was not called");
        state.names.iter().map(|(path, file)| (path.clone(), state.files[*file].synced.clone())).collect()
    }

    /// Makes the files equal to an image. None of them may be open.
    pub fn load(&self, image: &FilesImage) -> io::Result<()> {
        let state = &mut *self.state.lock();
        state.names.retain(|path, _| image.contains_key(path));
        for (file, content) in state.files.iter_mut().enumerate() {
            if !state.names.values().any(|named| *named == file) {
                *content = Content::default();
            }
        }
        for (path, bytes) in image {
            let file = *state.names.entry(path.clone()).or_insert_with(|| {
                state.files.push(Content::default());
                state.files.len() - 1
            });
            state.files[file].become_like(bytes)?;
        }
        Ok(())
    }

    /// Numbers of the files in the record, by name.
    pub fn file_numbers(&self) -> BTreeMap<PathBuf, usize> {
        self.state.lock().names.clone()
    }
}

fn push(state: &mut State, event: impl FnOnce() -> FileEvent) {
    if let Some(events) = &mut state.events {
        events.push(event());
    }
}

fn not_found() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl Files for SimulatedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        let state = &mut *self.state.lock();
        let file = match (state.names.get(path), mode) {
            (Some(_), OpenMode::Create) => return Err(io::Error::from_raw_os_error(libc::EEXIST)),
            (Some(file), _) => *file,
            (None, OpenMode::Create) => {
                state.files.push(Content::default());
                let file = state.files.len() - 1;
                state.names.insert(path.to_path_buf(), file);
                push(state, || FileEvent::Created { file, path: path.to_path_buf() });
                file
            }
            (None, _) => return Err(not_found()),
        };
        let mapped = state.files[file].mapped.clone();
        Ok(Box::new(SimulatedFile { files: self.clone(), file, mapped }))
    }

    fn sync_directory(&self, _dir: &Path) -> io::Result<()> {
        push(&mut self.state.lock(), || FileEvent::DirectorySynced);
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        self.state.lock().names.contains_key(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let state = &mut *self.state.lock();
        let file = state.names.remove(from).ok_or_else(not_found)?;
        state.names.insert(to.to_path_buf(), file);
        push(state, || FileEvent::Renamed { from: from.to_path_buf(), to: to.to_path_buf() });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.state.lock();
        state.names.remove(path).ok_or_else(not_found)?;
        push(state, || FileEvent::Removed { path: path.to_path_buf() });
        Ok(())
    }

    fn create_directory(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
}

struct SimulatedFile {
    files: SimulatedFiles,
    file: usize,
    mapped: Arc<OnceLock<File>>,
}

impl StorageFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.files.state.lock();
        let start = offset as usize;
        let bytes = state.files[self.file].bytes.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let state = &mut *self.files.state.lock();
        state.files[self.file].write(buffer, offset as usize)?;
        push(state, || FileEvent::Wrote { file: self.file, offset, bytes: buffer.into() });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let state = &mut *self.files.state.lock();
        if state.keeps_synced {
            let content = &mut state.files[self.file];
            content.synced.clone_from(&content.bytes);
        }
        push(state, || FileEvent::Synced { file: self.file });
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let state = &mut *self.files.state.lock();
        let end = offset + bytes;
        state.files[self.file].lengthen(end as usize)?;
        push(state, || FileEvent::Allocated { file: self.file, end });
        Ok(())
    }

    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let state = &mut *self.files.state.lock();
        let content = &mut state.files[self.file];
        let end = content.bytes.len().min((offset + bytes) as usize);
        content.zero((offset as usize).min(end)..end)?;
        push(state, || FileEvent::Released { file: self.file, offset, bytes });
        Ok(())
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        let state = &mut *self.files.state.lock();
        state.files[self.file].shorten(bytes as usize)?;
        push(state, || FileEvent::Shortened { file: self.file, end: bytes });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.files.state.lock().files[self.file].bytes.len() as u64)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // Locked until it is known: every later write goes to it as well.
        let state = self.files.state.lock();
        let make = || memory_file(&state.files[self.file].bytes).expect("the system has room for it");
        self.mapped.get_or_init(make).as_fd()
    }
}

fn memory_file(content: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a C string; nothing else is passed by reference.
    let descriptor = unsafe { libc::memfd_create(c"simulated".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above made the descriptor, and nothing else owns it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    file.set_len(content.len() as u64)?;
    // Pages of zeros stay holes.
    for (page, bytes) in content.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0)) {
        file.write_all_at(bytes, page as u64 * 4096)?;
    }
    Ok(file)
}
