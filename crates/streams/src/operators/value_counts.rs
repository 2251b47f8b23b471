//! Values of the groups of a running aggregate, with the number of each: what a minimum is computed from again when it is
//! taken back.
//!
//! The table has a row for each group and different combination of values: `(group columns, values, nulls) -> number`.
//! A transaction counts its changes in DRAM, and stores them before its results are computed; a value whose number is 0
//! has no row. Nothing in DRAM outlives the transaction, so an abort or a crash leaves the counts of the last commit.
//! Memory: an entry for each different value of a transaction, which the operator reserves ([`ValueCounts::bytes`]).

use crate::error::{Error, Result};
use crate::operators::group_index::normalized;
use crate::operators::stored_keys;
use crate::operators::stored_windows::read_batches;
use crate::operators::window_state::columns_of;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::{take, take_record_batch};
use entresol_tables::{ScanRange, StoredRows, Table, Value, arrow_schema, rows_of};
use entresol_transactions::{Direction, Transaction};
use hashbrown::HashMap;
use std::sync::Arc;

/// Tuples that are made of counted values at a time.
const REPEATED_TUPLES: usize = 4096;
/// Estimated bytes of memory of a counted value besides its columns.
const ENTRY_BYTES: usize = 64;

pub(crate) struct ValueCounts {
    name: String,
    pub(crate) table: Arc<Table>,
    schema: SchemaRef,
    /// Columns of the stream that are counted: the groups, and then the others.
    columns: Vec<usize>,
    groups: usize,
    converter: RowConverter,
    /// Changes of the numbers in this transaction.
    changed: HashMap<Box<[u8]>, i64>,
    /// Bytes of their values.
    changed_bytes: usize,
}

/// Number of times for which each value of a group is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    Once,
    /// As often as it was counted.
    Counted,
}

