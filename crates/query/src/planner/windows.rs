//! Windows over tables, views and subqueries: `TUMBLE`, `HOP`, `CUMULATE` and `SESSION` in FROM of any query.
//!
//! ```text
//! TUMBLE(t, at, size)         (SELECT *, tumble_start(at, size) AS window_start, ..._end ... FROM t) AS t
//! HOP(t, at, slide, size)     (SELECT *, unnest(hop_starts(at, slide, size)) AS window_start, ... FROM t) AS t
//! CUMULATE(t, at, step, size) likewise
//! SESSION(t, at, gap)         (SELECT *, session_start(at, gap) AS window_start, ... FROM t) AS t
//! ```
//!
//! Windows are those of a stream: aligned to the epoch, with each row once for each of its windows, and a row whose time is
//! NULL once, with edges that are NULL. So a statement of a topology gives the same over a table with the rows of its
//! source. The edges of sessions are marks, which the aggregate above them replaces ([`crate::planner::rules::sessions`]).
//!
//! Columns of a table that are named as the edges are hidden by them, so that results of windows may be put into larger
//! windows: `TUMBLE(per_minute, window_start, INTERVAL '1 hour')`.

use crate::error::{Error, Result, external};
use crate::parser::names::{identifier, table_name};
use crate::parser::statement::inner_mut;
use crate::parser::visit::walk_mut;
use crate::parser::windows::{WINDOW_END, WINDOW_START, WindowCall, open_session};
use crate::planner::translation::first_factor;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, TableAlias, TableFactor, VisitorMut,
};
use entresol_streams::{EventTime, TimeWindow, WindowAssigner, WindowKind};
use entresol_tables::{Catalog, RelationKind, Table};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Functions of the edges of sessions, which have no values of their own.
pub(crate) const SESSION_START: &str = "session_start";
pub(crate) const SESSION_END: &str = "session_end";

