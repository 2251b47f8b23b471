//! Topologies: built from streams, then started.

use crate::boundary::{Boundary, Merge, OnError};
use crate::error::{Error, Result};
use crate::execution::dataflow::Dataflow;
use crate::execution::dropped::ErrorTables;
use crate::execution::executor::{Executor, Settings};
use crate::execution::feed::{Feed, FeedSource};
use crate::execution::rejects_table::RejectsTable;
use crate::execution::skipped::SkippedTuples;
use crate::graph::{Graph, GraphSource, Listener, NodeKind, OperatorArguments, TopologyOperator};
use crate::operators::Operator;
use crate::operators::abort_when::AbortWhen;
use crate::operators::to_stream::{ToStream, Trigger};
use crate::operators::window::WindowSpan;
use crate::operators::written_rows::SentForm;
use crate::owned_tables::check_target;
use crate::running::{Report, Running};
use crate::sources::Source;
use crate::stream::Stream;
use crate::{PARALLELISM_MAX, SOURCE_IDLE_MS, TOPOLOGY_MEMORY_MIN, positions};
use entresol_memory::Durability;
use entresol_memory::budget::MemoryBudget;
use entresol_tables::{Catalog, Column, Table, TableDefinition, TableOptions, open_change_columns};
use entresol_transactions::{GroupId, Isolation, Transaction};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Least share of an operator in a bound of the memory of its topology.
const CACHE_MEMORY_MIN: u64 = 256 << 10;

/// Builds a topology; see the [crate](crate).
pub struct TopologyBuilder {
    name: String,
    catalog: Arc<Catalog>,
    graph: Rc<RefCell<Graph>>,
    /// Table of the tuples that operators leave out, or of failed transactions.
    errors_table: Option<String>,
    /// Tables of the tuples of transactions in which conditions hold.
    condition_tables: RefCell<Vec<String>>,
    /// Windows that bound transactions, by the order in which they were added; none are all.
    bounding: Option<Range<usize>>,
    group: Option<GroupId>,
    /// Maximum of memory, if it is bounded apart.
    memory_max: Option<u64>,
    /// Source that marks the transactions of all.
    leader: Option<String>,
    settings: Settings,
}

/// Topology that is ready to start. It belongs to one catalog; its name is the key of its stored positions.
pub struct Topology {
    executor: Executor,
}

impl Topology {
    /// Begins a topology. At most one topology of a name may run at a time.
    pub fn builder(name: &str, catalog: &Arc<Catalog>) -> TopologyBuilder {
        TopologyBuilder {
            name: name.to_owned(),
            catalog: Arc::clone(catalog),
            graph: Rc::default(),
            group: None,
            errors_table: None,
            condition_tables: RefCell::default(),
            bounding: None,
            memory_max: None,
            leader: None,
            settings: Settings {
                durability: Durability::Sync,
                isolation: Isolation::default(),
                boundary: Boundary::Every(1000),
                tuples_max: None,
                on_error: OnError::Stop,
                merge: Merge::RoundRobin,
                commit_interval_ns: None,
                commits_when_idle: false,
                parallelism: 1,
                sqlstates: |_| None,
                memory: catalog.context().pool().memory().cloned(),
            },
        }
    }

    /// Returns true if the next transaction is computed while one commits.
    pub fn overlaps(&self) -> bool {
        self.executor.overlaps()
    }

    /// Starts the topology in a thread of its own.
    pub fn start(self) -> Result<Running> {
        let executor = self.executor;
        let stop = Arc::new(AtomicBool::new(false));
        let (topology, progress) = (executor.topology().to_owned(), Arc::clone(executor.progress()));
        let env = executor.env().clone();
        let stopped = Arc::clone(&stop);
        let spawned = env.spawn(&format!("topology {topology}"), move || executor.run(&stopped));
        let thread =
            spawned.map_err(|source| Error::Io { path: "a thread for the topology".into(), source })?;
        Ok(Running { topology, thread, progress, stop })
    }

    /// Runs to the end of the sources in the calling thread.
    pub fn run(self) -> Result<Report> {
        self.executor.run(&AtomicBool::new(false))
    }
}

