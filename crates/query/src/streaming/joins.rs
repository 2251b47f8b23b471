//! Joins of two streams: by equal keys, and within some time of each other.
//!
//! | condition | partners |
//! | --- | --- |
//! | a lower and an upper bound of the difference of both event times | rows so near to each other |
//! | a bound of an event time by columns of the other side, as `b.at <= a.until` | rows of a lifetime |
//! | equal edges of windows of one kind | rows of the same window |
//! | none of these, and `state_ttl` | rows so near to each other, or all |
//!
//! Bounds are found in the conjuncts of the condition, and only decide which rows are compared and how long they are
//! buffered: the condition itself is asked for each pair. So a bound may be wider than what is written, as that of a month.
//! A bound that `state_ttl` makes is exact. Streams whose rows are taken back are joined without ([`super::changing_joins`]).

use crate::error::{Error, Result};
use crate::planner::row_expressions::Columns;
use crate::streaming::operator_tree::describe_keys;
use crate::streaming::operators::{Flow, Translator, storage};
use crate::streaming::retention::{JoinRetention, unbounded};
use crate::streaming::watermarks::EventTime;
use crate::streaming::windows::Windows;
use datafusion::arrow::datatypes::{DataType as ArrowType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::Between;
use datafusion::logical_expr::utils::{conjunction, find_valid_equijoin_key_pair, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, Join, JoinType, LogicalPlan, Operator,
};
use entresol_streams::{ColumnExpression, Expression, JoinSide, Stream, StreamJoin, WindowEdge};
use entresol_tables::Column;
use std::sync::Arc;
use std::time::Duration;

const MICROSECOND_NS: i128 = 1_000;
const DAY_NS: i128 = 24 * 60 * 60 * 1_000_000_000;
/// Days of a month, at least and at most.
const MONTH_DAYS: (i128, i128) = (28, 31);

/// Side of a join: its stream, its plan, and the event time of its rows.
pub(crate) struct Side<'p> {
    pub(crate) flow: Flow,
    pub(crate) plan: &'p LogicalPlan,
    pub(crate) time: Option<EventTime>,
}

/// Sum of times and a number of nanoseconds.
#[derive(Debug, Clone, Copy)]
struct TimeSum {
    /// Factors of the left and the right event time.
    times: [i128; 2],
    /// Least and greatest nanoseconds.
    ns: (i128, i128),
}

/// Bounds of the right event time minus the left one, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    least: Option<i128>,
    greatest: Option<i128>,
}

