//! Timestamps and the numbers of states and groups.

use std::fmt;
use std::num::{ParseIntError, TryFromIntError};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Commit timestamp (CTS), or that of the commit that deleted a version (DTS). Assigned by one counter that
/// starts, at every open, at the clock in nanoseconds or after everything stored, whichever is later; so it
/// also orders commits across restarts. While a state keeps a version history, timestamps are at least the
/// clock: a point in time is one as well.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// Deletion timestamp of a version that nothing has superseded.
pub const INFINITY: Timestamp = Timestamp(u64::MAX);

impl Timestamp {
    /// Timestamp before those of all commits.
    pub const START: Timestamp = Timestamp(0);
    /// Bound of timestamps that are assigned: whatever the clock says, they end before it.
    pub(crate) const ASSIGNED_END: Timestamp = Timestamp(u64::MAX / 2);

    /// Decodes a stored word.
    #[inline]
    pub const fn from_stored(word: u64) -> Timestamp {
        Timestamp(word)
    }

    /// Word to be stored.
    #[inline]
    pub const fn stored(self) -> u64 {
        self.0
    }

    /// Timestamp of a time in nanoseconds since 1970.
    #[inline]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Timestamp {
        Timestamp(nanoseconds)
    }

    /// Nanoseconds since 1970, if timestamps follow the clock.
    #[inline]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Number as SQL shows it, in a BIGINT; at most its greatest.
    pub fn bigint(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Timestamp right behind it.
    #[inline]
    pub const fn next(self) -> Timestamp {
        Timestamp(self.0 + 1)
    }

    /// Timestamp right before it, which is not the first.
    #[inline]
    pub const fn previous(self) -> Timestamp {
        Timestamp(self.0 - 1)
    }

    /// Timestamp so many nanoseconds later; at most infinity.
    #[inline]
    pub const fn plus(self, nanoseconds: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(nanoseconds))
    }

    /// Timestamp so many nanoseconds earlier; at least the first.
    #[inline]
    pub const fn minus(self, nanoseconds: u64) -> Timestamp {
        Timestamp(self.0.saturating_sub(nanoseconds))
    }

    /// Nanoseconds since an earlier timestamp; 0 if that is not earlier.
    #[inline]
    pub const fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// First timestamp from it on that is a multiple of a number.
    #[inline]
    pub(crate) const fn rounded_up(self, multiple: u64) -> Timestamp {
        Timestamp(self.0.next_multiple_of(multiple))
    }
}

/// Conversion of a BIGINT, which is not negative.
impl TryFrom<i64> for Timestamp {
    type Error = TryFromIntError;

    fn try_from(number: i64) -> Result<Timestamp, TryFromIntError> {
        u64::try_from(number).map(Timestamp)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Timestamp {
    type Err = ParseIntError;

    fn from_str(number: &str) -> Result<Timestamp, ParseIntError> {
        number.parse().map(Timestamp)
    }
}

/// Timestamp that threads share.
#[repr(transparent)]
#[derive(Debug)]
pub struct AtomicTimestamp(AtomicU64);

impl AtomicTimestamp {
    /// Shares a timestamp.
    pub const fn new(timestamp: Timestamp) -> AtomicTimestamp {
        AtomicTimestamp(AtomicU64::new(timestamp.0))
    }

    /// Loads the timestamp.
    #[inline]
    pub fn load(&self, order: Ordering) -> Timestamp {
        Timestamp(self.0.load(order))
    }

    /// Stores a timestamp.
    #[inline]
    pub fn store(&self, timestamp: Timestamp, order: Ordering) {
        self.0.store(timestamp.0, order);
    }

    /// Stores a timestamp and returns the one before.
    #[inline]
    pub fn swap(&self, timestamp: Timestamp, order: Ordering) -> Timestamp {
        Timestamp(self.0.swap(timestamp.0, order))
    }

    /// Stores the greater of both timestamps and returns the one before.
    #[inline]
    pub fn fetch_max(&self, timestamp: Timestamp, order: Ordering) -> Timestamp {
        Timestamp(self.0.fetch_max(timestamp.0, order))
    }

    /// Stores the lesser of both timestamps and returns the one before.
    #[inline]
    pub fn fetch_min(&self, timestamp: Timestamp, order: Ordering) -> Timestamp {
        Timestamp(self.0.fetch_min(timestamp.0, order))
    }

    /// Moves the timestamp on by a number and returns the one before.
    #[inline]
    pub(crate) fn fetch_advance(&self, step: u64, order: Ordering) -> Timestamp {
        Timestamp(self.0.fetch_add(step, order))
    }

    /// Stores a timestamp if there is the expected one; an error has the one that is there.
    #[inline]
    pub(crate) fn compare_exchange(
        &self,
        expected: Timestamp,
        new: Timestamp,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Timestamp, Timestamp> {
        self.0.compare_exchange(expected.0, new.0, success, failure).map(Timestamp).map_err(Timestamp)
    }
}

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

/// Timestamp of a number, for tests.
#[cfg(test)]
pub(crate) const fn at(number: u64) -> Timestamp {
    Timestamp(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_count_nanoseconds_and_end_before_infinity() {
        let (earlier, later) = (at(5), Timestamp::from_nanoseconds(1005));
        assert_eq!((later.since(earlier), earlier.since(later)), (1000, 0));
        assert_eq!((earlier.next(), earlier.previous()), (at(6), at(4)));
        assert_eq!((later.minus(1000), later.minus(1006)), (earlier, Timestamp::START));
        assert_eq!((earlier.plus(1000), later.plus(u64::MAX)), (later, INFINITY));
        assert_eq!((at(5).rounded_up(4), at(8).rounded_up(4)), (at(8), at(8)));
        assert!(Timestamp::START < earlier && Timestamp::ASSIGNED_END < INFINITY);
        assert_eq!((later.bigint(), INFINITY.bigint()), (1005, i64::MAX));
        assert_eq!(Timestamp::try_from(1005_i64), Ok(later));
        assert!(Timestamp::try_from(-1_i64).is_err());
    }

    #[test]
    fn timestamps_are_written_and_read_as_numbers() {
        assert_eq!(at(1005).to_string().parse(), Ok(at(1005)));
        assert_eq!(INFINITY.to_string().parse(), Ok(INFINITY));
        assert!("-1".parse::<Timestamp>().is_err() && "18446744073709551616".parse::<Timestamp>().is_err());
        assert_eq!(Timestamp::from_stored(at(7).stored()), at(7));
    }

    #[test]
    fn shared_timestamps_move_as_told() {
        let shared = AtomicTimestamp::new(at(10));
        assert_eq!(shared.fetch_max(at(12), Ordering::AcqRel), at(10));
        assert_eq!(shared.fetch_min(at(20), Ordering::AcqRel), at(12));
        assert_eq!(shared.fetch_advance(4, Ordering::AcqRel), at(12));
        assert_eq!(shared.compare_exchange(at(1), at(2), Ordering::AcqRel, Ordering::Acquire), Err(at(16)));
        assert_eq!(shared.swap(INFINITY, Ordering::AcqRel), at(16));
        assert_eq!(shared.load(Ordering::Acquire), INFINITY);
    }
}
