//! ASOF joins of two streams, by their event times.
//!
//! | MATCH_CONDITION | partner of a left row | buffered right rows |
//! | --- | --- | --- |
//! | `l.at >= r.at`, `l.at > r.at` | the last one before it | the last one of each key, and those that are later than the left stream |
//! | the same, with `state_ttl` | the last one, if it is no further away | those that are no further behind the left stream |
//! | `l.at <= r.at`, `l.at < r.at`, with `state_ttl` | the first one behind it, if it is no further away | those that are later than the left stream |
//!
//! A left row waits until the watermark of the right stream decides about it. Without `state_ttl` one that looks ahead
//! would wait for ever, if no right row with its key comes.

use crate::error::{Error, Result};
use crate::planner::rules::asof::Condition;
use crate::streaming::joins::{Side, in_order_of_join, join_side, keeps_times, side};
use crate::streaming::operator_tree::describe_keys;
use crate::streaming::operators::{Flow, Translator};
use crate::streaming::retention::StateTtl;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::logical_expr::{Expr, ExprSchemable, Join, LogicalPlan};
use entresol_streams::{AsofJoin, AsofMatch};
use std::time::Duration;

impl Translator<'_> {
    /// ASOF join of two streams.
    pub(crate) fn asof_join(&mut self, join: &Join) -> Result<Flow> {
        let left = side(self.node(&join.left)?, &join.left);
        let right = side(self.node(&join.right)?, &join.right);
        for side in [&left, &right] {
            side.flow.check_closed()?;
            if side.flow.replaced.is_some() {
                return Err(Error::unsupported(
                    "ASOF JOIN of two streams of which rows are taken back, as results of aggregates without windows: INSERT the right one INTO a table, and join that",
                ));
            }
        }
        let condition = Condition::of(join)?;
        check_event_time(&condition.left_time, &left)?;
        check_event_time(&condition.right_time, &right)?;
        let nearest = match (condition.is_before, condition.is_equal) {
            (true, true) => AsofMatch::AtOrBefore,
            (true, false) => AsofMatch::Before,
            (false, true) => AsofMatch::AtOrBehind,
            (false, false) => AsofMatch::Behind,
        };
        let within = self.reach(condition.is_before)?;
        let (left_keys, right_keys) = self.keys(&condition.keys, &left, &right)?;
        let operator = describe(condition.is_before, within);
        let state_table = self.state_table_of(&LogicalPlan::Join(join.clone()), &operator);
        self.joins = true;
        let joined = AsofJoin {
            nearest,
            within,
            state_table,
            left: join_side(&left, None, left_keys, None)?,
            right: join_side(&right, None, right_keys, None)?,
        };
        let stream = left.flow.stream.asof_join(&right.flow.stream, joined).described(&describe_keys(join));
        Ok(in_order_of_join(join, &stream, (&left, &right), true))
    }

    /// Maximum difference of the times of partners, by `state_ttl`.
    fn reach(&mut self, is_before: bool) -> Result<Option<Duration>> {
        let ttl = self.step.and_then(|step| step.state_ttl).or(self.planned.state_ttl);
        self.has_used_ttl |= ttl.is_some();
        match ttl {
            Some(StateTtl::For(time)) => Ok(Some(time)),
            None | Some(StateTtl::Infinite) if is_before => Ok(None),
            None | Some(StateTtl::Infinite) => Err(Error::unsupported(
                "ASOF JOIN of two streams with a row behind the left one, which may never arrive: say how far it may be, as WITH (state_ttl = '1 hour')",
            )),
        }
    }
}

/// Refuses an expression of MATCH_CONDITION that is not the event time of its stream.
fn check_event_time(expr: &Expr, side: &Side<'_>) -> Result<()> {
    let schema = side.plan.schema();
    let plain = match expr {
        Expr::Cast(cast) if keeps_times(cast.field.data_type()) => &cast.expr,
        expr => expr,
    };
    let column = match plain {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        _ => None,
    };
    let is_event_time = column.is_some() && column == side.time.map(|time| time.column);
    // With another zone a cast is another time.
    if is_event_time && has_zone(&expr.get_type(schema)?) == has_zone(&plain.get_type(schema)?) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "MATCH_CONDITION on {expr} in an ASOF JOIN of two streams, which is not the event time of its stream: by others no row is known to be the nearest; compare the columns of WATERMARK FOR … in CREATE SOURCE, or window_start of windows"
    )))
}

fn has_zone(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::Timestamp(_, Some(_)))
}

/// Description of a join for EXPLAIN.
fn describe(is_before: bool, within: Option<Duration>) -> String {
    match (is_before, within) {
        (true, None) => "ASOF join of streams, the last row of each key of the right stays".to_owned(),
        (true, Some(within)) => {
            format!("ASOF join of streams, rows of the right buffered until {within:?} behind their time")
        }
        (false, within) => format!(
            "ASOF join of streams, rows of the left wait until {:?} behind their time",
            within.unwrap_or_default()
        ),
    }
}
