//! Names of the tables that topologies make beside their targets: of late, rejected and aborted rows, and of state.
//!
//! FROM means a table before a source or stream of its name, so none may have the name of one. They are checked when steps are
//! given to a topology, and a table that is there already stays.

use crate::catalog::rows::streams::stream_kind;
use crate::error::{Error, Result};
use crate::parser::own::streaming::CreateTopology;
use crate::streaming::parsed_steps::names_of;
use crate::streaming::starting::stream_error;
use entresol_streams::TopologyBuilder;
use entresol_tables::Catalog;

/// Refuses a topology that would make a table with the name of a source or stream, one of its own among them.
pub(crate) fn check_made(
    catalog: &Catalog,
    create: &CreateTopology,
    builder: &TopologyBuilder,
) -> Result<()> {
    let own: Vec<String> = create.steps.iter().filter_map(|tokens| names_of(tokens).0).collect();
    for table in builder.missing_tables() {
        let kind = match stream_kind(catalog, &table)? {
            None if own.contains(&table) => Some("stream"),
            kind => kind,
        };
        if let Some(kind) = kind {
            return Err(taken(&format!("topology \"{}\"", create.name), &table, kind));
        }
    }
    Ok(())
}

/// Checks a topology that is not started.
pub(crate) fn check_builder(
    catalog: &Catalog,
    create: &CreateTopology,
    builder: TopologyBuilder,
) -> Result<()> {
    check_made(catalog, create, &builder)?;
    builder.check().map_err(stream_error)
}

/// Refuses a table of rejected records with the name of a source or stream, the source itself among them.
pub(crate) fn check_rejects(catalog: &Catalog, source: &str, rejects: Option<&str>) -> Result<()> {
    let Some(table) = rejects.filter(|table| catalog.table(table).is_err()) else { return Ok(()) };
    let kind = if table == source { Some("source") } else { stream_kind(catalog, table)? };
    kind.map_or(Ok(()), |kind| Err(taken(&format!("source \"{source}\""), table, kind)))
}

fn taken(of: &str, table: &str, kind: &str) -> Error {
    let message = format!("{of} cannot make table \"{table}\": {kind} \"{table}\" already exists");
    Error::coded("42P07", message)
}
