//! A session: one client, its settings and its transaction.
//!
//! - Outside of a block each statement is a transaction of its own; if it loses against another transaction
//!   it is run again, at most [`SessionOptions::conflict_retries_max`] times. Statements of one text commit
//!   one by one; the first that fails ends the text.
//! - Inside of a block nothing is retried: what the client read before may have decided what it does.
//! - A session is used by one task at a time. Dropping it aborts its transaction.
//! - Dropping a future of [`Session::execute`] takes back the statement that it was running, except that a
//!   commit or a definition that has passed its point of no return still happens.
//! - [`Session::canceller`] and the setting `statement_timeout` stop a statement: nothing of it takes effect
//!   then.
//! - Results are collected; [`Session::stream`] hands them out batch by batch instead.

use crate::catalog::registry::REGISTRY;
use crate::catalog::view::Source;
use crate::error::{Error, Result};
use crate::execution::prepared::PreparedStatement;
use crate::execution::row_stream::Cursors;
use crate::materialized::{deferred, maintenance as materialized};
use crate::parser::own::owner::OwnerTarget;
use crate::planner::bounded_functions;
use crate::planner::context as planner_context;
use crate::planner::time_travel;
use crate::postgres::math;
use crate::postgres::settings::shown_time;
use crate::postgres::time_zones::Zone;
use crate::session::block::Block;
use crate::session::cancellation::RunningStatement;
use crate::session::core::{SessionCore, SessionOptions};
use crate::session::current::Current;
use crate::session::loads::FinishedLoad;
use crate::session::plan_cache::PlanCache;
use crate::session::sequence_functions;
use crate::session::user_functions::UserFunctions;
use crate::session::variables::{self, SessionVariables};
use crate::streaming::statements as streaming;
use crate::streaming::{owner_changes, revoked};
use datafusion::arrow::datatypes::SchemaRef;
use entresol_memory::{Durability, MemorySize};
use entresol_tables::Catalog;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Session of one client; see the [module](self).
pub struct Session {
    pub(crate) core: SessionCore,
    /// Statements of PREPARE, by name.
    pub(crate) statements: BTreeMap<String, PreparedStatement>,
    pub(crate) cursors: Cursors,
}

impl Session {
    /// A session on a catalog, outside of a transaction.
    pub fn new(catalog: Arc<Catalog>, options: SessionOptions) -> Session {
        let current = Arc::new(Current::default());
        let running = Arc::new(RunningStatement::default());
        let durability = options.durability;
        let variables = SessionVariables::new(&initial_settings(&catalog, &options));
        variables.authority.know_owners(&catalog);
        let source = Source {
            catalog: Arc::clone(&catalog),
            current: Arc::clone(&current),
            variables: Arc::clone(&variables),
            sessions: options.sessions.clone(),
            topologies: options.topologies.clone(),
            views: Arc::default(),
            registry: &REGISTRY,
        };
        let context = planner_context::context(&source, &options, &running);
        math::register(&context);
        bounded_functions::register(&context, &running);
        variables::register(&context, &variables);
        crate::catalog::call::register(&context, &source);
        time_travel::register(&context, &catalog, &current);
        sequence_functions::register(&context, &catalog, &variables);
        options.functions.register(&context);
        let core = SessionCore {
            catalog,
            context,
            current,
            running,
            snapshots: options.sessions.register(&variables),
            durability,
            options,
            variables,
            zone: Zone::utc(),
            zone_changes: 0,
            option_changes: AtomicU64::default(),
            settings_before: None,
            block: None,
            plans: PlanCache::default(),
            load: FinishedLoad::default(),
        };
        Session { core, statements: BTreeMap::new(), cursors: Cursors::default() }
    }

    /// Checks that SQL can call user-defined functions by their names, which no function of this session has.
    pub fn check_functions(&self, functions: &UserFunctions) -> Result<()> {
        functions.check(&self.core.context)
    }

    /// Maintains the materialized views of a database that was opened, with this session; to be called once,
    /// before anything is written.
    pub async fn maintain_materialized_views(self) -> Result<()> {
        let (catalog, options) = (Arc::clone(&self.core.catalog), self.core.options.clone());
        materialized::start(self.core, move || Session::new(catalog, options).core).await
    }

    /// Starts the topologies of a database that was opened; to be called once, before other statements.
    pub async fn start_topologies(&self) -> Result<()> {
        streaming::start_all(&self.core).await?;
        deferred::start_all(&self.core);
        Ok(())
    }

    /// Ends the topologies that run and whose owners may no longer do what they do; to be called when privileges or owners have
    /// changed.
    pub async fn stop_denied_topologies(&self) -> Result<()> {
        revoked::stop_denied(&self.core).await
    }

    /// Gives an object to a role; none: to the superusers. Topologies go on: see [`Session::stop_denied_topologies`]. Errors:
    /// 42704 or 42P01 without the object, 42809 if it is of another kind, 0A000 for tables, views and sequences of a role.
    pub async fn change_owner(&self, target: OwnerTarget, name: &str, to: Option<&str>) -> Result<()> {
        owner_changes::change_owner(&self.core, (target, name), to).await
    }

    /// Number of queries that were run with the optimised plan of an earlier run of the same statement.
    pub fn plan_reuses(&self) -> u64 {
        self.core.plans.reuses()
    }

    /// Number of runs that planned nothing, of the texts whose plans the session has.
    pub fn template_reuses(&self) -> u64 {
        self.core.plans.template_reuses()
    }

    /// Returns true if a statement failed in the open transaction block: only ROLLBACK and ROLLBACK TO are
    /// possible then.
    pub fn is_failed(&self) -> bool {
        self.core.block.as_ref().is_some_and(|block| block.failure().get().is_some())
    }

    /// Fails the open block, if there is one: for clients whose statement was cancelled or never came to run.
    pub fn fail(&mut self, error: &Error) {
        if let Some(block) = &mut self.core.block {
            block.fail(error);
        }
    }

    /// True inside of a transaction block, failed or not.
    pub fn in_transaction(&self) -> bool {
        self.core.block.is_some()
    }

    /// Durability of the session's commits.
    pub fn durability(&self) -> Durability {
        self.core.durability
    }

    /// The catalog of its tables.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.core.catalog
    }

    /// Number of savepoints of the open block.
    pub fn savepoints(&self) -> usize {
        self.core.block.as_ref().map_or(0, Block::savepoints)
    }

    /// The columns of a cursor that DECLARE made, if there is one of this name.
    pub fn cursor_columns(&self, name: &str) -> Option<SchemaRef> {
        self.cursors.columns(name)
    }
}

/// Settings that tell what the database was opened with.
fn initial_settings(catalog: &Catalog, options: &SessionOptions) -> Vec<(&'static str, String)> {
    let mut initial = vec![("durability", options.durability.to_string())];
    if let Some(budget) = catalog.context().pool().memory() {
        initial.push(("memory_max", MemorySize::Bytes(budget.max_bytes()).to_string()));
    }
    if let Some(age) = options.max_snapshot_age {
        initial.push(("max_snapshot_age", shown_time(age.as_millis() as u64)));
    }
    initial
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("durability", &self.core.durability)
            .field("block", &self.core.block)
            .finish()
    }
}
