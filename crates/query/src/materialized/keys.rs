//! Columns of a view that are plain columns of a table which it reads.
//!
//! If a row of the table changes, only rows of the view with its values in these columns can change: each row
//! of the view is made of rows of the table that have them. That holds for a table that is read once, on paths
//! without LIMIT and the nullable side of an outer join, and through window functions for the columns by which all of
//! them are partitioned, as through MATCH_RECOGNIZE; elsewhere there are none.

use crate::error::Result;
use crate::planner::patterns::node::PatternNode;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan, TableScan};
use std::collections::BTreeMap;

/// Column of a view, by its place, and the column of the table that it is.
pub(crate) type KeyColumn = (usize, String);

/// Names of the tables of a plan, each with the columns of the view that are plain columns of it.
pub(crate) fn key_columns(plan: &LogicalPlan) -> Result<BTreeMap<String, Vec<KeyColumn>>> {
    let mut scans: BTreeMap<String, usize> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            *scans.entry(scan.table_name.table().to_owned()).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut keys: BTreeMap<String, Vec<KeyColumn>> =
        scans.keys().map(|name| (name.clone(), Vec::new())).collect();
    for place in 0..plan.schema().fields().len() {
        if let Some((scan, column)) = origin(plan, place)
            && scans.get(scan.table_name.table()) == Some(&1)
            && let Some(keys) = keys.get_mut(scan.table_name.table())
        {
            keys.push((place, column));
        }
    }
    Ok(keys)
}

/// Scan and column that a column of a plan is, without a change.
fn origin(plan: &LogicalPlan, place: usize) -> Option<(&TableScan, String)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let field = scan.projected_schema.fields().get(place)?;
            Some((scan, field.name().clone()))
        }
        LogicalPlan::Filter(filter) => origin(&filter.input, place),
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, place),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => origin(&sort.input, place),
        LogicalPlan::Distinct(Distinct::All(input)) => origin(input, place),
        LogicalPlan::Projection(projection) => {
            let column = plain(projection.expr.get(place)?)?;
            origin(&projection.input, index(projection.input.schema(), column)?)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let column = plain(aggregate.group_expr.get(place)?)?;
            origin(&aggregate.input, index(aggregate.input.schema(), column)?)
        }
        LogicalPlan::Window(window) => {
            let input = window.input.schema();
            let is_place = |expr: &Expr| plain(expr).and_then(|column| index(input, column)) == Some(place);
            let is_partition = |expr: &Expr| partition(expr).iter().any(is_place);
            if window.window_expr.iter().all(is_partition) { origin(&window.input, place) } else { None }
        }
        LogicalPlan::Extension(_) => {
            let pattern = PatternNode::of(plan)?;
            origin(pattern.input(), pattern.partition_origin(place)?)
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
                    if place < left =>
                {
                    origin(&join.left, place)
                }
                JoinType::Inner => origin(&join.right, place - left),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Expressions by which a window function is partitioned.
fn partition(expr: &Expr) -> &[Expr] {
    match expr {
        Expr::Alias(alias) => partition(&alias.expr),
        Expr::WindowFunction(called) => &called.params.partition_by,
        _ => &[],
    }
}

fn plain(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain(&alias.expr),
        _ => None,
    }
}

fn index(schema: &DFSchema, column: &Column) -> Option<usize> {
    schema.index_of_column(column).ok()
}
