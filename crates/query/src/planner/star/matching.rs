//! Stars among the flattened trees: the fact, and the dimensions around it.
//!
//! - The fact is the input with the most rows by statistics, if it has [`FACT_SHARE_MIN`] times the rows of all
//!   others together.
//! - Without it, the inputs fall apart into groups that equalities connect. Each group must have one equality
//!   with the fact, and no more equalities within than connect it: it is a dimension. A group of several
//!   inputs, the arms of a snowflake, is joined by DataFusion's hash joins.
//! - Semijoins with dimensions are equalities like others. One that looks into the fact makes it no star.

use crate::planner::scans::scan::EntresolScan;
use crate::planner::star::tree::{Edge, JoinTree, column, replaced};
use datafusion::common::{JoinType, Result as EngineResult};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Rows of the fact for each row of the dimensions, at least.
const FACT_SHARE_MIN: usize = 8;

/// Dimension of a star.
pub(super) struct Arm {
    /// Table, with a number where it is in the star several times.
    pub(super) name: String,
    table: String,
    pub(super) input: Arc<dyn ExecutionPlan>,
    /// Key column of the fact, and that of the dimension.
    pub(super) keys: [usize; 2],
    /// True if it only matters that there is a row.
    pub(super) exists: bool,
}

/// Origin of a wide column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Fact(usize),
    Dimension { dimension: usize, column: usize },
}

/// Star of a tree.
pub(super) struct Star {
    pub(super) name: String,
    pub(super) fact: Arc<dyn ExecutionPlan>,
    pub(super) arms: Vec<Arm>,
    /// Origin of each wide column of the tree.
    pub(super) origins: Vec<Origin>,
}

impl Star {
    /// Star of a tree, if it is one.
    pub(super) fn of(tree: &JoinTree) -> EngineResult<Option<Star>> {
        if tree.edges.is_empty() || tree.inputs.iter().any(|input| input.boundedness().is_unbounded()) {
            return Ok(None);
        }
        let Some(fact) = fact(tree)? else { return Ok(None) };
        let origins = tree.origins();
        let ends = |edge: &Edge| edge.columns.map(|column| origins[column].0);
        if tree.edges.iter().any(|edge| edge.exists.is_some_and(|side| ends(edge)[side] == fact)) {
            return Ok(None);
        }
        let Some(groups) = groups(tree.inputs.len(), fact, tree.edges.iter().map(ends)) else {
            return Ok(None);
        };
        let mut placed = vec![Origin::Fact(0); origins.len()];
        for (wide, &(input, at)) in origins.iter().enumerate() {
            if input == fact {
                placed[wide] = Origin::Fact(at);
            }
        }
        let mut arms = Vec::new();
        for (dimension, group) in groups.iter().enumerate() {
            let joined = Joined::of(tree, &origins, group)?;
            let mut keys = None;
            for edge in &tree.edges {
                let [one, other] = edge.columns;
                for [ours, theirs] in [[one, other], [other, one]] {
                    if origins[ours].0 == fact
                        && let Some(at) = joined.columns.iter().position(|&wide| wide == theirs)
                    {
                        keys = Some(([origins[ours].1, at], edge.exists.is_some()));
                    }
                }
            }
            let Some((keys, exists)) = keys else { return Ok(None) };
            for (column, &wide) in joined.columns.iter().enumerate() {
                placed[wide] = Origin::Dimension { dimension, column };
            }
            let names: Vec<String> = group.iter().map(|&input| name(&tree.inputs[input])).collect();
            let mut name = names.join("+");
            let same = arms.iter().filter(|arm: &&Arm| arm.table == name).count();
            let table = name.clone();
            if same > 0 {
                name = format!("{table}_{}", same + 1);
            }
            arms.push(Arm { name, table, input: joined.plan, keys, exists });
        }
        let (name, fact) = (name(&tree.inputs[fact]), Arc::clone(&tree.inputs[fact]));
        Ok(Some(Star { name, fact, arms, origins: placed }))
    }
}

