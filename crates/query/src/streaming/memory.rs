//! Bound of the memory of a topology: the option `memory`.
//!
//! It is a part of the budget of the database ([`MemoryBudget::part`](entresol_memory::budget::MemoryBudget::part)), out of which the
//! operators reserve their state, and the topology its input and results until the commit. What can be read again from state tables
//! leaves DRAM; what must be there and does not fit ends the topology. Write sets and queries of each batch are bounded
//! apart, as those of statements are.

use crate::error::{Error, Result};
use crate::parser::durations::invalid;
use crate::parser::own::streaming::CreateTopology;
use crate::streaming::options::StreamOptions;
use entresol_memory::budget::MemorySize;
use entresol_streams::TOPOLOGY_MEMORY_MIN;

/// Name of the option.
const MEMORY: &str = "memory";

/// Takes the option: bytes.
pub(crate) fn take(options: &mut StreamOptions) -> Result<Option<u64>> {
    let Some(value) = options.take(MEMORY) else { return Ok(None) };
    let size: MemorySize = value.parse().map_err(|_| invalid(MEMORY, &value))?;
    match size {
        MemorySize::Bytes(bytes) if bytes >= TOPOLOGY_MEMORY_MIN => Ok(Some(bytes)),
        MemorySize::Bytes(_) => {
            let least = MemorySize::Bytes(TOPOLOGY_MEMORY_MIN);
            let message = format!("option \"{MEMORY}\" is '{value}': it must be at least {least}");
            Err(Error::coded("22023", message))
        }
        MemorySize::Percent(_) => Err(invalid(MEMORY, &value)),
    }
}

/// Description of the bound of a topology for EXPLAIN; empty without one.
pub(crate) fn describe(create: &CreateTopology) -> Result<String> {
    let bytes = take(&mut StreamOptions::new(String::new(), &create.options))?;
    let bound = bytes.map(|bytes| format!(", at most {} of memory", MemorySize::Bytes(bytes)));
    Ok(bound.unwrap_or_default())
}
