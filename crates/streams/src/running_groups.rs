//! Running aggregates: groups over all tuples so far, as GROUP BY without a window.

use crate::UTC;
use crate::graph::Writer;
use crate::operators::Operator;
use crate::operators::accumulator::{Aggregate, BoundAggregate};
use crate::operators::early::EarlyResults;
use crate::operators::running_aggregate::{LifeTimes, RunningAggregate};
use crate::operators::running_state::{RunningLayout, RunningState};
use crate::operators::state_rows::StateRows;
use crate::operators::stored_keys::NULLS;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::value_counts::ValueCounts;
use crate::operators::window_aggregate::SourceTimes;
use crate::ranking::free_name;
use crate::stream::Stream;
use crate::windowed::edge_type_of;
use entresol_tables::{Column, DataType, Schema, arrow_schema};
use std::rc::Rc;
use std::time::Duration;

/// Column of the state table with the number of tuples of a group.
const ROWS: &str = "rows";
/// Column of the state table with the greatest event time of a group.
const LAST: &str = "last_at";
/// Column of the table of values with the number of tuples that have them.
const NUMBER: &str = "number";

/// Aggregates of the groups of a stream over all of its tuples so far; see [`Stream::running`].
pub struct RunningGroups {
    /// Columns that tell groups apart; NULL is a value. Without any there is one group.
    pub groups: Vec<usize>,
    /// Aggregates; without any, the groups alone are sent.
    pub aggregates: Vec<Aggregate>,
    /// Table of the groups, which only this operator may write. Where tuples are taken back from aggregates that cannot be
    /// subtracted from, their values are in a second one, `<state_table>_values`.
    pub state_table: String,
    /// Life of a group; none is for ever.
    pub life: Option<GroupLife>,
    /// Interval in which results are sent at most once, each in the place of the one before, so that only an upsert by the
    /// groups takes them for what they are; none sends changes at each commit.
    pub interval: Option<Duration>,
    /// Table of late tuples, and the columns that it gets.
    pub late: Option<(String, Vec<usize>)>,
    /// Maximum of groups that are cached in DRAM, at least 1.
    pub groups_in_dram: usize,
}

/// Time after which a group without tuples begins anew.
#[derive(Debug, Clone, Copy)]
pub struct GroupLife {
    /// Column of the event time.
    pub time: usize,
    /// Time from the last tuple of a group until its life is over, when the watermark has come there.
    pub ttl: Duration,
    /// Allowed lateness.
    pub lateness: Duration,
    /// Maximum time ahead of the clock of an event time that moves the watermark.
    pub future_limit: Duration,
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Name of the table of the values of groups.
pub fn values_table(state_table: &str) -> String {
    format!("{state_table}_values")
}

impl RunningGroups {
    /// Returns true if their results are never taken back: groups alone, of a stream that takes nothing back.
    fn are_distinct(&self, stream: &Stream) -> bool {
        self.aggregates.is_empty() && !stream.changes && !self.groups.is_empty()
    }

    /// Returns true if the values of the groups of a stream are stored too, in a table of their own.
    pub fn has_values(&self, stream: &Stream) -> bool {
        self.bound(stream).is_ok_and(|bound| self.counted(stream, &bound).is_some())
    }

    fn check(&self, stream: &Stream) -> Result<(), String> {
        let late = self.late.iter().flat_map(|(_, columns)| columns.iter().copied());
        let time = self.life.iter().map(|life| life.time);
        let mut read = self.groups.iter().copied().chain(late).chain(time);
        if let Some(wrong) = read.find(|at| *at >= stream.columns().len()) {
            return Err(format!("there is no column {wrong}"));
        }
        if self.interval.is_some() && (stream.changes || self.life.is_some() || self.are_distinct(stream)) {
            let reason =
                "an interval is of results of groups that live for ever, of a stream that takes nothing back";
            return Err(reason.to_owned());
        }
        let Some(life) = self.life else { return Ok(()) };
        if stream.changes {
            return Err("groups of a stream whose tuples are taken back live for ever".to_owned());
        }
        let column = &stream.columns()[life.time];
        edge_type_of(column.data_type)
            .map(drop)
            .ok_or_else(|| format!("column {} is not a time", column.name))
    }

    fn bound(&self, stream: &Stream) -> Result<Vec<BoundAggregate>, String> {
        let bound = self.aggregates.iter().map(|aggregate| aggregate.resolve(&stream.columns));
        let is_changing = stream.changes;
        bound.map(|bound| bound.map(|bound| if is_changing { bound.subtracted() } else { bound })).collect()
    }

    /// Key of a state table by these columns: each NOT NULL, and the number that says which are NULL.
    fn key_of(stream: &Stream, of: &[usize]) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        for &at in of {
            let column = &stream.columns()[at];
            columns.push(Column::new(free_name(&column.name, &columns), column.data_type).not_null());
        }
        columns.push(Column::new(free_name(NULLS, &columns), DataType::BigInt).not_null());
        columns
    }

    /// Columns of a table with a key, whose names are made free, and those of the key.
    fn columns_of(key: Vec<Column>, others: Vec<Column>) -> (Vec<Column>, Vec<String>) {
        let names: Vec<String> = key.iter().map(|column| column.name.clone()).collect();
        let mut columns = key;
        for column in others {
            columns.push(Column { name: free_name(&column.name, &columns), ..column });
        }
        (columns, names)
    }

