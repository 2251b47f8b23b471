//! Queries: from a statement to its plan and its rows.
//!
//! DataFusion only ever reads: it gets queries, never DDL or DML, and its own ways to define or write tables
//! are switched off. Memory of queries is bounded by [`query_memory`]; what exceeds it spills or fails.
//!
//! [`query_memory`]: crate::query_memory

use crate::error::{Error, Result, unsupported};
use crate::planner::cacheability::{Cacheability, cacheability};
use crate::planner::costs;
use crate::planner::describe;
use crate::planner::explain;
use crate::planner::explain_json;
use crate::planner::from_names;
use crate::planner::generic;
use crate::planner::join_using;
use crate::planner::limits;
use crate::planner::over_clauses;
use crate::planner::relation_aliases;
use crate::planner::sampling;
use crate::planner::time_travel;
use crate::planner::translation;
use crate::planner::{relation_rows, windows};
use crate::postgres::number_types;
use crate::postgres::numbers::{self};
use crate::session::core::SessionCore;
use crate::session::plan_cache::{PlanLookup, RepeatedQuery};
use crate::session::result::{Outcome, StatementResult};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::sql::parser::{ExplainStatement, Statement as DFStatement};
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory of the plans of a statement that comes again, and memory for each byte of it, as of a prepared one.
const PLAN_BYTES: u64 = 64 << 10;
const BYTES_OF_TEXT_BYTE: u64 = 128;

/// Plans a query in the session's current transaction.
pub(crate) async fn plan_query(session: &SessionCore, statement: DFStatement) -> Result<DataFrame> {
    let state = session.context.state();
    let plan = logical_plan(session, &state, statement).await?;
    Ok(DataFrame::new(state, plan))
}

/// Plan of a query, as it was written. That of VALUES may be the source of an INSERT, whose columns say the types.
pub(crate) async fn logical_plan(
    session: &SessionCore,
    state: &SessionState,
    statement: DFStatement,
) -> Result<LogicalPlan> {
    Ok(number_types::typed(untyped(session, state, statement).await?)?)
}

/// Plan of a statement that is a query, as it was written.
pub(crate) async fn statement_plan(
    session: &SessionCore,
    state: &SessionState,
    statement: DFStatement,
) -> Result<LogicalPlan> {
    Ok(number_types::typed_statement(untyped(session, state, statement).await?)?)
}

/// Plan of a query before its numbers have PostgreSQL's types.
async fn untyped(
    session: &SessionCore,
    state: &SessionState,
    mut statement: DFStatement,
) -> Result<LogicalPlan> {
    describe::resolve(session, &mut statement)?;
    sampling::resolve(&session.catalog, &mut statement)?;
    windows::resolve(&session.catalog, &mut statement)?;
    if let DFStatement::Explain(explain) = &mut statement {
        // COSTS is ours; DataFusion's option of that name shows other things, and not with ANALYZE.
        explain.options.show_statistics = None;
        if explain_json::is_json(&explain.options) {
            explain.options.format = None;
        }
    }
    over_clauses::check(state, &statement)?;
    translation::translate(&mut statement);
    from_names::check(&statement)?;
    numbers::type_exponents(&mut statement);
    time_travel::resolve(state, &session.catalog, &mut statement).await?;
    limits::resolve(state, &mut statement).await?;
    let plan = relation_rows::plan(state, statement).await?;
    check_reads(&plan)?;
    Ok(join_using::merged(plan)?)
}

/// Refuses plans that would do anything but read.
pub(crate) fn check_reads(plan: &LogicalPlan) -> Result<()> {
    let read_only =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only
        .verify_plan(plan)
        .map_err(|error| Error::Unsupported(unsupported(Error::from(error).to_string())))
}

/// The columns of a query's rows.
pub(crate) fn columns_of(statement: &DFStatement, plan: &LogicalPlan) -> SchemaRef {
    match statement {
        DFStatement::Explain(explain) => explain::columns(&explain.options),
        _ => Arc::clone(plan.schema().inner()),
    }
}

