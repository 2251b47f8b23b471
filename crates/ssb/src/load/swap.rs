//! Names: tables are loaded under others, and take their own when all are complete.
//!
//! ```text
//!   t ─▶ ssb_replaced_t (all tables)    ssb_loading_t ─▶ t (all tables)    DROP ssb_replaced_t
//! ```
//!
//! A process that is killed meanwhile leaves tables of one load only, or some of the five names without a table,
//! which a run of queries refuses. The next load puts replaced tables back then ([`recover`]).

use super::schema;
use crate::Layout;
use crate::error::{Error, Result};
use crate::tables::TABLES;
use entresol::tables::RelationKind;
use entresol::{Database, Session};
use std::path::Path;

/// Name of a table while it is loaded.
pub(super) fn loading_name(table: &str) -> String {
    format!("ssb_loading_{table}")
}

/// Name of a table while another takes its own.
fn replaced_name(table: &str) -> String {
    format!("ssb_replaced_{table}")
}

fn exists(database: &Database, table: &str) -> bool {
    database.catalog().relation_kind(table).is_some()
}

/// Ends the change of names of a load that was killed: forwards if all tables are there, else backwards.
pub(super) fn recover(database: &Database) -> Result<()> {
    let replaced: Vec<&str> =
        TABLES.into_iter().filter(|table| exists(database, &replaced_name(table))).collect();
    let is_complete = TABLES.iter().all(|table| exists(database, table));
    let mut session = database.session()?;
    // In the order in which tables take their names: until the last one is back, a name is without a table.
    for table in replaced {
        let old = replaced_name(table);
        if is_complete {
            session.execute(&format!("DROP TABLE {old}"))?;
        } else {
            let statements = format!("DROP TABLE IF EXISTS {table}; ALTER TABLE {old} RENAME TO {table}");
            session.execute(&statements)?;
        }
    }
    Ok(())
}

/// Returns an error if names are taken by tables that are not to be replaced, or by what is no table.
pub(super) fn check_names(database: &Database, dir: &Path, force: bool) -> Result<()> {
    let is_other = |table: &&str| {
        let kind = database.catalog().relation_kind(table);
        kind.is_some_and(|kind| kind != RelationKind::Table)
    };
    if let Some(other) = TABLES.iter().find(|table| is_other(table)) {
        return Err(Error::Invalid(format!(
            "{other} in {} is not a table: rename or drop it",
            dir.display()
        )));
    }
    let there: Vec<&str> = TABLES.into_iter().filter(|table| exists(database, table)).collect();
    if !force && !there.is_empty() {
        let (names, dir) = (there.join(", "), dir.display());
        return Err(Error::Invalid(format!("{dir} has tables named {names}: --force replaces them")));
    }
    Ok(())
}

/// The tables under the names that they have while they are loaded.
pub(super) struct Staging {
    database: Database,
    session: Session,
}

impl Staging {
    /// Creates them, in place of those that a killed load has left.
    pub(super) fn create(database: &Database, layout: Layout) -> Result<Staging> {
        let mut staging = Staging { database: database.clone(), session: database.session()? };
        staging.drop_tables()?;
        for table in TABLES {
            if let Err(error) = staging.session.execute(&schema::create_table(table, layout)) {
                staging.drop_tables()?;
                let message = error.to_string().replace(&loading_name(""), "");
                return Err(Error::Invalid(format!("cannot create table {table}: {message}")));
            }
        }
        Ok(staging)
    }

    /// Drops the tables.
    pub(super) fn drop_tables(&mut self) -> Result<()> {
        for table in TABLES {
            self.session.execute(&format!("DROP TABLE IF EXISTS {}", loading_name(table)))?;
        }
        Ok(())
    }

    /// Gives the tables their names; after an error those that had them have them again.
    pub(super) fn take_names(&mut self) -> Result<()> {
        let mut named = Vec::new();
        let renamed = self.rename_all(&mut named);
        if renamed.is_err() {
            named.into_iter().try_for_each(|table| self.rename(table, &loading_name(table)))?;
            recover(&self.database)?;
        }
        renamed
    }

    /// Adds the tables that have their names to `named`.
    fn rename_all(&mut self, named: &mut Vec<&'static str>) -> Result<()> {
        for table in TABLES {
            if exists(&self.database, table) {
                self.rename(table, &replaced_name(table))?;
            }
        }
        for table in TABLES {
            self.rename(&loading_name(table), table)?;
            named.push(table);
        }
        Ok(())
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<()> {
        self.session.execute(&format!("ALTER TABLE {old} RENAME TO {new}"))?;
        Ok(())
    }
}
