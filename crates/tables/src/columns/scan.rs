//! Scans of a table with row groups, column by column: conditions first, then the columns of the rows that meet
//! them.
//!
//! - A row group whose summary rules a condition out is not read; of the others, blocks are skipped by their
//!   summaries. Conditions are checked one after another on the encoded values; a column is decoded only for
//!   the rows that are left.
//! - Where an Elf index finds the rows that meet some conditions at less cost, those conditions are not checked
//!   ([`crate::columns::elf`]).
//! - Rows of the delta store come from a reader of their own ([`DeltaReader`]).
//! - Rows come in no order. Blocks may be read by several threads.
//! - A page is looked up once by a scan, which retains it until all blocks of its row group are read
//!   ([`crate::columns::pipeline`]); so a page that is not cached is loaded once, by a reader or, if the caller has
//!   a thread for it, ahead of the readers ([`ColumnScan::load_ahead`]).
//! - Memory: one block; the pages of the row groups that are being read or were loaded ahead, as far as the memory of queries has room
//!   for them; the places of the rows that the delta store overrides, a bit per row of their groups.

use crate::batch::arrow_schema;
use crate::batch::decode::StoredRows;
use crate::columns::clustering::prune::KeyPruning;
use crate::columns::condition::{ColumnCondition, ColumnFilter};
use crate::columns::doubles::double_of;
use crate::columns::elf::StoredElf;
use crate::columns::elf::choice::{Candidates, ScanCondition};
use crate::columns::group::{GroupSummary, RowGroup, RowSet, SummaryKind};
use crate::columns::page::{BLOCK_ROWS, ColumnPage, ColumnValues};
use crate::columns::pipeline::{PipelineMeter, PipelinePrediction};
use crate::columns::selection::{DictionaryMatches, RowSelection};
use crate::columns::store::{ColumnStore, LoadedPage, column_id};
use crate::error::Result;
use crate::schema::definition::TableLayout;
use crate::schema::elf::ElfDefinition;
use crate::table::Table;
use crate::table::row_view::RowView;
use crate::table::stored::TOMBSTONE;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{FieldRef, SchemaRef};
use entresol_structures::KeyBytes;
use entresol_transactions::{KeyRange, State, StateId, Transaction};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of rows of a batch of the delta store.
const DELTA_BATCH_ROWS: usize = 8192;
/// Bytes of strings of which a batch is made, however few its rows.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Row group of a scan.
#[derive(Debug)]
struct ScannedGroup {
    group: RowGroup,
    summary: Arc<GroupSummary>,
    /// Rows that were deleted, or that the delta store overrides.
    hidden: Option<RowSet>,
    /// Rows that an Elf finds, once it was asked; the inner none if a scan costs less.
    candidates: Mutex<Option<Option<Arc<Candidates>>>>,
    /// For each filter the entries of the page's dictionary that meet it.
    dictionaries: Vec<DictionaryMatches>,
}

/// Block of a row group of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnMorsel {
    group: u32,
    block: u32,
    /// Number of its rows.
    pub rows: u32,
}

/// Counts of a scan so far.
#[derive(Debug, Default)]
pub struct ColumnScanStats {
    /// Blocks that were read.
    pub blocks_read: AtomicU64,
    /// Blocks that summaries ruled out, or in which an Elf found no rows.
    pub blocks_skipped: AtomicU64,
    /// Row groups in which an Elf was searched.
    pub elf_searches: AtomicU64,
    /// Rows that Elfs found.
    pub elf_rows: AtomicU64,
    /// Row groups that their ranges of cluster keys ruled out.
    pub key_pruned: AtomicU64,
    /// Row groups of a clustered table that their summaries ruled out.
    pub summary_pruned: AtomicU64,
    /// Pages of columns that were loaded, those loaded ahead among them.
    pub pages_read: AtomicU64,
    /// Bytes of these pages.
    pub bytes_read: AtomicU64,
    /// Pages of columns that were in the cache.
    pub pages_cached: AtomicU64,
    /// Bytes of these pages.
    pub bytes_cached: AtomicU64,
}

