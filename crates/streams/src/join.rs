//! Joins of two streams, mostly bounded in time.

use crate::UTC;
use crate::expression::Expression;
use crate::graph::{OperatorArguments, Writer};
use crate::operators::join_bounds::JoinBounds;
use crate::operators::join_state::{JoinKeys, JoinState, LEFT, RIGHT};
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::stream_join::{JoinTimes, StreamJoinOperator};
use crate::operators::window::{TimeWindow, WindowKind, WindowSpan};
use crate::operators::window_aggregate::SourceTimes;
use crate::positions::JOIN_SIDES;
use crate::ranking::free_name;
use crate::stream::Stream;
use crate::windowed::edge_type_of;
use entresol_tables::{Column, DataType, Schema, arrow_schema};
use std::time::Duration;

/// Join of two streams by equal keys, within some time of each other.
pub struct StreamJoin {
    /// Sides, left and right, whose tuples without partner are sent too, with NULLs.
    pub preserved: [bool; 2],
    /// Table of the tuples that are buffered, which only this operator may write.
    pub state_table: String,
    /// Side of the stream that [`Stream::join`] is called on.
    pub left: JoinSide,
    /// Side of the other stream.
    pub right: JoinSide,
    /// Least and greatest difference of the times of partners, right minus left, in microseconds; none where there is no
    /// bound. The times are those of the windows' edges if the sides have some, which are equal.
    pub bounds_us: (Option<i64>, Option<i64>),
    /// Condition over the columns of the left and then of the right stream; a partner is one for which it is true.
    pub condition: Option<Box<dyn Expression>>,
}

/// Side of a join of two streams.
pub struct JoinSide {
    /// Expressions over the columns of the stream that equal those of the other side, of the same types.
    pub keys: Vec<Box<dyn Expression>>,
    /// Column of the event time: TIMESTAMP, or BIGINT in microseconds.
    pub time: usize,
    /// Windows that are joined, instead of times; of the same kind on both sides.
    pub edge: Option<WindowEdge>,
    /// Allowed lateness: a tuple that is behind the greatest event time by no more than this is not late. With
    /// [`Duration::MAX`] only watermark punctuations make tuples late.
    pub lateness: Duration,
    /// Maximum time ahead of the clock of an event time that moves the watermark.
    pub future_limit: Duration,
    /// Expression over the columns of the stream of the last time of a tuple's partners, TIMESTAMP; NULL if it has none.
    pub last: Option<Box<dyn Expression>>,
}

/// Edge of windows that is equal on both sides of a join.
#[derive(Debug, Clone, Copy)]
pub struct WindowEdge {
    /// Its column: the start or the end, of cumulating windows the end.
    pub column: usize,
    /// True if it is the end.
    pub is_end: bool,
    /// Kind of the windows.
    pub kind: WindowKind,
    /// True if the tuples are results of the windows, whose time is the start.
    pub is_of_results: bool,
}

impl JoinSide {
    /// Windows of which the join time of a row is an edge; of event times those of a microsecond, the least there are.
    pub(crate) fn span(&self) -> Result<WindowSpan, String> {
        let kind = self.edge.map(|edge| edge.kind);
        let kind = kind.unwrap_or(WindowKind::Tumbling { size: Duration::from_micros(1) });
        let mut window =
            TimeWindow::of_kind("", kind).lateness(self.lateness).future_limit(self.future_limit);
        window.is_of_results = self.edge.is_some_and(|edge| edge.is_of_results);
        window.span()
    }

    pub(crate) fn check(&self, stream: &Stream) -> Result<(), String> {
        for index in [Some(self.time), self.edge.map(|edge| edge.column)].into_iter().flatten() {
            let column = stream.columns.get(index).ok_or_else(|| format!("there is no column {index}"))?;
            edge_type_of(column.data_type)
                .ok_or_else(|| format!("column {} is not a time: {}", column.name, column.data_type))?;
        }
        Ok(())
    }
}

