//! Sums of BIGINTs that take them as they are.
//!
//! The types of a plan make `sum(b)` a sum of `CAST(b AS DECIMAL(19))`, which all that reads plans knows: topologies and views
//! keep states of it. Plans of queries have [`integer_sums`](crate::postgres::integer_sums) in its place, of `b` itself. A
//! DISTINCT sum is left as it is.

use crate::postgres::integer_sums;
use crate::postgres::number_types::SUMMED;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DFResult};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct IntegerSums;

impl OptimizerRule for IntegerSums {
    fn name(&self) -> &str {
        "integer_sums"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> DFResult<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
            return Ok(Transformed::no(plan));
        }
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_down(|expr| Ok(of_integers(expr, &schema)))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })
    }
}

/// Sum of BIGINTs that an expression is, if it is one of cast BIGINTs.
fn of_integers(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let summed = match &mut expr {
        Expr::AggregateFunction(call) if is_sum(&call.func) && !call.params.distinct => {
            uncast(&mut call.params.args, schema).then(|| call.func = integer_sums::function())
        }
        Expr::WindowFunction(call) if !call.params.distinct => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) if is_sum(function) => {
                let is_uncast = uncast(&mut call.params.args, schema);
                is_uncast.then(|| {
                    call.fun = WindowFunctionDefinition::AggregateUDF(integer_sums::function());
                })
            }
            _ => None,
        },
        _ => None,
    };
    Transformed::new_transformed(expr, summed.is_some())
}

/// Returns true for DataFusion's sum.
fn is_sum(function: &AggregateUDF) -> bool {
    function.inner().is::<Sum>()
}

/// Takes the cast away from the argument of a sum; returns true if it is one of a BIGINT.
fn uncast(arguments: &mut [Expr], schema: &DFSchema) -> bool {
    let [argument] = arguments else { return false };
    let Expr::Cast(cast) = &mut *argument else { return false };
    let is_widened =
        *cast.field.data_type() == SUMMED && cast.expr.get_type(schema).is_ok_and(|of| of == DataType::Int64);
    if is_widened {
        *argument = std::mem::take(&mut *cast.expr);
    }
    is_widened
}
