//! `pg_stat_activity`: sessions of clients, and `pg_cancel_backend` and `pg_terminate_backend`, which stop them.

use crate::catalog::cell::Cell;
use crate::catalog::oids;
use crate::catalog::relation::Rows;
use crate::catalog::view::View;
use crate::error::{Error, external};
use crate::schema_names::CATALOG;
use crate::session::activity::{ActivityLine, ClientConnection};
use datafusion::common::Result as DFResult;

/// Columns of `pg_stat_activity`.
pub(crate) const COLUMNS: &str = "datid oid, datname name, pid int4, leader_pid int4, usesysid oid, usename name, application_name text, \
     client_addr text, client_hostname text, client_port int4, backend_start timestamptz, \
     xact_start timestamptz, query_start timestamptz, state_change timestamptz, wait_event_type text, \
     wait_event text, state text, backend_xid xid, backend_xmin xid, query_id int8, query text, \
     backend_type text";
/// Text in place of a statement that the role may not see.
const HIDDEN: &str = "<insufficient privilege>";

/// The content of `pg_stat_activity`.
pub(crate) fn activities(view: &View) -> DFResult<Rows> {
    let (user, sees_all) = (view.client().user, view.variables.authority.is_superuser());
    let row = |line: ActivityLine| {
        let ActivityLine { client, application, address, activity } = line;
        let visible = sees_all || client.user == user;
        let shown = |cell: Cell| if visible { cell } else { Cell::Null };
        vec![
            oids::DATABASE.into(),
            CATALOG.into(),
            client.process_id.into(),
            Cell::Null,
            oids::role(&client.user).into(),
            client.user.into(),
            application.into(),
            shown(address.map(|address| address.ip().to_string()).into()),
            Cell::Null,
            shown(address.map(|address| i32::from(address.port())).into()),
            shown(activity.connected_at.into()),
            shown(activity.transaction_at.into()),
            shown(activity.statement_at.into()),
            shown(activity.changed_at.into()),
            Cell::Null,
            Cell::Null,
            shown(activity.phase.name().into()),
            Cell::Null,
            Cell::Null,
            Cell::Null,
            if visible { activity.query } else { HIDDEN.to_owned() }.into(),
            shown("client backend".into()),
        ]
    };
    Ok(view.sessions.activities().into_iter().map(row).collect())
}

/// Stops the statement of the session of this number; false, with a notice, if there is none.
pub(crate) fn cancel(view: &View, of: &[Cell]) -> DFResult<Cell> {
    stop(view, &of[0], "cancel query", |connection| connection.cancel())
}

/// Ends the session of this number; false, with a notice, if there is none.
pub(crate) fn terminate(view: &View, of: &[Cell]) -> DFResult<Cell> {
    stop(view, &of[0], "terminate process", |connection| connection.terminate())
}

/// Stops a session, as a superuser or as the role that it has.
fn stop(view: &View, pid: &Cell, verb: &str, how: fn(&dyn ClientConnection)) -> DFResult<Cell> {
    let Some(pid) = pid.int() else {
        let message =
            format!("invalid input syntax for type integer: \"{}\"", pid.text().unwrap_or_default());
        return Err(external(Error::coded("22P02", message)));
    };
    let found = i32::try_from(pid).ok().and_then(|pid| view.sessions.connection(pid));
    let Some((client, connection)) = found else {
        view.variables.notice(format!("PID {pid} is not a PostgreSQL server process"));
        return Ok(false.into());
    };
    if !view.variables.authority.is_superuser() && client.user != view.client().user {
        let message = format!(
            "permission denied to {verb}: session {pid} is of role \"{}\", and you are not a superuser",
            client.user
        );
        return Err(external(Error::coded("42501", message)));
    }
    how(connection.as_ref());
    Ok(true.into())
}
