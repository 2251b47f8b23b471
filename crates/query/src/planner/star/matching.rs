//! Stars among the flattened trees: the fact, and the dimensions around it.
//!
//! - The fact is the input with the most rows by statistics, if it has [`FACT_SHARE_MIN`] times the rows of all
//!   others together, or if it is large and has as many as they.
//! - From the fact on, edges lead to one input after the other until all are reached. Where several edges lead to an
//!   input, that with the most different keys for its rows is taken, so that few rows join; the others are conditions
//!   on joined rows. Of a large input, as the layout `rows` has them, nothing is known: then it is no star.
//! - An input that the fact has no edge with is reached from another one: that and what lies behind it is one
//!   dimension, the arm of a snowflake, joined by a star join of its own.
//! - Semijoins with dimensions are edges like others. One that looks into the fact makes it no star.

use crate::planner::scans::column_scan::EntresolColumnScan;
use crate::planner::scans::scan::EntresolScan;
use crate::planner::star::gather::Origin;
use crate::planner::star::planned::{Arm, Star};
use crate::planner::star::tree::{JoinTree, column};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result as DFResult, internal_datafusion_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Rows of the fact for each row of the dimensions, at least.
const FACT_SHARE_MIN: usize = 8;
/// Rows of a large fact.
pub(super) const LARGE_FACT_ROWS: usize = 1 << 16;
/// Different keys for each row, where nothing is known of them.
const UNIQUENESS_UNKNOWN: f64 = 0.5;
/// Rows of an input, at most, of whose keys nothing needs to be known where equalities are left.
const UNKNOWN_ROWS_MAX: usize = 8192;

/// Star of a tree, if it is one whose fact has so many rows.
pub(super) fn star_of(
    tree: &JoinTree,
    fact_rows_min: usize,
    config: &ConfigOptions,
) -> DFResult<Option<Star>> {
    if tree.edges.is_empty() || tree.inputs.iter().any(|input| input.boundedness().is_unbounded()) {
        return Ok(None);
    }
    let Some(sizes) = Sizes::of(tree)? else { return Ok(None) };
    let Some(fact) = sizes.fact().filter(|&fact| sizes.rows[fact] >= fact_rows_min) else { return Ok(None) };
    let origins = tree.origins();
    let Some(spanning) = SpanningTree::of(tree, &origins, &sizes, fact) else { return Ok(None) };
    let matching = MatchedTree { tree, origins: &origins, spanning: &spanning, config };
    let mut star = matching.rooted(fact)?;
    star.conditions = spanning.conditions.iter().chain(&tree.conditions).map(Arc::clone).collect();
    Ok(Some(star))
}

/// Estimated sizes of the inputs of a tree.
struct Sizes {
    rows: Vec<usize>,
    /// Different keys for each row, of each wide column.
    uniqueness: Vec<f64>,
}

impl Sizes {
    /// Sizes of the inputs; none if one is not known.
    fn of(tree: &JoinTree) -> DFResult<Option<Sizes>> {
        let statistics = StatisticsContext::new();
        let mut sizes = Sizes { rows: Vec::with_capacity(tree.inputs.len()), uniqueness: Vec::new() };
        for input in &tree.inputs {
            let known = statistics.compute(input.as_ref(), &StatisticsArgs::new())?;
            let Some(&rows) = known.num_rows.get_value() else { return Ok(None) };
            sizes.rows.push(rows);
            for of_column in 0..input.schema().fields().len() {
                let of_column = known.column_statistics.get(of_column);
                let distinct = of_column.and_then(|of_column| of_column.distinct_count.get_value().copied());
                let share = distinct.map(|distinct| distinct as f64 / rows.max(1) as f64);
                sizes.uniqueness.push(share.map_or(UNIQUENESS_UNKNOWN, |share| share.min(1.0)));
            }
        }
        Ok(Some(sizes))
    }

    /// Input with the most rows, if the others have few in comparison.
    fn fact(&self) -> Option<usize> {
        let fact = (0..self.rows.len()).max_by_key(|&input| self.rows[input])?;
        let rows = self.rows[fact];
        let others = self.rows.iter().fold(0_usize, |sum, rows| sum.saturating_add(*rows));
        let others = others.saturating_sub(rows);
        let is_large = rows >= LARGE_FACT_ROWS && rows >= others;
        (is_large || rows >= others.saturating_mul(FACT_SHARE_MIN)).then_some(fact)
    }
}

/// Edge that leads from an input to another one.
#[derive(Debug, Clone, Copy)]
struct Step {
    edge: usize,
    /// Side of the edge that it leads to.
    side: usize,
    to: usize,
}

/// Edges by which all inputs are reached from the fact.
struct SpanningTree {
    /// Steps from each input.
    steps: Vec<Vec<Step>>,
    /// Equalities that no step takes, as conditions on joined rows.
    conditions: Vec<Arc<dyn PhysicalExpr>>,
}

