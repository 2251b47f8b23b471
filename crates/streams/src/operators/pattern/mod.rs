//! Row patterns: sequences of rows of a partition, in the order of their event times, each of which meets the condition
//! of a variable; as MATCH_RECOGNIZE.
//!
//! - Rows are taken in order once the watermark has passed their times: a row behind the watermark is late. So the
//!   matches are those of all rows that were not late, however they come: in which order, batches and transactions.
//! - A match begins with the first row that can begin one, and is the preferred one of those that begin there
//!   ([`automaton`]). It is sent when no row can change it: the next row does not go on with it, or comes too late for
//!   it, or the watermark has passed the greatest time of its rows.
//! - The rows of a match lie within a greatest time of each other, from the first to the last; so a row is buffered no
//!   longer than that behind the watermark.
//! - What is sent is one row for each match, or one for each of its rows, which reads the match up to it ([`path`]).
//! - Behind a match, the next begins with the row after its last, or after its first.
//! - The watermark that it sends is the time of the first row that may be of a match.
//!
//! State: rows in the state table, the watermark in `streams_watermarks`, both written in the transaction. A crash or an
//! abort leaves both as of the last commit; matches that are being formed follow from the rows ([`buffer`]).

pub(crate) mod automaton;
pub(crate) mod buffer;
pub(crate) mod match_numbers;
pub(crate) mod matcher;
pub(crate) mod partition;
pub(crate) mod path;
pub(crate) mod rows;

use crate::BATCH_TUPLES;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::pattern::buffer::{PartitionKey, PatternBuffer};
use crate::operators::pattern::match_numbers::MatchNumbers;
use crate::operators::pattern::matcher::{PatternMatcher, Run};
use crate::operators::pattern::path::{PatternRow, RowPosition};
use crate::operators::ranking::LateRows;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window::watermark_after;
use crate::operators::window_aggregate::SourceTimes;
use crate::operators::{Context, Operator, Output, current_of};
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) struct PatternOperator {
    pub(crate) matcher: PatternMatcher,
    /// Numbers of matches, if a measure reads them.
    pub(crate) numbers: Option<MatchNumbers>,
    /// Greatest time from the first to the last row of a match.
    pub(crate) within_us: i64,
    /// Number of rows before another that conditions and measures read.
    pub(crate) look_back: usize,
    pub(crate) time: usize,
    pub(crate) lateness_us: i64,
    pub(crate) future_us: i64,
    pub(crate) buffer: PatternBuffer,
    pub(crate) watermark: StoredWatermark,
    pub(crate) progress: SourceTimes,
    pub(crate) late: Option<LateRows>,
    pub(crate) matching: PatternMatches,
}

/// Matches that are being formed.
#[derive(Default)]
pub(crate) struct PatternMatches {
    runs: HashMap<PartitionKey, Run>,
    /// Partitions with a run, by the time of its first row.
    starts: BTreeSet<(EventTime, PartitionKey)>,
    /// Partitions whose runs must be formed again.
    interrupted: Vec<PartitionKey>,
}

