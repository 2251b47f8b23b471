//! Prepared statements: parsed and planned once, run many times with values for their parameters.
//!
//! | statement | cached | cost of a run |
//! | --- | --- | --- |
//! | rows named by their keys ([`crate::planner::fast_path`]) | table, keys, columns | the look-ups |
//! | INSERT of literals and parameters, and what ON CONFLICT does ([`crate::dml::fast_path_insert`]) | table, columns, cells | the rows |
//! | queries over tables, UPDATE, DELETE | their generic plan ([`crate::planner::generic`]) | execution |
//! | others of these | their logical plan | planning, execution |
//! | anything else | the parsed statement | as if it was executed as query text |
//!
//! # Invariants
//!
//! - A run gives the result of the statement's query text with the values in place of the parameters.
//! - A cached plan is planned again once a table was created, altered or dropped ([`Catalog::version`]), or
//!   the session has another time zone. If the columns of the result are others then, it is an error (0A000):
//!   the client was told of the old ones.
//! - A plan that has a function of the time, of the session or of chance is optimised in each run.
//! - A [`PreparedStatement`] belongs to the session that made it.
//!
//! Memory: the syntax tree and the plan, as long as the client keeps the [`PreparedStatement`]; estimated by the
//! length of the query text, and reserved in the budget before it is parsed.
//!
//! [`Catalog::version`]: entresol_tables::Catalog::version

mod run;

use crate::dml::authorization;
use crate::dml::defaults;
use crate::dml::fast_path_insert::FastPathInsert;
use crate::dml::merge;
use crate::dml::returning::{Returning, described};
use crate::dml::source::{self, ChangeSource};
use crate::dml::statements as dml_statements;
use crate::error::{Error, Result};
use crate::execution::authorization::{authorize, authorize_copy};
use crate::execution::copy::copied_table;
use crate::execution::cursor::CursorUse;
use crate::execution::search_path;
use crate::execution::session::Session;
use crate::parser::command::Command;
use crate::parser::merge::MergeStatement;
use crate::parser::statement::{ParsedStatement, SessionStatement, parse_one};
use crate::parser::statement::{inner_mut, query_statement};
use crate::parser::text::kind::StatementKind;
use crate::planner::cacheability::{Cacheability, cacheability};
use crate::planner::fast_path::Point;
use crate::planner::limits;
use crate::planner::parameters::{self, Types};
use crate::planner::query;
use crate::planner::relation_aliases;
use crate::planner::time_travel;
use crate::postgres::number_types;
use crate::postgres::time_zones::Zone;
use crate::session::current::Current;
use crate::session::plan_cache::{PlanningVersion, RepeatedQuery};
use crate::session::result::FastPathResult;
use crate::session::templates::PlanTemplates;
use datafusion::arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Insert, Query};
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use entresol_tables::Table;
use entresol_transactions::Transaction;
use parking_lot::Mutex;
use std::sync::Arc;

/// Statement prepared in a session; see the [module](self). Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct PreparedStatement(Arc<Kernel>);

#[derive(Debug)]
struct Kernel {
    /// Session that owns it.
    owner: Arc<Current>,
    /// None for an empty query text.
    command: Option<Command>,
    parameters: Vec<ArrowType>,
    columns: Option<SchemaRef>,
    planned: Mutex<CachedExecution>,
    /// Reservation for all of it, as long as it lives.
    _memory: Option<MemoryReservation>,
}

/// Memory of a statement, and memory for each byte of its query text: a syntax tree and a plan of a list of
/// 1,000 constants took 133 bytes for each, those of INSERT with as many rows 81.
const STATEMENT_BYTES: u64 = 16 << 10;
const BYTES_OF_TEXT_BYTE: u64 = 128;
/// Longest query text that is not counted if it needs no planning.
const SHORT_TEXT_BYTES: usize = 1024;

/// Cached execution and the version for which it was planned.
#[derive(Debug)]
struct CachedExecution {
    version: PlanningVersion,
    work: Arc<Execution>,
}

/// Execution of a prepared statement.
#[derive(Debug)]
enum Execution {
    Point(Point),
    Insert(FastPathInsert),
    Query(PlannedQuery),
    /// UPDATE, or DELETE if nothing is assigned, without RETURNING.
    Change(ChangeSource, PlannedQuery),
    /// As query text.
    Text,
}

/// Query of a prepared statement.
#[derive(Debug)]
struct PlannedQuery {
    plan: LogicalPlan,
    /// Templates of its generic plan, if neither the time nor the session can change it.
    generic: Option<Arc<PlanTemplates>>,
}

