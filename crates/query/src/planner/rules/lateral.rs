//! LATERAL subqueries that DataFusion makes no join of: with LIMIT, VALUES, computed columns of the outer row, or aggregates
//! under other conditions than equality; and those with window functions, of which it makes wrong ones.
//!
//! ```text
//!   FROM t, LATERAL (SELECT …) s      FROM (SELECT t.*, unnest((SELECT array_agg(struct(…)) FROM (SELECT …)))): s is its fields
//! ```
//!
//! One of expressions and lists of the left row alone, as `unnest(t.tags)` and `generate_series(1, t.n)` in FROM are, is a projection of
//! it ([`super::rows_of_row`]). Any other of this kind is a value of the row, which [`crate::planner::rules::correlated`] computes once for each distinct set of
//! outer values. LEFT JOIN LATERAL keeps rows without one, with NULLs: a condition behind ON other than true is one of the
//! subquery, as the left row is known in it. Memory: the rows of a subquery for the rows of a batch.

use crate::planner::rules::rows_of_row::rows_of_row;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result as DFResult, ScalarValue, Spans, UnnestOptions};
use datafusion::functions::core::expr_fn::{get_field, named_struct};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{
    Aggregate, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, SubqueryAlias, lit,
};
use datafusion::optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion::optimizer::{AnalyzerRule, OptimizerContext, OptimizerRule};
use std::sync::Arc;

/// Column of the rows of a subquery.
const ROWS: &str = "$lateral";

/// The rule; see the [module](self). It precedes the rules of correlated subqueries.
#[derive(Debug)]
pub(crate) struct LateralJoins;

impl AnalyzerRule for LateralJoins {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        let plan = unmarked(plan)?.transform_up_with_subqueries(|plan| {
            plan.map_expressions(|expr| expr.transform_up(unmarked_subquery))?.transform_data(|plan| {
                match plan {
                    LogicalPlan::Join(mut join) => {
                        join.left = Arc::new(unmarked(Arc::unwrap_or_clone(join.left))?);
                        Ok(Transformed::no(LogicalPlan::Join(join)))
                    }
                    // What is around them says which side they are.
                    LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) => Ok(Transformed::no(plan)),
                    other => other.map_children(|input| unmarked(input).map(Transformed::yes)),
                }
            })
        });
        plan.data()?
            .transform_up_with_subqueries(|plan| match plan {
                LogicalPlan::Join(join) => joined(join),
                other => Ok(Transformed::no(other)),
            })
            .data()
    }

    fn name(&self) -> &str {
        "lateral_joins"
    }
}

/// Relation that is no right side of a join, without the mark of one that uses columns of the left side: those that it uses are of
/// queries around.
fn unmarked(plan: LogicalPlan) -> DFResult<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::Subquery(subquery) => unmarked(Arc::unwrap_or_clone(subquery.subquery))?,
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            let input = unmarked(Arc::unwrap_or_clone(input))?;
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias)?)
        }
        LogicalPlan::Projection(Projection { input, expr, .. }) => {
            let input = unmarked(Arc::unwrap_or_clone(input))?;
            LogicalPlan::Projection(Projection::try_new(expr, Arc::new(input))?)
        }
        other => other,
    })
}

/// The same of the query of a subquery.
fn unmarked_subquery(expr: Expr) -> DFResult<Transformed<Expr>> {
    let of = |subquery: Subquery| -> DFResult<Subquery> {
        Ok(Subquery { subquery: Arc::new(unmarked(Arc::unwrap_or_clone(subquery.subquery))?), ..subquery })
    };
    Ok(match expr {
        Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(of(subquery)?)),
        Expr::Exists(exists) => {
            Transformed::yes(Expr::Exists(Exists { subquery: of(exists.subquery)?, ..exists }))
        }
        Expr::InSubquery(inner) => {
            Transformed::yes(Expr::InSubquery(InSubquery { subquery: of(inner.subquery)?, ..inner }))
        }
        Expr::SetComparison(inner) => {
            Transformed::yes(Expr::SetComparison(SetComparison { subquery: of(inner.subquery)?, ..inner }))
        }
        other => Transformed::no(other),
    })
}

/// Join with the rows of a subquery for each row of the left side; the same if DataFusion makes a join of it.
fn joined(join: Join) -> DFResult<Transformed<LogicalPlan>> {
    let is_left = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
    };
    let is_true = join
        .filter
        .as_ref()
        .is_none_or(|on| matches!(on, Expr::Literal(ScalarValue::Boolean(Some(true)), _)));
    let Some(mut inner) = inner(&join.right, join.left.schema()).filter(|_| join.on.is_empty()) else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    if (is_true || !is_left)
        && let Some(rows) = rows_of_row(&inner, &join.left, is_left)?
    {
        return filtered(rows, join.filter.filter(|_| !is_true)).map(Transformed::yes);
    }
    let condition = join.filter.as_ref().filter(|_| is_left && !is_true);
    // DataFusion refuses some of the conditions of a LEFT JOIN.
    let is_joined = if condition.is_some() { is_joined(&join).unwrap_or(false) } else { is_joined(&join)? };
    if is_joined {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    if let Some(condition) = condition {
        inner = matching(inner, condition.clone(), join.left.schema())?;
    }
    let fields: Vec<Column> = inner.schema().columns();
    let left = Arc::clone(join.left.schema());
    let rows = Expr::ScalarSubquery(listed(typed(inner, &left)?)?);
    let own: Vec<Expr> = left.columns().into_iter().map(Expr::Column).collect();
    let with_rows = own.iter().cloned().chain([rows.alias(ROWS)]).collect::<Vec<_>>();
    let options = UnnestOptions::new().with_preserve_nulls(is_left);
    let list = || Expr::Column(Column::new_unqualified(ROWS));
    let taken = fields.iter().enumerate().map(|(at, Column { relation, name, .. })| {
        get_field(list(), field_name(at)).alias_qualified(relation.clone(), name)
    });
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.left))
        .project(with_rows)?
        .unnest_column_with_options(Column::new_unqualified(ROWS), options)?
        .project(own.into_iter().chain(taken).collect::<Vec<_>>())?;
    filtered(plan.build()?, join.filter.filter(|_| !is_true && !is_left)).map(Transformed::yes)
}