/// Pages of columns that a scan used, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageUse {
    /// Pages that were loaded.
    pub pages_read: u64,
    /// Bytes of these pages.
    pub bytes_read: u64,
    /// Pages that were in the cache.
    pub pages_cached: u64,
    /// Bytes of these pages.
    pub bytes_cached: u64,
}

/// Scan of the row groups that a transaction sees; see the [module](self).
#[derive(Debug)]
pub struct ColumnScan {
    table: Arc<Table>,
    columns: Arc<ColumnStore>,
    projection: Vec<usize>,
    arrow: SchemaRef,
    filters: Vec<ColumnFilter>,
    /// Measures of the filters.
    measures: Vec<FilterMeasure>,
    /// Elf indexes that have a column of a filter.
    elves: Vec<StoredElf>,
    groups: Vec<ScannedGroup>,
    stats: ColumnScanStats,
    meter: PipelineMeter,
}

/// Reader of blocks, one after another, whose rows it gathers until [`ColumnScan::take`] makes a batch of them.
/// The time between two blocks is time that its consumer processes the first one.
#[derive(Debug)]
pub struct BlockReader {
    returned_at: Option<Instant>,
    selection: RowSelection,
    values: Vec<ColumnValues>,
    rows: usize,
}

impl BlockReader {
    /// Number of rows that were gathered.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns true if it has so many bytes of strings that a batch should be made of them.
    pub fn is_large(&self) -> bool {
        self.values.iter().map(ColumnValues::text_bytes).sum::<usize>() >= TEXT_BYTES_MAX
    }
}

/// Rows that conditions were checked for, and those that met them.
#[derive(Debug, Default)]
struct FilterMeasure {
    checked: AtomicU64,
    met: AtomicU64,
}

impl FilterMeasure {
    /// Proportion of the rows that did not meet the condition; 0 before it was checked.
    fn left_out(&self) -> f64 {
        let checked = self.checked.load(Ordering::Relaxed);
        if checked == 0 { 0.0 } else { 1.0 - self.met.load(Ordering::Relaxed) as f64 / checked as f64 }
    }

    fn note(&self, checked: usize, met: usize) {
        debug_assert!(met <= checked, "a condition leaves {met} of {checked} rows");
        self.checked.fetch_add(checked as u64, Ordering::Relaxed);
        self.met.fetch_add(met as u64, Ordering::Relaxed);
    }
}

/// Number of blocks of a row group.
fn blocks_of(group: &RowGroup) -> u64 {
    (group.rows as usize).div_ceil(BLOCK_ROWS) as u64
}

impl Table {
    /// Returns true if its rows are stored column by column; see [`Table::column_scan`].
    pub fn has_row_groups(&self) -> bool {
        self.definition().layout != TableLayout::Rows
    }

    /// State of the row groups, if it has them.
    pub fn row_group_state(&self) -> Option<&Arc<State>> {
        self.own_columns().map(|columns| columns.state())
    }

    /// Ids of the states of the row groups and of the places of rows in them.
    pub(crate) fn row_group_ids(&self) -> Vec<StateId> {
        self.own_columns().into_iter().flat_map(|columns| columns.state_ids()).collect()
    }

    /// States of the row groups and of the places of rows in them.
    pub fn row_group_states(&self) -> Vec<Arc<State>> {
        let columns = self.own_columns().into_iter();
        columns.flat_map(|columns| [Some(columns.state()), columns.places()]).flatten().cloned().collect()
    }