impl TopologyBuilder {
    /// Sets the durability of commits; the default is `sync`.
    pub fn durability(mut self, durability: Durability) -> TopologyBuilder {
        self.settings.durability = durability;
        self
    }

    /// Durability of commits.
    pub fn commit_durability(&self) -> Durability {
        self.settings.durability
    }

    /// Sets the isolation level of transactions; the default is snapshot isolation. At [`Isolation::Serializable`] what a
    /// transaction has read is validated when it commits, and a transaction whose reads have changed is run again. A
    /// transaction is one statement, so [`Isolation::ReadCommitted`] sees what snapshot isolation does.
    pub fn isolation(mut self, isolation: Isolation) -> TopologyBuilder {
        self.settings.isolation = isolation;
        self
    }

    /// Sets the transaction boundary; the default is `Every(1000)`.
    pub fn boundary(mut self, boundary: Boundary) -> TopologyBuilder {
        self.settings.boundary = boundary;
        self
    }

    /// Lets one source mark the transactions of all ([`Boundary::Punctuated`]): what the others have sent until its mark is of the
    /// same one. The topology ends with it.
    pub fn leader(mut self, source: &str) -> TopologyBuilder {
        self.leader = Some(source.to_owned());
        self
    }

    /// Commits a transaction of so many tuples that a window bounds too ([`Boundary::PerWindow`]).
    pub fn tuples_max(mut self, tuples: usize) -> TopologyBuilder {
        self.settings.tuples_max = Some(tuples.max(1));
        self
    }

    /// Number of windows over event times so far.
    pub fn windows(&self) -> usize {
        self.graph.borrow().windows.len()
    }

    /// Bounds transactions by these windows alone ([`Boundary::PerWindow`]), in the order in which they were added.
    pub fn bounded_by(mut self, windows: Range<usize>) -> TopologyBuilder {
        self.bounding = Some(windows);
        self
    }

