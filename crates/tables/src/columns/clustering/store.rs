//! Blocks of the layout `clustered`: row groups whose rows have the cluster keys of a range, and the place of each row.
//!
//! ```text
//!   places     key ──▶ row group, row                    a state as that of an index
//!   directory  row group ──▶ rows, cluster keys from, to
//! ```
//!
//! - Rows of a block are in the order of their cluster keys, so where a block has several pages' blocks, those have
//!   narrow summaries too.
//! - Each row of a block that is not deleted has a place, written in the transaction that writes the block; a
//!   merge that moves, replaces or deletes rows changes their places with them. So a place that a transaction sees is
//!   that of the row groups that it sees, and a key needs no search.
//! - Row groups in key order may stand beside blocks ([`crate::columns::clustering::mixture`]); their rows have no places.
//! - Memory: the rows that are written together, once more in their new order, and 40 bytes for each.

use crate::batch::ColumnArray;
use crate::columns::clustering::division::{filled, split};
use crate::columns::clustering::mixture::GroupsOfKind;
use crate::columns::clustering::scheme::{GROWTH, Scheme};
use crate::columns::group::{ClusterRange, EntryKind, GROUP_ROWS, RowGroup, scheme_of, scheme_range};
use crate::columns::store::{ColumnStore, GroupKeys, PAGE_BYTES_MAX, encoded_pages, rows_of, stored_keys};
use crate::error::{Error, Result};
use crate::schema::clustering::{ClusteringDefinition, SplitPolicy};
use crate::schema::{Schema, fixed_bytes};
use arrow_array::{Array, ArrayRef};
use arrow_select::interleave::interleave;
use entresol_memory::Durability;
use entresol_structures::KeyBytes;
use entresol_transactions::{State, Transaction};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least number of rows of a block.
const BLOCK_ROWS_MIN: usize = 8;

/// Division of rows into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockDivision {
    /// Full blocks one after another.
    Filled,
    /// Splits of full blocks by a policy.
    Split(SplitPolicy),
}

/// Places of rows, and schemes, of a table; see the [module](self).
pub(crate) struct Clustering {
    places: Arc<State>,
    pub(super) definition: RwLock<Option<Arc<ClusteringDefinition>>>,
    schemes: Mutex<Schemes>,
    /// Rows that were loaded since the last merge.
    loaded: AtomicU64,
    /// Row groups in key order beside the blocks.
    pub(super) ordered: GroupsOfKind,
    /// The blocks.
    pub(super) blocks: GroupsOfKind,
}

/// Schemes that were read, by version.
#[derive(Default)]
struct Schemes {
    known: HashMap<u32, Arc<Scheme>>,
    /// Version of new blocks, once it is known.
    current: Option<u32>,
}

impl Clustering {
    /// Clustering with a state of the places, of a table that is opened or created.
    pub(crate) fn opened(places: Arc<State>) -> Clustering {
        Clustering::of(places, GroupsOfKind::to_be_counted)
    }

    /// Clustering with a state of the places, of a table that has row groups in key order.
    pub(crate) fn beside_row_groups(places: Arc<State>) -> Clustering {
        Clustering::of(places, GroupsOfKind::expected)
    }

    fn of(places: Arc<State>, groups: fn() -> GroupsOfKind) -> Clustering {
        Clustering {
            places,
            definition: RwLock::new(None),
            schemes: Mutex::default(),
            loaded: AtomicU64::new(0),
            ordered: groups(),
            blocks: groups(),
        }
    }

    /// State of the places.
    pub(crate) fn places(&self) -> &Arc<State> {
        &self.places
    }

    /// Rows that were loaded since the last merge.
    pub(crate) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Notes that all row groups were looked at.
    pub(crate) fn note_merge(&self) {
        self.loaded.store(0, Ordering::Relaxed);
    }
}

/// Number of rows of a block of these rows.
pub(crate) fn block_rows(
    definition: &ClusteringDefinition,
    (table, schema): (&str, &Schema),
    pieces: &[Vec<ArrayRef>],
) -> Result<usize> {
    let rows: usize = pieces.iter().map(|piece| rows_of(piece)).sum();
    let mut bytes = 0_usize;
    for (at, column) in schema.columns().iter().enumerate() {
        for piece in pieces {
            bytes += match ColumnArray::new(table, column, &piece[at])? {
                ColumnArray::Varchar(texts) => {
                    let ends = texts.value_offsets();
                    (ends[texts.len()] - ends[0]) as usize + 4 * texts.len()
                }
                array => fixed_bytes(column.data_type).unwrap_or(8) * array.array().len(),
            };
        }
    }
    let of_row = (bytes / rows.max(1)).max(1);
    Ok((definition.block_bytes as usize / of_row).clamp(BLOCK_ROWS_MIN, GROUP_ROWS))
}

