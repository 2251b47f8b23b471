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
pub(crate) mod path;

use crate::BATCH_TUPLES;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::expression::Reason;
use crate::operators::pattern::automaton::{Automaton, Target};
use crate::operators::pattern::buffer::{PartitionKey, PatternBuffer};
use crate::operators::pattern::match_numbers::MatchNumbers;
use crate::operators::pattern::path::{
    FoundRows, MatchRow, NavigatedRows, Navigation, PathRow, PatternExpression, PatternMeasure, PatternRow,
    RowPosition, navigate,
};
use crate::operators::ranking::LateRows;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window::watermark_after;
use crate::operators::window_aggregate::SourceTimes;
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take_record_batch;
use hashbrown::HashMap;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Maximum of ways in which the rows of a partition may go on to be a match, at one time.
pub(crate) const THREADS_MAX: usize = 4096;

/// Maximum of rows of matches that the measures of rows that are sent together read, but for those of one row.
const ROWS_READ_MAX: usize = 1 << 18;

/// Conditions of a variable; a row is of it if all that are there are true.
#[derive(Default)]
pub(crate) struct VariableConditions {
    /// Condition on the row alone, and on rows before it.
    pub(crate) of_row: Option<PatternExpression>,
    /// Condition on the match so far.
    pub(crate) of_match: Option<PatternExpression>,
}

/// Way in which the rows so far may go on to be a match.
struct Thread {
    at: usize,
    variable: usize,
    path: Option<Arc<PathRow>>,
}

/// Match that is being formed in a partition.
struct Run {
    start: RowPosition,
    /// Last row that was taken; none before the first.
    last: Option<RowPosition>,
    /// In the order of preference.
    threads: Vec<Thread>,
    /// Match, if no thread goes on.
    best: Option<Arc<PathRow>>,
}

pub(crate) struct PatternOperator {
    pub(crate) name: String,
    pub(crate) automaton: Automaton,
    pub(crate) conditions: Vec<VariableConditions>,
    pub(crate) measures: Vec<PatternMeasure>,
    /// True if each row of a match is sent, else one row for all of them.
    pub(crate) all_rows: bool,
    /// Numbers of matches, if a measure reads them.
    pub(crate) numbers: Option<MatchNumbers>,
    /// Greatest time from the first to the last row of a match.
    pub(crate) within_us: i64,
    /// True if the next match begins behind the last row of one, else behind its first.
    pub(crate) skips_match: bool,
    /// Number of rows before another that conditions and measures read.
    pub(crate) look_back: usize,
    pub(crate) time: usize,
    pub(crate) lateness_us: i64,
    pub(crate) future_us: i64,
    pub(crate) buffer: PatternBuffer,
    pub(crate) watermark: StoredWatermark,
    pub(crate) progress: SourceTimes,
    /// Columns of the output: one for each measure.
    pub(crate) schema: SchemaRef,
    pub(crate) late: Option<LateRows>,
    pub(crate) matching: PatternMatches,
}

/// Matches that are being formed, and those that are complete and not sent yet.
#[derive(Default)]
pub(crate) struct PatternMatches {
    runs: HashMap<PartitionKey, Run>,
    /// Partitions with a run, by the time of its first row.
    starts: BTreeSet<(EventTime, PartitionKey)>,
    /// Partitions whose runs must be formed again.
    interrupted: Vec<PartitionKey>,
    /// Rows of the results of complete matches.
    complete: Vec<MatchRow>,
}

