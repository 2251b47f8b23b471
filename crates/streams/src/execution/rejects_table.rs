//! Table of bad records of sources, and of tuples that operators left out: `source`, `line`, `reason`, `record`, `topology`.
//!
//! Several topologies may share one. The tables of earlier releases end with `record`, and are written without the topology.

use crate::error::Result;
use entresol_tables::{Column, DataType, Row, Schema, Table, Value};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Bytes of a reason or record in the table; the rest is left out.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// Columns of such a table, and how many of them those of earlier releases have.
fn columns() -> (Vec<Column>, usize) {
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let line = Column::new("line", DataType::BigInt).not_null();
    let mut columns = vec![varchar("source"), line, varchar("reason"), varchar("record")];
    let earlier = columns.len();
    columns.push(Column::new("topology", DataType::Varchar));
    (columns, earlier)
}

/// Schema of such a table.
pub(crate) fn schema() -> Result<Schema, entresol_tables::Error> {
    Schema::new(columns().0, &[] as &[&str])
}

/// Tells whether a table with these columns is such a table.
pub(crate) fn has_columns(found: &[Column]) -> bool {
    let (columns, earlier) = columns();
    found == columns || found == &columns[..earlier]
}

/// Such a table for the rows of one topology.
#[derive(Debug, Clone)]
pub(crate) struct RejectsTable {
    table: Arc<Table>,
    /// Name of the topology.
    topology: Arc<str>,
}

/// Row of such a table, up to the topology.
pub(crate) fn row(source: &str, line: u64, reason: &str, record: &str) -> Row {
    let text = |text: &str| Value::from(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    vec![Value::from(source), Value::BigInt(line.cast_signed()), text(reason), text(record)]
}

impl RejectsTable {
    pub(crate) fn new(table: Arc<Table>, topology: &str) -> RejectsTable {
        RejectsTable { table, topology: topology.into() }
    }

    /// Inserts rows in the transaction of the tuples around them.
    pub(crate) fn write(&self, transaction: &Transaction, rows: &[Row]) -> Result<()> {
        let dropped = || entresol_tables::Error::NoSuchTable { table: self.table.name().to_owned() };
        let table = self.table.current().ok_or_else(dropped)?;
        let has_topology = table.schema().visible_columns().len() == columns().0.len();
        let topology = has_topology.then(|| Value::from(&*self.topology));
        let complete = |row: &Row| [row.as_slice(), topology.as_slice()].concat();
        table.insert_many(transaction, &rows.iter().map(complete).collect::<Vec<Row>>())?;
        table.vote_commit(transaction)?;
        Ok(())
    }
}
