//! The materialized views of a database while it is open, as all its sessions know them.

use crate::error::{Error, Result};
use entresol_tables::{Catalog, RelationKind, Table};
use entresol_transactions::{BeforeCommit, Transaction};
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Suffix of the view with the query.
const QUERY_SUFFIX: &str = "_query";
/// Prefix of the owner of the tables.
const OWNER_PREFIX: &str = "materialized view ";
/// Prefix of the owner of the tables of views over streams, which their topologies write.
const STREAM_OWNER_PREFIX: &str = "the topology of materialized view ";

/// Suffix of the table with the state of an incremental view.
const STATE_SUFFIX: &str = "_state";
/// Prefix of the owner of that table.
const STATE_OWNER_PREFIX: &str = "the state of materialized view ";

/// Owner of the table of the guards.
pub(crate) const GUARDS_OWNER: &str = "the materialized views";

/// Name of the view with the query of a materialized view.
pub(crate) fn query_view(name: &str) -> String {
    format!("{name}{QUERY_SUFFIX}")
}

/// Name of the table with the state of a materialized view.
pub(crate) fn state_table(name: &str) -> String {
    format!("{name}{STATE_SUFFIX}")
}

/// Owner of that table.
pub(crate) fn state_owner_of(name: &str) -> String {
    format!("{STATE_OWNER_PREFIX}{name}")
}

/// Owner of the table of a materialized view.
pub(crate) fn owner_of(name: &str) -> String {
    format!("{OWNER_PREFIX}{name}")
}

/// Owner of the table of a materialized view over streams.
pub(crate) fn stream_owner_of(name: &str) -> String {
    format!("{STREAM_OWNER_PREFIX}{name}")
}

/// Name of the materialized view that a table holds.
pub(crate) fn held_by(table: &Table) -> Option<&str> {
    maintained_by(table).or_else(|| streamed_by(table))
}

/// Name of the materialized view over tables that a table holds.
pub(crate) fn maintained_by(table: &Table) -> Option<&str> {
    table.definition().owner.as_deref()?.strip_prefix(OWNER_PREFIX)
}

/// Name of the materialized view over streams that a table holds.
pub(crate) fn streamed_by(table: &Table) -> Option<&str> {
    table.definition().owner.as_deref()?.strip_prefix(STREAM_OWNER_PREFIX)
}

/// Name of the index by which the rows of a view over streams are found, where its key may be NULL.
pub(crate) fn index_of(view: &str) -> String {
    format!("{view}_key")
}

/// Refuses to drop the index by which the topology of a materialized view finds its rows.
pub(crate) fn check_unneeded(table: &Table, index: &str) -> Result<()> {
    match streamed_by(table) {
        Some(view) if table.schema().hidden_key() && index == index_of(view) => {
            let message = format!("cannot drop index {index}: materialized view {view} finds its rows by it");
            Err(Error::coded("2BP01", message))
        }
        _ => Ok(()),
    }
}

/// Refuses to change or drop the table of a materialized view, and that of the guards.
pub(crate) fn check_ordinary(table: &Table) -> Result<()> {
    if let Some(view) = held_by(table) {
        let message = format!("{view} is a materialized view: use DROP MATERIALIZED VIEW {view}");
        return Err(Error::coded("42809", message));
    }
    let owner = table.definition().owner.as_deref();
    if let Some(owner) = owner.filter(|owner| *owner == GUARDS_OWNER || owner.starts_with(STATE_OWNER_PREFIX))
    {
        let message = format!("table {} belongs to {owner}", table.name());
        return Err(Error::coded("42501", message));
    }
    Ok(())
}

/// Name of the materialized view whose query a view has.
pub(crate) fn query_of(catalog: &Catalog, view: &str) -> Option<String> {
    let name = view.strip_suffix(QUERY_SUFFIX)?;
    let table = catalog.table(name).ok()?;
    maintained_by(&table).map(str::to_owned)
}

/// Refuses to drop a relation, with the views that read it, if a materialized view is among those.
pub(crate) fn check_dependents(catalog: &Catalog, kind: RelationKind, name: &str) -> Result<()> {
    let views = catalog.dependent_views(kind, name);
    match views.iter().find_map(|view| query_of(catalog, view)) {
        None => Ok(()),
        Some(view) => Err(Error::coded(
            "2BP01",
            format!(
                "materialized view {view} depends on {kind} {name}; DROP MATERIALIZED VIEW {view} removes it"
            ),
        )),
    }
}

