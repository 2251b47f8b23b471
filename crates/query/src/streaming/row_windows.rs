//! Window functions over the rows before each row: `sum(x) OVER (PARTITION BY k ORDER BY at ROWS BETWEEN 9 PRECEDING
//! AND CURRENT ROW)`, `lag(x) OVER (...)` and their like, of streams in the order of their event times.
//!
//! | frame begins with | state of each partition |
//! | --- | --- |
//! | n PRECEDING, CURRENT ROW | its last n rows |
//! | INTERVAL PRECEDING | its rows of that time |
//! | UNBOUNDED PRECEDING | what the function goes on from: a number, a value, or the state of an accumulator of a fixed size |
//!
//! A row is sent once, when the watermark has passed it: then no earlier row comes. Frames do not end behind the
//! current row: there may never be a next row of a partition. Rankings with a bound are in [`super::ranking`].

use crate::error::{Error, Result};
use crate::planner::row_expressions::Columns;
use crate::planner::row_expressions::aggregates::{SharedFunction, datafusion_function};
use crate::postgres::types::column_type;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::operators::{Flow, Translator, plain_column, storage};
use crate::streaming::ranking::{Read, in_order, integer, uncast, window_function};
use crate::streaming::watermarks::EventTime;
use datafusion::arrow::array::ArrayRef;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunctionParams, NullTreatment, WindowFunction};
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprSchemable, LogicalPlan, Window, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};
use entresol_streams::{
    ColumnExpression, Expression, FrameBound, GROUPS_IN_DRAM_MAX, PRECEDING_ROWS_MAX, RankOrder, RowFrame,
    RowFunction, RowFunctionKind, RowWindows,
};
use entresol_tables::{Column, DataType, arrow_type};
use std::sync::Arc;
use std::time::Duration;

/// Frame of functions that have none.
const CURRENT: RowFrame = RowFrame { start: FrameBound::Rows(0), end: FrameBound::Rows(0) };

impl Flow {
    /// Event time by which rows may be ordered: that of the stream, or the start of the windows whose results it has.
    fn time_of_rows(&self) -> Option<EventTime> {
        let of_results = || {
            let windows = self.windows.filter(|windows| windows.is_of_results)?;
            // Their watermark is the only one.
            let (lateness, future_limit) = (Duration::MAX, Duration::MAX);
            Some(EventTime { column: windows.start?, lateness, future_limit })
        };
        self.event_time.or_else(of_results)
    }

    /// Tells whether a window function is over the rows of a stream in the order of its event time, of no window.
    pub(crate) fn is_over_rows(&self, called: &WindowFunction, planned: &DFSchema) -> bool {
        let stored = storage(self.stream.columns());
        let columns = Columns { planned, stored: &stored };
        let is_edge = |expr: &Expr| {
            let column = plain_column(expr, &columns);
            column.is_some_and(|column| self.windows.is_some_and(|windows| windows.is_edge(column)))
        };
        let by_time = called.params.order_by.first().filter(|sort| sort.asc).and_then(|sort| {
            let time = self.time_of_rows()?;
            plain_column(&sort.expr, &columns).filter(|column| *column == time.column)
        });
        by_time.is_some() && !called.params.partition_by.iter().any(is_edge)
    }
}

