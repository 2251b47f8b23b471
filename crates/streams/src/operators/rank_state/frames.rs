//! Rows that window functions read: those that a watermark has passed, with the rows before them.
//!
//! ```text
//!   partition   ├── read by later rows ──┼── before the watermark, new ──┼── wait ──▶ time
//!               first of the partition   last row that was sent, with the carried state
//! ```
//!
//! - A row is taken once, when the watermark has passed its time, with all rows that are equal in the order.
//! - Behind that, a row stays as long as a frame of a later row may begin before it. The last row that was sent stays
//!   where functions have no first row: it has the state with which they go on.
//! - A slice of the waiting times is taken at once, which bounds what is computed at one time: all partitions' rows
//!   with these times.
//!
//! Crash and abort are those of the state ([`super`]). A partition that gets no more rows stays as it is.

use super::{PartitionKey, RankLayout, RankState, RankedRow, bytes_of};
use crate::BATCH_TUPLES;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::row_windows::RANGE_ROWS_MAX;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{OwnedRow, RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use entresol_tables::{Column, arrow_schema};
use entresol_transactions::Transaction;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a partition that stay for the frames of later ones.
#[derive(Debug, Clone)]
pub(crate) struct FrameRows {
    /// Number of rows before the next.
    pub(crate) rows: usize,
    /// Time before the watermark, if frames have one.
    pub(crate) range_us: Option<i64>,
    /// Columns of the states that functions carry on, behind all others of the state table.
    pub(crate) carried: Vec<Column>,
    /// Columns of the stream.
    pub(crate) columns: Vec<Column>,
}

/// States that functions carry on, in Arrow's row format.
pub(super) struct CarriedStates {
    /// First of their columns in the state table.
    first: usize,
    converter: RowConverter,
    /// State of a row that has none.
    none: OwnedRow,
}

impl CarriedStates {
    /// States of a layout; none if nothing is carried.
    pub(super) fn new(layout: &RankLayout, schema: &SchemaRef) -> Result<Option<CarriedStates>, ArrowError> {
        let count = layout.frames.as_ref().map_or(0, |frames| frames.carried.len());
        if count == 0 {
            return Ok(None);
        }
        let first = schema.fields().len() - count;
        let types = schema.fields()[first..].iter().map(|field| field.data_type().clone());
        let types: Vec<_> = types.collect();
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        let nulls: Vec<ArrayRef> = types.iter().map(|of| arrow_array::new_null_array(of, 1)).collect();
        let none = converter.convert_columns(&nulls)?.row(0).owned();
        Ok(Some(CarriedStates { first, converter, none }))
    }

    /// States of the rows of the state table.
    pub(super) fn rows_of(&self, stored: &RecordBatch) -> Result<Rows, ArrowError> {
        self.converter.convert_columns(&stored.columns()[self.first..])
    }

    /// Columns of states.
    pub(super) fn columns<'s>(
        &'s self,
        states: impl Iterator<Item = Option<&'s OwnedRow>>,
    ) -> Result<Vec<ArrayRef>, ArrowError> {
        self.converter.convert_rows(states.map(|state| state.unwrap_or(&self.none).row()))
    }
}

/// Rows that a watermark has passed, behind the rows of their partitions that functions read.
pub(crate) struct TakenRows {
    /// Columns of the stream.
    pub(crate) batch: RecordBatch,
    pub(crate) times: Vec<EventTime>,
    /// Rows of the partition that are equal in the order, for each row.
    pub(crate) peers: Vec<Range<usize>>,
    pub(crate) parts: Vec<TakenPart>,
    /// Time that the rows are before.
    pub(crate) until: EventTime,
}

/// Rows of a partition among those that are taken.
pub(crate) struct TakenPart {
    key: PartitionKey,
    pub(crate) rows: Range<usize>,
    /// First row that is new.
    pub(crate) first: usize,
    /// States of the functions behind the row before it, each an array of one value; none of a partition without one.
    pub(crate) carried: Option<Vec<ArrayRef>>,
}