/// Starts a query, whose rows come as they are computed; EXPLAIN is done at once.
pub(crate) async fn query(session: &SessionCore, statement: DFStatement) -> Result<Outcome> {
    if let DFStatement::Explain(explain) = &statement {
        return Ok(explained(session, explain.clone()).await?.stream());
    }
    let state = session.context.state();
    let optimised = match Box::pin(repeated(session, &statement)).await? {
        Some(query) => {
            let transaction = session.current.get(&session.catalog)?;
            let started = generic::start(&query.templates, session, &transaction, &query.plan, &[]);
            if let Some(rows) = Box::pin(started).await? {
                return Ok(Outcome::Rows(rows));
            }
            query.plan.clone()
        }
        None => {
            let mut statement = statement;
            relation_aliases::rename(&session.catalog, &mut statement);
            state.optimize(&Box::pin(statement_plan(session, &state, statement)).await?)?
        }
    };
    let physical = state.query_planner().create_physical_plan(&optimised, &state).await?;
    Ok(Outcome::Rows(execute_stream(physical, state.task_ctx())?))
}

/// Plans of a query that came before in the session; made now if it has none yet. `None` for one that comes for the
/// first time, or whose plan cannot be used again.
pub(crate) async fn repeated(
    session: &SessionCore,
    statement: &DFStatement,
) -> Result<Option<Arc<RepeatedQuery>>> {
    // Tables have other columns as of a point in time, and DESCRIBE has those of sources in its plan.
    if session.current.is_past() || describe::is_description(statement) {
        return Ok(None);
    }
    let scope = session.plan_scope();
    match session.plans.find(statement, &scope) {
        PlanLookup::Plan(query) => return Ok(Some(query)),
        PlanLookup::Repeated => {}
        PlanLookup::New => return Ok(None),
    }
    // Computed limits and points in time are no part of the plan any more.
    if time_travel::has_as_of(statement) || limits::has_computed_limit(statement) {
        session.plans.refuse(statement);
        return Ok(None);
    }
    let state = session.context.state();
    let mut renamed = statement.clone();
    relation_aliases::rename(&session.catalog, &mut renamed);
    let plan = statement_plan(session, &state, renamed).await?;
    let (true, Ok(memory)) =
        (matches!(cacheability(&plan)?, Cacheability::Generic), reserved(session, statement))
    else {
        session.plans.refuse(statement);
        return Ok(None);
    };
    let columns = columns_of(statement, &plan);
    let optimised = state.optimize(&plan)?;
    Ok(Some(session.plans.add(statement.clone(), scope, (optimised, columns), memory)))
}

/// Memory of the cached plan of a statement.
fn reserved(session: &SessionCore, statement: &DFStatement) -> Result<Option<MemoryReservation>> {
    let Some(budget) = session.catalog.context().pool().memory() else { return Ok(None) };
    let bytes = PLAN_BYTES + BYTES_OF_TEXT_BYTE * statement.to_string().len() as u64;
    let reserved = budget.try_reserve(MemoryConsumer::Connections, bytes);
    reserved.map(Some).map_err(|limit| Error::MemoryLimit(limit.to_string()))
}

/// Result of EXPLAIN of a query.
async fn explained(session: &SessionCore, explain: ExplainStatement) -> Result<StatementResult> {
    if explain_json::is_json(&explain.options) {
        return explain_json::explained(session, explain).await;
    }
    let with_costs = explain.options.show_statistics == Some(true);
    let frame = plan_query(session, DFStatement::Explain(explain.clone())).await?;
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), context).await?;
    let mut lines = explain::plan_lines(explain.options.verbose, &batches)?;
    if with_costs && explain.options.analyze {
        lines.extend(costs::lines(&session.catalog, &plan, true)?);
    } else if with_costs {
        // The plan of EXPLAIN itself has no scans.
        let plan = plan_query(session, *explain.statement).await?.create_physical_plan().await?;
        lines.extend(costs::lines(&session.catalog, &plan, false)?);
    }
    explain::lines(lines)
}

/// SET and RESET of DataFusion's own options.
pub(crate) async fn set(session: &SessionCore, statement: DFStatement) -> Result<StatementResult> {
    session.option_changes.fetch_add(1, Ordering::Relaxed);
    let plan = session.context.state().statement_to_plan(statement).await?;
    session.context.execute_logical_plan(plan).await?;
    Ok(StatementResult::Done { verb: "SET" })
}
