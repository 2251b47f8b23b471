//! Roles: clients that may connect, and tables that they may read or write.
//!
//! They are rows of two ordinary tables, `entresol_roles` and `entresol_grants`: transactional, recovered,
//! backed up and checked like all others. Only administrators see or change these two over the wire. Without
//! any role every client on the same machine may do everything; with one, every client needs a password.
//!
//! | table | key | further columns |
//! | --- | --- | --- |
//! | `entresol_roles` | `name` | `verifier` (SCRAM, never the password), `administrator` |
//! | `entresol_grants` | `role`, `table_name` (`*`: all tables; `schema public`: the schema) | `may_write`, `privileges` (their bits) |
//!
//! `may_write` is of a version in which it alone decided: all four privileges, or SELECT; it still counts
//! where there are no `privileges`. A role without a verifier exists and cannot log in.
//!
//! A crash leaves all of a change or nothing of it: each is one transaction. The two tables are created
//! first, empty.

use super::scram::Verifier;
use entresol::query::grant_of;
pub use entresol::query::{ALL_TABLES, GRANTS_TABLE, Privileges, ROLES_TABLE, Role, SCHEMA_GRANT};
use entresol::{Column, DataType, Database, Row, ScanRange, Schema, Table, TableOptions, Value};
use std::sync::Arc;

/// The column of the bits.
const PRIVILEGES: &str = "privileges";
/// The longest name of a role, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Changes of an ALTER ROLE; `None` leaves the present value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The new password; the inner `None` takes it away.
    pub password: Option<Option<String>>,
    /// New value of the administrator flag.
    pub administrator: Option<bool>,
}

