//! Extents whose maps nobody has needed yet.
//!
//! A pool that is opened reads the maps of an extent when it needs space that is not found elsewhere, when an object there is
//! freed, or ahead of need by [`Pool::read_maps`](crate::Pool::read_maps): so opening costs the same whatever the pool holds.
//! Nothing of an unread extent is reserved, so nobody but its reader changes or looks at its maps.

use super::{Allocator, Space};
use crate::error::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which they are.
pub(super) struct Unread {
    /// A bit an extent.
    bits: Box<[AtomicU64]>,
    count: AtomicU64,
    /// One reader at a time. Nobody takes another lock but those of the allocator while holding it.
    reading: Mutex<()>,
}

impl Unread {
    /// All of so many extents.
    pub(super) fn new(extents: u64) -> Unread {
        let bit = |extent: u64| u64::from(extent < extents) << (extent % 64);
        let word = |word: u64| AtomicU64::new((word * 64..word * 64 + 64).map(bit).sum());
        Unread {
            bits: (0..extents.div_ceil(64)).map(word).collect(),
            count: AtomicU64::new(extents),
            reading: Mutex::default(),
        }
    }

    fn has(&self, extent: u64) -> bool {
        let word = self.bits.get((extent / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (extent % 64) & 1 == 1)
    }

    fn first(&self) -> Option<u64> {
        let words = self.bits.iter().map(|word| word.load(Ordering::Acquire)).enumerate();
        let found = { words }.find(|(_, bits)| *bits != 0);
        found.map(|(word, bits)| word as u64 * 64 + u64::from(bits.trailing_zeros()))
    }

    /// The maps of an extent are in the free maps.
    fn remove(&self, extent: u64) {
        self.bits[(extent / 64) as usize].fetch_and(!(1 << (extent % 64)), Ordering::AcqRel);
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Allocator {
    /// Reads the maps of the extent that a chunk is in, unless they are.
    #[inline]
    pub(super) fn read_maps_of(&self, space: &dyn Space, chunk: u64) -> Result<()> {
        if self.unread.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let extent = chunk / self.geometry.chunks_per_extent();
        if self.unread.has(extent) { self.read_extent(space, extent) } else { Ok(()) }
    }

    #[cold]
    fn read_extent(&self, space: &dyn Space, extent: u64) -> Result<()> {
        let _alone = self.unread.reading.lock();
        if self.unread.has(extent) {
            self.load(space, extent)?;
            self.unread.remove(extent);
        }
        Ok(())
    }

    /// Reads the maps of one more extent; whether there was one.
    pub(super) fn read_next_maps(&self, space: &dyn Space) -> Result<bool> {
        let Some(extent) = self.unread.first() else { return Ok(false) };
        self.read_extent(space, extent)?;
        Ok(true)
    }

    /// Reads all maps that nobody has read yet.
    pub(crate) fn read_all_maps(&self, space: &dyn Space) -> Result<()> {
        while self.read_next_maps(space)? {}
        Ok(())
    }
}
