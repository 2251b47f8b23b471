//! Further conditions on joined rows: equalities that the keys of a star leave over, and what joins ask beside them.
//!
//! Each is evaluated for the rows that met those before it, equalities first: so no expression meets values that it
//! would not meet in joins one after the other.

use crate::planner::star::dimension::Dimension;
use crate::planner::star::gather::{JoinedColumns, JoinedRows, Origin};
use crate::planner::star::probe::Probe;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{Result as DFResult, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// Condition on joined rows.
#[derive(Debug)]
struct Condition {
    expr: Arc<dyn PhysicalExpr>,
    /// Columns that it needs.
    joined: JoinedColumns,
}

/// Conditions on joined rows; see the [module](self).
#[derive(Debug)]
pub(super) struct Conditions(Vec<Condition>);

impl Conditions {
    /// Conditions of wide columns; `columns` are those of each dimension that joined rows have.
    pub(super) fn new(
        exprs: &[Arc<dyn PhysicalExpr>],
        fields: &[FieldRef],
        origins: &[Origin],
        columns: &mut [Vec<usize>],
    ) -> DFResult<Conditions> {
        let condition = |expr: &Arc<dyn PhysicalExpr>| {
            let joined = JoinedColumns::new(std::iter::once(expr), fields, origins, columns);
            Ok(Condition { expr: joined.expr(expr)?, joined })
        };
        exprs.iter().map(condition).collect::<DFResult<_>>().map(Conditions)
    }

    /// Returns true if they need rows of a dimension.
    pub(super) fn need_rows(&self, dimension: usize) -> bool {
        self.0.iter().any(|condition| condition.joined.has_any(dimension))
    }

    /// Returns true if they need a column of a dimension.
    pub(super) fn need(&self, dimension: usize, at: usize) -> bool {
        self.0.iter().any(|condition| condition.joined.has(dimension, at))
    }

    /// Their expressions.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.0.iter().map(|condition| &condition.expr)
    }

    /// Leaves of a chunk of joined rows those that meet all conditions.
    pub(super) fn apply(
        &self,
        dimensions: &[Dimension],
        batch: &RecordBatch,
        probe: &mut Probe,
    ) -> DFResult<()> {
        for Condition { expr, joined } in &self.0 {
            if probe.selection().is_empty() {
                return Ok(());
            }
            let (selection, rows) = (probe.selection(), probe.rows());
            let rows = joined.gather(dimensions, &JoinedRows { batch, selection, rows })?;
            let met = expr.evaluate(&rows)?.into_array(rows.num_rows())?;
            let met = met.as_boolean_opt().ok_or_else(|| {
                internal_datafusion_err!("the condition {expr} of a star join is not a boolean")
            })?;
            probe.retain(met);
        }
        Ok(())
    }
}
