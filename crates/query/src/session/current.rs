//! The transaction of the statement that a session runs.

use crate::error::external;
use datafusion::common::{Result as DFResult, ScalarValue};
use entresol_tables::Catalog;
use entresol_transactions::Transaction;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// The transaction of the statement that a session runs; one per session.
#[derive(Default)]
pub(crate) struct Current {
    transaction: Mutex<Option<Arc<Transaction>>>,
    /// Values of parameters for which a generic plan is being made.
    assumed: Mutex<Option<Arc<[ScalarValue]>>>,
    /// Materialized views that the open block has changes for, which its commit applies.
    pending_views: Mutex<Arc<[String]>>,
}

impl Current {
    /// Returns true if the current transaction reads as of a point in time.
    pub(crate) fn is_past(&self) -> bool {
        self.transaction.lock().as_ref().is_some_and(|transaction| transaction.as_of().is_some())
    }

    /// Makes a transaction current; `None` after the statement.
    pub(crate) fn set(&self, transaction: Option<Arc<Transaction>>) {
        *self.transaction.lock() = transaction;
    }

    /// Assumes values of parameters while the result lives: tables choose how to read their rows by them.
    pub(crate) fn assume(self: &Arc<Current>, values: &[ScalarValue]) -> AssumedParameters {
        *self.assumed.lock() = Some(values.into());
        AssumedParameters(Arc::clone(self))
    }

    /// Values of parameters, while a generic plan is made.
    pub(crate) fn assumed(&self) -> Option<Arc<[ScalarValue]>> {
        self.assumed.lock().clone()
    }

    /// Notes the materialized views that the commit of the open block will change.
    pub(crate) fn set_pending_views(&self, views: Vec<String>) {
        *self.pending_views.lock() = views.into();
    }

    /// Materialized views that the commit of the open block will change: their tables are behind what it has written.
    pub(crate) fn pending_views(&self) -> Arc<[String]> {
        Arc::clone(&self.pending_views.lock())
    }

    /// The current transaction, if there is one.
    pub(crate) fn bound(&self) -> Option<Arc<Transaction>> {
        self.transaction.lock().clone()
    }

    /// The current transaction, or a new one whose snapshot lives as long as its scans.
    pub(crate) fn get(&self, catalog: &Catalog) -> DFResult<Arc<Transaction>> {
        match &*self.transaction.lock() {
            Some(transaction) => Ok(Arc::clone(transaction)),
            None => catalog.begin().map_err(external),
        }
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Current")
            .field(&self.transaction.lock().as_ref().map(|transaction| transaction.id()))
            .finish()
    }
}

/// Assumes values of parameters as long as it lives.
pub(crate) struct AssumedParameters(Arc<Current>);

impl Drop for AssumedParameters {
    fn drop(&mut self) {
        *self.0.assumed.lock() = None;
    }
}

/// Makes a transaction current as long as it lives.
pub(crate) struct Bound(Arc<Current>);

impl Bound {
    pub(crate) fn new(current: &Arc<Current>, transaction: &Arc<Transaction>) -> Bound {
        current.set(Some(Arc::clone(transaction)));
        Bound(Arc::clone(current))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