    /// Commits a transaction that has been open for this long, whatever its boundary; not if its sources mark
    /// transactions.
    pub fn commit_interval(mut self, interval: Duration) -> TopologyBuilder {
        self.settings.commit_interval_ns = Some(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// Commits a transaction as soon as its sources have nothing more for now; not if they mark transactions.
    pub fn commits_when_idle(mut self) -> TopologyBuilder {
        self.settings.commits_when_idle = true;
        self
    }

    /// Sets the reaction to tuples that cannot be processed; the default is `Stop`.
    pub fn on_error(mut self, on_error: OnError) -> TopologyBuilder {
        self.settings.on_error = on_error;
        self
    }

    /// Stores tuples that cannot be processed in a table: `source`, `line` (0), `reason`, `record`. With [`OnError::Skip`]
    /// those that operators leave out, in the transaction of those around them (`source` is the operator); else all of a
    /// transaction that is dropped, or ends the topology, in a transaction of their own.
    pub fn errors_into(mut self, table: &str) -> TopologyBuilder {
        self.errors_table = Some(table.to_owned());
        self.graph.borrow_mut().plan_rejects(&self.catalog, table);
        self
    }

    /// Sets the order of several sources; the default is `RoundRobin`.
    pub fn merge(mut self, merge: Merge) -> TopologyBuilder {
        self.settings.merge = merge;
        self
    }

    /// Sets the number of threads that the topology may use, from 1, the default, to [`PARALLELISM_MAX`]. The second one
    /// commits transactions while the next one is computed, where all operators can go on meanwhile (see
    /// [`Topology::overlaps`]); groups of windows are divided among the first and those from the third on. Results are
    /// the same with any number.
    pub fn parallelism(mut self, threads: usize) -> TopologyBuilder {
        self.settings.parallelism = threads.clamp(1, PARALLELISM_MAX);
        self
    }

    /// Sets the maximum of memory for the state of operators and for input that is held, at least [`TOPOLOGY_MEMORY_MIN`],
    /// out of the budget of the database. State that can be read again leaves DRAM; a topology that needs more fails. Called before the
    /// first source.
    pub fn memory_max(mut self, bytes: u64) -> TopologyBuilder {
        let name = format!("memory of topology {}", self.name);
        let budget = self.catalog.context().pool().memory();
        self.memory_max = Some(bytes.max(TOPOLOGY_MEMORY_MIN));
        self.settings.memory = self.memory_max.map(|bytes| MemoryBudget::part(budget, &name, bytes));
        self
    }

    /// Memory out of which the state of operators is reserved, for sources that reserve some, too.
    pub fn memory(&self) -> Option<&Arc<MemoryBudget>> {
        self.settings.memory.as_ref()
    }

    /// Sets the group of the tables that this topology creates; by default each has a group of its own.
    pub fn group(mut self, group: GroupId) -> TopologyBuilder {
        self.group = Some(group);
        self
    }

    /// Sets state tables that will be removed before this topology is built: it is checked as if they were not
    /// there. For operators that are added from here on.
    pub fn without_state(self, tables: &[String]) -> TopologyBuilder {
        self.graph.borrow_mut().removed.extend_from_slice(tables);
        self
    }

    /// Sets what the SQLSTATEs of errors are, which then are shown with them.
    pub fn sqlstates(mut self, of: fn(&Error) -> Option<&'static str>) -> TopologyBuilder {
        self.settings.sqlstates = of;
        self
    }

    /// Sets the label of the step whose operators are added from here on, which their errors begin with; returns the one
    /// before.
    pub fn label(&self, step: Option<&str>) -> Option<String> {
        let step = std::mem::replace(&mut self.graph.borrow_mut().step, step.map(Arc::from));
        step.map(|step| step.to_string())
    }

    /// Adds a source. Its name is the key of its stored position.
    pub fn source(&self, name: &str, source: impl Source + 'static) -> Stream {
        let columns: Rc<[Column]> = source.columns().into();
        let mut graph = self.graph.borrow_mut();
        if graph.sources.iter().any(|other| other.name == name) {
            graph.report(format!("duplicate source name {name}"));
        }
        let node = graph.add(format!("source {name}"), Vec::new(), NodeKind::Source);
        graph.sources.push(GraphSource {
            name: name.to_owned(),
            source: Box::new(source),
            columns: Rc::clone(&columns),
            node,
            event_time: None,
            idle: Duration::from_millis(SOURCE_IDLE_MS),
            rejects_table: None,
        });
        drop(graph);
        self.stream(node, columns, true)
    }

    /// Returns the rows with which this topology changes a table, as tuples of the table's columns (TO_STREAM).
    /// Deletes are omitted. The table must exist, or be created by a TO_TABLE or an aggregate above.
    pub fn to_stream(&self, table: &str, trigger: Trigger) -> Stream {
        self.listen(table, trigger, false)
    }

    /// Returns the changes that this topology makes to a table, with deletes: the table's columns, which of a deleted row are
    /// as they were, and those of [`entresol_tables::open_change_columns`]. With `EachTuple` the row before is the one that
    /// the transaction sees then, for which each written key is looked up; with `OnCommit` the one before the transaction. The
    /// table has a key.
    pub fn to_stream_changes(&self, table: &str, trigger: Trigger) -> Stream {
        self.listen(table, trigger, true)
    }

    /// Aborts a transaction if a condition holds at its commit. It is asked after all that writes `tables`,
    /// whose changes it may read from the transaction; its name is the reason of the abort. `into` is a table for the
    /// tuples of the transaction ([`TopologyBuilder::errors_into`]).
    pub fn abort_when(
        &self,
        name: &str,
        tables: &[&str],
        into: Option<&str>,
        condition: impl FnMut(&Arc<Transaction>) -> Result<bool> + Send + 'static,
    ) {
        if let Some(into) = into {
            self.graph.borrow_mut().plan_rejects(&self.catalog, into);
            self.condition_tables.borrow_mut().push(into.to_owned());
        }
        let operator = AbortWhen {
            name: name.to_owned(),
            into: into.map(str::to_owned),
            condition: Box::new(condition),
        };
        let make = move |_: &OperatorArguments<'_>| -> Result<Box<dyn Operator>> { Ok(Box::new(operator)) };
        let mut graph = self.graph.borrow_mut();
        let node = graph.add(name.to_owned(), Vec::new(), NodeKind::Operator(Box::new(make)));
        for &table in tables {
            let (table, trigger) = (table.to_owned(), Trigger::OnCommit);
            graph.listeners.push(Listener { table, node, trigger, with_before: false });
        }
    }

    /// Adds an operator without inputs that sends rows of these columns at the commit, after all that writes `tables`, which
    /// it may read whole from the transaction (TO_STREAM, as of a median of all rows). A step of this topology writes one of the
    /// tables at least, and none that the operator's rows lead to.
    pub fn at_commit(
        &self,
        tables: &[&str],
        columns: Vec<Column>,
        operator: impl Operator + 'static,
    ) -> Stream {
        let name = operator.name().to_owned();
        let make = move |_: &OperatorArguments<'_>| -> Result<Box<dyn Operator>> { Ok(Box::new(operator)) };
        let mut graph = self.graph.borrow_mut();
        let node = graph.add(name, Vec::new(), NodeKind::Operator(Box::new(make)));
        graph.readers.push((node, tables.iter().map(|&table| table.to_owned()).collect()));
        drop(graph);
        self.stream(node, columns.into(), false)
    }

    fn listen(&self, table: &str, trigger: Trigger, with_before: bool) -> Stream {
        let schema = self.graph.borrow().schema(&self.catalog, table);
        let (mut columns, mut key) = (Vec::new(), None);
        match &schema {
            Some(schema) if with_before && schema.hidden_key() => {
                self.graph
                    .borrow_mut()
                    .report(format!("TO_STREAM: changes of table {table}, which has no key"));
            }
            Some(schema) => {
                columns = schema.visible_columns().to_vec();
                if with_before {
                    columns = open_change_columns(&columns);
                }
                if !schema.hidden_key() {
                    key = Some(schema.key_names().map(str::to_owned).collect());
                }
            }
            None => self.graph.borrow_mut().report(format!("TO_STREAM: there is no table {table}")),
        }
        let (name, output) = (table.to_owned(), columns.clone());
        let make = move |made: &OperatorArguments<'_>| -> Result<Box<dyn Operator>> {
            let table = made.catalog.table(&name)?;
            let name = made.name.to_owned();
            let (width, received) = (table.schema().visible_columns().len(), made.sent);
            let (columns, held_watermark) = (output, None);
            Ok(Box::new(ToStream {
                name,
                table,
                width,
                columns,
                trigger,
                with_before,
                received,
                held_watermark,
            }))
        };
        let mut graph = self.graph.borrow_mut();
        let kind = NodeKind::Operator(Box::new(make));
        let node = graph.add(format!("TO_STREAM {table}"), Vec::new(), kind);
        graph.listeners.push(Listener { table: table.to_owned(), node, trigger, with_before });
        drop(graph);
        Stream { key, ..self.stream(node, columns.into(), false) }
    }

    fn stream(&self, node: usize, columns: Rc<[Column]>, from_sources: bool) -> Stream {
        let (graph, catalog) = (Rc::clone(&self.graph), Arc::clone(&self.catalog));
        Stream { graph, catalog, node, columns, key: None, from_sources, changes: false }
    }

    /// Names of the tables that it creates: those of its steps so far that are missing.
    pub fn missing_tables(&self) -> Vec<String> {
        let graph = self.graph.borrow();
        graph.planned.keys().filter(|table| self.catalog.table(table).is_err()).cloned().collect()
    }

    /// Checks the topology, and returns its operators with their inputs.
    pub fn operators(self) -> Result<Vec<TopologyOperator>> {
        self.checked().map(|(graph, ..)| graph.operators())
    }

    /// Checks the topology; creates and reads nothing.
    pub fn check(self) -> Result<()> {
        self.checked().map(drop)
    }

    /// Graph of the topology with the order of its nodes and the windows that bound transactions.
    fn checked(&self) -> Result<(Graph, Vec<usize>, Vec<WindowSpan>)> {
        let mut graph = self.graph.take();
        let invalid = |reason: String| Error::InvalidTopology { topology: self.name.clone(), reason };
        if let Some(mistake) = graph.mistake.take() {
            return Err(invalid(mistake));
        }
        graph.connect_listeners().map_err(invalid)?;
        let order = graph.order().map_err(invalid)?;
        let spans = self.check_boundary(&mut graph).map_err(invalid)?;
        Ok((graph, order, spans))
    }

    /// Checks the topology, creates the missing tables, and reads the positions of the sources.
    pub fn build(self) -> Result<Topology> {
        let (graph, order, spans) = self.checked()?;
        let mut created = Vec::new();
        let assembled = self.assemble(graph, order, &mut created);
        match assembled.and_then(|assembled| Ok((assembled, self.error_tables()?))) {
            Ok(((feed, dataflow, positions), tables)) => {
                let executor =
                    Executor::new(self.name, self.catalog, self.settings, feed, dataflow, spans, positions);
                Ok(Topology { executor: executor.errors_into(tables) })
            }
            Err(error) => {
                // A refused topology leaves nothing behind.
                for table in created {
                    if let Err(failed) = self.catalog.drop_table(&table) {
                        tracing::warn!(topology = self.name, table, %failed, "a table of a refused topology stays");
                    }
                }
                Err(error)
            }
        }
    }

    /// Tables for the tuples of failed transactions.
    fn error_tables(&self) -> Result<ErrorTables> {
        let mut tables = ErrorTables::default();
        if self.settings.on_error != OnError::Skip {
            tables.of_topology = self.rejects_table(self.errors_table.as_deref())?;
        }
        for table in self.condition_tables.borrow().iter() {
            let named = self.rejects_table(Some(table))?.map(|of_condition| (table.clone(), of_condition));
            tables.named.extend(named);
        }
        Ok(tables)
    }

    /// Table of bad records of this name, if there is a name.
    fn rejects_table(&self, name: Option<&str>) -> Result<Option<RejectsTable>> {
        let table = name.map(|name| self.catalog.table(name)).transpose()?;
        Ok(table.map(|table| RejectsTable::new(table, &self.name)))
    }

    /// Creates the missing tables and the operators; notes the tables.
    fn assemble(
        &self,
        mut graph: Graph,
        order: Vec<usize>,
        created: &mut Vec<String>,
    ) -> Result<(Feed, Dataflow, Arc<Table>)> {
        let options = || TableOptions { group: self.group, if_not_exists: true, ..TableOptions::default() };
        let mut note = |name: &str| {
            if self.catalog.table(name).is_err() {
                created.push(name.to_owned());
            }
        };
        for writer in graph.writers.iter().filter(|writer| writer.is_to_table) {
            if let Ok(table) = self.catalog.table(&writer.table) {
                check_target(&table, &self.name)?;
            }
        }
        // One that exists may have been made without an owner, or have another.
        for writer in graph.writers.iter().filter(|writer| !writer.is_to_table) {
            note(&writer.table);
            let schema = match graph.planned.remove(&writer.table) {
                Some(schema) => schema,
                None => self.catalog.table(&writer.table)?.schema().as_ref().clone(),
            };
            let pages = graph.paged.contains(&writer.table);
            let definition = TableDefinition { pages, ..TableDefinition::plain(schema) };
            positions::open_owned(&self.catalog, &writer.table, definition, Some(&self.name), options())?;
        }
        for (name, schema) in std::mem::take(&mut graph.planned) {
            note(&name);
            self.catalog.create_table(&name, schema, options())?;
        }
        let (positions, watermarks) = positions::open_tables(&self.catalog)?;
        let sources = graph.sources_by_node(&order);
        let feed = self.feed(&mut graph, &positions)?;
        let dataflow = self.dataflow(graph, order, &sources, &watermarks)?;
        Ok((feed, dataflow, positions))
    }

    /// Returns the windows that bound the transactions with `PerWindow`.
    fn check_boundary(&self, graph: &mut Graph) -> Result<Vec<WindowSpan>, String> {
        if graph.sources.is_empty() {
            return Err("the topology has no source".to_owned());
        }
        if self.settings.boundary == Boundary::Every(0) {
            return Err("a boundary of 0 tuples: it must be at least 1".to_owned());
        }
        if let Some(leader) = &self.leader {
            if self.settings.boundary != Boundary::Punctuated {
                return Err(format!("source {leader} leads no transactions: its marks are not the boundary"));
            }
            if graph.sources.iter().all(|source| source.name != *leader) {
                return Err(format!("source {leader}, which leads, is none of the topology"));
            }
        }
        let per_window = self.settings.boundary == Boundary::PerWindow;
        if per_window && graph.windows.is_empty() {
            return Err("a transaction per window needs a window over a source".to_owned());
        }
        let times: Vec<String> = graph.windows.iter().map(|window| window.time.clone()).collect();
        for source in &mut graph.sources {
            let columns = &source.columns;
            let found = times.iter().find_map(|time| columns.iter().position(|column| column.name == *time));
            source.event_time = source.event_time.or(found);
            if source.event_time.is_none() && (per_window || self.settings.merge == Merge::EventTime) {
                return Err(format!("source {} needs an event time", source.name));
            }
        }
        let bounding = self.bounding.clone().unwrap_or(0..graph.windows.len());
        let spans = graph.windows.get(bounding).unwrap_or_default();
        if per_window && spans.is_empty() {
            return Err("a transaction per window of a stream that has no windows over a source".to_owned());
        }
        Ok(if per_window { spans.iter().map(|window| window.span).collect() } else { Vec::new() })
    }

    fn feed(&self, graph: &mut Graph, positions: &Arc<Table>) -> Result<Feed> {
        let tx = self.catalog.begin()?;
        let mut sources = Vec::new();
        for source in std::mem::take(&mut graph.sources) {
            let stored = positions::StoredPosition::open(positions, &tx, &self.name, &source.name)?;
            let rejects = self.rejects_table(source.rejects_table.as_deref())?;
            let mut splits = None;
            if source.source.has_splits() {
                let table = positions::open_splits_table(&self.catalog)?;
                let of_source = positions::StoredSplits::new(&table, &self.name, &source.name);
                let stored = of_source.read(&*self.catalog.begin()?)?;
                splits = Some((of_source, stored));
            }
            sources.push(FeedSource::new(
                source,
                stored,
                splits,
                self.settings.boundary.batch_tuples(),
                rejects,
            ));
        }
        Ok(Feed::new(sources, self.leader.as_deref(), self.settings.merge))
    }

    /// Memory of an operator whose state may leave DRAM, of so many operators with state: none of them takes what another one
    /// cannot do without.
    fn memory_of_caches(&self, operators: usize) -> Option<Arc<MemoryBudget>> {
        let memory = self.settings.memory.as_ref();
        let Some(bytes) = self.memory_max else { return memory.cloned() };
        let share = (bytes / (operators as u64 + 1)).max(CACHE_MEMORY_MIN);
        let name = format!("an operator's share in memory of topology {}", self.name);
        Some(MemoryBudget::part(memory, &name, share))
    }

    fn dataflow(
        &self,
        graph: Graph,
        order: Vec<usize>,
        sources: &[Vec<usize>],
        watermarks: &Arc<Table>,
    ) -> Result<Dataflow> {
        let sent: Vec<SentForm> = (0..graph.nodes.len()).map(|node| graph.sent_form(node)).collect();
        let skipped_table = self.rejects_table(self.errors_table.as_deref())?;
        let skips = self.settings.on_error == OnError::Skip;
        let states = graph.writers.iter().filter(|writer| !writer.is_to_table);
        let with_state: BTreeSet<usize> = states.map(|writer| writer.node).collect();
        let mut dataflow =
            Dataflow::new(order, skips.then(|| SkippedTuples::new(skipped_table)), self.settings.sqlstates);
        for (number, node) in graph.nodes.into_iter().enumerate() {
            let sources_of_inputs: Vec<&[usize]> =
                node.inputs.iter().map(|&input| &sources[input][..]).collect();
            let operator = match node.kind {
                NodeKind::Source => None,
                NodeKind::Operator(make) => Some(make(&OperatorArguments {
                    topology: &self.name,
                    name: &node.name,
                    catalog: &self.catalog,
                    watermarks,
                    durability: self.settings.durability,
                    parallelism: self.settings.parallelism,
                    memory: self.settings.memory.as_ref(),
                    memory_of_caches: self.memory_of_caches(with_state.len()),
                    sent: sent[number],
                    sources: &sources[number],
                    sources_of_inputs: &sources_of_inputs,
                })?),
            };
            dataflow.add(operator, node.step, node.inputs, node.after);
        }
        Ok(dataflow)
    }
}
