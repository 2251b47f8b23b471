//! Unpacking of bit-packed values with vector instructions.
//!
//! Compilers make vector instructions of the portable loop in some surroundings and eight times as many scalar ones in
//! others, so they are written out.

/// Number of lanes of packed values: value `p` of a chunk lies in lane `p % LANES`.
pub const LANES: usize = 32;
/// Number of values of a chunk.
pub const CHUNK_VALUES: usize = LANES * LANES;

/// Unpacks a chunk of values of 1 to 32 bits. A lane has its 32 values one after another in as many 32-bit words as a
/// value has bits; word `w` of all lanes is stored together.
///
/// # Panics
///
/// If a value has no bits or more than 32, or there are fewer words than `LANES` times the bits.
pub fn unpack_chunk(words: &[u32], bits: u32, out: &mut [u32; CHUNK_VALUES]) {
    assert!((1..=32).contains(&bits), "a packed value has 1 to 32 bits, not {bits}");
    let words = words[..LANES * bits as usize].as_chunks().0;
    #[cfg(target_arch = "x86_64")]
    {
        if super::compares_lines() {
            // SAFETY: the processor has AVX-512 (just asked).
            return unsafe { unpack_by_sixteen(words, bits, out) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2 (just asked).
            return unsafe { unpack_by_eight(words, bits, out) };
        }
    }
    unpack_by_one(words, bits, out);
}

/// Mask of the low bits of a word, 1 to 32.
fn low_bits(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

/// Places of the values of a lane: the word in which each begins, the bits before it there, and true if it ends in the word
/// behind that one.
fn places(bits: u32) -> impl Iterator<Item = (usize, u32, bool)> {
    (0..LANES as u32).map(move |number| {
        let bit = number * bits;
        ((bit / 32) as usize, bit % 32, bit % 32 + bits > 32)
    })
}

fn unpack_by_one(words: &[[u32; LANES]], bits: u32, out: &mut [u32; CHUNK_VALUES]) {
    let mask = low_bits(bits);
    for (values, (word, shift, is_split)) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(places(bits)) {
        for lane in 0..LANES {
            let high = if is_split { words[word + 1][lane] << (32 - shift) } else { 0 };
            values[lane] = (words[word][lane] >> shift | high) & mask;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn unpack_by_eight(words: &[[u32; LANES]], bits: u32, out: &mut [u32; CHUNK_VALUES]) {
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_and_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi32,
        _mm256_sll_epi32, _mm256_srl_epi32, _mm256_storeu_si256,
    };
    // SAFETY: reads the 32 bytes of an array.
    let load = |eight: &[u32; 8]| unsafe { _mm256_loadu_si256(std::ptr::from_ref(eight).cast::<__m256i>()) };
    let mask = _mm256_set1_epi32(low_bits(bits).cast_signed());
    for (values, (word, shift, is_split)) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(places(bits)) {
        let down = _mm_cvtsi32_si128(shift.cast_signed());
        let up = _mm_cvtsi32_si128((32 - shift).cast_signed());
        let lows = words[word].as_chunks::<8>().0;
        let highs = words[word + usize::from(is_split)].as_chunks::<8>().0;
        for ((eight, low), high) in values.as_chunks_mut::<8>().0.iter_mut().zip(lows).zip(highs) {
            let mut unpacked = _mm256_srl_epi32(load(low), down);
            if is_split {
                unpacked = _mm256_or_si256(unpacked, _mm256_sll_epi32(load(high), up));
            }
            let values = _mm256_and_si256(unpacked, mask);
            // SAFETY: writes the 32 bytes of an array.
            unsafe { _mm256_storeu_si256(eight.as_mut_ptr().cast(), values) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn unpack_by_sixteen(words: &[[u32; LANES]], bits: u32, out: &mut [u32; CHUNK_VALUES]) {
    use std::arch::x86_64::{
        _mm_cvtsi32_si128, _mm512_and_si512, _mm512_loadu_si512, _mm512_or_si512, _mm512_set1_epi32,
        _mm512_sll_epi32, _mm512_srl_epi32, _mm512_storeu_si512,
    };
    // SAFETY: reads the 64 bytes of an array.
    let load = |sixteen: &[u32; 16]| unsafe { _mm512_loadu_si512(sixteen.as_ptr().cast()) };
    let mask = _mm512_set1_epi32(low_bits(bits).cast_signed());
    for (values, (word, shift, is_split)) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(places(bits)) {
        let down = _mm_cvtsi32_si128(shift.cast_signed());
        let up = _mm_cvtsi32_si128((32 - shift).cast_signed());
        let lows = words[word].as_chunks::<16>().0;
        let highs = words[word + usize::from(is_split)].as_chunks::<16>().0;
        for ((sixteen, low), high) in values.as_chunks_mut::<16>().0.iter_mut().zip(lows).zip(highs) {
            let mut unpacked = _mm512_srl_epi32(load(low), down);
            if is_split {
                unpacked = _mm512_or_si512(unpacked, _mm512_sll_epi32(load(high), up));
            }
            let values = _mm512_and_si512(unpacked, mask);
            // SAFETY: writes the 64 bytes of an array.
            unsafe { _mm512_storeu_si512(sixteen.as_mut_ptr().cast(), values) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_unpacked_alike_with_all_instructions() {
        let mut number = 0x0123_4567_89AB_CDEF_u64;
        for bits in 1..=32 {
            let mut words = vec![[0; LANES]; bits as usize];
            words.as_flattened_mut().iter_mut().for_each(|word| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(3);
                *word = (number >> 32) as u32;
            });
            let value = |at: usize| {
                let (lane, bit) = (at % LANES, at / LANES * bits as usize);
                let bit_of = |bit: usize| words[bit / 32][lane] >> (bit % 32) & 1;
                (0..bits as usize).fold(0, |value, at| value | bit_of(bit + at) << at)
            };
            let expected: [u32; CHUNK_VALUES] = std::array::from_fn(value);
            let mut unpacked = [7; CHUNK_VALUES];
            unpack_by_one(&words, bits, &mut unpacked);
            assert_eq!(unpacked, expected, "{bits} bits, one by one");
            let mut unpacked = [7; CHUNK_VALUES];
            unpack_chunk(words.as_flattened(), bits, &mut unpacked);
            assert_eq!(unpacked, expected, "{bits} bits");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                let mut unpacked = [7; CHUNK_VALUES];
                // SAFETY: the processor has AVX2 (just asked).
                unsafe { unpack_by_eight(&words, bits, &mut unpacked) };
                assert_eq!(unpacked, expected, "{bits} bits, by eight");
            }
        }
    }
}