/// Maintenance of a view by what changed, without a query.
pub(crate) trait MaintainsRows: fmt::Debug + Send + Sync {
    /// Changes the view by what the transaction has changed so far, in it.
    fn maintain(&self, transaction: &Transaction) -> Result<()>;

    /// Stores all rows of the view anew.
    fn fill(&self, transaction: &Transaction) -> Result<()>;
}

/// Materialized view that is maintained.
#[derive(Debug, Clone)]
pub(crate) struct MaintainedView {
    pub(crate) name: String,
    /// Tables that it reads. Of each the columns of the view that are plain columns of it: place in the view,
    /// and name in the table.
    pub(crate) tables: Vec<(String, Vec<(usize, String)>)>,
    /// None if it is maintained by its query.
    pub(crate) incremental: Option<Arc<dyn MaintainsRows>>,
    /// True if it is refreshed behind the commits, and not in them.
    pub(crate) is_deferred: bool,
}

impl MaintainedView {
    /// Tells whether a transaction has written a table that the view reads.
    fn is_written(&self, catalog: &Catalog, transaction: &Transaction) -> bool {
        if self.is_deferred {
            return false;
        }
        let writes =
            |name: &str| catalog.table(name).is_ok_and(|table| transaction.has_writes_of(table.state().id()));
        self.tables.iter().any(|(name, _)| writes(name))
    }
}

/// Work for the views, which has a thread of its own for each of its two kinds.
pub(crate) enum MaintenanceWork {
    /// Maintain the views from a number on that depend on the writes of a transaction, in it.
    Maintain(Arc<Transaction>, usize),
    /// Maintain a new view from now on.
    Watch(String),
    /// Compute a view anew, in a transaction of its own.
    Fill(String),
    /// Refresh a view with deferred refresh to a snapshot of now, in a transaction of its own.
    CatchUp(String),
}

/// Work, and where its result is waited for.
pub(crate) struct MaintenanceRequest {
    pub(crate) work: MaintenanceWork,
    pub(crate) reply: mpsc::SyncSender<Result<()>>,
}

/// Thread that does work of a kind, one after the other.
pub(crate) struct Worker {
    /// The thread ends when this is gone.
    pub(crate) requests: mpsc::Sender<MaintenanceRequest>,
    pub(crate) thread: JoinHandle<()>,
}

impl Worker {
    /// Ends the thread behind the work that it has.
    fn stop(self) {
        drop(self.requests);
        if self.thread.join().is_err() {
            tracing::error!("a thread that maintains materialized views panicked");
        }
    }
}

/// Wait for the result of work until cancellation is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Materialized views of a database. Clones are the same.
#[derive(Clone, Default)]
pub struct MaterializedViews {
    /// In the order of their creation.
    views: Arc<Mutex<Arc<Vec<MaintainedView>>>>,
    /// None before they are served, and after they are stopped.
    catalog: Arc<RwLock<Option<Arc<Catalog>>>>,
    /// Maintains and fills views: commits wait for it.
    maintenance: Arc<Mutex<Option<Worker>>>,
    /// Refreshes views behind the commits, however long that takes.
    refreshes: Arc<Mutex<Option<Worker>>>,
    /// Held by a statement that creates, refreshes or drops one.
    changes: Arc<tokio::sync::Mutex<()>>,
}

impl fmt::Debug for MaterializedViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.views.lock().iter().map(|view| &view.name)).finish()
    }
}

