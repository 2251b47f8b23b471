//! Failure-atomic, leak-free allocation: reserve, initialise, publish.
//!
//! A chunk of 64 KiB is free, a slab of objects of one size class, or part of a large object. What is allocated
//! is said by persistent words alone: the slab bitmaps and the chunk descriptors ([`crate::layout`]). Free
//! maps in DRAM mirror them, minus what is reserved.
//!
//! - [`Allocator::reserve`] takes from the DRAM maps; nothing persistent changes, so a crash gives it back.
//! - The owner initialises and flushes the object.
//! - A [`crate::Publication`] sets the allocation bit together with the pointer that makes the object
//!   reachable. So after any crash every allocated object is reachable, and nothing reachable is free.
//! - Freeing clears the bit in a publication. The memory is handed out again only when no reader can still
//!   hold the old pointer (epochs).
//!
//! A free chunk becomes a slab by one store of its descriptor, after its (zero) bitmap is fenced: an empty slab
//! is still free space. Empty slabs become free chunks again when chunks run out.

mod size_class;

use crate::error::{Error, Result};
use crate::layout::{BITMAP_BYTES, BITMAP_WORDS, BITMAPS, CHUNK_BYTES, DESCRIPTORS, EXTENT_BYTES_MAX};
use crate::mutants::{active, intact};
use crate::publication::{Operation, Update};
use parking_lot::Mutex;
use size_class::{CLASSES, class_bytes, class_of};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The largest object: the chunks of the largest extent, minus the one that describes it. With smaller
/// extents the limit is smaller in proportion.
pub const OBJECT_BYTES_MAX: u64 = EXTENT_BYTES_MAX - CHUNK_BYTES;

const KIND_SHIFT: u32 = 56;
const KIND_SLAB: u64 = 1;
const KIND_LARGE: u64 = 2;

/// What the allocator needs of its pool.
pub(crate) trait Space {
    fn words(&self, offset: u64, count: usize) -> &[std::sync::atomic::AtomicU64];
    fn flush(&self, offset: u64, bytes: usize);
    fn fence(&self);
    /// Makes the pool one extent longer; returns the number of extents.
    fn grow(&self) -> Result<u64>;
}

/// What a descriptor word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Free,
    Slab { class: usize },
    Large { chunks: u64 },
}

impl Chunk {
    fn decode(word: u64) -> Option<Chunk> {
        let low = word & ((1 << KIND_SHIFT) - 1);
        match word >> KIND_SHIFT {
            0 if low == 0 => Some(Chunk::Free),
            KIND_SLAB if (low as usize) < CLASSES => Some(Chunk::Slab { class: low as usize }),
            KIND_LARGE if low > 0 => Some(Chunk::Large { chunks: low }),
            _ => None,
        }
    }

    fn encode(self) -> u64 {
        match self {
            Chunk::Free => 0,
            Chunk::Slab { class } => KIND_SLAB << KIND_SHIFT | class as u64,
            Chunk::Large { chunks } => KIND_LARGE << KIND_SHIFT | chunks,
        }
    }
}

/// The free objects of a slab, in DRAM.
struct Slab {
    free: [u64; BITMAP_WORDS],
    free_count: u32,
}

impl Slab {
    fn empty(class: usize) -> Slab {
        let objects = objects_of(class);
        let mut free = [0; BITMAP_WORDS];
        for (i, word) in free.iter_mut().enumerate() {
            let bits = objects.saturating_sub(i as u32 * 64).min(64);
            *word = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        }
        Slab { free, free_count: objects }
    }

    fn take(&mut self) -> Option<u32> {
        let word = self.free.iter().position(|word| *word != 0)?;
        let bit = self.free[word].trailing_zeros();
        self.free[word] &= self.free[word] - 1;
        self.free_count -= 1;
        Some(word as u32 * 64 + bit)
    }

    fn give_back(&mut self, index: u32) {
        let (word, bit) = ((index / 64) as usize, 1u64 << (index % 64));
        assert!(self.free[word] & bit == 0, "object {index} of a slab was given back twice");
        self.free[word] |= bit;
        self.free_count += 1;
    }
}

fn objects_of(class: usize) -> u32 {
    (CHUNK_BYTES / class_bytes(class)) as u32
}

/// The slabs of one size class, by global chunk number; those with free objects are candidates.
#[derive(Default)]
struct ClassState {
    slabs: HashMap<u64, Slab>,
    candidates: Vec<u64>,
}

/// Free runs of chunks: first chunk number -> length. Runs never cross extents.
#[derive(Default)]
struct FreeChunks {
    runs: BTreeMap<u64, u64>,
}