/// Input with the most rows, if the others have few in comparison.
fn fact(tree: &JoinTree) -> EngineResult<Option<usize>> {
    let statistics = StatisticsContext::new();
    let mut rows = Vec::with_capacity(tree.inputs.len());
    for input in &tree.inputs {
        let known = statistics.compute(input.as_ref(), &StatisticsArgs::new())?;
        match known.num_rows.get_value() {
            Some(known) => rows.push(*known),
            None => return Ok(None),
        }
    }
    let Some(fact) = (0..rows.len()).max_by_key(|&input| rows[input]) else { return Ok(None) };
    let others = rows.iter().fold(0_usize, |sum, rows| sum.saturating_add(*rows)).saturating_sub(rows[fact]);
    Ok((rows[fact] >= others.saturating_mul(FACT_SHARE_MIN)).then_some(fact))
}

/// Inputs of each dimension, each behind one that it has an equality with; the first one has that with the
/// fact. `None` if it is no star.
fn groups(inputs: usize, fact: usize, edges: impl Iterator<Item = [usize; 2]>) -> Option<Vec<Vec<usize>>> {
    let edges: Vec<[usize; 2]> = edges.collect();
    let others = |of: usize| {
        edges.iter().filter_map(move |[one, other]| match of {
            of if of == *one => Some(*other),
            of if of == *other => Some(*one),
            _ => None,
        })
    };
    // A tree has one edge less than nodes: then no group has two equalities with the fact.
    if edges.len() + 1 != inputs || edges.iter().any(|[one, other]| one == other) {
        return None;
    }
    let mut seen = vec![false; inputs];
    seen[fact] = true;
    let mut groups = Vec::new();
    for start in others(fact) {
        let mut group = Vec::new();
        let mut next = vec![start];
        while let Some(input) = next.pop() {
            if std::mem::replace(&mut seen[input], true) {
                return None;
            }
            group.push(input);
            next.extend(others(input).filter(|other| *other != fact && !group.contains(other)));
        }
        groups.push(group);
    }
    seen.iter().all(|seen| *seen).then_some(groups)
}

/// Join of the inputs of a dimension.
struct Joined {
    plan: Arc<dyn ExecutionPlan>,
    /// Wide columns that its columns are.
    columns: Vec<usize>,
}

impl Joined {
    fn of(tree: &JoinTree, origins: &[(usize, usize)], group: &[usize]) -> EngineResult<Joined> {
        let wide = |input: usize| (0..origins.len()).filter(move |&column| origins[column].0 == input);
        let mut joined =
            Joined { plan: Arc::clone(&tree.inputs[group[0]]), columns: wide(group[0]).collect() };
        for &input in &group[1..] {
            let columns: Vec<usize> = wide(input).collect();
            let on = tree.edges.iter().find_map(|edge| {
                let [one, other] = edge.columns;
                let [from, to] = [&edge.sides[0], &edge.sides[1]];
                match (columns.contains(&one), columns.contains(&other)) {
                    (true, false) if joined.columns.contains(&other) => Some((from, to, edge.exists)),
                    (false, true) if joined.columns.contains(&one) => Some((to, from, edge.exists)),
                    _ => None,
                }
            });
            let Some((new, known, exists)) = on else { continue };
            let on = vec![(placed(new, &columns)?, placed(known, &joined.columns)?)];
            let (left, right) = (Arc::clone(&tree.inputs[input]), joined.plan);
            let (kind, columns) = match exists {
                Some(_) => (JoinType::RightSemi, joined.columns),
                None => (JoinType::Inner, columns.into_iter().chain(joined.columns).collect()),
            };
            let builder = HashJoinExecBuilder::new(left, right, on, kind);
            let plan = builder.with_partition_mode(PartitionMode::CollectLeft).build_exec()?;
            joined = Joined { plan, columns };
        }
        Ok(joined)
    }
}

/// Expression of wide columns as one of these columns.
fn placed(expr: &Arc<dyn PhysicalExpr>, columns: &[usize]) -> EngineResult<Arc<dyn PhysicalExpr>> {
    replaced(expr, |of| {
        let at = columns.iter().position(|wide| *wide == of.index())?;
        Some(column(of.name(), at))
    })
}

/// Name of an input for EXPLAIN: its table, or its operator.
fn name(input: &Arc<dyn ExecutionPlan>) -> String {
    if let Some(scan) = input.downcast_ref::<EntresolScan>() {
        return scan.table().name().to_owned();
    }
    match input.children()[..] {
        [below] => name(below),
        _ => input.name().to_owned(),
    }
}
