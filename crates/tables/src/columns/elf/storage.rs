//! Elfs in the column state: pieces beside the pages of their row group.
//!
//! Piece 0 is the head, the others are the words of the body, [`PIECE_BYTES`] each; each piece begins with its
//! CRC-32C. They are written in the transaction that writes the row group, or one after another by CREATE INDEX,
//! which names the index in the catalog when all are there. What a crash in between leaves, no one reads: it is
//! removed with its row group, or by the next CREATE INDEX or DROP INDEX of the table.
//!
//! Row groups are removed by merges only, one at a time, and CREATE INDEX and DROP INDEX hold their lock.

use crate::columns::cache::CachedObject;
use crate::columns::cache::page_key::PageKey;
use crate::columns::elf::rows::{RowsElf, damaged_rows};
use crate::columns::elf::{ElfHead, StoredElf, build};
use crate::columns::group::{EntryKind, GroupSummary, RowGroup, elf_of, elf_range};
use crate::columns::page::ColumnPage;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::schema::elf::{DimensionOrder, ElfLayout};
use entresol_memory::Durability;
use entresol_structures::elf::Elf;
use entresol_transactions::{Cancellation, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a piece of a body.
const PIECE_BYTES: usize = 1 << 20;
pub(super) const WORDS_PER_PIECE: usize = PIECE_BYTES / 4;
/// Bytes of the checksum in front of the content of a piece.
pub(super) const CHECKSUM_BYTES: usize = 4;

/// Bytes with their checksum.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut bytes = crc32c::crc32c(content).to_le_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes
}

/// Content of sealed bytes; none if they are damaged.
fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let (checksum, content) = bytes.split_first_chunk::<CHECKSUM_BYTES>()?;
    (crc32c::crc32c(content) == u32::from_le_bytes(*checksum)).then_some(content)
}

/// Error of an Elf that is damaged.
pub(super) fn damaged(store: &ColumnStore, group: u32, elf: &StoredElf, what: &str) -> Error {
    if elf.holds_rows() {
        return damaged_rows(store, group, what);
    }
    Error::corrupt(
        format!("index {} of row group {group} of {}", elf.name, store.state().id()),
        format!("{what} (or drop the index and create it again)"),
    )
}

impl ColumnStore {
    /// Elf indexes that row groups written from now on have.
    pub(crate) fn elves(&self) -> Arc<[StoredElf]> {
        Arc::clone(&self.elves.read())
    }

    /// Sets the Elf indexes of the table's current definition.
    pub(crate) fn set_elves(&self, elves: Vec<StoredElf>) {
        let next = elves.iter().map(|elf| u32::from(elf.number) + 1).max().unwrap_or(0);
        self.next_elf.fetch_max(next, Ordering::Relaxed);
        *self.elves.write() = elves.into();
    }

    /// Number that no Elf index of the table has had since the database was opened.
    pub(crate) fn next_elf(&self) -> Result<u16> {
        let number = self.next_elf.fetch_add(1, Ordering::Relaxed);
        let number = u16::try_from(number).ok().filter(|number| *number < ElfLayout::NUMBER);
        number.ok_or_else(|| {
            let most = EntryKind::ELVES_MAX;
            Error::InvalidSchema {
                reason: format!("a table cannot have more than {most} Elf indexes in turn"),
            }
        })
    }

    /// Head of an Elf of a row group; none if the row group has none that is made of its columns.
    pub(crate) fn elf_head(
        &self,
        tx: &Transaction,
        group: u32,
        summary: &GroupSummary,
        elf: &StoredElf,
    ) -> Result<Option<Arc<ElfHead>>> {
        let has = |column: u16| summary.column(column).is_some();
        if !elf.holds_rows() && !elf.columns.iter().any(|column| has(*column)) {
            return Ok(None);
        }
        let key = EntryKind::Elf { number: elf.number, piece: 0 }.key(group);
        let cache_key = PageKey::of_elf_head(self.number(), elf.number, group);
        if let Some(CachedObject::ElfHead(head)) = self.cached(tx, &cache_key) {
            return Ok(Some(head));
        }
        let read = tx.read(self.state(), &key, |bytes| ElfHead::from_bytes(unsealed(bytes)?))?;
        let Some(read) = read else { return Ok(None) };
        let head = read.ok_or_else(|| damaged(self, group, elf, "its head is damaged"))?;
        if !elf.is_made_of(&head.dimensions, has) {
            return Ok(None);
        }
        let head = Arc::new(head);
        self.put_cached(tx, cache_key, CachedObject::ElfHead(Arc::clone(&head)));
        Ok(Some(head))
    }

