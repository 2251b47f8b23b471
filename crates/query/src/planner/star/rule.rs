//! Physical optimizer rule that plans star joins.
//!
//! A tree of joins that is a star becomes one [`StarJoinExec`](super::StarJoinExec); where a partial aggregation
//! reads it whose groups are made of columns of dimensions, that takes the aggregation, too. The rule comes before
//! the one that distributes and sorts the inputs of operators, so the fact is never distributed for a join.

use crate::planner::rules::barriers;
use crate::planner::star::aggregate::{AggregatePlan, Arguments, GroupKey};
use crate::planner::star::gather::{JoinedColumns, Origin};
use crate::planner::star::matching::{LARGE_FACT_ROWS, star_of};
use crate::planner::star::planned::{NeededColumns, Star};
use crate::planner::star::tree::{JoinTree, column, columns_of, replaced};
use crate::postgres::overflow::checked;
use crate::postgres::plan_expressions::changed_aggregate;
use datafusion::common::Result as DFResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode, AggregateMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct StarJoins;

impl StarJoins {
    /// Puts the rule into its place among DataFusion's.
    pub(crate) fn insert(rules: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>) {
        let before = rules.iter().position(|rule| rule.name() == barriers::BEFORE).unwrap_or_default();
        rules.insert(before, Arc::new(StarJoins));
    }
}

impl PhysicalOptimizerRule for StarJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let planned = plan.transform_up(|node| match node.downcast_ref::<AggregateExec>() {
            Some(aggregate) => Ok(match star_join(aggregate, config)? {
                Some(planned) => Transformed::yes(planned),
                None => Transformed::no(node),
            }),
            None => Ok(Transformed::no(node)),
        });
        // From the root of each tree on: joins below it are its own.
        let planned = planned.data()?.transform_down(|node| {
            let joined = if node.is::<HashJoinExec>() { star_of_join(&node, config)? } else { None };
            Ok(joined.map_or_else(|| Transformed::no(node), Transformed::yes))
        });
        planned.data()
    }

    fn name(&self) -> &str {
        "star_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Plan of an aggregation over a star.
fn star_join(aggregate: &AggregateExec, config: &ConfigOptions) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    if aggregate.mode().input_mode() != AggregateInputMode::Raw || follows_order(aggregate) {
        return Ok(None);
    }
    let tree = JoinTree::of(aggregate.input())?;
    let Some(star) = star_of(&tree, 0, config)? else { return Ok(None) };
    let (fields, schema) = (tree.fields(), aggregate.input().schema());
    let mut needed = star.no_needs();
    let aggregated = aggregate_plan(aggregate, &tree, &star, &mut needed)?;
    if aggregated.is_some() {
        return star.operator((&fields, &tree.outputs, schema), aggregated, needed, config).map(Some);
    }
    let joined = star.joined(&fields, &tree.outputs, schema, config)?;
    let over = replace_children_if_necessary(Arc::new(aggregate.clone()), vec![joined]);
    Ok(Some(over?))
}

/// Plan of a join that is not aggregated at once, if it is a star. One whose rows come in an order keeps it, and
/// one of few rows is left to look-ups and generic plans.
fn star_of_join(
    join: &Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    if join.output_ordering().is_some() {
        return Ok(None);
    }
    let tree = JoinTree::of(join)?;
    let Some(star) = star_of(&tree, LARGE_FACT_ROWS, config)? else { return Ok(None) };
    star.joined(&tree.fields(), &tree.outputs, join.schema(), config).map(Some)
}

/// Returns true if groups come one after the other in the order of the input: such an aggregation needs little
/// memory, and the star join gives no order.
fn follows_order(aggregate: &AggregateExec) -> bool {
    let known = aggregate.input().equivalence_properties();
    let keys = aggregate.group_expr().expr();
    let is_ordered = |at: usize| keys.get(at).is_some_and(|(key, _)| known.is_expr_constant(key).is_none());
    match aggregate.input_order_mode() {
        InputOrderMode::Linear => false,
        InputOrderMode::PartiallySorted(ordered) => ordered.iter().any(|&at| is_ordered(at)),
        InputOrderMode::Sorted => (0..keys.len()).any(is_ordered),
    }
}

