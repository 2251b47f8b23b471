//! Statements on DataFusion: its configuration, queries, and the sources of writes.
//!
//! The engine only ever reads: it gets queries, never DDL or DML, and its own ways to define or write tables
//! are switched off. Memory of queries is bounded by [`query_memory`]; what exceeds it spills or fails.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::Dialect;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::{SessionState, SessionStateBuilder, SessionStateDefaults};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Analyzer, Optimizer};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{
    CreateTable, CreateTableOptions, Delete, Insert, Query, Statement, Update,
};
use entresol_tables::{
    Catalog, Error as TableError, Kept, NewSequence, RelationKind, Row, Table, TableDefinition, TableOptions,
    Value,
};
use entresol_transactions::Transaction;
use futures::StreamExt;

use crate::barriers::{self, Barriers};
use crate::catalog::correlated::{CorrelatedSubqueries, StateHandle};
use crate::catalog::spelling;
use crate::catalog::view::Source;
use crate::chars::{BlankPadded, Cut};
use crate::cooperation::Interruptible;
use crate::error::{Error, Result};
use crate::group_keys::GroupKeys;
use crate::index_order::IndexOrder;
use crate::intervals::{self, IntervalOperators, IntervalOrder};
use crate::multisets::Multisets;
use crate::numbers::{self, DoubleBesideDecimal};
use crate::overflow::{CheckedArithmetic, CheckedConstants};
use crate::result::{Outcome, StatementResult};
use crate::row_buffer::RowBuffer;
use crate::running::Running;
use crate::scan::BATCH_ROWS;
use crate::schemas::{CATALOG, Names, SCHEMA};
use crate::session::{Session, SessionOptions, blocking, commit_after};
use crate::single_rows::SingleRows;
use crate::source::{self, ChangeSource, InsertSource};
use crate::subqueries::{LiftedSubqueries, Membership};
use crate::syntax::table_name;
use crate::truth_tests::TruthTests;
use crate::views::Views;
use crate::zones::{self, DatesBesideMoments, LocalTimes};
use crate::{
    assignment, compatible, definition, explain, limits, literals, merged, modify, past, ranks, refusals,
    table_options, to_char, typing, write,
};

/// Rules of the engine that are left out. The first two find the columns of a condition again by name, and take another
/// where a join has two of one name; what can move has moved before, and no scan of ours takes a condition that changes
/// while it runs. The third fails on aggregates of aggregates of nothing, and knows no count of rows that is exact.
const LEFT_OUT: [&str; 3] = ["FilterPushdown", "FilterPushdown(Post)", "aggregate_statistics"];