/// Number of times that a scheme is written again after a conflict.
const SCHEME_TRIES_MAX: u32 = 8;

impl ColumnStore {
    /// Sets the clustering of the table's current definition; none: new row groups are in key order.
    pub(crate) fn set_clustering(&self, definition: Option<&ClusteringDefinition>) {
        let Some(clustering) = self.clustering.get() else { return };
        let mut current = clustering.definition.write();
        // Before the first of them is written. Of a table that is opened its directory will say.
        match definition {
            None => clustering.ordered.expect(),
            Some(_) => clustering.blocks.expect(),
        }
        *current = definition.cloned().map(Arc::new);
    }

    /// Clustering of the table.
    pub(crate) fn clustering_definition(&self) -> Option<Arc<ClusteringDefinition>> {
        self.clustering.get().and_then(|clustering| clustering.definition.read().clone())
    }

    /// Returns true if new row groups are blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.clustering.get().is_some_and(|clustering| clustering.definition.read().is_some())
    }

    /// Scheme of a version that a row group names.
    pub(crate) fn scheme(&self, version: u32) -> Result<Arc<Scheme>> {
        let damaged = |what: &str| {
            Error::corrupt(format!("clustering scheme {version} of {}", self.state().id()), what.to_owned())
        };
        let clustering = self.clustering.get().ok_or_else(|| damaged("the table is not clustered"))?;
        if let Some(scheme) = clustering.schemes.lock().known.get(&version) {
            return Ok(Arc::clone(scheme));
        }
        // Schemes stay: a snapshot of the table may be older than one that its transaction writes with.
        let tx = self.begin()?;
        let key = EntryKind::Scheme { version }.key(0);
        let read = tx.read(self.state(), &key, |bytes| Scheme::from_bytes(version, bytes))?;
        let scheme = read.ok_or_else(|| damaged("it is missing"))?;
        let scheme = Arc::new(scheme.ok_or_else(|| damaged("it is damaged"))?);
        clustering.schemes.lock().known.insert(version, Arc::clone(&scheme));
        Ok(scheme)
    }

    /// Newest scheme, if it is one of these dimensions.
    pub(crate) fn current_scheme(
        &self,
        definition: &ClusteringDefinition,
        schema: &Schema,
    ) -> Result<Option<Arc<Scheme>>> {
        Ok(self.newest_scheme()?.filter(|scheme| scheme.is_of(definition, schema)))
    }

    /// Newest scheme.
    fn newest_scheme(&self) -> Result<Option<Arc<Scheme>>> {
        let Some(clustering) = self.clustering.get() else { return Ok(None) };
        let mut current = clustering.schemes.lock().current;
        if current.is_none() {
            let (tx, mut from) = (self.begin()?, None);
            while tx.scan_batch(self.state(), &scheme_range(), &mut from, |key, _| {
                current = Some(scheme_of(key));
            })? {}
            clustering.schemes.lock().current = current;
        }
        current.map(|version| self.scheme(version)).transpose()
    }

    /// Scheme for rows to be written: the newest one, or the first of these dimensions, made of them.
    fn scheme_for(
        &self,
        definition: &ClusteringDefinition,
        of: (&str, &Schema),
        pieces: &[Vec<ArrayRef>],
    ) -> Result<Arc<Scheme>> {
        let rows = || pieces.iter().map(|piece| rows_of(piece) as u64).sum();
        match self.current_scheme(definition, of.1)? {
            Some(scheme) => Ok(scheme),
            None => self.make_scheme(definition, of, pieces, rows()),
        }
    }

    /// Returns true if a table of so many rows has outgrown its scheme, or has none of its dimensions.
    pub(crate) fn is_outgrown(
        &self,
        definition: &ClusteringDefinition,
        schema: &Schema,
        rows: u64,
    ) -> Result<bool> {
        let has_outgrown = |of: Arc<Scheme>| rows / GROWTH > of.rows.max(BLOCK_ROWS_MIN as u64);
        Ok(rows > 0 && self.current_scheme(definition, schema)?.is_none_or(has_outgrown))
    }

    /// Writes a scheme, unless there is one of its version: another writer was first, and its scheme is as good.
    fn write_scheme(&self, scheme: &Scheme) -> Result<()> {
        let key = EntryKind::Scheme { version: scheme.version }.key(0);
        let mut tries = 0..SCHEME_TRIES_MAX;
        loop {
            let tx = self.begin()?;
            if tx.read(self.state(), &key, |_| ())?.is_some() {
                return Ok(());
            }
            tx.write(self.state(), &key, Some(&scheme.to_bytes()))?;
            match tx.commit(Durability::None).map_err(Error::from) {
                Ok(_) => return Ok(()),
                // Of another writer, or of a definition that refuses older writers: then there is none yet.
                Err(error) if error.is_conflict() && tries.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a scheme of rows of a table with `rows` of them, in a transaction of its own, if no one else has meanwhile.
    pub(crate) fn make_scheme(
        &self,
        definition: &ClusteringDefinition,
        of: (&str, &Schema),
        pieces: &[Vec<ArrayRef>],
        rows: u64,
    ) -> Result<Arc<Scheme>> {
        let before = self.newest_scheme()?.map_or(0, |scheme| scheme.version);
        let block_rows = block_rows(definition, of, pieces)?;
        let scheme = Scheme::of(before + 1, definition, of, pieces, (rows, block_rows))?;
        self.write_scheme(&scheme)?;
        if let Some(clustering) = self.clustering.get() {
            clustering.schemes.lock().current = Some(scheme.version);
        }
        self.scheme(scheme.version)
    }

    /// Writes rows, given as arrays of all columns one after another, as blocks, and their places; returns the number
    /// of blocks.
    pub(crate) fn write_clustered(
        &self,
        tx: &Transaction,
        of: (&str, &Schema),
        pieces: &[Vec<ArrayRef>],
        (definition, division): (&ClusteringDefinition, BlockDivision),
    ) -> Result<usize> {
        let scheme = self.scheme_for(definition, of, pieces)?;
        let block_rows = block_rows(definition, of, pieces)?;
        let keys = scheme.keys(of, pieces)?;
        let (order, keys) = sorted(pieces, keys);
        let arrays = in_order(of.1, pieces, &order)?;
        let blocks = match division {
            BlockDivision::Filled => filled(&keys, block_rows),
            BlockDivision::Split(policy) => split(&keys, block_rows, policy),
        };
        let key_arrays: Vec<ArrayRef> =
            of.1.key().iter().map(|&column| Arc::clone(&arrays[column])).collect();
        let rows = SortedRows {
            scheme: scheme.version,
            keys,
            arrays,
            row_keys: stored_keys(of.0, of.1, &key_arrays)?,
        };
        assert_eq!(rows.keys.len(), rows.row_keys.len(), "each row has a cluster key and a key");
        let (mut places, mut written) = (Vec::with_capacity(rows.keys.len()), 0);
        for block in blocks {
            written += self.write_block(tx, of, &rows, block, &mut places)?;
        }
        self.write_places(tx, &rows.row_keys, &places)?;
        Ok(written)
    }

    /// Writes a block, or several if its pages would be too large; adds the places of its rows.
    fn write_block(
        &self,
        tx: &Transaction,
        of: (&str, &Schema),
        rows: &SortedRows,
        block: Range<usize>,
        places: &mut Vec<RowLocation>,
    ) -> Result<usize> {
        tx.check_running()?;
        assert!(!block.is_empty(), "a block has rows");
        debug_assert!(
            rows.keys[block.clone()].is_sorted(),
            "the rows of a block are in the order of their cluster keys"
        );
        let slice = |array: &ArrayRef| array.slice(block.start, block.len());
        let pieces = [rows.arrays.iter().map(slice).collect::<Vec<ArrayRef>>()];
        let pages = encoded_pages(tx, of, &pieces)?;
        if block.len() > 1 && pages.iter().any(|page| page.len() > PAGE_BYTES_MAX) {
            let middle = block.start + block.len() / 2;
            let first = self.write_block(tx, of, rows, block.start..middle, places)?;
            return Ok(first + self.write_block(tx, of, rows, middle..block.end, places)?);
        }
        let keys = rows.row_keys[block.clone()].iter();
        let (first, last) = (keys.clone().min().cloned(), keys.max().cloned());
        let (least, greatest) = (rows.keys[block.start], rows.keys[block.end - 1]);
        let keys = GroupKeys {
            block_keys: Vec::new(),
            first: first.unwrap_or_default(),
            last: last.unwrap_or_default(),
            cluster: Some(ClusterRange { scheme: rows.scheme, least, greatest }),
        };
        let group = self.write_group(tx, of, (&pieces, &pages, None), keys)?;
        places.extend((0..block.len()).map(|row| RowLocation { group, row: row as u32 }));
        Ok(1)
    }

    /// Writes the places of rows with these keys.
    fn write_places(&self, tx: &Transaction, keys: &[KeyBytes], places: &[RowLocation]) -> Result<()> {
        let Some(state) = self.places() else { return Ok(()) };
        assert_eq!(keys.len(), places.len(), "every row has a place");
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_unstable_by(|left, right| keys[*left as usize].cmp(&keys[*right as usize]));
        for rows in order.chunks(8192) {
            tx.check_running()?;
            let bytes: Vec<[u8; 8]> = rows.iter().map(|row| places[*row as usize].to_bytes()).collect();
            let writes = rows.iter().zip(&bytes);
            tx.write_many(state, writes.map(|(row, bytes)| (&keys[*row as usize][..], &bytes[..])))?;
        }
        Ok(())
    }

    /// Notes that rows were loaded beside the delta store.
    pub(crate) fn note_loaded(&self, rows: usize) {
        if let Some(clustering) = self.clustering.get() {
            clustering.loaded.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    /// Compares each block with its range of cluster keys, and each row with its place; says what is wrong.
    pub(crate) fn check_blocks(&self, tx: &Transaction, of: (&str, &Schema)) -> Result<Vec<String>> {
        let (mut wrong, mut live) = (Vec::new(), 0);
        let Some(places) = self.places() else { return Ok(wrong) };
        for group in self.groups(tx)? {
            if group.cluster.is_none() {
                continue;
            }
            live += group.live_rows();
            match self.check_block(tx, of, &group) {
                Ok(None) => {}
                Ok(Some(what)) => wrong.push(format!("{what} of row group {}", group.number)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        let (mut from, mut count) = (None, 0);
        while tx.scan_batch(places, &entresol_transactions::KeyRange::full(), &mut from, |_, _| count += 1)? {
        }
        if count != live {
            wrong.push(format!("it has {count} places of {live} rows in blocks"));
        }
        Ok(wrong)
    }

    fn check_block(&self, tx: &Transaction, of: (&str, &Schema), group: &RowGroup) -> Result<Option<String>> {
        let Some(range) = group.cluster else { return Ok(None) };
        let scheme = self.scheme(range.scheme)?;
        // Of a block whose dimensions are not those of the table any more, and may be dropped, only the order is known.
        let is_known = scheme.is_known(of.1);
        let deleted = self.deleted(tx, group)?;
        let all: Vec<usize> = (0..of.1.columns().len()).collect();
        let rows = group.rows as usize;
        let block_rows = crate::columns::page::BLOCK_ROWS;
        for block in 0..rows.div_ceil(block_rows) {
            let arrays = self.arrays(tx, of.1, group, (block, None), &all)?;
            let keys = scheme.keys(of, std::slice::from_ref(&arrays))?;
            let is_within = |key: &u64| (range.least..=range.greatest).contains(key);
            if is_known && (!keys.is_sorted() || !keys.iter().all(is_within)) {
                return Ok(Some("the cluster keys are not those of the rows".to_owned()));
            }
            let row_keys = self.keys(tx, of, group, block)?;
            for (at, location) in self.locations(tx, &row_keys)?.into_iter().enumerate() {
                let row = block * block_rows + at;
                let is_here = location == Some(RowLocation { group: group.number, row: row as u32 });
                if is_here == deleted.as_ref().is_some_and(|deleted| deleted.contains(row)) {
                    return Ok(Some(format!("the place of row {row} is not that")));
                }
            }
        }
        Ok(None)
    }
}

/// Place of a row of a row group, by the number of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowLocation {
    pub(crate) group: u32,
    pub(crate) row: u32,
}

impl RowLocation {
    fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.group) << 32 | u64::from(self.row)).to_le_bytes()
    }

    /// Decodes a place; none if it is damaged.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<RowLocation> {
        let word = u64::from_le_bytes(bytes.try_into().ok()?);
        let location = RowLocation { group: (word >> 32) as u32, row: word as u32 };
        ((location.row as usize) < GROUP_ROWS && location.group > 0).then_some(location)
    }
}

/// Rows in the order of their cluster keys.
struct SortedRows {
    scheme: u32,
    keys: Vec<u64>,
    arrays: Vec<ArrayRef>,
    /// Key of each row.
    row_keys: Vec<KeyBytes>,
}

/// Piece and row of each row in the order of the cluster keys, and the keys in order.
fn sorted(pieces: &[Vec<ArrayRef>], keys: Vec<u64>) -> (Vec<(usize, usize)>, Vec<u64>) {
    let places = pieces.iter().enumerate();
    let places = places.flat_map(|(at, piece)| (0..rows_of(piece)).map(move |row| (at, row)));
    let mut rows: Vec<(u64, (usize, usize))> = keys.into_iter().zip(places).collect();
    rows.sort_unstable();
    rows.into_iter().map(|(key, place)| (place, key)).unzip()
}

/// Arrays of all columns with the rows in an order.
fn in_order(schema: &Schema, pieces: &[Vec<ArrayRef>], order: &[(usize, usize)]) -> Result<Vec<ArrayRef>> {
    let column = |at: usize| {
        let arrays: Vec<&dyn Array> = pieces.iter().map(|piece| &*piece[at]).collect();
        interleave(&arrays, order).map_err(|error| Error::InvalidSchema { reason: error.to_string() })
    };
    (0..schema.columns().len()).map(column).collect()
}
