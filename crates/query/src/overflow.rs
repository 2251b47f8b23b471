//! Integer arithmetic that fails instead of wrapping.
//!
//! DataFusion's `+`, `-` and `*` wrap around by default; `UPDATE t SET n = n + 1` would then store nonsense. This
//! rule, the last of the physical optimizer, makes them checked in all projections: in what is returned, and in
//! what INSERT and UPDATE store. Inside filters and aggregates they still wrap.

use std::sync::Arc;

use datafusion::common::Result as EngineResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct CheckedArithmetic;

impl PhysicalOptimizerRule for CheckedArithmetic {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(projection) = node.downcast_ref::<ProjectionExec>() else {
                return Ok(Transformed::no(node));
            };
            let mut changed = false;
            let mut exprs = Vec::with_capacity(projection.expr().len());
            for expr in projection.expr() {
                let checked = checked(Arc::clone(&expr.expr))?;
                changed |= checked.transformed;
                exprs.push(ProjectionExpr { expr: checked.data, alias: expr.alias.clone() });
            }
            if !changed {
                return Ok(Transformed::no(node));
            }
            let (input, schema) = (Arc::clone(projection.input()), node.schema());
            let rebuilt = ProjectionExec::try_new_with_schema_metadata(exprs, input, &schema)?;
            Ok(Transformed::yes(Arc::new(rebuilt) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Makes the arithmetic of an expression checked.
pub(crate) fn checked(expr: Arc<dyn PhysicalExpr>) -> EngineResult<Transformed<Arc<dyn PhysicalExpr>>> {
    expr.transform_up(|node| {
        let Some(binary) = node.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(node)) };
        if !matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) {
            return Ok(Transformed::no(node));
        }
        let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
        let checked = BinaryExpr::new(left, *binary.op(), right).with_fail_on_overflow(true);
        Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>))
    })
}
