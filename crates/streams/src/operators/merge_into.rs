//! MERGE into a table: changes rows by expressions over a tuple and the row with its key.
//!
//! - Tuples take effect one after another: a batch is divided into rounds in which no key occurs twice, so a tuple
//!   sees what those before it have written. Most batches are one round.
//! - Rows are looked up together, through the topology's transaction, which sees its own writes. A NULL in the key
//!   matches no row.
//! - The action of each tuple says whether its row is written or deleted; the values are those of the row.
//! - Of tuples that are taken back each key has at most one at a time; the table is at each commit what those that are there
//!   make of it ([`super::merged_rows`]).
//! - Stateless between batches.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::expression::{Expression, evaluate};
use crate::operators::group_index::GroupIndex;
use crate::operators::lookup_join::LookupJoin;
use crate::operators::merged_rows::{FoundRow, MergedRows, visible_rows};
use crate::operators::row_rules::RowRules;
use crate::operators::to_table::ToTableOperator;
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take_record_batch;
use entresol_tables::{BatchBuilder, Column, Row, Value, rows_of};
use std::collections::{BTreeMap, HashMap};

/// Changes of a table by expressions; see [`crate::Stream::merge_into`].
pub struct MergeInto {
    /// Name of the table, which has a key.
    pub table: String,
    /// Columns of the stream with the key, in the order of the table's key.
    pub on: Vec<String>,
    /// INT expression: [`MergeInto::NOTHING`], [`MergeInto::WRITE`], [`MergeInto::DELETE`], or [`MergeInto::INSERT`] and the
    /// number of a list of columns; NULL is nothing.
    pub action: Box<dyn Expression>,
    /// Table of the rows as they were before, which only this operator may write: of a stream whose tuples are taken back,
    /// which has each key at most once at a time.
    pub state_table: Option<String>,
    /// Values of the row for each visible column of the table; to delete a row, those of its key.
    pub values: Vec<Box<dyn Expression>>,
    /// Lists of columns that have values in rows that are inserted; others have their defaults.
    pub inserts: Vec<Vec<usize>>,
    /// Rules of the table, which it must have if it has defaults or checks.
    pub rules: Option<Box<dyn RowRules>>,
}

impl MergeInto {
    /// Action that changes nothing.
    pub const NOTHING: i32 = 0;
    /// Action that writes the row, whether or not there is one.
    pub const WRITE: i32 = 1;
    /// Action that deletes the row.
    pub const DELETE: i32 = 2;
    /// Action that writes a new row, with values for the first list of columns; the next action is of the next list.
    pub const INSERT: i32 = 3;
}

pub(crate) struct MergeIntoOperator {
    pub(crate) name: String,
    /// Looks up the rows with the keys of tuples.
    pub(crate) lookup: LookupJoin,
    pub(crate) action: Box<dyn Expression>,
    pub(crate) values: Vec<Box<dyn Expression>>,
    pub(crate) inserts: Vec<Vec<usize>>,
    /// Columns of the rows.
    pub(crate) schema: SchemaRef,
    pub(crate) write: ToTableOperator,
    /// Rows as they were before, if tuples are taken back.
    pub(crate) merged: Option<MergedRows>,
}

