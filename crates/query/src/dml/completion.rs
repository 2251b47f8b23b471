//! Completion of new rows: from values of some columns to rows of a table.
//!
//! ```text
//!   given values ─▶ defaults of the others ─▶ texts as stored ─▶ NOT NULL ─▶ checks
//! ```
//!
//! Statements complete rows by [`crate::dml::writer`], topologies by `streaming::target_rules`. A stage that the table does
//! not have costs nothing.

use crate::dml::checks::Checks;
use crate::dml::defaults::Defaults;
use crate::error::Result;
use crate::postgres::time_zones::Zone;
use crate::postgres::types::visible_schema;
use datafusion::arrow::array::{Array, ArrayRef, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::execution::context::SessionState;
use entresol_tables::{Row, Table, fitted_texts};
use std::sync::Arc;

/// Completion of rows of a table for which some columns have values; see the [module](self).
pub(crate) struct RowCompletion {
    table: Arc<Table>,
    /// Columns that have values; others have their defaults.
    given: Vec<usize>,
    /// Schema of a batch of the visible columns.
    schema: SchemaRef,
    /// None for a plain table.
    rules: Option<Rules>,
    /// True if checks or clauses see rows before the table does, as their columns store them.
    fits: bool,
}

/// Rules of a table for new rows.
struct Rules {
    defaults: Defaults,
    checks: Checks,
}

impl RowCompletion {
    /// Completion of rows with values of these columns. The state is that of a planner in the zone.
    pub(crate) fn new(
        state: impl FnOnce() -> SessionState,
        zone: &Zone,
        table: &Arc<Table>,
        given: &[usize],
    ) -> Result<RowCompletion> {
        let schema = visible_schema(table.schema(), zone.name());
        let rules = if table.is_plain() {
            None
        } else {
            let state = state();
            let defaults = Defaults::new(state.clone(), table, given)?;
            Some(Rules { defaults, checks: Checks::new(state, table)? })
        };
        let (table, given, fits) = (Arc::clone(table), given.to_vec(), rules.is_some());
        Ok(RowCompletion { table, given, schema, rules, fits })
    }

    /// The same completion of rows that clauses of a statement see, if they do.
    pub(crate) fn seen(self, is_seen: bool) -> RowCompletion {
        RowCompletion { fits: self.fits || is_seen, ..self }
    }

    /// Table of the rows.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Columns that have values.
    pub(crate) fn given(&self) -> &[usize] {
        &self.given
    }

    /// Returns true if a default or a check depends on the time, or on anything else that is fixed for a statement.
    pub(crate) fn is_of_statement(&self) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|rules| rules.defaults.is_of_statement() || rules.checks.is_of_statement())
    }

    /// Fills the defaults into rows.
    pub(crate) fn fill_defaults(&self, rows: &mut [Row]) -> Result<()> {
        self.rules.as_ref().map_or(Ok(()), |rules| rules.defaults.fill(rows))
    }

    /// Checks complete rows.
    pub(crate) fn check(&self, rows: &[Row]) -> Result<()> {
        self.rules.as_ref().map_or(Ok(()), |rules| rules.checks.check(rows))
    }

    /// Checks a complete batch.
    pub(crate) fn check_batch(&self, batch: &RecordBatch) -> Result<()> {
        self.rules.as_ref().map_or(Ok(()), |rules| rules.checks.check_batch(batch))
    }

    /// Batch of the visible columns from arrays of the given ones, of exactly their types: with the defaults
    /// of the others, strings as their columns store them if something sees them, and after a check of NOT
    /// NULL.
    pub(crate) fn completed(&self, given: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        let defaults = self.rules.as_ref().map_or(Ok(Vec::new()), |rules| rules.defaults.arrays(rows))?;
        for (column, array) in defaults.into_iter().chain(self.given.iter().copied().zip(given)) {
            arrays[column] = Some(array);
        }
        let columns = self.table.schema().visible_columns();
        let fields = self.schema.fields().iter().zip(columns).zip(arrays);
        let arrays = fields.map(|((field, column), array)| {
            let array = array.unwrap_or_else(|| new_null_array(field.data_type(), rows));
            // The table does it too, but later.
            let array = if self.fits && column.modifier.constrains_text() {
                fitted_texts(self.table.name(), column, &array)?.unwrap_or(array)
            } else {
                array
            };
            if !field.is_nullable() && array.null_count() > 0 {
                let (table, column) = (self.table.name().to_owned(), field.name().clone());
                return Err(entresol_tables::Error::NotNull { table, column }.into());
            }
            Ok(array)
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }

    /// Same as [`RowCompletion::completed`], and checked.
    pub(crate) fn checked(&self, given: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let complete = self.completed(given, rows)?;
        self.check_batch(&complete)?;
        Ok(complete)
    }
}
