//! Current statement of a session, for cancellation of its plans, its writes and its commit.
//!
//! One [`Cancellation`] belongs to one statement; the session has that of the statement that began last.
//! Plans check the current one when they compute a batch, because the rows of a cursor are computed by later
//! statements.

use crate::error::{Error, Result};
use entresol_transactions::{Cancellation, Interrupt};
use parking_lot::RwLock;
use std::sync::Arc;

/// Cancellation of the session's last statement; shared with its plans.
#[derive(Debug, Default)]
pub(crate) struct RunningStatement(RwLock<Arc<Cancellation>>);

impl RunningStatement {
    /// Cancellation of the current statement.
    pub(crate) fn statement(&self) -> Arc<Cancellation> {
        Arc::clone(&self.0.read())
    }

    /// Returns an error if the statement is cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.0.read().check()?)
    }

    pub(crate) fn begin(&self, statement: Arc<Cancellation>) -> Arc<Cancellation> {
        std::mem::replace(&mut *self.0.write(), statement)
    }
}

/// Handle that cancels the current statement of a session, from any thread. Later statements are not
/// affected.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<RunningStatement>);

impl Canceller {
    pub(crate) fn new(running: Arc<RunningStatement>) -> Canceller {
        Canceller(running)
    }

    /// Stops the statement that runs. True if nothing of it takes effect; false if it was too late: its
    /// result says what happened then.
    pub fn cancel(&self) -> bool {
        self.0.statement().interrupt(Interrupt::Requested)
    }
}

/// Stops a statement if it is dropped before it is told that the work is done: for work on other threads,
/// which does not end with the future that waits for it.
pub(crate) struct CancelOnDrop(Option<Arc<Cancellation>>);

impl CancelOnDrop {
    pub(crate) fn new(statement: Arc<Cancellation>) -> CancelOnDrop {
        CancelOnDrop(Some(statement))
    }

    /// The work is done.
    pub(crate) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(statement) = self.0.take() {
            statement.interrupt(Interrupt::Disconnected);
        }
    }
}

impl Error {
    /// Reason for which the statement was cancelled, if it was.
    pub fn interrupt(&self) -> Option<Interrupt> {
        use entresol_transactions::Error::Interrupted;
        match self {
            Error::Transactions(Interrupted(why))
            | Error::Tables(entresol_tables::Error::Transactions(Interrupted(why))) => Some(*why),
            Error::Copy { error, .. } | Error::InStep { error, .. } => error.interrupt(),
            _ => None,
        }
    }
}
