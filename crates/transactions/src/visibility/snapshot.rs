//! Snapshots: visible commits by timestamp, and by how long they take to become visible.
//!
//! A commit at `sync` is visible once the device has it, one at `none` as soon as it is complete, and one of
//! many keys takes long to become complete. With one number for all, each would wait for all that are older,
//! whatever they write. Timestamps therefore carry a [`Class`] in their lowest bits, and a snapshot has a
//! number for each class: up to there the commits of that class are seen.
//!
//! Invariants:
//! - *Visibility grows.* All numbers ascend, so every later snapshot sees all that one sees, and no two
//!   snapshots see two commits in different orders.
//! - *No commit without those it built on.* A commit sees its snapshot, so what it builds on was visible
//!   before it began: a reader that sees the commit sees that too, since the numbers of a snapshot are of one
//!   point in time. Two commits of which neither sees the other write different keys (the first committer
//!   wins), so their timestamps, whichever is less, are a serial order of both. In groups that read no
//!   snapshots that need not be so: their commits are [`Class::Slow`], and their readers use that number
//!   alone.
//!
//! A point in time for AS OF is one number, up to which the commits of all classes have to be visible.

use crate::{INFINITY, Timestamp};

/// Number of classes.
pub(crate) const CLASSES: usize = 4;

/// The first of them are of commits of few keys.
pub(crate) const CLASSES_OF_FEW: usize = 2;

/// Distance of timestamps, so that each has room for its class.
pub(crate) const STEP: u64 = CLASSES as u64;

/// Class of a commit by how it becomes visible: the lowest bits of its timestamp. Timestamps of older
/// releases have any; all commits of an earlier run are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Class {
    /// Of few keys: as soon as it is complete.
    Quick = 0,
    /// Of few keys: when the device has it. Of groups that read no snapshots: all.
    Slow = 1,
    /// Of many keys: as soon as it is complete.
    Large = 2,
    /// Of many keys: when the device has it; or of so many that it takes longer than a sync.
    LargeSlow = 3,
}

impl Class {
    /// The number of the class of a timestamp.
    #[inline]
    pub(crate) fn number_of(timestamp: Timestamp) -> usize {
        timestamp.stored() as usize % CLASSES
    }

    pub(crate) fn is_large(self) -> bool {
        self as usize >= CLASSES_OF_FEW
    }

    /// The timestamp of the class, of those that are assigned together.
    #[inline]
    pub(crate) fn timestamp(self, newest_assigned: Timestamp) -> Timestamp {
        Timestamp::from_stored(newest_assigned.stored() | self as u64)
    }
}

/// Tells whether a number of `visible` was found without a commit of its class in flight: it lies below a
/// multiple of [`STEP`], not below a timestamp of a class of large commits.
#[inline]
pub(crate) fn is_idle(visible: Timestamp) -> bool {
    visible.stored() % STEP == STEP - 1
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Snapshot {
    /// Up to where commits are seen, by class.
    pub(crate) seen: [Timestamp; CLASSES],
}

impl Snapshot {
    /// A snapshot of all commits up to a timestamp.
    #[inline]
    pub(crate) fn at(timestamp: Timestamp) -> Snapshot {
        Snapshot { seen: [timestamp; CLASSES] }
    }

    /// Tells whether a commit with this timestamp is seen.
    #[inline]
    pub(crate) fn sees(self, timestamp: Timestamp) -> bool {
        timestamp <= self.seen[Class::number_of(timestamp)]
    }

    /// Tells whether the version that counts from `cts` until `dts` is seen.
    #[inline]
    pub(crate) fn sees_version(self, cts: Timestamp, dts: Timestamp) -> bool {
        self.sees(cts) && !self.sees(dts)
    }

    /// Tells whether all commits are seen that another snapshot sees.
    pub(crate) fn sees_all_of(self, other: Snapshot) -> bool {
        self.seen.iter().zip(other.seen).all(|(own, other)| *own >= other)
    }

    /// All commits of a class up to here are seen.
    #[inline]
    pub(crate) fn of(self, class: Class) -> Timestamp {
        self.seen[class as usize]
    }

    /// All commits up to here are seen, for certain.
    #[inline]
    pub(crate) fn all_up_to(self) -> Timestamp {
        self.seen.into_iter().fold(INFINITY, Timestamp::min)
    }

    /// The same if numbers of classes without commits in flight are left behind
    /// ([`crate::visibility::active`]), for reports: but for a large commit that was assigned its timestamp
    /// at this time.
    pub(crate) fn tells_all_up_to(self) -> Timestamp {
        let [quick, slow, large @ ..] = self.seen;
        let in_flight = large.into_iter().filter(|number| !is_idle(*number));
        in_flight.fold(quick.min(slow), Timestamp::min)
    }

    /// No commit above is seen.
    #[inline]
    pub(crate) fn none_above(self) -> Timestamp {
        self.seen.into_iter().fold(Timestamp::START, Timestamp::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    fn snapshot_of(seen: [u64; CLASSES]) -> Snapshot {
        Snapshot { seen: seen.map(at) }
    }

    #[test]
    fn each_class_is_seen_up_to_its_own_number() {
        let snapshot = snapshot_of([20, 10, 30, 14]);
        for (timestamp, seen) in
            [(0, true), (9, true), (10, true), (13, false), (16, true), (20, true), (24, false), (30, true)]
        {
            assert_eq!(snapshot.sees(at(timestamp)), seen, "{timestamp}");
        }
        assert_eq!((snapshot.all_up_to(), snapshot.none_above()), (at(10), at(30)));
        assert_eq!(snapshot_of([20, 19, 7, 11]).tells_all_up_to(), at(19), "idle ones do not count");
        assert_eq!(snapshot_of([20, 19, 5, 10]).tells_all_up_to(), at(5));
        assert_eq!((snapshot.of(Class::Slow), snapshot.of(Class::LargeSlow)), (at(10), at(14)));
        assert!(!snapshot.sees(INFINITY) && !Snapshot::at(INFINITY.previous()).sees(INFINITY));
        assert!(snapshot.sees_version(at(12), at(13)) && !snapshot.sees_version(at(12), at(16)));
        assert!((0..30).all(|number| Snapshot::at(at(17)).sees(at(number)) == (number <= 17)));
    }
}
