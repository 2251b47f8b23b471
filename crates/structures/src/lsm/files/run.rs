//! Runs: sorted, immutable, in the pool or in a file; with their index, filter, least and greatest key in
//! DRAM.
//!
//! A lookup compares with the two keys, tests the filter (a line of DRAM), finds the block in the index
//! (DRAM), and reads that block: in the pool four neighbouring lines, in a file a page of 4 KiB, if the cache
//! does not have it.
//!
//! Memory: the index, a key for each block (in a file: each page of 16 blocks); the filter.

use crate::error::{Error, Result};
use crate::lsm::cache::{Page, PageCache};
use crate::lsm::files::block::{BLOCK_WORDS, Block, LsmEntry, capacity};
use crate::lsm::files::file::{PAGE_BLOCKS, PAGE_WORDS, RunFile};
use crate::lsm::files::filter::{Filter, KeyHash};
use crate::lsm::files::segments::{SEGMENT_BLOCKS, block_offset};
use crate::node::FixedKey;
use entresol_memory::{Error as MemoryError, Pool, PoolOffset};
use std::sync::OnceLock;

/// Media of runs.
pub(crate) struct Media<'m> {
    pub(crate) pool: &'m Pool,
    pub(crate) cache: &'m PageCache,
}

/// Record of a run in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunRecord<K> {
    pub(crate) level: usize,
    pub(crate) number: u64,
    pub(crate) entries: u64,
    pub(crate) blocks: usize,
    /// The last segment; 0 for a run in a file.
    pub(crate) last_segment: PoolOffset,
    pub(crate) min: K,
    pub(crate) max: K,
}

pub(crate) enum RunLocation {
    Pool(Box<[PoolOffset]>),
    File(RunFile),
}

pub(crate) struct Run<K> {
    pub(crate) record: RunRecord<K>,
    place: RunLocation,
    index: BlockIndex<K>,
    /// Missing after a pool was opened: lookups do without until it is built.
    filter: OnceLock<Filter>,
}

/// The smallest key of each block or page; every 64th of them once more, so that a search stays in few lines.
struct BlockIndex<K> {
    mins: Vec<K>,
    tops: Vec<K>,
}

const TOP_STRIDE: usize = 64;

impl<K: FixedKey> BlockIndex<K> {
    fn new(mins: Vec<K>) -> BlockIndex<K> {
        let tops = mins.iter().step_by(TOP_STRIDE).copied().collect();
        BlockIndex { mins, tops }
    }

    /// Returns the last index whose smallest key is not above this one.
    #[inline]
    fn floor(&self, key: K) -> Option<usize> {
        let top = self.tops.partition_point(|min| *min <= key).checked_sub(1)? * TOP_STRIDE;
        let group = &self.mins[top..(top + TOP_STRIDE).min(self.mins.len())];
        Some(top + group.partition_point(|min| *min <= key) - 1)
    }
}

