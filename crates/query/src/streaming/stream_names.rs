//! Names of the streams of a topology: each is of one thing that a step could read.
//!
//! They are checked when steps are given to a topology, and not when it is started again: what was stored goes on.

use crate::ddl::stored_topologies;
use crate::error::{Error, Result};
use crate::parser::own::streaming::CreateTopology;
use crate::streaming::parsed_steps::names_of;
use entresol_tables::{Catalog, RelationKind};

/// Refuses two streams of one name, and a stream with the name of a table, source or stream of no topology.
pub(crate) fn check_stream_names(catalog: &Catalog, create: &CreateTopology) -> Result<()> {
    let mut streams: Vec<String> = Vec::new();
    for name in create.steps.iter().filter_map(|tokens| names_of(tokens).0) {
        if streams.contains(&name) {
            let message =
                format!("stream \"{name}\" of topology \"{}\" specified more than once", create.name);
            return Err(Error::coded("42712", message));
        }
        let taken = match catalog.relation_kind(&name).filter(|kind| *kind != RelationKind::Index) {
            Some(kind) => Some(("42P07", kind.to_string())),
            None if stored_topologies::source(catalog, &name)?.is_some() => {
                Some(("42710", "source".to_owned()))
            }
            None => {
                let stream = stored_topologies::stream(catalog, &name)?;
                stream.map(|_| ("42710", "stream of no topology".to_owned()))
            }
        };
        if let Some((sqlstate, taken)) = taken {
            let message = format!(
                "stream \"{name}\" of topology \"{}\" has the name of a {taken}, which its steps could read: take another name",
                create.name
            );
            return Err(Error::coded(sqlstate, message));
        }
        streams.push(name);
    }
    Ok(())
}
