//! The pool: one growing range of persistent words with a root directory and an allocator.
//!
//! Invariants:
//! - the extents that the header counts are mapped, and backed by blocks of the pool file;
//! - addresses never change while the pool is open;
//! - a word outside the allocator's and the header's own is changed only by the structure that owns its
//!   object.
//!
//! An orderly close sets the clean mark as the last record and makes a checkpoint. Dropping a pool without
//! [`Pool::close`] is safe: it is opened again as after a crash.

mod allocation_map;
mod backup;
mod inspection;
mod lifecycle;
mod ordering;
mod small_pages;
mod space;

pub use allocation_map::AllocationMap;
pub use backup::BackupReport;
pub use inspection::PoolInfo;
pub(crate) use lifecycle::is_short_memory_requested;
pub(crate) use ordering::rounded_out;

use crate::allocator::{Allocator, Reservation};
use crate::budget::{MemoryBudget, MemoryReservation};
use crate::domain::dax::{FlushChoice, FlushInstruction};
use crate::domain::journal::{JournalOptions, JournalPosition, PagesReport};
#[cfg(feature = "testkit")]
use crate::domain::modelled::{Load, ModelledCost};
use crate::domain::{Domain, DomainChoice, DomainKind};
use crate::durability::Durability;
use crate::env::{Env, StorageFile};
use crate::error::{Error, Result};
use crate::layout::{
    CHUNK_BYTES, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, HEADER_CLEAN, HEADER_EXTENTS, HEADER_UUID,
    ROOT_DIRECTORY, ROOT_ENTRY_BYTES, ROOT_NAME_BYTES_MAX, ROOTS_MAX,
};
use crate::lock::DirectoryLock;
use crate::mapping::{Backing, Mapping, PAGE_BYTES};
use crate::offset::PoolOffset;
use crate::order::{in_order, step};
use crate::placement::{ThreadPlacement, WriteSettings, node_of_device};
use crate::points::{
    CHANGES_AFTER_CLEAN_MARK, CLEAN_MARK, EXTENT_COUNT, EXTENT_COUNTED_LAST, GROWTH_SYNCED,
    OBJECTS_AFTER_EXTENT_COUNT, RETURN_AFTER_FLUSHES,
};
use crate::publication::{Publication, Update};
use crate::stats::PoolStats;
use parking_lot::Mutex;
use small_pages::SmallPages;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The largest address range: pages are numbered by 32 bits.
const ADDRESS_SPACE_BYTES_MAX: u64 = 1 << 43;

/// Options of creating and opening a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The persistence domain.
    pub domain: DomainChoice,
    /// Policy of cache line write-backs on `dax`; see [`FlushChoice`] before you change it.
    pub flush: FlushChoice,
    /// Bytes by which a new pool grows: a power of two, 256 KiB to 16 MiB. An existing pool keeps its own.
    pub extent_bytes: u64,
    /// Bytes of address range to reserve: the maximum to which the pool can grow while it is open. Takes no
    /// memory.
    pub address_space_bytes: u64,
    /// Options of the journal.
    pub journal: JournalOptions,
    /// Clock, randomness, threads and files.
    pub env: Env,
    /// Memory budget of the pool; none: its memory is not counted and not bounded.
    pub memory: Option<Arc<MemoryBudget>>,
    /// Placement of background threads near the pool's device, where the machine has several memory nodes;
    /// see [`ThreadPlacement`]. Threads of a simulated environment are not placed.
    pub near_device: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            domain: DomainChoice::Auto,
            flush: FlushChoice::Always,
            extent_bytes: EXTENT_BYTES_MAX,
            address_space_bytes: 1 << 40,
            journal: JournalOptions::default(),
            env: Env::real(),
            memory: None,
            near_device: true,
        }
    }
}

impl PoolOptions {
    fn validate(&self) -> Result<()> {
        let in_range = (EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&self.extent_bytes);
        if !in_range || !self.extent_bytes.is_power_of_two() {
            return Err(Error::Invalid(format!(
                "extent_bytes is {}; it must be a power of two from {EXTENT_BYTES_MIN} to {EXTENT_BYTES_MAX}",
                self.extent_bytes
            )));
        }
        if !(self.extent_bytes..=ADDRESS_SPACE_BYTES_MAX).contains(&self.address_space_bytes) {
            return Err(Error::Invalid(format!(
                "address_space_bytes is {}; it must be from extent_bytes ({}) to {ADDRESS_SPACE_BYTES_MAX}",
                self.address_space_bytes, self.extent_bytes
            )));
        }
        self.journal.validate()
    }
}

