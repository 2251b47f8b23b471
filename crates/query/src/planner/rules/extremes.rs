//! MIN and MAX of the first column of the key or of an index: the first row in its order, not all of them.
//!
//! `SELECT max(id) FROM t` becomes `SELECT max(id) FROM (SELECT id FROM t WHERE id IS NOT NULL ORDER BY id
//! DESC LIMIT 1)`, whose sort is left out as any other ([`index_order`](super::index_order)). Columns before
//! it may be compared with constants for equality: the latest reading of a meter.

use crate::planner::scans::provider::EntresolTable;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as EngineResult};
use datafusion::datasource::source_as_provider;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, TableScan,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use entresol_tables::DataType;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct Extremes;

/// Column of a MIN or MAX that is all that an aggregate computes, and true for MAX.
fn extreme(aggregate: &Aggregate) -> Option<(&Column, bool)> {
    let ([], [Expr::AggregateFunction(call)]) = (&aggregate.group_expr[..], &aggregate.aggr_expr[..]) else {
        return None;
    };
    let (is_min, is_max) = (call.func.inner().is::<Min>(), call.func.inner().is::<Max>());
    let [Expr::Column(column)] = &call.params.args[..] else { return None };
    (is_min || is_max).then_some(())?;
    call.params.filter.is_none().then_some((column, is_max))
}

/// Returns true if the rows of a scan come in the order of a column by the key or an index.
fn is_ordered(scan: &TableScan, column: &Column) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else { return false };
    let Some(provider) = provider.downcast_ref::<EntresolTable>() else { return false };
    let schema = provider.table().schema();
    let Some(at) = schema.columns().iter().position(|known| known.name == column.name) else { return false };
    if matches!(schema.columns()[at].data_type, DataType::Real | DataType::Double) {
        // Keys do not distinguish -0.0 from 0.0.
        return false;
    }
    let filters = scan.filters.iter().flat_map(split_conjunction);
    let constant = |column: &usize| {
        let name = &schema.columns()[*column].name;
        filters.clone().any(|filter| match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(..)) | (Expr::Literal(..), Expr::Column(column)) => {
                    column.name == *name
                }
                _ => false,
            },
            _ => false,
        })
    };
    let is_next = |columns: &[usize]| columns.iter().find(|column| !constant(column)) == Some(&at);
    // An index serves without conditions only: with them the planner may prefer another access. That the
    // value is not NULL is one.
    let by_index = || {
        scan.filters.is_empty()
            && !schema.columns()[at].nullable
            && provider.table().indexes().iter().any(|index| index.definition().columns.first() == Some(&at))
    };
    is_next(schema.key()) || by_index()
}

impl OptimizerRule for Extremes {
    fn name(&self) -> &str {
        "extremes"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> EngineResult<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        let scan = match aggregate.input.as_ref() {
            LogicalPlan::Filter(filter) => filter.input.as_ref(),
            other => other,
        };
        let LogicalPlan::TableScan(scan) = scan else { return Ok(Transformed::no(plan)) };
        let Some((column, is_max)) = extreme(aggregate).filter(|(column, _)| is_ordered(scan, column)) else {
            return Ok(Transformed::no(plan));
        };
        let value = Expr::Column(column.clone());
        let first = LogicalPlanBuilder::from(aggregate.input.as_ref().clone())
            .filter(value.clone().is_not_null())?
            .sort([SortExpr::new(value, !is_max, is_max)])?
            .limit(0, Some(1))?
            .build()?;
        Ok(Transformed::yes(plan.with_new_exprs(plan.expressions(), vec![first])?))
    }
}
