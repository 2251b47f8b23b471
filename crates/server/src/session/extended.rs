//! The extended protocol: statements are parsed once, and described. [`super::portals`] binds them to values and runs
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use entresol::arrow::datatypes::{DataType, SchemaRef};
use entresol::query::{CopyStatement, Prepared};

use super::{Connection, Failure};
use crate::error::Report;
use crate::options::NAMES_MAX;
use crate::security::statements::RoleStatement;
use crate::socket::{End, violation};
use crate::values::parameter;
use crate::values::types::{arrow_type, describe};
use crate::wire::frontend::{Frontend, Target};
use crate::wire::split::{Kind, split};

/// No version of the roles.
const NEVER: u64 = u64::MAX;

/// A parsed statement.
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) kind: Kind,
    pub(super) work: Executable,
    /// Types of the parameters as the client knows them.
    pub(super) types: Vec<u32>,
    /// Columns of the result.
    pub(super) columns: Option<SchemaRef>,
    /// The version of the roles at which its role was last checked to be allowed this.
    allowed: AtomicU64,
}

/// Work of a statement when it runs.
pub(super) enum Executable {
    /// Nothing: its text has no statement.
    Empty,
    Copy(CopyStatement),
    Roles(RoleStatement),
    Session(Prepared),
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
        let pieces = split(sql);
        let statement = match pieces.as_slice() {
            [] => Statement {
                sql: String::new(),
                kind: Kind::Setting,
                work: Executable::Empty,
                types: Vec::new(),
                columns: None,
                allowed: self.roles_seen(),
            },
            [piece] => {
                self.begin_statement();
                self.statement(piece.sql, piece.kind, types).await?
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

    async fn statement(&mut self, sql: &str, kind: Kind, types: &[u32]) -> Result<Statement, Failure> {
        let positioned = |failure| match failure {
            Failure::Report(report) if report.code == "42601" => Failure::Report(report.positioned(sql, 0)),
            other => other,
        };
        self.refresh_role();
        if kind == Kind::Copy {
            let work = Executable::Copy(self.parse_copy(sql).map_err(positioned)?);
            return Ok(self.without_columns(kind, work));
        }
        if let Some(statement) = self.about_roles(sql, kind).map_err(positioned)? {
            return Ok(self.without_columns(kind, Executable::Roles(statement)));
        }
        let declared: Vec<_> = types.iter().map(|&oid| arrow_type(oid, self.settings.zone_name())).collect();
        let prepared = self.prepare(sql, kind, &declared).await.map_err(positioned)?;
        let parameters = prepared.parameters().iter().enumerate();
        let types = parameters
            .map(|(at, wanted)| parameter::described(types.get(at).copied().unwrap_or(0), wanted))
            .collect();
        let columns = prepared.columns().or_else(|| self.fetched_columns(&prepared));
        let allowed = self.roles_seen();
        Ok(Statement {
            sql: sql.to_owned(),
            kind,
            work: Executable::Session(prepared),
            types,
            columns,
            allowed,
        })
    }

    fn without_columns(&self, kind: Kind, work: Executable) -> Statement {
        let allowed = self.roles_seen();
        Statement { sql: String::new(), kind, work, types: Vec::new(), columns: None, allowed }
    }

    fn roles_seen(&self) -> AtomicU64 {
        AtomicU64::new(self.roles_version.unwrap_or(NEVER))
    }

    /// Checks that the role may still run a statement, if roles have changed since the last check.
    pub(super) fn allow(&mut self, statement: &Statement) -> Result<(), Failure> {
        self.refresh_role();
        let seen = statement.allowed.load(Ordering::Relaxed);
        if self.roles_version.is_some_and(|version| version == seen) {
            return Ok(());
        }
        match &statement.work {
            Executable::Session(_) => self.admit(&statement.sql, statement.kind)?,
            Executable::Copy(copy) => self.admit_copy(copy)?,
            Executable::Roles(about) => about.check(&self.role)?,
            Executable::Empty => {}
        }
        statement.allowed.store(self.roles_version.unwrap_or(NEVER), Ordering::Relaxed);
        Ok(())
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

pub(super) fn no_statement(name: &str) -> Report {
    match name {
        "" => Report::error("26000", "unnamed prepared statement does not exist"),
        name => Report::error("26000", format!("prepared statement \"{name}\" does not exist")),
    }
}
