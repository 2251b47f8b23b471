//! Files: positioned reads and writes, preallocation and data syncs.
//!
//! Direct files bypass the page cache: reads come from the device, so pages that a failed sync left in the
//! cache are never returned. Where a file system refuses direct I/O, at the opening or at the first read or
//! write, the same file is used through the page cache.

use super::ring::FileRing;
use crate::domain::journal::writing::buffer::AlignedBuffer;
use crate::placement::WriteSettings;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Mode of opening a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Create the file; it must not exist.
    Create,
    /// Open the file; it must exist.
    Open,
    /// As `Open`, but past the page cache where the file system allows it: offsets, lengths and buffers of
    /// reads and writes must be multiples of 4,096.
    OpenDirect,
}

/// File that is read and written at positions.
pub trait StorageFile: Send + Sync {
    /// Fills the buffer from the position; an earlier end of the file is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes the whole buffer at the position.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all ranges, in any order and as many at once as the device takes. After an error any part may
    /// have been written.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        writes.iter().try_for_each(|(offset, bytes)| self.write_at(bytes, *offset))
    }
    /// Fills all buffers, each from its position, in any order and as many at once as the device allows.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(offset, bytes)| self.read_at(bytes, *offset))
    }
    /// Returns true if reads and writes go past the page cache.
    fn is_direct(&self) -> bool {
        false
    }
    /// Sets the write settings of [`StorageFile::write_many`], once. Files that write one by one ignore them.
    fn set_writing(&self, how: WriteSettings) {
        let _ = how;
    }
    /// Returns true if [`StorageFile::write_many`] has many writes in flight.
    fn writes_in_parallel(&self) -> bool {
        false
    }
    /// Drops the file's pages from the page cache that the device has, or should have: later reads come from
    /// the device. As far as the system follows the advice; nothing to do for direct files.
    fn forget_cached(&self) -> io::Result<()> {
        Ok(())
    }
    /// Makes all writes durable (data, and the size).
    fn sync_data(&self) -> io::Result<()>;
    /// Allocates the disk blocks of a range; the file grows to its end, new bytes are zero.
    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()>;
    /// Frees the blocks of a range; it then reads as zeros, and the length stays. A file system without
    /// support keeps them.
    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }
    /// Shortens the file to a length, if it is longer; a power failure before the next sync may undo that. Files
    /// without support stay as they are.
    fn shorten(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }
    /// Length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns true if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Returns true if a mapping of the descriptor shows later writes to the file.
    fn has_coherent_mapping(&self) -> bool {
        true
    }
    /// File descriptor, for mapping.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// File system.
pub trait Files: Send + Sync {
    /// Opens or creates a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>>;
    /// Makes the directory's entries durable.
    fn sync_directory(&self, dir: &Path) -> io::Result<()>;
    /// Returns true if a file of this name exists.
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
    /// Renames a file; replaces a file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
    /// Creates a directory, and missing ones above it.
    fn create_directory(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }
}

/// Files of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct RealFiles;

impl RealFiles {
    /// Opens a file for reading only; works on read-only media.
    pub fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(RealFile::new(File::open(path)?, false, || None)))
    }
}

impl Files for RealFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let (file, direct) = match mode {
            OpenMode::Create => (options.create_new(true).open(path)?, false),
            OpenMode::Open => (options.open(path)?, false),
            OpenMode::OpenDirect => match options.clone().custom_flags(libc::O_DIRECT).open(path) {
                // Some file systems have no direct I/O; the page cache serves as well.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (options.open(path)?, false),
                opened => (opened?, true),
            },
        };
        Ok(Box::new(RealFile::new(file, direct, FileRing::detect)))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

struct RealFile {
    file: File,
    direct: AtomicBool,
    /// Created on first use; only for direct files, since a ring does not help the page cache.
    ring: OnceLock<Option<Mutex<FileRing>>>,
    make_ring: fn() -> Option<FileRing>,
    writing: OnceLock<WriteSettings>,
}

impl RealFile {
    fn new(file: File, direct: bool, make_ring: fn() -> Option<FileRing>) -> RealFile {
        RealFile {
            file,
            direct: AtomicBool::new(direct),
            ring: OnceLock::new(),
            make_ring,
            writing: OnceLock::new(),
        }
    }

