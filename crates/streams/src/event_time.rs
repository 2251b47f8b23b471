//! Event times.

use std::fmt;

/// Event time of a tuple, a watermark, or an edge of a window: microseconds since the epoch. Durations are plain
/// numbers of microseconds.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTime(i64);

impl EventTime {
    /// Watermark before any tuple: no time is earlier.
    pub const START: EventTime = EventTime(i64::MIN);
    /// Watermark at the end of a stream: no tuple follows.
    pub const END: EventTime = EventTime(i64::MAX);

    /// Time so many microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> EventTime {
        EventTime(micros)
    }

    /// Time of a clock in nanoseconds since the epoch.
    pub(crate) fn from_nanoseconds(nanoseconds: u64) -> EventTime {
        EventTime(i64::try_from(nanoseconds / 1000).unwrap_or(i64::MAX))
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Time so many microseconds later; at most the end of time.
    #[inline]
    pub(crate) fn plus(self, micros: i64) -> EventTime {
        EventTime(self.0.saturating_add(micros))
    }

    /// Time so many microseconds earlier; at least the start of time.
    #[inline]
    pub(crate) fn minus(self, micros: i64) -> EventTime {
        EventTime(self.0.saturating_sub(micros))
    }

    /// Microseconds since an earlier time; negative since a later one.
    pub(crate) fn since(self, earlier: EventTime) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time rounded down to a multiple of a number of microseconds since the epoch.
    #[inline]
    pub(crate) fn rounded_down(self, micros: i64) -> EventTime {
        debug_assert!(micros > 0, "a window is not empty: {micros} microseconds");
        EventTime(self.0.div_euclid(micros).saturating_mul(micros))
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_down_and_do_not_wrap() {
        let at = EventTime::from_micros;
        assert_eq!([-11, -10, -1, 0, 9].map(|us| at(us).rounded_down(10).micros()), [-20, -10, -10, 0, 0]);
        assert_eq!((EventTime::END.plus(1), EventTime::START.minus(1)), (EventTime::END, EventTime::START));
        assert!(EventTime::START.rounded_down(10) >= EventTime::START);
        assert_eq!((at(7).since(at(2)), EventTime::START.since(EventTime::END)), (5, i64::MIN));
        assert_eq!(EventTime::from_nanoseconds(1_999).micros(), 1);
        assert_eq!(EventTime::from_nanoseconds(u64::MAX).micros(), i64::try_from(u64::MAX / 1000).unwrap());
    }
}
