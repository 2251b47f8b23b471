//! Names: tables are loaded under others, and take their own when all are complete.

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

/// Returns an error if names are taken by tables that are not to be replaced, or by what is no table.
pub(super) fn check_names(database: &Database, dir: &Path, force: bool) -> Result<()> {
    let kind_of = |table: &str| database.catalog().relation_kind(table);
    let is_table = |kind| kind == RelationKind::Table;
    let other = TABLES.iter().find(|table| kind_of(table).is_some_and(|kind| !is_table(kind)));
    if let Some(other) = other {
        return Err(Error::Invalid(format!("{other} in {} is no table: rename or drop it", dir.display())));
    }
    let there: Vec<&str> = TABLES.into_iter().filter(|table| kind_of(table).is_some()).collect();
    if !force && !there.is_empty() {
        let (names, dir) = (there.join(", "), dir.display());
        return Err(Error::Invalid(format!("{dir} has tables named {names}: --force replaces them")));
    }
    Ok(())
}

/// The tables under the names that they have while they are loaded.
pub(super) struct Staging {
    session: Session,
}

impl Staging {
    /// Creates them, in place of those that a killed load has left.
    pub(super) fn create(database: &Database, layout: Layout) -> Result<Staging> {
        let mut staging = Staging { session: database.session()? };
        staging.drop_all()?;
        for table in TABLES {
            if let Err(error) = staging.session.execute(&schema::create_table(table, layout)) {
                staging.drop_all()?;
                return Err(Error::Invalid(error.to_string().replace(&loading_name(""), "")));
            }
        }
        Ok(staging)
    }

    fn drop_all(&mut self) -> Result<()> {
        for table in TABLES {
            self.session.execute(&format!("DROP TABLE IF EXISTS {}", loading_name(table)))?;
        }
        self.session.take_notices();
        Ok(())
    }

    /// Drops the tables.
    pub(super) fn drop_tables(mut self) -> Result<()> {
        self.drop_all()
    }

    /// Gives the tables their names; those that had them are dropped.
    pub(super) fn take_names(mut self) -> Result<()> {
        for (at, table) in TABLES.iter().enumerate() {
            let loaded = loading_name(table);
            let statements = format!("DROP TABLE IF EXISTS {table}; ALTER TABLE {loaded} RENAME TO {table}");
            if let Err(error) = self.session.execute(&statements) {
                let (done, left) = (TABLES[..at].join(", "), TABLES[at..].join(", "));
                let done = if done.is_empty() { "no table".to_owned() } else { done };
                let state = format!(
                    "replaced: {done}; loaded, but not replaced: {left} (in tables named {})",
                    loading_name("...")
                );
                return Err(Error::Load { source: Box::new(error.into()), state });
            }
        }
        Ok(())
    }
}
