//! Slices of batches for expressions that make strings and lists.
//!
//! An expression is computed for all rows of a batch at once. With one that takes long for a row, or makes much of
//! it, a batch takes seconds, and gigabytes. So there are fewer rows at a time where it matters:
//!
//! - [`SlicedEvaluation`] computes an expression for slices of a batch. Their length is adapted to the time that the last one
//!   took ([`SLICE_TIME`]), which bounds its intermediate results too, and the statement is looked at between them.
//! - [`BatchRows`] is the length of the batches that go *into* a projection, adapted to the bytes that it made of
//!   the last one ([`BATCH_BYTES`]); [`crate::planner::yielding`] divides them. Long literals bound it from the
//!   beginning.
//!
//! Both begin with one row, and grow by at most [`GROWTH`]: four small slices before the first full batch, in each
//! partition of a query. Where nothing is measured, long literals of an aggregate, they are as long as those allow.

use crate::error::{Error, external};
use crate::planner::running_query::RunningQuery;
use crate::planner::turns::yield_to_others;
use crate::planner::wrapped_expr::{EvaluationWrapper, WrappedExpr};
use crate::session::query_memory::bytes_of_array;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time that a slice should take.
const SLICE_TIME: Duration = Duration::from_millis(2);
/// Bytes that a projection should make of a batch.
const BATCH_BYTES: usize = 4 << 20;
/// Largest factor by which a slice is longer than the one before.
const GROWTH: usize = 16;
/// Maximum bytes of the results for one batch.
const RESULTS_BYTES_MAX: usize = 512 << 20;
/// Bytes of a literal from which on it bounds the length of batches.
const LONG_LITERAL_BYTES: usize = 4 << 10;

/// Number of rows that are computed at a time.
#[derive(Debug)]
pub(crate) struct BatchRows {
    next: AtomicUsize,
    max: usize,
}

impl BatchRows {
    fn new(max: usize) -> BatchRows {
        BatchRows { next: AtomicUsize::new(1), max }
    }

    /// Rows of a batch that nothing adapts.
    fn fixed(rows: usize) -> BatchRows {
        BatchRows { next: AtomicUsize::new(rows), max: rows }
    }

    /// Rows of the next batch.
    pub(crate) fn next(&self) -> usize {
        self.next.load(Ordering::Relaxed)
    }

    /// Sets the rows of the next batch, after one of `rows` took `taken` of `wanted`, bytes or nanoseconds.
    fn adapt(&self, rows: usize, taken: u128, wanted: u128) {
        let rows = rows.max(1);
        let fitting = (rows as u128).saturating_mul(wanted).checked_div(taken).unwrap_or(u128::MAX);
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
        self.next.store(fitting.clamp(1, rows.saturating_mul(GROWTH)).min(self.max), Ordering::Relaxed);
    }

    /// Sets the rows of the next batch by the bytes that were made of the last one.
    pub(crate) fn adapt_to_bytes(&self, rows: usize, bytes: usize) {
        self.adapt(rows, bytes as u128, BATCH_BYTES as u128);
    }
}