impl Translator<'_> {
    /// Stream with the values of window functions over the rows before each.
    pub(crate) fn over_rows(&mut self, flow: &Flow, window: &Window) -> Result<Flow> {
        flow.check_sent_once("a window function")?;
        let planned = window.input.schema();
        let called = window.window_expr.iter().map(window_function).collect::<Result<Vec<_>>>()?;
        let first =
            *called.first().ok_or_else(|| Error::Internal("a window without functions".to_owned()))?;
        if first.params.order_by.is_empty() {
            return Err(not_in_order());
        }
        let read_by = called.iter().flat_map(|called| &called.params.args);
        flow.check_edges(read_by.chain(&first.params.partition_by), planned)?;
        let stored = storage(flow.stream.columns());
        let mut read = Read::of(flow, Columns { planned, stored: &stored });
        let width = flow.stream.columns().len();
        let names = window.schema.fields().iter().skip(planned.fields().len()).map(|field| field.name());
        let mut functions = Vec::with_capacity(called.len());
        for ((called, expr), name) in called.iter().zip(&window.window_expr).zip(names) {
            functions.push(self.row_function(called, expr, name, &read.columns)?);
        }
        let time = flow.time_of_rows().filter(|_| flow.is_over_rows(first, planned));
        let time = time.ok_or_else(not_in_order)?;
        let partition: Vec<usize> =
            first.params.partition_by.iter().map(|expr| read.column(self, expr)).collect::<Result<_>>()?;
        let mut order = Vec::with_capacity(first.params.order_by.len());
        for sort in &first.params.order_by {
            let column = read.column(self, &sort.expr)?;
            order.push(RankOrder { column, descending: !sort.asc, nulls_first: sort.nulls_first });
        }
        let described = describe(&called, &functions);
        let state_table = self.state_table_of(&LogicalPlan::Window(window.clone()), &described);
        // No row is late that comes behind the watermark of another operator.
        let late = self.step.and_then(|step| step.late.table.clone());
        let late = late.filter(|_| !self.aggregates && time.lateness != Duration::MAX);
        self.ranking.is_there = true;
        let all = flow.with_times(time.column).stream.project(read.computed).over_rows(RowWindows {
            functions,
            partition,
            order,
            time: time.column,
            lateness: time.lateness,
            future_limit: time.future_limit,
            state_table,
            late: late.map(|table| (table, (0..width).collect())),
            partitions_in_dram: GROUPS_IN_DRAM_MAX,
        });
        // One that was refused has no columns of values; the topology says why when it is built.
        let behind = all.columns().len().saturating_sub(called.len());
        let projected = (0..width).chain(behind..all.columns().len()).map(|from| -> ComputedColumn {
            let mut column = all.columns()[from].clone();
            if let Some(before) = flow.stream.columns().get(from) {
                column.name.clone_from(&before.name);
            }
            (column, Box::new(ColumnExpression(from)))
        });
        let stream = all.project(projected.collect());
        Ok(Flow { stream, windows: None, event_time: Some(in_order(time)), replaced: None })
    }

    /// Window function of an operator.
    fn row_function(
        &self,
        called: &WindowFunction,
        expr: &Expr,
        name: &str,
        columns: &Columns<'_>,
    ) -> Result<RowFunction> {
        let found = expr.get_type(columns.planned)?;
        let data_type = column_type(&found)
            .ok_or_else(|| Error::unsupported(format!("{expr} of type {found} in a stream")))?;
        let function = match &called.fun {
            WindowFunctionDefinition::AggregateUDF(function) => {
                return self.aggregate_of_rows(function, called, (name, data_type), columns);
            }
            WindowFunctionDefinition::WindowUDF(function) => function.name().to_owned(),
        };
        if called.params.null_treatment == Some(NullTreatment::IgnoreNulls) {
            return Err(Error::unsupported(format!(
                "{function}() IGNORE NULLS over a stream: the row that has a value may be any before"
            )));
        }
        let kind = match function.as_str() {
            "row_number" => RowFunctionKind::RowNumber,
            "rank" => RowFunctionKind::Rank,
            "dense_rank" => RowFunctionKind::DenseRank,
            "lag" => lag(called, data_type)?,
            "first_value" => RowFunctionKind::First,
            "last_value" => RowFunctionKind::Last,
            "nth_value" => {
                RowFunctionKind::Nth(number_of_rows(called, called.params.args.get(1))?.unwrap_or(1))
            }
            "lead" => return Err(behind("lead()")),
            other => {
                return Err(Error::unsupported(format!(
                    "window function {other}() over a stream: there are row_number(), rank(), dense_rank(), lag(), first_value(), \
                     last_value(), nth_value() and aggregates"
                )));
            }
        };
        let counts =
            matches!(kind, RowFunctionKind::RowNumber | RowFunctionKind::Rank | RowFunctionKind::DenseRank);
        let data_type = if counts { DataType::BigInt } else { data_type };
        let has_frame = !counts && !matches!(kind, RowFunctionKind::Lag { .. });
        let frame = if has_frame { frame_of(&called.params.window_frame)? } else { CURRENT };
        if matches!(kind, RowFunctionKind::Nth(_)) && frame.start == FrameBound::Unbounded {
            return Err(Error::unsupported(
                "nth_value() over a stream FROM UNBOUNDED PRECEDING: bound the frame, as in ROWS 9 PRECEDING",
            ));
        }
        let mut arguments: Vec<Box<dyn Expression>> = Vec::new();
        if let Some(argument) = called.params.args.first().filter(|_| !counts) {
            let result = arrow_type(data_type, "UTC");
            arguments.push(Box::new(columns.expression(&self.planned.state, argument, &result)?));
        }
        Ok(RowFunction { column: Column::new(name, data_type), kind, arguments, frame })
    }

    /// Aggregate of the rows of a frame.
    fn aggregate_of_rows(
        &self,
        function: &Arc<AggregateUDF>,
        called: &WindowFunction,
        (name, data_type): (&str, DataType),
        columns: &Columns<'_>,
    ) -> Result<RowFunction> {
        let params = AggregateFunctionParams {
            args: called.params.args.clone(),
            distinct: called.params.distinct,
            filter: called.params.filter.clone(),
            order_by: Vec::new(),
            null_treatment: called.params.null_treatment,
        };
        let (function, read) =
            datafusion_function(function, &params, columns, &arrow_type(data_type, "UTC"))?;
        let frame = frame_of(&called.params.window_frame)?;
        if frame.start == FrameBound::Unbounded && function.holds_values() {
            return Err(Error::unsupported(format!(
                "{} over a stream FROM UNBOUNDED PRECEDING, which goes on from all values so far: bound the frame, as in ROWS 9 \
                 PRECEDING or RANGE INTERVAL '1 hour' PRECEDING",
                function.name()
            )));
        }
        let mut arguments: Vec<Box<dyn Expression>> = Vec::with_capacity(read.len());
        for argument in &read {
            let wanted = argument.get_type(columns.planned)?;
            arguments.push(Box::new(columns.expression(&self.planned.state, argument, &wanted)?));
        }
        let kind = RowFunctionKind::Aggregate(Arc::new(SharedFunction(Arc::new(function))));
        Ok(RowFunction { column: Column::new(name, data_type), kind, arguments, frame })
    }
}

