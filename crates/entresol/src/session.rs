//! Sessions: SQL for one client at a time, blocking or async.
//!
//! Both are the same session of [`crate::query`]: a statement outside of BEGIN … COMMIT is a transaction of
//! its own; a statement that fails inside fails the block until ROLLBACK. Dropping a session aborts its
//! transaction.

use crate::database::SharedDatabase;
use crate::error::{Error, ErrorKind, Result};
use entresol_memory::Durability;
use entresol_query::arrow::datatypes::DataType;
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::datafusion::common::ScalarValue;
use entresol_query::datafusion::execution::SendableRecordBatchStream;
use entresol_query::{
    Canceller, CopyIn, CopyOut, CopyStatement, Notice, Outcome, PreparedStatement, StatementResult,
};
use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::sync::Arc;

/// Bytes of a COPY that are read at once.
const COPY_BYTES: usize = 64 << 10;

/// A session that blocks its thread while a statement runs. It may be used in async code too, but then blocks
/// a thread of that runtime; [`AsyncSession`] does not.
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
struct Handle(Arc<SharedDatabase>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Database")
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<SharedDatabase>, inner: entresol_query::Session) -> Session {
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

    /// Prepares a statement with parameters `$1`, `$2`, …; types that are not given are inferred. Keep it and
    /// run it with [`Session::run_prepared`], in this session: it is planned once.
    ///
    /// ```
    /// use entresol::{Database, Options, Outcome, query::datafusion::common::ScalarValue};
    ///
    /// let database = Database::volatile(Options::default())?;
    /// let mut session = database.session()?;
    /// session.execute("CREATE TABLE meters (id INT PRIMARY KEY, power DOUBLE)")?;
    /// let insert = session.prepare("INSERT INTO meters VALUES ($1, $2)", &[])?;
    /// for id in 0..3 {
    ///     session.run_prepared(&insert, &[ScalarValue::from(id), ScalarValue::from(0.5)])?;
    /// }
    /// assert_eq!(session.query("SELECT count(*) FROM meters")?[0].num_rows(), 1);
    /// # drop(session);
    /// # database.close()?;
    /// # Ok::<(), entresol::Error>(())
    /// ```
    pub fn prepare(&mut self, sql: &str, parameter_types: &[Option<DataType>]) -> Result<PreparedStatement> {
        self.inner.begin_timed_statement();
        Ok(self.shared.0.block_on(self.inner.prepare(sql, parameter_types))?)
    }

    /// Runs a statement that this session prepared, with values for its parameters. Rows are collected.
    pub fn run_prepared(
        &mut self,
        statement: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<StatementResult> {
        let inner = &mut self.inner;
        inner.begin_timed_statement();
        let collected = self.shared.0.block_on(async move {
            let outcome = inner.run_prepared(statement, values).await?;
            inner.collect(outcome).await
        });
        Ok(collected?)
    }

    /// A handle that stops the statement of the session from another thread. Nothing of it takes effect then,
    /// and it fails with [`ErrorKind::Cancelled`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use entresol::{Database, ErrorKind, Options};
    ///
    /// let database = Database::volatile(Options::default())?;
    /// let mut session = database.session()?;
    /// let canceller = session.canceller();
    /// let cancelling = std::thread::spawn(move || {
    ///     std::thread::sleep(Duration::from_millis(200));
    ///     assert!(canceller.cancel(), "nothing of it took effect");
    /// });
    /// let endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";
    /// let error = session.query(endless).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Cancelled);
    /// cancelling.join().unwrap();
    /// # drop(session);
    /// # database.close()?;
    /// # Ok::<(), entresol::Error>(())
    /// ```
    pub fn canceller(&self) -> Canceller {
        self.inner.canceller()
    }

    /// Runs a COPY FROM STDIN with the bytes of `source` until its end; returns the number of rows.
    pub fn copy_in(&mut self, sql: &str, source: &mut dyn Read) -> Result<u64> {
        self.run_copy_in(&copy_statement(sql)?, source)
    }

    /// Runs a parsed COPY FROM STDIN, as [`copy_in`](Self::copy_in) does.
    pub fn run_copy_in(&mut self, statement: &CopyStatement, source: &mut dyn Read) -> Result<u64> {
        check_without_file(statement)?;
        self.inner.begin_timed_statement();
        let mut copy = self.inner.copy_in(statement)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    copy.push(&buffer[..read])?;
                    self.shared.0.block_on(copy.commit_part())?;
                }
                Err(error) if error.kind() == IoErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::new(ErrorKind::Io, format!("cannot read the data of COPY: {error}")));
                }
            }
        }
        Ok(self.shared.0.block_on(copy.finish())?)
    }

    /// Runs a COPY TO STDOUT and writes its bytes to `target`; returns the number of rows.
    pub fn copy_out(&mut self, sql: &str, target: &mut dyn Write) -> Result<u64> {
        self.run_copy_out(&copy_statement(sql)?, target)
    }

    /// Runs a parsed COPY TO STDOUT, as [`copy_out`](Self::copy_out) does.
    pub fn run_copy_out(&mut self, statement: &CopyStatement, target: &mut dyn Write) -> Result<u64> {
        check_without_file(statement)?;
        let mut copy = self.shared.0.block_on(self.inner.copy_out(statement))?;
        while let Some(lines) = self.shared.0.block_on(copy.next()) {
            let written = target.write_all(&lines?);
            written.map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot write the data of COPY: {error}"))
            })?;
        }
        Ok(copy.rows())
    }

    /// Returns the notices since the last call: clauses that were accepted and have no effect.
    pub fn take_notices(&self) -> Vec<Notice> {
        self.inner.take_notices()
    }

    /// True between BEGIN and COMMIT or ROLLBACK.
    pub fn in_transaction(&self) -> bool {
        self.inner.in_transaction()
    }

    /// Durability of the session's commits.
    pub fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

