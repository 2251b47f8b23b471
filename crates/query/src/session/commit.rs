//! Commits of a session's transactions, and other calls that wait for the disk.

use crate::error::{Error, Result};
use crate::session::cancellation::{CancelOnDrop, RunningStatement};
use entresol_memory::{DomainKind, Durability};
use entresol_transactions::Transaction;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time that a statement holds its thread before it yields ahead of its commit, so that it can be
/// cancelled.
const TURN_MAX: Duration = Duration::from_millis(10);

/// Returns true if the commit of a transaction that wrote waits for the disk.
pub(crate) fn commit_waits(transaction: &Transaction, durability: Durability) -> bool {
    let syncs =
        durability == Durability::Sync && transaction.context().pool().domain() == DomainKind::Journal;
    syncs || transaction.has_long_maintenance()
}

/// Commits the writes of a statement that began then. It yields once before, so that it can be cancelled.
pub(crate) async fn commit_after(
    began: Instant,
    transaction: &Arc<Transaction>,
    durability: Durability,
    running: &RunningStatement,
) -> Result<()> {
    if began.elapsed() > TURN_MAX {
        tokio::task::yield_now().await;
    }
    commit(transaction, durability, running).await
}

/// Commits; a commit that waits for the disk does so on a thread for blocking work. If its future is dropped
/// before that thread is past the point of no return, nothing is committed.
pub(crate) async fn commit(
    transaction: &Arc<Transaction>,
    durability: Durability,
    running: &RunningStatement,
) -> Result<()> {
    if commit_waits(transaction, durability) && !transaction.written_states().is_empty() {
        let stops = CancelOnDrop::new(running.statement());
        let transaction = Arc::clone(transaction);
        let committed = blocking(move || transaction.commit(durability)).await;
        stops.done();
        committed??;
    } else {
        transaction.commit(durability)?;
    }
    Ok(())
}

/// Runs what waits for the disk on a thread for that.
pub(crate) async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::Internal(format!("a blocking task failed: {error}")))
}
