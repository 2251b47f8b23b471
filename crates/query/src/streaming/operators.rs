//! Plans of steps as operators: each node of a plan becomes an operator of a topology, or is refused by name.

use crate::error::{Error, Result, as_stream_error};
use crate::planner::patterns::planning::PlannedPattern;
use crate::planner::row_expressions::Columns;
use crate::planner::rules::asof::is_asof;
use crate::planner::rules::subqueries::renumbered;
use crate::postgres::types::column_type;
use crate::schema_names::STREAMS_CATALOG;
use crate::streaming::bound_plans::{BoundPlan, have_subqueries, reads_stream};
use crate::streaming::changed_rows::{self, ChangedRows};
use crate::streaming::conditions::Condition;
use crate::streaming::connectors::SourceDefinition;
use crate::streaming::emission::Emit;
use crate::streaming::expressions::{AssignedValues, ComputedColumn};
use crate::streaming::names::Reference;
use crate::streaming::operator_tree::describe_expression;
use crate::streaming::replaced::{RankingOfStep, ReplacedBy, Replacement, check_replaced};
use crate::streaming::sinks::SinkDefinition;
use crate::streaming::steps::{PlannedStep, PlannedTopology, Target, changes_source};
use crate::streaming::target_rules::TargetRules;
use crate::streaming::watermarks::EventTime;
use crate::streaming::windows::{Windows, assign_windows, open_sessions, rename_edges};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Distinct, Expr, Join, JoinType, LogicalPlan, Projection, TableScan};
use entresol_streams::{
    ColumnExpression, DELETED, Expression, Stream, TimeWindow, ToTable, TopologyBuilder, WindowKind,
};
use entresol_tables::{Catalog, Column, Modifier, Table, arrow_type};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Refusal of an order of all rows.
pub(crate) const ALL_ROWS: &str = "ORDER BY or OFFSET without LIMIT in a step: the rows of a table have no order; order them where the table is read";

/// Stream with what is known of its times.
#[derive(Clone)]
pub(crate) struct Flow {
    pub(crate) stream: Stream,
    pub(crate) windows: Option<Windows>,
    pub(crate) event_time: Option<EventTime>,
    /// Columns by which a row replaces the one that was sent before, of a stream whose rows change.
    pub(crate) replaced: Option<ReplacedBy>,
}

/// Part of the steps so far, which later ones may have too ([`super::common_parts`]).
pub(crate) struct CommonPart {
    pub(crate) flow: Flow,
    /// Number of the step whose operators it has.
    pub(crate) step: usize,
    pub(crate) has_used_ttl: bool,
    /// Number of its state tables.
    pub(crate) states: usize,
    pub(crate) windows: Range<usize>,
}

/// Column of a sink of changes that says whether a row is inserted or taken back.
const CHANGE_TYPE: &str = "change_type";

/// Types of the arrays of columns.
pub(crate) fn storage(columns: &[Column]) -> Vec<ArrowType> {
    columns.iter().map(|column| arrow_type(column.data_type, "UTC")).collect()
}

/// State of an operator: its table, and a text that says what it is computed from and by, down to the sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedState {
    pub(crate) table: String,
    meaning: String,
    /// Text that EXPLAIN shows.
    pub(crate) operator: String,
}

