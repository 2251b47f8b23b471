//! Rows that a join of two streams keeps until no partner can come: DRAM over the operator's state table.
//!
//! ```text
//!   state table  (side, at, number) -> matched, columns of the left, columns of the right     committed
//!        ▲ changes, at every commit        │ all rows, at the first use
//!        │                                 ▼
//!   per side: (at, number) -> row;   key -> (at, number) of its rows                          DRAM
//! ```
//!
//! # Invariants
//!
//! - Between transactions DRAM equals the table. Within one, `changes` says what differs.
//! - A row is in the order of its side by its time, then by its number, which grows with each row that comes. So
//!   the partners of a row, and the rows that a watermark ends, have one order, whatever the transactions.
//! - The table belongs to one operator of one topology; changes by others are overwritten or lost.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed. An abort takes the changes back, the last one first.
//!
//! # Memory
//!
//! All rows are in DRAM, with their reservation in the pool's memory budget; a row that does not fit is an error, as
//! are more than [`JOIN_ROWS_MAX`].

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::expression::{Expression, evaluate};
use crate::operators::group_index::normalized;
use crate::operators::join_bounds::JoinBounds;
use crate::operators::stored_hash::stored_hash;
use crate::operators::stored_windows::read_batches;
use crate::operators::window_state::RESERVED_BYTES_STEP;
use crate::{JOIN_ROWS_MAX, UTC};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int16Array, Int64Array, RecordBatch, TimestampMicrosecondArray,
    UInt32Array, new_null_array,
};
use arrow_row::{OwnedRow, Row, RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take_record_batch;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{ScanRange, Table, arrow_schema, rows_of};
use entresol_transactions::Transaction;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range, RangeInclusive};
use std::sync::Arc;

/// Number of a side: the left.
pub(crate) const LEFT: usize = 0;
/// Number of a side: the right.
pub(crate) const RIGHT: usize = 1;
/// Columns of the state table before those of the rows: `side`, `at`, `number` (its key) and `matched`.
const COLUMNS_BEFORE: usize = 4;
/// Estimated bytes of memory of a row besides its values.
const ROW_BYTES: usize = 208;

/// Position of a row: its time, and its number among all rows.
pub(crate) type RowPosition = (EventTime, i64);
/// Key of a row with its hash code.
pub(crate) type HashedKey = (i64, Key);

/// Key by which rows are partners, as bytes.
pub(crate) type Key = Arc<[u8]>;

/// Row that may still get partners.
pub(crate) struct BufferedRow {
    pub(crate) row: OwnedRow,
    /// True if it has had a partner.
    pub(crate) matched: bool,
    pub(crate) key: Key,
    /// Time of the last partner that it may get.
    last: EventTime,
    /// True if it has a row in the table.
    stored: bool,
}

impl BufferedRow {
    fn bytes(&self) -> usize {
        self.row.as_ref().len() + self.key.len() + ROW_BYTES
    }
}

/// Keys of both sides, by expressions over their columns.
pub(crate) struct JoinKeys {
    expressions: [Vec<Box<dyn Expression>>; 2],
    /// True if a key with a NULL is one too, as of GROUP BY.
    has_nulls: bool,
    /// Of both sides; known when the first rows have come.
    converter: Option<RowConverter>,
}

struct SideBuffer {
    rows: BTreeMap<RowPosition, BufferedRow>,
    keys: HashMap<Key, BTreeSet<RowPosition>>,
    /// Rows by the times of their last partners, where these are not in the order of the rows.
    ends: Option<BTreeSet<(EventTime, RowPosition)>>,
    converter: RowConverter,
    /// Its columns in the state table.
    columns: Range<usize>,
}

/// Change since the last commit.
enum Change {
    Added(usize, RowPosition),
    Matched(usize, RowPosition),
    Removed(usize, RowPosition, BufferedRow),
}

pub(crate) struct JoinState {
    name: String,
    pub(crate) table: Arc<Table>,
    /// Columns of the state table.
    schema: SchemaRef,
    keys: JoinKeys,
    pub(crate) bounds: JoinBounds,
    sides: [SideBuffer; 2],
    /// Number of the next row.
    next: i64,
    changes: Vec<Change>,
    /// Bytes of the rows, those that the transaction has removed included.
    bytes: usize,
    memory: Option<MemoryReservation>,
    loaded: bool,
}

