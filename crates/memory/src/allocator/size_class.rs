//! Size classes of slabs: multiples of 64 up to 512 bytes, then four per doubling, up to half a chunk.

use crate::layout::CHUNK_BYTES;

/// Bytes of each class.
const CLASS_BYTES: [u32; 32] = [
    64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584,
    4096, 5120, 6144, 7168, 8192, 10_240, 12_288, 14_336, 16_384, 20_480, 24_576, 28_672, 32_768,
];

/// Number of classes.
pub(super) const CLASSES: usize = CLASS_BYTES.len();

/// Bytes of an object of a class.
#[inline]
pub(super) const fn class_bytes(class: usize) -> u64 {
    debug_assert!(class < CLASSES);
    CLASS_BYTES[class] as u64
}

/// Reciprocals of the classes' 64-byte units: dividing by a variable costs more than all else in an
/// allocation.
const RECIPROCALS: [u32; CLASSES] = {
    let mut reciprocals = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        reciprocals[class] = (1u32 << 20).div_ceil(CLASS_BYTES[class] / 64);
        class += 1;
    }
    reciprocals
};

/// Index of the object in its slab that contains a byte, and the byte's distance from its start.
#[inline]
pub(super) fn object_index(within: u64, class: usize) -> (u64, u64) {
    debug_assert!(within < CHUNK_BYTES);
    let index = ((within / 64) * u64::from(RECIPROCALS[class])) >> 20;
    debug_assert!(index * class_bytes(class) <= within, "an object begins at or before its bytes");
    (index, within - index * class_bytes(class))
}

/// The smallest class whose objects hold `bytes`, or none if that takes whole chunks.
#[inline]
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    debug_assert!(bytes > 0, "objects have at least one byte");
    if bytes <= 512 {
        return Some(bytes.div_ceil(64).max(1) - 1);
    }
    let class = CLASS_BYTES.partition_point(|class_bytes| (*class_bytes as usize) < bytes);
    (class < CLASSES).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_byte_is_found_without_dividing() {
        for class in 0..CLASSES {
            for within in 0..CHUNK_BYTES {
                let (index, rest) = object_index(within, class);
                assert_eq!((index, rest), (within / class_bytes(class), within % class_bytes(class)));
            }
        }
    }

    #[test]
    fn the_class_of_a_size_is_the_smallest_that_holds_it() {
        for bytes in 1..=32_768 {
            let class = class_of(bytes).unwrap();
            assert!(class_bytes(class) >= bytes as u64);
            assert!(class == 0 || class_bytes(class - 1) < bytes as u64, "{bytes}");
        }
        assert_eq!(class_of(32_769), None);
    }
}