/// Rewrites the windows of a statement.
pub(crate) fn resolve(catalog: &Catalog, statement: &mut DFStatement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    match walk_mut(statement, &mut Windows { catalog, named: Vec::new() }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Windows<'c> {
    catalog: &'c Catalog,
    /// Names of queries in WITH.
    named: Vec<String>,
}

impl VisitorMut for Windows<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        self.named.extend(named.map(|cte| identifier(&cte.alias.name)));
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.windowed(factor) {
            Ok(None) => {}
            Ok(Some(windowed)) => *factor = windowed,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Windows<'_> {
    /// Subquery of the rows of a relation with the edges of their windows; none for another item of FROM.
    fn windowed(&self, factor: &TableFactor) -> Result<Option<TableFactor>> {
        let TableFactor::Table { name, alias, args: Some(args), .. } = factor else { return Ok(None) };
        let [ObjectNamePart::Identifier(called)] = name.0.as_slice() else { return Ok(None) };
        let called = identifier(called);
        let Some(call) = WindowCall::of(&called, &args.args)? else { return Ok(None) };
        let (relation, shown) = relation_of(call.of, &called)?;
        let columns = match call.of {
            Expr::Subquery(_) => "*".to_owned(),
            name => self.columns(&relation_name(name).unwrap_or_default()),
        };
        let columns = if columns.is_empty() { columns } else { columns + ", " };
        let [start, end] = edges_of(&call);
        let query = format!(
            "SELECT 1 FROM (SELECT {columns}{start} AS {WINDOW_START}, {end} AS {WINDOW_END} FROM {relation}) AS {shown}"
        );
        let Some(mut derived) = first_factor(&query) else {
            return Err(Error::Internal(format!("{query} is not a query")));
        };
        if let (TableFactor::Derived { alias: named, .. }, Some(alias)) = (&mut derived, alias) {
            *named = Some(TableAlias { explicit: true, ..alias.clone() });
        }
        Ok(Some(derived))
    }

    /// Columns of a relation without those that have the names of edges; all of them by a wildcard if none has.
    fn columns(&self, relation: &[&Ident]) -> String {
        let name = ObjectName::from(relation.iter().map(|part| (*part).clone()).collect::<Vec<_>>());
        let columns = match table_name(&name) {
            Ok(name) if relation.len() > 1 || !self.named.contains(&name) => self.columns_of(&name),
            _ => Vec::new(),
        };
        let is_edge = |name: &String| [WINDOW_START, WINDOW_END].contains(&name.as_str());
        if !columns.iter().any(is_edge) {
            return "*".to_owned();
        }
        let others = columns.iter().filter(|name| !is_edge(name));
        let others: Vec<String> = others.map(|name| Ident::with_quote('"', name).to_string()).collect();
        others.join(", ")
    }

    /// Names of the columns of a table or view; none of another relation.
    fn columns_of(&self, name: &str) -> Vec<String> {
        let of_table = |table: Arc<Table>| -> Vec<String> {
            table.schema().visible_columns().iter().map(|column| column.name.clone()).collect()
        };
        match self.catalog.relation_kind(name) {
            Some(RelationKind::Table) => self.catalog.table(name).map(of_table).unwrap_or_default(),
            Some(RelationKind::View) => {
                self.catalog.view(name).map(|view| view.definition().columns.clone()).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}

/// Parts of the name of a relation.
fn relation_name(expr: &Expr) -> Option<Vec<&Ident>> {
    match expr {
        Expr::Identifier(name) => Some(vec![name]),
        Expr::CompoundIdentifier(parts) => Some(parts.iter().collect()),
        _ => None,
    }
}

/// Relation of windows as SQL, and the name that it has without an alias.
fn relation_of(expr: &Expr, called: &str) -> Result<(String, String)> {
    if let Expr::Subquery(query) = expr {
        return Ok((format!("({query}) AS {called}"), called.to_owned()));
    }
    match relation_name(expr).as_deref() {
        Some(parts @ [.., last]) => {
            let name: Vec<String> = parts.iter().map(ToString::to_string).collect();
            Ok((name.join("."), last.to_string()))
        }
        _ => Err(Error::Syntax(format!(
            "syntax error: {}({expr}, ...): expected the name of a relation or a query in parentheses",
            called.to_uppercase()
        ))),
    }
}

/// SQL of the edges of a call's windows.
fn edges_of(call: &WindowCall<'_>) -> [String; 2] {
    let time = Ident::with_quote('"', &call.time).to_string();
    let micros = |time: Duration| format!("INTERVAL '{} microseconds'", time.as_micros());
    let (function, sizes) = match call.kind {
        WindowKind::Tumbling { size } => ("tumble", vec![size]),
        WindowKind::Hopping { slide, size } => ("hop", vec![slide, size]),
        WindowKind::Cumulating { step, size } => ("cumulate", vec![step, size]),
        WindowKind::Session { gap } => ("session", vec![gap]),
    };
    let sizes: Vec<String> = sizes.into_iter().map(micros).collect();
    let called = |edge: &str| format!("{function}_{edge}({time}, {})", sizes.join(", "));
    match call.kind {
        WindowKind::Tumbling { .. } | WindowKind::Session { .. } => [called("start"), called("end")],
        _ => ["starts", "ends"].map(|edge| format!("unnest({})", called(edge))),
    }
}

/// Functions of the edges of windows.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let all = [Edges::Tumble, Edges::Hop, Edges::Cumulate, Edges::Session];
    let both = all.into_iter().flat_map(|windows| [(windows, true), (windows, false)]);
    both.map(|(windows, is_start)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(EdgeFunction { windows, is_start, signature })
    })
    .collect()
}

/// Windows of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Edges {
    Tumble,
    Hop,
    Cumulate,
    Session,
}

/// Function of the edge of the window of a time, or of the list of the edges of its windows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct EdgeFunction {
    windows: Edges,
    is_start: bool,
    signature: Signature,
}

impl EdgeFunction {
    /// Tells whether a time has a list of windows.
    fn is_list(&self) -> bool {
        matches!(self.windows, Edges::Hop | Edges::Cumulate)
    }

    /// Windows of these sizes.
    fn kind(&self, sizes: &[Duration]) -> Option<WindowKind> {
        match (self.windows, sizes) {
            (Edges::Tumble, &[size]) => Some(WindowKind::Tumbling { size }),
            (Edges::Hop, &[slide, size]) => Some(WindowKind::Hopping { slide, size }),
            (Edges::Cumulate, &[step, size]) => Some(WindowKind::Cumulating { step, size }),
            (Edges::Session, &[gap]) => Some(WindowKind::Session { gap }),
            _ => None,
        }
    }

    fn no_such_function(&self, arguments: &[DataType]) -> Error {
        let found: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let name = self.name();
        Error::coded("42883", format!("function {name}({}) does not exist", found.join(", ")))
    }

