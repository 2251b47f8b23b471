//! Sessions of tables: per group, rows whose times are less than a gap apart.
//!
//! ```sql
//! SELECT meter, window_start, window_end, count(*) FROM SESSION(reading, at, INTERVAL '5 minutes')
//! GROUP BY meter, window_start, window_end
//! ```
//!
//! The session of a row follows from the rows of its group, and the groups are those of the aggregate. Until there the edges
//! are marks ([`crate::planner::windows`]); here the aggregate becomes
//!
//! ```text
//!   rows, by the other groups, in the order of time ─▶ 1 where a gap is before a row ─▶ sum so far: ordinal of the session
//!     ─▶ GROUP BY the other groups and this ordinal: window_start = min(time), window_end = max(time) + gap
//! ```
//!
//! Nothing but GROUP BY may read an edge on the way to it: not WHERE, which decides what rows a session has, and no
//! expression. Rows without a time are of one session without edges. Cost: a sort of the rows.

use crate::error::external;
use crate::parser::windows::open_session;
use crate::planner::windows::{SESSION_END, SESSION_START, length_of};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DFResult, ScalarValue, internal_err, not_impl_err};
use datafusion::functions_aggregate::expr_fn::{max, min};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::functions_window::expr_fn::lag;
use datafusion::logical_expr::expr::{Alias, ScalarFunction, Sort, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Cast, Distinct, Expr, ExprFunctionExt, ExprSchemable, Filter, Join, JoinType, LogicalPlan,
    LogicalPlanBuilder, Projection, SubqueryAlias, WindowFunctionDefinition, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;
use std::time::Duration;

/// Columns beside those of the rows: their time in microseconds, that of the row before, 1 where a session begins, the ordinal
/// of the session, and the groups.
const MICROS: &str = "\u{1}micros";
const BEFORE: &str = "\u{1}before";
const BEGINS: &str = "\u{1}begins";
const ORDINAL: &str = "\u{1}session";
const IS_TIMELESS: &str = "\u{1}timeless";
/// Time of a session's first and last row.
const FIRST: &str = "\u{1}first";
const LAST: &str = "\u{1}last";

/// Analyzer rule that plans sessions.
#[derive(Debug)]
pub(crate) struct Sessions;

impl AnalyzerRule for Sessions {
    fn name(&self) -> &str {
        "sessions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found |= matches!(node, LogicalPlan::Projection(projection) if has_marks(projection));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !found {
            return Ok(plan);
        }
        let planned = plan.transform_up_with_subqueries(|node| {
            let aggregate = match &node {
                LogicalPlan::Aggregate(aggregate) => Some(aggregate.clone()),
                LogicalPlan::Distinct(Distinct::All(input)) => {
                    let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
                    Some(Aggregate::try_new(Arc::clone(input), columns, Vec::new())?)
                }
                _ => None,
            };
            Ok(match aggregate.map(|aggregate| with_sessions(&aggregate)).transpose()?.flatten() {
                Some(planned) => Transformed::yes(planned),
                None => Transformed::no(node),
            })
        });
        planned.data()
    }
}

/// Edge of a session, with the time and the gap of its mark.
struct Mark<'e> {
    is_start: bool,
    time: &'e Expr,
    gap: Duration,
}

/// Mark that an expression is.
fn mark_of(expr: &Expr) -> Option<Mark<'_>> {
    match expr {
        Expr::Alias(alias) => mark_of(&alias.expr),
        Expr::ScalarFunction(ScalarFunction { func, args })
            if [SESSION_START, SESSION_END].contains(&func.name()) =>
        {
            let [time, gap] = args.as_slice() else { return None };
            let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(gap)), _) = gap else { return None };
            Some(Mark { is_start: func.name() == SESSION_START, time, gap: length_of(*gap)? })
        }
        _ => None,
    }
}

fn has_marks(projection: &Projection) -> bool {
    projection.expr.iter().any(|expr| mark_of(expr).is_some())
}

/// Relation whose open edges are the times of the rows.
struct OpenRelation {
    plan: LogicalPlan,
    gap: Duration,
    /// Open edges among its columns: their places, and whether they are starts.
    edges: Vec<(usize, bool)>,
}

impl OpenRelation {
    fn is_edge(&self, place: usize) -> Option<bool> {
        self.edges.iter().find(|(at, _)| *at == place).map(|(_, is_start)| *is_start)
    }

    /// Edge that a column of the schema is.
    fn edge_of(&self, schema: &DFSchema, expr: &Expr) -> Option<bool> {
        match expr {
            Expr::Alias(alias) => self.edge_of(schema, &alias.expr),
            Expr::Column(column) => self.is_edge(schema.index_of_column(column).ok()?),
            _ => None,
        }
    }

