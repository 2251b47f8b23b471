//! Rankings: `row_number() OVER (PARTITION BY ... ORDER BY ...)` with a bound on it in WHERE, `DISTINCT ON`, and ORDER BY with
//! LIMIT ([`super::first_rows`]).
//!
//! | PARTITION BY and ORDER BY | rows are sent |
//! | --- | --- |
//! | an edge of windows | when the window closes, once |
//! | the event time, ascending | when the watermark has passed them, once: the first rows of each partition |
//! | others | at the commit, if their rank has changed |
//!
//! Without a bound, rows by event time are numbered as any window function goes over them ([`super::row_windows`]).
//!
//! Rows of the last kind are taken back when another row gets their rank: their partition and rank are the key of the table
//! that they are written into. They may be ranked by results that change themselves. What cannot take rows back is refused.

use crate::error::{Error, Result};
use crate::planner::row_expressions::Columns;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::operators::{Flow, Translator, plain_column, storage};
use crate::streaming::replaced::{ReplacedBy, Replacement};
use crate::streaming::watermarks::EventTime;
use crate::streaming::windows::Windows;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Between, WindowFunction};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, DistinctOn, Expr, Filter, LogicalPlan, Operator, SortExpr, Window,
};
use entresol_streams::{
    ColumnExpression, GROUPS_IN_DRAM_MAX, RANK_MAX, RankChanges, RankEmission, RankFunction, RankOrder,
    Ranking, WindowEdge,
};
use std::time::Duration;

impl Flow {
    /// Refuses a stream whose rows replace each other.
    pub(crate) fn check_appended(&self, by: &str) -> Result<()> {
        let Some(replaced) = &self.replaced else { return Ok(()) };
        let instead = match replaced.by {
            Replacement::Ranking => "rank over a window, or by the event time ascending, or write",
            Replacement::First
            | Replacement::LateRows
            | Replacement::Early
            | Replacement::Running { .. }
            | Replacement::Source
            | Replacement::Joined => "write",
        };
        Err(Error::unsupported(format!(
            "{by} of {}: {instead} them with ON CONFLICT DO UPDATE into a table and read its CHANGES",
            replaced.by.rows()
        )))
    }
}

impl Flow {
    /// Refuses a stream whose rows replace each other, below an operator that sends each result once.
    pub(crate) fn check_sent_once(&self, by: &str) -> Result<()> {
        let Some(replaced) = &self.replaced else { return Ok(()) };
        Err(Error::unsupported(format!(
            "{by} of {}: a row that goes would change the results of rows behind it, each of which is sent once; write them with ON CONFLICT DO UPDATE into a table and read its CHANGES",
            replaced.by.rows()
        )))
    }

    /// Refuses a stream whose rows replace each other, other than by taking back what was sent.
    pub(crate) fn check_retracted(&self, by: &str) -> Result<()> {
        match self.replaced.as_ref().map(|replaced| replaced.by) {
            Some(
                Replacement::Running { .. }
                | Replacement::Ranking
                | Replacement::First
                | Replacement::Source
                | Replacement::Joined,
            ) => Ok(()),
            _ => self.check_appended(by),
        }
    }

    /// Refuses the same, and results that stay when their group is over: a group that begins anew would count twice.
    pub(crate) fn check_whole(&self, by: &str) -> Result<()> {
        match self.replaced.as_ref().map(|replaced| replaced.by) {
            Some(Replacement::Running { expires: true }) => Err(Error::unsupported(format!(
                "{by} of the results of groups that state_ttl ends: a group that begins anew would count twice"
            ))),
            _ => self.check_retracted(by),
        }
    }
}

/// Parts of a ranking in a plan.
pub(crate) struct PlannedRanking<'p> {
    pub(crate) function: RankFunction,
    pub(crate) partition: &'p [Expr],
    pub(crate) order: &'p [SortExpr],
    pub(crate) limit: Option<usize>,
    /// Changes that are sent, where it is sent at the commit.
    pub(crate) changes: RankChanges,
    pub(crate) rank_column: String,
    /// Plan that describes it.
    pub(crate) plan: &'p LogicalPlan,
}

