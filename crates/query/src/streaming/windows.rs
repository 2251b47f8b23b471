//! Windows and their aggregates: `TUMBLE`, `HOP`, `CUMULATE` and `SESSION` in FROM, GROUP BY of their edges.
//!
//! The edges of a session are not known before its aggregate: until then their columns stand for them, NULL in each
//! row, and nothing but GROUP BY may read them.
//!
//! ```text
//!   GROUP BY city, window_start   ─▶  city, or '' where it is NULL │ nulls: a bit for each group │ window_start   ─▶  city or NULL
//! ```
//! Groups are in the key of the state, which has no NULL. So a NULL is the default value of its type there, and the column `nulls`
//! behind the groups says by its bits which of them are NULL: NULL is a group of its own. Groups that cannot be NULL cost nothing.

use crate::error::{Error, Result};
use crate::parser::windows::{WINDOW_END, WINDOW_START, open_session};
use crate::planner::row_expressions::Columns;
use crate::planner::row_expressions::aggregates::{SharedFunction, datafusion_function};
use crate::planner::row_expressions::lists::is_list;
use crate::postgres::types::column_type;
use crate::streaming::emission::Emit;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::late::LateClauses;
use crate::streaming::operator_tree;
use crate::streaming::operators::{Flow, Translator, storage};
use crate::streaming::replaced::{ReplacedBy, Replacement};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, RecordBatch, new_null_array,
};
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::{DataType as ArrowType, Decimal128Type, Int64Type};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, Case};
use datafusion::logical_expr::{Aggregate as AggregatePlan, AggregateUDF, Expr, ExprSchemable, lit};
use entresol_streams::{Aggregate, ColumnExpression, Expression, Stream, TimeWindow, WindowKind};
use entresol_tables::{Column, DataType};
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

/// Event time among the columns that an aggregate reads.
const TIME: &str = "event_time";
/// Edge of its window among the columns that an aggregate reads.
const EDGE: &str = "window_edge";

/// Column that says which groups are NULL.
const NULLS: &str = "nulls";

/// Renames columns of a stream that are edges of other windows: the names are those of the edges of new ones.
pub(crate) fn rename_edges(of: &str, columns: &mut [Column]) {
    for at in 0..columns.len() {
        if [WINDOW_START, WINDOW_END].contains(&columns[at].name.as_str()) {
            let mut name = format!("{of}_{}", columns[at].name);
            while columns.iter().any(|column| column.name == name) {
                name.push('_');
            }
            columns[at].name = name;
        }
    }
}

/// Windows of a stream: the columns of their edges, and of the event time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    pub(crate) time: usize,
    pub(crate) start: Option<usize>,
    pub(crate) end: Option<usize>,
    pub(crate) kind: WindowKind,
    pub(crate) lateness: Duration,
    pub(crate) future_limit: Duration,
    /// True if the rows are results of the windows, whose time is the start.
    pub(crate) is_of_results: bool,
}

impl Windows {
    /// Column that says which of several windows a row is of: of cumulating ones the end, since several have one
    /// start. None where the time says it.
    pub(crate) fn edge(&self) -> Option<usize> {
        match self.kind {
            WindowKind::Tumbling { .. } | WindowKind::Session { .. } => None,
            WindowKind::Hopping { .. } => self.start,
            WindowKind::Cumulating { .. } => self.end,
        }
    }

    /// Tells whether rows that are equal in a column are of one window.
    pub(crate) fn is_edge(&self, column: usize) -> bool {
        let is_of = |edge: Option<usize>| edge == Some(column);
        match self.kind {
            WindowKind::Tumbling { .. } | WindowKind::Session { .. } => is_of(self.start) || is_of(self.end),
            WindowKind::Hopping { .. } => self.start.is_some() && (is_of(self.start) || is_of(self.end)),
            WindowKind::Cumulating { .. } => is_of(self.end),
        }
    }

    /// Tells whether the columns of the edges have no values yet: those of sessions before their aggregate.
    pub(crate) fn are_open(&self) -> bool {
        matches!(self.kind, WindowKind::Session { .. })
    }
}