/// The engine of a session, with the database's tables.
pub(crate) fn context(source: &Source, options: &SessionOptions, running: &Arc<Running>) -> SessionContext {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_batch_size(BATCH_ROWS);
    if let Some(partitions) = options.target_partitions {
        config = config.with_target_partitions(partitions.max(1));
    }
    config.options_mut().execution.time_zone = Some(zones::UTC.to_owned());
    // It refuses plans in which the engine's two ideas of what may be NULL differ.
    config.options_mut().execution.skip_physical_aggregate_schema_check = true;
    config.options_mut().optimizer.enable_dynamic_filter_pushdown = false;
    let parser = &mut config.options_mut().sql_parser;
    parser.dialect = Dialect::PostgreSQL;
    parser.map_string_types_to_utf8view = false;
    // 0.1 is a decimal: it must not lose digits on its way into a DECIMAL column.
    parser.parse_float_as_decimal = true;
    let handle = StateHandle::default();
    let mut analyzer = Analyzer::new().rules;
    analyzer.insert(0, Arc::new(DoubleBesideDecimal));
    analyzer.insert(0, Arc::new(DatesBesideMoments));
    analyzer.insert(0, Arc::new(IntervalOrder::Windows));
    analyzer.insert(0, Arc::new(CorrelatedSubqueries::new(Arc::clone(&handle), &source.current)));
    analyzer.insert(0, Arc::new(Membership));
    analyzer.insert(0, Arc::new(LiftedSubqueries));
    analyzer.insert(0, Arc::new(Multisets));
    analyzer.insert(0, Arc::new(BlankPadded));
    analyzer.push(Arc::new(LocalTimes));
    analyzer.push(Arc::new(IntervalOrder::Values));
    analyzer.push(Arc::new(CheckedConstants));
    analyzer.push(Arc::new(TruthTests));
    analyzer.push(Arc::new(SingleRows));
    let mut physical = PhysicalOptimizer::new().rules;
    physical.retain(|rule| !LEFT_OUT.contains(&rule.name()));
    let sorts = physical.iter().position(|rule| rule.name() == barriers::BEFORE).unwrap_or_default();
    physical.insert(sorts, Arc::new(Barriers));
    let mut planners = SessionStateDefaults::default_expr_planners();
    planners.insert(0, Arc::new(IntervalOperators));
    let mut logical = Optimizer::new().rules;
    GroupKeys::replace(&mut logical);
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_analyzer_rules(analyzer)
        .with_expr_planners(planners)
        .with_optimizer_rules(logical)
        .with_physical_optimizer_rules(physical)
        .with_physical_optimizer_rule(Arc::new(IndexOrder))
        .with_physical_optimizer_rule(Arc::new(CheckedArithmetic))
        .with_physical_optimizer_rule(Arc::new(Interruptible::new(running)));
    if let Some(runtime) = &options.runtime {
        builder = builder.with_runtime_env(Arc::clone(runtime));
    }
    let context = SessionContext::new_with_state(builder.build());
    context.register_udf(merged::function());
    ranks::functions().into_iter().for_each(|function| context.register_udwf(function));
    let own = zones::functions().into_iter().chain(Cut::both()).chain(compatible::functions());
    let own = own.chain(intervals::functions()).chain([refusals::uuid_function(), to_char::function()]);
    own.for_each(|function| context.register_udf(function));
    let views = Views::new(&source.catalog, &context);
    let _ = source.views.set(views.clone());
    context.register_catalog(CATALOG, Arc::new(Names::new(source, views)));
    // It is the first to set it.
    let _ = handle.set(context.state_weak_ref());
    context
}

/// Plans a query in the session's current transaction.
pub(crate) async fn plan_query(session: &Session, statement: EngineStatement) -> Result<DataFrame> {
    let state = session.context.state();
    let plan = logical_plan(session, &state, statement).await?;
    Ok(DataFrame::new(state, plan))
}

/// The plan of a query, as it was written.
pub(crate) async fn logical_plan(
    session: &Session,
    state: &SessionState,
    statement: EngineStatement,
) -> Result<LogicalPlan> {
    let mut statement = match statement {
        EngineStatement::Explain(mut explain) => {
            explain.statement = Box::new(explained(&session.catalog, *explain.statement)?);
            EngineStatement::Explain(explain)
        }
        other => other,
    };
    spelling::translate(&mut statement);
    numbers::type_exponents(&mut statement);
    past::resolve(state, &session.catalog, &mut statement).await?;
    limits::resolve(state, &mut statement).await?;
    let plan = state.statement_to_plan(statement).await?;
    check_reads(&plan)?;
    Ok(typing::typed(merged::merged(plan)?)?)
}

/// Refuses plans that would do anything but read.
pub(crate) fn check_reads(plan: &LogicalPlan) -> Result<()> {
    let read_only =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(plan).map_err(|error| Error::Unsupported(Error::from(error).to_string()))
}

/// EXPLAIN of a writing statement explains the query that computes what it writes.
fn explained(catalog: &Catalog, statement: EngineStatement) -> Result<EngineStatement> {
    let EngineStatement::Statement(inner) = &statement else { return Ok(statement) };
    let query = match inner.as_ref() {
        Statement::Insert(insert) => source::any_insert(catalog, insert)?.query,
        Statement::Update(update) => Some(source::any_update(catalog, update)?.query),
        Statement::Delete(delete) => Some(source::any_delete(catalog, delete)?.query),
        _ => return Ok(statement),
    };
    let query = query.ok_or_else(|| Error::unsupported("EXPLAIN of DEFAULT VALUES"))?;
    Ok(query_statement(query))
}

pub(crate) fn query_statement(query: Box<Query>) -> EngineStatement {
    EngineStatement::Statement(Box::new(Statement::Query(query)))
}

/// The columns of a query's rows.
pub(crate) fn columns_of(statement: &EngineStatement, plan: &LogicalPlan) -> SchemaRef {
    match statement {
        EngineStatement::Explain(_) => explain::columns(),
        _ => Arc::clone(plan.schema().inner()),
    }
}