impl Translator<'_> {
    /// Join of two streams; `predicate` is a condition on its rows.
    pub(crate) fn join_streams(&mut self, join: &Join, predicate: Option<&Expr>) -> Result<Flow> {
        let is_swapped = join.join_type == JoinType::Right;
        let (preserved, first, second) = self.sides_of(join)?;
        // All that must hold of a pair, besides the equalities of the join.
        let mut conjuncts: Vec<&Expr> = join.filter.iter().flat_map(split_conjunction).collect();
        conjuncts.extend(predicate.iter().flat_map(|predicate| split_conjunction(predicate)));
        let mut equal: Vec<(Expr, Expr)> = join.on.clone();
        if is_swapped {
            equal = equal.into_iter().map(|(left, right)| (right, left)).collect();
        }
        if first.flow.replaced.is_some() || second.flow.replaced.is_some() {
            return self.join_changes((join, predicate), (&first, &second), equal, conjuncts);
        }
        let planned = first.plan.schema().join(second.plan.schema())?;
        for conjunct in &conjuncts {
            equal.extend(equality(conjunct, &first, &second)?);
        }
        let edges = window_pair(&equal, &first, &second)?;
        if let Some((at, ..)) = edges {
            equal.remove(at);
        }
        let retention = match edges {
            Some(_) => JoinRetention::of_windows(),
            None => self.retention(&conjuncts, &equal, &first, &second, &planned)?,
        };
        check_preserved(join.join_type, preserved, &retention)?;
        let columns: Vec<Column> =
            first.flow.stream.columns().iter().chain(second.flow.stream.columns()).cloned().collect();
        let stored = storage(&columns);
        let condition = conjunction(conjuncts.into_iter().cloned()).map(|condition| {
            let columns = Columns { planned: &planned, stored: &stored };
            columns.expression(&self.planned.state, &condition, &ArrowType::Boolean)
        });
        let condition = condition.transpose()?.map(|condition| Box::new(condition) as Box<dyn Expression>);
        let (of_first, of_second) = self.keys(&equal, &first, &second)?;
        let state_table = self.state_table_of(&filtered(join, predicate)?, &retention.describe(is_swapped));
        let [last_of_first, last_of_second] = &retention.last;
        let (last_of_first, last_of_second) =
            (self.last(last_of_first, &first)?, self.last(last_of_second, &second)?);
        let joined = StreamJoin {
            preserved,
            state_table,
            left: join_side(&first, edges.map(|(_, first, _)| first), of_first, last_of_first)?,
            right: join_side(&second, edges.map(|(_, _, second)| second), of_second, last_of_second)?,
            bounds_us: retention.difference_us,
            condition,
        };
        self.joins = true;
        let stream = first.flow.stream.join(&second.flow.stream, joined).described(&describe_keys(join));
        // Times of a side are NULL in rows of the other alone.
        let has_watermark = retention.are_bounded() == [true; 2] && join.join_type != JoinType::Full;
        Ok(in_order_of_join(join, &stream, (&first, &second), has_watermark))
    }

    /// Sides of a join, the one that decides about its rows first, and whether their rows without partner are sent too.
    fn sides_of<'p>(&mut self, join: &'p Join) -> Result<([bool; 2], Side<'p>, Side<'p>)> {
        let preserved = match join.join_type {
            JoinType::Inner => [false; 2],
            JoinType::Left | JoinType::Right => [true, false],
            JoinType::Full => [true; 2],
            other => return Err(Error::unsupported(format!("{other} JOIN of two streams in a step"))),
        };
        let left = side(self.node(&join.left)?, &join.left);
        let right = side(self.node(&join.right)?, &join.right);
        for side in [&left, &right] {
            side.flow.check_closed()?;
            side.flow.check_whole("JOIN")?;
        }
        Ok(if join.join_type == JoinType::Right {
            (preserved, right, left)
        } else {
            (preserved, left, right)
        })
    }

    /// Times of the partners of rows, by the conditions of a join, and by `state_ttl` where these say nothing.
    fn retention(
        &mut self,
        conjuncts: &[&Expr],
        equal: &[(Expr, Expr)],
        first: &Side<'_>,
        second: &Side<'_>,
        planned: &DFSchema,
    ) -> Result<JoinRetention> {
        let mut retention = time_bounds(conjuncts, equal, first, second, planned)?;
        if retention.are_bounded() == [true; 2] {
            return Ok(retention);
        }
        let ttl = self.step.and_then(|step| step.state_ttl).or(self.planned.state_ttl);
        let ttl = ttl.ok_or_else(|| unbounded(retention.are_bounded()))?;
        retention.limit(ttl);
        self.has_used_ttl = true;
        Ok(retention)
    }

    /// Expression of the last time of the partners of rows of a side.
    fn last(&self, last: &Option<Expr>, side: &Side<'_>) -> Result<Option<Box<dyn Expression>>> {
        let Some(last) = last else { return Ok(None) };
        let time = side.time.ok_or_else(no_time)?;
        let stored = storage(side.flow.stream.columns());
        let columns = Columns { planned: side.plan.schema(), stored: &stored };
        let last = columns.expression(&self.planned.state, last, &stored[time.column])?;
        Ok(Some(Box::new(last)))
    }

    /// Expressions of the keys of both sides.
    pub(crate) fn keys(
        &self,
        equal: &[(Expr, Expr)],
        first: &Side<'_>,
        second: &Side<'_>,
    ) -> Result<(KeyExpressions, KeyExpressions)> {
        let mut keys = (KeyExpressions::new(), KeyExpressions::new());
        for (left, right) in equal {
            let (of_left, of_right) =
                (left.get_type(first.plan.schema())?, right.get_type(second.plan.schema())?);
            if of_left != of_right {
                let message =
                    format!("a join of streams ON {left} = {right}, of types {of_left} and {of_right}");
                return Err(Error::unsupported(message));
            }
            for (side, expr, keys) in [(first, left, &mut keys.0), (second, right, &mut keys.1)] {
                let stored = storage(side.flow.stream.columns());
                let columns = Columns { planned: side.plan.schema(), stored: &stored };
                keys.push(Box::new(columns.expression(&self.planned.state, expr, &of_left)?));
            }
        }
        Ok(keys)
    }
}

