//! A page-aligned buffer of words: direct I/O wants aligned memory.

const PAGE_WORDS: usize = 512;

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u64; PAGE_WORDS]);

/// Words in memory that starts at a multiple of 4,096.
pub(crate) struct AlignedBuffer {
    pages: Vec<Page>,
}

impl AlignedBuffer {
    /// A zeroed buffer of `bytes`, rounded up to whole pages.
    pub(crate) fn new(bytes: usize) -> AlignedBuffer {
        AlignedBuffer { pages: vec![Page([0; PAGE_WORDS]); bytes.div_ceil(4096)] }
    }

    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: `Page` is `repr(C)` over plain words, so the pages are one row of initialised words.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.pages.len() * PAGE_WORDS) }
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; the borrow is exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.pages.len() * PAGE_WORDS)
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: as in `words`; any byte of a word is a valid byte.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.pages.len() * 4096) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `words_mut`; any bytes are valid words.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.pages.len() * 4096) }
    }
}
