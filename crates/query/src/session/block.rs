//! Transaction blocks: opened by BEGIN and ended by COMMIT or ROLLBACK.
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
//!   snapshot, and fails if another transaction has committed a row that the block wrote.
//! - READ UNCOMMITTED is READ COMMITTED; REPEATABLE READ is snapshot isolation, which is the default.
//! - A statement that fails leaves nothing behind, and the block is failed as in PostgreSQL: only ROLLBACK
//!   and ROLLBACK TO are possible. COMMIT then rolls back too, but reports an error (PostgreSQL reports
//!   success): a commit that did not happen must not look like one.
//!
//! - A statement that reads a materialized view over tables that the block has written computes its query
//!   ([`crate::planner::scans::pending_view`]), as the commit is what changes the view's table.
//!
//! Memory: at most [`SAVEPOINTS_MAX`] savepoints; the writes are bounded by the transaction.

use crate::error::{Error, Result};
use crate::postgres::settings::Settings;
use crate::session::core::SessionCore;
use crate::session::current::Current;
use crate::session::materialized::MaterializedViews;
use datafusion::sql::sqlparser::ast::{TransactionAccessMode, TransactionIsolationLevel, TransactionMode};
use entresol_tables::Catalog;
use entresol_transactions::{Isolation, Mark, Timestamp, Transaction};
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum number of savepoints of a block.
pub const SAVEPOINTS_MAX: usize = 1024;

/// Transaction modes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
}

impl Modes {
    /// These modes, changed by those of a statement.
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

/// Error of a statement that writes in a READ ONLY transaction.
pub(crate) fn read_only(verb: &str) -> Error {
    Error::coded("25006", format!("cannot execute {verb} in a read-only transaction"))
}

/// Isolation level of this name; snapshot isolation is REPEATABLE READ.
pub(crate) fn level_named(name: &str) -> Isolation {
    match name {
        "read uncommitted" | "read committed" => Isolation::ReadCommitted,
        "serializable" => Isolation::Serializable,
        _ => Isolation::Snapshot,
    }
}

/// Failure of a block: the message of the statement that failed, if one did. Shared with objects that outlive
/// the call that created them: row streams and COPY.
#[derive(Debug, Default)]
pub(crate) struct Failure(Mutex<Option<String>>);

impl Failure {
    /// Records a failure; the first one counts.
    pub(crate) fn set(&self, message: impl ToString) {
        self.0.lock().get_or_insert_with(|| message.to_string());
    }

    /// Returns the failure, if there was one.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn clear(&self) {
        *self.0.lock() = None;
    }
}

/// Materialized views that are behind what a block has written.
#[derive(Debug)]
struct PendingViews {
    catalog: Arc<Catalog>,
    views: MaterializedViews,
    current: Arc<Current>,
}

impl PendingViews {
    /// Notes them for the next statement.
    fn note(&self, transaction: &Transaction) {
        self.current.set_pending_views(self.views.pending(&self.catalog, transaction));
    }
}

impl Drop for PendingViews {
    fn drop(&mut self) {
        self.current.set_pending_views(Vec::new());
    }
}

/// An open transaction block.
#[derive(Debug)]
pub(crate) struct Block {
    transaction: Arc<Transaction>,
    modes: Modes,
    /// True if a statement has run in it.
    has_run: bool,
    failure: Arc<Failure>,
    savepoints: Vec<Savepoint>,
    pending_views: PendingViews,
}

/// Savepoint of a block.
#[derive(Debug)]
struct Savepoint {
    name: String,
    mark: Mark,
    /// Settings at the time of the savepoint.
    settings: Arc<Settings>,
}

impl Block {
    /// Opens a block of a session.
    pub(crate) fn new(session: &SessionCore, modes: Modes) -> Result<Block> {
        let transaction = session.catalog.begin_at(modes.isolation)?;
        let pending_views = PendingViews {
            catalog: Arc::clone(&session.catalog),
            views: session.options.materialized.clone(),
            current: Arc::clone(&session.current),
        };
        let (failure, savepoints) = (Arc::default(), Vec::new());
        Ok(Block { transaction, modes, has_run: false, failure, savepoints, pending_views })
    }