/// Joined rows in the order of the plan's columns, with the times and windows of the first side, if the join has a watermark.
pub(crate) fn in_order_of_join(
    join: &Join,
    stream: &Stream,
    (first, second): (&Side<'_>, &Side<'_>),
    has_watermark: bool,
) -> Flow {
    let widths = [first, second].map(|side| side.flow.stream.columns().len());
    let (stream, places) = ordered_columns(join, stream, widths);
    let before = places[0];
    // Rows that had to wait come behind later ones: the watermark of the join says what is complete. Where rows are
    // buffered for ever, nothing is.
    let (lateness, future_limit) = (Duration::MAX, Duration::MAX);
    let windows =
        first.flow.windows.filter(|windows| !windows.are_open() && has_watermark).map(|windows| Windows {
            time: before + windows.time,
            start: windows.start.map(|start| before + start),
            end: windows.end.map(|end| before + end),
            lateness,
            future_limit,
            ..windows
        });
    let event_time = first.flow.event_time.filter(|_| has_watermark);
    let event_time = event_time.map(|at| EventTime { column: before + at.column, lateness, future_limit });
    Flow { stream, windows, event_time, replaced: None }
}

/// Columns of a join in the order of its plan, of a stream that has those of the deciding side first, and the place of each
/// of these among them.
pub(crate) fn ordered_columns(
    join: &Join,
    stream: &Stream,
    [width, behind]: [usize; 2],
) -> (Stream, Vec<usize>) {
    let all = width + behind;
    let before = if join.join_type == JoinType::Right { behind } else { 0 };
    let projected = (0..all).zip(join.schema.fields()).map(|(at, field)| {
        let from = (at + all - before) % all;
        let column = Column { name: field.name().clone(), ..stream.columns()[from].clone() };
        let expression: Box<dyn Expression> = Box::new(ColumnExpression(from));
        (column, expression)
    });
    (stream.project(projected.collect()), (0..all).map(|at| (at + before) % all).collect())
}

/// Plan of a join whose pairs pass a condition too.
pub(crate) fn filtered(join: &Join, predicate: Option<&Expr>) -> Result<LogicalPlan> {
    let join = LogicalPlan::Join(join.clone());
    let Some(predicate) = predicate else { return Ok(join) };
    Ok(LogicalPlan::Filter(Filter::try_new(predicate.clone(), Arc::new(join))?))
}

pub(crate) type KeyExpressions = Vec<Box<dyn Expression>>;

/// Side of a join. The event time of results of windows is their start.
pub(crate) fn side(flow: Flow, plan: &LogicalPlan) -> Side<'_> {
    let of_results = flow.windows.filter(|windows| windows.is_of_results).map(|windows| EventTime {
        column: windows.time,
        lateness: windows.lateness,
        future_limit: windows.future_limit,
    });
    Side { time: flow.event_time.or(of_results), flow, plan }
}