    /// Body of an Elf, if it is in the cache.
    pub(crate) fn cached_elf(&self, tx: &Transaction, group: u32, elf: &StoredElf) -> Option<Arc<Elf>> {
        match self.cached(tx, &PageKey::of_elf_body(self.number(), elf.number, group)) {
            Some(CachedObject::Elf(body)) => Some(body),
            _ => None,
        }
    }

    /// Reads the body of an Elf, and puts it into the cache.
    pub(crate) fn read_elf(
        &self,
        tx: &Transaction,
        group: u32,
        elf: &StoredElf,
        head: &ElfHead,
    ) -> Result<Arc<Elf>> {
        let body = Arc::new(self.open_elf(tx, group, elf, head)?);
        let cache_key = PageKey::of_elf_body(self.number(), elf.number, group);
        self.put_cached(tx, cache_key, CachedObject::Elf(Arc::clone(&body)));
        Ok(body)
    }

    /// Reads the body of an Elf.
    pub(super) fn open_elf(
        &self,
        tx: &Transaction,
        group: u32,
        elf: &StoredElf,
        head: &ElfHead,
    ) -> Result<Elf> {
        let damaged = |what: &str| damaged(self, group, elf, what);
        let load = || self.read_words(tx, group, elf, head);
        let bytes_of = |words: &Result<Vec<u32>>| words.as_ref().map_or(0, |words| 4 * words.len() as u64);
        let (words, _) = self.cache().loads().load(load, bytes_of);
        let body = Elf::open(words?).map_err(|error| damaged(&error.to_string()))?;
        if body.tuples() != head.rows as usize || body.levels() != head.levels() {
            return Err(damaged("its head is that of another one"));
        }
        Ok(body)
    }

    /// Words of the body of an Elf.
    fn read_words(&self, tx: &Transaction, group: u32, elf: &StoredElf, head: &ElfHead) -> Result<Vec<u32>> {
        let damaged = |what: &str| damaged(self, group, elf, what);
        let mut words: Vec<u32> = Vec::with_capacity(head.words as usize);
        for piece in 1..=(head.words as usize).div_ceil(WORDS_PER_PIECE) {
            tx.check_running()?;
            let key = EntryKind::Elf { number: elf.number, piece: piece as u8 }.key(group);
            let read = tx.read(self.state(), &key, |bytes| {
                let (chunks, []) = unsealed(bytes)?.as_chunks::<4>() else { return None };
                words.extend(chunks.iter().map(|word| u32::from_le_bytes(*word)));
                Some(())
            })?;
            read.flatten().ok_or_else(|| damaged(&format!("piece {piece} is damaged or missing")))?;
        }
        Ok(words)
    }

    /// Writes the Elf of each index for a row group with these pages, by column id.
    pub(crate) fn write_elves(
        &self,
        tx: &Transaction,
        group: u32,
        pages: &[(u16, ColumnPage)],
    ) -> Result<()> {
        for elf in self.elves().iter() {
            let page_of = |column: &u16| pages.iter().find(|(id, _)| id == column);
            let chosen: Vec<(u16, &ColumnPage)> =
                elf.columns.iter().filter_map(page_of).map(|(id, page)| (*id, page)).collect();
            self.write_elf(tx, group, elf, &chosen)?;
        }
        Ok(())
    }

