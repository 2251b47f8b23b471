//! Column store: the row groups of a table, in a state beside that of its changed rows.

use crate::batch::builder::ColumnBuilder;
use crate::batch::encode::encode_keys_only;
use crate::batch::{ColumnArray, arrow_schema};
use crate::columns::cache::model::Bandwidths;
use crate::columns::cache::page_key::{PageKey, StoreNumber};
use crate::columns::cache::{CachedObject, PageCache};
use crate::columns::clustering::store::{BlockDivision, Clustering};
use crate::columns::elf::StoredElf;
use crate::columns::elf::rows::RowsElf;
use crate::columns::group::{
    ClusterRange, ColumnSummary, EntryKind, GROUP_ROWS, GroupSummary, RowGroup, RowSet, directory_range,
    group_of, store_code,
};
use crate::columns::lifetime::Lifetime;
use crate::columns::objects::{ObjectStores, RemovedObject};
use crate::columns::page::{BLOCK_ROWS, ColumnPage, encode_page};
use crate::encoding::key;
use crate::error::{Error, Result};
use crate::schema::{Column, Schema};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{FieldRef, SchemaRef};
use entresol_structures::KeyBytes;
use entresol_transactions::{State, StateContext, StateId, Transaction};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Column id of the hidden key, which has none.
const HIDDEN_KEY_ID: u16 = u16::MAX;
/// Bytes that a page should have at most; one row may need more.
pub(crate) const PAGE_BYTES_MAX: usize = 2 << 20;
/// Number of rows that was not counted yet.
const UNKNOWN: u64 = u64::MAX;
/// Bytes of the pages of a row group above which it is not small, however few its rows.
const SMALL_BYTES_MAX: u64 = 256 << 10;
/// Zone of TIMESTAMPTZ, which does not matter for values.
const UTC: &str = "UTC";

/// Id of a column, which stays when others are added or dropped.
pub(crate) fn column_id(schema: &Schema, column: usize) -> u16 {
    schema.schema_versions().id_of(column).unwrap_or(HIDDEN_KEY_ID)
}

/// Keys of rows, given as the arrays of the key columns, as the state of the rows stores them.
pub(crate) fn stored_keys(table: &str, schema: &Schema, key_arrays: &[ArrayRef]) -> Result<Vec<KeyBytes>> {
    let mut keys = encode_keys_only(table, schema, key_arrays)?;
    keys.iter_mut().for_each(|bytes| key::pad(bytes, schema.key_width()));
    Ok(keys)
}

/// Page, and how it came.
pub(crate) struct LoadedPage {
    pub(crate) page: Arc<ColumnPage>,
    /// True if it was in the cache.
    pub(crate) was_cached: bool,
    /// Time that loading it took.
    pub(crate) waited: Duration,
}

/// Page of a column of a row group, by the column's id.
pub(crate) type PageOfColumn<'p> = &'p dyn Fn(u16) -> Result<Arc<ColumnPage>>;

/// Row groups of a table; see the [module](self).
pub(crate) struct ColumnStore {
    number: StoreNumber,
    context: Arc<StateContext>,
    state: Arc<State>,
    cache: Arc<PageCache>,
    /// Number of the next row group, once it is known.
    next_group: Mutex<Option<u32>>,
    /// Beginning of its end, and what comes after it.
    pub(crate) lifetime: Lifetime,
    /// Lock of merges.
    pub(crate) merging: Mutex<()>,
    /// Rows of the row groups, as last counted.
    rows: AtomicU64,
    /// Row groups of one block or less, as last counted.
    small: AtomicU64,
    /// Row groups that are not stored as the layout asks for, as last counted.
    misplaced: AtomicU64,
    /// Keys of the delta store, dead ones included, after the last merge.
    merged_until: AtomicU64,
    /// Places of rows and schemes, of a table that has the layout `clustered` or had it.
    pub(super) clustering: OnceLock<Clustering>,
    /// Elf indexes of new row groups.
    pub(super) elves: RwLock<Arc<[StoredElf]>>,
    /// Number of the next Elf index.
    pub(super) next_elf: AtomicU32,
    /// Elf that holds the dimensions of new row groups, in the layout `elf`.
    pub(super) rows_elf: RwLock<Option<Arc<StoredElf>>>,
    /// URL of the object store of new row groups; none: they are in the pool.
    object_store: RwLock<Option<Arc<str>>>,
}

