//! Aggregates without a window, and DISTINCT: GROUP BY over all rows so far.
//!
//! | over | sent | groups live |
//! | --- | --- | --- |
//! | rows that are added | at each commit, the results that have changed | for ever, or by `state_ttl` |
//! | results that change, their sessions too | likewise: rows that were counted are taken back | for ever |
//! | rows that are added, without aggregates (DISTINCT) | each group once, at once | for ever, or by `state_ttl` |
//!
//! A result that changes is taken back where it was sent before, by WHERE and expressions, by other aggregates, and by the
//! table that has the groups as its key. All else would need rows that are gone, and is refused.

use crate::error::{Error, Result};
use crate::planner::row_expressions::Columns;
use crate::streaming::emission::Emit;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::operators::{Flow, Translator, storage};
use crate::streaming::replaced::{ReplacedBy, Replacement};
use crate::streaming::retention::StateTtl;
use crate::streaming::watermarks::EventTime;
use crate::streaming::windows::{Results, free_name, name_of, no_window};
use datafusion::logical_expr::{Aggregate as AggregatePlan, Expr, LogicalPlan};
use entresol_streams::{
    Aggregate, ColumnExpression, GROUPS_IN_DRAM_MAX, GroupLife, RunningGroups, values_table,
};
use entresol_tables::Column;
use std::sync::Arc;
use std::time::Duration;

/// Columns that a running aggregate reads.
#[derive(Default)]
struct Read {
    computed: Vec<ComputedColumn>,
    groups: Vec<usize>,
    results: Vec<Results>,
    /// Column of the event time, if groups do not live for ever.
    time: Option<usize>,
}

/// Aggregate of the groups of all columns of a plan, which is what DISTINCT is.
fn distinct(input: &Arc<LogicalPlan>) -> Result<AggregatePlan> {
    let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
    Ok(AggregatePlan::try_new(Arc::clone(input), columns, Vec::new())?)
}