    fn schema_of(key: Vec<Column>, others: Vec<Column>) -> Result<Schema, String> {
        let (columns, names) = RunningGroups::columns_of(key, others);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Schema::new(columns, &names).map_err(|error| error.to_string())
    }

    /// Columns of the state table, and its key.
    fn state_columns(&self, stream: &Stream, bound: &[BoundAggregate]) -> (Vec<Column>, Vec<String>) {
        let mut others = vec![Column::new(ROWS, DataType::BigInt).not_null()];
        if self.life.is_some() {
            others.push(Column::new(LAST, DataType::Timestamp).not_null());
        }
        others.extend(bound.iter().flat_map(BoundAggregate::state_columns));
        RunningGroups::columns_of(RunningGroups::key_of(stream, &self.groups), others)
    }

    /// Columns whose values are counted: the groups, and what aggregates read that cannot be subtracted from. None if there
    /// is no need.
    fn counted(&self, stream: &Stream, bound: &[BoundAggregate]) -> Option<Vec<usize>> {
        let needs = |aggregate: &&BoundAggregate| stream.changes && !aggregate.is_subtractable();
        if !bound.iter().any(|aggregate| needs(&aggregate)) {
            return None;
        }
        let mut columns = self.groups.clone();
        for column in bound.iter().filter(needs).flat_map(|aggregate| aggregate.columns()) {
            if !columns.contains(column) {
                columns.push(*column);
            }
        }
        Some(columns)
    }

    fn life_times(&self) -> Option<LifeTimes> {
        self.life.map(|GroupLife { time, ttl, lateness, future_limit }| LifeTimes {
            time,
            ttl_us: micros(ttl),
            lateness_us: micros(lateness),
            future_us: micros(future_limit),
        })
    }
}

impl Stream {
    /// Aggregates each group over all tuples so far. The stream has the group columns and the results, and takes those
    /// back that have changed, at each commit ([`crate::Batch::retracted`]); its key is the group columns. Filters,
    /// projections, unions, other running aggregates and upserts take such a stream. Without aggregates, each group of a
    /// stream that takes nothing back is sent once.
    pub fn running(&self, running: RunningGroups) -> Stream {
        let table = running.state_table.clone();
        match self.try_running(running) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("running aggregate with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    /// Same as [`Stream::running`]; returns the reason why it cannot be, which building would report.
    pub fn try_running(&self, running: RunningGroups) -> Result<Stream, String> {
        running.check(self)?;
        let bound = running.bound(self)?;
        let planned = running.state_columns(self, &bound);
        let is_divided = self.plan_groups(&running.state_table, planned, &bound)?;
        let counted = running.counted(self, &bound);
        let values_table = values_table(&running.state_table);
        if let Some(columns) = &counted {
            let number = vec![Column::new(NUMBER, DataType::BigInt).not_null()];
            let schema = RunningGroups::schema_of(RunningGroups::key_of(self, columns), number)?;
            self.plan_state(&values_table, schema)?;
        }
        let late = self.plan_late_rows(running.late.as_ref())?;
        let mut columns: Vec<Column> =
            running.groups.iter().map(|&column| self.columns[column].clone()).collect();
        columns.extend(bound.iter().map(BoundAggregate::result_column));
        let key: Vec<String> =
            columns[..running.groups.len()].iter().map(|column| column.name.clone()).collect();
        let (life, is_distinct) = (running.life_times(), running.are_distinct(self));
        let layout = RunningLayout {
            groups: running.groups.clone(),
            aggregates: bound,
            output: arrow_schema(&columns, UTC),
            ttl_us: life.map(|life| life.ttl_us),
            groups_in_dram: running.groups_in_dram.max(1),
        };
        let (table, named_values) = (running.state_table.clone(), values_table.clone());
        let (counts, interval) = (counted.is_some(), running.interval);
        let mut results = self.add(format!("running aggregate {table}"), columns.into(), move |made| {
            let name = made.name.to_owned();
            let memory = made.memory_of_caches.as_ref();
            let values = counted.map(|columns| {
                let values = made.catalog.table(&named_values)?;
                ValueCounts::new(name.clone(), values, columns, layout.groups.len())
            });
            let values = values.transpose()?;
            let state_table = made.catalog.table(&table)?;
            let rows = StateRows::new(&name, &state_table, &layout.aggregates, is_divided);
            let state = RunningState::new(name.clone(), (state_table, rows), layout, values, memory)?;
            let watermark = StoredWatermark::new(made.watermarks, made.topology, &table);
            let progress = SourceTimes::new(made.sources);
            let late = late.map(|late| late.operator(made, &name)).transpose()?;
            let (over, early) = (Vec::new(), interval.map(|interval| EarlyResults::every(interval, memory)));
            Ok(Box::new(RunningAggregate {
                name,
                state,
                life,
                watermark,
                progress,
                is_distinct,
                late,
                over,
                early,
            }) as Box<dyn Operator>)
        });
        (results.changes, results.key) = (!is_distinct && interval.is_none(), Some(Rc::from(key)));
        let mut graph = self.graph.borrow_mut();
        graph.writers.push(Writer { table: running.state_table, node: results.node, is_to_table: false });
        if counts {
            graph.writers.push(Writer { table: values_table, node: results.node, is_to_table: false });
        }
        drop(graph);
        Ok(results)
    }

    /// Reports an operator over a stream whose tuples are taken back, which it cannot be.
    pub(crate) fn check_appended(&self, operator: &str) {
        if self.changes {
            self.report(format!(
                "{operator} over a stream whose tuples are taken back: write it into a table"
            ));
        }
    }
}
