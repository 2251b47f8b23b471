//! Rows of a table with row groups in key order: those of the delta store over those of the row groups.

use crate::columns::clustering::places::PlaceCursor;
use crate::columns::cursor::GroupCursor;
use crate::columns::store::ColumnStore;
use crate::error::Result;
use crate::schema::Schema;
use crate::table::Table;
use crate::table::stored::TOMBSTONE;
use entresol_structures::KeyBytes;
use entresol_transactions::{Direction, KeyRange, Transaction};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of rows of a batch.
const BATCH_ROWS: usize = 1024;

/// Cursor over the rows of row groups, of those in key order and of blocks. A row is in one of them.
#[derive(Debug)]
struct RowCursor {
    groups: GroupCursor,
    /// Of a table that has blocks.
    places: Option<PlaceCursor>,
    direction: Direction,
}

impl RowCursor {
    /// Returns true if the next row is one of a block.
    fn is_placed(&mut self, tx: &Transaction, of: (&str, &Schema)) -> Result<bool> {
        let Some(places) = &mut self.places else { return Ok(false) };
        Ok(match (places.peek(tx, of)?, self.groups.peek(tx, of)?) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(placed), Some(ordered)) => match self.direction {
                Direction::Forward => placed < ordered,
                Direction::Backward => placed > ordered,
            },
        })
    }

    fn peek(&mut self, tx: &Transaction, of: (&str, &Schema)) -> Result<Option<&[u8]>> {
        let is_placed = self.is_placed(tx, of)?;
        match &mut self.places {
            Some(places) if is_placed => places.peek(tx, of),
            _ => self.groups.peek(tx, of),
        }
    }

    fn take(&mut self, tx: &Transaction, of: (&str, &Schema), f: impl FnOnce(&[u8], &[u8])) -> Result<()> {
        let is_placed = self.is_placed(tx, of)?;
        match &mut self.places {
            Some(places) if is_placed => places.take(tx, of, f),
            _ => self.groups.take(tx, of, f),
        }
    }
}

/// Cursor over both; it keeps what it has read ahead.
#[derive(Debug)]
pub(crate) struct MergeCursor {
    range: KeyRange,
    direction: Direction,
    groups: RowCursor,
    /// Position in the delta store; none before the first batch.
    from: Option<KeyBytes>,
    /// Entries of the delta store that were read.
    delta: VecDeque<(KeyBytes, Box<[u8]>)>,
    has_more_delta: bool,
}

impl MergeCursor {
    pub(crate) fn new(
        table: &Table,
        columns: &Arc<ColumnStore>,
        tx: &Transaction,
        range: KeyRange,
        direction: Direction,
    ) -> Result<MergeCursor> {
        debug_assert!(table.columns().is_some(), "the table has row groups");
        let places = columns.places_for(tx)?;
        let places = places.map(|_| PlaceCursor::new(columns, range.clone(), direction));
        let groups = GroupCursor::of(columns, columns.ordered_groups(tx)?, range.clone(), direction);
        let groups = RowCursor { groups, places, direction };
        Ok(MergeCursor { range, direction, groups, from: None, delta: VecDeque::new(), has_more_delta: true })
    }

    fn read_delta(&mut self, table: &Table, tx: &Transaction) -> Result<()> {
        while self.delta.is_empty() && self.has_more_delta {
            let delta = &mut self.delta;
            let (state, from) = (table.state(), &mut self.from);
            self.has_more_delta =
                tx.scan_batch_in(state, &self.range, self.direction, from, |key, value| {
                    delta.push_back((KeyBytes::from_slice(key), value.into()));
                })?;
        }
        Ok(())
    }

    /// Calls `f` with the keys and values of the next rows; false at the end.
    pub(crate) fn next_entries(
        &mut self,
        table: &Table,
        tx: &Transaction,
        mut f: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        let of = table.named_schema();
        for _ in 0..BATCH_ROWS {
            self.read_delta(table, tx)?;
            let order = match (self.delta.front(), self.groups.peek(tx, of)?) {
                (None, None) => return Ok(false),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((key, _)), Some(beneath)) => match self.direction {
                    Direction::Forward => key[..].cmp(beneath),
                    Direction::Backward => beneath.cmp(&key[..]),
                },
            };
            if order == Ordering::Greater {
                self.groups.take(tx, of, &mut f)?;
                continue;
            }
            if order == Ordering::Equal {
                // The delta store overrides it.
                self.groups.take(tx, of, |_, _| ())?;
            }
            if let Some((key, value)) = self.delta.pop_front()
                && *value != *TOMBSTONE
            {
                f(&key, &value);
            }
        }
        Ok(true)
    }
}