impl std::fmt::Debug for ColumnStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColumnStore").field("state", &self.state.id()).finish_non_exhaustive()
    }
}

impl Drop for ColumnStore {
    fn drop(&mut self) {
        self.cache.forget_store(self.number);
    }
}

impl ColumnStore {
    /// Store over a column state, and of a table with blocks over a state of the places of rows.
    pub(crate) fn open(
        context: &Arc<StateContext>,
        (state, places): (Arc<State>, Option<Arc<State>>),
        cache: &Arc<PageCache>,
    ) -> Arc<ColumnStore> {
        let (next_group, merging) = (Mutex::new(None), Mutex::new(()));
        Arc::new(ColumnStore {
            number: StoreNumber::next(),
            context: Arc::clone(context),
            state,
            cache: Arc::clone(cache),
            next_group,
            lifetime: Lifetime::default(),
            merging,
            rows: AtomicU64::new(UNKNOWN),
            small: AtomicU64::new(0),
            misplaced: AtomicU64::new(0),
            merged_until: AtomicU64::new(0),
            clustering: places.map(Clustering::opened).map(OnceLock::from).unwrap_or_default(),
            elves: RwLock::new(Arc::default()),
            next_elf: AtomicU32::new(0),
            rows_elf: RwLock::default(),
            object_store: RwLock::default(),
        })
    }

    /// Bandwidths of its storage and of memory; none before the first load.
    pub(crate) fn bandwidths(&self) -> Option<Bandwidths> {
        let bandwidths = self.cache.bandwidths()?;
        let of_store = self.object_store().and_then(|_| self.cache.object_bandwidth());
        Some(Bandwidths { storage: of_store.unwrap_or(bandwidths.storage), ..bandwidths })
    }

    /// Bytes of its column pages that are in DRAM.
    pub(crate) fn cached_bytes(&self) -> u64 {
        let columns = self.cache.columns().into_iter();
        columns.filter(|(column, _)| column.store == self.number).map(|(_, (counts, _))| counts.bytes).sum()
    }

    /// Number of the store in the cache.
    pub(crate) fn number(&self) -> StoreNumber {
        self.number
    }

    /// Cached object with this key; none in time travel.
    pub(super) fn cached(&self, tx: &Transaction, key: &PageKey) -> Option<CachedObject> {
        if tx.as_of().is_some() { None } else { self.cache.get(key) }
    }

    /// Caches an object, unless it was read in time travel.
    pub(super) fn put_cached(&self, tx: &Transaction, key: PageKey, cached: CachedObject) {
        if tx.as_of().is_none() {
            self.cache.put(key, cached);
        }
    }

    /// Sets the object store of row groups that are written from now on.
    pub(crate) fn set_object_store(&self, url: Option<&str>) {
        *self.object_store.write() = url.map(Arc::from);
    }

    /// URL of the object store of new row groups; none: they are in the pool.
    pub(crate) fn object_store(&self) -> Option<Arc<str>> {
        self.object_store.read().clone()
    }

    /// Cache of the pages.
    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// State of the entries.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Context of its state.
    pub(crate) fn context(&self) -> &Arc<StateContext> {
        &self.context
    }

    /// State of the places of rows by key, if there are row groups whose rows are not in key order, or were.
    pub(crate) fn places(&self) -> Option<&Arc<State>> {
        self.clustering.get().map(|clustering| clustering.places())
    }

    /// Ids of its states.
    pub(crate) fn state_ids(&self) -> impl Iterator<Item = StateId> + use<> {
        [Some(self.state.id()), self.places().map(|places| places.id())].into_iter().flatten()
    }

    /// Begins a transaction that sees all that was committed.
    pub(crate) fn begin(&self) -> Result<Arc<Transaction>> {
        Ok(self.context.begin()?)
    }

    /// Begins a transaction that moves rows and changes none.
    pub(crate) fn begin_move(&self) -> Result<Arc<Transaction>> {
        let tx = self.begin()?;
        tx.set_moving()?;
        Ok(tx)
    }

