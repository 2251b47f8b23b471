//! Rows of both sides of a regular join, or of the one side of sessions that change: DRAM over the operator's state table.
//!
//! ```text
//!   state table  (hash of the key, number) -> side, count, columns of the left, columns of the right     committed
//!        ▲ changed rows, at every commit       │ all rows of a hash code, when it is needed
//!        │                                     ▼
//!   hash -> key -> per side: row -> count now, count as of the last commit                               DRAM
//! ```
//!
//! # Invariants
//!
//! - Equal rows of a side are one row with a count. Doubles are normalised in them, so that equal ones are found.
//! - A key is found by its hash code ([`super::stored_hash`]), and then by its values, so codes may collide. Numbers
//!   are those of a hash code; a new row gets that of one that is gone with the same commit, so a row that changes is one
//!   write.
//! - Between transactions what is in DRAM equals the table. Within one, a row has both counts, and the changed ones
//!   are listed.
//! - Rows with a NULL in their key have no partner: those of a side of an outer join whose rows are sent
//!   alone are noted for the transaction, others not at all.
//!
//! - With a time to live, rows of one side leave the state when it has passed, without a result: what was sent for them
//!   stays. They are removed from the table at a commit, and from DRAM when that is known.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed. An abort gives each changed row its count as of the last commit.
//!
//! # Memory
//!
//! Rows are reserved in the memory budget of the pool. Keys that a transaction does not change leave DRAM, those that
//! were not used for the longest time first, when there are many or memory is short; those that it changes must fit,
//! with all their rows.

use crate::UTC;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::group_index::normalized;
use crate::operators::join_state::{HashedKey, JoinKeys, LEFT, RIGHT};
use crate::operators::rank_state::{is_short, limited};
use crate::operators::regular_join_rows;
use crate::operators::regular_join_rows::{
    HashedKeys, KeyRows, ROW_BYTES, RowCount, SendResult, SideRow, StoredCount,
};
use crate::operators::running_rows::{SWEPT_ROWS_MIN, rows_behind};
use crate::operators::running_state::is_empty;
use crate::operators::stored_windows::read_batches;
use crate::operators::window_state::RESERVED_BYTES_STEP;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int16Array, Int64Array, RecordBatch, UInt32Array, new_null_array};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take_record_batch;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{Column, DataType, Row, ScanRange, Table, Value, arrow_schema};
use entresol_transactions::Transaction;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Key of the state table, and the columns behind it before those of the rows.
pub(crate) const STATE_KEY: [&str; 2] = ["hash", "number"];
const SIDE: usize = 2;
const COUNT: usize = 3;
const COLUMNS_BEFORE: usize = 4;

/// Times of the rows of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowTimes {
    None,
    /// First column of the left side: rows of a key are in its order.
    First,
}

/// Column of the times of a side by which its rows leave the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LifeColumn {
    pub(crate) side: usize,
    /// Column among those of the side.
    pub(crate) column: usize,
}

/// Row that is written, with the hash code of its key.
struct ChangedRow<'r> {
    hash: i64,
    row: &'r [u8],
    count: &'r RowCount,
}

pub(crate) struct RegularJoinState {
    name: String,
    pub(crate) table: Arc<Table>,
    /// Columns of the state table.
    schema: SchemaRef,
    keys: JoinKeys,
    times: RowTimes,
    converters: [RowConverter; 2],
    /// Columns of each side in the state table.
    columns: [Range<usize>; 2],
    /// Keys used since the last turn of the generations, and those before.
    recent: HashMap<i64, HashedKeys>,
    old: HashMap<i64, HashedKeys>,
    /// True if a hash code that is not in DRAM has no rows.
    is_complete: bool,
    /// Hash codes of changed keys, in the order of their first change.
    touched: Vec<i64>,
    /// Changes of rows of each side that never have a partner.
    alone: [BTreeMap<SideRow, i64>; 2],
    keys_in_dram: usize,
    bytes: usize,
    /// Bytes that are held until the transaction ends.
    held: usize,
    /// Rows whose life is over, by their hash codes, which leave DRAM when that is committed.
    over: BTreeMap<i64, BTreeSet<i64>>,
    /// Row behind which the state table is looked through for such rows; none is the beginning.
    swept: Option<Row>,
    memory: Option<MemoryReservation>,
    loaded: bool,
}

