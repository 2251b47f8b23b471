//! Tables that belong to a topology: the state of its operators, and targets of its steps that have no other writer.
//!
//! The owner in the definition of a table says which it is. State is removed with its topology; a target is an ordinary table
//! that stays, and has no owner then.

use crate::error::{Error, Result};
use entresol_tables::{Catalog, OwnerChange, Table};
use std::sync::Arc;

/// Begin of the owner of a table that is state.
const STATE_PREFIX: &str = "topology ";
/// Begin of the owner of a table that is a target.
const TARGET_PREFIX: &str = "the steps of topology ";

/// Owner of the state of a topology, or of the tables of all topologies.
pub(crate) fn owner_of_state(topology: Option<&str>) -> String {
    topology.map_or("the topologies".to_owned(), |topology| format!("{STATE_PREFIX}{topology}"))
}

/// Tables that are state of a topology.
pub fn state_tables(catalog: &Catalog, topology: &str) -> Vec<String> {
    tables_of(catalog, &owner_of_state(Some(topology)))
}

/// Tables that are targets of a topology, their only writer.
pub fn owned_targets(catalog: &Catalog, topology: &str) -> Vec<String> {
    tables_of(catalog, &format!("{TARGET_PREFIX}{topology}"))
}

fn tables_of(catalog: &Catalog, owner: &str) -> Vec<String> {
    let is_own = |table: &Arc<Table>| table.definition().owner.as_deref() == Some(owner);
    catalog.tables().iter().filter(|table| is_own(table)).map(|table| table.name().to_owned()).collect()
}

/// Topology that is the only writer of a table which is no state.
pub fn target_owner(table: &Table) -> Option<&str> {
    table.definition().owner.as_deref()?.strip_prefix(TARGET_PREFIX)
}

/// Topology whose state a table is.
pub fn state_owner(table: &Table) -> Option<&str> {
    table.definition().owner.as_deref()?.strip_prefix(STATE_PREFIX)
}

/// Changes of owners with which a topology owns these targets, and no others.
pub fn target_changes(catalog: &Catalog, topology: &str, targets: &[String]) -> Vec<OwnerChange> {
    let before = owned_targets(catalog, topology);
    let freed = before.iter().filter(|table| !targets.contains(table)).map(|table| (table.clone(), None));
    let mut changes: Vec<OwnerChange> = freed.collect();
    let added = targets.iter().filter(|table| !before.contains(table));
    changes.extend(added.map(|table| (table.clone(), Some(format!("{TARGET_PREFIX}{topology}")))));
    changes
}

/// Refuses a target that is state, or that another topology owns.
pub(crate) fn check_target(table: &Table, topology: &str) -> Result<()> {
    let reason = match (state_owner(table), target_owner(table)) {
        (Some(owner), _) => format!("table {} is state of topology {owner}", table.name()),
        (_, Some(owner)) if owner != topology => {
            format!("table {} belongs to topology {owner}, its only writer", table.name())
        }
        _ => return Ok(()),
    };
    Err(Error::InvalidTopology { topology: topology.to_owned(), reason })
}
