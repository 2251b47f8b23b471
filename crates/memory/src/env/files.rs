//! Files as this floor needs them: positioned reads and writes, preallocation and data syncs.

use crate::domain::journal::buffer::AlignedBuffer;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Make it; it must not be there.
    Create,
    /// It must be there.
    Open,
    /// As `Open`, but past the page cache where the file system can: offsets, lengths and buffers of writes
    /// must be multiples of 4,096.
    OpenDirect,
}

/// A file that is read and written at positions.
pub trait StorageFile: Send + Sync {
    /// Fills the buffer from the position; an end of file before that is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes the whole buffer at the position.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    /// Makes what was written durable (data, and the size).
    fn sync_data(&self) -> io::Result<()>;
    /// Makes sure that the range has blocks on the disk; the file grows to its end, new bytes are zero.
    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()>;
    /// The file's length.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// The descriptor, for mapping.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Where files come from.
pub trait Files: Send + Sync {
    /// Opens or makes a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>>;
    /// Makes the directory's entries durable.
    fn sync_directory(&self, dir: &Path) -> io::Result<()>;
    /// Whether there is a file of this name.
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
    /// Gives a file another name; a file that had it is gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
    /// Makes a directory, and those above it that are missing.
    fn create_directory(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }
}

/// The operating system's files.
#[derive(Debug, Clone, Copy)]
pub struct RealFiles;

impl RealFiles {
    /// Opens a file that only is read; works on read-only media.
    pub fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(RealFile { file: File::open(path)? }))
    }
}

impl Files for RealFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = match mode {
            OpenMode::Create => options.create_new(true).open(path)?,
            OpenMode::Open => options.open(path)?,
            OpenMode::OpenDirect => match options.clone().custom_flags(libc::O_DIRECT).open(path) {
                // Some file systems have no direct I/O; the page cache serves as well.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => options.open(path)?,
                opened => opened?,
            },
        };
        Ok(Box::new(RealFile { file }))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

struct RealFile {
    file: File,
}

impl RealFile {
    /// Makes the file as long as that, with written zeros. What it holds stays.
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
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let (offset, bytes) = (offset.cast_signed(), bytes.cast_signed());
        // SAFETY: a plain system call on a descriptor that lives as long as `self`.
        match unsafe { libc::posix_fallocate(self.file.as_raw_fd(), offset, bytes) } {
            0 => Ok(()),
            // A file system without preallocation: blocks come with zeros that are written.
            libc::EOPNOTSUPP | libc::ENOSYS => self.write_zeros((offset + bytes).cast_unsigned()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
