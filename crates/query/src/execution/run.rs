//! Statements of a session, by what runs them: its own, definitions, and those that read or write rows.

use crate::ddl::backup;
use crate::ddl::create_table;
use crate::ddl::maintenance;
use crate::ddl::ownership::check_view_owner;
use crate::ddl::sequences;
use crate::ddl::statements;
use crate::ddl::vacuum;
use crate::dml::merge;
use crate::dml::statements as dml_statements;
use crate::error::{Error, Result};
use crate::execution::authorization::{authorize, authorize_point, authorize_query};
use crate::execution::search_path;
use crate::execution::session::Session;
use crate::execution::set;
use crate::materialized::explaining as view_explaining;
use crate::materialized::statements as materialized;
use crate::parser::command::Command;
use crate::parser::merge::MergeStatement;
use crate::parser::own::materialized::MaterializedStatement;
use crate::parser::own::streaming::StreamingStatement;
use crate::parser::statement::parse;
use crate::planner::explain::{self, without_analyze};
use crate::planner::explain_json;
use crate::planner::fast_path::{self, Point};
use crate::planner::query;
use crate::planner::time_travel;
use crate::postgres::settings::{self};
use crate::session::block::{Block, StatementGuard, read_only};
use crate::session::block_rows::BlockRows;
use crate::session::commit::{commit, commit_after};
use crate::session::current::Bound;
use crate::session::result::{Outcome, StatementResult, texts};
use crate::streaming::explaining as topology_explaining;
use crate::streaming::statements as streaming;
use crate::streaming::{altered_tables, dependents, stream_views, view_topologies};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::parser::ExplainStatement;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{Expr, ObjectType, Statement};
use entresol_tables::RelationKind;
use entresol_transactions::Transaction;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait before such a retry.
const RETRY_WAIT_MAX: Duration = Duration::from_millis(20);