    /// Scan of the row groups of a table that has them, as the transaction sees them: of the columns
    /// `projection` of rows that meet all filters, as batches of the Arrow schema `arrow`. None for other
    /// tables.
    ///
    /// Cost: reads the directory, and all of the delta store to find the rows that it overrides.
    pub fn column_scan(
        self: &Arc<Table>,
        tx: &Transaction,
        projection: Vec<usize>,
        arrow: SchemaRef,
        filters: Vec<ColumnFilter>,
    ) -> Result<Option<ColumnScan>> {
        self.check_readable(tx)?;
        let Some(columns) = self.columns() else { return Ok(None) };
        let groups = columns.groups(tx)?;
        let mut overridden = self.overridden(columns, tx, &groups)?;
        let mut scanned = Vec::with_capacity(groups.len());
        let mut pruning = KeyPruning::new(columns, self.schema(), &filters);
        let stats = ColumnScanStats::default();
        for (at, group) in groups.into_iter().enumerate() {
            if !pruning.may_have(&group)? {
                stats.key_pruned.fetch_add(1, Ordering::Relaxed);
                stats.blocks_skipped.fetch_add(blocks_of(&group), Ordering::Relaxed);
                continue;
            }
            let summary = columns.summary(tx, group.number)?;
            let mut hidden = columns.deleted(tx, &group)?;
            if let Some(rows) = overridden.remove(&at) {
                let hidden = hidden.get_or_insert_with(|| RowSet::new(group.rows as usize));
                rows.into_iter().for_each(|row| {
                    hidden.insert(row);
                });
            }
            let dictionaries = filters.iter().map(|_| DictionaryMatches::default()).collect();
            scanned.push(ScannedGroup { group, summary, hidden, candidates: Mutex::default(), dictionaries });
        }
        let elves = self.elves_for(tx, &filters);
        let elves = elves.iter().map(|elf| StoredElf::of(self.schema(), elf)).collect();
        let blocks = scanned.iter().map(|scanned| (scanned.group.rows as usize).div_ceil(BLOCK_ROWS) as u32);
        let meter = PipelineMeter::new(columns, tx, blocks.collect());
        Ok(Some(ColumnScan {
            meter,
            table: Arc::clone(self),
            columns: Arc::clone(columns),
            projection,
            arrow,
            measures: filters.iter().map(|_| FilterMeasure::default()).collect(),
            filters,
            elves,
            groups: scanned,
            stats,
        }))
    }

    /// Elfs that a scan of the transaction may search for rows that meet some of the filters: that of the layout `elf`,
    /// and indexes, which have a column of one; none in time travel.
    pub fn elves_for(&self, tx: &Transaction, filters: &[ColumnFilter]) -> Vec<ElfDefinition> {
        if tx.as_of().is_some() {
            return Vec::new();
        }
        let has = |elf: &ElfDefinition| filters.iter().any(|filter| elf.columns.contains(&filter.column));
        let of_layout = self.definition().rows_elf().into_iter();
        of_layout.chain(self.definition().elves.iter().cloned()).filter(has).collect()
    }

    /// Rows of row groups that the delta store overrides, by the position of their group.
    fn overridden(
        &self,
        columns: &ColumnStore,
        tx: &Transaction,
        groups: &[RowGroup],
    ) -> Result<BTreeMap<usize, Vec<usize>>> {
        let mut overridden: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let (mut keys, mut from): (Vec<KeyBytes>, _) = (Vec::new(), None);
        let Some(last) = groups.iter().map(|group| &group.last).max() else { return Ok(overridden) };
        let range =
            KeyRange { lower: std::ops::Bound::Unbounded, upper: std::ops::Bound::Included(last.clone()) };
        loop {
            let more = tx.scan_batch(self.state(), &range, &mut from, |key, _| {
                keys.push(KeyBytes::from_slice(key));
            })?;
            if !more || keys.len() >= BLOCK_ROWS {
                for place in columns.locate(tx, self.named_schema(), groups, &keys)?.into_iter().flatten() {
                    overridden.entry(place.group).or_default().push(place.row);
                }
                keys.clear();
            }
            if !more {
                return Ok(overridden);
            }
        }
    }
}

impl ColumnScanStats {
    /// Searches of Elfs, and the rows that they found, since the last call.
    pub fn take_elf(&self) -> (u64, u64) {
        (self.elf_searches.swap(0, Ordering::Relaxed), self.elf_rows.swap(0, Ordering::Relaxed))
    }

