//! Prepared statements: parsed and planned once, run many times with values for their parameters.
//!
//! | statement | what is kept | what a run costs |
//! | --- | --- | --- |
//! | rows named by their keys ([`crate::point`]) | table, keys, columns | the look-ups |
//! | INSERT of literals and parameters | table, columns, cells | the rows |
//! | queries over tables | their logical plan, optimised if no value can change it | physical planning, execution |
//! | anything else | the parsed statement | as if it was executed as text |
//!
//! # Invariants
//!
//! - A run gives what the statement's text would give with the values in the place of the parameters.
//! - What was planned is planned again once a table was made, changed or dropped ([`Catalog::version`]). If the
//!   columns of the result are others then, it is an error (0A000): the client has been told of the old ones.
//! - A plan that has a function of the time, of the session or of chance is optimised in each run.
//! - A [`Prepared`] belongs to the session that made it.
//!
//! Memory: the plan, as long as the client keeps the [`Prepared`].
//!
//! [`Catalog::version`]: entresol_tables::Catalog::version

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as EngineResult, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, Volatility};
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{Insert, Query};
use entresol_transactions::Transaction;
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::block::{Failure, StatementGuard};
use crate::catalog::correlated::is_correlated;
use crate::error::{Error, Result};
use crate::parameters::{self, Types};
use crate::point::{self, Given, Point};
use crate::provider::{Current, EntresolTable};
use crate::session::{Session, StatementResult, commit, commit_waits};
use crate::source::{self, InsertSource};
use crate::statement::{Command, parse};
use crate::{defaults, engine, literals, modify, past};

/// What running a prepared statement gave.
pub enum Outcome {
    /// Rows of a query, as they are computed. The snapshot lives as long as the stream. If it fails inside of a
    /// block, the block has failed.
    Rows(SendableRecordBatchStream),
    /// Rows were changed.
    Count {
        /// INSERT, UPDATE, DELETE or CREATE TABLE AS.
        verb: &'static str,
        /// How many.
        rows: u64,
    },
    /// Rows were changed, and are returned.
    Returned {
        /// INSERT, UPDATE or DELETE.
        verb: &'static str,
        /// How many.
        rows: u64,
        /// The columns that are returned.
        schema: SchemaRef,
        /// What is returned of the rows.
        batches: Vec<RecordBatch>,
    },
    /// Anything else was done.
    Done {
        /// What: CREATE TABLE, COMMIT and the like; empty for a text without a statement.
        verb: &'static str,
    },
}

impl Outcome {
    /// The same with its rows collected.
    pub async fn collect(self) -> Result<StatementResult> {
        Ok(match self {
            Outcome::Rows(stream) => {
                let schema = stream.schema();
                StatementResult::Rows { schema, batches: stream.try_collect().await? }
            }
            Outcome::Returned { schema, batches, .. } => StatementResult::Rows { schema, batches },
            Outcome::Count { verb, rows } => StatementResult::Count { verb, rows },
            Outcome::Done { verb } => StatementResult::Done { verb },
        })
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Rows(stream) => f.debug_tuple("Rows").field(&stream.schema()).finish(),
            Outcome::Count { verb, rows } | Outcome::Returned { verb, rows, .. } => {
                f.debug_struct("Count").field("verb", verb).field("rows", rows).finish()
            }
            Outcome::Done { verb } => f.debug_struct("Done").field("verb", verb).finish(),
        }
    }
}

impl From<StatementResult> for Outcome {
    fn from(result: StatementResult) -> Outcome {
        match result {
            StatementResult::Rows { schema, batches } => Outcome::Rows(stream_of(schema, batches)),
            StatementResult::Count { verb, rows } => Outcome::Count { verb, rows },
            StatementResult::Done { verb } => Outcome::Done { verb },
            StatementResult::Returned { verb, rows, schema, batches } => {
                Outcome::Returned { verb, rows, schema, batches }
            }
        }
    }
}

