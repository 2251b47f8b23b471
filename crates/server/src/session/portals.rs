//! Portals: statements with their values, bound by message and run in parts.
//!
//! - Portals and the cursors that DECLARE creates have one set of names. FETCH, MOVE and CLOSE find either,
//!   as in PostgreSQL; a portal that was not started yet is started by them.
//! - A portal is closed by the end of its transaction, by Close and CLOSE, and by ROLLBACK TO a savepoint
//!   that is older.
//!
//! Memory: [`NAMES_MAX`] portals, each with one batch beside the needs of its query; a FETCH is collected, a
//! MOVE is not.

use super::extended::{Executable, Statement, no_statement};
use super::run::{Rows, StatementOutput, count_tag, rows_tag};
use super::{Connection, Failure};
use crate::error::Report;
use crate::options::NAMES_MAX;
use crate::values::Format;
use crate::values::parameter;
use crate::values::types::{describe, postgres_type};
use crate::wire::frontend::Bind;
use entresol::arrow::datatypes::SchemaRef;
use entresol::query::datafusion::common::ScalarValue;
use entresol::query::{CursorUse, PreparedStatement, StatementKind};
use std::sync::Arc;

/// A statement with its values.
pub(super) struct Portal {
    statement: Arc<Statement>,
    values: Vec<ScalarValue>,
    formats: Vec<Format>,
    state: PortalState,
    /// Number of savepoints that the block had.
    savepoints: usize,
}

enum PortalState {
    Ready,
    Open(Rows),
    /// Portal that has run, and had no rows.
    Done,
}

impl Portal {
    /// Tells whether FETCH finds rows in it. Not those of another FETCH: portals would form a chain.
    fn has_rows(&self) -> bool {
        let Statement { kind, work, columns, .. } = self.statement.as_ref();
        *kind != StatementKind::Cursor && matches!(work, Executable::Session(_)) && columns.is_some()
    }
}