/// Starts a query, whose rows come as they are computed; EXPLAIN is done at once.
pub(crate) async fn query(session: &Session, statement: EngineStatement) -> Result<Outcome> {
    if let EngineStatement::Explain(explain) = &statement {
        let explain = explain.clone();
        let batches = plan_query(session, statement).await?.collect().await?;
        return Ok(explain::result(&explain, &batches)?.stream());
    }
    Ok(Outcome::Rows(plan_query(session, statement).await?.execute_stream().await?))
}

/// SET and RESET of the engine's own options.
pub(crate) async fn set(session: &Session, statement: EngineStatement) -> Result<StatementResult> {
    let plan = session.context.state().statement_to_plan(statement).await?;
    session.context.execute_logical_plan(plan).await?;
    Ok(StatementResult::Done { verb: "SET" })
}

pub(crate) async fn insert(session: &Session, tx: &Arc<Transaction>, statement: &Insert) -> Result<Outcome> {
    if modify::concerns_insert(&session.catalog, statement)? {
        return modify::insert(session, tx, statement).await;
    }
    let source = source::insert(&session.catalog, statement)?;
    let rows = insert_from(session, tx, &source).await?;
    Ok(Outcome::Count { verb: "INSERT", rows })
}

async fn insert_from(session: &Session, tx: &Arc<Transaction>, source: &InsertSource) -> Result<u64> {
    let table = &source.table;
    let Some(query) = &source.query else {
        let row: Row = vec![Value::Null; table.schema().visible_columns().len()];
        table.insert(tx, &row)?;
        return Ok(1);
    };
    if let Some(rows) = literals::rows(source, query, &[], &session.zone) {
        return insert_rows(tx, table, &rows);
    }
    let frame = plan_query(session, query_statement(query.clone())).await?;
    check_columns(source, &frame)?;
    insert_frame(session, tx, table, &source.targets, frame).await
}

/// Inserts rows that need no query.
pub(crate) fn insert_rows(tx: &Transaction, table: &Table, rows: &[Row]) -> Result<u64> {
    match rows {
        [row] => table.insert(tx, row)?,
        rows => table.insert_many(tx, rows)?,
    }
    Ok(rows.len() as u64)
}

/// Inserts the rows of a query as they are computed, unless it reads the table that they go to.
async fn insert_frame(
    session: &Session,
    tx: &Arc<Transaction>,
    table: &Table,
    targets: &[usize],
    frame: DataFrame,
) -> Result<u64> {
    let zone = &session.zone;
    let mut inserted = 0;
    if reads(frame.logical_plan(), table)? {
        for batch in RowBuffer::of_query(session, frame).await?.batches() {
            inserted += write::insert(tx, table, targets, batch, zone)?;
        }
        return Ok(inserted);
    }
    let mut stream = frame.execute_stream().await?;
    while let Some(batch) = stream.next().await {
        inserted += write::insert(tx, table, targets, &batch?, zone)?;
    }
    Ok(inserted)
}

pub(crate) fn check_columns(source: &InsertSource, frame: &DataFrame) -> Result<()> {
    let (found, expected) = (frame.schema().fields().len(), source.targets.len());
    if found > expected || (source.listed && found < expected) {
        let table = source.table.name();
        return Err(Error::Invalid(format!("INSERT INTO {table}: {found} values for {expected} columns")));
    }
    for (field, &target) in frame.schema().fields().iter().zip(&source.targets) {
        assignment::check(source.table.name(), &source.table.schema().columns()[target], field.data_type())?;
    }
    Ok(())
}

