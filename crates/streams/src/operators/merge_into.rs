//! MERGE into a table: changes rows by expressions over a tuple and the row with its key.
//!
//! - Tuples take effect one after another: a batch is divided into rounds in which no key occurs twice, so a tuple
//!   sees what those before it have written. Most batches are one round.
//! - Rows are looked up together, through the topology's transaction, which sees its own writes. A NULL in the key
//!   matches no row.
//! - The action of each tuple says whether its row is written or deleted; the values are those of the row.
//! - Stateless between batches.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::expression::{Expression, evaluate};
use crate::operators::group_index::GroupIndex;
use crate::operators::lookup_join::LookupJoin;
use crate::operators::to_table::ToTableOperator;
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;

/// Changes of a table by expressions; see [`crate::Stream::merge_into`].
pub struct MergeInto {
    /// Name of the table, which has a key.
    pub table: String,
    /// Columns of the stream with the key, in the order of the table's key.
    pub on: Vec<String>,
    /// INT expression: [`MergeInto::NOTHING`], [`MergeInto::WRITE`] or [`MergeInto::DELETE`]; NULL is nothing.
    pub action: Box<dyn Expression>,
    /// Values of the row for each visible column of the table; to delete a row, those of its key.
    pub values: Vec<Box<dyn Expression>>,
}

impl MergeInto {
    /// Action that changes nothing.
    pub const NOTHING: i32 = 0;
    /// Action that writes the row, whether or not there is one.
    pub const WRITE: i32 = 1;
    /// Action that deletes the row.
    pub const DELETE: i32 = 2;
}

pub(crate) struct MergeIntoOperator {
    pub(crate) name: String,
    /// Looks up the rows with the keys of tuples.
    pub(crate) lookup: LookupJoin,
    pub(crate) action: Box<dyn Expression>,
    pub(crate) values: Vec<Box<dyn Expression>>,
    /// Columns of the rows.
    pub(crate) schema: SchemaRef,
    pub(crate) write: ToTableOperator,
}

impl MergeIntoOperator {
    fn refused(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Parts of a batch in which no key occurs twice, in the order of the tuples with one key.
    fn rounds(&self, rows: &RecordBatch) -> Result<Vec<RecordBatch>, ArrowError> {
        let keys = rows.project(&self.lookup.on)?;
        let types: Vec<DataType> = keys.columns().iter().map(|key| key.data_type().clone()).collect();
        let (mut index, mut numbers) = (GroupIndex::new(&types, rows.num_rows())?, Vec::new());
        index.number(keys.columns(), &mut numbers)?;
        if index.len() == rows.num_rows() {
            return Ok(vec![rows.clone()]);
        }
        let mut times = vec![0_usize; index.len()];
        let mut rounds: Vec<Vec<u32>> = Vec::new();
        for (row, number) in numbers.iter().enumerate() {
            let round = &mut times[*number as usize];
            if *round == rounds.len() {
                rounds.push(Vec::new());
            }
            rounds[*round].push(row as u32);
            *round += 1;
        }
        rounds.into_iter().map(|rows_of| take_record_batch(rows, &UInt32Array::from(rows_of))).collect()
    }

    fn merge(&mut self, context: &Context<'_>, rows: RecordBatch, output: &mut Output) -> Result<()> {
        let mut joined = Output::default();
        self.lookup.batch(context, &rows.into(), &mut joined)?;
        for batch in joined.batches {
            let rows = batch.rows();
            let actions = evaluate(&self.name, &mut *self.action, rows)?;
            let Some(actions) = actions.as_primitive_opt::<Int32Type>() else {
                let reason = format!("actions of type {}", actions.data_type());
                return Err(Error::Tuple { operator: self.name.clone(), reason });
            };
            let is_change = |action: Option<i32>| action.is_some_and(|action| action != MergeInto::NOTHING);
            let changes: BooleanArray = actions.iter().map(|action| Some(is_change(action))).collect();
            let deletes = actions.iter().filter(|action| is_change(*action));
            let deletes: Vec<bool> = deletes.map(|action| action == Some(MergeInto::DELETE)).collect();
            if deletes.is_empty() {
                continue;
            }
            // Values are computed where there is a change: others may have none, as 1 / 0.
            let rows = filter_record_batch(rows, &changes).map_err(|error| self.refused(&error))?;
            let values = self.values.iter_mut().map(|value| evaluate(&self.name, &mut **value, &rows));
            let values = values.collect::<Result<Vec<_>>>()?;
            let rows = RecordBatch::try_new(self.schema.clone(), values);
            let rows = rows.map_err(|error| self.refused(&error))?;
            self.write.write_changes(context, rows, deletes, output)?;
        }
        Ok(())
    }
}

impl Operator for MergeIntoOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn takes_each_tuple_alone(&self) -> bool {
        true
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let rounds = self.rounds(batch.rows()).map_err(|error| self.refused(&error))?;
        rounds.into_iter().try_for_each(|rows| self.merge(context, rows, output))
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        self.write.commit(context, output)
    }

    fn redefined(&mut self) -> Result<()> {
        // Its expressions have the columns of the table that they were made for.
        current_of(&self.name, &self.write.table, |old, new| old == new)?;
        self.lookup.redefined()?;
        self.write.redefined()
    }
}
