//! Runs of prepared statements: synchronous where nothing has to be waited for, else as futures.

use super::{CachedExecution, Execution, PlannedQuery, PreparedStatement};
use crate::dml::statements as dml_statements;
use crate::error::{Error, Result};
use crate::execution::session::Session;
use crate::planner::generic;
use crate::planner::parameters;
use crate::postgres::time_zones::UTC;
use crate::session::block::StatementGuard;
use crate::session::block_rows::BlockRows;
use crate::session::commit::commit_waits;
use crate::session::result::{FastPathResult, Outcome, StatementResult};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream;
use entresol_transactions::Transaction;
use std::sync::Arc;
use std::time::Instant;

impl Session {
    /// Runs a prepared statement with values for its parameters, in the open block or as a transaction of its
    /// own, which is retried after a conflict. Values of other types than the parameters' are converted.
    pub async fn run_prepared(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<Outcome> {
        if !Arc::ptr_eq(&prepared.0.owner, &self.core.current) {
            return Err(Error::coded("26000", "the statement was prepared in another session"));
        }
        let Some(command) = &prepared.0.command else { return Ok(Outcome::Done { verb: "" }) };
        let converted = prepared.values(values, &self.core.zone)?;
        let values = converted.as_deref().unwrap_or(values);
        if !command.is_rows() {
            return self.run(command.clone()).await;
        }
        let (writes, verb) = (command.writes(), command.written_verb());
        if self.core.block.is_none() {
            self.check_writing_alone(verb)?;
        }
        let Some(block) = &mut self.core.block else {
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
        block.check_writing(verb)?;
        let failure = Arc::clone(block.failure());
        let transaction = block.next_statement()?;
        match self.run_prepared_in(&transaction, prepared, values, writes).await {
            Ok(Outcome::Rows(stream)) => Ok(Outcome::Rows(Box::pin(BlockRows { stream, failure }))),
            Ok(outcome) => Ok(outcome),
            Err(error) => {
                failure.set(&error);
                Err(error)
            }
        }
    }

    /// Runs a statement on the fast path ([`PreparedStatement::runs_on_fast_path`]) synchronously, if it waits for nothing:
    /// equivalent to [`Session::run_prepared`]. `None` if only that can run it, or report its error; nothing
    /// was done then. Values must have exactly the parameters' types.
    pub fn run_on_fast_path(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Option<Result<FastPathResult>> {
        let kernel = &prepared.0;
        let command = kernel.command.as_ref().filter(|command| command.is_rows())?;
        if self.core.block.as_ref().is_some_and(|block| block.transaction().as_of().is_some()) {
            return None;
        }
        if !prepared.has_types_of(values) || !Arc::ptr_eq(&kernel.owner, &self.core.current) {
            return None;
        }
        let work = {
            let planned = kernel.planned.lock();
            let current = planned.version == self.core.planning_version();
            current.then(|| Arc::clone(&planned.work)).filter(|work| work.runs_on_fast_path())?
        };
        let writes = command.writes();
        if self.core.block.is_none()
            && let Err(error) = self.check_writing_alone(command.written_verb())
        {
            return Some(Err(error));
        }
        let Some(block) = &mut self.core.block else {
            let transaction = self.core.catalog.begin().ok()?;
            if writes && commit_waits(&transaction, self.durability()) {
                return None;
            }
            if writes {
                transaction.set_cancellation(self.core.running.statement());
            }
            let given = match work.run(&transaction, values) {
                Ok(given) => given?,
                // It is run again there.
                Err(error) if error.is_conflict() => return None,
                Err(error) => return Some(Err(error)),
            };
            return match writes.then(|| transaction.commit(self.durability())) {
                None | Some(Ok(_)) => Some(Ok(given)),
                Some(Err(error)) => {
                    let error = Error::from(error);
                    if error.is_conflict() { None } else { Some(Err(error)) }
                }
            };
        };
        let failure = Arc::clone(block.failure());
        let ran = match block.check_writing(command.written_verb()).and_then(|()| block.next_statement()) {
            Ok(transaction) => {
                transaction.set_cancellation(self.core.running.statement());
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
            Ok(given) => Some(Ok(given?)),
            Err(error) => {
                failure.set(&error);
                Some(Err(error))
            }
        }
    }

    async fn run_prepared_alone(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
        writes: bool,
    ) -> Result<Outcome> {
        let began = Instant::now();
        let transaction = self.core.catalog.begin()?;
        let outcome = self.run_prepared_in(&transaction, prepared, values, writes).await?;
        if writes {
            self.commit_statement(began, &transaction).await?;
        }
        Ok(outcome)
    }

    async fn run_prepared_in(
        &mut self,
        transaction: &Arc<Transaction>,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
        writes: bool,
    ) -> Result<Outcome> {
        self.core.attend(transaction);
        let work = self.work(prepared).await?;
        let given = match work.as_ref() {
            // A plan of the present is not valid for time travel.
            _ if transaction.as_of().is_some() => None,
            Execution::Point(_) | Execution::Insert(..) => {
                // Outside of a block all of the transaction is this statement.
                let guard = (writes && self.core.block.is_some()).then(|| StatementGuard::new(transaction));
                let given = work.run(transaction, values)?;
                guard.into_iter().for_each(StatementGuard::keep);
                given
            }
            Execution::Query(query) => {
                return Ok(Outcome::Rows(Box::pin(self.start(transaction, query, prepared, values)).await?));
            }
            Execution::Change(source, query) if prepared.has_types_of(values) => {
                let guard = StatementGuard::new(transaction);
                let rows = Box::pin(self.start(transaction, query, prepared, values)).await?;
                let _bound = self.core.bind(transaction);
                let changed = dml_statements::change_rows(&self.core, transaction, source, rows, None);
                let outcome = Box::pin(changed).await?;
                guard.keep();
                return Ok(outcome);
            }
            Execution::Change(..) => None,
            Execution::Text => None,
        };
        match given {
            Some(given) => Ok(StatementResult::from(given).stream()),
            None => {
                let mut command = prepared
                    .0
                    .command
                    .clone()
                    .ok_or_else(|| Error::Internal("a prepared statement is missing".into()))?;
                command.substitute(values)?;
                self.run_in(transaction, &command).await
            }
        }
    }

    /// Starts a query by its generic plan, or plans it with its values.
    async fn start(
        &self,
        transaction: &Arc<Transaction>,
        query: &PlannedQuery,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<SendableRecordBatchStream> {
        let _bound = self.core.bind(transaction);
        let PlannedQuery { plan, generic } = query;
        if let Some(generic) = generic.as_ref().filter(|_| prepared.has_types_of(values))
            && let Some(rows) =
                Box::pin(generic::start(generic, &self.core, transaction, plan, values)).await?
        {
            return Ok(rows);
        }
        let state = self.core.context.state();
        let plan = match values {
            [] => plan.clone(),
            values => parameters::with_values(plan.clone(), values)?,
        };
        let is_optimised = generic.as_ref().is_some_and(|templates| templates.is_optimised());
        let plan = if is_optimised { plan } else { state.optimize(&plan)? };
        let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
        Ok(execute_stream(physical, state.task_ctx())?)
    }

    /// Execution of the statement, planned again if the catalog has changed.
    async fn work(&self, prepared: &PreparedStatement) -> Result<Arc<Execution>> {
        let version = self.core.planning_version();
        {
            let planned = prepared.0.planned.lock();
            if planned.version == version {
                return Ok(Arc::clone(&planned.work));
            }
        }
        let Some(command) = &prepared.0.command else { return Ok(Arc::new(Execution::Text)) };
        let declared: Vec<_> = prepared.0.parameters.iter().cloned().map(Some).collect();
        let ready = self.ready(command, &declared).await?;
        if !same_columns(prepared.0.columns.as_ref(), ready.columns.as_ref()) {
            return Err(Error::coded("0A000", "cached plan must not change result type"));
        }
        let work = Arc::new(ready.work);
        *prepared.0.planned.lock() = CachedExecution { version, work: Arc::clone(&work) };
        Ok(work)
    }
}

fn same_columns(old: Option<&SchemaRef>, new: Option<&SchemaRef>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            let column = |schema: &SchemaRef, at: usize| {
                let data_type = match schema.field(at).data_type() {
                    // Instants in another zone have the same type for clients.
                    DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some(UTC.into())),
                    other => other.clone(),
                };
                (schema.field(at).name().clone(), data_type)
            };
            old.fields().len() == new.fields().len()
                && (0..old.fields().len()).all(|at| column(old, at) == column(new, at))
        }
        (old, new) => old.is_none() == new.is_none(),
    }
}