fn copy_statement(sql: &str) -> Result<CopyStatement> {
    let statement = CopyStatement::parse(sql)?;
    let statement =
        statement.ok_or_else(|| Error::new(ErrorKind::Invalid, format!("{sql} is not a COPY")))?;
    check_without_file(&statement)?;
    Ok(statement)
}

/// Refuses a COPY of a file of the database's machine, whose rows the caller neither provides nor takes.
fn check_without_file(statement: &CopyStatement) -> Result<()> {
    let Some(file) = statement.file() else { return Ok(()) };
    Err(Error::new(ErrorKind::Invalid, format!("the COPY has a file, \"{file}\": use execute")))
}

impl AsyncSession {
    pub(crate) fn new(shared: Arc<SharedDatabase>, inner: entresol_query::Session) -> AsyncSession {
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

    /// The handle that stops the statement of the session; see [`Session::canceller`].
    pub fn canceller(&self) -> Canceller {
        self.inner.canceller()
    }

    /// Prepares a statement with parameters; see [`Session::prepare`].
    pub async fn prepare(
        &mut self,
        sql: &str,
        parameter_types: &[Option<DataType>],
    ) -> Result<PreparedStatement> {
        self.inner.begin_timed_statement();
        Ok(self.inner.prepare(sql, parameter_types).await?)
    }

    /// Runs a statement that this session prepared; rows are handed out as they are computed.
    pub async fn run_prepared(
        &mut self,
        statement: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<Outcome> {
        self.inner.begin_timed_statement();
        Ok(self.inner.run_prepared(statement, values).await?)
    }

    /// Begins a COPY FROM STDIN: push bytes, each time followed by [`CopyIn::commit_part`], then finish.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn> {
        self.inner.begin_timed_statement();
        Ok(self.inner.copy_in(&copy_statement(sql)?)?)
    }

    /// Begins a COPY TO STDOUT.
    pub async fn copy_out(&mut self, sql: &str) -> Result<CopyOut> {
        self.inner.begin_timed_statement();
        Ok(self.inner.copy_out(&copy_statement(sql)?).await?)
    }

    /// Runs one query and hands its rows out as they are computed; they all come from one snapshot.
    pub async fn stream(&mut self, sql: &str) -> Result<SendableRecordBatchStream> {
        Ok(self.inner.stream(sql).await?)
    }

    /// Returns the notices since the last call: clauses that were accepted and have no effect.
    pub fn take_notices(&self) -> Vec<Notice> {
        self.inner.take_notices()
    }

    /// True between BEGIN and COMMIT or ROLLBACK.
    pub fn in_transaction(&self) -> bool {
        self.inner.in_transaction()
    }

    /// Durability of the session's commits.
    pub fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
