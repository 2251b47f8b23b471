//! Searches of bytes and words with vector instructions, and prefetching of DRAM.
//!
//! Lines are read while writers may change them; the caller validates afterwards that none did. Where the
//! processor has AVX-512, a line is compared by one instruction, written in assembly: to the compiler that is
//! no access to plain data, and a line torn between two of its words is as stale as one read word by word.

mod packing;
mod positions;

use std::sync::atomic::{AtomicU64, Ordering};

pub use packing::{CHUNK_VALUES, LANES, unpack_chunk};
pub use positions::{BitSet, append_positions_in, append_positions_within};

/// Words of a cache line.
pub(crate) type Line = [AtomicU64; 8];

/// Returns true if a line is compared by one instruction. Where not, callers with sorted words do better with
/// binary search.
#[inline]
pub(crate) fn compares_lines() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns the positions (bits) of the words of a line that are not greater than `wanted`.
#[inline]
pub(crate) fn not_greater(line: &Line, wanted: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if compares_lines() {
        let mask: u64;
        // SAFETY: the processor has AVX-512 (just asked), and reads 64 bytes of a live line. Registers above
        // 15 leave no state behind that slows other instructions down.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {wanted}",
                "vpcmpuq k1, zmm16, zmmword ptr [{line}], 5",
                "kmovw {mask:e}, k1",
                wanted = in(reg) wanted,
                line = in(reg) line.as_ptr(),
                mask = lateout(reg) mask,
                out("xmm16") _,
                out("k1") _,
                options(readonly, nostack, preserves_flags),
            );
        }
        return mask;
    }
    words_matching(line, |word| word <= wanted)
}

/// Returns the positions (bits) of the words of a line that equal `wanted`.
#[inline]
pub(crate) fn equal(line: &Line, wanted: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if compares_lines() {
        let mask: u64;
        // SAFETY: as in `not_greater`.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {wanted}",
                "vpcmpeqq k1, zmm16, zmmword ptr [{line}]",
                "kmovw {mask:e}, k1",
                wanted = in(reg) wanted,
                line = in(reg) line.as_ptr(),
                mask = lateout(reg) mask,
                out("xmm16") _,
                out("k1") _,
                options(readonly, nostack, preserves_flags),
            );
        }
        return mask;
    }
    words_matching(line, |word| word == wanted)
}

/// Compares a line, a word at a time.
fn words_matching(line: &Line, matches: impl Fn(u64) -> bool) -> u64 {
    (0..8).fold(0, |bits, i| bits | u64::from(matches(line[i].load(Ordering::Relaxed))) << i)
}

/// Returns the positions (bits) of the bytes of a cache line that equal `wanted`. The words are read one by
/// one: a reader validates that no writer changed them meanwhile.
#[inline]
pub(crate) fn matching_bytes(line: &Line, wanted: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if compares_lines() {
        let mask: u64;
        // SAFETY: as in `not_greater`.
        unsafe {
            std::arch::asm!(
                "vpbroadcastb zmm16, {wanted:e}",
                "vpcmpeqb k1, zmm16, zmmword ptr [{line}]",
                "kmovq {mask}, k1",
                wanted = in(reg) u32::from(wanted),
                line = in(reg) line.as_ptr(),
                mask = lateout(reg) mask,
                out("xmm16") _,
                out("k1") _,
                options(readonly, nostack, preserves_flags),
            );
        }
        return mask;
    }
    bytes_of_words(line, wanted)
}

