//! Creating, opening and destroying tables.
//!
//! ```text
//! header word   content
//! 0             "EHASH", 1 (layout), then the words of a key
//! 1             seed of the hash
//! 2             check word over the two
//! 3             offset of the first segment; 0 or the offset of another object: being destroyed
//! 4             1 if being destroyed
//! ```

use super::HashTable;
use super::directory::Directory;
use super::key::{Hash, HashKey, scramble};
use super::segment::{BUCKETS, SEGMENT_BYTES, Segment, SegmentState};
use super::split::{self, SegmentPartition};
use crate::error::{Error, Result};
use crate::latch::LatchStripes;
use crate::leaf::bits;
use crate::points::SPLITS_FINISHED_AT_OPEN;
use entresol_memory::order::step;
use entresol_memory::{PUBLICATION_WORDS_MAX, Pool, PoolOffset, Publication};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const HEADER_BYTES: usize = 64;
const FIRST_SEGMENT: u64 = 24;
const DESTROYED: u64 = 32;
const LAYOUT: u8 = 1;

fn magic(key_words: usize) -> u64 {
    u64::from_le_bytes([b'E', b'H', b'A', b'S', b'H', 0, LAYOUT, key_words as u8])
}

fn check_word(magic: u64, seed: u64) -> u64 {
    scramble(magic ^ scramble(seed))
}

fn corrupt<T>(offset: PoolOffset, message: impl Into<String>) -> Result<T> {
    Err(Error::Corrupt { offset, message: message.into() })
}

/// Returns true if an object of `bytes` bytes can be at an offset.
fn can_be_there(pool: &Pool, offset: PoolOffset, bytes: usize) -> bool {
    !offset.is_null() && offset.is_aligned(64) && pool.contains(offset, bytes as u64)
}