impl PlannedQuery {
    /// Query with this plan, as written; `None` if it has to be planned from its text in each run.
    fn new(plan: LogicalPlan) -> Result<Option<PlannedQuery>> {
        let generic = match cacheability(&plan)? {
            Cacheability::Generic => Some(Arc::default()),
            Cacheability::AsWritten => None,
            Cacheability::Nothing => return Ok(None),
        };
        Ok(Some(PlannedQuery { plan, generic }))
    }
}

impl Execution {
    /// Query that a run plans or has planned.
    fn query(&self) -> Option<&PlannedQuery> {
        match self {
            Execution::Query(query) | Execution::Change(_, query) => Some(query),
            Execution::Point(_) | Execution::Insert(..) | Execution::Text => None,
        }
    }

    fn runs_on_fast_path(&self) -> bool {
        matches!(self, Execution::Point(_) | Execution::Insert(..))
    }

    /// Runs the fast path; `None` if values do not fit, or there is none. Nothing was written then.
    fn run(&self, transaction: &Transaction, values: &[ScalarValue]) -> Result<Option<FastPathResult>> {
        match self {
            Execution::Point(point) => point.run(transaction, values),
            Execution::Insert(insert) => insert.run(transaction, values),
            Execution::Query(_) | Execution::Change(..) | Execution::Text => Ok(None),
        }
    }
}

/// Result of preparing a statement.
struct PreparedParts {
    work: Execution,
    parameters: Vec<ArrowType>,
    columns: Option<SchemaRef>,
}

impl PreparedParts {
    /// Parts of a query that the session has run before.
    fn repeated(query: &RepeatedQuery) -> PreparedParts {
        let (plan, generic) = (query.plan.clone(), Some(Arc::clone(&query.templates)));
        PreparedParts {
            work: Execution::Query(PlannedQuery { plan, generic }),
            parameters: Vec::new(),
            columns: Some(Arc::clone(&query.columns)),
        }
    }
}

/// Parts of an INSERT that are known without planning.
struct PreparedInsert {
    table: Arc<Table>,
    /// Alias of the table in the statement.
    name: String,
    /// Its query, with defaults in place of DEFAULT.
    spelled: Option<Box<Query>>,
    /// The statement, if it needs no planning.
    fast_path: Option<FastPathInsert>,
}

impl PreparedStatement {
    /// Returns true if a run takes microseconds, waits for the disk aside: it plans nothing, and reads tables
    /// by key only.
    pub fn runs_on_fast_path(&self) -> bool {
        match &self.0.command {
            None => true,
            Some(command) if command.is_rows() => self.0.planned.lock().work.runs_on_fast_path(),
            Some(command) => command.concerns_session(),
        }
    }

    /// Types of its parameters.
    pub fn parameters(&self) -> &[ArrowType] {
        &self.0.parameters
    }

    /// Columns of its result; `None` if it returns no rows.
    pub fn columns(&self) -> Option<SchemaRef> {
        self.0.columns.clone()
    }

    /// Number of runs of its generic plan that planned nothing.
    pub fn generic_reuses(&self) -> u64 {
        let planned = self.0.planned.lock();
        let generic = planned.work.query().and_then(|query| query.generic.as_ref());
        generic.map_or(0, |generic| generic.reuses())
    }

    /// Kind with regard to transactions; that of a query for an empty query text.
    pub fn kind(&self) -> StatementKind {
        self.0.command.as_ref().map_or(StatementKind::Read, Command::kind)
    }

    /// Name in DEALLOCATE; `None` for ALL and for other statements.
    pub fn deallocated(&self) -> Option<&str> {
        match &self.0.command {
            Some(Command::Deallocate(name)) => name.as_deref(),
            _ => None,
        }
    }

    /// Returns true for COMMIT and ROLLBACK, which a failed block accepts.
    pub fn ends_block(&self) -> bool {
        matches!(&self.0.command, Some(Command::Commit | Command::Rollback | Command::RollbackTo(_)))
    }

