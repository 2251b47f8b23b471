//! Snapshots held by sessions for longer than a look-up, with their holders: row versions that they see
//! cannot be reclaimed.
//!
//! Registered are the transactions of blocks and of planned statements; look-ups of single keys hold theirs for
//! microseconds. A cursor of a block at READ COMMITTED holds one of its own. Beside them a session shows the
//! progress of its load, its VACUUM and its subscriptions, and what it does now. Memory: one weak reference to each open transaction and
//! subscription.

use crate::session::activity::{ActivityLine, ClientConnection, SessionActivity};
use crate::session::loads::{LoadLine, LoadProgress};
use crate::session::subscriptions::{SubscriptionLine, SubscriptionProgress};
use crate::session::vacuums::{VacuumLine, VacuumProgress};
use crate::session::variables::{Client, SessionVariables};
use entresol_transactions::Transaction;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Registry of the sessions of a database, and of the snapshots that they hold. Clones are the same registry.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<Vec<Weak<SessionSnapshots>>>>);

/// Snapshots of one session.
#[derive(Debug)]
pub(crate) struct SessionSnapshots {
    variables: Arc<SessionVariables>,
    open: Mutex<Vec<Snapshot>>,
    /// Its statement, and the connection of its client.
    pub(crate) activity: SessionActivity,
    /// Statement that writes batches of rows.
    load: Mutex<Weak<LoadProgress>>,
    /// VACUUM that runs.
    vacuum: Mutex<Weak<VacuumProgress>>,
    /// Subscriptions that run; several cursors may have one each.
    subscriptions: Mutex<Vec<Weak<SubscriptionProgress>>>,
}

/// Transaction and the time of its registration.
#[derive(Debug)]
struct Snapshot {
    since: Instant,
    transaction: Weak<Transaction>,
}

impl Sessions {
    /// Adds a session; dropping the session removes it.
    pub(crate) fn register(&self, variables: &Arc<SessionVariables>) -> Arc<SessionSnapshots> {
        let session = Arc::new(SessionSnapshots {
            variables: Arc::clone(variables),
            open: Mutex::default(),
            activity: SessionActivity::begin(),
            load: Mutex::default(),
            vacuum: Mutex::default(),
            subscriptions: Mutex::default(),
        });
        let mut sessions = self.0.lock();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&session));
        session
    }

    /// Expires older snapshots; returns their number. Readers of an expired snapshot get "snapshot too old".
    pub fn expire(&self, age_max: Duration) -> usize {
        self.sessions().iter().map(|session| session.expire(age_max)).sum()
    }

    /// Describes the session that holds the snapshot of a transaction: `session 7 of anna for 93 s`. None for
    /// transactions of no session.
    pub(crate) fn holder(&self, transaction: u64) -> Option<String> {
        self.sessions().iter().find_map(|session| session.holder(transaction))
    }

    /// Progress of the statements that write batches of rows.
    pub(crate) fn loads(&self) -> Vec<LoadLine> {
        let line = |session: &Arc<SessionSnapshots>| {
            let progress = session.load.lock().upgrade()?;
            Some(LoadLine::new(session.variables.client(), &progress))
        };
        self.sessions().iter().filter_map(line).collect()
    }

    /// Progress of VACUUM.
    pub(crate) fn vacuums(&self) -> Vec<VacuumLine> {
        let line = |session: &Arc<SessionSnapshots>| {
            let progress = session.vacuum.lock().upgrade()?;
            Some(VacuumLine::new(session.variables.client(), &progress))
        };
        self.sessions().iter().filter_map(line).collect()
    }

    /// Shows the progress of a subscription of a session until that is dropped.
    pub(crate) fn show_subscription(&self, of: &Arc<SessionVariables>, progress: &Arc<SubscriptionProgress>) {
        if let Some(session) = self.sessions().iter().find(|session| Arc::ptr_eq(&session.variables, of)) {
            let mut subscriptions = session.subscriptions.lock();
            subscriptions.retain(|other| other.strong_count() > 0);
            subscriptions.push(Arc::downgrade(progress));
        }
    }

    /// Progress of the subscriptions that run.
    pub(crate) fn subscriptions(&self) -> Vec<SubscriptionLine> {
        let lines = |session: &Arc<SessionSnapshots>| {
            let running = session.subscriptions.lock();
            let running = running.iter().filter_map(Weak::upgrade);
            let line = |progress: Arc<SubscriptionProgress>| {
                SubscriptionLine::new(session.variables.client(), &progress)
            };
            running.map(line).collect::<Vec<SubscriptionLine>>()
        };
        self.sessions().iter().flat_map(lines).collect()
    }

    /// Activities of the sessions of clients, in the order in which they connected.
    pub(crate) fn activities(&self) -> Vec<ActivityLine> {
        let line = |session: &Arc<SessionSnapshots>| {
            let connection = session.activity.connection()?;
            Some(ActivityLine {
                client: session.variables.client(),
                application: session.variables.settings().value("application_name").to_owned(),
                address: connection.address(),
                activity: session.activity.now(),
            })
        };
        self.sessions().iter().filter_map(line).collect()
    }

    /// Client and connection of the session of this number.
    pub(crate) fn connection(&self, process_id: i32) -> Option<(Client, Arc<dyn ClientConnection>)> {
        let sessions = self.sessions();
        let clients = sessions.iter().map(|session| (session, session.variables.client()));
        let mut connected =
            clients.filter_map(|(session, client)| Some((client, session.activity.connection()?)));
        connected.find(|(client, _)| client.process_id == process_id)
    }

    fn sessions(&self) -> Vec<Arc<SessionSnapshots>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl SessionSnapshots {
    /// Registers a transaction, once.
    pub(crate) fn note(&self, transaction: &Arc<Transaction>) {
        let mut open = self.open.lock();
        open.retain(|other| other.transaction.strong_count() > 0);
        if !open.iter().any(|other| std::ptr::eq(other.transaction.as_ptr(), Arc::as_ptr(transaction))) {
            open.push(Snapshot { since: Instant::now(), transaction: Arc::downgrade(transaction) });
        }
    }

    /// Shows the progress of a statement until that is dropped.
    pub(crate) fn show_load(&self, progress: &Arc<LoadProgress>) {
        *self.load.lock() = Arc::downgrade(progress);
    }

    /// Shows the progress of a VACUUM until that is dropped.
    pub(crate) fn show_vacuum(&self, progress: &Arc<VacuumProgress>) {
        *self.vacuum.lock() = Arc::downgrade(progress);
    }

    fn expire(&self, age_max: Duration) -> usize {
        let mut old = Vec::new();
        self.open.lock().retain(|snapshot| match snapshot.transaction.upgrade() {
            Some(transaction) if snapshot.since.elapsed() > age_max => {
                old.push(transaction);
                false
            }
            transaction => transaction.is_some(),
        });
        // A commit in flight is waited for here.
        old.iter().filter(|transaction| transaction.expire()).count()
    }

    fn holder(&self, transaction: u64) -> Option<String> {
        let open = self.open.lock();
        let is_it =
            |snapshot: &&Snapshot| snapshot.transaction.upgrade().is_some_and(|one| one.id() == transaction);
        let seconds = open.iter().find(is_it)?.since.elapsed().as_secs();
        let Client { user, process_id, .. } = self.variables.client();
        Some(match process_id {
            // A session of the library has none.
            0 => format!("a session of {user} in this process for {seconds} s"),
            pid => format!("session {pid} of {user} for {seconds} s"),
        })
    }
}