impl Flow {
    /// Flow whose rows have a time in this column: a row without one is an error of that row alone.
    pub(crate) fn with_times(&self, time: usize) -> Flow {
        let column = &self.stream.columns()[time];
        if !column.nullable {
            return self.clone();
        }
        let name = column.name.clone();
        let detail = format!("{name} is not NULL");
        let has_time = move |rows: &RecordBatch| -> Result<ArrayRef, String> {
            if rows.column(time).null_count() > 0 {
                return Err(format!("event time \"{name}\" is NULL"));
            }
            Ok(Arc::new(BooleanArray::from(vec![true; rows.num_rows()])))
        };
        Flow { stream: self.stream.filter_by(has_time).described(&detail), ..self.clone() }
    }

    /// Refuses sessions whose edges would be read before they are known.
    pub(crate) fn check_closed(&self) -> Result<()> {
        let is_open = |windows: Windows| windows.are_open() && windows.start.or(windows.end).is_some();
        if self.windows.is_some_and(is_open) { Err(open_session()) } else { Ok(()) }
    }

    /// Refuses expressions that read the edges of sessions before they are known.
    pub(crate) fn check_edges<'e>(
        &self,
        expressions: impl IntoIterator<Item = &'e Expr>,
        schema: &DFSchema,
    ) -> Result<()> {
        let Some(windows) = self.windows.filter(Windows::are_open) else { return Ok(()) };
        for expression in expressions {
            let mut read =
                expression.column_refs().into_iter().filter_map(|c| schema.index_of_column(c).ok());
            if read.any(|column| [windows.start, windows.end].contains(&Some(column))) {
                return Err(open_session());
            }
        }
        Ok(())
    }
}

/// Aggregates of the streams that an aggregate of SQL needs, and how its result comes from theirs.
pub(crate) struct Results {
    pub(crate) aggregates: Vec<Aggregate>,
    /// Mean of decimals: digits after the point of the sum and of the mean.
    mean: Option<(u8, u8)>,
    pub(crate) data_type: DataType,
}

/// Stream with each row once for each of its windows, and their edges.
pub(crate) fn assign_windows(flow: &Flow, time: usize, window: &TimeWindow) -> Flow {
    let columns = flow.stream.columns().len();
    let windows = Windows {
        time,
        start: Some(columns),
        end: Some(columns + 1),
        kind: window.kind,
        lateness: window.lateness,
        future_limit: window.future_limit,
        is_of_results: false,
    };
    let stream = flow.stream.assign_windows(window);
    Flow { stream, windows: Some(windows), event_time: flow.event_time, replaced: None }
}

/// Stream with columns for the edges of its sessions, which its aggregate will know.
pub(crate) fn open_sessions(flow: &Flow, time: usize, window: &TimeWindow) -> Flow {
    let columns = flow.stream.columns();
    let mut projected: Vec<ComputedColumn> = Vec::with_capacity(columns.len() + 2);
    for (at, column) in columns.iter().enumerate() {
        projected.push((column.clone(), Box::new(ColumnExpression(at))));
    }
    for name in [WINDOW_START, WINDOW_END] {
        let column = Column { name: name.to_owned(), nullable: true, ..columns[time].clone() };
        let data_type = storage(std::slice::from_ref(&column)).swap_remove(0);
        let unknown = move |rows: &RecordBatch| Ok(new_null_array(&data_type, rows.num_rows()));
        projected.push((column, Box::new(unknown)));
    }
    let windows = Windows {
        time,
        start: Some(columns.len()),
        end: Some(columns.len() + 1),
        kind: window.kind,
        lateness: window.lateness,
        future_limit: window.future_limit,
        is_of_results: false,
    };
    let stream = flow.stream.project(projected);
    Flow { stream, windows: Some(windows), event_time: flow.event_time, replaced: None }
}

/// Refuses corrections of sessions.
fn check_corrected(late: &LateClauses, windows: Windows) -> Result<()> {
    if late.corrected_for.is_none() || !windows.are_open() {
        return Ok(());
    }
    Err(Error::unsupported(
        "LATE ROWS UPDATE of SESSION(stream, time, gap): a late row may make one of two sessions that were sent; there are LATE ROWS DROP and LATE ROWS INTO table",
    ))
}

