//! Offsets in a pool.

use crate::layout::CHUNK_BYTES;
use std::fmt;

/// Offset in a pool, in bytes from its begin. Sizes, numbers of chunks and offsets in other files are plain
/// numbers.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PoolOffset(u64);

impl PoolOffset {
    /// Offset so many bytes behind the begin of the pool.
    #[inline]
    pub(crate) const fn new(bytes: u64) -> PoolOffset {
        PoolOffset(bytes)
    }

    /// Offset of a chunk, numbered through all extents.
    #[inline]
    pub(crate) const fn of_chunk(chunk: u64) -> PoolOffset {
        PoolOffset(chunk * CHUNK_BYTES)
    }

    /// Bytes from the begin of the pool; as a word, its stored form.
    #[inline]
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }

    /// Number of the chunk that it lies in.
    #[inline]
    pub(crate) const fn chunk(self) -> u64 {
        self.0 / CHUNK_BYTES
    }

    /// Bytes from the begin of its chunk.
    #[inline]
    pub(crate) const fn within_chunk(self) -> u64 {
        self.0 % CHUNK_BYTES
    }

    /// Returns true at the begin of a chunk.
    #[inline]
    pub(crate) const fn begins_chunk(self) -> bool {
        self.within_chunk() == 0
    }

    /// Offset so many bytes behind it.
    #[inline]
    pub(crate) const fn plus(self, bytes: u64) -> PoolOffset {
        PoolOffset(self.0 + bytes)
    }

    /// Returns true if it is a multiple of so many bytes.
    #[inline]
    pub(crate) const fn is_aligned(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }
}

/// Hexadecimal, as messages show offsets.
impl fmt::LowerHex for PoolOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_lie_in_chunks() {
        let offset = PoolOffset::of_chunk(3).plus(136);
        assert_eq!((offset.chunk(), offset.within_chunk()), (3, 136));
        assert!(!offset.begins_chunk() && PoolOffset::of_chunk(3).begins_chunk());
        assert!(offset.is_aligned(8) && !offset.is_aligned(64));
        assert_eq!(PoolOffset::new(offset.bytes()), offset);
        assert_eq!(format!("{:#x}", PoolOffset::of_chunk(1)), "0x10000");
    }
}
