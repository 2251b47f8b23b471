//! Authority of a session: the role in whose name it runs statements, and the check that the role may.
//!
//! A session begins without a role, as that of an embedding program, and may do everything; a server gives it
//! one. Relations that a statement reads are checked where their names are resolved ([`crate::planner::schemas`]),
//! the table that it writes once all of its names are (in `dml`), and definitions before they are run (in
//! `execution`). A view is read with the rights of its owner.

use crate::error::{Error, Result};
use crate::privileges::{Privileges, Role};
use entresol_tables::RelationKind;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Role of a session; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Authority {
    role: Mutex<Option<Arc<Role>>>,
    changes: AtomicU64,
}

impl Authority {
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
        self.role.lock().as_ref().is_none_or(|role| role.administrator)
    }

    /// Returns true if the role has these privileges on a relation.
    pub(crate) fn has(&self, wanted: Privileges, relation: &str) -> bool {
        self.role.lock().as_ref().is_none_or(|role| role.may(wanted, relation))
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

    /// Checks that the role may do everything.
    pub(crate) fn require_superuser(&self) -> Result<()> {
        if self.is_superuser() { Ok(()) } else { Err(denied("must be superuser to run this statement")) }
    }
}

/// Error for a missing privilege.
pub(crate) fn denied(message: impl Into<String>) -> Error {
    Error::coded("42501", message)
}