    /// Number of rows, as of the last time that the directory was read.
    pub(crate) fn estimated_rows(&self) -> u64 {
        if self.lifetime.has_ended() {
            return 0;
        }
        if self.rows.load(Ordering::Relaxed) == UNKNOWN {
            // An estimate that cannot be made is that of an empty table; reading it will say why.
            let counted = self.begin().and_then(|tx| self.groups(&tx).map(drop));
            if let Err(error) = counted {
                tracing::debug!(%error, "cannot count the rows of row groups");
            }
        }
        match self.rows.load(Ordering::Relaxed) {
            UNKNOWN => 0,
            rows => rows,
        }
    }

    /// Number of row groups of at most one block, as of the last time that the directory was read.
    pub(crate) fn small_groups(&self) -> u64 {
        self.small.load(Ordering::Relaxed)
    }

    /// Returns true if some row groups were not stored as the layout asks for, when the directory was last read.
    pub(crate) fn is_misplaced(&self) -> bool {
        self.misplaced.load(Ordering::Relaxed) > 0
    }

    /// Number of keys of the delta store, dead ones included, that the last merge left; not more than there are
    /// now.
    pub(crate) fn merged_until(&self, keys: u64) -> u64 {
        self.merged_until.fetch_min(keys, Ordering::Relaxed).min(keys)
    }

    /// Notes what a merge left.
    pub(crate) fn note_merge(&self, keys: u64) {
        self.merged_until.store(keys, Ordering::Relaxed);
        self.small.store(0, Ordering::Relaxed);
        self.misplaced.store(0, Ordering::Relaxed);
    }

    pub(super) fn damaged(&self, group: u32, what: &str) -> Error {
        Error::corrupt(format!("row group {group} of {}", self.state.id()), what)
    }

    /// Row groups that a transaction sees, in the order of their numbers.
    pub(crate) fn groups(&self, tx: &Transaction) -> Result<Vec<RowGroup>> {
        if self.lifetime.is_over_for(tx, &self.state)? {
            return Ok(Vec::new());
        }
        let (mut groups, mut from, mut damaged) = (Vec::new(), None, None);
        let range = directory_range();
        while tx.scan_batch(&self.state, &range, &mut from, |key, entry| {
            match RowGroup::from_bytes(group_of(key), entry) {
                Some(group) => groups.push(group),
                None => damaged = Some(group_of(key)),
            }
        })? {}
        if let Some(group) = damaged {
            return Err(self.damaged(group, "its directory entry is damaged"));
        }
        debug_assert!(
            groups.is_sorted_by(|one, next| one.number < next.number),
            "row groups are found by their numbers"
        );
        if tx.as_of().is_none() {
            self.rows.store(groups.iter().map(RowGroup::live_rows).sum(), Ordering::Relaxed);
            let is_small = |group: &&RowGroup| {
                group.cluster.is_none() && group.rows as usize <= BLOCK_ROWS && group.bytes <= SMALL_BYTES_MAX
            };
            self.small.store(groups.iter().filter(is_small).count() as u64, Ordering::Relaxed);
            let (has_blocks, elf) = (self.has_blocks(), self.rows_elf());
            let is_misplaced = |group: &&RowGroup| {
                group.cluster.is_some() != has_blocks || !has_blocks && !self.has_form(group, elf.as_deref())
            };
            self.misplaced.store(groups.iter().filter(is_misplaced).count() as u64, Ordering::Relaxed);
        }
        Ok(groups)
    }

    /// Summary of a row group that the transaction sees.
    pub(crate) fn summary(&self, tx: &Transaction, group: u32) -> Result<Arc<GroupSummary>> {
        let (key, cache_key) = (EntryKind::Summary.key(group), PageKey::of_summary(self.number, group));
        if let Some(CachedObject::Summary(summary)) = self.cached(tx, &cache_key) {
            return Ok(summary);
        }
        let read = tx.read(&self.state, &key, GroupSummary::from_bytes)?.flatten();
        let summary = Arc::new(read.ok_or_else(|| self.damaged(group, "its summary is damaged"))?);
        self.put_cached(tx, cache_key, CachedObject::Summary(Arc::clone(&summary)));
        Ok(summary)
    }

