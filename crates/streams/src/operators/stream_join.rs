//! Join of two streams whose rows are partners only within some time of each other.
//!
//! - Rows are partners if their keys are equal, the join time of the right one minus that of the left one is
//!   within the bounds, and the condition holds. The join time of a row is its event time, or the edge of its window.
//! - Each side has a watermark of its own, which follows from the event times of its rows, as that of windows does
//!   ([`super::window_aggregate`]). A row is late if its side's watermark has passed its join time, or has closed its
//!   window: it is counted, and dropped. So that depends on the rows of its side before it alone, and the output is
//!   that of a join of all rows that were not late, however they come: in which order the sides, in which batches
//!   and transactions.
//! - Bounds may also be times that a row has of its own, or missing ([`super::join_bounds`]). Where the rows of a side are
//!   buffered for ever, no row of the other one is late.
//! - A row is buffered until the other side's watermark says that no partner comes. A row of a preserved side that has had none
//!   until then is sent with NULLs.
//! - A side whose sources are all quiet is not waited for: its watermark follows that of the other side.
//! - Pairs are sent when the later row comes, in the order of these rows; its partners in the order of their times.
//!   Rows without partner are sent behind the row whose time is past theirs.
//! - A NULL in the key or the time has no partner.
//! - The watermark that it sends is the least time of a row that it may still send, on either side.
//! - At the end of a side the other one's rows are not buffered any more; the ended side's watermark is raised, so that
//!   rows of a later run that could have been partners of those are late.
//!
//! State: buffered rows in the state table, watermarks in `streams_watermarks`, all written in the transaction. A crash
//! or an abort leaves both as of the last commit; see [`super::join_state`].

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::expression::{Expression, evaluate};
use crate::operators::join_state::{JoinState, Key, LEFT, RIGHT, RowPosition};
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window::WindowSpan;
use crate::operators::window_aggregate::SourceTimes;
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow_row::{OwnedRow, Rows};
use arrow_schema::{ArrowError, FieldRef, SchemaRef};
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Pairs that are formed together; one row may have more partners.
const PAIRS: usize = 8192;

/// Times of the rows of a side.
pub(crate) struct JoinTimes {
    /// Column of the event time.
    pub(crate) time: usize,
    /// Column of the join time.
    pub(crate) join_time: usize,
    /// Windows of which the join time is an edge; of an event time those of a microsecond.
    pub(crate) span: WindowSpan,
    /// True if the join time is the end of a window that is known by its start.
    pub(crate) is_end: bool,
    pub(crate) progress: SourceTimes,
    pub(crate) watermark: StoredWatermark,
    /// True if nothing follows in this run, and the same as of the last commit.
    pub(crate) ended: (bool, bool),
}

pub(crate) struct StreamJoinOperator {
    pub(crate) name: String,
    /// Sides whose rows are sent without a partner too.
    pub(crate) preserved: [bool; 2],
    pub(crate) times: [JoinTimes; 2],
    /// Condition over the columns of both sides.
    pub(crate) condition: Option<Box<dyn Expression>>,
    pub(crate) state: JoinState,
    /// Columns of the output: those of the left and then of the right side.
    pub(crate) schema: SchemaRef,
}

/// Row of a batch that is not late.
pub(crate) struct Arrival {
    pub(crate) row: usize,
    pub(crate) join_time: Option<EventTime>,
    /// Watermark of its side behind it.
    pub(crate) watermark: EventTime,
}

/// Rows of a batch of one side.
struct SideBatch<'b> {
    side: usize,
    batch: &'b Batch,
    keys: Vec<Option<Key>>,
    rows: Rows,
    /// Times of the last partners.
    lasts: Vec<EventTime>,
}

/// Rows of a batch with partners, in order.
#[derive(Default)]
struct Pairs {
    rows: Vec<u32>,
    partners: Vec<RowPosition>,
}

/// Output of some rows: pairs and rows without partner, in order.
#[derive(Default)]
struct JoinOutput {
    /// 0 and the number among the pairs, or else 1 and the side, and the number among its rows without partner.
    order: Vec<(usize, usize)>,
    alone: [Vec<OwnedRow>; 2],
}

impl JoinOutput {
    fn pair(&mut self, number: usize) {
        self.order.push((0, number));
    }

    fn alone(&mut self, side: usize, row: OwnedRow) {
        self.order.push((1 + side, self.alone[side].len()));
        self.alone[side].push(row);
    }
}

