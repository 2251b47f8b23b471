//! Visibility: which commits a transaction sees, from active snapshots to the commits in flight of a group.

pub(crate) mod active;
pub(crate) mod in_flight;
pub(crate) mod invalid_ranges;
pub(crate) mod newest;
pub(crate) mod snapshot;
