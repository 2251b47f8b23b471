//! ASOF join of two streams: each left row with the nearest right row in time, among those with equal keys.
//!
//! - The candidates of a left row are the right rows with its key whose times are within the bounds
//!   ([`super::join_bounds`]): all before it, or all behind it. The nearest one is its partner.
//! - A left row is sent once, when the right side's watermark says that no nearer row comes: for a row before it when the
//!   watermark has passed its own time, for one behind it when it has passed the partner's, or the last candidate's. A left
//!   row without candidate is sent with NULLs.
//! - Watermarks, late rows, quiet sources and ended sides are those of a join of streams ([`super::stream_join`]). So the
//!   output is that of a join of all rows that were not late, in whatever order they arrive; its order is that in which rows are decided.
//! - A right row is buffered until no left row that waits or may arrive has it as its partner. Before the left rows that is
//!   one row for each key, and the rows that are later than the left rows.
//! - Of right rows with equal keys and times, the last to arrive is the nearest before a left row, the first one behind it.
//! - A left row with a NULL in the key or the time has no partner; such a right row is none.
//! - The watermark that it sends is the least time of a left row that waits or may arrive.
//! - At the end of a side, the rows that wait for it are decided; the ended side's watermark is raised, so that rows of
//!   a later run that would have decided otherwise are late.
//!
//! State: buffered rows of both sides in the state table, watermarks in `streams_watermarks`, all written in the transaction.
//! A crash or an abort leaves both as of the last commit. Memory: see [`super::join_state`].

use crate::asof_join::AsofMatch;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::join_state::{JoinState, Key, LEFT, RIGHT, RowPosition};
use crate::operators::stream_join::{Arrival, JoinTimes};
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_row::OwnedRow;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take;
use std::sync::Arc;

/// Rows that are sent together.
const ROWS_SENT: usize = 8192;

pub(crate) struct AsofJoinOperator {
    name: String,
    nearest: AsofMatch,
    times: [JoinTimes; 2],
    state: JoinState,
    /// Place of the last right row that is swept: behind left rows they are sent to those that wait, before left rows one is
    /// left for each key. In this run, and as of the last commit.
    swept: (RowPosition, RowPosition),
    /// Columns of the output: those of the left and then of the right side.
    schema: SchemaRef,
}

/// Left rows that are decided, with the places of their partners.
type Decisions = Vec<(OwnedRow, Option<RowPosition>)>;

impl AsofJoinOperator {
    pub(crate) fn new(
        name: String,
        nearest: AsofMatch,
        times: [JoinTimes; 2],
        state: JoinState,
        schema: SchemaRef,
    ) -> AsofJoinOperator {
        let none = (EventTime::START, i64::MIN);
        AsofJoinOperator { name, nearest, times, state, swept: (none, none), schema }
    }

