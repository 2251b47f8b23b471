//! Authority of topologies: what they read and write is checked as if their owners did it.
//!
//! | part of a topology | needs of its owner |
//! | --- | --- |
//! | source or stream of no topology in FROM | SELECT on it; its own are |
//! | table or view that a step reads, CHANGES of a table | SELECT |
//! | target of a step | INSERT, UPDATE, DELETE as of the statement; SELECT, if it compares keys |
//! | tables of late, rejected and aborted rows | INSERT |
//! | `WITH (owned)` | SUPERUSER |
//!
//! A stream of no topology is read with the rights of its own owner. All is checked when steps are planned: when a topology
//! is created, changed, resumed, or started with the database, and of those that run when a privilege is revoked
//! ([`super::revoked`]), which end with their open transaction and are shown as failed. What belongs to superusers may do everything.

use crate::catalog::rows::roles;
use crate::dml::authorization::insert_privileges;
use crate::error::Result;
use crate::privileges::{Privileges, Role};
use crate::session::authority::{Authority, denied};
use crate::session::core::SessionCore;
use crate::session::owners::{self, OwnedObject};
use crate::streaming::merge::merge_privileges;
use datafusion::sql::sqlparser::ast::Statement;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Authority with which the current step of a topology is planned.
#[derive(Debug)]
pub(crate) struct Definer(Mutex<Arc<Authority>>);

impl Definer {
    pub(crate) fn new(authority: Authority) -> Definer {
        Definer(Mutex::new(Arc::new(authority)))
    }

    pub(crate) fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.0.lock())
    }

    /// Sets the authority; returns the one before.
    pub(crate) fn set(&self, authority: Arc<Authority>) -> Arc<Authority> {
        std::mem::replace(&mut self.0.lock(), authority)
    }
}

/// Authority of an owner. That of the session's own role is the session's.
fn authority_of(session: &SessionCore, owner: Option<&str>) -> Result<Authority> {
    let Some(owner) = owner else { return Ok(Authority::default()) };
    let own = &session.variables.authority;
    if own.owner().as_deref() == Some(owner) {
        return Ok(own.copied());
    }
    let found = roles::read(&session.catalog, &*session.catalog.begin()?)?;
    let found = found.into_iter().find(|role| role.name == owner);
    // A role that is gone may do nothing.
    let gone = || Role { name: owner.to_owned(), administrator: false, grants: BTreeMap::new() };
    Ok(Authority::of(found.unwrap_or_else(gone), &session.catalog))
}

/// Authority of an object that is stored, or of the session that makes one.
pub(crate) fn authority_for(session: &SessionCore, (object, name): (OwnedObject, &str)) -> Result<Authority> {
    let catalog = &session.catalog;
    if !object.exists(catalog, &*catalog.begin()?, name)? {
        return Ok(session.variables.authority.copied());
    }
    authority_of(session, owners::owner_of(catalog, object, name)?.as_deref())
}

/// Refuses a connector to files or connections to a role that is no superuser, as COPY of a file is.
pub(crate) fn check_outside(session: &SessionCore, (noun, connector): (&str, &str)) -> Result<()> {
    if session.variables.authority.is_superuser() {
        return Ok(());
    }
    Err(denied(format!(
        "permission denied for a {noun} with the connector {connector}: only superusers may leave the database"
    )))
}

/// Privileges that a step needs on the table whose rows it changes by key.
pub(crate) fn change_privileges(tree: &Statement) -> Result<Privileges> {
    let wanted = match tree {
        Statement::Insert(insert) => insert_privileges(insert),
        Statement::Merge(merge) => merge_privileges(merge)?,
        _ => Privileges::DELETE,
    };
    // Its rows are looked up.
    Ok(wanted.with(Privileges::SELECT))
}
