//! The sparse index: the low keys of some leaves, so that opening a tree does not read all leaves.
//!
//! ```text
//! header word 2 ── page ── page ── ... ── 0
//!
//! page word     content (W = words of a key)
//! 0             offset of the next page; 0: last
//! 1..           entries: offset of a leaf (0: entry free), its low key (W words)
//! ```
//!
//! Every lowest inner node but the leftmost has an entry for its first leaf, unless there was no memory for
//! one. Two neighbouring entries are the ends of a *segment* of the chain of leaves, which becomes one inner
//! node when it is opened (`opening`).
//!
//! Invariants:
//! 1. An entry names a leaf of the tree, not the first of all, and has its low key.
//! 2. Any subset of the leaves is valid: a leaf without an entry lengthens the segment before.
//!
//! After a crash: an entry is added by a publication of its own after the leaf is in the chain, so it exists
//! or not; it moves to the next leaf, or is removed, in the publication that frees its leaf. A page is valid
//! once the header refers to it, and its entries are free then.
//!
//! Memory: in the pool an entry for each 28 leaves or more; in DRAM the offsets of free entries.

use super::FpTree;
use crate::error::{Error, Result};
use crate::key::TreeKey;
use crate::leaf::LEAF_BYTES;
use crate::points::{SPARSE_ENTRY_AFTER_ITS_KEY, SPARSE_PAGE};
use entresol_memory::{Pool, PoolOffset, Publication};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page. Larger than a leaf: entries lie together, so that opening reads them together.
pub(super) const PAGE_BYTES: usize = 4096;
const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// Offset in a tree's header of the reference to the first page.
pub(super) const FIRST_PAGE: u64 = 16;

/// A valid entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct SparseEntry<S> {
    pub(super) low: S,
    pub(super) leaf: PoolOffset,
    /// Its offset in the pool.
    pub(super) place: PoolOffset,
}

/// The valid entries of a tree, in no order.
pub(super) type SparseEntries<K> = Vec<SparseEntry<<K as TreeKey>::Stored>>;

/// The free entries of an open tree. Under the tree's structure lock.
pub(super) struct SparseIndex<K: TreeKey> {
    free: Vec<PoolOffset>,
    /// Entries of a page that are used, at most as many as fit.
    page_entries_max: usize,
    key: PhantomData<K>,
}

impl<K: TreeKey> SparseIndex<K> {
    const ENTRY_WORDS: usize = 1 + K::WORDS;
    const ENTRIES: usize = (PAGE_WORDS - 1) / Self::ENTRY_WORDS;

    /// Reads the pages of a tree; returns the valid entries, in no order. Damage is an error.
    pub(super) fn read(
        pool: &Pool,
        header: PoolOffset,
        page_entries_max: usize,
    ) -> Result<(SparseIndex<K>, SparseEntries<K>)> {
        let (mut free, mut entries) = (Vec::new(), Vec::new());
        Self::for_each_page(pool, header, |page, words| {
            for (index, entry) in words[1..].chunks_exact(Self::ENTRY_WORDS).enumerate() {
                let place = Self::place(page, index);
                let leaf = PoolOffset::from_word(entry[0].load(Ordering::Acquire));
                if leaf.is_null() {
                    free.extend((index < page_entries_max).then_some(place));
                } else if !leaf.is_aligned(64) || !pool.contains(leaf, LEAF_BYTES as u64) {
                    let message = format!("it refers to {leaf:#x}, which cannot hold a leaf");
                    return Err(Error::Corrupt { offset: place, message });
                } else {
                    entries.push(SparseEntry { low: K::load(&entry[1..]), leaf, place });
                }
            }
            Ok(())
        })?;
        Ok((SparseIndex { free, page_entries_max, key: PhantomData }, entries))
    }

    /// Returns the offset of an entry of a page.
    fn place(page: PoolOffset, index: usize) -> PoolOffset {
        page.word(1 + index * Self::ENTRY_WORDS)
    }

    /// Calls `visit` with the offset and the words of every page.
    pub(super) fn for_each_page(
        pool: &Pool,
        header: PoolOffset,
        mut visit: impl FnMut(PoolOffset, &[AtomicU64]) -> Result<()>,
    ) -> Result<()> {
        let mut page = PoolOffset::from_word(pool.word(header.plus(FIRST_PAGE)).load(Ordering::Acquire));
        let mut left = pool.bytes() / PAGE_BYTES as u64;
        while !page.is_null() {
            let words = pool.try_words(page, PAGE_WORDS).filter(|_| page.is_aligned(64) && left > 0);
            let Some(words) = words else {
                let message = format!("its sparse index refers to {page:#x}, which cannot hold a page");
                return Err(Error::Corrupt { offset: header, message });
            };
            pool.verify_with_neighbours(page, PAGE_BYTES)?;
            visit(page, words)?;
            page = PoolOffset::from_word(words[0].load(Ordering::Acquire));
            left -= 1;
        }
        Ok(())
    }

