//! Hash codes of values: what a hashed index has in place of them. They are stored, so they never change.

use entresol_structures::KeyBytes;

/// Bytes of a hash code.
pub(crate) const HASH_BYTES: usize = 8;

/// Odd numbers without a pattern (SplitMix64).
const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xBF58_476D_1CE4_E5B9;
const THIRD: u64 = 0x94D0_49BB_1331_11EB;

/// Hash code of encoded values: words of 8 bytes, one after another, and the length.
pub(crate) fn hash_code(bytes: &[u8]) -> KeyBytes {
    let mut code = FIRST ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        code = mixed(code ^ u64::from_le_bytes(word)).wrapping_add(FIRST);
    }
    KeyBytes::from_slice(&mixed(code).to_be_bytes())
}

/// Bits of a word, each of which depends on all.
fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(SECOND);
    let word = (word ^ word >> 27).wrapping_mul(THIRD);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_differ_and_stay() {
        let texts = (0..50_000).map(|number| format!("{number:07}"));
        let codes: BTreeSet<KeyBytes> = texts.map(|text| hash_code(text.as_bytes())).collect();
        assert_eq!(codes.len(), 50_000);
        let prefixes: BTreeSet<KeyBytes> = (0..100).map(|bytes| hash_code(&vec![0; bytes])).collect();
        assert_eq!(prefixes.len(), 100, "also of zeros");
        let first_bytes: BTreeSet<u8> = codes.iter().map(|code| code[0]).collect();
        assert_eq!(first_bytes.len(), 256);
    }
}
