//! Aggregate per group over all tuples so far, without windows.
//!
//! - Its results change while tuples come. At the commit punctuation it sends the groups whose result is another than at
//!   the commit before: the result that was sent is taken back, the new one is inserted. A group of which all tuples
//!   were taken back has no result, but for the only group of an aggregate without group columns.
//! - Groups without aggregates are what DISTINCT is: over a stream that takes nothing back, the first tuple of each group is
//!   sent at once, and nothing is ever taken back.
//! - With an interval, results are sent at most once in it, each in the place of the one before ([`super::early`]): nothing
//!   is taken back then.
//! - With a time to live, the life of a group is over when the watermark has passed its last tuple by that time: its
//!   result stays what it was, and a tuple that comes later begins anew. Whether it is over depends on the tuples before
//!   it only, not on when the group is removed from the state. A tuple that is behind the watermark by that time is late:
//!   it is counted, and dropped or stored in a table.
//!
//! State: the groups in the state table ([`super::running_state`]), with their values in a second one where they are taken
//! back from aggregates that cannot be subtracted from ([`super::value_counts`]); the watermark in `streams_watermarks`. All
//! are written in the transaction. A crash or an abort leaves them as of the last commit.

use crate::BATCH_TUPLES;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::early::EarlyResults;
use crate::operators::ranking::LateRows;
use crate::operators::running_state::{GroupKey, RunningState};
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window::watermark_after;
use crate::operators::window_aggregate::{SourceTimes, select};
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::concat::concat_batches;
use entresol_tables::Row;

/// Event time by which the lives of groups end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LifeTimes {
    pub(crate) time: usize,
    pub(crate) ttl_us: i64,
    pub(crate) lateness_us: i64,
    pub(crate) future_us: i64,
}

pub(crate) struct RunningAggregate {
    pub(crate) name: String,
    pub(crate) state: RunningState,
    pub(crate) life: Option<LifeTimes>,
    pub(crate) watermark: StoredWatermark,
    pub(crate) progress: SourceTimes,
    /// True if each group is sent once, when it begins.
    pub(crate) is_distinct: bool,
    pub(crate) late: Option<LateRows>,
    /// Changes of groups whose life was over in this transaction.
    pub(crate) over: Vec<(RecordBatch, bool)>,
    /// Results that wait for the interval in which they are sent, if there is one.
    pub(crate) early: Option<EarlyResults<GroupKey, Row>>,
}

/// Tuples of a batch that are added together.
struct Run {
    rows: Vec<u32>,
    slots: Vec<u32>,
}

impl RunningAggregate {
    /// Loads what is not in DRAM, and returns the watermark.
    fn load(&mut self, context: &Context<'_>) -> Result<EventTime> {
        self.state.ensure_loaded(context.transaction()?)?;
        if self.life.is_some() { self.watermark.load(context) } else { Ok(EventTime::START) }
    }

    /// Adds tuples whose groups end, one after another; returns the watermark behind them.
    fn add_timed(
        &mut self,
        context: &Context<'_>,
        (batch, slots): (&Batch, &[u32]),
        life: LifeTimes,
        output: &mut Output,
    ) -> Result<()> {
        let reason =
            || Error::Tuple { operator: self.name.clone(), reason: "an event time is NULL".to_owned() };
        let times = batch.times(life.time).ok_or_else(reason)?;
        let mut watermark = self.watermark.current();
        let (mut run, mut late, mut future) = (Run { rows: Vec::new(), slots: Vec::new() }, Vec::new(), 0);
        for (row, (&micros, &slot)) in times.iter().zip(slots).enumerate() {
            let time = EventTime::from_micros(micros);
            let is_future = time > context.now.plus(life.future_us);
            if time.plus(life.ttl_us) <= watermark {
                late.push(row as u32);
                continue;
            }
            if self.state.is_over(slot, watermark) {
                self.add_run(batch, &mut run, output)?;
                self.end_life(slot)?;
            }
            self.state.note_time(slot, time);
            run.rows.push(row as u32);
            run.slots.push(slot);
            if is_future {
                future += 1;
            } else {
                let reached = self.progress.advance(context, time);
                watermark = watermark.max(watermark_after(reached, life.lateness_us));
            }
        }
        self.add_run(batch, &mut run, output)?;
        self.watermark.raise(watermark);
        context.count_late(late.len() as u64);
        context.count_future(future);
        self.late.as_mut().map_or(Ok(()), |table| table.store(context, batch, late))
    }

    /// Ends the life of a group; its change in this transaction is held until the commit. DISTINCT has sent it already.
    fn end_life(&mut self, slot: u32) -> Result<()> {
        if !self.is_distinct && self.state.is_touched(slot) {
            let changes = self.state.changes_of(&[slot])?;
            let bytes =
                |(rows, _): &(RecordBatch, bool)| size_of::<RecordBatch>() + rows.get_array_memory_size();
            self.state.held_bytes += changes.iter().map(bytes).sum::<usize>();
            self.over.extend(changes);
        }
        self.state.begin_anew(slot);
        Ok(())
    }

    fn add_run(&mut self, batch: &Batch, run: &mut Run, output: &mut Output) -> Result<()> {
        let rows = std::mem::take(&mut run.rows);
        let slots = std::mem::take(&mut run.slots);
        if rows.is_empty() {
            return Ok(());
        }
        let tuples = select(batch.rows(), rows).map_err(|error| self.state.failed(&error))?;
        self.add(&slots, &tuples.into(), output)
    }