    /// Adds an entry for a leaf that is in the chain; returns its place. Cost: one publication, and every 170
    /// or 255 entries one more.
    pub(super) fn add(
        &mut self,
        pool: &Pool,
        header: PoolOffset,
        low: K::Stored,
        leaf: PoolOffset,
    ) -> Result<PoolOffset> {
        assert!(!leaf.is_null() && leaf.is_aligned(64), "an entry names a leaf, not {leaf:#x}");
        if self.free.is_empty() {
            self.add_page(pool, header)?;
        }
        let place = *self.free.last().expect("a new page has free entries");
        debug_assert_eq!(pool.word(place).load(Ordering::Acquire), 0, "the entry at {place:#x} is free");
        let mut publication = pool.publication();
        for word in 0..K::WORDS {
            publication.write(place.word(1 + word), K::word(low, word));
        }
        publication.after(SPARSE_ENTRY_AFTER_ITS_KEY);
        publication.set(place, leaf.to_word());
        publication.publish()?;
        self.free.pop();
        Ok(place)
    }

    fn add_page(&mut self, pool: &Pool, header: PoolOffset) -> Result<()> {
        let page = pool.reserve(PAGE_BYTES)?;
        let words = pool.words(page.offset(), PAGE_WORDS);
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        words[0].store(pool.word(header.plus(FIRST_PAGE)).load(Ordering::Acquire), Ordering::Relaxed);
        pool.flush_at(page.offset(), PAGE_BYTES, SPARSE_PAGE);
        let mut publication = pool.publication();
        let page = publication.allocate(page);
        assert!(!page.is_null() && page.is_aligned(64), "a page begins at a line, not at {page:#x}");
        publication.set(header.plus(FIRST_PAGE), page.to_word());
        publication.publish()?;
        let entries = (0..Self::ENTRIES.min(self.page_entries_max)).rev();
        self.free.extend(entries.map(|index| Self::place(page, index)));
        Ok(())
    }

    /// Removes a leaf's entry, or makes it an entry of `next`, in the publication that frees the leaf.
    pub(super) fn release(
        place: PoolOffset,
        next: Option<(K::Stored, PoolOffset)>,
        with: &mut Publication<'_>,
    ) {
        assert!(!place.is_null() && place.is_aligned(8), "there is no entry at {place:#x}");
        let Some((low, leaf)) = next else { return with.set(place, 0) };
        with.set(place, leaf.to_word());
        for word in 0..K::WORDS {
            with.set(place.word(1 + word), K::word(low, word));
        }
    }

    /// Records a removed entry as free.
    pub(super) fn add_free(&mut self, place: PoolOffset) {
        assert!(!place.is_null() && place.is_aligned(8), "there is no entry at {place:#x}");
        self.free.push(place);
    }

    /// Frees the first page of a tree that is being destroyed; false if there is none.
    pub(super) fn destroy_page(pool: &Pool, header: PoolOffset) -> Result<bool> {
        assert!(!header.is_null() && header.is_aligned(64), "a tree begins at a line, not at {header:#x}");
        let page = PoolOffset::from_word(pool.word(header.plus(FIRST_PAGE)).load(Ordering::Acquire));
        if page.is_null() {
            return Ok(false);
        }
        let words = pool.try_words(page, PAGE_WORDS).filter(|_| page.is_aligned(64));
        let words = words.ok_or_else(|| Error::Corrupt {
            offset: header,
            message: format!("its sparse index refers to {page:#x}, which cannot hold a page"),
        })?;
        pool.verify(page, PAGE_BYTES)?;
        let next = words[0].load(Ordering::Acquire);
        // A freed page must not be freed again.
        if PoolOffset::from_word(next) == page {
            let message = "a page of its sparse index refers to itself".to_owned();
            return Err(Error::Corrupt { offset: page, message });
        }
        let mut publication = pool.publication();
        publication.free(page);
        publication.set(header.plus(FIRST_PAGE), next);
        publication.publish()?;
        Ok(true)
    }
}

impl<K: TreeKey> FpTree<K> {
    /// Verifies the sparse index of a sound chain of leaves; `object` is called with the offset of every
    /// page.
    pub(super) fn check_sparse(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        SparseIndex::<K>::for_each_page(&self.pool, self.header, |page, _| {
            object(page);
            Ok(())
        })?;
        let (_, entries) = SparseIndex::<K>::read(&self.pool, self.header, usize::MAX)?;
        let mut by_leaf: std::collections::HashMap<PoolOffset, SparseEntry<K::Stored>> =
            entries.iter().map(|entry| (entry.leaf, *entry)).collect();
        let twice = entries.len() - by_leaf.len();
        let mut at = self.leaf(self.first_leaf()).next();
        while !at.is_null() {
            let leaf = self.leaf(at);
            if let Some(entry) = by_leaf.remove(&at)
                && !same::<K>(entry.low, leaf.low())
            {
                let message =
                    format!("its entry of the sparse index, at {:#x}, has another low key", entry.place);
                return Err(Error::Corrupt { offset: at, message });
            }
            at = leaf.next();
        }
        if let Some(entry) = by_leaf.values().next() {
            let message =
                format!("the sparse index refers to {:#x}, which is not a leaf after the first", entry.leaf);
            return Err(Error::Corrupt { offset: entry.place, message });
        }
        if twice > 0 {
            let message = format!("the sparse index refers to {twice} leaves twice");
            return Err(Error::Corrupt { offset: self.header, message });
        }
        Ok(())
    }
}

/// Returns true if two stored keys are the same words.
pub(super) fn same<K: TreeKey>(left: K::Stored, right: K::Stored) -> bool {
    (0..K::WORDS).all(|word| K::word(left, word) == K::word(right, word))
}
