//! TO_TABLE: writes the tuples of a stream into a table (dissertation 5.1.1).
//!
//! - Columns are matched by name when the topology is built; INT widens to BIGINT. Columns that the stream
//!   lacks are NULL.
//! - `upsert` adds or replaces, `insert` fails on an existing key. Tuples that `delete_when` accepts delete
//!   the row with their key, whatever their other values; deleting a missing row has no effect.
//! - Writes go to the topology's transaction only; at the commit punctuation the operator votes for its
//!   state.
//! - Stateless between batches: an abort needs no action here.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::operators::{Context, Operator, Output, current_of};
use entresol_tables::{Column, DataType, Schema, Table, Value};
use entresol_transactions::Vote;
use std::sync::Arc;

/// Reason for which a table cannot be written by a stream.
pub(crate) const HAS_RULES: &str = "the table has defaults or checks, which streams do not compute yet";

type Predicate = Box<dyn FnMut(&[Value]) -> bool + Send>;

/// Target of TO_TABLE: `"name".into()` upserts.
pub struct ToTable {
    pub(crate) table: String,
    pub(crate) key: Option<Vec<String>>,
    pub(crate) insert: bool,
    pub(crate) delete_when: Option<Predicate>,
}

impl ToTable {
    /// Adds rows, or replaces those with the same key.
    pub fn upsert(table: &str) -> ToTable {
        ToTable { table: table.to_owned(), key: None, insert: false, delete_when: None }
    }

    /// Adds rows; an existing key is an error of the transaction.
    pub fn insert(table: &str) -> ToTable {
        ToTable { insert: true, ..ToTable::upsert(table) }
    }

