//! Window functions over the rows of partitions in the order of their event times: frames, and values of each row.
//!
//! | function | reads | carries on |
//! | --- | --- | --- |
//! | row_number, rank, dense_rank | no rows | a count |
//! | lag | the row so many before | |
//! | first_value, last_value, nth_value | a row of the frame | the first value, if the frame has no beginning |
//! | aggregates | all rows of the frame | the state of the accumulator, if the frame has no beginning |
//!
//! - An aggregate over a frame that moves is computed from the frame's rows, never by taking values back: so its
//!   results do not depend on where a run or a transaction began, sums of doubles neither.
//! - Arguments are computed for all rows that are taken at once, and each function of single rows is one selection.
//!
//! Nothing stays here between calls: what goes on is in the rows ([`super::rank_state::frames`]).

use crate::error::{Error, Result};
use crate::expression::evaluate;
use crate::operators::rank_state::frames::{TakenPart, TakenRows};
use crate::row_windows::{FrameBound, RowFrame, RowFunction, RowFunctionKind};
use arrow_array::{ArrayRef, Int64Array, UInt32Array, new_empty_array, new_null_array};
use arrow_schema::{ArrowError, DataType as ArrowType};
use arrow_select::concat::concat;
use arrow_select::take::take;
use entresol_tables::arrow_type;
use std::ops::Range;
use std::sync::Arc;

/// Values of all functions for the rows that are new, in the order of the partitions; and the states that each
/// partition carries on.
pub(crate) struct FunctionValues {
    pub(crate) values: Vec<ArrayRef>,
    pub(crate) carried: Vec<ArrayRef>,
}

/// Evaluates functions over rows that are taken.
pub(crate) fn evaluate_functions(
    operator: &str,
    functions: &mut [RowFunction],
    taken: &TakenRows,
) -> Result<FunctionValues> {
    let mut all = FunctionValues { values: Vec::with_capacity(functions.len()), carried: Vec::new() };
    for function in functions {
        let arguments = function.arguments.iter_mut();
        let arguments = arguments.map(|argument| evaluate(operator, &mut **argument, &taken.batch));
        let arguments = arguments.collect::<Result<Vec<ArrayRef>>>()?;
        let call = Call { function, arguments, taken, first_carried: all.carried.len() };
        let failed = |reason| Error::Tuple { operator: operator.to_owned(), reason };
        let (values, carried) = call.evaluate().map_err(failed)?;
        all.values.push(values);
        all.carried.extend(carried);
    }
    Ok(all)
}

/// Function with the values of its arguments.
struct Call<'c> {
    function: &'c RowFunction,
    arguments: Vec<ArrayRef>,
    taken: &'c TakenRows,
    /// First of its states among those that a partition carries.
    first_carried: usize,
}

type ValuesAndStates = (ArrayRef, Vec<ArrayRef>);

