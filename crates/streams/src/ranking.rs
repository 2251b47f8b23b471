//! Ranking: the first rows of each partition in an order, as `row_number() OVER (PARTITION BY ... ORDER BY ...)`.

use crate::UTC;
use crate::graph::{WindowNode, Writer};
use crate::operators::Operator;
use crate::operators::rank_state::{RankLayout, RankState};
use crate::operators::ranking::{RankOperator, RankTimes};
use crate::operators::stored_keys::NULLS;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window::{TimeWindow, WindowSpan};
use crate::operators::window_aggregate::SourceTimes;
use crate::stream::Stream;
use crate::windowed::edge_type_of;
use entresol_tables::{Column, DataType, Schema, arrow_schema};
use std::rc::Rc;
use std::time::Duration;

/// Maximum of the limit of a ranking that is not over windows: so many rows of each partition are its state.
pub const RANK_MAX: usize = 10_000;
/// Column of the state table with the place of a row among those of its partition.
const SLOT: &str = "slot";
/// Column of the state table with the order in which the rows of a partition came.
const ARRIVAL: &str = "arrival";

/// Ranking of the rows of a stream; see [`Stream::rank`].
pub struct Ranking {
    /// Function that numbers the rows.
    pub function: RankFunction,
    /// Columns with equal values in the rows of a partition; over windows the edge of the window is among them.
    pub partition: Vec<usize>,
    /// Columns that order the rows of a partition, the most significant first. Equal rows are in the order in which
    /// they came.
    pub order: Vec<RankOrder>,
    /// Greatest rank that is sent; none sends all rows, which only windows can.
    pub limit: Option<usize>,
    /// Occasion at which ranks are sent.
    pub emission: RankEmission,
    /// Changes that a ranking at the commit sends.
    pub changes: RankChanges,
    /// Name of the column with the rank, which is added to the stream.
    pub rank_column: String,
    /// Table of the rows that are ranked, which only this operator may write.
    pub state_table: String,
    /// Table of late rows, and the columns that it gets.
    pub late: Option<(String, Vec<usize>)>,
    /// Maximum of partitions that are cached in DRAM, at least 1; those of open windows all are.
    pub partitions_in_dram: usize,
}

/// Function that numbers ordered rows, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankFunction {
    /// Number of the row.
    RowNumber,
    /// Number of the first row that is equal in the order.
    Rank,
    /// Number of the different values of the order up to the row's.
    DenseRank,
}

/// Column of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankOrder {
    /// Column of the stream.
    pub column: usize,
    /// True if the greatest value is the first.
    pub descending: bool,
    /// True if NULL comes before all values.
    pub nulls_first: bool,
}

/// Changes that a ranking at the commit sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankChanges {
    /// Ranks that have another row: it is sent, and the one that had the rank is taken back.
    OfRanks,
    /// Rows that are new among the first ones behind so many, or have left them: one that only gets another rank is not sent
    /// again, so the rank is sent as 0. All that are taken back are before the others.
    OfRows {
        /// Count of the first rows that are not sent.
        skipped: usize,
    },
}

/// Occasion at which the ranks of rows are sent.
#[derive(Debug, Clone, Copy)]
pub enum RankEmission {
    /// Closing of a window: the rows of each partition in order, once.
    WindowClose {
        /// Column of the event time: of results of windows their start.
        time: usize,
        /// Edge of the window, which is in the partition.
        edge: crate::WindowEdge,
        /// Allowed lateness.
        lateness: Duration,
        /// Maximum time ahead of the clock of an event time that moves the watermark.
        future_limit: Duration,
    },
    /// Watermark that passes the event time by which the rows are ordered, ascending: no row comes before them any
    /// more, so each is sent once.
    EventTime {
        /// Column of the event time, the first of the order.
        time: usize,
        /// Allowed lateness.
        lateness: Duration,
        /// Maximum time ahead of the clock of an event time that moves the watermark.
        future_limit: Duration,
    },
    /// Commit of the transaction: what has changed since the commit before ([`Ranking::changes`]).
    Commit,
}

