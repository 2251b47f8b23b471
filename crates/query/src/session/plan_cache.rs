//! Plans of queries that come again in a session as the same statement.
//!
//! Analysing and optimising a join of four tables takes milliseconds, as long as a star join of six million rows
//! takes on columns. A query whose statement the session has run before has its optimised logical plan already, and
//! templates of physical plans ([`PlanTemplates`]), which are bound to the transaction and fit sizes of tables.
//!
//! # Invariants
//!
//! - A statement means the same as when it was planned: the catalog, the time zone, the role and all settings,
//!   DataFusion's own among them, are those of then ([`PlanScope`]).
//! - Only plans are added that any transaction of the session may use again: the planner decides that.
//!
//! Memory: [`PLANS_MAX`] plans, each with its reservation in the budget; the least recently used one is evicted. A
//! statement that came once leaves a number ([`SEEN_MAX`]).

use crate::postgres::settings::Settings;
use crate::session::templates::PlanTemplates;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DFStatement;
use entresol_memory::budget::MemoryReservation;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Maximum number of plans of a session.
const PLANS_MAX: usize = 32;
/// Maximum number of statements that came once which are recognised when they come again.
const SEEN_MAX: usize = 256;

/// Version of everything that plans depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanningVersion {
    pub(crate) catalog: u64,
    /// Number of changes of the session's time zone.
    pub(crate) zone: u64,
    /// Number of changes of the session's role.
    pub(crate) authority: u64,
    /// True if the search path has the schema of the tables.
    pub(crate) has_public: bool,
    /// Number of changes of DataFusion's settings.
    pub(crate) options: u64,
    /// Materialized views that are behind what the open block has written.
    pub(crate) pending_views: Arc<[String]>,
}

/// State of a session for which a plan was made.
pub(crate) struct PlanScope {
    pub(crate) version: PlanningVersion,
    pub(crate) settings: Arc<Settings>,
}

impl PlanScope {
    fn is_same(&self, other: &PlanScope) -> bool {
        self.version == other.version && Arc::ptr_eq(&self.settings, &other.settings)
    }
}

/// Answer of the cache about a statement.
pub(crate) enum PlanLookup {
    /// Its plans.
    Plan(Arc<RepeatedQuery>),
    /// None, but the statement came before.
    Repeated,
    /// None: the statement comes for the first time, or was refused.
    New,
}

/// Plans of a query that comes again.
pub(crate) struct RepeatedQuery {
    /// Its optimised plan.
    pub(crate) plan: LogicalPlan,
    /// Columns of its result.
    pub(crate) columns: SchemaRef,
    pub(crate) templates: Arc<PlanTemplates>,
}

/// Plans of a session; see the [module](self).
#[derive(Default)]
pub(crate) struct PlanCache(Mutex<Plans>);

#[derive(Default)]
struct Plans {
    /// The most recently used one last.
    cached: VecDeque<CachedPlan>,
    /// Hashes of statements that came once, and whether they are refused.
    seen: VecDeque<(u64, bool)>,
    /// Number of plans that were found.
    reuses: u64,
}

struct CachedPlan {
    statement: DFStatement,
    scope: PlanScope,
    query: Arc<RepeatedQuery>,
    _memory: Option<MemoryReservation>,
}

fn hash(statement: &DFStatement) -> Option<u64> {
    let DFStatement::Statement(statement) = statement else { return None };
    let mut hasher = DefaultHasher::new();
    statement.hash(&mut hasher);
    Some(hasher.finish())
}

impl PlanCache {
    /// Plan of a statement in a scope. Plans of other scopes are removed; a statement that comes for the first time is
    /// noted.
    pub(crate) fn find(&self, statement: &DFStatement, scope: &PlanScope) -> PlanLookup {
        let Some(hash) = hash(statement) else { return PlanLookup::New };
        let mut plans = self.0.lock();
        plans.cached.retain(|cached| cached.scope.is_same(scope));
        let at = plans.cached.iter().position(|cached| cached.statement == *statement);
        if let Some(cached) = at.and_then(|at| plans.cached.remove(at)) {
            let query = Arc::clone(&cached.query);
            plans.cached.push_back(cached);
            plans.reuses += 1;
            return PlanLookup::Plan(query);
        }
        if let Some((_, is_refused)) = plans.seen.iter().find(|(seen, _)| *seen == hash) {
            return if *is_refused { PlanLookup::New } else { PlanLookup::Repeated };
        }
        if plans.seen.len() == SEEN_MAX {
            plans.seen.pop_front();
        }
        plans.seen.push_back((hash, false));
        PlanLookup::New
    }

    /// Answers from now on that a statement is new: its plan cannot be used again.
    pub(crate) fn refuse(&self, statement: &DFStatement) {
        let Some(hash) = hash(statement) else { return };
        let mut plans = self.0.lock();
        plans
            .seen
            .iter_mut()
            .filter(|(seen, _)| *seen == hash)
            .for_each(|(_, is_refused)| *is_refused = true);
    }

    /// Adds the optimised plan of a statement, made in a scope.
    pub(crate) fn add(
        &self,
        statement: DFStatement,
        scope: PlanScope,
        (plan, columns): (LogicalPlan, SchemaRef),
        memory: Option<MemoryReservation>,
    ) -> Arc<RepeatedQuery> {
        let query =
            Arc::new(RepeatedQuery { plan, columns, templates: Arc::new(PlanTemplates::of_optimised()) });
        let mut plans = self.0.lock();
        if plans.cached.len() == PLANS_MAX {
            plans.cached.pop_front();
        }
        let cached = CachedPlan { statement, scope, query: Arc::clone(&query), _memory: memory };
        plans.cached.push_back(cached);
        query
    }

    /// Number of runs of the plans here that planned nothing.
    pub(crate) fn template_reuses(&self) -> u64 {
        self.0.lock().cached.iter().map(|cached| cached.query.templates.reuses()).sum()
    }

    /// Number of statements that had a plan.
    pub(crate) fn reuses(&self) -> u64 {
        self.0.lock().reuses
    }
}
