//! Large copies past the caches (non-temporal stores).
//!
//! An ordinary store to a line that is not cached reads the line first, and the write-back costs an
//! instruction a line. A store past the caches does neither; it is durable, and visible to others in order,
//! only after a fence. From [`STREAM_BYTES_MIN`] on it is faster
//! ([0009](../../../../docs/design/0009-dax-domain-and-its-test.md)); below, lines that are cached already
//! make the difference.

use std::sync::atomic::{AtomicU64, Ordering};

/// Minimum bytes of a copy that goes past the caches on `dax`, on processors with such stores.
pub const STREAM_BYTES_MIN: usize = 4096;

/// True if this processor has such stores.
pub(super) const AVAILABLE: bool = cfg!(target_arch = "x86_64");

/// Stores the bytes as little-endian words, the last one zero padded, with `store` for each word.
#[inline]
fn store_with(words: &[AtomicU64], bytes: &[u8], store: impl Fn(&AtomicU64, u64)) {
    assert!(words.len() * 8 >= bytes.len(), "{} bytes do not fit {} words", bytes.len(), words.len());
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        store(word, u64::from_le_bytes(*bytes));
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        store(&words[whole.len()], u64::from_le_bytes(last));
    }
}

/// Stores through the caches.
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) {
    store_with(words, bytes, |word, value| word.store(value, Ordering::Relaxed));
}

/// Stores past the caches.
#[cfg(target_arch = "x86_64")]
pub(super) fn stream(words: &[AtomicU64], bytes: &[u8]) {
    store_with(words, bytes, |word, value| {
        // SAFETY: the word is live, writable and aligned, so the store is one access, as an atomic one would
        // be.
        unsafe {
            std::arch::asm!("movnti [{}], {}", in(reg) word.as_ptr(), in(reg) value, options(nostack, preserves_flags));
        };
    });
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn stream(words: &[AtomicU64], bytes: &[u8]) {
    store(words, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_store_the_same_words_and_none_beside_them() {
        let bytes: Vec<u8> = (0..STREAM_BYTES_MIN + 64).map(|at| (at * 7 % 251) as u8 + 1).collect();
        for length in [0, 1, 7, 8, 9, 63, 64, 65, STREAM_BYTES_MIN, STREAM_BYTES_MIN + 13] {
            let stored = |how: fn(&[AtomicU64], &[u8])| -> Vec<u64> {
                let words: Vec<AtomicU64> = (0..=length / 8 + 1).map(|_| AtomicU64::new(u64::MAX)).collect();
                how(&words, &bytes[..length]);
                super::super::instruction::store_fence();
                words.into_iter().map(AtomicU64::into_inner).collect()
            };
            let (plain, streamed) = (stored(store), stored(stream));
            assert_eq!(plain, streamed, "{length} bytes");
            let words = length.div_ceil(8);
            let read: Vec<u8> = plain[..words].iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(read[..length], bytes[..length]);
            assert!(read[length..].iter().all(|byte| *byte == 0));
            assert!(plain[words..].iter().all(|word| *word == u64::MAX));
        }
    }
}
