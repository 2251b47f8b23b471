//! Rows of row groups in key order, or against it.
//!
//! Row groups that the range reaches are opened when the cursor comes to them, so of row groups that do not
//! overlap only one is open at a time. Memory: [`STEP_ROWS`] rows of each open one.

use crate::columns::group::{GroupSummary, RowGroup, RowSet};
use crate::columns::page::BLOCK_ROWS;
use crate::columns::store::ColumnStore;
use crate::encoding::row::EncodedValues;
use crate::error::Result;
use crate::schema::Schema;
use entresol_structures::KeyBytes;
use entresol_transactions::{Direction, KeyRange, Transaction};
use std::ops::Bound;
use std::sync::Arc;

/// Number of rows of a row group that are decoded at a time.
const STEP_ROWS: usize = 2048;

/// Cursor over the rows of row groups; see the [module](self).
#[derive(Debug)]
pub(crate) struct GroupCursor {
    store: Arc<ColumnStore>,
    range: KeyRange,
    direction: Direction,
    /// Row groups that are not open yet, the next one last.
    closed: Vec<RowGroup>,
    open: Vec<OpenGroup>,
}

/// Row group that a cursor reads.
#[derive(Debug)]
struct OpenGroup {
    group: RowGroup,
    summary: Arc<GroupSummary>,
    deleted: Option<RowSet>,
    /// Next step, and the end: steps of [`STEP_ROWS`] rows are counted in the direction.
    step: usize,
    keys: Vec<KeyBytes>,
    values: EncodedValues,
    /// Position of the next row in the step.
    at: usize,
}

impl GroupCursor {
    /// Cursor over the rows of these row groups in a range.
    pub(crate) fn of(
        store: &Arc<ColumnStore>,
        mut closed: Vec<RowGroup>,
        range: KeyRange,
        direction: Direction,
    ) -> GroupCursor {
        closed.retain(|group| range.reaches(&group.first) && range.begins_before(&group.last));
        match direction {
            Direction::Forward => closed.sort_by(|a, b| b.first.cmp(&a.first)),
            Direction::Backward => closed.sort_by(|a, b| a.last.cmp(&b.last)),
        }
        GroupCursor { store: Arc::clone(store), range, direction, closed, open: Vec::new() }
    }

    fn is_before(&self, key: &[u8], other: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => key < other,
            Direction::Backward => key > other,
        }
    }

    /// Position of the open row group with the next row.
    fn next_open(&mut self, tx: &Transaction, of: (&str, &Schema)) -> Result<Option<usize>> {
        loop {
            let mut best: Option<usize> = None;
            for at in 0..self.open.len() {
                if best.is_none_or(|best| self.is_before(self.open[at].key(), self.open[best].key())) {
                    best = Some(at);
                }
            }
            let Some(next) = self.closed.last() else { return Ok(best) };
            let begin = if self.direction == Direction::Forward { &next.first } else { &next.last };
            if best.is_some_and(|best| self.is_before(self.open[best].key(), begin)) {
                return Ok(best);
            }
            let group = self.closed.pop().expect("it was looked at");
            let deleted = self.store.deleted(tx, &group)?;
            let first_step = self.first_step(tx, &group)?;
            let summary = self.store.summary(tx, group.number)?;
            let mut opened = OpenGroup {
                group,
                summary,
                deleted,
                step: first_step,
                keys: Vec::new(),
                values: EncodedValues::default(),
                at: 0,
            };
            if opened.load(self, tx, of)? {
                self.open.push(opened);
            }
        }
    }

    /// Step of a row group at which the range begins.
    fn first_step(&self, tx: &Transaction, group: &RowGroup) -> Result<usize> {
        let summary = self.store.summary(tx, group.number)?;
        let steps_of_block = BLOCK_ROWS / STEP_ROWS;
        let begin = match self.direction {
            Direction::Forward => &self.range.lower,
            Direction::Backward => &self.range.upper,
        };
        let (Bound::Included(key) | Bound::Excluded(key)) = begin else { return Ok(0) };
        let block = summary.block_keys.partition_point(|first| first <= key).saturating_sub(1);
        let blocks = summary.block_keys.len();
        Ok(match self.direction {
            Direction::Forward => block * steps_of_block,
            Direction::Backward => blocks.saturating_sub(block + 1) * steps_of_block,
        })
    }

    /// Key of the next row; none at the end.
    pub(crate) fn peek(&mut self, tx: &Transaction, of: (&str, &Schema)) -> Result<Option<&[u8]>> {
        let next = self.next_open(tx, of)?;
        Ok(next.map(|at| self.open[at].key()))
    }

    /// Calls `f` with the next row, if there is one, and goes behind it.
    pub(crate) fn take(
        &mut self,
        tx: &Transaction,
        of: (&str, &Schema),
        f: impl FnOnce(&[u8], &[u8]),
    ) -> Result<()> {
        let Some(at) = self.next_open(tx, of)? else { return Ok(()) };
        let mut open = self.open.swap_remove(at);
        f(open.key(), open.values.get(open.at));
        open.at += 1;
        if open.at < open.keys.len() || open.load(self, tx, of)? {
            self.open.push(open);
        }
        Ok(())
    }
}

impl OpenGroup {
    fn key(&self) -> &[u8] {
        &self.keys[self.at]
    }

    /// Tells whether all rows of a block lie behind the range, in the direction of the cursor.
    fn is_behind(&self, cursor: &GroupCursor, block: usize) -> bool {
        let keys = &self.summary.block_keys;
        match (cursor.direction, &cursor.range.lower, &cursor.range.upper) {
            (Direction::Forward, _, Bound::Included(upper)) => keys[block] > *upper,
            (Direction::Forward, _, Bound::Excluded(upper)) => keys[block] >= *upper,
            (Direction::Backward, Bound::Included(lower) | Bound::Excluded(lower), _) => {
                keys.get(block + 1).is_some_and(|next| next <= lower)
            }
            _ => false,
        }
    }

    /// Decodes the next step that has rows; false if there is none.
    fn load(&mut self, cursor: &GroupCursor, tx: &Transaction, of: (&str, &Schema)) -> Result<bool> {
        let rows = self.group.rows as usize;
        let blocks = rows.div_ceil(BLOCK_ROWS);
        let steps_of_block = BLOCK_ROWS / STEP_ROWS;
        loop {
            if self.step >= blocks * steps_of_block {
                return Ok(false);
            }
            let step = match cursor.direction {
                Direction::Forward => self.step,
                Direction::Backward => blocks * steps_of_block - 1 - self.step,
            };
            self.step += 1;
            let (first, end) = ((step * STEP_ROWS).min(rows), ((step + 1) * STEP_ROWS).min(rows));
            let is_live = |row: &usize| self.deleted.as_ref().is_none_or(|deleted| !deleted.contains(*row));
            let selected = (first..end).filter(is_live).map(|row| (row % BLOCK_ROWS) as u32);
            let mut selected: Vec<u32> = selected.collect();
            if selected.is_empty() {
                continue;
            }
            if cursor.direction == Direction::Backward {
                selected.reverse();
            }
            let block = step / steps_of_block;
            if self.is_behind(cursor, block) {
                return Ok(false);
            }
            let (keys, values) = cursor.store.encoded_rows(tx, of, &self.group, (block, &selected))?;
            let wanted = |key: &KeyBytes| cursor.range.contains(key);
            let Some(from) = keys.iter().position(wanted) else { continue };
            let to = keys.iter().rposition(wanted).map_or(from, |last| last + 1);
            (self.keys, self.values, self.at) = (keys, values, from);
            self.keys.truncate(to);
            return Ok(true);
        }
    }
}