/// Files behind a pool.
struct Files {
    pool: Arc<dyn StorageFile>,
    pool_path: PathBuf,
    _lock: DirectoryLock,
}

/// An open pool; see the [module](self).
pub struct Pool {
    // Before the mapping and the files: its threads use both until it is dropped.
    domain: Domain,
    mapping: Arc<Mapping>,
    allocator: Arc<Allocator>,
    files: Option<Files>,
    env: Env,
    extent_bytes: u64,
    growing: Mutex<()>,
    /// Free directory entries taken by publications in flight.
    root_claims: Mutex<BTreeSet<PoolOffset>>,
    was_clean: bool,
    closed: AtomicBool,
    memory: Option<Arc<MemoryBudget>>,
    /// Reservation of the memory in use, on `volatile` with a budget.
    held: Option<Mutex<MemoryReservation>>,
    /// Ranges in small pages because their memory was partly freed, on `journal`.
    small_pages: SmallPages,
}

impl Pool {
    /// Memory budget of the pool, shared with the crates above; none if the pool was opened without.
    pub fn memory(&self) -> Option<&Arc<MemoryBudget>> {
        self.memory.as_ref()
    }

    /// Domain of the pool.
    pub fn domain(&self) -> DomainKind {
        self.domain.kind()
    }

    /// Instruction that writes cache lines back; none if the domain is not `dax` or needs no write-backs.
    pub fn flush_instruction(&self) -> Option<FlushInstruction> {
        match &self.domain {
            Domain::Dax(dax) => dax.line_flush(),
            _ => None,
        }
    }

    /// Returns true if the pool was closed orderly before. True for a new pool.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Clock, randomness, files, and the placement of background threads.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Placement of the background threads near the pool's device; none: by the system.
    pub fn thread_placement(&self) -> Option<&ThreadPlacement> {
        self.env.threads()
    }

    /// Memory node near the pool's device, read from the kernel now; none if it does not report one, or there
    /// is no device.
    pub fn device_node(&self) -> Option<usize> {
        let file = self.file().filter(|_| !self.env.is_simulated())?;
        node_of_device(file)
    }

    /// Write settings of checkpoints; none on domains without checkpoints.
    pub fn checkpoint_writing(&self) -> Option<WriteSettings> {
        match &self.domain {
            Domain::Journal(journal) => Some(journal.writing()),
            _ => None,
        }
    }

    /// Words at an offset. Panics outside the pool or off the 8-byte grid.
    #[inline]
    pub fn words(&self, offset: PoolOffset, count: usize) -> &[AtomicU64] {
        self.mapping.words(offset.bytes(), count)
    }

    /// One word; see [`Pool::words`].
    #[inline]
    pub fn word(&self, offset: PoolOffset) -> &AtomicU64 {
        &self.mapping.words(offset.bytes(), 1)[0]
    }

    /// As [`Pool::words`], but on `modelled` accesses are not billed until [`Pool::touch`] reports them: for
    /// readers of a large object that use few of its lines.
    #[inline]
    pub fn view(&self, offset: PoolOffset, count: usize) -> &[AtomicU64] {
        self.mapping.view(offset.bytes(), count)
    }

    /// Reports that bytes of a [`Pool::view`] are read or about to be written. Used by `modelled` only.
    #[inline]
    pub fn touch(&self, offset: PoolOffset, bytes: usize) {
        self.mapping.touch(offset.bytes(), bytes);
    }

    /// Returns true if accesses are billed: on `modelled`.
    #[inline]
    pub fn is_billed(&self) -> bool {
        self.mapping.is_billed()
    }

    /// Reports that bytes of the memory beside a `modelled` pool are read or about to be written, as pairs of an address,
    /// of any origin, and a length; their lines are in flight together. Nothing happens on other domains.
    #[cfg(feature = "testkit")]
    pub fn touch_beside(&self, ranges: &[(u64, u64)]) {
        if let Domain::Modelled(modelled) = &self.domain {
            modelled.touched_beside(&self.mapping, ranges);
        }
    }

    /// Modelled cost of a `modelled` pool so far; none on other domains.
    #[cfg(feature = "testkit")]
    pub fn modelled_cost(&self) -> Option<ModelledCost> {
        match &self.domain {
            Domain::Modelled(modelled) => Some(modelled.cost()),
            _ => None,
        }
    }

