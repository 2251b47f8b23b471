//! The baseline: allocation through undo-log transactions of the kind of PMDK's libpmemobj, over the same
//! pool.
//!
//! Steps of libpmemobj (1.13; `pmemobj_tx_add_range(3)`, `pmemobj_tx_alloc(3)`, and "Programming Persistent
//! Memory", Scargall 2020, chapter 16) does to allocate an object and to make a pointer refer to it:
//!
//! 0. A lane is claimed: one of a fixed number of undo logs. Objects have a header of 16 bytes in front; a
//!    pointer has 16 bytes as well, the pool's number and the offset.
//! 1. A range that is going to change is looked up in a tree in DRAM and, if it is new there, copied to the
//!    undo log of the thread's lane: the header of the log's next entry is zeroed, flushed and fenced; the
//!    entry, with offset, size, generation and checksum in whole cache lines, is written, flushed and fenced.
//!    Only then is the range changed in place.
//! 2. An object is reserved in DRAM; the tree notes it as a range to flush that needs no copy.
//! 3. Commit: all ranges of the tree are flushed; fence. What the heap's metadata must become is carried out;
//!    the log is made invalid by a new generation number; flush, fence.
//!
//! Two ways for the heap's metadata (the bitmap word of a run of blocks): [`Metadata::Undone`] treats it as
//! every other range, copied to the log before it is changed; [`Metadata::Redone`] is what libpmemobj has
//! done since 1.5: the bit is set at commit, and a single word needs no redo record, only its own flush and
//! fence.
//!
//! Left out in favour of the baseline: `setjmp`, the allocation of each of the tree's nodes, recyclers,
//! sorting and locking of the actions at commit. libpmemobj itself is slower than this stand-in
//! (`docs/design/0010`).

use entresol_memory::{Pool, PoolOffset, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LINE_BYTES: u64 = 64;
const LOG_BYTES: u64 = 4096;
/// In front of each object: its size, and what its owner wants to know it by.
const HEADER_BYTES: u64 = 16;
/// Bytes of a pointer: the number of a pool, and an offset.
pub(super) const POINTER_BYTES: u64 = 16;
const POOL_NUMBER: u64 = 0x5EED;

/// Method of making the heap's bitmap durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metadata {
    /// Through the undo log.
    Undone = 0,
    /// By itself, at commit.
    Redone = 1,
}

/// A heap of blocks of one size: one large object of blocks, one of their bitmap.
pub(super) struct UndoHeap<'p> {
    pool: &'p Pool,
    /// With the header.
    block_bytes: u64,
    blocks: PoolOffset,
    bitmap: PoolOffset,
    blocks_count: u64,
    metadata: Metadata,
    /// The blocks that are free, the next last: what libpmemobj calls a bucket.
    bucket: Mutex<Vec<u64>>,
}

/// A thread's undo log. Word 0 is the generation; entries follow from the second line on.
pub(super) struct Lane<'p> {
    pool: &'p Pool,
    log: PoolOffset,
    generation: u64,
    next_entry: u64,
    claimed: AtomicBool,
    /// The ranges of the transaction: offset and bytes.
    ranges: BTreeMap<PoolOffset, u64>,
}

fn publish_object(pool: &Pool, bytes: u64) -> Result<PoolOffset> {
    let object = pool.reserve(bytes as usize)?;
    let words = pool.words(object.offset(), object.bytes() / 8);
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    pool.flush(object.offset(), object.bytes());
    let mut publication = pool.publication();
    let offset = publication.allocate(object);
    publication.publish()?;
    Ok(offset)
}

