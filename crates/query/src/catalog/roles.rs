//! Rows of roles and grants, which a server stores in two ordinary tables.
//!
//! | table | key | further columns |
//! | --- | --- | --- |
//! | `entresol_roles` | `name` | `verifier` (SCRAM, never the password), `administrator` |
//! | `entresol_grants` | `role`, `table_name` (`*`: all tables) | `may_write`, `privileges` |
//!
//! They are read here and written by the server. `privileges` are bits of [`Privileges`]; grants without them date from
//! versions that had only `may_write`: all four, or SELECT.

use entresol_tables::{Catalog, Error as TableError, Result, Row, ScanRange, Value};
use entresol_transactions::Transaction;

/// Name of the table of roles.
pub const ROLES_TABLE: &str = "entresol_roles";
/// Name of the table of grants.
pub const GRANTS_TABLE: &str = "entresol_grants";
/// Table name in a grant on all tables.
pub const ALL_TABLES: &str = "*";

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
    /// All four.
    pub const ALL: Privileges = Privileges(15);

    /// Privileges with their SQL names and their letters in access lists.
    pub const NAMES: [(Privileges, &'static str, char); 4] = [
        (Privileges::INSERT, "INSERT", 'a'),
        (Privileges::SELECT, "SELECT", 'r'),
        (Privileges::UPDATE, "UPDATE", 'w'),
        (Privileges::DELETE, "DELETE", 'd'),
    ];

    /// Set of these bits; `None` if there are unknown ones.
    pub fn from_bits(bits: i32) -> Option<Privileges> {
        u8::try_from(bits).ok().filter(|bits| bits & !Privileges::ALL.0 == 0).map(Privileges)
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

/// Role with its grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRow {
    pub(crate) name: String,
    pub(crate) administrator: bool,
    /// Privileges by table; `*` is all tables.
    pub(crate) grants: Vec<(String, Privileges)>,
}

impl RoleRow {
    /// Privileges of the role on a table.
    pub(crate) fn privileges(&self, table: &str) -> Privileges {
        if self.administrator {
            return Privileges::ALL;
        }
        if table == ROLES_TABLE || table == GRANTS_TABLE {
            return Privileges::NONE;
        }
        let fitting = self.grants.iter().filter(|(name, _)| name == table || name == ALL_TABLES);
        fitting.fold(Privileges::NONE, |all, (_, granted)| all.with(*granted))
    }
}

/// Role, table and privileges of a row of `entresol_grants`; `None` if the row is malformed.
pub fn grant_of(row: &Row) -> Option<(&str, &str, Privileges)> {
    let (Value::Varchar(role), Value::Varchar(table), Value::Boolean(write)) =
        (row.first()?, row.get(1)?, row.get(2)?)
    else {
        return None;
    };
    let privileges = match row.get(3) {
        Some(Value::Int(bits)) => Privileges::from_bits(*bits)?,
        _ if *write => Privileges::ALL,
        _ => Privileges::SELECT,
    };
    Some((role, table, privileges))
}

/// All roles, by name; none if no role was created.
pub(crate) fn read(catalog: &Catalog, transaction: &Transaction) -> Result<Vec<RoleRow>> {
    let rows = |name: &str| match catalog.table(name) {
        Ok(table) => table.scan(ScanRange::full()).rows(transaction).map(Some),
        Err(TableError::NoSuchTable { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let (Some(roles), Some(grants)) = (rows(ROLES_TABLE)?, rows(GRANTS_TABLE)?) else {
        return Ok(Vec::new());
    };
    let role = |row: &Row| {
        let (Some(Value::Varchar(name)), Some(Value::Boolean(administrator))) = (row.first(), row.get(2))
        else {
            return None;
        };
        let granted = grants.iter().filter_map(grant_of).filter(|(role, ..)| *role == &**name);
        Some(RoleRow {
            name: name.to_string(),
            administrator: *administrator,
            grants: granted.map(|(_, table, privileges)| (table.to_owned(), privileges)).collect(),
        })
    };
    Ok(roles.iter().filter_map(role).collect())
}
