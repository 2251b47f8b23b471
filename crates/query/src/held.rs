//! Snapshots that a session holds for longer than a statement may take, and their end: what they see cannot be reclaimed.
//!
//! Noted are the transactions of blocks and of statements that are planned; look-ups of single keys hold theirs for
//! microseconds. A cursor of a block at READ COMMITTED holds one of its own. Memory: one weak reference to each that is open.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use entresol_transactions::Transaction;
use parking_lot::Mutex;

/// The snapshots of a session; see the [module](self). Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<Mutex<Vec<Snapshot>>>);

/// A transaction and when it was noted.
type Snapshot = (Instant, Weak<Transaction>);

impl Held {
    /// Notes a transaction, once.
    pub(crate) fn note(&self, transaction: &Arc<Transaction>) {
        let mut held = self.0.lock();
        held.retain(|(_, other)| other.strong_count() > 0);
        if !held.iter().any(|(_, other)| std::ptr::eq(other.as_ptr(), Arc::as_ptr(transaction))) {
            held.push((Instant::now(), Arc::downgrade(transaction)));
        }
    }

    /// Ends those that are older; returns how many. Whoever uses one gets "snapshot too old" from then on.
    pub fn expire(&self, age_max: Duration) -> usize {
        let mut old = Vec::new();
        self.0.lock().retain(|(since, transaction)| match transaction.upgrade() {
            Some(transaction) if since.elapsed() > age_max => {
                old.push(transaction);
                false
            }
            transaction => transaction.is_some(),
        });
        // A commit in work is waited for here.
        old.iter().filter(|transaction| transaction.expire()).count()
    }

    /// Nobody else has it: its session is gone.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
