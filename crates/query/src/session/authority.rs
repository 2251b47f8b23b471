//! Authority of a session: the role in whose name it runs statements, and the check that the role may.
//!
//! A session begins without a role, as that of an embedding program, and may do everything; a server gives it
//! one. Relations that a statement reads are checked where their names are resolved ([`crate::planner::schemas`]),
//! the table that it writes once all of its names are (in `dml`), and definitions before they are run (in
//! `execution`). A view is read with the rights of its owner. What a role owns ([`crate::session::owners`]) it may read; a topology
//! has an authority of its own, that of its owner.

use crate::error::{Error, Result};
use crate::privileges::{Privileges, Role};
use crate::session::owners::owner_of_relation;
use entresol_tables::{Catalog, RelationKind};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Role of a session; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Authority {
    role: Mutex<Option<Arc<Role>>>,
    changes: AtomicU64,
    /// Catalog with the owners.
    catalog: OnceLock<Arc<Catalog>>,
    /// Number of [`FullAuthority`]s that live.
    full: AtomicUsize,
}

/// Right to do everything, while it lives.
#[derive(Debug)]
pub(crate) struct FullAuthority<'a>(&'a Authority);

impl Drop for FullAuthority<'_> {
    fn drop(&mut self) {
        self.0.full.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Authority {
    /// Authority of a role, which owns what the catalog says.
    pub(crate) fn of(role: Role, catalog: &Arc<Catalog>) -> Authority {
        let authority = Authority::default();
        authority.know_owners(catalog);
        authority.set(role);
        authority
    }

    /// Copy with the role of now.
    pub(crate) fn copied(&self) -> Authority {
        let copy = Authority::default();
        copy.role.lock().clone_from(&self.role.lock());
        if let Some(catalog) = self.catalog.get() {
            copy.know_owners(catalog);
        }
        copy
    }

    /// Sets the catalog with the owners.
    pub(crate) fn know_owners(&self, catalog: &Arc<Catalog>) {
        self.catalog.get_or_init(|| Arc::clone(catalog));
    }

    /// Role that owns what the session makes; none: the superusers.
    pub(crate) fn owner(&self) -> Option<String> {
        self.role.lock().as_ref().filter(|role| !role.administrator).map(|role| role.name.clone())
    }

    /// Lets the session do everything: for parts of a statement that was checked, which are the database's own.
    pub(crate) fn full(&self) -> FullAuthority<'_> {
        self.full.fetch_add(1, Ordering::Relaxed);
        FullAuthority(self)
    }

    /// Checks that the role may create sources, streams, topologies and materialized views.
    pub(crate) fn require_create(&self) -> Result<()> {
        let role = self.role.lock();
        match role.as_ref() {
            Some(role) if !role.may_create() => Err(denied("permission denied for schema public")),
            _ => Ok(()),
        }
    }

    /// Sets the role; plans that were checked for another are checked again.
    pub(crate) fn set(&self, role: Role) {
        let role = Some(Arc::new(role));
        let mut current = self.role.lock();
        if *current != role {
            *current = role;
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of changes of the role or of its privileges.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns true if all is allowed.
    pub(crate) fn is_superuser(&self) -> bool {
        self.full.load(Ordering::Relaxed) > 0
            || self.role.lock().as_ref().is_none_or(|role| role.administrator)
    }

    /// Returns true if the role has these privileges on a relation.
    pub(crate) fn has(&self, wanted: Privileges, relation: &str) -> bool {
        let Some(role) = self.role.lock().clone() else { return true };
        role.may(wanted, relation)
            || self.full.load(Ordering::Relaxed) > 0
            || self.owns(&role, wanted, relation)
    }

    /// Returns true if a role may read a relation as its owner, and nothing else is wanted.
    fn owns(&self, role: &Role, wanted: Privileges, relation: &str) -> bool {
        let owner = || owner_of_relation(self.catalog.get()?, relation).ok().flatten();
        Privileges::SELECT.contains(wanted) && owner().is_some_and(|owner| owner == role.name)
    }

    /// Checks that the role has these privileges on a table.
    pub(crate) fn require(&self, wanted: Privileges, table: &str) -> Result<()> {
        self.require_on(wanted, RelationKind::Table, table)
    }

    /// Checks that the role has these privileges on a relation.
    pub(crate) fn require_on(&self, wanted: Privileges, kind: RelationKind, name: &str) -> Result<()> {
        if self.has(wanted, name) {
            return Ok(());
        }
        let kind = match kind {
            RelationKind::View => "view",
            RelationKind::Sequence => "sequence",
            _ => "table",
        };
        Err(denied(format!("permission denied for {kind} {name}")))
    }

    /// Checks that the role may read a source or stream.
    pub(crate) fn require_reading(&self, noun: &str, name: &str) -> Result<()> {
        if self.has(Privileges::SELECT, name) {
            return Ok(());
        }
        Err(denied(format!("permission denied for {noun} {name}")))
    }

    /// Checks that the role may do everything.
    pub(crate) fn require_superuser(&self) -> Result<()> {
        if self.is_superuser() { Ok(()) } else { Err(denied("must be superuser to run this statement")) }
    }
}

/// SQLSTATE of a missing privilege.
pub(crate) const DENIED: &str = "42501";

/// Error for a missing privilege.
pub(crate) fn denied(message: impl Into<String>) -> Error {
    Error::coded(DENIED, message)
}
