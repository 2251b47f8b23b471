//! Tables that belong to topologies, materialized views and roles: no other statement changes their definition.
//!
//! | owner of the table | SQLSTATE | instead |
//! | --- | --- | --- |
//! | all topologies: definitions, positions, watermarks | 42501 | nothing |
//! | a topology: state of its operators | 2BP01 | DROP TOPOLOGY, or another statement of it |
//! | a topology: targets that it owns | | as of any target; 2BP01 while the database is open without its topologies |
//! | a materialized view | 42809 | DROP MATERIALIZED VIEW |
//! | all materialized views, the state of one | 42501 | nothing |
//! | the server: roles and their grants | 42501 | CREATE, ALTER and DROP ROLE, GRANT, REVOKE |
//!
//! State of a topology that is gone is as any table.

use crate::ddl::stored_topologies;
use crate::error::{Error, Result};
use crate::privileges::{GRANTS_TABLE, ROLES_TABLE};
use crate::session::core::SessionCore;
use crate::session::materialized;
use entresol_streams::{state_owner, target_owner};
use entresol_tables::Table;

/// Refuses a statement that would change the definition of a table which belongs to topologies or materialized views;
/// `action` is its verb.
pub(crate) fn check_owner(session: &SessionCore, table: &Table, action: &str) -> Result<()> {
    materialized::check_ordinary(table)?;
    check_roles(table, action)?;
    let name = table.name();
    let Some(owner) = table.definition().owner.as_deref() else { return Ok(()) };
    if let Some(topology) = target_owner(table) {
        return check_target(session, name, topology, action);
    }
    let Some(topology) = state_owner(table) else {
        let message = format!("cannot {action} table {name}: it belongs to {owner}, which alone write it");
        return Err(Error::coded("42501", message));
    };
    if !exists(session, topology)? {
        return Ok(());
    }
    let message = format!(
        "cannot {action} table {name}: it is state of topology {topology}; DROP TOPOLOGY {topology} removes it"
    );
    Err(Error::coded("2BP01", message))
}

/// Refuses to change a target that a topology owns while that is not known: its users decide, and are none then.
fn check_target(session: &SessionCore, table: &str, topology: &str, action: &str) -> Result<()> {
    if session.options.topologies.is_loaded() {
        return Ok(());
    }
    let message = format!(
        "cannot {action} table {table}: it belongs to topology {topology}, and the database was opened without its topologies"
    );
    Err(Error::coded("2BP01", message))
}

/// Refuses a statement that would take all roles away at once: without any, every client could do everything.
pub(crate) fn check_roles(table: &Table, action: &str) -> Result<()> {
    let name = table.name();
    if name != ROLES_TABLE && name != GRANTS_TABLE {
        return Ok(());
    }
    let message = format!(
        "cannot {action} table {name}: it has the roles; CREATE, ALTER and DROP ROLE, GRANT and REVOKE change them"
    );
    Err(Error::coded("42501", message))
}

/// Refuses an index of a table with state of topologies, or of all materialized views. Those of one may have indexes.
pub(crate) fn check_indexable(session: &SessionCore, table: &Table) -> Result<()> {
    match materialized::held_by(table) {
        Some(_) => Ok(()),
        None => check_owner(session, table, "create an index of"),
    }
}

/// Tells whether there is a topology. A database may be open without its topologies: the stored ones count, and one that
/// starts.
fn exists(session: &SessionCore, topology: &str) -> Result<bool> {
    if session.options.topologies.has(topology) {
        return Ok(true);
    }
    let stored = stored_topologies::topologies(&session.catalog)?;
    Ok(stored.iter().any(|stored| stored.name == topology))
}
