//! Page-aligned buffer of words, as direct I/O requires.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{self, NonNull};

const PAGE_BYTES: usize = 4096;

/// Bytes mapped for a buffer: an empty one has an aligned address as well.
fn mapped(bytes: usize) -> usize {
    bytes.max(PAGE_BYTES)
}

/// Words in memory that starts at a multiple of 4,096. Pages that are never touched take no memory and no
/// time.
///
/// Mapped from the system, not allocated on the heap: heaps retain freed memory, so buffers that are
/// allocated and freed would take several times the memory in use.
pub(crate) struct AlignedBuffer {
    start: NonNull<u64>,
    bytes: usize,
}

// SAFETY: the memory is owned by this value and reached through it only.
unsafe impl Send for AlignedBuffer {}
// SAFETY: see `Send`; shared references only read.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A zeroed buffer of `bytes`, rounded up to whole pages.
    pub(crate) fn new(bytes: usize) -> AlignedBuffer {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let mapped_bytes = mapped(bytes);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: asks for a fresh range, touches no existing mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        match NonNull::new(start.cast::<u64>()).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => AlignedBuffer { start, bytes },
            None => handle_alloc_error(Layout::array::<u8>(mapped_bytes).unwrap_or(Layout::new::<u64>())),
        }
    }

    pub(crate) fn words(&self) -> &[u64] {
        debug_assert!(self.bytes.is_multiple_of(PAGE_BYTES), "a buffer is whole pages");
        // SAFETY: mapped until drop, aligned, zeroed at first; any bytes are valid words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes / 8) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let words = self.words();
        // SAFETY: the same initialised memory; any byte of a word is a valid byte.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let words = self.words_mut();
        // SAFETY: as in `bytes`, the borrow is exclusive; any bytes are valid words.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` got; no borrow outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), mapped(self.bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_and_aligned_and_words_are_their_bytes() {
        for bytes in [0, 1, 4096, 4097, 1 << 20] {
            let mut buffer = AlignedBuffer::new(bytes);
            assert_eq!(buffer.bytes().len(), bytes.next_multiple_of(4096));
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(4096));
            assert!(buffer.words().iter().all(|word| *word == 0));
            if let Some(byte) = buffer.bytes_mut().get_mut(9) {
                *byte = 3;
                assert_eq!(buffer.words()[1], u64::from_le(3 << 8));
            }
        }
    }
}
