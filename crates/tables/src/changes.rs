//! Changes of a table, in the order of commits, from its change log.
//!
//! A table logs its changes if it is asked to ([`TableDefinition::changes`](crate::TableDefinition)): each
//! commit's inserted, updated and deleted rows, with the rows before, for the retention. The log is a state of
//! the table's group ([`entresol_transactions::ChangeLog`]) and belongs to the table as its indexes do.
//!
//! Rows are read through the present definition of the table: values in dropped columns are invisible, and
//! added columns have the value that all rows had then.
//!
//! The changes of an open transaction are read from its write set ([`Table::open_changes`]), as its commit will log them.

use crate::batch::arrow_schema;
use crate::batch::builder::ColumnBuilder;
use crate::error::{Error, Result};
use crate::schema::Column;
use crate::table::Table;
use crate::table::row_view::RowView;
use crate::value::{DataType, Value};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use entresol_transactions::{ChangeLog, LogPosition, LoggedChange, Timestamp, Transaction};
use std::sync::Arc;

/// Column of a batch of changes: [`ChangeKind::name`].
pub const CHANGE_TYPE: &str = "change_type";
/// Column of a batch of changes: timestamp of the commit.
pub const COMMIT_CTS: &str = "commit_cts";
/// Prefix of the columns of a batch of changes that have the row before.
pub const OLD_PREFIX: &str = "old_";

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The row is new.
    Insert,
    /// There was a row with its key.
    Update,
    /// The row is gone.
    Delete,
}

impl ChangeKind {
    /// Kind of a change, by what is there before and behind it.
    fn of(was_there: bool, is_there: bool) -> ChangeKind {
        match (was_there, is_there) {
            (false, _) => ChangeKind::Insert,
            (true, true) => ChangeKind::Update,
            (true, false) => ChangeKind::Delete,
        }
    }

    /// Name of the kind: `insert`, `update`, `delete`.
    pub fn name(self) -> &'static str {
        match self {
            ChangeKind::Insert => "insert",
            ChangeKind::Update => "update",
            ChangeKind::Delete => "delete",
        }
    }
}

/// Changed row.
#[derive(Clone, Copy)]
pub struct RowChange<'a> {
    /// Timestamp of the commit.
    pub cts: Timestamp,
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Row before; none of an insert.
    pub old: Option<RowView<'a>>,
    /// Row after; none of a delete.
    pub new: Option<RowView<'a>>,
}

/// Columns of batches of changes of a table: its visible columns, which of a deleted row have the row before;
/// the same with the prefix [`OLD_PREFIX`], NULL in an insert; [`CHANGE_TYPE`], [`COMMIT_CTS`].
pub fn change_columns(columns: &[Column]) -> Vec<Column> {
    let old = columns.iter().map(|column| {
        let old = Column::new(format!("{OLD_PREFIX}{}", column.name), column.data_type);
        // JSON is shown as such; limits were those of the row.
        if column.modifier.is_json() { old.with_modifier(column.modifier) } else { old }
    });
    let kind = Column::new(CHANGE_TYPE, DataType::Varchar).not_null();
    let cts = Column::new(COMMIT_CTS, DataType::BigInt).not_null();
    columns.iter().cloned().chain(old).chain([kind, cts]).collect()
}

/// Columns of the changes of an open transaction: those of [`change_columns`], of which [`COMMIT_CTS`] is NULL, as there is no
/// commit yet.
pub fn open_change_columns(columns: &[Column]) -> Vec<Column> {
    let mut columns = change_columns(columns);
    columns.last_mut().into_iter().for_each(|cts| cts.nullable = true);
    columns
}

/// Builder of batches of changes; see [`change_columns`].
pub struct ChangeBatchBuilder {
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    /// Visible columns of the table.
    visible: usize,
    rows: usize,
}

impl ChangeBatchBuilder {
    /// Builder for the changes of a table; `zone` is the time zone in which TIMESTAMPTZ is shown.
    pub fn new(table: &Table, zone: &str) -> ChangeBatchBuilder {
        let visible = table.schema().visible_columns();
        ChangeBatchBuilder::of_columns(&change_columns(visible), visible.len(), zone)
    }

    /// Builder for so many columns of a row, and those of its change.
    fn of_columns(columns: &[Column], visible: usize, zone: &str) -> ChangeBatchBuilder {
        let schema = arrow_schema(columns, zone);
        let fields = columns.iter().zip(schema.fields());
        let builders =
            fields.map(|(column, field)| ColumnBuilder::new(column.data_type, field.data_type(), 0));
        ChangeBatchBuilder { builders: builders.collect(), visible, schema, rows: 0 }
    }

