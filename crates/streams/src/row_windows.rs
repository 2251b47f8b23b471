//! Window functions over the rows before each row of a stream, as `sum(x) OVER (PARTITION BY ... ORDER BY time ROWS
//! ...)`.

use crate::Expression;
use crate::UTC;
use crate::graph::Writer;
use crate::operators::Operator;
use crate::operators::group_states::AggregateFunction;
use crate::operators::rank_state::frames::FrameRows;
use crate::operators::rank_state::{RankLayout, RankState};
use crate::operators::ranking::RankOperator;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window_aggregate::SourceTimes;
use crate::ranking::{RankChanges, RankEmission, RankFunction, RankOrder, Ranking, free_name};
use crate::stream::Stream;
use arrow_array::ArrayRef;
use entresol_tables::{Column, DataType, Schema, arrow_schema};
use std::sync::Arc;
use std::time::Duration;

/// Maximum of the rows before another that a window function reads: so many rows of each partition are its state.
pub const PRECEDING_ROWS_MAX: usize = 10_000;
/// Maximum of the rows of a partition within the time that a frame reaches back.
pub const RANGE_ROWS_MAX: usize = 100_000;

/// Window functions over the rows of a stream in the order of event time; see [`Stream::over_rows`].
pub struct RowWindows {
    /// Functions, each of which adds a column.
    pub functions: Vec<RowFunction>,
    /// Columns with equal values in the rows of a partition, which must not be NULL.
    pub partition: Vec<usize>,
    /// Columns that order the rows of a partition: the event time, ascending, and others behind it. Equal rows are in
    /// the order in which they came.
    pub order: Vec<RankOrder>,
    /// Column of the event time.
    pub time: usize,
    /// Allowed lateness.
    pub lateness: Duration,
    /// Maximum time ahead of the clock of an event time that moves the watermark.
    pub future_limit: Duration,
    /// Table of the rows that wait for the watermark or that frames reach back to, which only this operator may write.
    pub state_table: String,
    /// Table of late rows, and the columns that it gets.
    pub late: Option<(String, Vec<usize>)>,
    /// Maximum of partitions that are cached in DRAM, at least 1.
    pub partitions_in_dram: usize,
}

/// Window function, and its column.
pub struct RowFunction {
    /// Column of its values.
    pub column: Column,
    /// Function.
    pub kind: RowFunctionKind,
    /// Arguments: one of functions of a row, those of [`AggregateFunction`] of aggregates.
    pub arguments: Vec<Box<dyn Expression>>,
    /// Rows that it is over; functions that count rows have none.
    pub frame: RowFrame,
}

/// Kind of a window function.
#[derive(Debug)]
pub enum RowFunctionKind {
    /// Number of the row in its partition.
    RowNumber,
    /// Number of the first row that is equal in the order.
    Rank,
    /// Number of the different values of the order up to the row's.
    DenseRank,
    /// Value of the row so many rows before.
    Lag {
        /// Number of rows.
        offset: usize,
        /// Value where there is none, an array of one; NULL without it.
        default: Option<ArrayRef>,
    },
    /// Value of the first row of the frame.
    First,
    /// Value of the last row of the frame.
    Last,
    /// Value of the row of the frame with this number, from 1.
    Nth(usize),
    /// Aggregate of the rows of the frame.
    Aggregate(Arc<dyn AggregateFunction>),
}

/// Frame: rows from one bound to another, neither of which is behind the current row and those equal to it in the
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowFrame {
    /// First row.
    pub start: FrameBound,
    /// Last row.
    pub end: FrameBound,
}

/// Bound of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameBound {
    /// First row of the partition.
    Unbounded,
    /// Row so many rows before the current one.
    Rows(usize),
    /// Rows that are up to so many microseconds earlier than the current one.
    Time(i64),
    /// Rows that are equal to the current one in the order.
    Peers,
}

impl RowFunction {
    fn check(&self) -> Result<(), String> {
        let name = &self.column.name;
        let frame = self.frame;
        let rows = [frame.start, frame.end].into_iter().map(|bound| match bound {
            FrameBound::Rows(rows) => rows,
            FrameBound::Unbounded | FrameBound::Time(_) | FrameBound::Peers => 0,
        });
        let of_kind = match self.kind {
            RowFunctionKind::Lag { offset, .. } => offset,
            _ => 0,
        };
        if let Some(found) = rows.chain([of_kind]).find(|rows| *rows > PRECEDING_ROWS_MAX) {
            return Err(format!("{name} reads {found} rows before another, at most {PRECEDING_ROWS_MAX}"));
        }
        if matches!(self.kind, RowFunctionKind::Nth(0)) {
            return Err(format!("{name} is of row 0 of its frame, of which the first is 1"));
        }
        if frame.end == FrameBound::Unbounded {
            return Err(format!("the frame of {name} ends with the first row of the partition"));
        }
        let is_current = matches!(frame.end, FrameBound::Rows(0) | FrameBound::Peers);
        if frame.start == FrameBound::Unbounded && self.has_frame() && !is_current {
            return Err(format!("the frame of {name} has no beginning, and ends before the current row"));
        }
        match self.kind {
            RowFunctionKind::Nth(_) if frame.start == FrameBound::Unbounded => {
                Err(format!("{name} is of a row of a frame without a beginning"))
            }
            _ => Ok(()),
        }
    }

