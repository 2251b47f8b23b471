//! Disk blocks and memory of the pool's free space: allocating them, and freeing them.
//!
//! Freeing blocks: free granules (a chunk on `journal`, 2 MiB elsewhere, or less, see [`crate::allocator`])
//! are taken out of the free map, so that no thread uses them; a checkpoint makes their free state durable
//! and moves the journal's replay position past every record that reaches into them; then the file frees the
//! blocks, and the granules return to the map as holes. A chunk of a hole gets its blocks before it is used,
//! where a full disk is a failed allocation and nothing else.
//!
//! A crash before the blocks are freed leaves free chunks with blocks. A crash after leaves free chunks
//! without: free space at open counts as holes. In between, the blocks are freed and the durable maps say
//! free; nothing that is replayed, from the journal or from a redo lane, writes there. A freed object may be
//! read until its epochs are over, and only then are its chunks in the free map.
//!
//! The file is not made shorter: each extent begins with the chunk that describes it, and a decreasing count
//! of extents would have to be ordered with the length of the file and with everything in the journal.

use super::{Files, Pool};
use crate::allocator::{DetachedSpace, Space, SpaceStats};
use crate::domain::Domain;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::offset::PoolOffset;
use crate::order::step;
use crate::points::{CHECKSUMS_OF_HOLES_FORGOTTEN, FREE_BEFORE_BLOCKS_GO};
use std::path::Path;
use std::sync::atomic::AtomicU64;

impl Pool {
    /// Space statistics of the pool, with fragmentation. Cheap except the first time, which loads the maps as
    /// [`Pool::read_maps`] does. An extent with damaged maps counts as full.
    pub fn space(&self) -> SpaceStats {
        if let Err(error) = self.read_maps() {
            tracing::error!(%error, "the space statistics of a pool are incomplete");
        }
        self.allocator.space_stats(self.extents())
    }

    /// Frees the disk blocks of free space, in aligned pieces of 2 MiB, on `journal` of 64 KiB (less where
    /// extents are small), and on `journal` the DRAM behind them; on `volatile` with a budget releases its
    /// memory. Returns the number of bytes freed. Costs a checkpoint. The length of the pool stays, and
    /// blocks or memory are allocated again when they are needed. Cached objects of threads and slabs without
    /// objects become free space first, on every domain. [`Pool::close`] does this.
    pub fn return_space(&self) -> Result<u64> {
        self.return_space_beyond(0)
    }

    /// As [`Pool::return_space`], but retains `kept_bytes` of free space, those at the lowest offsets: for
    /// allocations meanwhile, which would otherwise grow the pool.
    pub fn return_space_beyond(&self, kept_bytes: u64) -> Result<u64> {
        self.check_healthy()?;
        let free = self.allocator.detach_free_space(self, kept_bytes)?;
        if self.files.is_some() && !free.is_empty() {
            step(FREE_BEFORE_BLOCKS_GO, || {
                self.persist(Durability::Sync)?;
                self.checkpoint()
            })?;
        }
        self.free_blocks(free)
    }

    /// Returns true if free space can be returned to a file or a budget.
    pub fn can_return_space(&self) -> bool {
        self.files.is_some() || self.held.is_some()
    }

    /// Reserves memory of a volatile pool in the budget, before it is used.
    pub(super) fn reserve_memory(&self, bytes: u64) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), |held| Ok(held.lock().try_grow(bytes)?))
    }

    pub(super) fn release_held(&self, bytes: u64) {
        self.held.iter().for_each(|held| held.lock().shrink(bytes));
    }

    /// Releases the memory of free space.
    fn forget(&self, mut free: DetachedSpace<'_>) -> u64 {
        let mut returned = 0;
        for (offset, bytes) in free.ranges() {
            self.mapping.forget(offset.bytes(), bytes);
            returned += bytes;
        }
        free.set_unbacked();
        self.release_held(returned);
        returned
    }

    /// Frees the blocks of free space that a checkpoint has made durable as free; returns the number of
    /// bytes.
    pub(super) fn free_blocks(&self, mut free: DetachedSpace<'_>) -> Result<u64> {
        if self.held.is_some() {
            return Ok(self.forget(free));
        }
        let (Some(files), false) = (&self.files, free.is_empty()) else { return Ok(0) };
        if let Domain::Journal(journal) = &self.domain {
            step(CHECKSUMS_OF_HOLES_FORGOTTEN, || journal.forget_checksums(free.ranges()))?;
        }
        let returned = self.release(files, &free)?;
        free.set_unbacked();
        drop(free);
        self.small_pages.forget_used(&self.mapping, &self.allocator);
        Ok(returned)
    }

    fn release(&self, files: &Files, free: &DetachedSpace<'_>) -> Result<u64> {
        let mut returned = 0;
        for (offset, bytes) in free.ranges() {
            // The content changes in the file, without a store.
            let _still = match &self.domain {
                Domain::Journal(journal) => journal.hold_pages(),
                _ => None,
            };
            files
                .pool
                .release(offset.bytes(), bytes)
                .map_err(|e| Error::io("free blocks of", &files.pool_path, &e))?;
            if matches!(self.domain, Domain::Journal(_)) {
                self.small_pages.note_released(&self.mapping, offset, bytes);
            }
            self.mapping.forget(offset.bytes(), bytes);
            returned += bytes;
        }
        Ok(returned)
    }
}

impl Space for Pool {
    fn words(&self, offset: PoolOffset, count: usize) -> &[AtomicU64] {
        self.mapping.words(offset.bytes(), count)
    }

    fn flush(&self, offset: PoolOffset, bytes: usize) {
        self.flush_range(offset, bytes);
    }

    fn fence(&self) {
        self.domain.fence(&self.mapping);
    }

    fn pin(&self) -> crossbeam_epoch::Guard {
        Pool::pin(self)
    }

    fn grow(&self) -> Result<u64> {
        self.grow_by_one()
    }

    fn back(&self, offset: PoolOffset, bytes: u64) -> Result<()> {
        let Some(files) = &self.files else { return self.reserve_memory(bytes) };
        files
            .pool
            .allocate(offset.bytes(), bytes)
            .map_err(|e| Error::io("allocate blocks of", &files.pool_path, &e))
    }

    fn counts_memory(&self) -> bool {
        self.held.is_some()
    }

    fn verify(&self, offset: PoolOffset, bytes: usize) -> Result<()> {
        Pool::verify(self, offset, bytes)
    }

    fn damaged(&self, offset: PoolOffset, what: String) -> Error {
        Error::corrupt(self.file().unwrap_or(Path::new("memory")), offset.bytes(), what)
    }
}
