//! Aggregate functions from outside: a state for each group.
//!
//! The built-in aggregates have one array of accumulators each ([`super::accumulator`]); a function from outside has an
//! object per group, which stores itself in columns of the state table and is made again from them.

use crate::UTC;
use arrow_array::{ArrayRef, UInt32Array, new_empty_array};
use arrow_select::concat::concat;
use arrow_select::take::take;
use entresol_tables::{Column, DataType, arrow_type};
use std::fmt;
use std::sync::Arc;

/// Aggregate function that another library computes. Errors are reasons, without the name of the aggregate.
pub trait AggregateFunction: fmt::Debug + Send + Sync {
    /// Type of the results.
    fn result_type(&self) -> DataType;

    /// Columns in which the state of a group is stored; their names are put behind the aggregate's.
    fn state_columns(&self) -> Vec<Column>;

    /// State of a group without rows.
    fn group(&self) -> Result<Box<dyn GroupState>, String>;
}

/// State of an aggregate function for one group.
pub trait GroupState: fmt::Debug + Send {
    /// Adds rows: the columns that the aggregate was made with.
    fn add(&mut self, columns: &[ArrayRef]) -> Result<(), String>;

    /// Returns the state as arrays of one value, for the columns of [`AggregateFunction::state_columns`]. The state stays.
    fn store(&mut self) -> Result<Vec<ArrayRef>, String>;

    /// Adds a stored state: arrays of one value.
    fn merge(&mut self, stored: &[ArrayRef]) -> Result<(), String>;

    /// Returns the result as an array of one value. The state stays.
    fn result(&mut self) -> Result<ArrayRef, String>;

    /// Bytes of memory, about.
    fn bytes(&self) -> usize;
}

/// States of the groups of an aggregate, by their numbers; none of groups that have no rows yet.
#[derive(Debug)]
pub(crate) struct GroupStates {
    function: Arc<dyn AggregateFunction>,
    groups: Vec<Option<Box<dyn GroupState>>>,
    bytes: usize,
}

impl GroupStates {
    pub(crate) fn new(function: &Arc<dyn AggregateFunction>) -> GroupStates {
        GroupStates { function: Arc::clone(function), groups: Vec::new(), bytes: 0 }
    }

    pub(crate) fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, || None);
    }

    pub(crate) fn clear(&mut self, group: usize) {
        if let Some(state) = self.groups[group].take() {
            self.bytes -= state.bytes();
        }
    }

    /// Bytes of memory of all states.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `f` with the state of a group.
    fn with<T>(
        &mut self,
        group: usize,
        f: impl FnOnce(&mut dyn GroupState) -> Result<T, String>,
    ) -> Result<T, String> {
        let (mut state, before) = match self.groups[group].take() {
            Some(state) => {
                let bytes = state.bytes();
                (state, bytes)
            }
            None => (self.function.group()?, 0),
        };
        let result = f(state.as_mut());
        self.bytes = self.bytes - before + state.bytes();
        self.groups[group] = Some(state);
        result
    }

    /// Adds rows to the groups with these numbers, those of a group in their order.
    pub(crate) fn add(&mut self, numbers: &[u32], columns: &[ArrayRef]) -> Result<(), String> {
        let mut order: Vec<u32> = (0..numbers.len() as u32).collect();
        let mut columns = columns.to_vec();
        if !numbers.is_sorted() {
            order.sort_by_key(|row| numbers[*row as usize]);
            let rows = UInt32Array::from(order.clone());
            for column in &mut columns {
                *column = take(column, &rows, None).map_err(|error| error.to_string())?;
            }
        }
        let mut first = 0;
        for run in order.chunk_by(|one, next| numbers[*one as usize] == numbers[*next as usize]) {
            let rows: Vec<ArrayRef> = columns.iter().map(|column| column.slice(first, run.len())).collect();
            self.with(numbers[run[0] as usize] as usize, |state| state.add(&rows))?;
            first += run.len();
        }
        Ok(())
    }

    /// Adds the state of one group to another.
    pub(crate) fn merge(&mut self, from: usize, to: usize) -> Result<(), String> {
        if self.groups[from].is_none() {
            return Ok(());
        }
        let stored = self.with(from, |state| state.store())?;
        self.with(to, |state| state.merge(&stored))
    }

    /// Arrays of the state columns of these groups.
    pub(crate) fn store(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, String> {
        let mut columns = vec![Vec::with_capacity(groups.len()); self.function.state_columns().len()];
        for &group in groups {
            let stored = self.with(group as usize, |state| state.store())?;
            columns.iter_mut().zip(stored).for_each(|(column, value)| column.push(value));
        }
        columns.iter().map(|values| together(values)).collect()
    }

    /// Sets groups to stored states: a row for each of them.
    pub(crate) fn load(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), String> {
        for (row, &group) in groups.iter().enumerate() {
            self.clear(group as usize);
            let stored: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, 1)).collect();
            self.with(group as usize, |state| state.merge(&stored))?;
        }
        Ok(())
    }

    /// Array of the results of these groups.
    pub(crate) fn results(&mut self, groups: &[u32]) -> Result<ArrayRef, String> {
        let results = groups.iter().map(|group| self.with(*group as usize, |state| state.result()));
        let results = results.collect::<Result<Vec<ArrayRef>, String>>()?;
        if results.is_empty() {
            return Ok(new_empty_array(&arrow_type(self.function.result_type(), UTC)));
        }
        together(&results)
    }
}

/// One array of several.
fn together(values: &[ArrayRef]) -> Result<ArrayRef, String> {
    let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
    concat(&values).map_err(|error| error.to_string())
}
