//! Thread that commits the transactions of a topology, while the topology computes the next one.
//!
//! - One commit at a time: the topology hands one over when the one before has ended, so commits have the order of the
//!   transactions, and at most [`COMMITS_IN_FLIGHT_MAX`] waits or runs.
//! - A [`PendingCommit`] has an outcome in the end, whatever becomes of the thread: if it panics, the outcome says so.
//! - Dropping the committer ends its thread, behind the commit that runs.

use crate::error::{Error, Result};
use crossbeam_channel::{Sender, bounded};
use entresol_memory::{Durability, Env};
use entresol_transactions::{Commit, Transaction};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Maximum of commits of a topology that wait or run.
pub(crate) const COMMITS_IN_FLIGHT_MAX: usize = 1;

/// Thread of a topology that commits.
pub(crate) struct Committer {
    topology: String,
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// A commit, and the time of the clock at its end.
pub(crate) type CommitResult = Result<(Commit, u64)>;

/// Commit that was handed over.
#[derive(Default)]
pub(crate) struct PendingCommit {
    outcome: Mutex<Outcome>,
    ended: Condvar,
}

#[derive(Default)]
enum Outcome {
    #[default]
    Open,
    Ended(CommitResult),
    /// Taken by the topology; true if it succeeded.
    Taken(bool),
}

/// Request to commit; when it is dropped its commit has an outcome.
struct Request {
    topology: String,
    transaction: Arc<Transaction>,
    durability: Durability,
    pending: Arc<PendingCommit>,
}

impl PendingCommit {
    fn end(&self, outcome: CommitResult) {
        let mut held = self.outcome.lock();
        if matches!(*held, Outcome::Open) {
            *held = Outcome::Ended(outcome);
            self.ended.notify_all();
        }
    }

    /// Waits for the end; true if it succeeded.
    pub(crate) fn wait(&self) -> bool {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Outcome::Open => self.ended.wait(&mut outcome),
                Outcome::Ended(outcome) => return outcome.is_ok(),
                Outcome::Taken(succeeded) => return *succeeded,
            }
        }
    }

    /// Waits for the end and takes the outcome; the topology does it once.
    pub(crate) fn take(&self) -> CommitResult {
        let succeeded = self.wait();
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Taken(succeeded)) {
            Outcome::Ended(outcome) => outcome,
            Outcome::Open | Outcome::Taken(_) => unreachable!("the outcome of a commit is taken once"),
        }
    }

    /// Returns true if it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(*self.outcome.lock(), Outcome::Open)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.pending.end(Err(Error::Panicked { topology: std::mem::take(&mut self.topology) }));
    }
}

impl Committer {
    /// Starts the thread.
    pub(crate) fn start(topology: &str, env: &Env) -> Result<Committer> {
        let (requests, received) = bounded::<Request>(COMMITS_IN_FLIGHT_MAX);
        let clock = env.clone();
        let thread = env.spawn(&format!("commits of {topology}"), move || {
            for request in received {
                let committed = request.transaction.commit(request.durability);
                let now_ns = clock.now_ns();
                request.pending.end(committed.map(|commit| (commit, now_ns)).map_err(Error::from));
            }
        });
        let thread = thread.map_err(|source| Error::Io { path: "a thread for commits".into(), source })?;
        Ok(Committer { topology: topology.to_owned(), requests: Some(requests), thread: Some(thread) })
    }

    /// Hands a transaction over that is to be committed.
    pub(crate) fn commit(
        &self,
        transaction: &Arc<Transaction>,
        durability: Durability,
    ) -> Arc<PendingCommit> {
        let pending = Arc::new(PendingCommit::default());
        let (topology, transaction) = (self.topology.clone(), Arc::clone(transaction));
        let request = Request { topology, transaction, durability, pending: Arc::clone(&pending) };
        // Without a thread the request is dropped, which is its outcome.
        if let Some(requests) = &self.requests {
            drop(requests.send(request));
        }
        pending
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
