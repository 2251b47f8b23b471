//! Tuples that an operator cannot process and leaves out.
//!
//! A batch that fails is halved until the tuples that fail are alone: the others pass in their order. What a failed
//! part wrote is taken back. Cost: nothing but a savepoint for a batch without such tuples; for each of them about
//! twice the logarithm of the batch's length more calls of the operator.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::execution::rejects_table::{self, RejectsTable, TEXT_BYTES_MAX};
use crate::operators::{Context, Operator, Output};
use arrow_cast::display::array_value_to_string;
use entresol_tables::Row;
use entresol_transactions::Transaction;
use std::fmt::Write;

/// Tuples left out in the open transaction.
pub(crate) struct SkippedTuples {
    /// Table of bad records, if they are stored.
    table: Option<RejectsTable>,
    count: u64,
    rows: Vec<Row>,
}

impl SkippedTuples {
    pub(crate) fn new(table: Option<RejectsTable>) -> SkippedTuples {
        SkippedTuples { table, count: 0, rows: Vec::new() }
    }

    /// Notes a tuple that an operator cannot process.
    pub(crate) fn note(&mut self, operator: &str, tuple: &Batch, error: &Error) -> Result<()> {
        self.count += 1;
        if self.table.is_some() {
            let record = record(tuple, TEXT_BYTES_MAX)?;
            self.rows.push(match error {
                Error::InStep(step) => {
                    rejects_table::row(&step.step, (0, None), &step.without_tuple(), &record)
                }
                error => rejects_table::row(operator, (0, None), &error.to_string(), &record),
            });
        }
        Ok(())
    }

    /// Number of tuples that wait for the commit to be stored.
    pub(crate) fn pending(&self) -> usize {
        self.rows.len()
    }

    /// Writes the tuples into their table, in the transaction of the others.
    pub(crate) fn write(&self, transaction: &Transaction) -> Result<()> {
        match &self.table {
            Some(table) if !self.rows.is_empty() => table.write(transaction, &self.rows),
            _ => Ok(()),
        }
    }

    /// Forgets them; returns how many there were.
    pub(crate) fn take(&mut self) -> u64 {
        self.rows.clear();
        std::mem::take(&mut self.count)
    }
}

/// Passes a batch through an operator that takes each tuple alone. `failed` is called with each tuple that the operator
/// cannot process, and decides whether the others pass without it.
pub(crate) fn in_parts(
    operator: &mut dyn Operator,
    context: &Context<'_>,
    batch: Batch,
    output: &mut Output,
    mut failed: impl FnMut(&str, &Batch, Error) -> Result<()>,
) -> Result<()> {
    let mut parts = vec![batch];
    while let Some(part) = parts.pop() {
        let (mark, sent) = (context.transaction()?.mark(), output.batches.len());
        let Err(error) = operator.batch(context, &part, output) else { continue };
        if !error.is_tuple_error() {
            return Err(error);
        }
        context.transaction()?.rollback_to(mark);
        output.batches.truncate(sent);
        if part.len() == 1 {
            failed(operator.name(), &part, error)?;
            continue;
        }
        let half = part.len() / 2;
        parts.push(part.slice(half..part.len()));
        parts.push(part.slice(0..half));
    }
    Ok(())
}

/// Values of a tuple in so many bytes at most, with the names of their columns.
pub(crate) fn record(tuple: &Batch, bytes_max: usize) -> Result<String> {
    let rows = tuple.rows();
    let mut text = String::new();
    for (array, field) in rows.columns().iter().zip(rows.schema().fields()) {
        let shown = |error: &dyn std::fmt::Display| Error::Tuple {
            operator: "stored tuple".to_owned(),
            reason: format!("column {}: {error}", field.name()),
        };
        let value = array_value_to_string(array, 0).map_err(|error| shown(&error))?;
        let value = if array.is_null(0) { "NULL" } else { &value };
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}{} = {value}", field.name()).map_err(|error| shown(&error))?;
        if text.len() > bytes_max {
            text.truncate(text.floor_char_boundary(bytes_max));
            text.push('…');
            break;
        }
    }
    Ok(text)
}