impl<K: FixedKey> Run<K> {
    pub(crate) fn new(
        record: RunRecord<K>,
        place: RunLocation,
        mins: Vec<K>,
        filter: Option<Filter>,
    ) -> Run<K> {
        Run {
            record,
            place,
            index: BlockIndex::new(mins),
            filter: filter.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// Opens a run in segments: reads one line of each block.
    pub(crate) fn of_segments(
        pool: &Pool,
        record: RunRecord<K>,
        segments: Vec<PoolOffset>,
    ) -> Result<Run<K>> {
        let mut mins = Vec::with_capacity(record.blocks);
        for block in 0..record.blocks {
            let offset = block_offset(segments[block / SEGMENT_BLOCKS], block % SEGMENT_BLOCKS);
            pool.verify(offset, BLOCK_WORDS * 8)?;
            let min = K::load(&pool.words(offset, 1 + K::WORDS)[1..]);
            if mins.last().is_some_and(|before| *before >= min) {
                let message =
                    "the first key of a block of a run is not above that of the block before".to_string();
                return Err(Error::Corrupt { offset, message });
            }
            mins.push(min);
        }
        if mins.first() != Some(&record.min) || mins.last().is_some_and(|last| *last > record.max) {
            let message = format!("run {} does not have the range of keys in the manifest", record.number);
            return Err(Error::Corrupt { offset: record.last_segment, message });
        }
        Ok(Run::new(record, RunLocation::Pool(segments.into()), mins, None))
    }

    pub(crate) fn is_in_pool(&self) -> bool {
        matches!(self.place, RunLocation::Pool(_))
    }

    /// Returns keys that divide it into so many parts, or fewer.
    pub(crate) fn sample(&self, wanted: usize) -> Vec<K> {
        let mins = &self.index.mins;
        mins.iter().step_by((mins.len() / wanted.max(1)).max(1)).copied().collect()
    }

    /// Estimates the share of its keys below a key.
    pub(crate) fn share_below(&self, key: K) -> f64 {
        let blocks = self.index.mins.len().max(1) as f64;
        self.index.floor(key).map_or(0.0, |block| (block as f64 + 0.5) / blocks)
    }

    pub(crate) fn file(&self) -> Option<&RunFile> {
        match &self.place {
            RunLocation::File(file) => Some(file),
            RunLocation::Pool(_) => None,
        }
    }

    pub(crate) fn index_bytes(&self) -> usize {
        (self.index.mins.len() + self.index.tops.len()) * size_of::<K>()
    }

    pub(crate) fn filter_bytes(&self) -> usize {
        self.filter.get().map_or(0, Filter::bytes)
    }

    pub(crate) fn has_filter(&self) -> bool {
        self.filter.get().is_some()
    }

    /// Builds the filter of a run that has none: reads the complete run.
    pub(crate) fn build_filter(&self, media: &Media<'_>, bits: u32) -> Result<()> {
        let mut filter = Filter::new(self.record.entries, bits);
        let mut cursor = Cursor::first(self, true);
        while let Some(entry) = cursor.next(media)? {
            filter.add(KeyHash::of(entry.key));
        }
        // Another thread may have been faster.
        let _ = self.filter.set(filter);
        Ok(())
    }

    /// Returns the block with a number, verified.
    #[inline]
    fn block(&self, media: &Media<'_>, number: usize) -> Result<Block> {
        match &self.place {
            RunLocation::Pool(segments) => {
                let offset = block_offset(segments[number / SEGMENT_BLOCKS], number % SEGMENT_BLOCKS);
                (0..4).for_each(|line| media.pool.prefetch(offset.plus(line * 64)));
                media.pool.verify(offset, BLOCK_WORDS * 8)?;
                let block = Block::load(media.pool, offset);
                self.check(&block, number)?;
                Ok(block)
            }
            RunLocation::File(file) => {
                let page = self.page(media, file, number / PAGE_BLOCKS)?;
                let at = number % PAGE_BLOCKS * BLOCK_WORDS;
                Ok(Block::of_words(&page[at..at + BLOCK_WORDS]))
            }
        }
    }

    /// Returns a page of a file. Its blocks are verified when it is read, so those in the cache are sound.
    fn page(&self, media: &Media<'_>, file: &RunFile, page: usize) -> Result<Page> {
        let id = (self.record.number, page);
        if let Some(found) = media.cache.find(id) {
            return Ok(found);
        }
        let read: Page = file.read_pages(page, 1)?.into();
        for (number, words) in self.blocks_of_page(page).zip(read.chunks_exact(BLOCK_WORDS)) {
            self.check(&Block::of_words(words), number)?;
        }
        media.cache.add(id, &read);
        Ok(read)
    }

    fn blocks_of_page(&self, page: usize) -> std::ops::Range<usize> {
        page * PAGE_BLOCKS..((page + 1) * PAGE_BLOCKS).min(self.record.blocks)
    }

    #[inline]
    fn check(&self, block: &Block, number: usize) -> Result<()> {
        if block.is_sound::<K>(self.record.number, number) { Ok(()) } else { Err(self.damaged(number)) }
    }

    #[cold]
    fn damaged(&self, number: usize) -> Error {
        let message = format!("block {number} of run {} does not match its checksum", self.record.number);
        match &self.place {
            RunLocation::Pool(segments) => {
                let offset = block_offset(segments[number / SEGMENT_BLOCKS], number % SEGMENT_BLOCKS);
                Error::Corrupt { offset, message }
            }
            RunLocation::File(file) => MemoryError::corrupt(&file.path, number as u64 * 256, message).into(),
        }
    }

    /// Returns true if the run may have a key.
    #[inline]
    pub(crate) fn candidate(&self, key: K, hash: KeyHash) -> bool {
        key >= self.record.min
            && key <= self.record.max
            && self.filter.get().is_none_or(|filter| filter.may_have(hash))
    }

    /// Finds the only block that may have a key: the last one that does not begin after it.
    #[inline]
    fn locate(&self, media: &Media<'_>, key: K) -> Result<Option<(usize, Block)>> {
        let Some(place) = self.index.floor(key) else { return Ok(None) };
        let RunLocation::File(file) = &self.place else {
            let block = self.block(media, place)?;
            // The first line of the next block, read at open, has to be verified too.
            if block.key::<K>(block.len() - 1) < key && place + 1 < self.record.blocks {
                self.block(media, place + 1)?;
            }
            return Ok(Some((place, block)));
        };
        // The index has the pages only.
        let page = self.page(media, file, place)?;
        let blocks = self.blocks_of_page(place);
        let begins = |block: usize| K::of_words(&page[block * BLOCK_WORDS + 1..][..K::WORDS]);
        let (mut from, mut to) = (0, blocks.len());
        while to - from > 1 {
            let middle = from.midpoint(to);
            if begins(middle) <= key { from = middle } else { to = middle }
        }
        Ok(Some((blocks.start + from, Block::of_words(&page[from * BLOCK_WORDS..][..BLOCK_WORDS]))))
    }

    /// Returns the entry of a key for which [`Run::candidate`] was true.
    #[inline]
    pub(crate) fn find(&self, media: &Media<'_>, key: K) -> Result<Option<LsmEntry<K>>> {
        Ok(self.locate(media, key)?.and_then(|(_, block)| block.find(key)))
    }

    /// Prefetches the block of a key.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool, key: K) {
        if let RunLocation::Pool(segments) = &self.place
            && let Some(number) = self.index.floor(key)
        {
            let offset = block_offset(segments[number / SEGMENT_BLOCKS], number % SEGMENT_BLOCKS);
            (0..4).for_each(|line| pool.prefetch(offset.plus(line * 64)));
        }
    }

    /// Verifies every block, their order, and the record in the manifest.
    pub(crate) fn verify(&self, media: &Media<'_>) -> Result<()> {
        let mut cursor = Cursor::first(self, true);
        let (mut entries, mut last) = (0u64, None);
        while let Some(entry) = cursor.next(media)? {
            if last.is_some_and(|last| last >= entry.key) {
                return Err(self.damaged(cursor.number));
            }
            last = Some(entry.key);
            entries += 1;
        }
        let blocks_max = entries.div_ceil(capacity::<K>() as u64);
        if entries != self.record.entries
            || last != Some(self.record.max)
            || blocks_max != self.record.blocks as u64
        {
            return Err(self.damaged(self.record.blocks.saturating_sub(1)));
        }
        Ok(())
    }
}

/// Cursor of a run, in one direction.
pub(crate) struct Cursor<'r, K> {
    run: &'r Run<K>,
    block: Block,
    /// The block's number, and the number of its entries that are still to be returned.
    number: usize,
    left: usize,
    forward: bool,
    is_at_end: bool,
    /// Pages read ahead, and the number of the first; only if the complete file is read.
    ahead: Option<(usize, Vec<u64>)>,
}

