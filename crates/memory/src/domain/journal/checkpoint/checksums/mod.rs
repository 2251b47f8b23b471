//! Checksums of the pool file's pages: they detect flipped bits in data that has not been written for long.
//!
//! A page of 4 KiB has an entry: the CRC-32C of the content that the last checkpoint wrote there. The file of
//! the entries lies beside the pool:
//!
//! ```text
//! byte           what
//! 0, 4096        two header blocks ([`header`]); the valid one with the higher generation counts
//! 8192 + 4 i     entry of page i: 0 not known, 1 found damaged, else its CRC-32C (0 and 1 become 2)
//! ```
//!
//! A checkpoint writes pages and syncs the pool file, then writes entries and header and syncs them, then
//! moves the journal's replay position. Invariants:
//!
//! 1. *A page that the journal does not touch has the content of its entry.* Everything that an unfinished
//!    checkpoint wrote was dirtied after the replay position, and was written only after its record was
//!    durable: a recovery replays it. So pages that a recovery replays into are left out until a checkpoint
//!    has written them again; all others, and their entries, an unfinished checkpoint has not changed. A torn
//!    write of entries rewrites neighbours with the same values.
//! 2. *Stale entries do not count.* Position, or the position before (the crash came before the journal's
//!    header was moved), must be the journal's replay position; else all entries are discarded.
//! 3. *Damage is not covered up.* Before a page is written for the first time since open, the content of the
//!    file is compared with its entry. If it differs, the entry is "found damaged" from then on.
//! 4. *A torn entry does not count.* Pages whose blocks are freed are not replayed into, so a torn entry of
//!    theirs would be taken for damage. The header names them, durably, before their entries change; an open
//!    that finds such names finishes the work.
//!
//! A lost or torn file costs only the damage that it would detect. Entries are read on first use ([`table`]).
//! Memory: 4 bytes and a bit for each page whose entry was read, 64 KiB for each thread that verifies.

mod header;
mod table;

use crate::domain::journal::position::JournalPosition;
use crate::env::{Env, OpenMode, StorageFile};
use crate::error::{Error, Result};
use crate::mapping::{Backing, Mapping, PAGE_BYTES};
use crate::offset::PoolOffset;
use crate::order::step;
use crate::points::{POSITION_AFTER_CHECKSUMS, TORN_CHECKSUMS_NAMED};
use header::{Header, RUNS_MAX};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::Table;

const BLOCK_BYTES: usize = 4096;
const ENTRIES_START: u64 = 2 * BLOCK_BYTES as u64;
const ENTRY_BYTES: usize = 4;
const ENTRIES_PER_BLOCK: usize = BLOCK_BYTES / ENTRY_BYTES;

/// Maximum number of pages verified with one read.
const RUN_PAGES_MAX: u64 = 16;

thread_local! {
    /// Content to verify, 64 KiB at most.
    static CONTENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const UNKNOWN: u32 = 0;
const DAMAGED: u32 = 1;

/// Entry of a page with this content.
fn entry_of(page: &[u8]) -> u32 {
    debug_assert_eq!(page.len() as u64, PAGE_BYTES, "an entry stands for a whole page");
    match crc32c::crc32c(page) {
        UNKNOWN | DAMAGED => 2,
        crc => crc,
    }
}

/// Result of comparing a content with what the last checkpoint wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentMatch {
    Same,
    Other,
    /// No checkpoint has written the page, or its blocks were released.
    Never,
    /// The entries are locked by another thread.
    NotKnown,
}

/// Summary of verifying all pages of a pool file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PagesReport {
    /// Number of pages with their checksum.
    pub sound: u64,
    /// Number of pages without a checksum: never written by a checkpoint, or their checksums were lost.
    pub unknown: u64,
    /// Number of pages that the journal's replay has changed: their checksums come with the next checkpoint.
    pub replayed: u64,
    /// Offsets of damaged pages.
    pub damaged: Vec<PoolOffset>,
    /// True if the checksums were discarded when the pool was opened: lost, damaged, or stale.
    pub forgotten: bool,
}

struct Entries {
    header: Header,
    table: Table,
    /// One bit per page: a recovery has replayed into it, and no checkpoint has written it since.
    replayed: Vec<u64>,
    /// Blocks of entries that differ from the file.
    changed: std::collections::BTreeSet<usize>,
}

/// Checksums of an open pool file.
pub(crate) struct Checksums {
    uuid: [u64; 2],
    file: Box<dyn StorageFile>,
    path: PathBuf,
    pool_file: Arc<dyn StorageFile>,
    pool_path: PathBuf,
    entries: Mutex<Entries>,
    /// One bit per page: nothing is left to verify, since it was verified, written or replayed into.
    settled: Mapping,
    forgotten: bool,
}

