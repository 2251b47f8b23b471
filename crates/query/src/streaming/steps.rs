//! Steps of a topology: from their tokens to plans and targets.

use crate::ddl::stored_topologies;
use crate::dml::assignment;
use crate::dml::authorization::insert_privileges;
use crate::error::{Error, Result};
use crate::parser::own::streaming::CreateTopology;
use crate::parser::patterns::RowPatterns;
use crate::parser::statement;
use crate::parser::text::tokens::{BEGINNING, tokenize};
use crate::parser::windows::{WINDOW_END, WINDOW_START};
use crate::planner::bounded_functions;
use crate::planner::query::logical_plan;
use crate::planner::row_expressions::lists::is_list;
use crate::postgres::time_zones::UTC;
use crate::postgres::types::column_type;
use crate::privileges::Privileges;
use crate::schema_names::{CATALOG, STREAMS_CATALOG};
use crate::session::authority::Authority;
use crate::session::cancellation::RunningStatement;
use crate::session::core::SessionCore;
use crate::session::owners::OwnedObject;
use crate::session::sequence_functions;
use crate::session::variables::SessionVariables;
use crate::streaming::changed_rows::{ChangedRows, read_before};
use crate::streaming::connectors::SourceDefinition;
use crate::streaming::definers::{Definer, authority_for, change_privileges};
use crate::streaming::emission::Emit;
use crate::streaming::expressions;
use crate::streaming::insert_targets::{insert_target, inserted};
use crate::streaming::late::LateClauses;
use crate::streaming::merge::row_changes;
use crate::streaming::names::{Reference, STREAMS_SCHEMA, resolve};
use crate::streaming::options::StreamOptions;
use crate::streaming::parsed_steps::{StepText, names_of, numbered_label, parse_step, written_table};
use crate::streaming::planned_pattern::{plan_pattern, result_columns};
use crate::streaming::retention::StateTtl;
use crate::streaming::sinks::SinkDefinition;
use crate::streaming::target_rules::check_given;
use crate::streaming::utc::UtcCatalog;
use crate::streaming::view_targets;
use crate::streaming::windows::rename_edges;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{Ident, Query, Statement};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use entresol_tables::{Catalog, Column, DataType, Table, arrow_schema};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Topology whose steps are planned.
pub(crate) struct PlannedTopology {
    /// Authority of its owner.
    pub(crate) definer: Arc<Authority>,
    /// Limit of joins of streams that have none.
    pub(crate) state_ttl: Option<StateTtl>,
    pub(crate) state: SessionState,
    pub(crate) sources: BTreeMap<String, SourceDefinition>,
    pub(crate) steps: Vec<PlannedStep>,
}

pub(crate) struct PlannedStep {
    /// Its number, kind and name, for errors.
    pub(crate) label: String,
    /// Line and column of it in the text of its topology; none of a stream that is stored apart.
    pub(crate) place: Option<(u64, u64)>,
    pub(crate) target: Target,
    pub(crate) plan: LogicalPlan,
    /// Relations of the streams' catalog that the plan reads.
    pub(crate) references: BTreeMap<String, Reference>,
    /// Sources, tables and views that it names.
    pub(crate) names: Vec<String>,
    /// Table of the open windows, if it was named.
    pub(crate) state_table: Option<String>,
    pub(crate) late: LateClauses,
    /// Limit of joins of streams that have none, before that of the topology.
    pub(crate) state_ttl: Option<StateTtl>,
}

pub(crate) enum Target {
    /// Stream that later steps read.
    Stream(String),
    Insert {
        table: Arc<Table>,
        /// Visible column of the table for each column of the query.
        columns: Vec<usize>,
        /// True if rows with the key of another replace it.
        upserts: bool,
    },
    /// Rows of the table are changed as the first column of the query says: one of the actions of
    /// [`entresol_streams::MergeInto`]. The others are their values.
    Merge {
        table: Arc<Table>,
        /// Lists of columns that have values in rows that are inserted.
        inserts: Vec<Vec<usize>>,
    },
    /// Rows leave the database.
    Sink(SinkDefinition),
    /// Rows of a materialized view; none before its table is made.
    View(Option<Arc<Table>>),
    /// Condition on the changes of these tables, by its text.
    Abort {
        text: String,
        changed: Vec<ChangedRows>,
        /// Table for the rows of an aborted transaction.
        into: Option<String>,
    },
}

