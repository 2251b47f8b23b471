//! Keys of one side of a hash join as a condition on the scan of the other.
//!
//! ```text
//!   HashJoin                                 HashJoin
//!   ├─ part, 200 of 200,000                  ├─ KeyFilter: part ─ keys ──────────────┐
//!   └─ aggregate of lineitem by part         └─ aggregate of lineitem by part        │
//!      └─ scan of lineitem, all rows            └─ scan of lineitem, these keys ◀────┘
//! ```
//!
//! A hash join reads all of its left side before it asks the right one for rows. So the keys of the left side are
//! known when the scan of the right side begins, and rows without one of them need not be decoded, distributed,
//! aggregated or probed. The rule puts a [`KeyFilterExec`] over the left side, which makes its keys a bitmap, and
//! hands the condition down to the scan by [`offers`].
//!
//! # Invariants
//!
//! - The join compares all keys again: only rows that join with none are left out. Joins that return such rows of
//!   the right side are left alone, and NOT IN, which asks whether the other side has a NULL.
//! - A condition passes a node only if leaving out a row below it leaves out rows with that key above it, and
//!   nothing else: columns of groups pass an aggregation, columns of the side whose rows an outer join keeps pass it.
//! - No node between begins to read before it is asked for rows, so the scan finds the keys complete.
//!
//! Cost: a bit for each key, and a test of a bit for each row that the scan has. Memory: the keys, which the join
//! has anyway, and the bitmap, reserved; without room for it, or where keys are in a wide range, there is no condition.

mod exec;
pub(crate) mod offers;

use self::exec::KeyFilter;
pub(crate) use self::exec::KeyFilterExec;
use self::offers::{Offer, offered};
use crate::planner::star::keys::{is_integer, is_key_type};
use crate::planner::star::sideways;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, NullEquality, Result as DFResult};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::HashJoinExec;
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct KeyFilters;

impl PhysicalOptimizerRule for KeyFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let planned = plan.transform_up(|node| {
            let filtered = match node.downcast_ref::<HashJoinExec>() {
                Some(join) => filtered(&node, join, config)?,
                None => None,
            };
            Ok(filtered.map_or_else(|| Transformed::no(node), Transformed::yes))
        });
        planned.data()
    }

    fn name(&self) -> &str {
        "key_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Join whose right side takes the keys of its left side; `None` if it takes none.
fn filtered(
    node: &Arc<dyn ExecutionPlan>,
    join: &HashJoinExec,
    config: &ConfigOptions,
) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    let leaves_out = matches!(
        join.join_type(),
        JoinType::Inner
            | JoinType::Left
            | JoinType::LeftSemi
            | JoinType::RightSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
    );
    if !leaves_out || join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    let (left_schema, right_schema) = (join.left().schema(), join.right().schema());
    let mut right = Arc::clone(join.right());
    let mut filters = Vec::new();
    for (key, other) in join.on() {
        let Some(at) = probed_column(other) else { continue };
        let data_type = right_schema.field(at).data_type();
        if !is_comparable(&key.data_type(&left_schema)?, data_type) {
            continue;
        }
        let filter = sideways::filter(right_schema.field(at).name(), at);
        let offer = Offer { column: at, filter: Arc::clone(&filter) as Arc<dyn PhysicalExpr> };
        if let Some(taken) = offered(&right, vec![offer], config)? {
            right = taken;
            let (key, data_type) = (Arc::clone(key), data_type.clone());
            filters.push(Arc::new(KeyFilter { key, filter, data_type }));
        }
    }
    if filters.is_empty() {
        return Ok(None);
    }
    let left = Arc::new(KeyFilterExec::new(Arc::clone(join.left()), filters));
    replace_children_if_necessary(Arc::clone(node), vec![left, right]).map(Some)
}

/// Column behind a key of the right side that is a column, or a cast of one.
fn probed_column(key: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    if let Some(cast) = key.downcast_ref::<CastExpr>() {
        return is_integer(cast.cast_type()).then(|| probed_column(cast.expr()))?;
    }
    key.downcast_ref::<Column>().map(Column::index)
}

/// Returns true if keys of a type are found by their integers among those of another.
fn is_comparable(key: &DataType, other: &DataType) -> bool {
    if key == other { is_key_type(key) } else { is_integer(key) && is_integer(other) }
}