    /// Cursor operation of the statement, if it is one.
    pub fn cursor_use(&self) -> Option<CursorUse<'_>> {
        self.0.command.as_ref().and_then(CursorUse::of)
    }

    /// Returns true if the values have exactly the types of the parameters.
    fn has_types_of(&self, values: &[ScalarValue]) -> bool {
        let types = &self.0.parameters;
        values.len() == types.len() && values.iter().zip(types).all(|(value, of)| value.data_type() == *of)
    }

    /// Converts values to the types of the parameters; local times are in the session's zone, as it is now.
    /// Decimals that the type cannot represent stay as they are: they are compared so, and rounded or refused
    /// where they are assigned.
    fn values(&self, values: &[ScalarValue], zone: &Zone) -> Result<Option<Vec<ScalarValue>>> {
        let types = &self.0.parameters;
        if self.has_types_of(values) {
            return Ok(None);
        }
        if values.len() != types.len() {
            let (given, wanted) = (values.len(), types.len());
            return Err(Error::coded(
                "08P01",
                format!("bind message supplies {given} parameters, but prepared statement requires {wanted}"),
            ));
        }
        let convert = |value: &ScalarValue, data_type: &ArrowType| match data_type {
            ArrowType::Timestamp(unit, Some(_)) => {
                value.cast_to(&ArrowType::Timestamp(*unit, Some(zone.name().into())))?.cast_to(data_type)
            }
            _ => value.cast_to(data_type),
        };
        let cast = |(value, data_type): (&ScalarValue, &ArrowType)| match convert(value, data_type) {
            // Strings have several spellings of the same number.
            Ok(cast)
                if is_decimal(data_type)
                    && !value.data_type().is_string()
                    && cast.cast_to(&value.data_type()).ok().as_ref() != Some(value) =>
            {
                Ok(value.clone())
            }
            Ok(cast) if cast.is_null() == value.is_null() => Ok(cast),
            _ if is_decimal(data_type) && is_decimal(&value.data_type()) => Ok(value.clone()),
            // A string is malformed; a number is out of range.
            _ => {
                let is_text = value.data_type().is_string();
                let sqlstate = if is_text { "22P02" } else { "22003" };
                Err(Error::coded(
                    sqlstate,
                    format!("invalid value for a parameter of type {data_type}: {value}"),
                ))
            }
        };
        values.iter().zip(types).map(cast).collect::<Result<_>>().map(Some)
    }
}

/// Returns true for DECIMAL, or lists of it.
fn is_decimal(data_type: &ArrowType) -> bool {
    match data_type {
        ArrowType::Decimal128(..) => true,
        ArrowType::List(element) => is_decimal(element.data_type()),
        _ => false,
    }
}

impl Session {
    /// Prepares a statement: parses and plans it, and finds the types of its parameters and columns. A type
    /// that the client declares is used; the others are those of the columns that a parameter is compared
    /// with or assigned to, or text. Errors are those of the statement; inside of a block they fail it.
    pub async fn prepare(
        &mut self,
        sql: &str,
        parameter_types: &[Option<ArrowType>],
    ) -> Result<PreparedStatement> {
        let prepared = self.prepare_text(sql, parameter_types).await;
        prepared.map_err(|error| self.failing(error))
    }

    async fn prepare_text(
        &mut self,
        sql: &str,
        parameter_types: &[Option<ArrowType>],
    ) -> Result<PreparedStatement> {
        // Before the tree is built: it takes most of the memory.
        let memory = self.reserve_statement(sql.len())?;
        self.prepare_command(parse_one(sql)?, parameter_types, memory).await
    }

    /// Parses a query text of at most one statement. Errors fail an open block, as those of the statement
    /// would. A COPY into a table that the session's role may not write is an error here: clients send data
    /// as soon as it runs.
    pub fn parse(&mut self, sql: &str) -> Result<ParsedStatement> {
        let parsed = self.parse_text(sql);
        parsed.map_err(|error| self.failing(error))
    }

    fn parse_text(&self, sql: &str) -> Result<ParsedStatement> {
        let memory = self.reserve_statement(sql.len())?;
        let parsed = ParsedStatement::new(parse_one(sql)?, memory);
        if let ParsedStatement::Copy(copy) = &parsed {
            authorize_copy(&self.core.variables.authority, copy)?;
            search_path::check_copy(&self.core.variables, copy)?;
            let authority = &self.core.variables.authority;
            if let Some(name) = copy.written_table().filter(|_| !authority.is_superuser()) {
                copied_table(&self.core, name)?;
            }
        }
        Ok(parsed)
    }

    /// Prepares a parsed statement, as [`Session::prepare`] does.
    pub async fn prepare_statement(
        &mut self,
        statement: SessionStatement,
        parameter_types: &[Option<ArrowType>],
    ) -> Result<PreparedStatement> {
        let SessionStatement { command, memory } = statement;
        let prepared = self.prepare_command(command, parameter_types, memory).await;
        prepared.map_err(|error| self.failing(error))
    }

    /// Reserves memory of the budget for a statement with a query text of `text_bytes`.
    pub(crate) fn reserve_statement(&self, text_bytes: usize) -> Result<Option<MemoryReservation>> {
        let Some(budget) = self.core.catalog.context().pool().memory() else { return Ok(None) };
        let bytes = STATEMENT_BYTES + BYTES_OF_TEXT_BYTE * text_bytes as u64;
        let reserved = budget.try_reserve(MemoryConsumer::Connections, bytes);
        reserved.map(Some).map_err(|limit| Error::MemoryLimit(limit.to_string()))
    }