/// Arguments of opening [`Checksums`].
pub(crate) struct ChecksumParts<'p> {
    pub(crate) path: &'p Path,
    pub(crate) uuid: [u64; 2],
    pub(crate) pool_file: Arc<dyn StorageFile>,
    pub(crate) pool_path: &'p Path,
    /// Replay position of the journal.
    pub(crate) position: JournalPosition,
    /// One bit for each page that the recovery replayed into.
    pub(crate) replayed: Vec<u64>,
    pub(crate) capacity_bytes: u64,
}

impl Checksums {
    /// Opens the checksums beside a pool, or creates them.
    pub(crate) fn open_or_create(parts: ChecksumParts<'_>, env: &Env) -> Result<Checksums> {
        let (files, path) = (env.files(), parts.path);
        let is_there = files.exists(path);
        let mode = if is_there { OpenMode::Open } else { OpenMode::Create };
        let io = |action| move |e: std::io::Error| Error::io(action, path, &e);
        let file = files.open(path, mode).map_err(io(if is_there { "open" } else { "create" }))?;
        // A name that a power failure takes back costs as much as a lost file; the pool's creation syncs it.
        let fresh = Header { position: parts.position, before: parts.position, ..Header::default() };
        let known = if is_there { read(&*file, path, parts.uuid, parts.position)? } else { None };
        let forgotten = known.is_none() && parts.position > JournalPosition::START;
        let old_bytes = file.len().map_err(io("get the length of"))?.saturating_sub(ENTRIES_START) as usize;
        // Stale content of the file is overwritten by the first checkpoint.
        let (in_file, stale_blocks) = match known {
            Some(_) => (old_bytes / BLOCK_BYTES, 0),
            None => (0, old_bytes.div_ceil(BLOCK_BYTES)),
        };
        let header = known.unwrap_or(fresh);
        let settled = settled_pages(parts.capacity_bytes, &parts.replayed)?;
        let changed = (0..stale_blocks).collect();
        let entries = Entries { header, table: Table::new(in_file), replayed: parts.replayed, changed };
        let checksums = Checksums {
            uuid: parts.uuid,
            file,
            path: path.to_path_buf(),
            pool_file: parts.pool_file,
            pool_path: parts.pool_path.to_path_buf(),
            entries: Mutex::new(entries),
            settled,
            forgotten,
        };
        let pool_bytes = checksums
            .pool_file
            .len()
            .map_err(|e| Error::io("get the length of", &checksums.pool_path, &e))?;
        checksums.make_room(pool_bytes)?;
        let mut entries = checksums.entries.lock();
        let interrupted = std::mem::take(&mut entries.header.forgotten);
        if !interrupted.is_empty() {
            checksums.forget_entries(&mut entries, &interrupted)?;
            checksums.write_entries(&mut entries)?;
            checksums.sync()?;
        }
        drop(entries);
        Ok(checksums)
    }

    /// Allocates the space of the entries for a pool of `pool_bytes`: a checkpoint must not fail on a full
    /// disk.
    pub(crate) fn make_room(&self, pool_bytes: u64) -> Result<()> {
        let entries_bytes = pool_bytes.div_ceil(PAGE_BYTES) * ENTRY_BYTES as u64;
        let bytes = ENTRIES_START + entries_bytes.next_multiple_of(BLOCK_BYTES as u64);
        let have = self.file.len().map_err(|e| Error::io("get the length of", &self.path, &e))?;
        if have >= bytes {
            return Ok(());
        }
        self.file.allocate(have, bytes - have).map_err(|e| Error::io("extend", &self.path, &e))
    }

    /// Bytes of memory that the entries of pages below `mapped_bytes` take. `None` if they are locked.
    pub(crate) fn memory_bytes(&self, mapped_bytes: u64) -> Option<u64> {
        let entries = self.entries.try_lock()?;
        let table = entries.table.memory_bytes() + entries.replayed.capacity() * size_of::<u64>();
        Some(table as u64 + mapped_bytes / PAGE_BYTES / 8)
    }

    fn settled_word(&self, page: u64) -> (&AtomicU64, u64) {
        debug_assert!(page < self.settled.mapped_bytes() * 8, "page {page} lies in the address range");
        (&self.settled.words(page / 64 * 8, 1)[0], 1 << (page % 64))
    }