impl PatternOperator {
    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }

    fn failed(&self, error: &ArrowError) -> Error {
        self.refused(error.to_string())
    }

    /// Loads the state that is not in DRAM, and returns the watermark.
    fn load(&mut self, context: &Context<'_>) -> Result<EventTime> {
        let watermark = self.watermark.load(context)?;
        if let Some(numbers) = &mut self.numbers {
            numbers.load(context.transaction()?)?;
        }
        if !self.buffer.loaded {
            self.matching = PatternMatches::default();
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
        let (keys, rows) = (self.buffer.keys_of(batch.rows())?, self.buffer.rows_of(batch.rows())?);
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
        let mut holds = vec![u64::MAX; taken.len()];
        for (variable, conditions) in self.conditions.iter_mut().enumerate() {
            let Some(condition) = &mut conditions.of_row else { continue };
            let buffer = &self.buffer;
            let found = taken.iter().map(|(key, position)| {
                let row = buffer.row(key, *position).map(|row| &row.row);
                let path: Vec<_> = row.into_iter().map(|row| (row, variable)).collect();
                let previous = |of, offset| buffer.previous(key, of, offset);
                let navigations = condition.navigations.iter();
                navigations.map(|navigation| navigate(*navigation, &path, &previous)).collect::<FoundRows>()
            });
            let found: Vec<FoundRows> = found.collect();
            let truths = truths(&self.name, buffer, condition, &found)?;
            for (holds, is_true) in holds.iter_mut().zip(truths) {
                if !is_true {
                    *holds &= !(1 << variable);
                }
            }
        }
        Ok(holds)
    }

    /// Goes on with the match of a partition, over the rows that were taken.
    fn go_on(&mut self, key: &PartitionKey) -> Result<()> {
        loop {
            let Some(run) = self.matching.runs.get(key) else {
                let Some(first) = self.buffer.next_taken(key, None) else { return Ok(()) };
                let start = first.row.position;
                self.begin(key, start);
                continue;
            };
            let (start, last) = (run.start, run.last);
            let next = match last {
                None => self.buffer.row(key, start),
                Some(last) => self.buffer.next_taken(key, Some(last)),
            };
            let Some(next) = next else { return Ok(()) };
            let (row, holds) = (Arc::clone(&next.row), next.holds.unwrap_or_default());
            let is_within = row.position.0.since(start.0) <= self.within_us;
            if !is_within || !self.step(key, &row, holds)? {
                self.finish(key)?;
            }
        }
    }

    fn begin(&mut self, key: &PartitionKey, start: RowPosition) {
        let threads = self.automaton.begin().into_iter().filter_map(|target| match target {
            Target::Row { at, variable } => Some(Thread { at, variable, path: None }),
            Target::Match => None,
        });
        let run = Run { start, last: None, threads: threads.collect(), best: None };
        self.matching.starts.insert((start.0, Arc::clone(key)));
        self.matching.runs.insert(Arc::clone(key), run);
    }

    /// Takes a row on by the threads of a run; tells whether one goes on.
    fn step(&mut self, key: &PartitionKey, row: &Arc<PatternRow>, holds: u64) -> Result<bool> {
        let Some(mut run) = self.matching.runs.remove(key) else { return Ok(false) };
        run.last = Some(row.position);
        let threads = std::mem::take(&mut run.threads);
        let has_paths = self.conditions.iter().any(|conditions| conditions.of_match.is_some());
        let mut seen = HashSet::new();
        'threads: for thread in threads {
            if holds & (1 << thread.variable) == 0 {
                continue;
            }
            let Thread { at, variable, path: before } = thread;
            let path = Arc::new(PathRow { row: Arc::clone(row), variable, before });
            if !self.is_accepted(key, variable, &path)? {
                continue;
            }
            if has_paths {
                seen.clear();
            }
            for target in self.automaton.after(at, &mut seen) {
                let Target::Row { at, variable } = target else {
                    run.best = Some(path);
                    break 'threads;
                };
                run.threads.push(Thread { at, variable, path: Some(Arc::clone(&path)) });
            }
        }
        if run.threads.len() > THREADS_MAX {
            let resource = format!("open matches of a partition in {}", self.name);
            return Err(Error::Limit { resource, max: THREADS_MAX });
        }
        let goes_on = !run.threads.is_empty();
        self.matching.runs.insert(Arc::clone(key), run);
        Ok(goes_on)
    }

    /// Tells whether the condition of a variable on the match so far holds.
    fn is_accepted(&mut self, key: &PartitionKey, variable: usize, path: &Arc<PathRow>) -> Result<bool> {
        let Some(condition) =
            self.conditions.get_mut(variable).and_then(|conditions| conditions.of_match.as_mut())
        else {
            return Ok(true);
        };
        let (buffer, rows) = (&self.buffer, path.rows());
        let previous = |of, offset| buffer.previous(key, of, offset);
        let found = condition.navigations.iter().map(|navigation| navigate(*navigation, &rows, &previous));
        let found = [found.collect::<FoundRows>()];
        Ok(truths(&self.name, buffer, condition, &found)?.first() == Some(&true))
    }

    /// Ends the run of a partition, with its match if there is one.
    fn finish(&mut self, key: &PartitionKey) -> Result<()> {
        let Some(run) = self.matching.runs.remove(key) else { return Ok(()) };
        self.matching.starts.remove(&(run.start.0, Arc::clone(key)));
        let mut passed = run.start;
        if let Some(best) = run.best {
            let number = self.numbers.as_mut().map(|numbers| numbers.next(key)).transpose()?;
            let path: Arc<[(Arc<PatternRow>, usize)]> =
                best.rows().into_iter().map(|(row, variable)| (Arc::clone(row), variable)).collect();
            let previous = |of, offset| self.buffer.previous(key, of, offset);
            let first = if self.all_rows { 1 } else { path.len() };
            for end in first..=path.len() {
                let row = MatchRow::new(&path, end, &self.measures, number.unwrap_or_default(), &previous);
                self.matching.complete.push(row);
            }
            if self.skips_match {
                passed = best.row.position;
            }
        }
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
        let complete = std::mem::take(&mut self.matching.complete);
        let mut rest = complete.as_slice();
        while !rest.is_empty() {
            let (mut count, mut read) = (0, 0);
            while count < BATCH_TUPLES.min(rest.len()) && (count == 0 || read <= ROWS_READ_MAX) {
                read += rest[count].path.len();
                count += 1;
            }
            let (part, behind) = rest.split_at(count);
            rest = behind;
            let mut columns = Vec::with_capacity(self.measures.len());
            for (at, measure) in self.measures.iter_mut().enumerate() {
                columns.push(measured(&self.name, &self.buffer, (at, measure), part)?);
            }
            let options = RecordBatchOptions::new().with_row_count(Some(part.len()));
            let sent = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
            output.push(sent.map_err(|error| self.failed(&error))?.into());
        }
        Ok(())
    }
}