    fn write_elf(
        &self,
        tx: &Transaction,
        group: u32,
        elf: &StoredElf,
        pages: &[(u16, &ColumnPage)],
    ) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        tx.check_running()?;
        let (head, body) = build(elf.order, pages)?;
        self.put_elf(tx, group, elf, (&head.to_bytes(), &body))
    }

    /// Writes the Elf that holds the dimensions of a row group.
    pub(crate) fn write_rows_elf(&self, tx: &Transaction, group: u32, rows: &RowsElf) -> Result<()> {
        self.put_elf(tx, group, &rows.elf, (&rows.head, &rows.body))
    }

    /// Writes the pieces of an Elf.
    fn put_elf(
        &self,
        tx: &Transaction,
        group: u32,
        elf: &StoredElf,
        (head, body): (&[u8], &Elf),
    ) -> Result<()> {
        let put = |piece: u8, content: &[u8]| {
            let key = EntryKind::Elf { number: elf.number, piece }.key(group);
            tx.write(self.state(), &key, Some(&sealed(content)))
        };
        put(0, head)?;
        for (at, words) in body.words().chunks(WORDS_PER_PIECE).enumerate() {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let piece = u8::try_from(at + 1).ok().filter(|piece| *piece < u8::MAX);
            let piece = piece.ok_or_else(|| Error::InvalidSchema {
                reason: format!("Elf {}: its {} words are too many", elf.name, body.words().len()),
            })?;
            put(piece, &bytes)?;
        }
        Ok(())
    }

    /// Removes the Elfs of a row group, but for those of some numbers.
    pub(crate) fn remove_elves(&self, tx: &Transaction, group: u32, but: &BTreeSet<u16>) -> Result<usize> {
        let (range, mut from, mut gone) = (elf_range(group), None, Vec::new());
        while tx.scan_batch(self.state(), &range, &mut from, |key, _| {
            if elf_of(key).is_some_and(|number| !but.contains(&number)) {
                gone.push(key.to_vec());
            }
        })? {}
        gone.iter().try_for_each(|key| tx.write(self.state(), key, None))?;
        Ok(gone.len())
    }

    /// Writes the Elfs that row groups should have and do not, and removes those of indexes that there are not: a
    /// transaction for each row group. Nothing else removes row groups meanwhile.
    pub(crate) fn complete_elves(&self, statement: &Cancellation) -> Result<()> {
        let _merging = self.merging.lock();
        let elves = self.elves();
        let known = elves.iter().map(|elf| elf.number).chain([ElfLayout::NUMBER]);
        let known: BTreeSet<u16> = known.collect();
        let groups = self.groups(&*self.begin()?)?;
        for group in groups {
            statement.check()?;
            let tx = self.begin()?;
            let removed = self.remove_elves(&tx, group.number, &known)?;
            let mut written = 0;
            for elf in elves.iter() {
                written += usize::from(self.complete_elf(&tx, &group, elf)?);
            }
            if removed + written > 0 {
                tx.commit(Durability::None)?;
            }
        }
        Ok(())
    }

    /// Writes an Elf of a row group if it has none; true if it was written.
    fn complete_elf(&self, tx: &Transaction, group: &RowGroup, elf: &StoredElf) -> Result<bool> {
        let summary = self.summary(tx, group.number)?;
        if self.elf_head(tx, group.number, &summary, elf)?.is_some() {
            return Ok(false);
        }
        let columns = elf.columns.iter().filter(|column| summary.column(**column).is_some());
        let pages = columns.map(|column| Ok((*column, self.page(tx, group.number, *column)?)));
        let pages: Vec<(u16, Arc<ColumnPage>)> = pages.collect::<Result<_>>()?;
        let pages: Vec<(u16, &ColumnPage)> = pages.iter().map(|(column, page)| (*column, &**page)).collect();
        self.write_elf(tx, group.number, elf, &pages)?;
        Ok(!pages.is_empty())
    }

    /// Compares the Elfs of all row groups with Elfs that are built anew; says what is wrong.
    pub(crate) fn check_elves(&self, tx: &Transaction) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for group in self.groups(tx)? {
            for elf in self.elves().iter() {
                match self.check_elf(tx, &group, elf) {
                    Ok(None) => {}
                    Ok(Some(message)) => wrong.push(message),
                    Err(error) => wrong.push(error.to_string()),
                }
            }
        }
        Ok(wrong)
    }

    fn check_elf(&self, tx: &Transaction, group: &RowGroup, elf: &StoredElf) -> Result<Option<String>> {
        let summary = self.summary(tx, group.number)?;
        let says = |what: &str| Some(format!("its index {} {what} row group {}", elf.name, group.number));
        if !elf.columns.iter().any(|column| summary.column(*column).is_some()) {
            return Ok(None);
        }
        let Some(head) = self.elf_head(tx, group.number, &summary, elf)? else { return Ok(says("lacks")) };
        let body = self.read_elf(tx, group.number, elf, &head)?;
        let page = |column: u16| Ok((column, self.page(tx, group.number, column)?));
        let pages = head.dimensions.iter().map(|dimension| page(dimension.column));
        let pages: Vec<(u16, Arc<ColumnPage>)> = pages.collect::<Result<_>>()?;
        let pages: Vec<(u16, &ColumnPage)> = pages.iter().map(|(column, page)| (*column, &**page)).collect();
        let (head_now, body_now) = build(DimensionOrder::Written, &pages)?;
        let is_same = head_now.dimensions == head.dimensions && body_now == *body;
        Ok(if is_same { None } else { says("differs from the columns of") })
    }
}