/// Columns by which corrected results of windows replace those that were sent before: the groups, and an edge that tells
/// windows apart.
fn corrected_by(
    groups: Vec<usize>,
    start: Option<usize>,
    end: Option<usize>,
    kind: WindowKind,
) -> ReplacedBy {
    let (one_of, besides) = match kind {
        WindowKind::Cumulating { .. } => (vec![end], start.into_iter().collect()),
        _ => (vec![start, end], Vec::new()),
    };
    let partition = groups.into_iter().map(Some).collect();
    ReplacedBy { one_of, besides, ..ReplacedBy::of_key(Replacement::LateRows, partition) }
}

/// Windows with the columns of the plan that has them.
#[derive(Clone, Copy)]
struct Edges<'p> {
    windows: Windows,
    planned: &'p DFSchema,
}

impl Edges<'_> {
    fn index_of(&self, expr: &Expr) -> Option<usize> {
        match expr {
            Expr::Column(column) => self.planned.index_of_column(column).ok(),
            _ => None,
        }
    }

    fn is_start(&self, expr: &Expr) -> bool {
        self.index_of(expr).is_some_and(|index| self.windows.start == Some(index))
    }

    fn is_end(&self, expr: &Expr) -> bool {
        self.index_of(expr).is_some_and(|index| self.windows.end == Some(index))
    }

    /// Expressions of GROUP BY besides the edges.
    fn groups<'e>(&self, plan: &'e AggregatePlan) -> Vec<&'e Expr> {
        plan.group_expr.iter().filter(|expr| !self.is_start(expr) && !self.is_end(expr)).collect()
    }

    /// Refuses an aggregate whose groups are not of one window each.
    fn check(&self, plan: &AggregatePlan) -> Result<()> {
        let is_of_one = |expr: &Expr| self.index_of(expr).is_some_and(|index| self.windows.is_edge(index));
        if plan.group_expr.iter().any(is_of_one) { Ok(()) } else { Err(no_window(Some(self.windows.kind))) }
    }
}

/// Groups of an aggregate as columns of its state.
struct WindowGroups {
    /// Names of the columns, of which the last one is that of NULLs if groups may be NULL.
    names: Vec<String>,
    /// Places of the groups that may be NULL, by their bits.
    nullable: Vec<usize>,
}

impl WindowGroups {
    /// Adds the groups of GROUP BY to the columns that are read. In a state of an earlier release groups are not NULL.
    fn read(
        translator: &Translator<'_>,
        by: &[&Expr],
        columns: &Columns<'_>,
        state_table: &str,
        read: &mut Vec<ComputedColumn>,
    ) -> Result<WindowGroups> {
        let state = &translator.planned.state;
        let mut nullable = Vec::new();
        for (at, expr) in by.iter().enumerate() {
            if expr.nullable(columns.planned)? {
                nullable.push(at);
            }
        }
        let known = translator.catalog.table(state_table);
        if known.is_ok_and(|table| !table.schema().visible_columns().iter().any(says_nulls)) {
            nullable.clear();
        }
        let mut names: Vec<String> = Vec::new();
        for (at, expr) in by.iter().enumerate() {
            let name = free_name(&name_of(expr, "group"), read);
            let column = translator.typed_column(&name, expr, columns.planned)?;
            let result = storage(std::slice::from_ref(&column)).swap_remove(0);
            let not_null = nullable.contains(&at).then(|| or_default(expr, columns)).transpose()?;
            let expr = not_null.as_ref().unwrap_or(expr);
            read.push((column, Box::new(columns.expression(state, expr, &result)?)));
            names.push(name);
        }
        let bits = nullable.iter().enumerate().map(|(bit, at)| {
            let is_null = Box::new(unaliased(by[*at]).clone().is_null());
            Expr::Case(Case::new(
                None,
                vec![(is_null, Box::new(lit(1_i64 << bit)))],
                Some(Box::new(lit(0_i64))),
            ))
        });
        if let Some(bits) = bits.reduce(Add::add) {
            let column = Column::new(free_name(NULLS, read), DataType::BigInt);
            let result = storage(std::slice::from_ref(&column)).swap_remove(0);
            names.push(column.name.clone());
            read.push((column, Box::new(columns.expression(state, &bits, &result)?)));
        }
        Ok(WindowGroups { names, nullable })
    }

    /// Tells whether a group may be NULL.
    fn may_be_null(&self, group: usize) -> bool {
        self.nullable.contains(&group)
    }

