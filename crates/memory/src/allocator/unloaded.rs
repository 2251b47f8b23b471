//! Lazily loaded maps of extents.
//!
//! An open pool loads the maps of an extent when it needs space that is not found elsewhere, when an object
//! there is freed, or ahead of need by [`Pool::read_maps`](crate::Pool::read_maps): so opening costs the same
//! whatever the pool holds. Nothing of an extent that is not loaded is reserved, so only the loading thread
//! reads or changes its maps.

use super::{Allocator, Space};
use crate::error::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set of extents that are not loaded.
pub(super) struct UnloadedExtents {
    /// One bit per extent.
    bits: Box<[AtomicU64]>,
    count: AtomicU64,
    /// Lock of the loading thread. While holding it, only locks of the allocator may be taken.
    reading: Mutex<()>,
}

impl UnloadedExtents {
    /// Set of all of `extents` extents.
    pub(super) fn new(extents: u64) -> UnloadedExtents {
        let bit = |extent: u64| u64::from(extent < extents) << (extent % 64);
        let word = |word: u64| AtomicU64::new((word * 64..word * 64 + 64).map(bit).sum());
        UnloadedExtents {
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

    /// Notes that the maps of an extent are loaded.
    fn remove(&self, extent: u64) {
        let bit = 1 << (extent % 64);
        let before = self.bits[(extent / 64) as usize].fetch_and(!bit, Ordering::AcqRel);
        assert!(before & bit != 0, "the maps of extent {extent} were loaded twice");
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Allocator {
    /// Loads the maps of the extent that contains a chunk, unless they are loaded.
    #[inline]
    pub(super) fn load_maps_of(&self, space: &dyn Space, chunk: u64) -> Result<()> {
        if self.unloaded.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let extent = chunk / self.geometry.chunks_per_extent();
        if self.unloaded.has(extent) { self.read_extent(space, extent) } else { Ok(()) }
    }

    #[cold]
    fn read_extent(&self, space: &dyn Space, extent: u64) -> Result<()> {
        let _alone = self.unloaded.reading.lock();
        if self.unloaded.has(extent) {
            self.load(space, extent)?;
            self.unloaded.remove(extent);
        }
        Ok(())
    }

    /// Loads the maps of one more extent; returns false if all are loaded.
    pub(super) fn load_next_maps(&self, space: &dyn Space) -> Result<bool> {
        let Some(extent) = self.unloaded.first() else { return Ok(false) };
        self.read_extent(space, extent)?;
        Ok(true)
    }

    /// Loads all maps that are not loaded yet.
    pub(crate) fn load_all_maps(&self, space: &dyn Space) -> Result<()> {
        while self.load_next_maps(space)? {}
        Ok(())
    }
}
