//! Tuples that an operator cannot process and leaves out.
//!
//! A batch that fails is halved until the tuples that fail are alone: the others pass in their order. What a failed
//! part wrote is taken back. Cost: nothing but a savepoint for a batch without such tuples; for each of them about
//! twice the logarithm of the batch's length more calls of the operator.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::execution::rejects_table;
use crate::operators::{Context, Operator, Output};
use arrow_cast::display::array_value_to_string;
use entresol_tables::{Row, Table};
use entresol_transactions::Transaction;
use std::fmt::Write;
use std::sync::Arc;

/// Tuples left out in the open transaction.
pub(crate) struct SkippedTuples {
    /// Table of bad records, if they are stored.
    table: Option<Arc<Table>>,
    count: u64,
    rows: Vec<Row>,
}

impl SkippedTuples {
    pub(crate) fn new(table: Option<Arc<Table>>) -> SkippedTuples {
        SkippedTuples { table, count: 0, rows: Vec::new() }
    }

    /// Passes a batch through an operator that takes each tuple alone, without the tuples that it cannot process.
    pub(crate) fn batch(
        &mut self,
        operator: &mut dyn Operator,
        context: &Context<'_>,
        batch: Batch,
        output: &mut Output,
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
                self.note(operator.name(), &part, &error)?;
                continue;
            }
            let half = part.len() / 2;
            parts.push(part.slice(half..part.len()));
            parts.push(part.slice(0..half));
        }
        Ok(())
    }

    fn note(&mut self, operator: &str, tuple: &Batch, error: &Error) -> Result<()> {
        self.count += 1;
        if self.table.is_some() {
            self.rows.push(rejects_table::row(operator, 0, &error.to_string(), &record(tuple)?));
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
            Some(table) if !self.rows.is_empty() => rejects_table::write(table, transaction, &self.rows),
            _ => Ok(()),
        }
    }

    /// Forgets them; returns how many there were.
    pub(crate) fn take(&mut self) -> u64 {
        self.rows.clear();
        std::mem::take(&mut self.count)
    }
}

/// Values of a tuple as a text, with the names of their columns.
pub(crate) fn record(tuple: &Batch) -> Result<String> {
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
    }
    Ok(text)
}