    /// Expression of a group over the columns of the state's results, which begin with these.
    fn expression(&self, group: usize) -> Box<dyn Expression> {
        let Some(bit) = self.nullable.iter().position(|at| *at == group) else {
            return Box::new(ColumnExpression(group));
        };
        let nulls = self.names.len() - 1;
        Box::new(move |rows: &RecordBatch| {
            let nulls = rows.column(nulls).as_primitive::<Int64Type>();
            let is_null: BooleanArray =
                nulls.values().iter().map(|nulls| Some(nulls >> bit & 1 == 1)).collect();
            nullif(rows.column(group), &is_null).map_err(|error| error.to_string())
        })
    }
}

/// Tells whether a column of a state is named as the one that says which groups are NULL, or that with a number.
fn says_nulls(column: &Column) -> bool {
    column.name.strip_prefix(NULLS).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Expression of a group, with the default value of its type for NULL.
fn or_default(expr: &Expr, columns: &Columns<'_>) -> Result<Expr> {
    let expr = unaliased(expr);
    let default = lit(ScalarValue::new_default(&expr.get_type(columns.planned)?)?);
    let when = vec![(Box::new(expr.clone().is_null()), Box::new(default))];
    Ok(Expr::Case(Case::new(None, when, Some(Box::new(expr.clone())))))
}

/// Columns that an aggregate of windows reads.
struct WindowRead {
    computed: Vec<ComputedColumn>,
    groups: WindowGroups,
    results: Vec<Results>,
    window: TimeWindow,
    /// Columns of late rows, which are the first ones, if they are stored.
    late: Vec<Column>,
}

/// Columns of an aggregate in the order of its plan, of a stream with the groups, the edges of the window and the
/// results; and where the edges are among them.
fn in_order_of_plan(
    plan: &AggregatePlan,
    all: &Stream,
    groups: &WindowGroups,
    edges: &Edges<'_>,
    results: &[Results],
) -> (Vec<ComputedColumn>, Option<usize>, Option<usize>) {
    let mut projected: Vec<ComputedColumn> = Vec::new();
    let (edge, mut at_group) = (groups.names.len(), 0);
    let (mut start, mut end) = (None, None);
    for (expr, field) in plan.group_expr.iter().zip(plan.schema.fields()) {
        let (from, expression): (usize, Box<dyn Expression>) = if edges.is_start(expr) {
            start = Some(projected.len());
            (edge, Box::new(ColumnExpression(edge)))
        } else if edges.is_end(expr) {
            end = Some(projected.len());
            (edge + 1, Box::new(ColumnExpression(edge + 1)))
        } else {
            at_group += 1;
            (at_group - 1, groups.expression(at_group - 1))
        };
        let of_state = &all.columns()[from];
        let nullable = of_state.nullable || groups.may_be_null(from);
        projected.push((Column { name: field.name().clone(), nullable, ..of_state.clone() }, expression));
    }
    let mut from = edge + 2;
    for (results, field) in results.iter().zip(plan.schema.fields().iter().skip(plan.group_expr.len())) {
        let column = Column::new(field.name().clone(), results.data_type);
        projected.push((column, results.expression(from)));
        from += results.aggregates.len();
    }
    (projected, start, end)
}

impl Translator<'_> {
    /// Aggregate of windows.
    pub(crate) fn aggregate(
        &mut self,
        flow: &Flow,
        plan: &AggregatePlan,
        state_table: &str,
        late: &LateClauses,
        emit: Emit,
    ) -> Result<Flow> {
        let windows = flow.windows.ok_or_else(|| no_window(None))?;
        check_corrected(late, windows)?;
        let edges = Edges { windows, planned: plan.input.schema() };
        edges.check(plan)?;
        let flow = &flow.with_times(windows.time);
        let read = self.read_of_windows((flow, state_table), plan, &edges, late.table.is_some())?;
        let WindowRead { computed, groups, results, window, late: late_columns } = read;
        let names: Vec<&str> = groups.names.iter().map(String::as_str).collect();
        let aggregates: Vec<Aggregate> =
            results.iter().flat_map(|results| results.aggregates.iter().cloned()).collect();
        let mut grouped = flow.stream.project(computed).window(window).group_by(&names);
        grouped = grouped.corrected_for(late.corrected_for.unwrap_or_default());
        let early = emit.of_windows(windows.kind)?;
        if let Some(emission) = early {
            grouped = grouped.early(emission);
        }
        if let Some(table) = &late.table {
            grouped = grouped.late_into(table, late_columns);
        }
        // Groups alone are what DISTINCT is.
        let aggregates = if aggregates.is_empty() { vec![Aggregate::count()] } else { aggregates };
        let all = grouped
            .try_aggregate(&aggregates, state_table)
            .map_err(|reason| Error::coded("22023", format!("topology {}: {reason}", self.topology)))?
            .described(&operator_tree::describe_aggregate(plan, late.table.as_deref()));
        let (projected, start, end) = in_order_of_plan(plan, &all, &groups, &edges, &results);
        let stream = all.project(projected);
        let kind = windows.kind;
        let windows = start.filter(|_| !windows.are_open()).map(|time| Windows {
            time,
            start,
            end,
            lateness: Duration::ZERO,
            is_of_results: true,
            ..windows
        });
        let replaced = || {
            let is_edge = |column: &usize| [start, end].contains(&Some(*column));
            let groups = (0..plan.group_expr.len()).filter(|column| !is_edge(column));
            corrected_by(groups.collect(), start, end, kind)
        };
        let replaced = match (late.corrected_for, early) {
            (None, None) => None,
            (Some(_), None) => Some(replaced()),
            (_, Some(_)) => Some(replaced().early()),
        };
        Ok(Flow { stream, windows, event_time: None, replaced })
    }

    /// Columns that an aggregate of windows reads: its groups, its arguments, the event time; before them those of late rows
    /// if they are stored.
    fn read_of_windows(
        &self,
        (flow, state_table): (&Flow, &str),
        plan: &AggregatePlan,
        edges: &Edges<'_>,
        has_late: bool,
    ) -> Result<WindowRead> {
        let (windows, planned) = (edges.windows, edges.planned);
        let stored = storage(flow.stream.columns());
        let columns = Columns { planned, stored: &stored };
        let by = edges.groups(plan);
        flow.check_edges(by.iter().copied().chain(&plan.aggr_expr), planned)?;
        let mut read: Vec<ComputedColumn> = Vec::new();
        let late = if has_late { late_columns(flow, windows, &mut read) } else { Vec::new() };
        let groups = WindowGroups::read(self, &by, &columns, state_table, &mut read)?;
        let mut results = Vec::with_capacity(plan.aggr_expr.len());
        let mut names = groups.names.clone();
        for expr in &plan.aggr_expr {
            results.push(self.results(expr, &columns, &mut read, &mut names)?);
        }
        let time = flow.stream.columns()[windows.time].clone();
        let time_name = free_name(TIME, &read);
        read.push((Column { name: time_name.clone(), ..time }, Box::new(ColumnExpression(windows.time))));
        let mut window = TimeWindow::of_kind(&time_name, windows.kind)
            .lateness(windows.lateness)
            .future_limit(windows.future_limit);
        if let Some(edge) = windows.edge() {
            let column = flow.stream.columns()[edge].clone();
            let name = free_name(EDGE, &read);
            window = window.assigned_by(&name, windows.is_of_results);
            read.push((Column { name, ..column }, Box::new(ColumnExpression(edge))));
        }
        Ok(WindowRead { computed: read, groups, results, window, late })
    }

    /// Column of an expression's values.
    pub(crate) fn typed_column(&self, name: &str, expr: &Expr, schema: &DFSchema) -> Result<Column> {
        let found = expr.get_type(schema)?;
        let data_type = column_type(&found)
            .ok_or_else(|| Error::unsupported(format!("{expr} of type {found} in a stream")))?;
        Ok(Column::new(name, data_type))
    }

    /// Aggregates for an aggregate expression, whose argument is added to what is read.
    pub(crate) fn results(
        &self,
        expr: &Expr,
        columns: &Columns<'_>,
        read: &mut Vec<ComputedColumn>,
        names: &mut Vec<String>,
    ) -> Result<Results> {
        let result = expr.get_type(columns.planned)?;
        let data_type = column_type(&result)
            .or_else(|| is_list(&result).then_some(DataType::Varchar))
            .ok_or_else(|| Error::unsupported(format!("{expr} of type {result} in a stream")))?;
        let inner = unaliased(expr);
        let Expr::AggregateFunction(AggregateFunction { func, params }) = inner else {
            return Err(Error::unsupported(format!("{expr} in an aggregate of a stream")));
        };
        let name = func.name().to_owned();
        let is_built_in = matches!(name.as_str(), "count" | "sum" | "min" | "max" | "avg");
        if !is_built_in || params.distinct || !params.order_by.is_empty() || params.args.len() > 1 {
            return self.datafusion_results(func, params, (data_type, &result), columns, read, names);
        }
        let argument = match (params.args.as_slice(), &params.filter) {
            ([], None) => None,
            ([Expr::Literal(value, _)], None) if name == "count" && !value.is_null() => None,
            ([], Some(filter)) => Some(when(filter, lit(1_i64))),
            ([argument], Some(filter)) => Some(when(filter, argument.clone())),
            ([argument], None) => Some(argument.clone()),
            _ => return Err(Error::Internal(format!("{name} of several arguments"))),
        };
        let Some(argument) = argument else {
            if name != "count" {
                return Err(Error::unsupported(format!("{name}() in a stream")));
            }
            let count = Aggregate::count().named(&free_result("count", names));
            return Ok(Results { aggregates: vec![count], mean: None, data_type });
        };
        let column =
            self.typed_column(&free_name(&name_of(&argument, "value"), read), &argument, columns.planned)?;
        let stored = storage(std::slice::from_ref(&column)).swap_remove(0);
        let (of, of_type) = (column.name.clone(), column.data_type);
        read.push((column, Box::new(columns.expression(&self.planned.state, &argument, &stored)?)));
        let called = free_result(&format!("{name}_{}", name_of(&argument, "value")), names);
        let one = |aggregate: Aggregate| vec![aggregate.named(&called)];
        let (aggregates, mean) = match (name.as_str(), of_type, data_type) {
            ("count", ..) => (one(Aggregate::count_of(&of)), None),
            ("sum", ..) => (one(Aggregate::sum(&of)), None),
            ("min", ..) => (one(Aggregate::min(&of)), None),
            ("max", ..) => (one(Aggregate::max(&of)), None),
            ("avg", _, DataType::Double) => (one(Aggregate::avg(&of)), None),
            ("avg", DataType::Decimal { scale: from, .. }, DataType::Decimal { scale: to, .. })
                if to >= from =>
            {
                let sum = Aggregate::sum(&of).named(&format!("{called}_sum"));
                (vec![sum, Aggregate::count_of(&of).named(&format!("{called}_count"))], Some((from, to)))
            }
            _ => return Err(Error::unsupported(format!("aggregate {name} of {of_type} in a stream"))),
        };
        Ok(Results { aggregates, mean, data_type })
    }

    /// Aggregate that DataFusion's function computes, whose arguments are added to what is read.
    fn datafusion_results(
        &self,
        function: &Arc<AggregateUDF>,
        called: &AggregateFunctionParams,
        (data_type, result): (DataType, &ArrowType),
        columns: &Columns<'_>,
        read: &mut Vec<ComputedColumn>,
        names: &mut Vec<String>,
    ) -> Result<Results> {
        let (function, arguments) = datafusion_function(function, called, columns, result)?;
        let mut of: Vec<String> = Vec::with_capacity(arguments.len());
        for argument in &arguments {
            let name = free_name(&name_of(argument, "value"), read);
            let column = self.typed_column(&name, argument, columns.planned)?;
            let stored = storage(std::slice::from_ref(&column)).swap_remove(0);
            read.push((column, Box::new(columns.expression(&self.planned.state, argument, &stored)?)));
            of.push(name);
        }
        let argument = arguments.first().map_or_else(|| "value".to_owned(), |first| name_of(first, "value"));
        let called = free_result(&format!("{}_{argument}", function.name()), names);
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let aggregate = Aggregate::function(Arc::new(SharedFunction(Arc::new(function))), &of).named(&called);
        Ok(Results { aggregates: vec![aggregate], mean: None, data_type })
    }
}