impl Session {
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
            _ => Err(Error::coded("42809", "the statement returns no rows: use execute")),
        }
    }

    /// Runs one query and returns a stream that computes its rows. The snapshot lives as long as the stream.
    /// Inside of a block, read the stream to its end before the next statement: it may see later writes of
    /// the block.
    pub async fn stream(&mut self, sql: &str) -> Result<SendableRecordBatchStream> {
        let mut commands = parse(sql)?;
        let (Some(Command::Query(statement)), true) = (commands.pop(), commands.is_empty()) else {
            return Err(Error::coded("42809", "only a single query can be streamed: use execute"));
        };
        self.begin_timed_statement();
        let authorized = authorize_query(&self.core.variables.authority, &statement)
            .and_then(|()| search_path::check_statement(&self.core.variables, &statement));
        authorized.map_err(|error| self.failing(error))?;
        let transaction = match &mut self.core.block {
            Some(block) => {
                block.check()?;
                block.next_statement()?
            }
            None => self.core.catalog.begin()?,
        };
        self.core.snapshots.note(&transaction);
        let _bound = Bound::new(&self.core.current, &transaction);
        let result = match self.plan_query(*statement).await {
            Ok(frame) => frame.execute_stream().await.map_err(Error::from),
            Err(error) => Err(error),
        };
        result.map_err(|error| self.failing(error))
    }

    /// The columns that a statement returns which is no query.
    pub(crate) fn columns_of(&self, command: &Command) -> Option<SchemaRef> {
        match command {
            Command::Show(name) => settings::find(name).ok().map(|setting| texts(&[&setting.name])),
            Command::ShowAll => Some(texts(&set::ALL_COLUMNS)),
            Command::Motion(motion) if !motion.passes => self.cursors.columns(&motion.name),
            Command::Execute { name, .. } => self.statements.get(name)?.columns(),
            Command::ExplainWrite { explain, .. } => Some(explain::columns(&explain.options)),
            Command::Streaming(statement) if matches!(**statement, StreamingStatement::Explain { .. }) => {
                Some(explain::line_columns())
            }
            _ => None,
        }
    }

    pub(crate) async fn run(&mut self, command: Command) -> Result<Outcome> {
        self.authorize(&command)?;
        let result = match command {
            Command::Execute { name, arguments } => return self.execute_named(&name, &arguments).await,
            Command::Begin(modes) => self.begin(&modes),
            Command::BeginAsOf(point) => self.begin_as_of(&point).await,
            Command::SetAsOf(point) => self.set_as_of(&point).await,
            Command::Commit => self.commit_block().await,
            Command::Rollback => self.rollback_block(),
            Command::Savepoint(name) => {
                let settings = self.core.variables.settings();
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
            Command::Prepare { name, types, command, text_bytes } => {
                self.prepare_named(&name, &types, *command, text_bytes).await
            }
            Command::Deallocate(name) => self.deallocate(name.as_deref()),
            Command::Copy(copy) => Box::pin(self.copy_file(&copy)).await,
            Command::Role(statement) => Err(Error::unsupported(format!(
                "{} outside of the wire protocol: use a client of `entresol serve`, or `entresol role`",
                statement.tag()
            ))),
            Command::Declare { name, query } => self.declare(&name, *query).await,
            Command::Motion(motion) => self.move_cursor(&motion).await,
            Command::Close(name) => self.close_cursor(name.as_deref()),
            Command::Analyze(statement) => {
                self.check_block()?;
                let analyzed = maintenance::analyze(&self.core, &statement).await;
                analyzed.map_err(|error| self.failing(error))
            }
            Command::Streaming(statement) if matches!(*statement, StreamingStatement::Explain { .. }) => {
                self.check_block()?;
                streaming::run(&self.core, &statement).await.map_err(|error| self.failing(error))
            }
            command => return self.run_statement(command).await,
        };
        Ok(result?.stream())
    }

    fn begin(
        &mut self,
        modes: &[datafusion::sql::sqlparser::ast::TransactionMode],
    ) -> Result<StatementResult> {
        if let Some(block) = &mut self.core.block {
            block.check()?;
            let error = Error::coded("25001", "there is already a transaction in progress");
            block.fail(&error);
            return Err(error);
        }
        let block = Block::new(&self.core, self.default_modes().with(modes))?;
        self.core.snapshots.note(block.transaction());
        self.core.block = Some(block);
        self.core.settings_before = Some(self.core.variables.settings());
        Ok(StatementResult::Done { verb: "BEGIN" })
    }

    /// Begins a block AS OF a point in time.
    async fn begin_as_of(&mut self, point: &Expr) -> Result<StatementResult> {
        self.begin(&[])?;
        let set = self.set_as_of(point).await;
        if set.is_err() {
            // Nothing was begun.
            self.core.block = None;
        }
        set.map(|_| StatementResult::Done { verb: "BEGIN" })
    }

    async fn set_as_of(&mut self, point: &Expr) -> Result<StatementResult> {
        let block = self.block("SET TRANSACTION AS OF")?;
        block.check()?;
        let state = self.core.context.state();
        let computed = time_travel::compute(&state, point).await;
        let catalog = Arc::clone(&self.core.catalog);
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
        self.core.attend(block.transaction());
        let committed = commit(block.transaction(), self.core.durability, &self.core.running).await;
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
        self.core.block.take().ok_or_else(|| no_block(verb))
    }

    fn block(&mut self, verb: &str) -> Result<&mut Block> {
        self.core.block.as_mut().ok_or_else(|| no_block(verb))
    }

    /// Runs a statement in the open block, or as a transaction of its own.
    async fn run_statement(&mut self, command: Command) -> Result<Outcome> {
        let Some(block) = &mut self.core.block else { return self.run_alone(command).await };
        block.check_writing(command.written_verb())?;
        let failure = Arc::clone(block.failure());
        let transaction = block.next_statement()?;
        let result = match &command {
            Command::Backup(_) => Err(Error::unsupported("BACKUP inside a transaction")),
            Command::Vacuum(_) => Err(Error::unsupported("VACUUM inside a transaction")),
            Command::Truncate(truncate) if maintenance::restarts(truncate) => Err(Error::unsupported(
                "TRUNCATE … RESTART IDENTITY inside a transaction: sequences are not transactional",
            )),
            command if command.is_definition() => {
                Err(Error::unsupported("CREATE, ALTER and DROP inside a transaction"))
            }
            // EXPLAIN, as they are no definitions.
            Command::Streaming(statement) => {
                streaming::run(&self.core, statement).await.map(StatementResult::stream)
            }
            Command::Materialized(statement) => self.maintain(statement).await.map(StatementResult::stream),
            command => self.run_in(&transaction, command).await,
        };
        match result {
            Ok(Outcome::Rows(stream)) => Ok(Outcome::Rows(Box::pin(BlockRows { stream, failure }))),
            result => result.map_err(|error| self.failing(error)),
        }
    }

    async fn run_alone(&mut self, command: Command) -> Result<Outcome> {
        self.check_writing_alone(command.written_verb())?;
        if let Command::CreateTable(create) = &command {
            return Ok(create_table::create_table(&self.core, create).await?.stream());
        }
        if (command.is_definition() && !command.is_stopped_by_itself())
            || matches!(command, Command::Backup(_))
        {
            // Its steps take effect one by one, on threads that are not stopped: its result is what happened.
            self.core.begin_definite()?;
        }
        let done = match &command {
            Command::Define(statement) => Some(self.define(statement).await?),
            Command::Sequence(statement) => Some(sequences::run(&self.core, statement).await?),
            Command::Streaming(statement) => Some(streaming::run(&self.core, statement).await?),
            Command::Materialized(statement) => Some(self.maintain(statement).await?),
            Command::Backup(destination) => Some(backup::run(&self.core, destination.clone()).await?),
            Command::Vacuum(vacuum) => Some(vacuum::run(&self.core, vacuum).await?),
            Command::DropTable { if_exists, names, cascade } => {
                let kind = RelationKind::Table;
                dependents::drop_relations(&self.core, kind, *if_exists, names, *cascade).await?;
                Some(StatementResult::Done { verb: "DROP TABLE" })
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
                        && maintenance::restarts(truncate)
                    {
                        maintenance::restart(&self.core, truncate).await?;
                    }
                    return result;
                }
            }
        }
    }

    /// Runs a definition; topologies may depend on what it changes.
    async fn define(&self, statement: &Statement) -> Result<StatementResult> {
        match statement {
            Statement::AlterTable(alter) => altered_tables::alter_table(&self.core, alter).await,
            Statement::Drop { object_type: ObjectType::View, if_exists, names, cascade, .. } => {
                dependents::drop_relations(&self.core, RelationKind::View, *if_exists, names, *cascade)
                    .await?;
                Ok(StatementResult::Done { verb: "DROP VIEW" })
            }
            Statement::CreateView(create) => match stream_views::create(&self.core, create).await? {
                Some(done) => Ok(done),
                None => statements::run(&self.core, statement).await,
            },
            other => statements::run(&self.core, other).await,
        }
    }

    /// Runs a statement on materialized views; topologies may depend on them.
    async fn maintain(&self, statement: &MaterializedStatement) -> Result<StatementResult> {
        match statement {
            MaterializedStatement::Drop { if_exists, names, cascade } => {
                dependents::drop_materialized(&self.core, *if_exists, names, *cascade).await?;
                Ok(StatementResult::Done { verb: statement.verb() })
            }
            MaterializedStatement::Create(create) => {
                match (view_topologies::create(&self.core, create).await?, &create.over_tables) {
                    (Some(done), _) => Ok(done),
                    (None, Some(over_tables)) => materialized::create(&self.core, over_tables).await,
                    (None, None) => {
                        Err(Error::Internal("a materialized view over neither tables nor streams".to_owned()))
                    }
                }
            }
            MaterializedStatement::Refresh(name) => materialized::refresh(&self.core, name).await,
            MaterializedStatement::Explain { name, analyze } => self.explain_view(name, *analyze).await,
        }
    }

    /// Explains a materialized view: one over streams as its topology.
    async fn explain_view(&self, name: &str, analyze: bool) -> Result<StatementResult> {
        check_view_owner(&self.core, name)?;
        if self.core.options.topologies.is_view(name) {
            return topology_explaining::explain(&self.core, name, analyze).await;
        }
        view_explaining::explain(&self.core, name, analyze)
    }

    /// Refuses a statement that writes outside of a block, if transactions are READ ONLY by default; `verb` is
    /// that of a statement that writes.
    pub(crate) fn check_writing_alone(&self, verb: Option<&str>) -> Result<()> {
        verb.filter(|_| self.core.variables.is_read_only()).map_or(Ok(()), |verb| Err(read_only(verb)))
    }

    pub(crate) fn may_retry(&self, error: &Error, retries: u32) -> bool {
        error.is_conflict() && retries < self.core.options.conflict_retries_max
    }

    pub(crate) async fn wait_before_retry(&self, error: &Error, retries: u32) {
        tracing::debug!(%error, retries, "retrying a statement after a conflict");
        tokio::time::sleep(retry_wait(retries)).await;
    }

    async fn run_once(&mut self, command: &Command) -> Result<Outcome> {
        let began = Instant::now();
        let transaction = self.core.catalog.begin()?;
        let result = self.run_in(&transaction, command).await?;
        if command.writes() {
            self.commit_statement(began, &transaction).await?;
        }
        Ok(result)
    }

    /// Commits a statement that is a transaction of its own; behind a large load its table gets statistics.
    pub(crate) async fn commit_statement(
        &mut self,
        began: Instant,
        transaction: &Arc<Transaction>,
    ) -> Result<()> {
        let committed = commit_after(began, transaction, self.core.durability, &self.core.running).await;
        self.core.load.end(&self.core.catalog, committed.is_ok()).await;
        committed
    }

    /// Checks that the session's role may run a command; relations are checked when their names are resolved.
    fn authorize(&mut self, command: &Command) -> Result<()> {
        let authorized = authorize(&self.core.variables.authority, command)
            .and_then(|()| search_path::check(&self.core.variables, command));
        authorized.map_err(|error| self.failing(error))
    }

    /// Fast path of a command, if it has one that the session's role may use.
    pub(crate) fn point(&self, command: &Command) -> Result<Option<Point>> {
        let point = fast_path::recognise(&self.core.catalog, &self.core.zone, command);
        let pending = self.core.current.pending_views();
        let point = point.filter(|point| !pending.iter().any(|view| view == point.table().name()));
        if let Some(point) = &point {
            authorize_point(&self.core.variables.authority, point)?;
        }
        Ok(point)
    }

    /// Runs a statement in a transaction; undoes its writes if it fails.
    pub(crate) async fn run_in(
        &mut self,
        transaction: &Arc<Transaction>,
        command: &Command,
    ) -> Result<Outcome> {
        self.core.attend(transaction);
        let guard = command.writes().then(|| StatementGuard::new(transaction));
        if transaction.as_of().is_none()
            && let Some(point) = self.point(command)?
            && let Some(given) = point.run(transaction, &[])?
        {
            guard.into_iter().for_each(StatementGuard::keep);
            return Ok(StatementResult::from(given).stream());
        }
        let _bound = Bound::new(&self.core.current, transaction);
        let result = match command {
            Command::Insert(insert) => dml_statements::insert(&self.core, transaction, insert).await,
            Command::Update(update) => dml_statements::update(&self.core, transaction, update).await,
            Command::Delete(delete) => dml_statements::delete(&self.core, transaction, delete).await,
            // Large, and seldom: the futures of all other statements would have its size.
            Command::Merge(statement) => {
                let statement = MergeStatement::of(statement)?;
                Box::pin(merge::merge(&self.core, transaction, &statement)).await
            }
            Command::Truncate(truncate) => {
                Ok(maintenance::truncate(&self.core, transaction, truncate).await?.stream())
            }
            Command::Query(statement) => {
                let statement = dml_statements::planned_statement(&self.core, (**statement).clone()).await?;
                query::query(&self.core, statement).await
            }
            Command::ExplainWrite { explain, command } => {
                Ok(self.explain_write(transaction, explain, command).await?.stream())
            }
            Command::DataFusion(statement) => {
                Ok(query::set(&self.core, (**statement).clone()).await?.stream())
            }
            other => Err(Error::Internal(format!("{other:?} is not run in a transaction"))),
        }?;
        if let Some(guard) = guard {
            guard.keep();
        }
        Ok(result)
    }

    /// Plans a reading statement in the current transaction.
    async fn plan_query(&self, statement: DFStatement) -> Result<DataFrame> {
        let statement = dml_statements::planned_statement(&self.core, statement).await?;
        query::plan_query(&self.core, statement).await
    }

    /// EXPLAIN ANALYZE of a statement that writes: it does.
    async fn explain_write(
        &mut self,
        transaction: &Arc<Transaction>,
        explain: &ExplainStatement,
        command: &Command,
    ) -> Result<StatementResult> {
        // Planned before it writes, and without what it measures.
        let is_json = explain_json::is_json(&explain.options);
        let (mut lines, mut tree) = (Vec::new(), None);
        if is_json {
            let query = dml_statements::planned_statement(&self.core, without_analyze(explain)).await;
            tree = match query {
                Ok(DFStatement::Explain(explain)) => {
                    explain_json::planned(&self.core, *explain.statement).await?
                }
                Ok(_) | Err(Error::Unsupported(_)) => None,
                Err(error) => return Err(error),
            };
        } else {
            lines = match self.plan_query(without_analyze(explain)).await {
                Ok(frame) => frame.collect().await?,
                // INSERT … DEFAULT VALUES has no query.
                Err(Error::Unsupported(_)) => Vec::new(),
                Err(error) => return Err(error),
            };
        }
        let started = Instant::now();
        // A statement inside of a statement: the future would contain itself.
        match Box::pin(self.run_in(transaction, command)).await? {
            Outcome::Count { verb, rows } | Outcome::Returned { verb, rows, .. } => {
                let measured = (started.elapsed(), transaction.is_loading());
                if is_json {
                    explain_json::written(verb, rows, measured, tree.as_ref())
                } else {
                    explain::written(verb, rows, measured, &lines)
                }
            }
            other => Err(Error::Internal(format!("{other:?} of a statement that writes"))),
        }
    }
}

fn no_block(verb: &str) -> Error {
    Error::coded("25P01", format!("{verb} can only be used in transaction blocks"))
}

/// Wait before a retry; doubles from a quarter of a millisecond.
fn retry_wait(retries: u32) -> Duration {
    Duration::from_micros(250).saturating_mul(1 << retries.min(16)).min(RETRY_WAIT_MAX)
}
