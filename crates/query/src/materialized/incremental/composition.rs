//! Filters and projections between two nodes of a plan, as conditions and expressions over the lower one's columns.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Nodes of an expression that took in those below it.
const NODES_MAX: usize = 256;

/// Conditions and expressions over the columns of a node.
pub(super) struct Composition {
    /// Conditions, in the order in which rows pass them.
    pub(super) conditions: Vec<Expr>,
    /// Expression of each column.
    pub(super) columns: Vec<Expr>,
}

/// Node below filters and projections, and the composition of these; none if other nodes are between, or expressions grow long.
pub(super) fn composed<'p>(
    plan: &'p LogicalPlan,
    is_lowest: &impl Fn(&LogicalPlan) -> bool,
) -> Option<(&'p LogicalPlan, Composition)> {
    if is_lowest(plan) {
        let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
        return Some((plan, Composition { conditions: Vec::new(), columns }));
    }
    match plan {
        LogicalPlan::SubqueryAlias(alias) => composed(&alias.input, is_lowest),
        LogicalPlan::Filter(filter) => {
            let (lowest, mut below) = composed(&filter.input, is_lowest)?;
            below.conditions.push(below.over(&filter.predicate, filter.input.schema())?);
            Some((lowest, below))
        }
        LogicalPlan::Projection(projection) => {
            let (lowest, below) = composed(&projection.input, is_lowest)?;
            let columns = projection.expr.iter().map(|expr| below.over(expr, projection.input.schema()));
            let columns = columns.collect::<Option<Vec<_>>>()?;
            Some((lowest, Composition { columns, ..below }))
        }
        _ => None,
    }
}

impl Composition {
    /// Expression over the columns of the lowest node; none if it has a subquery, or is long.
    pub(super) fn over(&self, expr: &Expr, schema: &DFSchema) -> Option<Expr> {
        let composed = expr.clone().transform_up(|node| {
            let Expr::Column(column) = &node else { return Ok(Transformed::no(node)) };
            let below = &self.columns[schema.index_of_column(column)?];
            Ok(Transformed::yes(below.clone().unalias()))
        });
        let composed = composed.ok()?.data;
        let (mut nodes, mut is_simple) = (0, true);
        let visited = composed.apply(|node| {
            nodes += 1;
            let is_query = matches!(
                node,
                Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
            );
            is_simple &= nodes <= NODES_MAX && !is_query;
            Ok(if is_simple { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        });
        (visited.is_ok() && is_simple).then_some(composed)
    }
}
