//! What can go wrong in tables. Every message names the table, the column and the value concerned.

use crate::value::DataType;

/// The result of an operation on tables.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate or of a floor under it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no table of this name.
    #[error("there is no table {table}")]
    NoSuchTable {
        /// The name asked for.
        table: String,
    },
    /// A table of this name exists already.
    #[error("table {table} exists already")]
    TableExists {
        /// Its name.
        table: String,
    },
    /// The table has no such column.
    #[error("table {table} has no column {column}")]
    NoSuchColumn {
        /// The table.
        table: String,
        /// The column asked for.
        column: String,
    },
    /// A value is of another type than its column.
    #[error("table {table}, column {column}: expected {expected}, found {found}")]
    WrongType {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The column's type.
        expected: DataType,
        /// The value's type and the value.
        found: String,
    },
    /// A value is of its column's type, but does not fit it.
    #[error("table {table}, column {column}: {value} does not fit {expected}")]
    OutOfRange {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The value.
        value: String,
        /// The column's type.
        expected: DataType,
    },
    /// NULL for a column that must have a value.
    #[error("table {table}, column {column}: NULL in a NOT NULL column")]
    NotNull {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A row, a key or a range has the wrong number of values.
    #[error("table {table}: expected {expected} values, found {found}")]
    WrongValueCount {
        /// The table.
        table: String,
        /// How many were expected.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// A row with this key exists already.
    #[error("table {table}: a row with key {key} exists already")]
    DuplicateKey {
        /// The table.
        table: String,
        /// The key's values.
        key: String,
    },
    /// The row to be changed is not there.
    #[error("table {table}: there is no row with key {key}")]
    NoSuchKey {
        /// The table.
        table: String,
        /// The key's values.
        key: String,
    },
    /// An encoded row is above `ROW_BYTES_MAX`.
    #[error("table {table}: a row of {bytes} bytes is larger than {bytes_max}")]
    RowTooLarge {
        /// The table.
        table: String,
        /// The encoded size.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// An encoded key is above `KEY_BYTES_MAX`.
    #[error("table {table}: a key of {bytes} bytes is larger than {bytes_max}")]
    KeyTooLarge {
        /// The table.
        table: String,
        /// The encoded size.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// A schema breaks a rule.
    #[error("invalid schema: {reason}")]
    InvalidSchema {
        /// The rule and the column.
        reason: String,
    },
    /// A table's name is empty, too long or has control characters.
    #[error("invalid table name {name:?}: 1 to {bytes_max} bytes without control characters")]
    InvalidName {
        /// The name.
        name: String,
        /// The most bytes.
        bytes_max: usize,
    },
    /// Text that is no value of the column's type.
    #[error("column {column}: '{value}' is not a {expected}")]
    Parse {
        /// The column.
        column: String,
        /// The text.
        value: String,
        /// The column's type.
        expected: DataType,
    },
    /// All row numbers of a table without primary key are used up.
    #[error("table {table}: the row numbers are used up")]
    RowNumbersUsedUp {
        /// The table.
        table: String,
    },
    /// Stored bytes that no encoder wrote.
    #[error("corrupt {what}: {reason}; restore the database from a backup")]
    Corrupt {
        /// Which bytes: the table, or the catalog.
        what: String,
        /// What is wrong with them.
        reason: String,
    },
    /// From the transactions: conflicts, full disks, closed pools.
    #[error(transparent)]
    Transactions(#[from] entresol_transactions::Error),
    /// From the index structures.
    #[error(transparent)]
    Structures(#[from] entresol_structures::Error),
    /// From the pool.
    #[error(transparent)]
    Memory(#[from] entresol_memory::Error),
}

impl Error {
    pub(crate) fn corrupt(what: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Corrupt { what: what.into(), reason: reason.into() }
    }
}