impl JoinTimes {
    /// Anchor of the window of which a join time is the edge.
    fn anchor(&self, join_time: EventTime) -> EventTime {
        if self.is_end { self.span.anchor_of_end(join_time) } else { self.span.anchor_at(join_time) }
    }

    /// Watermark that has passed a join time.
    fn passes(&self, join_time: EventTime) -> EventTime {
        self.span.closes_at(self.anchor(join_time))
    }

    /// Tells whether no row with a join time up to this one follows. The end of time is never passed.
    pub(crate) fn has_passed(&self, join_time: EventTime) -> bool {
        if join_time == EventTime::END {
            return false;
        }
        self.ended.0 || self.passes(join_time) <= self.watermark.current()
    }

    /// Raises the watermark so that a join time is passed, also in a later run.
    pub(crate) fn pass(&mut self, join_time: EventTime) {
        self.watermark.raise(self.passes(join_time));
    }

    /// Least time of a row that is not late.
    pub(crate) fn first_time(&self) -> EventTime {
        match self.watermark.current() {
            _ if self.ended.0 => EventTime::END,
            EventTime::START => EventTime::START,
            watermark => self.span.watermark_of_results(watermark),
        }
    }

    /// Rows of a batch that are not late, and the numbers of late rows and of those too far ahead of the clock.
    pub(crate) fn arrivals(
        &mut self,
        context: &Context<'_>,
        times: &[Option<i64>],
        join_times: &[Option<EventTime>],
        may_be_late: bool,
    ) -> (Vec<Arrival>, u64, u64) {
        let (mut late, mut future) = (0, 0);
        let mut watermark = self.watermark.current();
        let mut arrivals = Vec::with_capacity(times.len());
        for (row, (time, join_time)) in times.iter().zip(join_times).enumerate() {
            let join_time = *join_time;
            if let (Some(time), Some(join_time)) = (time.map(EventTime::from_micros), join_time) {
                // A row with several windows counts once.
                let counts = u64::from(self.span.is_first(self.anchor(join_time), time));
                if self.span.is_future(time, context.now) {
                    future += counts;
                } else {
                    let reached = self.progress.advance(context, time);
                    if may_be_late && self.passes(join_time) <= watermark {
                        late += counts;
                        continue;
                    }
                    watermark = watermark.max(self.span.watermark_after(reached));
                }
            }
            arrivals.push(Arrival { row, join_time, watermark });
        }
        (arrivals, late, future)
    }
}