impl Results {
    /// Expression of the result; the aggregates' columns begin at `from`.
    pub(crate) fn expression(&self, from: usize) -> Box<dyn Expression> {
        let result = storage(&[Column::new("result", self.data_type)]).swap_remove(0);
        let mean = self.mean;
        Box::new(move |rows: &RecordBatch| -> Result<ArrayRef, String> {
            let array = match mean {
                None => Arc::clone(rows.column(from)),
                Some((scale_from, scale_to)) => {
                    let sums = rows.column(from).as_primitive::<Decimal128Type>();
                    let counts = rows.column(from + 1).as_primitive::<Int64Type>();
                    let factor = 10_i128.pow(u32::from(scale_to - scale_from));
                    let means = sums.iter().zip(counts.iter()).map(|(sum, count)| match (sum, count) {
                        (Some(sum), Some(count)) if count > 0 => {
                            let scaled =
                                sum.checked_mul(factor).ok_or("the sum of a mean is out of range")?;
                            Ok(Some(scaled / i128::from(count)))
                        }
                        _ => Ok(None),
                    });
                    let means = means.collect::<Result<Decimal128Array, &str>>()?;
                    Arc::new(means.with_data_type(result.clone())) as ArrayRef
                }
            };
            if *array.data_type() == result {
                return Ok(array);
            }
            datafusion::arrow::compute::cast(&array, &result).map_err(|error| error.to_string())
        })
    }
}