/// Refuses to send the rows of a side alone that may always get a partner.
fn check_preserved(join: JoinType, preserved: [bool; 2], retention: &JoinRetention) -> Result<()> {
    if preserved.iter().zip(retention.are_bounded()).all(|(preserved, is_bounded)| !preserved || is_bounded) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{join} JOIN of two streams, of which rows may always get a partner: none is known to have none; bound it in time"
    )))
}

pub(crate) fn join_side(
    side: &Side<'_>,
    edge: Option<WindowEdge>,
    keys: KeyExpressions,
    last: Option<Box<dyn Expression>>,
) -> Result<JoinSide> {
    let of_windows = side.flow.windows.filter(|_| edge.is_some()).map(|windows| EventTime {
        column: windows.time,
        lateness: windows.lateness,
        future_limit: windows.future_limit,
    });
    let time = of_windows.or(side.time).ok_or_else(no_time)?;
    let (lateness, future_limit) = (time.lateness, time.future_limit);
    Ok(JoinSide { keys, time: time.column, edge, lateness, future_limit, last })
}

/// Expressions of both sides that a conjunct says are equal.
pub(crate) fn equality(conjunct: &Expr, first: &Side<'_>, second: &Side<'_>) -> Result<Option<(Expr, Expr)>> {
    match conjunct {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            Ok(find_valid_equijoin_key_pair(left, right, first.plan.schema(), second.plan.schema())?)
        }
        _ => Ok(None),
    }
}

/// Equality of edges of windows among others: its place and both edges.
fn window_pair(
    equal: &[(Expr, Expr)],
    first: &Side<'_>,
    second: &Side<'_>,
) -> Result<Option<(usize, WindowEdge, WindowEdge)>> {
    let (Some(left), Some(right)) = (first.flow.windows, second.flow.windows) else { return Ok(None) };
    let column = |side: &Side<'_>, expr: &Expr| match expr {
        Expr::Column(column) => side.plan.schema().index_of_column(column).ok(),
        _ => None,
    };
    for (at, (of_left, of_right)) in equal.iter().enumerate() {
        let (Some(of_left), Some(of_right)) = (column(first, of_left), column(second, of_right)) else {
            continue;
        };
        let are_starts = left.start == Some(of_left) && right.start == Some(of_right);
        let are_ends = left.end == Some(of_left) && right.end == Some(of_right);
        if !(are_starts || are_ends) || !left.is_edge(of_left) || !right.is_edge(of_right) {
            continue;
        }
        if left.kind != right.kind {
            return Err(Error::unsupported("a join of windows of different kinds or sizes in a step"));
        }
        let edge = |windows: Windows, column: usize| WindowEdge {
            column,
            is_end: are_ends,
            kind: windows.kind,
            is_of_results: windows.is_of_results,
        };
        return Ok(Some((at, edge(left, of_left), edge(right, of_right))));
    }
    Ok(None)
}

/// Times of the partners of rows that the conditions of a join say.
fn time_bounds(
    conjuncts: &[&Expr],
    equal: &[(Expr, Expr)],
    first: &Side<'_>,
    second: &Side<'_>,
    planned: &DFSchema,
) -> Result<JoinRetention> {
    let (Some(left), Some(right)) = (first.time, second.time) else {
        let are_windows = first.flow.windows.is_some() && second.flow.windows.is_some();
        return Err(if are_windows { unbounded([false; 2]) } else { no_time() });
    };
    let places = [left.column, first.flow.stream.columns().len() + right.column];
    let mut bounds = Bounds::default();
    let mut last = [None, None];
    for conjunct in conjuncts {
        bounds.add(conjunct, &places, planned);
        comparisons(conjunct).into_iter().for_each(|compared| {
            add_last(&mut last, compared, &places, planned, first.flow.stream.columns().len());
        });
    }
    for (left, right) in equal {
        bounds.compare(left, Operator::Eq, right, &places, planned);
    }
    let micros = |ns: i128| i64::try_from(ns).ok();
    let least = bounds.least.and_then(|ns| micros(ns.div_euclid(MICROSECOND_NS)));
    let greatest = bounds.greatest.and_then(|ns| micros(ns.div_euclid(MICROSECOND_NS) + 1));
    if least.zip(greatest).is_some_and(|(least, greatest)| least > greatest) {
        return Err(Error::unsupported(
            "a join of two streams in a step whose bounds in time exclude each other",
        ));
    }
    Ok(JoinRetention { difference_us: (least, greatest), last, is_by_option: false })
}