impl StreamJoinOperator {
    /// Loads the state that is not in DRAM.
    fn load(&mut self, context: &Context<'_>) -> Result<()> {
        self.state.ensure_loaded(context.transaction()?)?;
        self.times.iter_mut().try_for_each(|times| times.watermark.load(context).map(drop))
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Times of the partners of a row of a batch.
    fn partners_of(
        &self,
        arrived: &SideBatch<'_>,
        row: usize,
        join_time: EventTime,
    ) -> RangeInclusive<EventTime> {
        *self.state.bounds.partners(arrived.side, join_time).start()..=arrived.lasts[row]
    }

    /// Joins rows that are not late with those of the other side.
    fn join(
        &mut self,
        context: &Context<'_>,
        arrived: &SideBatch<'_>,
        arrivals: &[Arrival],
        output: &mut Output,
    ) -> Result<()> {
        let other = 1 - arrived.side;
        let mut first = 0;
        while first < arrivals.len() {
            let (mut pairs, mut end) = (Pairs::default(), first);
            while end < arrivals.len() && pairs.rows.len() < PAIRS {
                let Arrival { row, join_time, .. } = arrivals[end];
                if let (Some(join_time), Some(key)) = (join_time, &arrived.keys[row]) {
                    let before = pairs.partners.len();
                    pairs.partners.extend(self.state.partners(
                        other,
                        key,
                        self.partners_of(arrived, row, join_time),
                    ));
                    pairs.rows.resize(pairs.rows.len() + pairs.partners.len() - before, row as u32);
                }
                end += 1;
            }
            let (joined, pairs) = self.joined(arrived, pairs)?;
            let mut sent = JoinOutput::default();
            self.settle(context, arrived, &arrivals[first..end], &pairs, &mut sent)?;
            self.send(joined, sent, output)?;
            first = end;
        }
        Ok(())
    }

    /// Forms pairs for which the condition holds.
    fn joined(&mut self, arrived: &SideBatch<'_>, pairs: Pairs) -> Result<(RecordBatch, Pairs)> {
        if pairs.rows.is_empty() {
            return Ok((RecordBatch::new_empty(Arc::clone(&self.schema)), pairs));
        }
        let other = 1 - arrived.side;
        let rows = UInt32Array::from(pairs.rows.clone());
        let columns = arrived.batch.rows().columns().iter();
        let own = columns.map(|column| take(column, &rows, None)).collect::<Result<Vec<ArrayRef>, _>>();
        let own = own.map_err(|error| self.failed(&error))?;
        let partners = pairs.partners.iter().filter_map(|position| self.state.row(other, position));
        let partners = self.state.columns(other, partners.map(|partner| partner.row.row()))?;
        let (left, right) = if arrived.side == LEFT { (own, partners) } else { (partners, own) };
        let columns = left.into_iter().chain(right).collect();
        let joined = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let joined = joined.map_err(|error| self.failed(&error))?;
        let Some(condition) = &mut self.condition else { return Ok((joined, pairs)) };
        let holds = evaluate(&self.name, &mut **condition, &joined)?;
        let holds = holds.as_boolean_opt().ok_or_else(|| Error::Tuple {
            operator: self.name.clone(),
            reason: format!("the condition is {}, not a truth value", holds.data_type()),
        })?;
        let holds: BooleanArray =
            (0..holds.len()).map(|at| Some(holds.is_valid(at) && holds.value(at))).collect();
        if holds.true_count() == holds.len() {
            return Ok((joined, pairs));
        }
        let joined = filter_record_batch(&joined, &holds).map_err(|error| self.failed(&error))?;
        let buffered = holds.values().set_indices();
        let (rows, partners) = buffered.map(|at| (pairs.rows[at], pairs.partners[at])).unzip();
        Ok((joined, Pairs { rows, partners }))
    }

    /// Takes rows and their pairs in order: notes who has a partner, keeps the rows, and ends what their times end.
    fn settle(
        &mut self,
        context: &Context<'_>,
        arrived: &SideBatch<'_>,
        arrivals: &[Arrival],
        pairs: &Pairs,
        sent: &mut JoinOutput,
    ) -> Result<()> {
        let (side, other) = (arrived.side, 1 - arrived.side);
        let mut pair = 0;
        for &Arrival { row, join_time, watermark } in arrivals {
            let first = pair;
            while pairs.rows.get(pair) == Some(&(row as u32)) {
                if self.preserved[other] {
                    self.state.note_match(other, pairs.partners[pair]);
                }
                sent.pair(pair);
                pair += 1;
            }
            self.keep(arrived, row, join_time, pair > first, sent)?;
            self.times[side].watermark.raise(watermark);
            self.end_passed(other, sent);
            if !self.times[other].ended.0 && self.times[other].progress.are_quiet(context) {
                self.times[other].watermark.raise(watermark);
                self.end_passed(side, sent);
            }
        }
        Ok(())
    }

    /// Keeps a row if a partner may still come.
    fn keep(
        &mut self,
        arrived: &SideBatch<'_>,
        row: usize,
        join_time: Option<EventTime>,
        matched: bool,
        sent: &mut JoinOutput,
    ) -> Result<()> {
        let (side, other) = (arrived.side, 1 - arrived.side);
        let owned = || arrived.rows.row(row).owned();
        if let (Some(join_time), Some(key)) = (join_time, &arrived.keys[row]) {
            let last = arrived.lasts[row];
            if !self.times[other].has_passed(last) {
                return self.state.add(side, (join_time, last), Arc::clone(key), owned(), matched);
            }
            self.times[other].pass(last);
        }
        if !matched && self.preserved[side] {
            sent.alone(side, owned());
        }
        Ok(())
    }

    /// Ends the rows of a side for which no partner comes any more.
    fn end_passed(&mut self, side: usize, sent: &mut JoinOutput) {
        let other = 1 - side;
        while let Some((last, position)) = self.state.first_ending(side) {
            if !self.times[other].has_passed(last) {
                return;
            }
            self.times[other].pass(last);
            let is_preserved = self.preserved[side];
            match self.state.remove(side, position) {
                Some(row) if is_preserved && !row.matched => sent.alone(side, row.row.clone()),
                _ => {}
            }
        }
    }

    /// Sends pairs and rows without partner in their order.
    fn send(&self, joined: RecordBatch, sent: JoinOutput, output: &mut Output) -> Result<()> {
        if sent.alone.iter().all(Vec::is_empty) {
            output.push(joined.into());
            return Ok(());
        }
        let [left, right] = [self.alone(LEFT, &sent)?, self.alone(RIGHT, &sent)?];
        let all = interleave_record_batch(&[&joined, &left, &right], &sent.order);
        output.push(all.map_err(|error| self.failed(&error))?.into());
        Ok(())
    }

    /// Rows of a side without partner, and NULLs.
    fn alone(&self, side: usize, sent: &JoinOutput) -> Result<RecordBatch> {
        let rows = &sent.alone[side];
        if rows.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        let own = self.state.columns(side, rows.iter().map(OwnedRow::row))?;
        let (fields, width) = (self.schema.fields(), own.len());
        let nulls = |fields: &[FieldRef]| -> Vec<ArrayRef> {
            fields.iter().map(|field| new_null_array(field.data_type(), rows.len())).collect()
        };
        let columns = if side == LEFT {
            [own, nulls(&fields[width..])].concat()
        } else {
            [nulls(&fields[..fields.len() - width]), own].concat()
        };
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| self.failed(&error))
    }