    /// Verifies the pages of a range that are not settled yet. Cost: a load where they are; else a read of
    /// the file, for up to [`RUN_PAGES_MAX`] neighbours together.
    pub(crate) fn verify(&self, offset: PoolOffset, bytes: u64) -> Result<()> {
        self.verify_pages(pages_of(offset, bytes), &mut |page| {
            Err(Error::corrupt(
                &self.pool_path,
                page * PAGE_BYTES,
                "checksum mismatch: the page differs from what was written there; restore a backup",
            ))
        })
    }

    /// Verifies pages that will probably be read: damaged ones are noted, and reported when they are read.
    pub(crate) fn verify_ahead(&self, offset: PoolOffset, bytes: u64) -> Result<()> {
        self.verify_pages(pages_of(offset, bytes), &mut |_| Ok(()))
    }

    fn is_settled(&self, page: u64) -> bool {
        let (word, bit) = self.settled_word(page);
        word.load(Ordering::Acquire) & bit != 0
    }

    /// Verifies the pages that are not settled, neighbours together; calls `damaged` with the damaged ones.
    fn verify_pages(&self, mut pages: Range<u64>, damaged: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        while let Some(first) = pages.next() {
            if self.is_settled(first) {
                continue;
            }
            let mut run = first..first + 1;
            while run.end - first < RUN_PAGES_MAX && pages.start < pages.end && !self.is_settled(pages.start)
            {
                run.end = pages.start + 1;
                pages.start += 1;
            }
            self.verify_run(run, damaged)?;
        }
        Ok(())
    }

    /// Reads a run of pages without a lock, so that threads can do it in parallel. A checkpoint may write one
    /// meanwhile: a page that differs is read again under the lock.
    fn verify_run(&self, run: Range<u64>, damaged: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        debug_assert!(
            run.start < run.end && run.end - run.start <= RUN_PAGES_MAX,
            "a run has pages, and no more than are read at once: {run:?}"
        );
        let wanted: SmallVec<[u32; RUN_PAGES_MAX as usize]> = {
            let mut entries = self.entries.lock();
            run.clone().map(|page| self.entry(&mut entries, page)).collect::<Result<_>>()?
        };
        CONTENT.with_borrow_mut(|content| {
            let bytes = wanted.len() * PAGE_BYTES as usize;
            if wanted.iter().any(|entry| *entry != UNKNOWN) {
                content.resize(content.len().max(bytes), 0);
                let read = self.pool_file.read_at(&mut content[..bytes], run.start * PAGE_BYTES);
                read.map_err(|e| Error::io("read", &self.pool_path, &e))?;
            }
            for ((page, wanted), content) in run
                .zip(wanted)
                .zip(content.chunks(PAGE_BYTES as usize).map(Some).chain(std::iter::repeat(None)))
            {
                if wanted == UNKNOWN || (wanted != DAMAGED && content.map(entry_of) == Some(wanted)) {
                    let (word, bit) = self.settled_word(page);
                    word.fetch_or(bit, Ordering::AcqRel);
                } else if !self.verify_page(page)? {
                    damaged(page)?;
                }
            }
            Ok(())
        })
    }

    /// Returns true if a page has its checksum; it is settled then.
    fn verify_page(&self, page: u64) -> Result<bool> {
        // Locked, so that no checkpoint writes the page meanwhile.
        let mut entries = self.entries.lock();
        let (word, bit) = self.settled_word(page);
        if word.load(Ordering::Acquire) & bit != 0 {
            return Ok(true);
        }
        let sound = match self.entry(&mut entries, page)? {
            DAMAGED => return Ok(false),
            UNKNOWN => true,
            wanted => {
                let mut content = [0; PAGE_BYTES as usize];
                let read = self.pool_file.read_at(&mut content, page * PAGE_BYTES);
                read.map_err(|e| Error::io("read", &self.pool_path, &e))?;
                entry_of(&content) == wanted
            }
        };
        if !sound {
            debug_assert!(!self.is_settled(page), "a page that was settled is not found damaged");
            self.set(&mut entries, page, DAMAGED)?;
            tracing::error!(file = %self.pool_path.display(), offset = page * PAGE_BYTES, "a damaged page");
            return Ok(false);
        }
        word.fetch_or(bit, Ordering::AcqRel);
        Ok(true)
    }

    /// Loads the entries of pages into memory.
    pub(crate) fn load(&self, pages: Range<u64>) -> Result<()> {
        let mut entries = self.entries.lock();
        for page in pages.step_by(ENTRIES_PER_BLOCK) {
            self.entry(&mut entries, page)?;
        }
        Ok(())
    }