    /// Refuses an expression that reads an open edge.
    fn check(&self, schema: &DFSchema, expr: &Expr) -> DFResult<()> {
        let places = expr.column_refs();
        let mut places = places.iter().filter_map(|column| schema.index_of_column(column).ok());
        if places.any(|place| self.is_edge(place).is_some()) {
            return Err(external(open_session()));
        }
        Ok(())
    }
}

/// Relation with the marks below it replaced by the times; none if it has no open edges.
fn opened(plan: &LogicalPlan) -> DFResult<Option<OpenRelation>> {
    match plan {
        LogicalPlan::Projection(projection) if has_marks(projection) => Ok(Some(of_marks(projection)?)),
        LogicalPlan::Projection(projection) => {
            let Some(input) = opened(&projection.input)? else { return Ok(None) };
            let schema = projection.input.schema();
            let mut edges = Vec::new();
            for (at, expr) in projection.expr.iter().enumerate() {
                match input.edge_of(schema, expr) {
                    Some(is_start) => edges.push((at, is_start)),
                    None => input.check(schema, expr)?,
                }
            }
            let plan = Projection::try_new(projection.expr.clone(), Arc::new(input.plan))?;
            Ok(Some(OpenRelation { plan: LogicalPlan::Projection(plan), gap: input.gap, edges }))
        }
        LogicalPlan::Filter(filter) => {
            let Some(input) = opened(&filter.input)? else { return Ok(None) };
            input.check(filter.input.schema(), &filter.predicate)?;
            let plan = LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input.plan))?);
            Ok(Some(OpenRelation { plan, ..input }))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(input) = opened(&alias.input)? else { return Ok(None) };
            let plan = SubqueryAlias::try_new(Arc::new(input.plan), alias.alias.clone())?;
            Ok(Some(OpenRelation { plan: LogicalPlan::SubqueryAlias(plan), ..input }))
        }
        LogicalPlan::Join(join) => of_join(join),
        _ => Ok(None),
    }
}

/// Projection with the times in place of its marks.
fn of_marks(projection: &Projection) -> DFResult<OpenRelation> {
    let mut exprs = Vec::with_capacity(projection.expr.len());
    let (mut edges, mut length) = (Vec::new(), Duration::ZERO);
    for (at, expr) in projection.expr.iter().enumerate() {
        let Some(Mark { is_start, time, gap }) = mark_of(expr) else {
            exprs.push(expr.clone());
            continue;
        };
        let zone = match time.get_type(projection.input.schema())? {
            DataType::Timestamp(_, zone) => zone,
            other => return not_impl_err!("sessions over a time of type {other}"),
        };
        let time =
            Expr::Cast(Cast::new(Box::new(time.clone()), DataType::Timestamp(TimeUnit::Microsecond, zone)));
        let field = projection.schema.qualified_field(at);
        exprs.push(Expr::Alias(Alias::new(time, field.0.cloned(), field.1.name())));
        edges.push((at, is_start));
        length = gap;
    }
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::clone(&projection.input))?);
    Ok(OpenRelation { plan, gap: length, edges })
}

fn of_join(join: &Join) -> DFResult<Option<OpenRelation>> {
    let (left, right) = (opened(&join.left)?, opened(&join.right)?);
    let (input, is_left) = match (left, right) {
        (None, None) => return Ok(None),
        (Some(left), None) => (left, true),
        (None, Some(right)) => (right, false),
        (Some(_), Some(_)) => return not_impl_err!("a join of two SESSION(relation, time, gap)"),
    };
    let schema = if is_left { join.left.schema() } else { join.right.schema() };
    for (left, right) in &join.on {
        input.check(schema, if is_left { left } else { right })?;
    }
    if let Some(filter) = &join.filter {
        input.check(schema, filter)?;
    }
    let before = match join.join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full if !is_left => {
            join.left.schema().fields().len()
        }
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => 0,
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark if is_left => 0,
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark if !is_left => 0,
        // Its columns are not among those of the join.
        _ => return Ok(None),
    };
    let edges = input.edges.iter().map(|(at, is_start)| (at + before, *is_start)).collect();
    let mut join = join.clone();
    *(if is_left { &mut join.left } else { &mut join.right }) = Arc::new(input.plan);
    let plan = LogicalPlan::Join(join).recompute_schema()?;
    Ok(Some(OpenRelation { plan, gap: input.gap, edges }))
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn group(at: usize) -> String {
    format!("\u{1}group {at}")
}

