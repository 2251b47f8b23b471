//! The extended protocol: statements are parsed once, and described. [`super::portals`] binds them to values
//! and runs them.

use super::{Connection, Failure};
use crate::error::Report;
use crate::options::NAMES_MAX;
use crate::socket::{End, violation};
use crate::values::parameter;
use crate::values::types::{arrow_type, describe};
use crate::wire::frontend::{Frontend, Target};
use entresol::arrow::datatypes::{DataType, SchemaRef};
use entresol::query::{
    CopyStatement, ParsedStatement, PreparedStatement, RoleStatement, SHOWN_QUERY_BYTES, StatementKind,
    StatementText, statements,
};
use std::sync::Arc;

/// A parsed statement.
pub(super) struct Statement {
    pub(super) kind: StatementKind,
    /// Text of the statement, for `pg_stat_activity`.
    pub(super) text: Arc<str>,
    pub(super) work: Executable,
    /// Types of the parameters as the client knows them.
    pub(super) types: Vec<u32>,
    /// Columns of the result.
    pub(super) columns: Option<SchemaRef>,
}

/// Work of a statement when it runs.
pub(super) enum Executable {
    /// Nothing: its text has no statement.
    Empty,
    Copy(Box<CopyStatement>),
    Roles(Box<RoleStatement>),
    Session(PreparedStatement),
}

impl Statement {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.work, Executable::Empty)
    }

    /// Types of its parameters, as its plan has them.
    pub(super) fn parameters(&self) -> &[DataType] {
        match &self.work {
            Executable::Session(prepared) => prepared.parameters(),
            _ => &[],
        }
    }
}

impl Connection {
    /// Handles a message of the extended protocol.
    pub(super) async fn extended(&mut self, message: Frontend) -> Result<(), Failure> {
        match message {
            Frontend::Parse { name, sql, types } => self.parse(name, &sql, &types).await,
            Frontend::Bind(bind) => self.bind(bind),
            Frontend::Describe { target: Target::Statement, name } => self.describe_statement(&name),
            Frontend::Describe { target: Target::Portal, name } => self.describe_portal(&name),
            Frontend::Execute { portal, rows_max } => self.execute(&portal, rows_max).await,
            Frontend::Close { target: Target::Statement, name } => {
                self.statements.remove(&name);
                self.socket.out.close_complete();
                Ok(())
            }
            Frontend::Close { target: Target::Portal, name } => {
                self.portals.remove(&name);
                self.socket.out.close_complete();
                Ok(())
            }
            _ => Err(Failure::End(violation("unexpected message".to_owned()))),
        }
    }

    /// Ends the transaction that the statements since the last Sync began.
    pub(super) async fn sync(&mut self) -> Result<(), End> {
        self.skipping = false;
        match self.commit_implicit().await {
            Ok(()) => {}
            Err(Failure::End(end)) => return Err(end),
            Err(Failure::Report(report)) => self.failed(report).await,
        }
        if !self.session.in_transaction() {
            self.portals.clear();
        }
        self.ready().await
    }

    async fn parse(&mut self, name: String, sql: &str, types: &[u32]) -> Result<(), Failure> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Report::error("42P05", message).into());
        }
        if self.statements.len() >= NAMES_MAX {
            let message = format!("too many prepared statements: the maximum is {NAMES_MAX}");
            return Err(Report::error("54000", message).into());
        }
        let statement = match statements(sql).as_slice() {
            [] => without_columns(StatementKind::Setting, "", Executable::Empty),
            [only] => {
                self.begin_statement(only.sql);
                self.statement(only, types)
                    .await
                    .map_err(|failure| failure.positioned(only.sql, 0, only.sql))?
            }
            _ => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(Report::error("42601", message).into());
            }
        };
        self.statements.insert(name, Arc::new(statement));
        self.socket.out.parse_complete();
        Ok(())
    }

    async fn statement(&mut self, text: &StatementText<'_>, types: &[u32]) -> Result<Statement, Failure> {
        self.refresh_role();
        self.admit(text.kind)?;
        let parsed = self.parse_text(text.sql).await?;
        let kind = parsed.kind();
        let prepared = match parsed {
            ParsedStatement::Copy(copy) => {
                return Ok(without_columns(kind, text.sql, Executable::Copy(copy)));
            }
            ParsedStatement::Role(role) => {
                return Ok(without_columns(kind, text.sql, Executable::Roles(role)));
            }
            ParsedStatement::Session(parsed) => {
                let zone = self.settings.zone_name();
                let declared: Vec<_> = types.iter().map(|&oid| arrow_type(oid, zone)).collect();
                self.prepare(parsed, &declared).await?
            }
        };
        let parameters = prepared.parameters().iter().enumerate();
        let types = parameters
            .map(|(at, wanted)| parameter::described(types.get(at).copied().unwrap_or(0), wanted))
            .collect();
        let columns = prepared.columns().or_else(|| self.fetched_columns(&prepared));
        let text = shown(text.sql);
        Ok(Statement { kind, text, work: Executable::Session(prepared), types, columns })
    }

    fn describe_statement(&mut self, name: &str) -> Result<(), Failure> {
        let statement = Arc::clone(self.statements.get(name).ok_or_else(|| no_statement(name))?);
        self.socket.out.parameters(statement.types.clone());
        match &statement.columns {
            Some(schema) => self.socket.out.columns(describe(schema, &[])),
            None => self.socket.out.no_data(),
        }
        Ok(())
    }
}

fn without_columns(kind: StatementKind, text: &str, work: Executable) -> Statement {
    Statement { kind, text: shown(text), work, types: Vec::new(), columns: None }
}

/// Part of a text that `pg_stat_activity` shows.
fn shown(text: &str) -> Arc<str> {
    text[..text.floor_char_boundary(SHOWN_QUERY_BYTES)].into()
}

pub(super) fn no_statement(name: &str) -> Report {
    match name {
        "" => Report::error("26000", "unnamed prepared statement does not exist"),
        name => Report::error("26000", format!("prepared statement \"{name}\" does not exist")),
    }
}
