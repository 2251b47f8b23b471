//! Windowed and grouped streams, before their aggregate.

use crate::graph::{OperatorArguments, WindowNode, Writer};
use crate::operators::Operator;
use crate::operators::accumulator::{Aggregate, BoundAggregate};
use crate::operators::divided_state::DividedState;
use crate::operators::early::EarlyResults;
use crate::operators::key_parts::KeyPart;
use crate::operators::session_aggregate::SessionAggregate;
use crate::operators::session_state::SessionState;
use crate::operators::state_form::StateForm;
use crate::operators::state_rows::StateRows;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::to_table::ToTableOperator;
use crate::operators::window::{TimeWindow, WindowKind, WindowTimes};
use crate::operators::window_aggregate::{EarlyWindows, SourceTimes, WindowAggregate};
use crate::operators::window_state::WindowState;
use crate::stream::Stream;
use crate::{GROUPS_IN_DRAM_MAX, UTC};
use arrow_schema::SchemaRef;
use entresol_tables::{Column, DataType, Schema, Table, arrow_schema};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Column with a window's start.
pub(crate) const WINDOW_START: &str = "window_start";
/// Column with a window's end.
pub(crate) const WINDOW_END: &str = "window_end";

/// Type of the edges of windows over times of a type; none if it is no type of times.
pub(crate) fn edge_type_of(time: DataType) -> Option<DataType> {
    match time {
        DataType::TimestampTz => Some(DataType::TimestampTz),
        DataType::Timestamp | DataType::BigInt => Some(DataType::Timestamp),
        _ => None,
    }
}

/// Stream of windows.
#[derive(Clone)]
pub struct WindowedStream {
    pub(crate) stream: Stream,
    pub(crate) window: TimeWindow,
}

/// Stream of windows with groups.
#[derive(Clone)]
pub struct GroupedStream {
    stream: Stream,
    window: TimeWindow,
    groups: Vec<String>,
    groups_in_dram: usize,
    /// Table of late tuples, and the columns that it gets: the first ones, by these names.
    late: Option<(String, Vec<Column>)>,
    /// Time behind the end of a window in which late tuples correct its results.
    corrected_for: Duration,
    /// Occasion at which results of open windows are sent.
    early: Option<EarlyEmission>,
    /// Form in which groups are stored, whatever it costs.
    state_form: Option<StateForm>,
}

/// Occasion at which results are sent before they are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyEmission {
    /// Each commit, as far as they have changed.
    Commit,
    /// The first commit behind each interval of the clock.
    Every(Duration),
}

/// Windows and groups of a stream, with the places of their columns.
struct BoundWindows {
    state_table: String,
    /// True if groups may have several rows in the state table.
    is_divided: bool,
    times: WindowTimes,
    edge_type: DataType,
    time_column: usize,
    edge_column: Option<usize>,
    correction_us: i64,
    early: Option<EarlyEmission>,
    group_columns: Vec<usize>,
    groups_in_dram: usize,
    state_form: Option<StateForm>,
    aggregates: Vec<BoundAggregate>,
    late: Option<(String, Vec<Column>)>,
}

impl BoundWindows {
    /// Operator of the windows, with results of these columns.
    fn operator(
        mut self,
        made: &OperatorArguments<'_>,
        schema: SchemaRef,
    ) -> crate::error::Result<Box<dyn Operator>> {
        let name = made.name.to_owned();
        let state_table = made.catalog.table(&self.state_table)?;
        let late = self.late.take().map(|(table, columns)| {
            ToTableOperator::new(made, format!("late tuples of {name}"), &table, columns, true, None)
        });
        let late = late.transpose()?;
        let watermark = StoredWatermark::new(made.watermarks, made.topology, &self.state_table);
        let progress = SourceTimes::new(made.sources);
        let rows = StateRows::new(&name, &state_table, &self.aggregates, self.is_divided);
        let memory = made.memory;
        let of_caches = made.memory_of_caches.as_ref();
        let time_column = self.time_column;
        Ok(match self.times {
            WindowTimes::Windows(span) => Box::new(WindowAggregate {
                time_column,
                edge_column: self.edge_column,
                span,
                correction_us: self.correction_us,
                early: self.early.map(|emission| match emission {
                    EarlyEmission::Commit => EarlyWindows::Commit,
                    EarlyEmission::Every(interval) => {
                        EarlyWindows::Every(Box::new(EarlyResults::every(interval, of_caches)))
                    }
                }),
                state: self.divided(made, &name, (state_table, rows)),
                env: made.catalog.context().pool().env().clone(),
                name,
                watermark,
                progress,
                schema,
                late,
            }),
            WindowTimes::Sessions(span) => {
                let (tables, groups) = ((state_table, rows), self.group_columns);
                let state =
                    SessionState::new(name.clone(), tables, self.aggregates, groups, span.gap_us, memory)?;
                Box::new(SessionAggregate {
                    name,
                    time_column,
                    span,
                    state,
                    watermark,
                    progress,
                    schema,
                    late,
                })
            }
        })
    }