impl Connection {
    pub(super) fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        self.settings.refresh(&self.session);
        let statement = self.statements.get(&bind.statement).ok_or_else(|| no_statement(&bind.statement))?;
        let statement = Arc::clone(statement);
        if self.session.is_failed() && !statement.kind.ends_failure() && !statement.is_empty() {
            return Err(crate::error::failed_block().into());
        }
        let is_taken = |name| self.portals.contains_key(name) || self.session.cursor_columns(name).is_some();
        if !bind.portal.is_empty() && is_taken(&bind.portal) {
            return Err(name_in_use(&bind.portal).into());
        }
        if self.portals.len() >= NAMES_MAX {
            return Err(
                Report::error("54000", format!("too many portals: the maximum is {NAMES_MAX}")).into()
            );
        }
        let values = values(&statement, &bind, self.settings.zone_name())?;
        let columns = statement.columns.as_ref().map_or(0, |schema| schema.fields().len());
        let formats = formats(&bind.results, columns)?;
        let savepoints = self.session.savepoints();
        let portal = Portal { statement, values, formats, state: PortalState::Ready, savepoints };
        self.portals.insert(bind.portal, portal);
        self.socket.out.bind_complete();
        Ok(())
    }

    pub(super) fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
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

    pub(super) async fn execute(&mut self, name: &str, rows_max: u32) -> Result<(), Failure> {
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        if portal.statement.is_empty() {
            self.socket.out.empty_query();
            self.portals.insert(name.to_owned(), portal);
            return Ok(());
        }
        let started = self.begin_statement(&Arc::clone(&portal.statement).text);
        let kind = portal.statement.kind;
        let done = self.run_portal(name, &mut portal, rows_max).await.map_err(|failure| {
            let text = &portal.statement.text;
            failure.positioned(text, 0, text)
        });
        self.count(kind, started, &done);
        done?;
        // COMMIT and ROLLBACK close all portals, their own too.
        if self.session.in_transaction() || name.is_empty() {
            self.portals.insert(name.to_owned(), portal);
        }
        Ok(())
    }

    async fn run_portal(&mut self, name: &str, portal: &mut Portal, rows_max: u32) -> Result<(), Failure> {
        if matches!(portal.state, PortalState::Ready) && !self.open_portal(portal).await? {
            return Ok(());
        }
        let PortalState::Open(rows) = &mut portal.state else {
            return Err(Report::error("55000", format!("portal \"{name}\" cannot be run")).into());
        };
        let rows_max = match rows_max {
            0 => usize::MAX,
            most => most as usize,
        };
        let before = rows.sent;
        if self.send(rows, &portal.formats, rows_max).await? {
            self.socket.out.portal_suspended();
            return Ok(());
        }
        // The tag counts the rows of this part.
        rows.sent -= before;
        let tag = rows_tag(portal.statement.kind, rows);
        self.socket.out.complete(&tag);
        Ok(())
    }

    /// Starts a portal. False if it has no rows: then it has run, and the client was told so.
    async fn open_portal(&mut self, portal: &mut Portal) -> Result<bool, Failure> {
        portal.state = PortalState::Done;
        let statement = Arc::clone(&portal.statement);
        let kind = statement.kind;
        self.admit(kind)?;
        self.refresh_role();
        if self.answered(kind) {
            return Ok(false);
        }
        // More follows before the next Sync: then all of it is one transaction.
        if kind.shares_transaction() && self.socket.next_kind() != Some(b'S') {
            self.begin_implicit().await?;
        }
        let prepared = match &statement.work {
            Executable::Session(prepared) if self.deallocated(prepared) => return Ok(false),
            Executable::Session(prepared) => prepared,
            Executable::Copy(copy) => return self.copy(copy).await.map(|()| false),
            Executable::Roles(statement) => {
                return self.run_role_statement(statement).await.map(|()| false);
            }
            Executable::Empty => return Ok(false),
        };
        match self.start(prepared, &portal.values).await? {
            StatementOutput::Done(tag) => {
                self.socket.out.complete(&tag);
                Ok(false)
            }
            StatementOutput::Rows(rows) => {
                check_columns(statement.columns.as_ref(), rows.cursor.schema())?;
                portal.state = PortalState::Open(rows);
                Ok(true)
            }
        }
    }

    /// Runs FETCH, MOVE or CLOSE if they name a portal; `None` if they do not: then they are the session's.
    pub(super) async fn use_portal(
        &mut self,
        prepared: &PreparedStatement,
    ) -> Result<Option<StatementOutput>, Failure> {
        let (name, rows_max, passes) = match prepared.cursor_use() {
            Some(CursorUse::Fetch(name, rows_max)) => (name, rows_max, false),
            Some(CursorUse::Move(name, rows_max)) => (name, rows_max, true),
            Some(CursorUse::Close(Some(name))) => {
                let closed = self.portals.remove(name);
                return Ok(closed.map(|_| StatementOutput::Done("CLOSE CURSOR".to_owned())));
            }
            Some(CursorUse::Close(None)) => {
                self.portals.clear();
                return Ok(None);
            }
            Some(CursorUse::Declare(name)) if self.portals.contains_key(name) => {
                return Err(name_in_use(name).into());
            }
            _ => return Ok(None),
        };
        if !self.portals.get(name).is_some_and(Portal::has_rows) {
            return Ok(None);
        }
        let Some(mut portal) = self.portals.remove(name) else { return Ok(None) };
        if matches!(portal.state, PortalState::Ready) {
            self.open_portal(&mut portal).await?;
        }
        let PortalState::Open(rows) = &mut portal.state else { return Ok(None) };
        let given = if passes {
            let passed = self.socket.guarded(&mut self.guard, rows.cursor.skip(rows_max)).await??;
            StatementOutput::Done(count_tag("MOVE", passed))
        } else {
            let taken = self.socket.guarded(&mut self.guard, rows.cursor.take(rows_max)).await??;
            StatementOutput::rows(taken.stream(), None)
        };
        self.portals.insert(name.to_owned(), portal);
        Ok(Some(given))
    }

    /// The columns of a FETCH from a portal.
    pub(super) fn fetched_columns(&self, prepared: &PreparedStatement) -> Option<SchemaRef> {
        let Some(CursorUse::Fetch(name, _)) = prepared.cursor_use() else { return None };
        self.portals.get(name)?.statement.columns.clone()
    }

    /// Closes portals that were bound after the savepoint of a ROLLBACK TO.
    pub(super) fn close_younger_portals(&mut self) {
        let savepoints = self.session.savepoints();
        self.portals.retain(|_, portal| portal.savepoints < savepoints);
    }
}

fn name_in_use(name: &str) -> Report {
    Report::error("42P03", format!("cursor \"{name}\" already exists"))
}

fn no_portal(name: &str) -> Report {
    Report::error("34000", format!("portal \"{name}\" does not exist"))
}

/// The values of a Bind as the plan wants them.
fn values(statement: &Statement, bind: &Bind, zone: &str) -> Result<Vec<ScalarValue>, Failure> {
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
    let read = values
        .map(|(((wanted, value), format), &oid)| parameter::read(value.as_ref(), format, oid, wanted, zone));
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

/// Checks that the columns are those that the client was told of.
fn check_columns(told: Option<&SchemaRef>, found: &SchemaRef) -> Result<(), Failure> {
    let Some(told) = told else { return Ok(()) };
    let same = told.fields().len() == found.fields().len()
        && told
            .fields()
            .iter()
            .zip(found.fields())
            .all(|(told, found)| postgres_type(told.data_type()) == postgres_type(found.data_type()));
    if same { Ok(()) } else { Err(Report::error("0A000", "cached plan must not change result type").into()) }
}
