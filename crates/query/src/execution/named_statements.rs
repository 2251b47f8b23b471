//! PREPARE, EXECUTE and DEALLOCATE: prepared statements by name, in SQL. [`crate::execution::prepared`] does
//! the work.
//!
//! They belong to the session, not to its transaction: ROLLBACK keeps them. Memory: [`STATEMENTS_MAX`].

use crate::error::{Error, Result};
use crate::execution::session::Session;
use crate::parser::command::Command;
use crate::parser::statement::query_of;
use crate::planner::query;
use crate::postgres::types::declared_type;
use crate::session::result::{Outcome, StatementResult};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr};
use entresol_tables::arrow_type;

/// Maximum number of statements that a session has prepared in SQL.
pub const STATEMENTS_MAX: usize = 1024;

impl Session {
    pub(crate) async fn prepare_named(
        &mut self,
        name: &str,
        types: &[SqlType],
        command: Command,
        text_bytes: usize,
    ) -> Result<StatementResult> {
        let result = self.try_prepare_named(name, types, command, text_bytes).await;
        result.map_err(|error| self.failing(error))
    }

    async fn try_prepare_named(
        &mut self,
        name: &str,
        types: &[SqlType],
        command: Command,
        text_bytes: usize,
    ) -> Result<StatementResult> {
        self.check_block()?;
        if self.statements.contains_key(name) {
            return Err(Error::coded("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        if self.statements.len() >= STATEMENTS_MAX {
            let message =
                format!("too many prepared statements: the maximum is {STATEMENTS_MAX}; use DEALLOCATE");
            return Err(Error::coded("53000", message));
        }
        let declared = types.iter().enumerate().map(|(at, declared)| {
            Ok(Some(arrow_type(declared_type(&format!("${}", at + 1), declared)?.0, self.core.zone.name())))
        });
        let declared: Vec<Option<ArrowType>> = declared.collect::<Result<_>>()?;
        let memory = self.reserve_statement(text_bytes)?;
        let prepared = self.prepare_command(Some(command), &declared, memory).await?;
        self.statements.insert(name.to_owned(), prepared);
        Ok(StatementResult::Done { verb: "PREPARE" })
    }

    pub(crate) async fn execute_named(&mut self, name: &str, arguments: &[Expr]) -> Result<Outcome> {
        let started = self.start_named(name, arguments).await;
        started.map_err(|error| self.failing(error))
    }

    async fn start_named(&mut self, name: &str, arguments: &[Expr]) -> Result<Outcome> {
        self.check_block()?;
        let unknown = || Error::coded("26000", format!("prepared statement \"{name}\" does not exist"));
        let prepared = self.statements.get(name).ok_or_else(unknown)?.clone();
        let values = self.arguments(arguments).await?;
        // A statement that runs a statement: the future would contain itself.
        Box::pin(self.run_prepared(&prepared, &values)).await
    }

    /// Values of the arguments, which may be computed but must not read tables.
    async fn arguments(&self, arguments: &[Expr]) -> Result<Vec<ScalarValue>> {
        if arguments.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let query = query_of(&format!("SELECT {}", renamed(&texts)))?;
        let batches = query::plan_query(&self.core, query).await?.collect().await?;
        let one = batches.iter().find(|batch| batch.num_rows() == 1);
        let row = one.ok_or_else(|| Error::coded("42601", "EXECUTE expects one row of arguments"))?;
        Ok(row
            .columns()
            .iter()
            .map(|column| ScalarValue::try_from_array(column, 0))
            .collect::<datafusion::common::Result<_>>()?)
    }

    /// Deallocates a prepared statement, or all.
    pub(crate) fn deallocate(&mut self, name: Option<&str>) -> Result<StatementResult> {
        self.check_block()?;
        match name {
            None => self.statements.clear(),
            Some(name) => {
                if self.statements.remove(name).is_none() {
                    let error =
                        Error::coded("26000", format!("prepared statement \"{name}\" does not exist"));
                    return Err(self.failing(error));
                }
            }
        }
        Ok(StatementResult::Done { verb: if name.is_none() { "DEALLOCATE ALL" } else { "DEALLOCATE" } })
    }
}

/// Projection of expressions under distinct names.
fn renamed(texts: &[String]) -> String {
    let named = texts.iter().enumerate().map(|(at, text)| format!("{text} AS \"argument{at}\""));
    named.collect::<Vec<_>>().join(", ")
}