impl<K: HashKey> HashTable<K> {
    /// Creates an empty table; it exists once the publication is published, with a reference to the returned
    /// offset.
    pub fn create<'p>(pool: &'p Pool, publication: &mut Publication<'p>) -> Result<PoolOffset> {
        let first = pool.reserve(SEGMENT_BYTES)?;
        let segment = Segment::<K>::at(pool, first.offset());
        segment.clear(0, 0, PoolOffset::NULL);
        segment.flush(pool);
        let header = pool.reserve(HEADER_BYTES)?;
        let (magic, seed) = (magic(K::WORDS), pool.env().random_u64());
        let content = [magic, seed, check_word(magic, seed), first.offset().to_word(), 0, 0, 0, 0];
        for (word, value) in (0..).zip(content) {
            publication.write(header.offset().word(word), value);
        }
        publication.allocate(first);
        Ok(publication.allocate(header))
    }

    /// Checks a header and returns the seed.
    fn sound_header(pool: &Pool, header: PoolOffset) -> Result<u64> {
        if !can_be_there(pool, header, HEADER_BYTES) {
            return corrupt(header, "the offset cannot hold a hash table");
        }
        let word = |index: u64| pool.word(header.plus(index * 8)).load(Ordering::Acquire);
        let (found, wanted) = (word(0), magic(K::WORDS));
        if found != wanted {
            if let Some(words) = (1..=2).find(|words| magic(*words) == found) {
                let bytes = words * 8;
                let message =
                    format!("its keys have {bytes} bytes; it was opened for keys of {}", K::WORDS * 8);
                return corrupt(header, message);
            }
            return corrupt(header, format!("its header starts with {found:#018x}, not {wanted:#018x}"));
        }
        if word(2) != check_word(found, word(1)) {
            return corrupt(header, "its header does not match its checksum");
        }
        Ok(word(1))
    }

    /// Opens a table: rebuilds the directory, and finishes splits that a crash interrupted. Cost: a cache
    /// line of every segment.
    pub fn open(pool: &Arc<Pool>, header: PoolOffset) -> Result<HashTable<K>> {
        let seed = Self::sound_header(pool, header)?;
        match pool.word(header.plus(DESTROYED)).load(Ordering::Acquire) {
            0 => {}
            1 => return corrupt(header, "it is being destroyed"),
            other => return corrupt(header, format!("its destruction mark is {other:#x}, not 0 or 1")),
        }
        let mut segments = Vec::new();
        let mut unfinished = Vec::new();
        let segments_max = pool.bytes() / SEGMENT_BYTES as u64;
        let mut at = PoolOffset::from_word(pool.word(header.plus(FIRST_SEGMENT)).load(Ordering::Acquire));
        while !at.is_null() {
            let (segment, state) = Self::sound_segment(pool, at)?;
            segments.push((at, segment.prefix(), state.depth));
            if state.divided {
                unfinished.push(at);
            }
            if segments.len() as u64 > segments_max {
                return corrupt(header, "its chain of segments has a cycle");
            }
            at = segment.next();
        }
        let directory = Directory::build(&segments, pool.memory())
            .map_err(|message| Error::Corrupt { offset: header, message })?;
        // Only a table that is known to be whole is written to.
        for at in unfinished {
            let segment = Segment::<K>::at(pool, at);
            let partition = SegmentPartition::of(&segment, segment.depth(), seed);
            step(SPLITS_FINISHED_AT_OPEN, || split::clean_up(pool, &segment, &partition))?;
        }
        let (pool, stripes) = (pool.clone(), LatchStripes::new());
        Ok(HashTable { pool, header, seed, directory, stripes, key: PhantomData })
    }

    /// Returns the segment at an offset, if one can be there.
    fn sound_segment(pool: &Pool, offset: PoolOffset) -> Result<(Segment<'_, K>, SegmentState)> {
        let is_aligned = offset.is_aligned(SEGMENT_BYTES as u64);
        if !is_aligned || !can_be_there(pool, offset, SEGMENT_BYTES) {
            return corrupt(offset, "the offset cannot hold a segment");
        }
        let segment = Segment::<K>::at(pool, offset);
        let Some(state) = segment.state() else {
            return corrupt(offset, "its first word is not that of a segment");
        };
        let rest_of_prefix = segment.prefix().checked_shl(state.depth).unwrap_or(0);
        if rest_of_prefix != 0 {
            let message = format!("its prefix {:#x} is longer than {} bits", segment.prefix(), state.depth);
            return corrupt(offset, message);
        }
        Ok((segment, state))
    }

    pub(super) fn first_segment(&self) -> PoolOffset {
        PoolOffset::from_word(self.pool.word(self.header.plus(FIRST_SEGMENT)).load(Ordering::Acquire))
    }

    /// Frees a part of a closed table: segments and, if asked, the objects whose offsets its values are.
    /// Returns true when only the header is left, which the caller frees together with its reference to it.
    /// The first step makes the table invalid; after a crash in between, call it again.
    pub fn destroy_step(
        pool: &Pool,
        header: PoolOffset,
        free_values: bool,
        segments_max: usize,
    ) -> Result<bool> {
        let seed = Self::sound_header(pool, header)?;
        for _ in 0..segments_max {
            let first = PoolOffset::from_word(pool.word(header.plus(FIRST_SEGMENT)).load(Ordering::Acquire));
            if first.is_null() {
                return Ok(true);
            }
            if pool.word(header.plus(DESTROYED)).load(Ordering::Acquire) == 0 {
                let mut publication = pool.publication();
                publication.set(header.plus(DESTROYED), 1);
                publication.publish()?;
            }
            let (segment, _) = Self::sound_segment(pool, first)?;
            if free_values {
                Self::free_values(pool, &segment, seed)?;
            }
            let mut publication = pool.publication();
            publication.free(first);
            publication.set(header.plus(FIRST_SEGMENT), segment.next().to_word());
            publication.publish()?;
        }
        Ok(false)
    }

    /// Frees the objects of a segment's values together with its entries, as many as fit one publication.
    fn free_values(pool: &Pool, segment: &Segment<'_, K>, seed: u64) -> Result<()> {
        let mut publication = pool.publication();
        for index in 0..BUCKETS {
            let bucket = segment.bucket(index);
            // The other entries of a divided segment have moved: their values belong to the other segment.
            let counts = |slot: &usize| segment.has(Hash::of::<K>(bucket.key(*slot), seed));
            let slots: Vec<usize> = bits(bucket.valid()).filter(counts).collect();
            if slots.is_empty() {
                continue;
            }
            if publication.len() + slots.len() + 1 > PUBLICATION_WORDS_MAX {
                std::mem::replace(&mut publication, pool.publication()).publish()?;
            }
            slots.iter().for_each(|slot| publication.free(PoolOffset::from_word(bucket.value(*slot))));
            let rest = slots.iter().fold(bucket.meta(), |meta, slot| meta.without(*slot));
            bucket.set_meta(rest, &mut publication);
        }
        publication.publish()?;
        Ok(())
    }
}
