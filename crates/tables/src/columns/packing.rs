//! Bit packing: integers of a given number of bits, in chunks that a loop over lanes unpacks.
//!
//! A chunk is [`CHUNK_VALUES`] values, the last one filled up with zeros. Value `p` of it lies in lane `p % 32`, as the
//! `p / 32`-th of the lane; a lane packs its 32 values one after another into as many 32-bit words as a value has
//! bits; word `w` of all lanes is stored together. So consecutive values come from consecutive words by the same
//! shifts, by vector instructions ([`unpack_chunk`]; the layout of Afroozeh and Boncz, "The FastLanes Compression
//! Layout", PVLDB 16 (9), 2023, with one width of lane).
//!
//! Values of more than 32 bits are packed twice: their low halves with 32 bits, then their high halves.

pub(crate) use entresol_structures::CHUNK_VALUES;
use entresol_structures::{LANES, unpack_chunk};

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
    debug_assert!(
        values.iter().all(|value| bits_of(*value) <= bits),
        "no value has more bits than the {bits} that are packed"
    );
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
    debug_assert!(bits <= u32::BITS, "values of {bits} bits are unpacked by halves");
    let mut chunk = [0_u32; CHUNK_VALUES];
    let of_chunk = LANES * bits as usize;
    for first in (0..values).step_by(CHUNK_VALUES) {
        let start = first / CHUNK_VALUES * of_chunk;
        unpack_any(&words[start..start + of_chunk], bits, &mut chunk);
        f(first, &chunk[..CHUNK_VALUES.min(values - first)]);
    }
}

/// Unpacks the chunk with a number; `words` begins with the packed ones, which are of at most 32 bits.
#[inline]
pub(crate) fn unpack_one(words: &[u32], bits: u32, chunk: usize, out: &mut [u32; CHUNK_VALUES]) {
    debug_assert!(bits <= u32::BITS, "values of {bits} bits are unpacked by halves");
    let of_chunk = LANES * bits as usize;
    unpack_any(&words[chunk * of_chunk..(chunk + 1) * of_chunk], bits, out);
}

/// Value at a position, of at most 32 bits.
#[inline]
pub(crate) fn short_at(words: &[u32], bits: u32, at: usize) -> u32 {
    half_at(words, bits as usize, at) as u32
}

/// Value at a position.
pub(crate) fn value_at(words: &[u32], values: usize, bits: u32, at: usize) -> u64 {
    debug_assert!(at < values, "the position {at} is one of {values}");
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

fn unpack_any(words: &[u32], bits: u32, out: &mut [u32; CHUNK_VALUES]) {
    if bits == 0 {
        return out.fill(0);
    }
    unpack_chunk(words, bits, out);
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
