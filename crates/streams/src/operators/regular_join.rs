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
//! - Rows of a preserved side that have no partner, as the left one of a left join, are sent with NULLs; they come and go with
//!   partners. Where a condition says which pairs are partners, see [`super::regular_join_alone`].
//! - A NULL in the key has no partner.
//! - Times play no part, and no watermark is sent, but with a time to live: the rows of a side that are only added then leave
//!   the state when the watermark has passed their event time by it, and those that come so late are dropped. What was sent
//!   for them stays as it is, whatever becomes of their partners. The other side does not leave, as a row that is taken
//!   back must be known.
//!
//! State: see [`super::regular_join_state`]. A crash or an abort leaves the rows of the last commit. Memory: the rows
//! of the keys that a transaction changes, and its results; more than [`JOIN_ROWS_MAX`] of these are an error.

use crate::JOIN_ROWS_MAX;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::expression::{Expression, evaluate};
use crate::operators::join_state::{LEFT, RIGHT};
use crate::operators::regular_join_alone::{Pair, changed_alone};
use crate::operators::regular_join_rows::{JoinedRows, KeyRows, SideRow, alone};
use crate::operators::regular_join_state::{LifeColumn, RegularJoinState};
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window::watermark_after;
use crate::operators::window_aggregate::SourceTimes;
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
    /// Sides whose rows are sent without partner too.
    pub(crate) preserved: [bool; 2],
    /// Condition over the columns of both sides.
    pub(crate) condition: Option<Box<dyn Expression>>,
    pub(crate) state: RegularJoinState,
    /// Life of the rows of a side, if it ends.
    pub(crate) life: Option<JoinLifeTimes>,
    /// Columns of the output: those of the left and then of the right side.
    pub(crate) schema: SchemaRef,
}

/// Life of the rows of a side, which are only added and have an event time.
pub(crate) struct JoinLifeTimes {
    pub(crate) of: LifeColumn,
    pub(crate) ttl_us: i64,
    pub(crate) lateness_us: i64,
    pub(crate) future_us: i64,
    pub(crate) watermark: StoredWatermark,
    pub(crate) progress: SourceTimes,
}

/// Results that are sent together: their rows of each side.
#[derive(Default)]
struct JoinResults {
    rows: [Vec<Option<SideRow>>; 2],
}

/// Former of results, and of pairs that a condition is asked about.
struct JoinedBatches<'o> {
    name: &'o str,
    condition: &'o mut Option<Box<dyn Expression>>,
    state: &'o RegularJoinState,
    schema: &'o SchemaRef,
}