    /// Modes of the block.
    pub(crate) fn modes(&self) -> Modes {
        self.modes
    }

    /// SET TRANSACTION: before the first statement only, because rows already read cannot be read again in
    /// another mode.
    pub(crate) fn set_modes(&mut self, catalog: &Catalog, modes: Modes) -> Result<()> {
        self.check()?;
        if self.transaction.as_of().is_some() {
            // Time travel reads the same rows at every isolation level.
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

    /// SET TRANSACTION AS OF: before the first statement only; later statements read as of `at`.
    pub(crate) fn set_as_of(&mut self, catalog: &Catalog, at: Timestamp) -> Result<()> {
        self.check()?;
        if self.has_run {
            return Err(Error::coded("25001", "SET TRANSACTION AS OF must be called before any query"));
        }
        self.transaction = catalog.begin_as_of(at)?;
        self.modes.read_only = true;
        Ok(())
    }

    /// Returns the transaction for the next statement.
    pub(crate) fn next_statement(&mut self) -> Result<Arc<Transaction>> {
        self.has_run = true;
        self.transaction = self.transaction.next_statement().inspect_err(|error| self.failure.set(error))?;
        self.pending_views.note(&self.transaction);
        Ok(Arc::clone(&self.transaction))
    }

    /// Notes the materialized views that are behind what it has written by now.
    pub(crate) fn note_pending_views(&self) {
        self.pending_views.note(&self.transaction);
    }

    /// Transaction of the block.
    pub(crate) fn transaction(&self) -> &Arc<Transaction> {
        &self.transaction
    }

    /// Checks that a statement may run now: an error in a failed block.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |message| Err(Error::TransactionAborted(message)))
    }

    /// Checks that a statement may run now; a READ ONLY block has none that writes, whose `verb` is given.
    pub(crate) fn check_writing(&self, verb: Option<&str>) -> Result<()> {
        self.check()?;
        verb.filter(|_| self.modes.read_only).map_or(Ok(()), |verb| Err(read_only(verb)))
    }

    /// Marks the block failed.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.failure.set(error);
    }

    /// Failure record of the block, shared with its streams.
    pub(crate) fn failure(&self) -> &Arc<Failure> {
        &self.failure
    }

    /// Sets a savepoint; one of the same name is hidden until the new one is released.
    pub(crate) fn savepoint(&mut self, name: String, settings: Arc<Settings>) -> Result<()> {
        self.check()?;
        if self.savepoints.len() >= SAVEPOINTS_MAX {
            let message = format!("too many savepoints: {name} would exceed the maximum of {SAVEPOINTS_MAX}");
            return Err(Error::coded("54000", message));
        }
        self.has_run = true;
        self.savepoints.push(Savepoint { name, mark: self.transaction.mark(), settings });
        Ok(())
    }

    /// Number of savepoints.
    pub(crate) fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Undoes the writes after the savepoint, which stays. A failed block is open again. Returns the settings
    /// to restore.
    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<Arc<Settings>> {
        let at = self.find(name)?;
        let savepoint = &self.savepoints[at];
        self.transaction.rollback_to(savepoint.mark);
        let settings = Arc::clone(&savepoint.settings);
        self.savepoints.truncate(at + 1);
        self.failure.clear();
        Ok(settings)
    }

    /// Releases the savepoint and those after it.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        self.check()?;
        let at = self.find(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize> {
        let at = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        at.ok_or_else(|| Error::coded("3B001", format!("savepoint \"{name}\" does not exist")))
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

/// Undoes the writes of a statement when dropped, unless [`keep`](Self::keep) was called: also when the
/// statement's future is dropped before it ends.
#[derive(Debug)]
pub(crate) struct StatementGuard {
    transaction: Arc<Transaction>,
    mark: Option<Mark>,
}

impl StatementGuard {
    pub(crate) fn new(transaction: &Arc<Transaction>) -> StatementGuard {
        StatementGuard { transaction: Arc::clone(transaction), mark: Some(transaction.mark()) }
    }

    /// Keeps the writes: the statement succeeded.
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
