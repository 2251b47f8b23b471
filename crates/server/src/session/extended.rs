//! The extended protocol: statements are parsed once, bound to values, described, run in parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use entresol::arrow::datatypes::{DataType, SchemaRef};
use entresol::query::datafusion::common::ScalarValue;
use entresol::query::{CopyStatement, Prepared};

use super::run::{Given, Rows, rows_tag};
use super::{Connection, Failure};
use crate::error::Report;
use crate::options::NAMES_MAX;
use crate::security::statements::RoleStatement;
use crate::socket::{End, violation};
use crate::values::Format;
use crate::values::parameter;
use crate::values::types::{arrow_type, describe, postgres_type};
use crate::wire::frontend::{Bind, Frontend, Target};
use crate::wire::split::{Kind, split};

/// No version of the roles.
const NEVER: u64 = u64::MAX;

/// A statement that was parsed.
pub(super) struct Statement {
    sql: String,
    kind: Kind,
    work: Work,
    /// Types of the parameters as the client knows them.
    types: Vec<u32>,
    /// Columns of the result.
    columns: Option<SchemaRef>,
    /// The version of the roles under which its role was last seen to be allowed this.
    allowed: AtomicU64,
}

/// What is done when a statement runs.
enum Work {
    /// Nothing: its text has no statement.
    Empty,
    Copy(CopyStatement),
    Roles(RoleStatement),
    Session(Prepared),
}

/// A statement with its values.
pub(super) struct Portal {
    statement: Arc<Statement>,
    values: Vec<ScalarValue>,
    formats: Vec<Format>,
    state: State,
}

enum State {
    Ready,
    Open(Rows),
    Done,
}

impl Statement {
    fn is_empty(&self) -> bool {
        matches!(self.work, Work::Empty)
    }

    /// Types of its parameters, as its plan has them.
    fn parameters(&self) -> &[DataType] {
        match &self.work {
            Work::Session(prepared) => prepared.parameters(),
            _ => &[],
        }
    }
}

impl Connection {
    /// Does what a message of the extended protocol says.
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

    /// Ends what the statements since the last Sync began.
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
            let message = format!("at most {NAMES_MAX} prepared statements are possible");
            return Err(Report::error("54000", message).into());
        }
        let pieces = split(sql);
        let statement = match pieces.as_slice() {
            [] => Statement {
                sql: String::new(),
                kind: Kind::Setting,
                work: Work::Empty,
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
            let work = Work::Copy(self.parse_copy(sql).map_err(positioned)?);
            return Ok(self.without_columns(kind, work));
        }
        if let Some(statement) = self.about_roles(sql, kind).map_err(positioned)? {
            return Ok(self.without_columns(kind, Work::Roles(statement)));
        }
        let declared: Vec<_> = types.iter().map(|&oid| arrow_type(oid)).collect();
        let prepared = self.prepare(sql, kind, &declared).await.map_err(positioned)?;
        let parameters = prepared.parameters().iter().enumerate();
        let types = parameters
            .map(|(at, wanted)| parameter::described(types.get(at).copied().unwrap_or(0), wanted))
            .collect();
        let columns = prepared.columns();
        let allowed = self.roles_seen();
        Ok(Statement { sql: sql.to_owned(), kind, work: Work::Session(prepared), types, columns, allowed })
    }

    fn without_columns(&self, kind: Kind, work: Work) -> Statement {
        let allowed = self.roles_seen();
        Statement { sql: String::new(), kind, work, types: Vec::new(), columns: None, allowed }
    }

    fn roles_seen(&self) -> AtomicU64 {
        AtomicU64::new(self.roles_version.unwrap_or(NEVER))
    }

    /// Looks whether the role may still run a statement, if roles have changed since it was last asked.
    fn allow(&mut self, statement: &Statement) -> Result<(), Failure> {
        self.refresh_role();
        let seen = statement.allowed.load(Ordering::Relaxed);
        if self.roles_version.is_some_and(|version| version == seen) {
            return Ok(());
        }
        match &statement.work {
            Work::Session(_) => self.admit(&statement.sql, statement.kind)?,
            Work::Copy(copy) => self.admit_copy(copy)?,
            Work::Roles(about) => about.check(&self.role)?,
            Work::Empty => {}
        }
        statement.allowed.store(self.roles_version.unwrap_or(NEVER), Ordering::Relaxed);
        Ok(())
    }

    fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        let statement = self.statements.get(&bind.statement).ok_or_else(|| no_statement(&bind.statement))?;
        let statement = Arc::clone(statement);
        if self.session.is_failed() && !statement.kind.ends_failure() && !statement.is_empty() {
            return Err(crate::error::failed_block().into());
        }
        if !bind.portal.is_empty() && self.portals.contains_key(&bind.portal) {
            return Err(Report::error("42P03", format!("cursor \"{}\" already exists", bind.portal)).into());
        }
        if self.portals.len() >= NAMES_MAX {
            return Err(Report::error("54000", format!("at most {NAMES_MAX} portals are possible")).into());
        }
        let values = values(&statement, &bind)?;
        let columns = statement.columns.as_ref().map_or(0, |schema| schema.fields().len());
        let formats = formats(&bind.results, columns)?;
        self.portals.insert(bind.portal, Portal { statement, values, formats, state: State::Ready });
        self.socket.out.bind_complete();
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

    fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
        let Some(portal) = self.portals.get(name) else {
            // A cursor that DECLARE made is a portal, too.
            let schema = self.session.cursor_columns(name).ok_or_else(|| no_portal(name))?;
            self.socket.out.columns(describe(&schema, &[]));
            return Ok(());
        };
        match &portal.statement.columns {
            Some(schema) => self.socket.out.columns(describe(schema, &portal.formats)),
            None => self.socket.out.no_data(),
        }
        Ok(())
    }

    async fn execute(&mut self, name: &str, rows_max: u32) -> Result<(), Failure> {
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        if portal.statement.is_empty() {
            self.socket.out.empty_query();
            self.portals.insert(name.to_owned(), portal);
            return Ok(());
        }
        let started = self.begin_statement();
        let kind = portal.statement.kind;
        let done = self.run_portal(&mut portal, rows_max).await;
        self.count(kind, started, &done);
        done?;
        // COMMIT and ROLLBACK close all portals, their own too.
        if self.session.in_transaction() || name.is_empty() {
            self.portals.insert(name.to_owned(), portal);
        }
        Ok(())
    }

    async fn run_portal(&mut self, portal: &mut Portal, rows_max: u32) -> Result<(), Failure> {
        let statement = Arc::clone(&portal.statement);
        let kind = statement.kind;
        if let State::Ready = portal.state {
            portal.state = State::Done;
            self.admit_now(kind)?;
            self.allow(&statement)?;
            if self.answered(&statement.sql, kind) {
                return Ok(());
            }
            // More follows before the next Sync: then all of it is one transaction.
            if kind.shares_transaction() && self.socket.next_kind() != Some(b'S') {
                self.begin_implicit().await?;
            }
            let prepared = match &statement.work {
                Work::Session(prepared) => prepared,
                Work::Copy(copy) => return self.copy(copy).await,
                Work::Roles(statement) => return self.run_role_statement(statement.clone()).await,
                Work::Empty => return Ok(()),
            };
            match self.start(prepared, kind, &portal.values).await? {
                Given::Done(tag) => {
                    self.socket.out.complete(&tag);
                    return Ok(());
                }
                Given::Rows(schema, rows) => {
                    check_columns(statement.columns.as_ref(), &schema)?;
                    portal.state = State::Open(rows);
                }
            }
        }
        let rows_max = match rows_max {
            0 => usize::MAX,
            most => most as usize,
        };
        let State::Open(rows) = &mut portal.state else {
            // It has given all that it had.
            self.socket.out.complete(if kind == Kind::Read { "SELECT 0" } else { kind.name() });
            return Ok(());
        };
        let before = rows.sent;
        if self.send(rows, &portal.formats, rows_max).await? {
            self.socket.out.portal_suspended();
            return Ok(());
        }
        // The tag counts the rows of this part.
        rows.sent -= before;
        let tag = rows_tag(kind, rows);
        portal.state = State::Done;
        self.socket.out.complete(&tag);
        Ok(())
    }
}

