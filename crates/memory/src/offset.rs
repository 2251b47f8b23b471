//! Offsets in a pool.

use crate::layout::CHUNK_BYTES;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offset in a pool, in bytes from its begin. Sizes, numbers of chunks, words within an object and offsets in
/// other files are plain numbers.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolOffset(u64);

impl PoolOffset {
    /// Offset of no object, as the pool begins with its header; stored as 0.
    pub const NULL: PoolOffset = PoolOffset(0);

    /// Offset so many bytes behind the begin of the pool.
    #[inline]
    pub const fn new(bytes: u64) -> PoolOffset {
        PoolOffset(bytes)
    }

    /// Bytes from the begin of the pool, and of its file.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Decodes a stored word.
    #[inline]
    pub const fn from_word(word: u64) -> PoolOffset {
        PoolOffset(word)
    }

    /// Word to be stored.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns true for the offset of no object.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Itself, unless it is that of no object.
    #[inline]
    pub fn non_null(self) -> Option<PoolOffset> {
        (!self.is_null()).then_some(self)
    }

    /// Offset of a chunk, numbered through all extents.
    #[inline]
    pub(crate) const fn of_chunk(chunk: u64) -> PoolOffset {
        PoolOffset(chunk * CHUNK_BYTES)
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
    pub const fn plus(self, bytes: u64) -> PoolOffset {
        PoolOffset(self.0 + bytes)
    }

    /// As [`PoolOffset::plus`], for numbers that may be damaged; none if the sum is no offset.
    #[inline]
    pub const fn checked_plus(self, bytes: u64) -> Option<PoolOffset> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(PoolOffset(sum)),
            None => None,
        }
    }

    /// As [`PoolOffset::plus`], for numbers that may be damaged; the sum may lie anywhere.
    #[inline]
    pub const fn wrapping_plus(self, bytes: u64) -> PoolOffset {
        PoolOffset(self.0.wrapping_add(bytes))
    }

    /// Offset so many bytes before it.
    #[inline]
    pub const fn minus(self, bytes: u64) -> PoolOffset {
        PoolOffset(self.0 - bytes)
    }

    /// Offset of a word of the object that begins here.
    #[inline]
    pub const fn word(self, index: usize) -> PoolOffset {
        PoolOffset(self.0 + index as u64 * 8)
    }

    /// Offset of a block of a row of equal ones that begins here.
    #[inline]
    pub const fn block(self, index: u64, bytes: u64) -> PoolOffset {
        PoolOffset(self.0 + index * bytes)
    }

    /// Bytes from an offset at or before it.
    #[inline]
    pub const fn since(self, start: PoolOffset) -> u64 {
        self.0 - start.0
    }

    /// Number of the block of so many bytes that it lies in, from the begin of the pool.
    #[inline]
    pub const fn block_number(self, bytes: u64) -> u64 {
        self.0 / bytes
    }

    /// Returns true if it is a multiple of so many bytes.
    #[inline]
    pub const fn is_aligned(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }

    /// Last offset up to it that is a multiple of so many bytes.
    #[inline]
    pub const fn aligned_down(self, bytes: u64) -> PoolOffset {
        PoolOffset(self.0 - self.0 % bytes)
    }
}

/// Decimal number, as messages show offsets.
impl fmt::Display for PoolOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number alone.
impl fmt::Debug for PoolOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Hexadecimal, as messages show offsets.
impl fmt::LowerHex for PoolOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// Offset that threads share.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct AtomicPoolOffset(AtomicU64);

impl AtomicPoolOffset {
    /// Shares an offset.
    pub const fn new(offset: PoolOffset) -> AtomicPoolOffset {
        AtomicPoolOffset(AtomicU64::new(offset.0))
    }

    /// Loads the offset.
    #[inline]
    pub fn load(&self, order: Ordering) -> PoolOffset {
        PoolOffset(self.0.load(order))
    }

    /// Stores an offset.
    #[inline]
    pub fn store(&self, offset: PoolOffset, order: Ordering) {
        self.0.store(offset.0, order);
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
    }

    #[test]
    fn named_methods_do_the_arithmetic() {
        let object = PoolOffset::new(4096);
        assert_eq!((object.word(3), object.block(2, 192)), (PoolOffset::new(4120), PoolOffset::new(4480)));
        assert_eq!((object.plus(100).since(object), object.plus(100).minus(100)), (100, object));
        assert_eq!((object.plus(70).aligned_down(64), object.aligned_down(64)), (object.plus(64), object));
        assert_eq!((object.checked_plus(8), object.checked_plus(u64::MAX)), (Some(object.plus(8)), None));
        assert_eq!((object.non_null(), PoolOffset::NULL.non_null()), (Some(object), None));
        assert_eq!((object.block_number(4096), object.minus(1).block_number(4096)), (1, 0));
        assert!(PoolOffset::NULL.is_null() && !object.is_null());
        assert_eq!(PoolOffset::from_word(object.to_word()), object);
    }

    #[test]
    fn messages_show_the_number() {
        let offset = PoolOffset::of_chunk(1);
        assert_eq!(
            format!("{offset} {offset:?} {offset:#x} {:x?}", (offset, 8)),
            "65536 65536 0x10000 (10000, 8)"
        );
    }

    #[test]
    fn shared_offsets_load_as_stored() {
        let shared = AtomicPoolOffset::default();
        assert!(shared.load(Ordering::Acquire).is_null());
        shared.store(PoolOffset::new(64), Ordering::Release);
        assert_eq!(shared.load(Ordering::Acquire), PoolOffset::new(64));
    }
}