pub(crate) struct Translator<'t> {
    pub(crate) topology: &'t str,
    pub(crate) catalog: &'t Catalog,
    pub(crate) builder: &'t TopologyBuilder,
    pub(crate) planned: &'t PlannedTopology,
    flows: BTreeMap<String, Flow>,
    /// States so far.
    states: Vec<PlannedState>,
    /// Number of states in the numbers of their tables, of which common parts have none twice.
    pub(crate) state_number: usize,
    /// Parts of the steps so far, by their meanings.
    pub(crate) common_parts: BTreeMap<String, CommonPart>,
    /// Earlier steps whose operators the current step has, and windows of these.
    pub(crate) common_with: Vec<usize>,
    pub(crate) common_windows: Option<Range<usize>>,
    /// Text for each step so far: whether its rows are appended, or change.
    pub(crate) edges: Vec<Option<String>>,
    /// Plans so far that are run for each batch, or at each commit.
    pub(crate) queries: Vec<Arc<BoundPlan>>,
    /// Meanings of the streams of the steps so far, and of what the steps write into tables.
    meanings: BTreeMap<String, String>,
    /// References of the current step.
    pub(crate) step: Option<&'t PlannedStep>,
    /// True if the current step has an aggregate of windows.
    pub(crate) aggregates: bool,
    /// True if the current step has an aggregate without windows.
    pub(crate) running: bool,
    /// Occasion at which the last aggregate of the current step sends, until that takes it.
    pub(crate) emit: Emit,
    /// True if the current step joins streams.
    pub(crate) joins: bool,
    /// True if the current step has a pattern of rows.
    pub(crate) patterns: bool,
    /// Ranking of the current step.
    pub(crate) ranking: RankingOfStep,
    /// True if `state_ttl` bounds a join of the current step; of the topology, of any step.
    pub(crate) has_used_ttl: bool,
    is_ttl_used: bool,
    /// Tables that the steps so far write by their keys.
    keyed_targets: Vec<KeyedTarget>,
    /// Columns by which the rows of a materialized view replace each other, if they do.
    view: Option<ReplacedBy>,
}

/// Table in which rows of a step replace those with their keys, and a description of what they are computed from and by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyedTarget {
    pub(crate) table: String,
    /// Label of the step.
    pub(crate) step: String,
    pub(crate) meaning: String,
}

/// Steps of a topology as operators.
pub(crate) struct TranslatedSteps {
    pub(crate) states: Vec<PlannedState>,
    /// Tables that they write by their keys.
    pub(crate) keyed_targets: Vec<KeyedTarget>,
    /// Text for each step: whether its rows are appended, or change.
    pub(crate) edges: Vec<Option<String>>,
    /// Plans that are run for each batch, or at each commit.
    pub(crate) queries: Vec<Arc<BoundPlan>>,
    /// Windows over event times of each stream, in the order in which the builder has them.
    windows: BTreeMap<String, Range<usize>>,
    /// Columns by which the rows of a materialized view replace each other, if they do.
    pub(crate) view: Option<ReplacedBy>,
}

impl TranslatedSteps {
    /// Windows of a stream; none if it has none.
    pub(crate) fn windows_of(&self, stream: &str) -> Option<&Range<usize>> {
        self.windows.get(stream).filter(|windows| !windows.is_empty())
    }
}

/// Adds the operators of all steps to a topology.
pub(crate) fn translate(
    topology: &str,
    catalog: &Catalog,
    builder: &TopologyBuilder,
    planned: &PlannedTopology,
) -> Result<TranslatedSteps> {
    let mut translator = Translator {
        topology,
        catalog,
        builder,
        planned,
        flows: BTreeMap::new(),
        states: Vec::new(),
        state_number: 0,
        common_parts: BTreeMap::new(),
        common_with: Vec::new(),
        common_windows: None,
        edges: Vec::new(),
        queries: Vec::new(),
        meanings: BTreeMap::new(),
        step: None,
        aggregates: false,
        running: false,
        emit: Emit::Default,
        joins: false,
        patterns: false,
        ranking: RankingOfStep::default(),
        has_used_ttl: false,
        is_ttl_used: false,
        keyed_targets: Vec::new(),
        view: None,
    };
    let mut windows = BTreeMap::new();
    for step in &planned.steps {
        let first = builder.windows();
        translator.step(step).map_err(|error| step.error(error))?;
        if let Target::Stream(name) = &step.target {
            let own = first..builder.windows();
            let of_step = translator.common_windows.clone().filter(|_| own.is_empty());
            windows.insert(name.clone(), of_step.unwrap_or(own));
        }
    }
    if planned.state_ttl.is_some() && !translator.is_ttl_used {
        let noun = if planned.is_view() { "materialized view" } else { "topology" };
        return Err(unused_ttl(&format!("{noun} \"{topology}\"")));
    }
    let Translator { states, keyed_targets, edges, queries, view, .. } = translator;
    Ok(TranslatedSteps { states, keyed_targets, edges, queries, windows, view })
}