    fn ring(&self) -> Option<&Mutex<FileRing>> {
        if !self.is_direct() {
            return None;
        }
        self.ring.get_or_init(|| (self.make_ring)().map(Mutex::new)).as_ref()
    }

    /// Returns true if a failed call should be repeated through the page cache, because it failed for being
    /// direct.
    fn leaves_direct(&self, error: &io::Error) -> bool {
        if error.raw_os_error() != Some(libc::EINVAL) || !self.is_direct() {
            return false;
        }
        let descriptor = self.file.as_raw_fd();
        // SAFETY: reads the flags of a descriptor that lives as long as `self`.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        // SAFETY: sets flags of the same descriptor.
        if flags < 0 || unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags & !libc::O_DIRECT) } < 0 {
            return false;
        }
        self.direct.store(false, Ordering::Release);
        tracing::warn!("the file system refuses direct I/O; the page cache is used");
        true
    }
}

impl RealFile {
    /// Extends the file to `end`, with written zeros. Its content stays.
    fn write_zeros(&self, end: u64) -> io::Result<()> {
        const STEP_BYTES: u64 = 64 << 10;
        let zeros = AlignedBuffer::new(STEP_BYTES as usize);
        let mut at = self.len()?;
        while at < end {
            let step = (end - at).min(STEP_BYTES);
            self.write_at(&zeros.bytes()[..step as usize], at)?;
            at += step;
        }
        Ok(())
    }
}

