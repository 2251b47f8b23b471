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

use parking_lot::Mutex;

use datafusion::sql::sqlparser::ast::{TransactionAccessMode, TransactionIsolationLevel, TransactionMode};
use entresol_tables::Catalog;
use entresol_transactions::{Isolation, Mark, Timestamp, Transaction};

use crate::error::{Error, Result};
use crate::postgres::settings::Settings;

/// The most savepoints of a block.
pub const SAVEPOINTS_MAX: usize = 1024;

/// How a block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
}

impl Modes {
    /// These, changed by what a statement says.
    pub(crate) fn with(mut self, modes: &[TransactionMode]) -> Modes {
        for mode in modes {
            match mode {
                TransactionMode::AccessMode(mode) => {
                    self.read_only = *mode == TransactionAccessMode::ReadOnly;
                }
                TransactionMode::IsolationLevel(level) => self.isolation = level_of(level),
            }
        }
        self
    }

    /// The level as SHOW names it.
    pub(crate) fn level(self) -> &'static str {
        match self.isolation {
            Isolation::ReadCommitted => "read committed",
            Isolation::Serializable => "serializable",
            Isolation::Snapshot => "repeatable read",
        }
    }
}

/// The level of this name; snapshot isolation is REPEATABLE READ.
pub(crate) fn level_named(name: &str) -> Isolation {
    match name {
        "read uncommitted" | "read committed" => Isolation::ReadCommitted,
        "serializable" => Isolation::Serializable,
        _ => Isolation::Snapshot,
    }
}

/// Whether a block failed, with the message of the statement that did. Shared with what outlives the call that began
/// it: streams of rows, and COPY.
#[derive(Debug, Default)]
pub(crate) struct Failure(Mutex<Option<String>>);

impl Failure {
    /// The first failure is the one that counts.
    pub(crate) fn set(&self, message: impl ToString) {
        self.0.lock().get_or_insert_with(|| message.to_string());
    }

    /// The failure, if there was one.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn clear(&self) {
        *self.0.lock() = None;
    }
}

/// An open transaction block.
#[derive(Debug)]
pub(crate) struct Block {
    transaction: Arc<Transaction>,
    modes: Modes,
    /// Whether a statement has run in it.
    has_run: bool,
    failure: Arc<Failure>,
    savepoints: Vec<Savepoint>,
}

/// A point of a block to go back to.
#[derive(Debug)]
struct Savepoint {
    name: String,
    mark: Mark,
    /// As they were.
    settings: Arc<Settings>,
}

impl Block {
    /// Opens a block.
    pub(crate) fn new(catalog: &Catalog, modes: Modes) -> Result<Block> {
        let transaction = catalog.begin_at(modes.isolation)?;
        Ok(Block { transaction, modes, has_run: false, failure: Arc::default(), savepoints: Vec::new() })
    }

    /// How it runs.
    pub(crate) fn modes(&self) -> Modes {
        self.modes
    }

    /// SET TRANSACTION: before the first statement only, because what was read cannot be read otherwise any more.
    pub(crate) fn set_modes(&mut self, catalog: &Catalog, modes: Modes) -> Result<()> {
        self.check(false)?;
        if self.transaction.as_of().is_some() {
            // The past is as it is at every level.
            self.modes = Modes { read_only: true, ..modes };
            return Ok(());
        }
        if modes.isolation != self.modes.isolation {
            if self.has_run {
                let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                return Err(Error::coded("25001", message));
            }
            self.transaction = catalog.begin_at(modes.isolation)?;
        }
        if self.modes.read_only && !modes.read_only && self.has_run {
            let message = "transaction read-write mode must be set before any query";
            return Err(Error::coded("25001", message));
        }
        self.modes = modes;
        Ok(())
    }

    /// SET TRANSACTION AS OF: before the first statement only; what follows reads the past.
    pub(crate) fn set_as_of(&mut self, catalog: &Catalog, at: Timestamp) -> Result<()> {
        self.check(false)?;
        if self.has_run {
            return Err(Error::coded("25001", "SET TRANSACTION AS OF must be called before any query"));
        }
        self.transaction = catalog.begin_as_of(at)?;
        self.modes.read_only = true;
        Ok(())
    }

    /// The transaction for the next statement.
    pub(crate) fn next_statement(&mut self) -> Result<Arc<Transaction>> {
        self.has_run = true;
        self.transaction = self.transaction.next_statement().inspect_err(|error| self.failure.set(error))?;
        Ok(Arc::clone(&self.transaction))
    }

    /// Its transaction.
    pub(crate) fn transaction(&self) -> &Arc<Transaction> {
        &self.transaction
    }

    /// Whether a statement may run now.
    pub(crate) fn check(&self, writes: bool) -> Result<()> {
        match self.failure.get() {
            Some(message) => Err(Error::TransactionAborted(message)),
            None if writes && self.modes.read_only => {
                Err(Error::Invalid("the transaction is READ ONLY".into()))
            }
            None => Ok(()),
        }
    }

    /// Marks the block failed.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.failure.set(error);
    }

    /// Where the failure of a statement is noted.
    pub(crate) fn failure(&self) -> &Arc<Failure> {
        &self.failure
    }

    /// Sets a savepoint; one of the same name is hidden until the new one is released.
    pub(crate) fn savepoint(&mut self, name: String, settings: Arc<Settings>) -> Result<()> {
        self.check(false)?;
        if self.savepoints.len() >= SAVEPOINTS_MAX {
            return Err(Error::Invalid(format!("savepoint {name}: at most {SAVEPOINTS_MAX} are possible")));
        }
        self.has_run = true;
        self.savepoints.push(Savepoint { name, mark: self.transaction.mark(), settings });
        Ok(())
    }

    /// How many savepoints there are.
    pub(crate) fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Takes back what was written after the savepoint; it stays. A failed block is open again. Returns the settings
    /// to go back to.
    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<Arc<Settings>> {
        let at = self.find(name)?;
        let savepoint = &self.savepoints[at];
        self.transaction.rollback_to(savepoint.mark);
        let settings = Arc::clone(&savepoint.settings);
        self.savepoints.truncate(at + 1);
        self.failure.clear();
        Ok(settings)
    }

    /// Forgets the savepoint and those after it.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        self.check(false)?;
        let at = self.find(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize> {
        let at = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
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
#[derive(Debug)]
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
