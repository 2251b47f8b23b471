//! Event-time windows with aggregates per group.
//!
//! - The window of a tuple is the tumbling window that contains its event time, or the one that its columns say
//!   ([`super::assign_windows`]); windows are known by their anchors ([`super::window`]).
//! - The operator's watermark is the greater of (event time - lateness) and the watermark punctuations from
//!   upstream, where the event time is the least, over the sources, of the greatest one that each has sent: a
//!   slower source loses nothing. Sources that have ended, or send nothing for a while, do not count. It
//!   never decreases. A window is closed once the watermark has reached its end.
//! - An event time further ahead of the clock than the window's limit moves no watermark: one wrong clock must
//!   not close the windows of all others. Its tuple is counted, and waits in its window.
//! - A tuple whose window is closed is late: it is counted, and dropped or stored in a table; if it has several
//!   windows, once. Whether a tuple is late depends on the tuples before it only, not on batches or transaction
//!   boundaries.
//! - With a time for corrections, the groups of a window that has been sent stay for so long: a tuple of it sends its
//!   group again, with the results of all tuples, and is late only behind that time.
//! - The watermark that it sends is the start of the oldest window that may be open: what is sent later is not
//!   earlier.
//! - A closed window sends one tuple per group: group columns, window_start, window_end, results; windows in
//!   order of time, groups in order of their keys.
//! - With early results, the groups of open windows are sent too, at commits, and replace those that were sent before
//!   ([`super::early`]).
//! - At the end of the stream all windows are closed.
//!
//! The window of a tuple, its lateness and the watermark are found in the topology's thread; the groups may be
//! divided among threads ([`super::divided_state`]).
//!
//! State: open windows in the state table, the watermark in `streams_watermarks`, both written in the
//! transaction. A crash or an abort leaves both as of the last commit; see [`super::window_state`].

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::divided_state::DividedState;
use crate::operators::early::EarlyResults;
use crate::operators::state_form::StateCosts;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::to_table::ToTableOperator;
use crate::operators::window::WindowSpan;
use crate::operators::window_state::ClosedGroups;
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{PrimitiveArray, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use entresol_memory::Env;
use std::collections::HashMap;
use std::sync::Arc;

/// Greatest event times of the sources of an operator.
pub(crate) struct SourceTimes {
    sources: Vec<SourceTime>,
}

struct SourceTime {
    source: usize,
    /// Its greatest event time, that at the end of the epoch that was sealed last, and that as of the last commit.
    greatest: EventTime,
    sealed: EventTime,
    committed: EventTime,
}

impl SourceTimes {
    /// Times of these sources, which have sent nothing yet.
    pub(crate) fn new(sources: &[usize]) -> SourceTimes {
        let none = EventTime::START;
        let time = |&source: &usize| SourceTime { source, greatest: none, sealed: none, committed: none };
        SourceTimes { sources: sources.iter().map(time).collect() }
    }

    pub(crate) fn is_of_several(&self) -> bool {
        self.sources.len() > 1
    }

    /// Notes an event time; returns the time up to which all sources that are not quiet have come.
    pub(crate) fn advance(&mut self, context: &Context<'_>, time: EventTime) -> EventTime {
        let Some(from) = context.source.filter(|_| self.sources.len() > 1) else { return time };
        let mut least = EventTime::END;
        for SourceTime { source, greatest, .. } in &mut self.sources {
            if *source == from {
                *greatest = (*greatest).max(time);
            } else if context.quiet.get(*source) == Some(&true) {
                continue;
            }
            least = least.min(*greatest);
        }
        least
    }

    pub(crate) fn sealed(&mut self) {
        self.sources.iter_mut().for_each(|time| time.sealed = time.greatest);
    }

    pub(crate) fn committed(&mut self) {
        self.sources.iter_mut().for_each(|time| time.committed = time.sealed);
    }

    pub(crate) fn aborted(&mut self) {
        self.sources.iter_mut().for_each(|time| time.greatest = time.committed);
    }

    /// Tells whether nothing is waited for: there are sources, and all are quiet.
    pub(crate) fn are_quiet(&self, context: &Context<'_>) -> bool {
        let is_quiet =
            |source: usize| context.source != Some(source) && context.quiet.get(source) == Some(&true);
        !self.sources.is_empty() && self.sources.iter().all(|time| is_quiet(time.source))
    }
}

pub(crate) struct WindowAggregate {
    pub(crate) name: String,
    pub(crate) time_column: usize,
    /// Column with an edge of each tuple's window; without one the windows are tumbling.
    pub(crate) edge_column: Option<usize>,
    pub(crate) span: WindowSpan,
    /// Time behind the end of a window in which its results are corrected, in microseconds.
    pub(crate) correction_us: i64,
    /// Results of open windows that are sent before they close.
    pub(crate) early: Option<EarlyWindows>,
    pub(crate) state: DividedState,
    /// Environment of its threads.
    pub(crate) env: Env,
    pub(crate) watermark: StoredWatermark,
    pub(crate) progress: SourceTimes,
    /// Columns of the output.
    pub(crate) schema: SchemaRef,
    /// Table of late tuples.
    pub(crate) late: Option<ToTableOperator>,
}

/// Occasion at which results of open windows are sent.
pub(crate) enum EarlyWindows {
    /// Each commit, as far as they have changed.
    Commit,
    /// Commits behind an interval: all groups of the windows that have changed.
    Every(Box<EarlyResults<EventTime, EventTime>>),
}

/// Tuples of a batch by their windows.
struct WindowAssignment {
    windows: Vec<(EventTime, Rows)>,
    watermark: EventTime,
    late: Vec<u32>,
    future: u64,
}

/// Rows of a batch.
enum Rows {
    All,
    Listed(Vec<u32>),
}

impl WindowAggregate {
    /// Loads the state that is not in DRAM, and returns the watermark.
    fn load(&mut self, context: &Context<'_>) -> Result<EventTime> {
        self.state.ensure_loaded(context.epoch)?;
        self.watermark.load(context)
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Assigns tuples to windows, in order; those that are late to none.
    fn assign(
        &mut self,
        context: &Context<'_>,
        times: &[i64],
        edges: Option<&[i64]>,
        before: EventTime,
    ) -> WindowAssignment {
        if edges.is_none()
            && let Some(assigned) = self.assign_to_one(context, times, before)
        {
            return assigned;
        }
        let mut assigned =
            WindowAssignment { windows: Vec::new(), watermark: before, late: Vec::new(), future: 0 };
        let mut places: HashMap<EventTime, usize> = HashMap::new();
        let mut last = 0;
        // Of the window of the last tuple.
        let (mut anchor, mut end) = (EventTime::END, EventTime::START);
        for (row, &micros) in times.iter().enumerate() {
            let time = EventTime::from_micros(micros);
            let next = match edges {
                Some(edges) => self.span.anchor_at(EventTime::from_micros(edges[row])),
                None if (anchor..end).contains(&time) => anchor,
                None => self.span.first_anchor(time),
            };
            if next != anchor {
                (anchor, end) = (next, self.span.closes_at(next));
                last = places.get(&anchor).copied().unwrap_or(assigned.windows.len());
            }
            let is_future = self.span.is_future(time, context.now);
            let reached = if is_future { EventTime::START } else { self.progress.advance(context, time) };
            if is_future {
                assigned.future += u64::from(self.span.is_first(anchor, time));
            } else if end.plus(self.correction_us) <= assigned.watermark {
                if self.span.is_first(anchor, time) {
                    assigned.late.push(row as u32);
                }
                continue;
            }
            if last == assigned.windows.len() {
                places.insert(anchor, last);
                assigned.windows.push((anchor, Rows::Listed(Vec::new())));
            }
            if let Rows::Listed(rows) = &mut assigned.windows[last].1 {
                rows.push(row as u32);
            }
            if !is_future {
                assigned.watermark = assigned.watermark.max(self.span.watermark_after(reached));
            }
        }
        assigned
    }

    /// Assigns tuples of one source that are all of one window, and not late.
    fn assign_to_one(
        &mut self,
        context: &Context<'_>,
        times: &[i64],
        before: EventTime,
    ) -> Option<WindowAssignment> {
        if self.progress.is_of_several() {
            return None;
        }
        let [least, greatest] = [*times.iter().min()?, *times.iter().max()?].map(EventTime::from_micros);
        let anchor = self.span.first_anchor(least);
        let end = self.span.closes_at(anchor);
        if greatest >= end
            || end.plus(self.correction_us) <= before
            || self.span.is_future(greatest, context.now)
        {
            return None;
        }
        let watermark = before.max(self.span.watermark_after(greatest));
        Some(WindowAssignment { windows: vec![(anchor, Rows::All)], watermark, late: Vec::new(), future: 0 })
    }

    /// Closes the windows that end behind one watermark, up to another, and sends their results; removes those that
    /// nothing corrects any more.
    fn close_between(
        &mut self,
        context: &Context<'_>,
        (before, watermark): (EventTime, EventTime),
        output: &mut Output,
    ) -> Result<()> {
        let mut closed = Vec::new();
        let gone = self.span.closed_before(watermark.minus(self.correction_us));
        let closing = self.span.closed_before(before)..self.span.closed_before(watermark);
        for anchor in self.state.starts_within(context.epoch, closing)? {
            if let Some(groups) = self.state.results(context.epoch, anchor)? {
                closed.push(self.results(anchor, groups).map_err(|error| self.failed(&error))?);
            }
            if anchor < gone {
                self.state.remove(context.epoch, anchor)?;
            }
        }
        while let Some(anchor) = self.state.first_before(context.epoch, gone)? {
            self.state.remove(context.epoch, anchor)?;
        }
        let batch = match closed.len() {
            0 => return Ok(()),
            1 => closed.swap_remove(0),
            _ => concat_batches(&self.schema, &closed).map_err(|error| self.failed(&error))?,
        };
        output.push(batch.into());
        Ok(())
    }

    /// Adds tuples to a window; sends their groups again if the window was sent already.
    fn add(
        &mut self,
        context: &Context<'_>,
        (anchor, tuples): (EventTime, &RecordBatch),
        before: EventTime,
        output: &mut Output,
    ) -> Result<()> {
        if self.span.closes_at(anchor) > before {
            return self.state.add(context.epoch, anchor, tuples);
        }
        let groups = self.state.correct(context.epoch, anchor, tuples)?;
        output.push(self.results(anchor, groups).map_err(|error| self.failed(&error))?.into());
        Ok(())
    }

    /// Sends the results of open windows that are due.
    fn send_early(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        match self.early.take() {
            None => Ok(()),
            Some(EarlyWindows::Commit) => {
                self.early = Some(EarlyWindows::Commit);
                for (anchor, groups) in self.state.touched_results(context.epoch)? {
                    output.push(self.results(anchor, groups).map_err(|error| self.failed(&error))?.into());
                }
                Ok(())
            }
            Some(EarlyWindows::Every(mut early)) => {
                let sent = self.send_due(context, &mut early, output);
                self.early = Some(EarlyWindows::Every(early));
                sent
            }
        }
    }

    /// Sends the results that are due, the next ones of all open windows, and then those that have changed, as far as this
    /// transaction has room for them.
    fn send_due(
        &mut self,
        context: &Context<'_>,
        early: &mut EarlyResults<EventTime, EventTime>,
        output: &mut Output,
    ) -> Result<()> {
        early.note(self.state.touched_windows(context.epoch)?);
        if context.withholds || !early.begin(context.now) {
            return Ok(());
        }
        context.note_due();
        let mut has_room = true;
        if let Some(behind) = early.pass() {
            let first = behind.map_or(EventTime::START, |behind| behind.plus(1));
            let mut anchors = self.state.starts_within(context.epoch, first..EventTime::END)?.into_iter();
            let passed = loop {
                let Some(anchor) = anchors.next() else { break None };
                has_room = self.send_window(context, anchor, early, output)?;
                if !has_room {
                    break Some(anchor);
                }
            };
            early.passed(passed);
        }
        while has_room && let Some(anchor) = early.take(1).pop() {
            has_room = self.send_window(context, anchor, early, output)?;
        }
        early.pause(context.now);
        Ok(())
    }

    /// Sends the results of an open window; returns true if this transaction has room for more.
    fn send_window(
        &mut self,
        context: &Context<'_>,
        anchor: EventTime,
        early: &mut EarlyResults<EventTime, EventTime>,
        output: &mut Output,
    ) -> Result<bool> {
        let groups = self.state.results(context.epoch, anchor)?;
        let Some(groups) = groups.filter(|groups| groups.groups > 0) else { return Ok(true) };
        let results = self.results(anchor, groups).map_err(|error| self.failed(&error))?;
        let has_room = early.has_room_behind(&results);
        output.push(results.into());
        Ok(has_room)
    }

    /// Moves the watermark, and sends what it closes.
    fn advance(
        &mut self,
        context: &Context<'_>,
        (before, watermark): (EventTime, EventTime),
        output: &mut Output,
    ) -> Result<()> {
        if watermark <= before {
            return Ok(());
        }
        self.watermark.raise(watermark);
        self.close_between(context, (before, watermark), output)?;
        // Corrections may be of earlier windows.
        output.watermark(self.span.watermark_of_results(watermark.minus(self.correction_us)));
        Ok(())
    }

    /// Tuples of a closed window.
    fn results(&self, anchor: EventTime, closed: ClosedGroups) -> Result<RecordBatch, ArrowError> {
        let mut columns = closed.keys;
        let edge = self.schema.field(columns.len()).data_type().clone();
        for time in [self.span.start_of(anchor), self.span.end_of(anchor)] {
            let times = PrimitiveArray::<TimestampMicrosecondType>::from_value(time.micros(), closed.groups);
            columns.push(Arc::new(times.with_data_type(edge.clone())));
        }
        columns.extend(closed.results);
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }

    /// Closes all windows; the watermark becomes the end of the last one, so that tuples of a later run that
    /// belong to it are late, and others are not.
    fn close_all(&mut self, context: &Context<'_>, before: EventTime, output: &mut Output) -> Result<()> {
        if let Some(anchor) = self.state.last_start(context.epoch)? {
            let end = self.span.closes_at(anchor).max(before);
            self.close_between(context, (before, end), output)?;
            self.watermark.raise(end);
        }
        output.watermark(EventTime::END);
        Ok(())
    }
}

impl Operator for WindowAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn parts(&self) -> usize {
        self.state.parts()
    }

    fn state_costs(&self) -> Option<StateCosts> {
        self.state.state_costs()
    }

    fn open(&mut self) -> Result<()> {
        self.state.open(&self.env)
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        let times_of = |column: usize| {
            let reason = || "an event time is NULL".to_owned();
            let times = batch.times(column);
            times.ok_or_else(|| Error::Tuple { operator: self.name.clone(), reason: reason() })
        };
        let times = times_of(self.time_column)?;
        let edges = self.edge_column.map(times_of).transpose()?;
        let assigned = self.assign(context, times, edges, before);
        for (anchor, rows) in assigned.windows {
            let tuples = match rows {
                Rows::All => batch.rows().clone(),
                Rows::Listed(rows) => select(batch.rows(), rows).map_err(|error| self.failed(&error))?,
            };
            self.add(context, (anchor, &tuples), before, output)?;
        }
        context.count_late(assigned.late.len() as u64);
        if let Some(late) = &mut self.late {
            store_late(&self.name, late, context, batch, assigned.late)?;
        }
        context.count_future(assigned.future);
        self.advance(context, (before, assigned.watermark), output)
    }

    fn watermark(&mut self, context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        if time == EventTime::END {
            if let Some(EarlyWindows::Every(early)) = &mut self.early {
                early.end();
            }
            return self.close_all(context, before, output);
        }
        self.advance(context, (before, time), output)
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        self.load(context)?;
        self.send_early(context, output)?;
        self.state.write_touched(context.epoch)?;
        self.watermark.write(context)?;
        context.epoch.vote(self.state.table()?)?;
        self.late.as_mut().map_or(Ok(()), |late| late.commit(context, output))
    }

    fn sealed(&mut self) {
        self.watermark.sealed();
        self.progress.sealed();
        self.state.sealed();
        if let Some(EarlyWindows::Every(early)) = &mut self.early {
            early.sealed();
        }
    }

    fn committed(&mut self) -> Result<()> {
        self.watermark.committed();
        self.progress.committed();
        self.state.committed();
        if let Some(EarlyWindows::Every(early)) = &mut self.early {
            early.committed();
        }
        Ok(())
    }

    fn redefined(&mut self) -> Result<()> {
        let table = current_of(&self.name, self.state.table()?, |old, new| old == new)?;
        self.state.set_table(&table);
        self.late.as_mut().map_or(Ok(()), Operator::redefined)
    }

    fn is_due(&self, now: EventTime) -> bool {
        matches!(&self.early, Some(EarlyWindows::Every(early)) if early.is_due(now))
    }

    fn aborted(&mut self) {
        self.state.aborted();
        self.watermark.aborted();
        self.progress.aborted();
        if let Some(EarlyWindows::Every(early)) = &mut self.early {
            early.aborted();
        }
    }
}

/// Stores late rows of a batch in their table.
pub(crate) fn store_late(
    operator: &str,
    late: &mut ToTableOperator,
    context: &Context<'_>,
    batch: &Batch,
    rows: Vec<u32>,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns: Vec<usize> = (0..late.columns.len()).collect();
    let tuples = select(batch.rows(), rows).and_then(|tuples| tuples.project(&columns));
    let failed =
        |error: ArrowError| Error::Tuple { operator: operator.to_owned(), reason: error.to_string() };
    late.batch(context, &tuples.map_err(failed)?.into(), &mut Output::default())
}

/// Rows of a batch, copied only if they are not one after the other.
pub(crate) fn select(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch, ArrowError> {
    let first = rows.first().map_or(0, |&first| first as usize);
    if rows.last().is_some_and(|&last| last as usize - first + 1 == rows.len()) {
        return Ok(batch.slice(first, rows.len()));
    }
    take_record_batch(batch, &UInt32Array::from(rows))
}
