//! DECLARE CURSOR, FETCH, MOVE and CLOSE: rows of a query in portions, inside of a transaction block.
//!
//! - A cursor goes forward only, and is closed by the end of its block, by CLOSE, and by ROLLBACK TO a savepoint that
//!   is older than it.
//! - Its query reads the snapshot of its DECLARE. Unlike PostgreSQL's it may see what the block itself writes later.
//!
//! Memory: one batch a cursor beside what its query needs, [`CURSORS_MAX`] cursors; a FETCH is collected, a MOVE is not.

use std::collections::BTreeMap;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Declare, DeclareType, FetchDirection, Statement, Value as Literal};
use futures::StreamExt;
use parking_lot::Mutex;

use crate::engine;
use crate::error::{Error, Result};
use crate::result::{Collected, StatementResult};
use crate::session::Session;
use crate::statement::identifier;

/// The most open cursors of a session.
pub const CURSORS_MAX: usize = 64;

/// An open cursor.
struct Cursor {
    schema: SchemaRef,
    /// In a lock that nobody waits for: it makes the session one that threads may share.
    stream: Mutex<SendableRecordBatchStream>,
    /// What was read and not fetched yet.
    rest: Option<RecordBatch>,
    /// How many savepoints the block had.
    savepoints: usize,
}

impl Cursor {
    /// The next rows, at most so many; `None` if none are left or wanted.
    async fn next(&mut self, rows_max: u64) -> Result<Option<RecordBatch>> {
        if rows_max == 0 {
            return Ok(None);
        }
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match self.stream.get_mut().next().await {
                Some(batch) => batch?,
                None => return Ok(None),
            },
        };
        let taken = usize::try_from(rows_max).unwrap_or(usize::MAX).min(batch.num_rows());
        if taken < batch.num_rows() {
            self.rest = Some(batch.slice(taken, batch.num_rows() - taken));
        }
        Ok(Some(batch.slice(0, taken)))
    }
}

/// The open cursors of a session, by name.
#[derive(Default)]
pub(crate) struct Cursors(BTreeMap<String, Cursor>);

impl Cursors {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Closes those that are younger than the last of so many savepoints.
    pub(crate) fn rollback_to(&mut self, savepoints: usize) {
        self.0.retain(|_, cursor| cursor.savepoints < savepoints);
    }

    /// The columns of a cursor's rows.
    pub(crate) fn columns(&self, name: &str) -> Option<SchemaRef> {
        self.0.get(name).map(|cursor| cursor.schema.clone())
    }
}

/// How many rows a FETCH takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FetchRows(pub(crate) u64);

/// What a FETCH says; backwards is not possible.
pub(crate) fn fetch_rows(direction: &FetchDirection) -> Result<FetchRows> {
    let count = |limit: &Literal| {
        let text = limit.to_string();
        text.parse().map_err(|_| Error::unsupported(format!("FETCH of {text} rows: cursors go forward only")))
    };
    Ok(FetchRows(match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => 1,
        FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => {
            count(&limit.value)?
        }
        FetchDirection::All | FetchDirection::ForwardAll => u64::MAX,
        other => return Err(Error::unsupported(format!("FETCH {other}: cursors go forward only"))),
    }))
}

/// The name and the query of a DECLARE.
pub(crate) fn declared(declare: Declare) -> Result<(String, Box<EngineStatement>)> {
    let Declare { names, declare_type, binary, scroll, hold, for_query, .. } = declare;
    let (Some(query), [name], Some(DeclareType::Cursor)) = (for_query, names.as_slice(), declare_type) else {
        return Err(Error::unsupported("DECLARE of anything but a cursor"));
    };
    for (present, clause) in [(binary, "BINARY"), (scroll, "SCROLL"), (hold, "WITH HOLD")] {
        if present == Some(true) {
            return Err(Error::unsupported(format!("{clause} in DECLARE CURSOR")));
        }
    }
    Ok((identifier(name), Box::new(EngineStatement::Statement(Box::new(Statement::Query(query))))))
}

impl Session {
    pub(crate) async fn declare(&mut self, name: &str, query: EngineStatement) -> Result<StatementResult> {
        let result = self.try_declare(name, query).await;
        result.map_err(|error| self.failing(error))
    }

    async fn try_declare(&mut self, name: &str, query: EngineStatement) -> Result<StatementResult> {
        let Some(block) = &mut self.block else {
            return Err(Error::coded("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        };
        block.check(false)?;
        if self.cursors.0.contains_key(name) {
            return Err(Error::coded("42P03", format!("cursor \"{name}\" already exists")));
        }
        if self.cursors.0.len() >= CURSORS_MAX {
            return Err(Error::coded("53000", format!("at most {CURSORS_MAX} cursors may be open")));
        }
        let savepoints = block.savepoints();
        let transaction = block.next_statement()?;
        let _bound = self.bind(&transaction);
        let stream = engine::plan_query(self, query).await?.execute_stream().await?;
        let cursor = Cursor { schema: stream.schema(), stream: Mutex::new(stream), rest: None, savepoints };
        self.cursors.0.insert(name.to_owned(), cursor);
        Ok(StatementResult::Done { verb: "DECLARE CURSOR" })
    }

    pub(crate) async fn fetch(&mut self, name: &str, rows: FetchRows) -> Result<StatementResult> {
        let result = self.try_fetch(name, rows).await;
        result.map_err(|error| self.failing(error))
    }

    async fn try_fetch(&mut self, name: &str, FetchRows(mut wanted): FetchRows) -> Result<StatementResult> {
        let cursor = self.cursor(name)?;
        let mut batches = Vec::new();
        while let Some(batch) = cursor.next(wanted).await? {
            wanted -= batch.num_rows() as u64;
            batches.push(batch);
        }
        Ok(StatementResult::Rows(Collected { schema: cursor.schema.clone(), batches }))
    }

    pub(crate) async fn move_cursor(&mut self, name: &str, rows: FetchRows) -> Result<StatementResult> {
        let result = self.try_move(name, rows).await;
        result.map_err(|error| self.failing(error))
    }

    async fn try_move(&mut self, name: &str, FetchRows(wanted): FetchRows) -> Result<StatementResult> {
        let cursor = self.cursor(name)?;
        let mut rows = 0;
        while let Some(batch) = cursor.next(wanted - rows).await? {
            rows += batch.num_rows() as u64;
        }
        Ok(StatementResult::Count { verb: "MOVE", rows })
    }

    fn cursor(&mut self, name: &str) -> Result<&mut Cursor> {
        if let Some(block) = &self.block {
            block.check(false)?;
        }
        self.cursors.0.get_mut(name).ok_or_else(|| unknown(name))
    }

    /// Closes a cursor, or all.
    pub(crate) fn close_cursor(&mut self, name: Option<&str>) -> Result<StatementResult> {
        if let Some(block) = &self.block {
            block.check(false)?;
        }
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
