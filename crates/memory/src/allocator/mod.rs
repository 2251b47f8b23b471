//! Failure-atomic, leak-free allocation: reserve, initialise, publish.
//!
//! A chunk of 64 KiB is free, a slab of objects of one size class, or part of a large object. Persistent
//! words alone tell what is allocated: the slab bitmaps and the chunk descriptors ([`crate::layout`]). Free
//! maps in DRAM mirror them, without the reserved objects.
//!
//! - [`Allocator::reserve`] takes from the DRAM maps; nothing persistent changes, so a crash releases it.
//! - The owner initialises and flushes the object.
//! - A [`crate::Publication`] sets the allocation bit together with the pointer that makes the object
//!   reachable. So after any crash every allocated object is reachable, and nothing reachable is free.
//! - Freeing clears the bit in a publication. The memory is handed out again only when no reader can still
//!   hold the old pointer (epochs).
//!
//! A free chunk becomes a slab by one store of its descriptor, after its (zero) bitmap is fenced: an empty
//! slab is still free space. Slabs that are empty become free chunks again, all but a few per class at once
//! and the rest when chunks run out.
//!
//! ```text
//! reserve ── cache of the thread ── slabs of the class ── free chunks ── one extent more
//!               ▲   batches of up to 64     ▲  all caches emptied, before ─┘
//! free ── retired batch ── (epochs) ────────┘
//! ```
//!
//! Locks: a thread's cache, a class and the free chunks are locked one at a time; only `growth` is held while
//! others are taken. A thread that holds one of the first three neither flushes, fences nor pins an epoch,
//! since freed objects come back in whichever thread collects them.

mod cache;
mod chunk;
mod free_chunks;
mod list_memory;
mod load;
mod packing;
mod size_class;
mod slab;
mod space;
mod unloaded;

pub use space::{ClassSpace, SpaceStats};

use crate::budget::MemoryBudget;
use crate::error::{Error, Result};
use crate::layout::{BITMAP_BYTES, BITMAP_WORDS, CHUNK_BYTES, EXTENT_BYTES_MAX};
use crate::offset::PoolOffset;
use crate::order;
use crate::points::{CHUNK_DESCRIPTOR, OBJECTS_AFTER_DESCRIPTOR, SLAB_AFTER_BITMAP, SLAB_BITMAP};
use crate::publication::{Operation, Update};
use cache::{RetiredObject, ThreadCaches, batch_of};
use chunk::{Chunk, Geometry};
use free_chunks::{ChunkRun, FreeChunks};
use list_memory::{CountedList, ListMemory};
use packing::PackingLines;
use parking_lot::Mutex;
use size_class::{CLASSES, class_bytes, class_of, object_index};
use slab::ClassSlabs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use unloaded::UnloadedExtents;

/// The largest object: the chunks of the largest extent, minus the one that describes it. With smaller
/// extents the limit is smaller in proportion.
pub const OBJECT_BYTES_MAX: u64 = EXTENT_BYTES_MAX - CHUNK_BYTES;

/// Number of slabs of a class per empty slab that the class retains for its next objects, beside the first.
const SLABS_PER_EMPTY_KEPT: u64 = 32;

/// Maximum number of attempts to grow a full pool while freed objects still wait for readers.
const GROWTH_RETRIES: u32 = 64;

/// Number of epoch advances when space is short.
const EPOCHS_WAITED: usize = 3;

/// Services that the allocator needs from its pool.
pub(crate) trait Space {
    fn words(&self, offset: PoolOffset, count: usize) -> &[AtomicU64];
    fn flush(&self, offset: PoolOffset, bytes: usize);
    fn fence(&self);
    /// Keeps freed objects from being reused while the guard lives.
    fn pin(&self) -> crossbeam_epoch::Guard;
    /// Makes the pool one extent longer; returns the number of extents.
    fn grow(&self) -> Result<u64>;
    /// Allocates the disk blocks of a range of the pool, or counts its memory.
    fn back(&self, offset: PoolOffset, bytes: u64) -> Result<()>;
    /// Returns true if free chunks have no memory until [`Space::back`] is called.
    fn counts_memory(&self) -> bool;
    /// Verifies the content of a range on the medium.
    fn verify(&self, offset: PoolOffset, bytes: usize) -> Result<()>;
    /// Error that reports damage at an offset.
    fn damaged(&self, offset: PoolOffset, what: String) -> Error;
}

