//! Positions of the parts of a node (dissertation, figure 3.2), computed at compile time.

/// The smallest node: one block of persistent memory.
pub const NODE_BYTES_MIN: usize = 256;
/// The largest node.
pub const NODE_BYTES_MAX: usize = 4096;

const LINE_WORDS: usize = 8;

/// Word indexes of a node's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Words of the node.
    pub words: usize,
    /// Entries that fit.
    pub capacity: usize,
    /// State words, from word 0 on.
    pub state_words: usize,
    /// First word of the bytes per entry.
    pub bytes: usize,
    /// Words of the bytes per entry.
    pub byte_words: usize,
    /// Reference to the right neighbour.
    pub next: usize,
    /// Two words for the tree: of a leaf its low key, of an inner node its leftmost child and its latch.
    pub spare: usize,
    /// First word of the keys: the start of a cache line.
    pub keys: usize,
    /// First word of the values.
    pub values: usize,
}

/// Parts of a layout in front of its entries.
#[derive(Clone, Copy)]
pub(super) struct Front {
    /// Bits of state for each entry, packed into words; without them there is one word of state.
    pub(super) bit_per_entry: bool,
    /// Bits of state beside those.
    pub(super) further_bits: usize,
    pub(super) byte_per_entry: bool,
    /// Bytes beside those.
    pub(super) further_bytes: usize,
}

pub(super) const WORD_OF_STATE: Front =
    Front { bit_per_entry: false, further_bits: 0, byte_per_entry: false, further_bytes: 0 };

impl Geometry {
    /// Returns the positions with the most entries.
    pub(super) const fn new(node_bytes: usize, key_words: usize, front: Front) -> Geometry {
        assert!(
            node_bytes.is_multiple_of(NODE_BYTES_MIN)
                && node_bytes >= NODE_BYTES_MIN
                && node_bytes <= NODE_BYTES_MAX,
            "nodes have a multiple of 256 bytes, at most 4096"
        );
        assert!(key_words == 1 || key_words == 2, "keys have one or two words");
        let words = node_bytes / 8;
        let mut capacity = words / (key_words + 1);
        loop {
            let state_words =
                if front.bit_per_entry { (capacity + front.further_bits).div_ceil(64) } else { 1 };
            let byte_words =
                if front.byte_per_entry { (capacity + front.further_bytes).div_ceil(8) } else { 0 };
            let next = state_words + byte_words;
            let keys = (next + 3).next_multiple_of(LINE_WORDS);
            if keys + capacity * (key_words + 1) <= words {
                return Geometry {
                    words,
                    capacity,
                    state_words,
                    bytes: state_words,
                    byte_words,
                    next,
                    spare: next + 1,
                    keys,
                    values: keys + capacity * key_words,
                };
            }
            capacity -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_the_front_is_small() {
        let hashing = Front { bit_per_entry: true, byte_per_entry: true, ..WORD_OF_STATE };
        for bytes in (256..=4096).step_by(256) {
            for key_words in [1, 2] {
                let sorted = Geometry::new(bytes, key_words, WORD_OF_STATE);
                assert_eq!(sorted.keys, 8, "one line");
                let geometry = Geometry::new(bytes, key_words, hashing);
                assert!(
                    geometry.state_words * 64 >= geometry.capacity
                        && geometry.byte_words * 8 >= geometry.capacity
                );
                assert!(geometry.spare + 2 <= geometry.keys && geometry.keys.is_multiple_of(8));
                assert!(geometry.values + geometry.capacity <= geometry.words);
            }
        }
        assert_eq!(Geometry::new(1024, 1, WORD_OF_STATE).capacity, 60);
        assert_eq!(Geometry::new(1024, 1, hashing).capacity, 56);
    }
}