/// Error of a change of roles.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is one of this name already.
    #[error("role \"{0}\" already exists")]
    Exists(String),
    /// There is none of this name.
    #[error("role \"{0}\" does not exist")]
    Missing(String),
    /// No role could manage roles any more, or yet.
    #[error("role \"{0}\" must be a SUPERUSER: otherwise no role could manage roles")]
    LastAdministrator(String),
    /// Objects belong to it.
    #[error("role \"{role}\" cannot be dropped because some objects depend on it: {}; REASSIGN OWNED BY {role} gives them to another role", owned_list(.owned))]
    Owns {
        /// Name of the role.
        role: String,
        /// Kinds and names of the objects.
        owned: Vec<String>,
    },
    /// The name or the password cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// From the database.
    #[error("{0}")]
    Database(#[from] entresol::Error),
    /// From queries.
    #[error("{0}")]
    Query(#[from] entresol::query::Error),
    /// From the tables.
    #[error("{0}")]
    Tables(#[from] entresol::tables::Error),
    /// From the transactions.
    #[error("{0}")]
    Transactions(#[from] entresol::transactions::Error),
}

/// Objects of a role, as an error lists them.
fn owned_list(owned: &[String]) -> String {
    owned.iter().map(|object| format!("owner of {object}")).collect::<Vec<_>>().join(", ")
}

type Result<T> = std::result::Result<T, Error>;

/// Tells whether there are roles: then clients need a password.
pub fn exist(db: &Database) -> Result<bool> {
    Ok(!list(db)?.is_empty())
}

/// All roles, by name.
pub fn list(db: &Database) -> Result<Vec<Role>> {
    let Some((roles, grants)) = tables(db)? else { return Ok(Vec::new()) };
    let tx = db.begin()?;
    let rows = roles.scan(ScanRange::full()).rows(&tx)?;
    let granted = grants.scan(ScanRange::full()).rows(&tx)?;
    Ok(rows.iter().filter_map(|row| role_of(row, &granted)).collect())
}

/// A role and the verifier of its password.
pub(crate) fn find(db: &Database, name: &str) -> Result<Option<(Role, Option<Verifier>)>> {
    let Some((roles, grants)) = tables(db)? else { return Ok(None) };
    let tx = db.begin()?;
    let Some(row) = roles.get(&tx, &[Value::from(name)])? else { return Ok(None) };
    let granted = grants.scan(ScanRange::prefix(&row[..1])).rows(&tx)?;
    let verifier = match &row[1] {
        Value::Varchar(text) => Verifier::from_text(text),
        _ => None,
    };
    Ok(role_of(&row, &granted).map(|role| (role, verifier)))
}

/// Makes a role. The password is hashed here and stored nowhere.
pub fn create(db: &Database, role: &Role, password: &str) -> Result<()> {
    create_with(db, role, Some(password))
}

/// Makes a role, which cannot log in without a password.
pub fn create_with(db: &Database, role: &Role, password: Option<&str>) -> Result<()> {
    if role.name.is_empty() || role.name.len() > NAME_BYTES_MAX || role.name.contains(char::is_control) {
        return Err(Error::Invalid(format!("the name of a role has 1 to {NAME_BYTES_MAX} bytes")));
    }
    let verifier = password.map_or(Ok(Value::Null), verifier)?;
    let (roles, grants) = make_tables(db)?;
    let tx = db.begin()?;
    let key = [Value::from(role.name.as_str())];
    if roles.get(&tx, &key)?.is_some() {
        return Err(Error::Exists(role.name.clone()));
    }
    roles.insert(&tx, &[key[0].clone(), verifier, Value::Boolean(role.administrator)])?;
    for (table, privileges) in &role.grants {
        grants.upsert(&tx, &grant_row(&role.name, table, *privileges))?;
    }
    tx.commit(db.durability())?;
    Ok(())
}

/// Gives a role a new password.
pub fn set_password(db: &Database, name: &str, password: &str) -> Result<()> {
    alter(db, name, &Change { password: Some(Some(password.to_owned())), administrator: None })
}

/// Changes a role.
pub fn alter(db: &Database, name: &str, change: &Change) -> Result<()> {
    let verifier = match &change.password {
        Some(Some(password)) => Some(verifier(password)?),
        Some(None) => Some(Value::Null),
        None => None,
    };
    let (roles, _) = make_tables(db)?;
    let tx = db.begin()?;
    let mut row = existing(&roles, &tx, name)?;
    if let Some(verifier) = verifier {
        row[1] = verifier;
    }
    if let Some(administrator) = change.administrator {
        if !administrator {
            check_administrator_remains(&roles, &tx, name)?;
        }
        row[2] = Value::Boolean(administrator);
    }
    roles.upsert(&tx, &row)?;
    tx.commit(db.durability())?;
    Ok(())
}

/// Refuses to remove the last administrator.
fn check_administrator_remains(roles: &Table, tx: &entresol::Transaction, leaving: &str) -> Result<()> {
    let rows = roles.scan(ScanRange::full()).rows(tx)?;
    let left = rows.iter().any(|row| row[2] == Value::Boolean(true) && row[0] != Value::from(leaving));
    if left { Ok(()) } else { Err(Error::LastAdministrator(leaving.to_owned())) }
}

/// Lets a role do more with tables.
pub fn grant(db: &Database, name: &str, privileges: Privileges, on: &[String]) -> Result<()> {
    change_grants(db, name, on, |granted| granted.with(privileges))
}

/// Revokes some of the privileges on tables.
pub fn revoke_some(db: &Database, name: &str, privileges: Privileges, on: &[String]) -> Result<()> {
    change_grants(db, name, on, |granted| granted.without(privileges))
}

fn change_grants(
    db: &Database,
    name: &str,
    on: &[String],
    change: impl Fn(Privileges) -> Privileges,
) -> Result<()> {
    let (roles, grants) = make_tables(db)?;
    let tx = db.begin()?;
    existing(&roles, &tx, name)?;
    for table in on {
        let key = [Value::from(name), Value::from(table.as_str())];
        let row = grants.get(&tx, &key)?;
        let before = row.as_ref().and_then(grant_of).map_or(Privileges::NONE, |(_, _, granted)| granted);
        let after = change(before);
        if after != Privileges::NONE {
            grants.upsert(&tx, &grant_row(name, table, after))?;
        } else if row.is_some() {
            grants.delete(&tx, &key)?;
        }
    }
    tx.commit(db.durability())?;
    Ok(())
}

/// Revokes all privileges on tables.
pub fn revoke(db: &Database, name: &str, on: &[String]) -> Result<()> {
    revoke_some(db, name, Privileges::ALL, on)
}

/// Gives the sources, streams, topologies and materialized views of some roles to another. Those of a superuser belong to all
/// superusers.
pub fn reassign_owned(db: &Database, names: &[String], to: &str) -> Result<()> {
    let (roles, _) = make_tables(db)?;
    let tx = db.begin()?;
    for name in names {
        existing(&roles, &tx, name)?;
    }
    let is_superuser = existing(&roles, &tx, to)?[2] == Value::Boolean(true);
    Ok(entresol::query::reassign_owned(db.catalog(), names, (!is_superuser).then_some(to))?)
}

/// Removes a role that owns nothing, and its grants. Connections that it has open go on until they end.
pub fn drop_role(db: &Database, name: &str) -> Result<()> {
    let (roles, grants) = make_tables(db)?;
    let tx = db.begin()?;
    existing(&roles, &tx, name)?;
    let owned = entresol::query::owned_by(db.catalog(), name)?;
    if !owned.is_empty() {
        return Err(Error::Owns { role: name.to_owned(), owned });
    }
    let others = roles.scan(ScanRange::full()).rows(&tx)?.len() > 1;
    if others {
        // The last role of all may be dropped: then clients need no password any more.
        check_administrator_remains(&roles, &tx, name)?;
    }
    roles.delete(&tx, &[Value::from(name)])?;
    for row in grants.scan(ScanRange::prefix(&[Value::from(name)])).rows(&tx)? {
        grants.delete(&tx, &row[..2])?;
    }
    tx.commit(db.durability())?;
    Ok(())
}

fn existing(roles: &Table, tx: &entresol::Transaction, name: &str) -> Result<Row> {
    roles.get(tx, &[Value::from(name)])?.ok_or_else(|| Error::Missing(name.to_owned()))
}

fn verifier(password: &str) -> Result<Value> {
    if password.is_empty() {
        return Err(Error::Invalid("the password is empty".to_owned()));
    }
    // A password that the client has hashed itself, as `\password` of psql does, is stored as it is.
    if let Some(hashed) = Verifier::from_text(password) {
        return Ok(Value::varchar(hashed.to_text()));
    }
    let verifier = Verifier::new(password);
    let verifier =
        verifier.ok_or_else(|| Error::Invalid("the system provides no random numbers".to_owned()))?;
    Ok(Value::varchar(verifier.to_text()))
}

fn grant_row(role: &str, table: &str, privileges: Privileges) -> [Value; 4] {
    let may_write = Value::Boolean(privileges == Privileges::ALL);
    [Value::from(role), Value::from(table), may_write, Value::Int(privileges.bits())]
}

fn role_of(row: &Row, granted: &[Row]) -> Option<Role> {
    let (Value::Varchar(name), Value::Boolean(administrator)) = (&row[0], &row[2]) else { return None };
    let mine = granted.iter().filter_map(grant_of).filter(|(role, ..)| *role == &**name);
    let grants = mine.map(|(_, table, privileges)| (table.to_owned(), privileges));
    Some(Role { name: name.to_string(), administrator: *administrator, grants: grants.collect() })
}

/// The two tables, if they exist.
fn tables(db: &Database) -> Result<Option<(Arc<Table>, Arc<Table>)>> {
    let find = |name: &str| match db.catalog().table(name) {
        Ok(table) => Ok(Some(table)),
        Err(entresol::tables::Error::NoSuchTable { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    Ok(find(ROLES_TABLE)?.zip(find(GRANTS_TABLE)?))
}

fn make_tables(db: &Database) -> Result<(Arc<Table>, Arc<Table>)> {
    let name = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let flag = |name: &str| Column::new(name, DataType::Boolean).not_null();
    // Grants first: with the roles' table alone they would be missing.
    let privileges = || Column::new(PRIVILEGES, DataType::Int);
    let columns = vec![name("role"), name("table_name"), flag("may_write"), privileges()];
    let grants = Schema::new(columns, &["role", "table_name"])?;
    let verifier = Column::new("verifier", DataType::Varchar);
    let roles = Schema::new(vec![name("name"), verifier, flag("administrator")], &["name"])?;
    let options = || TableOptions { if_not_exists: true, ..TableOptions::default() };
    let mut grants = db.catalog().create_table(GRANTS_TABLE, grants, options())?;
    if grants.schema().column_index(PRIVILEGES).is_none() {
        // Created by a version without it.
        grants = db.catalog().redefine(GRANTS_TABLE, None, |definition| -> Result<()> {
            definition.schema = Arc::new(definition.schema.with_column(privileges(), Value::Null)?);
            definition.defaults.push(None);
            Ok(())
        })?;
    }
    let roles = db.catalog().create_table(ROLES_TABLE, roles, options())?;
    Ok((roles, grants))
}
