//! Rows of roles and grants, which a server stores in two ordinary tables.
//!
//! | table | key | further columns |
//! | --- | --- | --- |
//! | `entresol_roles` | `name` | `verifier` (SCRAM, never the password), `administrator` |
//! | `entresol_grants` | `role`, `table_name` (`*`: all tables) | `may_write`, `privileges` |
//!
//! They are read here and written by the server. `privileges` are bits of [`Privileges`]; grants without them
//! date from versions that had only `may_write`: all four, or SELECT.

use crate::privileges::{GRANTS_TABLE, Privileges, ROLES_TABLE, Role};
use entresol_tables::{Catalog, Error as TableError, Result, Row, ScanRange, Value};
use entresol_transactions::Transaction;

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
pub(crate) fn read(catalog: &Catalog, transaction: &Transaction) -> Result<Vec<Role>> {
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
        Some(Role {
            name: name.to_string(),
            administrator: *administrator,
            grants: granted.map(|(_, table, privileges)| (table.to_owned(), privileges)).collect(),
        })
    };
    Ok(roles.iter().filter_map(role).collect())
}