impl FreeChunks {
    fn give_back(&mut self, chunk: u64, count: u64, chunks_per_extent: u64) {
        let same_extent = |a: u64, b: u64| a / chunks_per_extent == b / chunks_per_extent;
        let (mut start, mut length) = (chunk, count);
        if let Some((&before, &before_length)) = self.runs.range(..chunk).next_back()
            && before + before_length == chunk
            && same_extent(before, chunk)
        {
            self.runs.remove(&before);
            start = before;
            length += before_length;
        }
        if same_extent(chunk, chunk + count)
            && let Some(after) = self.runs.remove(&(chunk + count))
        {
            length += after;
        }
        self.runs.insert(start, length);
    }

    fn take(&mut self, count: u64) -> Option<u64> {
        let (&start, &length) = self.runs.iter().find(|(_, length)| **length >= count)?;
        self.runs.remove(&start);
        if length > count {
            self.runs.insert(start + count, length - count);
        }
        Some(start)
    }
}

/// The DRAM side of allocation; shared with deferred frees.
pub(crate) struct Allocator {
    chunks_per_extent: u64,
    classes: Vec<Mutex<ClassState>>,
    free_chunks: Mutex<FreeChunks>,
    space: std::sync::OnceLock<std::sync::Weak<dyn Space + Send + Sync>>,
}

/// An object that nobody else gets; it is allocated once a publication carries it. Dropping it gives it back.
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation<'p> {
    allocator: &'p Arc<Allocator>,
    offset: u64,
    bytes: usize,
    consumed: bool,
}

impl Reservation<'_> {
    /// Where the object is. Its content is whatever was there before.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes the object has; at least what was asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The update that makes it allocated.
    pub(crate) fn allocation(&self) -> Update {
        self.allocator.allocation_update(self.offset, self.bytes as u64)
    }

    /// The object is allocated now.
    pub(crate) fn consume(mut self) {
        self.consumed = true;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.consumed {
            self.allocator.give_back(self.offset, self.bytes as u64);
        }
    }
}

impl Allocator {
    pub(crate) fn new(extent_bytes: u64) -> Allocator {
        Allocator {
            chunks_per_extent: extent_bytes / CHUNK_BYTES,
            classes: (0..CLASSES).map(|_| Mutex::default()).collect(),
            free_chunks: Mutex::default(),
            space: std::sync::OnceLock::new(),
        }
    }

    /// Ties the allocator to its pool's words.
    pub(crate) fn attach(&self, space: std::sync::Weak<dyn Space + Send + Sync>) {
        assert!(self.space.set(space).is_ok(), "an allocator is attached once");
    }

    fn space(&self) -> Arc<dyn Space + Send + Sync> {
        let space = self.space.get().expect("attached when the pool was made");
        space.upgrade().expect("whoever allocates holds the pool")
    }

    fn descriptor_offset(&self, chunk: u64) -> u64 {
        let extent = chunk / self.chunks_per_extent;
        let index = chunk % self.chunks_per_extent;
        extent * self.chunks_per_extent * CHUNK_BYTES + DESCRIPTORS + index * 8
    }

    fn bitmap_offset(&self, chunk: u64) -> u64 {
        let extent = chunk / self.chunks_per_extent;
        let index = chunk % self.chunks_per_extent;
        extent * self.chunks_per_extent * CHUNK_BYTES + BITMAPS + index * BITMAP_BYTES
    }

    fn chunk(&self, space: &dyn Space, chunk: u64) -> Option<Chunk> {
        Chunk::decode(space.words(self.descriptor_offset(chunk), 1)[0].load(Ordering::Acquire))
    }

    /// Reads the persistent maps of extents into the free maps. `Err` holds what is wrong, and where.
    pub(crate) fn load(
        &self,
        space: &dyn Space,
        extents: std::ops::Range<u64>,
    ) -> std::result::Result<(), (u64, String)> {
        for extent in extents {
            let first = extent * self.chunks_per_extent;
            let mut index = 1;
            while index < self.chunks_per_extent {
                let chunk = first + index;
                let decoded = self.chunk(space, chunk).ok_or_else(|| {
                    (self.descriptor_offset(chunk), format!("chunk {chunk} has no valid descriptor"))
                })?;
                index += match decoded {
                    Chunk::Free => {
                        self.free_chunks.lock().give_back(chunk, 1, self.chunks_per_extent);
                        1
                    }
                    Chunk::Slab { class } => {
                        self.load_slab(space, chunk, class);
                        1
                    }
                    Chunk::Large { chunks } if index + chunks <= self.chunks_per_extent => chunks,
                    Chunk::Large { chunks } => {
                        let what = format!("a large object of {chunks} chunks leaves its extent");
                        return Err((self.descriptor_offset(chunk), what));
                    }
                };
            }
        }
        Ok(())
    }

