//! Pages in use by a scan, and the speed of its pipeline: the scan and all that consumes its blocks.
//!
//! - The first look-up of a page by a scan goes to the cache, all others are answered here, until the last block of
//!   its row group is read. Readers that need the same page wait for the one that loads it.
//! - Of a row group in an object store the pages that are loaded ahead come by one request.
//! - Row groups are loaded ahead ([`PipelineMeter::groups_ahead`]): of the next [`GROUPS_AHEAD`] the columns that
//!   most row groups so far needed, so that storage is read while blocks are processed, as the model of
//!   proportional caching has it.
//! - Memory: the pages of the row groups that are being read or were loaded ahead, reserved in the memory of
//!   queries; a page that has no room there is looked up in the cache again.
//! - Time in which a block is decoded and consumed is processing, time in which a reader waits for pages is not.
//!   Readers side by side share the work evenly, so the time of the pipeline is theirs divided by their number.
//! - The pipeline is reported to the cache while it runs, at most every [`REPORT_INTERVAL`], and at its end.

use crate::columns::cache::PageCache;
use crate::columns::cache::model::{Bandwidths, Pipeline};
use crate::columns::cache::page_key::{ColumnKey, StoreNumber};
use crate::columns::page::ColumnPage;
use crate::columns::store::{ColumnStore, LoadedPage};
use crate::error::Result;
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use entresol_transactions::Transaction;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time between two reports of a running pipeline.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Row groups that are loaded ahead of the one that is being read.
const GROUPS_AHEAD: usize = 2;

/// Meter of a scan's pipeline; see the [module](self).
pub(crate) struct PipelineMeter {
    number: u64,
    store: StoreNumber,
    /// Cache that learns of the pipeline; none in time travel, which goes around it.
    cache: Option<Arc<PageCache>>,
    /// True if its storage is an object store.
    is_in_store: bool,
    /// Blocks of each row group, and those that are not read yet.
    blocks: Vec<u32>,
    blocks_left: Vec<AtomicU32>,
    blocks_read: AtomicU64,
    processing_ns: AtomicU64,
    readers: AtomicUsize,
    /// First row group that no reader was told to load ahead.
    ahead: AtomicUsize,
    uses: Mutex<PageUses>,
}

/// Pages that are in use, and bytes of those that were.
struct PageUses {
    /// Row groups that are being read or loaded ahead, by position.
    groups: BTreeMap<usize, GroupUses>,
    reserved: Option<MemoryReservation>,
    columns: BTreeMap<u16, ColumnUses>,
    /// Row groups of which pages were looked up, and their blocks.
    groups_begun: u32,
    blocks_begun: u64,
    reported: Option<Instant>,
}

/// Pages in use of a row group.
#[derive(Default)]
struct GroupUses {
    slots: BTreeMap<u16, Arc<Mutex<Slot>>>,
    /// True if a page was loaded.
    is_begun: bool,
    /// Bytes that are reserved for them.
    bytes: u64,
}

/// Page in use, locked while it is loaded.
#[derive(Default)]
enum Slot {
    /// Not loaded.
    #[default]
    Empty,
    /// Page at hand.
    Page(Arc<ColumnPage>),
    /// Loaded once, without room for it.
    NoRoom,
}

/// Look-ups of a column's pages.
#[derive(Debug, Clone, Copy, Default)]
struct ColumnUses {
    groups: u32,
    bytes: u64,
    cached_bytes: u64,
}

