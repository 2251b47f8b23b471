//! A connection after its start: messages in, statements run, answers out.
//!
//! ```text
//!            Query                        Parse, Bind, …               an error
//!   idle ──────────▶ statements, ready    ───────────▶ extended ──────────────▶ skipping to Sync
//!    ▲                      │                            │ Sync                       │ Sync
//!    └──────────────────────┴────────────────────────────┴────────────────────────────┘
//! ```
//!
//! **Implicit transactions.** The statements of one query text, and those between two Syncs, are one
//! transaction as in PostgreSQL, if they are queries and writes only: the server opens a block and commits it
//! at the end. A single statement needs none; it is run again after conflicts. A definition commits the
//! statements before it and runs alone.

mod copy;
mod extended;
mod portals;
mod roles;
mod run;
pub(crate) mod settings;
mod statement_cache;

use crate::clients::ClientRegistration;
use crate::error::Report;
use crate::metrics::add;
use crate::security::roles::Role;
use crate::server::{Phase, ServerState};
use crate::socket::{End, Guard, Interrupt, Socket, violation};
use crate::startup::StartedConnection;
use crate::wire::backend::Status;
use crate::wire::frontend::{self, Frontend};
use entresol::query::Error as QueryError;
use entresol::query::Session;
use extended::Statement;
use portals::Portal;
use settings::Settings;
use statement_cache::StatementCache;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// A connection that is served.
pub(crate) struct Connection {
    socket: Socket,
    guard: Guard,
    // Dropping it aborts the open transaction, before others are told that the connection is gone.
    session: Session,
    statements: HashMap<String, Arc<Statement>>,
    portals: HashMap<String, Portal>,
    settings: Settings,
    statement_cache: StatementCache,
    role: Role,
    /// Version of the roles at which the role was looked up last; none before the first statement.
    roles_version: Option<u64>,
    /// It connected when there were no roles.
    trusted: bool,
    /// An error was sent: messages are skipped until Sync.
    skipping: bool,
    /// The open block was begun by the server.
    implicit: bool,
    phase: watch::Receiver<Phase>,
    registered: ClientRegistration,
    shared: Arc<ServerState>,
}

/// Reason for not carrying out a message.
pub(crate) enum Failure {
    /// A report is sent; the connection goes on.
    Report(Report),
    /// The connection ends.
    End(End),
}

impl Failure {
    /// Adds to a report its position in the text of the statements, which has `sql` at byte `start`.
    pub(crate) fn positioned(self, text: &str, start: usize, sql: &str) -> Failure {
        match self {
            Failure::Report(report) => Failure::Report(report.positioned(text, start, sql)),
            Failure::End(_) => self,
        }
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Failure {
        Failure::Report(report)
    }
}

impl From<End> for Failure {
    fn from(end: End) -> Failure {
        Failure::End(end)
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Failure {
        match error.interrupt() {
            Some(reason) => reason.into(),
            None => Failure::Report(error.into()),
        }
    }
}

impl From<Interrupt> for Failure {
    fn from(interrupt: Interrupt) -> Failure {
        let code = match interrupt {
            Interrupt::Requested | Interrupt::TimedOut => "57014",
            Interrupt::SnapshotTooOld => "72000",
            Interrupt::Disconnected => return Failure::End(End::Gone),
            Interrupt::Shutdown => return Failure::End(End::Fatal(shutting_down())),
        };
        Failure::Report(Report::error(code, interrupt.to_string()))
    }
}

fn shutting_down() -> Report {
    Report::fatal("57P01", "terminating connection due to administrator command")
}

/// Serves a client until it disconnects, violates the protocol, or the server ends.
pub(crate) async fn serve(started: StartedConnection, shared: Arc<ServerState>) {
    let StartedConnection { socket, registered, role, settings, session, memory: _memory } = started;
    let phase = shared.phase.clone();
    let client = Arc::clone(&registered.client);
    let mut connection = Connection {
        socket,
        guard: Guard { client, phase: phase.clone(), statement: Arc::default() },
        session,
        statements: HashMap::new(),
        portals: HashMap::new(),
        settings,
        statement_cache: StatementCache::default(),
        role,
        roles_version: None,
        trusted: false,
        skipping: false,
        implicit: false,
        phase,
        registered,
        shared,
    };
    connection.session.set_role(connection.role.clone());
    let end = loop {
        match connection.step().await {
            Ok(()) => {}
            Err(end) => break end,
        }
    };
    match end {
        End::Fatal(report) => {
            tracing::debug!(code = report.code, message = %report.message, "connection closed");
            connection.socket.out.report(&report);
            // A client that does not read misses it.
            let patience = connection.shared.limits.startup;
            let _ = tokio::time::timeout(patience, connection.socket.close()).await;
        }
        End::Gone => {
            if connection.session.in_transaction() {
                add(&connection.shared.metrics.rollbacks_total, 1);
            }
        }
    }
}

impl Connection {
    /// Reads a message and handles it.
    async fn step(&mut self) -> Result<(), End> {
        let packet = self.next_packet().await?;
        let message = frontend::decode(packet).map_err(|frontend::Violation(reason)| violation(reason))?;
        if self.skipping && !matches!(message, Frontend::Sync | Frontend::Terminate) {
            return Ok(());
        }
        match message {
            Frontend::Query(text) => Box::pin(self.query(&text)).await,
            Frontend::Sync => self.sync().await,
            Frontend::Flush => self.flush().await,
            Frontend::Terminate => {
                // It may still want to read the answers to earlier messages.
                let patience = self.shared.limits.startup;
                let _ = tokio::time::timeout(patience, self.socket.send_deferred(&mut self.guard)).await;
                Err(End::Gone)
            }
            // The rest of a COPY that failed is skipped, as in PostgreSQL.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => Ok(()),
            Frontend::Password(_) => Err(violation("unexpected password message".to_owned())),
            Frontend::FunctionCall => {
                let report = Report::error("0A000", "function calls by message are not supported");
                self.failed(report).await;
                self.ready().await
            }
            message => {
                let done = self.extended(message).await;
                match done {
                    Ok(()) => Ok(()),
                    Err(Failure::End(end)) => Err(end),
                    Err(Failure::Report(report)) => {
                        self.failed(report).await;
                        self.skipping = true;
                        // As PostgreSQL does: clients that prepare with Flush send Sync once they know of the
                        // error.
                        self.flush().await
                    }
                }
            }
        }
    }

