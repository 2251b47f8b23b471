//! What a transaction sees: commits by timestamp, and by how long they take to become visible.
//!
//! A commit at `sync` is visible once the device has it, one at `none` as soon as it is whole. If one number said what
//! is visible, the second would wait for the first, whatever either of them writes. So timestamps carry a [`Class`] in
//! their lowest bit, and a snapshot has two numbers: up to `whole` all commits are seen, up to `quick` those that wait for
//! no device.
//!
//! Invariants:
//! - *What is seen grows.* Both numbers ascend, so what one snapshot sees every later one sees, and no two snapshots see
//!   two commits in different orders.
//! - *Nothing without what it built on.* A commit sees its snapshot, so what it builds on was visible before it began:
//!   whoever sees the commit sees that too. Two commits of which neither sees the other write different keys (the first
//!   committer wins), so their timestamps, whichever is less, are a serial order of both. In groups that read no
//!   snapshots that need not be so: their commits are [`Class::Slow`], and their readers look at `whole` alone.
//! - `quick >= whole`.

use crate::{INFINITY, Timestamp};

/// How far timestamps are apart, so that each has room for its class.
pub(crate) const STEP: Timestamp = 2;

/// How a commit becomes visible: the lowest bit of its timestamp. Those of older releases have any; all commits of an
/// earlier run are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Class {
    /// As soon as it is whole.
    Quick = 0,
    /// When the device has it, or after others.
    Slow = 1,
}

impl Class {
    #[inline]
    pub(crate) fn of(timestamp: Timestamp) -> Class {
        if timestamp & 1 == 0 { Class::Quick } else { Class::Slow }
    }

    /// The timestamp of the class, of those that are drawn together.
    #[inline]
    pub(crate) fn timestamp(self, drawn: Timestamp) -> Timestamp {
        drawn | self as u64
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Snapshot {
    // First: snapshots are ordered by it.
    pub(crate) quick: Timestamp,
    pub(crate) whole: Timestamp,
}

impl Snapshot {
    /// All up to a moment.
    #[inline]
    pub(crate) fn at(moment: Timestamp) -> Snapshot {
        Snapshot { quick: moment, whole: moment }
    }

    /// Whether a commit with this timestamp is seen.
    #[inline]
    pub(crate) fn sees(self, timestamp: Timestamp) -> bool {
        timestamp <= self.whole || (timestamp <= self.quick && Class::of(timestamp) == Class::Quick)
    }

    /// Whether the version that counts from `cts` until `dts` is seen.
    #[inline]
    pub(crate) fn sees_version(self, cts: Timestamp, dts: Timestamp) -> bool {
        self.sees(cts) && !self.sees(dts)
    }
}

const _: () = assert!(INFINITY & 1 == Class::Slow as u64, "no snapshot sees what has not ended as ended");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_commits_are_seen_before_slow_ones_that_are_older() {
        let snapshot = Snapshot { quick: 20, whole: 10 };
        for (timestamp, seen) in
            [(0, true), (9, true), (10, true), (11, false), (12, true), (20, true), (22, false)]
        {
            assert_eq!(snapshot.sees(timestamp), seen, "{timestamp}");
        }
        assert!(!snapshot.sees(INFINITY) && !Snapshot::at(INFINITY - 1).sees(INFINITY));
        assert!(snapshot.sees_version(12, 15) && !snapshot.sees_version(12, 14));
        assert!((0..30).all(|at| Snapshot::at(17).sees(at) == (at <= 17)));
    }
}
