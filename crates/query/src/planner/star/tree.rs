//! Trees of inner joins, flattened: inputs, equalities between their columns, and output columns.
//!
//! - All columns of all inputs, in the order of inputs, are the *wide* columns. Expressions of projections
//!   within the tree become expressions of them.
//! - A semijoin is an edge, too. The input that it looks into is never flattened, and none of its columns is
//!   an output.
//! - Of an inner join, equalities of integer or date columns are edges, of which there is at least one; whatever else
//!   it asks of its rows is a condition of the tree.
//! - A join of another kind, and any other node, is an input. So a tree is right for what is not a star; it only has
//!   fewer joins.

use crate::planner::star::keys::{is_integer, is_key_type};
use crate::postgres::overflow::checked;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result as DFResult, internal_datafusion_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use std::sync::Arc;

/// Equality of two wide columns, perhaps cast to wider integers.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    pub(super) columns: [usize; 2],
    /// Sides as they were written.
    pub(super) sides: [Arc<dyn PhysicalExpr>; 2],
    /// Side of which it only matters that there is a row, if it is a semijoin.
    pub(super) exists: Option<usize>,
}

/// Flattened tree; see the [module](self).
#[derive(Debug)]
pub(super) struct JoinTree {
    pub(super) inputs: Vec<Arc<dyn ExecutionPlan>>,
    pub(super) edges: Vec<Edge>,
    /// Further conditions on joined rows, of wide columns, those of lower joins first.
    pub(super) conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// Output columns, as expressions of the wide ones.
    pub(super) outputs: Vec<Arc<dyn PhysicalExpr>>,
}

impl JoinTree {
    /// Tree of a plan; an input alone if it is none.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>) -> DFResult<JoinTree> {
        if let Some(join) = plan.downcast_ref::<HashJoinExec>()
            && let Some(tree) = joined(join)?
        {
            return Ok(tree);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>()
            && let Some(tree) = projected(projection)?
        {
            return Ok(tree);
        }
        Ok(JoinTree::leaf(plan))
    }

    fn leaf(plan: &Arc<dyn ExecutionPlan>) -> JoinTree {
        let schema = plan.schema();
        let outputs = schema.fields().iter().enumerate().map(|(at, field)| column(field.name(), at));
        let (edges, conditions) = (Vec::new(), Vec::new());
        JoinTree { inputs: vec![Arc::clone(plan)], edges, conditions, outputs: outputs.collect() }
    }

    /// Tree of a plan without joins.
    fn without_joins(plan: &Arc<dyn ExecutionPlan>) -> DFResult<JoinTree> {
        let tree = JoinTree::of(plan)?;
        Ok(if tree.edges.is_empty() { tree } else { JoinTree::leaf(plan) })
    }

    /// Fields of the wide columns.
    pub(super) fn fields(&self) -> Vec<FieldRef> {
        fields(&self.inputs)
    }

    /// Input of each wide column, and position there.
    pub(super) fn origins(&self) -> Vec<(usize, usize)> {
        let widths = self.inputs.iter().map(|input| input.schema().fields().len()).enumerate();
        widths.flat_map(|(input, width)| (0..width).map(move |at| (input, at))).collect()
    }
}

fn fields(inputs: &[Arc<dyn ExecutionPlan>]) -> Vec<FieldRef> {
    inputs.iter().flat_map(|input| input.schema().fields().to_vec()).collect()
}

pub(super) fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, index))
}

/// Expression with each column replaced.
pub(super) fn replaced(
    expr: &Arc<dyn PhysicalExpr>,
    mut by: impl FnMut(&Column) -> Option<Arc<dyn PhysicalExpr>>,
) -> DFResult<Arc<dyn PhysicalExpr>> {
    let replaced = Arc::clone(expr).transform_down(|node| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        let by = by(column).ok_or_else(|| internal_datafusion_err!("a star join has no column {column}"))?;
        // What replaces it has columns of another numbering.
        Ok(Transformed::new(by, true, datafusion::common::tree_node::TreeNodeRecursion::Jump))
    });
    replaced.data()
}