    /// Page of a column of a row group that the transaction sees.
    pub(crate) fn page(&self, tx: &Transaction, group: u32, column: u16) -> Result<Arc<ColumnPage>> {
        self.load_page(tx, group, column).map(|loaded| loaded.page)
    }

    /// Returns true if a page is in the cache. It does not count as a use.
    pub(crate) fn has_cached(&self, group: u32, column: u16) -> bool {
        self.cache.contains(&PageKey::of_page(self.number, column, group))
    }

    /// As [`ColumnStore::page`], with how the page came. One of a dimension that an Elf holds is made of that.
    pub(crate) fn load_page(&self, tx: &Transaction, group: u32, column: u16) -> Result<LoadedPage> {
        let cache_key = PageKey::of_page(self.number, column, group);
        if let Some(CachedObject::Page(page)) = self.cached(tx, &cache_key) {
            return Ok(LoadedPage { page, was_cached: true, waited: Duration::ZERO });
        }
        let summary = self.summary(tx, group)?;
        if summary.column(column).is_some_and(|known| known.is_in_elf) {
            let began = Instant::now();
            let page = Arc::new(self.page_of_elf(tx, group, (column, &summary))?);
            self.put_cached(tx, cache_key, CachedObject::Page(Arc::clone(&page)));
            return Ok(LoadedPage { page, was_cached: false, waited: began.elapsed() });
        }
        let loaded = self.load_stored(tx, (group, &summary), &[column])?;
        let missing = || self.damaged(group, &format!("the page of column {column} is missing"));
        loaded.into_iter().next().ok_or_else(missing)
    }

    /// Pages of columns of a row group that are neither in an Elf nor looked up in the cache, which gets them.
    fn load_stored(
        &self,
        tx: &Transaction,
        (group, summary): (u32, &GroupSummary),
        columns: &[u16],
    ) -> Result<Vec<LoadedPage>> {
        let bytes_of = |read: &Result<Vec<ColumnPage>>| {
            read.as_ref().map_or(0, |pages| pages.iter().map(|page| page.memory_bytes() as u64).sum())
        };
        let meter = self.cache.loads_of(summary.object.is_some());
        let (read, waited) = meter.load(|| self.read_pages(tx, (group, summary), columns), bytes_of);
        let load = |(page, column): (ColumnPage, &u16)| {
            let (page, key) = (Arc::new(page), PageKey::of_page(self.number, *column, group));
            self.put_cached(tx, key, CachedObject::Page(Arc::clone(&page)));
            LoadedPage { page, was_cached: false, waited }
        };
        Ok(read?.into_iter().zip(columns).map(load).collect())
    }

    /// As [`ColumnStore::load_page`] for several columns, in their order: of a row group in an object store, those that are
    /// not cached come by one request.
    pub(crate) fn load_pages(
        &self,
        tx: &Transaction,
        group: u32,
        columns: &[u16],
    ) -> Result<Vec<LoadedPage>> {
        let summary = self.summary(tx, group)?;
        let is_apart = |column: &u16| {
            summary.column(*column).is_some_and(|known| !known.is_in_elf) && !self.has_cached(group, *column)
        };
        let apart: Vec<u16> = columns.iter().copied().filter(is_apart).collect();
        if summary.object.is_none() || apart.len() < 2 {
            return columns.iter().map(|column| self.load_page(tx, group, *column)).collect();
        }
        let mut loaded: BTreeMap<u16, LoadedPage> =
            apart.iter().copied().zip(self.load_stored(tx, (group, &summary), &apart)?).collect();
        let of = |column: &u16| loaded.remove(column).map_or_else(|| self.load_page(tx, group, *column), Ok);
        columns.iter().map(of).collect()
    }

    /// Deleted rows of a row group; none if there are none.
    pub(crate) fn deleted(&self, tx: &Transaction, group: &RowGroup) -> Result<Option<RowSet>> {
        if group.deleted == 0 {
            return Ok(None);
        }
        let rows = group.rows as usize;
        let read = tx.read(&self.state, &EntryKind::Deleted.key(group.number), |bytes| {
            RowSet::from_bytes(rows, bytes)
        })?;
        let damaged = || self.damaged(group.number, "its deleted rows are damaged");
        read.flatten().ok_or_else(damaged).map(Some)
    }