impl MaterializedViews {
    /// Waits until no other statement changes materialized views; none does while the result lives.
    pub(crate) async fn changing(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.changes).lock_owned().await
    }

    pub(crate) fn add(&self, view: MaintainedView) {
        Arc::make_mut(&mut self.views.lock()).push(view);
    }

    pub(crate) fn remove(&self, name: &str) {
        Arc::make_mut(&mut self.views.lock()).retain(|view| view.name != name);
    }

    /// All views, in the order of their creation.
    pub(crate) fn all(&self) -> Arc<Vec<MaintainedView>> {
        Arc::clone(&self.views.lock())
    }

    /// Views that the commit of a transaction will change as far as it has written by now: those over tables that it has written,
    /// and those over these views.
    pub(crate) fn pending(&self, catalog: &Catalog, transaction: &Transaction) -> Vec<String> {
        let mut pending: Vec<String> = Vec::new();
        for view in self.all().iter().filter(|view| !view.is_deferred) {
            let is_over_pending = || view.tables.iter().any(|(table, _)| pending.contains(table));
            if view.is_written(catalog, transaction) || is_over_pending() {
                pending.push(view.name.clone());
            }
        }
        pending
    }

    /// Passes transactions and refreshes to threads from now on.
    pub(crate) fn serve(&self, catalog: Arc<Catalog>, maintenance: Worker, refreshes: Worker) {
        *self.catalog.write() = Some(catalog);
        *self.maintenance.lock() = Some(maintenance);
        *self.refreshes.lock() = Some(refreshes);
    }

    /// Thread for work.
    fn worker_of(&self, work: &MaintenanceWork) -> &Mutex<Option<Worker>> {
        match work {
            MaintenanceWork::CatchUp(_) => &self.refreshes,
            MaintenanceWork::Maintain(..) | MaintenanceWork::Watch(_) | MaintenanceWork::Fill(_) => {
                &self.maintenance
            }
        }
    }

    /// Lets a thread do some work, and waits for that while `check` lets it.
    pub(crate) fn ask(&self, work: MaintenanceWork, check: impl Fn() -> Result<()>) -> Result<()> {
        let (reply, result) = mpsc::sync_channel(1);
        let worker = self.worker_of(&work);
        let request = MaintenanceRequest { work, reply };
        let sent = worker.lock().as_ref().is_some_and(|worker| worker.requests.send(request).is_ok());
        if !sent {
            return Err(Error::coded("57P01", "the database is being closed"));
        }
        loop {
            match result.recv_timeout(LOOK_EVERY) {
                Ok(done) => return done,
                Err(mpsc::RecvTimeoutError::Timeout) => check()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::Internal("materialized views are not maintained".to_owned()));
                }
            }
        }
    }

    /// Returns true if there are threads that maintain them.
    pub(crate) fn is_served(&self) -> bool {
        self.maintenance.lock().is_some()
    }

    /// Ends the threads, for the end of a database: transactions that need them fail from then on.
    pub fn stop(&self) {
        for worker in [&self.refreshes, &self.maintenance] {
            let worker = worker.lock().take();
            worker.into_iter().for_each(Worker::stop);
        }
        // The catalog's context has these views.
        *self.catalog.write() = None;
        *self.views.lock() = Arc::default();
    }
}

impl MaterializedViews {
    /// Maintains what depends on the writes of a transaction, in it: here as far as that needs no query.
    fn maintain(&self, transaction: &Arc<Transaction>) -> Result<()> {
        let ask = |first: usize| {
            let work = MaintenanceWork::Maintain(Arc::clone(transaction), first);
            self.ask(work, || Ok(transaction.check_running()?))
        };
        let Some(catalog) = self.catalog.read().clone() else { return ask(0) };
        for (number, view) in self.all().iter().enumerate() {
            if catalog.table(&view.name).is_err() || !view.is_written(&catalog, transaction) {
                continue;
            }
            match &view.incremental {
                Some(incremental) => incremental.maintain(transaction)?,
                None => return ask(number),
            }
        }
        Ok(())
    }
}

impl BeforeCommit for MaterializedViews {
    fn before_commit(
        &self,
        transaction: &Arc<Transaction>,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match self.maintain(transaction) {
            Ok(()) => Ok(()),
            Err(Error::Transactions(error) | Error::Tables(entresol_tables::Error::Transactions(error))) => {
                Err(Box::new(error))
            }
            // Topologies know it by its type.
            Err(Error::Tables(error)) => Err(Box::new(error)),
            Err(error) => Err(Box::new(error)),
        }
    }

    fn may_take_long(&self, transaction: &Transaction) -> bool {
        let Some(catalog) = self.catalog.read().clone() else { return true };
        let views = self.all();
        // Views that are written by the maintenance, on the way.
        let mut written: Vec<&str> = Vec::new();
        for view in views.iter().filter(|view| !view.is_deferred) {
            let reads_written = view.tables.iter().any(|(name, _)| written.contains(&name.as_str()));
            if reads_written || view.is_written(&catalog, transaction) {
                if view.incremental.is_none() {
                    return true;
                }
                written.push(&view.name);
            }
        }
        false
    }
}
