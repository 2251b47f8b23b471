//! Rows of a partition: their order, the ranks that they have, and which of them are stored.

use crate::event_time::EventTime;
use crate::operators::rank_state::frames::FrameRows;
use crate::ranking::{RankChanges, RankFunction, RankOrder};
use arrow_array::BooleanArray;
use arrow_row::{OwnedRow, Rows};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Estimated bytes of memory of a row besides its values.
const ROW_BYTES: usize = 112;
/// Columns that a partition has in common, in Arrow's row format.
pub(crate) type PartitionKey = Arc<[u8]>;

/// Columns of the stream, and the ranks that they get.
pub(crate) struct RankLayout {
    /// Columns of the partition, of windows the edge first.
    pub(crate) key: Vec<usize>,
    /// True if the key may be NULL: in the state table a number behind it says which of its columns are.
    pub(crate) has_nulls: bool,
    /// All others.
    pub(crate) others: Vec<usize>,
    pub(crate) order: Vec<RankOrder>,
    pub(crate) function: RankFunction,
    pub(crate) limit: Option<usize>,
    /// Changes that are sent at the commit.
    pub(crate) changes: RankChanges,
    /// True if rows are taken back, for which those behind them move up.
    pub(crate) has_changes: bool,
    /// Rows that window functions read of those that were sent; none of a ranking.
    pub(crate) frames: Option<FrameRows>,
    pub(crate) partitions_in_dram: usize,
}

/// Row of a partition.
#[derive(Clone)]
pub(crate) struct RankedRow {
    pub(super) order: Box<[u8]>,
    pub(super) arrival: i64,
    pub(super) slot: i64,
    /// Event time, if the ranking waits for it.
    pub(super) time: EventTime,
    pub(super) row: OwnedRow,
    /// State with which window functions go on behind the row; none before it is sent.
    pub(super) carried: Option<OwnedRow>,
}

impl RankedRow {
    pub(super) fn bytes(&self) -> usize {
        let carried = self.carried.as_ref().map_or(0, |carried| carried.as_ref().len());
        self.order.len() + self.row.as_ref().len() + carried + ROW_BYTES
    }

    pub(super) fn compare(&self, other: &RankedRow) -> Ordering {
        self.order.cmp(&other.order).then(self.arrival.cmp(&other.arrival))
    }
}

pub(super) type PartitionRows = Vec<Arc<RankedRow>>;

pub(super) fn bytes_of(rows: &PartitionRows) -> usize {
    rows.iter().map(|row| row.bytes()).sum()
}

/// Rows of a batch in the forms in which they are compared and stored.
pub(crate) struct RankedBatch {
    pub(super) keys: Option<Rows>,
    pub(super) orders: Rows,
    pub(super) rows: Rows,
}

impl RankedBatch {
    pub(super) fn key(&self, row: usize) -> &[u8] {
        self.keys.as_ref().map_or(&[], |keys| keys.row(row).data())
    }
}

/// Rows that are sent, with their ranks.
#[derive(Default)]
pub(crate) struct RankedOutput {
    pub(super) rows: Vec<Arc<RankedRow>>,
    pub(super) ranks: Vec<i64>,
    /// True of rows that are taken back.
    pub(super) retracted: Vec<bool>,
}

impl RankedOutput {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn push(&mut self, row: &Arc<RankedRow>, rank: i64) {
        self.push_change(row, rank, false);
    }

    pub(super) fn push_change(&mut self, row: &Arc<RankedRow>, rank: i64, is_retracted: bool) {
        self.rows.push(Arc::clone(row));
        self.ranks.push(rank);
        self.retracted.push(is_retracted);
    }

    /// Change types of a part of the rows.
    pub(crate) fn retracted(&self, part: std::ops::Range<usize>) -> BooleanArray {
        BooleanArray::from(self.retracted[part].to_vec())
    }
}