    /// Arrays of some columns of a block, or of the rows selected in it. Columns that are younger than the row
    /// group have the value that all older rows have.
    pub(crate) fn arrays(
        &self,
        tx: &Transaction,
        schema: &Schema,
        group: &RowGroup,
        of_block: (usize, Option<&[u32]>),
        columns: &[usize],
    ) -> Result<Vec<ArrayRef>> {
        let projected: Vec<Column> = columns.iter().map(|&column| schema.columns()[column].clone()).collect();
        let arrow = arrow_schema(&projected, UTC);
        let page = |column| self.page(tx, group.number, column);
        self.arrays_as((tx, &page), schema, group, of_block, (columns, &arrow))
    }

    /// As [`ColumnStore::arrays`], of the types of an Arrow schema, from pages that `page` returns.
    pub(crate) fn arrays_as(
        &self,
        (tx, page): (&Transaction, PageOfColumn<'_>),
        schema: &Schema,
        group: &RowGroup,
        (block, selection): (usize, Option<&[u32]>),
        (columns, arrow): (&[usize], &SchemaRef),
    ) -> Result<Vec<ArrayRef>> {
        let summary = self.summary(tx, group.number)?;
        let rows = BLOCK_ROWS.min((group.rows as usize).saturating_sub(block * BLOCK_ROWS));
        let array = |(&column, field): (&usize, &FieldRef)| {
            let (id, data_type) = (column_id(schema, column), schema.columns()[column].data_type);
            if summary.column(id).is_none() {
                let rows = selection.map_or(rows, <[u32]>::len);
                let mut builder = ColumnBuilder::new(data_type, field.data_type(), rows);
                (0..rows).for_each(|_| builder.push(schema.missing(column)));
                return Ok(builder.finish());
            }
            let page = page(id)?;
            if page.rows() != group.rows as usize {
                return Err(self.damaged(group.number, "a page with another number of rows"));
            }
            Ok(page.decode(block, selection, data_type, field.data_type()))
        };
        columns.iter().zip(arrow.fields()).map(array).collect()
    }

    /// Keys of a block's rows.
    pub(crate) fn keys(
        &self,
        tx: &Transaction,
        (table, schema): (&str, &Schema),
        group: &RowGroup,
        block: usize,
    ) -> Result<Vec<KeyBytes>> {
        let arrays = self.arrays(tx, schema, group, (block, None), schema.key())?;
        stored_keys(table, schema, &arrays)
    }

    fn next_number(&self) -> Result<u32> {
        let mut next = self.next_group.lock();
        let number = match *next {
            Some(number) => number,
            None => self.first_number()?,
        };
        *next = Some(number + 1);
        Ok(number)
    }

    /// Number behind those of all row groups.
    fn first_number(&self) -> Result<u32> {
        let last = self.state.last_key()?.map_or(0, |key| group_of(&key));
        // The last key may be that of a removed one.
        let groups = self.groups(&*self.begin()?)?;
        Ok(groups.iter().map(|group| group.number).fold(last, u32::max) + 1)
    }

    /// Writes rows as a row group, or as several if one could not hold them: arrays of all columns, one after
    /// another, whose rows are in key order. Returns the number of row groups.
    pub(crate) fn write_rows(
        &self,
        tx: &Transaction,
        of: (&str, &Schema),
        pieces: &[Vec<ArrayRef>],
    ) -> Result<usize> {
        let rows: usize = pieces.iter().map(|piece| rows_of(piece)).sum();
        if rows == 0 {
            return Ok(0);
        }
        if let Some(definition) = self.clustering_definition() {
            return self.write_clustered(tx, of, pieces, (&definition, BlockDivision::Filled));
        }
        if rows <= GROUP_ROWS {
            let pages = encoded_pages(tx, of, pieces)?;
            let elf = self.new_rows_elf(of.1, &pages)?;
            let fits = pages.iter().all(|page| page.len() <= PAGE_BYTES_MAX)
                && elf.as_ref().is_none_or(RowsElf::fits);
            if rows == 1 || fits {
                let (block_keys, last) = keys_of_blocks(of.0, of.1, pieces)?;
                let first = block_keys.first().cloned().unwrap_or_default();
                self.write_group(
                    tx,
                    of,
                    (pieces, &pages, elf.as_ref()),
                    GroupKeys { block_keys, first, last, cluster: None },
                )?;
                return Ok(1);
            }
        }
        let half = if rows > GROUP_ROWS { GROUP_ROWS } else { rows / 2 };
        let (first, second) = divided(pieces, half);
        Ok(self.write_rows(tx, of, &first)? + self.write_rows(tx, of, &second)?)
    }

    /// Writes rows and their pages, but for those that an Elf holds, as a row group; returns its number.
    pub(super) fn write_group(
        &self,
        tx: &Transaction,
        (_, schema): (&str, &Schema),
        (pieces, pages, elf): (&[Vec<ArrayRef>], &[Vec<u8>], Option<&RowsElf>),
        GroupKeys { block_keys, first, last, cluster }: GroupKeys,
    ) -> Result<u32> {
        let number = self.next_number()?;
        let rows: usize = pieces.iter().map(|piece| rows_of(piece)).sum();
        assert_eq!(pages.len(), schema.columns().len(), "a row group has a page for each column");
        assert!(number > 0, "the row group 0 is that of the schemes");
        let mut summary = GroupSummary { columns: Vec::new(), block_keys, object: None };
        let has_elves = !self.elves().is_empty();
        let (mut opened, mut apart) = (Vec::new(), Vec::new());
        for (at, encoded) in pages.iter().enumerate() {
            let page = ColumnPage::open(encoded);
            let page = page.ok_or_else(|| self.damaged(number, "its page was not encoded right"))?;
            assert_eq!(page.rows(), rows, "a page has all rows of row group {number}");
            let id = column_id(schema, at);
            let is_in_elf = elf.is_some_and(|elf| elf.dimensions.contains(&id));
            summary.columns.push(ColumnSummary { is_in_elf, ..ColumnSummary::of(id, &page, encoded.len()) });
            if !is_in_elf {
                apart.push((id, &encoded[..]));
            }
            if has_elves {
                opened.push((id, page));
            }
        }
        let store = self.write_pages(tx, (number, &mut summary), &apart)?;
        self.write_elves(tx, number, &opened)?;
        elf.map_or(Ok(()), |elf| self.write_rows_elf(tx, number, elf))?;
        let bytes = pages.iter().map(|page| page.len() as u64).sum();
        assert!(first <= last && rows > 0, "a row group has rows, in key order");
        let dimensions = elf.map_or_else(Vec::new, |elf| elf.dimensions.clone());
        let rows = rows as u32;
        let group = RowGroup { number, rows, deleted: 0, bytes, first, last, cluster, dimensions, store };
        tx.write(&self.state, &EntryKind::Summary.key(number), Some(&summary.to_bytes()))?;
        tx.write(&self.state, &EntryKind::Directory.key(number), Some(&group.to_bytes()))?;
        Ok(number)
    }

    /// Writes pages, by column id, as an object if the table has an object store, else beside their summary. Returns the
    /// code of the store.
    fn write_pages(
        &self,
        tx: &Transaction,
        (group, summary): (u32, &mut GroupSummary),
        pages: &[(u16, &[u8])],
    ) -> Result<u32> {
        let Some(url) = self.object_store() else {
            for (column, page) in pages {
                tx.write(&self.state, &EntryKind::Page { column: *column }.key(group), Some(page))?;
            }
            return Ok(0);
        };
        if !pages.is_empty() {
            let bytes: Vec<&[u8]> = pages.iter().map(|(_, page)| *page).collect();
            summary.object = Some(self.cache.objects().write((tx, &self.state, group), &url, &bytes)?);
        }
        Ok(store_code(&url))
    }

    /// Writes the deleted rows of a row group.
    pub(crate) fn write_deleted(&self, tx: &Transaction, group: &RowGroup, deleted: &RowSet) -> Result<()> {
        assert!(
            (group.deleted as usize..group.rows as usize).contains(&deleted.len()),
            "deleted rows stay deleted, and the last one goes with row group {}: {} of {}, {} before",
            group.number,
            deleted.len(),
            group.rows,
            group.deleted
        );
        let changed = RowGroup { deleted: deleted.len() as u32, ..group.clone() };
        tx.write(&self.state, &EntryKind::Deleted.key(group.number), Some(&deleted.to_bytes()))?;
        tx.write(&self.state, &EntryKind::Directory.key(group.number), Some(&changed.to_bytes()))?;
        Ok(())
    }

    /// Removes a row group.
    pub(crate) fn remove_group(&self, tx: &Transaction, group: &RowGroup) -> Result<()> {
        let number = group.number;
        let summary = self.summary(tx, number)?;
        if let Some(object) = &summary.object {
            let removed = RemovedObject { store: object.store.clone(), name: object.name };
            tx.write(&self.state, &EntryKind::Removed.key(number), Some(&removed.to_bytes()))?;
            tx.hold(ObjectStores::removal_mark(self.cache.objects()));
        }
        let beside = summary.columns.iter().filter(|column| !column.is_in_elf && summary.object.is_none());
        for column in beside {
            tx.write(&self.state, &EntryKind::Page { column: column.column }.key(number), None)?;
        }
        self.remove_elves(tx, number, &BTreeSet::new())?;
        if group.deleted > 0 {
            tx.write(&self.state, &EntryKind::Deleted.key(number), None)?;
        }
        tx.write(&self.state, &EntryKind::Summary.key(number), None)?;
        tx.write(&self.state, &EntryKind::Directory.key(number), None)?;
        Ok(())
    }

    /// Removes the pages of a row group from the cache.
    pub(crate) fn forget(&self, group: u32) {
        self.cache.forget(self.number, group);
    }
}

/// Keys of the rows of a row group.
pub(super) struct GroupKeys {
    /// First key of each block; of a row group that is not in key order none.
    pub(super) block_keys: Vec<KeyBytes>,
    pub(super) first: KeyBytes,
    pub(super) last: KeyBytes,
    pub(super) cluster: Option<ClusterRange>,
}

pub(super) fn rows_of(piece: &[ArrayRef]) -> usize {
    piece.first().map_or(0, |array| array.len())
}

/// Page of each column.
pub(super) fn encoded_pages(
    tx: &Transaction,
    (table, schema): (&str, &Schema),
    pieces: &[Vec<ArrayRef>],
) -> Result<Vec<Vec<u8>>> {
    let page = |(at, column): (usize, &Column)| {
        tx.check_running()?;
        let arrays = pieces.iter().map(|piece| ColumnArray::new(table, column, &piece[at]));
        Ok(encode_page(column.data_type, &arrays.collect::<Result<Vec<_>>>()?))
    };
    schema.columns().iter().enumerate().map(page).collect()
}

/// Rows before and behind a position.
fn divided(pieces: &[Vec<ArrayRef>], at: usize) -> (Vec<Vec<ArrayRef>>, Vec<Vec<ArrayRef>>) {
    let (mut first, mut second, mut before) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        let rows = rows_of(piece);
        let slice = |from: usize, rows: usize| piece.iter().map(|array| array.slice(from, rows)).collect();
        let here = at.saturating_sub(before).min(rows);
        if here > 0 {
            first.push(slice(0, here));
        }
        if here < rows {
            second.push(slice(here, rows - here));
        }
        before += rows;
    }
    (first, second)
}

/// First key of each block, and the last key, of the rows of a row group.
fn keys_of_blocks(
    table: &str,
    schema: &Schema,
    pieces: &[Vec<ArrayRef>],
) -> Result<(Vec<KeyBytes>, KeyBytes)> {
    let key_at = |piece: &[ArrayRef], row: usize| {
        let arrays: Vec<ArrayRef> = schema.key().iter().map(|&column| piece[column].slice(row, 1)).collect();
        Ok::<_, Error>(stored_keys(table, schema, &arrays)?.pop().unwrap_or_default())
    };
    let (mut keys, mut last, mut before) = (Vec::new(), KeyBytes::new(), 0_usize);
    for piece in pieces {
        let rows = rows_of(piece);
        let mut next = before.next_multiple_of(BLOCK_ROWS);
        while next < before + rows {
            keys.push(key_at(piece, next - before)?);
            next += BLOCK_ROWS;
        }
        if rows > 0 {
            last = key_at(piece, rows - 1)?;
        }
        before += rows;
    }
    Ok((keys, last))
}
