//! Subqueries of aggregates, windows, sort keys, conditions of joins and VALUES, computed in a projection
//! below.

use super::outer_joins::outer_join;
use super::plans::{fresh, has_subquery, is_subquery, narrowed, recomputed, with_column};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result as DFResult, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, Values, cast, lit, when};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct LiftedSubqueries;

impl AnalyzerRule for LiftedSubqueries {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        recomputed(plan.transform_up_with_subqueries(|node| {
            let of_interest = matches!(
                node,
                LogicalPlan::Aggregate(_)
                    | LogicalPlan::Window(_)
                    | LogicalPlan::Sort(_)
                    | LogicalPlan::Join(_)
                    | LogicalPlan::Values(_)
            );
            if !of_interest || !any_subquery(&node)? {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::yes(match node {
                LogicalPlan::Join(join) => joined(join)?,
                LogicalPlan::Values(values) => listed(values)?,
                node => above(node)?,
            }))
        })?)
    }

    fn name(&self) -> &str {
        "lifted_subqueries"
    }
}

fn any_subquery(node: &LogicalPlan) -> DFResult<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= has_subquery(expr)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Replaces the outermost subqueries of an expression by columns; `column` computes one.
fn replaced(expr: Expr, mut column: impl FnMut(Expr) -> DFResult<Expr>) -> DFResult<Transformed<Expr>> {
    expr.transform_down(|expr| {
        if is_subquery(&expr) {
            Ok(Transformed::new(column(expr)?, true, TreeNodeRecursion::Jump))
        } else {
            Ok(Transformed::no(expr))
        }
    })
}

/// Puts a node with one input over a projection that computes its subqueries.
fn above(node: LogicalPlan) -> DFResult<LogicalPlan> {
    let wanted = node.schema().columns();
    let mut input = node.inputs().first().map(|input| (*input).clone()).unwrap_or_default();
    let names = NamePreserver::new(&node);
    let node = node.map_expressions(|expr| {
        let name = names.save(&expr);
        let replaced = replaced(expr, |subquery| {
            let (widened, column) = with_column(std::mem::take(&mut input), subquery)?;
            input = widened;
            Ok(Expr::Column(column))
        })?;
        Ok(replaced.update_data(|expr| name.restore(expr)))
    })?;
    let exprs = node.data.expressions();
    let node = node.data.with_new_exprs(exprs, vec![input])?;
    if node.schema().fields().len() > wanted.len() { narrowed(node, wanted) } else { Ok(node) }
}

/// Side of a join whose columns a subquery in its condition reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Both,
}

fn side_of(expr: &Expr, join: &Join) -> DFResult<Side> {
    let (mut left, mut right) = (false, false);
    let mut meet = |column: &Column| {
        left |= join.left.schema().has_column(column);
        right |= join.right.schema().has_column(column);
    };
    expr.apply(|expr| {
        match expr {
            Expr::Column(column) => meet(column),
            Expr::ScalarSubquery(subquery) => outer_columns(&subquery.outer_ref_columns).for_each(&mut meet),
            Expr::Exists(exists) => outer_columns(&exists.subquery.outer_ref_columns).for_each(&mut meet),
            Expr::InSubquery(within) => {
                outer_columns(&within.subquery.outer_ref_columns).for_each(&mut meet);
            }
            Expr::SetComparison(set) => outer_columns(&set.subquery.outer_ref_columns).for_each(&mut meet),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(match (left, right) {
        (true, true) => Side::Both,
        (false, true) => Side::Right,
        (_, false) => Side::Left,
    })
}

fn outer_columns(exprs: &[Expr]) -> impl Iterator<Item = &Column> {
    exprs.iter().filter_map(|expr| match expr {
        Expr::OuterReferenceColumn(_, column) => Some(column),
        _ => None,
    })
}

/// Join whose subqueries are computed from the side that they read; subqueries that read both become a
/// condition above it.
fn joined(join: Join) -> DFResult<LogicalPlan> {
    let wanted = join.schema.columns();
    let (mut left, mut right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let (mut conditions, mut later) = (Vec::new(), Vec::new());
    for condition in join.filter.clone().map(split_conjunction_owned).unwrap_or_default() {
        let mut mixed = false;
        let lifted = replaced(condition.clone(), |subquery| {
            let side = match side_of(&subquery, &join)? {
                Side::Left => &mut left,
                Side::Right => &mut right,
                Side::Both => {
                    mixed = true;
                    return Ok(subquery);
                }
            };
            let (widened, column) = with_column(std::mem::take(side), subquery)?;
            *side = widened;
            Ok(Expr::Column(column))
        })?;
        if mixed { later.push(lifted.data) } else { conditions.push(lifted.data) }
    }
    let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    let conditions: Vec<Expr> = equal.chain(conditions).collect();
    let plan = match conjunction(later) {
        Some(later) if join.join_type != JoinType::Inner => {
            return narrowed(outer_join(left, right, join.join_type, conditions, later)?, wanted);
        }
        later => {
            let plan = LogicalPlanBuilder::from(left).join_on(right, join.join_type, conditions)?;
            match later {
                Some(later) => plan.filter(later)?.build()?,
                None => plan.build()?,
            }
        }
    };
    narrowed(plan, wanted)
}

/// VALUES over a projection: rows keep their order.
fn listed(values: Values) -> DFResult<LogicalPlan> {
    let Values { schema, values } = values;
    let width = schema.fields().len();
    let mut cases: Vec<Vec<(i64, Expr)>> = vec![Vec::new(); width];
    let mut rows = Vec::with_capacity(values.len());
    for (row, cells) in (0i64..).zip(values) {
        let mut plain = Vec::with_capacity(width + 1);
        for (at, cell) in cells.into_iter().enumerate() {
            if has_subquery(&cell)? {
                plain.push(Expr::Literal(ScalarValue::try_from(schema.field(at).data_type())?, None));
                cases[at].push((row, cell));
            } else {
                plain.push(cell);
            }
        }
        plain.push(lit(row));
        rows.push(plain);
    }
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let row = fresh("row");
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let fields = fields.chain([Field::new(&row, DataType::Int64, false)]).collect();
    let with_row = DFSchema::from_unqualified_fields(fields, Default::default())?;
    let plan = LogicalPlan::Values(Values { schema: Arc::new(with_row), values: rows });
    let row = Expr::Column(Column::new_unqualified(row));
    let projected = names.into_iter().zip(cases).enumerate().map(|(at, (name, cases))| -> DFResult<Expr> {
        let column = Expr::Column(Column::new_unqualified(&name));
        let mut cases = cases.into_iter();
        let Some((first, value)) = cases.next() else { return Ok(column) };
        let typed = |value| cast(value, schema.field(at).data_type().clone());
        let mut case = when(row.clone().eq(lit(first)), typed(value));
        for (number, value) in cases {
            case = case.when(row.clone().eq(lit(number)), typed(value));
        }
        Ok(case.otherwise(column)?.alias(name))
    });
    let projected: Vec<Expr> = projected.collect::<DFResult<_>>()?;
    LogicalPlanBuilder::from(plan).project(projected)?.build()
}
