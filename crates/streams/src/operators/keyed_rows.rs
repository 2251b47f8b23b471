//! Rows with a key that their source writes and deletes, as a stream of changes.
//!
//! ```text
//!   (id 1, "a")  (id 1, "b")  (id 2, deleted)      the rows that were read: id ──▶ row, a state table
//!         │ last of each key in a batch                  ▲ looked up, then written
//!         ▼                                              │
//!   row before is taken back, row after is inserted ─────┘
//! ```
//!
//! - What is taken back is the row that is stored, so the sums of the changes are the rows of the source whatever its
//!   events say of rows before, and an event that comes again changes nothing.
//! - Of the events of a key in a batch the last counts: between them nothing commits.
//! - Rows are read and written in the topology's transaction: an abort needs no action here, and a crash leaves the rows
//!   as of the last commit, with the position of the source.
//! - Memory: a batch. State: each row that is there.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::graph::Writer;
use crate::operators::group_index::GroupIndex;
use crate::operators::{Context, Operator, Output};
use crate::stream::Stream;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, DataType as ArrowType};
use entresol_tables::{BatchBuilder, Column, Row, Schema, Table, Value};
use std::rc::Rc;
use std::sync::Arc;

pub(crate) struct KeyedRows {
    name: String,
    /// Rows that are there.
    table: Arc<Table>,
    /// Columns of the rows.
    columns: Vec<Column>,
    /// Columns of the key among those of a tuple.
    key: Vec<usize>,
    /// Column of a tuple that is true of deleted rows.
    deleted: usize,
}

impl KeyedRows {
    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }

    /// Last tuple of each key, in the order in which the keys come first.
    fn last_of_keys(&self, batch: &RecordBatch) -> Result<Vec<usize>, ArrowError> {
        let keys = batch.project(&self.key)?;
        let types: Vec<ArrowType> = keys.columns().iter().map(|key| key.data_type().clone()).collect();
        let (mut index, mut numbers) = (GroupIndex::new(&types, batch.num_rows())?, Vec::new());
        index.number(keys.columns(), &mut numbers)?;
        let mut last = vec![0; index.len()];
        for (at, number) in numbers.iter().enumerate() {
            last[*number as usize] = at;
        }
        Ok(last)
    }
}

impl Operator for KeyedRows {
    fn name(&self) -> &str {
        &self.name
    }

    fn takes_each_tuple_alone(&self) -> bool {
        true
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let last = self.last_of_keys(batch.rows()).map_err(|error| self.refused(error.to_string()))?;
        let mut tuples = batch.tuples()?;
        let key_of = |tuple: &Tuple| -> Row { self.key.iter().map(|&at| tuple[at].clone()).collect() };
        let keys: Vec<Row> = last.iter().map(|&at| key_of(&tuples[at])).collect();
        let transaction = context.transaction()?;
        let stored = self.table.get_many(transaction, &keys)?;
        let (mut changes, mut retracted) = (BatchBuilder::new(&self.columns, 0), Vec::new());
        let (mut written, mut deleted) = (BatchBuilder::new(&self.columns, 0), Vec::new());
        for ((at, key), old) in last.into_iter().zip(keys).zip(stored) {
            let mut new = std::mem::take(&mut tuples[at]);
            let is_deleted = new.remove(self.deleted) == Value::Boolean(true);
            if !is_deleted && old.as_ref() == Some(&new) {
                continue;
            }
            if let Some(old) = &old {
                changes.push(old).map_err(|reason| self.refused(reason))?;
                retracted.push(true);
            }
            if is_deleted {
                deleted.extend(old.map(|_| key));
                continue;
            }
            for rows in [&mut changes, &mut written] {
                rows.push(&new).map_err(|reason| self.refused(reason))?;
            }
            retracted.push(false);
        }
        if !written.is_empty() {
            self.table.upsert_batch(transaction, &written.finish())?;
        }
        if !deleted.is_empty() {
            self.table.delete_many(transaction, &deleted)?;
        }
        output.push(Batch::of_changes(changes.finish(), BooleanArray::from(retracted)));
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, _output: &mut Output) -> Result<()> {
        context.epoch.vote(&self.table)
    }
}

impl Stream {
    /// Makes changes of rows with a key: each tuple replaces the one with its key, or deletes it if the column `deleted` is
    /// true, in which case its other columns may be anything. The stream has the columns without that one, and takes back
    /// what is replaced or deleted; filters, projections, unions, running aggregates and upserts by the key take it. The
    /// rows that are there are in a table, which only this operator may write.
    pub fn keyed_rows(&self, deleted: &str, key: &[String], state_table: &str) -> Stream {
        match self.try_keyed_rows(deleted, key, state_table) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("rows by their key with state {state_table}: {reason}"));
                self.clone()
            }
        }
    }

    fn try_keyed_rows(&self, deleted: &str, key: &[String], state_table: &str) -> Result<Stream, String> {
        self.check_appended("rows by their key");
        let place = |name: &str| self.column(name).ok_or_else(|| format!("the stream has no column {name}"));
        let deleted = place(deleted)?;
        let of_key = key.iter().map(|name| place(name)).collect::<Result<Vec<usize>, String>>()?;
        let mut columns = self.columns.to_vec();
        columns.remove(deleted);
        let names: Vec<&str> = key.iter().map(String::as_str).collect();
        let schema = Schema::new(columns.clone(), &names).map_err(|error| error.to_string())?;
        self.plan_state(state_table, schema)?;
        let (table, of_rows) = (state_table.to_owned(), columns.clone());
        let mut rows = self.add(format!("rows by their key {table}"), columns.into(), move |made| {
            let name = made.name.to_owned();
            let table = made.catalog.table(&table)?;
            Ok(Box::new(KeyedRows { name, table, columns: of_rows, key: of_key, deleted })
                as Box<dyn Operator>)
        });
        (rows.changes, rows.key) = (true, Some(Rc::from(key)));
        let writer = Writer { table: state_table.to_owned(), node: rows.node, is_to_table: false };
        self.graph.borrow_mut().writers.push(writer);
        Ok(rows)
    }
}
