//! Sessions of rows that are taken back: `SESSION(stream, time, gap)` in FROM, below GROUP BY.
//!
//! The groups of sessions are the columns of GROUP BY besides their edges, as those of appended rows. An operator keeps the
//! columns of all rows that the aggregate reads, and gives each row the edges of its session; a row that comes or goes may
//! move, join, split or end sessions, whose rows are then taken back and sent with other edges. GROUP BY is the aggregate of
//! all rows so far, as over any rows that are taken back.
//!
//! At each commit the sessions of a group have different starts, and different ends: either edge with the groups is the key
//! of the results.

use crate::error::Result;
use crate::planner::row_expressions::Columns;
use crate::streaming::emission::Emit;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::operators::{Flow, Translator, plain_column, storage};
use crate::streaming::windows::{Windows, free_name, name_of};
use datafusion::arrow::array::{RecordBatch, new_null_array};
use datafusion::logical_expr::{Aggregate as AggregatePlan, Expr, LogicalPlan};
use entresol_streams::{
    ChangingSessions, ColumnExpression, Expression, GROUPS_IN_DRAM_MAX, Stream, WindowKind,
};
use entresol_tables::Column;
use std::time::Duration;

/// Columns of each row that sessions keep: the time, then the others that their aggregate reads, and computed groups.
struct SessionColumns {
    computed: Vec<ComputedColumn>,
    /// Columns of the stream that these are, as far as they are some.
    of: Vec<Option<usize>>,
    groups: Vec<usize>,
}

impl Flow {
    /// Sessions of rows that are taken back, whose edges an aggregate will know.
    pub(crate) fn changing_sessions(&self) -> Option<(Windows, Duration)> {
        let windows = self.windows.filter(|_| self.replaced.is_some())?;
        match windows.kind {
            WindowKind::Session { gap } => Some((windows, gap)),
            _ => None,
        }
    }
}

impl Translator<'_> {
    /// Aggregate of the sessions of rows that are taken back.
    pub(crate) fn aggregate_of_changing_sessions(
        &mut self,
        flow: Flow,
        (windows, gap): (Windows, Duration),
        aggregate: &AggregatePlan,
        emit: Emit,
    ) -> Result<Flow> {
        let planned = aggregate.input.schema();
        let is_edge_of = |edge: Option<usize>, expr: &Expr| match expr {
            Expr::Column(column) => edge.is_some() && planned.index_of_column(column).ok() == edge,
            _ => false,
        };
        let is_edge = |expr: &Expr| is_edge_of(windows.start, expr) || is_edge_of(windows.end, expr);
        let groups: Vec<&Expr> = aggregate.group_expr.iter().filter(|expr| !is_edge(expr)).collect();
        flow.check_edges(groups.iter().copied().chain(&aggregate.aggr_expr), planned)?;
        let columns = self.columns_of_sessions(&flow, windows, &groups, aggregate)?;
        // Beside the state of the aggregate, which has the name that the step says.
        let state_table = format!("{}_rows", self.next_state_table());
        let SessionColumns { computed, of, groups } = columns;
        let width = computed.len();
        let sessions = flow.stream.project(computed).sessions_of_changes(ChangingSessions {
            groups,
            gap,
            state_table: state_table.clone(),
            groups_in_dram: GROUPS_IN_DRAM_MAX,
        });
        let stream = restored(&flow.stream, &sessions, |column| match column {
            column if windows.start == Some(column) => Some(width),
            column if windows.end == Some(column) => Some(width + 1),
            column => of.iter().position(|of| *of == Some(column)),
        });
        let plan = LogicalPlan::Aggregate(aggregate.clone());
        let results = self.running_aggregate(Flow { stream, windows: None, ..flow }, aggregate, emit)?;
        let operator = format!("sessions of changes, gap {gap:?}, all rows are kept");
        self.state_of(&plan, &state_table, &operator);
        Ok(by_an_edge(results, |group| is_edge(&aggregate.group_expr[group])))
    }

    /// Columns of each row that sessions keep.
    fn columns_of_sessions(
        &self,
        flow: &Flow,
        windows: Windows,
        groups: &[&Expr],
        aggregate: &AggregatePlan,
    ) -> Result<SessionColumns> {
        let planned = aggregate.input.schema();
        let stored = storage(flow.stream.columns());
        let columns = Columns { planned, stored: &stored };
        let read = groups.iter().copied().chain(&aggregate.aggr_expr).flat_map(Expr::column_refs);
        let mut read: Vec<usize> = read.filter_map(|column| planned.index_of_column(column).ok()).collect();
        read.sort_unstable();
        read.dedup();
        let mut columns_of = SessionColumns { computed: Vec::new(), of: Vec::new(), groups: Vec::new() };
        for at in std::iter::once(windows.time).chain(read.into_iter().filter(|at| *at != windows.time)) {
            let column = &flow.stream.columns()[at];
            let name = free_name(&column.name, &columns_of.computed);
            let column = Column { name, ..column.clone() };
            columns_of.computed.push((column, Box::new(ColumnExpression(at))));
            columns_of.of.push(Some(at));
        }
        for expr in groups {
            let plain = plain_column(expr, &columns);
            if let Some(place) = columns_of.of.iter().position(|of| of.is_some() && *of == plain) {
                columns_of.groups.push(place);
                continue;
            }
            let name = free_name(&name_of(expr, "group"), &columns_of.computed);
            let column = self.typed_column(&name, expr, planned)?;
            let result = storage(std::slice::from_ref(&column)).swap_remove(0);
            columns_of.groups.push(columns_of.computed.len());
            let expression = columns.expression(&self.planned.state, expr, &result)?;
            columns_of.computed.push((column, Box::new(expression)));
            columns_of.of.push(None);
        }
        Ok(columns_of)
    }
}

/// Columns of a stream from those of its sessions, which `place` finds; NULLs in those that nothing reads.
fn restored(of: &Stream, sessions: &Stream, place: impl Fn(usize) -> Option<usize>) -> Stream {
    let columns = of.columns().iter().enumerate().map(|(at, column)| -> ComputedColumn {
        if let Some(from) = place(at) {
            let column = Column { name: column.name.clone(), ..sessions.columns()[from].clone() };
            return (column, Box::new(ColumnExpression(from)));
        }
        let data_type = storage(std::slice::from_ref(column)).swap_remove(0);
        let nulls = move |rows: &RecordBatch| Ok(new_null_array(&data_type, rows.num_rows()));
        let expression: Box<dyn Expression> = Box::new(nulls);
        (Column { nullable: true, ..column.clone() }, expression)
    });
    sessions.project(columns.collect())
}

/// Results whose key is their groups with one of the edges.
fn by_an_edge(mut results: Flow, is_edge: impl Fn(usize) -> bool) -> Flow {
    if let Some(replaced) = &mut results.replaced {
        let (edges, groups) = replaced.partition.drain(..).partition(|group| group.is_some_and(&is_edge));
        (replaced.one_of, replaced.partition) = (edges, groups);
    }
    results
}