    /// Pages used so far.
    pub fn page_use(&self) -> PageUse {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PageUse {
            pages_read: of(&self.pages_read),
            bytes_read: of(&self.bytes_read),
            pages_cached: of(&self.pages_cached),
            bytes_cached: of(&self.bytes_cached),
        }
    }

    /// Counts a page as it came.
    fn note_page(&self, loaded: &LoadedPage) {
        let (pages, bytes) = if loaded.was_cached {
            (&self.pages_cached, &self.bytes_cached)
        } else {
            (&self.pages_read, &self.bytes_read)
        };
        pages.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(loaded.page.memory_bytes() as u64, Ordering::Relaxed);
    }
}

impl ColumnScan {
    /// Number of rows of the row groups that are not deleted or overridden.
    pub fn rows(&self) -> u64 {
        let of_group = |scanned: &ScannedGroup| {
            u64::from(scanned.group.rows) - scanned.hidden.as_ref().map_or(0, |hidden| hidden.len() as u64)
        };
        self.groups.iter().map(of_group).sum()
    }

    /// Counts so far.
    pub fn stats(&self) -> &ColumnScanStats {
        &self.stats
    }

    /// Arrow schema of the batches.
    pub fn arrow_schema(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Blocks to read: those of row groups that no summary rules out.
    pub fn morsels(&self) -> Vec<ColumnMorsel> {
        let mut morsels = Vec::new();
        for (at, scanned) in self.groups.iter().enumerate() {
            let rows = scanned.group.rows as usize;
            let blocks = rows.div_ceil(BLOCK_ROWS);
            if self.filters.iter().any(|filter| self.rules_out(scanned, filter)) {
                self.stats.blocks_skipped.fetch_add(blocks as u64, Ordering::Relaxed);
                if scanned.group.cluster.is_some() {
                    self.stats.summary_pruned.fetch_add(1, Ordering::Relaxed);
                }
                self.meter.skip_group(at);
                continue;
            }
            morsels.extend((0..blocks).map(|block| ColumnMorsel {
                group: at as u32,
                block: block as u32,
                rows: BLOCK_ROWS.min(rows - block * BLOCK_ROWS) as u32,
            }));
        }
        morsels
    }

    /// Tells whether no row of a row group meets a filter, by its summary.
    fn rules_out(&self, scanned: &ScannedGroup, filter: &ColumnFilter) -> bool {
        let id = column_id(self.table.schema(), filter.column);
        match (scanned.summary.column(id), filter.condition.bounds()) {
            (Some(column), _) if matches!(filter.condition, ColumnCondition::Null) => column.nulls == 0,
            (Some(column), _) if matches!(filter.condition, ColumnCondition::NotNull) => {
                column.nulls == scanned.group.rows
            }
            (None, _) => !filter.condition.is_met_by(self.table.schema().missing(filter.column)),
            (Some(column), Some((least, greatest))) if column.kind == SummaryKind::Integers => {
                greatest < column.least || least > column.greatest || column.nulls == scanned.group.rows
            }
            (Some(column), None) if column.kind == SummaryKind::Doubles => {
                let ColumnCondition::Doubles { least, greatest } = filter.condition else { return false };
                let (lowest, highest) = (double_of(column.least), double_of(column.greatest));
                // NaN meet any bounds.
                let has_nan = lowest.is_nan() || highest.is_nan();
                column.nulls == scanned.group.rows || !has_nan && (highest < least || lowest > greatest)
            }
            _ => false,
        }
    }

    /// Reader of one block after another; proportional caching learns from it how fast the pipeline of the scan is.
    pub fn reader(&self) -> BlockReader {
        self.meter.add_reader();
        self.reader_without_clock()
    }

    fn reader_without_clock(&self) -> BlockReader {
        BlockReader {
            returned_at: None,
            selection: RowSelection::default(),
            values: self.no_values(),
            rows: 0,
        }
    }

    fn no_values(&self) -> Vec<ColumnValues> {
        let columns = self.projection.iter().zip(self.arrow.fields());
        let column = |(&column, field): (&usize, &FieldRef)| {
            ColumnValues::new(self.table.schema().columns()[column].data_type, field.data_type())
        };
        columns.map(column).collect()
    }

    /// Reads a block; none if no row of it meets the filters.
    pub fn read(&self, tx: &Transaction, morsel: ColumnMorsel) -> Result<Option<RecordBatch>> {
        self.read_timed(tx, morsel, &mut self.reader_without_clock())
    }

    /// As [`ColumnScan::read`], by a reader.
    pub fn read_timed(
        &self,
        tx: &Transaction,
        morsel: ColumnMorsel,
        reader: &mut BlockReader,
    ) -> Result<Option<RecordBatch>> {
        self.append(tx, morsel, reader)?;
        self.take(reader)
    }

    /// Adds the rows of a block that meet the filters to those that a reader has; returns their number.
    pub fn append(&self, tx: &Transaction, morsel: ColumnMorsel, reader: &mut BlockReader) -> Result<usize> {
        let began = Instant::now();
        let consumed = reader.returned_at.map_or(Duration::ZERO, |at| began.saturating_duration_since(at));
        let waited = Cell::new(Duration::ZERO);
        let rows = self.append_block(tx, morsel, reader, &waited);
        let ended = Instant::now();
        let decoded = ended.saturating_duration_since(began).saturating_sub(waited.get());
        self.meter.note_block(morsel.group as usize, consumed + decoded);
        reader.returned_at = Some(ended);
        rows
    }

    /// Batch of the rows that a reader has gathered; none if there are none.
    pub fn take(&self, reader: &mut BlockReader) -> Result<Option<RecordBatch>> {
        let rows = std::mem::take(&mut reader.rows);
        if rows == 0 {
            return Ok(None);
        }
        let values = std::mem::replace(&mut reader.values, self.no_values());
        let arrays: Vec<ArrayRef> = values.into_iter().map(ColumnValues::finish).collect();
        debug_assert!(arrays.iter().all(|array| array.len() == rows), "every row has a value");
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.arrow), arrays, &options);
        Ok(Some(batch.map_err(|error| {
            crate::Error::corrupt(format!("row group of table {}", self.table.name()), error.to_string())
        })?))
    }

    /// Page of a row group; `waited` grows by the time that loading it took.
    fn page(
        &self,
        tx: &Transaction,
        group: usize,
        column: u16,
        waited: &Cell<Duration>,
    ) -> Result<Arc<ColumnPage>> {
        let (page, wait) = self.meter.page(group, column, || self.load_page(tx, group, column))?;
        waited.set(waited.get() + wait);
        Ok(page)
    }

    /// Row groups that are worth loading while the row group of this block is read: the next ones of which pages
    /// that the scan is likely to need are not cached. Each is returned once, to one of the readers.
    pub fn groups_ahead(&self, morsel: ColumnMorsel) -> Vec<u32> {
        let groups = self.meter.groups_ahead(morsel.group as usize);
        let is_missing = |group: &usize| {
            let number = self.groups[*group].group.number;
            let columns = self.meter.likely_columns(*group);
            columns.iter().any(|column| !self.columns.has_cached(number, *column))
        };
        groups.filter(is_missing).map(|group| group as u32).collect()
    }

    /// Loads the pages of a row group that the scan is likely to need, beside its readers. A failure is met again by
    /// the reader that needs the page.
    pub fn load_ahead(&self, tx: &Transaction, group: u32) -> Result<()> {
        let at = group as usize;
        let columns = self.meter.likely_columns(at);
        if self.groups[at].summary.object.is_none() {
            // A reader that needs one of them need not wait for all.
            return columns.iter().try_for_each(|column| self.load_some_ahead(tx, at, &[*column]));
        }
        self.load_some_ahead(tx, at, &columns)
    }

    fn load_some_ahead(&self, tx: &Transaction, group: usize, columns: &[u16]) -> Result<()> {
        self.meter.load_ahead(group, columns, |columns| {
            let loaded = self.columns.load_pages(tx, self.groups[group].group.number, columns)?;
            loaded.iter().for_each(|loaded| self.stats.note_page(loaded));
            Ok(loaded)
        })
    }

    /// Page of a row group out of the cache or the pool.
    fn load_page(&self, tx: &Transaction, group: usize, column: u16) -> Result<LoadedPage> {
        let loaded = self.columns.load_page(tx, self.groups[group].group.number, column)?;
        self.stats.note_page(&loaded);
        Ok(loaded)
    }

    /// Number of pages of the columns of the scan and its filters, over all row groups.
    pub fn pages(&self) -> u64 {
        let mut columns = self.projection.clone();
        columns.extend(self.filters.iter().map(|filter| filter.column));
        columns.sort_unstable();
        columns.dedup();
        let id = |column: &usize| column_id(self.table.schema(), *column);
        let of_group = |scanned: &ScannedGroup| {
            columns.iter().filter(|column| scanned.summary.column(id(column)).is_some()).count()
        };
        let pruned = self.stats.key_pruned.load(Ordering::Relaxed) * columns.len() as u64;
        self.groups.iter().map(of_group).sum::<usize>() as u64 + pruned
    }

    /// Prediction of the time of the scan's pipeline by the model of proportional caching; none before a page was
    /// loaded and a block read, and in time travel.
    pub fn prediction(&self) -> Option<PipelinePrediction> {
        self.meter.prediction()
    }

    fn append_block(
        &self,
        tx: &Transaction,
        morsel: ColumnMorsel,
        reader: &mut BlockReader,
        waited: &Cell<Duration>,
    ) -> Result<usize> {
        self.select(tx, morsel, &mut reader.selection, waited)?;
        let (block, rows) = (morsel.block as usize, morsel.rows as usize);
        let count = reader.selection.len(rows);
        if count == 0 {
            self.stats.blocks_skipped.fetch_add(1, Ordering::Relaxed);
            return Ok(0);
        }
        self.stats.blocks_read.fetch_add(1, Ordering::Relaxed);
        let selection = reader.selection.rows(rows);
        let (scanned, schema) = (&self.groups[morsel.group as usize], self.table.schema());
        for (column, values) in self.projection.iter().zip(&mut reader.values) {
            let id = column_id(schema, *column);
            if scanned.summary.column(id).is_none() {
                values.append_value(schema.missing(*column), count);
                continue;
            }
            let page = self.page(tx, morsel.group as usize, id, waited)?;
            if page.rows() != scanned.group.rows as usize {
                let number = scanned.group.number;
                return Err(self.columns.damaged(number, "a page with another number of rows"));
            }
            values.append(&page, block, selection);
        }
        reader.rows += count;
        Ok(count)
    }

    /// Selects the rows of a block that the transaction sees and that meet the filters.
    fn select(
        &self,
        tx: &Transaction,
        morsel: ColumnMorsel,
        selection: &mut RowSelection,
        waited: &Cell<Duration>,
    ) -> Result<()> {
        let scanned = &self.groups[morsel.group as usize];
        let (block, rows) = (morsel.block as usize, morsel.rows as usize);
        let candidates = self.candidates(tx, scanned)?;
        match &candidates {
            None => selection.select_all(),
            Some(candidates) => selection.select(candidates.of_block(block)),
        }
        let is_checked = |at: usize| candidates.as_ref().is_some_and(|candidates| candidates.is_met[at]);
        for at in self.order() {
            if is_checked(at) || selection.is_empty() {
                continue;
            }
            let filter = &self.filters[at];
            let id = column_id(self.table.schema(), filter.column);
            if scanned.summary.column(id).is_none() {
                // All rows have the same value, which meets the filter.
                continue;
            }
            let page = self.page(tx, morsel.group as usize, id, waited)?;
            let before = selection.len(rows);
            selection.narrow(&page, block, &filter.condition, &scanned.dictionaries[at]);
            self.measures[at].note(before, selection.len(rows));
        }
        if let Some(hidden) = scanned.hidden.as_ref().filter(|hidden| hidden.is_in_block(block)) {
            selection.retain(rows, |row| !hidden.contains(block * BLOCK_ROWS + row as usize));
        }
        Ok(())
    }

    /// Filters in the order in which they are checked: those that leave out the most rows for their cost first, as
    /// measured so far.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let gain = |(at, filter): (usize, &ColumnFilter)| {
            (self.measures[at].left_out() / filter.condition.cost(), at)
        };
        let mut order: SmallVec<[(f64, usize); 8]> = self.filters.iter().enumerate().map(gain).collect();
        order.sort_by(|(gain, _), (other, _)| other.total_cmp(gain));
        order.into_iter().map(|(_, at)| at)
    }

    /// Rows of a row group that an Elf finds; none if a scan costs less. The first caller asks it.
    fn candidates(&self, tx: &Transaction, scanned: &ScannedGroup) -> Result<Option<Arc<Candidates>>> {
        if self.elves.is_empty() {
            return Ok(None);
        }
        let mut asked = scanned.candidates.lock();
        if let Some(candidates) = &*asked {
            return Ok(candidates.clone());
        }
        let column = |filter: &ColumnFilter| column_id(self.table.schema(), filter.column);
        let conditions = self.filters.iter();
        let conditions: Vec<ScanCondition<'_>> = conditions
            .map(|filter| ScanCondition { column: column(filter), condition: &filter.condition })
            .collect();
        let of = (&scanned.group, &*scanned.summary);
        let found = self.columns.candidates(tx, &self.elves, of, &conditions)?.map(Arc::new);
        if let Some(found) = &found {
            self.stats.elf_searches.fetch_add(1, Ordering::Relaxed);
            self.stats.elf_rows.fetch_add(found.rows.len() as u64, Ordering::Relaxed);
        }
        *asked = Some(found.clone());
        Ok(found)
    }

    /// Reader of the rows of the delta store.
    pub fn delta(&self) -> DeltaReader {
        DeltaReader {
            table: Arc::clone(&self.table),
            filters: self.filters.clone(),
            rows: StoredRows::new(
                self.table.name(),
                self.table.schema(),
                &self.projection,
                Arc::clone(&self.arrow),
                0,
            ),
            from: None,
            has_more: true,
        }
    }
}

