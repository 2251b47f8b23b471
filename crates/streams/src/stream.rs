//! Stream handles: operators are added by calling their methods.
//!
//! A handle can be used more than once: each use gets all tuples. Errors (an unknown column, a wrong type)
//! are returned by [`crate::TopologyBuilder::build`].

use crate::UTC;
use crate::element::Tuple;
use crate::error::Result;
use crate::execution::held_batches::HeldBatches;
use crate::expression::{ColumnExpression, Expression, TuplePredicate};
use crate::graph::{Graph, NodeKind, OperatorArguments, PROJECTION, Writer};
use crate::operators::Operator;
use crate::operators::accumulator::BoundAggregate;
use crate::operators::assign_windows::AssignWindows;
use crate::operators::changes_as_rows::ChangesAsRows;
use crate::operators::file_sink::FileSinkOperator;
use crate::operators::filter::Filter;
use crate::operators::lookup_join::{JoinKind, LookupJoin};
use crate::operators::map::{Map, Projection};
use crate::operators::merge_into::{MergeInto, MergeIntoOperator};
use crate::operators::merged_rows::{self, MergedRows};
use crate::operators::rolled_sink::{RolledSinkOperator, RolledSinkState};
use crate::operators::row_numbers::RowIdentity;
use crate::operators::sent_rows::{self, SentRows};
use crate::operators::sink::SinkOperator;
use crate::operators::state_rows::add_parts;
use crate::operators::tcp_sink::TcpSinkOperator;
use crate::operators::to_table::{ToTable, ToTableOperator};
use crate::operators::union::Union;
use crate::operators::window::TimeWindow;
use crate::sink_lengths::{StoredFiles, StoredLength};
use crate::sinks::Sink;
use crate::sinks::encoding::RowEncoder;
use crate::sinks::rolled::{RolledFiles, RolledNames};
use crate::sources::files::FileFormat;
use crate::windowed::{WINDOW_END, WINDOW_START, WindowedStream, edge_type_of};
use entresol_tables::{BatchBuilder, Catalog, Column, DataType, Modifier, Schema, Value, arrow_schema};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Stream of a topology that is being built.
#[derive(Clone)]
pub struct Stream {
    pub(crate) graph: Rc<RefCell<Graph>>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) node: usize,
    pub(crate) columns: Rc<[Column]>,
    /// The columns that identify a tuple, if they are known: the key of tables made of this stream.
    pub(crate) key: Option<Rc<[String]>>,
    /// True if tuples come from sources, not from TO_STREAM: windows follow the sources' event time.
    pub(crate) from_sources: bool,
    /// True if tuples are taken back.
    pub(crate) changes: bool,
}

