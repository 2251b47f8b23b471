//! Files that fail on purpose: full disks and broken devices in tests.

use super::files::{Files, OpenMode, RealFiles, StorageFile};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Nothing: calls pass through.
    None = 0,
    /// Writes and allocations fail as on a full disk.
    DiskFull = 1,
    /// Writes fail with an I/O error.
    WriteError = 2,
    /// Syncs fail with an I/O error.
    SyncError = 3,
}

struct Plan {
    fault: AtomicU8,
    calls_before: AtomicU64,
}

impl Plan {
    /// Counts a call that the armed fault affects, and fails it once the grace calls are used up.
    fn check(&self, concerned: &[Fault]) -> io::Result<()> {
        let fault = self.fault.load(Ordering::SeqCst);
        if !concerned.iter().any(|f| *f as u8 == fault) {
            return Ok(());
        }
        let spend = |left: u64| left.checked_sub(1);
        if self.calls_before.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend).is_ok() {
            return Ok(());
        }
        let code = if fault == Fault::DiskFull as u8 { libc::ENOSPC } else { libc::EIO };
        Err(io::Error::from_raw_os_error(code))
    }
}

/// Real files with a fault that can be armed and disarmed at any time. Clones share the fault.
#[derive(Clone)]
pub struct FaultyFiles {
    plan: Arc<Plan>,
}

impl FaultyFiles {
    /// Files without a fault, yet.
    pub fn new() -> FaultyFiles {
        FaultyFiles { plan: Arc::new(Plan { fault: AtomicU8::new(0), calls_before: AtomicU64::new(0) }) }
    }

    /// Arms a fault: the calls that it affects fail, after `calls_before` more of them have passed.
    pub fn arm(&self, fault: Fault, calls_before: u64) {
        self.plan.calls_before.store(calls_before, Ordering::SeqCst);
        self.plan.fault.store(fault as u8, Ordering::SeqCst);
    }
}

impl Default for FaultyFiles {
    fn default() -> Self {
        FaultyFiles::new()
    }
}

impl Files for FaultyFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(FaultyFile { file: RealFiles.open(path, mode)?, plan: self.plan.clone() }))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        RealFiles.sync_directory(dir)
    }
}

struct FaultyFile {
    file: Box<dyn StorageFile>,
    plan: Arc<Plan>,
}

impl StorageFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.plan.check(&[Fault::DiskFull, Fault::WriteError])?;
        self.file.write_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.plan.check(&[Fault::SyncError])?;
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.plan.check(&[Fault::DiskFull])?;
        self.file.allocate(offset, bytes)
    }

    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.plan.check(&[Fault::WriteError])?;
        self.file.release(offset, bytes)
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.plan.check(&[Fault::WriteError])?;
        self.file.shorten(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn has_coherent_mapping(&self) -> bool {
        self.file.has_coherent_mapping()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}
