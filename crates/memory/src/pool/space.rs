//! What the pool gives the allocator, and gives back to the disk.
//!
//! Giving blocks back: free granules (a chunk on `journal`, 2 MiB elsewhere, or less, see [`crate::allocator`]) are taken out of the free map, so
//! that nobody uses them; a checkpoint makes their free state durable and moves the journal's replay position past
//! every record that reaches into them; then the file gives the blocks back, and the granules return to the map as
//! holes. A chunk of a hole gets its blocks back before it is used, where a full disk is a failed allocation and
//! nothing else.
//!
//! A crash before the blocks are gone leaves free chunks with blocks. A crash after leaves free chunks without: what
//! was free at open is taken for a hole. In between, the blocks are gone and the durable maps say free; nothing
//! that is replayed, from the journal or from a redo lane, writes there. A freed object may be looked at until its
//! epochs are over, and only then are its chunks in the free map.
//!
//! The file is not made shorter: each extent begins with the chunk that describes it, and a count of extents that
//! goes down would have to be ordered with the length of the file and with everything in the journal.

use super::{Files, Pool};
use crate::allocator::{HeldSpace, Space, SpaceStats};
use crate::domain::Domain;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::mutants::{active, intact};
use std::path::Path;
use std::sync::atomic::AtomicU64;

impl Pool {
    /// Where the pool's bytes are, and how fragmented they are. Cheap but for the first time, which reads what
    /// [`Pool::read_maps`] does. An extent with damaged maps counts as full.
    pub fn space(&self) -> SpaceStats {
        if let Err(error) = self.read_maps() {
            tracing::error!(%error, "the space of a pool is not known whole");
        }
        self.allocator.space_stats(self.extents())
    }

    /// Gives the blocks of free space back to the disk, in aligned pieces of 2 MiB, on `journal` of 64 KiB (less where extents
    /// are small), and on `journal` the DRAM behind them; on `volatile` with a budget the memory, which then counts no
    /// longer. Returns of how many bytes. Costs a checkpoint. The pool stays as long, and asks for blocks or memory again
    /// when it needs them. What threads keep and slabs without objects become free space first, on every domain.
    /// [`Pool::close`] does this.
    pub fn return_space(&self) -> Result<u64> {
        self.return_space_beyond(0)
    }

    /// As [`Pool::return_space`], but so many free bytes stay, those at the lowest offsets: what is allocated meanwhile finds
    /// them, where a pool without free space would become longer.
    pub fn return_space_beyond(&self, kept_bytes: u64) -> Result<u64> {
        self.check_healthy()?;
        let free = self.allocator.hold_free_space(self, kept_bytes)?;
        if let (Some(files), false) = (&self.files, free.is_empty()) {
            if active("released-before-freed") {
                self.release(files, &free)?;
            }
            self.persist(Durability::Sync)?;
            self.checkpoint()?;
        }
        self.give_back(free)
    }

    /// Tells whether free space can go back to anything: a file, or a budget.
    pub fn can_return_space(&self) -> bool {
        self.files.is_some() || self.held.is_some()
    }

    /// Counts memory of a volatile pool, before it is used, in the budget.
    pub(super) fn hold(&self, bytes: u64) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), |held| Ok(held.lock().try_grow(bytes)?))
    }

    pub(super) fn release_held(&self, bytes: u64) {
        self.held.iter().for_each(|held| held.lock().shrink(bytes));
    }

    /// Gives back the memory of free space.
    fn forget(&self, mut free: HeldSpace<'_>) -> u64 {
        let mut returned = 0;
        for (offset, bytes) in free.ranges() {
            self.mapping.forget(offset, bytes);
            returned += bytes;
        }
        free.given_back();
        self.release_held(returned);
        returned
    }

    /// Gives back blocks of free space, which a checkpoint has found free; returns of how many bytes.
    pub(super) fn give_back(&self, mut free: HeldSpace<'_>) -> Result<u64> {
        if self.held.is_some() {
            return Ok(self.forget(free));
        }
        let (Some(files), false) = (&self.files, free.is_empty()) else { return Ok(0) };
        if let Domain::Journal(journal) = &self.domain
            && intact("checksums-of-holes-kept")
        {
            journal.forget_checksums(free.ranges())?;
        }
        let returned = self.release(files, &free)?;
        free.given_back();
        drop(free);
        self.small_pages.forget_used(&self.mapping, &self.allocator);
        Ok(returned)
    }

    fn release(&self, files: &Files, free: &HeldSpace<'_>) -> Result<u64> {
        let mut returned = 0;
        for (offset, bytes) in free.ranges() {
            // What the file has there changes without a store.
            let _still = match &self.domain {
                Domain::Journal(journal) => journal.hold_pages(),
                _ => None,
            };
            files
                .pool
                .release(offset, bytes)
                .map_err(|e| Error::io("give back blocks of", &files.pool_path, &e))?;
            if matches!(self.domain, Domain::Journal(_)) {
                self.small_pages.note_given_back(&self.mapping, offset, bytes);
            }
            self.mapping.forget(offset, bytes);
            returned += bytes;
        }
        Ok(returned)
    }
}

impl Space for Pool {
    fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        self.mapping.words(offset, count)
    }

    fn flush(&self, offset: u64, bytes: usize) {
        Pool::flush(self, offset, bytes);
    }

    fn fence(&self) {
        Pool::fence(self);
    }

    fn pin(&self) -> crossbeam_epoch::Guard {
        Pool::pin(self)
    }

    fn grow(&self) -> Result<u64> {
        self.grow_by_one()
    }

    fn back(&self, offset: u64, bytes: u64) -> Result<()> {
        let Some(files) = &self.files else { return self.hold(bytes) };
        files
            .pool
            .allocate(offset, bytes)
            .map_err(|e| Error::io("get blocks for free space of", &files.pool_path, &e))
    }

    fn counts_memory(&self) -> bool {
        self.held.is_some()
    }

    fn verify(&self, offset: u64, bytes: usize) -> Result<()> {
        Pool::verify(self, offset, bytes)
    }

    fn damaged(&self, offset: u64, what: String) -> Error {
        Error::corrupt(self.file().unwrap_or(Path::new("memory")), offset, what)
    }
}