/// Refusal of rows in another order than that of time.
fn not_in_order() -> Error {
    Error::unsupported(
        "a window function over a stream, other than ORDER BY the event time, ascending, and PARTITION BY other columns than the \
         edges of windows: rows are taken in that order once; or a ranking, row_number() with a bound on it in WHERE",
    )
}

/// Refusal of a function or frame that reads rows behind the current one.
fn behind(what: &str) -> Error {
    Error::unsupported(format!(
        "{what} over a stream: a row is sent when the watermark has passed it, and there may never be a next one in its partition; \
         lag() and PRECEDING read those before"
    ))
}

fn lag(called: &WindowFunction, data_type: DataType) -> Result<RowFunctionKind> {
    let offset = number_of_rows(called, called.params.args.get(1))?.unwrap_or(1);
    let default = called.params.args.get(2).map(|default| -> Result<ArrayRef> {
        let Expr::Literal(value, _) = uncast(default) else {
            return Err(Error::unsupported(format!("lag(value, {offset}, {default}): a literal as default")));
        };
        Ok(value.cast_to(&arrow_type(data_type, "UTC"))?.to_array()?)
    });
    Ok(RowFunctionKind::Lag { offset, default: default.transpose()? })
}

/// Number of rows that is an argument.
fn number_of_rows(called: &WindowFunction, argument: Option<&Expr>) -> Result<Option<usize>> {
    let Some(argument) = argument else { return Ok(None) };
    let name = called.fun.name();
    let number = integer(argument).ok_or_else(|| {
        Error::unsupported(format!("{name}(value, {argument}) over a stream: a literal number of rows"))
    })?;
    if number < 0 {
        return Err(behind(&format!("{name}(value, {number})")));
    }
    check_rows(number as u64, name).map(Some)
}

fn check_rows(rows: u64, of: &str) -> Result<usize> {
    let checked = usize::try_from(rows).ok().filter(|rows| *rows <= PRECEDING_ROWS_MAX);
    checked.ok_or_else(|| {
        Error::unsupported(format!(
            "{of} over a stream of {rows} rows before another: at most {PRECEDING_ROWS_MAX} of each partition are stored"
        ))
    })
}

/// Frame of an operator.
fn frame_of(frame: &WindowFrame) -> Result<RowFrame> {
    let units = frame.units;
    if units == WindowFrameUnits::Groups {
        return Err(Error::unsupported("a frame of GROUPS over a stream: there are ROWS and RANGE"));
    }
    let bound = |bound: &WindowFrameBound| -> Result<FrameBound> {
        match bound {
            WindowFrameBound::Preceding(value) if value.is_null() => Ok(FrameBound::Unbounded),
            WindowFrameBound::Preceding(value) if units == WindowFrameUnits::Rows => {
                let rows =
                    integer(&Expr::Literal(value.clone(), None)).and_then(|rows| u64::try_from(rows).ok());
                let rows = rows.ok_or_else(|| Error::unsupported(format!("ROWS {value} PRECEDING")))?;
                Ok(FrameBound::Rows(check_rows(rows, "a frame")?))
            }
            WindowFrameBound::Preceding(value) => Ok(FrameBound::Time(microseconds(value)?)),
            WindowFrameBound::CurrentRow if units == WindowFrameUnits::Rows => Ok(FrameBound::Rows(0)),
            WindowFrameBound::CurrentRow => Ok(FrameBound::Peers),
            WindowFrameBound::Following(_) => Err(behind("FOLLOWING in a frame")),
        }
    };
    let frame = RowFrame { start: bound(&frame.start_bound)?, end: bound(&frame.end_bound)? };
    let is_current = matches!(frame.end, FrameBound::Rows(0) | FrameBound::Peers);
    if frame.start == FrameBound::Unbounded && !is_current {
        return Err(Error::unsupported(
            "a frame over a stream BETWEEN UNBOUNDED PRECEDING AND anything but CURRENT ROW",
        ));
    }
    Ok(frame)
}

