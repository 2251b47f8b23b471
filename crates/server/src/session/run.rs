//! Running one statement, and the simple protocol: a query text of statements.

use std::time::Instant;

use entresol::query::datafusion::common::ScalarValue;
use entresol::query::datafusion::execution::SendableRecordBatchStream;
use entresol::query::{Error as QueryError, Outcome, Prepared, ResultCursor, Short};

use super::{Connection, Failure};
use crate::error::{Report, failed_block};
use crate::metrics::add;
use crate::security::privileges;
use crate::socket::{End, SEND_BYTES};
use crate::values::Format;
use crate::values::rows;
use crate::values::types::describe;
use crate::wire::split::{Kind, Piece, split};

/// Rows that are being sent.
pub(super) struct Rows {
    pub(super) portions: ResultCursor,
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
    pub(super) fn new(portions: ResultCursor, verb: Option<&'static str>) -> Rows {
        Rows { portions, verb, sent: 0 }
    }
}

impl Connection {
    /// Runs the statements of a query text.
    pub(super) async fn query(&mut self, text: &str) -> Result<(), End> {
        // The unnamed statement and portal belong to the extended protocol, which this ends.
        self.portals.remove("");
        self.statements.remove("");
        let pieces = split(text);
        if pieces.is_empty() {
            self.socket.out.empty_query();
        }
        let together = pieces.len() > 1 && pieces.iter().all(|piece| piece.kind.shares_transaction());
        match self.run_pieces(text, &pieces, together).await {
            Ok(()) => {}
            Err(Failure::End(end)) => return Err(end),
            Err(Failure::Report(report)) => self.failed(report).await,
        }
        self.ready().await
    }