/// Reader of the rows of a delta store that meet the filters of a scan.
#[derive(Debug)]
pub struct DeltaReader {
    table: Arc<Table>,
    filters: Vec<ColumnFilter>,
    rows: StoredRows,
    from: Option<KeyBytes>,
    has_more: bool,
}

impl DeltaReader {
    /// Next rows; none at the end.
    pub fn next(&mut self, tx: &Transaction) -> Result<Option<RecordBatch>> {
        let mut damaged = None;
        while self.has_more && !self.rows.is_batch(DELTA_BATCH_ROWS) {
            let (table, filters, rows) = (&self.table, &self.filters, &mut self.rows);
            self.has_more =
                tx.scan_batch(table.state(), &KeyRange::full(), &mut self.from, |key, value| {
                    if value == TOMBSTONE || damaged.is_some() {
                        return;
                    }
                    let is_met = |row: &RowView<'_>| {
                        filters.iter().all(|filter| filter.condition.is_met_by(&row.value(filter.column)))
                    };
                    match RowView::new(table.name(), table.schema(), key, value) {
                        Ok(row) if is_met(&row) => rows.push(key, value),
                        Ok(_) => {}
                        Err(error) => damaged = Some(error),
                    }
                })?;
            if let Some(error) = damaged {
                return Err(error);
            }
        }
        if self.rows.is_empty() { Ok(None) } else { self.rows.finish().map(Some) }
    }
}

/// Arrow schema of all columns of a table.
pub(crate) fn whole_schema(table: &Table) -> SchemaRef {
    arrow_schema(table.schema().columns(), "UTC")
}