/// Columns of the state table before those of the rows.
pub(crate) fn columns_before() -> Vec<Column> {
    let [hash, number] = STATE_KEY.map(|name| Column::new(name, DataType::BigInt).not_null());
    let side = Column::new("side", DataType::SmallInt).not_null();
    vec![hash, number, side, Column::new("count", DataType::BigInt).not_null()]
}

impl RegularJoinState {
    /// State in a table, whose columns of rows are `left` of the one and then those of the other side.
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        left: usize,
        keys: JoinKeys,
        times: RowTimes,
        keys_in_dram: usize,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Result<RegularJoinState> {
        let schema = arrow_schema(table.schema().visible_columns(), UTC);
        let middle = COLUMNS_BEFORE + left;
        let columns = [COLUMNS_BEFORE..middle, middle..schema.fields().len()];
        let converter = |columns: &Range<usize>| {
            let fields = schema.fields()[columns.clone()].iter();
            let fields = fields.map(|field| SortField::new(field.data_type().clone()));
            let refused =
                |error: ArrowError| Error::Tuple { operator: name.clone(), reason: error.to_string() };
            RowConverter::new(fields.collect()).map_err(refused)
        };
        Ok(RegularJoinState {
            converters: [converter(&columns[LEFT])?, converter(&columns[RIGHT])?],
            name,
            table,
            schema,
            keys,
            times,
            columns,
            recent: HashMap::new(),
            old: HashMap::new(),
            is_complete: false,
            touched: Vec::new(),
            alone: [BTreeMap::new(), BTreeMap::new()],
            keys_in_dram,
            bytes: 0,
            held: 0,
            over: BTreeMap::new(),
            swept: None,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        })
    }