/// A stream of batches that are there.
pub(crate) fn stream_of(
    schema: SchemaRef,
    batches: impl IntoIterator<Item = RecordBatch, IntoIter: Send + 'static>,
) -> SendableRecordBatchStream {
    let batches = futures::stream::iter(batches.into_iter().map(Ok));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// A statement that was prepared in a session; see the [module](self). Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Prepared(Arc<Kernel>);

#[derive(Debug)]
struct Kernel {
    /// Whose it is.
    owner: Arc<Current>,
    /// None for a text without a statement.
    command: Option<Command>,
    parameters: Vec<ArrowType>,
    columns: Option<SchemaRef>,
    planned: Mutex<Planned>,
}

/// What was kept, and at which version of the catalog.
#[derive(Debug)]
struct Planned {
    version: u64,
    work: Arc<Work>,
}

/// How a prepared statement runs.
#[derive(Debug)]
enum Work {
    Point(Point),
    Insert(InsertSource),
    Query {
        plan: LogicalPlan,
        /// No value of a parameter, nor the time, can change it.
        optimised: bool,
    },
    /// As the text would.
    Text,
}

impl Work {
    fn is_short(&self) -> bool {
        matches!(self, Work::Point(_) | Work::Insert(_))
    }

    /// Runs what is short; `None` if values do not fit, or it is not short. Nothing was written then.
    fn run(&self, transaction: &Transaction, values: &[ScalarValue]) -> Result<Option<Given>> {
        match self {
            Work::Point(point) => point.run(transaction, values),
            Work::Insert(source) => {
                let rows = source.query.as_ref().and_then(|query| literals::rows(source, query, values));
                let count =
                    rows.map(|rows| engine::insert_rows(transaction, &source.table, &rows)).transpose()?;
                Ok(count.map(|count| Given::Count("INSERT", count)))
            }
            Work::Query { .. } | Work::Text => Ok(None),
        }
    }
}

/// What a short statement gave.
#[derive(Debug)]
pub enum Short {
    /// Rows of a query: their columns, and the rows if there are any.
    Rows(SchemaRef, Option<RecordBatch>),
    /// INSERT, UPDATE or DELETE, and how many rows were changed.
    Count(&'static str, u64),
}

impl From<Given> for Short {
    fn from(given: Given) -> Short {
        match given {
            Given::Rows(schema, batch) => Short::Rows(schema, batch),
            Given::Count(verb, rows) => Short::Count(verb, rows),
        }
    }
}

/// A statement as it is made ready.
struct Ready {
    work: Work,
    parameters: Vec<ArrowType>,
    columns: Option<SchemaRef>,
}

/// An INSERT as far as it is known without planning.
struct Inserting {
    source: InsertSource,
    /// Its query, with the defaults that it asks for.
    spelled: Option<Box<Query>>,
    /// Its rows are literals and parameters.
    short: bool,
}

impl Prepared {
    /// Whether running it takes microseconds, if the disk is not waited for: nothing is planned, and no table is
    /// read but by its key.
    pub fn is_short(&self) -> bool {
        match &self.0.command {
            None => true,
            Some(command) if command.is_rows() => self.0.planned.lock().work.is_short(),
            Some(command) => command.concerns_session(),
        }
    }

    /// The types of its parameters.
    pub fn parameters(&self) -> &[ArrowType] {
        &self.0.parameters
    }

    /// The columns that it returns; `None` if it returns no rows.
    pub fn columns(&self) -> Option<SchemaRef> {
        self.0.columns.clone()
    }

    /// What the statement does, as command tags begin: SELECT, INSERT, BEGIN; empty for a text without a statement.
    pub fn verb(&self) -> &'static str {
        self.0.command.as_ref().map_or("", Command::verb)
    }

    /// True for COMMIT and ROLLBACK, which a failed block takes.
    pub fn ends_block(&self) -> bool {
        matches!(&self.0.command, Some(Command::Commit | Command::Rollback | Command::RollbackTo(_)))
    }

    /// Brings values to the types of the parameters.
    fn values(&self, values: &[ScalarValue]) -> Result<Option<Vec<ScalarValue>>> {
        let types = &self.0.parameters;
        if values.len() != types.len() {
            let (given, wanted) = (values.len(), types.len());
            return Err(Error::coded(
                "08P01",
                format!("bind message supplies {given} parameters, but prepared statement requires {wanted}"),
            ));
        }
        if values.iter().zip(types).all(|(value, data_type)| value.data_type() == *data_type) {
            return Ok(None);
        }
        let cast = |(value, data_type): (&ScalarValue, &ArrowType)| match value.cast_to(data_type) {
            Ok(cast) if cast.is_null() == value.is_null() => Ok(cast),
            // A text is malformed; a number is too large.
            _ => {
                let is_text = value.data_type().is_string();
                let sqlstate = if is_text { "22P02" } else { "22003" };
                Err(Error::coded(sqlstate, format!("a parameter of type {data_type} cannot be {value}")))
            }
        };
        values.iter().zip(types).map(cast).collect::<Result<_>>().map(Some)
    }
}

impl Session {
    /// Prepares a statement: parses and plans it, and finds the types of its parameters and columns. A type that the
    /// client knows is taken; the others are those of the columns that a parameter is compared with or assigned to,
    /// or text. Errors are those of the statement; inside of a block they fail it.
    pub async fn prepare(&mut self, sql: &str, parameter_types: &[Option<ArrowType>]) -> Result<Prepared> {
        let prepared = match parse(sql) {
            Ok(mut commands) if commands.len() <= 1 => {
                self.prepare_command(commands.pop(), parameter_types).await
            }
            Ok(_) => Err(Error::coded("42601", "cannot insert multiple commands into a prepared statement")),
            Err(error) => Err(error),
        };
        if let (Err(error), Some(block)) = (&prepared, &mut self.block) {
            block.fail(error);
        }
        prepared
    }

    pub(crate) async fn prepare_command(
        &mut self,
        command: Option<Command>,
        parameter_types: &[Option<ArrowType>],
    ) -> Result<Prepared> {
        let version = self.catalog.version();
        let ready = match &command {
            Some(command) => self.ready(command, parameter_types).await?,
            None => Ready { work: Work::Text, parameters: Vec::new(), columns: None },
        };
        Ok(Prepared(Arc::new(Kernel {
            owner: Arc::clone(self.current()),
            command,
            parameters: ready.parameters,
            columns: ready.columns,
            planned: Mutex::new(Planned { version, work: Arc::new(ready.work) }),
        })))
    }

    async fn ready(&self, command: &Command, declared: &[Option<ArrowType>]) -> Result<Ready> {
        let mut types = Types::declared(declared);
        let count = command.parameters()?.max(declared.len());
        if let Some(point) = point::recognise(&self.catalog, command) {
            point.add_types(&mut types);
            let columns = point.columns().cloned();
            return Ok(Ready { work: Work::Point(point), parameters: types.complete(count), columns });
        }
        let state = self.context.state();
        let (work, columns) = match command {
            Command::Query(statement) => {
                let mut present = (**statement).clone();
                let is_past = past::is_asked(&present);
                past::without(&mut present);
                let plan = engine::logical_plan(self, &state, present).await?;
                types.of_plan(&plan)?;
                let plan = parameters::typed(plan, &types.complete(count))?;
                let columns = engine::columns_of(statement, &plan);
                let work = match kept(&plan)? {
                    // Its moments are computed in each run.
                    _ if is_past => Work::Text,
                    Kept::Optimised if count == 0 => {
                        Work::Query { plan: state.optimize(&plan)?, optimised: true }
                    }
                    Kept::Optimised | Kept::AsWritten => Work::Query { plan, optimised: false },
                    Kept::Nothing => Work::Text,
                };
                (work, Some(columns))
            }
            Command::Insert(insert) => {
                let Inserting { source, spelled, short } = self.inserting(insert, &mut types, count)?;
                let returning = insert.returning.as_deref();
                let returned = modify::returned_columns(self, &source.table, &source.name, returning)?;
                if let (Some(query), false) = (spelled, short) {
                    let query = engine::query_statement(query);
                    types.of_plan(&engine::logical_plan(self, &state, query).await?)?;
                }
                (if short { Work::Insert(source) } else { Work::Text }, returned)
            }
            Command::Update(update) => {
                let source = source::any_update(&self.catalog, update)?;
                let returning = update.returning.as_deref();
                let returned = modify::returned_columns(self, &source.table, &source.name, returning)?;
                let columns = source.assigned.iter().map(|&column| &source.table.schema().columns()[column]);
                types.of_assigned(update.assignments.iter().map(|assignment| &assignment.value).zip(columns));
                let query = engine::query_statement(source.query);
                types.of_plan(&engine::logical_plan(self, &state, query).await?)?;
                (Work::Text, returned)
            }
            Command::Delete(delete) => {
                let source = source::any_delete(&self.catalog, delete)?;
                let returning = delete.returning.as_deref();
                let returned = modify::returned_columns(self, &source.table, &source.name, returning)?;
                let query = engine::query_statement(source.query);
                types.of_plan(&engine::logical_plan(self, &state, query).await?)?;
                (Work::Text, returned)
            }
            other => (Work::Text, self.columns_of(other)),
        };
        Ok(Ready { work, parameters: types.complete(count), columns })
    }

    /// What is known of an INSERT without planning; the types of parameters that are assigned to columns are added.
    fn inserting(&self, insert: &Insert, types: &mut Types, count: usize) -> Result<Inserting> {
        let source = source::any_insert(&self.catalog, insert)?;
        let mut inserting = Inserting { source, spelled: None, short: false };
        let source = &inserting.source;
        if let Some(query) = &source.query {
            let mut query = query.clone();
            defaults::spell_out(&mut query, &source.table, &source.targets)?;
            let columns = source.table.schema().columns();
            let values = parameters::assigned_values(&query, &source.targets, columns);
            types.of_assigned(values.into_iter());
            // Values of the right types, whatever they are, tell whether only they decide.
            let sample = types.sample(count)?;
            // What concerns nothing but the rows themselves.
            let plain = !modify::concerns_insert(&self.catalog, insert)?;
            inserting.short = plain && literals::rows(source, &query, &sample).is_some();
            inserting.spelled = Some(query);
        }
        Ok(inserting)
    }

    /// Prepares a statement if that needs no planning and its runs will need none: rows named by their keys, and INSERT
    /// of literals and parameters. `None` for all else, errors included: [`Session::prepare`] says what is wrong.
    pub fn prepare_short(&mut self, sql: &str) -> Option<Prepared> {
        let version = self.catalog.version();
        let mut commands = parse(sql).ok()?;
        let command = commands.pop().filter(|_| commands.is_empty())?;
        let count = command.parameters().ok()?;
        let mut types = Types::default();
        let (work, columns) = match (&command, point::recognise(&self.catalog, &command)) {
            (_, Some(point)) => {
                point.add_types(&mut types);
                let columns = point.columns().cloned();
                (Work::Point(point), columns)
            }
            (Command::Insert(insert), None) if insert.returning.is_none() => {
                let inserting = self.inserting(insert, &mut types, count).ok()?;
                (Work::Insert(inserting.short.then_some(inserting.source)?), None)
            }
            _ => return None,
        };
        Some(Prepared(Arc::new(Kernel {
            owner: Arc::clone(self.current()),
            command: Some(command),
            parameters: types.complete(count),
            columns,
            planned: Mutex::new(Planned { version, work: Arc::new(work) }),
        })))
    }

    /// Runs a prepared statement with values for its parameters, in the open block or as a transaction of its own,
    /// which is run again if it loses against another. Values of other types than the parameters' are converted.
    pub async fn run_prepared(&mut self, prepared: &Prepared, values: &[ScalarValue]) -> Result<Outcome> {
        if !Arc::ptr_eq(&prepared.0.owner, self.current()) {
            return Err(Error::Invalid("the statement was prepared in another session".into()));
        }
        let Some(command) = &prepared.0.command else { return Ok(Outcome::Done { verb: "" }) };
        let converted = prepared.values(values)?;
        let values = converted.as_deref().unwrap_or(values);
        if !command.is_rows() {
            return Ok(self.run(command.clone()).await?.into());
        }
        let writes = command.writes();
        let Some(block) = &mut self.block else {
            let mut retries = 0;
            loop {
                match self.run_prepared_alone(prepared, values, writes).await {
                    Err(error) if self.may_retry(&error, retries) => {
                        self.wait_before_retry(&error, retries).await;
                        retries += 1;
                    }
                    result => return result,
                }
            }
        };
        block.check(writes)?;
        let failure = Arc::clone(block.failure());
        let transaction = block.next_statement()?;
        match self.run_prepared_in(&transaction, prepared, values, writes).await {
            Ok(Outcome::Rows(stream)) => Ok(Outcome::Rows(Box::pin(Watched { stream, failure }))),
            Ok(outcome) => Ok(outcome),
            Err(error) => {
                failure.set(&error);
                Err(error)
            }
        }
    }

    /// Runs a short statement ([`Prepared::is_short`]) at once, if it waits for nothing: as [`Session::run_prepared`]
    /// does, without what that needs to wait. `None` if it is for that to run, and to say what is wrong; nothing was
    /// done then. Values are to be of just the parameters' types.
    pub fn run_short(&mut self, prepared: &Prepared, values: &[ScalarValue]) -> Option<Result<Short>> {
        let kernel = &prepared.0;
        let command = kernel.command.as_ref().filter(|command| command.is_rows())?;
        if self.block.as_ref().is_some_and(|block| block.transaction().as_of().is_some()) {
            return None;
        }
        let fit = values.len() == kernel.parameters.len()
            && values.iter().zip(&kernel.parameters).all(|(value, wanted)| value.data_type() == *wanted);
        if !fit || !Arc::ptr_eq(&kernel.owner, self.current()) {
            return None;
        }
        let work = {
            let planned = kernel.planned.lock();
            let current = planned.version == self.catalog.version();
            current.then(|| Arc::clone(&planned.work)).filter(|work| work.is_short())?
        };
        let writes = command.writes();
        let Some(block) = &mut self.block else {
            let transaction = self.catalog.begin().ok()?;
            if writes && commit_waits(&transaction, self.durability()) {
                return None;
            }
            let given = match work.run(&transaction, values) {
                Ok(given) => given?,
                // It is run again there.
                Err(error) if error.is_conflict() => return None,
                Err(error) => return Some(Err(error)),
            };
            return match writes.then(|| transaction.commit(self.durability())) {
                None | Some(Ok(_)) => Some(Ok(given.into())),
                Some(Err(error)) => {
                    let error = Error::from(error);
                    if error.is_conflict() { None } else { Some(Err(error)) }
                }
            };
        };
        let failure = Arc::clone(block.failure());
        let ran = match block.check(writes).and_then(|()| block.next_statement()) {
            Ok(transaction) => {
                let guard = writes.then(|| StatementGuard::new(&transaction));
                let ran = work.run(&transaction, values);
                if ran.is_ok() {
                    guard.into_iter().for_each(StatementGuard::keep);
                }
                ran
            }
            Err(error) => return Some(Err(error)),
        };
        match ran {
            Ok(given) => Some(Ok(given?.into())),
            Err(error) => {
                failure.set(&error);
                Some(Err(error))
            }
        }
    }

    async fn run_prepared_alone(
        &mut self,
        prepared: &Prepared,
        values: &[ScalarValue],
        writes: bool,
    ) -> Result<Outcome> {
        let transaction = self.catalog.begin()?;
        let outcome = self.run_prepared_in(&transaction, prepared, values, writes).await?;
        if writes {
            commit(&transaction, self.durability()).await?;
        }
        Ok(outcome)
    }

    async fn run_prepared_in(
        &mut self,
        transaction: &Arc<Transaction>,
        prepared: &Prepared,
        values: &[ScalarValue],
        writes: bool,
    ) -> Result<Outcome> {
        let work = self.work(prepared).await?;
        let given = match work.as_ref() {
            // A plan of the present is none for the past.
            _ if transaction.as_of().is_some() => None,
            Work::Point(_) | Work::Insert(_) => {
                // Outside of a block all of the transaction is this statement.
                let guard = (writes && self.block.is_some()).then(|| StatementGuard::new(transaction));
                let given = work.run(transaction, values)?;
                guard.into_iter().for_each(StatementGuard::keep);
                given
            }
            Work::Query { plan, optimised } => {
                let _bound = self.bind(transaction);
                return Ok(Outcome::Rows(self.start(plan, *optimised, values).await?));
            }
            Work::Text => None,
        };
        match given {
            Some(Given::Rows(schema, batch)) => Ok(Outcome::Rows(stream_of(schema, batch))),
            Some(Given::Count(verb, rows)) => Ok(Outcome::Count { verb, rows }),
            None => {
                let mut command = prepared.0.command.clone().ok_or_else(|| {
                    Error::Internal("a statement that was prepared is not there any more".into())
                })?;
                command.substitute(values)?;
                Ok(self.run_in(transaction, &command).await?.into())
            }
        }
    }

    /// Starts a planned query.
    async fn start(
        &self,
        plan: &LogicalPlan,
        optimised: bool,
        values: &[ScalarValue],
    ) -> Result<SendableRecordBatchStream> {
        let state = self.context.state();
        let plan = match values {
            [] => plan.clone(),
            values => parameters::with_values(plan.clone(), values)?,
        };
        let plan = if optimised { plan } else { state.optimize(&plan)? };
        let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
        Ok(execute_stream(physical, state.task_ctx())?)
    }

    /// How the statement runs, planned again if the catalog has changed.
    async fn work(&self, prepared: &Prepared) -> Result<Arc<Work>> {
        let version = self.catalog.version();
        {
            let planned = prepared.0.planned.lock();
            if planned.version == version {
                return Ok(Arc::clone(&planned.work));
            }
        }
        let Some(command) = &prepared.0.command else { return Ok(Arc::new(Work::Text)) };
        let declared: Vec<_> = prepared.0.parameters.iter().cloned().map(Some).collect();
        let ready = self.ready(command, &declared).await?;
        if !same_columns(prepared.0.columns.as_ref(), ready.columns.as_ref()) {
            return Err(Error::coded("0A000", "cached plan must not change result type"));
        }
        let work = Arc::new(ready.work);
        *prepared.0.planned.lock() = Planned { version, work: Arc::clone(&work) };
        Ok(work)
    }
}

fn same_columns(old: Option<&SchemaRef>, new: Option<&SchemaRef>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            let column = |schema: &SchemaRef, at: usize| {
                (schema.field(at).name().clone(), schema.field(at).data_type().clone())
            };
            old.fields().len() == new.fields().len()
                && (0..old.fields().len()).all(|at| column(old, at) == column(new, at))
        }
        (old, new) => old.is_none() == new.is_none(),
    }
}

