//! Activities of the sessions of clients, for `pg_stat_activity`, and the connections by which others stop them.
//!
//! Memory: the first [`SHOWN_QUERY_BYTES`] of a session's last statement.

use crate::session::variables::Client;
use chrono::Utc;
use parking_lot::Mutex;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes of a statement that are shown, PostgreSQL's default of `track_activity_query_size`.
pub const SHOWN_QUERY_BYTES: usize = 1024;

/// Connection of a client, as the sessions of others see it.
pub trait ClientConnection: fmt::Debug + Send + Sync {
    /// Address of the client; none of one that has no address, or that is gone.
    fn address(&self) -> Option<SocketAddr>;

    /// Stops the statement that runs, as a cancel request does.
    fn cancel(&self);

    /// Ends the connection: its statement stops, and its transaction is rolled back.
    fn terminate(&self);
}

/// Phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Running a statement.
    Active,
    /// Waiting for a statement outside of a block.
    #[default]
    Idle,
    /// Waiting for a statement inside of a block.
    InTransaction,
    /// Waiting for the end of a block that has failed.
    Failed,
}

impl Phase {
    /// Name of the phase in `pg_stat_activity`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Active => "active",
            Phase::Idle => "idle",
            Phase::InTransaction => "idle in transaction",
            Phase::Failed => "idle in transaction (aborted)",
        }
    }
}

/// Activity of one session. Times are microseconds since 1970.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity {
    pub(crate) phase: Phase,
    pub(crate) connected_at: i64,
    /// Begin of the open transaction.
    pub(crate) transaction_at: Option<i64>,
    /// Begin of the last statement.
    pub(crate) statement_at: Option<i64>,
    /// Time of the last change of the phase.
    pub(crate) changed_at: i64,
    /// Text of the last statement.
    pub(crate) query: String,
}

/// Activity of a session, shared with those who ask.
#[derive(Debug)]
pub(crate) struct SessionActivity {
    now: Mutex<Activity>,
    /// None of a session of this process.
    connection: Mutex<Option<Arc<dyn ClientConnection>>>,
}

/// Line of `pg_stat_activity`.
pub(crate) struct ActivityLine {
    pub(crate) client: Client,
    pub(crate) application: String,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) activity: Activity,
}

impl SessionActivity {
    /// Activity of a session that begins now.
    pub(crate) fn begin() -> SessionActivity {
        let now = now_us();
        let activity = Activity { connected_at: now, changed_at: now, ..Activity::default() };
        SessionActivity { now: Mutex::new(activity), connection: Mutex::default() }
    }

    /// Notes that a statement begins.
    pub(crate) fn begin_statement(&self, text: &str) {
        let at = now_us();
        let mut now = self.now.lock();
        now.phase = Phase::Active;
        now.transaction_at = now.transaction_at.or(Some(at));
        now.statement_at = Some(at);
        now.changed_at = at;
        now.query.clear();
        now.query.push_str(&text[..text.floor_char_boundary(SHOWN_QUERY_BYTES)]);
    }

    /// Notes that the session waits for the next statement.
    pub(crate) fn wait(&self, phase: Phase) {
        let mut now = self.now.lock();
        if phase == Phase::Idle {
            now.transaction_at = None;
        }
        if now.phase != phase {
            now.phase = phase;
            now.changed_at = now_us();
        }
    }

    /// Activity now.
    pub(crate) fn now(&self) -> Activity {
        self.now.lock().clone()
    }

    /// Sets the connection of the session's client.
    pub(crate) fn connect(&self, connection: Arc<dyn ClientConnection>) {
        *self.connection.lock() = Some(connection);
    }

    /// Connection of the session's client.
    pub(crate) fn connection(&self) -> Option<Arc<dyn ClientConnection>> {
        self.connection.lock().clone()
    }
}

fn now_us() -> i64 {
    Utc::now().timestamp_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_begins_with_its_first_statement() {
        let session = SessionActivity::begin();
        assert_eq!((session.now().phase, session.now().transaction_at), (Phase::Idle, None));
        session.begin_statement("BEGIN");
        session.wait(Phase::InTransaction);
        let began = session.now().transaction_at.unwrap();
        session.begin_statement("SELECT 1");
        let now = session.now();
        assert_eq!((now.phase, now.transaction_at), (Phase::Active, Some(began)));
        assert!(now.statement_at.unwrap() >= began);
        session.wait(Phase::Idle);
        assert_eq!((session.now().transaction_at, session.now().query.as_str()), (None, "SELECT 1"));
    }

    #[test]
    fn a_long_statement_is_cut_between_characters() {
        let session = SessionActivity::begin();
        session.begin_statement(&format!("x{}", "é".repeat(SHOWN_QUERY_BYTES)));
        let shown = session.now().query;
        assert_eq!((shown.len(), shown.chars().count()), (SHOWN_QUERY_BYTES - 1, SHOWN_QUERY_BYTES / 2));
    }
}
