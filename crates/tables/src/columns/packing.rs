//! Bit packing: integers of a given number of bits, in chunks that a loop over lanes unpacks.
//!
//! A chunk is [`CHUNK_VALUES`] values. Value `p` of it lies in lane `p % 32`, as the `p / 32`-th of the lane; a
//! lane packs its 32 values one after another into as many 32-bit words as a value has bits; word `w` of all
//! lanes is stored together. So consecutive values come from consecutive words by the same shifts, and
//! compilers turn the loop over lanes into vector instructions, those of AVX2 where the processor has them
//! (the layout of Afroozeh and Boncz, "The
//! FastLanes Compression Layout", PVLDB 16 (9), 2023, with one width of lane).
//!
//! Values of more than 32 bits are packed twice: their low halves with 32 bits, then their high halves.

use entresol_structures::{WideLoops, run_wide};

/// Number of values of a chunk; the last one is filled up with zeros.
pub(crate) const CHUNK_VALUES: usize = 1024;
const LANES: usize = 32;
const LANE_VALUES: usize = CHUNK_VALUES / LANES;
const WORD_BITS: usize = 32;

/// Number of bits of the greatest of some values.
pub(crate) fn bits_of(greatest: u64) -> u32 {
    u64::BITS - greatest.leading_zeros()
}

/// Number of words that `values` values of this many bits take.
pub(crate) fn packed_words(values: usize, bits: u32) -> usize {
    values.div_ceil(CHUNK_VALUES) * LANES * bits as usize
}

/// Appends values of at most `bits` bits.
pub(crate) fn pack(values: &[u64], bits: u32, words: &mut Vec<u32>) {
    assert!(bits <= u64::BITS, "a value has at most 64 bits");
    let low_bits = bits.min(WORD_BITS as u32);
    pack_halves(values, low_bits, 0, words);
    if bits > low_bits {
        pack_halves(values, bits - low_bits, WORD_BITS as u32, words);
    }
}

/// Appends the `bits` bits of each value that begin at bit `from`.
fn pack_halves(values: &[u64], bits: u32, from: u32, words: &mut Vec<u32>) {
    let bits = bits as usize;
    for chunk in values.chunks(CHUNK_VALUES) {
        let start = words.len();
        words.resize(start + LANES * bits, 0);
        let packed = &mut words[start..];
        for (at, value) in chunk.iter().enumerate() {
            let half = (value >> from) & mask(bits);
            let (lane, bit) = (at % LANES, at / LANES * bits);
            let (word, shift) = (bit / WORD_BITS, bit % WORD_BITS);
            if bits > 0 {
                packed[word * LANES + lane] |= (half << shift) as u32;
            }
            if shift + bits > WORD_BITS {
                packed[(word + 1) * LANES + lane] |= (half >> (WORD_BITS - shift)) as u32;
            }
        }
    }
}

