//! Parts of the plans of rewritten subqueries, and the unique names in them.

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result as DFResult, Spans};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number for unique names of relations and columns.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Beginning of the unique names.
const PREFIX: &str = "__subquery_";

pub(super) fn fresh(what: &str) -> String {
    format!("{PREFIX}{what}_{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Text of a plan with its unique names numbered from 0, as they appear: it is the same each time the statement is planned.
pub(crate) fn renumbered(text: &str) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PREFIX) {
        let (before, name) = rest.split_at(at);
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (name, behind) = name.split_at(name.find(|letter| !is_part(letter)).unwrap_or(name.len()));
        all.push_str(before);
        match name.rsplit_once('_') {
            Some((what, number))
                if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) =>
            {
                let next = numbers.len();
                all += &format!("{what}_{}", numbers.entry(name).or_insert(next));
            }
            _ => all.push_str(name),
        }
        rest = behind;
    }
    all + rest
}

pub(super) fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_))
}

/// Returns true if an expression has a subquery anywhere.
pub(crate) fn has_subquery(expr: &Expr) -> DFResult<bool> {
    expr.exists(|expr| Ok(is_subquery(expr)))
}

pub(super) fn subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }
}

pub(super) fn scalar(plan: LogicalPlan) -> Expr {
    Expr::ScalarSubquery(subquery(plan))
}

pub(super) fn columns(plan: &LogicalPlan) -> impl Iterator<Item = Expr> {
    plan.schema().columns().into_iter().map(Expr::Column)
}

/// Plan with a further column, whose name is returned.
pub(crate) fn with_column(plan: LogicalPlan, expr: Expr) -> DFResult<(LogicalPlan, Column)> {
    let name = fresh("value");
    let projected: Vec<Expr> = columns(&plan).chain([expr.alias(&name)]).collect();
    let plan = LogicalPlanBuilder::from(plan).project(projected)?.build()?;
    Ok((plan, Column::new_unqualified(name)))
}

/// Projection of a plan to these columns.
pub(crate) fn narrowed(plan: LogicalPlan, wanted: Vec<Column>) -> DFResult<LogicalPlan> {
    LogicalPlanBuilder::from(plan).project(wanted.into_iter().map(Expr::Column))?.build()
}

/// Recomputes the schemas of a changed plan from the leaves up: a column may have become NOT NULL.
pub(super) fn recomputed(changed: Transformed<LogicalPlan>) -> DFResult<LogicalPlan> {
    if changed.transformed {
        changed.data.transform_up_with_subqueries(|node| node.recompute_schema().map(Transformed::yes)).data()
    } else {
        Ok(changed.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_names_are_numbered_as_they_appear() {
        let text = |item: u64, list: u64| {
            format!(
                "__subquery_item_{item} IN __subquery_list_{list}, __subquery_item_{item} AS __item_7, __subquery_x, x"
            )
        };
        assert_eq!(renumbered(&text(12, 15)), text(0, 1));
        assert_eq!(renumbered(&text(7, 3)), text(0, 1));
        assert_eq!(renumbered("__subquery_row_4"), "__subquery_row_0");
        assert_ne!(
            renumbered("__subquery_row_1 = __subquery_row_1"),
            renumbered("__subquery_row_1 = __subquery_row_2")
        );
    }
}