    /// Loads the state that is not in DRAM.
    fn load(&mut self, context: &Context<'_>) -> Result<()> {
        self.state.ensure_loaded(context.transaction()?)?;
        self.times.iter_mut().try_for_each(|times| times.watermark.load(context).map(drop))
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Takes the rows of a batch that are not late: left ones that are decided are sent, all others are buffered.
    fn take(
        &mut self,
        side: usize,
        batch: &Batch,
        arrivals: &[Arrival],
        join_times: &[Option<EventTime>],
    ) -> Result<Decisions> {
        let (keys, rows) = (self.state.keys(side, batch.rows())?, self.state.rows(side, batch.rows())?);
        let lasts = self.state.lasts(side, batch.rows(), join_times)?;
        let mut decided = Decisions::new();
        for &Arrival { row, join_time, .. } in arrivals {
            let owned = || rows.row(row).owned();
            let (Some(time), Some(key)) = (join_time, &keys[row]) else {
                if side == LEFT {
                    decided.push((owned(), None));
                }
                continue;
            };
            let partner = if side == LEFT { self.partner(key, time, lasts[row]) } else { None };
            match partner {
                Some(partner) => decided.push((owned(), partner)),
                None => self.state.add(side, (time, lasts[row]), Arc::clone(key), owned(), false)?,
            }
        }
        Ok(decided)
    }

    /// Partner of a left row, or that it has none; `None` as long as that is not decided.
    fn partner(&mut self, key: &Key, time: EventTime, last: EventTime) -> Option<Option<RowPosition>> {
        let mut candidates = self.state.partners(RIGHT, key, self.state.bounds.partners(LEFT, time));
        let nearest = if self.nearest.is_backward() { candidates.next_back() } else { candidates.next() };
        let decides = match nearest {
            Some((at, _)) if !self.nearest.is_backward() => at,
            _ => last,
        };
        let right = &mut self.times[RIGHT];
        right.has_passed(decides).then(|| {
            right.pass(decides);
            nearest
        })
    }

    /// Decides the left rows that wait, as far as the watermarks say.
    fn decide(&mut self) -> Decisions {
        let mut decided = Decisions::new();
        if !self.nearest.is_backward() {
            self.sweep_to_waiting(&mut decided);
        }
        while let Some((last, position)) = self.state.first_ending(LEFT) {
            if !self.times[RIGHT].has_passed(last) {
                break;
            }
            let Some(key) = self.state.row(LEFT, &position).map(|row| Arc::clone(&row.key)) else { break };
            let Some(partner) = self.partner(&key, position.0, last) else { break };
            if let Some(row) = self.state.remove(LEFT, position) {
                decided.push((row.row.clone(), partner));
            }
        }
        decided
    }

    /// Finds the left rows that wait for right rows behind them which the watermark has passed.
    fn sweep_to_waiting(&mut self, decided: &mut Decisions) {
        let before = self.times[RIGHT].first_time();
        while let Some((partner, key)) = self.sweep(before) {
            let waiting = self.state.bounds.partners(RIGHT, partner.0);
            loop {
                let next = self.state.partners(LEFT, &key, waiting.clone()).next();
                let Some(position) = next else { break };
                self.times[RIGHT].pass(partner.0);
                if let Some(row) = self.state.remove(LEFT, position) {
                    decided.push((row.row.clone(), Some(partner)));
                }
            }
        }
    }

    /// Next right row before a time that is not swept yet, with its key; from now on it is.
    fn sweep(&mut self, before: EventTime) -> Option<(RowPosition, Key)> {
        let (position, row) = self.state.next(RIGHT, self.swept.0).filter(|((time, _), _)| *time < before)?;
        let key = Arc::clone(&row.key);
        self.swept.0 = position;
        Some((position, key))
    }

    /// Least time of a left row that waits or may arrive.
    fn first_left(&self) -> EventTime {
        self.state.first(LEFT).unwrap_or(EventTime::END).min(self.times[LEFT].first_time())
    }

    /// Removes the right rows that no left row has as its partner any more.
    fn remove_passed(&mut self) {
        let first_left = self.first_left();
        if self.nearest.is_backward() {
            // No right row comes before the one time, and all left rows that are not decided have candidates before the other.
            let candidates = self.state.bounds.partners(LEFT, first_left);
            let before = self.times[RIGHT].first_time().min(candidates.end().plus(1));
            while let Some((later, key)) = self.sweep(before) {
                let nearer_to_later = *self.state.bounds.partners(RIGHT, later.0).start();
                let of_key = EventTime::START..=later.0;
                loop {
                    let first = self.state.partners(RIGHT, &key, of_key.clone()).next();
                    let Some(earlier) = first.filter(|first| *first < later) else { break };
                    self.times[LEFT].pass(nearer_to_later.minus(1));
                    self.state.remove(RIGHT, earlier);
                }
            }
        }
        while let Some((last, position)) = self.state.first_ending(RIGHT) {
            if last >= first_left {
                return;
            }
            self.times[LEFT].pass(last);
            self.state.remove(RIGHT, position);
        }
    }

    /// Sends left rows with their partners.
    fn send(&self, decided: &Decisions, output: &mut Output) -> Result<()> {
        for decided in decided.chunks(ROWS_SENT) {
            let mut columns = self.state.columns(LEFT, decided.iter().map(|(row, _)| row.row()))?;
            let partners = decided.iter().filter_map(|(_, partner)| self.state.row(RIGHT, partner.as_ref()?));
            let partners = self.state.columns(RIGHT, partners.map(|partner| partner.row.row()))?;
            let mut numbers = 0_u32..;
            let places = decided.iter().map(|(_, partner)| partner.and_then(|_| numbers.next()));
            let places: UInt32Array = places.collect();
            let of_right = partners.iter().map(|column| take(column, &places, None));
            let of_right = of_right.collect::<Result<Vec<ArrayRef>, ArrowError>>();
            columns.extend(of_right.map_err(|error| self.failed(&error))?);
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
            output.push(rows.map_err(|error| self.failed(&error))?.into());
        }
        Ok(())
    }

    /// Decides and sends what the watermarks say, and removes what they end.
    fn proceed(&mut self, output: &mut Output) -> Result<()> {
        let decided = self.decide();
        self.send(&decided, output)?;
        self.remove_passed();
        self.send_watermark(output);
        Ok(())
    }

    fn send_watermark(&self, output: &mut Output) {
        let [left, right] = &self.times;
        let least = match self.first_left() {
            EventTime::END if left.ended.0 && !right.ended.0 => right.first_time(),
            first => first,
        };
        if least > EventTime::START {
            output.watermark(least);
        }
    }

    /// Event times of a side in a batch.
    fn event_times(&self, side: usize, batch: &Batch) -> Result<Vec<Option<i64>>> {
        batch.nullable_times(self.times[side].time).ok_or_else(|| Error::Tuple {
            operator: self.name.clone(),
            reason: "a time of another type than TIMESTAMP".to_owned(),
        })
    }
}

impl Operator for AsofJoinOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        self.load(context)?;
        let (side, other) = (context.input, 1 - context.input);
        let times = self.event_times(side, batch)?;
        let join_times: Vec<Option<EventTime>> =
            times.iter().map(|time| time.map(EventTime::from_micros)).collect();
        let (arrivals, late, future) = self.times[side].arrivals(context, &times, &join_times, true);
        context.count_late(late);
        context.count_future(future);
        let decided = self.take(side, batch, &arrivals, &join_times)?;
        self.send(&decided, output)?;
        if let Some(Arrival { watermark, .. }) = arrivals.last() {
            self.times[side].watermark.raise(*watermark);
            if !self.times[other].ended.0 && self.times[other].progress.are_quiet(context) {
                self.times[other].watermark.raise(*watermark);
            }
        }
        self.proceed(output)
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
        self.proceed(output)
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
        self.swept.1 = self.swept.0;
        self.state.committed();
        Ok(())
    }

    fn aborted(&mut self) {
        for times in &mut self.times {
            times.ended.0 = times.ended.1;
            times.watermark.aborted();
            times.progress.aborted();
        }
        self.swept.0 = self.swept.1;
        self.state.aborted();
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        Ok(())
    }
}
