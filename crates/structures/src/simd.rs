//! Searching bytes with vector instructions, and prefetching DRAM.

use std::sync::atomic::{AtomicU64, Ordering};

/// The positions (bits) of the bytes of a cache line that equal `wanted`. The words are read one by one: a reader
/// validates that nobody changed them meanwhile.
#[inline]
pub(crate) fn matching_bytes(line: &[AtomicU64; 8], wanted: u8) -> u64 {
    let words: [u64; 8] = std::array::from_fn(|i| line[i].load(Ordering::Relaxed));
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: SSE2 is part of every x86-64 processor.
        unsafe { sse2_matches(words, wanted) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable_matches(&words, wanted)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn sse2_matches(words: [u64; 8], wanted: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    let wanted = _mm_set1_epi8(wanted.cast_signed());
    let mut matches = 0;
    for (i, pair) in words.chunks_exact(2).enumerate() {
        let sixteen = _mm_set_epi64x(pair[1].cast_signed(), pair[0].cast_signed());
        let equal = _mm_movemask_epi8(_mm_cmpeq_epi8(sixteen, wanted)).cast_unsigned();
        matches |= u64::from(equal) << (i * 16);
    }
    matches
}

/// The positions (bits) of the bytes of a word that equal `wanted`.
#[inline]
pub(crate) fn matching_bytes_of_word(word: u64, wanted: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: SSE2 is part of every x86-64 processor.
        unsafe { sse2_matches_of_word(word, wanted) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable_matches(&[word], wanted)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn sse2_matches_of_word(word: u64, wanted: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_cvtsi64_si128, _mm_movemask_epi8, _mm_set1_epi8};
    let equal = _mm_cmpeq_epi8(_mm_cvtsi64_si128(word.cast_signed()), _mm_set1_epi8(wanted.cast_signed()));
    u64::from(_mm_movemask_epi8(equal).cast_unsigned() & 0xFF)
}

/// The same, a byte at a time.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable_matches(words: &[u64], wanted: u8) -> u64 {
    let mut matches = 0;
    for (i, word) in words.iter().enumerate() {
        for (j, byte) in word.to_le_bytes().iter().enumerate() {
            matches |= u64::from(*byte == wanted) << (i * 8 + j);
        }
    }
    matches
}

/// Asks the processor to fetch the line where something begins.
#[inline]
pub(crate) fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a live value, and a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_and_portable_search_agree() {
        let mut word = 0x0123_4567_89AB_CDEF_u64;
        for round in 0..1000 {
            let words = std::array::from_fn(|i| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i as u64 | 1);
                // Few distinct bytes, so that there are matches.
                word & 0x0303_0303_0303_0303
            });
            for wanted in 0..5 {
                assert_eq!(
                    matching_bytes(&words.map(AtomicU64::new), wanted),
                    portable_matches(&words, wanted),
                    "round {round}"
                );
                let of_word = matching_bytes_of_word(words[round % 8], wanted);
                assert_eq!(of_word, portable_matches(&[words[round % 8]], wanted), "round {round}");
            }
        }
    }
}
