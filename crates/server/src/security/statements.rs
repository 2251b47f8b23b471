//! CREATE, ALTER and DROP of roles, GRANT, REVOKE, REASSIGN OWNED and ALTER … OWNER TO, which [`entresol::query`] parses;
//! [`super::roles`] does the work.
//!
//! - A role with a password can log in; one without cannot. LOGIN without a password is for a password that
//!   is set later, and NOLOGIN with one is refused.
//! - SUPERUSER is the administrator. Options with the behaviour of Entresol are accepted, others refused
//!   (0A000).
//! - The first role must be a SUPERUSER, and the last one stays: from the first role on, every client needs a
//!   password.
//! - Each statement is a transaction of its own; none runs inside of a block.
//!
//! The password is in the statement's text, and so perhaps in the client's history. `\password` of psql
//! hashes it first, and `entresol role` asks for it.

use super::roles::{self, Change, GRANTS_TABLE, ROLES_TABLE, Role, SCHEMA_GRANT};
use crate::error::{Outcome, Report};
use entresol::Database;
use entresol::query::{GrantTables, RoleOptions, RoleStatement};
use entresol::tables::RelationKind;

/// Checks the privilege: administrators run all of these, others change their own password, and grant what they own.
pub(crate) fn check(statement: &RoleStatement, db: &Database, role: &Role) -> Outcome<()> {
    let owns = |name: &String| {
        let owner = entresol::query::owner_of_relation(db.catalog(), name);
        owner.is_ok_and(|owner| owner.as_ref() == Some(&role.name))
    };
    let is_own = match statement {
        RoleStatement::Alter { role: name, options } => {
            *name == role.name && options.superuser.is_none() && options.login.is_none()
        }
        RoleStatement::Grant { tables: GrantTables::Named(names), .. }
        | RoleStatement::Revoke { tables: GrantTables::Named(names), .. } => names.iter().all(owns),
        _ => false,
    };
    if role.administrator || is_own {
        Ok(())
    } else {
        Err(Report::error("42501", format!("permission denied to {}", statement.tag().to_lowercase())))
    }
}

/// Runs a statement as role `by`; topologies that it takes a privilege from have ended behind it. It waits for the disk.
pub(crate) fn run(statement: &RoleStatement, db: &Database, by: &str) -> Outcome<()> {
    change(statement, db, by)?;
    match statement {
        RoleStatement::Create { .. } | RoleStatement::Grant { .. } => Ok(()),
        RoleStatement::Alter { .. }
        | RoleStatement::Drop { .. }
        | RoleStatement::Revoke { .. }
        | RoleStatement::Reassign { .. }
        | RoleStatement::ChangeOwner { .. } => {
            let ended = db.stop_denied_topologies();
            ended.map_err(|error| Report::error("XX000", error.to_string()))
        }
    }
}

/// Changes the tables of the roles.
fn change(statement: &RoleStatement, db: &Database, by: &str) -> Outcome<()> {
    match statement {
        RoleStatement::Create { role, options } => create(db, role, options),
        RoleStatement::Alter { role, options } => {
            let mut change = Change { password: options.password.clone(), administrator: options.superuser };
            if options.login == Some(false) {
                change.password = Some(None);
            }
            roles::alter(db, role, &change).map_err(report)
        }
        RoleStatement::Drop { roles: names, if_exists } => {
            for name in names {
                if name == by {
                    return Err(Report::error("55006", "current user cannot be dropped"));
                }
                match roles::drop_role(db, name) {
                    Err(roles::Error::Missing(_)) if *if_exists => {}
                    dropped => dropped.map_err(report)?,
                }
            }
            Ok(())
        }
        RoleStatement::Grant { privileges, tables, roles: names } => {
            let tables = table_names(tables, db)?;
            names.iter().try_for_each(|name| roles::grant(db, name, *privileges, &tables).map_err(report))
        }
        RoleStatement::Revoke { privileges, tables, roles: names } => {
            let tables = table_names(tables, db)?;
            names
                .iter()
                .try_for_each(|name| roles::revoke_some(db, name, *privileges, &tables).map_err(report))
        }
        RoleStatement::Reassign { roles: names, to } => roles::reassign_owned(db, names, to).map_err(report),
        // The session has changed it.
        RoleStatement::ChangeOwner { .. } => Ok(()),
    }
}

/// Returns true if a role, which must exist, is a superuser. Without any role every client is one.
pub(crate) fn is_superuser(db: &Database, name: &str) -> Outcome<bool> {
    let all = roles::list(db).map_err(report)?;
    let found = all.iter().find(|role| role.name == name);
    match found {
        Some(role) => Ok(role.administrator),
        None if all.is_empty() => Ok(true),
        None => Err(report(roles::Error::Missing(name.to_owned()))),
    }
}

fn create(db: &Database, role: &str, options: &RoleOptions) -> Outcome<()> {
    let administrator = options.superuser == Some(true);
    if !administrator && !roles::exist(db).map_err(report)? {
        return Err(report(roles::Error::LastAdministrator(role.to_owned())));
    }
    if administrator && !roles::exist(db).map_err(report)? && options.password.is_none() {
        let message = format!("role \"{role}\" must have a password: otherwise no role could log in");
        return Err(Report::error("55000", message));
    }
    let password = options.password.clone().flatten();
    let role = Role { name: role.to_owned(), administrator, grants: Default::default() };
    roles::create_with(db, &role, password.as_deref()).map_err(report)
}

/// Names of the tables, views, sources and streams of a grant, which must exist.
fn table_names(tables: &GrantTables, db: &Database) -> Outcome<Vec<String>> {
    match tables {
        GrantTables::All => {
            let (tables, views) = (db.catalog().tables(), db.catalog().views());
            let own = |name: &str| name == ROLES_TABLE || name == GRANTS_TABLE;
            let tables = tables.iter().map(|table| table.name().to_owned()).filter(|name| !own(name));
            Ok(tables.chain(views.iter().map(|view| view.name().to_owned())).collect())
        }
        GrantTables::Schema => Ok(vec![SCHEMA_GRANT.to_owned()]),
        GrantTables::Named(names) => {
            for name in names {
                if name == ROLES_TABLE || name == GRANTS_TABLE {
                    let message = format!("privileges on {name} cannot be changed");
                    return Err(Report::error("42501", message));
                }
                if !matches!(
                    db.catalog().relation_kind(name),
                    Some(RelationKind::Table | RelationKind::View | RelationKind::Sequence)
                ) && !entresol::query::stream_kind(db.catalog(), name).is_ok_and(|kind| kind.is_some())
                {
                    return Err(Report::error("42P01", format!("relation \"{name}\" does not exist")));
                }
            }
            Ok(names.clone())
        }
    }
}

/// An error of the roles with PostgreSQL's code.
fn report(error: roles::Error) -> Report {
    let code = match &error {
        roles::Error::Exists(_) => "42710",
        roles::Error::Missing(_) => "42704",
        roles::Error::LastAdministrator(_) => "55000",
        roles::Error::Owns { .. } => "2BP01",
        roles::Error::Invalid(_) => "22023",
        roles::Error::Query(error) => error.sqlstate(),
        roles::Error::Tables(error) => entresol::query::tables_sqlstate(error),
        roles::Error::Transactions(error) => entresol::query::transactions_sqlstate(error),
        _ => "XX000",
    };
    Report::error(code, error.to_string())
}