    /// Sets the other threads that use a `modelled` pool's device from now on. An error on other domains.
    #[cfg(feature = "testkit")]
    pub fn set_modelled_load(&self, load: Load) -> Result<()> {
        match &self.domain {
            Domain::Modelled(modelled) => modelled.set_load(load),
            domain => {
                return Err(Error::Unsupported(format!(
                    "only a modelled pool has a device load; the domain of this one is {}",
                    domain.kind()
                )));
            }
        }
        Ok(())
    }

    /// Prefetches the cache line at an offset. Never fails.
    #[inline]
    pub fn prefetch(&self, offset: PoolOffset) {
        self.mapping.prefetch(offset.bytes());
    }

    /// Calls `f` with the bytes of an object, read from the pool file past the mapping and the page cache. None,
    /// without a call, where reading its [words](Pool::words) is right or better: the object is short, changed since
    /// the last checkpoint, or mostly in memory, or the pool has no file, no direct I/O, or no memory budget. The
    /// bytes must not change until `f` returns. A read that fails is an error.
    pub fn read_direct<R>(
        &self,
        offset: PoolOffset,
        bytes: usize,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        match &self.domain {
            Domain::Journal(journal) => journal.read_direct(offset, bytes, f),
            _ => Ok(None),
        }
    }

    /// Starts to load the pages at these offsets from the disk, if the pool is larger than its memory: all of
    /// them are then on their way before the first is needed. Cost: nothing in other pools; else a system
    /// call for each run of pages.
    pub fn read_ahead(&self, offsets: impl Iterator<Item = PoolOffset>) {
        if !self.domain.loads_single_pages() {
            return;
        }
        let mut pages: Vec<u64> = offsets.map(|offset| offset.bytes() / PAGE_BYTES).collect();
        pages.sort_unstable();
        pages.dedup();
        for run in pages.chunk_by(|page, next| next - page <= 2) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let bytes = (last - first + 1) * PAGE_BYTES;
            let start = first * PAGE_BYTES;
            debug_assert!(first <= last, "a run of pages goes forwards");
            if start + bytes <= self.mapping.mapped_bytes() {
                self.mapping.read_ahead(start, bytes);
            }
        }
    }

    /// Returns true if a publication with this many written words, and everything that this thread has
    /// flushed since its last fence, survive a crash together or not at all. Then no fence is needed between
    /// them, and none before the publication.
    #[inline]
    pub fn publishes_at_once(&self, written_words: usize) -> bool {
        self.domain.publishes_at_once(written_words)
    }

    /// Waits while the journal has no room, because its device or a checkpoint is behind. To be called before
    /// latches are taken, by a caller that is about to flush or publish: holders of latches draw on a
    /// reserve, so that no thread waits for the device through them. Costs two loads; on the other domains
    /// nothing.
    #[inline]
    pub fn wait_for_room(&self) {
        self.domain.wait_for_room();
    }

    /// Returns when everything that this thread flushed before is durable.
    pub fn sync(&self) -> Result<()> {
        self.persist(Durability::Sync)
    }

    /// As [`Pool::sync`] for `Sync`; for the other levels arranges that it becomes durable in time, and
    /// reports an earlier failure.
    pub fn persist(&self, durability: Durability) -> Result<()> {
        self.check_healthy()?;
        self.fence_at(RETURN_AFTER_FLUSHES);
        self.domain.persist(durability)
    }

    /// Position of the journal behind all that is fenced; none on domains without a journal, where that is durable.
    pub fn appended(&self) -> Option<JournalPosition> {
        match &self.domain {
            Domain::Journal(journal) => Some(journal.appended()),
            _ => None,
        }
    }

    /// Returns true if all that was fenced when [`Pool::appended`] returned a position survives a power failure.
    pub fn is_durable(&self, appended: Option<JournalPosition>) -> bool {
        match (&self.domain, appended) {
            (Domain::Journal(journal), Some(position)) => position <= journal.durable(),
            _ => true,
        }
    }

    /// An error once the pool is closed or a write has failed.
    #[inline]
    pub fn check_healthy(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.domain.check_healthy()
    }

    /// Brings the pool file up to date, so that a recovery has little to replay. Does nothing on domains but
    /// `journal`.
    pub fn checkpoint(&self) -> Result<()> {
        match &self.domain {
            Domain::Journal(journal) => journal.checkpoint(),
            _ => Ok(()),
        }
    }

    /// Verifies the content of a range on the medium, once per open: on `journal` the checksums of the pool
    /// file's pages, elsewhere nothing. Called before content is trusted. Cost: a load if it was verified,
    /// else a read of a page of 4 KiB.
    #[inline]
    pub fn verify(&self, offset: PoolOffset, bytes: usize) -> Result<()> {
        match &self.domain {
            Domain::Journal(journal) => journal.verify(offset, bytes as u64),
            _ => Ok(()),
        }
    }

    /// As [`Pool::verify`], and with the same read verifies what lies beside the range: for callers that will
    /// need that soon. Damage beside the range is no error here, but of the [`Pool::verify`] of that range.
    /// Cost: a load if it was verified, else a read of 64 KiB.
    pub fn verify_with_neighbours(&self, offset: PoolOffset, bytes: usize) -> Result<()> {
        if let Domain::Journal(journal) = &self.domain {
            journal.verify_ahead(PoolOffset::of_chunk(offset.chunk()), CHUNK_BYTES)?;
        }
        self.verify(offset, bytes)
    }

    /// Verifies all pages of the pool file; `None` on domains without checksums of pages. `progress` is
    /// called with the number of bytes done. Checkpoints pause meanwhile.
    pub fn verify_pages(&self, progress: impl FnMut(u64)) -> Result<Option<PagesReport>> {
        match &self.domain {
            Domain::Journal(journal) => Ok(Some(journal.verify_pages(progress)?)),
            _ => Ok(None),
        }
    }

    /// Reserves an object of at least `bytes`, 64-byte aligned (256-byte multiples below 1 KiB and 1 KiB
    /// multiples above are aligned to 256). Its content is undefined; nothing persistent changes before a
    /// publication includes it.
    #[inline]
    pub fn reserve(&self, bytes: usize) -> Result<Reservation<'_>> {
        debug_assert!(bytes > 0, "an object has at least one byte");
        self.check_healthy()?;
        self.allocator.reserve(self, bytes)
    }

    /// Reserves an object of `bytes` as [`Pool::reserve`] does, before the one at `offset`, if that lies in a
    /// part of the pool that is to become free: called on a rewrite of an object, so that slabs far back
    /// become empty. `None`, in most cases after one load, if the object need not move.
    #[inline]
    pub fn reserve_before(&self, offset: PoolOffset, bytes: usize) -> Result<Option<Reservation<'_>>> {
        debug_assert!(bytes > 0, "an object has at least one byte");
        self.allocator.reserve_before(self, offset, bytes)
    }

    /// Determines anew which objects should move when they are rewritten ([`Pool::reserve_before`]). Cost: a
    /// visit of each slab that is partly used, under the lock of its size class; meant for every few seconds.
    pub fn pack(&self) {
        self.allocator.pack(self);
    }

    /// An empty publication.
    #[inline]
    pub fn publication(&self) -> Publication<'_> {
        Publication::new(self)
    }

    /// Usable bytes of an allocated object. Panics if there is none at the offset.
    pub fn object_bytes(&self, offset: PoolOffset) -> usize {
        self.allocator.object_bytes(self, offset) as usize
    }

    /// Loads the allocation maps that are not loaded yet: ahead of need, or to check them. Cost: about 20 us
    /// for 16 MiB of the pool.
    pub fn read_maps(&self) -> Result<()> {
        self.allocator.load_all_maps(self)
    }

    /// Visits every allocated object, as (offset, bytes); for checks. Not a snapshot if others allocate
    /// meanwhile. Panics if the maps are damaged, which [`Pool::read_maps`] reports.
    pub fn for_each_object(&self, visit: impl FnMut(PoolOffset, u64)) {
        self.allocator.for_each_object(self, self.extents(), visit);
    }

    /// Offset of a root object.
    pub fn root(&self, name: &str) -> Option<PoolOffset> {
        let entry = self.root_entry(name)?;
        Some(PoolOffset::from_word(self.word(entry).load(Ordering::Acquire)))
    }

    /// Names of all root objects, with their offsets.
    pub fn roots(&self) -> Vec<(String, PoolOffset)> {
        let entries = (0..ROOTS_MAX as u64).map(|i| self.words(ROOT_DIRECTORY.block(i, ROOT_ENTRY_BYTES), 8));
        let in_use = entries.filter(|words| words[0].load(Ordering::Acquire) != 0);
        let named = in_use.map(|words| {
            let bytes: Vec<u8> =
                words[2..].iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
            let length = (words[1].load(Ordering::Relaxed) as usize).min(ROOT_NAME_BYTES_MAX);
            let offset = PoolOffset::from_word(words[0].load(Ordering::Acquire));
            (String::from_utf8_lossy(&bytes[..length]).into_owned(), offset)
        });
        named.collect()
    }

    /// Words at an offset, if they are inside the pool and on the 8-byte grid: for offsets that may be
    /// damaged.
    #[inline]
    pub fn try_words(&self, offset: PoolOffset, count: usize) -> Option<&[AtomicU64]> {
        let end = offset.checked_plus((count as u64).checked_mul(8)?)?;
        (offset.is_aligned(8) && end.bytes() <= self.mapping.mapped_bytes())
            .then(|| self.words(offset, count))
    }

    /// Returns true if so many bytes from an offset on lie inside the pool: for offsets that may be damaged.
    #[inline]
    pub fn contains(&self, offset: PoolOffset, bytes: u64) -> bool {
        offset.checked_plus(bytes).is_some_and(|end| end.bytes() <= self.bytes())
    }

    /// File named in reports of damage: the pool file, or none.
    pub fn file(&self) -> Option<&std::path::Path> {
        self.files.as_ref().map(|files| files.pool_path.as_path())
    }

    /// Directory entry of a name in use.
    pub(crate) fn root_entry(&self, name: &str) -> Option<PoolOffset> {
        (0..ROOTS_MAX as u64).map(|i| ROOT_DIRECTORY.block(i, ROOT_ENTRY_BYTES)).find(|&entry| {
            let words = self.words(entry, 8);
            if words[0].load(Ordering::Acquire) == 0 {
                return false;
            }
            let mut stored = [0u8; ROOT_NAME_BYTES_MAX];
            for (bytes, word) in stored.chunks_exact_mut(8).zip(&words[2..]) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            let length = words[1].load(Ordering::Relaxed) as usize;
            stored.get(..length) == Some(name.as_bytes())
        })
    }

    /// Prevents the reuse of objects that are freed from now on while the guard lives. Cheap, and may be
    /// nested; holding one for long delays the reuse of memory.
    #[inline]
    pub fn pin(&self) -> crossbeam_epoch::Guard {
        match &self.domain {
            // A guard of its own: the reuse of memory must not depend on what runs beside a history.
            #[cfg(feature = "testkit")]
            Domain::Crashing(crashing) => crashing.pin(),
            _ => crossbeam_epoch::pin(),
        }
    }

    /// Passes the observer of a crashing pool the states that a crash now would leave.
    #[cfg(feature = "testkit")]
    pub(crate) fn observe_crash(&self) {
        if let Domain::Crashing(crashing) = &self.domain {
            crashing.observe(&self.mapping);
        }
    }

    /// UUID of the pool, chosen at its creation.
    pub fn uuid(&self) -> [u64; 2] {
        let words = self.words(HEADER_UUID, 2);
        [0, 1].map(|at| words[at].load(Ordering::Relaxed))
    }

    /// Bytes of the address range: the maximum to which the pool can grow while it is open.
    pub fn address_space_bytes(&self) -> u64 {
        self.mapping.capacity_bytes()
    }

    /// Bytes of the pool: the end of its offsets.
    pub fn bytes(&self) -> u64 {
        self.extents() * self.extent_bytes
    }

    /// Statistics of the pool.
    pub fn stats(&self) -> PoolStats {
        let mut stats = PoolStats { pool_bytes: self.bytes(), ..PoolStats::default() };
        self.domain.add_stats(&mut stats);
        stats.allocated_bytes = self.space().used_bytes();
        stats
    }

    /// Marks the pool clean, makes everything durable and refuses all further changes. All writers must have
    /// stopped. Calling it again does nothing.
    pub fn close(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.domain.check_healthy()?;
        // Freed at the very end: the clean mark makes a checkpoint anyway.
        let free = self.allocator.detach_free_space(self, 0);
        // Both append or fence what this thread has flushed.
        if let Domain::Journal(journal) = &self.domain {
            journal.close(HEADER_CLEAN)?;
        } else {
            self.set_clean(true);
            self.persist(Durability::Sync)?;
        }
        if let Err(error) = free.and_then(|free| self.free_blocks(free)) {
            // Only space is lost.
            tracing::warn!(%error, "could not release free space of the pool file");
        }
        self.closed.store(true, Ordering::Release);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn drop_clean_pages(&self) -> u64 {
        if let Domain::Journal(journal) = &self.domain { journal.drop_clean_pages() } else { 0 }
    }

    #[cfg(all(test, not(feature = "mutants")))]
    pub(crate) fn make_huge_pages(&self) -> u64 {
        if let Domain::Journal(journal) = &self.domain { journal.make_huge_pages() } else { 0 }
    }

    #[cfg(test)]
    pub(crate) fn stored_pages(&self) -> u64 {
        if let Domain::Journal(journal) = &self.domain { journal.stored_pages() } else { 0 }
    }

    /// Stores the mark of a clean close, flushed but not fenced.
    fn set_clean(&self, clean: bool) {
        self.word(HEADER_CLEAN).store(u64::from(clean), Ordering::Release);
        self.flush_word_at(HEADER_CLEAN, CLEAN_MARK);
    }

    /// Takes the mark back before the first change.
    fn begin_changes(&self) {
        self.set_clean(false);
        self.fence_at(CHANGES_AFTER_CLEAN_MARK);
    }

    fn extents(&self) -> u64 {
        self.word(HEADER_EXTENTS).load(Ordering::Acquire)
    }

    pub(crate) fn root_claims(&self) -> &Mutex<BTreeSet<PoolOffset>> {
        &self.root_claims
    }

    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    #[inline]
    pub(crate) fn domain_publish(
        &self,
        flushes: &[(PoolOffset, usize)],
        writes: &[(PoolOffset, u64)],
        updates: &[Update],
    ) {
        self.domain.publish(&self.mapping, flushes, writes, updates);
    }

    /// Grows the pool by one extent: blocks on the disk first, then the mapping, then the header's count.
    fn grow_by_one(&self) -> Result<u64> {
        let _alone = self.growing.lock();
        let extents = self.extents();
        assert!(extents > 0, "a pool has the extent of its header");
        let start = extents * self.extent_bytes;
        let end = start + self.extent_bytes;
        let limit = self.mapping.capacity_bytes();
        if end > limit {
            let what = format!("the pool has {start} bytes and its address range ends at {limit}");
            return Err(Error::OutOfSpace { what });
        }
        if let Domain::Journal(journal) = &self.domain {
            journal.make_room(end)?;
        }
        // The memory of the rest of the extent is reserved on use.
        self.reserve_memory(self.allocator.granule_bytes())?;
        if let Some(files) = &self.files {
            files
                .pool
                .allocate(start, self.extent_bytes)
                // The journal's own syncs say nothing about this file's size.
                .and_then(|()| step(GROWTH_SYNCED, || files.pool.sync_data()))
                .map_err(|e| Error::io("extend", &files.pool_path, &e))?;
        }
        // The count publishes the extent: nothing in it is used before this word, and its flush comes before
        // theirs.
        let there = || self.map_up_to(end);
        in_order(EXTENT_COUNTED_LAST, there, || {
            self.count_extents(extents + 1);
            Ok(())
        })?;
        Ok(extents + 1)
    }

    /// Maps the pool's last extent, which ends there.
    fn map_up_to(&self, end: u64) -> Result<()> {
        debug_assert!(end.is_multiple_of(self.extent_bytes), "a pool ends with an extent, not at {end:#x}");
        // A crash between growing the file and counting the extent left it mapped at open.
        if self.mapping.mapped_bytes() < end {
            let mapped = match (&self.domain, &self.files) {
                (Domain::Dax(dax), Some(files)) => {
                    let descriptor = files.pool.descriptor();
                    let backing = match dax.kind() {
                        DomainKind::Dax => Backing::SharedSync(descriptor),
                        _ => Backing::Shared(descriptor),
                    };
                    self.mapping.grow(self.extent_bytes, &backing)
                }
                // New extents are zero on the file too; DRAM pages save reading them.
                _ => self.mapping.grow(self.extent_bytes, &Backing::Anonymous),
            };
            mapped.map_err(|e| {
                self.release_held(self.allocator.granule_bytes());
                Error::OutOfSpace { what: format!("map {} bytes: {e}", self.extent_bytes) }
            })?;
        }
        #[cfg(feature = "testkit")]
        if let Domain::Crashing(crashing) = &self.domain {
            crashing.grow(end);
        }
        Ok(())
    }

    fn count_extents(&self, extents: u64) {
        assert!(extents > self.extents(), "the number of extents only grows: {extents}");
        self.word(HEADER_EXTENTS).store(extents, Ordering::Release);
        self.flush_word_at(HEADER_EXTENTS, EXTENT_COUNT);
        self.fence_at(OBJECTS_AFTER_EXTENT_COUNT);
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("domain", &self.domain()).field("extents", &self.extents()).finish()
    }
}
