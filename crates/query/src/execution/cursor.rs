//! DECLARE CURSOR, FETCH, MOVE and CLOSE: incremental reading of a query inside of a transaction block.
//!
//! - A cursor only moves forward, and is closed by the end of its block, by CLOSE, and by ROLLBACK TO a
//!   savepoint that is older than it.
//! - The rows of a subscription never end: FETCH and MOVE take those that are there, and wait up to a second
//!   for the first.
//! - Its query reads the snapshot of its DECLARE. Unlike PostgreSQL's it may see later writes of the block
//!   itself.
//!
//! Memory: one batch per cursor beside the needs of its query, [`CURSORS_MAX`] cursors; a FETCH is collected,
//! a MOVE is not.

use crate::error::{Error, Result};
use crate::execution::row_stream::{Cursor, ResultCursor};
use crate::execution::session::Session;
use crate::parser::command::Command;
use crate::parser::own::fetch::CursorMotion;
use crate::planner::query;
use crate::session::result::StatementResult;
use datafusion::physical_plan::{ExecutionPlanProperties, execute_stream};
use datafusion::sql::parser::Statement as DFStatement;
use std::sync::Arc;

/// Maximum number of open cursors of a session.
pub const CURSORS_MAX: usize = 64;

/// Use of a cursor by a statement, for callers with cursors of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorUse<'s> {
    /// DECLARE of this name.
    Declare(&'s str),
    /// FETCH of at most this many rows.
    Fetch(&'s str, u64),
    /// MOVE, which skips at most this many rows.
    Move(&'s str, u64),
    /// CLOSE; `None`: of all.
    Close(Option<&'s str>),
}

impl<'s> CursorUse<'s> {
    pub(crate) fn of(command: &'s Command) -> Option<CursorUse<'s>> {
        Some(match command {
            Command::Declare { name, .. } => CursorUse::Declare(name),
            Command::Motion(CursorMotion { passes: false, name, rows }) => CursorUse::Fetch(name, *rows),
            Command::Motion(CursorMotion { passes: true, name, rows }) => CursorUse::Move(name, *rows),
            Command::Close(name) => CursorUse::Close(name.as_deref()),
            _ => return None,
        })
    }
}

impl Session {
    pub(crate) async fn declare(&mut self, name: &str, query: DFStatement) -> Result<StatementResult> {
        let result = self.try_declare(name, query).await;
        result.map_err(|error| self.failing(error))
    }

    async fn try_declare(&mut self, name: &str, query: DFStatement) -> Result<StatementResult> {
        let Some(block) = &mut self.core.block else {
            return Err(Error::coded("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        };
        block.check()?;
        if self.cursors.0.contains_key(name) {
            return Err(Error::coded("42P03", format!("cursor \"{name}\" already exists")));
        }
        if self.cursors.0.len() >= CURSORS_MAX {
            return Err(Error::coded(
                "53000",
                format!("too many open cursors: the maximum is {CURSORS_MAX}"),
            ));
        }
        let savepoints = block.savepoints();
        let transaction = block.next_statement()?;
        self.core.snapshots.note(&transaction);
        let _bound = self.core.bind(&transaction);
        let frame = query::plan_query(&self.core, query).await?;
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let is_endless = plan.boundedness().is_unbounded();
        let stream = execute_stream(plan, context)?;
        let rows = if is_endless { ResultCursor::endless(stream) } else { ResultCursor::new(stream) };
        self.cursors.0.insert(name.to_owned(), Cursor { rows, savepoints });
        Ok(StatementResult::Done { verb: "DECLARE CURSOR" })
    }

    /// FETCH and MOVE.
    pub(crate) async fn move_cursor(&mut self, motion: &CursorMotion) -> Result<StatementResult> {
        let result = self.try_move(motion).await;
        result.map_err(|error| self.failing(error))
    }

    async fn try_move(&mut self, motion: &CursorMotion) -> Result<StatementResult> {
        let rows = &mut self.cursor(&motion.name)?.rows;
        Ok(if motion.passes {
            StatementResult::Count { verb: "MOVE", rows: rows.skip(motion.rows).await? }
        } else {
            StatementResult::Rows(rows.take(motion.rows).await?)
        })
    }

    fn cursor(&mut self, name: &str) -> Result<&mut Cursor> {
        self.check_block()?;
        self.cursors.0.get_mut(name).ok_or_else(|| unknown(name))
    }

    /// Closes a cursor, or all.
    pub(crate) fn close_cursor(&mut self, name: Option<&str>) -> Result<StatementResult> {
        self.check_block()?;
        match name {
            None => self.cursors.clear(),
            Some(name) => {
                if self.cursors.0.remove(name).is_none() {
                    return Err(self.failing(unknown(name)));
                }
            }
        }
        Ok(StatementResult::Done { verb: "CLOSE CURSOR" })
    }
}

fn unknown(name: &str) -> Error {
    Error::coded("34000", format!("cursor \"{name}\" does not exist"))
}