    /// Schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of rows since the last batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a change.
    pub fn push(&mut self, change: &RowChange<'_>) {
        self.push_rows(change.old, change.new, Some(change.cts));
    }

    /// Adds a change by its rows; none if there is neither.
    fn push_rows(&mut self, old: Option<RowView<'_>>, new: Option<RowView<'_>>, cts: Option<Timestamp>) {
        let Some(shown) = new.or(old) else { return };
        let (row, rest) = self.builders.split_at_mut(self.visible);
        for (column, builder) in row.iter_mut().enumerate() {
            builder.push(&shown.value(column));
        }
        let (before, kind_and_cts) = rest.split_at_mut(self.visible);
        for (column, builder) in before.iter_mut().enumerate() {
            match &old {
                Some(row) => builder.push(&row.value(column)),
                None => builder.push_null(),
            }
        }
        if let [kind_builder, cts_builder] = kind_and_cts {
            kind_builder.push_text(ChangeKind::of(old.is_some(), new.is_some()).name());
            cts_builder.push(&cts.map_or(Value::Null, |cts| Value::BigInt(cts.bigint())));
        }
        self.rows += 1;
    }

    /// Batch of the changes since the last one.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.rows = 0;
        let arrays = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
            .map_err(|error| Error::corrupt("changes", error.to_string()))
    }
}

impl Table {
    /// Log of its changes; none if it was not asked to log them. `Corrupt` if the log is damaged.
    pub fn change_log(&self) -> Result<Option<Arc<ChangeLog>>> {
        match (self.definition().changes, self.state().change_log()) {
            (None, _) => Ok(None),
            (Some(_), Some(log)) => Ok(Some(log)),
            (Some(_), None) => {
                Err(Error::corrupt(format!("change log of table {}", self.name()), "it could not be opened"))
            }
        }
    }

    /// Position behind which the changes of the log are there, for a transaction.
    pub fn changes_begin(&self, tx: &Transaction) -> Result<LogPosition> {
        let log = self.change_log()?.ok_or_else(|| Error::NoChangeLog { table: self.name().to_owned() })?;
        Ok(LogPosition::after(log.horizon(tx)?))
    }

    /// Calls `f` with the logged changes behind a position, of commits not later than `up_to`, in the order
    /// of commits, and with the position behind each, until it returns false. Returns the position that was
    /// reached. Errors: [`Error::NoChangeLog`]; a snapshot that is too old if changes behind the position are
    /// gone.
    pub fn logged_changes(
        &self,
        tx: &Transaction,
        from: LogPosition,
        up_to: Timestamp,
        mut f: impl FnMut(RowChange<'_>, LogPosition) -> bool,
    ) -> Result<LogPosition> {
        let log = self.change_log()?.ok_or_else(|| Error::NoChangeLog { table: self.name().to_owned() })?;
        self.check_readable(tx)?;
        let mut corrupt = None;
        let position = log.read(tx, from, up_to, |change, position| match self.row_change(&change) {
            Ok(change) => f(change, position),
            Err(error) => {
                corrupt = Some(error);
                false
            }
        })?;
        corrupt.map_or(Ok(position), Err)
    }

    fn row_change<'a>(&'a self, change: &LoggedChange<'a>) -> Result<RowChange<'a>> {
        let view = |value: Option<&'a [u8]>| {
            value.map(|value| RowView::new(self.name(), self.schema(), change.key, value)).transpose()
        };
        let (old, new) = (view(change.old)?, view(change.new)?);
        let kind = ChangeKind::of(old.is_some(), new.is_some());
        Ok(RowChange { cts: change.cts, kind, old, new })
    }

    /// Changes in a transaction's write set: one of each key, from the row before the transaction to the one that is there
    /// now, in the order of keys, as its commit logs them. They have the first `width` visible columns of the table, and
    /// otherwise those of [`open_change_columns`]. A key that was not there, and is not, has none.
    pub fn open_changes(&self, tx: &Transaction, width: usize) -> Result<RecordBatch> {
        let columns = open_change_columns(&self.schema().visible_columns()[..width]);
        let mut builder = ChangeBatchBuilder::of_columns(&columns, width, "UTC");
        self.for_each_change(tx, |old, new| builder.push_rows(old, new, None))?;
        builder.finish()
    }
}