/// The DRAM side of allocation; shared with deferred frees.
pub(crate) struct Allocator {
    geometry: Geometry,
    caches: ThreadCaches,
    classes: Vec<CountedList<ClassSlabs>>,
    free_chunks: CountedList<FreeChunks>,
    /// Lock of the one thread that gathers free space and then grows the pool.
    growth: Mutex<()>,
    unloaded: UnloadedExtents,
    lines: PackingLines,
    /// True if a class has more empty slabs than it retains.
    has_excess: AtomicBool,
    /// Bytes of freed objects that wait for an epoch, by class; the last is for large objects.
    waiting_bytes: [AtomicU64; CLASSES + 1],
}

/// Object reserved for its owner; it is allocated once a publication includes it. Dropping releases it.
#[must_use = "a dropped reservation is released"]
pub struct Reservation<'p> {
    allocator: &'p Allocator,
    offset: PoolOffset,
    bytes: usize,
}

impl Reservation<'_> {
    /// Pool offset of the object. Its content is undefined: that of its last use.
    #[inline]
    pub fn offset(&self) -> PoolOffset {
        self.offset
    }

    /// Bytes of the object; at least the requested ones.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Update that sets the allocation bit.
    #[inline]
    pub(crate) fn allocation(&self) -> Update {
        self.allocator.allocation_update(self.offset, self.bytes as u64)
    }

    /// Makes the caller responsible for releasing the object: (offset, bytes).
    #[inline]
    pub(crate) fn hand_over(self) -> (PoolOffset, u64) {
        let object = (self.offset, self.bytes as u64);
        std::mem::forget(self);
        object
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.allocator.unreserve(self.offset, self.bytes as u64);
    }
}

/// Free space taken out of the maps until the value is dropped. It returns as space that may have no blocks.
pub(crate) struct DetachedSpace<'p> {
    allocator: &'p Allocator,
    granules: Vec<ChunkRun>,
    is_unbacked: bool,
}

impl DetachedSpace<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.granules.is_empty()
    }

    /// Notes that none of the space has blocks any more.
    pub(crate) fn set_unbacked(&mut self) {
        self.is_unbacked = true;
    }

    /// Pool offsets and bytes of the space.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (PoolOffset, u64)> {
        self.granules.iter().map(|run| (PoolOffset::of_chunk(run.first), run.chunks * CHUNK_BYTES))
    }
}

impl Drop for DetachedSpace<'_> {
    fn drop(&mut self) {
        let mut free = self.allocator.free_chunks.lock();
        for granules in &self.granules {
            free.free_unbacked(*granules, self.is_unbacked);
        }
    }
}