    /// State of the windows, in parts for the threads that work on it.
    fn divided(
        &self,
        made: &OperatorArguments<'_>,
        name: &str,
        (table, rows): (Arc<Table>, StateRows),
    ) -> DividedState {
        let memory = made.memory_of_caches.as_ref();
        // The first thread more is for commits. One group is not divided.
        let of = if self.group_columns.is_empty() { 1 } else { (made.parallelism - 1).max(1) };
        let part = |number| {
            WindowState::new(
                name.to_owned(),
                (Arc::clone(&table), rows.clone()),
                self.aggregates.clone(),
                self.group_columns.clone(),
                self.groups_in_dram,
                KeyPart { number, of },
                memory,
            )
            .stored_in(self.state_form)
        };
        let parts = (0..of).map(part).collect();
        DividedState::new(name.to_owned(), made.topology, self.group_columns.clone(), parts, memory)
    }
}

impl WindowedStream {
    /// One group per distinct value of these columns; they must not be NULL.
    pub fn group_by(self, columns: &[&str]) -> GroupedStream {
        let groups = columns.iter().map(|&name| name.to_owned()).collect();
        GroupedStream {
            stream: self.stream,
            window: self.window,
            groups,
            groups_in_dram: GROUPS_IN_DRAM_MAX,
            late: None,
            corrected_for: Duration::ZERO,
            early: None,
            state_form: None,
        }
    }

    /// Aggregates each window as one group.
    pub fn aggregate(self, aggregates: &[Aggregate], state_table: &str) -> Stream {
        self.group_by(&[]).aggregate(aggregates, state_table)
    }
}

impl GroupedStream {
    /// Caches at most `groups` groups in DRAM (1 to [`GROUPS_IN_DRAM_MAX`], the default); the groups of the
    /// oldest windows are then read from the state table when they are needed.
    pub fn groups_in_dram(mut self, groups: usize) -> GroupedStream {
        self.groups_in_dram = groups;
        self
    }

    /// Stores groups in this form, whatever it costs; without it the costs decide
    /// ([`OperatorProgress::state_costs`](crate::OperatorProgress)). A state that is divided among threads, or of which the
    /// table has an index, is stored in rows.
    pub fn state_form(mut self, form: StateForm) -> GroupedStream {
        self.state_form = Some(form);
        self
    }

    /// Stores late tuples in a table, in the transaction in which they come: their first columns, by these
    /// names. A missing table is created with them.
    pub fn late_into(mut self, table: &str, columns: Vec<Column>) -> GroupedStream {
        self.late = Some((table.to_owned(), columns));
        self
    }

    /// Corrects the results of a window by tuples that come until the watermark is so far behind its end: their groups
    /// are sent again, with the same key. Only an upsert by that key takes them for what they are. Sessions have no
    /// corrections.
    pub fn corrected_for(mut self, time: Duration) -> GroupedStream {
        self.corrected_for = time;
        self
    }

    /// Sends the results of open windows too, with the same key as when they close. Only an upsert by that key takes them
    /// for what they are. Sessions have no early results.
    pub fn early(mut self, emission: EarlyEmission) -> GroupedStream {
        self.early = Some(emission);
        self
    }

    /// Aggregates each group of each window. The stream has the group columns, `window_start`, `window_end`
    /// and the results; its key is the group columns and `window_start`. Open windows are in the table
    /// `state_table`, which only this operator may write.
    pub fn aggregate(self, aggregates: &[Aggregate], state_table: &str) -> Stream {
        match self.try_aggregate(aggregates, state_table) {
            Ok(stream) => stream,
            Err(reason) => {
                self.stream.report(reason);
                self.stream
            }
        }
    }

    /// Same as [`GroupedStream::aggregate`]; returns the reason why it cannot be, which building would report.
    pub fn try_aggregate(&self, aggregates: &[Aggregate], state_table: &str) -> Result<Stream, String> {
        let resolved = self.assigned().resolve(aggregates, state_table);
        resolved.map_err(|reason| format!("aggregate with state {state_table}: {reason}"))
    }

    /// Itself, with the windows of each tuple in a column if they overlap.
    fn assigned(&self) -> GroupedStream {
        let mut assigned = self.clone();
        let edge = match self.window.kind {
            WindowKind::Tumbling { .. } | WindowKind::Session { .. } => return assigned,
            _ if self.window.edge.is_some() => return assigned,
            WindowKind::Hopping { .. } => WINDOW_START,
            WindowKind::Cumulating { .. } => WINDOW_END,
        };
        assigned.stream = self.stream.assign_windows(&self.window);
        assigned.window = self.window.clone().assigned_by(edge, false);
        assigned
    }

    /// Plans the table of late tuples, if it is missing.
    fn plan_late(&self) -> Result<(), String> {
        let Some((table, columns)) = &self.late else { return Ok(()) };
        let mut graph = self.stream.graph.borrow_mut();
        if graph.schema(&self.stream.catalog, table).is_none() {
            let schema = Schema::new(columns.clone(), &[] as &[&str]).map_err(|error| error.to_string())?;
            graph.planned.insert(table.clone(), schema);
        }
        Ok(())
    }

