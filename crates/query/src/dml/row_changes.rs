//! Rows of an UPDATE or DELETE of one table: from the batches of its query to the changes of the table.
//!
//! ```text
//!   keys and old values, new values ─▶ types, NOT NULL, checks ─▶ RETURNING ─▶ changes
//! ```
//!
//! Memory: one batch, beside what [`TableChanges`] and RETURNING collect.

use crate::dml::assignment;
use crate::dml::changes::TableChanges;
use crate::dml::returning::{Returning, outcome};
use crate::dml::source::ChangeSource;
use crate::dml::writer::TableWriter;
use crate::error::Result;
use crate::postgres::types::visible_schema;
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Changes of the rows that the query of an UPDATE or DELETE computes; see the [module](self).
pub(crate) struct RowChanges {
    changes: TableChanges,
    /// Writer of new rows; none for DELETE.
    writer: Option<TableWriter>,
    returning: Option<Returning>,
    /// Columns of the query that are the key, in its order.
    key: Vec<usize>,
    /// Columns of the query that are the visible columns of the row as RETURNING sees it. A DELETE without RETURNING
    /// has none.
    row: Vec<usize>,
    visible: SchemaRef,
    /// Number of changed rows.
    rows: u64,
}

impl RowChanges {
    /// No changes yet of a statement with this source.
    pub(crate) fn new(
        session: &SessionCore,
        source: &ChangeSource,
        returning: Option<Returning>,
    ) -> Result<RowChanges> {
        let ChangeSource { table, old, assigned, .. } = source;
        let of_old = |column: usize| old.iter().position(|&old| old == column);
        let of_new = |column: usize| assigned.iter().position(|&new| new == column);
        let key = table.schema().key().iter();
        let key = key.map(|&column| of_old(column).expect("the query reads the key")).collect();
        let columns = 0..table.schema().visible_columns().len();
        let row =
            columns.clone().map(|column| of_new(column).map(|at| old.len() + at).or_else(|| of_old(column)));
        let row = row.collect::<Option<Vec<usize>>>().unwrap_or_default();
        let writer = if assigned.is_empty() {
            None
        } else {
            let all: Vec<usize> = columns.collect();
            assert_eq!(row.len(), all.len(), "the query of an UPDATE has all columns");
            Some(TableWriter::new(session, table, &all)?.returned(returning.is_some()))
        };
        Ok(RowChanges {
            changes: TableChanges::new(session, table, assigned.iter().copied()),
            writer,
            returning,
            key,
            row,
            visible: visible_schema(table.schema(), session.zone.name()),
            rows: 0,
        })
    }

    /// Adds the rows of a batch of the query.
    pub(crate) async fn add(&mut self, session: &SessionCore, batch: &RecordBatch) -> Result<()> {
        let columns = |places: &[usize]| -> Vec<ArrayRef> {
            places.iter().map(|&at| Arc::clone(batch.column(at))).collect()
        };
        let keys = columns(&self.key);
        match &self.writer {
            Some(writer) => {
                let new = writer.checked(session, &columns(&self.row), batch.num_rows())?;
                if let Some(returning) = &mut self.returning {
                    returning.add_batch(session, &new).await?;
                }
                self.changes.update(keys, &new)?;
            }
            None => {
                if self.returning.is_some() {
                    let stored = self.stored(session, columns(&self.row))?;
                    if let Some(returning) = &mut self.returning {
                        returning.add_batch(session, &stored).await?;
                    }
                }
                self.changes.delete(keys)?;
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Batch of stored rows.
    fn stored(&self, session: &SessionCore, values: Vec<ArrayRef>) -> Result<RecordBatch> {
        let table = self.changes.table();
        let columns = table.schema().visible_columns().iter().zip(&values);
        let arrays =
            columns.map(|(column, array)| assignment::array(table.name(), column, array, &session.zone));
        Ok(RecordBatch::try_new(Arc::clone(&self.visible), arrays.collect::<Result<Vec<_>>>()?)?)
    }

    /// Writes all changes; returns the result of the statement.
    pub(crate) fn write(self, tx: &Transaction) -> Result<Outcome> {
        self.changes.write(tx)?;
        let verb = if self.writer.is_some() { "UPDATE" } else { "DELETE" };
        Ok(outcome(verb, self.rows, self.returning))
    }
}
