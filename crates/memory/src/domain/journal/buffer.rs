//! A page-aligned buffer of words: direct I/O wants aligned memory.

const PAGE_WORDS: usize = 512;

/// Words in memory that starts at a multiple of 4,096. What is never touched takes no memory and no time.
pub(crate) struct AlignedBuffer {
    /// A page more than asked for, of which the aligned part is used. Never grown, so it stays where it is.
    memory: Vec<u64>,
    start: usize,
    words: usize,
}

impl AlignedBuffer {
    /// A zeroed buffer of `bytes`, rounded up to whole pages.
    pub(crate) fn new(bytes: usize) -> AlignedBuffer {
        let words = bytes.div_ceil(4096) * PAGE_WORDS;
        // Of words, not of aligned pages: only for these does the allocator take pages that are zero already.
        let memory = vec![0u64; words + PAGE_WORDS];
        let start = memory.as_ptr().align_offset(4096);
        assert!(start <= PAGE_WORDS, "words of 8 bytes can be aligned to 4,096");
        AlignedBuffer { memory, start, words }
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.memory[self.start..self.start + self.words]
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.memory[self.start..self.start + self.words]
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