    pub(crate) async fn prepare_command(
        &mut self,
        command: Option<Command>,
        parameter_types: &[Option<ArrowType>],
        memory: Option<MemoryReservation>,
    ) -> Result<PreparedStatement> {
        let version = self.core.planning_version();
        let ready = match &command {
            Some(command) => self.ready(command, parameter_types).await?,
            None => PreparedParts { work: Execution::Text, parameters: Vec::new(), columns: None },
        };
        Ok(PreparedStatement(Arc::new(Kernel {
            owner: Arc::clone(&self.core.current),
            command,
            parameters: ready.parameters,
            columns: ready.columns,
            planned: Mutex::new(CachedExecution { version, work: Arc::new(ready.work) }),
            _memory: memory,
        })))
    }

    async fn ready(&self, command: &Command, declared: &[Option<ArrowType>]) -> Result<PreparedParts> {
        let mut types = Types::declared(declared);
        let count = command.parameters()?.max(declared.len());
        authorize(&self.core.variables.authority, command)?;
        search_path::check(&self.core.variables, command)?;
        if let Some(point) = self.point(command)? {
            point.add_types(&mut types, &self.core.zone);
            let columns = point.columns().cloned();
            return Ok(PreparedParts {
                work: Execution::Point(point),
                parameters: types.complete(count),
                columns,
            });
        }
        let state = self.core.context.state();
        let (work, columns) = match command {
            Command::Query(statement) => {
                let mut present =
                    dml_statements::planned_statement(&self.core, (**statement).clone()).await?;
                if count == 0
                    && let Some(query) = Box::pin(query::repeated(&self.core, &present)).await?
                {
                    return Ok(PreparedParts::repeated(&query));
                }
                let is_computed = time_travel::has_as_of(&present) || limits::has_computed_limit(&present);
                time_travel::without(&mut present);
                limits::without(&mut present);
                relation_aliases::rename(&self.core.catalog, &mut present);
                if let Some(tree) = inner_mut(&mut present) {
                    parameters::declare(tree, &types);
                }
                let plan = query::statement_plan(&self.core, &state, present).await?;
                types.of_plan(&plan)?;
                let plan = number_types::typed(parameters::typed(plan, &types.complete(count))?)?;
                let columns = query::columns_of(statement, &plan);
                // Its points in time and limits are computed in each run.
                let query = if is_computed { None } else { PlannedQuery::new(plan)? };
                let work = query.map_or(Execution::Text, Execution::Query);
                (work, Some(columns))
            }
            Command::Insert(insert) => {
                let PreparedInsert { table, name, spelled, fast_path } =
                    self.inserting(insert, &mut types, count)?;
                let returning = insert.returning.as_deref();
                let returning = Returning::new(&self.core, &table, &name, returning).await?;
                authorization::insert(&self.core, (&table, &name), insert, returning.as_ref())?;
                let returned = returned(returning.as_ref(), &mut types, count)?;
                if let (Some(query), None) = (spelled, &fast_path) {
                    let query = query_statement(query);
                    types.of_plan(&query::logical_plan(&self.core, &state, query).await?)?;
                }
                (fast_path.map_or(Execution::Text, Execution::Insert), returned)
            }
            Command::Update(update) if update.from.is_some() => {
                (Execution::Text, self.joined(MergeStatement::of_update(update)?, &mut types, count).await?)
            }
            Command::Delete(delete) if delete.using.is_some() => {
                (Execution::Text, self.joined(MergeStatement::of_delete(delete)?, &mut types, count).await?)
            }
            Command::Update(update) => {
                let source = dml_statements::update_source(&self.core.catalog, update)?;
                let returning = update.returning.as_deref();
                let returning = Returning::new(&self.core, &source.table, &source.name, returning).await?;
                let returned = returned(returning.as_ref(), &mut types, count)?;
                let columns = source.assigned.iter().map(|&column| &source.table.schema().columns()[column]);
                let values = update.assignments.iter().map(|assignment| &assignment.value);
                types.of_assigned(values.zip(columns), &self.core.zone);
                let change = self.change(source, returning.as_ref(), &mut types, count);
                (Box::pin(change).await?, returned)
            }
            Command::Delete(delete) => {
                let source = source::delete(&self.core.catalog, delete)?;
                let returning = delete.returning.as_deref();
                let returning = Returning::new(&self.core, &source.table, &source.name, returning).await?;
                let returned = returned(returning.as_ref(), &mut types, count)?;
                let change = self.change(source, returning.as_ref(), &mut types, count);
                (Box::pin(change).await?, returned)
            }
            Command::Merge(statement) => {
                let merge = Some(MergeStatement::of(statement)?);
                (Execution::Text, self.joined(merge, &mut types, count).await?)
            }
            other => (Execution::Text, self.columns_of(other)),
        };
        Ok(PreparedParts { work, parameters: types.complete(count), columns })
    }