/// Plan with a condition, if there is one.
fn filtered(plan: LogicalPlan, condition: Option<Expr>) -> DFResult<LogicalPlan> {
    match condition {
        Some(condition) => LogicalPlanBuilder::from(plan).filter(condition)?.build(),
        None => Ok(plan),
    }
}

/// Rows of a subquery that fulfil the condition of a LEFT JOIN with the left side.
fn matching(inner: LogicalPlan, condition: Expr, left: &DFSchema) -> DFResult<LogicalPlan> {
    let columns = Arc::clone(inner.schema());
    let condition = condition.transform_up(|expr| match expr {
        Expr::Column(column) if !columns.has_column(&column) => {
            let (_, field) = left.qualified_field_from_column(&column)?;
            Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
        }
        other => Ok(Transformed::no(other)),
    });
    LogicalPlanBuilder::from(inner).filter(condition.data()?)?.build()
}

/// Query of a LATERAL subquery that uses columns of the left side, under its alias; `None` for other relations.
fn inner(plan: &LogicalPlan, left: &DFSchema) -> Option<LogicalPlan> {
    let marked = match plan {
        LogicalPlan::Subquery(subquery)
            if !subquery.outer_ref_columns.is_empty() || refers(&subquery.subquery, left) =>
        {
            Some(subquery.subquery.as_ref().clone())
        }
        LogicalPlan::SubqueryAlias(alias) => inner(&alias.input, left).and_then(|input| {
            let aliased = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone());
            aliased.map(LogicalPlan::SubqueryAlias).ok()
        }),
        LogicalPlan::Projection(projection) => inner(&projection.input, left).and_then(|input| {
            let projected = Projection::try_new(projection.expr.clone(), Arc::new(input));
            projected.map(LogicalPlan::Projection).ok()
        }),
        _ => None,
    };
    // The planner marks no query whose subqueries alone use these columns.
    marked.or_else(|| refers(plan, left).then(|| plan.clone()))
}

/// Returns true if a query, or a subquery within it, uses columns of the left side.
fn refers(plan: &LogicalPlan, left: &DFSchema) -> bool {
    let mut found = false;
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= matches!(expr, Expr::OuterReferenceColumn(_, column) if left.has_column(column));
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    });
    found || visited.is_err()
}

/// Tells whether DataFusion makes a join of it. Window functions see the rows of one left row each: those of a join would see
/// the rows of all.
fn is_joined(join: &Join) -> DFResult<bool> {
    if join.right.exists(|node| Ok(matches!(node, LogicalPlan::Window(_))))? {
        return Ok(false);
    }
    let plan = LogicalPlan::Join(join.clone());
    let rewritten = DecorrelateLateralJoin::new().rewrite(plan, &OptimizerContext::new())?;
    let mut refers = !rewritten.transformed;
    rewritten.data.apply(|node| {
        refers |= matches!(node, LogicalPlan::Subquery(_)) || node.contains_outer_reference();
        Ok(if refers { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(!refers)
}

/// Query whose columns of the left side have the types that they have there.
fn typed(plan: LogicalPlan, left: &DFSchema) -> DFResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::OuterReferenceColumn(field, column) => {
                    let known = left.qualified_field_from_column(&column).map(|(_, field)| Arc::clone(field));
                    Ok(Transformed::yes(Expr::OuterReferenceColumn(known.unwrap_or(field), column)))
                }
                other => Ok(Transformed::no(other)),
            })
        })?
        .map_data(LogicalPlan::recompute_schema)
    })
    .data()
}

fn field_name(at: usize) -> String {
    format!("c{at}")
}

/// Subquery of the list of the rows of a query.
fn listed(plan: LogicalPlan) -> DFResult<Subquery> {
    let columns = plan.schema().columns();
    let fields = columns.into_iter().enumerate();
    let row =
        named_struct(fields.flat_map(|(at, column)| [lit(field_name(at)), Expr::Column(column)]).collect());
    let list = array_agg_udaf().call(vec![row]).alias(ROWS);
    let listed = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), Vec::new(), vec![list])?);
    let outer_ref_columns = listed.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(listed), outer_ref_columns, spans: Spans::new() })
}