    /// Edges of the windows of times; `assigner` tells those of one.
    fn of_times(&self, times: &ArrayRef, assigner: WindowAssigner) -> DFResult<ArrayRef> {
        let zone = zone_of(times.data_type());
        let data_type = micros_of(zone.clone());
        let times = cast(times, &data_type)?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let mut found: Vec<Option<i64>> = Vec::with_capacity(times.len());
        let mut lengths: Vec<usize> = Vec::with_capacity(times.len());
        for time in times {
            let before = found.len();
            match time {
                None => found.push(None),
                Some(time) => found.extend(
                    assigner
                        .edges(EventTime::from_micros(time))
                        .map(|(start, end)| Some(if self.is_start { start.micros() } else { end.micros() })),
                ),
            }
            lengths.push(found.len() - before);
        }
        let found: PrimitiveArray<TimestampMicrosecondType> = found.into_iter().collect();
        let found: ArrayRef = Arc::new(found.with_timezone_opt(zone));
        if !self.is_list() {
            return Ok(found);
        }
        let item = Arc::new(Field::new_list_field(data_type, true));
        Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), found, None)?))
    }
}

fn zone_of(data_type: &DataType) -> Option<Arc<str>> {
    match data_type {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    }
}

fn micros_of(zone: Option<Arc<str>>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone)
}

/// Length of an interval of days and less.
pub(crate) fn length_of(interval: IntervalMonthDayNano) -> Option<Duration> {
    const DAY_NANOS: i64 = 86_400_000_000_000;
    let nanos = i64::from(interval.days).checked_mul(DAY_NANOS)?.checked_add(interval.nanoseconds)?;
    let nanos = u64::try_from(nanos).ok().filter(|_| interval.months == 0)?;
    Some(Duration::from_nanos(nanos))
}

impl ScalarUDFImpl for EdgeFunction {
    fn name(&self) -> &str {
        match (self.windows, self.is_start) {
            (Edges::Tumble, true) => "tumble_start",
            (Edges::Tumble, false) => "tumble_end",
            (Edges::Hop, true) => "hop_starts",
            (Edges::Hop, false) => "hop_ends",
            (Edges::Cumulate, true) => "cumulate_starts",
            (Edges::Cumulate, false) => "cumulate_ends",
            (Edges::Session, true) => SESSION_START,
            (Edges::Session, false) => SESSION_END,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let [time, sizes @ ..] = arguments else { return Err(external(self.no_such_function(arguments))) };
        let is_interval = |of: &DataType| matches!(of, DataType::Interval(_));
        let is_known = sizes.len() == if self.is_list() { 2 } else { 1 } && sizes.iter().all(is_interval);
        if !is_known {
            return Err(external(self.no_such_function(arguments)));
        }
        if !matches!(time, DataType::Timestamp(..) | DataType::Null) {
            let message = format!("windows over a time of type {time}: it must be a TIMESTAMP");
            return Err(external(Error::coded("42804", message)));
        }
        let mut coerced = vec![micros_of(zone_of(time))];
        coerced.resize(arguments.len(), DataType::Interval(IntervalUnit::MonthDayNano));
        Ok(coerced)
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        let edge = micros_of(arguments.first().and_then(zone_of));
        Ok(if self.is_list() { DataType::List(Arc::new(Field::new_list_field(edge, true))) } else { edge })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        if self.windows == Edges::Session {
            return Err(external(open_session()));
        }
        let mut sizes = Vec::with_capacity(2);
        for size in arguments.args.iter().skip(1) {
            let length = match size {
                ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(size))) => length_of(*size),
                _ => None,
            };
            let message = "sizes of windows must be constant intervals of days and less";
            sizes.push(length.ok_or_else(|| external(Error::coded("22023", message)))?);
        }
        let types: Vec<DataType> = arguments.args.iter().map(ColumnarValue::data_type).collect();
        let kind = self.kind(&sizes).ok_or_else(|| external(self.no_such_function(&types)))?;
        let assigner = TimeWindow::of_kind("", kind).assigner();
        let assigner = assigner.map_err(|reason| external(Error::coded("22023", reason)))?;
        match &arguments.args[0] {
            ColumnarValue::Array(times) => Ok(ColumnarValue::Array(self.of_times(times, assigner)?)),
            ColumnarValue::Scalar(time) => {
                let found = self.of_times(&time.to_array()?, assigner)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?))
            }
        }
    }
}
