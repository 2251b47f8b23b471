//! Table of bad records of sources, and of tuples that operators left out: `source`, `line`, `reason`, `record`.

use crate::error::Result;
use entresol_tables::{Column, DataType, Row, Schema, Table, Value};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Bytes of a reason or record in the table; the rest is left out.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// Schema of such a table.
pub(crate) fn schema() -> Result<Schema, entresol_tables::Error> {
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let line = Column::new("line", DataType::BigInt).not_null();
    Schema::new(vec![varchar("source"), line, varchar("reason"), varchar("record")], &[] as &[&str])
}

/// Row of such a table.
pub(crate) fn row(source: &str, line: u64, reason: &str, record: &str) -> Row {
    let text = |text: &str| Value::from(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    vec![Value::from(source), Value::BigInt(line.cast_signed()), text(reason), text(record)]
}

/// Writes rows in the transaction of the tuples around them.
pub(crate) fn write(table: &Arc<Table>, transaction: &Transaction, rows: &[Row]) -> Result<()> {
    let dropped = || entresol_tables::Error::NoSuchTable { table: table.name().to_owned() };
    let table = table.current().ok_or_else(dropped)?;
    table.insert_many(transaction, rows)?;
    table.vote_commit(transaction)?;
    Ok(())
}