/// Adds the rows of a partition that are new, and those that are there no more.
pub(super) fn arrived_and_left<'r>(
    before: &'r [Arc<RankedRow>],
    after: &'r [Arc<RankedRow>],
    new_rows: &mut Vec<&'r Arc<RankedRow>>,
    left: &mut Vec<&'r Arc<RankedRow>>,
) {
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(one), Some(other)) if Arc::ptr_eq(one, other) => {
                old.next();
                new.next();
            }
            (Some(one), other) if other.is_none_or(|other| one.compare(other) != Ordering::Greater) => {
                left.extend(old.next());
            }
            _ => new_rows.extend(new.next()),
        }
    }
}

/// Adds the rows that are new in a partition, and those whose slot is free again.
pub(super) fn differences<'r>(
    before: &'r PartitionRows,
    after: &'r PartitionRows,
    written: &mut Vec<&'r Arc<RankedRow>>,
    deleted: &mut Vec<&'r Arc<RankedRow>>,
) {
    let first = (written.len(), deleted.len());
    arrived_and_left(before, after, written, deleted);
    if deleted.len() > first.1 {
        let slots: BTreeSet<i64> = written[first.0..].iter().map(|row| row.slot).collect();
        let mut at = 0;
        deleted.retain(|row| {
            at += 1;
            at <= first.1 || !slots.contains(&row.slot)
        });
    }
}

impl RankedBatch {
    pub(super) fn row(&self, row: usize, slot: i64, arrival: i64, time: EventTime) -> RankedRow {
        let order = Box::from(self.orders.row(row).data());
        RankedRow { order, arrival, slot, time, row: self.rows.row(row).owned(), carried: None }
    }
}

impl RankLayout {
    /// Place of the slot in the state table, behind the partition.
    pub(super) fn slot(&self) -> usize {
        self.key.len() + usize::from(self.has_nulls)
    }

    /// Number of rows of a partition that are stored, by the ranking function; none if all are.
    pub(super) fn stored_limit(&self) -> Option<usize> {
        self.limit.filter(|_| !self.has_changes)
    }

    /// Tells whether a row that comes at a position is beyond the limit.
    pub(super) fn is_beyond(&self, rows: &PartitionRows, position: usize, order: &[u8]) -> bool {
        let Some(limit) = self.stored_limit() else { return false };
        match self.function {
            RankFunction::RowNumber => position >= limit,
            RankFunction::Rank => rows.partition_point(|row| *row.order < *order) >= limit,
            RankFunction::DenseRank => {
                let before = &rows[..rows.partition_point(|row| *row.order < *order)];
                before.chunk_by(|one, other| one.order == other.order).count() >= limit
            }
        }
    }

    /// Removes the rows beyond the limit; returns them.
    pub(super) fn truncate(&self, rows: &mut PartitionRows) -> PartitionRows {
        let limit = self.stored_limit().filter(|limit| rows.len() > *limit);
        let Some(limit) = limit else { return Vec::new() };
        let end = match self.function {
            RankFunction::RowNumber => limit,
            RankFunction::Rank => rows.partition_point(|row| row.order <= rows[limit - 1].order),
            RankFunction::DenseRank => {
                rows.chunk_by(|one, other| one.order == other.order).take(limit).map(<[_]>::len).sum()
            }
        };
        rows.split_off(end)
    }

    /// Ranks of the rows of a partition.
    pub(super) fn ranks(&self, rows: &PartitionRows) -> Vec<i64> {
        let mut ranks = Vec::with_capacity(rows.len());
        let (mut rank, mut dense) = (0, 0);
        for (at, row) in rows.iter().enumerate() {
            if at == 0 || rows[at - 1].order != row.order {
                (rank, dense) = (at as i64 + 1, dense + 1);
            }
            ranks.push(match self.function {
                RankFunction::RowNumber => at as i64 + 1,
                RankFunction::Rank => rank,
                RankFunction::DenseRank => dense,
            });
        }
        ranks
    }
}