/// Wide columns of an expression, without duplicates, in order.
pub(super) fn columns_of(expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let mut columns: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

fn projected(projection: &ProjectionExec) -> DFResult<Option<JoinTree>> {
    if projection.expr().iter().any(|column| is_volatile(&column.expr)) {
        return Ok(None);
    }
    let below = JoinTree::of(projection.input())?;
    if below.edges.is_empty() {
        return casting(projection);
    }
    let schema = projection.input().schema();
    let outputs = projection.expr().iter().map(|output| {
        let expr = checked(Arc::clone(&output.expr), &schema)?.data;
        replaced(&expr, |column| below.outputs.get(column.index()).cloned())
    });
    let outputs = outputs.collect::<DFResult<_>>()?;
    Ok(Some(JoinTree { outputs, ..below }))
}

/// Projection that gives columns and widening casts of columns as an input without the casts: so keys are
/// probed as they are stored.
fn casting(projection: &ProjectionExec) -> DFResult<Option<JoinTree>> {
    let schema = projection.input().schema();
    let types: Vec<DataType> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
    let exprs = projection.expr().iter().map(|output| &output.expr);
    let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().is_some();
    if exprs.clone().all(is_column)
        || !exprs.clone().all(|expr| is_column(expr) || key_column(expr, &types).is_some())
    {
        return Ok(None);
    }
    let mut columns: Vec<usize> = exprs.clone().flat_map(columns_of).collect();
    columns.sort_unstable();
    columns.dedup();
    let stored = columns.iter().map(|&at| {
        let name = schema.field(at).name();
        ProjectionExpr { expr: column(name, at), alias: name.clone() }
    });
    let input = ProjectionExec::try_new(stored.collect::<Vec<_>>(), Arc::clone(projection.input()))?;
    let outputs = exprs.map(|expr| {
        replaced(expr, |of| Some(column(of.name(), columns.iter().position(|stored| *stored == of.index())?)))
    });
    let outputs = outputs.collect::<DFResult<_>>()?;
    let (edges, conditions) = (Vec::new(), Vec::new());
    Ok(Some(JoinTree { inputs: vec![Arc::new(input)], edges, conditions, outputs }))
}

fn joined(join: &HashJoinExec) -> DFResult<Option<JoinTree>> {
    let exists = match join.join_type() {
        JoinType::Inner => None,
        JoinType::RightSemi => Some(0),
        JoinType::LeftSemi => Some(1),
        _ => return Ok(None),
    };
    let is_more_than_equality = join.on().len() > 1 || join.filter().is_some();
    let is_volatile = join.filter().is_some_and(|filter| is_volatile(filter.expression()))
        || join.on().iter().any(|(left, right)| is_volatile(left) || is_volatile(right));
    if exists.is_some() && is_more_than_equality
        || is_volatile
        || join.null_equality() != NullEquality::NullEqualsNothing
        || join.null_aware
        || join.fetch().is_some()
    {
        return Ok(None);
    }
    let tree = |at: usize, plan| {
        if exists == Some(at) { JoinTree::without_joins(plan) } else { JoinTree::of(plan) }
    };
    let (left, right) = (tree(0, join.left())?, tree(1, join.right())?);
    let width: usize = left.inputs.iter().map(|input| input.schema().fields().len()).sum();
    let shift =
        |expr: &Arc<dyn PhysicalExpr>| replaced(expr, |of| Some(column(of.name(), of.index() + width)));
    let right_outputs = right.outputs.iter().map(shift).collect::<DFResult<Vec<_>>>()?;
    let inputs: Vec<_> = left.inputs.into_iter().chain(right.inputs).collect();
    let types: Vec<DataType> = fields(&inputs).iter().map(|field| field.data_type().clone()).collect();
    let (mut edges, mut conditions) = (left.edges, left.conditions);
    for edge in right.edges {
        let [from, to] = &edge.sides;
        let columns = edge.columns.map(|of| of + width);
        edges.push(Edge { columns, sides: [shift(from)?, shift(to)?], exists: edge.exists });
    }
    for condition in &right.conditions {
        conditions.push(shift(condition)?);
    }
    let known = edges.len();
    for (left_key, right_key) in join.on() {
        let sides = [placed(left_key, &left.outputs)?, placed(right_key, &right_outputs)?];
        match edge(sides, exists, &types) {
            Ok(edge) => edges.push(edge),
            Err([one, other]) => conditions.push(Arc::new(BinaryExpr::new(one, Operator::Eq, other))),
        }
    }
    if edges.len() == known {
        return Ok(None);
    }
    if let Some(filter) = join.filter() {
        let expr = checked(Arc::clone(filter.expression()), filter.schema())?.data;
        conditions.push(replaced(&expr, |of| {
            let at = filter.column_indices().get(of.index())?;
            let outputs = if at.side == JoinSide::Left { &left.outputs } else { &right_outputs };
            outputs.get(at.index).cloned()
        })?);
    }
    let all = match exists {
        Some(0) => right_outputs,
        Some(_) => left.outputs,
        None => left.outputs.into_iter().chain(right_outputs).collect(),
    };
    let outputs = match &join.projection {
        Some(projection) => projection.iter().map(|&at| Arc::clone(&all[at])).collect(),
        None => all,
    };
    Ok(Some(JoinTree { inputs, edges, conditions, outputs }))
}

/// Key of a side of a join as an expression of wide columns.
fn placed(key: &Arc<dyn PhysicalExpr>, outputs: &[Arc<dyn PhysicalExpr>]) -> DFResult<Arc<dyn PhysicalExpr>> {
    replaced(key, |column| outputs.get(column.index()).cloned())
}

/// Edge of two sides that are equal; the sides again if they are not columns of keys.
fn edge(
    sides: [Arc<dyn PhysicalExpr>; 2],
    exists: Option<usize>,
    types: &[DataType],
) -> Result<Edge, [Arc<dyn PhysicalExpr>; 2]> {
    let [Some(one), Some(other)] = [key_column(&sides[0], types), key_column(&sides[1], types)] else {
        return Err(sides);
    };
    if types[one] != types[other] && !(is_integer(&types[one]) && is_integer(&types[other])) {
        return Err(sides);
    }
    Ok(Edge { columns: [one, other], sides, exists })
}

/// Column of keys behind an expression that is a column, or a widening cast of one.
fn key_column(expr: &Arc<dyn PhysicalExpr>, types: &[DataType]) -> Option<usize> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return is_key_type(&types[column.index()]).then_some(column.index());
    }
    let cast = expr.downcast_ref::<CastExpr>()?;
    let column = key_column(cast.expr(), types)?;
    let width = |of: &DataType| of.primitive_width().unwrap_or_default();
    let is_widening = is_integer(cast.cast_type())
        && is_integer(&types[column])
        && width(cast.cast_type()) >= width(&types[column]);
    is_widening.then_some(column)
}