/// What may be kept of a plan.
enum Kept {
    Optimised,
    AsWritten,
    /// It has the content of a system table, as it was when it was planned.
    Nothing,
}

fn kept(plan: &LogicalPlan) -> Result<Kept> {
    let mut kept = Kept::Optimised;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) if !source_as_provider(&scan.source)?.is::<EntresolTable>() => {
                kept = Kept::Nothing;
                return Ok(TreeNodeRecursion::Stop);
            }
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_) => {
                kept = Kept::Nothing;
                return Ok(TreeNodeRecursion::Stop);
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let varies = match expr {
                    PlanExpr::ScalarFunction(function) => {
                        function.func.signature().volatility != Volatility::Immutable
                    }
                    // Those that are run row by row are pinned to the transaction that they are planned in.
                    PlanExpr::ScalarSubquery(subquery) => is_correlated(subquery),
                    PlanExpr::Exists(_) | PlanExpr::InSubquery(_) => true,
                    _ => false,
                };
                if varies {
                    kept = Kept::AsWritten;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(kept)
}

/// Rows of a statement of a block, which fails with them.
struct Watched {
    stream: SendableRecordBatchStream,
    failure: Arc<Failure>,
}

impl Stream for Watched {
    type Item = EngineResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.stream.poll_next_unpin(context);
        if let Poll::Ready(Some(Err(error))) = &polled {
            self.failure.set(error.strip_backtrace());
        }
        polled
    }
}

impl RecordBatchStream for Watched {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}