impl Stream {
    /// Joins the tuples of both streams: the columns of this stream, then those of the other. A tuple is buffered until the
    /// watermark of the other side says that no partner comes any more, for ever if there is no bound; late ones are counted
    /// and dropped. Streams whose tuples are taken back have [`Stream::regular_join`].
    pub fn join(&self, other: &Stream, join: StreamJoin) -> Stream {
        self.check_appended("a join");
        other.check_appended("a join");
        let table = join.state_table.clone();
        match self.try_join(other, join) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("join with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    /// Columns of a join of both streams: those of a side may be NULL if a tuple of the other may be without partner.
    pub(crate) fn joined_columns(&self, other: &Stream, preserved: [bool; 2]) -> Vec<Column> {
        let [left_is, right_is] = preserved;
        let of = |stream: &Stream, may_miss: bool| {
            let columns = stream.columns.iter().cloned();
            let nullable = |column: Column| Column { nullable: column.nullable || may_miss, ..column };
            columns.map(nullable).collect::<Vec<Column>>()
        };
        [of(self, right_is), of(other, left_is)].concat()
    }

    fn try_join(&self, other: &Stream, join: StreamJoin) -> Result<Stream, String> {
        let StreamJoin { preserved, state_table, left, right, bounds_us, condition } = join;
        left.check(self)?;
        right.check(other)?;
        let windows = |side: &JoinSide| side.edge.map(|edge| (edge.kind, edge.is_end));
        if windows(&left) != windows(&right) || left.keys.len() != right.keys.len() {
            return Err("the sides have different windows or numbers of keys".to_owned());
        }
        let spans = [left.span()?, right.span()?];
        let is_of_windows = left.edge.is_some();
        let bounds = JoinBounds { difference_us: bounds_us, last: [left.last, right.last] };
        check_bounds(preserved, &bounds, is_of_windows)?;
        self.plan_state(&state_table, self.joined_state(other)?)?;
        let columns = self.joined_columns(other, preserved);
        let (schema, table, width) = (arrow_schema(&columns, UTC), state_table.clone(), self.columns.len());
        let mut joined = self.add(format!("join {table}"), columns.into(), move |made| {
            let name = made.name.to_owned();
            let columns = [(left.time, left.edge), (right.time, right.edge)];
            let times = |side: usize| times_of_side(made, &table, side, columns[side], spans[side]);
            let times = [times(LEFT), times(RIGHT)];
            let memory = made.memory;
            let keys = JoinKeys::new(left.keys, right.keys);
            let state =
                JoinState::new(name.clone(), made.catalog.table(&table)?, width, keys, bounds, memory)?;
            Ok(Box::new(StreamJoinOperator { name, preserved, times, condition, state, schema }))
        });
        let mut graph = self.graph.borrow_mut();
        graph.nodes[joined.node].inputs = vec![self.node, other.node];
        graph.writers.push(Writer { table: state_table, node: joined.node, is_to_table: false });
        drop(graph);
        joined.from_sources = false;
        Ok(joined)
    }

    /// Schema of the table of buffered tuples.
    pub(crate) fn joined_state(&self, other: &Stream) -> Result<Schema, String> {
        let mut columns = vec![
            Column::new("side", DataType::SmallInt).not_null(),
            Column::new("at", DataType::Timestamp).not_null(),
            Column::new("number", DataType::BigInt).not_null(),
            Column::new("matched", DataType::Boolean).not_null(),
        ];
        self.add_both_sides(other, &mut columns);
        Schema::new(columns, &["side", "at", "number"]).map_err(|error| error.to_string())
    }

    /// Adds the columns of this stream and then those of another one to those of a state table, under free names.
    pub(crate) fn add_both_sides(&self, other: &Stream, columns: &mut Vec<Column>) {
        self.add_side("left", columns);
        other.add_side("right", columns);
    }

    /// Adds the columns of a stream to those of a state table.
    pub(crate) fn add_side(&self, side: &str, columns: &mut Vec<Column>) {
        for column in self.columns.iter() {
            let name = free_name(&format!("{side}_{}", column.name), columns);
            columns.push(Column { nullable: true, ..Column::new(name, column.data_type) });
        }
    }
}

/// Checks the bounds of a join.
fn check_bounds(preserved: [bool; 2], bounds: &JoinBounds, is_of_windows: bool) -> Result<(), String> {
    if let (Some(least), Some(greatest)) = bounds.difference_us
        && least > greatest
    {
        return Err(format!("partners within {least} to {greatest} us of each other"));
    }
    let has_others = bounds.last.iter().any(Option::is_some) || bounds.difference_us != (Some(0), Some(0));
    if is_of_windows && has_others {
        return Err("partners that are not of the same window, in a join of windows".to_owned());
    }
    for (side, name) in [(LEFT, "left"), (RIGHT, "right")] {
        if preserved[side] && bounds.is_unbounded(side) {
            return Err(format!("{name} tuples may always get a partner: none is known to have no partner"));
        }
    }
    Ok(())
}

/// Times of a side whose rows are from one of the inputs of an operator.
pub(crate) fn times_of_side(
    made: &OperatorArguments<'_>,
    table: &str,
    side: usize,
    (time, edge): (usize, Option<WindowEdge>),
    span: WindowSpan,
) -> JoinTimes {
    let operator = format!("{table}{}", JOIN_SIDES[usize::from(side != LEFT)]);
    let is_by_start = !edge.is_some_and(|edge| matches!(edge.kind, WindowKind::Cumulating { .. }));
    JoinTimes {
        time,
        join_time: edge.map_or(time, |edge| edge.column),
        span,
        is_end: is_by_start && edge.is_some_and(|edge| edge.is_end),
        progress: SourceTimes::new(made.sources_of_inputs.get(side).copied().unwrap_or_default()),
        watermark: StoredWatermark::new(made.watermarks, made.topology, &operator),
        ended: (false, false),
    }
}
