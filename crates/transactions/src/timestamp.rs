//! Timestamps and the numbers of states and groups.

use std::fmt;

/// A commit or deletion timestamp (CTS, DTS). Assigned by one counter that starts, at every open, at the
/// clock in nanoseconds or after everything stored, whichever is later; so it also orders commits across
/// restarts.
pub type Timestamp = u64;

/// The deletion timestamp of a version that nothing has superseded.
pub const INFINITY: Timestamp = u64::MAX;

/// The number of a state. Numbers of dropped states are used again once nothing can refer to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// The number of a state group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state {}", self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}
