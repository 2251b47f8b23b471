//! Running one statement, and the simple protocol: a query text of statements.

use super::{Connection, Failure};
use crate::error::{Report, failed_block};
use crate::metrics::add;
use crate::socket::{End, SEND_BYTES};
use crate::values::Format;
use crate::values::rows;
use crate::values::types::describe;
use entresol::query::datafusion::common::ScalarValue;
use entresol::query::datafusion::execution::SendableRecordBatchStream;
use entresol::query::{
    Error as QueryError, FastPathResult, Outcome, ParsedStatement, PreparedStatement, ResultCursor,
    SessionStatement, StatementKind, StatementText, statements,
};
use std::time::Instant;

/// Rows that are being sent.
pub(super) struct Rows {
    pub(super) cursor: ResultCursor,
    /// Verb for the tag at the end, if these are rows that a write returned.
    pub(super) verb: Option<&'static str>,
    /// Number of rows sent.
    pub(super) sent: u64,
}

/// Result of a statement.
pub(super) enum StatementOutput {
    Rows(Rows),
    Done(String),
}

impl StatementOutput {
    pub(super) fn rows(stream: SendableRecordBatchStream, verb: Option<&'static str>) -> StatementOutput {
        StatementOutput::Rows(Rows::new(ResultCursor::new(stream), verb))
    }
}

impl Rows {
    pub(super) fn new(cursor: ResultCursor, verb: Option<&'static str>) -> Rows {
        Rows { cursor, verb, sent: 0 }
    }
}

impl Connection {
    /// Runs the statements of a query text.
    pub(super) async fn query(&mut self, text: &str) -> Result<(), End> {
        // The unnamed statement and portal belong to the extended protocol, which this ends.
        self.portals.remove("");
        self.statements.remove("");
        let statements = statements(text);
        if statements.is_empty() {
            self.socket.out.empty_query();
        }
        let together =
            statements.len() > 1 && statements.iter().all(|statement| statement.kind.shares_transaction());
        // Boxed, as the futures of statements are large: each caller would have room for them on its stack.
        match Box::pin(self.run_statements(text, &statements, together)).await {
            Ok(()) => {}
            Err(Failure::End(end)) => return Err(end),
            Err(Failure::Report(report)) => self.failed(report).await,
        }
        self.ready().await
    }