impl Allocator {
    /// Allocator of a pool with `extents` extents whose maps are not loaded. Disk blocks are freed in
    /// granules; the lists of free space are counted in `budget`.
    pub(crate) fn new(
        extent_bytes: u64,
        extents: u64,
        granule_bytes: u64,
        budget: Option<&Arc<MemoryBudget>>,
    ) -> Allocator {
        let geometry = Geometry::new(extent_bytes);
        let memory = ListMemory::new(budget);
        Allocator {
            geometry,
            caches: ThreadCaches::new(),
            classes: (0..CLASSES).map(|class| CountedList::new(ClassSlabs::new(class), &memory)).collect(),
            free_chunks: CountedList::new(FreeChunks::new(geometry, granule_bytes), &memory),
            growth: Mutex::default(),
            unloaded: UnloadedExtents::new(extents),
            lines: PackingLines::new(),
            has_excess: AtomicBool::new(false),
            waiting_bytes: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Bytes of a granule: the unit of freed blocks, and the part of each extent that always has blocks.
    pub(crate) fn granule_bytes(&self) -> u64 {
        self.free_chunks.lock().granule_bytes()
    }

    #[inline]
    fn descriptor_offset(&self, chunk: u64) -> PoolOffset {
        self.geometry.descriptor_offset(chunk)
    }

    #[inline]
    fn bitmap_offset(&self, chunk: u64) -> PoolOffset {
        self.geometry.bitmap_offset(chunk)
    }

    #[inline]
    fn chunk(&self, space: &dyn Space, chunk: u64) -> Option<Chunk> {
        Chunk::decode(space.words(self.descriptor_offset(chunk), 1)[0].load(Ordering::Acquire))
    }

    /// Takes an object of at least `bytes` out of the free maps.
    #[inline]
    pub(crate) fn reserve<'p>(
        self: &'p Arc<Self>,
        space: &dyn Space,
        bytes: usize,
    ) -> Result<Reservation<'p>> {
        assert!(bytes > 0, "objects have at least one byte");
        let Some(class) = class_of(bytes) else { return self.reserve_large(space, bytes as u64) };
        let cached = self.caches.own().take(class, bytes);
        let offset = match cached {
            Some(offset) => offset,
            None => self.reserve_in_slab(space, class, bytes)?,
        };
        debug_assert!(class_bytes(class) >= bytes as u64, "objects of a class hold what it was chosen for");
        Ok(Reservation { allocator: self, offset, bytes: class_bytes(class) as usize })
    }

    /// Takes a batch of objects for the thread's cache, and returns one of them.
    #[cold]
    fn reserve_in_slab(
        self: &Arc<Self>,
        space: &dyn Space,
        class: usize,
        bytes: usize,
    ) -> Result<PoolOffset> {
        let mut batch = Vec::with_capacity(batch_of(class));
        loop {
            self.classes[class].lock().take(&mut batch, batch_of(class));
            if !batch.is_empty() {
                let taken = self.caches.own().refill(class, bytes, &batch);
                return Ok(taken.expect("the batch has at least one object"));
            }
            let has_objects = || self.classes[class].lock().counts().1 > 0;
            if let Some(chunk) = self.take_chunks(space, 1, has_objects)? {
                self.make_slab(space, chunk, class);
                self.classes[class].lock().add_empty(chunk);
            }
        }
    }

    /// Turns a free chunk into an empty slab.
    fn make_slab(&self, space: &dyn Space, chunk: u64, class: usize) {
        debug_assert_eq!(self.chunk(space, chunk), Some(Chunk::Free), "a free chunk becomes a slab");
        let bitmap = self.bitmap_offset(chunk);
        for word in space.words(bitmap, BITMAP_WORDS) {
            word.store(0, Ordering::Relaxed);
        }
        order::flush(SLAB_BITMAP, BITMAP_BYTES as usize, |bytes| space.flush(bitmap, bytes));
        order::fence(SLAB_AFTER_BITMAP, || space.fence());
        self.set_descriptor(space, chunk, Chunk::Slab { class });
    }

    fn set_descriptor(&self, space: &dyn Space, chunk: u64, state: Chunk) {
        debug_assert!(
            !chunk.is_multiple_of(self.geometry.chunks_per_extent()),
            "descriptors have no descriptor"
        );
        let offset = self.descriptor_offset(chunk);
        // One word: the chunk is in its old state or in the new one, and holds no object in either.
        space.words(offset, 1)[0].store(state.encode(), Ordering::Release);
        order::flush_word(CHUNK_DESCRIPTOR, || space.flush(offset, 8));
        order::fence(OBJECTS_AFTER_DESCRIPTOR, || space.fence());
    }

