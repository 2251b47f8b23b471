//! The statement that a session runs, for what may have to stop for it: its plans, its writes, its commit.
//!
//! One [`Cancellation`] belongs to one statement; the session has that of the statement that began last. Plans look at the
//! one that is current when they compute a batch, because the rows of a cursor are computed by later statements.

use std::sync::Arc;
use std::time::Instant;

use entresol_transactions::{Cancellation, Interrupt, Transaction};
use parking_lot::RwLock;

use crate::error::{Error, Result};
use crate::session::Session;

/// The statement of a session that began last; shared with its plans.
#[derive(Debug, Default)]
pub(crate) struct Running(RwLock<Arc<Cancellation>>);

impl Running {
    /// The statement.
    pub(crate) fn statement(&self) -> Arc<Cancellation> {
        Arc::clone(&self.0.read())
    }

    /// An error if the statement is stopped.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.0.read().check()?)
    }

    fn begin(&self, statement: Arc<Cancellation>) -> Arc<Cancellation> {
        std::mem::replace(&mut *self.0.write(), statement)
    }
}

/// Stops the statement that a session runs, from any thread. Statements that begin later are not touched.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Running>);

impl Canceller {
    /// Stops the statement that runs. True if nothing of it takes effect; false if it was too late: its result says what
    /// happened then.
    pub fn cancel(&self) -> bool {
        self.0.statement().interrupt(Interrupt::Requested)
    }
}

impl Session {
    /// Begins a statement: what is called until the next one begins is a part of it. It stops at the deadline, and when
    /// somebody stops it with what is returned.
    pub fn begin_statement(&mut self, deadline: Option<Instant>) -> Arc<Cancellation> {
        if self.block.is_none() {
            // Those of a block whose COMMIT was stopped.
            self.end_settings(false);
        }
        let statement = Arc::new(Cancellation::new(deadline));
        self.resume_statement(Arc::clone(&statement));
        statement
    }

    /// Goes on with a statement that began before; returns the one that ran until now.
    pub fn resume_statement(&mut self, statement: Arc<Cancellation>) -> Arc<Cancellation> {
        self.running.begin(statement)
    }

    /// Begins a statement whose deadline is what the setting `statement_timeout` says.
    pub fn begin_timed_statement(&mut self) {
        let deadline =
            self.time_setting("statement_timeout").and_then(|limit| Instant::now().checked_add(limit));
        self.begin_statement(deadline);
    }

    /// Handle that stops the statements of this session.
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.running))
    }

    /// The statement that runs stops the writes and the commit of this transaction.
    pub(crate) fn attend(&self, transaction: &Arc<Transaction>) {
        transaction.set_cancellation(self.running.statement());
        self.snapshots.note(transaction);
    }

    /// Passes the point of no return of a statement whose parts take effect one by one: a definition.
    pub(crate) fn begin_definite(&self) -> Result<()> {
        Ok(self.running.statement().begin_definite()?)
    }

    /// The statement may be stopped again.
    pub(crate) fn end_definite(&self) {
        self.running.statement().end_definite(false);
    }
}

/// Stops a statement if it is dropped before it is told that the work is done: for work on other threads, which does not
/// end with the future that waits for it.
pub(crate) struct StopsIfDropped(Option<Arc<Cancellation>>);

impl StopsIfDropped {
    pub(crate) fn new(statement: Arc<Cancellation>) -> StopsIfDropped {
        StopsIfDropped(Some(statement))
    }

    /// The work is done.
    pub(crate) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for StopsIfDropped {
    fn drop(&mut self) {
        if let Some(statement) = self.0.take() {
            statement.interrupt(Interrupt::Disconnected);
        }
    }
}

impl Error {
    /// Why the statement was stopped, if it was.
    pub fn interrupt(&self) -> Option<Interrupt> {
        use entresol_transactions::Error::Interrupted;
        match self {
            Error::Transactions(Interrupted(why))
            | Error::Tables(entresol_tables::Error::Transactions(Interrupted(why))) => Some(*why),
            Error::Copy { error, .. } => error.interrupt(),
            _ => None,
        }
    }
}