/// Same as [`matching_bytes`], without the processor's widest instructions.
#[inline]
fn bytes_of_words(line: &Line, wanted: u8) -> u64 {
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

/// Returns the positions (bits) of the bytes of a word that equal `wanted`.
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

/// Same as [`matching_bytes`], a byte at a time.
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

/// Maximum of entries that are sorted by counting, and the minimum for which that pays.
const COUNTED_MAX: usize = 64;
const COUNTED_MIN: usize = 8;

/// Sorts entries by their words. As many as a leaf has are sorted by counting how many words are smaller,
/// eight comparisons at a time and no branch that depends on a word: a fifth of the time of sorting by
/// comparing.
pub(crate) fn sort_by_words(entries: &mut [(u64, u64)]) {
    #[cfg(target_arch = "x86_64")]
    if (COUNTED_MIN..=COUNTED_MAX).contains(&entries.len()) && compares_lines() {
        // SAFETY: the processor has AVX-512 (just asked).
        return unsafe { sort_by_counting(entries) };
    }
    entries.sort_unstable_by_key(|(word, _)| *word);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sort_by_counting(entries: &mut [(u64, u64)]) {
    use std::arch::x86_64::{
        _mm512_cmplt_epu64_mask, _mm512_loadu_si512, _mm512_mask_add_epi64, _mm512_set1_epi64,
        _mm512_setzero_si512, _mm512_storeu_si512,
    };
    let mut words = [0; COUNTED_MAX];
    words.iter_mut().zip(&*entries).for_each(|(to, (word, _))| *to = *word);
    let mut ranks = [0u64; COUNTED_MAX];
    let of_eight = words.as_chunks::<8>().0.iter().zip(ranks.as_chunks_mut::<8>().0);
    for (eight, ranks) in of_eight.take(entries.len().div_ceil(8)) {
        // SAFETY: reads the 64 bytes of an array.
        let eight = unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) };
        let (mut smaller, one) = (_mm512_setzero_si512(), _mm512_set1_epi64(1));
        for word in &words[..entries.len()] {
            let is_smaller = _mm512_cmplt_epu64_mask(_mm512_set1_epi64(word.cast_signed()), eight);
            smaller = _mm512_mask_add_epi64(smaller, is_smaller, smaller, one);
        }
        // SAFETY: writes the 64 bytes of an array.
        unsafe { _mm512_storeu_si512(ranks.as_mut_ptr().cast(), smaller) };
    }
    let (mut sorted, mut places) = ([(0, 0); COUNTED_MAX], 0u64);
    for (entry, rank) in entries.iter().zip(ranks) {
        sorted[rank as usize % COUNTED_MAX] = *entry;
        places |= 1 << rank;
    }
    if places.count_ones() as usize == entries.len() {
        entries.copy_from_slice(&sorted[..entries.len()]);
    } else {
        // Equal words share a rank.
        entries.sort_unstable_by_key(|(word, _)| *word);
    }
}

/// Prefetches the line where a value begins.
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
    fn lines_are_compared_as_words_are() {
        let mut word = 0x0123_4567_89AB_CDEF_u64;
        for _ in 0..1000 {
            let line = std::array::from_fn(|_| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(3);
                // Small ones, large ones, and some that are alike.
                AtomicU64::new((word >> 60).wrapping_sub(7))
            });
            for wanted in [0, 1, 5, 8, u64::MAX, u64::MAX - 3, i64::MAX.cast_unsigned()] {
                assert_eq!(not_greater(&line, wanted), words_matching(&line, |word| word <= wanted));
                assert_eq!(equal(&line, wanted), words_matching(&line, |word| word == wanted));
            }
        }
    }

    #[test]
    fn entries_are_sorted_however_many_and_however_alike() {
        let mut word = 0x0123_4567_89AB_CDEF_u64;
        for count in 0..80 {
            for bits in [64, 8, 3] {
                let mut entries: Vec<(u64, u64)> = (0..count)
                    .map(|place| {
                        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(3);
                        // From both ends, some of them equal.
                        (word.cast_signed().wrapping_shr(64 - bits).cast_unsigned(), place)
                    })
                    .collect();
                let mut expected = entries.clone();
                expected.sort_unstable();
                sort_by_words(&mut entries);
                assert!(entries.is_sorted_by_key(|(word, _)| *word), "{count} entries of {bits} bits");
                entries.sort_unstable();
                assert_eq!(entries, expected, "{count} entries of {bits} bits");
            }
        }
    }

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
                let expected = portable_matches(&words, wanted);
                let line = words.map(AtomicU64::new);
                assert_eq!(matching_bytes(&line, wanted), expected, "round {round}");
                assert_eq!(bytes_of_words(&line, wanted), expected, "round {round}");
                let of_word = matching_bytes_of_word(words[round % 8], wanted);
                assert_eq!(of_word, portable_matches(&[words[round % 8]], wanted), "round {round}");
            }
        }
    }
}
