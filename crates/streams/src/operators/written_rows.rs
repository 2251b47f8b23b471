//! Rows that TO_TABLE has written, as TO_STREAM reads them.
//!
//! - As rows: those that are written. Nothing is looked up.
//! - As changes: also those that are deleted, each with the row before it, as the transaction sees it then, its own changes
//!   included. So all keys of a batch are looked up before it is written; if a key is in the batch several times, each of
//!   its rows is the row before of the next.
//! - A key that is deleted and not there is no change.
//! - Memory: the rows before of one batch. Stateless between batches.

use crate::UTC;
use crate::error::{Error, Result};
use crate::operators::Context;
use crate::operators::group_index::GroupIndex;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array, new_null_array};
use arrow_schema::{ArrowError, Field, Schema as ArrowSchema};
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave;
use arrow_select::take::take_record_batch;
use entresol_tables::{CHANGE_TYPE, ChangeKind, OLD_PREFIX, StoredRows, Table, arrow_schema, rows_of};
use std::sync::Arc;

/// Form in which TO_TABLE sends what it has written to the TO_STREAMs of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentForm {
    /// No TO_STREAM reads each tuple.
    Nothing,
    /// The visible columns of the rows that are written.
    Rows,
    /// Changes: the visible columns of the table, those of the row before, and the change type.
    Changes,
}

/// Place of the row that a key has: in the batch, in the table, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowPlace {
    Written(usize),
    Stored(usize),
    Missing,
}

impl RowPlace {
    /// Source and row for [`interleave`].
    fn of_source(self) -> (usize, usize) {
        match self {
            RowPlace::Written(row) => (0, row),
            RowPlace::Stored(row) => (1, row),
            RowPlace::Missing => (2, 0),
        }
    }
}

/// Rows with the keys of a batch before it is written.
pub(crate) struct RowsBefore {
    /// Place of the key of each row of the batch among the different ones.
    keys: Vec<u32>,
    /// Row of each key.
    places: Vec<RowPlace>,
    stored: RecordBatch,
}

/// Visible columns of the rows that are written, without those that are marked as deleted; no mark is none.
pub(crate) fn written(
    table: &Table,
    rows: &RecordBatch,
    deletes: &[bool],
) -> std::result::Result<RecordBatch, ArrowError> {
    let visible: Vec<usize> = (0..table.schema().visible_columns().len()).collect();
    let rows = rows.project(&visible)?;
    if deletes.is_empty() {
        return Ok(rows);
    }
    let is_written: BooleanArray = deletes.iter().map(|is_deleted| Some(!is_deleted)).collect();
    filter_record_batch(&rows, &is_written)
}

/// Numbers of the keys of a batch, which are these columns, and a batch of each different one.
pub(crate) fn numbered_keys(
    rows: &RecordBatch,
    columns: &[usize],
) -> std::result::Result<(Vec<u32>, RecordBatch), ArrowError> {
    let keys = rows.project(columns)?;
    let types: Vec<_> = keys.columns().iter().map(|key| key.data_type().clone()).collect();
    let (mut index, mut numbers) = (GroupIndex::new(&types, rows.num_rows())?, Vec::new());
    index.number(keys.columns(), &mut numbers)?;
    let mut first = Vec::with_capacity(index.len());
    for (row, key) in numbers.iter().enumerate() {
        if *key as usize == first.len() {
            first.push(row as u32);
        }
    }
    let distinct = take_record_batch(&keys, &UInt32Array::from(first))?;
    Ok((numbers, distinct))
}

impl RowsBefore {
    /// Reads the rows with the keys of a batch that is about to be written; nothing is read where all rows are new.
    pub(crate) fn read(
        context: &Context<'_>,
        (operator, table): (&str, &Table),
        rows: &RecordBatch,
        are_new: bool,
    ) -> Result<RowsBefore> {
        let refused =
            |error: ArrowError| Error::Tuple { operator: operator.to_owned(), reason: error.to_string() };
        let (keys, distinct) = numbered_keys(rows, table.schema().key()).map_err(refused)?;
        let schema = table.schema();
        let visible: Vec<usize> = (0..schema.visible_columns().len()).collect();
        let arrow = arrow_schema(schema.visible_columns(), UTC);
        let mut stored = StoredRows::new(table.name(), schema, &visible, arrow, distinct.num_rows());
        let mut places = vec![RowPlace::Missing; distinct.num_rows()];
        if !are_new {
            table.get_many_with(context.transaction()?, &rows_of(&distinct)?, |at, row| {
                places[at] = RowPlace::Stored(stored.len());
                stored.push_view(&row);
            })?;
        }
        Ok(RowsBefore { keys, places, stored: stored.finish()? })
    }

    /// Changes that a batch has made, of whose rows some are marked as deleted; no mark is none.
    pub(crate) fn changes(
        mut self,
        rows: &RecordBatch,
        deletes: &[bool],
    ) -> std::result::Result<RecordBatch, ArrowError> {
        let (mut shown, mut before) =
            (Vec::with_capacity(self.keys.len()), Vec::with_capacity(self.keys.len()));
        let mut kinds = Vec::with_capacity(self.keys.len());
        for (row, key) in self.keys.iter().enumerate() {
            let place = &mut self.places[*key as usize];
            let old = *place;
            *place = if deletes.get(row) == Some(&true) { RowPlace::Missing } else { RowPlace::Written(row) };
            let kind = match (old, *place) {
                (RowPlace::Missing, RowPlace::Missing) => continue,
                (RowPlace::Missing, _) => ChangeKind::Insert,
                (_, RowPlace::Missing) => ChangeKind::Delete,
                _ => ChangeKind::Update,
            };
            let new = if kind == ChangeKind::Delete { old } else { *place };
            shown.push(new.of_source());
            before.push(old.of_source());
            kinds.push(kind.name());
        }
        let visible = self.stored.num_columns();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(2 * visible + 1);
        for places in [&shown, &before] {
            for (written, stored) in rows.columns().iter().zip(self.stored.columns()) {
                let missing = new_null_array(stored.data_type(), 1);
                columns.push(interleave(&[&**written, &**stored, &*missing], places)?);
            }
        }
        columns.push(Arc::new(StringArray::from(kinds)));
        let stored = self.stored.schema();
        let mut fields: Vec<Field> = Vec::with_capacity(columns.len());
        for prefix in ["", OLD_PREFIX] {
            let named = |field: &Arc<Field>| {
                let name = format!("{prefix}{}", field.name());
                Field::new(name, field.data_type().clone(), true)
            };
            fields.extend(stored.fields().iter().map(named));
        }
        fields.push(Field::new(CHANGE_TYPE, columns[2 * visible].data_type().clone(), false));
        RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)
    }
}
