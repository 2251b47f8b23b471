//! Memory of a process, as the system reports it.

use crate::mapping::PAGE_BYTES;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const ENTRY_BYTES: usize = 8;

/// State of a page in the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageState {
    /// Nothing is mapped there: the next access loads it.
    Absent,
    /// Page of the file's cache. It was never stored to.
    OfFile,
    /// Memory of the process (or swapped out): it was stored to, or is zeroed memory.
    Own,
}

/// `/proc/self/pagemap`: states of pages.
pub(super) struct PageMap {
    file: File,
    entries: Vec<u8>,
}

impl PageMap {
    pub(super) fn open() -> io::Result<PageMap> {
        // SAFETY: only asks for a number.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if u64::try_from(page_bytes) != Ok(PAGE_BYTES) {
            let what = format!("pages of {page_bytes} bytes are not supported");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Ok(PageMap { file: File::open("/proc/self/pagemap")?, entries: Vec::new() })
    }

    /// Reads the states of the pages from an address on; takes no memory if there are at most as many as
    /// before.
    pub(super) fn read(
        &mut self,
        address: usize,
        count: usize,
        pages: &mut Vec<PageState>,
    ) -> io::Result<()> {
        self.entries.resize(count * ENTRY_BYTES, 0);
        let at = address / PAGE_BYTES as usize * ENTRY_BYTES;
        self.file.read_exact_at(&mut self.entries, at as u64)?;
        pages.clear();
        pages.extend(self.entries.as_chunks::<ENTRY_BYTES>().0.iter().map(|entry| {
            let entry = u64::from_le_bytes(*entry);
            let bit = |number: u32| entry & 1 << number != 0;
            match (bit(63), bit(62), bit(61)) {
                (false, false, _) => PageState::Absent,
                (true, _, true) => PageState::OfFile,
                _ => PageState::Own,
            }
        }));
        Ok(())
    }
}

/// `/proc/self/statm`: memory of the process.
pub(super) struct ProcessMemory {
    file: File,
}

impl ProcessMemory {
    pub(super) fn open() -> io::Result<ProcessMemory> {
        let memory = ProcessMemory { file: File::open("/proc/self/statm")? };
        memory.resident_bytes()?;
        Ok(memory)
    }

    /// Resident bytes, of every kind.
    pub(super) fn resident_bytes(&self) -> io::Result<u64> {
        let mut text = [0; 128];
        let length = self.file.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        let pages: Option<u64> = text.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok());
        pages.map(|pages| pages * PAGE_BYTES).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm has no second number")
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::mapping::{Backing, Mapping};
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn pages_of_a_private_mapping_are_absent_of_the_file_or_our_own() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        let mapping = Mapping::reserve(1 << 20).unwrap();
        mapping.grow(1 << 20, &Backing::Private(file.as_fd())).unwrap();
        let (mut map, mut pages) = (PageMap::open().unwrap(), Vec::new());
        let mut read = || {
            map.read(mapping.addresses().start, 256, &mut pages).unwrap();
            (pages[0], pages[100])
        };
        assert_eq!(read(), (PageState::Absent, PageState::Absent));
        mapping.words(0, 1)[0].load(Ordering::Relaxed);
        mapping.words(100 * 4096, 1)[0].store(7, Ordering::Relaxed);
        assert_eq!(read(), (PageState::OfFile, PageState::Own));
        mapping.forget(0, 1 << 20);
        assert_eq!(read(), (PageState::Absent, PageState::Absent));
        assert_ne!(mapping.words(100 * 4096, 1)[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn the_process_has_memory() {
        assert!(ProcessMemory::open().unwrap().resident_bytes().unwrap() > 1 << 20);
    }
}
