//! Plan nodes that hide properties which DataFusion would otherwise assume of the rows.
//!
//! DataFusion leaves out sort keys that are equal to a constant or to a key before them, and sorts whose
//! order nothing uses. Some of its operators claim more such properties than hold, or than its later rules
//! handle:
//!
//! | operator | property claimed | rows |
//! | --- | --- | --- |
//! | outer join | a column of the optional side is a constant | NULL where nothing is joined |
//! | filter | a column is equal to an expression | sorts below it, and its check, interpret the equality differently |
//! | union | a column is a constant in one input | the other inputs have other values |
//! | OFFSET without LIMIT | its input may come in any order | other rows are left out |
//!
//! [`Barriers`] puts a [`Barrier`] between. For the first three it hides equalities and orderings of the
//! rows: a sort that moved below it would lose keys again. For the last one there are two, one below the
//! limit that requires the order, and one above that lets no other sort pass. The rule comes before the one
//! that adds sorts and leaves them out. Cost: a sort where the order of the input would have been enough, in
//! these rare cases.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result as DFResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, replace_children_if_necessary};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use std::fmt;
use std::sync::Arc;

/// Rule that this one has to precede.
pub(crate) const BEFORE: &str = "EnsureRequirements";

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct Barriers;

impl PhysicalOptimizerRule for Barriers {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if node.downcast_ref::<FilterExec>().is_some() && has_computed(node.equivalence_properties()) {
                return Ok(Transformed::yes(Barrier::over(node)));
            }
            if let Some(limit) = node.downcast_ref::<GlobalLimitExec>()
                && limit.fetch().is_none()
                && let Some(input) = ordered(limit.input())?
            {
                let limited = replace_children_if_necessary(node, vec![input])?;
                return Ok(Transformed::yes(Barrier::with(limited, Order::Kept)));
            }
            let Some(doubtful) = doubtful_inputs(&node) else { return Ok(Transformed::no(node)) };
            let mut changed = false;
            let inputs = node.children().into_iter().enumerate().map(|(at, input)| {
                let known = input.equivalence_properties();
                let doubtful = doubtful(at) && (!known.constants().is_empty() || has_computed(known));
                changed |= doubtful;
                if doubtful { Barrier::over(Arc::clone(input)) } else { Arc::clone(input) }
            });
            let inputs: Vec<_> = inputs.collect();
            if changed {
                Ok(Transformed::yes(replace_children_if_necessary(node, inputs)?))
            } else {
                Ok(Transformed::no(node))
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "barriers"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Inputs whose constants do not hold for the rows of a node; `None` if those of all inputs hold.
fn doubtful_inputs(node: &Arc<dyn ExecutionPlan>) -> Option<impl Fn(usize) -> bool + use<>> {
    let join = node.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let join = join.or_else(|| node.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type()));
    let join = join.or_else(|| node.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type()));
    let (first, others) = match join {
        Some(JoinType::Left) => (false, true),
        Some(JoinType::Right) => (true, false),
        Some(JoinType::Full) => (true, true),
        None if node.downcast_ref::<UnionExec>().is_some() => (true, true),
        _ => return None,
    };
    Some(move |at| if at == 0 { first } else { others })
}

/// Returns true if a computed expression is known to be equal to another.
fn has_computed(known: &EquivalenceProperties) -> bool {
    let is_plain = |expr: &Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<Column>().is_some() || expr.downcast_ref::<Literal>().is_some()
    };
    known.eq_group().iter().any(|class| !class.iter().all(is_plain))
}

/// Puts the input's sort, if it has one below projections, under a barrier that requires the order.
fn ordered(input: &Arc<dyn ExecutionPlan>) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(sort) = input.downcast_ref::<SortExec>() {
        return Ok(Some(Barrier::after(Arc::clone(input), sort.expr().clone())));
    }
    let Some(projection) = input.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let below = ordered(projection.input())?;
    below.map(|below| replace_children_if_necessary(Arc::clone(input), vec![below])).transpose()
}

/// Node that passes on the rows of its input.
#[derive(Debug)]
pub(crate) struct Barrier {
    input: Arc<dyn ExecutionPlan>,
    order: Order,
    properties: Arc<PlanProperties>,
}

#[derive(Debug, Clone)]
enum Order {
    /// No property of the rows is known.
    Unknown,
    /// The rows are required in this order.
    Needed(LexOrdering),
    /// The rows keep the order of the input, below which no other sort may move.
    Kept,
}

impl Barrier {
    fn over(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Barrier::with(input, Order::Unknown)
    }

    fn after(input: Arc<dyn ExecutionPlan>, order: LexOrdering) -> Arc<dyn ExecutionPlan> {
        Barrier::with(input, Order::Needed(order))
    }

    fn with(input: Arc<dyn ExecutionPlan>, order: Order) -> Arc<dyn ExecutionPlan> {
        let properties = match order {
            Order::Needed(_) | Order::Kept => Arc::clone(input.properties()),
            Order::Unknown => {
                let properties = PlanProperties::new(
                    EquivalenceProperties::new(input.schema()),
                    input.output_partitioning().clone(),
                    input.pipeline_behavior(),
                    input.boundedness(),
                );
                Arc::new(
                    properties
                        .with_evaluation_type(input.properties().evaluation_type)
                        .with_scheduling_type(input.properties().scheduling_type),
                )
            }
        };
        Arc::new(Barrier { input, order, properties })
    }
}

impl DisplayAs for Barrier {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => f.write_str(self.name()),
        }
    }
}

impl ExecutionPlan for Barrier {
    fn name(&self) -> &str {
        match self.order {
            Order::Unknown => "IndependentColumns",
            Order::Needed(_) => "InOrder",
            Order::Kept => "Limited",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![match &self.order {
            Order::Needed(order) => Some(OrderingRequirements::from(order.clone())),
            Order::Unknown | Order::Kept => None,
        }]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![match self.order {
            Order::Needed(_) | Order::Kept => Distribution::SinglePartition,
            Order::Unknown => Distribution::UnspecifiedDistribution,
        }]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![matches!(self.order, Order::Needed(_))]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Barrier::with(input, self.order.clone()))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Barrier::with(input, self.order.clone()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> DFResult<Arc<Statistics>> {
        Ok(inputs.first().cloned().unwrap_or_else(|| Arc::new(Statistics::new_unknown(&self.schema()))))
    }

    fn supports_limit_pushdown(&self) -> bool {
        !matches!(self.order, Order::Kept)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> DFResult<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DFResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }
}
