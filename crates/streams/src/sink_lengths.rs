//! Lengths of the files that sinks write: `streams_sinks`, per topology and path.
//!
//! A length is written in the transaction of its rows. The first is that of a file before the sink has written
//! to it; it has a transaction of its own, and a crash behind it leaves a file that is truncated to it.
//!
//! A sink that rolls files has two of them ([`StoredFiles`]): that of the rows that wait for the file with the greatest number, and
//! that of the file before it, which is full. Both have all rows that the sink has written up to their end.

use crate::error::{Error, Result};
use crate::positions::open_owned;
use crate::sinks::rolled::RolledNames;
use entresol_memory::Durability;
use entresol_tables::{
    Catalog, Column, DataType, Row, ScanRange, Schema, Table, TableDefinition, TableOptions, Value,
};
use entresol_transactions::{StateContext, Transaction};
use std::path::Path;
use std::sync::Arc;

/// The table of the lengths of files.
pub const SINKS_TABLE: &str = "streams_sinks";
/// Length of a path, which is in the key of the table.
const PATH_BYTES_MAX: usize = 512;

/// Length of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
        let [topology, path] = &self.key;
        SinkLength::of_row(&row).map(Some).ok_or_else(|| malformed(topology, path))
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
        let [topology, path] = &self.key;
        self.table.upsert(transaction, &length.row(topology, path))?;
        Ok(())
    }
}

/// Stored lengths of the files of a sink that rolls them, by their numbers.
pub(crate) struct StoredFiles {
    table: Arc<Table>,
    context: Arc<StateContext>,
    topology: String,
    names: RolledNames,
}

/// Files of such a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RolledLengths {
    /// The last file that is full, if there is one: its number, and the length of its waiting rows.
    pub(crate) full: Option<(u64, SinkLength)>,
    /// Number of the file that rows wait for, and their length.
    pub(crate) open: (u64, SinkLength),
}

impl StoredFiles {
    pub(crate) fn new(catalog: &Catalog, topology: &str, names: RolledNames) -> Result<StoredFiles> {
        let longest = names.part(u64::MAX);
        if longest.as_os_str().len() > PATH_BYTES_MAX {
            let reason = format!("the path is longer than {PATH_BYTES_MAX} bytes");
            return Err(Error::File { path: longest, reason });
        }
        let (table, context) = (open_table(catalog)?, Arc::clone(catalog.context()));
        Ok(StoredFiles { table, context, topology: topology.to_owned(), names })
    }

    /// Lengths at the last commit; none before the first.
    pub(crate) fn read(&self) -> Result<Option<RolledLengths>> {
        let transaction = self.context.begin()?;
        let of = [Value::from(self.topology.as_str())];
        let mut found = Vec::new();
        for row in self.table.scan(ScanRange::prefix(&of)).rows(&transaction)? {
            let Some(Value::Varchar(path)) = row.get(1) else { continue };
            let Some(number) = self.names.number_of(path) else { continue };
            let length = SinkLength::of_row(&row).ok_or_else(|| malformed(&self.topology, path))?;
            found.push((number, length));
        }
        found.sort_unstable_by_key(|(number, _)| *number);
        let Some(open) = found.pop() else { return Ok(None) };
        Ok(Some(RolledLengths { full: found.pop(), open }))
    }

    /// Commits the number of the first file.
    pub(crate) fn begin(&self, number: u64) -> Result<()> {
        let transaction = self.context.begin()?;
        self.upsert(&transaction, number, SinkLength::default())?;
        transaction.commit(Durability::Sync)?;
        Ok(())
    }

    /// Writes the length of the open file's waiting rows into the transaction, and votes for it.
    pub(crate) fn write(&self, transaction: &Transaction, number: u64, length: SinkLength) -> Result<()> {
        self.upsert(transaction, number, length)?;
        self.table.vote_commit(transaction)?;
        Ok(())
    }

    /// Writes that a file is full with this length, and which one is open then, into the transaction, and votes for it. What is
    /// known of the full file before it, by its number, is removed.
    pub(crate) fn fill(
        &self,
        transaction: &Transaction,
        (number, length): (u64, SinkLength),
        next: u64,
        before: Option<u64>,
    ) -> Result<()> {
        if let Some(before) = before {
            let key = [Value::from(self.topology.as_str()), Value::from(self.names.key(before).as_str())];
            self.table.delete_many(transaction, &[key.to_vec()])?;
        }
        self.upsert(transaction, number, length)?;
        self.write(transaction, next, SinkLength { rows: length.rows, ..SinkLength::default() })
    }

    fn upsert(&self, transaction: &Transaction, number: u64, length: SinkLength) -> Result<()> {
        self.table.upsert(transaction, &length.row(&self.topology, &self.names.key(number)))?;
        Ok(())
    }
}

impl SinkLength {
    fn of_row(row: &[Value]) -> Option<SinkLength> {
        let number = |at: usize| match row.get(at) {
            Some(Value::BigInt(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let tail_checksum = u32::try_from(number(4)?).ok()?;
        Some(SinkLength { bytes: number(2)?, rows: number(3)?, tail_checksum })
    }

    fn row(self, topology: &str, path: &str) -> Row {
        let numbers = [self.bytes, self.rows, u64::from(self.tail_checksum)];
        let numbers = numbers.map(|number| Value::BigInt(number.cast_signed()));
        [Value::from(topology), Value::from(path)].into_iter().chain(numbers).collect()
    }
}

fn malformed(topology: &str, path: &str) -> Error {
    Error::InvalidTopology {
        topology: topology.to_owned(),
        reason: format!("table {SINKS_TABLE} has a malformed row for {path}"),
    }
}
