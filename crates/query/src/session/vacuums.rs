//! Progress of VACUUM: the table that it works on, and how far it is. `pg_stat_progress_vacuum` shows it.
//!
//! Memory: one entry per session with such a statement, which goes with the statement.

use crate::session::variables::Client;
use entresol_transactions::StateId;
use parking_lot::Mutex;

/// Progress of one statement, shared between it and those who ask.
#[derive(Debug, Default)]
pub(crate) struct VacuumProgress(Mutex<VacuumStep>);

/// Work on one table or index.
#[derive(Debug, Clone, Default)]
pub(crate) struct VacuumStep {
    /// State of the table or index; none while it is about none.
    pub(crate) state: Option<StateId>,
    /// Name of PostgreSQL's for what is done.
    pub(crate) phase: VacuumPhase,
    /// Keys of the state, as far as is known, and those that were visited.
    pub(crate) keys: u64,
    pub(crate) keys_seen: u64,
    /// Dead keys that were known at the begin, and those that were removed.
    pub(crate) dead_keys: u64,
    pub(crate) keys_removed: u64,
    /// Indexes that were worked on.
    pub(crate) indexes: u64,
}

/// Phase of a VACUUM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum VacuumPhase {
    /// Rows are merged into row groups.
    #[default]
    Merging,
    Table,
    Index,
    /// Dropped tables are freed.
    CleanUp,
    /// Blocks of files are returned.
    Truncating,
}

impl VacuumPhase {
    /// PostgreSQL's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            VacuumPhase::Merging => "initializing",
            VacuumPhase::Table => "scanning heap",
            VacuumPhase::Index => "vacuuming indexes",
            VacuumPhase::CleanUp => "performing final cleanup",
            VacuumPhase::Truncating => "truncating heap",
        }
    }
}

impl VacuumProgress {
    /// Changes the step.
    pub(crate) fn note(&self, change: impl FnOnce(&mut VacuumStep)) {
        change(&mut self.0.lock());
    }
}

/// Line of `pg_stat_progress_vacuum`.
pub(crate) struct VacuumLine {
    pub(crate) client: Client,
    pub(crate) step: VacuumStep,
}

impl VacuumLine {
    /// Line of a statement of a client.
    pub(crate) fn new(client: Client, progress: &VacuumProgress) -> VacuumLine {
        VacuumLine { client, step: progress.0.lock().clone() }
    }
}