/// Pages that are read at once if the complete file is read.
const PAGES_AHEAD: usize = 16;

impl<'r, K: FixedKey> Cursor<'r, K> {
    fn new(run: &'r Run<K>, forward: bool) -> Cursor<'r, K> {
        Cursor { run, block: Block::empty(), number: 0, left: 0, forward, is_at_end: false, ahead: None }
    }

    /// Creates a cursor before the first entry. `all`: the complete run will be read, so the cache is
    /// bypassed.
    pub(crate) fn first(run: &'r Run<K>, all: bool) -> Cursor<'r, K> {
        let mut cursor = Cursor::new(run, true);
        // One before the first block.
        cursor.number = usize::MAX;
        cursor.ahead = (all && !run.is_in_pool()).then(|| (0, Vec::new()));
        cursor
    }

    /// Creates an ascending cursor before the first entry not below a key.
    pub(crate) fn from(run: &'r Run<K>, media: &Media<'_>, key: K) -> Result<Cursor<'r, K>> {
        let Some((number, block)) = run.locate(media, key)? else { return Ok(Cursor::first(run, false)) };
        let mut cursor = Cursor::new(run, true);
        (cursor.number, cursor.block) = (number, block);
        cursor.left = cursor.block.len() - cursor.block.lower_bound(key);
        Ok(cursor)
    }

    /// Creates a descending cursor before the last entry not above a key.
    pub(crate) fn back_from(run: &'r Run<K>, media: &Media<'_>, key: K) -> Result<Cursor<'r, K>> {
        let mut cursor = Cursor::new(run, false);
        let Some((number, block)) = run.locate(media, key)? else {
            cursor.is_at_end = true;
            return Ok(cursor);
        };
        (cursor.number, cursor.block) = (number, block);
        let at = cursor.block.lower_bound(key);
        let is_there = at < cursor.block.len() && cursor.block.key::<K>(at) == key;
        cursor.left = at + usize::from(is_there);
        Ok(cursor)
    }

    /// Returns the next entry in the cursor's direction.
    #[inline]
    pub(crate) fn next(&mut self, media: &Media<'_>) -> Result<Option<LsmEntry<K>>> {
        if self.left == 0 && !self.next_block(media)? {
            return Ok(None);
        }
        let slot = if self.forward { self.block.len() - self.left } else { self.left - 1 };
        self.left -= 1;
        Ok(Some(self.block.entry(slot)))
    }

    fn next_block(&mut self, media: &Media<'_>) -> Result<bool> {
        let next =
            if self.forward { self.number.checked_add(1).unwrap_or(0) } else { self.number.wrapping_sub(1) };
        if self.is_at_end || next >= self.run.record.blocks {
            self.is_at_end = true;
            return Ok(false);
        }
        self.block = match (&mut self.ahead, self.run.file()) {
            (Some((first, words)), Some(file)) => {
                let page = next / PAGE_BLOCKS;
                if !(*first..*first + words.len() / PAGE_WORDS).contains(&page) {
                    let pages = self.run.record.blocks.div_ceil(PAGE_BLOCKS);
                    *words = file.read_pages(page, PAGES_AHEAD.min(pages - page))?;
                    *first = page;
                }
                let at = (next - *first * PAGE_BLOCKS) * BLOCK_WORDS;
                let block = Block::of_words(&words[at..at + BLOCK_WORDS]);
                self.run.check(&block, next)?;
                block
            }
            _ => self.run.block(media, next)?,
        };
        (self.number, self.left) = (next, self.block.len());
        Ok(true)
    }
}