impl JoinKeys {
    pub(crate) fn new(left: Vec<Box<dyn Expression>>, right: Vec<Box<dyn Expression>>) -> JoinKeys {
        JoinKeys { expressions: [left, right], has_nulls: false, converter: None }
    }

    /// Keys of groups of the left side, of which NULL may be a part.
    pub(crate) fn of_groups(groups: Vec<Box<dyn Expression>>) -> JoinKeys {
        JoinKeys { expressions: [groups, Vec::new()], has_nulls: true, converter: None }
    }

    /// Keys of rows; none where a part of it is NULL, which equals nothing.
    fn of(&mut self, operator: &str, side: usize, rows: &RecordBatch) -> Result<Vec<Option<Key>>> {
        let parts = self.parts(operator, side, rows)?;
        self.of_parts(operator, &parts, rows.num_rows())
    }

    /// Keys of rows with the hash codes by which they are stored.
    pub(crate) fn hashed(
        &mut self,
        operator: &str,
        side: usize,
        rows: &RecordBatch,
    ) -> Result<Vec<Option<HashedKey>>> {
        let parts = self.parts(operator, side, rows)?;
        let keys = self.of_parts(operator, &parts, rows.num_rows())?;
        let named = parts.into_iter().enumerate().map(|(at, part)| (format!("key {at}"), part, true));
        let values =
            RecordBatch::try_from_iter_with_nullable(named).map_err(|error| failed(operator, &error))?;
        let hashes = rows_of(&values)?.into_iter().map(|values| stored_hash(&values));
        Ok(hashes.zip(keys).map(|(hash, key)| Some((hash, key?))).collect())
    }

    fn parts(&mut self, operator: &str, side: usize, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let parts = self.expressions[side].iter_mut();
        parts.map(|part| Ok(normalized(&evaluate(operator, &mut **part, rows)?))).collect()
    }

    fn of_parts(&mut self, operator: &str, parts: &[ArrayRef], rows: usize) -> Result<Vec<Option<Key>>> {
        if parts.is_empty() {
            return Ok(vec![Some(Key::from([])); rows]);
        }
        let converter = match self.converter.take() {
            Some(converter) => converter,
            None => {
                let fields = parts.iter().map(|part| SortField::new(part.data_type().clone()));
                RowConverter::new(fields.collect()).map_err(|error| failed(operator, &error))?
            }
        };
        let converter = self.converter.insert(converter);
        let keys = converter.convert_columns(parts).map_err(|error| failed(operator, &error))?;
        let is_key = |row: usize| self.has_nulls || parts.iter().all(|part| part.is_valid(row));
        let key = |row: usize| is_key(row).then(|| Key::from(keys.row(row).as_ref()));
        Ok((0..rows).map(key).collect())
    }
}

fn failed(operator: &str, error: &ArrowError) -> Error {
    Error::Tuple { operator: operator.to_owned(), reason: error.to_string() }
}

impl JoinState {
    /// State in a table, whose columns of rows are `left` of the one and then those of the other side.
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        left: usize,
        keys: JoinKeys,
        bounds: JoinBounds,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Result<JoinState> {
        let schema = arrow_schema(table.schema().visible_columns(), UTC);
        let (middle, end) = (COLUMNS_BEFORE + left, schema.fields().len());
        let side = |side: usize, columns: Range<usize>| -> Result<SideBuffer> {
            let ends = bounds.last[side].is_some().then(BTreeSet::new);
            let fields = schema.fields()[columns.clone()].iter();
            let converter =
                RowConverter::new(fields.map(|field| SortField::new(field.data_type().clone())).collect());
            let refused =
                |error: ArrowError| Error::Tuple { operator: name.clone(), reason: error.to_string() };
            let converter = converter.map_err(refused)?;
            Ok(SideBuffer { rows: BTreeMap::new(), keys: HashMap::new(), ends, converter, columns })
        };
        Ok(JoinState {
            sides: [side(LEFT, COLUMNS_BEFORE..middle)?, side(RIGHT, middle..end)?],
            name,
            table,
            schema,
            keys,
            bounds,
            next: 0,
            changes: Vec::new(),
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        })
    }