/// Adds the columns of late rows to what is read first: all of the stream's but the edges of the windows.
/// Returns them by their names.
fn late_columns(flow: &Flow, windows: Windows, read: &mut Vec<ComputedColumn>) -> Vec<Column> {
    let mut columns = Vec::new();
    for (at, column) in flow.stream.columns().iter().enumerate() {
        if Some(at) != windows.start && Some(at) != windows.end {
            let name = format!("late {at}");
            read.push((Column { name, ..column.clone() }, Box::new(ColumnExpression(at))));
            columns.push(column.clone());
        }
    }
    columns
}

/// Refusal of an aggregate that is not over windows.
pub(crate) fn no_window(kind: Option<WindowKind>) -> Error {
    let (edge, of) = match kind {
        None | Some(WindowKind::Tumbling { .. }) => (WINDOW_START, "TUMBLE(stream, time, interval)"),
        Some(WindowKind::Hopping { .. }) => (WINDOW_START, "HOP(stream, time, slide, size)"),
        Some(WindowKind::Session { .. }) => (WINDOW_START, "SESSION(stream, time, gap)"),
        Some(WindowKind::Cumulating { .. }) => (WINDOW_END, "CUMULATE(stream, time, step, size)"),
    };
    Error::unsupported(format!("an aggregate over a stream without end: GROUP BY {edge} of {of}"))
}

