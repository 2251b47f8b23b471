//! Matching of the rows of one partition, taken in their order: the threads of the automaton over them, and the rows
//! that are sent of a match.
//!
//! The matcher knows neither where rows are buffered nor when they arrive. Its callers are the operator of a topology, which
//! has rows of many partitions that wait for a watermark, and [`PartitionMatcher`](super::partition::PartitionMatcher), which is
//! given the rows of one partition after another.
//!
//! A match begins with the first row that can begin one, and is the preferred one of those that begin there. It is
//! complete when no row goes on with it: the next one does not, or is too late for it, or there is none.
//!
//! Memory: at most [`THREADS_MAX`] threads for each run, whose paths share their rows, and the rows of complete matches until
//! they are sent.

use crate::BATCH_TUPLES;
use crate::error::{Error, Result};
use crate::expression::Reason;
use crate::operators::pattern::automaton::{Automaton, Target};
use crate::operators::pattern::path::{
    FoundRows, MatchRow, NavigatedRows, Navigation, PathRow, PatternExpression, PatternMeasure, PatternRow,
    RowPosition, navigate,
};
use crate::operators::pattern::rows::PatternRows;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take_record_batch;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Maximum of ways in which the rows of a partition may go on to be a match, at one time.
pub(crate) const THREADS_MAX: usize = 4096;

/// Maximum of rows of matches that the measures of rows that are sent together read, but for those of one row.
const ROWS_READ_MAX: usize = 1 << 18;

/// Lookup of the row so many rows before another in its partition.
pub(crate) type PreviousRow<'r> = &'r dyn Fn(RowPosition, usize) -> Option<Arc<PatternRow>>;

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
pub(crate) struct Run {
    pub(crate) start: RowPosition,
    /// Last row that was taken; none before the first.
    pub(crate) last: Option<RowPosition>,
    /// In the order of preference.
    threads: Vec<Thread>,
    /// Match, if no thread goes on.
    best: Option<Arc<PathRow>>,
}

impl Run {
    /// Tells whether it has a match.
    pub(crate) fn has_match(&self) -> bool {
        self.best.is_some()
    }
}

/// Matcher of a pattern.
pub(crate) struct PatternMatcher {
    pub(crate) name: String,
    pub(crate) automaton: Automaton,
    pub(crate) conditions: Vec<VariableConditions>,
    pub(crate) measures: Vec<PatternMeasure>,
    /// True if each row of a match is sent, else one row for all of them.
    pub(crate) all_rows: bool,
    /// Greatest time from the first to the last row of a match; none has no bound.
    pub(crate) within_us: Option<i64>,
    /// True if the next match begins behind the last row of one, else behind its first.
    pub(crate) skips_match: bool,
    /// Columns of the output: one for each measure.
    pub(crate) schema: SchemaRef,
    pub(crate) rows: Arc<PatternRows>,
    /// Rows of the results of complete matches that are not sent yet.
    pub(crate) complete: VecDeque<MatchRow>,
}

impl PatternMatcher {
    /// Variables whose conditions on each of these rows alone hold, as bits; `previous` looks rows up before one with
    /// its number among them.
    pub(crate) fn holds(
        &mut self,
        rows: &[Arc<PatternRow>],
        previous: &dyn Fn(usize, RowPosition, usize) -> Option<Arc<PatternRow>>,
    ) -> Result<Vec<u64>> {
        let mut holds = vec![u64::MAX; rows.len()];
        for (variable, conditions) in self.conditions.iter_mut().enumerate() {
            let Some(condition) = &mut conditions.of_row else { continue };
            let found = rows.iter().enumerate().map(|(number, row)| {
                let previous = |of, offset| previous(number, of, offset);
                let navigations = condition.navigations.iter();
                navigations
                    .map(|navigation| navigate(*navigation, &[(row, variable)], &previous))
                    .collect::<FoundRows>()
            });
            let found: Vec<FoundRows> = found.collect();
            let truths = truths(&self.rows, condition, &found)?;
            for (holds, is_true) in holds.iter_mut().zip(truths) {
                if !is_true {
                    *holds &= !(1 << variable);
                }
            }
        }
        Ok(holds)
    }

    /// Begins a run at a row.
    pub(crate) fn begin(&self, start: RowPosition) -> Run {
        let threads = self.automaton.begin().into_iter().filter_map(|target| match target {
            Target::Row { at, variable } => Some(Thread { at, variable, path: None }),
            Target::Match => None,
        });
        Run { start, last: None, threads: threads.collect(), best: None }
    }

