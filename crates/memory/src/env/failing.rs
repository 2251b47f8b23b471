//! Files with one failing call: for tests in which every call of a history fails in turn.

use super::files::{Files, OpenMode, RealFiles, StorageFile};
use parking_lot::Mutex;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    /// Open or create a file.
    Open,
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make a file's content durable.
    Sync,
    /// Extend a file.
    Allocate,
    /// Free blocks of a file.
    Release,
    /// Ask for a file's length.
    Length,
    /// Make a directory's names durable.
    SyncDirectory,
    /// Rename a file.
    Rename,
    /// Remove a file.
    Remove,
    /// Create a directory.
    CreateDirectory,
}

/// Kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailure {
    /// One call, with EIO.
    Io,
    /// One call, with EIO; a write leaves the first half of its bytes.
    ShortWrite,
    /// This call and all after it, with EIO: the device is gone.
    DeviceGone,
    /// This call and all after it that need space, with ENOSPC.
    DiskFull,
    /// This call and all after it that change anything, with EROFS: remounted read-only.
    ReadOnly,
}

#[derive(Default)]
struct Plan {
    calls: u64,
    fail_from: Option<(u64, CallFailure)>,
    failed: Option<(FileOperation, PathBuf)>,
}

/// Real files that count their calls; one of them, or all from one on, can fail. Clones share the count.
#[derive(Clone, Default)]
pub struct FailingFiles {
    plan: Arc<Mutex<Plan>>,
}

impl FailingFiles {
    /// Files whose calls succeed until [`FailingFiles::fail`].
    pub fn new() -> FailingFiles {
        FailingFiles::default()
    }

    /// Makes the call with this number (from 1) fail.
    pub fn fail(&self, call: u64, how: CallFailure) {
        self.plan.lock().fail_from = Some((call, how));
    }

    /// Makes all calls succeed again.
    pub fn mend(&self) {
        self.plan.lock().fail_from = None;
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.plan.lock().calls
    }

    /// First call that failed.
    pub fn failed(&self) -> Option<(FileOperation, PathBuf)> {
        self.plan.lock().failed.clone()
    }

    /// Counts a call; an error with the kind of failure if it is to fail.
    fn count(&self, operation: FileOperation, path: &Path) -> Result<(), (io::Error, CallFailure)> {
        let plan = &mut *self.plan.lock();
        plan.calls += 1;
        let Some((from, how)) = plan.fail_from else { return Ok(()) };
        let reads = matches!(operation, FileOperation::Read | FileOperation::Length | FileOperation::Open);
        let takes_space = matches!(
            operation,
            FileOperation::Write | FileOperation::Allocate | FileOperation::CreateDirectory
        );
        let (fails, code) = match how {
            CallFailure::Io | CallFailure::ShortWrite => (plan.calls == from, libc::EIO),
            CallFailure::DeviceGone => (plan.calls >= from, libc::EIO),
            CallFailure::DiskFull => (plan.calls >= from && takes_space, libc::ENOSPC),
            CallFailure::ReadOnly => (plan.calls >= from && !reads, libc::EROFS),
        };
        if !fails {
            return Ok(());
        }
        plan.failed.get_or_insert((operation, path.to_path_buf()));
        Err((io::Error::from_raw_os_error(code), how))
    }

    fn check(&self, operation: FileOperation, path: &Path) -> io::Result<()> {
        self.count(operation, path).map_err(|(error, _)| error)
    }
}

impl Files for FailingFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        self.check(FileOperation::Open, path)?;
        let file = RealFiles.open(path, mode)?;
        Ok(Box::new(FailingFile { file, files: self.clone(), path: path.to_path_buf() }))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        self.check(FileOperation::SyncDirectory, dir)?;
        RealFiles.sync_directory(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(FileOperation::Rename, to)?;
        RealFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(FileOperation::Remove, path)?;
        RealFiles.remove(path)
    }

    fn create_directory(&self, dir: &Path) -> io::Result<()> {
        self.check(FileOperation::CreateDirectory, dir)?;
        RealFiles.create_directory(dir)
    }
}

struct FailingFile {
    file: Box<dyn StorageFile>,
    files: FailingFiles,
    path: PathBuf,
}

impl FailingFile {
    fn check(&self, operation: FileOperation) -> io::Result<()> {
        self.files.check(operation, &self.path)
    }
}

impl StorageFile for FailingFile {
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(FileOperation::Read)?;
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let Err((error, how)) = self.files.count(FileOperation::Write, &self.path) else {
            return self.file.write_at(buffer, offset);
        };
        // Direct writes go in whole blocks.
        let half = (buffer.len() / 2).next_multiple_of(4096);
        if how == CallFailure::ShortWrite && half < buffer.len() {
            self.file.write_at(&buffer[..half], offset)?;
        }
        Err(error)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check(FileOperation::Sync)?;
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check(FileOperation::Allocate)?;
        self.file.allocate(offset, bytes)
    }

    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check(FileOperation::Release)?;
        self.file.release(offset, bytes)
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.check(FileOperation::Release)?;
        self.file.shorten(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.check(FileOperation::Length)?;
        self.file.len()
    }

    fn has_coherent_mapping(&self) -> bool {
        self.file.has_coherent_mapping()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}
