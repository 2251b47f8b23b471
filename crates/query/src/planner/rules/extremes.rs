//! MIN and MAX of the first column of the key or of an index: the first row in its order, not all of them.
//!
//! `SELECT max(id) FROM t` becomes `SELECT max(id) FROM (SELECT id FROM t WHERE id IS NOT NULL ORDER BY id
//! DESC LIMIT 1)`, whose sort is left out as any other ([`index_order`](super::index_order)). Columns before
//! it may be compared with constants for equality: the latest reading of a meter. Several of them, `SELECT min(id),
//! max(id) FROM t`, are such a query each, joined as the one row that each of them is.

use crate::planner::scans::provider::EntresolTable;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DFResult};
use datafusion::datasource::source_as_provider;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, TableScan,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use entresol_tables::{DataType, IndexDefinition};

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct Extremes;

/// Maximum number of extremes that are queries of their own.
const EXTREMES_MAX: usize = 8;

/// Columns of MIN and MAX, if they are all that an aggregate computes, and true for MAX.
fn extremes(aggregate: &Aggregate) -> Option<Vec<(&Column, bool)>> {
    let calls = &aggregate.aggr_expr;
    if !aggregate.group_expr.is_empty() || !(1..=EXTREMES_MAX).contains(&calls.len()) {
        return None;
    }
    calls.iter().map(extreme).collect()
}

/// Column of a MIN or MAX, and true for MAX.
fn extreme(call: &Expr) -> Option<(&Column, bool)> {
    let Expr::AggregateFunction(call) = call else { return None };
    let (is_min, is_max) = (call.func.inner().is::<Min>(), call.func.inner().is::<Max>());
    let [Expr::Column(column)] = &call.params.args[..] else { return None };
    (is_min || is_max).then_some(())?;
    call.params.filter.is_none().then_some((column, is_max))
}

/// Input of an aggregate, limited to the one row that has the extreme of a column.
fn first_row(aggregate: &Aggregate, (column, is_max): (&Column, bool)) -> DFResult<LogicalPlan> {
    let value = Expr::Column(column.clone());
    LogicalPlanBuilder::from(aggregate.input.as_ref().clone())
        .filter(value.clone().is_not_null())?
        .sort([SortExpr::new(value, !is_max, is_max)])?
        .limit(0, Some(1))?
        .build()
}

/// Returns true if reading a table several times for its conditions costs little, and finds the same: they are on
/// columns of the key, and not volatile.
fn is_repeatable(aggregate: &Aggregate, scan: &TableScan) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else { return false };
    let Some(provider) = provider.downcast_ref::<EntresolTable>() else { return false };
    let schema = provider.table().schema();
    let is_of_key = |column: &&Column| schema.key_names().any(|name| name == column.name);
    let behind = match aggregate.input.as_ref() {
        LogicalPlan::Filter(filter) => Some(&filter.predicate),
        _ => None,
    };
    scan.filters
        .iter()
        .chain(behind)
        .all(|filter| !filter.is_volatile() && filter.column_refs().iter().all(&is_of_key))
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
    let is_first = |index: &IndexDefinition| !index.hashed && index.columns.first() == Some(&at);
    // An index serves without conditions only: with them the planner may prefer another access. That the
    // value is not NULL is one.
    let by_index = || {
        scan.filters.is_empty()
            && !schema.columns()[at].nullable
            && provider.table().indexes().iter().any(|index| is_first(index.definition()))
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
    ) -> DFResult<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        let scan = match aggregate.input.as_ref() {
            LogicalPlan::Filter(filter) => filter.input.as_ref(),
            other => other,
        };
        let LogicalPlan::TableScan(scan) = scan else { return Ok(Transformed::no(plan)) };
        let Some(found) = extremes(aggregate) else { return Ok(Transformed::no(plan)) };
        if !found.iter().all(|(column, _)| is_ordered(scan, column)) {
            return Ok(Transformed::no(plan));
        }
        if let [only] = found[..] {
            let first = first_row(aggregate, only)?;
            return Ok(Transformed::yes(plan.with_new_exprs(plan.expressions(), vec![first])?));
        }
        if !is_repeatable(aggregate, scan) {
            return Ok(Transformed::no(plan));
        }
        let mut joined: Option<LogicalPlanBuilder> = None;
        for (extreme, call) in found.into_iter().zip(&aggregate.aggr_expr) {
            let first = first_row(aggregate, extreme)?;
            let one = LogicalPlanBuilder::from(first).aggregate(Vec::<Expr>::new(), [call.clone()])?;
            joined = Some(match joined {
                None => one,
                Some(others) => others.cross_join(one.build()?)?,
            });
        }
        match joined {
            Some(joined) => Ok(Transformed::yes(joined.build()?)),
            None => Ok(Transformed::no(plan)),
        }
    }
}