    pub(crate) fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Reads the rows if they are not in DRAM. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, tx: &Transaction) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        let (table, schema) = (Arc::clone(&self.table), Arc::clone(&self.schema));
        let cursor = table.scan(ScanRange::full());
        let loaded = read_batches(&table, &schema, tx, cursor, |batch| self.load(batch));
        self.loaded = loaded.is_ok();
        if !self.loaded {
            self.clear();
        }
        loaded
    }

    fn clear(&mut self) {
        for side in &mut self.sides {
            side.rows.clear();
            side.keys.clear();
            side.ends.iter_mut().for_each(BTreeSet::clear);
        }
        self.changes.clear();
        self.next = 0;
        self.bytes = 0;
        self.memory.iter_mut().for_each(MemoryReservation::clear);
    }

    /// Adds rows of the state table.
    fn load(&mut self, batch: &RecordBatch) -> Result<()> {
        let malformed = || Error::Tuple {
            operator: self.name.clone(),
            reason: format!("a row of state table {} is not one of this operator", self.table.name()),
        };
        let sides = batch.column(0).as_primitive_opt::<Int16Type>().ok_or_else(malformed)?.values();
        let times = batch.column(1).as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(malformed)?;
        let numbers = batch.column(2).as_primitive_opt::<Int64Type>().ok_or_else(malformed)?.values();
        let matched = batch.column(3).as_boolean_opt().ok_or_else(malformed)?;
        for side in [LEFT, RIGHT] {
            let of_side: UInt32Array = (0..batch.num_rows())
                .filter(|&row| sides[row] == side as i16)
                .map(|row| row as u32)
                .collect();
            let columns: Vec<usize> = self.sides[side].columns.clone().collect();
            let buffered = batch.project(&columns).and_then(|rows| take_record_batch(&rows, &of_side));
            let buffered = buffered.map_err(|error| self.failed(&error))?;
            let at = |row: &u32| Some(EventTime::from_micros(times.value(*row as usize)));
            let lasts = self.lasts(side, &buffered, &of_side.values().iter().map(at).collect::<Vec<_>>())?;
            let (keys, rows) = (self.keys(side, &buffered)?, self.rows(side, &buffered)?);
            for (at, (row, key)) in of_side.values().iter().zip(keys).enumerate() {
                let Some(key) = key else { continue };
                let row = *row as usize;
                let position = (EventTime::from_micros(times.value(row)), numbers[row]);
                let matched = matched.value(row);
                self.next = self.next.max(position.1 + 1);
                self.put(
                    side,
                    position,
                    BufferedRow { row: rows.row(at).owned(), matched, key, last: lasts[at], stored: true },
                )?;
            }
        }
        Ok(())
    }

    /// Keys of rows of a side; none of those that equal nothing.
    pub(crate) fn keys(&mut self, side: usize, rows: &RecordBatch) -> Result<Vec<Option<Key>>> {
        self.keys.of(&self.name, side, rows)
    }

    /// Last times of the partners of rows of a side.
    pub(crate) fn lasts(
        &mut self,
        side: usize,
        rows: &RecordBatch,
        join_times: &[Option<EventTime>],
    ) -> Result<Vec<EventTime>> {
        self.bounds.lasts(&self.name, side, rows, join_times)
    }

    /// Rows of a side in the form in which they are buffered.
    pub(crate) fn rows(&self, side: usize, batch: &RecordBatch) -> Result<Rows> {
        let rows = self.sides[side].converter.convert_columns(batch.columns());
        rows.map_err(|error| self.failed(&error))
    }

    /// Columns of such rows.
    pub(crate) fn columns<'r>(
        &self,
        side: usize,
        rows: impl IntoIterator<Item = Row<'r>>,
    ) -> Result<Vec<ArrayRef>> {
        self.sides[side].converter.convert_rows(rows).map_err(|error| self.failed(&error))
    }

    /// Row that is buffered.
    pub(crate) fn row(&self, side: usize, position: &RowPosition) -> Option<&BufferedRow> {
        self.sides[side].rows.get(position)
    }

    /// Places of the rows with a key and a time within some.
    pub(crate) fn partners(
        &self,
        side: usize,
        key: &Key,
        times: RangeInclusive<EventTime>,
    ) -> impl DoubleEndedIterator<Item = RowPosition> {
        let positions = (*times.start(), i64::MIN)..=(*times.end(), i64::MAX);
        let of_key = self.sides[side].keys.get(key).filter(|_| times.start() <= times.end());
        of_key.into_iter().flat_map(move |of_key| of_key.range(positions.clone()).copied())
    }

    /// Keeps a row, with its time and that of its last partner.
    pub(crate) fn add(
        &mut self,
        side: usize,
        (time, last): (EventTime, EventTime),
        key: Key,
        row: OwnedRow,
        matched: bool,
    ) -> Result<()> {
        let position = (time, self.next);
        self.next += 1;
        self.put(side, position, BufferedRow { row, matched, key, last, stored: false })?;
        self.changes.push(Change::Added(side, position));
        Ok(())
    }

    fn put(&mut self, side: usize, position: RowPosition, row: BufferedRow) -> Result<()> {
        if self.sides[LEFT].rows.len() + self.sides[RIGHT].rows.len() >= JOIN_ROWS_MAX {
            let resource = format!("rows that {} keeps", self.name);
            return Err(Error::Limit { resource, max: JOIN_ROWS_MAX });
        }
        self.bytes += row.bytes();
        if let Some(memory) = &mut self.memory
            && self.bytes as u64 > memory.bytes()
        {
            let reserved = memory.try_resize(self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64);
            if let Err(limit) = reserved {
                self.bytes -= row.bytes();
                return Err(entresol_transactions::Error::Memory(limit.into()).into());
            }
        }
        self.sides[side].put(position, row);
        Ok(())
    }

    /// Notes that a row has a partner.
    pub(crate) fn note_match(&mut self, side: usize, position: RowPosition) {
        if let Some(row) = self.sides[side].rows.get_mut(&position)
            && !row.matched
        {
            row.matched = true;
            self.changes.push(Change::Matched(side, position));
        }
    }

    /// First row of a side behind a place, with its own.
    pub(crate) fn next(&self, side: usize, behind: RowPosition) -> Option<(RowPosition, &BufferedRow)> {
        let rows = self.sides[side].rows.range((Bound::Excluded(behind), Bound::Unbounded));
        rows.map(|(position, row)| (*position, row)).next()
    }

    /// Time of the first row of a side.
    pub(crate) fn first(&self, side: usize) -> Option<EventTime> {
        self.sides[side].rows.first_key_value().map(|((time, _), _)| *time)
    }

    /// Row of a side whose last partner has the least time, with that.
    pub(crate) fn first_ending(&self, side: usize) -> Option<(EventTime, RowPosition)> {
        let side = &self.sides[side];
        match &side.ends {
            Some(ends) => ends.first().copied(),
            None => side.rows.first_key_value().map(|(position, row)| (row.last, *position)),
        }
    }

    /// Removes a row of a side; returns it.
    pub(crate) fn remove(&mut self, side: usize, position: RowPosition) -> Option<&BufferedRow> {
        let row = self.sides[side].remove(position)?;
        self.changes.push(Change::Removed(side, position, row));
        match self.changes.last() {
            Some(Change::Removed(_, _, row)) => Some(row),
            _ => None,
        }
    }

    /// Writes the changes to the transaction, and votes for them.
    pub(crate) fn write(&self, tx: &Transaction) -> Result<()> {
        let (mut written, mut deleted) = ([Vec::new(), Vec::new()], Vec::new());
        for change in &self.changes {
            match change {
                Change::Added(side, position) if self.row(*side, position).is_some() => {
                    written[*side].push(*position)
                }
                Change::Matched(side, position)
                    if self.row(*side, position).is_some_and(|row| row.stored) =>
                {
                    written[*side].push(*position);
                }
                Change::Removed(side, position, row) if row.stored => deleted.push((*side, *position)),
                Change::Added(..) | Change::Matched(..) | Change::Removed(..) => {}
            }
        }
        if !deleted.is_empty() {
            deleted.sort_unstable();
            let keys = self.key_columns(&deleted);
            let schema = self.schema.project(&[0, 1, 2]).map_err(|error| self.failed(&error))?;
            let keys = RecordBatch::try_new(Arc::new(schema), keys).map_err(|error| self.failed(&error))?;
            self.table.delete_batch(tx, &keys)?;
        }
        for (side, positions) in written.iter_mut().enumerate() {
            if !positions.is_empty() {
                positions.sort_unstable();
                self.table.upsert_batch(tx, &self.stored_rows(side, positions)?)?;
            }
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    fn key_columns(&self, positions: &[(usize, RowPosition)]) -> Vec<ArrayRef> {
        let at =
            TimestampMicrosecondArray::from_iter_values(positions.iter().map(|(_, (at, _))| at.micros()));
        vec![
            Arc::new(Int16Array::from_iter_values(positions.iter().map(|(side, _)| *side as i16))),
            Arc::new(at.with_data_type(self.schema.field(1).data_type().clone())),
            Arc::new(Int64Array::from_iter_values(positions.iter().map(|(_, (_, number))| *number))),
        ]
    }

    /// Rows of the state table for buffered rows of a side.
    fn stored_rows(&self, side: usize, positions: &[RowPosition]) -> Result<RecordBatch> {
        let rows: Vec<&BufferedRow> =
            positions.iter().filter_map(|position| self.row(side, position)).collect();
        let keys: Vec<(usize, RowPosition)> = positions.iter().map(|position| (side, *position)).collect();
        let mut columns = self.key_columns(&keys);
        columns.push(Arc::new(rows.iter().map(|row| Some(row.matched)).collect::<BooleanArray>()));
        let nulls = |of: usize| {
            let fields = self.schema.fields()[self.sides[of].columns.clone()].iter();
            fields.map(|field| new_null_array(field.data_type(), rows.len())).collect::<Vec<_>>()
        };
        let own = self.columns(side, rows.iter().map(|row| row.row.row()))?;
        if side == LEFT {
            columns.extend(own.into_iter().chain(nulls(RIGHT)));
        } else {
            columns.extend(nulls(LEFT).into_iter().chain(own));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| self.failed(&error))
    }

    /// Notes that DRAM is as of the last commit.
    pub(crate) fn committed(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Added(side, position) => {
                    if let Some(row) = self.sides[side].rows.get_mut(&position) {
                        row.stored = true;
                    }
                }
                Change::Matched(..) => {}
                Change::Removed(_, _, row) => self.bytes -= row.bytes(),
            }
        }
        self.release();
    }

    /// Takes the changes of the transaction back.
    pub(crate) fn aborted(&mut self) {
        while let Some(change) = self.changes.pop() {
            match change {
                Change::Added(side, position) => {
                    if let Some(row) = self.sides[side].remove(position) {
                        self.bytes -= row.bytes();
                    }
                }
                Change::Matched(side, position) => {
                    if let Some(row) = self.sides[side].rows.get_mut(&position) {
                        row.matched = false;
                    }
                }
                Change::Removed(side, position, row) => self.sides[side].put(position, row),
            }
        }
        self.release();
    }

    /// Releases the memory of rows that have left DRAM.
    fn release(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        let wanted = self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        memory.shrink(memory.bytes().saturating_sub(wanted));
    }
}

impl SideBuffer {
    fn put(&mut self, position: RowPosition, row: BufferedRow) {
        self.keys.entry(Arc::clone(&row.key)).or_default().insert(position);
        if let Some(ends) = &mut self.ends {
            ends.insert((row.last, position));
        }
        self.rows.insert(position, row);
    }

    fn remove(&mut self, position: RowPosition) -> Option<BufferedRow> {
        let row = self.rows.remove(&position)?;
        if let Some(ends) = &mut self.ends {
            ends.remove(&(row.last, position));
        }
        if let Some(of_key) = self.keys.get_mut(&row.key) {
            of_key.remove(&position);
            if of_key.is_empty() {
                self.keys.remove(&row.key);
            }
        }
        Some(row)
    }
}