    fn resolve(&self, aggregates: &[Aggregate], state_table: &str) -> Result<Stream, String> {
        let stream = &self.stream;
        let bound = self.bind(aggregates, state_table)?;
        let mut columns: Vec<Column> =
            bound.group_columns.iter().map(|&column| stream.columns[column].clone().not_null()).collect();
        columns.push(Column::new(WINDOW_START, bound.edge_type).not_null());
        columns.push(Column::new(WINDOW_END, bound.edge_type).not_null());
        columns.extend(bound.aggregates.iter().map(BoundAggregate::result_column));
        self.plan_late()?;
        let (schema, times, is_divided) = (arrow_schema(&columns, UTC), bound.times, bound.is_divided);
        let mut results = stream
            .add(format!("window {state_table}"), columns.into(), move |made| bound.operator(made, schema));
        let key: Vec<String> = self.groups.iter().cloned().chain([WINDOW_START.to_owned()]).collect();
        results.key = Some(Rc::from(key));
        let mut graph = stream.graph.borrow_mut();
        graph.writers.push(Writer { table: state_table.to_owned(), node: results.node, is_to_table: false });
        if matches!(times, WindowTimes::Windows(_)) && !is_divided {
            graph.paged.insert(state_table.to_owned());
        }
        if stream.from_sources
            && let WindowTimes::Windows(span) = times
        {
            graph.windows.push(WindowNode { span, time: self.window.time.clone() });
        }
        drop(graph);
        Ok(results)
    }

    /// Binds windows and groups to the places of their columns, and plans their state table.
    fn bind(&self, aggregates: &[Aggregate], state_table: &str) -> Result<BoundWindows, String> {
        let stream = &self.stream;
        let place =
            |name: &str| stream.column(name).ok_or_else(|| format!("the stream has no column {name}"));
        let time_column = place(&self.window.time)?;
        let edge_type = edge_type_of(stream.columns[time_column].data_type)
            .ok_or_else(|| format!("the event time column {} is not a TIMESTAMP", self.window.time))?;
        let times = self.window.times()?;
        if self.early.is_some() && matches!(times, WindowTimes::Sessions(_)) {
            return Err("sessions have no early results: their edges change".to_owned());
        }
        let group_columns: Vec<usize> =
            self.groups.iter().map(|name| place(name)).collect::<Result<_, _>>()?;
        let bound = aggregates.iter().map(|aggregate| aggregate.resolve(&stream.columns));
        let bound = bound.collect::<Result<Vec<BoundAggregate>, _>>()?;
        if bound.is_empty() {
            return Err("the list of aggregates is empty".to_owned());
        }
        Ok(BoundWindows {
            is_divided: self.plan_state(state_table, times, edge_type, &group_columns, &bound)?,
            state_table: state_table.to_owned(),
            times,
            edge_type,
            time_column,
            edge_column: self.window.edge.as_deref().map(place).transpose()?,
            correction_us: self.correction_us(times)?,
            early: self.early,
            group_columns,
            groups_in_dram: self.groups_in_dram,
            state_form: self.state_form,
            aggregates: bound,
            late: self.late.clone(),
        })
    }

    /// Microseconds in which results are corrected.
    fn correction_us(&self, times: WindowTimes) -> Result<i64, String> {
        match times {
            WindowTimes::Sessions(_) if !self.corrected_for.is_zero() => {
                Err("late tuples correct no sessions: one may make two that were sent into one".to_owned())
            }
            _ => i64::try_from(self.corrected_for.as_micros())
                .map_err(|_| format!("corrections for {:?}, longer than time is", self.corrected_for)),
        }
    }

    /// Plans the state table, or checks the existing one; true if its groups may have several rows.
    fn plan_state(
        &self,
        table: &str,
        times: WindowTimes,
        edge: DataType,
        group_columns: &[usize],
        bound: &[BoundAggregate],
    ) -> Result<bool, String> {
        let stream = &self.stream;
        let mut columns: Vec<Column> =
            group_columns.iter().map(|&column| stream.columns[column].clone().not_null()).collect();
        columns.push(Column::new(WINDOW_START, edge).not_null());
        let (groups, start) = (self.groups.iter().cloned(), WINDOW_START.to_owned());
        let key: Vec<String> = match times {
            // The window first: closing one is a scan of a key prefix.
            WindowTimes::Windows(_) => std::iter::once(start).chain(groups).collect(),
            // The group first: reading its sessions again is one.
            WindowTimes::Sessions(_) => {
                columns.push(Column::new(WINDOW_END, edge).not_null());
                groups.chain([start]).collect()
            }
        };
        columns.extend(bound.iter().flat_map(BoundAggregate::state_columns));
        stream.plan_groups(table, (columns, key), bound)
    }
}