impl<'p> UndoHeap<'p> {
    pub(super) fn new(
        pool: &'p Pool,
        object_bytes: u64,
        blocks_count: u64,
        metadata: Metadata,
    ) -> Result<UndoHeap<'p>> {
        let block_bytes = HEADER_BYTES + object_bytes;
        let bitmap = publish_object(pool, blocks_count.div_ceil(64) * 8)?;
        let blocks = publish_object(pool, blocks_count * block_bytes)?;
        let bucket = Mutex::new((0..blocks_count).rev().collect());
        Ok(UndoHeap { pool, block_bytes, blocks, bitmap, blocks_count, metadata, bucket })
    }

    pub(super) fn lane(&self) -> Result<Lane<'p>> {
        let log = publish_object(self.pool, LOG_BYTES)?;
        let (claimed, ranges) = (AtomicBool::new(false), BTreeMap::new());
        Ok(Lane { pool: self.pool, log, generation: 0, next_entry: LINE_BYTES, claimed, ranges })
    }

    /// Allocates an object, lets `fill` write its first bytes, which are flushed, and makes the pointer at
    /// `pointer` (pool number and offset) refer to it, in one transaction.
    pub(super) fn allocate(
        &self,
        lane: &mut Lane<'p>,
        pointer: PoolOffset,
        filled_bytes: u64,
        fill: impl FnOnce(&[AtomicU64]),
    ) -> Option<PoolOffset> {
        lane.claim();
        let block = self.bucket.lock().expect("no thread panics with it").pop()?;
        let start = self.blocks.block(block, self.block_bytes);
        let object = start.plus(HEADER_BYTES);
        let (word, bit) = (self.bitmap.plus(block / 64 * 8), 1 << (block % 64));
        if self.metadata == Metadata::Undone {
            lane.snapshot(word, 1);
            self.pool.word(word).fetch_or(bit, Ordering::AcqRel);
        }
        self.pool.word(start).store(self.block_bytes, Ordering::Relaxed);
        self.pool.word(start.plus(8)).store(1, Ordering::Relaxed);
        lane.ranges.insert(start, HEADER_BYTES + filled_bytes);
        fill(self.pool.words(object, (filled_bytes / 8) as usize));
        lane.snapshot(pointer, (POINTER_BYTES / 8) as usize);
        self.pool.word(pointer).store(POOL_NUMBER, Ordering::Relaxed);
        self.pool.word(pointer.plus(8)).store(object.to_word(), Ordering::Release);
        lane.flush_ranges();
        if self.metadata == Metadata::Redone {
            self.pool.word(word).fetch_or(bit, Ordering::AcqRel);
            self.pool.flush(word, 8);
            self.pool.fence();
        }
        lane.finish();
        Some(object)
    }

    /// Frees every block, as a start for the next round; not what is measured.
    pub(super) fn clear(&self) {
        let words = (self.blocks_count.div_ceil(64)) as usize;
        self.pool.words(self.bitmap, words).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.pool.flush(self.bitmap, words * 8);
        *self.bucket.lock().expect("no thread panics with it") = (0..self.blocks_count).rev().collect();
    }

    /// Number of blocks that the bitmap has.
    pub(super) fn allocated(&self) -> u64 {
        let words = (self.blocks_count.div_ceil(64)) as usize;
        let words = self.pool.words(self.bitmap, words).iter();
        words.map(|word| u64::from(word.load(Ordering::Acquire).count_ones())).sum()
    }
}

impl Lane<'_> {
    fn claim(&self) {
        let claimed = self.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        assert!(claimed.is_ok(), "each thread has a lane of its own");
    }

    /// Copies up to three words to the undo log, once per transaction, before they are changed.
    fn snapshot(&mut self, offset: PoolOffset, words: usize) {
        if self.ranges.insert(offset, words as u64 * 8).is_some() {
            return;
        }
        let following = self.log.plus(self.next_entry + LINE_BYTES);
        self.pool.words(following, 8).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.pool.flush(following, LINE_BYTES as usize);
        self.pool.fence();
        let mut entry = [0, offset.to_word(), words as u64 * 8, self.generation, 0, 0, 0, 0];
        for (copy, word) in entry[4..7].iter_mut().zip(self.pool.words(offset, words)) {
            *copy = word.load(Ordering::Acquire);
        }
        entry[0] = checksum(&entry[1..]);
        let at = self.log.plus(self.next_entry);
        for (word, value) in self.pool.words(at, 8).iter().zip(entry) {
            word.store(value, Ordering::Relaxed);
        }
        self.pool.flush(at, LINE_BYTES as usize);
        self.pool.fence();
        self.next_entry += LINE_BYTES;
    }

    fn flush_ranges(&mut self) {
        while let Some((offset, bytes)) = self.ranges.pop_first() {
            self.pool.flush(offset, bytes as usize);
        }
        self.pool.fence();
    }

    /// Makes the log's entries those of an earlier generation.
    fn finish(&mut self) {
        self.generation += 1;
        self.next_entry = LINE_BYTES;
        self.pool.word(self.log).store(self.generation, Ordering::Release);
        self.pool.flush(self.log, 8);
        self.pool.fence();
        self.claimed.store(false, Ordering::Release);
    }
}

/// The checksum that libpmemobj uses: Fletcher's, over 32-bit halves.
fn checksum(words: &[u64]) -> u64 {
    let (mut low, mut high) = (0u32, 0u32);
    for half in words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]) {
        low = low.wrapping_add(half);
        high = high.wrapping_add(low);
    }
    u64::from(high) << 32 | u64::from(low)
}