impl Translator<'_> {
    /// Filter; a bound on the rank of a ranking below it is the limit of this ranking.
    pub(crate) fn filter_node(&mut self, filter: &Filter) -> Result<Flow> {
        let mut limit: Option<usize> = None;
        let mut others: Vec<Expr> = Vec::new();
        for conjunct in split_conjunction(&filter.predicate) {
            let bound = rank_bound(conjunct, &filter.input);
            limit = bound.map(|bound| bound.limit).into_iter().chain(limit).min();
            if bound.is_none_or(|bound| !bound.is_all) {
                others.push(conjunct.clone());
            }
        }
        self.ranking.limit = limit;
        let flow = self.node(&filter.input)?;
        conjunction(others).map_or(Ok(flow.clone()), |others| self.filter(flow, &filter.input, &others))
    }

    /// Window functions: a ranking, or values over the rows before each.
    pub(crate) fn window_node(&mut self, window: &Window) -> Result<Flow> {
        let limit = self.ranking.limit.take();
        let flow = self.node(&window.input)?;
        let planned = window.input.schema();
        let (called, function) = match ranking_function(window) {
            Some(ranking) if limit.is_some() || !flow.is_over_rows(ranking.0, planned) => ranking,
            _ => return self.over_rows(&flow, window),
        };
        let plan = LogicalPlan::Window(window.clone());
        self.ranked(
            flow,
            planned,
            &PlannedRanking {
                function,
                partition: &called.params.partition_by,
                order: &called.params.order_by,
                limit,
                changes: RankChanges::OfRanks,
                rank_column: called.fun.name().to_owned(),
                plan: &plan,
            },
        )
    }

    /// First row of each group of DISTINCT ON.
    pub(crate) fn distinct_on(&mut self, distinct: &DistinctOn) -> Result<Flow> {
        let flow = self.node(&distinct.input)?;
        let order = distinct.sort_expr.as_deref().unwrap_or_default();
        let order = order.get(distinct.on_expr.len()..).unwrap_or_default();
        let plan = LogicalPlan::Distinct(datafusion::logical_expr::Distinct::On(distinct.clone()));
        let ranking = PlannedRanking {
            function: RankFunction::RowNumber,
            partition: &distinct.on_expr,
            order,
            limit: Some(1),
            changes: RankChanges::OfRanks,
            rank_column: "row_number".to_owned(),
            plan: &plan,
        };
        let ranked = self.ranked(flow, distinct.input.schema(), &ranking)?;
        self.project_flow(&ranked, distinct.input.schema(), &distinct.select_expr, &distinct.schema)
    }

    /// Stream of ranked rows: its columns, and the rank.
    pub(crate) fn ranked(
        &mut self,
        flow: Flow,
        planned: &DFSchema,
        ranking: &PlannedRanking<'_>,
    ) -> Result<Flow> {
        flow.check_whole("a ranking")?;
        if ranking.order.is_empty() {
            return Err(Error::unsupported("a ranking of a stream without ORDER BY"));
        }
        let sorted = ranking.order.iter().map(|sort| &sort.expr);
        flow.check_edges(ranking.partition.iter().chain(sorted), planned)?;
        let stored = storage(flow.stream.columns());
        let mut read = Read::of(&flow, Columns { planned, stored: &stored });
        let partition: Vec<usize> =
            ranking.partition.iter().map(|expr| read.column(self, expr)).collect::<Result<_>>()?;
        let mut order = Vec::with_capacity(ranking.order.len());
        for sort in ranking.order {
            let column = read.column(self, &sort.expr)?;
            order.push(RankOrder { column, descending: !sort.asc, nulls_first: sort.nulls_first });
        }
        let emission = emission(&flow, &partition, &order, ranking)?;
        let is_at_commit = matches!(emission, RankEmission::Commit);
        let width = flow.stream.columns().len();
        if is_at_commit && partition.iter().any(|column| *column >= width) {
            return Err(Error::unsupported(
                "PARTITION BY of an expression in a ranking of a stream without windows: compute it as a column before",
            ));
        }
        let of = if flow.replaced.is_some() { " of changes, with all rows" } else { "" };
        let state_table = self.state_table_of(ranking.plan, &(describe(ranking, &emission) + of));
        let late = self.step.and_then(|step| step.late.table.clone()).filter(|_| !self.aggregates);
        (self.ranking.is_there, self.ranking.is_at_commit) = (true, is_at_commit);
        let is_edge = |column: &usize| {
            flow.windows.is_some_and(|windows| [windows.start, windows.end].contains(&Some(*column)))
        };
        let late_columns = (0..width).filter(|column| !is_edge(column)).collect();
        // Other edges follow from the one that the windows are known by.
        let edge = window_edge(&emission);
        let partition_of_state = partition
            .iter()
            .copied()
            .filter(|column| edge.is_none_or(|edge| *column == edge || !is_edge(column)));
        let rank_column = ranking.rank_column.clone();
        let timed = match (&emission, flow.event_time) {
            (RankEmission::EventTime { .. }, Some(at)) => flow.with_times(at.column),
            _ => flow.clone(),
        };
        let all = timed.stream.project(read.computed).rank(Ranking {
            function: ranking.function,
            partition: partition_of_state.chain(edge).collect(),
            order,
            limit: ranking.limit,
            changes: ranking.changes,
            emission,
            rank_column,
            state_table,
            late: late.map(|table| (table, late_columns)),
            partitions_in_dram: GROUPS_IN_DRAM_MAX,
        });
        let rank = all.columns().len() - 1;
        let projected = (0..width).chain([rank]).map(|from| -> ComputedColumn {
            let mut column = all.columns()[from].clone();
            if let Some(before) = flow.stream.columns().get(from) {
                column.name.clone_from(&before.name);
            }
            (column, Box::new(ColumnExpression(from)))
        });
        let stream = all.project(projected.collect());
        let replaced = is_at_commit.then(|| match ranking.changes {
            RankChanges::OfRanks => by_rank(ranking, &partition, width),
            RankChanges::OfRows { skipped } => by_row(flow.replaced.as_ref(), ranking, skipped, width),
        });
        let (windows, event_time) = match emission {
            RankEmission::WindowClose { .. } => (flow.windows.and_then(closed), None),
            RankEmission::EventTime { .. } => (None, flow.event_time.map(in_order)),
            RankEmission::Commit => (None, None),
        };
        Ok(Flow { stream, windows, event_time, replaced })
    }
}

