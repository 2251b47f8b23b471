//! LATERAL subqueries that read nothing but the left row: expressions, conditions, and elements of lists.
//!
//! ```text
//!   FROM t, unnest(string_to_array(t.tags, ',')) u(tag)
//!
//!   join                                   projection    t.*, list AS u.tag
//!   ├ t                            ─▶        unnest      list
//!   └ unnest string_to_array(tags)             projection    t.*, string_to_array(t.tags, ',') AS list
//!       └ one row                                └ t
//! ```
//! The one row of the subquery is the left row, which all of its nodes pass on. So it costs what the same expressions in SELECT
//! do, and steps of topologies can have it. The left row of a LEFT JOIN stays where there is no element: then the list must be
//! all that the subquery has.

use crate::planner::rules::subqueries::plans::has_subquery;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result as DFResult};
use datafusion::functions_nested::expr_fn::array_length;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Unnest, lit, when};

/// Prefix of the names of columns between the nodes, which no column of the left side has.
const COLUMN: &str = "$of_row";

/// Rows of the left side with those of a query of each, which keeps left rows without any if `is_left`; none if the query is of
/// another kind.
pub(crate) fn rows_of_row(
    query: &LogicalPlan,
    left: &LogicalPlan,
    is_left: bool,
) -> DFResult<Option<LogicalPlan>> {
    let mut rows = RowsOfRow { left, is_left, names: 0 };
    let Some(node) = rows.node(query)? else { return Ok(None) };
    let named = query.schema().iter().zip(node.columns).map(|((relation, field), column)| {
        Expr::Column(column).alias_qualified(relation.cloned(), field.name())
    });
    let mut columns = rows.own();
    columns.extend(named);
    LogicalPlanBuilder::from(node.plan).project(columns)?.build().map(Some)
}

struct RowsOfRow<'l> {
    left: &'l LogicalPlan,
    is_left: bool,
    /// Number of names that were given.
    names: usize,
}

/// Node over the left rows.
struct Node {
    plan: LogicalPlan,
    /// Its column for each of the subquery's node.
    columns: Vec<Column>,
    /// True if it has the elements of a list.
    has_elements: bool,
}