    async fn run_statements(
        &mut self,
        text: &str,
        statements: &[StatementText<'_>],
        together: bool,
    ) -> Result<(), Failure> {
        for statement in statements {
            if together {
                self.begin_implicit().await?;
            }
            let started = self.begin_statement(statement.sql);
            let mut kind = statement.kind;
            let running = Box::pin(self.run_statement(statement, &mut kind));
            let done =
                running.await.map_err(|failure| failure.positioned(text, statement.start, statement.sql));
            self.count(kind, started, &done);
            done?;
        }
        self.commit_implicit().await
    }

    /// Runs a statement; `kind` is by its first words until it is parsed.
    async fn run_statement(
        &mut self,
        statement: &StatementText<'_>,
        kind: &mut StatementKind,
    ) -> Result<(), Failure> {
        let sql = statement.sql;
        self.refresh_role();
        self.admit(*kind)?;
        if matches!(kind, StatementKind::Read | StatementKind::Write)
            && let Some((prepared, values)) = self.statement_cache.find(&mut self.session, sql)
        {
            *kind = prepared.kind();
            return self.answer(&prepared, &values).await;
        }
        let parsed = self.parse_text(sql).await?;
        *kind = parsed.kind();
        if self.answered(*kind) {
            return Ok(());
        }
        let prepared = match parsed {
            ParsedStatement::Copy(copy) => return Box::pin(self.copy(&copy)).await,
            ParsedStatement::Role(role) => return Box::pin(self.run_role_statement(&role)).await,
            ParsedStatement::Session(parsed) => Box::pin(self.prepare(parsed, &[])).await?,
        };
        if self.deallocated(&prepared) {
            return Ok(());
        }
        if !prepared.parameters().is_empty() {
            return Err(Report::error("42P02", "there is no parameter $1").into());
        }
        self.answer(&prepared, &[]).await
    }

    /// Parses a statement, after what the client waits for was sent.
    pub(super) async fn parse_text(&mut self, sql: &str) -> Result<ParsedStatement, Failure> {
        self.socket.send_deferred(&mut self.guard).await?;
        Ok(self.session.parse(sql)?)
    }

    /// Runs a statement and sends its result.
    async fn answer(&mut self, prepared: &PreparedStatement, values: &[ScalarValue]) -> Result<(), Failure> {
        match self.start(prepared, values).await? {
            StatementOutput::Done(tag) => self.socket.out.complete(&tag),
            StatementOutput::Rows(mut rows) => {
                self.socket.out.columns(describe(rows.cursor.schema(), &[]));
                self.send(&mut rows, &[], usize::MAX).await?;
                let tag = rows_tag(prepared.kind(), &rows);
                self.socket.out.complete(&tag);
            }
        }
        Ok(())
    }

    /// Counts a statement that ended, with success or not.
    pub(super) fn count(&mut self, kind: StatementKind, started: Instant, done: &Result<(), Failure>) {
        let metrics = &self.shared.metrics;
        let code = match done {
            Ok(()) => None,
            Err(Failure::Report(report)) => Some(report.code),
            Err(Failure::End(End::Fatal(report))) => Some(report.code),
            Err(Failure::End(End::Gone)) => {
                add(&metrics.vanished_total, 1);
                None
            }
        };
        if code == Some("57014") {
            add(&metrics.cancelled_total, 1);
        }
        metrics.statement(kind, code, started.elapsed());
    }

    /// Checks that a statement may run now: a block that has failed accepts its end only.
    pub(super) fn admit(&self, kind: StatementKind) -> Result<(), Failure> {
        if self.session.is_failed() && !kind.ends_failure() { Err(failed_block().into()) } else { Ok(()) }
    }

    /// Prepares a statement, with limits.
    pub(super) async fn prepare(
        &mut self,
        parsed: SessionStatement,
        types: &[Option<entresol::arrow::datatypes::DataType>],
    ) -> Result<PreparedStatement, Failure> {
        let preparing = self.session.prepare_statement(parsed, types);
        Ok(self.socket.guarded(&mut self.guard, preparing).await??)
    }

    /// Answers BEGIN and COMMIT where PostgreSQL only warns.
    pub(super) fn answered(&mut self, kind: StatementKind) -> bool {
        let warning = match kind {
            StatementKind::Begin
                if self.session.in_transaction() && !self.implicit && !self.session.is_failed() =>
            {
                Some(("25001", "there is already a transaction in progress", "BEGIN"))
            }
            StatementKind::Commit if !self.session.in_transaction() => {
                Some(("25P01", "there is no transaction in progress", "COMMIT"))
            }
            StatementKind::Rollback if !self.session.in_transaction() => {
                Some(("25P01", "there is no transaction in progress", "ROLLBACK"))
            }
            _ => None,
        };
        let Some((code, message, tag)) = warning else { return false };
        self.socket.out.report(&Report::warning(code, message));
        self.socket.out.complete(tag);
        true
    }

    /// DEALLOCATE of one statement that was prepared by message: both kinds of names are the same to clients.
    pub(super) fn deallocated(&mut self, prepared: &PreparedStatement) -> bool {
        let Some(name) = prepared.deallocated() else { return false };
        let found = !name.is_empty() && self.statements.remove(name).is_some();
        if found {
            self.socket.out.complete("DEALLOCATE");
        }
        found
    }

    /// Starts a statement: its first rows are not computed yet if it is a query.
    pub(super) async fn start(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<StatementOutput, Failure> {
        let kind = prepared.kind();
        if matches!(kind, StatementKind::Definition | StatementKind::Begin) {
            // Neither can share a transaction that the server began: BEGIN may ask for another isolation.
            self.commit_implicit().await?;
        }
        if matches!(kind, StatementKind::Commit | StatementKind::Rollback) {
            self.portals.clear();
            self.implicit = false;
        }
        if kind == StatementKind::Cursor
            && let Some(given) = Box::pin(self.use_portal(prepared)).await?
        {
            return Ok(given);
        }
        if prepared.runs_on_fast_path() {
            if let Some(ran) = self.session.run_on_fast_path(prepared, values) {
                return Ok(self.fast_path_output(kind, ran?));
            }
        } else {
            self.socket.send_deferred(&mut self.guard).await?
        }
        let alone = !self.session.in_transaction();
        let running = self.session.run_prepared(prepared, values);
        let outcome = match self.socket.guarded(&mut self.guard, running).await? {
            Ok(outcome) => outcome,
            // As in PostgreSQL: the tag says how the block ended.
            Err(QueryError::RolledBack(_)) => {
                add(&self.shared.metrics.rollbacks_total, 1);
                return Ok(StatementOutput::Done("ROLLBACK".to_owned()));
            }
            Err(error) => return Err(error.into()),
        };
        if kind == StatementKind::RollbackTo {
            self.close_younger_portals();
        }
        let metrics = &self.shared.metrics;
        if (alone && kind == StatementKind::Write) || kind == StatementKind::Commit {
            add(&metrics.commits_total, 1);
        }
        if kind == StatementKind::Rollback {
            add(&metrics.rollbacks_total, 1);
        }
        Ok(match outcome {
            Outcome::Rows(stream) => StatementOutput::rows(stream, None),
            Outcome::Returned { verb, rows, returned } => {
                add(&metrics.rows_written_total, rows);
                StatementOutput::rows(returned, Some(verb))
            }
            Outcome::Count { verb, rows } => {
                if kind == StatementKind::Write {
                    add(&metrics.rows_written_total, rows);
                }
                StatementOutput::Done(count_tag(verb, rows))
            }
            Outcome::Done { verb } => {
                if matches!(verb, "DEALLOCATE ALL" | "DISCARD ALL") {
                    // Statements that were prepared by message are meant too.
                    self.statements.clear();
                }
                StatementOutput::Done(verb.to_owned())
            }
        })
    }

    /// Result of a statement that had nothing to wait for.
    fn fast_path_output(&mut self, kind: StatementKind, ran: FastPathResult) -> StatementOutput {
        let metrics = &self.shared.metrics;
        match ran {
            FastPathResult::Rows(schema, batch) => {
                StatementOutput::Rows(Rows::new(ResultCursor::of_batch(schema, batch), None))
            }
            FastPathResult::Count(verb, rows) => {
                if kind == StatementKind::Write && !self.session.in_transaction() {
                    add(&metrics.commits_total, 1);
                }
                add(&metrics.rows_written_total, rows);
                StatementOutput::Done(count_tag(verb, rows))
            }
        }
    }

    /// Sends rows as they are computed, at most `rows_max`; true if there may be more.
    pub(super) async fn send(
        &mut self,
        sending: &mut Rows,
        formats: &[Format],
        rows_max: usize,
    ) -> Result<bool, Failure> {
        let mut left = rows_max;
        while left > 0 {
            let cursor = &mut sending.cursor;
            let Some((batch, from)) = cursor.at_hand() else {
                if cursor.is_over() || !self.socket.guarded_rows(&mut self.guard, cursor.fill()).await?? {
                    return Ok(false);
                }
                continue;
            };
            let zone = self.settings.zone;
            let written =
                rows::write(batch, formats, zone, from, left, SEND_BYTES, &mut self.socket.out.bytes)?;
            cursor.consume(written);
            sending.sent += written as u64;
            add(&self.shared.metrics.rows_sent_total, written as u64);
            left -= written;
            if left > 0 && self.socket.out.bytes.len() >= SEND_BYTES {
                self.socket.flush_guarded(&mut self.guard).await?;
            }
        }
        Ok(true)
    }
}

/// `INSERT 0 5`, `UPDATE 5`; what CREATE TABLE AS made is `SELECT 5`.
pub(super) fn count_tag(verb: &str, rows: u64) -> String {
    match verb {
        "INSERT" => format!("INSERT 0 {rows}"),
        "CREATE TABLE AS" => format!("SELECT {rows}"),
        verb => format!("{verb} {rows}"),
    }
}

/// The tag of a statement that gave rows.
pub(super) fn rows_tag(kind: StatementKind, rows: &Rows) -> String {
    match (rows.verb, kind) {
        (Some(verb), _) => count_tag(verb, rows.sent),
        (None, StatementKind::Show) => "SHOW".to_owned(),
        (None, StatementKind::Explain) => "EXPLAIN".to_owned(),
        (None, StatementKind::Cursor) => format!("FETCH {}", rows.sent),
        _ => format!("SELECT {}", rows.sent),
    }
}