fn mask(bits: usize) -> u64 {
    if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Calls `f` with the number of each value and the value; `words` begins with the packed ones, which are of at
/// most 32 bits. Unpacked are whole chunks.
#[inline]
pub(crate) fn unpack(words: &[u32], values: usize, bits: u32, mut f: impl FnMut(usize, &[u32])) {
    let mut chunk = [0_u32; CHUNK_VALUES];
    let of_chunk = LANES * bits as usize;
    for first in (0..values).step_by(CHUNK_VALUES) {
        let start = first / CHUNK_VALUES * of_chunk;
        unpack_chunk(&words[start..start + of_chunk], bits, &mut chunk);
        f(first, &chunk[..CHUNK_VALUES.min(values - first)]);
    }
}

/// Unpacks the chunk with a number; `words` begins with the packed ones, which are of at most 32 bits.
#[inline]
pub(crate) fn unpack_one(words: &[u32], bits: u32, chunk: usize, out: &mut [u32; CHUNK_VALUES]) {
    let of_chunk = LANES * bits as usize;
    unpack_chunk(&words[chunk * of_chunk..(chunk + 1) * of_chunk], bits, out);
}

/// Value at a position, of at most 32 bits.
#[inline]
pub(crate) fn short_at(words: &[u32], bits: u32, at: usize) -> u32 {
    half_at(words, bits as usize, at) as u32
}

/// Value at a position.
pub(crate) fn value_at(words: &[u32], values: usize, bits: u32, at: usize) -> u64 {
    let low_bits = bits.min(WORD_BITS as u32);
    let low = half_at(words, low_bits as usize, at);
    if bits == low_bits {
        return low;
    }
    low | half_at(&words[packed_words(values, low_bits)..], (bits - low_bits) as usize, at) << WORD_BITS
}

#[inline]
fn half_at(words: &[u32], bits: usize, at: usize) -> u64 {
    if bits == 0 {
        return 0;
    }
    let packed = &words[at / CHUNK_VALUES * LANES * bits..];
    let at = at % CHUNK_VALUES;
    let (lane, bit) = (at % LANES, at / LANES * bits);
    let (word, shift) = (bit / WORD_BITS, bit % WORD_BITS);
    let mut value = u64::from(packed[word * LANES + lane]) >> shift;
    if shift + bits > WORD_BITS {
        value |= u64::from(packed[(word + 1) * LANES + lane]) << (WORD_BITS - shift);
    }
    value & mask(bits)
}

/// Unpacks a chunk of `BITS`-bit values.
#[inline(always)]
fn unpack_lanes<const BITS: usize>(words: &[u32], out: &mut [u32; CHUNK_VALUES]) {
    let mask = mask(BITS) as u32;
    for number in 0..LANE_VALUES {
        let (word, shift) = (number * BITS / WORD_BITS, number * BITS % WORD_BITS);
        let low = &words[word * LANES..(word + 1) * LANES];
        let values = &mut out[number * LANES..(number + 1) * LANES];
        if shift + BITS <= WORD_BITS {
            for (value, low) in values.iter_mut().zip(low) {
                *value = (low >> shift) & mask;
            }
        } else {
            let high = &words[(word + 1) * LANES..(word + 2) * LANES];
            for ((value, low), high) in values.iter_mut().zip(low).zip(high) {
                *value = ((low >> shift) | (high << (WORD_BITS - shift))) & mask;
            }
        }
    }
}

macro_rules! by_width {
    ($bits:expr, $words:expr, $out:expr, $($width:literal)*) => {
        match $bits {
            $($width => unpack_lanes::<$width>($words, $out),)*
            bits => unreachable!("a half has at most 32 bits, not {bits}"),
        }
    };
}

/// Unpacking of a chunk of values of 1 to 32 bits.
struct ChunkUnpacking<'a> {
    words: &'a [u32],
    bits: u32,
    out: &'a mut [u32; CHUNK_VALUES],
}

impl WideLoops for ChunkUnpacking<'_> {
    #[inline(always)]
    fn run(self) {
        let (words, out) = (self.words, self.out);
        by_width!(self.bits, words, out, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
    }
}

fn unpack_chunk(words: &[u32], bits: u32, out: &mut [u32; CHUNK_VALUES]) {
    if bits == 0 {
        return out.fill(0);
    }
    run_wide(ChunkUnpacking { words, bits, out });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn values_are_unpacked_as_they_were_packed(
            values in prop::collection::vec(any::<u64>(), 0..2500),
            bits in 0_u32..=64,
        ) {
            let values: Vec<u64> = values.iter().map(|value| value & mask(bits as usize)).collect();
            let mut words = vec![7];
            pack(&values, bits, &mut words);
            prop_assert_eq!(words.len() - 1, packed_words(values.len(), bits));
            for (at, value) in values.iter().enumerate() {
                prop_assert_eq!(value_at(&words[1..], values.len(), bits, at), *value);
            }
            if bits <= 32 {
                let mut unpacked = Vec::new();
                unpack(&words[1..], values.len(), bits, |first, chunk| {
                    assert_eq!(first, unpacked.len(), "chunks come in order");
                    unpacked.extend(chunk.iter().map(|value| u64::from(*value)));
                });
                prop_assert_eq!(unpacked, values);
            }
        }
    }
}