/// Changes of a batch of tuples, each joined with its row.
struct Changes {
    /// Action of each tuple.
    actions: Vec<i32>,
    /// Values of the tuples that change something.
    values: RecordBatch,
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
            let Changes { actions, values } = self.changes(batch.rows())?;
            let changing = actions.into_iter().filter(|action| *action != MergeInto::NOTHING);
            let deletes: Vec<bool> = changing.map(|action| action == MergeInto::DELETE).collect();
            if !deletes.is_empty() {
                self.write.write_changes(context, values, deletes, output)?;
            }
        }
        Ok(())
    }

    /// Changes that joined rows make.
    fn changes(&mut self, rows: &RecordBatch) -> Result<Changes> {
        let actions = evaluate(&self.name, &mut *self.action, rows)?;
        let Some(actions) = actions.as_primitive_opt::<Int32Type>() else {
            let reason = format!("actions of type {}", actions.data_type());
            return Err(Error::Tuple { operator: self.name.clone(), reason });
        };
        let actions: Vec<i32> = actions.iter().map(|action| action.unwrap_or(MergeInto::NOTHING)).collect();
        let is_change: BooleanArray =
            actions.iter().map(|action| Some(*action != MergeInto::NOTHING)).collect();
        if is_change.true_count() == 0 {
            return Ok(Changes { actions, values: RecordBatch::new_empty(self.schema.clone()) });
        }
        // Values are computed where there is a change: others may have none, as 1 / 0.
        let rows = filter_record_batch(rows, &is_change).map_err(|error| self.refused(&error))?;
        let values = self.values.iter_mut().map(|value| evaluate(&self.name, &mut **value, &rows));
        let values = values.collect::<Result<Vec<_>>>()?;
        let values = RecordBatch::try_new(self.schema.clone(), values);
        let values = self.completed(&actions, values.map_err(|error| self.refused(&error))?)?;
        Ok(Changes { actions, values })
    }

    /// Rows of the actions that change something, complete and checked where they are written.
    fn completed(&mut self, actions: &[i32], values: RecordBatch) -> Result<RecordBatch> {
        if !self.write.has_rules() {
            return Ok(values);
        }
        let mut rows_of_action: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
        for (row, action) in actions.iter().filter(|action| **action != MergeInto::NOTHING).enumerate() {
            rows_of_action.entry(*action).or_default().push(row as u32);
        }
        let mut places = vec![(0, 0); values.num_rows()];
        let mut parts = Vec::with_capacity(rows_of_action.len());
        for (action, rows) in rows_of_action {
            rows.iter().enumerate().for_each(|(at, row)| places[*row as usize] = (parts.len(), at));
            let part = take_record_batch(&values, &UInt32Array::from(rows));
            let part = part.map_err(|error| self.refused(&error))?;
            parts.push(if action == MergeInto::DELETE { part } else { self.completed_part(action, part)? });
        }
        let parts: Vec<&RecordBatch> = parts.iter().collect();
        interleave_record_batch(&parts, &places).map_err(|error| self.refused(&error))
    }

    /// Rows of one action that writes them.
    fn completed_part(&mut self, action: i32, rows: RecordBatch) -> Result<RecordBatch> {
        let number = usize::try_from(action - MergeInto::INSERT).ok();
        let given = number.and_then(|number| self.inserts.get(number)).cloned();
        let given = given.unwrap_or_else(|| (0..rows.num_columns()).collect());
        let completed = self.write.completed(&given, rows)?;
        let completed = RecordBatch::try_new(self.schema.clone(), completed.columns().to_vec());
        completed.map_err(|error| self.refused(&error))
    }

    /// Merges changes: each key has the row that the tuple makes which is there now, if any, of the row before.
    fn merge_changes(
        &mut self,
        merged: &MergedRows,
        context: &Context<'_>,
        batch: &Batch,
        output: &mut Output,
    ) -> Result<()> {
        let keys = batch.rows().project(&self.lookup.on).map_err(|error| self.refused(&error))?;
        // Per key, the tuple that is inserted, if there is one.
        let (mut places, mut inserted): (HashMap<Row, usize>, Vec<Option<u32>>) = Default::default();
        let (mut distinct, mut without_key): (Vec<Row>, Vec<u32>) = Default::default();
        for (at, key) in rows_of(&keys)?.into_iter().enumerate() {
            let is_new = batch.retracted().is_none_or(|retracted| !retracted.value(at));
            if key.iter().any(Value::is_null) {
                without_key.extend(is_new.then_some(at as u32));
                continue;
            }
            let place = *places.entry(key).or_insert_with_key(|key| {
                distinct.push(key.clone());
                inserted.push(None);
                distinct.len() - 1
            });
            if is_new {
                inserted[place] = Some(at as u32);
            }
        }
        if !without_key.is_empty() {
            let rows = take_record_batch(batch.rows(), &UInt32Array::from(without_key));
            self.merge(context, rows.map_err(|error| self.refused(&error))?, output)?;
        }
        let tx = context.transaction()?;
        let found = merged.find(tx, &self.write.table, &distinct)?;
        let made = self.made_of(merged, batch.rows(), (&distinct, &inserted, &found))?;
        let all = distinct.iter().cloned().zip(found).zip(made);
        let mut all: Vec<(Row, FoundRow, Option<Row>)> =
            all.map(|((key, found), made)| (key, found, made)).collect();
        self.write_made(merged, context, &all, output)?;
        // What the table has of a row may be another form of it, as a CHAR with its blanks.
        let stored = visible_rows(tx, &self.write.table, &distinct)?;
        all.iter_mut().zip(stored).for_each(|((.., made), stored)| *made = stored);
        merged.store(tx, &all)
    }

    /// Row of each key that its inserted tuple makes of the row before; without one the row before.
    fn made_of(
        &mut self,
        merged: &MergedRows,
        tuples: &RecordBatch,
        (keys, inserted, found): (&[Row], &[Option<u32>], &[FoundRow]),
    ) -> Result<Vec<Option<Row>>> {
        let mut made: Vec<Option<Row>> = found.iter().map(|found| found.before.clone()).collect();
        let places: Vec<usize> = (0..keys.len()).filter(|place| inserted[*place].is_some()).collect();
        if places.is_empty() {
            return Ok(made);
        }
        let visible = self.visible_columns();
        let mut before = BatchBuilder::new(&visible, places.len());
        for &place in &places {
            let nothing = vec![Value::Null; visible.len()];
            let row = found[place].before.as_ref().unwrap_or(&nothing);
            before.push(row).map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        let tuples = take_record_batch(tuples, &inserted.iter().flatten().copied().collect::<UInt32Array>());
        let tuples = tuples.map_err(|error| self.refused(&error))?;
        let columns = tuples.columns().iter().chain(before.finish().columns()).cloned().collect();
        let joined = RecordBatch::try_new(self.lookup.schema.clone(), columns);
        let Changes { actions, values } = self.changes(&joined.map_err(|error| self.refused(&error))?)?;
        let mut values = rows_of(&values)?.into_iter();
        for (place, action) in places.into_iter().zip(actions) {
            let value = if action == MergeInto::NOTHING { None } else { values.next() };
            if action == MergeInto::DELETE {
                made[place] = None;
            } else if let Some(row) = value {
                if merged.key_of(&row) != keys[place] {
                    let reason = "a row that may be taken back inserts one with another key than that of ON";
                    return Err(Error::Tuple { operator: self.name.clone(), reason: reason.to_owned() });
                }
                made[place] = found[place].with_changes_of_others(Some(row));
            }
        }
        Ok(made)
    }

    /// Visible columns of the table, which may all be NULL.
    fn visible_columns(&self) -> Vec<Column> {
        let nullable = |column: &Column| Column { nullable: true, ..column.clone() };
        self.write.table.schema().visible_columns().iter().map(nullable).collect()
    }

    /// Writes the rows that differ from those of the table.
    fn write_made(
        &self,
        merged: &MergedRows,
        context: &Context<'_>,
        all: &[(Row, FoundRow, Option<Row>)],
        output: &mut Output,
    ) -> Result<()> {
        let (mut rows, mut deletes) = (BatchBuilder::new(&self.visible_columns(), all.len()), Vec::new());
        for (key, found, made) in all.iter().filter(|(_, found, made)| found.current != *made) {
            let row = made.clone().unwrap_or_else(|| merged.row_of_key(key));
            deletes.push(made.is_none());
            let added = rows.push(&row);
            added.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
            debug_assert!(
                found.current.is_some() || made.is_some(),
                "a row that is not there is not deleted"
            );
        }
        if deletes.is_empty() {
            return Ok(());
        }
        self.write.write_changes(context, rows.finish(), deletes, output)
    }
}

impl Operator for MergeIntoOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn takes_each_tuple_alone(&self) -> bool {
        self.merged.is_none()
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        if let Some(merged) = self.merged.take() {
            let done = self.merge_changes(&merged, context, batch, output);
            self.merged = Some(merged);
            return done;
        }
        let rounds = self.rounds(batch.rows()).map_err(|error| self.refused(&error))?;
        rounds.into_iter().try_for_each(|rows| self.merge(context, rows, output))
    }

    fn sealed(&mut self) {
        self.write.sealed();
    }

    fn aborted(&mut self) {
        self.write.aborted();
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        if let Some(merged) = &self.merged {
            merged.table.vote_commit(context.transaction()?)?;
        }
        self.write.commit(context, output)
    }

    fn redefined(&mut self) -> Result<()> {
        if let Some(merged) = &mut self.merged {
            merged.table = current_of(&self.name, &merged.table, |old, new| old == new)?;
        }
        // Its expressions have the columns of the table that they were made for.
        current_of(&self.name, &self.write.table, |old, new| old == new)?;
        self.lookup.redefined()?;
        self.write.redefined()
    }
}
