//! The invalid timestamps of one group: those of commits that did not finish (dissertation 5.5).
//!
//! Every visibility check asks here, so the common answer costs two loads: the timestamp lies before
//! the first range or after the last.
//!
//! Invariant: ranges are disjoint, ascending, and never shrink or vanish once there are transactions (see
//! `reset`). Memory: [`RANGES_MAX`] ranges of 16 bytes.

use crate::{INFINITY, Timestamp};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of ranges that one group collects while it is open; a commit that fails beyond poisons the
/// context.
const RANGES_MAX: usize = 65_536;

/// Timestamps in `(from, to]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InvalidRange {
    from: Timestamp,
    to: Timestamp,
}

#[derive(Debug)]
pub(crate) struct InvalidRanges {
    /// Smallest `from`; INFINITY without ranges.
    from_min: AtomicU64,
    /// Largest `to`.
    to_max: AtomicU64,
    ranges: RwLock<Vec<InvalidRange>>,
}

impl InvalidRanges {
    pub(crate) fn new() -> Self {
        InvalidRanges {
            from_min: AtomicU64::new(INFINITY),
            to_max: AtomicU64::new(0),
            ranges: RwLock::new(Vec::new()),
        }
    }

    /// Adds `(from, to]`; false when there is no room. The timestamps of the range are not visible yet, so no
    /// reader can miss it.
    #[must_use]
    pub(crate) fn add(&self, from: Timestamp, to: Timestamp) -> bool {
        assert!(from < to && to < INFINITY, "({from}, {to}] is not a range of timestamps");
        let mut ranges = self.ranges.write();
        // Ranges that overlap it, or touch it, become one with it.
        let first = ranges.partition_point(|range| range.to < from);
        let end = ranges.partition_point(|range| range.from <= to);
        if first == end && ranges.len() >= RANGES_MAX {
            return false;
        }
        let of_all = ranges[first..end].iter().fold(InvalidRange { from, to }, |all, range| InvalidRange {
            from: all.from.min(range.from),
            to: all.to.max(range.to),
        });
        ranges.splice(first..end, [of_all]);
        assert!(ranges.windows(2).all(|pair| pair[0].to < pair[1].from), "invalid ranges overlap");
        self.from_min.fetch_min(from, Ordering::AcqRel);
        self.to_max.fetch_max(to, Ordering::AcqRel);
        true
    }

    /// Tells whether the timestamp belongs to a commit that never finished.
    #[inline]
    pub(crate) fn contains(&self, timestamp: Timestamp) -> bool {
        timestamp <= self.to_max.load(Ordering::Acquire)
            && timestamp > self.from_min.load(Ordering::Acquire)
            && self.search(timestamp)
    }

    #[cold]
    fn search(&self, timestamp: Timestamp) -> bool {
        let ranges = self.ranges.read();
        let after = ranges.partition_point(|range| range.from < timestamp);
        after > 0 && timestamp <= ranges[after - 1].to
    }

    /// Forgets all ranges. Only before the first transaction, after a scrub: a reader may hold an object that
    /// a scrub did not touch because it had been replaced.
    pub(crate) fn reset(&self) {
        let mut ranges = self.ranges.write();
        ranges.clear();
        self.to_max.store(0, Ordering::Release);
        self.from_min.store(INFINITY, Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.to_max.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_exclude_their_start_and_include_their_end() {
        let ranges = InvalidRanges::new();
        assert!(ranges.is_empty() && !ranges.contains(5) && !ranges.contains(INFINITY));
        assert!(ranges.add(20, 30));
        assert!(ranges.add(5, 8));
        assert!(ranges.add(20, 33), "grows");
        let inside: Vec<u64> = (0..40).filter(|&t| ranges.contains(t)).collect();
        assert_eq!(inside, [6, 7, 8, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33]);
        assert!(!ranges.contains(INFINITY));
        assert!(ranges.add(40, 41) && ranges.add(39, 40) && ranges.add(7, 25));
        let inside: Vec<u64> = (0..50).filter(|&t| ranges.contains(t)).collect();
        assert_eq!(inside, (6..34).chain([40, 41]).collect::<Vec<_>>(), "what overlaps becomes one");
    }
}