/// Comparison of two expressions.
type Comparison<'e> = (&'e Expr, Operator, &'e Expr);

/// Comparisons that a conjunct is.
fn comparisons(conjunct: &Expr) -> Vec<Comparison<'_>> {
    match conjunct {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => vec![(left, *op, right)],
        Expr::Between(Between { expr, negated: false, low, high }) => {
            vec![(expr, Operator::GtEq, low), (expr, Operator::LtEq, high)]
        }
        _ => Vec::new(),
    }
}

/// Notes a comparison that bounds the event time of one side by columns of the other alone: the last time of partners of
/// the other side's rows.
fn add_last(
    last: &mut [Option<Expr>; 2],
    (left, operator, right): Comparison<'_>,
    places: &[usize; 2],
    planned: &DFSchema,
    width: usize,
) {
    let swapped = operator.swap();
    for (time, operator, bound) in [(Some(operator), left, right), (swapped, right, left)]
        .into_iter()
        .filter_map(|(operator, time, bound)| operator.map(|operator| (time, operator, bound)))
    {
        let is_upper = matches!(operator, Operator::LtEq | Operator::Lt | Operator::Eq);
        let Some(side) = event_time_of(time, places, planned).filter(|_| is_upper) else { continue };
        let is_of_other = |column: &datafusion::common::Column| {
            planned.index_of_column(column).is_ok_and(|index| (index < width) == (side == 1))
        };
        let read = bound.column_refs();
        let is_time = bound.get_type(planned).is_ok_and(|of| matches!(of, ArrowType::Timestamp(..)));
        // By its own time alone it is a difference.
        let is_difference = TimeSum::of(bound, places, planned).is_some();
        if !read.is_empty() && read.into_iter().all(is_of_other) && is_time && !is_difference {
            last[1 - side].get_or_insert_with(|| bound.clone());
        }
    }
}

/// Side of which an expression is the event time.
fn event_time_of(expr: &Expr, places: &[usize; 2], planned: &DFSchema) -> Option<usize> {
    let sum = TimeSum::of(expr, places, planned)?;
    match sum {
        TimeSum { times: [1, 0], ns: (0, 0) } => Some(0),
        TimeSum { times: [0, 1], ns: (0, 0) } => Some(1),
        _ => None,
    }
}

impl Bounds {
    /// Adds what a conjunct says.
    fn add(&mut self, conjunct: &Expr, places: &[usize; 2], planned: &DFSchema) {
        for (left, operator, right) in comparisons(conjunct) {
            self.compare(left, operator, right, places, planned);
        }
    }

    /// Adds what a comparison says.
    fn compare(
        &mut self,
        left: &Expr,
        operator: Operator,
        right: &Expr,
        places: &[usize; 2],
        planned: &DFSchema,
    ) {
        let sum = |expr: &Expr| TimeSum::of(expr, places, planned);
        let Some(difference) = sum(left).zip(sum(right)).map(|(left, right)| left.plus(right.negated()))
        else {
            return;
        };
        // right - left + ns, compared with zero.
        let (difference, operator) = match difference.times {
            [-1, 1] => (difference, Some(operator)),
            [1, -1] => (difference.negated(), operator.swap()),
            _ => return,
        };
        let (is_least, is_greatest) = match operator {
            Some(Operator::Eq) => (true, true),
            Some(Operator::Gt | Operator::GtEq) => (true, false),
            Some(Operator::Lt | Operator::LtEq) => (false, true),
            _ => return,
        };
        if is_least {
            let least = -difference.ns.1;
            self.least = Some(self.least.map_or(least, |other| other.max(least)));
        }
        if is_greatest {
            let greatest = -difference.ns.0;
            self.greatest = Some(self.greatest.map_or(greatest, |other| other.min(greatest)));
        }
    }
}