    async fn run_pieces(&mut self, text: &str, pieces: &[Piece<'_>], together: bool) -> Result<(), Failure> {
        for piece in pieces {
            if together {
                self.begin_implicit().await?;
            }
            let started = self.begin_statement();
            let done = self.run_piece(text, piece).await;
            self.count(piece.kind, started, &done);
            done?;
        }
        self.commit_implicit().await
    }

    async fn run_piece(&mut self, text: &str, piece: &Piece<'_>) -> Result<(), Failure> {
        let before = || text[..piece.at].chars().count();
        let positioned = |failure| match failure {
            Failure::Report(report) if report.code == "42601" => {
                Failure::Report(report.positioned(piece.sql, before()))
            }
            other => other,
        };
        self.refresh_role();
        if piece.kind == Kind::Copy {
            let statement = self.parse_copy(piece.sql).map_err(positioned)?;
            return self.copy(&statement).await;
        }
        if self.answered(piece.sql, piece.kind) {
            return Ok(());
        }
        if let Some(statement) = self.about_roles(piece.sql, piece.kind).map_err(positioned)? {
            return self.run_role_statement(statement).await;
        }
        if let Some((prepared, values)) = self.known_shape(piece).map_err(positioned)? {
            return self.answer(&prepared, piece.kind, &values).await;
        }
        let prepared = self.prepare(piece.sql, piece.kind, &[]).await.map_err(positioned)?;
        if !prepared.parameters().is_empty() {
            return Err(Report::error("42P02", "there is no parameter $1").into());
        }
        self.answer(&prepared, piece.kind, &[]).await
    }

    /// The prepared statement of the same fingerprint, parsed before or now, with the literals of this one.
    fn known_shape(&mut self, piece: &Piece<'_>) -> Result<Option<(Prepared, Vec<ScalarValue>)>, Failure> {
        if !matches!(piece.kind, Kind::Read | Kind::Write) || !self.role.administrator {
            return Ok(None);
        }
        self.admit_now(piece.kind)?;
        Ok(self.texts.find(&mut self.session, piece.sql))
    }

    /// Runs a statement and sends its result.
    async fn answer(
        &mut self,
        prepared: &Prepared,
        kind: Kind,
        values: &[ScalarValue],
    ) -> Result<(), Failure> {
        match self.start(prepared, kind, values).await? {
            StatementOutput::Done(tag) => self.socket.out.complete(&tag),
            StatementOutput::Rows(mut rows) => {
                self.socket.out.columns(describe(rows.portions.schema(), &[]));
                self.send(&mut rows, &[], usize::MAX).await?;
                let tag = rows_tag(kind, &rows);
                self.socket.out.complete(&tag);
            }
        }
        Ok(())
    }

    /// Counts a statement that ended, with success or not.
    pub(super) fn count(&mut self, kind: Kind, started: Instant, done: &Result<(), Failure>) {
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

    /// Checks that the role may run a statement, and the block is open for it.
    pub(super) fn admit(&self, sql: &str, kind: Kind) -> Result<(), Failure> {
        self.admit_now(kind)?;
        privileges::check(&self.role, sql, kind)?;
        if kind == Kind::Setting && !self.role.administrator {
            // The statement of EXECUTE was checked when it was prepared, but grants end.
            if let Some(executed) = self.session.executed(sql) {
                privileges::check_tables(&self.role, executed)?;
            }
        }
        Ok(())
    }

    /// Checks that a statement may run now: a block that has failed accepts its end only.
    pub(super) fn admit_now(&self, kind: Kind) -> Result<(), Failure> {
        if self.session.is_failed() && !kind.ends_failure() { Err(failed_block().into()) } else { Ok(()) }
    }

    /// Prepares a statement, with limits.
    pub(super) async fn prepare(
        &mut self,
        sql: &str,
        kind: Kind,
        types: &[Option<entresol::arrow::datatypes::DataType>],
    ) -> Result<Prepared, Failure> {
        self.admit(sql, kind)?;
        self.socket.send_deferred(&mut self.guard).await?;
        let preparing = self.session.prepare(sql, types);
        Ok(self.socket.guarded(&mut self.guard, preparing).await??)
    }

    /// Answers statements that need no session: BEGIN and COMMIT where PostgreSQL only warns, and DEALLOCATE of
    /// statements that were prepared by message.
    pub(super) fn answered(&mut self, sql: &str, kind: Kind) -> bool {
        let warning = match kind {
            Kind::Begin if self.session.in_transaction() && !self.implicit && !self.session.is_failed() => {
                Some(("25001", "there is already a transaction in progress", "BEGIN"))
            }
            Kind::Commit if !self.session.in_transaction() => {
                Some(("25P01", "there is no transaction in progress", "COMMIT"))
            }
            Kind::Rollback if !self.session.in_transaction() => {
                Some(("25P01", "there is no transaction in progress", "ROLLBACK"))
            }
            Kind::Setting if !self.session.is_failed() => return self.deallocated(sql),
            _ => None,
        };
        let Some((code, message, tag)) = warning else { return false };
        self.socket.out.report(&Report::warning(code, message));
        self.socket.out.complete(tag);
        true
    }

    /// DEALLOCATE of one statement that was prepared by message: both kinds of names are the same to clients.
    fn deallocated(&mut self, sql: &str) -> bool {
        let Some(name) = deallocated_name(sql) else { return false };
        let found = !name.is_empty() && self.statements.remove(&name).is_some();
        if found {
            self.socket.out.complete("DEALLOCATE");
        }
        found
    }

    /// Starts a statement: its first rows are not computed yet if it is a query.
    pub(super) async fn start(
        &mut self,
        prepared: &Prepared,
        kind: Kind,
        values: &[ScalarValue],
    ) -> Result<StatementOutput, Failure> {
        if matches!(kind, Kind::Definition | Kind::Begin) {
            // Neither can share a transaction that the server began: BEGIN may ask for another isolation.
            self.commit_implicit().await?;
        }
        if matches!(kind, Kind::Commit | Kind::Rollback) {
            self.portals.clear();
            self.implicit = false;
        }
        if kind == Kind::Cursor
            && let Some(given) = Box::pin(self.use_portal(prepared)).await?
        {
            return Ok(given);
        }
        if prepared.is_short() {
            if let Some(ran) = self.session.run_short(prepared, values) {
                return Ok(self.short(kind, ran?));
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
        if kind == Kind::RollbackTo {
            self.close_younger_portals();
        }
        let metrics = &self.shared.metrics;
        if (alone && kind == Kind::Write) || kind == Kind::Commit {
            add(&metrics.commits_total, 1);
        }
        if kind == Kind::Rollback {
            add(&metrics.rollbacks_total, 1);
        }
        Ok(match outcome {
            Outcome::Rows(stream) => StatementOutput::rows(stream, None),
            Outcome::Returned { verb, rows, returned } => {
                add(&metrics.rows_written_total, rows);
                StatementOutput::rows(returned, Some(verb))
            }
            Outcome::Count { verb, rows } => {
                if kind == Kind::Write {
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
    fn short(&mut self, kind: Kind, ran: Short) -> StatementOutput {
        let metrics = &self.shared.metrics;
        match ran {
            Short::Rows(schema, batch) => {
                StatementOutput::Rows(Rows::new(ResultCursor::of_batch(schema, batch), None))
            }
            Short::Count(verb, rows) => {
                if kind == Kind::Write && !self.session.in_transaction() {
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
            let portions = &mut sending.portions;
            let Some((batch, from)) = portions.at_hand() else {
                if portions.is_over() || !self.socket.guarded(&mut self.guard, portions.fill()).await?? {
                    return Ok(false);
                }
                continue;
            };
            let zone = self.settings.zone;
            let written =
                rows::write(batch, formats, zone, from, left, SEND_BYTES, &mut self.socket.out.bytes)?;
            portions.consume(written);
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

/// The name in `DEALLOCATE [PREPARE] name`, as identifiers fold.
pub(super) fn deallocated_name(sql: &str) -> Option<String> {
    let word = |text: &'static str, sql: &str| {
        let (word, rest) = sql.trim_start().split_at_checked(text.len())?;
        let ends = rest.starts_with(|c: char| c.is_whitespace() || c == '"');
        (ends && word.eq_ignore_ascii_case(text)).then(|| rest.trim_start().to_owned())
    };
    let rest = word("deallocate", sql)?;
    let rest = word("prepare", &rest).unwrap_or(rest);
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"').map(|name| name.replace("\"\"", "\"")),
        None => Some(rest.trim_end().to_lowercase()).filter(|name| name != "all"),
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
pub(super) fn rows_tag(kind: Kind, rows: &Rows) -> String {
    match (rows.verb, kind) {
        (Some(verb), _) => count_tag(verb, rows.sent),
        (None, Kind::Show) => "SHOW".to_owned(),
        (None, Kind::Explain) => "EXPLAIN".to_owned(),
        (None, Kind::Cursor) => format!("FETCH {}", rows.sent),
        _ => format!("SELECT {}", rows.sent),
    }
}

#[cfg(test)]
mod tests {
    use super::deallocated_name;

    #[test]
    fn names_of_deallocate_fold() {
        let name = |sql| deallocated_name(sql);
        assert_eq!(name("DEALLOCATE _Pg3_0").as_deref(), Some("_pg3_0"));
        assert_eq!(name("deallocate prepare \"A\"\"b\"").as_deref(), Some("A\"b"));
        assert_eq!(name("DEALLOCATE ALL"), None);
        assert_eq!(name("SET a = 1"), None);
    }
}