/// Plan of an aggregate that is grouped by edges of sessions; none of another.
fn with_sessions(aggregate: &Aggregate) -> DFResult<Option<LogicalPlan>> {
    let Some(input) = opened(&aggregate.input)? else { return Ok(None) };
    let schema = aggregate.input.schema();
    if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
        for expr in &aggregate.group_expr {
            input.check(schema, expr)?;
        }
        return Ok(None);
    }
    let edges: Vec<Option<bool>> =
        aggregate.group_expr.iter().map(|expr| input.edge_of(schema, expr)).collect();
    for (expr, edge) in aggregate.group_expr.iter().zip(&edges) {
        if edge.is_none() {
            input.check(schema, expr)?;
        }
    }
    for expr in &aggregate.aggr_expr {
        input.check(schema, expr)?;
    }
    let Some(time) = input.edges.first().filter(|_| edges.iter().any(Option::is_some)) else {
        return Ok(None);
    };
    let time = Expr::Column(Column::from(input.plan.schema().qualified_field(time.0)));
    let gap = input.gap;
    let rows = with_ordinals(input.plan, aggregate, &edges, &time, gap)?;
    let others = edges.iter().enumerate().filter(|(_, edge)| edge.is_none());
    let mut groups: Vec<Expr> = others.map(|(at, _)| column(&group(at))).collect();
    let count = groups.len() + 2;
    groups.extend([column(ORDINAL), column(IS_TIMELESS)]);
    let mut results = vec![min(time.clone()).alias(FIRST), max(time).alias(LAST)];
    results.extend(aggregate.aggr_expr.iter().cloned());
    let grouped = LogicalPlanBuilder::from(rows).aggregate(groups, results)?.build()?;
    let mut exprs = Vec::with_capacity(aggregate.schema.fields().len());
    for at in 0..aggregate.schema.fields().len() {
        let expr = match edges.get(at) {
            Some(Some(true)) => column(FIRST),
            Some(Some(false)) => column(LAST) + micros_interval(gap)?,
            Some(None) => column(&group(at)),
            None => {
                let place = count + 2 + at - edges.len();
                Expr::Column(Column::from(grouped.schema().qualified_field(place)))
            }
        };
        let (relation, field) = aggregate.schema.qualified_field(at);
        exprs.push(Expr::Alias(Alias::new(expr, relation.cloned(), field.name())));
    }
    LogicalPlanBuilder::from(grouped).project(exprs)?.build().map(Some)
}

fn micros_interval(gap: Duration) -> DFResult<Expr> {
    match i64::try_from(gap.as_nanos()) {
        Ok(nanos) => Ok(lit(ScalarValue::new_interval_mdn(0, 0, nanos))),
        Err(_) => internal_err!("a gap of {gap:?}"),
    }
}

/// Rows with the groups and the ordinals of their sessions.
fn with_ordinals(
    rows: LogicalPlan,
    aggregate: &Aggregate,
    edges: &[Option<bool>],
    time: &Expr,
    gap: Duration,
) -> DFResult<LogicalPlan> {
    let columns = |plan: &LogicalPlan| plan.schema().columns().into_iter().map(Expr::Column);
    let mut exprs: Vec<Expr> = columns(&rows).collect();
    let mut partition = Vec::new();
    for (at, (expr, _)) in
        aggregate.group_expr.iter().zip(edges).enumerate().filter(|(_, (_, edge))| edge.is_none())
    {
        exprs.push(expr.clone().unalias().alias(group(at)));
        partition.push(column(&group(at)));
    }
    // Two times may be further apart than fits 64 bits.
    let micros = Expr::Cast(Cast::new(Box::new(time.clone()), DataType::Int64));
    let micros = Expr::Cast(Cast::new(Box::new(micros), DataType::Decimal128(19, 0)));
    exprs.extend([micros.alias(MICROS), time.clone().is_null().alias(IS_TIMELESS)]);
    partition.push(column(IS_TIMELESS));
    let order = || vec![Sort::new(column(MICROS), true, false)];
    let before =
        lag(column(MICROS), Some(1), None).partition_by(partition.clone()).order_by(order()).build()?;
    let gap = ScalarValue::Decimal128(Some(gap.as_micros().cast_signed()), 19, 0);
    let begins = when((column(MICROS) - column(BEFORE)).gt_eq(lit(gap)), lit(1_i64)).otherwise(lit(0_i64))?;
    let ordinal =
        WindowFunction::new(WindowFunctionDefinition::AggregateUDF(sum_udaf()), vec![column(BEGINS)]);
    let ordinal = Expr::from(ordinal).partition_by(partition).order_by(order()).build()?;
    let with_before =
        LogicalPlanBuilder::from(rows).project(exprs)?.window([before.alias(BEFORE)])?.build()?;
    let mut exprs: Vec<Expr> = columns(&with_before).collect();
    exprs.push(begins.alias(BEGINS));
    LogicalPlanBuilder::from(with_before).project(exprs)?.window([ordinal.alias(ORDINAL)])?.build()
}