/// Values of a measure, with its place among all, for rows of results.
fn measured(
    operator: &str,
    buffer: &PatternBuffer,
    (at, measure): (usize, &mut PatternMeasure),
    rows: &[MatchRow],
) -> Result<ArrayRef> {
    let found: Vec<FoundRows> = rows.iter().map(|row| row.rows_of(at, measure)).collect();
    match measure {
        PatternMeasure::Expression { expression, .. } => {
            evaluate(operator, buffer, expression, &found.iter().collect::<Vec<_>>())
        }
        PatternMeasure::Classifier(names) => {
            let variable = |row: &MatchRow| row.path.get(row.end - 1).map(|(_, variable)| *variable);
            let names = rows.iter().map(|row| variable(row).and_then(|variable| names.get(variable)));
            Ok(Arc::new(names.collect::<StringArray>()))
        }
        PatternMeasure::MatchNumber => {
            Ok(Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.number))))
        }
    }
}

/// Truth values of a condition for several rows; NULL is not true.
fn truths(
    operator: &str,
    buffer: &PatternBuffer,
    condition: &mut PatternExpression,
    found: &[FoundRows],
) -> Result<Vec<bool>> {
    let found: Vec<&FoundRows> = found.iter().collect();
    let values = evaluate(operator, buffer, condition, &found)?;
    let values = values.as_boolean_opt().ok_or_else(|| Error::Tuple {
        operator: operator.to_owned(),
        reason: format!("a condition is {}, not a truth value", values.data_type()),
    })?;
    Ok(values.iter().map(|value| value == Some(true)).collect())
}

/// Values of an expression for several matches.
fn evaluate(
    operator: &str,
    buffer: &PatternBuffer,
    expression: &mut PatternExpression,
    found: &[&FoundRows],
) -> Result<ArrayRef> {
    let failed = |reason: Reason| Error::Computation { operator: operator.to_owned(), reason };
    let mut navigated = Vec::with_capacity(expression.navigations.len());
    for (at, navigation) in expression.navigations.iter().enumerate() {
        let rows = found.iter().flat_map(|of_match| of_match[at].iter());
        let there: Vec<&PatternRow> = rows.clone().flatten().map(|row| &**row).collect();
        let mut batch = buffer.batch_of(there.iter().copied())?;
        let mut ends = Vec::new();
        if let Navigation::All { .. } = navigation {
            ends.extend(found.iter().scan(0, |end, of_match| {
                *end += of_match[at].len();
                Some(*end)
            }));
        } else if there.len() < found.len() {
            let mut next = 0;
            let places: UInt32Array = rows
                .map(|row| {
                    row.as_ref().map(|_| {
                        next += 1;
                        next - 1
                    })
                })
                .collect();
            batch = nullable(&batch)
                .and_then(|batch| take_record_batch(&batch, &places))
                .map_err(|error| failed(error.to_string().into()))?;
        }
        navigated.push(NavigatedRows { rows: batch, ends });
    }
    let values = expression.expression.evaluate(found.len(), &navigated).map_err(failed)?;
    if values.len() == found.len() {
        return Ok(values);
    }
    Err(failed(format!("an expression has {} values for {} matches", values.len(), found.len()).into()))
}

/// Batch whose columns may have NULL.
fn nullable(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = arrow_schema::Schema::new(fields.collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec())
}

impl Operator for PatternOperator {
    fn name(&self) -> &str {
        &self.name
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
        self.matching.complete.clear();
        self.numbers.iter_mut().for_each(MatchNumbers::aborted);
        for key in self.buffer.aborted(self.watermark.current()) {
            if let Some(run) = self.matching.runs.remove(&key) {
                self.matching.starts.remove(&(run.start.0, Arc::clone(&key)));
            }
            self.matching.interrupted.push(key);
        }
    }

    fn redefined(&mut self) -> Result<()> {
        self.buffer.table = current_of(&self.name, &self.buffer.table, |old, new| old == new)?;
        if let Some(numbers) = &mut self.numbers {
            numbers.table = current_of(&self.name, &numbers.table, |old, new| old == new)?;
        }
        self.late.as_mut().map_or(Ok(()), |late| late.write.redefined())
    }
}