/// Error of a step, with its place in the statement.
fn in_step(label: &str, place: Option<(u64, u64)>, error: Error) -> Error {
    Error::InStep { step: label.to_owned(), place, error: Box::new(error) }
}

impl PlannedStep {
    /// Error of the step. A sink or view is the statement itself.
    pub(crate) fn error(&self, error: Error) -> Error {
        match self.target {
            Target::Sink(_) | Target::View(_) => error,
            _ => in_step(&self.label, self.place, error),
        }
    }

    /// Tells whether its query is of tables alone, and is run at each commit that changes one.
    pub(crate) fn is_of_tables(&self) -> bool {
        is_of_tables(&self.references, &self.late) && !matches!(self.target, Target::Abort { .. })
    }
}

/// Tells whether a query is of tables alone, and is run at each commit that changes one.
fn is_of_tables(references: &BTreeMap<String, Reference>, late: &LateClauses) -> bool {
    references.is_empty() && late.emit == Emit::Commit
}

/// Kind of the query of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryKind {
    /// Of a stream, which has no end.
    Stream,
    /// Of tables as a transaction sees them.
    Tables,
    /// The same, for a truth value.
    Condition,
}

/// Kind of a step, as far as it is known before its query is planned.
struct StepKind {
    stream: Option<String>,
    condition: Option<String>,
    into: Option<String>,
    /// Table whose rows it changes by key, and the lists of columns of those that it inserts.
    changed_table: Option<(Arc<Table>, Vec<Vec<usize>>)>,
}

/// Plans the steps of a topology.
pub(crate) async fn plan(session: &SessionCore, create: &CreateTopology) -> Result<PlannedTopology> {
    let definer = authority_for(session, (OwnedObject::Topology, &create.name))?;
    plan_as(session, create, definer).await
}

/// Plans the steps of a topology that reads and writes with this authority.
pub(crate) async fn plan_as(
    session: &SessionCore,
    create: &CreateTopology,
    definer: Authority,
) -> Result<PlannedTopology> {
    let mut planner = Planner::new(session, definer)?;
    planner.written = create.steps.iter().filter_map(|tokens| written_table(tokens)).collect();
    let mut steps = Vec::with_capacity(create.steps.len());
    let mut of_sink = None;
    if create.view.is_some() {
        planner.target = Some(Target::View(view_targets::table_of(&session.catalog, &create.name)?));
    }
    if let Some(sink) = &create.sink {
        planner.target = Some(planner.target_of_sink(SinkDefinition::new(&create.name, sink)?)?);
        of_sink = sink.from.as_ref().map(|from| planner.rows_of(from)).transpose()?;
    }
    for (at, tokens) in create.steps.iter().chain(&of_sink).enumerate() {
        let label = match &create.sink {
            Some(_) => format!("sink {}", create.name),
            None => numbered_label(at + 1, tokens),
        };
        let place = tokens.first().map(|token| (token.span.start.line, token.span.start.column));
        let planned = planner.step_with_streams(label.clone(), tokens.clone()).await;
        let is_one = create.view.is_some() || create.sink.is_some();
        let mut step = planned.map_err(|error| if is_one { error } else { in_step(&label, place, error) })?;
        step.place = place;
        steps.append(&mut planner.stored);
        steps.push(step);
    }
    let authority = planner.definer.authority();
    create.errors_into.iter().try_for_each(|table| authority.require(Privileges::INSERT, table))?;
    let mut options = StreamOptions::new(format!("topology \"{}\"", create.name), &create.options);
    let state_ttl = StateTtl::take(&mut options)?;
    Ok(PlannedTopology {
        definer: authority,
        state_ttl,
        state: planner.context.state(),
        sources: planner.sources,
        steps,
    })
}