/// Aggregation within the star join, if it can do it; the group keys of each dimension come into `groups`.
fn aggregate_plan(
    aggregate: &AggregateExec,
    tree: &JoinTree,
    star: &Star,
    needed: &mut NeededColumns,
) -> DFResult<Option<Arc<AggregatePlan>>> {
    let NeededColumns { columns, groups } = needed;
    let is_plain = *aggregate.mode() == AggregateMode::Partial
        && aggregate.limit_options().is_none()
        && (aggregate.group_expr().is_single() || aggregate.group_expr().is_true_no_grouping());
    let is_grouped = !aggregate.group_expr().is_empty();
    let are_known = aggregate.aggr_expr().iter().all(|function| {
        function.order_bys().is_empty() && (!is_grouped || function.groups_accumulator_supported())
    });
    if !is_plain || !are_known {
        return Ok(None);
    }
    let checked = changed_aggregate(aggregate, &checked)?;
    let aggregate =
        checked.as_ref().and_then(|plan| plan.downcast_ref::<AggregateExec>()).unwrap_or(aggregate);
    let wide =
        |expr: &Arc<dyn PhysicalExpr>| replaced(expr, |column| tree.outputs.get(column.index()).cloned());
    let mut keys = Vec::new();
    for (key, _) in aggregate.group_expr().expr() {
        let Some((dimension, key)) = of_dimension(&wide(key)?, star)? else { return Ok(None) };
        keys.push(GroupKey { dimension, at: groups[dimension].len() });
        groups[dimension].push(key);
    }
    let mut arguments = Vec::new();
    for (function, filter) in aggregate.aggr_expr().iter().zip(aggregate.filter_expr()) {
        let values = function.expressions().iter().map(wide).collect::<DFResult<Vec<_>>>()?;
        arguments.push(Arguments { values, filter: filter.as_ref().map(wide).transpose()? });
    }
    let exprs = arguments.iter().flat_map(|arguments| arguments.values.iter().chain(&arguments.filter));
    let joined = JoinedColumns::new(exprs, &tree.fields(), &star.origins, columns);
    for arguments in &mut arguments {
        for expr in arguments.values.iter_mut().chain(&mut arguments.filter) {
            *expr = joined.expr(expr)?;
        }
    }
    Ok(Some(Arc::new(AggregatePlan {
        group_by: aggregate.group_expr().clone(),
        functions: aggregate.aggr_expr().to_vec(),
        filters: aggregate.filter_expr().to_vec(),
        input_schema: aggregate.input_schema(),
        keys,
        arguments,
        joined,
        schema: aggregate.schema(),
    })))
}

/// Dimension of an expression of wide columns, and the expression of its columns; `None` if it needs others,
/// or none.
fn of_dimension(
    expr: &Arc<dyn PhysicalExpr>,
    star: &Star,
) -> DFResult<Option<(usize, Arc<dyn PhysicalExpr>)>> {
    let mut dimensions = columns_of(expr).into_iter().map(|column| match star.origins[column] {
        Origin::Dimension { dimension, .. } => Some(dimension),
        Origin::Fact(_) => None,
    });
    let Some(Some(dimension)) = dimensions.next() else { return Ok(None) };
    if is_volatile(expr) || !dimensions.all(|other| other == Some(dimension)) {
        return Ok(None);
    }
    let placed = replaced(expr, |of| match star.origins[of.index()] {
        Origin::Dimension { column: at, .. } => Some(column(of.name(), at)),
        Origin::Fact(_) => None,
    });
    Ok(Some((dimension, placed?)))
}
