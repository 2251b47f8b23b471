//! Counters of rows, in stripes: threads write different lines of the cache.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of stripes: with more threads some share one.
const STRIPES: usize = 16;
/// Number of operations.
const OPERATIONS: usize = 4;

/// Operation on rows by their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOperation {
    /// Reading a row by its key, without planning.
    Read,
    /// Inserting a row.
    Insert,
    /// Replacing a row, or inserting it where there is none.
    Update,
    /// Deleting a row.
    Delete,
}

/// Rows by operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows read by key, without planning.
    pub read: u64,
    /// Rows inserted.
    pub inserted: u64,
    /// Rows replaced, or inserted where there was none.
    pub updated: u64,
    /// Rows deleted.
    pub deleted: u64,
}

/// Counters of some threads, in one line of the cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe([AtomicU64; OPERATIONS]);

/// Counters of all operations.
#[derive(Debug, Default)]
pub(super) struct Counters([Stripe; STRIPES]);

thread_local! {
    /// Stripe of this thread; `usize::MAX` before it has one.
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Stripe of the calling thread: threads take them in turn.
#[inline]
fn stripe() -> usize {
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

impl Counters {
    /// Adds rows to the counter of an operation.
    #[inline]
    pub(super) fn add(&self, operation: RowOperation, rows: u64) {
        self.0[stripe()].0[operation as usize].fetch_add(rows, Ordering::Relaxed);
    }

    /// Sums over all stripes.
    pub(super) fn sums(&self) -> RowCounts {
        let sum = |operation: RowOperation| {
            self.0.iter().map(|stripe| stripe.0[operation as usize].load(Ordering::Relaxed)).sum()
        };
        RowCounts {
            read: sum(RowOperation::Read),
            inserted: sum(RowOperation::Insert),
            updated: sum(RowOperation::Update),
            deleted: sum(RowOperation::Delete),
        }
    }

    /// Sets all counters to 0.
    pub(super) fn reset(&self) {
        self.0.iter().flat_map(|stripe| &stripe.0).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}