impl PatternOperator {
    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.matcher.name.clone(), reason }
    }

    /// Loads the state that is not in DRAM, and returns the watermark.
    fn load(&mut self, context: &Context<'_>) -> Result<EventTime> {
        let watermark = self.watermark.load(context)?;
        if let Some(numbers) = &mut self.numbers {
            numbers.load(context.transaction()?)?;
        }
        if !self.buffer.loaded {
            self.matching = PatternMatches::default();
            self.matcher.complete.clear();
            self.buffer.load(context.transaction()?)?;
            self.take_until(watermark)?;
        }
        for key in std::mem::take(&mut self.matching.interrupted) {
            self.go_on(&key)?;
        }
        Ok(watermark)
    }

    /// Buffers the rows that are not late; returns the watermark behind them.
    fn add(&mut self, context: &Context<'_>, batch: &Batch, before: EventTime) -> Result<EventTime> {
        let times = batch.times(self.time).ok_or_else(|| self.refused("an event time is NULL".to_owned()))?;
        let (keys, rows) = (self.buffer.keys_of(batch.rows())?, self.matcher.rows.rows_of(batch.rows())?);
        let (mut watermark, mut late, mut future) = (before, Vec::new(), 0);
        for (at, &micros) in times.iter().enumerate() {
            let time = EventTime::from_micros(micros);
            let is_future = time > context.now.plus(self.future_us);
            let reached = if is_future { EventTime::START } else { self.progress.advance(context, time) };
            future += u64::from(is_future);
            if time < watermark {
                late.push(at as u32);
                continue;
            }
            self.buffer.add(&keys[at], time, &rows, at)?;
            if !is_future {
                watermark = watermark.max(watermark_after(reached, self.lateness_us));
            }
        }
        context.count_late(late.len() as u64);
        context.count_future(future);
        if let Some(table) = &mut self.late {
            table.store(context, batch, late)?;
        }
        Ok(watermark)
    }

    /// Takes the rows before the watermark in order.
    fn take_until(&mut self, watermark: EventTime) -> Result<()> {
        loop {
            let taken = self.buffer.take_ready(watermark, BATCH_TUPLES);
            if taken.is_empty() {
                return Ok(());
            }
            let holds = self.conditions_of_rows(&taken)?;
            for ((key, position), holds) in taken.into_iter().zip(holds) {
                self.buffer.set_holds(&key, position, holds);
                self.go_on(&key)?;
            }
        }
    }

    /// Variables whose conditions on the rows alone hold, as bits.
    fn conditions_of_rows(&mut self, taken: &[(PartitionKey, RowPosition)]) -> Result<Vec<u64>> {
        let buffer = &self.buffer;
        let row = |(key, position): &(PartitionKey, RowPosition)| buffer.row(key, *position);
        let rows: Vec<Arc<PatternRow>> =
            taken.iter().filter_map(|at| row(at).map(|row| Arc::clone(&row.row))).collect();
        self.matcher.holds(&rows, &|at, of, offset| buffer.previous(&taken[at].0, of, offset))
    }

    /// Goes on with the match of a partition, over the rows that were taken.
    fn go_on(&mut self, key: &PartitionKey) -> Result<()> {
        loop {
            let Some(run) = self.matching.runs.get_mut(key) else {
                let Some(first) = self.buffer.next_taken(key, None) else { return Ok(()) };
                let start = first.row.position;
                self.matching.starts.insert((start.0, Arc::clone(key)));
                self.matching.runs.insert(Arc::clone(key), self.matcher.begin(start));
                continue;
            };
            let next = match run.last {
                None => self.buffer.row(key, run.start),
                Some(last) => self.buffer.next_taken(key, Some(last)),
            };
            let Some(next) = next else { return Ok(()) };
            let (row, holds) = (&next.row, next.holds.unwrap_or_default());
            let buffer = &self.buffer;
            let previous = |of, offset| buffer.previous(key, of, offset);
            if !self.matcher.step(run, row, holds, &previous)? {
                self.finish(key)?;
            }
        }
    }

    /// Ends the run of a partition, with its match if there is one.
    fn finish(&mut self, key: &PartitionKey) -> Result<()> {
        let Some(run) = self.matching.runs.remove(key) else { return Ok(()) };
        self.matching.starts.remove(&(run.start.0, Arc::clone(key)));
        let mut number = 0;
        if let Some(numbers) = self.numbers.as_mut().filter(|_| run.has_match()) {
            number = numbers.next(key)?;
        }
        let buffer = &self.buffer;
        let previous = |of, offset| buffer.previous(key, of, offset);
        let passed = self.matcher.finish(run, number, &previous);
        self.buffer.pass(key, passed, self.look_back);
        Ok(())
    }

    /// Ends the runs that no row before the watermark goes on with.
    fn finish_until(&mut self, watermark: EventTime) -> Result<()> {
        while let Some((start, key)) = self.matching.starts.first().cloned() {
            if start.plus(self.within_us) >= watermark {
                return Ok(());
            }
            self.finish(&key)?;
            self.go_on(&key)?;
        }
        Ok(())
    }

    /// Moves the watermark, and sends the matches that it completes.
    fn advance(&mut self, watermark: EventTime, output: &mut Output) -> Result<()> {
        self.take_until(watermark)?;
        self.finish_until(watermark)?;
        self.send(output)?;
        let first_start = self.matching.starts.first().map(|(start, _)| *start);
        let first = [first_start, self.buffer.first_ready()].into_iter().flatten().min();
        output.watermark(first.map_or(watermark, |first| first.min(watermark)));
        Ok(())
    }

    /// Sends the complete matches.
    fn send(&mut self, output: &mut Output) -> Result<()> {
        while let Some(sent) = self.matcher.send()? {
            output.push(sent.into());
        }
        Ok(())
    }
}

impl Operator for PatternOperator {
    fn name(&self) -> &str {
        &self.matcher.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        let watermark = self.add(context, batch, before)?;
        if watermark > before {
            self.watermark.raise(watermark);
            self.advance(watermark, output)?;
        }
        Ok(())
    }

    fn watermark(&mut self, context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        if time == EventTime::END {
            // Rows of a later run that are behind the last one are late.
            let last = self.buffer.last_time().map_or(before, |last| last.plus(1).max(before));
            self.watermark.raise(last);
            self.take_until(EventTime::END)?;
            self.finish_until(EventTime::END)?;
            self.send(output)?;
            output.watermark(EventTime::END);
        } else if time > before {
            self.watermark.raise(time);
            self.advance(time, output)?;
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        self.load(context)?;
        self.buffer.write(context.transaction()?)?;
        if let Some(numbers) = &self.numbers {
            numbers.write(context.transaction()?)?;
        }
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
        self.buffer.committed();
        self.numbers.iter_mut().for_each(MatchNumbers::committed);
        Ok(())
    }

    fn aborted(&mut self) {
        self.watermark.aborted();
        self.progress.aborted();
        self.matcher.complete.clear();
        self.numbers.iter_mut().for_each(MatchNumbers::aborted);
        for key in self.buffer.aborted(self.watermark.current()) {
            if let Some(run) = self.matching.runs.remove(&key) {
                self.matching.starts.remove(&(run.start.0, Arc::clone(&key)));
            }
            self.matching.interrupted.push(key);
        }
    }

    fn redefined(&mut self) -> Result<()> {
        self.buffer.table = current_of(&self.matcher.name, &self.buffer.table, |old, new| old == new)?;
        if let Some(numbers) = &mut self.numbers {
            numbers.table = current_of(&self.matcher.name, &numbers.table, |old, new| old == new)?;
        }
        self.late.as_mut().map_or(Ok(()), |late| late.write.redefined())
    }
}
