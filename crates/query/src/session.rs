//! A session: one client, its settings and its transaction.
//!
//! - Outside of a block each statement is a transaction of its own; if it loses against another transaction it
//!   is run again, at most [`SessionOptions::conflict_retries_max`] times. Statements of one text commit one by
//!   one; the first that fails ends the text.
//! - Inside of a block nothing is retried: what the client read before may have decided what it does.
//! - A session is used by one task at a time. Dropping it aborts its transaction.
//! - Dropping a future of [`Session::execute`] takes back the statement that it was running, except that a commit or
//!   a definition that has passed its point of no return still happens.
//! - [`Session::canceller`] and the setting `statement_timeout` stop a statement: nothing of it takes effect then.
//! - Results are collected; [`Session::stream`] hands them out batch by batch instead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::ExplainStatement;
use datafusion::sql::sqlparser::ast::Expr;
use entresol_memory::{DomainKind, Durability};
use entresol_tables::Catalog;
use entresol_transactions::Transaction;

use crate::backup;
use crate::block::{Block, StatementGuard};
use crate::block_rows::BlockRows;
use crate::bounded;
use crate::catalog::view::Source;
use crate::cursor::Cursors;
use crate::define;
use crate::drawing;
use crate::engine;
use crate::error::{Error, Result};
use crate::execute::Named;
use crate::explain;
use crate::functions::{self, Facts};
use crate::past;
use crate::point;
use crate::provider::Current;
use crate::result::{Outcome, StatementResult};
use crate::running::{Running, StopsIfDropped};
use crate::sequences;
use crate::set;
use crate::settings::{self, Settings};
use crate::snapshots::{SessionSnapshots, Sessions};
use crate::statement::{Command, parse};
use crate::upkeep;
use crate::vacuum;
use crate::zones::Zone;

/// How often an autocommitted statement is run again after a conflict, if the options say nothing else.
pub const CONFLICT_RETRIES_MAX: u32 = 16;
/// The longest wait before such a retry.
const RETRY_WAIT_MAX: Duration = Duration::from_millis(20);
/// A statement that has held its thread for longer gives way before it commits: whoever waits to stop it gets a turn.
const TURN_MAX: Duration = Duration::from_millis(10);

/// How a session behaves.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// When commits are durable; the setting `durability` changes it for the session.
    pub durability: Durability,
    /// How often an autocommitted statement is run again after a conflict.
    pub conflict_retries_max: u32,
    /// How many threads a query may use; all if `None`.
    pub target_partitions: Option<usize>,
    /// Memory and spill files of queries, to be shared by all sessions of a database; see [`query_memory`].
    ///
    /// [`query_memory`]: crate::query_memory
    pub runtime: Option<Arc<RuntimeEnv>>,
    /// The sessions of the database, to be shared by all of them.
    pub sessions: Sessions,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            durability: Durability::default(),
            conflict_retries_max: CONFLICT_RETRIES_MAX,
            target_partitions: None,
            runtime: None,
            sessions: Sessions::default(),
        }
    }
}

/// One client; see the [module](self).
pub struct Session {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) context: SessionContext,
    current: Arc<Current>,
    pub(crate) running: Arc<Running>,
    pub(crate) snapshots: Arc<SessionSnapshots>,
    /// What the setting says.
    pub(crate) durability: Durability,
    options: SessionOptions,
    pub(crate) facts: Arc<Facts>,
    /// The time zone of the settings and of the engine.
    pub(crate) zone: Zone,
    /// How often the time zone was changed.
    pub(crate) zone_changes: u64,
    /// The settings before the open block.
    pub(crate) settings_before: Option<Arc<Settings>>,
    /// What PREPARE prepared.
    pub(crate) statements: BTreeMap<String, Named>,
    pub(crate) cursors: Cursors,
    pub(crate) block: Option<Block>,
}