/// Whether a plan scans a table of this name; subqueries count.
pub(crate) fn reads(plan: &LogicalPlan, table: &Table) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.table() == table.name()
        {
            found = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

pub(crate) async fn update(session: &Session, tx: &Arc<Transaction>, statement: &Update) -> Result<Outcome> {
    if modify::concerns_update(&session.catalog, statement) {
        return modify::update(session, tx, statement).await;
    }
    let source = source::update(&session.catalog, statement)?;
    let changes = changes(session, &source).await?;
    let rows = write::update(tx, &source, changes.batches(), &session.zone)?;
    Ok(Outcome::Count { verb: "UPDATE", rows })
}

pub(crate) async fn delete(session: &Session, tx: &Arc<Transaction>, statement: &Delete) -> Result<Outcome> {
    if modify::concerns_delete(statement) {
        return modify::delete(session, tx, statement).await;
    }
    let source = source::delete(&session.catalog, statement)?;
    let changes = changes(session, &source).await?;
    let rows = write::delete(tx, &source, changes.batches(), &session.zone)?;
    Ok(Outcome::Count { verb: "DELETE", rows })
}

/// The keys of the rows that a statement changes, and their new values.
pub(crate) async fn changes(session: &Session, source: &ChangeSource) -> Result<RowBuffer> {
    let frame = plan_query(session, query_statement(source.query.clone())).await?;
    let new = frame.schema().fields().iter().skip(source.old.len());
    for (field, &target) in new.zip(&source.assigned) {
        assignment::check(source.table.name(), &source.table.schema().columns()[target], field.data_type())?;
    }
    RowBuffer::of_query(session, frame).await
}

pub(crate) async fn create_table(session: &Session, create: &CreateTable) -> Result<StatementResult> {
    let name = table_name(&create.name)?;
    if let CreateTableOptions::With(options) = &create.table_options {
        session.storage_notice(table_options::option_names(options));
    }
    let Some(query) = &create.query else {
        if create.if_not_exists && session.catalog.relation_kind(&name).is_some() {
            return Ok(StatementResult::Done { verb: "CREATE TABLE" });
        }
        session.begin_definite()?;
        let (mut definition, sequences) = definition::declared(session, &name, create)?;
        let declared = table_options::declared_options(create)?;
        definition.placement = declared.placement.unwrap_or_default();
        let history = declared.history.flatten();
        make_table(session, &name, definition, sequences, create.if_not_exists, history).await?;
        return Ok(StatementResult::Done { verb: "CREATE TABLE" });
    };
    definition::declared_schema_is_absent(create)?;
    match session.catalog.relation_kind(&name) {
        Some(_) if create.if_not_exists => return Ok(StatementResult::Done { verb: "CREATE TABLE" }),
        Some(RelationKind::Table) => return Err(TableError::TableExists { table: name }.into()),
        Some(_) => return Err(TableError::RelationExists { name }.into()),
        None => {}
    }
    let tx = session.catalog.begin()?;
    let _bound = session.bind(&tx);
    let frame = plan_query(session, query_statement(query.clone())).await?;
    let schema = definition::derived_schema(frame.schema().as_arrow())?;
    let declared = table_options::declared_options(create)?;
    let mut definition = TableDefinition::plain(schema);
    definition.placement = declared.placement.unwrap_or_default();
    session.begin_definite()?;
    make_table(session, &name, definition, Vec::new(), false, declared.history.flatten()).await?;
    let unfilled = Unfilled { catalog: &session.catalog, name: &name, kept: false };
    // There is nothing yet that would have to stay.
    session.end_definite();
    let rows = fill(session, &name, frame).await?;
    unfilled.keep();
    Ok(StatementResult::Count { verb: "CREATE TABLE AS", rows })
}

/// Drops the new table of a statement that does not come to its end: it fails, or its future is dropped.
struct Unfilled<'s> {
    catalog: &'s Catalog,
    name: &'s str,
    kept: bool,
}

impl Unfilled<'_> {
    /// The table has its rows.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Unfilled<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // On this thread: once the failure is reported, the table is gone.
        if let Err(error) = self.catalog.drop_table(self.name) {
            tracing::warn!(%error, table = self.name, "the table of a CREATE TABLE AS that failed is left, perhaps empty");
        }
    }
}

/// The table is new: its writer needs a snapshot that is not older.
async fn fill(session: &Session, name: &str, frame: DataFrame) -> Result<u64> {
    let table = session.catalog.table(name)?;
    let began = Instant::now();
    let writer = session.catalog.begin()?;
    session.attend(&writer);
    let targets: Vec<usize> = (0..table.schema().visible_columns().len()).collect();
    let rows = insert_frame(session, &writer, &table, &targets, frame).await?;
    commit_after(began, &writer, session.durability(), &session.running).await?;
    Ok(rows)
}

async fn make_table(
    session: &Session,
    name: &str,
    definition: TableDefinition,
    sequences: Vec<NewSequence>,
    if_not_exists: bool,
    history: Option<Kept>,
) -> Result<()> {
    let (catalog, name) = (Arc::clone(&session.catalog), name.to_owned());
    let options = TableOptions { group: None, if_not_exists, history };
    blocking(move || catalog.create_table_with(&name, definition, options, sequences).map(drop)).await??;
    Ok(())
}
