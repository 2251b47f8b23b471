//! Privileges on tables, and the role in whose name a session runs statements.

use std::collections::BTreeMap;

/// Name of the table of roles.
pub const ROLES_TABLE: &str = "entresol_roles";
/// Name of the table of grants.
pub const GRANTS_TABLE: &str = "entresol_grants";
/// Table name in a grant on all tables.
pub const ALL_TABLES: &str = "*";
/// Table name in a grant on the schema of the tables. Its only privilege is none of tables.
pub const SCHEMA_GRANT: &str = "schema public";

/// Set of privileges on the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Privileges(u8);

impl Privileges {
    /// Empty set.
    pub const NONE: Privileges = Privileges(0);
    /// SELECT.
    pub const SELECT: Privileges = Privileges(1);
    /// INSERT.
    pub const INSERT: Privileges = Privileges(2);
    /// UPDATE.
    pub const UPDATE: Privileges = Privileges(4);
    /// DELETE.
    pub const DELETE: Privileges = Privileges(8);
    /// All four of a table.
    pub const ALL: Privileges = Privileges(15);
    /// CREATE of sources, streams, topologies and materialized views: the one on a schema.
    pub const CREATE: Privileges = Privileges(16);

    /// Privileges with their SQL names and their letters in access lists.
    pub const NAMES: [(Privileges, &'static str, char); 4] = [
        (Privileges::INSERT, "INSERT", 'a'),
        (Privileges::SELECT, "SELECT", 'r'),
        (Privileges::UPDATE, "UPDATE", 'w'),
        (Privileges::DELETE, "DELETE", 'd'),
    ];

    /// Set of these bits; `None` if there are unknown ones.
    pub fn from_bits(bits: i32) -> Option<Privileges> {
        u8::try_from(bits)
            .ok()
            .filter(|bits| bits & !(Privileges::ALL.0 | Privileges::CREATE.0) == 0)
            .map(Privileges)
    }

    /// Bits of the set, as stored.
    pub fn bits(self) -> i32 {
        self.0.into()
    }

    /// Returns true if all of `other` are in it.
    pub fn contains(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }

    /// Union of both sets.
    pub fn with(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    /// Difference: this set without `other`.
    pub fn without(self, other: Privileges) -> Privileges {
        Privileges(self.0 & !other.0)
    }
}

/// Role in whose name a session runs statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Name of the role.
    pub name: String,
    /// True for a SUPERUSER, which may do everything.
    pub administrator: bool,
    /// Privileges on tables, by name; [`ALL_TABLES`] is all of them.
    pub grants: BTreeMap<String, Privileges>,
}

impl Role {
    /// Returns true if it has all of these privileges on a table.
    pub fn may(&self, wanted: Privileges, table: &str) -> bool {
        self.privileges(table).contains(wanted)
    }

    /// Returns true if it may create sources, streams, topologies and materialized views.
    pub fn may_create(&self) -> bool {
        let granted = self.grants.get(SCHEMA_GRANT).copied().unwrap_or(Privileges::NONE);
        self.administrator || granted.contains(Privileges::CREATE)
    }

    /// Privileges of the role on a table.
    pub(crate) fn privileges(&self, table: &str) -> Privileges {
        if self.administrator {
            return Privileges::ALL;
        }
        if table == ROLES_TABLE || table == GRANTS_TABLE {
            return Privileges::NONE;
        }
        let granted = |name: &str| self.grants.get(name).copied().unwrap_or(Privileges::NONE);
        granted(table).with(granted(ALL_TABLES))
    }
}