    /// Tells whether its values depend on the frame.
    fn has_frame(&self) -> bool {
        use RowFunctionKind::{Aggregate, DenseRank, First, Lag, Last, Nth, Rank, RowNumber};
        match self.kind {
            First | Last | Nth(_) | Aggregate(_) => true,
            RowNumber | Rank | DenseRank | Lag { .. } => false,
        }
    }

    /// Columns of the state that it carries on from row to row.
    fn carried(&self) -> Vec<Column> {
        let is_unbounded = self.frame.start == FrameBound::Unbounded;
        let named = |column: Column| Column { nullable: true, ..column };
        match &self.kind {
            RowFunctionKind::RowNumber | RowFunctionKind::Rank | RowFunctionKind::DenseRank => {
                vec![named(Column::new("count", DataType::BigInt))]
            }
            RowFunctionKind::First if is_unbounded => {
                vec![named(Column { name: "first".to_owned(), ..self.column.clone() })]
            }
            RowFunctionKind::Aggregate(function) if is_unbounded => {
                function.state_columns().into_iter().map(named).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Number of rows before another that it reads, and time.
    fn reach(&self) -> (usize, Option<i64>) {
        match (&self.kind, self.frame.start) {
            (RowFunctionKind::Lag { offset, .. }, _) => (*offset, None),
            _ if !self.has_frame() => (0, None),
            (_, FrameBound::Rows(rows)) => (rows, None),
            (_, FrameBound::Time(us)) => (0, Some(us)),
            (_, FrameBound::Unbounded | FrameBound::Peers) => (0, None),
        }
    }
}

impl RowWindows {
    /// Rows that stay for later ones, in a state table with these columns before.
    fn frame_rows(&self, stream: &Stream, before: &[Column]) -> FrameRows {
        let reach = self.functions.iter().map(RowFunction::reach);
        let (rows, times): (Vec<usize>, Vec<Option<i64>>) = reach.unzip();
        let mut carried: Vec<Column> = Vec::new();
        for column in self.functions.iter().flat_map(RowFunction::carried) {
            let known: Vec<Column> = before.iter().chain(&carried).cloned().collect();
            carried.push(Column { name: free_name(&column.name, &known), ..column });
        }
        // The last row has what is carried on.
        let least = usize::from(!carried.is_empty());
        let rows = rows.into_iter().max().unwrap_or(0).max(least);
        let range_us = times.into_iter().flatten().max();
        FrameRows { rows, range_us, carried, columns: stream.columns().to_vec() }
    }

    /// Ranking of the same rows by their numbers, which has the same state but for what is carried on.
    fn ranking(&self) -> Ranking {
        Ranking {
            function: RankFunction::RowNumber,
            partition: self.partition.clone(),
            order: self.order.clone(),
            limit: None,
            changes: RankChanges::OfRanks,
            emission: RankEmission::EventTime {
                time: self.time,
                lateness: self.lateness,
                future_limit: self.future_limit,
            },
            rank_column: String::new(),
            state_table: self.state_table.clone(),
            late: self.late.clone(),
            partitions_in_dram: self.partitions_in_dram,
        }
    }
}

impl Stream {
    /// Adds the values of window functions over the rows before each row. Rows are sent once, in the order of event
    /// time, when the watermark has passed them; late rows are counted, and dropped or stored.
    pub fn over_rows(&self, windows: RowWindows) -> Stream {
        self.check_appended("window functions over rows");
        let table = windows.state_table.clone();
        match self.try_over_rows(windows) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("window functions with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    fn try_over_rows(&self, windows: RowWindows) -> Result<Stream, String> {
        let ranking = windows.ranking();
        ranking.check_columns(self)?;
        windows.functions.iter().try_for_each(RowFunction::check)?;
        if windows.functions.is_empty() {
            return Err("there are no functions".to_owned());
        }
        let times = ranking.times(self)?;
        let (mut stored, key) = ranking.state_columns(self);
        let frames = windows.frame_rows(self, &stored);
        stored.extend(frames.carried.iter().cloned());
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        let state = Schema::new(stored, &key).map_err(|error| error.to_string())?;
        self.plan_state(&windows.state_table, state)?;
        let late = self.plan_late_rows(windows.late.as_ref())?;
        let added = windows.functions.iter().map(|function| function.column.clone());
        let columns: Vec<Column> = self.columns.iter().cloned().chain(added).collect();
        let (schema, table) = (arrow_schema(&columns, UTC), windows.state_table.clone());
        let layout = RankLayout { frames: Some(frames), ..ranking.layout(self) };
        let functions = windows.functions;
        let over = self.add(format!("over rows {table}"), columns.into(), move |made| {
            let name = made.name.to_owned();
            let memory = made.memory_of_caches.as_ref();
            let state = RankState::new(name.clone(), made.catalog.table(&table)?, layout, times, memory)?;
            let watermark = StoredWatermark::new(made.watermarks, made.topology, &table);
            let progress = SourceTimes::new(made.sources);
            let late = late.map(|late| late.operator(made, &name)).transpose()?;
            Ok(Box::new(RankOperator { name, times, state, functions, watermark, progress, schema, late })
                as Box<dyn Operator>)
        });
        let writer = Writer { table: windows.state_table, node: over.node, is_to_table: false };
        self.graph.borrow_mut().writers.push(writer);
        Ok(over)
    }
}
