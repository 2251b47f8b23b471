//! Notes: a number that the owner of a structure stores in its header.

use crate::points::{NOTE, RETURN_AFTER_NOTE};
use entresol_memory::{Pool, PoolOffset};
use std::sync::atomic::Ordering;

/// Stores the word of a note. Its thread may fence nothing after it, so this does.
pub(crate) fn store(pool: &Pool, at: PoolOffset, word: u64) {
    debug_assert!(at.is_aligned(8), "a note is a word, not at {at:#x}");
    pool.word(at).store(word, Ordering::Release);
    pool.flush_word_at(at, NOTE);
    pool.fence_at(RETURN_AFTER_NOTE);
}