impl ValueCounts {
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        columns: Vec<usize>,
        groups: usize,
    ) -> Result<ValueCounts> {
        let schema = arrow_schema(table.schema().visible_columns(), crate::UTC);
        let fields = schema.fields()[..columns.len()].iter();
        let converter =
            RowConverter::new(fields.map(|field| SortField::new(field.data_type().clone())).collect());
        let failed = |error: ArrowError| Error::Tuple { operator: name.clone(), reason: error.to_string() };
        let converter = converter.map_err(failed)?;
        let changed = HashMap::new();
        Ok(ValueCounts { name, table, schema, columns, groups, converter, changed, changed_bytes: 0 })
    }

    /// Estimated bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.changed_bytes
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Counts tuples.
    pub(crate) fn add(&mut self, tuples: &RecordBatch, retracted: Option<&BooleanArray>) -> Result<()> {
        let columns: Vec<ArrayRef> = columns_of(tuples, &self.columns).iter().map(normalized).collect();
        let rows = self.converter.convert_columns(&columns).map_err(|error| self.failed(&error))?;
        for (at, row) in rows.iter().enumerate() {
            let change = if retracted.is_some_and(|retracted| retracted.value(at)) { -1 } else { 1 };
            match self.changed.get_mut(row.data()) {
                Some(number) => *number += change,
                None => {
                    self.changed_bytes += ENTRY_BYTES + row.data().len();
                    self.changed.insert(Box::from(row.data()), change);
                }
            }
        }
        Ok(())
    }

    /// Stores the changes, and votes for them.
    pub(crate) fn write(&mut self, tx: &Transaction) -> Result<()> {
        let changed: Vec<(Box<[u8]>, i64)> =
            self.changed.drain().filter(|(_, change)| *change != 0).collect();
        self.changed_bytes = 0;
        if !changed.is_empty() {
            self.write_changed(tx, &changed)?;
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    fn write_changed(&self, tx: &Transaction, changed: &[(Box<[u8]>, i64)]) -> Result<()> {
        let failed = |error: ArrowError| self.failed(&error);
        let parser = self.converter.parser();
        let columns = self.converter.convert_rows(changed.iter().map(|(row, _)| parser.parse(row)));
        let columns = stored_keys::stored(&columns.map_err(failed)?, changed.len()).map_err(failed)?;
        let width = columns.len();
        let key_schema = Arc::new(self.schema.project(&(0..width).collect::<Vec<_>>()).map_err(failed)?);
        let keys = RecordBatch::try_new(key_schema, columns).map_err(failed)?;
        let mut numbers: Vec<i64> = changed.iter().map(|(_, change)| *change).collect();
        let mut is_stored = vec![false; numbers.len()];
        self.table.get_many_with(tx, &rows_of(&keys)?, |at, row| {
            numbers[at] += row.bigint(width);
            is_stored[at] = true;
        })?;
        if let Some(number) = numbers.iter().find(|number| **number < 0) {
            let reason = format!("a value is taken back that was not sent: its number is {number}");
            return Err(Error::Tuple { operator: self.name.clone(), reason });
        }
        let rows = |wanted: &dyn Fn(usize) -> bool| -> UInt32Array {
            (0..numbers.len()).filter(|at| wanted(*at)).map(|at| at as u32).collect()
        };
        let gone = rows(&|at| numbers[at] == 0 && is_stored[at]);
        if !gone.is_empty() {
            self.table.delete_batch(tx, &take_record_batch(&keys, &gone).map_err(failed)?)?;
        }
        let there = rows(&|at| numbers[at] > 0);
        if !there.is_empty() {
            let mut columns = take_record_batch(&keys, &there).map_err(failed)?.columns().to_vec();
            let numbers = there.values().iter().map(|at| numbers[*at as usize]);
            columns.push(Arc::new(Int64Array::from_iter_values(numbers)));
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(failed)?;
            self.table.upsert_batch(tx, &rows)?;
        }
        Ok(())
    }

    /// Calls `f` with all tuples of a group, of its columns and values. The group is that of key columns of one row.
    pub(crate) fn read(
        &self,
        tx: &Transaction,
        group: &[ArrayRef],
        repetition: Repetition,
        mut f: impl FnMut(&RecordBatch) -> Result<(), String>,
    ) -> Result<()> {
        let failed = |error: ArrowError| self.failed(&error);
        let (range, nulls) = self.rows_of_group(group)?;
        let of_group = (1_i64 << self.groups) - 1;
        let width = self.columns.len();
        read_batches(&self.table, &self.schema, tx, self.table.scan(range), |stored| {
            let (masks, numbers) =
                (stored.column(width).as_primitive::<Int64Type>(), stored.column(width + 1));
            let numbers = numbers.as_primitive::<Int64Type>();
            let values = stored_keys::loaded(&stored.columns()[..=width]).map_err(failed)?;
            let mut repeated: Vec<u32> = Vec::new();
            let mut send = |rows: &mut Vec<u32>| -> Result<()> {
                let tuples = self.tuples(&values, std::mem::take(rows)).map_err(failed)?;
                f(&tuples).map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })
            };
            for row in (0..stored.num_rows()).filter(|row| masks.value(*row) & of_group == nulls) {
                let times = if repetition == Repetition::Once { 1 } else { numbers.value(row) };
                for _ in 0..times {
                    repeated.push(row as u32);
                    if repeated.len() == REPEATED_TUPLES {
                        send(&mut repeated)?;
                    }
                }
            }
            if repeated.is_empty() { Ok(()) } else { send(&mut repeated) }
        })
    }

    /// Calls `f` with the tuple of a group that has the least value, or the greatest, in the first column beside the group
    /// columns; not if all are NULL.
    pub(crate) fn read_extreme(
        &self,
        tx: &Transaction,
        group: &[ArrayRef],
        direction: Direction,
        f: impl FnOnce(&RecordBatch) -> Result<(), String>,
    ) -> Result<()> {
        let failed = |error: ArrowError| self.failed(&error);
        let (range, nulls) = self.rows_of_group(group)?;
        // Of the group, and with a value.
        let mask = (1_i64 << (self.groups + 1)) - 1;
        let width = self.columns.len();
        let projection: Vec<usize> = (0..self.schema.fields().len()).collect();
        let mut cursor = self.table.scan(range).directed(direction);
        let (table, schema) = (&self.table, Arc::clone(&self.schema));
        let mut rows = StoredRows::new(table.name(), table.schema(), &projection, schema, 0);
        loop {
            let more = cursor.next_stored(tx, &mut rows, usize::MAX)?;
            let stored = rows.finish()?;
            let masks = stored.column(width).as_primitive::<Int64Type>();
            if let Some(row) = masks.values().iter().position(|found| found & mask == nulls) {
                let values = stored_keys::loaded(&stored.columns()[..=width]).map_err(failed)?;
                let tuple = self.tuples(&values, vec![row as u32]).map_err(failed)?;
                return f(&tuple).map_err(|reason| Error::Tuple { operator: self.name.clone(), reason });
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Rows of loaded values as tuples.
    fn tuples(&self, values: &[ArrayRef], rows: Vec<u32>) -> Result<RecordBatch, ArrowError> {
        let rows = UInt32Array::from(rows);
        let taken = values.iter().map(|value| take(value, &rows, None)).collect::<Result<Vec<_>, _>>()?;
        let fields = self.schema.fields()[..self.columns.len()].iter();
        let fields: Vec<_> = fields.map(|field| field.as_ref().clone().with_nullable(true)).collect();
        RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(fields)), taken)
    }

    /// Rows that may be of a group, and the number that says which of its columns are NULL.
    fn rows_of_group(&self, group: &[ArrayRef]) -> Result<(ScanRange, i64)> {
        let mut columns = stored_keys::stored(group, 1).map_err(|error| self.failed(&error))?;
        let nulls = columns.pop().map_or(0, |nulls| nulls.as_primitive::<Int64Type>().value(0));
        Ok((self.range(columns)?, nulls))
    }

    /// Column of the stream that is counted first beside the groups.
    pub(crate) fn first_value(&self) -> Option<usize> {
        self.columns.get(self.groups).copied()
    }

    /// Rows of the group with these stored columns.
    fn range(&self, columns: Vec<ArrayRef>) -> Result<ScanRange> {
        if columns.is_empty() {
            return Ok(ScanRange::full());
        }
        let schema = self.schema.project(&(0..columns.len()).collect::<Vec<_>>());
        let key = schema.and_then(|schema| RecordBatch::try_new(Arc::new(schema), columns));
        let key: Vec<Value> = rows_of(&key.map_err(|error| self.failed(&error))?)?.swap_remove(0);
        Ok(ScanRange::prefix(&key))
    }

    /// Columns of the stream among those that [`ValueCounts::read`] gives.
    pub(crate) fn columns_of(&self, tuples: &RecordBatch, columns: &[usize]) -> Vec<ArrayRef> {
        let place = |column: &usize| self.columns.iter().position(|counted| counted == column);
        columns.iter().filter_map(place).map(|at| Arc::clone(tuples.column(at))).collect()
    }

    /// Forgets the changes of the transaction.
    pub(crate) fn clear(&mut self) {
        self.changed.clear();
        self.changed_bytes = 0;
    }
}
