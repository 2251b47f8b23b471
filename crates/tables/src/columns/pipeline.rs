//! Pages in use by a scan, and the speed of its pipeline: the scan and all that consumes its blocks.
//!
//! - The first look-up of a page by a scan goes to the cache, all others are answered here, until the last block of
//!   its row group is read. Memory: the pages of the row groups that are being read, reserved in the memory of
//!   queries; a page that has no room there is looked up in the cache again.
//! - Time in which a block is decoded and consumed is processing, time in which pages are loaded is not. Readers
//!   side by side share the work evenly, so the time of the pipeline is theirs divided by their number.
//! - The pipeline is reported to the cache while it runs, at most every [`REPORT_INTERVAL`], and at its end.

use crate::columns::cache::PageCache;
use crate::columns::cache::model::Pipeline;
use crate::columns::cache::page_key::{ColumnKey, StoreNumber};
use crate::columns::page::ColumnPage;
use crate::columns::store::ColumnStore;
use crate::error::Result;
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use entresol_transactions::Transaction;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time between two reports of a running pipeline.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Meter of a scan's pipeline; see the [module](self).
pub(crate) struct PipelineMeter {
    number: u64,
    store: StoreNumber,
    /// Cache that learns of the pipeline; none in time travel, which goes around it.
    cache: Option<Arc<PageCache>>,
    /// Blocks of each row group, and those that are not read yet.
    blocks: Vec<u32>,
    blocks_left: Vec<AtomicU32>,
    blocks_read: AtomicU64,
    processing_ns: AtomicU64,
    readers: AtomicUsize,
    uses: Mutex<PageUses>,
}

/// Pages that are in use, and bytes of those that were.
struct PageUses {
    /// Pages of the row groups that are being read; none for one that memory has no room for.
    held: HashMap<(usize, u16), Option<Arc<ColumnPage>>>,
    reserved: Option<MemoryReservation>,
    /// Bytes of the pages that were looked up, by column.
    bytes: BTreeMap<u16, u64>,
    /// Blocks of the row groups of these pages.
    blocks_begun: u64,
    /// Row groups of which pages were looked up.
    is_begun: Vec<bool>,
    reported: Option<Instant>,
}

impl std::fmt::Debug for PipelineMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineMeter").field("number", &self.number).finish_non_exhaustive()
    }
}

impl PipelineMeter {
    /// Meter of a scan of row groups with so many blocks each.
    pub(crate) fn new(columns: &ColumnStore, tx: &Transaction, blocks: Vec<u32>) -> PipelineMeter {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let cache = columns.cache();
        let uses = PageUses {
            held: HashMap::new(),
            reserved: cache.budget().map(|budget| budget.empty(MemoryConsumer::Queries)),
            bytes: BTreeMap::new(),
            blocks_begun: 0,
            is_begun: vec![false; blocks.len()],
            reported: None,
        };
        PipelineMeter {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            store: columns.number(),
            cache: tx.as_of().is_none().then(|| Arc::clone(cache)),
            blocks_left: blocks.iter().map(|blocks| AtomicU32::new(*blocks)).collect(),
            blocks,
            blocks_read: AtomicU64::new(0),
            processing_ns: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            uses: Mutex::new(uses),
        }
    }

    /// Notes a reader.
    pub(crate) fn add_reader(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a row group that is not read.
    pub(crate) fn skip_group(&self, group: usize) {
        self.blocks_left[group].store(0, Ordering::Relaxed);
    }

    /// Page of a row group, by its position; `load` looks it up in the cache.
    pub(crate) fn page(
        &self,
        group: usize,
        column: u16,
        load: impl FnOnce() -> Result<Arc<ColumnPage>>,
    ) -> Result<Arc<ColumnPage>> {
        if let Some(Some(page)) = self.uses.lock().held.get(&(group, column)) {
            return Ok(Arc::clone(page));
        }
        let page = load()?;
        let mut uses = self.uses.lock();
        let bytes = page.memory_bytes() as u64;
        let is_left = self.blocks_left[group].load(Ordering::Relaxed) > 0;
        if !is_left || uses.held.contains_key(&(group, column)) {
            return Ok(page);
        }
        *uses.bytes.entry(column).or_default() += bytes;
        if !std::mem::replace(&mut uses.is_begun[group], true) {
            uses.blocks_begun += u64::from(self.blocks[group]);
        }
        let has_room = uses.reserved.as_mut().is_none_or(|reserved| reserved.try_grow(bytes).is_ok());
        uses.held.insert((group, column), has_room.then(|| Arc::clone(&page)));
        Ok(page)
    }

    /// Notes that a block was read and processed.
    pub(crate) fn note_block(&self, group: usize, processing: Duration) {
        let ns = u64::try_from(processing.as_nanos()).unwrap_or(u64::MAX);
        self.processing_ns.fetch_add(ns, Ordering::Relaxed);
        self.blocks_read.fetch_add(1, Ordering::Relaxed);
        let left = &self.blocks_left[group];
        let taken = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        if taken != Ok(1) {
            return;
        }
        let now = Instant::now();
        let mut uses = self.uses.lock();
        uses.release(group);
        let is_due = uses.reported.is_none_or(|at| now.saturating_duration_since(at) >= REPORT_INTERVAL);
        if is_due {
            uses.reported = Some(now);
            self.report(&uses, false);
        }
    }

    /// Reports the pipeline to the cache. Of one that runs, the input is estimated: that of the row groups which
    /// it has begun, and as much of each block of the others.
    fn report(&self, uses: &PageUses, is_ended: bool) {
        let Some(cache) = &self.cache else { return };
        let blocks_read = self.blocks_read.load(Ordering::Relaxed) as f64;
        let left: u64 = self.blocks_left.iter().map(|left| u64::from(left.load(Ordering::Relaxed))).sum();
        let begun = (uses.blocks_begun as f64).max(1.0);
        let readers = self.readers.load(Ordering::Relaxed).max(1) as f64;
        let seconds = self.processing_ns.load(Ordering::Relaxed) as f64 / 1e9 / readers;
        let bytes = uses.bytes.values().sum::<u64>() as f64;
        if seconds <= 0.0 || bytes <= 0.0 {
            return;
        }
        let bytes_per_second = bytes * (blocks_read / begun).min(1.0) / seconds;
        let all = if is_ended { begun } else { (blocks_read + left as f64).max(begun) };
        let column = |(column, bytes): (&u16, &u64)| {
            (ColumnKey { store: self.store, column: *column }, *bytes as f64 * all / begun)
        };
        let pipeline = Pipeline { columns: uses.bytes.iter().map(column).collect(), bytes_per_second };
        cache.observe(self.number, pipeline);
    }
}

impl PageUses {
    /// Releases the pages of a row group.
    fn release(&mut self, group: usize) {
        let mut bytes = 0;
        self.held.retain(|(of, _), page| {
            let is_gone = *of == group;
            bytes += page.iter().filter(|_| is_gone).map(|page| page.memory_bytes() as u64).sum::<u64>();
            !is_gone
        });
        if let Some(reserved) = &mut self.reserved {
            reserved.shrink(bytes);
        }
    }
}

impl Drop for PipelineMeter {
    fn drop(&mut self) {
        let uses = self.uses.lock();
        self.report(&uses, true);
    }
}