    #[cold]
    fn reserve_large<'p>(self: &'p Arc<Self>, space: &dyn Space, bytes: u64) -> Result<Reservation<'p>> {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        let chunks_max = self.geometry.chunks_per_extent() - 1;
        if chunks > chunks_max {
            let limit = chunks_max * CHUNK_BYTES;
            let what = format!("an object of {bytes} bytes is larger than the limit of {limit}");
            return Err(Error::Invalid(what));
        }
        let first = self.take_chunks(space, chunks, || false)?.expect("it ends with chunks or an error");
        debug_assert!(
            self.geometry.same_extent(first, first + chunks - 1),
            "a large object lies in one extent: {chunks} chunks from {first}"
        );
        let bytes = (chunks * CHUNK_BYTES) as usize;
        Ok(Reservation { allocator: self, offset: PoolOffset::of_chunk(first), bytes })
    }

    /// Takes a run of free chunks: from the free map, from extents that are not loaded, from the threads'
    /// caches, or from a new extent. None if `is_served` finds the request met otherwise.
    fn take_chunks(
        self: &Arc<Self>,
        space: &dyn Space,
        count: u64,
        is_served: impl Fn() -> bool,
    ) -> Result<Option<u64>> {
        let take = || {
            let back = |run: ChunkRun| space.back(PoolOffset::of_chunk(run.first), run.chunks * CHUNK_BYTES);
            self.free_chunks.lock().take(count, back)
        };
        if let Some(chunk) = take()? {
            return Ok(Some(chunk));
        }
        while self.load_next_maps(space)? {
            if is_served() {
                return Ok(None);
            }
            if let Some(chunk) = take()? {
                return Ok(Some(chunk));
            }
        }
        let _alone = self.growth.lock();
        let mut refused = 0;
        loop {
            self.gather(space);
            if is_served() {
                return Ok(None);
            }
            if let Some(chunk) = take()? {
                return Ok(Some(chunk));
            }
            match space.grow() {
                Ok(extents) => {
                    assert!(extents > 0, "a pool that has grown has an extent");
                    let first = (extents - 1) * self.geometry.chunks_per_extent() + 1;
                    let chunks = self.geometry.chunks_per_extent() - 1;
                    let run = ChunkRun { first, chunks };
                    if space.counts_memory() {
                        self.free_chunks.lock().free_unbacked(run, true)
                    } else {
                        self.free_chunks.lock().free(run)
                    }
                }
                // Readers release freed objects within microseconds, most of the time.
                Err(Error::OutOfSpace { .. }) if refused < GROWTH_RETRIES && self.is_waiting() => {
                    refused += 1;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns true if there are freed objects that wait for an epoch.
    fn is_waiting(&self) -> bool {
        self.waiting_bytes.iter().any(|bytes| bytes.load(Ordering::Relaxed) > 0)
    }

    /// Gathers free space: objects that no epoch holds any longer, the threads' caches, and slabs without
    /// objects.
    fn gather(self: &Arc<Self>, space: &dyn Space) {
        let mut retired = Vec::new();
        self.caches.for_each(|number, cache| retired.push((number, cache.take_retired())));
        for (number, batch) in retired {
            self.wait_for_readers(space, number, batch);
        }
        // Each advances the epoch by one unless an old guard blocks it; a batch is free after two.
        for _ in 0..EPOCHS_WAITED {
            space.pin().flush();
        }
        // After the epochs: some of the freed objects went to the caches.
        let mut kept = Vec::new();
        self.caches.for_each(|_, cache| cache.drain(|class, offsets| kept.push((class, offsets))));
        for (class, offsets) in kept {
            debug_assert!(offsets.iter().all(|offset| !offset.is_null()), "a cached object is in the pool");
            self.give_to_slabs(class, &offsets);
        }
        self.reclaim_empty_slabs(space, |_| 0);
    }

    /// Takes all free granules whose blocks this process has not freed out of the free map, except the lowest
    /// `kept_bytes`, until the value is dropped.
    pub(crate) fn detach_free_space(
        self: &Arc<Self>,
        space: &dyn Space,
        kept_bytes: u64,
    ) -> Result<DetachedSpace<'_>> {
        self.load_all_maps(space)?;
        let _alone = self.growth.lock();
        self.gather(space);
        let granules = self.free_chunks.lock().take_granules(kept_bytes / CHUNK_BYTES);
        Ok(DetachedSpace { allocator: self, granules, is_unbacked: false })
    }

    /// Returns true if blocks in a range were freed and the space has not been used since.
    pub(crate) fn has_hole(&self, offset: PoolOffset, bytes: u64) -> bool {
        let run = ChunkRun { first: offset.chunk(), chunks: bytes / CHUNK_BYTES };
        self.free_chunks.lock().has_hole(run)
    }

    /// Makes free chunks of slabs without objects; each class retains `keep(slabs)` of them.
    fn reclaim_empty_slabs(&self, space: &dyn Space, keep: impl Fn(u64) -> u64) {
        for slabs in &self.classes {
            let empty = {
                let mut slabs = slabs.lock();
                let keep = keep(slabs.counts().0);
                slabs.take_empty(keep)
            };
            for chunk in empty {
                debug_assert!(
                    space
                        .words(self.bitmap_offset(chunk), BITMAP_WORDS)
                        .iter()
                        .all(|w| w.load(Ordering::Acquire) == 0),
                    "a slab that becomes free holds no object: chunk {chunk}"
                );
                self.set_descriptor(space, chunk, Chunk::Free);
                self.free_chunks.lock().free(ChunkRun { first: chunk, chunks: 1 });
            }
        }
    }

    /// Takes a reserved, unused object back.
    pub(crate) fn unreserve(&self, offset: PoolOffset, bytes: u64) {
        match class_of(bytes as usize) {
            Some(class) => {
                let too_many = self.caches.own().put_back(class, offset);
                if !too_many.is_empty() {
                    self.give_to_slabs(class, &too_many);
                }
            }
            None => self.give_to_chunks(offset, bytes),
        }
    }

    fn give_to_chunks(&self, offset: PoolOffset, bytes: u64) {
        assert!(
            offset.begins_chunk() && bytes.is_multiple_of(CHUNK_BYTES),
            "a large object is whole chunks: {offset:#x} (+{bytes})"
        );
        let run = ChunkRun { first: offset.chunk(), chunks: bytes / CHUNK_BYTES };
        self.free_chunks.lock().free(run);
    }

    fn give_to_slabs(&self, class: usize, offsets: &[PoolOffset]) {
        debug_assert!(offsets.iter().all(|offset| !offset.is_null()), "freed objects have a place");
        let mut slabs = self.classes[class].lock();
        offsets.iter().for_each(|offset| slabs.free_object(*offset));
        if slabs.empty_count() > empty_slabs_kept(slabs.counts().0) {
            self.has_excess.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    fn allocation_update(&self, offset: PoolOffset, bytes: u64) -> Update {
        debug_assert!(bytes > 0, "an allocated object has bytes");
        let chunk = offset.chunk();
        match class_of(bytes as usize) {
            Some(class) => {
                let (word, bit) = self.bitmap_bit(offset, chunk, class);
                Update { offset: word, operation: Operation::SetBits, value: bit }
            }
            None => Update {
                offset: self.descriptor_offset(chunk),
                operation: Operation::Set,
                value: Chunk::Large { chunks: bytes / CHUNK_BYTES }.encode(),
            },
        }
    }

    #[inline]
    fn bitmap_bit(&self, offset: PoolOffset, chunk: u64, class: usize) -> (PoolOffset, u64) {
        let (index, rest) = object_index(offset.within_chunk(), class);
        assert!(rest == 0, "offset {offset:#x} is not the start of an object");
        (self.bitmap_offset(chunk).plus(index / 64 * 8), 1 << (index % 64))
    }

    /// Returns the update that frees an object, and its bytes; an error if the maps of its extent are
    /// damaged. Panics if it is not allocated: a double free is a bug that must not reach the medium.
    pub(crate) fn release(&self, space: &dyn Space, offset: PoolOffset) -> Result<(Update, u64)> {
        let chunk = offset.chunk();
        self.load_maps_of(space, chunk)?;
        Ok(match self.chunk(space, chunk) {
            Some(Chunk::Slab { class }) => {
                let (word, bit) = self.bitmap_bit(offset, chunk, class);
                let present = space.words(word, 1)[0].load(Ordering::Acquire);
                assert!(present & bit != 0, "the object at {offset:#x} is freed, but not allocated");
                (Update { offset: word, operation: Operation::ClearBits, value: bit }, class_bytes(class))
            }
            Some(Chunk::Large { chunks }) if offset.begins_chunk() => {
                let offset = self.descriptor_offset(chunk);
                (Update { offset, operation: Operation::Set, value: 0 }, chunks * CHUNK_BYTES)
            }
            other => panic!("the object at {offset:#x} is freed, but its chunk is {other:?}"),
        })
    }

    /// Hands freed objects, as (offset, bytes), out again once all present guards are gone.
    pub(crate) fn retire(self: &Arc<Self>, space: &dyn Space, freed: &[(PoolOffset, u64)]) {
        for &(offset, bytes) in freed {
            debug_assert!(offset.is_aligned(64) && bytes > 0, "{offset:#x} (+{bytes}) is not an object");
            let full = self.caches.own().retire(RetiredObject { offset, bytes });
            if let Some(batch) = full {
                self.wait_for_readers(space, ThreadCaches::own_number(), batch);
                if self.has_excess.swap(false, Ordering::Relaxed) {
                    self.reclaim_empty_slabs(space, empty_slabs_kept);
                }
            }
        }
    }

    /// Takes the objects back once all present guards are gone.
    fn wait_for_readers(self: &Arc<Self>, space: &dyn Space, cache: usize, batch: Vec<RetiredObject>) {
        if batch.is_empty() {
            return;
        }
        debug_assert!(
            bytes_by_class(&batch).iter().sum::<u64>() > 0,
            "objects that wait for readers have a size"
        );
        for (bytes, waiting) in bytes_by_class(&batch).iter().zip(&self.waiting_bytes) {
            if *bytes > 0 {
                waiting.fetch_add(*bytes, Ordering::Relaxed);
            }
        }
        let allocator = self.clone();
        let guard = space.pin();
        // Runs in any thread, perhaps after the pool was dropped: it may touch the maps in DRAM only.
        guard.defer(move || allocator.take_back(cache, batch));
        guard.flush();
    }

    /// Takes back objects that no reader can hold any more: into the cache that freed them, or into their
    /// slabs.
    fn take_back(&self, cache: usize, mut batch: Vec<RetiredObject>) {
        for (bytes, waiting) in bytes_by_class(&batch).iter().zip(&self.waiting_bytes) {
            debug_assert!(waiting.load(Ordering::Relaxed) >= *bytes, "what comes back has waited");
            waiting.fetch_sub(*bytes, Ordering::Relaxed);
        }
        // A cache hands out first what was added last.
        batch.sort_unstable_by(|a, b| b.cmp(a));
        let mut cache = self.caches.lock(cache);
        batch.retain(|object| {
            class_of(object.bytes as usize).is_none_or(|class| {
                self.lines.is_behind(class, object.offset) || !cache.top_up(class, object.offset)
            })
        });
        drop(cache);
        batch.sort_unstable_by_key(|object| object.bytes);
        for same in batch.chunk_by(|a, b| a.bytes == b.bytes) {
            match class_of(same[0].bytes as usize) {
                Some(class) => {
                    let offsets: Vec<PoolOffset> = same.iter().map(|object| object.offset).collect();
                    self.give_to_slabs(class, &offsets);
                }
                None => same.iter().for_each(|object| self.give_to_chunks(object.offset, object.bytes)),
            }
        }
    }

    /// Usable bytes of an allocated object.
    pub(crate) fn object_bytes(&self, space: &dyn Space, offset: PoolOffset) -> u64 {
        match self.chunk(space, offset.chunk()) {
            Some(Chunk::Slab { class }) => class_bytes(class),
            Some(Chunk::Large { chunks }) => chunks * CHUNK_BYTES,
            other => panic!("no object at {offset:#x}: its chunk is {other:?}"),
        }
    }
}

/// Maximum number of empty slabs that a class with `slabs` slabs retains.
fn empty_slabs_kept(slabs: u64) -> u64 {
    1 + slabs / SLABS_PER_EMPTY_KEPT
}

/// Bytes of the objects of each class; the last is for large objects.
fn bytes_by_class(batch: &[RetiredObject]) -> [u64; CLASSES + 1] {
    let mut by_class = [0; CLASSES + 1];
    for object in batch {
        by_class[class_of(object.bytes as usize).unwrap_or(CLASSES)] += object.bytes;
    }
    by_class
}
