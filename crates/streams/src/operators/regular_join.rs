//! Regular join: pairs of all rows of two streams that have equal keys, while rows of either stream come and are taken
//! back.
//!
//! ```text
//!   left row  ──▶ counted ┐                                                    ┌──▶ results that are gone, taken back
//!                         ├─ by key: rows of both sides ── at the commit ──────┤
//!   right row ──▶ counted ┘    (a state table)             now less before     └──▶ results that are new
//! ```
//!
//! - Rows are kept until they are taken back. What is sent at a commit is the difference of the join of the rows that
//!   are there and that of the rows as of the commit before, as far as it follows from changed rows: for two changed
//!   sides the pairs of changed left rows with all right ones, and of the other left rows with changed right ones.
//! - All that is taken back is sent before all that is new: a result may replace one of another key.
//! - Equal results are sent as often as they are there.
//! - A left join has the rows of the left side that have no partner, with NULLs; they come and go with partners.
//! - A NULL in the key has no partner.
//! - Times play no part: no row is late, and no watermark is sent.
//!
//! State: see [`super::regular_join_state`]. A crash or an abort leaves the rows of the last commit. Memory: the rows
//! of the keys that a transaction changes, and its results; more than [`JOIN_ROWS_MAX`] of these are an error.

use crate::JOIN_ROWS_MAX;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::expression::{Expression, evaluate};
use crate::operators::join_state::{LEFT, RIGHT};
use crate::operators::lookup_join::JoinKind;
use crate::operators::regular_join_rows::SideRow;
use crate::operators::regular_join_state::RegularJoinState;
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take;
use std::sync::Arc;

/// Results that are formed together.
const RESULTS: usize = 8192;

pub(crate) struct RegularJoinOperator {
    pub(crate) name: String,
    pub(crate) kind: JoinKind,
    /// Condition over the columns of both sides.
    pub(crate) condition: Option<Box<dyn Expression>>,
    pub(crate) state: RegularJoinState,
    /// Columns of the output: those of the left and then of the right side.
    pub(crate) schema: SchemaRef,
}

/// Results that are sent together: their left and right rows.
#[derive(Default)]
struct JoinResults {
    left: Vec<SideRow>,
    right: Vec<Option<SideRow>>,
}

/// Sender of results.
struct ResultSender<'o> {
    name: &'o str,
    condition: &'o mut Option<Box<dyn Expression>>,
    state: &'o RegularJoinState,
    schema: &'o SchemaRef,
    /// True if the results are taken back.
    are_retracted: bool,
}

impl ResultSender<'_> {
    /// Columns of the right side, NULL where there is no row.
    fn right(&self, rows: &[Option<SideRow>]) -> Result<Vec<ArrayRef>> {
        let mut number = 0;
        let places = rows.iter().map(|row| {
            number += u32::from(row.is_some());
            row.is_some().then(|| number - 1)
        });
        let places: UInt32Array = places.collect();
        let columns = self.state.columns(RIGHT, rows.iter().flatten().map(|row| &**row))?;
        if places.null_count() == 0 {
            return Ok(columns);
        }
        let columns = columns.iter().map(|column| take(column, &places, None));
        columns.collect::<Result<_, ArrowError>>().map_err(|error| self.state.failed(&error))
    }

    /// Sends results for which the condition holds; returns their number.
    fn send(&mut self, results: JoinResults, output: &mut Output) -> Result<usize> {
        if results.left.is_empty() {
            return Ok(0);
        }
        let mut columns = self.state.columns(LEFT, results.left.iter().map(|row| &**row))?;
        columns.extend(self.right(&results.right)?);
        let rows = RecordBatch::try_new(Arc::clone(self.schema), columns);
        let mut rows = rows.map_err(|error| self.state.failed(&error))?;
        if let Some(condition) = self.condition {
            let holds = evaluate(self.name, &mut **condition, &rows)?;
            let holds = holds.as_boolean_opt().ok_or_else(|| Error::Tuple {
                operator: self.name.to_owned(),
                reason: format!("the condition is {}, not a truth value", holds.data_type()),
            })?;
            // NULL is not true.
            rows = filter_record_batch(&rows, holds).map_err(|error| self.state.failed(&error))?;
        }
        let number = rows.num_rows();
        output.push(Batch::of_changes(rows, BooleanArray::from(vec![self.are_retracted; number])));
        Ok(number)
    }
}

impl RegularJoinOperator {
    /// Sends the results that are new, or those that are gone; returns their number.
    fn send_changed(&mut self, are_retracted: bool, output: &mut Output) -> Result<usize> {
        let (state, is_outer) = (&self.state, self.kind == JoinKind::Left);
        let (name, schema, condition) = (self.name.as_str(), &self.schema, &mut self.condition);
        let mut sender = ResultSender { name, condition, state, schema, are_retracted };
        let (mut results, mut sent) = (JoinResults::default(), 0);
        state.changed_results(is_outer, &mut |left, right, change| {
            if (change < 0) != are_retracted {
                return Ok(());
            }
            for _ in 0..change.unsigned_abs() {
                results.left.push(Arc::clone(left));
                results.right.push(right.cloned());
                if results.left.len() == RESULTS {
                    sent += sender.send(std::mem::take(&mut results), output)?;
                    if sent > JOIN_ROWS_MAX {
                        let resource = format!("changed results of {} in a transaction", sender.name);
                        return Err(Error::Limit { resource, max: JOIN_ROWS_MAX });
                    }
                }
            }
            Ok(())
        })?;
        Ok(sent + sender.send(results, output)?)
    }
}

impl Operator for RegularJoinOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, _output: &mut Output) -> Result<()> {
        let (tx, side) = (context.transaction()?, context.input);
        self.state.ensure_loaded(tx)?;
        let (rows, keys) = self.state.convert(side, batch.rows())?;
        for ((at, row), key) in rows.iter().enumerate().zip(keys) {
            let is_retracted = batch.retracted().is_some_and(|retracted| retracted.value(at));
            let change = if is_retracted { -1 } else { 1 };
            match key {
                Some(key) => self.state.add(tx, side, key, row.data(), change)?,
                None if side == LEFT && self.kind == JoinKind::Left => {
                    self.state.add_alone(row.data(), change);
                }
                None => {}
            }
        }
        self.state.reserve()
    }

    fn watermark(&mut self, _: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        if time == EventTime::END {
            output.watermark(time);
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        let tx = context.transaction()?;
        self.state.ensure_loaded(tx)?;
        self.state.write(tx)?;
        for are_retracted in [true, false] {
            let first = output.batches.len();
            self.send_changed(are_retracted, output)?;
            let bytes = output.batches[first..].iter().map(|batch| batch.rows().get_array_memory_size());
            self.state.hold(bytes.sum())?;
        }
        Ok(())
    }

    fn committed(&mut self) -> Result<()> {
        self.state.committed();
        Ok(())
    }

    fn aborted(&mut self) {
        self.state.aborted();
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        Ok(())
    }
}
