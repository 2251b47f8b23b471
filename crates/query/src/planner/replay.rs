//! Leaf of a plan that an operator runs over rows of its own input, part of which it has read.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Rows of an input: those that were read, and the rest. They are read once.
pub(crate) struct ReplayStream {
    properties: Arc<PlanProperties>,
    rows: Mutex<Option<(Vec<RecordBatch>, SendableRecordBatchStream)>>,
}

impl ReplayStream {
    /// Rows of a partition of an input.
    pub(crate) fn new(
        input: &Arc<dyn ExecutionPlan>,
        read: Vec<RecordBatch>,
        rest: SendableRecordBatchStream,
    ) -> ReplayStream {
        ReplayStream { properties: Arc::clone(input.properties()), rows: Mutex::new(Some((read, rest))) }
    }
}

impl fmt::Debug for ReplayStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replayed").finish_non_exhaustive()
    }
}

impl DisplayAs for ReplayStream {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replayed")
    }
}

impl ExecutionPlan for ReplayStream {
    fn name(&self) -> &str {
        "Replayed"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let Some((batches, rest)) = self.rows.lock().take() else {
            return internal_err!("the rows of an input are replayed once");
        };
        let schema: SchemaRef = self.schema();
        let rows = stream::iter(batches.into_iter().map(Ok)).chain(rest);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
