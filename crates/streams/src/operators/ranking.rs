//! Ranking: the first rows of each partition, with their ranks.
//!
//! | sent | when | late rows |
//! | --- | --- | --- |
//! | windows | a window closes: its partitions in order, each row once | those of closed windows |
//! | event time | the watermark passes a row's time, by which rows are ordered: each row once | those behind the watermark |
//! | commit | the transaction commits: rows whose rank has changed; the one that had it is taken back | none |
//!
//! - A row is late by the rows before it alone, as in windows ([`super::window_aggregate`]), so the output does not
//!   depend on batches and transactions; that of a commit does not, at each commit.
//! - Rows that are equal in the order are in the order in which they came.
//! - Of a ranking that is sent at the commit, rows may be taken back: those behind them move up.
//! - The watermark that it sends is that of the windows, or its own.
//! - In place of a rank, rows by event time may get the values of window functions over the rows before them
//!   ([`super::row_functions`]). Then all rows are sent, and those that no later frame reaches back to leave the state.
//!
//! State: the rows in the state table, the watermark in `streams_watermarks`, both written in the transaction. A crash
//! or an abort leaves both as of the last commit; see [`super::rank_state`].

use crate::BATCH_TUPLES;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::rank_state::frames::TakenRows;
use crate::operators::rank_state::{RankState, RankedOutput};
use crate::operators::row_functions::{FunctionValues, evaluate_functions};
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::to_table::ToTableOperator;
use crate::operators::window::{WindowSpan, watermark_after};
use crate::operators::window_aggregate::{SourceTimes, select};
use crate::operators::{Context, Operator, Output, current_of};
use crate::row_windows::RowFunction;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take;
use std::sync::Arc;

/// Times that rows wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RankTimes {
    Windows {
        time: usize,
        edge: usize,
        /// True if the edge is the end of a window that is known by its start.
        is_end: bool,
        span: WindowSpan,
    },
    EventTime {
        time: usize,
        lateness_us: i64,
        future_us: i64,
    },
    Commit,
}

impl RankTimes {
    /// Anchor of the window with an edge.
    pub(crate) fn anchor(&self, edge: EventTime) -> EventTime {
        match self {
            RankTimes::Windows { is_end: true, span, .. } => span.anchor_of_end(edge),
            RankTimes::Windows { span, .. } => span.anchor_at(edge),
            RankTimes::EventTime { .. } | RankTimes::Commit => edge,
        }
    }

    /// Columns of the event time, and of the edge or else the time again.
    fn columns(&self) -> Option<(usize, usize)> {
        match self {
            RankTimes::Windows { time, edge, .. } => Some((*time, *edge)),
            RankTimes::EventTime { time, .. } => Some((*time, *time)),
            RankTimes::Commit => None,
        }
    }

    /// Tells whether a row is late.
    fn is_late(&self, edge: EventTime, watermark: EventTime) -> bool {
        match self {
            RankTimes::Windows { span, .. } => span.closes_at(self.anchor(edge)) <= watermark,
            RankTimes::EventTime { .. } => edge < watermark,
            RankTimes::Commit => false,
        }
    }

    /// Tells whether a row stands for all copies of it in several windows.
    fn counts(&self, time: EventTime, edge: EventTime) -> bool {
        match self {
            RankTimes::Windows { span, .. } => span.is_first(self.anchor(edge), time),
            RankTimes::EventTime { .. } | RankTimes::Commit => true,
        }
    }

    /// Tells whether an event time is too far ahead of the clock to be believed.
    fn is_future(&self, time: EventTime, now: EventTime) -> bool {
        match self {
            RankTimes::Windows { span, .. } => span.is_future(time, now),
            RankTimes::EventTime { future_us, .. } => time > now.plus(*future_us),
            RankTimes::Commit => false,
        }
    }

    /// Watermark after an event time was seen.
    fn watermark_after(&self, time: EventTime) -> EventTime {
        match self {
            RankTimes::Windows { span, .. } => span.watermark_after(time),
            RankTimes::EventTime { lateness_us, .. } => watermark_after(time, *lateness_us),
            RankTimes::Commit => EventTime::START,
        }
    }
}

/// Table of late rows, and the columns that it gets.
pub(crate) struct LateRows {
    pub(crate) columns: Vec<usize>,
    pub(crate) write: ToTableOperator,
}

