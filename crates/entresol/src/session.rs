//! Sessions: SQL for one client at a time, blocking or async.
//!
//! Both are the same session of [`crate::query`]: a statement outside of BEGIN … COMMIT is a transaction of its
//! own; a statement that fails inside fails the block until ROLLBACK. Dropping a session aborts its transaction.

use std::sync::Arc;

use entresol_memory::Durability;
use entresol_query::StatementResult;
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::datafusion::execution::SendableRecordBatchStream;

use crate::database::Shared;
use crate::error::Result;

/// A session that blocks its thread while a statement runs. It may be used in async code too, but then blocks a
/// thread of that runtime; [`AsyncSession`] does not.
#[derive(Debug)]
pub struct Session {
    // Before the handle, so that its transaction ends while the database is open.
    inner: entresol_query::Session,
    shared: Handle,
}

/// A session for async code, on the caller's tokio runtime.
#[derive(Debug)]
pub struct AsyncSession {
    inner: entresol_query::Session,
    _shared: Handle,
}

/// Keeps the database open.
struct Handle(Arc<Shared>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Database")
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, inner: entresol_query::Session) -> Session {
        Session { inner, shared: Handle(shared) }
    }

    /// Runs statements, separated by semicolons, in order; the first error ends it.
    pub fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        Ok(self.shared.0.block_on(self.inner.execute(sql))?)
    }

    /// Runs statements and returns the rows of the last one, which must be a query.
    pub fn query(&mut self, sql: &str) -> Result<Vec<RecordBatch>> {
        Ok(self.shared.0.block_on(self.inner.query(sql))?)
    }

    /// True between BEGIN and COMMIT or ROLLBACK.
    pub fn in_transaction(&self) -> bool {
        self.inner.in_transaction()
    }

    /// When the session's commits are durable.
    pub fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

impl AsyncSession {
    pub(crate) fn new(shared: Arc<Shared>, inner: entresol_query::Session) -> AsyncSession {
        AsyncSession { inner, _shared: Handle(shared) }
    }

    /// Runs statements, separated by semicolons, in order; the first error ends it.
    pub async fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        Ok(self.inner.execute(sql).await?)
    }

    /// Runs statements and returns the rows of the last one, which must be a query.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<RecordBatch>> {
        Ok(self.inner.query(sql).await?)
    }

    /// Runs one query and hands its rows out as they are computed; they all come from one snapshot.
    pub async fn stream(&mut self, sql: &str) -> Result<SendableRecordBatchStream> {
        Ok(self.inner.stream(sql).await?)
    }

    /// True between BEGIN and COMMIT or ROLLBACK.
    pub fn in_transaction(&self) -> bool {
        self.inner.in_transaction()
    }

    /// When the session's commits are durable.
    pub fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
