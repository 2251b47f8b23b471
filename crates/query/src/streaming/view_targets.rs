//! Targets that belong to others: tables of materialized views over streams, and of topologies that own what they write.

use crate::error::{Error, Result};
use crate::parser::own::streaming::CreateTopology;
use crate::session::materialized::{check_dependents, held_by, streamed_by};
use crate::session::topologies::UsedRelations;
use entresol_streams::target_owner;
use entresol_tables::{Catalog, RelationKind, Table};
use std::sync::Arc;

/// Refuses a target that is state. Those that a topology owns are checked when all targets are known ([`check_written`]).
pub(crate) fn check_target(table: &Table) -> Result<()> {
    match &table.definition().owner {
        Some(owner) if target_owner(table).is_none() => {
            Err(Error::coded("55000", format!("table {} is state of {owner}", table.name())))
        }
        _ => Ok(()),
    }
}

/// Refuses a topology that would write the table of a materialized view, other than its own, or one that another topology owns.
pub(crate) fn check_written(
    catalog: &Catalog,
    create: &CreateTopology,
    relations: &UsedRelations,
) -> Result<()> {
    for written in &relations.written {
        let Ok(table) = catalog.table(written) else { continue };
        if held_by(&table).is_some() && !(create.view.is_some() && *written == create.name) {
            let owner = table.definition().owner.as_deref().unwrap_or_default();
            return Err(Error::coded("55000", format!("table {written} is state of {owner}")));
        }
        if let Some(owner) = target_owner(&table).filter(|owner| *owner != create.name) {
            let message = format!("table {written} belongs to topology {owner}, its only writer");
            return Err(Error::coded("55000", message));
        }
    }
    Ok(())
}

/// Table of a view, if it is there; an error if a relation of its name is another.
pub(crate) fn table_of(catalog: &Catalog, name: &str) -> Result<Option<Arc<Table>>> {
    if catalog.relation_kind(name).is_none() {
        return Ok(None);
    }
    let table = catalog.table(name)?;
    if streamed_by(&table) == Some(name) {
        return Ok(Some(table));
    }
    Err(Error::coded("55000", format!("table \"{name}\" is not that of materialized view \"{name}\"")))
}

/// Removes the table of a view that is dropped, with the plain views that read it; an error if a materialized view does.
pub(crate) fn remove_table(catalog: &Catalog, name: &str) -> Result<()> {
    let is_own = |table: Arc<Table>| streamed_by(&table) == Some(name);
    if catalog.table(name).is_ok_and(is_own) {
        check_dependents(catalog, RelationKind::Table, name)?;
        catalog.drop_relations(&[(RelationKind::Table, name)], true)?;
    }
    Ok(())
}
