//! A state group: the states that are written together atomically.
//!
//! Its persistent part (`LastCTS`, announced CTS) lies in the directory; here is what is volatile: the lock that
//! serialises its writers, its invalid timestamps, its dead keys. Lock order: groups by number, then a group's
//! dead keys; see [`crate::context`].

use parking_lot::Mutex;

use crate::GroupId;
use crate::dead_keys::DeadKeys;
use crate::invalid_ranges::InvalidRanges;

pub(crate) struct Group {
    pub(crate) id: GroupId,
    /// Held by whoever changes an object of the group: a commit, the vacuum, a scrub.
    pub(crate) writer: Mutex<()>,
    pub(crate) invalid: InvalidRanges,
    pub(crate) dead: Mutex<DeadKeys>,
}

impl Group {
    pub(crate) fn new(id: GroupId) -> Group {
        Group {
            id,
            writer: Mutex::new(()),
            invalid: InvalidRanges::new(),
            dead: Mutex::new(DeadKeys::default()),
        }
    }
}
