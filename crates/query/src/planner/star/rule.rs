//! Physical optimizer rule that plans star joins.
//!
//! Where an aggregation reads a tree of joins that is a star, its joins become one [`StarJoinExec`]; where the
//! aggregation is partial and its groups are made of columns of dimensions, that takes the aggregation, too. The
//! rule comes before the one that distributes and sorts the inputs of operators, so the fact is never distributed
//! for a join.

use crate::planner::rules::barriers;
use crate::planner::star::aggregate::{AggregatePlan, Arguments, GroupKey};
use crate::planner::star::dimension::DimensionPlan;
use crate::planner::star::exec::{StarJoinExec, StarPlan};
use crate::planner::star::gather::JoinedColumns;
use crate::planner::star::matching::{Origin, Star};
use crate::planner::star::sideways::{self, Offer, offered};
use crate::planner::star::tree::{JoinTree, column, columns_of, replaced};
use crate::postgres::overflow::checked_aggregate;
use datafusion::common::Result as EngineResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode, AggregateMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
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
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let planned = plan.transform_up(|node| match node.downcast_ref::<AggregateExec>() {
            Some(aggregate) => Ok(match star_join(aggregate, config)? {
                Some(planned) => Transformed::yes(planned),
                None => Transformed::no(node),
            }),
            None => Ok(Transformed::no(node)),
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
fn star_join(
    aggregate: &AggregateExec,
    config: &ConfigOptions,
) -> EngineResult<Option<Arc<dyn ExecutionPlan>>> {
    if aggregate.mode().input_mode() != AggregateInputMode::Raw || follows_order(aggregate) {
        return Ok(None);
    }
    let tree = JoinTree::of(aggregate.input())?;
    let Some(star) = Star::of(&tree)? else { return Ok(None) };
    let fields = tree.fields();
    let mut columns = vec![Vec::new(); star.arms.len()];
    let joined = JoinedColumns::new(tree.outputs.iter(), &fields, &star.origins, &mut columns);
    let outputs = tree.outputs.iter().map(|output| joined.expr(output)).collect::<EngineResult<_>>()?;
    let mut groups = vec![Vec::new(); star.arms.len()];
    let aggregated = aggregate_plan(aggregate, &tree, &star, &mut columns, &mut groups)?;
    let (fact, filters) = with_filters(&star, config)?;
    let mut inputs = vec![fact];
    let mut dimensions = Vec::new();
    for (((arm, columns), groups), filter) in star.arms.into_iter().zip(columns).zip(groups).zip(filters) {
        let [fact_key, key] = arm.keys;
        // Groups of a plan that is not aggregated here are none of its concern.
        let groups = if aggregated.is_some() { groups } else { Vec::new() };
        let (name, exists) = (arm.name, arm.exists);
        dimensions.push(Arc::new(DimensionPlan { name, fact_key, key, exists, columns, groups, filter }));
        inputs.push(arm.input);
    }
    let schema = aggregate.input().schema();
    let plan = Arc::new(StarPlan { fact: star.name, dimensions, joined, outputs, schema });
    if aggregated.is_some() {
        return Ok(Some(Arc::new(StarJoinExec::new(plan, aggregated, inputs))));
    }
    let joined = Arc::new(StarJoinExec::new(plan, None, inputs));
    let over = replace_children_if_necessary(Arc::new(aggregate.clone()), vec![joined]);
    Ok(Some(over?))
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
    columns: &mut [Vec<usize>],
    groups: &mut [Vec<Arc<dyn PhysicalExpr>>],
) -> EngineResult<Option<Arc<AggregatePlan>>> {
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
    let checked = checked_aggregate(aggregate)?;
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
        let values = function.expressions().iter().map(wide).collect::<EngineResult<Vec<_>>>()?;
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
) -> EngineResult<Option<(usize, Arc<dyn PhysicalExpr>)>> {
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

/// The fact, and the filter that its scan has taken for each dimension.
#[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
fn with_filters(
    star: &Star,
    config: &ConfigOptions,
) -> EngineResult<(Arc<dyn ExecutionPlan>, Vec<Option<Arc<DynamicFilterPhysicalExpr>>>)> {
    let schema = star.fact.schema();
    let filters = star.arms.iter().map(|arm| sideways::filter(schema.field(arm.keys[0]).name(), arm.keys[0]));
    let filters: Vec<_> = filters.collect();
    let offers = star.arms.iter().zip(&filters).map(|(arm, filter)| Offer {
        column: arm.keys[0],
        filter: Arc::clone(filter) as Arc<dyn PhysicalExpr>,
    });
    Ok(match offered(&star.fact, offers.collect(), config)? {
        Some(fact) => (fact, filters.into_iter().map(Some).collect()),
        None => (Arc::clone(&star.fact), vec![None; filters.len()]),
    })
}