/// Columns that identify the rows of a ranking by its ranks, which are behind so many columns.
fn by_rank(ranking: &PlannedRanking<'_>, partition: &[usize], width: usize) -> ReplacedBy {
    ReplacedBy {
        one_of: if ranking.limit == Some(1) { Vec::new() } else { vec![Some(width)] },
        besides: vec![width],
        ..ReplacedBy::of_key(Replacement::Ranking, partition.iter().copied().map(Some).collect())
    }
}

/// Columns that identify the rows of a ranking without its ranks: those of the rows that are ranked. Where there is one row at
/// most, all do.
fn by_row(
    ranked: Option<&ReplacedBy>,
    ranking: &PlannedRanking<'_>,
    skipped: usize,
    width: usize,
) -> ReplacedBy {
    let by = Replacement::First;
    if ranking.limit == Some(skipped + 1) {
        return ReplacedBy { besides: (0..width).collect(), ..ReplacedBy::of_key(by, Vec::new()) };
    }
    ranked.map_or_else(|| ReplacedBy::without_key(by), |ranked| ReplacedBy { by, ..ranked.clone() })
}

/// Text of a ranking for EXPLAIN.
fn describe(ranking: &PlannedRanking<'_>, emission: &RankEmission) -> String {
    let limit = ranking.limit.map_or_else(|| "all".to_owned(), |limit| limit.to_string());
    let sent = match emission {
        RankEmission::WindowClose { .. } => "when windows close",
        RankEmission::EventTime { .. } => "in the order of event time",
        RankEmission::Commit => "at each commit, as far as they have changed",
    };
    let by = match ranking.changes {
        RankChanges::OfRanks => format!("ranking by {}(), first {limit}", ranking.rank_column),
        RankChanges::OfRows { skipped: 0 } => format!("first {limit} rows of an order"),
        RankChanges::OfRows { skipped } => {
            format!("first {limit} rows of an order, without the first {skipped}")
        }
    };
    format!("{by}, sent {sent}")
}