impl Ranking {
    /// Checks columns; an error says which is wrong.
    pub(crate) fn check_columns(&self, stream: &Stream) -> Result<(), String> {
        let order = self.order.iter().map(|order| order.column);
        let late = self.late.iter().flat_map(|(_, columns)| columns.iter().copied());
        if let Some(wrong) =
            self.partition.iter().copied().chain(order).chain(late).find(|at| *at >= stream.columns().len())
        {
            return Err(format!("there is no column {wrong}"));
        }
        if self.order.is_empty() {
            return Err("it has no order".to_owned());
        }
        match self.emission {
            RankEmission::EventTime { time, .. } if !self.is_ordered_by(time) => {
                Err("it is not ordered by the event time, ascending".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Checks columns and limits; an error says which is wrong.
    fn check(&self, stream: &Stream) -> Result<(), String> {
        self.check_columns(stream)?;
        if self.limit == Some(0) {
            return Err("the limit is 0".to_owned());
        }
        if let RankEmission::WindowClose { edge, .. } = &self.emission {
            let is_partition = self.partition.contains(&edge.column);
            let missing = || "the edge of the window is not in the partition".to_owned();
            return is_partition.then_some(()).ok_or_else(missing);
        }
        if self.function != RankFunction::RowNumber {
            return Err("only row numbers are sent before a window closes".to_owned());
        }
        if self.limit.is_none_or(|limit| limit > RANK_MAX) {
            return Err(format!("without windows its limit is from 1 to {RANK_MAX}"));
        }
        Ok(())
    }

    /// Column of the edge of windows.
    fn edge(&self) -> Option<usize> {
        match &self.emission {
            RankEmission::WindowClose { edge, .. } => Some(edge.column),
            RankEmission::EventTime { .. } | RankEmission::Commit => None,
        }
    }

    fn is_ordered_by(&self, time: usize) -> bool {
        self.order.first().is_some_and(|first| first.column == time && !first.descending)
    }

    /// Partition columns in the order of the state table's key: the edge of windows first, so that the rows of a
    /// window stand together.
    fn key_columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = Vec::new();
        for column in self.edge().into_iter().chain(self.partition.iter().copied()) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns
    }

    /// Columns of the stream that are not in the key of the state table.
    fn other_columns(&self, stream: &Stream) -> Vec<usize> {
        let key = self.key_columns();
        (0..stream.columns().len()).filter(|column| !key.contains(column)).collect()
    }

    /// Tells whether partitions may be NULL. In a state that an earlier release stored without NULL they may not.
    fn has_nulls(&self, stream: &Stream) -> bool {
        let partition = self.key_columns();
        let may_be_null = |at: &usize| Some(*at) != self.edge() && stream.columns()[*at].nullable;
        if !partition.iter().any(may_be_null) {
            return false;
        }
        let graph = stream.graph.borrow();
        // The slot is in the key, too.
        let is_known = |known: &Schema| known.key().len() > partition.len() + 1;
        graph.schema(&stream.catalog, &self.state_table).is_none_or(|known| is_known(&known))
    }

    /// Columns of the state table, and the names of those of its key: the partition, with a number that says which columns of
    /// it are NULL, and the slot; the arrival; and all other columns of the stream.
    pub(crate) fn state_columns(&self, stream: &Stream) -> (Vec<Column>, Vec<String>) {
        let mut columns: Vec<Column> = Vec::new();
        for at in self.key_columns() {
            let column = &stream.columns()[at];
            let name = free_name(&stored_name(&column.name), &columns);
            columns.push(Column::new(name, column.data_type).not_null());
        }
        if self.has_nulls(stream) {
            columns.push(Column::new(free_name(NULLS, &columns), DataType::BigInt).not_null());
        }
        columns.push(Column::new(free_name(SLOT, &columns), DataType::BigInt).not_null());
        let keys: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        columns.push(Column::new(free_name(ARRIVAL, &columns), DataType::BigInt).not_null());
        for at in self.other_columns(stream) {
            let column = &stream.columns()[at];
            let name = free_name(&stored_name(&column.name), &columns);
            columns.push(Column { nullable: true, ..Column::new(name, column.data_type) });
        }
        (columns, keys)
    }

    fn state_schema(&self, stream: &Stream) -> Result<Schema, String> {
        let (columns, keys) = self.state_columns(stream);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Schema::new(columns, &keys).map_err(|error| error.to_string())
    }

    pub(crate) fn layout(&self, stream: &Stream) -> RankLayout {
        RankLayout {
            key: self.key_columns(),
            has_nulls: self.has_nulls(stream),
            others: self.other_columns(stream),
            order: self.order.clone(),
            function: self.function,
            limit: self.limit,
            changes: self.changes,
            has_changes: stream.changes,
            frames: None,
            partitions_in_dram: self.partitions_in_dram.max(1),
        }
    }

    /// Names of the columns that identify a row: the partition and its number.
    fn key_of_rows(&self, stream: &Stream) -> Option<Rc<[String]>> {
        let partition = self.partition.iter().map(|&column| stream.columns()[column].name.clone());
        let key: Vec<String> = partition.chain([self.rank_column.clone()]).collect();
        let has_key = self.function == RankFunction::RowNumber && self.changes == RankChanges::OfRanks;
        has_key.then(|| Rc::from(key))
    }

    /// Times that close windows or end the wait for earlier rows.
    pub(crate) fn times(&self, stream: &Stream) -> Result<RankTimes, String> {
        let check = |time: usize| -> Result<(), String> {
            let column = stream.columns().get(time).ok_or_else(|| format!("there is no column {time}"))?;
            let is_time = edge_type_of(column.data_type).is_some();
            is_time.then_some(()).ok_or_else(|| format!("column {} is not a time", column.name))
        };
        match self.emission {
            RankEmission::Commit => Ok(RankTimes::Commit),
            RankEmission::EventTime { time, lateness, future_limit } => {
                check(time)?;
                let micros = |limit: Duration| i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
                let (lateness_us, future_us) = (micros(lateness), micros(future_limit));
                Ok(RankTimes::EventTime { time, lateness_us, future_us })
            }
            RankEmission::WindowClose { time, edge, lateness, future_limit } => {
                check(time)?;
                check(edge.column)?;
                let mut window =
                    TimeWindow::of_kind("", edge.kind).lateness(lateness).future_limit(future_limit);
                window.is_of_results = edge.is_of_results;
                let is_by_start = !matches!(edge.kind, crate::WindowKind::Cumulating { .. });
                let is_end = edge.is_end && is_by_start;
                Ok(RankTimes::Windows { time, edge: edge.column, is_end, span: window.span()? })
            }
        }
    }
}

/// Name of a column of a stream as one of a table: the text of an expression may be too long.
fn stored_name(name: &str) -> String {
    const BYTES_MAX: usize = 63;
    const BYTES_OF_LONG: usize = 56;
    if name.len() <= BYTES_MAX {
        return name.to_owned();
    }
    let mut short: String = name.chars().filter(|letter| !letter.is_control()).collect();
    while short.len() > BYTES_OF_LONG {
        short.pop();
    }
    short
}

/// Name that no column has.
pub(crate) fn free_name(base: &str, columns: &[Column]) -> String {
    let numbered = (2..).map(|number| format!("{base}_{number}"));
    let is_free = |name: &String| !columns.iter().any(|column| column.name == *name);
    std::iter::once(base.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
}

impl Stream {
    /// Adds the rank of each row in its partition, and sends the rows up to a limit. NULL is a partition. Of
    /// a stream whose rows are taken back, which is ranked at the commit, all rows are stored.
    pub fn rank(&self, ranking: Ranking) -> Stream {
        if !matches!(ranking.emission, RankEmission::Commit) {
            self.check_appended("a ranking that is not sent at the commit");
        }
        let table = ranking.state_table.clone();
        match self.try_rank(ranking) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("ranking with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    fn try_rank(&self, ranking: Ranking) -> Result<Stream, String> {
        ranking.check(self)?;
        let times = ranking.times(self)?;
        self.plan_state(&ranking.state_table, ranking.state_schema(self)?)?;
        let late = self.plan_late_rows(ranking.late.as_ref())?;
        let rank = Column::new(&ranking.rank_column, DataType::BigInt).not_null();
        let columns: Vec<Column> = self.columns.iter().cloned().chain([rank]).collect();
        let (schema, state_table) = (arrow_schema(&columns, UTC), ranking.state_table.clone());
        let (layout, key) = (ranking.layout(self), ranking.key_of_rows(self));
        let table = state_table.clone();
        let mut ranked = self.add(format!("rank {table}"), columns.into(), move |made| {
            let name = made.name.to_owned();
            let is_of_windows = matches!(times, RankTimes::Windows { .. });
            let memory = if is_of_windows { made.memory } else { made.memory_of_caches.as_ref() };
            let state = RankState::new(name.clone(), made.catalog.table(&table)?, layout, times, memory)?;
            let watermark = StoredWatermark::new(made.watermarks, made.topology, &table);
            let progress = SourceTimes::new(made.sources);
            let late = late.map(|late| late.operator(made, &name)).transpose()?;
            let functions = Vec::new();
            Ok(Box::new(RankOperator { name, times, state, functions, watermark, progress, schema, late })
                as Box<dyn Operator>)
        });
        (ranked.key, ranked.changes) = (key, matches!(times, RankTimes::Commit));
        let mut graph = self.graph.borrow_mut();
        graph.writers.push(Writer { table: state_table, node: ranked.node, is_to_table: false });
        if let (RankTimes::Windows { time, span, .. }, true) = (times, self.from_sources) {
            graph.windows.push(window_node(span, &self.columns[time].name));
        }
        drop(graph);
        Ok(ranked)
    }
}

fn window_node(span: WindowSpan, time: &str) -> WindowNode {
    WindowNode { span, time: time.to_owned() }
}
