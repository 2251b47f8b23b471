//! File that returns a bounded number of bytes for one record, so that a quote that is never closed does not
//! read the rest of the file into memory; and none behind the bytes that are there for the reader.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Maximum length of a record of a CSV file. A longer record, or a quote that is open for longer, is
/// rejected.
pub(crate) const RECORD_BYTES_MAX: u64 = 1 << 20;

/// File with an allowance of bytes.
pub(super) struct BoundedFile {
    file: File,
    allowance_bytes: u64,
    position: u64,
    /// Length of the file for the reader.
    end: u64,
}

impl BoundedFile {
    /// Reader of a file at its beginning, up to `end`.
    pub(super) fn new(file: File, end: u64) -> BoundedFile {
        BoundedFile { file, allowance_bytes: RECORD_BYTES_MAX, position: 0, end }
    }

    /// Resets the allowance at the begin of a record.
    pub(super) fn renew(&mut self) {
        self.allowance_bytes = RECORD_BYTES_MAX;
    }

    /// Reads the bytes from a position up to a limit; the position of the file is lost.
    pub(super) fn read_from(&mut self, offset: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        (&self.file).take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for BoundedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.allowance_bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let rest = self.end.saturating_sub(self.position).min(buffer.len() as u64);
        let read = self.file.read(&mut buffer[..rest as usize])?;
        self.position += read as u64;
        self.allowance_bytes = self.allowance_bytes.saturating_sub(read as u64);
        Ok(read)
    }
}

impl Seek for BoundedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}