/// Windows whose rows are sent when they close.
fn closed(windows: Windows) -> Option<Windows> {
    let time = windows.start?;
    Some(Windows { time, lateness: Duration::ZERO, is_of_results: true, ..windows })
}

/// Event time of rows that are sent in its order, behind a watermark that says so.
pub(crate) fn in_order(at: EventTime) -> EventTime {
    EventTime { lateness: Duration::MAX, future_limit: Duration::MAX, ..at }
}

fn window_edge(emission: &RankEmission) -> Option<usize> {
    match emission {
        RankEmission::WindowClose { edge, .. } => Some(edge.column),
        RankEmission::EventTime { .. } | RankEmission::Commit => None,
    }
}

/// Occasion at which the rows of a ranking are sent.
fn emission(
    flow: &Flow,
    partition: &[usize],
    order: &[RankOrder],
    ranking: &PlannedRanking<'_>,
) -> Result<RankEmission> {
    let is_edge = |windows: &Windows| partition.iter().any(|column| windows.is_edge(*column));
    if let Some(windows) = flow.windows.filter(is_edge) {
        let column = windows.edge().or(windows.start);
        let column =
            column.ok_or_else(|| Error::unsupported("a ranking over windows without window_start"))?;
        let edge =
            WindowEdge { column, is_end: false, kind: windows.kind, is_of_results: windows.is_of_results };
        let Windows { time, lateness, future_limit, .. } = windows;
        return Ok(RankEmission::WindowClose { time, edge, lateness, future_limit });
    }
    check_bounded(ranking)?;
    let is_first =
        |at: &EventTime| order.first().is_some_and(|first| first.column == at.column && !first.descending);
    Ok(match flow.event_time.filter(is_first) {
        Some(EventTime { column: time, lateness, future_limit }) => {
            RankEmission::EventTime { time, lateness, future_limit }
        }
        None => RankEmission::Commit,
    })
}

/// Refuses a ranking whose state would grow with each row, or whose rows cannot replace each other.
fn check_bounded(ranking: &PlannedRanking<'_>) -> Result<()> {
    if ranking.function != RankFunction::RowNumber {
        let name = &ranking.rank_column;
        return Err(Error::unsupported(format!(
            "{name}() over a stream without windows, where several rows have one rank: take row_number(), or PARTITION BY \
             window_start of a window"
        )));
    }
    match ranking.limit {
        Some(limit) if limit <= RANK_MAX => Ok(()),
        Some(limit) => Err(Error::unsupported(format!(
            "a ranking of a stream without windows up to {limit}: at most {RANK_MAX} rows of each partition are stored"
        ))),
        None => Err(Error::unsupported(
            "a ranking of a stream without end, other than FROM (SELECT ..., row_number() OVER (...) AS rank) WHERE rank <= n, \
             or PARTITION BY window_start of a window",
        )),
    }
}

/// Columns that a ranking reads: those of a stream, and computed ones behind them.
pub(crate) struct Read<'c> {
    pub(crate) columns: Columns<'c>,
    pub(crate) computed: Vec<ComputedColumn>,
}

