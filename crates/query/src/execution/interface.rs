//! Calls on a session besides statements: its client, cancellation, notices, and results at once.

use crate::error::Result;
use crate::execution::session::Session;
use crate::privileges::Role;
use crate::session::activity::{ClientConnection, Phase};
use crate::session::cancellation::Canceller;
use crate::session::messages::Notice;
use crate::session::result::{CollectedRows, Outcome, StatementResult};
use crate::session::row_buffer::RowBuffer;
use crate::session::variables::Client;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use entresol_transactions::Cancellation;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Session {
    /// Says who uses the session; for `current_user` and `pg_backend_pid()`.
    pub fn set_client(&mut self, client: Client) {
        *self.core.variables.client.lock() = client;
        self.core.variables.changed();
    }

    /// Says over which connection the client is there: `pg_stat_activity` shows the session from then on.
    pub fn set_connection(&mut self, connection: Arc<dyn ClientConnection>) {
        self.core.snapshots.activity.connect(connection);
    }

    /// Notes that the session runs a statement of this text, for `pg_stat_activity`.
    pub fn show_statement(&self, text: &str) {
        self.core.snapshots.activity.begin_statement(text);
    }

    /// Notes that the session waits for the next statement, for `pg_stat_activity`.
    pub fn show_waiting(&self) {
        let phase = match &self.core.block {
            None => Phase::Idle,
            Some(_) if self.is_failed() => Phase::Failed,
            Some(_) => Phase::InTransaction,
        };
        self.core.snapshots.activity.wait(phase);
    }

    /// Sets the role in whose name statements run from now on; without one, as at first, all is allowed.
    /// Prepared statements are checked again before they run.
    pub fn set_role(&mut self, role: Role) {
        self.core.variables.authority.set(role);
    }

    /// Refuses a statement that writes without being one of the session's, if transactions are READ ONLY by default.
    pub fn check_may_write(&self, verb: &str) -> Result<()> {
        self.check_writing_alone(Some(verb))
    }

    /// A number that is another once a setting or the client has changed.
    pub fn settings_version(&self) -> u64 {
        self.core.variables.changes.load(Ordering::Relaxed)
    }

    /// The notices since they were taken last.
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut self.core.variables.notices.lock())
    }

    /// Begins a statement: what is called until the next one begins is a part of it. It stops at the
    /// deadline, and when it is cancelled through the returned handle.
    pub fn begin_statement(&mut self, deadline: Option<Instant>) -> Arc<Cancellation> {
        if self.core.block.is_none() {
            // Those of a block whose COMMIT was stopped.
            self.end_settings(false);
            self.end_local_settings();
        }
        let statement = Arc::new(Cancellation::new(deadline));
        self.resume_statement(Arc::clone(&statement));
        statement
    }

    /// Goes on with a statement that began before; returns the one that ran until now.
    pub fn resume_statement(&mut self, statement: Arc<Cancellation>) -> Arc<Cancellation> {
        self.core.running.begin(statement)
    }

    /// Begins a statement whose deadline is what the setting `statement_timeout` says.
    pub fn begin_timed_statement(&mut self) {
        let deadline =
            self.time_setting("statement_timeout").and_then(|limit| Instant::now().checked_add(limit));
        self.begin_statement(deadline);
    }

    /// Handle that stops the statements of this session.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(Arc::clone(&self.core.running))
    }

    /// The outcome of a statement with its rows collected, within the memory of the session while they come.
    pub async fn collect(&self, outcome: Outcome) -> Result<StatementResult> {
        Ok(match outcome {
            StatementResult::Rows(rows) => StatementResult::Rows(self.collected(rows).await?),
            StatementResult::Count { verb, rows } => StatementResult::Count { verb, rows },
            StatementResult::Returned { verb, rows, returned } => {
                StatementResult::Returned { verb, rows, returned: self.collected(returned).await? }
            }
            StatementResult::Done { verb } => StatementResult::Done { verb },
        })
    }

    async fn collected(&self, mut rows: SendableRecordBatchStream) -> Result<CollectedRows> {
        let schema = rows.schema();
        let batches = RowBuffer::new(&self.core).filled_from(&mut rows).await?.into_batches();
        // The computed batches know best, e.g. what may be NULL.
        let schema = batches.first().map_or(schema, RecordBatch::schema);
        Ok(CollectedRows { schema, batches })
    }
}
