//! Table of bad records of sources, and of tuples that operators left out: `source`, `line`, `reason`, `record`, `topology`,
//! `byte_offset`.
//!
//! Several topologies may share one. The tables of earlier releases end with `record` or `topology`, and are written without the rest.

use crate::error::Result;
use entresol_tables::{Column, DataType, Row, Schema, Table, Value};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Bytes of a reason or record in the table; the rest is left out.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// Columns that all such tables have.
const FIRST_COLUMNS: usize = 4;

/// Columns of such a table; those of earlier releases have the first ones.
fn columns() -> [Column; FIRST_COLUMNS + 2] {
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    [
        varchar("source"),
        Column::new("line", DataType::BigInt).not_null(),
        varchar("reason"),
        varchar("record"),
        Column::new("topology", DataType::Varchar),
        Column::new("byte_offset", DataType::BigInt),
    ]
}

/// Schema of such a table.
pub(crate) fn schema() -> Result<Schema, entresol_tables::Error> {
    Schema::new(columns().to_vec(), &[] as &[&str])
}

/// Tells whether a table with these columns is such a table.
pub(crate) fn has_columns(found: &[Column]) -> bool {
    found.len() >= FIRST_COLUMNS && columns().starts_with(found)
}

/// Such a table for the rows of one topology.
#[derive(Debug, Clone)]
pub(crate) struct RejectsTable {
    table: Arc<Table>,
    /// Name of the topology.
    topology: Arc<str>,
}

/// Row of such a table, without the topology; the line is 0 and the offset unknown of what is of no file.
pub(crate) fn row(source: &str, (line, offset): (u64, Option<u64>), reason: &str, record: &str) -> Row {
    let text = |text: &str| Value::from(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    let bigint = |value: u64| Value::BigInt(value.cast_signed());
    vec![Value::from(source), bigint(line), text(reason), text(record), offset.map_or(Value::Null, bigint)]
}

impl RejectsTable {
    pub(crate) fn new(table: Arc<Table>, topology: &str) -> RejectsTable {
        RejectsTable { table, topology: topology.into() }
    }

    /// Inserts rows in the transaction of the tuples around them.
    pub(crate) fn write(&self, transaction: &Transaction, rows: &[Row]) -> Result<()> {
        let dropped = || entresol_tables::Error::NoSuchTable { table: self.table.name().to_owned() };
        let table = self.table.current().ok_or_else(dropped)?;
        let width = table.schema().visible_columns().len();
        let topology = [Value::from(&*self.topology)];
        let complete = |row: &Row| {
            let (first, last) = row.split_at(FIRST_COLUMNS);
            let mut complete = [first, &topology, last].concat();
            complete.truncate(width);
            complete
        };
        table.insert_many(transaction, &rows.iter().map(complete).collect::<Vec<Row>>())?;
        table.vote_commit(transaction)?;
        Ok(())
    }
}
