//! Lookup joins: a join of few rows with a large table finds their partners by key or index.
//!
//! ```text
//!   HashJoin                        LookupJoin
//!   ├─ few rows                     ├─ few rows ── distinct keys ─┐
//!   └─ scan of a table, all rows    └─ scan of these keys ◀───────┘
//! ```
//!
//! A hash join reads all of the table whatever the other side has. The operator reads the other side first: if it
//! has few keys beside the rows of the table, the scan reads these; else the hash join goes on with what was read.
//!
//! # Invariants
//!
//! - The rows are those of the hash join, which still compares all keys and conditions: only rows of the table
//!   that join with none are not read. So joins that return such rows are left alone.
//! - They are in the order that the plan relies on: what an index finds is sorted as the scan of all rows is.
//! - Keys of DOUBLE are left alone: Arrow distinguishes -0.0 from 0.0 and keys do not. A NULL joins with nothing.
//!
//! Memory: [`KEYS_MAX`] rows of the smaller side and a batch, which the hash join has to keep anyway.

mod exec;
mod keys;

pub(crate) use self::exec::LookupJoinExec;

use crate::planner::lookup::keys::LookupKey;
use crate::planner::scans::access::Access;
use crate::planner::scans::scan::EntresolScan;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Result as DFResult};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Most rows of the smaller side whose partners are looked up.
const KEYS_MAX: usize = 8192;
/// Least rows of a table for which looking up is worth a thought.
const TABLE_ROWS_MIN: usize = 256;
/// Cost of a look-up, in rows of a scan.
const ROWS_PER_LOOKUP: usize = 16;

/// Most joins of a plan with lookup joins, which run on one stack.
const JOINS_MAX: usize = 16;

/// The rule that makes them; see the [module](self).
#[derive(Debug)]
pub(crate) struct LookupJoins;

impl PhysicalOptimizerRule for LookupJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let mut joins = 0;
        plan.apply(|node| {
            joins += usize::from(node.is::<HashJoinExec>());
            Ok(TreeNodeRecursion::Continue)
        })?;
        if joins > JOINS_MAX {
            return Ok(plan);
        }
        let planned = plan.transform_up(|node| {
            let key = node.downcast_ref::<HashJoinExec>().and_then(lookup_key);
            Ok(match key {
                Some(key) => Transformed::yes(Arc::new(LookupJoinExec::new(node, key)) as _),
                None => Transformed::no(node),
            })
        });
        planned.data()
    }

    fn name(&self) -> &str {
        "lookup_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Key by which a join may look up the rows of its right side.
fn lookup_key(join: &HashJoinExec) -> Option<LookupKey> {
    let needs_few = match join.join_type() {
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftMark => true,
        // NOT IN asks whether the other side has a NULL at all.
        JoinType::LeftAnti => !join.null_aware,
        _ => false,
    };
    let is_equality = join.null_equality() == NullEquality::NullEqualsNothing;
    if !needs_few || !is_equality || join.left().output_partitioning().partition_count() != 1 {
        return None;
    }
    let scan = scan_below(join.right())?;
    if *scan.access() != Access::Full || !scan.reads_present() || scan.estimated_rows() < TABLE_ROWS_MIN {
        return None;
    }
    let pairs = join.on().iter().filter_map(|(left, right)| {
        let left = left.downcast_ref::<Column>()?.index();
        let column = scan_column(join.right(), right)?;
        let same_type =
            join.left().schema().field(left).data_type() == scan.schema().field(column).data_type();
        same_type.then(|| (left, scan.projection()[column]))
    });
    LookupKey::best(scan.table(), &pairs.collect::<Vec<_>>())
}

/// Scan of a table under nodes that leave rows out at most.
fn scan_below(node: &Arc<dyn ExecutionPlan>) -> Option<&EntresolScan> {
    if let Some(scan) = node.downcast_ref::<EntresolScan>() {
        return Some(scan).filter(|scan| scan.fetch().is_none());
    }
    let passes = node.downcast_ref::<FilterExec>().is_some_and(|filter| filter.fetch().is_none())
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>();
    match node.children().as_slice() {
        [child] if passes => scan_below(child),
        _ => None,
    }
}

/// Column of the scan below a node that an expression over the node's columns is.
fn scan_column(node: &Arc<dyn ExecutionPlan>, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let column = expr.downcast_ref::<Column>()?.index();
    if node.is::<EntresolScan>() {
        return Some(column);
    }
    let child = *node.children().first()?;
    let below: Arc<dyn PhysicalExpr> = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        Arc::clone(&projection.expr().get(column)?.expr)
    } else {
        let filter = node.downcast_ref::<FilterExec>();
        let projection = filter.and_then(|filter| filter.projection().as_ref());
        let column = projection.map_or(Some(column), |projection| projection.get(column).copied())?;
        Arc::new(Column::new(child.schema().field(column).name(), column))
    };
    scan_column(child, &below)
}