impl JoinedBatches<'_> {
    /// Columns of a side, NULL where there is no row.
    fn columns(&self, side: usize, rows: &[Option<SideRow>]) -> Result<Vec<ArrayRef>> {
        let mut number = 0;
        let places = rows.iter().map(|row| {
            number += u32::from(row.is_some());
            row.is_some().then(|| number - 1)
        });
        let places: UInt32Array = places.collect();
        let columns = self.state.columns(side, rows.iter().flatten().map(|row| &**row))?;
        if places.null_count() == 0 {
            return Ok(columns);
        }
        let columns = columns.iter().map(|column| take(column, &places, None));
        columns.collect::<Result<_, ArrowError>>().map_err(|error| self.state.failed(&error))
    }

    fn batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        RecordBatch::try_new(Arc::clone(self.schema), columns).map_err(|error| self.state.failed(&error))
    }

    /// Says of each pair whether the condition holds; NULL is not true. None without a condition.
    fn holds(&mut self, rows: &RecordBatch) -> Result<Option<BooleanArray>> {
        let Some(condition) = self.condition else { return Ok(None) };
        let holds = evaluate(self.name, &mut **condition, rows)?;
        let holds = holds.as_boolean_opt().ok_or_else(|| Error::Tuple {
            operator: self.name.to_owned(),
            reason: format!("the condition is {}, not a truth value", holds.data_type()),
        })?;
        Ok(Some(holds.clone()))
    }

    /// Says of each pair whether its rows are partners.
    fn are_partners(&mut self, pairs: &[Pair<'_>]) -> Result<Vec<bool>> {
        let mut columns = self.state.columns(LEFT, pairs.iter().map(|[left, _]| &***left))?;
        columns.extend(self.state.columns(RIGHT, pairs.iter().map(|[_, right]| &***right))?);
        let holds = self.batch(columns).and_then(|rows| self.holds(&rows))?;
        let Some(holds) = holds else { return Ok(vec![true; pairs.len()]) };
        Ok(holds.iter().map(|holds| holds == Some(true)).collect())
    }

    /// Sends results, of pairs those that the condition holds of; returns their number.
    fn send(
        &mut self,
        results: JoinResults,
        (are_pairs, are_retracted): (bool, bool),
        output: &mut Output,
    ) -> Result<usize> {
        if results.rows[LEFT].is_empty() {
            return Ok(0);
        }
        let mut columns = self.columns(LEFT, &results.rows[LEFT])?;
        columns.extend(self.columns(RIGHT, &results.rows[RIGHT])?);
        let mut rows = self.batch(columns)?;
        if are_pairs && let Some(holds) = self.holds(&rows)? {
            rows = filter_record_batch(&rows, &holds).map_err(|error| self.state.failed(&error))?;
        }
        let number = rows.num_rows();
        output.push(Batch::of_changes(rows, BooleanArray::from(vec![are_retracted; number])));
        Ok(number)
    }
}

impl RegularJoinOperator {
    /// Former of batches, and what else is needed beside it.
    fn batches(&mut self) -> JoinedBatches<'_> {
        let (name, schema, condition) = (self.name.as_str(), &self.schema, &mut self.condition);
        JoinedBatches { name, condition, state: &self.state, schema }
    }

    /// Rows whose number without partner has changed, where a condition says which rows are partners.
    fn changed_alone(&mut self) -> Result<[Vec<(SideRow, i64)>; 2]> {
        let mut changed = [Vec::new(), Vec::new()];
        if self.condition.is_none() {
            return Ok(changed);
        }
        for side in [LEFT, RIGHT] {
            if self.preserved[side] {
                let mut batches = self.batches();
                let keys: Vec<&KeyRows> = batches.state.touched_keys().map(|(_, key)| key).collect();
                changed[side] = changed_alone(&keys, side, &mut |pairs| batches.are_partners(pairs))?;
            }
        }
        Ok(changed)
    }

    /// Sends the results that are new, or those that are gone.
    fn send_changed(
        &mut self,
        changed_alone: &[Vec<(SideRow, i64)>; 2],
        are_retracted: bool,
        output: &mut Output,
    ) -> Result<()> {
        let all_are_partners = self.condition.is_none();
        let alone_of_keys = self.preserved.map(|is_preserved| is_preserved && all_are_partners);
        let mut batches = self.batches();
        let state = batches.state;
        // Rows without partner, and pairs.
        let (mut buffers, mut sent) = ([JoinResults::default(), JoinResults::default()], 0);
        let mut add = |rows: JoinedRows<'_>, change: i64| {
            if (change < 0) != are_retracted {
                return Ok(());
            }
            let are_pairs = rows.iter().all(Option::is_some);
            let buffer = &mut buffers[usize::from(are_pairs)];
            for _ in 0..change.unsigned_abs() {
                for (all, row) in buffer.rows.iter_mut().zip(rows) {
                    all.push(row.cloned());
                }
                if buffer.rows[LEFT].len() == RESULTS {
                    sent += batches.send(std::mem::take(buffer), (are_pairs, are_retracted), output)?;
                    if sent > JOIN_ROWS_MAX {
                        let resource = format!("changed results of {} in a transaction", batches.name);
                        return Err(Error::Limit { resource, max: JOIN_ROWS_MAX });
                    }
                }
            }
            Ok(())
        };
        for side in [LEFT, RIGHT] {
            changed_alone[side].iter().try_for_each(|(row, change)| add(alone(side, row), *change))?;
        }
        state.changed_results(alone_of_keys, &mut add)?;
        for (are_pairs, rest) in [false, true].into_iter().zip(buffers) {
            batches.send(rest, (are_pairs, are_retracted), output)?;
        }
        Ok(())
    }
}