    fn load_slab(&self, space: &dyn Space, chunk: u64, class: usize) {
        let mut slab = Slab::empty(class);
        let bitmap = space.words(self.bitmap_offset(chunk), BITMAP_WORDS);
        for (free, allocated) in slab.free.iter_mut().zip(bitmap) {
            *free &= !allocated.load(Ordering::Acquire) | u64::from(active("slab-map-misread-at-open"));
        }
        slab.free_count = slab.free.iter().map(|word| word.count_ones()).sum();
        let mut state = self.classes[class].lock();
        if slab.free_count > 0 {
            state.candidates.push(chunk);
        }
        state.slabs.insert(chunk, slab);
    }

    /// Takes an object of at least `bytes` out of the free maps.
    pub(crate) fn reserve<'p>(self: &'p Arc<Self>, bytes: usize) -> Result<Reservation<'p>> {
        assert!(bytes > 0, "objects have at least one byte");
        let (offset, bytes) = match class_of(bytes) {
            Some(class) => (self.reserve_in_slab(class)?, class_bytes(class)),
            None => self.reserve_large(bytes as u64)?,
        };
        Ok(Reservation { allocator: self, offset, bytes: bytes as usize, consumed: false })
    }

    fn reserve_in_slab(&self, class: usize) -> Result<u64> {
        let mut state = self.classes[class].lock();
        loop {
            let state = &mut *state;
            if let Some(&chunk) = state.candidates.last() {
                let slab = state.slabs.get_mut(&chunk).expect("candidates are slabs");
                if let Some(index) = slab.take() {
                    if slab.free_count == 0 {
                        state.candidates.pop();
                    }
                    return Ok(chunk * CHUNK_BYTES + u64::from(index) * class_bytes(class));
                }
                state.candidates.pop();
                continue;
            }
            let chunk = self.take_chunks(1, Some(class))?;
            self.make_slab(chunk, class);
            state.slabs.insert(chunk, Slab::empty(class));
            state.candidates.push(chunk);
        }
    }

    /// Turns a free chunk into an empty slab.
    fn make_slab(&self, chunk: u64, class: usize) {
        let space = self.space();
        let bitmap = self.bitmap_offset(chunk);
        for word in space.words(bitmap, BITMAP_WORDS) {
            word.store(0, Ordering::Relaxed);
        }
        space.flush(bitmap, BITMAP_BYTES as usize);
        space.fence();
        self.set_descriptor(&*space, chunk, Chunk::Slab { class });
    }

    fn set_descriptor(&self, space: &dyn Space, chunk: u64, state: Chunk) {
        let offset = self.descriptor_offset(chunk);
        // One word: the chunk is what it was or what it becomes, and it holds no object either way.
        space.words(offset, 1)[0].store(state.encode(), Ordering::Release);
        if intact("slab-descriptor-not-flushed") {
            space.flush(offset, 8);
        }
        space.fence();
    }

    fn reserve_large(&self, bytes: u64) -> Result<(u64, u64)> {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        if chunks >= self.chunks_per_extent {
            let limit = (self.chunks_per_extent - 1) * CHUNK_BYTES;
            let what = format!("an object of {bytes} bytes is larger than the limit of {limit}");
            return Err(Error::Invalid(what));
        }
        let chunk = self.take_chunks(chunks, None)?;
        Ok((chunk * CHUNK_BYTES, chunks * CHUNK_BYTES))
    }

    /// A run of free chunks: from the free map, from slabs that have become empty, or from a longer pool.
    /// `held` is the class whose lock the caller holds.
    fn take_chunks(&self, count: u64, held: Option<usize>) -> Result<u64> {
        loop {
            if let Some(chunk) = self.free_chunks.lock().take(count) {
                return Ok(chunk);
            }
            if self.reclaim_empty_slabs(held) > 0 {
                continue;
            }
            let extents = self.space().grow()?;
            let first = (extents - 1) * self.chunks_per_extent + 1;
            self.free_chunks.lock().give_back(first, self.chunks_per_extent - 1, self.chunks_per_extent);
        }
    }

    /// Makes free chunks of slabs without objects.
    fn reclaim_empty_slabs(&self, held: Option<usize>) -> usize {
        let space = self.space();
        let mut reclaimed = 0;
        for class in (0..CLASSES).filter(|class| Some(*class) != held) {
            // Never wait for another class's lock: its holder may wait for chunks as well.
            let Some(mut state) = self.classes[class].try_lock() else { continue };
            let objects = objects_of(class);
            let empty: Vec<u64> = state
                .candidates
                .iter()
                .copied()
                .filter(|chunk| state.slabs.get(chunk).is_some_and(|slab| slab.free_count == objects))
                .collect();
            for chunk in &empty {
                state.slabs.remove(chunk);
                self.set_descriptor(&*space, *chunk, Chunk::Free);
                self.free_chunks.lock().give_back(*chunk, 1, self.chunks_per_extent);
            }
            let state = &mut *state;
            state.candidates.retain(|chunk| state.slabs.contains_key(chunk));
            reclaimed += empty.len();
        }
        reclaimed
    }

    fn give_back(&self, offset: u64, bytes: u64) {
        let chunk = offset / CHUNK_BYTES;
        match class_of(bytes as usize) {
            Some(class) => {
                let state = &mut *self.classes[class].lock();
                let slab = state.slabs.get_mut(&chunk).expect("a slab with a reserved object stays a slab");
                slab.give_back(((offset % CHUNK_BYTES) / class_bytes(class)) as u32);
                if slab.free_count == 1 {
                    state.candidates.push(chunk);
                }
            }
            None => {
                let mut free = self.free_chunks.lock();
                free.give_back(chunk, bytes / CHUNK_BYTES, self.chunks_per_extent);
            }
        }
    }

    fn allocation_update(&self, offset: u64, bytes: u64) -> Update {
        let chunk = offset / CHUNK_BYTES;
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

    fn bitmap_bit(&self, offset: u64, chunk: u64, class: usize) -> (u64, u64) {
        let within = offset % CHUNK_BYTES;
        assert!(
            within.is_multiple_of(class_bytes(class)),
            "offset {offset:#x} is not the start of an object"
        );
        let index = within / class_bytes(class);
        (self.bitmap_offset(chunk) + index / 64 * 8, 1 << (index % 64))
    }

    /// The update that frees an object. Panics if it is not allocated: a double free is a bug that must not
    /// reach the medium.
    pub(crate) fn release(&self, offset: u64) -> Update {
        let space = self.space();
        let chunk = offset / CHUNK_BYTES;
        match self.chunk(&*space, chunk) {
            Some(Chunk::Slab { class }) => {
                let (word, bit) = self.bitmap_bit(offset, chunk, class);
                let present = space.words(word, 1)[0].load(Ordering::Acquire);
                assert!(present & bit != 0, "the object at {offset:#x} is freed, but not allocated");
                Update { offset: word, operation: Operation::ClearBits, value: bit }
            }
            Some(Chunk::Large { .. }) if offset.is_multiple_of(CHUNK_BYTES) => {
                Update { offset: self.descriptor_offset(chunk), operation: Operation::Set, value: 0 }
            }
            other => panic!("the object at {offset:#x} is freed, but its chunk is {other:?}"),
        }
    }

    /// Hands a freed object out again once every guard of now is gone.
    pub(crate) fn retire(self: &Arc<Self>, guard: &crossbeam_epoch::Guard, offset: u64, bytes: u64) {
        let allocator = self.clone();
        guard.defer(move || allocator.give_back(offset, bytes));
    }

    /// Usable bytes of an allocated object.
    pub(crate) fn object_bytes(&self, offset: u64) -> u64 {
        match self.chunk(&*self.space(), offset / CHUNK_BYTES) {
            Some(Chunk::Slab { class }) => class_bytes(class),
            Some(Chunk::Large { chunks }) => chunks * CHUNK_BYTES,
            other => panic!("no object at {offset:#x}: its chunk is {other:?}"),
        }
    }

    /// Every allocated object of the extents, as (offset, bytes).
    pub(crate) fn for_each_object(&self, extents: u64, mut visit: impl FnMut(u64, u64)) {
        let space = self.space();
        for extent in 0..extents {
            let first = extent * self.chunks_per_extent;
            let mut index = 1;
            while index < self.chunks_per_extent {
                let chunk = first + index;
                index += match self.chunk(&*space, chunk) {
                    Some(Chunk::Slab { class }) => {
                        let bitmap = space.words(self.bitmap_offset(chunk), BITMAP_WORDS);
                        for (i, word) in bitmap.iter().enumerate() {
                            let mut bits = word.load(Ordering::Acquire);
                            while bits != 0 {
                                let object = i as u64 * 64 + u64::from(bits.trailing_zeros());
                                visit(chunk * CHUNK_BYTES + object * class_bytes(class), class_bytes(class));
                                bits &= bits - 1;
                            }
                        }
                        1
                    }
                    Some(Chunk::Large { chunks }) => {
                        visit(chunk * CHUNK_BYTES, chunks * CHUNK_BYTES);
                        chunks.max(1)
                    }
                    Some(Chunk::Free) | None => 1,
                };
            }
        }
    }
}
