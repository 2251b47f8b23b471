//! Lengths of the files that sinks write: `streams_sinks`, per topology and path.
//!
//! A length is written in the transaction of its rows. The first is that of a file before the sink has written
//! to it; it has a transaction of its own, and a crash behind it leaves a file that is truncated to it.

use crate::error::{Error, Result};
use crate::positions::open_owned;
use entresol_memory::Durability;
use entresol_tables::{Catalog, Column, DataType, Row, Schema, Table, TableDefinition, TableOptions, Value};
use entresol_transactions::{StateContext, Transaction};
use std::path::Path;
use std::sync::Arc;

/// The table of the lengths of files.
pub const SINKS_TABLE: &str = "streams_sinks";
/// Length of a path, which is in the key of the table.
const PATH_BYTES_MAX: usize = 512;

/// Length of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SinkLength {
    pub(crate) bytes: u64,
    /// Rows that the sink has written.
    pub(crate) rows: u64,
    /// Checksum of the bytes before the end.
    pub(crate) tail_checksum: u32,
}

/// Stored length of one file.
pub(crate) struct StoredLength {
    table: Arc<Table>,
    context: Arc<StateContext>,
    key: [String; 2],
}

fn open_table(catalog: &Catalog) -> Result<Arc<Table>> {
    let bigint = |name: &str| Column::new(name, DataType::BigInt).not_null();
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let columns =
        vec![varchar("topology"), varchar("path"), bigint("bytes"), bigint("rows"), bigint("tail_checksum")];
    open_owned(
        catalog,
        SINKS_TABLE,
        TableDefinition::plain(Schema::new(columns, &["topology", "path"])?),
        None,
        TableOptions::default(),
    )
}

impl StoredLength {
    pub(crate) fn new(catalog: &Catalog, topology: &str, path: &Path) -> Result<StoredLength> {
        let refused = |reason: String| Error::File { path: path.to_owned(), reason };
        let name = path.to_str().ok_or_else(|| refused("the name is not UTF-8".to_owned()))?;
        if name.len() > PATH_BYTES_MAX {
            return Err(refused(format!("the path is longer than {PATH_BYTES_MAX} bytes")));
        }
        let (table, context) = (open_table(catalog)?, Arc::clone(catalog.context()));
        Ok(StoredLength { table, context, key: [topology.to_owned(), name.to_owned()] })
    }

    /// Length at the last commit; none before the first.
    pub(crate) fn read(&self) -> Result<Option<SinkLength>> {
        let transaction = self.context.begin()?;
        let key = self.key.each_ref().map(|part| Value::from(part.as_str()));
        let Some(row) = self.table.get(&transaction, &key)? else { return Ok(None) };
        let number = |at: usize| match row.get(at) {
            Some(Value::BigInt(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let length = || {
            let tail_checksum = u32::try_from(number(4)?).ok()?;
            Some(SinkLength { bytes: number(2)?, rows: number(3)?, tail_checksum })
        };
        length().map(Some).ok_or_else(|| Error::InvalidTopology {
            topology: self.key[0].clone(),
            reason: format!("table {SINKS_TABLE} has a malformed row for {}", self.key[1]),
        })
    }

    /// Commits the length of a file before anything is written.
    pub(crate) fn begin(&self, length: SinkLength) -> Result<()> {
        let transaction = self.context.begin()?;
        self.upsert(&transaction, length)?;
        transaction.commit(Durability::Sync)?;
        Ok(())
    }

    /// Writes a length into the transaction, and votes for it.
    pub(crate) fn write(&self, transaction: &Transaction, length: SinkLength) -> Result<()> {
        self.upsert(transaction, length)?;
        self.table.vote_commit(transaction)?;
        Ok(())
    }

    fn upsert(&self, transaction: &Transaction, length: SinkLength) -> Result<()> {
        let numbers = [length.bytes, length.rows, u64::from(length.tail_checksum)];
        let numbers = numbers.map(|number| Value::BigInt(number.cast_signed()));
        let key = self.key.each_ref().map(|part| Value::from(part.as_str()));
        self.table.upsert(transaction, &key.into_iter().chain(numbers).collect::<Row>())?;
        Ok(())
    }
}
