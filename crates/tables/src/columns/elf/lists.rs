//! Elfs that are searched where they are stored, with some of their lists in the cache of column pages.
//!
//! - The pieces of a body are read in place, under the transaction's snapshot ([`Transaction::read_in_place`]). Where
//!   that cannot be, as in a transaction that has written, a scan goes without the Elf.
//! - The checksums of the pieces are compared once, before the first search; then a search checks what it reads.
//! - The lists of a row group are one object of the cache, of as many bytes as they may take; it is replaced as any
//!   other, and made anew when it is needed again, with the lists that its policy begins with. So after a restart a
//!   row group's lists are back with its first search.
//!
//! Memory: the bytes of the lists, and while they are made as much again for those that wait.

use crate::columns::cache::CachedObject;
use crate::columns::cache::frames::ColumnUse;
use crate::columns::cache::model::Share;
use crate::columns::cache::page_key::{ColumnKey, PageKey};
use crate::columns::elf::storage::{CHECKSUM_BYTES, WORDS_PER_PIECE, damaged};
use crate::columns::elf::{ElfHead, StoredElf};
use crate::columns::group::EntryKind;
use crate::columns::store::ColumnStore;
use crate::error::Result;
use crate::schema::elf::{ElfCaching, ElfDefinition};
use entresol_memory::Pool;
use entresol_structures::elf::{
    CodeCondition, ElfInPlace, ElfPiece, ElfPieces, ListCache, ListCacheOptions, ListCacheStats,
};
use entresol_transactions::{PlacedValue, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the lists of a row group, at least.
const LISTS_BYTES_MIN: usize = 16 << 10;
/// Bytes of a body that are checked at a time.
const CHECKED_BYTES: usize = 8 << 10;

/// Lists of the Elf of a row group.
#[derive(Debug)]
pub(crate) struct ElfLists(ListCache);

impl ElfLists {
    /// Bytes that they may take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.options().bytes_max
    }
}

impl ColumnStore {
    /// Appends the rows of a row group that meet the conditions, by a search where its Elf is stored; false if that
    /// cannot be.
    pub(crate) fn search_lists(
        &self,
        tx: &Transaction,
        group: u32,
        (elf, head): (&StoredElf, &ElfHead),
        conditions: &[CodeCondition],
        rows: &mut Vec<u32>,
    ) -> Result<bool> {
        let pieces = (head.words as usize).div_ceil(WORDS_PER_PIECE);
        let key = |piece: usize| EntryKind::Elf { number: elf.number, piece: piece as u8 }.key(group);
        let keys: Vec<[u8; 8]> = (1..=pieces).map(key).collect();
        let searched = tx.read_in_place(self.state(), &keys, |pool, values| {
            let Some(found) = self.in_place(pool, values, head) else {
                return Err(damaged(self, group, elf, "a piece is damaged"));
            };
            let lists = self.lists(tx, group, (elf, head), &found)?;
            let cache = lists.as_ref().map(|lists| &lists.0);
            let damaged = |error: entresol_structures::Error| damaged(self, group, elf, &error.to_string());
            found.collect(cache, conditions, rows).map_err(damaged)
        })?;
        searched.map_or(Ok(false), |searched| searched.map(|()| true))
    }

    /// The body where it is stored; none if it is damaged.
    fn in_place<'p>(
        &self,
        pool: &'p Pool,
        values: &[PlacedValue],
        head: &ElfHead,
    ) -> Option<ElfInPlace<ElfPieces<'p>>> {
        let words = head.words as usize;
        let of_piece = |at: usize| 4 * WORDS_PER_PIECE.min(words - at * WORDS_PER_PIECE) + CHECKSUM_BYTES;
        let has_lengths = values.iter().enumerate().all(|(at, value)| value.bytes == of_piece(at));
        let is_checked = head.is_checked.load(Ordering::Relaxed);
        if !has_lengths || !(is_checked || values.iter().all(|value| is_sound(pool, *value))) {
            return None;
        }
        let pieces =
            values.iter().map(|value| ElfPiece { offset: value.offset, skipped: CHECKSUM_BYTES / 4 });
        let found = ElfInPlace::open(ElfPieces::new(pool, pieces, WORDS_PER_PIECE.ilog2(), words)).ok()?;
        let is_of_head = found.tuples() == head.rows as usize && found.levels() == head.levels();
        head.is_checked.store(is_of_head, Ordering::Relaxed);
        is_of_head.then_some(found)
    }

    /// Lists of a row group's Elf, which are made if they are not in the cache; none in time travel.
    fn lists(
        &self,
        tx: &Transaction,
        group: u32,
        (elf, head): (&StoredElf, &ElfHead),
        found: &ElfInPlace<ElfPieces<'_>>,
    ) -> Result<Option<Arc<ElfLists>>> {
        let ElfCaching::Lists { policy, percent, mono_lists } = elf.caching else { return Ok(None) };
        let key = PageKey::of_elf_body(self.number(), elf.number, group);
        if let Some(CachedObject::ElfLists(lists)) = self.cached(tx, &key) {
            return Ok(Some(lists));
        }
        let bytes = 4 * head.words as usize / 100 * usize::from(percent);
        let options =
            ListCacheOptions { mono_lists, ..ListCacheOptions::new(bytes.max(LISTS_BYTES_MIN), policy) };
        if !self.cache().has_room(options.bytes_max as u64) {
            return Ok(None);
        }
        tx.check_running()?;
        let lists = Arc::new(ElfLists(ListCache::new(found, options)));
        self.put_cached(tx, key, CachedObject::ElfLists(Arc::clone(&lists)));
        Ok(Some(lists))
    }

    /// Use of the cache by the bodies of an index, of which `cached` has the counts; and the number of lists of each
    /// dimension, where lists are cached. None if none was looked up.
    pub(crate) fn cached_elf_use(
        &self,
        elf: &ElfDefinition,
        cached: &BTreeMap<ColumnKey, (ColumnUse, Option<Share>)>,
    ) -> Option<(ColumnUse, Option<Vec<u64>>)> {
        let column = PageKey::of_elf_body(self.number(), elf.number, 0).column;
        let (counts, _) = *cached.get(&column)?;
        if elf.caching == ElfCaching::Whole {
            return Some((counts, None));
        }
        let mut all = ListCacheStats::default();
        for cached in self.cache().of_column(&column) {
            if let CachedObject::ElfLists(lists) = cached {
                all.add(&lists.0.stats());
            }
        }
        let counts = ColumnUse { pages: counts.pages, bytes: all.bytes, hits: all.hits, misses: all.misses };
        Some((counts, Some(all.lists)))
    }
}

/// Compares the checksum of a piece.
fn is_sound(pool: &Pool, value: PlacedValue) -> bool {
    if value.bytes < CHECKSUM_BYTES {
        return false;
    }
    let mut bytes = Vec::with_capacity(CHECKED_BYTES);
    let (mut expected, mut checksum) = (None, 0);
    for (at, words) in pool.words(value.offset, value.bytes.div_ceil(8)).chunks(CHECKED_BYTES / 8).enumerate()
    {
        bytes.clear();
        bytes.extend(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()));
        bytes.truncate(value.bytes - at * CHECKED_BYTES);
        let content = match expected {
            None => {
                let (first, content) = bytes.split_at(CHECKSUM_BYTES);
                expected = Some(first.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)));
                content
            }
            Some(_) => &bytes[..],
        };
        checksum = crc32c::crc32c_append(checksum, content);
    }
    expected == Some(checksum)
}
