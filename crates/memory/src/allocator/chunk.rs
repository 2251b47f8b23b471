//! Chunks: their states, encoded in descriptor words, and the offsets of those words.

use super::size_class::CLASSES;
use crate::layout::{BITMAP_BYTES, BITMAPS, CHUNK_BYTES, DESCRIPTORS};
use crate::offset::PoolOffset;

const KIND_SHIFT: u32 = 56;
const KIND_SLAB: u64 = 1;
const KIND_LARGE: u64 = 2;

/// State of a chunk, as its descriptor word encodes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    Free,
    Slab { class: usize },
    Large { chunks: u64 },
}

impl Chunk {
    pub(super) fn decode(word: u64) -> Option<Chunk> {
        let low = word & ((1 << KIND_SHIFT) - 1);
        match word >> KIND_SHIFT {
            0 if low == 0 => Some(Chunk::Free),
            KIND_SLAB if (low as usize) < CLASSES => Some(Chunk::Slab { class: low as usize }),
            KIND_LARGE if low > 0 => Some(Chunk::Large { chunks: low }),
            _ => None,
        }
    }

    /// Returns true if a descriptor can hold the state.
    fn is_sound(self) -> bool {
        match self {
            Chunk::Free => true,
            Chunk::Slab { class } => class < CLASSES,
            Chunk::Large { chunks } => chunks > 0 && chunks < 1 << KIND_SHIFT,
        }
    }

    pub(super) fn encode(self) -> u64 {
        debug_assert!(self.is_sound(), "{self:?} is not a state of a chunk");
        match self {
            Chunk::Free => 0,
            Chunk::Slab { class } => KIND_SLAB << KIND_SHIFT | class as u64,
            Chunk::Large { chunks } => KIND_LARGE << KIND_SHIFT | chunks,
        }
    }
}

/// Geometry of chunks, numbered through all extents. The first of every extent describes the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    chunks_per_extent: u64,
}

impl Geometry {
    pub(super) fn new(extent_bytes: u64) -> Geometry {
        let chunks_per_extent = extent_bytes / CHUNK_BYTES;
        assert!(chunks_per_extent.is_power_of_two(), "extents have a power of two of bytes");
        Geometry { chunks_per_extent }
    }

    pub(super) fn chunks_per_extent(self) -> u64 {
        self.chunks_per_extent
    }

    /// The first byte of the extent that the chunk is in, and the chunk's number in it.
    #[inline]
    fn extent_and_index(self, chunk: u64) -> (PoolOffset, u64) {
        let index = chunk & (self.chunks_per_extent - 1);
        (PoolOffset::of_chunk(chunk - index), index)
    }

    #[inline]
    pub(super) fn descriptor_offset(self, chunk: u64) -> PoolOffset {
        let (extent, index) = self.extent_and_index(chunk);
        extent.plus(DESCRIPTORS + index * 8)
    }

    #[inline]
    pub(super) fn bitmap_offset(self, chunk: u64) -> PoolOffset {
        let (extent, index) = self.extent_and_index(chunk);
        extent.plus(BITMAPS + index * BITMAP_BYTES)
    }

    pub(super) fn same_extent(self, a: u64, b: u64) -> bool {
        a / self.chunks_per_extent == b / self.chunks_per_extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_read_back_and_others_are_refused() {
        for chunk in
            [Chunk::Free, Chunk::Slab { class: 0 }, Chunk::Slab { class: 31 }, Chunk::Large { chunks: 7 }]
        {
            assert_eq!(Chunk::decode(chunk.encode()), Some(chunk));
        }
        for word in [5, KIND_SLAB << KIND_SHIFT | CLASSES as u64, KIND_LARGE << KIND_SHIFT, 3 << KIND_SHIFT] {
            assert_eq!(Chunk::decode(word), None, "{word:#x}");
        }
    }
}
