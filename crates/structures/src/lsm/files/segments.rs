//! Runs in the pool: chains of segments of blocks.
//!
//! ```text
//! word of a segment   content
//! 0                   "LSMSEG" and version
//! 1                   offset of the segment before it; 0: it is the first
//! 2                   capacity in blocks
//! 3                   check word over the three
//! 32..                blocks, one after the other
//! ```
//!
//! All but the last are full, with [`SEGMENT_BLOCKS`] blocks. The last segment identifies a chain, so it can
//! be built segment by segment: each is allocated in the publication that makes it the end of the chain in
//! the tree header's slot of runs being built. A crash leaves that chain, and opening frees it.

use crate::error::{Error, Result};
use crate::lsm::files::block::{BLOCK_BYTES, Block};
use crate::lsm::options::RunWriting;
use crate::points::{RUN_BLOCK, SEGMENT_WITH_ITS_NOTE};
use entresol_memory::{Pool, PoolOffset};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A segment with its head is a chunk of the allocator, of 64 KiB.
pub(crate) const SEGMENT_BLOCKS: usize = 255;
const MAGIC: u64 = u64::from_le_bytes(*b"LSMSEG\0\x01");
const HEAD_WORDS: usize = 4;
/// Segments freed by one publication.
const FREES: usize = 32;

