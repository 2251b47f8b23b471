//! Lookup join: adds columns of the table row whose key the tuple names.
//!
//! - Reads through the topology's transaction: it sees that transaction's own writes, and its snapshot
//!   otherwise.
//! - All keys of a batch are looked up together (their cache misses overlap).
//! - A NULL in a join column matches nothing. Inner drops tuples without a match, left fills in NULL.
//! - Stateless between batches.

use crate::UTC;
use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::operators::{Context, Operator, Output, current_of, extends};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take;
use entresol_tables::{Column, StoredRows, Table, Value, arrow_schema, rows_of};
use std::sync::Arc;

/// Treatment of tuples without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// They are dropped.
    Inner,
    /// The table's columns are NULL.
    Left,
}

pub(crate) struct LookupJoin {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    /// Indexes of the tuple columns that form the key, in key order.
    pub(crate) on: Vec<usize>,
    /// Table columns to add.
    pub(crate) added: Vec<usize>,
    pub(crate) kind: JoinKind,
    /// True if the number of its tuple is behind the columns of each row.
    pub(crate) is_numbered: bool,
    /// Columns of the output.
    pub(crate) schema: SchemaRef,
}

impl Operator for LookupJoin {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn takes_each_tuple_alone(&self) -> bool {
        true
    }

    fn redefined(&mut self) -> Result<()> {
        self.table = current_of(&self.name, &self.table, extends)?;
        Ok(())
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let (matched, added) = self.look_up(context, batch)?;
        let places: UInt32Array = match self.kind {
            JoinKind::Left => (0..batch.len() as u32).collect(),
            JoinKind::Inner => matched.iter().map(|(place, _)| *place).collect(),
        };
        // Index of the added values of each tuple of the output.
        let found: UInt32Array = match self.kind {
            JoinKind::Inner => matched.iter().map(|(_, row)| Some(*row)).collect(),
            JoinKind::Left => {
                let mut found = vec![None; batch.len()];
                matched.iter().for_each(|(place, row)| found[*place as usize] = Some(*row));
                found.into_iter().collect()
            }
        };
        let left = batch.rows().columns().iter().map(|column| take(column, &places, None));
        let right = added.columns().iter().map(|column| take(column, &found, None));
        let numbers = self.is_numbered.then(|| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(places.values().iter().map(|place| i64::from(*place))))
        });
        let columns = left.chain(right).chain(numbers.map(Ok)).collect::<Result<Vec<_>, _>>();
        let joined = columns.and_then(|columns| {
            let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
        });
        let refused =
            |error: ArrowError| Error::Tuple { operator: self.name.clone(), reason: error.to_string() };
        output.push(joined.map_err(refused)?.into());
        Ok(())
    }
}

impl LookupJoin {
    /// Rows of the table for a batch: per tuple with a match, in order, its place and that of its values.
    fn look_up(&self, context: &Context<'_>, batch: &Batch) -> Result<(Vec<(u32, u32)>, RecordBatch)> {
        let key_columns = batch.rows().project(&self.on);
        let refused =
            |error: ArrowError| Error::Tuple { operator: self.name.clone(), reason: error.to_string() };
        let mut keys: Vec<Tuple> = rows_of(&key_columns.map_err(refused)?)?;
        let mut places: Vec<u32> = (0..keys.len() as u32).collect();
        if keys.iter().any(|key| key.iter().any(Value::is_null)) {
            let is_whole = |place: &u32| !keys[*place as usize].iter().any(Value::is_null);
            places.retain(is_whole);
            keys.retain(|key| !key.iter().any(Value::is_null));
        }
        let schema = self.table.schema();
        let columns: Vec<Column> =
            self.added.iter().map(|&column| schema.columns()[column].clone()).collect();
        let arrow = arrow_schema(&columns, UTC);
        let mut rows = StoredRows::new(self.table.name(), schema, &self.added, arrow, keys.len());
        let mut matched = Vec::with_capacity(keys.len());
        self.table.get_many_with(context.transaction()?, &keys, |at, row| {
            matched.push((places[at], rows.len() as u32));
            rows.push_view(&row);
        })?;
        matched.sort_unstable();
        Ok((matched, rows.finish()?))
    }
}
