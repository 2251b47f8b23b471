//! Running query: the statement that it belongs to now, and whether its rows are still wanted.

use crate::error::Result;
use crate::session::cancellation::RunningStatement;
use entresol_transactions::Interrupt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Running query; see the [module](self).
#[derive(Debug)]
pub(crate) struct RunningQuery {
    running: Arc<RunningStatement>,
    dropped: AtomicBool,
}

impl RunningQuery {
    /// Query of the statement that a session runs.
    pub(crate) fn new(running: &Arc<RunningStatement>) -> Arc<RunningQuery> {
        Arc::new(RunningQuery { running: Arc::clone(running), dropped: AtomicBool::new(false) })
    }

    /// Stops what still computes for it: its rows are not wanted any more.
    pub(crate) fn stop(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Returns an error if the query has to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(entresol_transactions::Error::Interrupted(Interrupt::Disconnected).into());
        }
        self.running.check()
    }
}