/// Prediction of the time of a pipeline by equation (1) of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PipelinePrediction {
    /// Proportion of its blocks that were read.
    pub progress: f64,
    /// Seconds with the proportion of its input that was cached so far.
    pub seconds: f64,
    /// Seconds with all of its input cached.
    pub in_memory_seconds: f64,
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
            groups: BTreeMap::new(),
            reserved: cache.budget().map(|budget| budget.empty(MemoryConsumer::Queries)),
            columns: BTreeMap::new(),
            groups_begun: 0,
            blocks_begun: 0,
            reported: None,
        };
        PipelineMeter {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            store: columns.number(),
            is_in_store: columns.object_store().is_some(),
            cache: tx.as_of().is_none().then(|| Arc::clone(cache)),
            blocks_left: blocks.iter().map(|blocks| AtomicU32::new(*blocks)).collect(),
            blocks,
            blocks_read: AtomicU64::new(0),
            processing_ns: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
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

    fn is_read(&self, group: usize) -> bool {
        self.blocks_left[group].load(Ordering::Acquire) == 0
    }

    /// Page of a row group, by its position, and the time that was waited for it; `load` looks it up in the cache.
    pub(crate) fn page(
        &self,
        group: usize,
        column: u16,
        load: impl FnOnce() -> Result<LoadedPage>,
    ) -> Result<(Arc<ColumnPage>, Duration)> {
        match self.slot(group, column) {
            Some(slot) => self.page_of_slot(&slot, (group, column), load),
            None => load().map(|loaded| (loaded.page, loaded.waited)),
        }
    }

    /// Loads pages ahead of their use, unless their row group was read meanwhile; those that a reader loads just
    /// now are left to it. `load` gets the columns, in order.
    pub(crate) fn load_ahead(
        &self,
        group: usize,
        columns: &[u16],
        load: impl FnOnce(&[u16]) -> Result<Vec<LoadedPage>>,
    ) -> Result<()> {
        let slots: Vec<(u16, Arc<Mutex<Slot>>)> =
            columns.iter().filter_map(|column| Some((*column, self.slot(group, *column)?))).collect();
        // No thread waits here, so slots may be locked together.
        let mut locked: Vec<(u16, MutexGuard<'_, Slot>)> =
            slots.iter().filter_map(|(column, slot)| Some((*column, slot.try_lock()?))).collect();
        locked.retain(|(_, slot)| matches!(**slot, Slot::Empty));
        let columns: Vec<u16> = locked.iter().map(|(column, _)| *column).collect();
        if columns.is_empty() {
            return Ok(());
        }
        for ((column, mut slot), loaded) in locked.into_iter().zip(load(&columns)?) {
            *slot = self.uses.lock().add(&loaded, (group, self.blocks[group]), column);
        }
        Ok(())
    }

    fn page_of_slot(
        &self,
        slot: &Mutex<Slot>,
        (group, column): (usize, u16),
        load: impl FnOnce() -> Result<LoadedPage>,
    ) -> Result<(Arc<ColumnPage>, Duration)> {
        if let Some(slot) = slot.try_lock()
            && let Slot::Page(page) = &*slot
        {
            return Ok((Arc::clone(page), Duration::ZERO));
        }
        let began = Instant::now();
        let mut slot = slot.lock();
        let waited = began.elapsed();
        if let Slot::Page(page) = &*slot {
            return Ok((Arc::clone(page), waited));
        }
        let loaded = load()?;
        if matches!(*slot, Slot::Empty) {
            *slot = self.uses.lock().add(&loaded, (group, self.blocks[group]), column);
        }
        Ok((loaded.page, waited + loaded.waited))
    }

    /// Slot of a page; none if no block of its row group is left.
    fn slot(&self, group: usize, column: u16) -> Option<Arc<Mutex<Slot>>> {
        let mut uses = self.uses.lock();
        if self.is_read(group) {
            return None;
        }
        Some(Arc::clone(uses.groups.entry(group).or_default().slots.entry(column).or_default()))
    }

    /// Row groups to load ahead of the one that is being read. Each is returned once.
    pub(crate) fn groups_ahead(&self, group: usize) -> Range<usize> {
        let end = (group + 1..self.blocks.len())
            .filter(|group| !self.is_read(*group))
            .nth(GROUPS_AHEAD - 1)
            .map_or(self.blocks.len(), |last| last + 1);
        let begin = self.ahead.fetch_max(end, Ordering::Relaxed).max(group + 1);
        begin.min(end)..end
    }

    /// Columns whose pages most row groups so far needed, of a row group that is to be read; none of another one.
    pub(crate) fn likely_columns(&self, group: usize) -> Vec<u16> {
        let uses = self.uses.lock();
        if self.is_read(group) {
            return Vec::new();
        }
        let is_likely = |uses_of: &ColumnUses| 2 * uses_of.groups >= uses.groups_begun;
        uses.columns.iter().filter(|(_, of)| is_likely(of)).map(|(column, _)| *column).collect()
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

    /// Pipeline as far as it is known. Of one that runs, the input is estimated: that of the row groups which it
    /// has begun, and as much of each block of the others.
    fn pipeline(&self, uses: &PageUses, is_ended: bool) -> Option<Pipeline> {
        let blocks_read = self.blocks_read.load(Ordering::Relaxed) as f64;
        let left: u64 = self.blocks_left.iter().map(|left| u64::from(left.load(Ordering::Relaxed))).sum();
        let begun = (uses.blocks_begun as f64).max(1.0);
        let readers = self.readers.load(Ordering::Relaxed).max(1) as f64;
        let seconds = self.processing_ns.load(Ordering::Relaxed) as f64 / 1e9 / readers;
        let bytes = uses.columns.values().map(|column| column.bytes).sum::<u64>() as f64;
        if seconds <= 0.0 || bytes <= 0.0 {
            return None;
        }
        let bytes_per_second = bytes * (blocks_read / begun).min(1.0) / seconds;
        let all = if is_ended { begun } else { (blocks_read + left as f64).max(begun) };
        let column = |(column, uses): (&u16, &ColumnUses)| {
            (ColumnKey { store: self.store, column: *column }, uses.bytes as f64 * all / begun)
        };
        let columns = uses.columns.iter().map(column).collect();
        Some(Pipeline { columns, bytes_per_second, storage: self.object_bandwidth() })
    }

    /// Bandwidth of the object store that it reads; none of the pool, and before the first load.
    fn object_bandwidth(&self) -> Option<f64> {
        self.cache.as_ref().filter(|_| self.is_in_store)?.object_bandwidth()
    }

    fn report(&self, uses: &PageUses, is_ended: bool) {
        if let Some(cache) = &self.cache
            && let Some(pipeline) = self.pipeline(uses, is_ended)
        {
            cache.observe(self.number, pipeline);
        }
    }

    /// Prediction of the whole time; none before a page was loaded and a block processed, and in time travel.
    pub(crate) fn prediction(&self) -> Option<PipelinePrediction> {
        let cache = self.cache.as_ref()?;
        let (pipeline, cached, bytes) = {
            let uses = self.uses.lock();
            let cached: u64 = uses.columns.values().map(|column| column.cached_bytes).sum();
            let bytes: u64 = uses.columns.values().map(|column| column.bytes).sum();
            (self.pipeline(&uses, false)?, cached, bytes)
        };
        let bandwidths = cache.bandwidths()?;
        let bandwidths = Bandwidths { storage: pipeline.storage.unwrap_or(bandwidths.storage), ..bandwidths };
        let seconds =
            |proportion| bandwidths.seconds(pipeline.bytes(), proportion, pipeline.bytes_per_second);
        let blocks: u64 = self.blocks.iter().map(|blocks| u64::from(*blocks)).sum();
        Some(PipelinePrediction {
            progress: self.blocks_read.load(Ordering::Relaxed) as f64 / blocks.max(1) as f64,
            seconds: seconds(cached as f64 / bytes.max(1) as f64),
            in_memory_seconds: seconds(1.0),
        })
    }
}

impl PageUses {
    /// Counts a page that was loaded, and retains it if there is room.
    fn add(&mut self, loaded: &LoadedPage, (group, blocks): (usize, u32), column: u16) -> Slot {
        let bytes = loaded.page.memory_bytes() as u64;
        let counts = self.columns.entry(column).or_default();
        counts.groups += 1;
        counts.bytes += bytes;
        counts.cached_bytes += if loaded.was_cached { bytes } else { 0 };
        let Some(of_group) = self.groups.get_mut(&group) else { return Slot::NoRoom };
        if !std::mem::replace(&mut of_group.is_begun, true) {
            self.groups_begun += 1;
            self.blocks_begun += u64::from(blocks);
        }
        if self.reserved.as_mut().is_some_and(|reserved| reserved.try_grow(bytes).is_err()) {
            return Slot::NoRoom;
        }
        of_group.bytes += bytes;
        Slot::Page(Arc::clone(&loaded.page))
    }

    /// Releases the pages of a row group.
    fn release(&mut self, group: usize) {
        let bytes = self.groups.remove(&group).map_or(0, |released| released.bytes);
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
