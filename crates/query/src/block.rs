//! Transaction blocks: what BEGIN opens and COMMIT or ROLLBACK ends.
//!
//! ```text
//!            BEGIN                    a statement fails
//!   none ───────────▶ open ─────────────────────────────▶ failed
//!    ▲                 │ ▲                                  │ │
//!    └──COMMIT─────────┘ └──────ROLLBACK TO savepoint───────┘ │
//!    └──ROLLBACK, or COMMIT (an error)────────────────────────┘
//! ```
//!
//! - All statements of a block see one snapshot and the block's own writes; at READ COMMITTED each sees a new
//!   snapshot, and fails if somebody else has committed a row that the block wrote.
//! - READ UNCOMMITTED is READ COMMITTED; REPEATABLE READ is snapshot isolation, which is the default.
//! - A statement that fails leaves nothing behind, and the block is failed as in PostgreSQL: only ROLLBACK and
//!   ROLLBACK TO are possible. COMMIT then rolls back too, but says so with an error (PostgreSQL reports
//!   success): a commit that did not happen must not look like one.
//!
//! Memory: at most [`SAVEPOINTS_MAX`] savepoints; the writes are bounded by the transaction.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{TransactionAccessMode, TransactionIsolationLevel, TransactionMode};
use entresol_tables::Catalog;
use entresol_transactions::{Isolation, Mark, Transaction};

use crate::error::{Error, Result};

/// The most savepoints of a block.
pub const SAVEPOINTS_MAX: usize = 1024;

/// An open transaction block.
#[derive(Debug)]
pub(crate) struct Block {
    transaction: Arc<Transaction>,
    read_only: bool,
    /// The message of the statement that failed.
    failed: Option<String>,
    savepoints: Vec<(String, Mark)>,
}

impl Block {
    /// Opens a block.
    pub(crate) fn new(catalog: &Catalog, modes: &[TransactionMode]) -> Result<Block> {
        let mut read_only = false;
        let mut isolation = Isolation::Snapshot;
        for mode in modes {
            match mode {
                TransactionMode::AccessMode(mode) => read_only = *mode == TransactionAccessMode::ReadOnly,
                TransactionMode::IsolationLevel(level) => isolation = level_of(level),
            }
        }
        let transaction = catalog.begin_at(isolation)?;
        Ok(Block { transaction, read_only, failed: None, savepoints: Vec::new() })
    }

    /// The transaction for the next statement.
    pub(crate) fn next_statement(&mut self) -> Result<Arc<Transaction>> {
        self.transaction = self.transaction.next_statement().inspect_err(|error| {
            self.failed.get_or_insert_with(|| error.to_string());
        })?;
        Ok(Arc::clone(&self.transaction))
    }

    /// Its transaction.
    pub(crate) fn transaction(&self) -> &Arc<Transaction> {
        &self.transaction
    }

    /// Whether a statement may run now.
    pub(crate) fn check(&self, writes: bool) -> Result<()> {
        match &self.failed {
            Some(message) => Err(Error::TransactionAborted(message.clone())),
            None if writes && self.read_only => Err(Error::Invalid("the transaction is READ ONLY".into())),
            None => Ok(()),
        }
    }

    /// Marks the block failed.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.failed.get_or_insert_with(|| error.to_string());
    }

    /// The failure of a statement, if one failed.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Sets a savepoint; one of the same name is hidden until the new one is released.
    pub(crate) fn savepoint(&mut self, name: String) -> Result<()> {
        self.check(false)?;
        if self.savepoints.len() >= SAVEPOINTS_MAX {
            return Err(Error::Invalid(format!("savepoint {name}: at most {SAVEPOINTS_MAX} are possible")));
        }
        self.savepoints.push((name, self.transaction.mark()));
        Ok(())
    }

    /// Takes back what was written after the savepoint; it stays. A failed block is open again.
    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<()> {
        let at = self.find(name)?;
        self.transaction.rollback_to(self.savepoints[at].1);
        self.savepoints.truncate(at + 1);
        self.failed = None;
        Ok(())
    }

    /// Forgets the savepoint and those after it.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        self.check(false)?;
        let at = self.find(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize> {
        let at = self.savepoints.iter().rposition(|(savepoint, _)| savepoint == name);
        at.ok_or_else(|| Error::Invalid(format!("there is no savepoint {name}")))
    }
}

fn level_of(level: &TransactionIsolationLevel) -> Isolation {
    match level {
        TransactionIsolationLevel::ReadUncommitted | TransactionIsolationLevel::ReadCommitted => {
            Isolation::ReadCommitted
        }
        TransactionIsolationLevel::RepeatableRead | TransactionIsolationLevel::Snapshot => {
            Isolation::Snapshot
        }
        TransactionIsolationLevel::Serializable => Isolation::Serializable,
    }
}

/// Takes back what a statement wrote, unless it is told that the statement succeeded: also when the statement's
/// future is dropped half-way.
pub(crate) struct StatementGuard {
    transaction: Arc<Transaction>,
    mark: Option<Mark>,
}

impl StatementGuard {
    pub(crate) fn new(transaction: &Arc<Transaction>) -> StatementGuard {
        StatementGuard { transaction: Arc::clone(transaction), mark: Some(transaction.mark()) }
    }

    /// The statement succeeded.
    pub(crate) fn keep(mut self) {
        self.mark = None;
    }
}

impl Drop for StatementGuard {
    fn drop(&mut self) {
        if let Some(mark) = self.mark {
            self.transaction.rollback_to(mark);
        }
    }
}
