//! Rows of row groups by their keys.
//!
//! Rows of blocks have places by their keys ([`crate::columns::clustering`]). Any other key is looked for in each row
//! group in key order that spans it, by a binary search of the first keys of its blocks and then of the keys of one
//! block. Cost: decoding the keys of each block that one of the keys may be in, once a call; keys that ascend are
//! cheapest together.

use crate::batch::encode::encode;
use crate::columns::clustering::store::RowLocation;
use crate::columns::group::{RowGroup, RowSet};
use crate::columns::page::BLOCK_ROWS;
use crate::columns::store::ColumnStore;
use crate::encoding::row::EncodedValues;
use crate::error::Result;
use crate::schema::Schema;
use arrow_array::ArrayRef;
use entresol_structures::KeyBytes;
use entresol_transactions::Transaction;

/// Place of a row among row groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowPlace {
    /// Position of the row group in a list.
    pub(crate) group: usize,
    pub(crate) row: usize,
}

impl ColumnStore {
    /// Row groups in which rows with these keys are, which ascend and are padded, and the places of the rows there.
    pub(crate) fn find(
        &self,
        tx: &Transaction,
        of: (&str, &Schema),
        keys: &[KeyBytes],
    ) -> Result<(Vec<RowGroup>, Vec<Option<RowPlace>>)> {
        let locations = self.locations(tx, keys)?;
        let mut groups = self.groups_with(tx, &locations)?;
        if locations.contains(&None) {
            groups.extend(self.ordered_groups(tx)?);
            groups.sort_unstable_by_key(|group| group.number);
        }
        let places = self.locate_beside(tx, of, (&groups, &locations), keys)?;
        Ok((groups, places))
    }

    /// Places of the rows with these keys, which ascend and are padded; none for keys without a row that is
    /// not deleted.
    pub(crate) fn locate(
        &self,
        tx: &Transaction,
        of: (&str, &Schema),
        groups: &[RowGroup],
        keys: &[KeyBytes],
    ) -> Result<Vec<Option<RowPlace>>> {
        self.locate_beside(tx, of, (groups, &self.locations(tx, keys)?), keys)
    }

    /// As [`ColumnStore::locate`], of keys whose locations in blocks are known.
    fn locate_beside(
        &self,
        tx: &Transaction,
        of: (&str, &Schema),
        (groups, locations): (&[RowGroup], &[Option<RowLocation>]),
        keys: &[KeyBytes],
    ) -> Result<Vec<Option<RowPlace>>> {
        debug_assert!(keys.is_sorted(), "keys ascend");
        let mut places = self.places_within(groups, locations)?;
        let in_order = groups.iter().enumerate().filter(|(_, group)| group.cluster.is_none());
        for (at, group) in in_order {
            let first = keys.partition_point(|key| key < &group.first);
            let end = keys.partition_point(|key| key <= &group.last);
            if first >= end {
                continue;
            }
            tx.check_running()?;
            let (summary, deleted) = (self.summary(tx, group.number)?, self.deleted(tx, group)?);
            let is_deleted = |row| deleted.as_ref().is_some_and(|rows: &RowSet| rows.contains(row));
            let (mut block_now, mut keys_now) = (usize::MAX, Vec::new());
            for number in first..end {
                let key = &keys[number];
                let block = summary.block_keys.partition_point(|first| first <= key).saturating_sub(1);
                if block != block_now {
                    (block_now, keys_now) = (block, self.keys(tx, of, group, block)?);
                }
                if let Ok(found) = keys_now.binary_search(key)
                    && !is_deleted(block * BLOCK_ROWS + found)
                {
                    places[number] = Some(RowPlace { group: at, row: block * BLOCK_ROWS + found });
                }
            }
        }
        Ok(places)
    }

    /// Calls `f` with the number of each place and the value of its row, as the state of the rows would store
    /// it.
    pub(crate) fn read_places(
        &self,
        tx: &Transaction,
        (table, schema): (&str, &Schema),
        groups: &[RowGroup],
        places: &[RowPlace],
        mut f: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_unstable_by_key(|at| places[*at]);
        let block_of = |at: usize| (places[at].group, places[at].row / BLOCK_ROWS);
        let columns: Vec<usize> = (0..schema.columns().len()).collect();
        for of_block in order.chunk_by(|first, second| block_of(*first) == block_of(*second)) {
            let (group, block) = block_of(of_block[0]);
            let rows: Vec<u32> = of_block.iter().map(|at| (places[*at].row % BLOCK_ROWS) as u32).collect();
            let arrays = self.arrays(tx, schema, &groups[group], (block, Some(&rows)), &columns)?;
            let (_, values) = encode(table, schema, &arrays)?;
            of_block.iter().enumerate().for_each(|(row, at)| f(*at, values.get(row)));
        }
        Ok(())
    }

    /// Keys and values of consecutive rows of a block, as the state of the rows would store them.
    pub(crate) fn encoded_rows(
        &self,
        tx: &Transaction,
        (table, schema): (&str, &Schema),
        group: &RowGroup,
        (block, rows): (usize, &[u32]),
    ) -> Result<(Vec<KeyBytes>, EncodedValues)> {
        let columns: Vec<usize> = (0..schema.columns().len()).collect();
        let arrays: Vec<ArrayRef> = self.arrays(tx, schema, group, (block, Some(rows)), &columns)?;
        let (mut keys, values) = encode(table, schema, &arrays)?;
        keys.iter_mut().for_each(|key| crate::encoding::key::pad(key, schema.key_width()));
        Ok((keys, values))
    }
}