    /// Calls `look` with a function that compares a content with what the last checkpoint wrote to a page.
    /// Does not wait: while the entries are locked, it returns [`ContentMatch::NotKnown`].
    pub(crate) fn try_compare(&self, look: impl FnOnce(&mut dyn FnMut(u64, &[u8]) -> ContentMatch)) {
        let mut entries = self.entries.try_lock();
        look(&mut |page, content| {
            let Some(entries) = &mut entries else { return ContentMatch::NotKnown };
            match self.entry(entries, page) {
                Ok(UNKNOWN) => ContentMatch::Never,
                Ok(entry) if entry == entry_of(content) => ContentMatch::Same,
                _ => ContentMatch::Other,
            }
        });
    }

    /// Verifies pages that a checkpoint is about to write: the last time that the file's content is checked.
    pub(crate) fn before_write(&self, pages: &[u32]) -> Result<()> {
        for page in pages {
            let (word, bit) = self.settled_word(u64::from(*page));
            if word.load(Ordering::Acquire) & bit == 0 {
                // Damage is noted and stays so; the page is written all the same: other data may be on it.
                self.verify_page(u64::from(*page))?;
                debug_assert_ne!(bit, 0, "page {page} has its bit");
                word.fetch_or(bit, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Notes the checksums of pages that a checkpoint has written.
    pub(crate) fn note(&self, pages: &[u32], copies: &[u8]) -> Result<()> {
        assert!(
            copies.len() >= pages.len() * PAGE_BYTES as usize,
            "the checksums of {} pages need their copies",
            pages.len()
        );
        let mut entries = self.entries.lock();
        for (page, copy) in pages.iter().zip(copies.chunks_exact(PAGE_BYTES as usize)) {
            self.set(&mut entries, u64::from(*page), entry_of(copy))?;
            if let Some(word) = entries.replayed.get_mut(*page as usize / 64) {
                *word &= !(1 << (page % 64));
            }
        }
        Ok(())
    }

    /// Discards the entries of pages in ranges (as offset and bytes) whose blocks are about to be freed: they
    /// will read as zeros. Durable when it returns; `position` is the replay position in force.
    pub(crate) fn forget(
        &self,
        ranges: impl Iterator<Item = (PoolOffset, u64)>,
        position: JournalPosition,
    ) -> Result<()> {
        let page = |offset: PoolOffset| (offset.bytes() / PAGE_BYTES) as u32;
        let runs: Vec<_> = ranges.map(|(offset, bytes)| page(offset)..page(offset.plus(bytes))).collect();
        let mut entries = self.entries.lock();
        for runs in runs.chunks(RUNS_MAX) {
            step(TORN_CHECKSUMS_NAMED, || {
                let header = Header { forgotten: runs.to_vec(), ..entries.header.next(position) };
                self.write_header(&mut entries, header)?;
                self.sync()
            })?;
            self.forget_entries(&mut entries, runs)?;
            self.write_entries(&mut entries)?;
            // The names stay in the header until the next one: they remain correct.
            self.sync()?;
        }
        Ok(())
    }

    /// Makes the entries durable, as of a position. The pages are durable already; the journal's header moves
    /// after.
    pub(crate) fn commit(&self, position: JournalPosition) -> Result<()> {
        let mut entries = self.entries.lock();
        self.write_entries(&mut entries)?;
        let header = entries.header.next(position);
        assert!(
            position >= entries.header.position,
            "checksums of {position} do not come behind those of {}",
            entries.header.position
        );
        self.write_header(&mut entries, header)?;
        step(POSITION_AFTER_CHECKSUMS, || self.sync())
    }

    fn entry(&self, entries: &mut Entries, page: u64) -> Result<u32> {
        entries.table.get(&*self.file, page).map_err(|e| self.read_error(&e))
    }

    fn set(&self, entries: &mut Entries, page: u64, entry: u32) -> Result<()> {
        // Once found damaged, later content of the page may rest on damage.
        if self.entry(entries, page)? != DAMAGED {
            let changed = entries.table.put(&*self.file, page, entry).map_err(|e| self.read_error(&e))?;
            entries.changed.extend(changed);
        }
        Ok(())
    }

    fn forget_entries(&self, entries: &mut Entries, runs: &[Range<u32>]) -> Result<()> {
        for page in runs.iter().cloned().flatten().map(u64::from) {
            if self.entry(entries, page)? != UNKNOWN {
                let changed =
                    entries.table.put(&*self.file, page, UNKNOWN).map_err(|e| self.read_error(&e))?;
                entries.changed.extend(changed);
            }
        }
        Ok(())
    }

    fn read_error(&self, error: &std::io::Error) -> Error {
        Error::io("read", &self.path, error)
    }

    fn write_entries(&self, entries: &mut Entries) -> Result<()> {
        while let Some(&block) = entries.changed.first() {
            let bytes = entries.table.encode(&*self.file, block).map_err(|e| self.read_error(&e))?;
            self.write(&bytes, ENTRIES_START + (block * BLOCK_BYTES) as u64)?;
            // Removed only now: a failed write is tried again.
            let written = entries.changed.pop_first();
            debug_assert_eq!(written, Some(block), "blocks are written in order");
        }
        Ok(())
    }

    fn write_header(&self, entries: &mut Entries, header: Header) -> Result<()> {
        assert_eq!(
            header.generation,
            entries.header.generation + 1,
            "the header in force is not overwritten by its successor"
        );
        self.write(&header.encode(self.uuid), header.offset())?;
        entries.header = header;
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(bytes, offset).map_err(|e| Error::io("write to", &self.path, &e))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, &e))
    }

    /// Verifies all pages of the pool file that are not replayed into, including those verified before. No
    /// checkpoint may run meanwhile. `progress` is called with the number of bytes done.
    pub(crate) fn verify_all(&self, mut progress: impl FnMut(u64)) -> Result<PagesReport> {
        let bytes = self.pool_file.len().map_err(|e| Error::io("get the length of", &self.pool_path, &e))?;
        let mut report = PagesReport { forgotten: self.forgotten, ..PagesReport::default() };
        let mut content = [0; PAGE_BYTES as usize];
        for page in 0..bytes / PAGE_BYTES {
            let mut entries = self.entries.lock();
            let entry = self.entry(&mut entries, page)?;
            if entries.is_replayed(page) {
                report.replayed += 1;
                continue;
            }
            if entry == UNKNOWN {
                report.unknown += 1;
                continue;
            }
            let read = self.pool_file.read_at(&mut content, page * PAGE_BYTES);
            read.map_err(|e| Error::io("read", &self.pool_path, &e))?;
            if entry == DAMAGED || entry_of(&content) != entry {
                self.set(&mut entries, page, DAMAGED)?;
                report.damaged.push(PoolOffset::new(page * PAGE_BYTES));
            } else {
                report.sound += 1;
            }
            drop(entries);
            if page.is_multiple_of(1024) {
                progress(page * PAGE_BYTES);
            }
        }
        Ok(report)
    }

    /// File and path, for backups.
    pub(crate) fn file(&self) -> (&dyn StorageFile, &Path) {
        (&*self.file, &self.path)
    }
}

impl Entries {
    fn is_replayed(&self, page: u64) -> bool {
        self.replayed.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }
}

/// Header, if its entries belong to a journal that replays from `position`.
fn read(
    file: &dyn StorageFile,
    path: &Path,
    uuid: [u64; 2],
    position: JournalPosition,
) -> Result<Option<Header>> {
    let io = |e: std::io::Error| Error::io("read", path, &e);
    if file.len().map_err(io)? < ENTRIES_START {
        return Ok(None);
    }
    let mut blocks = [0; 2 * BLOCK_BYTES];
    file.read_at(&mut blocks, 0).map_err(io)?;
    let headers = blocks.chunks(BLOCK_BYTES).filter_map(|block| Header::decode(block, uuid));
    let newest = headers.max_by_key(|header| header.generation);
    let ours = newest.filter(|header| position == header.position || position == header.before);
    // The entries belong to the journal as it is: if its header was not moved, the next one follows the old
    // position.
    Ok(ours.map(|header| Header { position, ..header }))
}

/// Numbers of the pages of a range.
fn pages_of(offset: PoolOffset, bytes: u64) -> Range<u64> {
    offset.bytes() / PAGE_BYTES..offset.plus(bytes).bytes().div_ceil(PAGE_BYTES)
}

fn settled_pages(capacity_bytes: u64, replayed: &[u64]) -> Result<Mapping> {
    debug_assert!(
        replayed.len() as u64 * 64 * PAGE_BYTES <= capacity_bytes.next_multiple_of(64 * PAGE_BYTES),
        "pages replayed into lie in the address range"
    );
    let bytes = (capacity_bytes.div_ceil(PAGE_BYTES * 64) * 8).next_multiple_of(PAGE_BYTES);
    let make = || -> std::io::Result<Mapping> {
        let settled = Mapping::reserve(bytes)?;
        settled.grow(bytes, &Backing::Sparse)?;
        Ok(settled)
    };
    let settled =
        make().map_err(|e| Error::OutOfSpace { what: format!("map the marks of verified pages: {e}") })?;
    for (word, bits) in settled.words(0, replayed.len()).iter().zip(replayed) {
        word.store(*bits, Ordering::Relaxed);
    }
    Ok(settled)
}
