//! Matches in partitions whose rows are given one partition after another, each in its order: a pattern over a query that
//! ends, as that of a table.
//!
//! ```text
//!   add(rows) ─▶ rows that a match may need ─▶ take_matches() ─▶ batches of complete matches
//!   end_partition(): the last match of the partition is complete, and the next rows are of another one
//! ```
//!
//! There is no watermark: rows are looked at as soon as they are there. The end of a partition completes what the end of
//! a source does: a match that a greedy quantifier would go on with ends with the last row.
//!
//! Memory: the rows from the first of the open match on, as many before it as expressions look back, and the rows of
//! results until they are taken; all of it is reported to the [`MatchGuard`] before it grows further.

use crate::BATCH_TUPLES;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::expression::Reason;
use crate::operators::pattern::buffer::ROW_BYTES;
use crate::operators::pattern::matcher::{PatternMatcher, Run};
use crate::operators::pattern::path::{PatternRow, RowPosition};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of rows that are taken between two questions whether to go on.
const ROWS_BETWEEN_CHECKS: usize = 64;

/// Limits of a query that matches rows.
pub trait MatchGuard: Send {
    /// Returns an error if the query has to stop.
    fn check(&mut self) -> Result<(), Reason>;

    /// Reserves so many bytes in place of those before, or returns an error.
    fn resize(&mut self, bytes: usize) -> Result<(), Reason>;
}

/// Row that an open match may need, with the variables whose conditions on it alone hold.
struct OpenRow {
    row: Arc<PatternRow>,
    holds: u64,
}

/// Matcher of the rows of one partition after another; made by
/// [`PartitionPattern::matcher`](crate::PartitionPattern::matcher).
pub struct PartitionMatcher {
    matcher: PatternMatcher,
    look_back: usize,
    guard: Box<dyn MatchGuard>,
    rows: VecDeque<OpenRow>,
    /// Number in the partition of the first row of `rows`, and of the first with which a match may begin.
    first: usize,
    start: usize,
    run: Option<Run>,
    /// Number of matches of the partition so far.
    matches: i64,
    row_bytes: usize,
    /// Bytes of a row of a result, as estimated.
    result_bytes: usize,
    /// Number of rows taken since the last check.
    unchecked: usize,
}

impl PartitionMatcher {
    pub(crate) fn new(
        matcher: PatternMatcher,
        look_back: usize,
        guard: Box<dyn MatchGuard>,
    ) -> PartitionMatcher {
        let navigations = matcher.measures.iter().map(|measure| 1 + measure.navigations().len());
        let result_bytes = size_of::<Arc<PatternRow>>() * 8 * navigations.sum::<usize>();
        PartitionMatcher {
            matcher,
            look_back,
            guard,
            rows: VecDeque::new(),
            first: 0,
            start: 0,
            run: None,
            matches: 0,
            row_bytes: 0,
            result_bytes,
            unchecked: 0,
        }
    }

    fn stopped(&self, reason: Reason) -> Error {
        Error::Computation { operator: self.matcher.name.clone(), reason }
    }

    /// Adds rows behind those of the partition so far, with their times in microseconds if the time of a match is
    /// bounded; a row without a time is in no match.
    pub fn add(&mut self, batch: &RecordBatch, times: Option<&[Option<i64>]>) -> Result<()> {
        let converted = self.matcher.rows.rows_of(batch)?;
        let before = self.first + self.rows.len();
        let mut added = Vec::with_capacity(batch.num_rows());
        for (at, values) in converted.iter().enumerate() {
            let time = times.and_then(|times| times.get(at).copied().flatten()).unwrap_or_default();
            let number = i64::try_from(before + at).unwrap_or(i64::MAX);
            let position = (EventTime::from_micros(time), number);
            let row = Arc::new(PatternRow { position, values: values.owned() });
            self.row_bytes += bytes_of(&row);
            self.rows.push_back(OpenRow { row: Arc::clone(&row), holds: 0 });
            added.push(row);
        }
        self.resize()?;
        let rows = OpenRows { rows: &self.rows, first: self.first };
        let holds = self.matcher.holds(&added, &|_, of, offset| rows.previous(of, offset))?;
        let has_time = |at: usize| times.is_none_or(|times| times.get(at).is_some_and(Option::is_some));
        for (at, holds) in holds.into_iter().enumerate() {
            if let Some(row) = self.rows.get_mut(before + at - self.first) {
                row.holds = if has_time(at) { holds } else { 0 };
            }
        }
        Ok(())
    }

