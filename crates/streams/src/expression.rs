//! Expressions: what operators compute for each tuple of a batch, all at once.
//!
//! Closures over a record batch are expressions. [`TuplePredicate`] is the adapter of closures over tuples,
//! which costs a tuple of values for each row.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use entresol_tables::Value;
use std::fmt;
use std::sync::Arc;

/// Reason why a value could not be computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// SQLSTATE, if the expression knows it.
    pub sqlstate: Option<&'static str>,
    /// Message, without the names of operator and tuple.
    pub message: String,
}

impl From<String> for Reason {
    fn from(message: String) -> Reason {
        Reason { sqlstate: None, message }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Expression over the columns of a stream, which it finds by their index.
pub trait Expression: Send + 'static {
    /// Evaluates it for a batch: an array of one value for each row, or the reason why there is none.
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason>;
}

impl<F> Expression for F
where
    F: FnMut(&RecordBatch) -> Result<ArrayRef, String> + Send + 'static,
{
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason> {
        Ok(self(rows)?)
    }
}

/// Expression of a column of the stream: its array itself.
#[derive(Debug, Clone, Copy)]
pub struct ColumnExpression(pub usize);

impl Expression for ColumnExpression {
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason> {
        let column = rows.columns().get(self.0).map(Arc::clone);
        column.ok_or_else(|| format!("there is no column {}", self.0).into())
    }
}

/// Predicate over tuples of values.
pub(crate) struct TuplePredicate<F>(pub(crate) F);

impl<F: FnMut(&[Value]) -> bool + Send + 'static> Expression for TuplePredicate<F> {
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason> {
        let tuples = Batch::from(rows.clone()).tuples().map_err(|error| error.to_string())?;
        Ok(Arc::new(tuples.iter().map(|tuple: &Tuple| Some((self.0)(tuple))).collect::<BooleanArray>()))
    }
}

/// Evaluates an expression; an error of the operator if there is not one value for each row.
pub(crate) fn evaluate(
    operator: &str,
    expression: &mut dyn Expression,
    rows: &RecordBatch,
) -> Result<ArrayRef> {
    let failed = |reason| Error::Computation { operator: operator.to_owned(), reason };
    let array = expression.evaluate(rows).map_err(failed)?;
    if array.len() == rows.num_rows() {
        return Ok(array);
    }
    Err(failed(format!("an expression has {} values for {} rows", array.len(), rows.num_rows()).into()))
}