impl TimeSum {
    fn constant(least: i128, greatest: i128) -> TimeSum {
        TimeSum { times: [0, 0], ns: (least.min(greatest), least.max(greatest)) }
    }

    /// Sum that an expression over the columns of both sides is, whose event times are at two places.
    fn of(expr: &Expr, places: &[usize; 2], planned: &DFSchema) -> Option<TimeSum> {
        let of = |expr: &Expr| TimeSum::of(expr, places, planned);
        match expr {
            Expr::Alias(alias) => of(&alias.expr),
            Expr::Column(column) => {
                let index = planned.index_of_column(column).ok()?;
                let side = places.iter().position(|place| *place == index)?;
                Some(TimeSum { times: [i128::from(side == 0), i128::from(side == 1)], ns: (0, 0) })
            }
            Expr::Cast(cast) if keeps_times(cast.field.data_type()) => of(&cast.expr),
            Expr::Literal(value, _) => {
                let (least, greatest) = nanoseconds(value)?;
                Some(TimeSum::constant(least, greatest))
            }
            Expr::Negative(expr) => of(expr).map(TimeSum::negated),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => {
                Some(of(left)?.plus(of(right)?))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
                Some(of(left)?.plus(of(right)?.negated()))
            }
            // By these, intervals are compared.
            Expr::ScalarFunction(function)
                if matches!(function.func.name(), "interval_extent" | "interval_of_duration") =>
            {
                of(function.args.first()?)
            }
            _ => None,
        }
    }

    fn negated(self) -> TimeSum {
        TimeSum { times: self.times.map(|times| -times), ns: (-self.ns.1, -self.ns.0) }
    }

    fn plus(self, other: TimeSum) -> TimeSum {
        let times = [self.times[0] + other.times[0], self.times[1] + other.times[1]];
        TimeSum { times, ns: (self.ns.0 + other.ns.0, self.ns.1 + other.ns.1) }
    }
}

/// Tells whether a cast to a type keeps microseconds.
pub(crate) fn keeps_times(to: &ArrowType) -> bool {
    use TimeUnit::{Microsecond, Nanosecond};
    matches!(
        to,
        ArrowType::Timestamp(Microsecond | Nanosecond, _)
            | ArrowType::Duration(Microsecond | Nanosecond)
            | ArrowType::Interval(_)
    )
}

/// Nanoseconds that an interval may be, at least and at most.
fn nanoseconds(value: &ScalarValue) -> Option<(i128, i128)> {
    let exact = |ns: i128| Some((ns, ns));
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            let (months, rest) = (i128::from(interval.months), i128::from(interval.days) * DAY_NS);
            let rest = rest + i128::from(interval.nanoseconds);
            Some((months * MONTH_DAYS.0 * DAY_NS + rest, months * MONTH_DAYS.1 * DAY_NS + rest))
        }
        ScalarValue::IntervalDayTime(Some(interval)) => {
            exact(i128::from(interval.days) * DAY_NS + i128::from(interval.milliseconds) * 1_000_000)
        }
        ScalarValue::DurationMicrosecond(Some(micros)) => exact(i128::from(*micros) * MICROSECOND_NS),
        ScalarValue::DurationNanosecond(Some(nanos)) => exact(i128::from(*nanos)),
        // The extent of an interval.
        ScalarValue::Decimal128(Some(nanos), _, 0) => exact(*nanos),
        _ => None,
    }
}

/// Refusal of a join with a stream without event time.
fn no_time() -> Error {
    Error::unsupported(
        "a join of two streams in a step, of which one has no event time: declare WATERMARK FOR … in CREATE SOURCE, and keep that column, or GROUP BY the window_start of windows",
    )
}