impl Flow {
    /// Text for EXPLAIN of a stream with the columns of a plan.
    fn describe(&self, plan: &LogicalPlan) -> String {
        let names: Vec<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        self.replaced.as_ref().map_or_else(|| "append-only".to_owned(), |replaced| replaced.describe(&names))
    }
}

impl<'t> Translator<'t> {
    fn step(&mut self, step: &'t PlannedStep) -> Result<()> {
        self.step = Some(step);
        self.builder.label(Some(&step.label));
        if let Target::Abort { text, changed, into } = &step.target {
            let condition = Condition::new(step.plan.clone(), changed.clone())?;
            let tables: Vec<&str> = changed.iter().map(ChangedRows::name).collect();
            let text = text.clone();
            self.builder.abort_when(&text.clone(), &tables, into.as_deref(), move |transaction| {
                condition.holds(transaction).map_err(|error| as_stream_error(text.clone(), error))
            });
            self.edges.push(None);
            return Ok(());
        }
        (self.aggregates, self.joins, self.patterns) = (false, false, false);
        (self.running, self.emit) = (false, step.late.emit);
        self.common_windows = None;
        self.ranking = RankingOfStep::default();
        self.has_used_ttl = false;
        let flow = match &step.target {
            Target::Merge { table, inserts } => self.merge(&step.plan, table, inserts).map(|()| None),
            _ if step.is_of_tables() => self.table_query(&step.plan).map(Some),
            _ => self.node(&step.plan).map(Some),
        }?;
        self.check_late(step)?;
        self.emit.check_taken()?;
        self.is_ttl_used |= self.has_used_ttl;
        if step.state_ttl.is_some() && !self.has_used_ttl {
            return Err(unused_ttl("a step"));
        }
        flow.as_ref().map_or(Ok(()), Flow::check_closed)?;
        self.note_meaning(step);
        let common = self.describe_common();
        self.edges.push(flow.as_ref().map(|flow| flow.describe(&step.plan) + &common));
        match (&step.target, flow) {
            (Target::Stream(name), Some(flow)) => {
                let stream = flow.stream.described(&format!("stream {name}"));
                self.flows.insert(name.clone(), Flow { stream, ..flow });
            }
            (Target::Insert { table, columns, upserts }, Some(flow)) => {
                check_replaced(flow.replaced.as_ref(), table, columns, *upserts)?;
                let name = table.name();
                let target = if *upserts { ToTable::upsert(name) } else { ToTable::insert(name) };
                self.insert(&flow, table, columns, target)?;
            }
            (Target::View(table), Some(flow)) => {
                if let Some(table) = table {
                    self.write_view(&flow, table)?;
                }
                self.view = flow.replaced;
            }
            (Target::Sink(sink), Some(flow)) => {
                flow.check_retracted("a sink")?;
                self.attach_sink(sink, &flow, named(&flow.stream, &step.plan)?)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends a stream to a sink: its changes as such, if the format has them, else with their type in a column.
    fn attach_sink(&self, sink: &SinkDefinition, flow: &Flow, rows: Stream) -> Result<()> {
        if flow.replaced.is_some() && !sink.has_changes() {
            return sink.attach(&rows.changes_as_rows(CHANGE_TYPE), None, None);
        }
        let logged = sink.from().and_then(|from| self.planned.sources.get(&changes_source(from)));
        let logged = logged.and_then(SourceDefinition::logged_table);
        let logged = logged.map(|table| self.catalog.table(table)).transpose()?;
        let key = flow.replaced.as_ref().and_then(ReplacedBy::key_columns);
        let name = |column: &usize| rows.columns()[*column].name.clone();
        let key = key.map(|key| key.iter().map(name).collect());
        sink.attach(&rows, logged.as_deref(), key)
    }

    /// Refuses LATE ROWS of a step in which they cannot be what is wanted of them.
    fn check_late(&self, step: &PlannedStep) -> Result<()> {
        let late = &step.late;
        if self.joins && late.is_there() {
            return Err(Error::unsupported(
                "LATE ROWS INTO or UPDATE of a step that joins streams, whose late rows, if there are any, are counted and dropped",
            ));
        }
        self.ranking.check_late(late.table.is_some() && !self.aggregates)?;
        if late.corrected_for.is_some() && !self.aggregates {
            return Err(Error::unsupported(
                "LATE ROWS UPDATE of a step without GROUP BY of windows: only their results are corrected",
            ));
        }
        let has_state =
            self.aggregates || self.running || self.joins || self.patterns || self.ranking.is_there;
        if !has_state && (late.is_there() || step.state_table.is_some()) {
            return Err(Error::unsupported("LATE ROWS INTO and state_table of a step without windows"));
        }
        match late.clause {
            Some(clause) if !has_state || (self.joins && !self.aggregates && !self.running) => {
                Err(Error::unsupported(format!(
                    "{clause} of a step without GROUP BY of windows, ranking or pattern, which waits for no watermark: leave it out"
                )))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn node(&mut self, plan: &LogicalPlan) -> Result<Flow> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input),
            LogicalPlan::Filter(filter)
                if !have_subqueries([&filter.predicate])
                    && let Some(join) = stream_join(&filter.input) =>
            {
                self.common_part(plan, |this| this.join_streams(join, Some(&filter.predicate)))
            }
            LogicalPlan::Filter(filter) if have_subqueries([&filter.predicate]) => self.batch_node(plan),
            LogicalPlan::Filter(filter) => self.filter_node(filter),
            LogicalPlan::Window(window) => self.window_node(window),
            LogicalPlan::Projection(projection) if have_subqueries(&projection.expr) => self.batch_node(plan),
            LogicalPlan::Projection(projection) => self.project(projection),
            LogicalPlan::Unnest(_) => self.batch_node(plan),
            LogicalPlan::Aggregate(aggregate) => {
                self.common_part(plan, |this| this.aggregate_node(aggregate))
            }
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct_node(input),
            LogicalPlan::Join(join) if reads_stream(&join.left) && reads_stream(&join.right) => self
                .common_part(plan, |this| {
                    if is_asof(join) { this.asof_join(join) } else { this.join_streams(join, None) }
                }),
            LogicalPlan::Join(join) if is_asof(join) => self.batch_node(plan),
            LogicalPlan::Join(join) if self.is_by_key(join) => self.join(join),
            LogicalPlan::Join(_) => self.batch_node(plan),
            LogicalPlan::Union(union) => {
                let mut inputs = union.inputs.iter();
                let mut all: Option<Stream> = None;
                let mut replaced = None;
                for input in inputs.by_ref() {
                    let flow = self.node(input)?;
                    flow.check_closed()?;
                    flow.check_retracted("UNION ALL")?;
                    if let Some(by) = flow.replaced.as_ref().map(|replaced| replaced.by) {
                        replaced =
                            Some(ReplacedBy::without_key(by.or(replaced.map(|other: ReplacedBy| other.by))));
                    }
                    let stream = named(&flow.stream, plan)?;
                    all = Some(match all {
                        Some(all) => all.union(&stream),
                        None => stream,
                    });
                }
                let stream = all.ok_or_else(|| Error::Internal("a union of nothing".to_owned()))?;
                Ok(Flow { stream, windows: None, event_time: None, replaced })
            }
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.distinct_on(distinct),
            LogicalPlan::Limit(limit) => self.limit_node(limit),
            LogicalPlan::Sort(_) => Err(Error::unsupported(ALL_ROWS)),
            LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => {
                Err(Error::unsupported("a step that reads no source or stream"))
            }
            other => {
                let text = other.display().to_string();
                Err(Error::unsupported(format!("a step with {text}")))
            }
        }
    }

    /// Table of the state of the next operator, which this plan and a text describe.
    pub(crate) fn state_table_of(&mut self, plan: &LogicalPlan, operator: &str) -> String {
        let meaning = format!("{}\n{operator}", self.meaning(plan));
        self.state_table_named(meaning, operator)
    }

    /// Table of what is sent for each row by a node that reads tables, if rows are taken back.
    pub(crate) fn sent_rows_of(
        &mut self,
        flow: &Flow,
        plan: &LogicalPlan,
        by: &str,
    ) -> Result<Option<String>> {
        flow.check_whole(by)?;
        let is_recorded = flow.replaced.is_some();
        Ok(is_recorded
            .then(|| self.state_table_of(plan, &format!("rows that {by} has sent for those of changes"))))
    }

    /// Adds a table that the last operator with state has beside its own.
    pub(crate) fn state_beside(&mut self, table: &str, what: &str) {
        let Some(of) = self.states.last() else { return };
        let operator = format!("{what}: {}", of.operator);
        let beside = PlannedState { table: table.to_owned(), meaning: of.meaning.clone(), operator };
        self.note_state(beside);
    }

    /// Table of the state of a pattern over rows with these columns: its measures may change.
    pub(crate) fn pattern_state(&mut self, of: &str, planned: &PlannedPattern, rows: &[Column]) -> String {
        let before = self.meanings.get(of).map_or("", String::as_str);
        let meaning = format!("{} of {of} ({rows:?}) of ({before})", planned.clause.text);
        self.state_table_named(meaning, &planned.clause.to_string())
    }

    /// Name of the table of the state of the next operator.
    pub(crate) fn next_state_table(&self) -> String {
        let named = self.step.and_then(|step| step.state_table.clone());
        named.unwrap_or_else(|| match self.state_number {
            0 => format!("{}_open", self.topology),
            before => format!("{}_open_{}", self.topology, before + 1),
        })
    }

    /// Notes a state in a table of this name, which a plan and a text describe.
    pub(crate) fn state_of(&mut self, plan: &LogicalPlan, table: &str, operator: &str) {
        let meaning = format!("{}\n{operator}", self.meaning(plan));
        self.note_state(PlannedState { table: table.to_owned(), meaning, operator: operator.to_owned() });
    }

    /// Table of the state of the next operator, with its meaning.
    fn state_table_named(&mut self, meaning: String, operator: &str) -> String {
        let table = self.next_state_table();
        let operator = operator.to_owned();
        self.note_state(PlannedState { table: table.clone(), meaning, operator });
        table
    }

    fn note_state(&mut self, state: PlannedState) {
        self.states.push(state);
        self.state_number += 1;
    }

    /// Text of a plan of the current step, with what it reads.
    pub(crate) fn meaning(&self, plan: &LogicalPlan) -> String {
        let mut meaning = renumbered(&plan.display_indent_schema().to_string());
        for (name, reference) in self.step.iter().flat_map(|step| &step.references) {
            let read = match reference {
                Reference::Named(of) | Reference::Windows { of, .. } | Reference::Pattern { of, .. } => of,
                Reference::Changes { table, .. } => table,
            };
            let before = self.meanings.get(read).map_or("", String::as_str);
            meaning += &format!("\n{name} is {reference:?} of ({before})");
        }
        meaning
    }

    fn note_meaning(&mut self, step: &PlannedStep) {
        let meaning = self.meaning(&step.plan);
        let columns = match &step.target {
            Target::Insert { columns, upserts: true, .. } => Some(vec![columns.clone()]),
            Target::Merge { inserts, .. } => Some(inserts.clone()),
            _ => None,
        };
        let name = match &step.target {
            Target::Stream(name) => name.clone(),
            Target::Insert { table, .. } | Target::Merge { table, .. } => table.name().to_owned(),
            Target::Sink(_) | Target::View(_) | Target::Abort { .. } => return,
        };
        if let Some(columns) = columns {
            let meaning = format!("{columns:?} of {meaning}");
            self.keyed_targets.push(KeyedTarget { table: name.clone(), step: step.label.clone(), meaning });
        }
        let before = self.meanings.entry(name).or_default();
        *before += &meaning;
    }

    fn scan(&mut self, scan: &TableScan) -> Result<Flow> {
        if scan.table_name.catalog() != Some(STREAMS_CATALOG) {
            return Err(Error::unsupported(format!(
                "table {0} in the FROM of a step: reading it triggers nothing; join it with a stream by its key, read CHANGES({0}), or \
                 let EMIT ON COMMIT run the query at each commit that changes it",
                scan.table_name.table(),
            )));
        }
        let reference = self.step.and_then(|step| step.references.get(scan.table_name.table()));
        let reference =
            reference.ok_or_else(|| Error::Internal(format!("{} is not a stream", scan.table_name)))?;
        match reference {
            Reference::Named(name) => self.named_flow(name),
            Reference::Changes { table, .. } if self.planned.sources.contains_key(&changes_source(table)) => {
                self.named_flow(&changes_source(table))
            }
            Reference::Changes { table, each_row, with_before } => {
                let table = self.catalog.table(table)?;
                let stream = changed_rows::stream_of(self.builder, &table, *each_row, *with_before);
                Ok(Flow { stream, windows: None, event_time: None, replaced: None })
            }
            Reference::Pattern { of, planned, .. } => {
                let planned = planned.as_ref().map(Arc::clone);
                let planned =
                    planned.ok_or_else(|| Error::Internal(format!("a pattern of {of} is not planned")))?;
                self.match_pattern(of, &planned)
            }
            Reference::Windows { of, time, kind } => {
                let mut flow = self.named_flow(of)?;
                let column = flow.stream.column(time);
                let column = column
                    .ok_or_else(|| Error::coded("42703", format!("column \"{time}\" does not exist")))?;
                let mut columns = flow.stream.columns().to_vec();
                rename_edges(of, &mut columns);
                for (at, column) in columns.iter().enumerate() {
                    flow.stream = flow.stream.rename(&flow.stream.columns()[at].name.clone(), &column.name);
                }
                let renamed = &columns[column].name;
                if let Some(replaced) = &flow.replaced {
                    return self.windows_of_changes(&flow, replaced, renamed, *kind);
                }
                let (lateness, future_limit) = match (flow.event_time, flow.windows) {
                    (Some(at), _) if at.column == column => (at.lateness, at.future_limit),
                    (_, Some(windows)) if windows.start == Some(column) => {
                        (windows.lateness, windows.future_limit)
                    }
                    _ => {
                        return Err(Error::unsupported(format!(
                            "windows over \"{time}\" of \"{of}\", which has no watermark: declare WATERMARK FOR {time} AS … in CREATE SOURCE"
                        )));
                    }
                };
                let window =
                    TimeWindow::of_kind(renamed, *kind).lateness(lateness).future_limit(future_limit);
                match kind {
                    WindowKind::Session { .. } => Ok(open_sessions(&flow, column, &window)),
                    _ => Ok(assign_windows(&flow, column, &window)),
                }
            }
        }
    }

    /// Stream of this name; a source is attached when it is read first.
    pub(crate) fn named_flow(&mut self, name: &str) -> Result<Flow> {
        if let Some(flow) = self.flows.get(name) {
            return Ok(flow.clone());
        }
        let source = self.planned.sources.get(name);
        let source = source.ok_or_else(|| Error::Internal(format!("{name} is not a source")))?;
        let memory = self.builder.memory();
        let of_step = self.builder.label(Some(&format!("source {name}")));
        let mut stream = self.builder.source(name, source.source(name, memory)).described(&source.describe());
        if let Some(at) = source.event_time {
            stream = stream.event_time(&source.columns[at.column].name);
        }
        if let Some(timeout) = source.idle_timeout {
            stream = stream.idle_after(timeout);
        }
        if let Some(table) = &source.rejects {
            stream = stream.rejects_into(table);
        }
        let replaced = source.key.as_ref().map(|key| self.keyed_source(name, source, key));
        if let (Some(key), Some(state)) = (&source.key, self.states.last().filter(|_| replaced.is_some())) {
            stream = stream.keyed_rows(DELETED, key, &state.table);
        }
        self.builder.label(of_step.as_deref());
        let flow = Flow { stream, windows: None, event_time: source.event_time, replaced };
        self.flows.insert(name.to_owned(), flow.clone());
        Ok(flow)
    }

    /// Notes the state of a source whose rows change: those that are there, by their key.
    fn keyed_source(&mut self, name: &str, source: &SourceDefinition, key: &[String]) -> ReplacedBy {
        let operator = format!("rows of source {name} by {}", key.join(", "));
        let meaning = format!("{operator}: {:?}", source.columns);
        self.note_state(PlannedState { table: format!("{}_{name}_rows", self.topology), meaning, operator });
        let place = |name: &String| source.columns.iter().position(|column| column.name == *name);
        ReplacedBy::of_key(Replacement::Source, key.iter().map(place).collect())
    }

    pub(crate) fn filter(&self, flow: Flow, input: &LogicalPlan, predicate: &Expr) -> Result<Flow> {
        flow.check_retracted("WHERE")?;
        flow.check_edges([predicate], input.schema())?;
        let stored = storage(flow.stream.columns());
        let columns = Columns { planned: input.schema(), stored: &stored };
        let condition = predicate;
        let predicate = columns.expression(&self.planned.state, predicate, &ArrowType::Boolean)?;
        let stream = flow.stream.filter_by(predicate).described(&describe_expression(condition));
        Ok(Flow { stream, ..flow })
    }

    fn project(&mut self, projection: &Projection) -> Result<Flow> {
        let flow = self.node(&projection.input)?;
        self.project_flow(&flow, projection.input.schema(), &projection.expr, &projection.schema)
    }

    /// Computes expressions over the columns of a stream, which are those of a schema and perhaps more.
    pub(crate) fn project_flow(
        &self,
        flow: &Flow,
        planned: &DFSchema,
        expressions: &[Expr],
        schema: &DFSchema,
    ) -> Result<Flow> {
        let stored = storage(flow.stream.columns());
        let columns = Columns { planned, stored: &stored };
        let mut projected: Vec<ComputedColumn> = Vec::new();
        let mut computed: Vec<String> = Vec::new();
        // Where each column of the input has gone.
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        for (expr, field) in expressions.iter().zip(schema.fields()) {
            if let Some(index) = plain_column(expr, &columns) {
                if places.contains_key(&index) {
                    flow.check_edges([expr], columns.planned)?;
                }
                places.entry(index).or_insert(projected.len());
                let column = Column { name: field.name().clone(), ..flow.stream.columns()[index].clone() };
                projected.push((column, Box::new(ColumnExpression(index))));
                continue;
            }
            flow.check_edges([expr], columns.planned)?;
            let data_type = column_type(field.data_type()).ok_or_else(|| {
                let (name, found) = (field.name(), field.data_type());
                Error::unsupported(format!("column \"{name}\" of type {found} in a stream"))
            })?;
            let column = Column::new(field.name().clone(), data_type);
            let result = arrow_type(data_type, "UTC");
            projected.push((column, Box::new(columns.expression(&self.planned.state, expr, &result)?)));
            computed.push(describe_expression(expr));
        }
        let place = |index: usize| places.get(&index).copied();
        let windows = flow.windows.and_then(|windows| {
            let (time, start) = (place(windows.time)?, windows.start.and_then(place));
            Some(Windows { time, start, end: windows.end.and_then(place), ..windows })
        });
        if windows.is_none() {
            // Without its time a session has no aggregate.
            flow.check_edges(expressions, columns.planned)?;
        }
        let event_time = flow.event_time.and_then(|at| Some(EventTime { column: place(at.column)?, ..at }));
        let is_literal = |expr: &Expr| matches!(expr.clone().unalias_nested().data, Expr::Literal(..));
        let literals = expressions.iter().enumerate().filter(|(_, expr)| is_literal(expr)).map(|(at, _)| at);
        let replaced = flow.replaced.as_ref().map(|replaced| replaced.projected(place, literals.collect()));
        let mut stream = flow.stream.project(projected);
        if !computed.is_empty() {
            stream = stream.described(&computed.join(", "));
        }
        Ok(Flow { stream, windows, event_time, replaced })
    }

    /// Writes a stream into a table.
    pub(crate) fn insert(
        &self,
        flow: &Flow,
        table: &Arc<Table>,
        columns: &[usize],
        target: ToTable,
    ) -> Result<()> {
        let visible = table.schema().visible_columns();
        let projected = columns.iter().enumerate().map(|(from, &to)| {
            let column = visible[to].clone();
            let (name, value) = (table.name().to_owned(), Box::new(ColumnExpression(from)));
            let assigned = AssignedValues { table: name, column: column.clone(), value };
            let expression: Box<dyn Expression> = Box::new(assigned);
            // The table checks NULLs, and says which column.
            (Column { nullable: true, ..column }, expression)
        });
        let rows = flow.stream.project(projected.collect());
        let rules = TargetRules::new(&self.planned.state, table, [columns])?;
        rows.to_table(target.rules(rules));
        Ok(())
    }
}

/// Refusal of an option that would say nothing.
fn unused_ttl(of: &str) -> Error {
    Error::coded(
        "22023",
        format!(
            "option \"state_ttl\" of {of}, which has no join of streams without a bound in time of which one is of appended rows, \
             and no aggregate of appended rows without a window"
        ),
    )
}

/// Column that an expression is, without a change of type.
pub(crate) fn plain_column(expr: &Expr, columns: &Columns<'_>) -> Option<usize> {
    match expr {
        Expr::Column(column) => columns.planned.index_of_column(column).ok(),
        Expr::Alias(alias) => plain_column(&alias.expr, columns),
        _ => None,
    }
}

/// Inner join of two streams, whose condition may be in WHERE too.
fn stream_join(plan: &LogicalPlan) -> Option<&Join> {
    match plan {
        LogicalPlan::Join(join) => Some(join).filter(|join| {
            join.join_type == JoinType::Inner && reads_stream(&join.left) && reads_stream(&join.right)
        }),
        _ => None,
    }
}

/// Stream with the names and types of a plan.
fn named(stream: &Stream, plan: &LogicalPlan) -> Result<Stream> {
    let mut projected: Vec<ComputedColumn> = Vec::new();
    for (at, field) in plan.schema().fields().iter().enumerate() {
        let data_type = column_type(field.data_type()).ok_or_else(|| {
            Error::unsupported(format!("a column of type {} in a stream", field.data_type()))
        })?;
        let wanted = arrow_type(data_type, "UTC");
        let cast = move |rows: &RecordBatch| -> Result<ArrayRef, String> {
            let cast = datafusion::arrow::compute::cast(rows.column(at), &wanted);
            cast.map_err(|error| error.to_string())
        };
        let mut column = Column::new(field.name().clone(), data_type);
        // Formats of sinks write JSON as such.
        if let Modifier::Json | Modifier::Jsonb = stream.columns()[at].modifier {
            column = column.with_modifier(stream.columns()[at].modifier);
        }
        projected.push((column, Box::new(cast)));
    }
    Ok(stream.project(projected))
}
