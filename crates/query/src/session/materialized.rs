//! The materialized views of a database while it is open, as all its sessions know them.

use crate::error::{Error, Result};
use entresol_tables::{Catalog, RelationKind, Table};
use entresol_transactions::{BeforeCommit, Transaction};
use parking_lot::Mutex;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Suffix of the view with the query.
const QUERY_SUFFIX: &str = "_query";
/// Prefix of the owner of the tables.
const OWNER_PREFIX: &str = "materialized view ";

/// Owner of the table of the guards.
pub(crate) const GUARDS_OWNER: &str = "the materialized views";

/// Name of the view with the query of a materialized view.
pub(crate) fn query_view(name: &str) -> String {
    format!("{name}{QUERY_SUFFIX}")
}

/// Owner of the table of a materialized view.
pub(crate) fn owner_of(name: &str) -> String {
    format!("{OWNER_PREFIX}{name}")
}

/// Name of the materialized view that a table holds.
pub(crate) fn held_by(table: &Table) -> Option<&str> {
    table.definition().owner.as_deref()?.strip_prefix(OWNER_PREFIX)
}

/// Refuses to change or drop the table of a materialized view, and that of the guards.
pub(crate) fn check_ordinary(table: &Table) -> Result<()> {
    if let Some(view) = held_by(table) {
        let message = format!("{view} is a materialized view: use DROP MATERIALIZED VIEW {view}");
        return Err(Error::coded("42809", message));
    }
    if table.definition().owner.as_deref() == Some(GUARDS_OWNER) {
        let message = format!("table {} belongs to {GUARDS_OWNER}", table.name());
        return Err(Error::coded("42501", message));
    }
    Ok(())
}

/// Name of the materialized view whose query a view has.
pub(crate) fn query_of(catalog: &Catalog, view: &str) -> Option<String> {
    let name = view.strip_suffix(QUERY_SUFFIX)?;
    let table = catalog.table(name).ok()?;
    held_by(&table).map(str::to_owned)
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

/// Materialized view that is maintained.
#[derive(Debug, Clone)]
pub(crate) struct MaintainedView {
    pub(crate) name: String,
    /// Tables that it reads. Of each the columns of the view that are plain columns of it: place in the view,
    /// and name in the table.
    pub(crate) tables: Vec<(String, Vec<(usize, String)>)>,
}

/// Work of the thread that maintains the views.
pub(crate) enum MaintenanceWork {
    /// Maintain what depends on the writes of a transaction, in it.
    Maintain(Arc<Transaction>),
    /// Compute a view anew, in a transaction of its own.
    Fill(String),
}

/// Work, and where its result is waited for.
pub(crate) struct MaintenanceRequest {
    pub(crate) work: MaintenanceWork,
    pub(crate) reply: mpsc::SyncSender<Result<()>>,
}

/// Wait for the result of work until cancellation is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Materialized views of a database. Clones are the same.
#[derive(Clone, Default)]
pub struct MaterializedViews {
    /// In the order of their creation.
    views: Arc<Mutex<Vec<MaintainedView>>>,
    /// Requests to the thread that maintains them; it ends when this is gone.
    requests: Arc<Mutex<Option<mpsc::Sender<MaintenanceRequest>>>>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
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
        self.views.lock().push(view);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.views.lock().retain(|view| view.name != name);
    }

    /// All views, in the order of their creation.
    pub(crate) fn all(&self) -> Vec<MaintainedView> {
        self.views.lock().clone()
    }

    /// Passes transactions to a thread from now on.
    pub(crate) fn serve(&self, requests: mpsc::Sender<MaintenanceRequest>, thread: JoinHandle<()>) {
        *self.requests.lock() = Some(requests);
        *self.thread.lock() = Some(thread);
    }

    /// Lets the thread do some work, and waits for that while `check` lets it.
    pub(crate) fn ask(&self, work: MaintenanceWork, check: impl Fn() -> Result<()>) -> Result<()> {
        let (reply, result) = mpsc::sync_channel(1);
        let request = MaintenanceRequest { work, reply };
        let sent = self.requests.lock().as_ref().is_some_and(|requests| requests.send(request).is_ok());
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

    /// Returns true if there is a thread that maintains them.
    pub(crate) fn is_served(&self) -> bool {
        self.requests.lock().is_some()
    }

    /// Ends the thread, for the end of a database: transactions that need it fail from then on.
    pub fn stop(&self) {
        self.requests.lock().take();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that maintains materialized views panicked");
        }
    }
}

impl BeforeCommit for MaterializedViews {
    fn before_commit(
        &self,
        transaction: &Arc<Transaction>,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let work = MaintenanceWork::Maintain(Arc::clone(transaction));
        match self.ask(work, || Ok(transaction.check_running()?)) {
            Ok(()) => Ok(()),
            Err(Error::Transactions(error) | Error::Tables(entresol_tables::Error::Transactions(error))) => {
                Err(Box::new(error))
            }
            Err(error) => Err(Box::new(error)),
        }
    }
}
