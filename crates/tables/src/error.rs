//! Errors of tables. Every message names the table, the column and the value concerned.

use crate::schema::definition::TableLayout;
use crate::schema::modifier::Modifier;
use crate::value::DataType;
use crate::value::json::JsonError;
use entresol_structures::IndexStructure;
use entresol_transactions::{Protocol, TierChoice};

/// Result of an operation on tables.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of this crate or of one below.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no table of this name.
    #[error("relation \"{table}\" does not exist")]
    NoSuchTable {
        /// Requested name.
        table: String,
    },
    /// A table of this name exists already.
    #[error("relation \"{table}\" already exists")]
    TableExists {
        /// Name of the table.
        table: String,
    },
    /// The table has no such column.
    #[error("column \"{column}\" of relation \"{table}\" does not exist")]
    NoSuchColumn {
        /// The table.
        table: String,
        /// Requested column.
        column: String,
    },
    /// A value is of another type than its column.
    #[error("table {table}, column {column}: expected {expected}, found {found}")]
    WrongType {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Type of the column.
        expected: DataType,
        /// Type of the value, and the value.
        found: String,
    },
    /// A value has its column's type, but is out of range.
    #[error("table {table}, column {column}: {value} does not fit {expected}")]
    OutOfRange {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The value.
        value: String,
        /// Type of the column.
        expected: DataType,
    },
    /// A string is longer than its column allows.
    #[error("value too long for type {expected} (table {table}, column {column})")]
    TooLong {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Declared type of the column.
        expected: Modifier,
    },
    /// A column whose values have no order of bytes in a key, an index or a dimension.
    #[error("column \"{column}\" of type {declared} can be in no key and no index: {reason}")]
    NotOrdered {
        /// The column.
        column: String,
        /// Declared type of the column.
        declared: String,
        /// Reason for which its values have no order of bytes.
        reason: &'static str,
    },
    /// A string of a JSON column is none, or out of the bounds of JSON.
    #[error("{error} (column {column})")]
    InvalidJson {
        /// The column.
        column: String,
        /// Error of the string.
        error: JsonError,
    },
    /// A value has more fraction digits than a column without rounding stores.
    #[error(
        "{value} has more digits after the point than the column stores ({scale}) (table {table}, column {column}): \
         declare it NUMERIC(p, s), or round the value: round(x, {scale})"
    )]
    DigitsLost {
        /// Table; empty where it is not known.
        table: String,
        /// The column.
        column: String,
        /// The value.
        value: String,
        /// Number of fraction digits that are stored.
        scale: u8,
    },
    /// NULL in a NOT NULL column.
    #[error("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint")]
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
        /// Expected number.
        expected: usize,
        /// Actual number.
        found: usize,
    },
    /// A row with this key exists already.
    #[error("duplicate key value violates the primary key of table \"{table}\": key {key} already exists")]
    DuplicateKey {
        /// The table.
        table: String,
        /// Values of the key.
        key: String,
    },
    /// Another row has the same unique values.
    #[error(
        "duplicate key value violates unique constraint \"{constraint}\": Key ({columns})=({values}) already exists."
    )]
    UniqueViolation {
        /// The table.
        table: String,
        /// Constraint or unique index.
        constraint: String,
        /// Names of its columns.
        columns: String,
        /// Values that exist already.
        values: String,
    },
    /// A row violates a check constraint.
    #[error(
        "new row for relation \"{table}\" violates check constraint \"{constraint}\": Failing row contains ({row})."
    )]
    CheckViolation {
        /// The table.
        table: String,
        /// Name of the check constraint.
        constraint: String,
        /// The row.
        row: String,
    },
    /// The table has a column of this name already.
    #[error("column \"{column}\" of relation \"{table}\" already exists")]
    ColumnExists {
        /// The table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// The table has no constraint of this name.
    #[error("constraint \"{constraint}\" of relation \"{table}\" does not exist")]
    NoSuchConstraint {
        /// The table.
        table: String,
        /// Requested name.
        constraint: String,
    },
    /// The table logs no changes.
    #[error("table {table} logs no changes; ALTER TABLE {table} SET (changes = '1 hour') makes it")]
    NoChangeLog {
        /// The table.
        table: String,
    },
    /// There is no index of this name.
    #[error("index \"{index}\" does not exist")]
    NoSuchIndex {
        /// Requested name.
        index: String,
    },
    /// A table or an index of this name exists already.
    #[error("relation \"{name}\" already exists")]
    RelationExists {
        /// Name of the relation.
        name: String,
    },
    /// The table has a constraint or index of this name already.
    #[error("constraint \"{constraint}\" for relation \"{table}\" already exists")]
    ConstraintExists {
        /// The table.
        table: String,
        /// Name of the constraint.
        constraint: String,
    },
    /// Something cannot be dropped or changed because another object needs it.
    #[error("{what} is needed by {by}")]
    Needed {
        /// Object to be dropped or changed.
        what: String,
        /// Object that needs it.
        by: String,
    },
    /// Something cannot be dropped or renamed because views read it.
    #[error("cannot {verb} {what} because other objects depend on it: {by}")]
    Dependents {
        /// Requested action.
        verb: &'static str,
        /// Object to be dropped or renamed: `table t`, `column c of table t`.
        what: String,
        /// Dependency: `view v depends on table t`.
        by: String,
    },
    /// There is no relation of this name.
    #[error("relation \"{name}\" does not exist")]
    NoSuchRelation {
        /// Requested name.
        name: String,
    },
    /// A relation of this name is of another kind.
    #[error("\"{name}\" is not {}", wanted.with_article())]
    WrongKind {
        /// Name of the relation.
        name: String,
        /// Requested kind.
        wanted: crate::RelationKind,
    },
    /// A view would read itself.
    #[error("infinite recursion detected in rules for relation \"{view}\"")]
    RecursiveView {
        /// Name of the view.
        view: String,
    },
    /// A relation that a view reads was dropped or changed while the view was created; the statement can be
    /// repeated.
    #[error(
        "relation \"{relation}\" was changed during the creation of view \"{view}\": repeat the statement"
    )]
    RelationChanged {
        /// Changed relation.
        relation: String,
        /// The view.
        view: String,
    },
    /// The definition of a sequence is invalid.
    #[error("{reason}")]
    InvalidSequence {
        /// Violated rule and value.
        reason: String,
    },
    /// A sequence has no more values.
    #[error("nextval: reached {bound} value of sequence \"{sequence}\" ({limit})")]
    SequenceExhausted {
        /// The sequence.
        sequence: String,
        /// "maximum" or "minimum".
        bound: &'static str,
        /// Value of the bound.
        limit: i64,
    },
    /// The table was redefined; the transaction has to be repeated, with the table as the catalog has it now.
    #[error("table {table} was changed since the transaction began: repeat the transaction")]
    TableChanged {
        /// The table.
        table: String,
    },
    /// The placement of a table cannot be changed.
    #[error(
        "the placement of table {table} is '{placement}' and cannot be changed: create another table and copy the rows"
    )]
    PlacementFixed {
        /// The table.
        table: String,
        /// Placement of the table.
        placement: TierChoice,
    },
    /// The layout of a table cannot be changed.
    #[error(
        "the layout of table {table} cannot become '{}': it belongs to {owner}, which alone writes it",
        layout.name()
    )]
    LayoutFixed {
        /// The table.
        table: String,
        /// Layout that was asked for.
        layout: TableLayout,
        /// Its writer.
        owner: String,
    },
    /// A structure that tables of another layout than `rows` cannot have.
    #[error(
        "table {table}: USING {structure} is for the layout 'rows'; the layout '{layout}' has a structure of its own"
    )]
    StructureOfLayout {
        /// The table.
        table: String,
        /// Name of its layout.
        layout: &'static str,
        /// The structure asked for.
        structure: IndexStructure,
    },
    /// A protocol that tables of another layout than `rows` cannot have.
    #[error(
        "table {table}: protocol '{}' is for the layout 'rows': the layout '{layout}' merges changed rows at a snapshot, which '{}' has",
        protocol.name(),
        Protocol::default().name()
    )]
    ProtocolOfLayout {
        /// The table.
        table: String,
        /// Name of its layout.
        layout: &'static str,
        /// The protocol asked for.
        protocol: Protocol,
    },
    /// A structure without keys of the width of the table's.
    #[error(
        "table {table}: {structure} has keys of up to {} bytes, and the key ({key}) may be longer; USING {} has keys of any length",
        structure.key_bytes_max(),
        IndexStructure::default()
    )]
    StructureOfKey {
        /// The table.
        table: String,
        /// Names of the columns of its key.
        key: String,
        /// The structure asked for.
        structure: IndexStructure,
    },
    /// Transactions read what an earlier change of the layout has left.
    #[error(
        "table {table}: transactions are open that began before its layout was changed the last time; end them first"
    )]
    LayoutInUse {
        /// The table.
        table: String,
    },
    /// Only tables with row groups can have an Elf.
    #[error(
        "index {index}: table {table} of layout 'rows' has no Elf, which is an index of tables with layout = \
         'columns'; here take USING btree"
    )]
    ElfOfRows {
        /// The table.
        table: String,
        /// Name of the index.
        index: String,
    },
    /// The row to be changed does not exist.
    #[error("table {table}: there is no row with key {key}")]
    NoSuchKey {
        /// The table.
        table: String,
        /// Values of the key.
        key: String,
    },
    /// An encoded row is above `ROW_BYTES_MAX`.
    #[error("table {table}: a row of {bytes} bytes is larger than {bytes_max}")]
    RowTooLarge {
        /// The table.
        table: String,
        /// Encoded size.
        bytes: usize,
        /// Maximum size.
        bytes_max: usize,
    },
    /// An encoded key is above `KEY_BYTES_MAX`.
    #[error("table {table}: a key of {bytes} bytes is larger than {bytes_max}")]
    KeyTooLarge {
        /// The table.
        table: String,
        /// Encoded size.
        bytes: usize,
        /// Maximum size.
        bytes_max: usize,
    },
    /// A schema is invalid.
    #[error("invalid schema: {reason}")]
    InvalidSchema {
        /// Violated rule and column.
        reason: String,
    },
    /// A name of a table, an index or a constraint is empty, too long or has control characters.
    #[error("invalid name {name:?}: 1 to {bytes_max} bytes without control characters")]
    InvalidName {
        /// The name.
        name: String,
        /// Maximum bytes of a name.
        bytes_max: usize,
    },
    /// A string is not a value of the column's type.
    #[error("column {column}: '{value}' is not a {expected}")]
    Parse {
        /// The column.
        column: String,
        /// String that was parsed.
        value: String,
        /// Type of the column.
        expected: DataType,
    },
    /// All row numbers of a table without primary key are used up.
    #[error("table {table}: the row numbers are exhausted")]
    RowNumbersUsedUp {
        /// The table.
        table: String,
    },
    /// An object store does not do what it is asked for.
    #[error("cannot {what} in object store {store}: {reason}")]
    ObjectStore {
        /// URL of the store.
        store: String,
        /// Request.
        what: String,
        /// Error of the store.
        reason: String,
    },
    /// The URL of an object store is none.
    #[error("invalid object_store {url:?}: {reason}")]
    ObjectStoreUrl {
        /// The URL.
        url: String,
        /// Reason why it is none.
        reason: String,
    },
    /// Only row groups can be objects.
    #[error(
        "table {table}: object_store is for the layouts 'columns', 'clustered' and 'elf', whose row groups are objects"
    )]
    ObjectStoreOfRows {
        /// The table.
        table: String,
    },
    /// The row groups of a clustered table stay where they are.
    #[error(
        "the object_store of table {table} cannot be changed: its layout is 'clustered', and its blocks would all be divided \
         anew; create another table and copy the rows"
    )]
    ObjectStoreFixed {
        /// The table.
        table: String,
    },
    /// A database without files cannot have objects: nothing would ever delete them.
    #[error(
        "object_store is for databases with a directory: this one is in memory, and its objects would outlive it"
    )]
    ObjectStoreOfVolatile,
    /// Stored bytes are malformed.
    #[error("corrupt {what}: {reason}; restore the database from a backup")]
    Corrupt {
        /// Corrupt object: the table, or the catalog.
        what: String,
        /// Description of the damage.
        reason: String,
    },
    /// Error of a transaction: a conflict, a full disk, a closed pool.
    #[error(transparent)]
    Transactions(#[from] entresol_transactions::Error),
    /// Error of an index structure.
    #[error(transparent)]
    Structures(#[from] entresol_structures::Error),
    /// Error of the pool.
    #[error(transparent)]
    Memory(#[from] entresol_memory::Error),
}

impl Error {
    /// Returns true if the transaction wrote what another one has written since, and may be repeated.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(
            self,
            Error::Transactions(entresol_transactions::Error::Conflict { .. }) | Error::TableChanged { .. }
        )
    }

    /// Returns true if the memory budget has no room: fewer rows may have.
    pub(crate) fn is_memory_limit(&self) -> bool {
        use entresol_memory::Error as MemoryError;
        match self {
            Error::Memory(error) | Error::Transactions(entresol_transactions::Error::Memory(error)) => {
                matches!(error, MemoryError::MemoryLimit(_))
            }
            _ => false,
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Corrupt { what: what.into(), reason: reason.into() }
    }
}