impl Call<'_> {
    fn evaluate(&self) -> std::result::Result<ValuesAndStates, String> {
        let reason = |error: ArrowError| error.to_string();
        match &self.function.kind {
            RowFunctionKind::RowNumber => Ok(self.counted(|_, at, first| (at - first) as i64 + 1)),
            RowFunctionKind::Rank => {
                Ok(self.counted(|taken, at, first| (taken.peers[at].start - first) as i64 + 1))
            }
            RowFunctionKind::DenseRank => Ok(self.dense()),
            RowFunctionKind::Lag { offset, default } => {
                let places = |part: &TakenPart, at: usize| {
                    at.checked_sub(*offset).filter(|before| *before >= part.rows.start)
                };
                Ok((self.selected(places, default.as_ref()).map_err(reason)?, Vec::new()))
            }
            RowFunctionKind::First if self.function.frame.start == FrameBound::Unbounded => {
                self.first_of_all().map_err(reason)
            }
            RowFunctionKind::First => self.nth(1).map_err(reason),
            RowFunctionKind::Nth(number) => self.nth(*number).map_err(reason),
            RowFunctionKind::Last => {
                let places = |part: &TakenPart, at: usize| {
                    let frame = self.frame(part, at);
                    frame.end.checked_sub(1).filter(|last| *last >= frame.start)
                };
                Ok((self.selected(places, None).map_err(reason)?, Vec::new()))
            }
            RowFunctionKind::Aggregate(_) if self.function.frame.start == FrameBound::Unbounded => {
                self.running()
            }
            RowFunctionKind::Aggregate(_) => Ok((self.aggregated()?, Vec::new())),
        }
    }

    fn new_rows(&self) -> impl Iterator<Item = (&TakenPart, usize)> {
        self.taken.parts.iter().flat_map(|part| (part.first..part.rows.end).map(move |at| (part, at)))
    }

    /// Number that a partition carries on; 0 at its beginning.
    fn count_before(&self, part: &TakenPart) -> i64 {
        let carried = part.carried.as_ref().map(|carried| &carried[self.first_carried]);
        let numbers = carried.and_then(|array| array.as_any().downcast_ref::<Int64Array>());
        numbers.and_then(|numbers| numbers.iter().next().flatten()).unwrap_or(0)
    }

    /// Numbers that count rows, and the number of rows so far.
    fn counted(&self, count: impl Fn(&TakenRows, usize, usize) -> i64) -> ValuesAndStates {
        let values =
            self.new_rows().map(|(part, at)| self.count_before(part) + count(self.taken, at, part.first));
        let values: Int64Array = Int64Array::from_iter_values(values);
        let parts = self.taken.parts.iter();
        let carried = parts.map(|part| self.count_before(part) + (part.rows.end - part.first) as i64);
        (Arc::new(values), vec![Arc::new(Int64Array::from_iter_values(carried))])
    }

    /// Numbers of the different values of the order so far.
    fn dense(&self) -> ValuesAndStates {
        let (mut values, mut carried) = (Vec::new(), Vec::new());
        for part in &self.taken.parts {
            let mut count = self.count_before(part);
            for at in part.first..part.rows.end {
                count += i64::from(self.taken.peers[at].start == at);
                values.push(count);
            }
            carried.push(count);
        }
        (Arc::new(Int64Array::from(values)), vec![Arc::new(Int64Array::from(carried))])
    }

    fn argument(&self) -> ArrayRef {
        let none = || new_null_array(&ArrowType::Int64, self.taken.batch.num_rows());
        self.arguments.first().map_or_else(none, Arc::clone)
    }

    /// Values of the argument at a row for each new one; the default where there is none.
    fn selected(
        &self,
        place: impl Fn(&TakenPart, usize) -> Option<usize>,
        default: Option<&ArrayRef>,
    ) -> std::result::Result<ArrayRef, ArrowError> {
        let argument = self.argument();
        let (source, otherwise) = match default {
            Some(default) => (concat(&[argument.as_ref(), default.as_ref()])?, Some(argument.len())),
            None => (argument, None),
        };
        let places = self.new_rows().map(|(part, at)| place(part, at).or(otherwise).map(|at| at as u32));
        take(&source, &places.collect::<UInt32Array>(), None)
    }

    /// Values of row number `number` of each frame.
    fn nth(&self, number: usize) -> std::result::Result<ValuesAndStates, ArrowError> {
        let places = |part: &TakenPart, at: usize| {
            let frame = self.frame(part, at);
            frame.start.checked_add(number - 1).filter(|place| *place < frame.end)
        };
        Ok((self.selected(places, None)?, Vec::new()))
    }

    /// First value of each partition, which is carried on.
    fn first_of_all(&self) -> std::result::Result<ValuesAndStates, ArrowError> {
        let argument = self.argument();
        let mut firsts: Vec<ArrayRef> = Vec::with_capacity(self.taken.parts.len());
        for part in &self.taken.parts {
            let carried = part.carried.as_ref().map(|carried| Arc::clone(&carried[self.first_carried]));
            firsts.push(carried.unwrap_or_else(|| argument.slice(part.first, 1)));
        }
        if firsts.is_empty() {
            return Ok((new_empty_array(argument.data_type()), vec![new_empty_array(argument.data_type())]));
        }
        let firsts = concat(&firsts.iter().map(|first| &**first).collect::<Vec<_>>())?;
        let parts = self.taken.parts.iter().enumerate();
        let of_rows = parts.flat_map(|(at, part)| std::iter::repeat_n(at as u32, part.rows.end - part.first));
        let values = take(&firsts, &UInt32Array::from_iter_values(of_rows), None)?;
        Ok((values, vec![firsts]))
    }

    /// Rows of the frame of a row.
    fn frame(&self, part: &TakenPart, at: usize) -> Range<usize> {
        let RowFrame { start, end } = self.function.frame;
        let times = &self.taken.times[part.rows.clone()];
        let time = self.taken.times[at];
        let start = match start {
            FrameBound::Unbounded => part.rows.start,
            FrameBound::Rows(before) => at.saturating_sub(before).max(part.rows.start),
            FrameBound::Time(us) => part.rows.start + times.partition_point(|other| *other < time.minus(us)),
            FrameBound::Peers => self.taken.peers[at].start,
        };
        let end = match end {
            FrameBound::Unbounded => part.rows.end,
            FrameBound::Rows(before) => (at + 1).saturating_sub(before).max(part.rows.start),
            FrameBound::Time(us) => part.rows.start + times.partition_point(|other| *other <= time.minus(us)),
            FrameBound::Peers => self.taken.peers[at].end,
        };
        start..end.max(start)
    }

    fn slices(&self, rows: Range<usize>) -> Vec<ArrayRef> {
        self.arguments.iter().map(|argument| argument.slice(rows.start, rows.len())).collect()
    }

    /// Aggregates of frames that have a beginning.
    fn aggregated(&self) -> std::result::Result<ArrayRef, String> {
        let RowFunctionKind::Aggregate(function) = &self.function.kind else {
            return Err("a function is not an aggregate".to_owned());
        };
        let mut results: Vec<ArrayRef> = Vec::new();
        // Rows that are equal in the order may have one frame.
        let mut last: Option<(Range<usize>, ArrayRef)> = None;
        for (part, at) in self.new_rows() {
            let frame = self.frame(part, at);
            if let Some((_, result)) = last.as_ref().filter(|(before, _)| *before == frame) {
                results.push(Arc::clone(result));
                continue;
            }
            let mut group = function.group()?;
            if !frame.is_empty() {
                group.add(&self.slices(frame.clone()))?;
            }
            let result = group.result()?;
            results.push(Arc::clone(&result));
            last = Some((frame, result));
        }
        self.together(&results)
    }

    /// Aggregates of all rows of the partition up to each, or up to the last that is equal to it in the order.
    fn running(&self) -> std::result::Result<ValuesAndStates, String> {
        let RowFunctionKind::Aggregate(function) = &self.function.kind else {
            return Err("a function is not an aggregate".to_owned());
        };
        let width = function.state_columns().len();
        let mut results: Vec<ArrayRef> = Vec::new();
        let mut states: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(self.taken.parts.len()); width];
        for part in &self.taken.parts {
            let mut group = function.group()?;
            if let Some(carried) = &part.carried {
                group.merge(&carried[self.first_carried..self.first_carried + width])?;
            }
            let mut at = part.first;
            while at < part.rows.end {
                let is_of_peers = self.function.frame.end == FrameBound::Peers;
                let next = if is_of_peers { self.taken.peers[at].end } else { at + 1 };
                group.add(&self.slices(at..next))?;
                results.extend(std::iter::repeat_n(group.result()?, next - at));
                at = next;
            }
            for (states, state) in states.iter_mut().zip(group.store()?) {
                states.push(state);
            }
        }
        let mut carried = Vec::with_capacity(width);
        for (states, column) in states.iter().zip(function.state_columns()) {
            carried.push(concatenated(states, &arrow_type(column.data_type, crate::UTC))?);
        }
        Ok((self.together(&results)?, carried))
    }

    fn together(&self, results: &[ArrayRef]) -> std::result::Result<ArrayRef, String> {
        concatenated(results, &arrow_type(self.function.column.data_type, crate::UTC))
    }
}

fn concatenated(arrays: &[ArrayRef], of: &ArrowType) -> std::result::Result<ArrayRef, String> {
    if arrays.is_empty() {
        return Ok(new_empty_array(of));
    }
    let arrays: Vec<_> = arrays.iter().map(|array| &**array).collect();
    concat(&arrays).map_err(|error| error.to_string())
}
