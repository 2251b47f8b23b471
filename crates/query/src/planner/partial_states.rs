//! Parts that operators share which aggregate in place of DataFusion's partial aggregation.

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// Truth values of the FILTER of an aggregate.
pub(crate) fn condition(filter: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> DFResult<BooleanArray> {
    let values = filter.evaluate(batch)?.into_array(batch.num_rows())?;
    match values.as_boolean_opt() {
        Some(values) => Ok(values.clone()),
        None => internal_err!("the condition {filter} of an aggregate is not a boolean"),
    }
}

/// Batch of states in slices of at most `rows`.
pub(crate) fn split(batch: Option<RecordBatch>, rows: usize) -> Vec<RecordBatch> {
    let Some(batch) = batch else { return Vec::new() };
    let all = batch.num_rows();
    (0..all).step_by(rows.max(1)).map(|from| batch.slice(from, rows.min(all - from))).collect()
}