impl Session {
    /// A session on a catalog, outside of a transaction.
    pub fn new(catalog: Arc<Catalog>, options: SessionOptions) -> Session {
        let current = Arc::new(Current::default());
        let running = Arc::new(Running::default());
        let durability = options.durability;
        let facts = Facts::new(durability);
        let source = Source {
            catalog: Arc::clone(&catalog),
            current: Arc::clone(&current),
            facts: Arc::clone(&facts),
            sessions: options.sessions.clone(),
            views: Arc::default(),
        };
        let context = engine::context(&source, &options, &running);
        bounded::register(&context, &running);
        functions::register(&context, &facts);
        crate::catalog::call::register(&context, &source);
        past::register(&context, &catalog, &current);
        drawing::register(&context, &catalog, &facts);
        Session {
            catalog,
            context,
            current,
            running,
            snapshots: options.sessions.register(&facts),
            durability,
            options,
            facts,
            zone: Zone::utc(),
            zone_changes: 0,
            settings_before: None,
            statements: BTreeMap::new(),
            cursors: Cursors::default(),
            block: None,
        }
    }

    /// Runs statements, separated by semicolons, in order. The first error ends it; what was committed before
    /// stays committed.
    pub async fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        let mut results = Vec::new();
        for command in parse(sql)? {
            self.begin_timed_statement();
            let outcome = self.run(command).await?;
            results.push(self.collect(outcome).await?);
        }
        Ok(results)
    }

    /// Runs statements and returns the rows of the last one, which must be a query.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<RecordBatch>> {
        match self.execute(sql).await?.pop() {
            Some(StatementResult::Rows(rows) | StatementResult::Returned { returned: rows, .. }) => {
                Ok(rows.batches)
            }
            _ => Err(Error::Invalid("the statement returns no rows: use execute".into())),
        }
    }

    /// Runs one query and hands its rows out as they are computed. The snapshot lives as long as the stream. Inside
    /// of a block, read the stream to its end before the next statement: it may see what the block writes meanwhile.
    pub async fn stream(&mut self, sql: &str) -> Result<SendableRecordBatchStream> {
        let mut commands = parse(sql)?;
        let (Some(Command::Query(statement)), true) = (commands.pop(), commands.is_empty()) else {
            return Err(Error::Invalid("only a single query can be streamed: use execute".into()));
        };
        self.begin_timed_statement();
        let transaction = match &mut self.block {
            Some(block) => {
                block.check(false)?;
                block.next_statement()?
            }
            None => self.catalog.begin()?,
        };
        self.snapshots.note(&transaction);
        let _bound = Bound::new(&self.current, &transaction);
        let result = match engine::plan_query(self, *statement).await {
            Ok(frame) => frame.execute_stream().await.map_err(Error::from),
            Err(error) => Err(error),
        };
        result.map_err(|error| self.failing(error))
    }

    /// Whether a statement failed in the open transaction block: only ROLLBACK and ROLLBACK TO are possible then.
    pub fn is_failed(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.failure().get().is_some())
    }

    /// Fails the open block, if there is one: for clients whose statement was cancelled or never came to run.
    pub fn fail(&mut self, error: &Error) {
        if let Some(block) = &mut self.block {
            block.fail(error);
        }
    }

    /// True inside of a transaction block, failed or not.
    pub fn in_transaction(&self) -> bool {
        self.block.is_some()
    }

    /// When the session's commits are durable.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The catalog of its tables.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// What tells the session's plans which transaction is current.
    pub(crate) fn current(&self) -> &Arc<Current> {
        &self.current
    }

    /// How many savepoints the open block has.
    pub fn savepoints(&self) -> usize {
        self.block.as_ref().map_or(0, Block::savepoints)
    }

    /// The columns of a cursor that DECLARE made, if there is one of this name.
    pub fn cursor_columns(&self, name: &str) -> Option<SchemaRef> {
        self.cursors.columns(name)
    }

    /// The columns that a statement returns which is no query.
    pub(crate) fn columns_of(&self, command: &Command) -> Option<SchemaRef> {
        match command {
            Command::Show(name) => settings::find(name).ok().map(|setting| set::texts(&[setting.name])),
            Command::ShowAll => Some(set::texts(&set::ALL_COLUMNS)),
            Command::Motion(motion) if !motion.passes => self.cursors.columns(&motion.name),
            Command::Execute { name, .. } => self.statements.get(name)?.prepared.columns(),
            Command::ExplainWrite { .. } => Some(explain::columns()),
            _ => None,
        }
    }

    pub(crate) async fn run(&mut self, command: Command) -> Result<Outcome> {
        let result = match command {
            Command::Execute { name, arguments } => return self.execute_named(&name, &arguments).await,
            Command::Begin(modes) => self.begin(&modes),
            Command::BeginAsOf(moment) => self.begin_as_of(&moment).await,
            Command::SetAsOf(moment) => self.set_as_of(&moment).await,
            Command::Commit => self.commit_block().await,
            Command::Rollback => self.rollback_block(),
            Command::Savepoint(name) => {
                let settings = self.facts.settings();
                self.block("SAVEPOINT")?.savepoint(name, settings)?;
                Ok(StatementResult::Done { verb: "SAVEPOINT" })
            }
            Command::RollbackTo(name) => {
                let block = self.block("ROLLBACK TO")?;
                let settings = block.rollback_to(&name)?;
                let savepoints = block.savepoints();
                self.cursors.rollback_to(savepoints);
                self.restore_settings(settings);
                Ok(StatementResult::Done { verb: "ROLLBACK" })
            }
            Command::Release(name) => {
                self.block("RELEASE")?.release(&name)?;
                Ok(StatementResult::Done { verb: "RELEASE" })
            }
            Command::Set { name, value, local } => self.set(&name, value.as_deref(), local),
            Command::ResetAll => self.reset_all(),
            Command::SetTransaction { modes, session } => self.set_transaction(&modes, session),
            Command::Show(name) => self.show(&name),
            Command::ShowAll => self.show_all(),
            Command::Discard(what) => self.discard(what),
            Command::Unlisten => Ok(StatementResult::Done { verb: "UNLISTEN" }),
            Command::Prepare { name, types, command, source } => {
                self.prepare_named(&name, &types, *command, source).await
            }
            Command::Deallocate(name) => self.deallocate(name.as_deref()),
            Command::Declare { name, query } => self.declare(&name, *query).await,
            Command::Motion(motion) => self.move_cursor(&motion).await,
            Command::Close(name) => self.close_cursor(name.as_deref()),
            Command::Analyze(statement) => {
                self.check_block()?;
                let analyzed = upkeep::analyze(self, &statement);
                analyzed.map_err(|error| self.failing(error))
            }
            command => return self.run_statement(command).await,
        };
        Ok(result?.stream())
    }

    fn begin(
        &mut self,
        modes: &[datafusion::sql::sqlparser::ast::TransactionMode],
    ) -> Result<StatementResult> {
        if let Some(block) = &mut self.block {
            block.check(false)?;
            let error = Error::Invalid("a transaction is open already".into());
            block.fail(&error);
            return Err(error);
        }
        let block = Block::new(&self.catalog, self.default_modes().with(modes))?;
        self.snapshots.note(block.transaction());
        self.block = Some(block);
        self.settings_before = Some(self.facts.settings());
        Ok(StatementResult::Done { verb: "BEGIN" })
    }

    /// A block in the past.
    async fn begin_as_of(&mut self, moment: &Expr) -> Result<StatementResult> {
        self.begin(&[])?;
        let set = self.set_as_of(moment).await;
        if set.is_err() {
            // Nothing was begun.
            self.block = None;
        }
        set.map(|_| StatementResult::Done { verb: "BEGIN" })
    }

    async fn set_as_of(&mut self, moment: &Expr) -> Result<StatementResult> {
        let block = self.block("SET TRANSACTION AS OF")?;
        block.check(false)?;
        let state = self.context.state();
        let computed = past::compute(&state, moment).await;
        let catalog = Arc::clone(&self.catalog);
        let block = self.block("SET TRANSACTION AS OF")?;
        let set = match computed {
            Ok(at) => block.set_as_of(&catalog, at),
            Err(error) => Err(error),
        };
        set.inspect_err(|error| block.fail(error))?;
        Ok(StatementResult::Done { verb: "SET" })
    }

    async fn commit_block(&mut self) -> Result<StatementResult> {
        let block = self.take_block("COMMIT")?;
        if let Some(message) = block.failure().get() {
            block.transaction().abort();
            self.end_settings(false);
            return Err(Error::RolledBack(message));
        }
        self.attend(block.transaction());
        let committed = commit(block.transaction(), self.durability, &self.running).await;
        self.end_settings(committed.is_ok());
        committed?;
        Ok(StatementResult::Done { verb: "COMMIT" })
    }

    fn rollback_block(&mut self) -> Result<StatementResult> {
        self.take_block("ROLLBACK")?.transaction().abort();
        self.end_settings(false);
        Ok(StatementResult::Done { verb: "ROLLBACK" })
    }

    fn take_block(&mut self, verb: &str) -> Result<Block> {
        self.cursors.clear();
        self.block.take().ok_or_else(|| no_block(verb))
    }

    fn block(&mut self, verb: &str) -> Result<&mut Block> {
        self.block.as_mut().ok_or_else(|| no_block(verb))
    }

    /// Runs a statement in the open block, or as a transaction of its own.
    async fn run_statement(&mut self, command: Command) -> Result<Outcome> {
        let Some(block) = &mut self.block else { return self.run_alone(command).await };
        block.check(command.writes())?;
        let failure = Arc::clone(block.failure());
        let transaction = block.next_statement()?;
        let result = match &command {
            Command::Backup(_) => Err(Error::unsupported("BACKUP inside a transaction")),
            Command::Vacuum(_) => Err(Error::unsupported("VACUUM inside a transaction")),
            Command::Truncate(truncate) if upkeep::restarts(truncate) => Err(Error::unsupported(
                "TRUNCATE … RESTART IDENTITY inside a transaction: sequences are not taken back",
            )),
            command if command.is_definition() => {
                Err(Error::unsupported("CREATE, ALTER and DROP inside a transaction"))
            }
            command => self.run_in(&transaction, command).await,
        };
        match result {
            Ok(Outcome::Rows(stream)) => Ok(Outcome::Rows(Box::pin(BlockRows { stream, failure }))),
            result => result.map_err(|error| self.failing(error)),
        }
    }

    async fn run_alone(&mut self, command: Command) -> Result<Outcome> {
        if let Command::CreateTable(create) = &command {
            return Ok(engine::create_table(self, create).await?.stream());
        }
        if (command.is_definition() && !command.is_stopped_by_itself())
            || matches!(command, Command::Backup(_))
        {
            // Its steps take effect one by one, on threads that nobody stops: its result is what happened.
            self.begin_definite()?;
        }
        let done = match &command {
            Command::Define(statement) => Some(define::run(self, statement).await?),
            Command::Sequence(statement) => Some(sequences::run(self, statement).await?),
            Command::Backup(destination) => Some(backup::run(self, destination.clone()).await?),
            Command::Vacuum(vacuum) => Some(vacuum::run(self, vacuum).await?),
            Command::DropTable { if_exists, names, cascade } => {
                Some(define::drop_tables(self, *if_exists, names, *cascade).await?)
            }
            _ => None,
        };
        if let Some(done) = done {
            return Ok(done.stream());
        }
        let mut retries = 0;
        loop {
            let result = self.run_once(&command).await;
            match result {
                Err(error) if self.may_retry(&error, retries) => {
                    self.wait_before_retry(&error, retries).await;
                    retries += 1;
                }
                result => {
                    if let (Ok(_), Command::Truncate(truncate)) = (&result, &command)
                        && upkeep::restarts(truncate)
                    {
                        upkeep::restart(self, truncate).await?;
                    }
                    return result;
                }
            }
        }
    }

    pub(crate) fn may_retry(&self, error: &Error, retries: u32) -> bool {
        error.is_conflict() && retries < self.options.conflict_retries_max
    }

    pub(crate) async fn wait_before_retry(&self, error: &Error, retries: u32) {
        tracing::debug!(%error, retries, "running a statement again");
        tokio::time::sleep(retry_wait(retries)).await;
    }

    async fn run_once(&mut self, command: &Command) -> Result<Outcome> {
        let began = Instant::now();
        let transaction = self.catalog.begin()?;
        let result = self.run_in(&transaction, command).await?;
        if command.writes() {
            commit_after(began, &transaction, self.durability, &self.running).await?;
        }
        Ok(result)
    }

    /// Runs a statement in a transaction; takes back its writes if it fails.
    pub(crate) async fn run_in(
        &mut self,
        transaction: &Arc<Transaction>,
        command: &Command,
    ) -> Result<Outcome> {
        self.attend(transaction);
        let guard = command.writes().then(|| StatementGuard::new(transaction));
        if transaction.as_of().is_none()
            && let Some(point) = point::recognise(&self.catalog, &self.zone, command)
            && let Some(given) = point.run(transaction, &[])?
        {
            guard.into_iter().for_each(StatementGuard::keep);
            return Ok(StatementResult::from(given).stream());
        }
        let _bound = Bound::new(&self.current, transaction);
        let result = match command {
            Command::Insert(insert) => engine::insert(self, transaction, insert).await,
            Command::Update(update) => engine::update(self, transaction, update).await,
            Command::Delete(delete) => engine::delete(self, transaction, delete).await,
            Command::Truncate(truncate) => Ok(upkeep::truncate(self, transaction, truncate).await?.stream()),
            Command::Query(statement) => engine::query(self, (**statement).clone()).await,
            Command::ExplainWrite { explain, command } => {
                Ok(self.explain_write(transaction, explain, command).await?.stream())
            }
            Command::Engine(statement) => Ok(engine::set(self, (**statement).clone()).await?.stream()),
            other => Err(Error::Internal(format!("{other:?} is not run in a transaction"))),
        }?;
        if let Some(guard) = guard {
            guard.keep();
        }
        Ok(result)
    }

    /// EXPLAIN ANALYZE of a statement that writes: it does.
    async fn explain_write(
        &mut self,
        transaction: &Arc<Transaction>,
        explain: &ExplainStatement,
        command: &Command,
    ) -> Result<StatementResult> {
        // Planned before it writes, and without what it measures.
        let plan = engine::plan_query(self, explain::without_analyze(explain)).await;
        let plan = match plan {
            Ok(frame) => frame.collect().await?,
            // INSERT … DEFAULT VALUES has no query.
            Err(Error::Unsupported(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let started = Instant::now();
        // A statement inside of a statement: the future would contain itself.
        match Box::pin(self.run_in(transaction, command)).await? {
            Outcome::Count { verb, rows } | Outcome::Returned { verb, rows, .. } => {
                explain::written(verb, rows, started.elapsed(), &plan)
            }
            other => Err(Error::Internal(format!("{other:?} of a statement that writes"))),
        }
    }

    /// Binds the session's scans to a transaction while the result lives.
    pub(crate) fn bind(&self, transaction: &Arc<Transaction>) -> Bound {
        Bound::new(&self.current, transaction)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("durability", &self.durability).field("block", &self.block).finish()
    }
}

/// Makes a transaction current as long as it lives.
pub(crate) struct Bound(Arc<Current>);

impl Bound {
    fn new(current: &Arc<Current>, transaction: &Arc<Transaction>) -> Bound {
        current.set(Some(Arc::clone(transaction)));
        Bound(Arc::clone(current))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Whether a commit of something waits for the disk.
pub(crate) fn commit_waits(transaction: &Transaction, durability: Durability) -> bool {
    durability == Durability::Sync && transaction.context().pool().domain() == DomainKind::Journal
}

/// Commits what a statement wrote that began then. Whoever wants to stop it gets a last turn before.
pub(crate) async fn commit_after(
    began: Instant,
    transaction: &Arc<Transaction>,
    durability: Durability,
    running: &Running,
) -> Result<()> {
    if began.elapsed() > TURN_MAX {
        tokio::task::yield_now().await;
    }
    commit(transaction, durability, running).await
}

/// Commits; a commit that waits for the disk does so on a thread for blocking work. If its future is dropped before that
/// thread is past the point of no return, nothing is committed.
pub(crate) async fn commit(
    transaction: &Arc<Transaction>,
    durability: Durability,
    running: &Running,
) -> Result<()> {
    if commit_waits(transaction, durability) && !transaction.written_states().is_empty() {
        let stops = StopsIfDropped::new(running.statement());
        let transaction = Arc::clone(transaction);
        let committed = blocking(move || transaction.commit(durability)).await;
        stops.done();
        committed??;
    } else {
        transaction.commit(durability)?;
    }
    Ok(())
}

/// Runs what waits for the disk on a thread for that.
pub(crate) async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::Internal(format!("a thread for blocking work ended: {error}")))
}

fn no_block(verb: &str) -> Error {
    Error::Invalid(format!("{verb}: there is no transaction, begin one with BEGIN"))
}

/// Doubles from a quarter of a millisecond.
fn retry_wait(retries: u32) -> Duration {
    Duration::from_micros(250).saturating_mul(1 << retries.min(16)).min(RETRY_WAIT_MAX)
}
