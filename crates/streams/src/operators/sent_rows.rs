//! Rows that were computed from tables for each tuple of a stream. When a tuple is taken back, so are the rows that were
//! sent for it, even if the tables have changed since.
//!
//! ```text
//!   inserted tuple ──▶ operator that reads tables ──▶ its rows ──▶ sent
//!                                                        │ stored        ▲ as rows that are taken back
//!                                                        ▼               │
//!   state table  (hash of the tuple, number) -> copy, tuple, other columns of a row   ◀── tuple that is taken back
//! ```
//!
//! - A tuple is found by its hash code, and then by its values, so codes may collide. Equal tuples are copies, whose rows may
//!   differ: the copy that came first is taken back first. A tuple without rows is not stored.
//! - The operator puts the number of the tuple in its batch behind the columns of each row ([`Stream::record_sent`]).
//! - Stateless between batches: all is read and written through the topology's transaction, so a crash or an abort leaves what
//!   was sent by the last commit.
//! - Memory: the stored rows of the tuples of one batch, and the results for it.
//!
//! [`Stream::record_sent`]: crate::Stream::record_sent

use crate::UTC;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::operators::group_index::normalized;
use crate::operators::stored_hash::stored_hash;
use crate::operators::stored_windows::read_batches;
use crate::operators::window_aggregate::select;
use crate::operators::{Context, Operator, Output, current_of};
use crate::ranking::free_name;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::{take, take_record_batch};
use entresol_tables::{Column, DataType, ScanRange, Schema, Table, Value, arrow_schema, rows_of};
use entresol_transactions::Transaction;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Columns of the state table before those of the tuple: the key, and the copy of the tuple that a row is of.
const HASH: &str = "hash";
const NUMBER: &str = "number";
const COPY: &str = "copy";
/// Number of those columns.
const HEAD: usize = 3;

/// Schema of the state table, for tuples and rows of these columns, the first `leading` of which are those of the tuple.
pub(crate) fn schema_of(tuple: &[Column], rows: &[Column], leading: usize) -> Result<Schema, String> {
    let mut columns: Vec<Column> =
        [HASH, NUMBER, COPY].map(|name| Column::new(name, DataType::BigInt).not_null()).into();
    for column in tuple.iter().chain(&rows[leading..]) {
        let name = free_name(&column.name, &columns);
        columns.push(Column { nullable: true, ..Column::new(name, column.data_type) });
    }
    Schema::new(columns, &[HASH, NUMBER]).map_err(|error| error.to_string())
}

/// Rows that are stored for the tuples of a batch.
struct StoredCopies {
    rows: RecordBatch,
    /// Rows of each tuple that is stored, those of a copy together and the oldest copy first.
    of_tuples: HashMap<Box<[u8]>, VecDeque<Vec<u32>>>,
    /// Next number and copy of each hash code.
    next: HashMap<i64, (i64, i64)>,
}

pub(crate) struct SentRows {
    name: String,
    table: Arc<Table>,
    /// Columns of the state table.
    schema: SchemaRef,
    /// Number of the columns of a tuple, and of those that are the first ones of its rows.
    width: usize,
    leading: usize,
    /// Columns of the rows.
    output: SchemaRef,
    tuples: RowConverter,
    /// Operator that computes the rows of tuples.
    inner: Box<dyn Operator>,
}