/// Lengths of the batches that go into a node, if they matter, and those of its columns whose bytes adapt them.
pub(crate) fn batch_rows(node: &dyn ExecutionPlan) -> DFResult<Option<(Arc<BatchRows>, Vec<usize>)>> {
    // Conditions compare with a literal, and do not write it into each row.
    let writes = node.is::<ProjectionExec>()
        || node.is::<AggregateExec>()
        || node.is::<SortExec>()
        || node.is::<WindowAggExec>()
        || node.is::<BoundedWindowAggExec>();
    if !writes {
        return Ok(None);
    }
    let mut longest = 0;
    node.apply_expressions(&mut |expr: &Arc<dyn PhysicalExpr>| {
        longest = longest.max(literal_bytes(expr)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut columns = Vec::new();
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let (schema, input) = (projection.schema(), projection.input().schema());
        for (at, projected) in projection.expr().iter().enumerate() {
            let grows = has_bytes(schema.field(at).data_type()) && is_long(&projected.expr, &input)?;
            if grows || literal_bytes(&projected.expr)? >= LONG_LITERAL_BYTES {
                columns.push(at);
            }
        }
    }
    if columns.is_empty() && longest < LONG_LITERAL_BYTES {
        return Ok(None);
    }
    let max = if longest < LONG_LITERAL_BYTES { usize::MAX } else { (BATCH_BYTES / longest).max(1) };
    let rows = if columns.is_empty() { BatchRows::fixed(max) } else { BatchRows::new(max) };
    Ok(Some((Arc::new(rows), columns)))
}

/// Bytes of the longest literal in an expression.
fn literal_bytes(expr: &Arc<dyn PhysicalExpr>) -> DFResult<usize> {
    let mut longest = 0;
    expr.apply(|part| {
        if let Some(literal) = part.downcast_ref::<Literal>() {
            let bytes = match literal.value() {
                ScalarValue::Utf8(Some(text)) => text.len(),
                ScalarValue::Binary(Some(bytes)) => bytes.len(),
                ScalarValue::List(list) => list.get_array_memory_size(),
                _ => 0,
            };
            longest = longest.max(bytes);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(longest)
}

/// Returns true for types whose values may be long.
fn has_bytes(of: &DataType) -> bool {
    of.is_nested() || of.is_string() || of.is_binary()
}

/// Returns true if an expression calls a function of strings or lists, or makes any.
fn is_long(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> DFResult<bool> {
    let mut found = false;
    expr.apply(|part| {
        let is_call = match part.downcast_ref::<BinaryExpr>() {
            Some(binary) => matches!(
                binary.op(),
                Operator::StringConcat
                    | Operator::RegexMatch
                    | Operator::RegexIMatch
                    | Operator::RegexNotMatch
                    | Operator::RegexNotIMatch
            ),
            // One without operands is a parameter, or as short.
            None => part.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| !call.args().is_empty()),
        };
        if is_call {
            found = has_bytes(&part.data_type(schema)?);
            for operand in part.children() {
                found |=
                    operand.downcast_ref::<Literal>().is_none() && has_bytes(&operand.data_type(schema)?);
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Evaluation of an expression slice by slice.
#[derive(Debug)]
pub(crate) struct SlicedEvaluation {
    query: Arc<RunningQuery>,
    rows: BatchRows,
}

impl SlicedEvaluation {
    /// The expression, sliced if it takes long; `None` if it does not.
    pub(crate) fn of(
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
        query: &Arc<RunningQuery>,
    ) -> DFResult<Option<Arc<dyn PhysicalExpr>>> {
        let inner = match expr.downcast_ref::<WrappedExpr<SlicedEvaluation>>() {
            Some(sliced) => sliced.inner(),
            None if is_long(expr, schema)? => expr,
            None => return Ok(None),
        };
        let sliced = SlicedEvaluation { query: Arc::clone(query), rows: BatchRows::new(usize::MAX) };
        Ok(Some(WrappedExpr::of(Arc::clone(inner), sliced)))
    }

    fn computed(&self, inner: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        // All threads may be here: who tells that the client has left needs one of them.
        yield_to_others();
        self.query.check().map_err(external)?;
        let began = Instant::now();
        let value = inner.evaluate(batch)?;
        self.rows.adapt(batch.num_rows(), began.elapsed().as_nanos(), SLICE_TIME.as_nanos());
        Ok(value)
    }
}

impl EvaluationWrapper for SlicedEvaluation {
    fn evaluate(&self, inner: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        let rows = batch.num_rows();
        if rows <= self.rows.next() {
            return self.computed(inner, batch);
        }
        let of = inner.data_type(&batch.schema())?;
        let (mut parts, mut at, mut bytes) = (Vec::new(), 0, 0);
        while at < rows {
            let length = self.rows.next().min(rows - at);
            // A constant may be that of this slice alone: CASE returns one if all its rows take one branch.
            let part = self.computed(inner, &batch.slice(at, length))?.into_array(length)?;
            let part = if *part.data_type() == of { part } else { cast(&part, &of)? };
            bytes += bytes_of_array(&part);
            parts.push(part);
            at += length;
            if bytes > RESULTS_BYTES_MAX {
                let message = format!(
                    "{inner}: results of {bytes} bytes for one batch of rows, at most {RESULTS_BYTES_MAX}"
                );
                return Err(external(Error::MemoryLimit(message)));
            }
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&parts)?))
    }

    fn anew(&self) -> SlicedEvaluation {
        SlicedEvaluation { query: Arc::clone(&self.query), rows: BatchRows::new(usize::MAX) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::prelude::SessionContext;

    /// Lengths of the first batches for the aggregates of a query, and the columns that adapt them.
    async fn first_batches(sql: &str) -> Vec<(usize, Vec<usize>)> {
        let frame = SessionContext::new().sql(sql).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let mut found = Vec::new();
        plan.apply(|node| {
            if node.is::<AggregateExec>()
                && let Some((rows, columns)) = batch_rows(node.as_ref())?
            {
                found.push((rows.next(), columns));
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        found
    }

    #[tokio::test]
    async fn an_aggregate_with_a_long_literal_begins_with_as_many_rows_as_that_allows() {
        let long = "z".repeat(2 * LONG_LITERAL_BYTES);
        let sql = format!("SELECT max(concat(a, '{long}')) FROM (VALUES ('x'), ('y')) AS t (a)");
        let expected = (BATCH_BYTES / (2 * LONG_LITERAL_BYTES), Vec::new());
        let found = first_batches(&sql).await;
        assert!(!found.is_empty() && found.iter().all(|first| *first == expected), "{found:?}");
    }

    #[test]
    fn rows_are_adapted_to_what_they_take() {
        let rows = BatchRows::new(8192);
        assert_eq!(rows.next(), 1);
        for (length, bytes, expected) in [
            (1, 100, GROWTH),
            (16, 0, 16 * GROWTH),
            (256, 256 * (BATCH_BYTES / 10), 10),
            (10, 10 * BATCH_BYTES, 1),
            (8192, 8192, 8192),
            (0, 0, GROWTH),
        ] {
            rows.adapt_to_bytes(length, bytes);
            assert_eq!(rows.next(), expected, "{length} rows, {bytes} bytes");
        }
    }
}