    /// Sets the key columns of the table, if it has to be created. Without them the stream's own key is used
    /// (that of an aggregate: its groups and the window's start), else the table gets the hidden key.
    pub fn key(mut self, columns: &[&str]) -> ToTable {
        self.key = Some(columns.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// Sets a predicate for the tuples that delete rows instead of writing them.
    pub fn delete_when(mut self, predicate: impl FnMut(&[Value]) -> bool + Send + 'static) -> ToTable {
        self.delete_when = Some(Box::new(predicate));
        self
    }
}

impl From<&str> for ToTable {
    fn from(table: &str) -> ToTable {
        ToTable::upsert(table)
    }
}

/// Mapping of tuple columns to the visible columns of a table.
pub(crate) struct Mapping {
    /// Tuple column, and true if it widens from INT to BIGINT.
    sources: Vec<Option<(usize, bool)>>,
    /// True if rows equal the tuples.
    identity: bool,
}

impl Mapping {
    /// Matches a stream's columns with a table's.
    pub(crate) fn new(table: &str, schema: &Schema, stream: &[Column]) -> Result<Mapping, String> {
        let target = schema.visible_columns();
        if let Some(extra) = stream.iter().find(|column| !target.iter().any(|to| to.name == column.name)) {
            return Err(format!("table {table} has no column {}; select only its columns", extra.name));
        }
        let mut sources = Vec::with_capacity(target.len());
        for to in target {
            let found = stream.iter().position(|column| column.name == to.name);
            let source = match found.map(|index| (index, stream[index].data_type)) {
                None if to.nullable => None,
                None => {
                    return Err(format!("table {table} needs column {}, which the stream lacks", to.name));
                }
                Some((index, from)) if accepts(to.data_type, from) => Some((index, false)),
                Some((index, DataType::Int | DataType::SmallInt)) if to.data_type == DataType::BigInt => {
                    Some((index, true))
                }
                Some((_, from)) => {
                    let name = &to.name;
                    return Err(format!(
                        "column {name} of table {table} has type {}, but {from} in the stream",
                        to.data_type
                    ));
                }
            };
            sources.push(source);
        }
        let identity = sources.len() == stream.len()
            && sources.iter().enumerate().all(|(at, source)| *source == Some((at, false)));
        Ok(Mapping { sources, identity })
    }

    fn row(&self, tuple: &[Value]) -> Tuple {
        let value = |source: &Option<(usize, bool)>| match source {
            None => Value::Null,
            Some((index, widens)) => match &tuple[*index] {
                Value::Int(value) if *widens => Value::BigInt(i64::from(*value)),
                value => value.clone(),
            },
        };
        self.sources.iter().map(value).collect()
    }
}

/// Returns true if values of type `from` can be stored as `to`. Precision and range are checked when a row is
/// written.
fn accepts(to: DataType, from: DataType) -> bool {
    match (to, from) {
        (DataType::Decimal { scale: to, .. }, DataType::Decimal { scale: from, .. }) => to == from,
        (DataType::SmallInt, DataType::Int) | (DataType::Int, DataType::SmallInt) => true,
        (DataType::Double, DataType::Real) => true,
        _ => to == from,
    }
}

pub(crate) struct ToTableOperator {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    /// Columns of the tuples.
    pub(crate) columns: Vec<Column>,
    pub(crate) mapping: Mapping,
    pub(crate) insert: bool,
    pub(crate) delete_when: Option<Predicate>,
    /// True if a TO_STREAM reads each tuple: the written rows are sent.
    pub(crate) emits: bool,
}

impl ToTableOperator {
    fn write(&self, context: &Context<'_>, rows: &[&[Value]]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let written = if self.insert {
            self.table.insert_many(context.transaction, rows)
        } else {
            self.table.upsert_many(context.transaction, rows)
        };
        Ok(written?)
    }

    /// Writes and deletes in the order of the tuples; runs of writes are batched.
    fn write_and_delete(&self, context: &Context<'_>, rows: &[&[Value]], deletes: &[bool]) -> Result<()> {
        let mut start = 0;
        for (at, _) in deletes.iter().enumerate().filter(|(_, delete)| **delete) {
            self.write(context, &rows[start..at])?;
            let key: Vec<Value> =
                self.table.schema().key().iter().map(|&index| rows[at][index].clone()).collect();
            self.table.delete(context.transaction, &key)?;
            start = at + 1;
        }
        self.write(context, &rows[start..])
    }

    /// Returns the written rows with their `deleted_` column, for TO_STREAM.
    fn changes(&self, rows: &[&[Value]], deletes: &[bool]) -> Batch {
        let key = self.table.schema().key();
        let tuples = rows.iter().enumerate().map(|(at, row)| {
            let deleted = deletes.get(at).copied().unwrap_or(false);
            let kept = |column: usize| !deleted || key.contains(&column);
            let mut tuple: Tuple = Vec::with_capacity(row.len() + 1);
            tuple.extend(row.iter().enumerate().map(|(i, v)| if kept(i) { v.clone() } else { Value::Null }));
            tuple.push(Value::Boolean(deleted));
            tuple
        });
        Batch::new(tuples.collect())
    }
}

impl Operator for ToTableOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let deletes: Vec<bool> = match &mut self.delete_when {
            Some(predicate) => batch.iter().map(|tuple| predicate(tuple)).collect(),
            None => Vec::new(),
        };
        let mapped: Vec<Tuple> = if self.mapping.identity {
            Vec::new()
        } else {
            batch.iter().map(|tuple| self.mapping.row(tuple)).collect()
        };
        let rows: Vec<&[Value]> = if self.mapping.identity {
            batch.iter().map(Vec::as_slice).collect()
        } else {
            mapped.iter().map(Vec::as_slice).collect()
        };
        self.write_and_delete(context, &rows, &deletes)?;
        if self.emits {
            output.push(self.changes(&rows, &deletes));
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, _output: &mut Output) -> Result<()> {
        context.transaction.vote(self.table.state().id(), Vote::Commit)?;
        Ok(())
    }

    fn redefined(&mut self) -> Result<()> {
        let table = current_of(&self.name, &self.table, |_, _| true)?;
        let refused = |reason| Error::Tuple { operator: self.name.clone(), reason };
        if !table.is_plain() {
            return Err(refused(HAS_RULES.to_owned()));
        }
        self.mapping = Mapping::new(table.name(), table.schema(), &self.columns).map_err(refused)?;
        self.table = table;
        Ok(())
    }
}
