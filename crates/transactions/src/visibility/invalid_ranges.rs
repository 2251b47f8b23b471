//! The invalid timestamps of one group: those of commits that did not finish (dissertation 5.5).
//!
//! Every visibility check asks here, so the common answer costs two loads: the timestamp lies before
//! the first range or after the last.
//!
//! Invariant: ranges are disjoint, ascending, and never shrink or vanish once there are transactions (see
//! `reset`). Memory: [`RANGES_MAX`] ranges of 16 bytes.

use crate::{AtomicTimestamp, INFINITY, Timestamp};
use parking_lot::RwLock;
use std::sync::atomic::Ordering;

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
    from_min: AtomicTimestamp,
    /// Largest `to`.
    to_max: AtomicTimestamp,
    ranges: RwLock<Vec<InvalidRange>>,
}

impl InvalidRanges {
    pub(crate) fn new() -> Self {
        InvalidRanges {
            from_min: AtomicTimestamp::new(INFINITY),
            to_max: AtomicTimestamp::new(Timestamp::START),
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
        self.to_max.store(Timestamp::START, Ordering::Release);
        self.from_min.store(INFINITY, Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.to_max.load(Ordering::Acquire) == Timestamp::START
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    #[test]
    fn ranges_exclude_their_start_and_include_their_end() {
        let ranges = InvalidRanges::new();
        assert!(ranges.is_empty() && !ranges.contains(at(5)) && !ranges.contains(INFINITY));
        assert!(ranges.add(at(20), at(30)));
        assert!(ranges.add(at(5), at(8)));
        assert!(ranges.add(at(20), at(33)), "grows");
        let inside: Vec<u64> = (0..40).filter(|&t| ranges.contains(at(t))).collect();
        assert_eq!(inside, [6, 7, 8, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33]);
        assert!(!ranges.contains(INFINITY));
        assert!(ranges.add(at(40), at(41)) && ranges.add(at(39), at(40)) && ranges.add(at(7), at(25)));
        let inside: Vec<u64> = (0..50).filter(|&t| ranges.contains(at(t))).collect();
        assert_eq!(inside, (6..34).chain([40, 41]).collect::<Vec<_>>(), "what overlaps becomes one");
    }
}