struct Planner<'s> {
    session: &'s SessionCore,
    context: SessionContext,
    definer: Arc<Definer>,
    /// Of the functions of all steps; it is never cancelled.
    running: Arc<RunningStatement>,
    relations: Arc<MemorySchemaProvider>,
    sources: BTreeMap<String, SourceDefinition>,
    /// Columns of the streams so far.
    streams: BTreeMap<String, Vec<Column>>,
    /// Changes of the topology's tables that the current step reads, by the names of their relations.
    changed: BTreeMap<String, ChangedRows>,
    /// Tables that the steps write.
    written: Vec<String>,
    /// Target of the query that is the only step, of a sink or materialized view.
    target: Option<Target>,
    /// Steps of the stored streams that the current step reads.
    stored: Vec<PlannedStep>,
    /// Names of the stored streams that were planned.
    planned_stored: Vec<String>,
    /// Stored streams that are being planned.
    open: Vec<String>,
}

/// Name of the source of the logged changes of a table.
pub(crate) fn changes_source(table: &str) -> String {
    format!("CHANGES({table})")
}

impl Planner<'_> {
    fn new(session: &SessionCore, definer: Authority) -> Result<Planner<'_>> {
        let state = state_of_topologies(session);
        let own = state.catalog_list().catalog(CATALOG);
        let own = own.ok_or_else(|| Error::Internal("a session has no catalog".to_owned()))?;
        let definer = Arc::new(Definer::new(definer));
        let catalog = Arc::clone(&session.catalog);
        let own = Arc::new(UtcCatalog { of_session: own, catalog, definer: Arc::clone(&definer) });
        let relations = Arc::new(MemorySchemaProvider::new());
        let streams = MemoryCatalogProvider::new();
        streams.register_schema(STREAMS_SCHEMA, Arc::clone(&relations) as Arc<dyn SchemaProvider>)?;
        let list = MemoryCatalogProviderList::new();
        list.register_catalog(CATALOG.to_owned(), own);
        list.register_catalog(STREAMS_CATALOG.to_owned(), Arc::new(streams));
        let context = SessionContext::new_with_state(state);
        context.register_catalog_list(Arc::new(list));
        // No statement's timeout or cancellation is that of the topology.
        let running = Arc::default();
        bounded_functions::register(&context, &running);
        // Those of defaults. No session has the numbers that they take.
        sequence_functions::register(&context, &session.catalog, &SessionVariables::new(&[]));
        Ok(Planner {
            session,
            context,
            definer,
            running,
            relations,
            sources: BTreeMap::new(),
            streams: BTreeMap::new(),
            changed: BTreeMap::new(),
            written: Vec::new(),
            target: None,
            stored: Vec::new(),
            planned_stored: Vec::new(),
            open: Vec::new(),
        })
    }

    /// Target of the rows of a sink.
    fn target_of_sink(&self, sink: SinkDefinition) -> Result<Target> {
        let Some(of) = sink.table() else { return Ok(Target::Sink(sink)) };
        let table = self.session.catalog.table(&of.name)?;
        view_targets::check_target(&table)?;
        let columns = (0..table.schema().visible_columns().len()).collect();
        let upserts = of.upserts.unwrap_or(!table.schema().hidden_key());
        let replaces = if upserts { Privileges::UPDATE.with(Privileges::SELECT) } else { Privileges::NONE };
        self.definer.authority().require(Privileges::INSERT.with(replaces), table.name())?;
        Ok(Target::Insert { table, columns, upserts })
    }

    /// Query of all rows of a source or stream, or of the changes of a table.
    fn rows_of(&mut self, relation: &str) -> Result<Vec<TokenWithSpan>> {
        let quoted = Ident::with_quote('"', relation);
        let is_source =
            self.source(relation)? || stored_topologies::stream(&self.session.catalog, relation)?.is_some();
        if !is_source {
            // An error says that there is no such relation.
            self.session.catalog.table(relation)?;
        }
        let from = if is_source { quoted.to_string() } else { format!("CHANGES({quoted})") };
        tokenize(&format!("SELECT * FROM {from}"), BEGINNING)
    }

    /// Plans a step, and before it the streams of no topology that it reads and no step before has read.
    async fn step_with_streams(&mut self, label: String, tokens: Vec<TokenWithSpan>) -> Result<PlannedStep> {
        let (own, names) = names_of(&tokens);
        self.open.extend(own.clone());
        for name in names {
            if self.streams.contains_key(&name) {
                if self.planned_stored.contains(&name) {
                    self.definer.authority().require_reading("stream", &name)?;
                }
                continue;
            }
            let Some(text) = stored_topologies::stream(&self.session.catalog, &name)? else { continue };
            if self.open.contains(&name) {
                return Err(Error::coded("42P17", format!("stream \"{name}\" would read itself")));
            }
            let create = statement::created_stream(&text);
            let create = create.ok_or_else(|| Error::Internal(format!("{text} is not a stream")))?;
            self.definer.authority().require_reading("stream", &name)?;
            let of_stream = authority_for(self.session, (OwnedObject::Stream, &name))?;
            let before = self.definer.set(Arc::new(of_stream));
            let label = format!("stream {name}");
            let planned = Box::pin(self.step_with_streams(label, create.step)).await;
            self.definer.set(before);
            self.stored.push(planned?);
            self.planned_stored.push(name);
        }
        if own.is_some() {
            self.open.pop();
        }
        self.step(label, tokens).await
    }

    async fn step(&mut self, label: String, tokens: Vec<TokenWithSpan>) -> Result<PlannedStep> {
        let (_, mut names) = names_of(&tokens);
        // A stream of this topology is no other object, but one that was planned with it is.
        names.retain(|name| !self.streams.contains_key(name) || self.planned_stored.contains(name));
        let StepText { mut statement, condition, into, stream, state_table, state_ttl, late, patterns } =
            parse_step(tokens)?;
        let mut by_operators = late.table.iter().chain(&into);
        let authority = self.definer.authority();
        by_operators.try_for_each(|table| authority.require(Privileges::INSERT, table))?;
        self.changed.clear();
        let mut changed_table = None;
        if stream.is_none()
            && condition.is_none()
            && let Some(tree) = statement::inner(&statement)
            && let Some(changes) = row_changes(&self.session.catalog, tree)?
        {
            authority.require(change_privileges(tree)?, changes.table.name())?;
            changed_table = Some((changes.table, changes.inserts));
            statement = changes.statement;
        }
        let Some(tree) = statement::inner_mut(&mut statement) else {
            return Err(Error::unsupported("a step that is not a statement"));
        };
        let mut failed = None;
        let mut references = resolve(tree, |name| {
            self.streams.contains_key(name) || {
                let known = self.source(name);
                known.unwrap_or_else(|error| {
                    failed.get_or_insert(error);
                    false
                })
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        self.plan_patterns(&mut references, &patterns).await?;
        for (relation, reference) in &references {
            self.register(relation, reference, condition.is_some())?;
        }
        let of_tables = condition.is_none() && is_of_tables(&references, &late);
        if of_tables && changed_table.is_some() {
            return Err(Error::unsupported(
                "EMIT ON COMMIT of a query of tables in MERGE, DELETE, or ON CONFLICT other than DO UPDATE of all columns: CREATE STREAM of it, and take its name",
            ));
        }
        let lists_columns = !matches!(tree, Statement::Insert(insert) if insert.columns.is_empty());
        let kind = StepKind { stream, condition, into, changed_table };
        let (query, mut target) = self.target_of(tree, kind, &references)?;
        let query_kind = match target {
            Target::Abort { .. } => QueryKind::Condition,
            _ if of_tables => QueryKind::Tables,
            _ => QueryKind::Stream,
        };
        let plan = self.planned_with_changes(query, query_kind, &mut references).await?;
        if let Target::Abort { changed, .. } = &mut target {
            changed.extend(self.changed.values().cloned());
            let place = None;
            return Ok(PlannedStep {
                label,
                place,
                target,
                plan,
                references,
                names,
                state_table,
                late,
                state_ttl,
            });
        }
        if let Target::Insert { columns, .. } = &mut target
            && !lists_columns
        {
            // As in a statement: the columns behind those of the query get no value.
            columns.truncate(plan.schema().fields().len());
        }
        self.check_target(&target, &plan)?;
        if let Target::Stream(name) = &target {
            self.streams.insert(name.clone(), columns_of(name, &plan)?);
        }
        let place = None;
        Ok(PlannedStep { label, place, target, plan, references, names, state_table, late, state_ttl })
    }

    /// Query and target of a step.
    fn target_of(
        &mut self,
        tree: &Statement,
        kind: StepKind,
        references: &BTreeMap<String, Reference>,
    ) -> Result<(Box<Query>, Target)> {
        let StepKind { stream, condition, into, changed_table } = kind;
        Ok(match (tree, stream) {
            (Statement::Query(query), Some(name)) => (query.clone(), Target::Stream(name)),
            (Statement::Query(query), None) if let Some(target) = self.target.take() => {
                (query.clone(), target)
            }
            (_, _) if let Some(target) = &self.target => {
                let noun = if matches!(target, Target::View(_)) { "materialized view" } else { "sink" };
                return Err(Error::unsupported(format!("a {noun} AS anything but a query")));
            }
            (Statement::Query(query), None) if let Some(text) = condition => {
                check_condition(references)?;
                (query.clone(), Target::Abort { text, changed: Vec::new(), into })
            }
            (Statement::Query(query), None) if let Some((table, inserts)) = changed_table => {
                (query.clone(), Target::Merge { table, inserts })
            }
            (Statement::Insert(insert), None) => {
                let table = self.session.catalog.table(&inserted(insert)?)?;
                let (table, columns, upserts) = insert_target(&table, insert)?;
                self.definer.authority().require(insert_privileges(insert), table.name())?;
                let query = insert.source.clone();
                let query = query.ok_or_else(|| Error::unsupported("INSERT without a query in a step"))?;
                (query, Target::Insert { table, columns, upserts })
            }
            (other, _) => {
                let text: String = other.to_string().chars().take(60).collect();
                return Err(Error::unsupported(format!("step {text}")));
            }
        })
    }

    /// Plan of the query of a step or condition. The changes that it reads of tables that the topology changes have the rows
    /// before if it reads columns of them.
    async fn planned_with_changes(
        &mut self,
        query: Box<Query>,
        kind: QueryKind,
        references: &mut BTreeMap<String, Reference>,
    ) -> Result<LogicalPlan> {
        let is_condition = kind == QueryKind::Condition;
        let mut plan = self.planned(query.clone(), kind).await?;
        if self.changed.is_empty() {
            return Ok(plan);
        }
        let columns_of_table = |relation: &str| self.changed.get(relation).map(ChangedRows::columns_of_table);
        let read = read_before(&plan, &self.context.state(), is_condition, columns_of_table)?;
        for (relation, with_before) in std::mem::take(&mut self.changed) {
            let mut changed = with_before.clone();
            if !read.contains(&relation) {
                changed = with_before.without_before()?;
                self.register_table(&relation, changed.relation())?;
                match self.planned(query.clone(), kind).await {
                    Ok(without_before) => plan = without_before,
                    // It names a column that nothing depends on.
                    Err(_) => {
                        changed = with_before;
                        self.register_table(&relation, changed.relation())?;
                    }
                }
            }
            if let Some(Reference::Changes { with_before, .. }) = references.get_mut(&relation) {
                *with_before = changed.has_before();
            }
            self.changed.insert(relation, changed);
        }
        Ok(plan)
    }

    /// Plan of a query.
    async fn planned(&self, query: Box<Query>, kind: QueryKind) -> Result<LogicalPlan> {
        let state = self.context.state();
        let plan = logical_plan(self.session, &state, statement::query_statement(query)).await?;
        if kind == QueryKind::Stream {
            expressions::check_subqueries(&plan)?;
        }
        let plan = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
        // Those of views are the session's.
        let plan = bounded_functions::outliving(plan, &self.running)?;
        match kind {
            QueryKind::Condition => expressions::check_condition(&plan)?,
            QueryKind::Stream | QueryKind::Tables => expressions::check_plan(&plan)?,
        }
        if kind != QueryKind::Stream {
            return Ok(state.optimizer().optimize(plan, &state, |_, _| {})?);
        }
        // None of the other rules: they may assume that a query ends.
        let rules = Optimizer::with_rules(vec![
            Arc::new(SimplifyExpressions::new()),
            Arc::new(ExtractEquijoinPredicate::new()),
        ]);
        Ok(rules.optimize(plan, &state, |_, _| {})?)
    }

    /// Plans the patterns that a step reads the matches of.
    async fn plan_patterns(
        &self,
        references: &mut BTreeMap<String, Reference>,
        clauses: &RowPatterns,
    ) -> Result<()> {
        for reference in references.values_mut() {
            let Reference::Pattern { of, number, planned } = reference else { continue };
            let clause = clauses.clause(*number);
            let clause = clause.ok_or_else(|| Error::Internal(format!("there is no pattern {number}")))?;
            let (state, columns) = (self.context.state(), self.columns(of)?);
            let pattern = plan_pattern(self.session, &state, &self.relations, (clause, &columns)).await?;
            *planned = Some(Arc::new(pattern));
        }
        Ok(())
    }

    /// Returns true if there is a source of this name, whose definition is read.
    fn source(&mut self, name: &str) -> Result<bool> {
        if !self.sources.contains_key(name) {
            let text = stored_topologies::source(&self.session.catalog, name)?;
            let Some(text) = text else { return Ok(false) };
            let source = parse_source(&self.session.catalog, &self.context.state(), &text)?;
            if let Some(table) = source.logged_table() {
                let of_source = authority_for(self.session, (OwnedObject::Source, name))?;
                of_source.require(Privileges::SELECT, table)?;
            }
            self.sources.insert(name.to_owned(), source);
        }
        // Also of one that is known: a stream may have read it with the rights of another owner.
        self.definer.authority().require_reading("source", name)?;
        Ok(true)
    }

    /// Columns of a source or stream.
    fn columns(&self, name: &str) -> Result<Vec<Column>> {
        let source = self.sources.get(name).map(|source| source.columns.clone());
        let columns = self.streams.get(name).cloned().or(source);
        columns.ok_or_else(|| Error::coded("42P01", format!("source or stream \"{name}\" does not exist")))
    }

    /// Adds an empty table with the columns of a relation, for DataFusion to plan with.
    fn register(&mut self, relation: &str, reference: &Reference, is_condition: bool) -> Result<()> {
        if let Reference::Changes { table, .. } = reference {
            self.session.catalog.table(table)?;
            self.definer.authority().require(Privileges::SELECT, table)?;
        }
        let columns = match reference {
            Reference::Named(name) => self.columns(name)?,
            Reference::Windows { of, time, .. } => {
                let mut columns = self.columns(of)?;
                let column = columns.iter().find(|column| column.name == *time);
                let (data_type, nullable) =
                    column.map(|column| (column.data_type, column.nullable)).ok_or_else(|| {
                        Error::coded("42703", format!("column \"{time}\" of \"{of}\" does not exist"))
                    })?;
                if !matches!(data_type, DataType::Timestamp | DataType::TimestampTz) {
                    let message = format!("windows: column \"{time}\" is {data_type}, not a timestamp");
                    return Err(Error::coded("42804", message));
                }
                rename_edges(of, &mut columns);
                for edge in [WINDOW_START, WINDOW_END] {
                    columns.push(Column { nullable, ..Column::new(edge, data_type) });
                }
                columns
            }
            Reference::Pattern { planned, of, .. } => {
                let planned =
                    planned.as_ref().ok_or_else(|| Error::Internal(format!("no pattern of {of}")))?;
                result_columns(planned)?
            }
            Reference::Changes { table, .. } if !is_condition && !self.written.contains(table) => {
                let definition =
                    SourceDefinition::changes(&self.session.catalog, &self.session.catalog.table(table)?)?;
                let columns = definition.columns.clone();
                self.sources.insert(changes_source(table), definition);
                columns
            }
            Reference::Changes { table, .. } => {
                let changed = ChangedRows::new(&self.session.catalog.table(table)?, true)?;
                let changes = changed.relation();
                self.changed.insert(relation.to_owned(), changed);
                return self.register_table(relation, changes);
            }
        };
        let table = MemTable::try_new(arrow_schema(&columns, UTC), vec![Vec::new()])?;
        self.register_table(relation, Arc::new(table))
    }

    fn register_table(&self, relation: &str, table: Arc<dyn TableProvider>) -> Result<()> {
        // Of an earlier step, it has the same columns.
        self.relations.deregister_table(relation)?;
        self.relations.register_table(relation.to_owned(), table)?;
        Ok(())
    }

    /// Checks that the rows of a query can be assigned to their columns.
    fn check_target(&self, target: &Target, plan: &LogicalPlan) -> Result<()> {
        let fields = plan.schema().fields();
        let (table, columns) = match target {
            Target::Insert { table, columns, .. } => (table, columns.clone()),
            Target::View(Some(table)) => (table, (0..table.schema().visible_columns().len()).collect()),
            Target::Merge { table, .. } => {
                let columns = table.schema().visible_columns();
                return fields.iter().skip(1).zip(columns).try_for_each(|(field, column)| {
                    assignment::check(table.name(), column, field.data_type())
                });
            }
            Target::Sink(_) => return columns_of("sink", plan).map(drop),
            Target::Stream(_) | Target::View(None) | Target::Abort { .. } => return Ok(()),
        };
        if fields.len() != columns.len() {
            let written = if matches!(target, Target::View(_)) { "materialized view" } else { "INSERT INTO" };
            let message = format!(
                "{written} {} has {} columns, its query has {}",
                table.name(),
                columns.len(),
                fields.len()
            );
            return Err(Error::coded("42601", message));
        }
        check_given(&self.session.catalog, table, &columns)?;
        for (field, column) in fields.iter().zip(columns) {
            assignment::check(table.name(), &table.schema().columns()[column], field.data_type())?;
        }
        Ok(())
    }
}

/// Columns of a stream, from the plan of its query.
pub(crate) fn columns_of(name: &str, plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for field in plan.schema().fields() {
        let data_type = column_type(field.data_type()).ok_or_else(|| {
            let (column, found) = (field.name(), field.data_type());
            let why = if is_list(found) { ": make a value of the list, as array_to_string does" } else { "" };
            Error::unsupported(format!("column \"{column}\" of stream \"{name}\" of type {found}{why}"))
        })?;
        if columns.iter().any(|column| column.name == *field.name()) {
            let message =
                format!("column \"{}\" of stream \"{name}\" specified more than once", field.name());
            return Err(Error::coded("42701", message));
        }
        let column = Column::new(field.name(), data_type);
        columns.push(if field.is_nullable() { column } else { column.not_null() });
    }
    Ok(columns)
}

/// State with which topologies plan: the same for every creator, and when the database is opened.
pub(crate) fn state_of_topologies(session: &SessionCore) -> SessionState {
    let mut state = session.context.state();
    state.config_mut().options_mut().execution.time_zone = Some(UTC.to_owned());
    state
}

/// Parses the stored statement of a source.
fn parse_source(catalog: &Arc<Catalog>, state: &SessionState, sql: &str) -> Result<SourceDefinition> {
    let create = statement::created_source(sql);
    let create = create.ok_or_else(|| Error::Internal(format!("{sql} is not a source")))?;
    SourceDefinition::new(catalog, state, &create)
}

impl PlannedTopology {
    /// Tells whether it writes the table of a materialized view, which may be missing.
    pub(crate) fn is_view(&self) -> bool {
        self.steps.last().is_some_and(|step| matches!(step.target, Target::View(_)))
    }
}

/// Checks that a condition reads the changes of tables, and no stream.
fn check_condition(references: &BTreeMap<String, Reference>) -> Result<()> {
    let is_changes = |reference: &Reference| matches!(reference, Reference::Changes { .. });
    if references.is_empty() || !references.values().all(is_changes) {
        return Err(Error::unsupported("ABORT WHEN of anything but CHANGES(table), and tables beside it"));
    }
    Ok(())
}
