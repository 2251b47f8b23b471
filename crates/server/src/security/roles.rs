//! Roles: who may connect, and read or write which tables.
//!
//! They are rows of two ordinary tables, `entresol_roles` and `entresol_grants`: transactional, recovered, backed up
//! and checked like all others. Only administrators see or change these two over the wire. Without any role every
//! client on the same machine may do everything; with one, every client needs a password.
//!
//! | table | key | further columns |
//! | --- | --- | --- |
//! | `entresol_roles` | `name` | `verifier` (SCRAM, never the password), `administrator` |
//! | `entresol_grants` | `role`, `table_name` (`*`: all tables) | `may_write` (else it may read) |
//!
//! A crash leaves all of a change or nothing of it: each is one transaction. The two tables are made first, empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use entresol::{Column, DataType, Database, Row, ScanRange, Schema, Table, TableOptions, Value};

use super::scram::Verifier;

/// The table of the roles.
pub const ROLES_TABLE: &str = "entresol_roles";
/// The table of what they may do.
pub const GRANTS_TABLE: &str = "entresol_grants";
/// Stands for all tables in a grant.
pub const ALL_TABLES: &str = "*";
/// The longest name of a role, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// What a role may do with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// SELECT.
    Read,
    /// SELECT, INSERT, UPDATE, DELETE.
    Write,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    pub administrator: bool,
    /// What it may do with tables, by name; `*` is all of them.
    pub grants: BTreeMap<String, Access>,
}

impl Role {
    /// Whether it may do that with a table.
    pub fn may(&self, access: Access, table: &str) -> bool {
        if self.administrator {
            return true;
        }
        let own = table == ROLES_TABLE || table == GRANTS_TABLE;
        let granted = |name: &str| self.grants.get(name).is_some_and(|granted| *granted >= access);
        !own && (granted(table) || granted(ALL_TABLES))
    }
}

/// Why a role could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is one of this name already.
    #[error("role \"{0}\" already exists")]
    Exists(String),
    /// There is none of this name.
    #[error("role \"{0}\" does not exist")]
    Missing(String),
    /// The name or the password cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// From the database.
    #[error("{0}")]
    Database(#[from] entresol::Error),
    /// From the tables.
    #[error("{0}")]
    Tables(#[from] entresol::tables::Error),
    /// From the transactions.
    #[error("{0}")]
    Transactions(#[from] entresol::transactions::Error),
}

type Result<T> = std::result::Result<T, Error>;

/// Whether there are any: then clients need a password.
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

/// A role and what checks its password.
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

/// Makes a role. The password is hashed here and kept nowhere.
pub fn create(db: &Database, role: &Role, password: &str) -> Result<()> {
    if role.name.is_empty() || role.name.len() > NAME_BYTES_MAX || role.name.contains(char::is_control) {
        return Err(Error::Invalid(format!("the name of a role has 1 to {NAME_BYTES_MAX} bytes")));
    }
    let verifier = verifier(password)?;
    let (roles, grants) = make_tables(db)?;
    let tx = db.begin()?;
    let key = [Value::from(role.name.as_str())];
    if roles.get(&tx, &key)?.is_some() {
        return Err(Error::Exists(role.name.clone()));
    }
    roles.insert(&tx, &[key[0].clone(), verifier, Value::Boolean(role.administrator)])?;
    for (table, access) in &role.grants {
        grants.upsert(&tx, &grant_row(&role.name, table, *access))?;
    }
    tx.commit(db.durability())?;
    Ok(())
}

/// Gives a role a new password.
pub fn set_password(db: &Database, name: &str, password: &str) -> Result<()> {
    let verifier = verifier(password)?;
    let (roles, _) = make_tables(db)?;
    let tx = db.begin()?;
    let mut row = existing(&roles, &tx, name)?;
    row[1] = verifier;
    roles.upsert(&tx, &row)?;
    tx.commit(db.durability())?;
    Ok(())
}

/// Lets a role do something with tables.
pub fn grant(db: &Database, name: &str, access: Access, on: &[String]) -> Result<()> {
    let (roles, grants) = make_tables(db)?;
    let tx = db.begin()?;
    existing(&roles, &tx, name)?;
    for table in on {
        grants.upsert(&tx, &grant_row(name, table, access))?;
    }
    tx.commit(db.durability())?;
    Ok(())
}

/// Takes back what was granted on tables.
pub fn revoke(db: &Database, name: &str, on: &[String]) -> Result<()> {
    let (roles, grants) = make_tables(db)?;
    let tx = db.begin()?;
    existing(&roles, &tx, name)?;
    for table in on {
        grants.delete(&tx, &[Value::from(name), Value::from(table.as_str())])?;
    }
    tx.commit(db.durability())?;
    Ok(())
}

/// Removes a role and its grants. Connections that it has open go on until they end.
pub fn drop_role(db: &Database, name: &str) -> Result<()> {
    let (roles, grants) = make_tables(db)?;
    let tx = db.begin()?;
    existing(&roles, &tx, name)?;
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
    let verifier = Verifier::new(password);
    let verifier = verifier.ok_or_else(|| Error::Invalid("the system has no random numbers".to_owned()))?;
    Ok(Value::varchar(verifier.to_text()))
}

fn grant_row(role: &str, table: &str, access: Access) -> [Value; 3] {
    [Value::from(role), Value::from(table), Value::Boolean(access == Access::Write)]
}

fn role_of(row: &Row, granted: &[Row]) -> Option<Role> {
    let (Value::Varchar(name), Value::Boolean(administrator)) = (&row[0], &row[2]) else { return None };
    let mine = granted.iter().filter(|grant| grant[0] == row[0]);
    let grants = mine.filter_map(|grant| match (&grant[1], &grant[2]) {
        (Value::Varchar(table), Value::Boolean(write)) => {
            Some((table.to_string(), if *write { Access::Write } else { Access::Read }))
        }
        _ => None,
    });
    Some(Role { name: name.to_string(), administrator: *administrator, grants: grants.collect() })
}

/// The two tables, if somebody has made them.
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
    let grants =
        Schema::new(vec![name("role"), name("table_name"), flag("may_write")], &["role", "table_name"])?;
    let verifier = Column::new("verifier", DataType::Varchar);
    let roles = Schema::new(vec![name("name"), verifier, flag("administrator")], &["name"])?;
    let options = || TableOptions { if_not_exists: true, ..TableOptions::default() };
    let grants = db.catalog().create_table(GRANTS_TABLE, grants, options())?;
    let roles = db.catalog().create_table(ROLES_TABLE, roles, options())?;
    Ok((roles, grants))
}