    /// Takes a row on by the threads of a run; tells whether the run goes on behind it. `holds` has the variables whose
    /// conditions on the row alone hold.
    pub(crate) fn step(
        &mut self,
        run: &mut Run,
        row: &Arc<PatternRow>,
        holds: u64,
        previous: PreviousRow<'_>,
    ) -> Result<bool> {
        if self.within_us.is_some_and(|within| row.position.0.since(run.start.0) > within) {
            return Ok(false);
        }
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
            if !self.is_accepted(variable, &path, previous)? {
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
        Ok(!run.threads.is_empty())
    }

    /// Tells whether the condition of a variable on the match so far holds.
    fn is_accepted(
        &mut self,
        variable: usize,
        path: &Arc<PathRow>,
        previous: PreviousRow<'_>,
    ) -> Result<bool> {
        let Some(condition) =
            self.conditions.get_mut(variable).and_then(|conditions| conditions.of_match.as_mut())
        else {
            return Ok(true);
        };
        let rows = path.rows();
        let found = condition.navigations.iter().map(|navigation| navigate(*navigation, &rows, previous));
        let found = [found.collect::<FoundRows>()];
        Ok(truths(&self.rows, condition, &found)?.first() == Some(&true))
    }

    /// Ends a run, with its match of this number if there is one; returns the last row with which no match begins any
    /// more.
    pub(crate) fn finish(&mut self, run: Run, number: i64, previous: PreviousRow<'_>) -> RowPosition {
        let Some(best) = run.best else { return run.start };
        let path: Arc<[(Arc<PatternRow>, usize)]> =
            best.rows().into_iter().map(|(row, variable)| (Arc::clone(row), variable)).collect();
        let first = if self.all_rows { 1 } else { path.len() };
        for end in first..=path.len() {
            self.complete.push_back(MatchRow::new(&path, end, &self.measures, number, previous));
        }
        if self.skips_match { best.row.position } else { run.start }
    }

    /// Takes the first rows of complete matches as a batch; none if there are no more.
    pub(crate) fn send(&mut self) -> Result<Option<RecordBatch>> {
        let (mut count, mut read) = (0, 0);
        while count < BATCH_TUPLES.min(self.complete.len()) && (count == 0 || read <= ROWS_READ_MAX) {
            read += self.complete[count].path.len();
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let part: Vec<MatchRow> = self.complete.drain(..count).collect();
        let mut columns = Vec::with_capacity(self.measures.len());
        for (at, measure) in self.measures.iter_mut().enumerate() {
            columns.push(measured(&self.rows, (at, measure), &part)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let sent = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        sent.map(Some).map_err(|error| self.rows.failed(&error))
    }
}

/// Values of a measure, with its place among all, for rows of results.
fn measured(
    rows: &PatternRows,
    (at, measure): (usize, &mut PatternMeasure),
    sent: &[MatchRow],
) -> Result<ArrayRef> {
    let found: Vec<FoundRows> = sent.iter().map(|row| row.rows_of(at, measure)).collect();
    match measure {
        PatternMeasure::Expression { expression, .. } => {
            evaluate(rows, expression, &found.iter().collect::<Vec<_>>())
        }
        PatternMeasure::Classifier(names) => {
            let variable = |row: &MatchRow| row.path.get(row.end - 1).map(|(_, variable)| *variable);
            let names = sent.iter().map(|row| variable(row).and_then(|variable| names.get(variable)));
            Ok(Arc::new(names.collect::<StringArray>()))
        }
        PatternMeasure::MatchNumber => {
            Ok(Arc::new(Int64Array::from_iter_values(sent.iter().map(|row| row.number))))
        }
    }
}

/// Truth values of a condition for several rows; NULL is not true.
fn truths(rows: &PatternRows, condition: &mut PatternExpression, found: &[FoundRows]) -> Result<Vec<bool>> {
    let found: Vec<&FoundRows> = found.iter().collect();
    let values = evaluate(rows, condition, &found)?;
    let values = values.as_boolean_opt().ok_or_else(|| Error::Tuple {
        operator: rows.name.clone(),
        reason: format!("a condition is {}, not a truth value", values.data_type()),
    })?;
    Ok(values.iter().map(|value| value == Some(true)).collect())
}

/// Values of an expression for several matches.
fn evaluate(
    rows: &PatternRows,
    expression: &mut PatternExpression,
    found: &[&FoundRows],
) -> Result<ArrayRef> {
    let failed = |reason: Reason| Error::Computation { operator: rows.name.clone(), reason };
    let mut navigated = Vec::with_capacity(expression.navigations.len());
    for (at, navigation) in expression.navigations.iter().enumerate() {
        let read = found.iter().flat_map(|of_match| of_match[at].iter());
        let there: Vec<&PatternRow> = read.clone().flatten().map(|row| &**row).collect();
        let mut batch = rows.batch_of(there.iter().copied())?;
        let mut ends = Vec::new();
        if let Navigation::All { .. } = navigation {
            ends.extend(found.iter().scan(0, |end, of_match| {
                *end += of_match[at].len();
                Some(*end)
            }));
        } else if there.len() < found.len() {
            let mut next = 0;
            let places: UInt32Array = read
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