    /// Goes on with the matches over the rows that were added; returns a batch as soon as one is full, and none once all
    /// rows are looked at.
    pub fn take_matches(&mut self) -> Result<Option<RecordBatch>> {
        while self.matcher.complete.len() < BATCH_TUPLES {
            let run = match self.run.take() {
                Some(run) => run,
                None => match self.row(self.start) {
                    Some(first) => self.matcher.begin(first.row.position),
                    None => return Ok(None),
                },
            };
            self.go_on(run)?;
            if self.run.is_some() {
                return Ok(None);
            }
        }
        let sent = self.matcher.send()?;
        self.resize()?;
        Ok(sent)
    }

    /// Ends the partition, behind the last [`PartitionMatcher::take_matches`] of its rows; returns a batch as soon as one is full, and
    /// none once the next partition may begin.
    pub fn end_partition(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(sent) = self.take_matches()? {
                return Ok(Some(sent));
            }
            match self.run.take() {
                Some(run) => self.finish(run)?,
                None => break,
            }
        }
        self.rows.clear();
        (self.first, self.start, self.matches, self.row_bytes) = (0, 0, 0, 0);
        self.resize()?;
        Ok(None)
    }

    /// Takes complete matches that fill no batch, behind the last partition; none if there are no more.
    pub fn rest(&mut self) -> Result<Option<RecordBatch>> {
        self.matcher.send()
    }

    /// Row of the partition with a number, if it is there.
    fn row(&self, number: usize) -> Option<&OpenRow> {
        self.rows.get(number.checked_sub(self.first)?)
    }

    /// Goes on with a run up to its end, or to the last row that was added.
    fn go_on(&mut self, mut run: Run) -> Result<()> {
        let mut next = run.last.map_or(self.start, |last| number_of(last) + 1);
        loop {
            self.unchecked += 1;
            if self.unchecked >= ROWS_BETWEEN_CHECKS {
                self.unchecked = 0;
                self.guard.check().map_err(|reason| self.stopped(reason))?;
            }
            let rows = OpenRows { rows: &self.rows, first: self.first };
            let Some(row) = next.checked_sub(self.first).and_then(|at| self.rows.get(at)) else {
                self.run = Some(run);
                return Ok(());
            };
            let previous = |of, offset| rows.previous(of, offset);
            if !self.matcher.step(&mut run, &row.row, row.holds, &previous)? {
                return self.finish(run);
            }
            next += 1;
        }
    }

    /// Ends a run; rows that no match needs any more leave.
    fn finish(&mut self, run: Run) -> Result<()> {
        if run.has_match() {
            self.matches += 1;
            if self.matcher.all_rows {
                let sent = run.last.map_or(0, |last| number_of(last) + 1 - number_of(run.start));
                self.reserve(sent)?;
            }
        }
        let rows = OpenRows { rows: &self.rows, first: self.first };
        let previous = |of, offset| rows.previous(of, offset);
        let passed = self.matcher.finish(run, self.matches, &previous);
        self.start = number_of(passed) + 1;
        while self.first + self.look_back < self.start {
            let Some(first) = self.rows.pop_front() else { break };
            self.row_bytes -= bytes_of(&first.row);
            self.first += 1;
        }
        Ok(())
    }

    fn resize(&mut self) -> Result<()> {
        self.reserve(0)
    }

    /// Reserves the memory of what there is, and of so many more rows of results.
    fn reserve(&mut self, more: usize) -> Result<()> {
        let results = self.matcher.complete.len() + more;
        let bytes = self.row_bytes + results * self.result_bytes;
        self.guard.resize(bytes).map_err(|reason| self.stopped(reason))
    }
}

/// Rows of a partition by their numbers.
struct OpenRows<'r> {
    rows: &'r VecDeque<OpenRow>,
    first: usize,
}

impl OpenRows<'_> {
    fn previous(&self, of: RowPosition, offset: usize) -> Option<Arc<PatternRow>> {
        let number = number_of(of).checked_sub(offset)?;
        self.rows.get(number.checked_sub(self.first)?).map(|row| Arc::clone(&row.row))
    }
}

fn number_of(position: RowPosition) -> usize {
    usize::try_from(position.1).unwrap_or_default()
}

fn bytes_of(row: &PatternRow) -> usize {
    row.values.as_ref().len() + ROW_BYTES
}