impl SpanningTree {
    /// Steps from the fact; none if they do not reach all inputs, or a semijoin looks into an input that is reached.
    fn of(tree: &JoinTree, origins: &[(usize, usize)], sizes: &Sizes, fact: usize) -> Option<SpanningTree> {
        let inputs = tree.inputs.len();
        let (mut is_reached, mut is_taken) = (vec![false; inputs], vec![false; tree.edges.len()]);
        is_reached[fact] = true;
        let mut steps = vec![Vec::new(); inputs];
        for _ in 1..inputs {
            let mut best: Option<(f64, usize, Step)> = None;
            for (number, edge) in tree.edges.iter().enumerate() {
                let ends = edge.columns.map(|column| origins[column].0);
                for side in [0, 1] {
                    let (from, to) = (ends[1 - side], ends[side]);
                    if !is_reached[from] || is_reached[to] {
                        continue;
                    }
                    if edge.exists.is_some_and(|exists| exists != side) {
                        return None;
                    }
                    let uniqueness = sizes.uniqueness[edge.columns[side]];
                    if best.is_none_or(|(known, ..)| uniqueness > known) {
                        best = Some((uniqueness, from, Step { edge: number, side, to }));
                    }
                }
            }
            let (_, from, step) = best?;
            is_reached[step.to] = true;
            is_taken[step.edge] = true;
            steps[from].push(step);
        }
        let mut conditions: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        for (edge, _) in tree.edges.iter().zip(is_taken).filter(|(_, is_taken)| !is_taken) {
            // The edge that was taken may be the one by which far more rows join.
            let is_unknown = |&column: &usize| {
                let rows = sizes.rows[origins[column].0];
                sizes.uniqueness[column] == UNIQUENESS_UNKNOWN && rows > UNKNOWN_ROWS_MAX
            };
            if edge.exists.is_some() || edge.columns.iter().any(is_unknown) {
                return None;
            }
            let [one, other] = edge.sides.each_ref().map(Arc::clone);
            conditions.push(Arc::new(BinaryExpr::new(one, Operator::Eq, other)));
        }
        Some(SpanningTree { steps, conditions })
    }
}

/// Tree that is matched with a star.
struct MatchedTree<'t> {
    tree: &'t JoinTree,
    /// Input of each wide column, and position there.
    origins: &'t [(usize, usize)],
    spanning: &'t SpanningTree,
    config: &'t ConfigOptions,
}

/// An input with what lies behind it, joined.
struct JoinedInput {
    plan: Arc<dyn ExecutionPlan>,
    /// Wide columns that its columns are.
    columns: Vec<usize>,
    name: String,
}

impl MatchedTree<'_> {
    /// Star around an input, without conditions.
    fn rooted(&self, root: usize) -> DFResult<Star> {
        let mut placed = vec![Origin::Fact(0); self.origins.len()];
        for (wide, &(input, at)) in self.origins.iter().enumerate() {
            if input == root {
                placed[wide] = Origin::Fact(at);
            }
        }
        let mut arms: Vec<Arm> = Vec::new();
        for step in &self.spanning.steps[root] {
            let JoinedInput { plan, columns, name: table } = self.joined(step.to)?;
            let edge = &self.tree.edges[step.edge];
            let (ours, theirs) = (edge.columns[1 - step.side], edge.columns[step.side]);
            let key = columns.iter().position(|&wide| wide == theirs);
            let key = key.ok_or_else(|| internal_datafusion_err!("dimension {table} has no key"))?;
            for (column, &wide) in columns.iter().enumerate() {
                placed[wide] = Origin::Dimension { dimension: arms.len(), column };
            }
            let mut name = table.clone();
            let same = arms.iter().filter(|arm| arm.table == table).count();
            if same > 0 {
                name = format!("{table}_{}", same + 1);
            }
            let (keys, exists) = ([self.origins[ours].1, key], edge.exists.is_some());
            arms.push(Arm { name, table, input: plan, keys, exists, columns });
        }
        let (name, fact) = (name(&self.tree.inputs[root]), Arc::clone(&self.tree.inputs[root]));
        Ok(Star { name, fact, arms, origins: placed, conditions: Vec::new() })
    }

    /// Input with what lies behind it.
    fn joined(&self, input: usize) -> DFResult<JoinedInput> {
        let own = (0..self.origins.len()).filter(|&column| self.origins[column].0 == input);
        let mut columns: Vec<usize> = own.collect();
        if self.spanning.steps[input].is_empty() {
            let plan = Arc::clone(&self.tree.inputs[input]);
            return Ok(JoinedInput { name: name(&plan), plan, columns });
        }
        let star = self.rooted(input)?;
        let seen = star.arms.iter().filter(|arm| !arm.exists);
        columns.extend(seen.flat_map(|arm| &arm.columns));
        let names: Vec<&str> = [&star.name]
            .into_iter()
            .chain(star.arms.iter().map(|arm| &arm.table))
            .map(String::as_str)
            .collect();
        let name = names.join("+");
        let fields = self.tree.fields();
        let outputs: Vec<_> = columns.iter().map(|&wide| column(fields[wide].name(), wide)).collect();
        let schema: Vec<Arc<Field>> = columns.iter().map(|&wide| Arc::clone(&fields[wide])).collect();
        let plan = star.joined(&fields, &outputs, Arc::new(Schema::new(schema)), self.config)?;
        Ok(JoinedInput { plan, columns, name })
    }
}

/// Name of an input for EXPLAIN: its table, or its operator.
fn name(input: &Arc<dyn ExecutionPlan>) -> String {
    if let Some(scan) = input.downcast_ref::<EntresolScan>() {
        return scan.table().name().to_owned();
    }
    if let Some(scan) = input.downcast_ref::<EntresolColumnScan>() {
        return scan.table().name().to_owned();
    }
    match input.children()[..] {
        [below] => name(below),
        _ => input.name().to_owned(),
    }
}