    /// Waits for a message; idle clients end with the server, and with their patience in a transaction.
    async fn next_packet(&mut self) -> Result<frontend::Packet, End> {
        if self.socket.next_kind().is_some() {
            return self.socket.packet(self.shared.limits.packet_bytes).await;
        }
        // Nothing more is there to be done at once: answers that are ready go out only when asked for, as in
        // PostgreSQL, except that a full buffer does not wait.
        let in_transaction = self.session.in_transaction();
        self.settings.refresh(&self.session);
        let limit = if in_transaction { self.settings.idle_in_transaction } else { self.settings.idle };
        let too_long = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let client = Arc::clone(&self.registered.client);
        let phase = &mut self.phase;
        let ending = async {
            // An open transaction may go on while the server waits for it.
            let last = if in_transaction { Phase::Ending } else { Phase::Draining };
            let _ = phase.wait_for(|phase| *phase == last || *phase == Phase::Ending).await;
        };
        tokio::select! {
                    biased;
                    packet = self.socket.packet(self.shared.limits.packet_bytes) => {
                        if let Err(End::Gone) = &packet {
                            add(&self.shared.metrics.vanished_total, 1);
                        }
                        packet
                    }
                    () = too_long => {
                        let (code, message) = if in_transaction {
        ("25P03", "terminating connection due to idle-in-transaction timeout")
        } else {
        ("57P05", "terminating connection due to idle-session timeout")
        };
                        Err(End::Fatal(Report::fatal(code, message)))
                    }
                    () = ending => Err(End::Fatal(shutting_down())),
                    () = client.terminated() => Err(End::Fatal(shutting_down())),
                }
    }

    /// Transaction status of the session.
    fn status(&self) -> Status {
        if !self.session.in_transaction() || self.implicit {
            Status::Idle
        } else if self.session.is_failed() {
            Status::Failed
        } else {
            Status::InTransaction
        }
    }

    /// Tells the client that the next statement may come.
    async fn ready(&mut self) -> Result<(), End> {
        self.registered.in_transaction(self.session.in_transaction());
        self.session.show_waiting();
        let status = self.status();
        for notice in self.session.take_notices() {
            self.socket.out.report(&notice.into());
        }
        self.settings.report_changes(&self.session, &mut self.socket.out);
        self.socket.out.ready(status);
        if self.socket.defer() { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), End> {
        // The statement has ended.
        self.guard.statement = Arc::default();
        match self.socket.flush_answers(&mut self.guard).await {
            Ok(()) => Ok(()),
            Err(Interrupt::Disconnected) => Err(End::Gone),
            Err(Interrupt::Shutdown) => Err(End::Fatal(shutting_down())),
            // A cancel request that came too late.
            Err(_) => self.socket.flush().await,
        }
    }

    /// Reports an error: a block has failed by it, and an implicit one is rolled back.
    async fn failed(&mut self, report: Report) {
        if self.implicit {
            self.implicit = false;
            if let Err(error) = self.plain("ROLLBACK").await {
                tracing::error!(%error, "a transaction could not be rolled back");
            }
        } else {
            self.session.fail(&QueryError::coded(report.code, report.message.clone()));
        }
        if !self.session.in_transaction() {
            self.portals.clear();
        }
        self.socket.out.report(&report);
    }

    /// Commits the implicit transaction, if there is one.
    async fn commit_implicit(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.implicit) {
            self.portals.clear();
            self.plain("COMMIT").await?;
            add(&self.shared.metrics.commits_total, 1);
        }
        Ok(())
    }

    /// Begins an implicit transaction for several statements.
    async fn begin_implicit(&mut self) -> Result<(), Failure> {
        if !self.session.in_transaction() {
            self.plain("BEGIN").await?;
            self.implicit = true;
        }
        Ok(())
    }

    /// Runs a statement about transactions that no client sent: it cannot be interrupted.
    async fn plain(&mut self, sql: &str) -> Result<(), QueryError> {
        let statement = self.session.resume_statement(Arc::default());
        let done = match self.session.prepare(sql, &[]).await {
            Ok(prepared) => self.session.run_prepared(&prepared, &[]).await.map(drop),
            Err(error) => Err(error),
        };
        self.session.resume_statement(statement);
        done
    }

    /// Begins to measure a statement of this text: its limits count from here.
    fn begin_statement(&mut self, text: &str) -> Instant {
        let now = Instant::now();
        self.session.show_statement(text);
        self.settings.refresh(&self.session);
        let limit = self.settings.statement;
        let statement = self.session.begin_statement(limit.and_then(|limit| now.checked_add(limit)));
        self.registered.client.begin_statement(Arc::clone(&statement));
        self.guard.statement = statement;
        now
    }
}
