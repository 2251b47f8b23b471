//! Physical expressions with something done around their evaluation; in all else they are what they wrap.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::Result as DFResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Something that is done around each evaluation of an expression.
pub(crate) trait EvaluationWrapper: Debug + Send + Sync + 'static {
    /// Evaluates an expression for a batch.
    fn evaluate(&self, inner: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> DFResult<ColumnarValue>;

    /// The same for another expression.
    fn anew(&self) -> Self;
}

/// Expression with something around it.
#[derive(Debug)]
pub(crate) struct WrappedExpr<W> {
    inner: Arc<dyn PhysicalExpr>,
    wrapper: W,
}

impl<W: EvaluationWrapper> WrappedExpr<W> {
    pub(crate) fn of(inner: Arc<dyn PhysicalExpr>, wrapper: W) -> Arc<dyn PhysicalExpr> {
        Arc::new(WrappedExpr { inner, wrapper })
    }

    /// Wrapped expression.
    pub(crate) fn inner(&self) -> &Arc<dyn PhysicalExpr> {
        &self.inner
    }
}

impl<W> PartialEq for WrappedExpr<W> {
    fn eq(&self, other: &WrappedExpr<W>) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl<W> Eq for WrappedExpr<W> {}

impl<W> Hash for WrappedExpr<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl<W> fmt::Display for WrappedExpr<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

impl<W: EvaluationWrapper> PhysicalExpr for WrappedExpr<W> {
    fn return_field(&self, schema: &Schema) -> DFResult<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        self.wrapper.evaluate(&self.inner, batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DFResult<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(WrappedExpr::of(inner, self.wrapper.anew()))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
