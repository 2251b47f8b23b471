//! State of a session that the statements of all stages use.

use crate::error::Result;
use crate::postgres::settings::Settings;
use crate::postgres::time_zones::Zone;
use crate::session::block::Block;
use crate::session::cancellation::RunningStatement;
use crate::session::current::{Bound, Current};
use crate::session::loads::FinishedLoad;
use crate::session::materialized::MaterializedViews;
use crate::session::plan_cache::{PlanCache, PlanScope, PlanningVersion};
use crate::session::snapshots::{SessionSnapshots, Sessions};
use crate::session::topologies::Topologies;
use crate::session::user_functions::UserFunctions;
use crate::session::variables::SessionVariables;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::SessionContext;
use entresol_memory::Durability;
use entresol_tables::Catalog;
use entresol_transactions::Transaction;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Default number of times that an autocommitted statement is retried after a conflict.
pub const CONFLICT_RETRIES_MAX: u32 = 16;

/// Options of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Durability of commits; the setting `durability` changes it for the session.
    pub durability: Durability,
    /// Number of times that an autocommitted statement is retried after a conflict.
    pub conflict_retries_max: u32,
    /// Number of threads of a query; all if `None`.
    pub target_partitions: Option<usize>,
    /// Memory and spill files of queries, to be shared by all sessions of a database; see [`query_memory`].
    ///
    /// [`query_memory`]: crate::session::query_memory
    pub runtime: Option<Arc<RuntimeEnv>>,
    /// Age at which the database ends snapshots of sessions, which the setting `max_snapshot_age` tells.
    pub max_snapshot_age: Option<Duration>,
    /// The sessions of the database, to be shared by all of them.
    pub sessions: Sessions,
    /// The topologies of the database, to be shared by all sessions.
    pub topologies: Topologies,
    /// The materialized views of the database, to be shared by all sessions.
    pub materialized: MaterializedViews,
    /// User-defined functions.
    pub functions: UserFunctions,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            durability: Durability::default(),
            conflict_retries_max: CONFLICT_RETRIES_MAX,
            target_partitions: None,
            runtime: None,
            max_snapshot_age: None,
            sessions: Sessions::default(),
            topologies: Topologies::default(),
            materialized: MaterializedViews::default(),
            functions: UserFunctions::default(),
        }
    }
}

/// Catalog, transaction and settings of a session, without what its statements leave in it by name.
pub(crate) struct SessionCore {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) context: SessionContext,
    /// Transaction that the session's plans read in.
    pub(crate) current: Arc<Current>,
    pub(crate) running: Arc<RunningStatement>,
    pub(crate) snapshots: Arc<SessionSnapshots>,
    /// The setting `durability`.
    pub(crate) durability: Durability,
    pub(crate) options: SessionOptions,
    pub(crate) variables: Arc<SessionVariables>,
    /// Time zone of the settings and of DataFusion.
    pub(crate) zone: Zone,
    /// Number of changes of the time zone.
    pub(crate) zone_changes: u64,
    /// Number of changes of DataFusion's settings.
    pub(crate) option_changes: AtomicU64,
    /// Settings before the open block.
    pub(crate) settings_before: Option<Arc<Settings>>,
    pub(crate) block: Option<Block>,
    /// Plans of statements that came again.
    pub(crate) plans: PlanCache,
    /// Rows of a statement that has not committed yet.
    pub(crate) load: FinishedLoad,
}

impl SessionCore {
    /// Version of everything that plans depend on.
    pub(crate) fn planning_version(&self) -> PlanningVersion {
        if let Some(block) = &self.block {
            block.note_pending_views();
        }
        PlanningVersion {
            catalog: self.catalog.version(),
            zone: self.zone_changes,
            authority: self.variables.authority.changes(),
            has_public: self.variables.has_public(),
            options: self.option_changes.load(Ordering::Relaxed),
            pending_views: self.current.pending_views(),
        }
    }

    /// State of the session on which its plans depend.
    pub(crate) fn plan_scope(&self) -> PlanScope {
        PlanScope { version: self.planning_version(), settings: self.variables.settings() }
    }

    /// Binds the session's scans to a transaction while the result lives.
    pub(crate) fn bind(&self, transaction: &Arc<Transaction>) -> Bound {
        Bound::new(&self.current, transaction)
    }

    /// Lets the cancellation of the running statement stop the writes and the commit of a transaction.
    pub(crate) fn attend(&self, transaction: &Arc<Transaction>) {
        transaction.set_cancellation(self.running.statement());
        self.snapshots.note(transaction);
    }

    /// Passes the point of no return of a statement whose parts take effect one by one: a definition.
    pub(crate) fn begin_definite(&self) -> Result<()> {
        Ok(self.running.statement().begin_definite()?)
    }

    /// Makes the statement interruptible again.
    pub(crate) fn end_definite(&self) {
        self.running.statement().end_definite(false);
    }
}