impl SentRows {
    pub(crate) fn new(
        table: Arc<Table>,
        (width, leading): (usize, usize),
        output: SchemaRef,
        inner: Box<dyn Operator>,
    ) -> Result<SentRows> {
        let name = inner.name().to_owned();
        let schema = arrow_schema(table.schema().visible_columns(), UTC);
        let fields = schema.fields()[HEAD..HEAD + width].iter();
        let tuples =
            RowConverter::new(fields.map(|field| SortField::new(field.data_type().clone())).collect());
        let tuples =
            tuples.map_err(|error| Error::Tuple { operator: name.clone(), reason: error.to_string() })?;
        Ok(SentRows { name, table, schema, width, leading, output, tuples, inner })
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Values of tuples in the form in which they are compared.
    fn keys_of(&self, tuples: &[ArrayRef]) -> Result<Vec<Box<[u8]>>> {
        let tuples: Vec<ArrayRef> = tuples.iter().map(normalized).collect();
        let rows = self.tuples.convert_columns(&tuples).map_err(|error| self.failed(&error))?;
        Ok(rows.iter().map(|row| Box::from(row.data())).collect())
    }

    /// Reads the rows of all tuples with these hash codes.
    fn read(&self, tx: &Transaction, hashes: &[i64]) -> Result<StoredCopies> {
        let mut next: HashMap<i64, (i64, i64)> = HashMap::new();
        let mut read: Vec<RecordBatch> = Vec::new();
        for &hash in hashes {
            if next.insert(hash, (0, 0)).is_some() {
                continue;
            }
            let cursor = self.table.scan(ScanRange::prefix(&[Value::BigInt(hash)]));
            read_batches(&self.table, &self.schema, tx, cursor, |rows| {
                if rows.num_rows() > 0 {
                    read.push(rows.clone());
                }
                Ok(())
            })?;
        }
        let rows = concat_batches(&self.schema, &read).map_err(|error| self.failed(&error))?;
        let numbers = |column: usize| rows.column(column).as_primitive::<Int64Type>();
        let (codes, places, copies) = (numbers(0), numbers(1), numbers(2));
        let keys = self.keys_of(&rows.columns()[HEAD..HEAD + self.width])?;
        let mut copies_of: HashMap<Box<[u8]>, BTreeMap<i64, Vec<u32>>> = HashMap::new();
        for (row, key) in keys.into_iter().enumerate() {
            let (place, copy) = (places.value(row), copies.value(row));
            copies_of.entry(key).or_default().entry(copy).or_default().push(row as u32);
            let (next_place, next_copy) = next.entry(codes.value(row)).or_insert((0, 0));
            (*next_place, *next_copy) = ((*next_place).max(place + 1), (*next_copy).max(copy + 1));
        }
        let of_tuples = copies_of.into_iter().map(|(key, copies)| (key, copies.into_values().collect()));
        Ok(StoredCopies { of_tuples: of_tuples.collect(), rows, next })
    }

    /// Takes back what was sent for tuples, and removes it.
    fn take_back(
        &self,
        tx: &Transaction,
        tuples: &RecordBatch,
        stored: &mut StoredCopies,
        output: &mut Output,
    ) -> Result<()> {
        let mut gone: Vec<u32> = Vec::new();
        for key in self.keys_of(tuples.columns())? {
            let oldest = stored.of_tuples.get_mut(&key).and_then(VecDeque::pop_front);
            gone.extend(oldest.into_iter().flatten());
        }
        if gone.is_empty() {
            return Ok(());
        }
        let failed = |error: ArrowError| self.failed(&error);
        let rows = take_record_batch(&stored.rows, &UInt32Array::from(gone)).map_err(failed)?;
        self.table.delete_batch(tx, &rows.project(&[0, 1]).map_err(failed)?)?;
        let leading = HEAD..HEAD + self.leading;
        let columns = leading.chain(HEAD + self.width..rows.num_columns());
        let columns = columns.map(|column| Arc::clone(rows.column(column))).collect();
        let retracted = BooleanArray::from(vec![true; rows.num_rows()]);
        let rows = RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(failed)?;
        output.push(Batch::of_changes(rows, retracted));
        Ok(())
    }

    /// Sends the rows of tuples, and stores them.
    fn send(
        &mut self,
        context: &Context<'_>,
        (tuples, hashes): (&RecordBatch, &[i64]),
        stored: &mut StoredCopies,
        output: &mut Output,
    ) -> Result<()> {
        let mut computed = Output::default();
        self.inner.batch(context, &tuples.clone().into(), &mut computed)?;
        // Copy of each tuple, from its first row on.
        let mut copies: Vec<Option<i64>> = vec![None; tuples.num_rows()];
        for batch in computed.batches {
            let rows = batch.rows();
            let width = rows.num_columns() - 1;
            let tuple_numbers = rows.column(width).as_primitive::<Int64Type>().values();
            let (mut codes, mut numbers, mut copy_of_rows) = (Vec::new(), Vec::new(), Vec::new());
            for &tuple in tuple_numbers {
                let hash = hashes[tuple as usize];
                let (next_number, next_copy) = stored.next.entry(hash).or_insert((0, 0));
                let copy = *copies[tuple as usize].get_or_insert_with(|| {
                    *next_copy += 1;
                    *next_copy - 1
                });
                codes.push(hash);
                numbers.push(*next_number);
                copy_of_rows.push(copy);
                *next_number += 1;
            }
            let failed = |error: ArrowError| self.failed(&error);
            let places: UInt32Array = tuple_numbers.iter().map(|tuple| *tuple as u32).collect();
            let head = [codes, numbers, copy_of_rows];
            let mut columns: Vec<ArrayRef> =
                head.into_iter().map(|numbers| Arc::new(Int64Array::from(numbers)) as ArrayRef).collect();
            for column in tuples.columns() {
                columns.push(take(column, &places, None).map_err(failed)?);
            }
            columns.extend(rows.columns()[self.leading..width].iter().cloned());
            let written = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(failed)?;
            self.table.upsert_batch(context.transaction()?, &written)?;
            let sent = RecordBatch::try_new(Arc::clone(&self.output), rows.columns()[..width].to_vec());
            output.push(sent.map_err(failed)?.into());
        }
        Ok(())
    }
}

impl Operator for SentRows {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let hashes: Vec<i64> = rows_of(batch.rows())?.iter().map(|tuple| stored_hash(tuple)).collect();
        let tx = context.transaction()?;
        let mut stored = self.read(tx, &hashes)?;
        let of = |is_wanted: bool| -> Vec<u32> {
            let is_retracted = |row: usize| batch.retracted().is_some_and(|retracted| retracted.value(row));
            (0..batch.len()).filter(|row| is_retracted(*row) == is_wanted).map(|row| row as u32).collect()
        };
        let (old, new) = (of(true), of(false));
        if !old.is_empty() {
            let tuples = select(batch.rows(), old).map_err(|error| self.failed(&error))?;
            self.take_back(tx, &tuples, &mut stored, output)?;
        }
        if !new.is_empty() {
            let hashes: Vec<i64> = new.iter().map(|row| hashes[*row as usize]).collect();
            let tuples = select(batch.rows(), new).map_err(|error| self.failed(&error))?;
            self.send(context, (&tuples, &hashes), &mut stored, output)?;
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        self.inner.commit(context, output)?;
        self.table.vote_commit(context.transaction()?)?;
        Ok(())
    }

    fn aborted(&mut self) {
        self.inner.aborted();
    }

    fn redefined(&mut self) -> Result<()> {
        self.table = current_of(&self.name, &self.table, |old, new| old == new)?;
        self.inner.redefined()
    }
}