impl LateRows {
    /// Stores late rows of a batch.
    pub(crate) fn store(&mut self, context: &Context<'_>, batch: &Batch, rows: Vec<u32>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let failed =
            |error: ArrowError| Error::Tuple { operator: self.write.name.clone(), reason: error.to_string() };
        let rows = select(batch.rows(), rows).and_then(|rows| rows.project(&self.columns)).map_err(failed)?;
        self.write.batch(context, &rows.into(), &mut Output::default())
    }
}

pub(crate) struct RankOperator {
    pub(crate) name: String,
    pub(crate) times: RankTimes,
    pub(crate) state: RankState,
    /// Window functions, of rows by event time; none of a ranking.
    pub(crate) functions: Vec<RowFunction>,
    pub(crate) watermark: StoredWatermark,
    pub(crate) progress: SourceTimes,
    /// Columns of the output.
    pub(crate) schema: SchemaRef,
    pub(crate) late: Option<LateRows>,
}

impl RankOperator {
    /// Loads the state that is not in DRAM, and returns the watermark.
    fn load(&mut self, context: &Context<'_>) -> Result<EventTime> {
        let watermark = self.watermark.load(context)?;
        self.state.ensure_loaded(context.transaction()?, watermark)?;
        Ok(watermark)
    }

    /// Times of rows; an error if one is NULL.
    fn times_of<'b>(&self, batch: &'b Batch, column: usize) -> Result<&'b [i64]> {
        let reason = || "an event time is NULL".to_owned();
        batch.times(column).ok_or_else(|| Error::Tuple { operator: self.name.clone(), reason: reason() })
    }

    /// Adds the rows that are not late; returns the watermark behind them.
    fn add(&mut self, context: &Context<'_>, batch: &Batch, before: EventTime) -> Result<EventTime> {
        let ranked = self.state.convert(batch.rows())?;
        let Some((time, edge)) = self.times.columns() else {
            let tx = context.transaction()?;
            for row in 0..batch.len() {
                match batch.retracted() {
                    Some(retracted) if retracted.value(row) => self.state.remove(tx, &ranked, row)?,
                    _ => self.state.add(tx, &ranked, row, EventTime::START)?,
                }
            }
            return Ok(before);
        };
        let (times, edges) = (self.times_of(batch, time)?, self.times_of(batch, edge)?);
        let (mut watermark, mut late, mut future) = (before, Vec::new(), 0);
        for (row, (&time, &edge)) in times.iter().zip(edges).enumerate() {
            let (time, edge) = (EventTime::from_micros(time), EventTime::from_micros(edge));
            let is_future = self.times.is_future(time, context.now);
            let reached = if is_future { EventTime::START } else { self.progress.advance(context, time) };
            let counts = self.times.counts(time, edge);
            future += u64::from(is_future && counts);
            if !is_future && self.times.is_late(edge, watermark) {
                if counts {
                    late.push(row as u32);
                }
                continue;
            }
            self.state.add(context.transaction()?, &ranked, row, time)?;
            if !is_future {
                watermark = watermark.max(self.times.watermark_after(reached));
            }
        }
        context.count_late(late.len() as u64);
        context.count_future(future);
        if let Some(table) = &mut self.late {
            table.store(context, batch, late)?;
        }
        Ok(watermark)
    }

    /// Moves the watermark, and sends the rows that it completes.
    fn advance(
        &mut self,
        context: &Context<'_>,
        before: EventTime,
        watermark: EventTime,
        output: &mut Output,
    ) -> Result<()> {
        let mut sent = RankedOutput::default();
        match self.times {
            RankTimes::Windows { span, .. } => {
                self.state.close(span.closed_before(watermark), &mut sent);
                output.watermark(span.watermark_of_results(watermark));
            }
            RankTimes::EventTime { .. } if !self.functions.is_empty() => {
                self.send_over_rows(context, (before, watermark), output)?;
                output.watermark(watermark);
            }
            RankTimes::EventTime { .. } => {
                self.state.send_until(context.transaction()?, before, watermark, &mut sent)?;
                output.watermark(watermark);
            }
            RankTimes::Commit => {}
        }
        self.watermark.raise(watermark);
        self.send(&sent, output)
    }

    /// Sends the rows with times in a range, with the values of the functions.
    fn send_over_rows(
        &mut self,
        context: &Context<'_>,
        (mut from, to): (EventTime, EventTime),
        output: &mut Output,
    ) -> Result<()> {
        let tx = context.transaction()?;
        while let Some(taken) = self.state.take_until(tx, from, to)? {
            let values = evaluate_functions(&self.name, &mut self.functions, &taken)?;
            self.state.settle(&taken, &values.carried)?;
            from = taken.until;
            let rows = self.rows_by_time(&taken, &values);
            let rows = rows
                .map_err(|error| Error::Tuple { operator: self.name.clone(), reason: error.to_string() })?;
            for first in (0..rows.num_rows()).step_by(BATCH_TUPLES) {
                let count = BATCH_TUPLES.min(rows.num_rows() - first);
                output.push(rows.slice(first, count).into());
            }
        }
        Ok(())
    }

    /// New rows of all partitions in the order of their times, with the values of the functions.
    fn rows_by_time(&self, taken: &TakenRows, of: &FunctionValues) -> Result<RecordBatch, ArrowError> {
        let new = taken.parts.iter().flat_map(|part| part.first..part.rows.end);
        let mut order: Vec<(EventTime, u32, u32)> =
            new.enumerate().map(|(value, row)| (taken.times[row], row as u32, value as u32)).collect();
        order.sort_unstable();
        let rows = UInt32Array::from_iter_values(order.iter().map(|(_, row, _)| *row));
        let values = UInt32Array::from_iter_values(order.iter().map(|(_, _, value)| *value));
        let columns = taken.batch.columns().iter().map(|column| take(column, &rows, None));
        let added = of.values.iter().map(|column| take(column, &values, None));
        RecordBatch::try_new(Arc::clone(&self.schema), columns.chain(added).collect::<Result<_, _>>()?)
    }

    fn send(&self, sent: &RankedOutput, output: &mut Output) -> Result<()> {
        let mut first = 0;
        while first < sent.len() {
            let end = sent.len().min(first + BATCH_TUPLES);
            let columns = self.state.columns(sent, first..end)?;
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
            let failed =
                |error: ArrowError| Error::Tuple { operator: self.name.clone(), reason: error.to_string() };
            output.push(Batch::of_changes(batch.map_err(failed)?, sent.retracted(first..end)));
            first = end;
        }
        Ok(())
    }

    /// Watermark that completes all rows: rows of a later run that belong to them are late, and others are not.
    fn last(&self, before: EventTime) -> EventTime {
        let last = match self.times {
            RankTimes::Windows { span, .. } => self.state.last_window().map(|anchor| span.closes_at(anchor)),
            RankTimes::EventTime { .. } => self.state.last_pending().map(|time| time.plus(1)),
            RankTimes::Commit => None,
        };
        last.map_or(before, |last| last.max(before))
    }
}