impl Translator<'_> {
    /// Different rows of a stream.
    pub(crate) fn distinct_node(&mut self, input: &Arc<LogicalPlan>) -> Result<Flow> {
        self.aggregate_node(&distinct(input)?)
    }

    /// Aggregate of a stream: of its windows if it is grouped by them, else of all rows so far.
    pub(crate) fn aggregate_node(&mut self, aggregate: &AggregatePlan) -> Result<Flow> {
        let emit = std::mem::take(&mut self.emit);
        let flow = self.node(&aggregate.input)?;
        let schema = aggregate.input.schema();
        let is_edge = |expr: &Expr| match (expr, flow.windows) {
            (Expr::Column(column), Some(windows)) => {
                schema.index_of_column(column).is_ok_and(|index| windows.is_edge(index))
            }
            _ => false,
        };
        if !aggregate.group_expr.iter().any(is_edge) {
            return self.running_aggregate(flow, aggregate, emit);
        }
        if let Some(sessions) = flow.changing_sessions() {
            return self.aggregate_of_changing_sessions(flow, sessions, aggregate, emit);
        }
        flow.check_appended("GROUP BY")?;
        self.aggregates = true;
        let late = self.step.map(|step| step.late.clone()).unwrap_or_default();
        let plan = LogicalPlan::Aggregate(aggregate.clone());
        let state_table = self.state_table_of(&plan, &late.describe("windows"));
        self.aggregate(&flow, aggregate, &state_table, &late, emit)
    }

    pub(crate) fn running_aggregate(
        &mut self,
        flow: Flow,
        aggregate: &AggregatePlan,
        emit: Emit,
    ) -> Result<Flow> {
        if let Some(windows) = flow.windows.filter(|windows| !windows.is_of_results) {
            return Err(no_window(Some(windows.kind)));
        }
        flow.check_whole("GROUP BY")?;
        let life = self.life_of_groups(&flow)?;
        let flow = if let Some((_, at)) = life { flow.with_times(at.column) } else { flow };
        let is_distinct = aggregate.aggr_expr.is_empty() && flow.replaced.is_none();
        let interval = emit.of_running(flow.replaced.is_none() && life.is_none() && !is_distinct)?;
        let late = self.step.and_then(|step| step.late.table.clone()).filter(|_| !self.aggregates);
        if late.is_some() && life.is_none() {
            return Err(Error::unsupported(
                "LATE ROWS INTO of an aggregate whose groups live for ever: none is late",
            ));
        }
        let read = self.read_of(&flow, aggregate, life.is_some(), late.is_some())?;
        let life = life.zip(read.time).map(|((ttl, at), time)| {
            let EventTime { lateness, future_limit, .. } = at;
            GroupLife { time, ttl, lateness, future_limit }
        });
        let operator = describe(&flow, aggregate, life);
        let plan = LogicalPlan::Aggregate(aggregate.clone());
        let state_table = self.state_table_of(&plan, &operator);
        let aggregates: Vec<Aggregate> =
            read.results.iter().flat_map(|results| results.aggregates.iter().cloned()).collect();
        let width = flow.stream.columns().len();
        let running = RunningGroups {
            groups: read.groups.clone(),
            aggregates,
            state_table: state_table.clone(),
            life,
            interval,
            late: late.map(|table| (table, (0..width).collect())),
            groups_in_dram: GROUPS_IN_DRAM_MAX,
        };
        self.running = true;
        let input = flow.stream.project(read.computed);
        if running.has_values(&input) {
            self.state_beside(&values_table(&state_table), "values of its groups");
        }
        let all = input.try_running(running);
        let all =
            all.map_err(|reason| Error::coded("22023", format!("topology {}: {reason}", self.topology)))?;
        let mut projected: Vec<ComputedColumn> = Vec::new();
        for (from, field) in (0..read.groups.len()).zip(aggregate.schema.fields()) {
            let column = Column { name: field.name().clone(), ..all.columns()[from].clone() };
            projected.push((column, Box::new(ColumnExpression(from))));
        }
        let mut from = read.groups.len();
        let fields = aggregate.schema.fields().iter().skip(read.groups.len());
        for (results, field) in read.results.iter().zip(fields) {
            let column = Column::new(field.name().clone(), results.data_type);
            projected.push((column, results.expression(from)));
            from += results.aggregates.len();
        }
        let stream = all.project(projected);
        if is_distinct {
            let event_time = flow.event_time.and_then(|at| {
                let is_time = |expr: &Expr| place(expr, aggregate) == Some(at.column);
                Some(EventTime { column: aggregate.group_expr.iter().position(is_time)?, ..at })
            });
            return Ok(Flow { stream, windows: None, event_time, replaced: None });
        }
        let by = Replacement::Running { expires: life.is_some() };
        let replaced = ReplacedBy::of_key(by, (0..read.groups.len()).map(Some).collect());
        let replaced = if interval.is_some() { replaced.early() } else { replaced };
        Ok(Flow { stream, windows: None, event_time: None, replaced: Some(replaced) })
    }

    /// Columns that an aggregate reads: its groups, its arguments, and the event time; before them those of late rows.
    fn read_of(
        &self,
        flow: &Flow,
        aggregate: &AggregatePlan,
        is_timed: bool,
        has_late: bool,
    ) -> Result<Read> {
        let planned = aggregate.input.schema();
        let stored = storage(flow.stream.columns());
        let columns = Columns { planned, stored: &stored };
        let mut read = Read::default();
        if has_late {
            for (at, column) in flow.stream.columns().iter().enumerate() {
                read.computed.push((column.clone(), Box::new(ColumnExpression(at))));
            }
        }
        for expr in &aggregate.group_expr {
            if matches!(expr, Expr::GroupingSet(_)) {
                return Err(Error::unsupported("GROUPING SETS, ROLLUP and CUBE of a stream"));
            }
            let name = free_name(&name_of(expr, "group"), &read.computed);
            let column = self.typed_column(&name, expr, planned)?;
            let result = storage(std::slice::from_ref(&column)).swap_remove(0);
            read.groups.push(read.computed.len());
            let expression = columns.expression(&self.planned.state, expr, &result)?;
            read.computed.push((column, Box::new(expression)));
        }
        let mut names: Vec<String> = read.groups.iter().map(|&at| read.computed[at].0.name.clone()).collect();
        for expr in &aggregate.aggr_expr {
            let results = self.results(expr, &columns, &mut read.computed, &mut names)?;
            read.results.push(results);
        }
        let time = time_of(flow).filter(|_| is_timed);
        if let Some(at) = time {
            let column = &flow.stream.columns()[at.column];
            let name = free_name("event_time", &read.computed);
            read.time = Some(read.computed.len());
            let column = Column { name, ..column.clone() };
            read.computed.push((column, Box::new(ColumnExpression(at.column))));
        }
        Ok(read)
    }

    /// Time for which groups live behind their last row, if `state_ttl` says one, and the event time of rows.
    fn life_of_groups(&mut self, flow: &Flow) -> Result<Option<(Duration, EventTime)>> {
        if flow.replaced.is_some() {
            return Ok(None);
        }
        let ttl = self.step.and_then(|step| step.state_ttl).or(self.planned.state_ttl);
        let Some(ttl) = ttl else { return Ok(None) };
        self.has_used_ttl = true;
        let StateTtl::For(ttl) = ttl else { return Ok(None) };
        match time_of(flow) {
            Some(at) => Ok(Some((ttl, at))),
            None => Err(Error::unsupported(
                "state_ttl of an aggregate over a stream without event time: declare WATERMARK FOR … in CREATE SOURCE, \
                 or say 'infinity'",
            )),
        }
    }
}

/// Event time of the rows of a stream: of results of windows their start.
fn time_of(flow: &Flow) -> Option<EventTime> {
    let of_results = flow.windows.filter(|windows| windows.is_of_results).map(|windows| EventTime {
        column: windows.time,
        lateness: windows.lateness,
        future_limit: windows.future_limit,
    });
    flow.event_time.or(of_results)
}

/// Column of the input that an expression of an aggregate is.
fn place(expr: &Expr, aggregate: &AggregatePlan) -> Option<usize> {
    match expr {
        Expr::Column(column) => aggregate.input.schema().index_of_column(column).ok(),
        _ => None,
    }
}

/// Text of a running aggregate for EXPLAIN.
fn describe(flow: &Flow, aggregate: &AggregatePlan, life: Option<GroupLife>) -> String {
    let of = if flow.replaced.is_some() { "changes" } else { "appended rows" };
    let kind = if aggregate.aggr_expr.is_empty() { "distinct rows" } else { "running aggregate" };
    match life {
        None => format!("{kind} of {of}, groups live for ever"),
        Some(life) => format!("{kind} of {of}, groups live until {:?} behind their last row", life.ttl),
    }
}