    /// Columns that a statement on joined rows returns; adds the types of its parameters.
    async fn joined(
        &self,
        merge: Option<MergeStatement<'_>>,
        types: &mut Types,
        count: usize,
    ) -> Result<Option<SchemaRef>> {
        let merge = merge.ok_or_else(|| Error::unsupported("FROM before SET in UPDATE"))?;
        Box::pin(merge::prepare(&self.core, &merge, types, count)).await
    }

    /// Execution of an UPDATE or DELETE; adds the types of its parameters.
    async fn change(
        &self,
        source: ChangeSource,
        returning: Option<&Returning>,
        types: &mut Types,
        count: usize,
    ) -> Result<Execution> {
        let state = self.core.context.state();
        let query = query_statement(source.query.clone());
        let plan = query::logical_plan(&self.core, &state, query).await?;
        authorization::change(&self.core, &source, &plan, returning)?;
        types.of_plan(&plan)?;
        if returning.is_some() {
            return Ok(Execution::Text);
        }
        let plan = number_types::typed(parameters::typed(plan, &types.complete(count))?)?;
        dml_statements::check_changes(&source, plan.schema())?;
        let query = PlannedQuery::new(plan)?;
        Ok(query.map_or(Execution::Text, |query| Execution::Change(source, query)))
    }

    /// Parts of an INSERT that are known without planning; adds the types of parameters that are assigned to
    /// columns.
    fn inserting(&self, insert: &Insert, types: &mut Types, count: usize) -> Result<PreparedInsert> {
        let source = source::insert(&self.core.catalog, insert)?;
        let (table, name) = (Arc::clone(&source.table), source.name.clone());
        let Some(mut query) = source.query.clone() else {
            return Ok(PreparedInsert { table, name, spelled: None, fast_path: None });
        };
        defaults::spell_out(&mut query, &table, &source.targets)?;
        let values = parameters::assigned_values(&query, &source.targets, table.schema().columns());
        types.of_assigned(values.into_iter(), &self.core.zone);
        let fast_path = FastPathInsert::new(source, insert, types, count, &self.core.zone)?;
        Ok(PreparedInsert { table, name, spelled: Some(query), fast_path })
    }

    /// Prepares a statement if that needs no planning and its runs will need none: rows named by their keys,
    /// and INSERT of literals and parameters. `None` for all others, errors included: [`Session::prepare`]
    /// reports them.
    pub fn prepare_for_fast_path(&mut self, sql: &str) -> Option<PreparedStatement> {
        let version = self.core.planning_version();
        // A short query text is small beside the memory of its connection.
        let memory = match sql.len() {
            0..=SHORT_TEXT_BYTES => None,
            bytes => self.reserve_statement(bytes).ok()?,
        };
        let command = parse_one(sql).ok()??;
        let count = command.parameters().ok()?;
        authorize(&self.core.variables.authority, &command).ok()?;
        search_path::check(&self.core.variables, &command).ok()?;
        let mut types = Types::default();
        let (work, columns) = match (&command, self.point(&command).ok()?) {
            (_, Some(point)) => {
                point.add_types(&mut types, &self.core.zone);
                let columns = point.columns().cloned();
                (Execution::Point(point), columns)
            }
            (Command::Insert(insert), None) if insert.returning.is_none() => {
                let PreparedInsert { table, name, fast_path, .. } =
                    self.inserting(insert, &mut types, count).ok()?;
                authorization::insert(&self.core, (&table, &name), insert, None).ok()?;
                (Execution::Insert(fast_path?), None)
            }
            _ => return None,
        };
        Some(PreparedStatement(Arc::new(Kernel {
            owner: Arc::clone(&self.core.current),
            command: Some(command),
            parameters: types.complete(count),
            columns,
            planned: Mutex::new(CachedExecution { version, work: Arc::new(work) }),
            _memory: memory,
        })))
    }
}

/// Columns of RETURNING, if there is one; adds the types of the parameters in its subqueries.
fn returned(returning: Option<&Returning>, types: &mut Types, count: usize) -> Result<Option<SchemaRef>> {
    returning.map(|returning| described(returning, types, count)).transpose()
}