/// Microseconds of the interval of a RANGE.
fn microseconds(value: &ScalarValue) -> Result<i64> {
    let wrong = || {
        Error::unsupported(format!(
            "RANGE {value} PRECEDING over a stream: an INTERVAL of a fixed length that is not negative, without months"
        ))
    };
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = value else { return Err(wrong()) };
    let days = i64::from(interval.days).checked_mul(86_400_000_000).ok_or_else(wrong)?;
    let micros = days.checked_add(interval.nanoseconds / 1000).ok_or_else(wrong)?;
    if interval.months != 0 || micros < 0 {
        return Err(wrong());
    }
    Ok(micros)
}

/// Text for EXPLAIN.
fn describe(called: &[&WindowFunction], functions: &[RowFunction]) -> String {
    let names: Vec<String> = called.iter().map(|called| format!("{}()", called.fun.name())).collect();
    let (mut rows, mut time, mut is_unbounded) = (0, None, false);
    for function in functions {
        match (&function.kind, function.frame.start) {
            (RowFunctionKind::Lag { offset, .. }, _) => rows = rows.max(*offset),
            (RowFunctionKind::RowNumber | RowFunctionKind::Rank | RowFunctionKind::DenseRank, _)
            | (_, FrameBound::Unbounded) => is_unbounded = true,
            (_, FrameBound::Rows(before)) => rows = rows.max(before),
            (_, FrameBound::Time(us)) => time = time.max(Some(us)),
            (_, FrameBound::Peers) => {}
        }
    }
    let mut stored = Vec::new();
    if rows > 0 {
        stored.push(format!("the last {rows} rows"));
    }
    if let Some(us) = time {
        stored.push(format!("the rows of {} s", Duration::from_micros(us.unsigned_abs()).as_secs_f64()));
    }
    if is_unbounded {
        stored.push("what goes on from its first row".to_owned());
    }
    let stored = if stored.is_empty() { "nothing".to_owned() } else { stored.join(", ") };
    format!(
        "{} over rows, stored of each partition: {stored}; sent in the order of event time",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::IntervalMonthDayNano;

    #[test]
    fn frames_are_of_the_rows_before() {
        let rows = |start: WindowFrameBound, end: WindowFrameBound| {
            frame_of(&WindowFrame::new_bounds(WindowFrameUnits::Rows, start, end))
        };
        let preceding = |rows: u64| WindowFrameBound::Preceding(ScalarValue::UInt64(Some(rows)));
        let unbounded = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
        let frame = rows(preceding(9), WindowFrameBound::CurrentRow).unwrap();
        assert_eq!(frame, RowFrame { start: FrameBound::Rows(9), end: FrameBound::Rows(0) });
        let frame = rows(unbounded.clone(), WindowFrameBound::CurrentRow).unwrap();
        assert_eq!(frame.start, FrameBound::Unbounded);
        for (start, end, expected) in [
            (preceding(20_000), WindowFrameBound::CurrentRow, "at most 10000"),
            (unbounded, preceding(1), "anything but CURRENT ROW"),
            (
                preceding(1),
                WindowFrameBound::Following(ScalarValue::UInt64(Some(1))),
                "may never be a next one",
            ),
        ] {
            let error = rows(start, end).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let interval = |months, days, nanoseconds| {
            microseconds(&ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(
                months,
                days,
                nanoseconds,
            ))))
        };
        assert_eq!(interval(0, 1, 2_000_000).unwrap(), 86_400_002_000);
        for (months, days, nanoseconds) in [(1, 0, 0), (0, -1, 0), (0, 0, -5_000)] {
            assert!(interval(months, days, nanoseconds).is_err());
        }
    }
}