impl Stream {
    /// Returns the columns of its tuples.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the index of a column in its tuples, for closures.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    pub(crate) fn report(&self, reason: impl Into<String>) {
        self.graph.borrow_mut().report(reason);
    }

    fn name(&self, operator: &str) -> String {
        format!("{operator} {}", self.graph.borrow().nodes.len())
    }

    pub(crate) fn add(
        &self,
        name: impl Into<String>,
        columns: Rc<[Column]>,
        make: impl FnOnce(&OperatorArguments<'_>) -> Result<Box<dyn Operator>> + 'static,
    ) -> Stream {
        let kind = NodeKind::Operator(Box::new(make));
        let node = self.graph.borrow_mut().add(name.into(), vec![self.node], kind);
        Stream { node, columns, key: None, ..self.clone() }
    }

    /// Plans the state table of groups with these aggregates, or checks the existing one. Returns true if it has the columns
    /// of groups of several rows, which those that were created without them do not get.
    pub(crate) fn plan_groups(
        &self,
        table: &str,
        (mut columns, mut key): (Vec<Column>, Vec<String>),
        aggregates: &[BoundAggregate],
    ) -> Result<bool, String> {
        let schema_of = |columns: &[Column], key: &[String]| {
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            Schema::new(columns.to_vec(), &key).map_err(|error| error.to_string())
        };
        let planned = schema_of(&columns, &key)?;
        let existing = self.graph.borrow().schema(&self.catalog, table);
        let is_divided = aggregates.iter().any(BoundAggregate::has_texts)
            && existing.is_none_or(|existing| *existing != planned);
        if !is_divided {
            return self.plan_state(table, planned).map(|()| false);
        }
        add_parts(&mut columns, &mut key);
        self.plan_state(table, schema_of(&columns, &key)?).map(|()| true)
    }

    /// Plans the state table of an operator, or checks the existing one.
    pub(crate) fn plan_state(&self, table: &str, schema: Schema) -> Result<(), String> {
        let mut graph = self.graph.borrow_mut();
        if graph.writers.iter().any(|writer| writer.table == table) {
            return Err("the state table is written by another operator".to_owned());
        }
        match graph.schema(&self.catalog, table) {
            Some(existing) if *existing != schema => Err("the table exists with other columns".to_owned()),
            Some(_) => Ok(()),
            None => {
                graph.planned.insert(table.to_owned(), schema);
                Ok(())
            }
        }
    }

    fn same_key(mut self, of: &Stream) -> Stream {
        self.key = of.key.clone();
        self
    }

    /// Sets the event time of a source's tuples: for [`crate::Merge::EventTime`] and
    /// [`crate::Boundary::PerWindow`]. Only on the stream that a source returned.
    pub fn event_time(self, column: &str) -> Stream {
        match self.column(column) {
            None => self.report(format!("the source has no column {column}")),
            Some(index) => {
                let mut graph = self.graph.borrow_mut();
                match graph.sources.iter_mut().find(|source| source.node == self.node) {
                    Some(source) => source.event_time = Some(index),
                    None => graph.report("event_time must be called on the stream of a source"),
                }
            }
        }
        self
    }

    /// Sets the time after which windows over several sources do not wait for this one, if it has sent nothing; by default
    /// [`crate::SOURCE_IDLE_MS`]. Only on the stream that a source returned.
    pub fn idle_after(self, idle: Duration) -> Stream {
        let mut graph = self.graph.borrow_mut();
        match graph.sources.iter_mut().find(|source| source.node == self.node) {
            Some(source) => source.idle = idle,
            None => graph.report("idle_after must be called on the stream of a source"),
        }
        drop(graph);
        self
    }

    /// Stores the records of a source that are no tuples in a table, in the transaction of the tuples around
    /// them: `source`, `line`, `reason`, `record`. Only on the stream that a source returned.
    pub fn rejects_into(self, table: &str) -> Stream {
        let mut graph = self.graph.borrow_mut();
        match graph.sources.iter_mut().find(|source| source.node == self.node) {
            Some(source) => source.rejects_table = Some(table.to_owned()),
            None => graph.report("rejects_into must be called on the stream of a source"),
        }
        graph.plan_rejects(&self.catalog, table);
        drop(graph);
        self
    }

    /// Describes what the last operator does ([`crate::TopologyBuilder::operators`]).
    pub fn described(self, detail: &str) -> Stream {
        self.graph.borrow_mut().describe(self.node, detail);
        self
    }

    /// Passes on the tuples that a closure accepts; [`Stream::filter_by`] costs less.
    pub fn filter(&self, predicate: impl FnMut(&[Value]) -> bool + Send + 'static) -> Stream {
        self.filter_by(TuplePredicate(predicate))
    }

    /// Passes on the tuples for which a BOOLEAN expression is true, a batch at a time.
    pub fn filter_by(&self, predicate: impl Expression) -> Stream {
        let predicate = Box::new(predicate);
        self.add(self.name("filter"), Rc::clone(&self.columns), |made| {
            Ok(Box::new(Filter::new(made.name.to_owned(), predicate)))
        })
        .same_key(self)
    }

    /// Computes tuples of other columns, a batch at a time: each column by its expression, whose arrays must
    /// be of the column's Arrow type ([`entresol_tables::arrow_type`], TIMESTAMPTZ in UTC).
    pub fn project(&self, columns: Vec<(Column, Box<dyn Expression>)>) -> Stream {
        let (columns, expressions): (Vec<Column>, Vec<_>) = columns.into_iter().unzip();
        let schema = arrow_schema(&columns, UTC);
        self.add(self.name(PROJECTION), columns.into(), move |made| {
            Ok(Box::new(Projection { name: made.name.to_owned(), schema, expressions }))
        })
    }

    /// Maps each tuple to one tuple of `columns`; [`Stream::project`] costs less.
    pub fn map(
        &self,
        columns: Vec<Column>,
        mut function: impl FnMut(&[Value]) -> Tuple + Send + 'static,
    ) -> Stream {
        self.try_map(columns, move |tuple| Ok(Some(function(tuple))))
    }

    /// Maps each tuple to one tuple of `columns`, or none; an error fails the transaction.
    pub fn try_map(
        &self,
        columns: Vec<Column>,
        function: impl FnMut(&[Value]) -> Result<Option<Tuple>, String> + Send + 'static,
    ) -> Stream {
        self.check_appended("a map");
        let output = BatchBuilder::new(&columns, 0);
        self.add(self.name("map"), columns.into(), move |made| {
            Ok(Box::new(Map::new(made.name.to_owned(), output, function)))
        })
    }

    /// Selects some of the columns, in this order.
    pub fn select(&self, columns: &[&str]) -> Stream {
        let mut places = Vec::with_capacity(columns.len());
        for name in columns {
            match self.column(name) {
                Some(place) => places.push(place),
                None => self.report(format!("the stream has no column {name}")),
            }
        }
        let kept = places.iter().map(|&place| {
            let column: Box<dyn Expression> = Box::new(ColumnExpression(place));
            (self.columns[place].clone(), column)
        });
        let keeps_key = self.key.iter().any(|key| key.iter().all(|name| columns.contains(&name.as_str())));
        let selected = self.project(kept.collect());
        if keeps_key { selected.same_key(self) } else { selected }
    }

    /// Renames a column.
    pub fn rename(&self, column: &str, name: &str) -> Stream {
        let mut columns = self.columns.to_vec();
        match self.column(column) {
            Some(place) => columns[place].name = name.to_owned(),
            None => self.report(format!("the stream has no column {column}")),
        }
        let renamed = |key: &Rc<[String]>| -> Rc<[String]> {
            key.iter().map(|old| if old == column { name.to_owned() } else { old.clone() }).collect()
        };
        Stream { columns: columns.into(), key: self.key.as_ref().map(renamed), ..self.clone() }
    }

    /// Merges the tuples of both streams in the order of their arrival. The columns must be the same.
    pub fn union(&self, other: &Stream) -> Stream {
        let types = |stream: &Stream| {
            stream.columns.iter().map(|c| (c.name.clone(), c.data_type)).collect::<Vec<_>>()
        };
        if types(self) != types(other) {
            self.report("the streams of a union have different columns");
        }
        let mut columns = self.columns.to_vec();
        for (column, theirs) in columns.iter_mut().zip(other.columns.iter()) {
            column.nullable |= theirs.nullable;
        }
        let mut union = self.add("union", columns.into(), |_| Ok(Box::new(Union)));
        self.graph.borrow_mut().nodes[union.node].inputs = vec![self.node, other.node];
        union.from_sources = self.from_sources && other.from_sources;
        union.changes = self.changes || other.changes;
        union
    }

    /// Sends changes as tuples that stay: each one that is inserted or taken back, with `insert` or `delete` in a last column
    /// of this name.
    pub fn changes_as_rows(&self, change_type: &str) -> Stream {
        if self.column(change_type).is_some() {
            self.report(format!("the stream has a column {change_type} already"));
        }
        let mut columns = self.columns.to_vec();
        columns.push(Column::new(change_type, DataType::Varchar).not_null());
        let schema = arrow_schema(&columns, UTC);
        let rows = self.add(self.name("changes as rows"), columns.into(), move |made| {
            Ok(Box::new(ChangesAsRows { name: made.name.to_owned(), schema }))
        });
        Stream { changes: false, ..rows }
    }

    /// Copies each tuple for each window that contains its event time, and adds the columns `window_start` and
    /// `window_end`. A tuple without an event time comes once, with NULL in both. Tuples may be taken back.
    pub fn assign_windows(&self, window: &TimeWindow) -> Stream {
        match self.windows_of(window) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("windows over {}: {reason}", window.time));
                self.clone()
            }
        }
    }

    fn windows_of(&self, window: &TimeWindow) -> std::result::Result<Stream, String> {
        let span = window.span()?;
        let time_column = self.column(&window.time).ok_or("the stream has no such column")?;
        let time = &self.columns[time_column];
        let edge_type = edge_type_of(time.data_type).ok_or("the column is not a TIMESTAMP")?;
        if let Some(name) = [WINDOW_START, WINDOW_END].iter().find(|name| self.column(name).is_some()) {
            return Err(format!("the stream has a column {name} already"));
        }
        let edge = |name: &str| Column { nullable: time.nullable, ..Column::new(name, edge_type) };
        let edges = [WINDOW_START, WINDOW_END].map(edge);
        let columns: Vec<Column> = self.columns.iter().cloned().chain(edges).collect();
        let schema = arrow_schema(&columns, UTC);
        let added = self.add(self.name("windows"), columns.into(), move |made| {
            Ok(Box::new(AssignWindows { name: made.name.to_owned(), time_column, span, schema }))
        });
        Ok(added.described(&window.kind.describe(&window.time)))
    }

    /// Assigns the tuples to windows of event time.
    pub fn window(&self, window: TimeWindow) -> WindowedStream {
        self.check_appended("a window");
        WindowedStream { stream: self.clone(), window }
    }

    /// Adds the other columns of the row of `table` whose key (in key order) is in the columns `on`. A column
    /// whose name exists in the stream is named `<table>_<column>`.
    pub fn lookup_join(&self, table: &str, on: &[&str], kind: JoinKind) -> Stream {
        self.check_appended("a lookup join without a state table");
        self.look_up(table, on, (kind, false), None)
    }

    /// Adds all columns of such a row, as [`Stream::lookup_join`] adds those that are not of its key. Of a stream whose
    /// tuples are taken back, the state table has what was sent for them ([`Stream::record_sent`]).
    pub fn lookup_join_all(
        &self,
        table: &str,
        on: &[&str],
        kind: JoinKind,
        state_table: Option<&str>,
    ) -> Stream {
        if state_table.is_none() {
            self.check_appended("a lookup join without a state table");
        }
        self.look_up(table, on, (kind, true), state_table)
    }

    /// Adds an operator that computes rows of `columns` for each tuple alone, from tables too, to a stream whose tuples are
    /// taken back: the state table, which only it may write, has what was sent for the tuples that are there, and with a tuple
    /// that is taken back. The first `leading` columns of a row are those of its tuple. The operator sends an Int64 column
    /// more, the last: the number of the tuple in its batch.
    pub fn record_sent(
        &self,
        columns: Vec<Column>,
        leading: usize,
        state_table: &str,
        operator: impl Operator + 'static,
    ) -> Stream {
        let name = operator.name().to_owned();
        self.recorded(&name, columns, leading, state_table, move |_| Ok(Box::new(operator)))
    }

    fn recorded(
        &self,
        name: &str,
        columns: Vec<Column>,
        leading: usize,
        state_table: &str,
        make: impl FnOnce(&OperatorArguments<'_>) -> Result<Box<dyn Operator>> + 'static,
    ) -> Stream {
        let planned = sent_rows::schema_of(&self.columns, &columns, leading)
            .and_then(|schema| self.plan_state(state_table, schema));
        if let Err(reason) = planned {
            self.report(format!("rows that were sent, in {state_table}: {reason}"));
        }
        let (width, table) = (self.columns.len(), state_table.to_owned());
        let output = arrow_schema(&columns, UTC);
        let added = self.add(name, columns.into(), move |made| {
            let inner = make(made)?;
            Ok(Box::new(SentRows::new(made.catalog.table(&table)?, (width, leading), output, inner)?))
        });
        let writer = Writer { table: state_table.to_owned(), node: added.node, is_to_table: false };
        self.graph.borrow_mut().writers.push(writer);
        added
    }

    /// Changes rows of a table by expressions over the columns of the stream and then all visible columns of the table:
    /// of the row with the tuple's key, NULL if there is none. Tuples take effect in their order; one that is taken back
    /// has none any more. Writes are those of the topology's transaction, as of [`Stream::to_table`].
    pub fn merge_into(&self, merge: MergeInto) {
        if merge.state_table.is_none() {
            self.check_appended("MERGE without a state table");
        }
        if let Err(reason) = self.try_merge_into(merge) {
            self.report(reason);
        }
    }

    fn try_merge_into(&self, merge: MergeInto) -> std::result::Result<(), String> {
        let MergeInto { table, on, action, values, inserts, rules, state_table } = merge;
        let schema = self.graph.borrow().schema(&self.catalog, &table);
        let schema = schema.ok_or_else(|| format!("merge: there is no table {table}"))?;
        let names: Vec<&str> = on.iter().map(String::as_str).collect();
        self.check_join(&table, &schema, &names)?;
        if let Some(state_table) = &state_table {
            let mut key = schema.key().iter().map(|&at| &schema.columns()[at]);
            if let Some(column) = key.find(|column| matches!(column.modifier, Modifier::Char(_))) {
                return Err(format!(
                    "merge: column {} of the key of table {table} is CHAR, of which a row that is taken back is not found: \
                     make it VARCHAR",
                    column.name
                ));
            }
            self.plan_state(state_table, merged_rows::schema_of(&schema)?)?;
        }
        let visible = schema.visible_columns();
        if values.len() != visible.len() {
            return Err(format!(
                "merge: {} values for the {} columns of table {table}",
                values.len(),
                visible.len()
            ));
        }
        let on: Vec<usize> = names.iter().filter_map(|name| self.column(name)).collect();
        let nullable = |column: &Column| Column { nullable: true, ..column.clone() };
        let written: Vec<Column> = visible.iter().map(nullable).collect();
        let numbered = |(at, column): (usize, &Column)| Column { name: format!("{at}"), ..column.clone() };
        let joined: Vec<Column> = self.columns.iter().chain(&written).enumerate().map(numbered).collect();
        let by_key = format!("by its key ({})", key_columns(&schema));
        let (joined, schema) = (arrow_schema(&joined, UTC), arrow_schema(&written, UTC));
        let (target, merged) = (table.clone(), state_table.clone());
        let added = self.add(format!("MERGE INTO {table}"), Rc::clone(&self.columns), move |made| {
            let (name, table) = (made.name.to_owned(), made.catalog.table(&target)?);
            let merged = match merged {
                Some(merged) => Some(MergedRows::new(made.catalog.table(&merged)?, table.schema())),
                None => None,
            };
            let added = (0..table.schema().visible_columns().len()).collect();
            let (kind, lookup_name) = (JoinKind::Left, name.clone());
            let is_numbered = false;
            let lookup =
                LookupJoin { name: lookup_name, table, on, added, kind, is_numbered, schema: joined };
            let write = ToTableOperator::new(made, name.clone(), &target, written, false, rules)?;
            let write = ToTableOperator { sent: made.sent, ..write };
            Ok(Box::new(MergeIntoOperator { name, lookup, action, values, inserts, schema, write, merged }))
        });
        let mut graph = self.graph.borrow_mut();
        graph.describe(added.node, &by_key);
        graph.writers.push(Writer { table, node: added.node, is_to_table: true });
        let state = state_table.map(|table| Writer { table, node: added.node, is_to_table: false });
        graph.writers.extend(state);
        Ok(())
    }

    fn look_up(
        &self,
        table: &str,
        on: &[&str],
        (kind, with_key): (JoinKind, bool),
        state_table: Option<&str>,
    ) -> Stream {
        let Some(of_table) = self.graph.borrow().schema(&self.catalog, table) else {
            self.report(format!("lookup join: there is no table {table}"));
            return self.clone();
        };
        if let Err(reason) = self.check_join(table, &of_table, on) {
            self.report(reason);
            return self.clone();
        }
        let on: Vec<usize> = on.iter().filter_map(|name| self.column(name)).collect();
        let is_added = |index: &usize| with_key || !of_table.key().contains(index);
        let added: Vec<usize> = (0..of_table.visible_columns().len()).filter(is_added).collect();
        let mut columns = self.columns.to_vec();
        for &index in &added {
            let mut column = of_table.columns()[index].clone();
            column.nullable |= kind == JoinKind::Left;
            if self.column(&column.name).is_some() {
                column.name = format!("{table}_{}", column.name);
            }
            columns.push(column);
        }
        let (name, table) = (self.name("lookup join"), table.to_owned());
        let of_node = name.clone();
        let looked_up = format!("{table} by its key ({})", key_columns(&of_table));
        let is_numbered = state_table.is_some();
        let number = Column::new("number of the tuple", DataType::BigInt).not_null();
        let sent: Vec<Column> = columns.iter().cloned().chain(is_numbered.then_some(number)).collect();
        let schema = arrow_schema(&sent, UTC);
        let make = move |made: &OperatorArguments<'_>| -> Result<Box<dyn Operator>> {
            let table = made.catalog.table(&table)?;
            Ok(Box::new(LookupJoin { name, table, on, added, kind, is_numbered, schema }))
        };
        let joined = match state_table {
            Some(state_table) => self.recorded(&of_node, columns, self.columns.len(), state_table, make),
            None => self.add(of_node, columns.into(), make),
        };
        joined.described(&looked_up).same_key(self)
    }

    fn check_join(&self, table: &str, schema: &Schema, on: &[&str]) -> Result<(), String> {
        if schema.hidden_key() || on.len() != schema.key().len() {
            return Err(format!(
                "a lookup in table {table} needs {} key columns, found {}",
                schema.key().len(),
                on.len()
            ));
        }
        for (name, &index) in on.iter().zip(schema.key()) {
            let key = &schema.columns()[index];
            let place = self.column(name).ok_or_else(|| format!("the stream has no column {name}"))?;
            let found = self.columns[place].data_type;
            let alike = match (found, key.data_type) {
                (DataType::Decimal { scale: a, .. }, DataType::Decimal { scale: b, .. }) => a == b,
                (a, b) => a == b,
            };
            if !alike {
                return Err(format!(
                    "column {name} is {found}, key column {} of table {table} is {}",
                    key.name, key.data_type
                ));
            }
        }
        Ok(())
    }

    /// Writes the stream into a table (TO_TABLE). A missing table is created with the stream's columns.
    pub fn to_table(&self, target: impl Into<ToTable>) {
        let ToTable { table, key, insert, row_identity, delete_when, rules } = target.into();
        if insert || delete_when.is_some() {
            self.check_appended("TO_TABLE other than an upsert");
        }
        if self.graph.borrow().schema(&self.catalog, &table).is_none() {
            let key = key.or_else(|| self.key.as_ref().map(|key| key.to_vec())).unwrap_or_default();
            match Schema::new(self.columns.to_vec(), &key) {
                Ok(schema) => drop(self.graph.borrow_mut().planned.insert(table.clone(), schema)),
                Err(error) => self.report(format!("table {table}: {error}")),
            }
        } else if let Some(key) = key {
            let schema = self.graph.borrow().schema(&self.catalog, &table);
            if schema.is_some_and(|schema| !schema.key_names().eq(key.iter().map(String::as_str))) {
                self.report(format!("the key of table {table} is not ({})", key.join(", ")));
            }
        }
        match &row_identity {
            RowIdentity::ByKey if self.changes => self.check_target_key(&table),
            RowIdentity::ByKey => {}
            RowIdentity::Only | RowIdentity::ByIndex(_) => self.check_without_key(&table, &row_identity),
        }
        let (columns, target) = (self.columns.to_vec(), table.clone());
        let schema = self.graph.borrow().schema(&self.catalog, &table).filter(|schema| !schema.hidden_key());
        let replaces =
            schema.filter(|_| !insert).map(|schema| format!("by its key ({})", key_columns(&schema)));
        let added = self.add(format!("TO_TABLE {table}"), Rc::clone(&self.columns), move |made| {
            let operator = ToTableOperator::new(made, made.name.to_owned(), &target, columns, insert, rules)?;
            Ok(Box::new(ToTableOperator { row_identity, delete_when, sent: made.sent, ..operator }))
        });
        let mut graph = self.graph.borrow_mut();
        if let Some(by_key) = replaces {
            graph.describe(added.node, &by_key);
        }
        graph.writers.push(Writer { table, node: added.node, is_to_table: true });
    }

    /// Reports a table with a key, or without the index, of which the rows are not to be found by a key.
    fn check_without_key(&self, table: &str, row_identity: &RowIdentity) {
        let schema = self.graph.borrow().schema(&self.catalog, table);
        if schema.is_some_and(|schema| !schema.hidden_key()) {
            self.report(format!(
                "table {table} has a key: a single row, or rows by an index, need one without"
            ));
        }
        let is_there =
            |index: &String| self.catalog.table(table).is_ok_and(|table| table.index(index).is_some());
        if let RowIdentity::ByIndex(index) = row_identity
            && !is_there(index)
        {
            self.report(format!("table {table} has no index {index}"));
        }
    }

    /// Reports a table in which tuples that are taken back are not found: without a key, or with one that is not that of
    /// the stream, as far as it is known. With another, two tuples could be one row, and taking one back would delete both.
    fn check_target_key(&self, table: &str) {
        let Some(schema) = self.graph.borrow().schema(&self.catalog, table) else { return };
        if schema.hidden_key() {
            self.report(format!("table {table} has no key: tuples that are taken back are not found in it"));
        } else if let Some(key) = &self.key
            && (schema.key_names().count() != key.len()
                || !schema.key_names().all(|name| key.iter().any(|of_stream| of_stream == name)))
        {
            let (of_table, key) = (schema.key_names().collect::<Vec<_>>().join(", "), key.join(", "));
            self.report(format!(
                "the key of table {table} is ({of_table}): tuples that are taken back have the key ({key})"
            ));
        }
    }

    /// Sends committed tuples to a sink.
    pub fn sink(&self, mut sink: impl Sink) {
        self.check_appended("a sink");
        let columns = self.columns.to_vec();
        self.add(self.name("sink"), Rc::clone(&self.columns), move |made| {
            sink.open(&columns)?;
            let memory = HeldBatches::new(made.memory);
            Ok(Box::new(SinkOperator::new(made.name.to_owned(), sink, memory)))
        });
    }

    /// Appends the tuples to a file, each exactly once: its length is stored in the transaction, and what a crash
    /// left behind it is removed. CSV has a header line if the file was empty.
    pub fn file_sink(&self, path: impl AsRef<Path>, format: FileFormat) {
        self.check_sink("a file sink", &format);
        let path = path.as_ref().to_owned();
        let encoder = RowEncoder::new(format, &self.columns);
        self.add(self.name("file sink"), Rc::clone(&self.columns), move |made| {
            let stored = StoredLength::new(made.catalog, made.topology, &path)?;
            let name = made.name.to_owned();
            let memory = HeldBatches::new(made.memory);
            Ok(Box::new(FileSinkOperator::new(name, path, encoder, made.durability, stored, memory)))
        });
    }

    /// Writes the tuples into files, each exactly once; in the path `{n}` stands for the number of a file. A file is complete
    /// when it reaches a limit, and at the end of a run; until then its tuples wait beside it.
    pub fn rolled_sink(&self, path: impl AsRef<Path>, files: RolledFiles) {
        self.check_appended("a rolled sink");
        let path = path.as_ref().to_owned();
        self.add(self.name("rolled sink"), Rc::clone(&self.columns), move |made| {
            let names = RolledNames::new(&path, made.topology)?;
            let pool = made.catalog.context().pool();
            Ok(Box::new(RolledSinkOperator {
                name: made.name.to_owned(),
                files,
                durability: made.durability,
                stored: StoredFiles::new(made.catalog, made.topology, names.clone())?,
                names,
                pool: Arc::clone(pool),
                memory: HeldBatches::new(made.memory),
                state: RolledSinkState::default(),
            }))
        });
    }

    /// Sends the tuples as lines to a TCP address, `host:port`, each at least once: before the commit. CSV has
    /// no header line.
    pub fn tcp_sink(&self, address: &str, format: FileFormat) {
        self.check_sink("a tcp sink", &format);
        let address = address.to_owned();
        let encoder = RowEncoder::new(format, &self.columns);
        self.add(self.name("tcp sink"), Rc::clone(&self.columns), move |made| {
            let memory = HeldBatches::new(made.memory);
            Ok(Box::new(TcpSinkOperator::new(made.name.to_owned(), address, encoder, memory)))
        });
    }

    /// Reports a sink of a format that cannot have the tuples: those that are taken back, or without the columns of the key.
    fn check_sink(&self, sink: &str, format: &FileFormat) {
        let FileFormat::Changes(format) = format else { return self.check_appended(sink) };
        if let Some(name) = format.key.iter().find(|name| self.column(name).is_none()) {
            self.report(format!("{sink}: the stream has no column {name} of the key"));
        }
        if format.logged_columns.is_some_and(|columns| self.columns.len() != 2 * columns + 2) {
            self.report(format!("{sink}: the tuples are not logged changes of a table"));
        }
    }

    /// Adds any other operator, with its output columns.
    pub fn apply(&self, columns: Vec<Column>, operator: impl Operator + 'static) -> Stream {
        self.check_appended("another operator");
        self.add(operator.name().to_owned(), columns.into(), move |_| Ok(Box::new(operator)))
    }
}

/// Names of the columns of a table's key.
fn key_columns(schema: &Schema) -> String {
    schema.key_names().collect::<Vec<_>>().join(", ")
}