fn no_statement(name: &str) -> Report {
    match name {
        "" => Report::error("26000", "unnamed prepared statement does not exist"),
        name => Report::error("26000", format!("prepared statement \"{name}\" does not exist")),
    }
}

fn no_portal(name: &str) -> Report {
    Report::error("34000", format!("portal \"{name}\" does not exist"))
}

/// The values of a Bind as the plan wants them.
fn values(statement: &Statement, bind: &Bind) -> Result<Vec<ScalarValue>, Failure> {
    let wanted = statement.parameters();
    if wanted.len() != bind.values.len() {
        let message = format!(
            "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
            bind.values.len(),
            bind.statement,
            wanted.len()
        );
        return Err(Report::error("08P01", message).into());
    }
    let formats = formats(&bind.formats, wanted.len())?;
    let values = wanted.iter().zip(&bind.values).zip(formats).zip(&statement.types);
    let read =
        values.map(|(((wanted, value), format), &oid)| parameter::read(value.as_ref(), format, oid, wanted));
    Ok(read.collect::<Result<_, Report>>()?)
}

/// One code for all, one for each, or none for text.
fn formats(codes: &[i16], count: usize) -> Result<Vec<Format>, Failure> {
    let format = |code: i16| {
        Format::of(code).ok_or_else(|| Report::error("08P01", format!("unsupported format code: {code}")))
    };
    match codes {
        [] => Ok(vec![Format::Text; count]),
        [one] => Ok(vec![format(*one)?; count]),
        each if each.len() == count => {
            Ok(each.iter().map(|&code| format(code)).collect::<Result<_, Report>>()?)
        }
        each => {
            let message = format!("bind message has {} formats for {count} values", each.len());
            Err(Report::error("08P01", message).into())
        }
    }
}

/// The client was told of columns; it must get these.
fn check_columns(told: Option<&SchemaRef>, found: &SchemaRef) -> Result<(), Failure> {
    let Some(told) = told else { return Ok(()) };
    let same = told.fields().len() == found.fields().len()
        && told
            .fields()
            .iter()
            .zip(found.fields())
            .all(|(told, found)| postgres_type(told.data_type()) == postgres_type(found.data_type()));
    match same {
        true => Ok(()),
        false => Err(Report::error("0A000", "cached plan must not change result type").into()),
    }
}