    fn add(&mut self, slots: &[u32], batch: &Batch, output: &mut Output) -> Result<()> {
        let begun = self.state.add(slots, batch.rows(), batch.retracted())?;
        if self.is_distinct && !begun.is_empty() {
            let rows = select(batch.rows(), begun).and_then(|rows| rows.project(&self.state.layout.groups));
            output.push(rows.map_err(|error| self.state.failed(&error))?.into());
        }
        Ok(())
    }

    /// Sends changes as one batch: those that take results back, and then the others.
    fn send(&self, changes: &[(RecordBatch, bool)], output: &mut Output) -> Result<()> {
        let rows: Vec<&RecordBatch> = changes.iter().map(|(rows, _)| rows).collect();
        let batch =
            concat_batches(&self.state.layout.output, rows).map_err(|error| self.state.failed(&error))?;
        let of =
            |(rows, is_taken): &(RecordBatch, bool)| std::iter::repeat_n(Some(*is_taken), rows.num_rows());
        let retracted: BooleanArray = changes.iter().flat_map(of).collect();
        output.push(Batch::of_changes(batch, retracted));
        Ok(())
    }

    /// Sends the results that are due, which replace those that were sent before: the next ones of all groups, and then
    /// those that have changed, as far as this transaction has room for them.
    fn send_due(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        let Some(early) = &mut self.early else { return Ok(()) };
        early.note(self.state.touched_keys());
        if context.withholds || !early.begin(context.now) {
            return Ok(());
        }
        context.note_due();
        let (tx, mut has_room) = (context.transaction()?, true);
        if let Some(behind) = early.pass() {
            let passed = self.state.results_behind(tx, behind.as_ref(), |results| {
                has_room = early.has_room_behind(&results);
                output.push(results.into());
                has_room
            });
            let passed = passed?;
            has_room &= passed.is_none();
            early.passed(passed);
        }
        while has_room {
            let keys = early.take(BATCH_TUPLES);
            if keys.is_empty() {
                break;
            }
            let results = self.state.results_of_keys(tx, &keys)?;
            has_room = early.has_room_behind(&results);
            output.push(results.into());
        }
        early.pause(context.now);
        Ok(())
    }

    /// Sends the results that have changed: those that are taken back first, as a result of another group may have
    /// their place in a table.
    fn send_changes(&mut self, output: &mut Output) -> Result<()> {
        for over in std::mem::take(&mut self.over).chunks(2) {
            self.send(over, output)?;
        }
        let touched = self.state.touched().to_vec();
        if touched.len() <= BATCH_TUPLES {
            if touched.is_empty() {
                return Ok(());
            }
            let changes = self.state.changes_of(&touched)?;
            return self.send(&changes, output);
        }
        let mut added = Vec::new();
        for groups in touched.chunks(BATCH_TUPLES) {
            let (taken, of_now): (Vec<_>, Vec<_>) =
                self.state.changes_of(groups)?.into_iter().partition(|(_, is_taken)| *is_taken);
            self.send(&taken, output)?;
            added.push(of_now);
        }
        added.iter().try_for_each(|changes| self.send(changes, output))
    }
}

impl Operator for RunningAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        self.load(context)?;
        let slots = self.state.number(context.transaction()?, batch.rows())?;
        match self.life {
            None => self.add(&slots, batch, output)?,
            Some(life) => self.add_timed(context, (batch, &slots), life, output)?,
        }
        self.state.reserve()
    }

    fn watermark(&mut self, context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        self.load(context)?;
        if let (EventTime::END, Some(early)) = (time, &mut self.early) {
            early.end();
        }
        if time < EventTime::END && self.life.is_some() {
            self.watermark.raise(time);
        }
        output.watermark(time);
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        let watermark = self.load(context)?;
        let tx = context.transaction()?;
        self.state.compute_again(tx)?;
        if self.state.is_of_one_group() {
            self.state.touch_one_group(tx)?;
        }
        if !self.is_distinct && self.early.is_none() {
            self.send_changes(output)?;
        }
        self.state.write(tx)?;
        self.send_due(context, output)?;
        context.count_expired(self.state.sweep(tx, watermark)?);
        if self.life.is_some() {
            self.watermark.write(context)?;
        }
        self.late.as_mut().map_or(Ok(()), |late| late.write.commit(context, output))
    }

    fn sealed(&mut self) {
        self.watermark.sealed();
        self.progress.sealed();
        self.early.iter_mut().for_each(EarlyResults::sealed);
    }

    fn committed(&mut self) -> Result<()> {
        self.watermark.committed();
        self.progress.committed();
        self.early.iter_mut().for_each(EarlyResults::committed);
        debug_assert!(self.over.is_empty(), "the commit has sent the changes of groups whose life is over");
        self.over.clear();
        self.state.committed();
        Ok(())
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        if let Some(values) = &mut self.state.values {
            values.table = current_of(&self.name, &values.table, |old, new| old == new)?;
        }
        self.late.as_mut().map_or(Ok(()), |late| late.write.redefined())
    }

    fn is_due(&self, now: EventTime) -> bool {
        self.early.as_ref().is_some_and(|early| early.is_due(now))
    }

    fn aborted(&mut self) {
        self.over.clear();
        self.early.iter_mut().for_each(EarlyResults::aborted);
        self.state.aborted();
        self.watermark.aborted();
        self.progress.aborted();
    }
}