impl Operator for RankOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        let watermark = self.add(context, batch, before)?;
        if watermark > before {
            self.advance(context, before, watermark, output)?;
        }
        self.state.reserve()
    }

    fn watermark(&mut self, context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        let is_end = time == EventTime::END;
        let reached = if is_end { self.last(before) } else { time };
        if reached > before && !matches!(self.times, RankTimes::Commit) {
            self.advance(context, before, reached, output)?;
        }
        if is_end {
            output.watermark(EventTime::END);
        }
        self.state.reserve()
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        self.load(context)?;
        if let RankTimes::Commit = self.times {
            let mut changed = RankedOutput::default();
            self.state.send_changes(&mut changed);
            self.send(&changed, output)?;
        }
        self.state.write(context.transaction()?)?;
        self.watermark.write(context)?;
        self.late.as_mut().map_or(Ok(()), |late| late.write.commit(context, output))
    }

    fn sealed(&mut self) {
        self.watermark.sealed();
        self.progress.sealed();
    }

    fn committed(&mut self) -> Result<()> {
        self.watermark.committed();
        self.progress.committed();
        self.state.committed();
        Ok(())
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        self.late.as_mut().map_or(Ok(()), |late| late.write.redefined())
    }

    fn aborted(&mut self) {
        self.state.aborted();
        self.watermark.aborted();
        self.progress.aborted();
    }
}