impl StorageFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.file.read_exact_at(buffer, offset) {
            Err(e) if self.leaves_direct(&e) => self.file.read_exact_at(buffer, offset),
            outcome => outcome,
        }
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        match self.file.write_all_at(buffer, offset) {
            Err(e) if self.leaves_direct(&e) => self.file.write_all_at(buffer, offset),
            outcome => outcome,
        }
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        if let [_, _, ..] = writes
            && let Some(ring) = self.ring()
        {
            let how = self.writing.get().copied().unwrap_or(WriteSettings::UNCALIBRATED);
            match ring.lock().write_all(self.file.as_fd(), writes, how) {
                Err(e) if self.leaves_direct(&e) => {}
                outcome => return outcome,
            }
        }
        writes.iter().try_for_each(|(offset, bytes)| self.write_at(bytes, *offset))
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        if let [_, _, ..] = reads
            && let Some(ring) = self.ring()
        {
            match ring.lock().read_all(self.file.as_fd(), reads) {
                Err(e) if self.leaves_direct(&e) => {}
                outcome => return outcome,
            }
        }
        reads.iter_mut().try_for_each(|(offset, bytes)| self.read_at(bytes, *offset))
    }

    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Acquire)
    }

    fn set_writing(&self, how: WriteSettings) {
        // The first call counts.
        let _ = self.writing.set(how);
    }

    fn writes_in_parallel(&self) -> bool {
        self.ring().is_some()
    }

    fn forget_cached(&self) -> io::Result<()> {
        if self.is_direct() {
            return Ok(());
        }
        // Dirty pages cannot be dropped, and should not: they are newer than the device's.
        self.file.sync_data()?;
        // SAFETY: advice on a descriptor that lives as long as `self`.
        match unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let (offset, bytes) = (offset.cast_signed(), bytes.cast_signed());
        // SAFETY: a plain system call on a descriptor that lives as long as `self`.
        match unsafe { libc::posix_fallocate(self.file.as_raw_fd(), offset, bytes) } {
            0 => Ok(()),
            // A file system without preallocation: written zeros allocate the blocks.
            libc::EOPNOTSUPP | libc::ENOSYS => self.write_zeros((offset + bytes).cast_unsigned()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let (offset, bytes) = (offset.cast_signed(), bytes.cast_signed());
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain system call on a descriptor that lives as long as `self`.
        if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, bytes) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(()),
            e => Err(e),
        }
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        if self.len()? > bytes { self.file.set_len(bytes) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::domain::journal::writing::buffer::AlignedBuffer;
    use tempfile::TempDir;

    fn direct_file(dir: &TempDir, name: &str, make_ring: fn() -> Option<FileRing>) -> RealFile {
        let path = dir.path().join(name);
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match options.clone().custom_flags(libc::O_DIRECT).open(&path) {
            Ok(file) => RealFile::new(file, true, make_ring),
            Err(_) => RealFile::new(options.open(&path).unwrap(), false, make_ring),
        }
    }

    /// Writes and reads runs of one, two and 100 pages, the last longer than one write of the ring.
    fn write_and_read_back(file: &RealFile) {
        let mut buffer = AlignedBuffer::new(103 * 4096);
        for (page, bytes) in buffer.bytes_mut().chunks_mut(4096).enumerate() {
            bytes.fill(page as u8 + 1);
        }
        let bytes = buffer.bytes();
        let writes =
            [(8192, &bytes[..4096]), (40_960, &bytes[4096..3 * 4096]), (1 << 20, &bytes[3 * 4096..])];
        file.write_many(&writes).unwrap();
        file.sync_data().unwrap();
        let mut read = AlignedBuffer::new(103 * 4096);
        for (offset, expected) in writes {
            let read = &mut read.bytes_mut()[..expected.len()];
            file.read_at(read, offset).unwrap();
            assert!(read == expected, "at {offset}");
        }
        let (first, rest) = read.bytes_mut().split_at_mut(4096);
        let (second, third) = rest.split_at_mut(2 * 4096);
        let mut reads = [(8192, first), (40_960, second), (1 << 20, third)];
        file.read_many(&mut reads).unwrap();
        assert!(reads.iter().zip(writes).all(|((_, read), (_, expected))| **read == *expected));
        let (first, rest) = read.bytes_mut().split_at_mut(4096);
        let error = file.read_many(&mut [(4096, first), (4 << 20, &mut rest[..4096])]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "behind the end of the file");
        let page = &mut read.bytes_mut()[..4096];
        file.read_at(page, 4096).unwrap();
        assert!(page.iter().all(|byte| *byte == 0), "nothing beside was touched");
    }

    #[test]
    fn many_writes_arrive_with_a_ring_and_without() {
        let dir = TempDir::new().unwrap();
        let plain = direct_file(&dir, "plain", || None);
        assert!(!plain.writes_in_parallel());
        write_and_read_back(&plain);
        let ringed = direct_file(&dir, "ringed", FileRing::detect);
        if !ringed.writes_in_parallel() {
            eprintln!("skipped in part: this kernel or file system gives no ring");
        }
        write_and_read_back(&ringed);
    }

    #[test]
    fn a_failing_write_among_many_is_an_error_and_the_ring_goes_on() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("read only");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let Some(mut ring) = FileRing::detect() else {
            eprintln!("skipped: this kernel gives no ring");
            return;
        };
        let buffer = AlignedBuffer::new(4096);
        let writes: Vec<(u64, &[u8])> = (0..200).map(|page| (page * 4096, buffer.bytes())).collect();
        let closed_to_writing = File::open(&path).unwrap();
        let error =
            ring.write_all(closed_to_writing.as_fd(), &writes, WriteSettings::UNCALIBRATED).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        let open = OpenOptions::new().write(true).open(&path).unwrap();
        ring.write_all(open.as_fd(), &writes, WriteSettings::UNCALIBRATED).unwrap();
    }

    #[test]
    fn writes_go_out_in_the_pieces_that_are_asked_for() {
        let dir = TempDir::new().unwrap();
        let file = direct_file(&dir, "pieces", FileRing::detect);
        file.set_writing(WriteSettings { piece_bytes: 16 << 10, at_once: 1, is_calibrated: true });
        write_and_read_back(&file);
        let file = direct_file(&dir, "one large", FileRing::detect);
        file.set_writing(WriteSettings { piece_bytes: 8 << 20, at_once: 3, is_calibrated: true });
        write_and_read_back(&file);
    }

    #[test]
    fn a_file_that_refuses_direct_calls_is_used_through_the_page_cache() {
        let dir = TempDir::new().unwrap();
        let file = direct_file(&dir, "file", || None);
        if !file.is_direct() {
            eprintln!("skipped: this file system has no direct I/O");
            return;
        }
        // An unaligned offset is what a direct file refuses with the same error.
        file.write_at(b"hello", 3).unwrap();
        assert!(!file.is_direct());
        let mut read = [0; 5];
        file.read_at(&mut read, 3).unwrap();
        assert_eq!(&read, b"hello");
        file.forget_cached().unwrap();
        file.read_at(&mut read, 3).unwrap();
        assert_eq!(&read, b"hello");
    }
}