fn check_word(previous: u64, blocks: u64) -> u64 {
    [MAGIC, previous, blocks]
        .iter()
        .fold(0, |check: u64, word| (check.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Returns the offset of a block of a segment.
#[inline]
pub(crate) fn block_offset(segment: PoolOffset, place: usize) -> PoolOffset {
    debug_assert!(place < SEGMENT_BLOCKS, "block {place} lies in its segment");
    segment.block(1 + place as u64, BLOCK_BYTES as u64)
}

/// Returns the segment before one, and its capacity in blocks.
fn head(pool: &Pool, segment: PoolOffset) -> Result<(PoolOffset, usize)> {
    let corrupt = |message: &str| Err(Error::Corrupt { offset: segment, message: message.to_string() });
    let words = match pool.try_words(segment, HEAD_WORDS) {
        Some(words) if !segment.is_null() && segment.is_aligned(BLOCK_BYTES as u64) => words,
        _ => return corrupt("the offset cannot hold a segment of a run"),
    };
    let [magic, previous, blocks, check] = [0, 1, 2, 3].map(|word: usize| words[word].load(Acquire));
    if magic != MAGIC || check != check_word(previous, blocks) {
        return corrupt("its first word is not that of a segment of a run");
    }
    if blocks as usize > SEGMENT_BLOCKS || pool.try_words(segment, (blocks as usize + 1) * 32).is_none() {
        return corrupt("a segment of a run has an invalid number of blocks");
    }
    Ok((PoolOffset::from_word(previous), blocks as usize))
}

/// Returns the segments of a chain with `blocks` blocks, first to last.
pub(crate) fn chain(pool: &Pool, last: PoolOffset, blocks: usize) -> Result<Vec<PoolOffset>> {
    let mut segments = Vec::with_capacity(blocks.div_ceil(SEGMENT_BLOCKS));
    let mut at = last;
    let mut wanted = blocks - blocks.saturating_sub(1) / SEGMENT_BLOCKS * SEGMENT_BLOCKS;
    let mut left = blocks;
    while left > 0 {
        let (previous, room) = head(pool, at)?;
        if room < wanted {
            let message = format!("a segment of a run has {room} blocks, not {wanted}");
            return Err(Error::Corrupt { offset: at, message });
        }
        segments.push(at);
        left -= wanted;
        (at, wanted) = (previous, SEGMENT_BLOCKS);
    }
    if !at.is_null() {
        let message = format!("the chain of segments of a run does not end after its {blocks} blocks");
        return Err(Error::Corrupt { offset: last, message });
    }
    segments.reverse();
    Ok(segments)
}

/// Frees the chain whose last segment is stored in a word of the pool, from its end; the word becomes 0.
/// After a crash in between, call it again.
pub(crate) fn free_chain(pool: &Pool, word: PoolOffset) -> Result<()> {
    let mut at = PoolOffset::from_word(pool.word(word).load(Acquire));
    while !at.is_null() {
        let mut publication = pool.publication();
        for _ in 0..FREES {
            if at.is_null() {
                break;
            }
            let (previous, _) = head(pool, at)?;
            publication.free(at);
            at = previous;
        }
        publication.set(word, at.to_word());
        publication.publish()?;
    }
    Ok(())
}

/// Visits the chain whose last segment this is, each before it is read; an error of `visit` ends it.
pub(crate) fn for_each(
    pool: &Pool,
    last: PoolOffset,
    mut visit: impl FnMut(PoolOffset) -> Result<()>,
) -> Result<()> {
    let mut at = last;
    while !at.is_null() {
        visit(at)?;
        at = head(pool, at)?.0;
    }
    Ok(())
}

/// Writes a run into the pool, block by block.
pub(crate) struct SegmentWriter<'p> {
    pool: &'p Pool,
    /// Offset of the word of the chain while it is built.
    building: PoolOffset,
    path: RunWriting,
    /// Maximum of blocks.
    blocks_max: usize,
    segments: Vec<PoolOffset>,
    /// Capacity of the last segment, and blocks in it.
    room: usize,
    blocks: usize,
    /// Bytes to be copied to the last segment.
    collected: Vec<u8>,
}

impl<'p> SegmentWriter<'p> {
    /// Creates a writer; the word must be 0.
    pub(crate) fn new(
        pool: &'p Pool,
        building: PoolOffset,
        path: RunWriting,
        blocks_max: usize,
    ) -> SegmentWriter<'p> {
        let (segments, collected) = (Vec::new(), Vec::new());
        SegmentWriter { pool, building, path, blocks_max, segments, room: 0, blocks: 0, collected }
    }

    pub(crate) fn push(&mut self, block: &Block) -> Result<()> {
        if self.blocks == self.room {
            self.end_segment();
            self.begin_segment()?;
        }
        let last = *self.segments.last().expect("a segment has begun");
        match self.path {
            RunWriting::Direct => {
                let offset = block_offset(last, self.blocks);
                for (to, from) in self.pool.words(offset, block.words().len()).iter().zip(block.words()) {
                    to.store(*from, Relaxed);
                }
                self.pool.flush_at(offset, BLOCK_BYTES, RUN_BLOCK);
            }
            RunWriting::ThroughDram => {
                block.words().iter().for_each(|word| self.collected.extend_from_slice(&word.to_le_bytes()));
            }
        }
        self.blocks += 1;
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<()> {
        let written = self.segments.len() * SEGMENT_BLOCKS;
        let room = self.blocks_max.saturating_sub(written).clamp(1, SEGMENT_BLOCKS);
        let previous = self.segments.last().map_or(0, |last| last.to_word());
        assert!(
            (1..=SEGMENT_BLOCKS).contains(&room),
            "a segment has 1 to {SEGMENT_BLOCKS} blocks, not {room}"
        );
        let segment = self.pool.reserve((1 + room) * BLOCK_BYTES)?;
        let values = [MAGIC, previous, room as u64, check_word(previous, room as u64)];
        let mut publication = self.pool.publication();
        (0..).zip(values).for_each(|(word, value)| publication.write(segment.offset().word(word), value));
        let offset = publication.allocate(segment);
        publication.barrier(SEGMENT_WITH_ITS_NOTE);
        publication.set(self.building, offset.to_word());
        publication.publish()?;
        self.segments.push(offset);
        (self.room, self.blocks) = (room, 0);
        Ok(())
    }

    fn end_segment(&mut self) {
        if let Some(last) = self.segments.last()
            && !self.collected.is_empty()
        {
            assert_eq!(
                self.collected.len(),
                self.blocks * BLOCK_BYTES,
                "all blocks of a segment are written together"
            );
            self.pool.store_flushed_at(block_offset(*last, 0), &self.collected, RUN_BLOCK);
            self.collected.clear();
        }
    }

    /// Flushes the rest; returns the segments, first to last.
    pub(crate) fn finish(mut self) -> Vec<PoolOffset> {
        self.end_segment();
        self.segments
    }
}