impl<'c> Read<'c> {
    pub(crate) fn of(flow: &Flow, columns: Columns<'c>) -> Read<'c> {
        let computed = flow
            .stream
            .columns()
            .iter()
            .enumerate()
            .map(|(at, column)| -> ComputedColumn { (column.clone(), Box::new(ColumnExpression(at))) });
        Read { columns, computed: computed.collect() }
    }

    /// Place of an expression's values.
    pub(crate) fn column(&mut self, translator: &Translator<'_>, expr: &Expr) -> Result<usize> {
        if let Some(column) = plain_column(expr, &self.columns) {
            return Ok(column);
        }
        let name = format!("expression {}", self.computed.len());
        let column = translator.typed_column(&name, expr, self.columns.planned)?;
        let result = storage(std::slice::from_ref(&column)).swap_remove(0);
        let expression = self.columns.expression(&translator.planned.state, expr, &result)?;
        self.computed.push((column, Box::new(expression)));
        Ok(self.computed.len() - 1)
    }
}

/// Function of a window that is a ranking, if its rows have a bound or are not in the order of time.
fn ranking_function(window: &Window) -> Option<(&WindowFunction, RankFunction)> {
    let [expr] = window.window_expr.as_slice() else { return None };
    let called = window_function(expr).ok()?;
    let function = match called.fun.name() {
        "row_number" => RankFunction::RowNumber,
        "rank" => RankFunction::Rank,
        "dense_rank" => RankFunction::DenseRank,
        _ => return None,
    };
    Some((called, function))
}

/// Function of a window expression.
pub(crate) fn window_function(expr: &Expr) -> Result<&WindowFunction> {
    match expr {
        Expr::Alias(alias) => window_function(&alias.expr),
        Expr::WindowFunction(called) => Ok(called),
        other => Err(Error::Internal(format!("{other} is not a window function"))),
    }
}

/// Bound on a rank.
#[derive(Debug, Clone, Copy)]
struct RankBound {
    limit: usize,
    /// True if it holds for all ranks up to the limit.
    is_all: bool,
}

/// Bound that a conjunct is on the rank of a ranking in a plan.
fn rank_bound(conjunct: &Expr, input: &LogicalPlan) -> Option<RankBound> {
    let is_rank = |expr: &Expr| match uncast(expr) {
        Expr::Column(column) => {
            input.schema().index_of_column(column).is_ok_and(|index| ranking_of(input, index).is_some())
        }
        _ => false,
    };
    let bound = |limit: i64, is_all: bool| {
        // Nothing is ranked 0: a bound below the first rank leaves no row, which the condition says.
        let is_all = is_all && limit >= 1;
        Some(RankBound { limit: usize::try_from(limit.max(1)).ok()?, is_all })
    };
    match conjunct {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (operator, number) = match (is_rank(left), is_rank(right)) {
                (true, false) => (*op, integer(right)?),
                (false, true) => (op.swap()?, integer(left)?),
                _ => return None,
            };
            match operator {
                Operator::LtEq => bound(number, true),
                Operator::Lt => bound(number.checked_sub(1)?, true),
                Operator::Eq => bound(number, number == 1),
                _ => None,
            }
        }
        Expr::Between(Between { expr, negated: false, high, .. }) if is_rank(expr) => {
            bound(integer(high)?, false)
        }
        _ => None,
    }
}

/// Ranking whose rank is a column of a plan, which no other node changes.
pub(crate) fn ranking_of(plan: &LogicalPlan, index: usize) -> Option<(&WindowFunction, RankFunction)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => ranking_of(&alias.input, index),
        LogicalPlan::Projection(projection) => match projection.expr.get(index).map(unaliased) {
            Some(Expr::Column(column)) => {
                let index = projection.input.schema().index_of_column(column).ok()?;
                ranking_of(&projection.input, index)
            }
            _ => None,
        },
        LogicalPlan::Window(window) if index >= window.input.schema().fields().len() => {
            ranking_function(window)
        }
        _ => None,
    }
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

pub(crate) fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => uncast(&cast.expr),
        other => unaliased(other),
    }
}

/// Integer that a literal is.
pub(crate) fn integer(expr: &Expr) -> Option<i64> {
    let Expr::Literal(value, _) = uncast(expr) else { return None };
    match value.cast_to(&ArrowType::Int64) {
        Ok(ScalarValue::Int64(Some(number))) => {
            // A fraction is no bound on integers that a cast could say.
            let same = ScalarValue::Int64(Some(number)).cast_to(&value.data_type());
            same.is_ok_and(|same| same == *value).then_some(number)
        }
        _ => None,
    }
}