impl RankState {
    /// Takes the next rows with times in a range, up to about [`BATCH_TUPLES`]; none if there are no more.
    pub(crate) fn take_until(
        &mut self,
        tx: &Transaction,
        from: EventTime,
        to: EventTime,
    ) -> Result<Option<TakenRows>> {
        let (keys, until) = self.take_pending(from, to);
        if keys.is_empty() {
            return Ok(None);
        }
        let mut rows: Vec<Arc<RankedRow>> = Vec::new();
        let (mut parts, mut peers) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in keys {
            self.fetch(tx, &key)?;
            let Some(found) = self.recent.get(&key) else { continue };
            let before = found.partition_point(|row| row.time < from);
            let end = found.partition_point(|row| row.time < until);
            if before == end {
                continue;
            }
            if before > RANGE_ROWS_MAX {
                let resource = format!("rows of a partition in the range of {}", self.name);
                return Err(Error::Limit { resource, max: RANGE_ROWS_MAX });
            }
            let carried = self.carried_of(found[..before].last())?;
            let first = rows.len();
            for alike in found[..end].chunk_by(|one, other| one.order == other.order) {
                let begin = rows.len();
                rows.extend(alike.iter().cloned());
                peers.extend(std::iter::repeat_n(begin..rows.len(), alike.len()));
            }
            parts.push(TakenPart { key, rows: first..rows.len(), first: first + before, carried });
        }
        let times = rows.iter().map(|row| row.time).collect();
        let batch = self.stream_batch(&rows)?;
        Ok(Some(TakenRows { batch, times, peers, parts, until }))
    }

    /// Takes waiting times in a range; returns their partitions in the order of keys, and the time that they are
    /// before.
    fn take_pending(&mut self, from: EventTime, to: EventTime) -> (BTreeSet<PartitionKey>, EventTime) {
        let (mut keys, mut taken, mut last) = (BTreeSet::new(), 0, None);
        while let Some((time, _)) = self.pending.first().filter(|(time, _)| *time < to) {
            if taken >= BATCH_TUPLES && last != Some(*time) {
                return (keys, *time);
            }
            let Some((time, key)) = self.pending.pop_first() else { break };
            last = Some(time);
            if time >= from {
                taken += 1;
                keys.insert(Arc::clone(&key));
            }
            self.sent.push((time, key));
        }
        (keys, to)
    }

    /// States that a row carries on.
    fn carried_of(&self, row: Option<&Arc<RankedRow>>) -> Result<Option<Vec<ArrayRef>>> {
        let (Some(carried), Some(row)) = (&self.carried, row) else { return Ok(None) };
        let columns = carried.columns(std::iter::once(row.carried.as_ref()));
        Ok(Some(columns.map_err(|error| self.failed(&error))?))
    }

    fn stream_batch(&self, rows: &[Arc<RankedRow>]) -> Result<RecordBatch> {
        let columns = self.rows.convert_rows(rows.iter().map(|row| row.row.row()));
        let frames = self.layout.frames.as_ref();
        let columns_of_stream = frames.map(|frames| frames.columns.as_slice()).unwrap_or_default();
        let schema = arrow_schema(columns_of_stream, crate::UTC);
        let batch = columns.and_then(|columns| RecordBatch::try_new(schema, columns));
        batch.map_err(|error| self.failed(&error))
    }

    /// Notes the states behind rows that were taken, a value for each partition, and drops the rows that no later one
    /// reads.
    pub(crate) fn settle(&mut self, taken: &TakenRows, carried: &[ArrayRef]) -> Result<()> {
        let states = self.carried.as_ref().map(|states| states.converter.convert_columns(carried));
        let states = states.transpose().map_err(|error| self.failed(&error))?;
        let frames = self.layout.frames.as_ref();
        let frames = frames.map_or((0, None), |frames| (frames.rows, frames.range_us));
        for (at, part) in taken.parts.iter().enumerate() {
            self.touch(&part.key);
            let Some(rows) = self.recent.get_mut(&part.key) else { continue };
            let end = part.rows.len();
            if let (Some(states), Some(last)) = (&states, rows.get_mut(end - 1)) {
                let state = states.row(at).owned();
                let row = RankedRow { carried: Some(state), ..RankedRow::clone(last) };
                self.bytes = self.bytes + row.bytes() - last.bytes();
                *last = Arc::new(row);
            }
            let mut first = end.saturating_sub(frames.0);
            if let Some(range_us) = frames.1 {
                let begin = taken.until.minus(range_us);
                first = first.min(rows.partition_point(|row| row.time < begin));
            }
            let dropped = rows.drain(..first).collect();
            self.bytes -= bytes_of(&dropped);
        }
        Ok(())
    }
}
