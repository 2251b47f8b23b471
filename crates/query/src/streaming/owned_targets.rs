//! Targets that a topology owns: `CREATE TOPOLOGY ... WITH (owned)`.
//!
//! The tables of its INSERT, MERGE and DELETE have it as their owner, as its state has, and no other writer: statements
//! and steps of others are refused, transactions that wrote them before get a conflict when they commit. They are stored
//! with the statement of the topology ([`crate::ddl::stored_topologies`]), and are ordinary tables without it. Tables of late,
//! rejected and aborted rows are not among them: several topologies may share those.

use crate::error::{Error, Result};
use crate::parser::durations::invalid;
use crate::parser::own::streaming::CreateTopology;
use crate::session::authority::denied;
use crate::session::core::SessionCore;
use crate::streaming::options::StreamOptions;
use crate::streaming::steps::{PlannedTopology, Target};

/// Name of the option.
const OWNED: &str = "owned";

/// Takes the option.
pub(crate) fn take(options: &mut StreamOptions) -> Result<bool> {
    let Some(value) = options.take(OWNED) else { return Ok(false) };
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(invalid(OWNED, &value)),
    }
}

/// Tells whether a topology owns its targets.
pub(crate) fn is_owner(create: &CreateTopology) -> Result<bool> {
    take(&mut StreamOptions::new(String::new(), &create.options))
}

/// Tables that a topology is to own; an error if another topology is a writer of one of them.
pub(crate) fn checked(
    session: &SessionCore,
    create: &CreateTopology,
    planned: &PlannedTopology,
) -> Result<Vec<String>> {
    if !is_owner(create)? {
        return Ok(Vec::new());
    }
    if !planned.definer.is_superuser() {
        let message = format!(
            "permission denied for topology {} WITH ({OWNED}): only superusers may take tables from other writers",
            create.name
        );
        return Err(denied(message));
    }
    let table = |target: &Target| match target {
        Target::Insert { table, .. } | Target::Merge { table, .. } => Some(table.name().to_owned()),
        Target::Stream(_) | Target::Sink(_) | Target::View(_) | Target::Abort { .. } => None,
    };
    let mut owned: Vec<String> = planned.steps.iter().filter_map(|step| table(&step.target)).collect();
    owned.sort_unstable();
    owned.dedup();
    for table in &owned {
        let writers = session.options.topologies.users(|used| used.written.contains(table));
        if let Some(writer) = writers.iter().find(|writer| **writer != create.name) {
            let message = format!(
                "topology \"{}\" cannot own table {table}, which has another writer, topology {writer}",
                create.name
            );
            return Err(Error::coded("55000", message));
        }
    }
    Ok(owned)
}
