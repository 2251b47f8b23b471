//! Rows of blocks by their keys: one by one, and in key order (the index iterator of the dissertation, 4.2.3).
//!
//! Rows are looked up by their places; only the columns of the rows that are found are decoded. Memory of a cursor:
//! [`STEP_ROWS`] rows.

use crate::columns::clustering::store::RowLocation;
use crate::columns::find::RowPlace;
use crate::columns::group::{EntryKind, RowGroup};
use crate::columns::store::ColumnStore;
use crate::encoding::row::EncodedValues;
use crate::error::{Error, Result};
use crate::schema::Schema;
use entresol_structures::KeyBytes;
use entresol_transactions::{Direction, KeyRange, Transaction};
use std::sync::Arc;

/// Number of rows that a cursor looks up together.
const STEP_ROWS: usize = 2048;

impl ColumnStore {
    pub(super) fn damaged_place(&self) -> Error {
        Error::corrupt(format!("places of rows in row groups of {}", self.state().id()), "a place is damaged")
    }

    /// Location of the row of each key that is in a block and not deleted.
    pub(crate) fn locations<K: AsRef<[u8]>>(
        &self,
        tx: &Transaction,
        keys: &[K],
    ) -> Result<Vec<Option<RowLocation>>> {
        let Some(places) = self.places_for(tx)? else { return Ok(vec![None; keys.len()]) };
        let (mut locations, mut is_damaged) = (Vec::with_capacity(keys.len()), false);
        tx.read_many(places, keys, |_, place| {
            let location = place.and_then(RowLocation::from_bytes);
            is_damaged |= place.is_some() && location.is_none();
            locations.push(location);
        })?;
        if is_damaged { Err(self.damaged_place()) } else { Ok(locations) }
    }

    /// Positions of the row groups in a list, which is in the order of their numbers.
    pub(crate) fn places_within(
        &self,
        groups: &[RowGroup],
        locations: &[Option<RowLocation>],
    ) -> Result<Vec<Option<RowPlace>>> {
        let place = |location: &Option<RowLocation>| {
            let Some(RowLocation { group, row }) = *location else { return Ok(None) };
            let known = groups.binary_search_by_key(&group, |known| known.number).ok();
            let known = known.filter(|at| row < groups[*at].rows).ok_or_else(|| self.damaged_place())?;
            Ok(Some(RowPlace { group: known, row: row as usize }))
        };
        locations.iter().map(place).collect()
    }

    /// Row groups with these locations, in the order of their numbers.
    pub(crate) fn groups_with(
        &self,
        tx: &Transaction,
        locations: &[Option<RowLocation>],
    ) -> Result<Vec<RowGroup>> {
        let mut numbers: Vec<u32> = locations.iter().flatten().map(|location| location.group).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let keys: Vec<[u8; 8]> = numbers.iter().map(|number| EntryKind::Directory.key(*number)).collect();
        let mut groups = Vec::with_capacity(keys.len());
        tx.read_many(self.state(), &keys, |at, entry| {
            groups.extend(entry.and_then(|entry| RowGroup::from_bytes(numbers[at], entry)));
        })?;
        if groups.len() == numbers.len() { Ok(groups) } else { Err(self.damaged_place()) }
    }
}

/// Cursor over the rows of blocks in key order, or against it.
#[derive(Debug)]
pub(crate) struct PlaceCursor {
    store: Arc<ColumnStore>,
    range: KeyRange,
    direction: Direction,
    from: Option<KeyBytes>,
    has_more: bool,
    keys: Vec<KeyBytes>,
    values: EncodedValues,
    /// Value of each key.
    order: Vec<usize>,
    at: usize,
}

impl PlaceCursor {
    /// Cursor over the rows in a range.
    pub(crate) fn new(store: &Arc<ColumnStore>, range: KeyRange, direction: Direction) -> PlaceCursor {
        PlaceCursor {
            store: Arc::clone(store),
            range,
            direction,
            from: None,
            has_more: true,
            keys: Vec::new(),
            values: EncodedValues::default(),
            order: Vec::new(),
            at: 0,
        }
    }

    /// Looks up the next rows, unless there are some.
    fn load(&mut self, tx: &Transaction, of: (&str, &Schema)) -> Result<()> {
        let store = Arc::clone(&self.store);
        let Some(places) = store.places_for(tx)? else { return Ok(()) };
        while self.at >= self.keys.len() && self.has_more {
            tx.check_running()?;
            let (mut keys, mut locations) = (Vec::new(), Vec::new());
            while self.has_more && keys.len() < STEP_ROWS {
                let (range, from) = (&self.range, &mut self.from);
                self.has_more = tx.scan_batch_in(places, range, self.direction, from, |key, place| {
                    keys.push(KeyBytes::from_slice(key));
                    locations.push(RowLocation::from_bytes(place));
                })?;
            }
            if locations.contains(&None) {
                return Err(store.damaged_place());
            }
            let groups = store.groups_with(tx, &locations)?;
            let rows: Vec<RowPlace> =
                store.places_within(&groups, &locations)?.into_iter().flatten().collect();
            let (mut values, mut order) = (EncodedValues::default(), vec![0; keys.len()]);
            let mut read = 0;
            store.read_places(tx, of, &groups, &rows, |at, value| {
                values.push(value);
                order[at] = read;
                read += 1;
            })?;
            (self.keys, self.values, self.order, self.at) = (keys, values, order, 0);
        }
        Ok(())
    }

    /// Key of the next row; none at the end.
    pub(crate) fn peek(&mut self, tx: &Transaction, of: (&str, &Schema)) -> Result<Option<&[u8]>> {
        self.load(tx, of)?;
        Ok(self.keys.get(self.at).map(|key| &key[..]))
    }

    /// Calls `f` with the next row, if there is one, and goes behind it.
    pub(crate) fn take(
        &mut self,
        tx: &Transaction,
        of: (&str, &Schema),
        f: impl FnOnce(&[u8], &[u8]),
    ) -> Result<()> {
        self.load(tx, of)?;
        if let Some(key) = self.keys.get(self.at) {
            f(key, self.values.get(self.order[self.at]));
            self.at += 1;
        }
        Ok(())
    }
}