impl RowsOfRow<'_> {
    /// Columns of the left side.
    fn own(&self) -> Vec<Expr> {
        self.left.schema().columns().into_iter().map(Expr::Column).collect()
    }

    fn node(&mut self, query: &LogicalPlan) -> DFResult<Option<Node>> {
        match query {
            LogicalPlan::EmptyRelation(empty)
                if empty.produce_one_row && empty.schema.fields().is_empty() =>
            {
                Ok(Some(Node { plan: self.left.clone(), columns: Vec::new(), has_elements: false }))
            }
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input),
            LogicalPlan::Subquery(subquery) => self.node(&subquery.subquery),
            LogicalPlan::Projection(projection) => {
                let Some(below) = self.node(&projection.input)? else { return Ok(None) };
                self.projected(below, &projection.expr, &projection.input)
            }
            LogicalPlan::Filter(filter) if !self.is_left => {
                let Some(below) = self.node(&filter.input)? else { return Ok(None) };
                let Some(condition) = self.expression(&filter.predicate, &filter.input, &below)? else {
                    return Ok(None);
                };
                let plan = LogicalPlanBuilder::from(below.plan).filter(condition)?.build()?;
                Ok(Some(Node { plan, ..below }))
            }
            LogicalPlan::Unnest(unnest) => {
                let Some(below) = self.node(&unnest.input)? else { return Ok(None) };
                self.unnested(below, unnest)
            }
            _ => Ok(None),
        }
    }

    fn projected(&mut self, below: Node, exprs: &[Expr], input: &LogicalPlan) -> DFResult<Option<Node>> {
        let mut computed = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let expr = expr.clone().unalias_nested().data;
            // A row without elements would have more than NULLs.
            if self.is_left && below.has_elements && !matches!(expr, Expr::Column(_)) {
                return Ok(None);
            }
            let Some(expr) = self.expression(&expr, input, &below)? else { return Ok(None) };
            computed.push(expr);
        }
        self.with_columns(below, computed).map(Some)
    }

    /// Node with columns of their own names behind those of the left side.
    fn with_columns(&mut self, below: Node, computed: Vec<Expr>) -> DFResult<Node> {
        let first = self.names;
        self.names += computed.len();
        let columns: Vec<Column> =
            (first..self.names).map(|number| Column::new_unqualified(format!("{COLUMN} {number}"))).collect();
        let named = computed.into_iter().zip(&columns).map(|(expr, column)| expr.alias(&column.name));
        let mut all = self.own();
        all.extend(named);
        let plan = LogicalPlanBuilder::from(below.plan).project(all)?.build()?;
        Ok(Node { plan, columns, ..below })
    }

    fn unnested(&mut self, below: Node, unnest: &Unnest) -> DFResult<Option<Node>> {
        let is_plain = unnest.struct_type_columns.is_empty()
            && unnest.list_type_columns.iter().all(|(_, list)| list.depth == 1);
        let is_alone = unnest.list_type_columns.len() == 1 && unnest.schema.fields().len() == 1;
        if !is_plain || (self.is_left && (!is_alone || below.has_elements)) {
            return Ok(None);
        }
        let below = if self.is_left { with_null_lists(below)? } else { Some(below) };
        let Some(Node { plan, columns, .. }) = below else { return Ok(None) };
        let lists = unnest.list_type_columns.iter().map(|(at, _)| columns[*at].clone()).collect();
        let options = unnest.options.clone();
        let options = if self.is_left { options.with_preserve_nulls(true) } else { options };
        let columns = unnest.dependency_indices.iter().map(|&at| columns[at].clone()).collect();
        let plan = LogicalPlanBuilder::from(plan).unnest_columns_with_options(lists, options)?.build()?;
        Ok(Some(Node { plan, columns, has_elements: true }))
    }

    /// Expression of a node of the subquery over the node below; none if it has a subquery.
    fn expression(&self, expr: &Expr, input: &LogicalPlan, below: &Node) -> DFResult<Option<Expr>> {
        if has_subquery(expr)? {
            return Ok(None);
        }
        let left = self.left.schema();
        let mut is_known = true;
        let replaced = expr.clone().transform_up(|expr| match expr {
            Expr::OuterReferenceColumn(_, column) if left.has_column(&column) => {
                Ok(Transformed::yes(Expr::Column(column)))
            }
            Expr::OuterReferenceColumn(..) => {
                is_known = false;
                Ok(Transformed::no(expr))
            }
            Expr::Column(column) => {
                let at = input.schema().index_of_column(&column)?;
                Ok(Transformed::yes(Expr::Column(below.columns[at].clone())))
            }
            other => Ok(Transformed::no(other)),
        });
        let replaced = replaced.data()?;
        Ok(is_known.then_some(replaced))
    }
}

/// Node of one list with NULL for an empty one: the list that leaves its row.
fn with_null_lists(node: Node) -> DFResult<Option<Node>> {
    let (LogicalPlan::Projection(projection), [list]) = (&node.plan, node.columns.as_slice()) else {
        return Ok(None);
    };
    // It is computed twice.
    let is_list = |expr: &Expr| matches!(expr, Expr::Alias(alias) if alias.relation.is_none() && alias.name == list.name);
    if projection.expr.iter().any(|expr| is_list(expr) && expr.is_volatile()) {
        return Ok(None);
    }
    let exprs = projection.expr.iter().map(|expr| match expr {
        Expr::Alias(alias) if is_list(expr) => {
            let list = (*alias.expr).clone();
            Ok(when(array_length(list.clone()).gt(lit(0_u64)), list).end()?.alias(&alias.name))
        }
        other => Ok(other.clone()),
    });
    let exprs = exprs.collect::<DFResult<Vec<_>>>()?;
    let plan = LogicalPlanBuilder::from((*projection.input).clone()).project(exprs)?.build()?;
    Ok(Some(Node { plan, ..node }))
}