impl JoinLifeTimes {
    /// Notes the event times of a batch in their order; says of each row whether it is late.
    fn note(&mut self, operator: &str, context: &Context<'_>, batch: &Batch) -> Result<Vec<bool>> {
        self.watermark.load(context)?;
        let times = batch.times(self.of.column).ok_or_else(|| Error::Tuple {
            operator: operator.to_owned(),
            reason: "an event time is NULL".to_owned(),
        })?;
        let (mut late, mut future) = (Vec::with_capacity(times.len()), 0);
        for time in times.iter().copied().map(EventTime::from_micros) {
            let is_late = time.plus(self.ttl_us) <= self.watermark.current();
            late.push(is_late);
            if is_late {
                continue;
            }
            if time > context.now.plus(self.future_us) {
                future += 1;
                continue;
            }
            let reached = self.progress.advance(context, time);
            self.watermark.raise(watermark_after(reached, self.lateness_us));
        }
        context.count_late(late.iter().filter(|is_late| **is_late).count() as u64);
        context.count_future(future);
        Ok(late)
    }
}

impl Operator for RegularJoinOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, _output: &mut Output) -> Result<()> {
        let (tx, side) = (context.transaction()?, context.input);
        self.state.ensure_loaded(tx)?;
        let late = match &mut self.life {
            Some(life) if life.of.side == side => life.note(&self.name, context, batch)?,
            _ => Vec::new(),
        };
        let (rows, keys) = self.state.convert(side, batch.rows())?;
        for ((at, row), key) in rows.iter().enumerate().zip(keys) {
            if late.get(at) == Some(&true) {
                continue;
            }
            let is_retracted = batch.retracted().is_some_and(|retracted| retracted.value(at));
            let change = if is_retracted { -1 } else { 1 };
            match key {
                Some(key) => self.state.add(tx, side, key, row.data(), (change, 0))?,
                None if self.preserved[side] => self.state.add_alone(side, row.data(), change),
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

    fn input_watermark(&mut self, context: &Context<'_>, time: EventTime, _: &mut Output) -> Result<()> {
        let Some(life) = self.life.as_mut().filter(|life| life.of.side == context.input) else {
            return Ok(());
        };
        life.watermark.load(context)?;
        // Nothing comes behind the end for which rows would have to leave.
        if time < EventTime::END {
            life.watermark.raise(time);
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        let tx = context.transaction()?;
        self.state.ensure_loaded(tx)?;
        self.state.write(tx)?;
        let changed_alone = self.changed_alone()?;
        for are_retracted in [true, false] {
            let first = output.batches.len();
            self.send_changed(&changed_alone, are_retracted, output)?;
            let bytes = output.batches[first..].iter().map(|batch| batch.rows().get_array_memory_size());
            self.state.hold(bytes.sum())?;
        }
        let Some(life) = &mut self.life else { return Ok(()) };
        let over_by = life.watermark.load(context)?.minus(life.ttl_us);
        context.count_expired(self.state.sweep(tx, life.of, over_by)?);
        life.watermark.write(context)
    }

    fn sealed(&mut self) {
        if let Some(life) = &mut self.life {
            life.watermark.sealed();
            life.progress.sealed();
        }
    }

    fn committed(&mut self) -> Result<()> {
        if let Some(life) = &mut self.life {
            life.watermark.committed();
            life.progress.committed();
        }
        self.state.committed();
        Ok(())
    }

    fn aborted(&mut self) {
        if let Some(life) = &mut self.life {
            life.watermark.aborted();
            life.progress.aborted();
        }
        self.state.aborted();
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        Ok(())
    }
}