    pub(crate) fn failed(&self, error: &ArrowError) -> Error {
        self.refused(error.to_string())
    }

    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }

    /// Finds out whether there are rows. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, tx: &Transaction) -> Result<()> {
        if !self.loaded {
            self.is_complete = is_empty(&self.table, ScanRange::full(), tx)?;
            self.loaded = true;
        }
        Ok(())
    }

    /// Rows of a side in the form in which they are kept, with their keys.
    pub(crate) fn convert(
        &mut self,
        side: usize,
        batch: &RecordBatch,
    ) -> Result<(Rows, Vec<Option<HashedKey>>)> {
        let columns: Vec<ArrayRef> = batch.columns().iter().map(normalized).collect();
        let rows = self.converters[side].convert_columns(&columns).map_err(|error| self.failed(&error))?;
        let batch = RecordBatch::try_new(batch.schema(), columns).map_err(|error| self.failed(&error))?;
        let keys = self.keys.hashed(&self.name, side, &batch)?;
        Ok((rows, keys))
    }

    /// Columns of rows of a side.
    pub(crate) fn columns<'r>(
        &self,
        side: usize,
        rows: impl IntoIterator<Item = &'r [u8]>,
    ) -> Result<Vec<ArrayRef>> {
        let parser = self.converters[side].parser();
        let rows = rows.into_iter().map(|row| parser.parse(row));
        self.converters[side].convert_rows(rows).map_err(|error| self.failed(&error))
    }

    /// Counts a row of a side with a key: 1 if it is inserted, -1 if it is taken back.
    pub(crate) fn add(
        &mut self,
        tx: &Transaction,
        side: usize,
        (hash, key): HashedKey,
        row: &[u8],
        (change, time): (i64, i64),
    ) -> Result<()> {
        self.fetch(tx, hash)?;
        let Some(hashed) = self.recent.get_mut(&hash) else {
            return Err(self.refused("a key is not in DRAM".to_owned()));
        };
        if !std::mem::replace(&mut hashed.is_touched, true) {
            self.touched.push(hash);
        }
        self.bytes += hashed.add(side, key, row, change, time);
        Ok(())
    }

    /// Counts a row of a side that never has a partner.
    pub(crate) fn add_alone(&mut self, side: usize, row: &[u8], change: i64) {
        match self.alone[side].get_mut(row) {
            Some(count) => *count += change,
            None => {
                self.held += row.len() + ROW_BYTES;
                self.alone[side].insert(SideRow::from(row), change);
            }
        }
    }

    /// Changes of the rows of a side that never have a partner.
    pub(crate) fn alone(&self, side: usize) -> impl Iterator<Item = (&SideRow, &i64)> {
        self.alone[side].iter().filter(|(_, change)| **change != 0)
    }

    /// Brings the keys with a hash code into `recent`.
    fn fetch(&mut self, tx: &Transaction, hash: i64) -> Result<()> {
        if self.recent.contains_key(&hash) {
            return Ok(());
        }
        if let Some(hashed) = self.old.remove(&hash) {
            self.recent.insert(hash, hashed);
            return Ok(());
        }
        let hashed = if self.is_complete { HashedKeys::default() } else { self.read(tx, hash)? };
        self.bytes += hashed.bytes();
        self.recent.insert(hash, hashed);
        Ok(())
    }

    /// Reads the keys with a hash code from the state table.
    fn read(&mut self, tx: &Transaction, hash: i64) -> Result<HashedKeys> {
        let (table, schema) = (Arc::clone(&self.table), Arc::clone(&self.schema));
        let cursor = table.scan(ScanRange::prefix(&[Value::BigInt(hash)]));
        let mut hashed = HashedKeys::default();
        read_batches(&table, &schema, tx, cursor, |stored| self.load(stored, &mut hashed))?;
        Ok(hashed)
    }

    /// Adds rows of the state table.
    fn load(&mut self, stored: &RecordBatch, hashed: &mut HashedKeys) -> Result<()> {
        let table = self.table.name().to_owned();
        let malformed = || self.refused(format!("a row of state table {table} is not one of this operator"));
        let sides = stored.column(SIDE).as_primitive_opt::<Int16Type>().ok_or_else(malformed)?.values();
        let numbers = |column: usize| {
            let numbers = stored.column(column).as_primitive_opt::<Int64Type>();
            numbers.ok_or_else(malformed).map(|numbers| numbers.values().clone())
        };
        let (numbers, counts) = (numbers(1)?, numbers(COUNT)?);
        let times = match self.times {
            RowTimes::None => None,
            RowTimes::First => {
                let times = stored.column(COLUMNS_BEFORE).as_primitive_opt::<TimestampMicrosecondType>();
                Some(times.ok_or_else(malformed)?.values())
            }
        };
        for side in [LEFT, RIGHT] {
            let of_side = (0..stored.num_rows()).filter(|&row| sides[row] == side as i16);
            let of_side: UInt32Array = of_side.map(|row| row as u32).collect();
            if of_side.is_empty() {
                continue;
            }
            let columns: Vec<usize> = self.columns[side].clone().collect();
            let batch = stored.project(&columns).and_then(|rows| take_record_batch(&rows, &of_side));
            let (rows, keys) = self.convert(side, &batch.map_err(|error| self.failed(&error))?)?;
            for ((place, row), key) in of_side.values().iter().zip(rows.iter()).zip(keys) {
                let Some((_, key)) = key else { continue };
                let place = *place as usize;
                let time = times.map_or(0, |times| times[place]);
                let stored = StoredCount { number: numbers[place], count: counts[place], time };
                hashed.load(side, &key, row.data(), stored);
            }
        }
        Ok(())
    }

    /// Calls `f` with the results whose number is another than at the last commit. Rows of a side without partner are
    /// results if they are said to be; those that never have one are noted only then.
    pub(crate) fn changed_results(&self, alone: [bool; 2], f: &mut SendResult<'_>) -> Result<()> {
        for side in [LEFT, RIGHT] {
            for (row, change) in self.alone(side) {
                f(regular_join_rows::alone(side, row), *change)?;
            }
        }
        for key in self.touched_keys().map(|(_, key)| key) {
            for side in [LEFT, RIGHT].into_iter().filter(|side| alone[*side]) {
                key.changed_alone(side, f)?;
            }
            key.changed_pairs(f)?;
        }
        Ok(())
    }

    /// Keys that the transaction changes, with their hash codes.
    pub(crate) fn touched_keys(&self) -> impl Iterator<Item = (i64, &KeyRows)> {
        let hashed = self.touched.iter().filter_map(|hash| Some((*hash, self.recent.get(hash)?)));
        hashed.flat_map(|(hash, hashed)| hashed.keys.iter().map(move |key| (hash, key)))
    }

    /// Writes the changed rows to the transaction, and votes for them.
    pub(crate) fn write(&mut self, tx: &Transaction) -> Result<()> {
        self.delete_gone(tx)?;
        for side in [LEFT, RIGHT] {
            let mut written = Vec::new();
            for (hash, key) in self.touched_keys() {
                for row in &key.changed[side] {
                    let Some(count) = key.sides[side].get(row).filter(|count| count.is_changed()) else {
                        continue;
                    };
                    if count.count < 0 {
                        let reason = "a row is taken back that was not joined".to_owned();
                        return Err(self.refused(reason));
                    }
                    if count.count > 0 {
                        written.push(ChangedRow { hash, row, count });
                    }
                }
            }
            if !written.is_empty() {
                self.table.upsert_batch(tx, &self.stored(side, &written)?)?;
            }
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    /// Deletes the rows that are gone, as far as no new row takes their number.
    fn delete_gone(&mut self, tx: &Transaction) -> Result<()> {
        let (mut hashes, mut numbers) = (Vec::new(), Vec::new());
        for hash in &self.touched {
            let Some(hashed) = self.recent.get_mut(hash) else { continue };
            numbers.extend(hashed.give_numbers());
            hashes.resize(numbers.len(), *hash);
        }
        if hashes.is_empty() {
            return Ok(());
        }
        let keys: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(hashes)), Arc::new(Int64Array::from(numbers))];
        let schema = self.schema.project(&[0, 1]);
        let keys = schema.and_then(|schema| RecordBatch::try_new(Arc::new(schema), keys));
        self.table.delete_batch(tx, &keys.map_err(|error| self.failed(&error))?)?;
        Ok(())
    }

    /// Removes rows of a side whose time has come from the state table, of the next rows of it: about two for each row that
    /// has changed, so that they go as fast as they come. Returns their number. Nothing is sent for them.
    pub(crate) fn sweep(&mut self, tx: &Transaction, of: LifeColumn, over_by: EventTime) -> Result<u64> {
        let changed = self.touched_keys().flat_map(|(_, key)| &key.changed).map(Vec::len).sum::<usize>();
        let (mut seen, wanted) = (0, SWEPT_ROWS_MIN + 2 * changed);
        // It is NULL in rows of the other side.
        let column = self.columns[of.side].start + of.column;
        let mut cursor = self.table.scan(rows_behind(self.swept.as_ref()));
        let (mut over, mut rows, mut last): (Vec<Row>, u64, Option<Row>) = (Vec::new(), 0, None);
        loop {
            let more = cursor.next_batch(tx, |row| {
                seen += 1;
                let key = vec![row.value(0), row.value(1)];
                let time = match row.value(column) {
                    Value::Timestamp(us) => Some(EventTime::from_micros(us)),
                    _ => None,
                };
                if time.is_some_and(|time| time <= over_by) {
                    rows +=
                        if let Value::BigInt(count) = row.value(COUNT) { count.unsigned_abs() } else { 0 };
                    over.push(key.clone());
                }
                last = Some(key);
            })?;
            if !more || seen >= wanted {
                self.swept = last.filter(|_| more);
                break;
            }
        }
        if !over.is_empty() {
            self.table.delete_many(tx, &over)?;
        }
        for key in over {
            if let [Value::BigInt(hash), Value::BigInt(number)] = key[..] {
                self.over.entry(hash).or_default().insert(number);
            }
        }
        Ok(rows)
    }

    /// Drops the rows whose life is over from DRAM.
    fn drop_over(&mut self) {
        for (hash, numbers) in std::mem::take(&mut self.over) {
            let hashed = match self.recent.get_mut(&hash) {
                Some(hashed) => hashed,
                None => match self.old.get_mut(&hash) {
                    Some(hashed) => hashed,
                    None => continue,
                },
            };
            self.bytes -= hashed.remove(&numbers);
            if hashed.keys.is_empty() && self.is_complete {
                self.bytes -= hashed.bytes();
                self.recent.remove(&hash);
                self.old.remove(&hash);
            }
        }
    }

    /// Rows of the state table.
    fn stored(&self, side: usize, rows: &[ChangedRow<'_>]) -> Result<RecordBatch> {
        let numbers = |number: fn(&ChangedRow<'_>) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(rows.iter().map(number)))
        };
        let mut columns = vec![numbers(|row| row.hash), numbers(|row| row.count.number)];
        columns.push(Arc::new(Int16Array::from(vec![side as i16; rows.len()])));
        columns.push(numbers(|row| row.count.count));
        let values = self.columns(side, rows.iter().map(|row| row.row))?;
        let other = self.schema.fields()[self.columns[1 - side].clone()].iter();
        let other = other.map(|field| new_null_array(field.data_type(), rows.len()));
        if side == LEFT {
            columns.extend(values.into_iter().chain(other));
        } else {
            columns.extend(other.chain(values));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| self.failed(&error))
    }

    /// Holds memory for results until the transaction ends.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<()> {
        self.held += bytes;
        self.reserve()
    }

    /// Reserves memory for what is in DRAM; drops keys that can be read again if there is not enough.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let wanted = |bytes: usize| bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        let bytes = self.bytes + self.held;
        if bytes as u64 <= memory.bytes() || memory.try_resize(wanted(bytes)).is_ok() {
            return Ok(());
        }
        self.drop_old();
        let bytes = self.bytes + self.held;
        limited(self.memory.as_mut().map(|memory| memory.try_resize(wanted(bytes))))
    }

    /// Drops the keys that were not used in this generation: none of them is changed.
    fn drop_old(&mut self) {
        let old = std::mem::take(&mut self.old);
        self.is_complete &= old.is_empty();
        self.bytes -= old.values().map(HashedKeys::bytes).sum::<usize>();
    }

    /// Notes that DRAM is as of the last commit, and turns the generations if there are many keys, or little memory.
    pub(crate) fn committed(&mut self) {
        self.settle(RowCount::commit);
        self.drop_over();
        if self.recent.len() * 2 >= self.keys_in_dram || is_short(self.memory.as_ref()) {
            self.drop_old();
            self.old = std::mem::take(&mut self.recent);
        }
        self.release();
    }

    /// Gives the changed rows the counts of the last commit.
    pub(crate) fn aborted(&mut self) {
        self.settle(RowCount::abort);
        self.over.clear();
        self.swept = None;
        self.release();
    }

    /// Ends the changes of the transaction.
    fn settle(&mut self, f: fn(&mut RowCount)) {
        for hash in std::mem::take(&mut self.touched) {
            let Some(hashed) = self.recent.get_mut(&hash) else { continue };
            self.bytes -= hashed.settle(f);
            if hashed.keys.is_empty() && self.is_complete {
                self.bytes -= hashed.bytes();
                self.recent.remove(&hash);
            }
        }
        self.alone.iter_mut().for_each(BTreeMap::clear);
        self.held = 0;
    }

    /// Releases the memory of rows that have left DRAM.
    fn release(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        let wanted = self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        memory.shrink(memory.bytes().saturating_sub(wanted));
    }
}