/// CASE WHEN filter THEN value END.
fn when(filter: &Expr, value: Expr) -> Expr {
    Expr::Case(Case::new(None, vec![(Box::new(filter.clone()), Box::new(value))], None))
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Name of an expression's column: that of the column that it is as far as it may be one of a table, or another.
pub(crate) fn name_of(expr: &Expr, otherwise: &str) -> String {
    const BYTES_MAX: usize = 48;
    match unaliased(expr) {
        Expr::Column(column) => {
            let mut name: String = column.name.chars().filter(|letter| !letter.is_control()).collect();
            while name.len() > BYTES_MAX {
                name.pop();
            }
            if name.is_empty() { otherwise.to_owned() } else { name }
        }
        Expr::Cast(cast) => name_of(&cast.expr, otherwise),
        _ => otherwise.to_owned(),
    }
}

pub(crate) fn free_name(base: &str, read: &[ComputedColumn]) -> String {
    let is_free = |name: &str| {
        name != WINDOW_START && name != WINDOW_END && !read.iter().any(|(column, _)| column.name == name)
    };
    if is_free(base) {
        return base.to_owned();
    }
    (2..).map(|number| format!("{base}_{number}")).find(|name| is_free(name)).unwrap_or_default()
}

/// Name of a result in the state table, and note that it is used.
fn free_result(base: &str, names: &mut Vec<String>) -> String {
    let is_free = |name: &String| name != WINDOW_START && !names.contains(name);
    let numbered = (2..).map(|number| format!("{base}_{number}"));
    let name = std::iter::once(base.to_owned()).chain(numbered).find(is_free).unwrap_or_default();
    names.push(name.clone());
    name
}
