//! Conditions on columns of a plan's rows, handed down to the scans that the columns come from.
//!
//! The interface to scans is that of DataFusion's dynamic filters, see [`crate::planner::star::sideways`]. A condition
//! is known before the plan is asked for rows, and not before it is executed: so it passes no node that reads its
//! input before it is asked, as those that merge partitions do.

use crate::planner::key_filters::exec::KeyFilterExec;
use crate::planner::star::StarJoinExec;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinSide, JoinType, Result as DFResult};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use std::sync::Arc;

/// Condition on a column of a node's output.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) column: usize,
    pub(crate) filter: Arc<dyn PhysicalExpr>,
}

/// Plan whose scans have taken conditions; `None` if none of them takes one. See the [module](self).
pub(crate) fn offered(
    plan: &Arc<dyn ExecutionPlan>,
    offers: Vec<Offer>,
    config: &ConfigOptions,
) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    if offers.is_empty() || plan.fetch().is_some() {
        return Ok(None);
    }
    let children = plan.children();
    if children.is_empty() {
        let parent_filters = offers
            .into_iter()
            .map(|offer| ChildFilterPushdownResult { filter: offer.filter, child_results: Vec::new() });
        let result =
            ChildPushdownResult { parent_filters: parent_filters.collect(), self_filters: Vec::new() };
        return Ok(plan
            .handle_child_pushdown_result(FilterPushdownPhase::Post, result, config)?
            .updated_node);
    }
    let mut is_taken = false;
    let mut inputs = Vec::with_capacity(children.len());
    for (number, input) in children.into_iter().enumerate() {
        let below = moved(&offers, plan, number, input)?;
        let taken = offered(input, below, config)?;
        is_taken |= taken.is_some();
        inputs.push(taken.unwrap_or_else(|| Arc::clone(input)));
    }
    is_taken.then(|| replace_children_if_necessary(Arc::clone(plan), inputs)).transpose()
}

/// Conditions on columns of a node as conditions on those of an input, as far as they pass the node.
fn moved(
    offers: &[Offer],
    plan: &Arc<dyn ExecutionPlan>,
    number: usize,
    input: &Arc<dyn ExecutionPlan>,
) -> DFResult<Vec<Offer>> {
    let schema = input.schema();
    let mut below = Vec::new();
    for offer in offers {
        if let Some(at) = placed(plan, number, offer.column) {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
            let filter = Arc::clone(&offer.filter).with_new_children(vec![column])?;
            below.push(Offer { column: at, filter });
        }
    }
    Ok(below)
}

/// Column of an input that a column of a node is, if a condition on it passes the node.
fn placed(plan: &Arc<dyn ExecutionPlan>, input: usize, column: usize) -> Option<usize> {
    let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().map(Column::index);
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_ref();
        return projection.map_or(Some(column), |columns| columns.get(column).copied());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return is_column(&projection.expr().get(column)?.expr);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let group = aggregate.group_expr();
        let passes = group.is_single() && aggregate.limit_options().is_none();
        return if passes { is_column(&group.expr().get(column)?.0) } else { None };
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return of_join(join, input, column);
    }
    if let Some(star) = plan.downcast_ref::<StarJoinExec>() {
        return if input == 0 { star.column_of_fact(column) } else { None };
    }
    let is_passed = plan.is::<RepartitionExec>() || plan.is::<SortExec>() || plan.is::<KeyFilterExec>();
    is_passed.then_some(column)
}

/// Column of a side of a join that a column of its output is, or is equal to, if the join keeps all rows of that side
/// that a condition on the column lets pass.
fn of_join(join: &HashJoinExec, input: usize, column: usize) -> Option<usize> {
    let column = match &join.projection {
        Some(projection) => *projection.get(column)?,
        None => column,
    };
    let left_columns = join.left().schema().fields().len();
    let (side, at) = match join.join_type() {
        JoinType::RightSemi | JoinType::RightAnti => (JoinSide::Right, column),
        JoinType::RightMark => {
            let is_mark = column == join.right().schema().fields().len();
            (if is_mark { JoinSide::None } else { JoinSide::Right }, column)
        }
        JoinType::LeftMark if column == left_columns => (JoinSide::None, column),
        _ if column < left_columns => (JoinSide::Left, column),
        _ => (JoinSide::Right, column - left_columns),
    };
    let passes = match (side, join.join_type()) {
        (_, JoinType::Inner) => true,
        (JoinSide::Left, kind) => {
            matches!(kind, JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark)
        }
        (JoinSide::Right, kind) => {
            matches!(kind, JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark)
        }
        (JoinSide::None, _) => false,
    };
    if !passes {
        return None;
    }
    let wanted = if input == 0 { JoinSide::Left } else { JoinSide::Right };
    if side == wanted {
        return Some(at);
    }
    (*join.join_type() == JoinType::Inner).then(|| equal_column(join, side, at))?
}

/// Column of the other side that an inner join compares a column with, if both have one type.
fn equal_column(join: &HashJoinExec, side: JoinSide, column: usize) -> Option<usize> {
    let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().map(Column::index);
    let (left_schema, right_schema) = (join.left().schema(), join.right().schema());
    join.on().iter().find_map(|(left, right)| {
        let (left, right) = (is_column(left)?, is_column(right)?);
        let same_type = left_schema.field(left).data_type() == right_schema.field(right).data_type();
        match side {
            JoinSide::Left if left == column && same_type => Some(right),
            JoinSide::Right if right == column && same_type => Some(left),
            _ => None,
        }
    })
}