    /// Least time of the partners of a row that comes at a time or later.
    fn first_partner(&self, side: usize, time: EventTime) -> EventTime {
        if self.state.bounds.has_first(side) {
            return *self.state.bounds.partners(side, time).start();
        }
        self.state.first(1 - side).unwrap_or(EventTime::END)
    }

    fn send_watermark(&self, output: &mut Output) {
        let [left, right] = &self.times;
        if left.ended.0 && right.ended.0 {
            output.watermark(EventTime::END);
            return;
        }
        if [LEFT, RIGHT].into_iter().any(|side| self.state.bounds.is_unbounded(side)) {
            // A row of any time may follow.
            return;
        }
        let (left, right) = (left.first_time(), right.first_time());
        // Of rows to come, and of those that are buffered for them.
        let of_buffered = self.first_partner(LEFT, left).min(self.first_partner(RIGHT, right));
        let least = left.min(right).min(of_buffered);
        if least > EventTime::START {
            output.watermark(least);
        }
    }
}

impl Operator for StreamJoinOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        self.load(context)?;
        let side = context.input;
        let times_of = |column: usize| {
            batch.nullable_times(column).ok_or_else(|| Error::Tuple {
                operator: self.name.clone(),
                reason: "a time of another type than TIMESTAMP".to_owned(),
            })
        };
        let (times, join_times) = (times_of(self.times[side].time)?, times_of(self.times[side].join_time)?);
        let join_times: Vec<Option<EventTime>> =
            join_times.into_iter().map(|time| time.map(EventTime::from_micros)).collect();
        let may_be_late = !self.state.bounds.is_unbounded(1 - side);
        let (arrivals, late, future) = self.times[side].arrivals(context, &times, &join_times, may_be_late);
        context.count_late(late);
        context.count_future(future);
        let (keys, rows) = (self.state.keys(side, batch.rows())?, self.state.rows(side, batch.rows())?);
        let lasts = self.state.lasts(side, batch.rows(), &join_times)?;
        let arrived = SideBatch { side, batch, keys, rows, lasts };
        self.join(context, &arrived, &arrivals, output)?;
        self.send_watermark(output);
        Ok(())
    }

    fn watermark(&mut self, _: &Context<'_>, _: EventTime, _: &mut Output) -> Result<()> {
        // Those of the inputs say more.
        Ok(())
    }

    fn input_watermark(&mut self, context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        self.load(context)?;
        let side = context.input;
        if time == EventTime::END {
            self.times[side].ended.0 = true;
        } else {
            self.times[side].watermark.raise(time);
        }
        let mut sent = JoinOutput::default();
        self.end_passed(1 - side, &mut sent);
        self.send(RecordBatch::new_empty(Arc::clone(&self.schema)), sent, output)?;
        self.send_watermark(output);
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, _output: &mut Output) -> Result<()> {
        self.load(context)?;
        self.state.write(context.transaction()?)?;
        self.times.iter_mut().try_for_each(|times| times.watermark.write(context))
    }

    fn sealed(&mut self) {
        for times in &mut self.times {
            times.watermark.sealed();
            times.progress.sealed();
        }
    }

    fn committed(&mut self) -> Result<()> {
        for times in &mut self.times {
            times.ended.1 = times.ended.0;
            times.watermark.committed();
            times.progress.committed();
        }
        self.state.committed();
        Ok(())
    }

    fn aborted(&mut self) {
        for times in &mut self.times {
            times.ended.0 = times.ended.1;
            times.watermark.aborted();
            times.progress.aborted();
        }
        self.state.aborted();
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        Ok(())
    }
}
