//! Cost-benefit of the cache: latencies of hits, of misses, and of the backing index, and the decision
//! whether to bypass the cache.
//!
//! One shard in 256, the probe, counts its queries and measures one in four of them. At the end of a period:
//!
//! ```text
//! gain = hits * (behind - hit)  -  misses * look  -  updates * look
//! ```
//!
//! where *updates* counts the updates of keys that had an entry, which has to be latched. Latencies are
//! running medians, so a preempted thread does not count.
//!
//! Limit of the model: a key that is always served from DRAM may be faster in the backing index than the keys
//! that are measured there, if the processor's caches would hold it.

#[cfg(feature = "testkit")]
use entresol_memory::Pool;
use std::fmt;
#[cfg(feature = "testkit")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// One in this number of queries of the probe is measured.
const QUERIES_PER_TIMED: u64 = 4;

/// Clock that measures gets.
#[derive(Clone, Default)]
pub enum Clock {
    /// The clock of this machine.
    #[default]
    Real,
    /// The device's clock of a `modelled` pool. It does not charge the cache's own DRAM.
    #[cfg(feature = "testkit")]
    Modelled {
        /// The pool of the backing index.
        pool: Arc<Pool>,
        /// Latency of a cache lookup, hit or miss.
        lookup_ns: u64,
    },
    /// Fixed latencies, not measured.
    Known {
        /// Latency of a get of the backing index.
        behind_ns: u64,
        /// Latency of a cache lookup, hit or miss.
        lookup_ns: u64,
    },
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clock::Real => f.write_str("Real"),
            #[cfg(feature = "testkit")]
            Clock::Modelled { lookup_ns, .. } => write!(f, "Modelled {{ look_ns: {lookup_ns} }}"),
            Clock::Known { behind_ns, lookup_ns } => {
                write!(f, "Known {{ behind_ns: {behind_ns}, look_ns: {lookup_ns} }}")
            }
        }
    }
}

/// Measures the parts of a get.
pub(super) trait Watch {
    /// The get of the backing index begins.
    fn behind_begins(&mut self);
    /// The get of the backing index ends.
    fn behind_ends(&mut self);
}

/// Watch of a get that is not measured.
pub(super) struct NoWatch;

impl Watch for NoWatch {
    #[inline(always)]
    fn behind_begins(&mut self) {}
    #[inline(always)]
    fn behind_ends(&mut self) {}
}

/// Instant of a clock.
#[derive(Clone, Copy)]
enum ClockReading {
    Real(Instant),
    #[cfg(feature = "testkit")]
    Picoseconds(u64),
    Known,
}

/// Measurement of one get.
pub(super) struct TimedWatch<'c> {
    clock: &'c Clock,
    start: ClockReading,
    behind: Option<ClockReading>,
    behind_ns: u64,
}

impl<'c> TimedWatch<'c> {
    pub(super) fn start(clock: &'c Clock) -> TimedWatch<'c> {
        TimedWatch { clock, start: clock.now(), behind: None, behind_ns: 0 }
    }
}

impl Watch for TimedWatch<'_> {
    fn behind_begins(&mut self) {
        self.behind = Some(self.clock.now());
    }

    fn behind_ends(&mut self) {
        self.behind_ns = self.behind.map_or(0, |begun| self.clock.ns_since(begun));
    }
}

impl Clock {
    fn now(&self) -> ClockReading {
        match self {
            Clock::Real => ClockReading::Real(Instant::now()),
            #[cfg(feature = "testkit")]
            Clock::Modelled { pool, .. } => {
                ClockReading::Picoseconds(pool.modelled_cost().map_or(0, |cost| cost.picoseconds))
            }
            Clock::Known { .. } => ClockReading::Known,
        }
    }

    fn ns_since(&self, reading: ClockReading) -> u64 {
        match (reading, self.now()) {
            (ClockReading::Real(then), _) => then.elapsed().as_nanos() as u64,
            #[cfg(feature = "testkit")]
            (ClockReading::Picoseconds(then), ClockReading::Picoseconds(now)) => (now - then) / 1000,
            _ => 0,
        }
    }

    /// Returns the cache's own part of a get that took `ns` in all.
    fn own_ns(&self, ns: u64, behind_ns: u64) -> u64 {
        match self {
            Clock::Real => ns.saturating_sub(behind_ns),
            #[cfg(feature = "testkit")]
            Clock::Modelled { lookup_ns, .. } => *lookup_ns,
            Clock::Known { lookup_ns, .. } => *lookup_ns,
        }
    }
}

/// Running median: a greater sample raises it by a sixteenth, a smaller one lowers it by as much.
#[derive(Default)]
struct Median(AtomicU64);

impl Median {
    fn add(&self, sample: u64) {
        let present = self.0.load(Relaxed);
        let step = present / 16 + 1;
        let next = match sample.cmp(&present) {
            _ if present == 0 => sample,
            std::cmp::Ordering::Greater => (present + step).min(sample),
            std::cmp::Ordering::Less => present.saturating_sub(step).max(sample),
            std::cmp::Ordering::Equal => present,
        };
        debug_assert!(
            present == 0 || (present.min(sample)..=present.max(sample)).contains(&next),
            "the median moves from {present} towards {sample}, not to {next}"
        );
        self.0.store(next, Relaxed);
    }

    fn ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Result of a period of the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) queries: u64,
    pub(super) hits: u64,
    /// True if the cache saved more time than it cost.
    pub(super) pays: bool,
}

/// Counters and latencies of the probe. Concurrent threads may lose counts.
#[derive(Default)]
pub(super) struct Benefit {
    queries: AtomicU64,
    hits: AtomicU64,
    updates: AtomicU64,
    hit: Median,
    look: Median,
    behind: Median,
}

fn add(count: &AtomicU64, more: u64) -> u64 {
    let sum = count.load(Relaxed) + more;
    count.store(sum, Relaxed);
    sum
}

impl Benefit {
    /// Returns the watch for the next query, if it is to be measured.
    pub(super) fn watch<'c>(&self, clock: &'c Clock) -> Option<TimedWatch<'c>> {
        self.queries.load(Relaxed).is_multiple_of(QUERIES_PER_TIMED).then(|| TimedWatch::start(clock))
    }

    /// Records a measured query.
    pub(super) fn note(&self, timed: &TimedWatch<'_>, is_hit: bool) {
        let own_ns = timed.clock.own_ns(timed.clock.ns_since(timed.start), timed.behind_ns);
        if is_hit {
            self.hit.add(own_ns);
        } else {
            self.look.add(own_ns);
            self.behind.add(match timed.clock {
                Clock::Known { behind_ns, .. } => *behind_ns,
                _ => timed.behind_ns,
            });
        }
    }

    /// Counts an update of a key that had an entry.
    pub(super) fn count_update(&self) {
        add(&self.updates, 1);
    }

    /// Counts a query; returns the result at the end of a period.
    pub(super) fn count_query(&self, is_hit: bool, period_queries: u64) -> Option<Period> {
        debug_assert!(period_queries > 0, "a period has queries");
        add(&self.hits, u64::from(is_hit));
        let queries = add(&self.queries, 1);
        if queries < period_queries {
            return None;
        }
        self.queries.store(0, Relaxed);
        let (hits, updates) = (self.hits.swap(0, Relaxed), self.updates.swap(0, Relaxed));
        let hits = hits.min(queries);
        let [hit, look, behind] = self.times_ns().map(u128::from);
        let saved = u128::from(hits) * behind.saturating_sub(hit);
        let cost = (u128::from(queries - hits) + u128::from(updates)) * look;
        Some(Period { queries, hits, pays: saved > cost })
    }

    /// Returns the latencies of a hit, of a miss, and of the backing index.
    pub(super) fn times_ns(&self) -> [u64; 3] {
        [&self.hit, &self.look, &self.behind].map(Median::ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_median_follows_new_values_and_ignores_outliers() {
        let median = Median::default();
        (0..200).for_each(|i| median.add(if i % 10 == 0 { 1_000_000 } else { 100 }));
        assert!((90..130).contains(&median.ns()), "{}", median.ns());
        (0..200).for_each(|_| median.add(1000));
        assert_eq!(median.ns(), 1000);
    }

    #[test]
    fn it_pays_when_hits_save_more_than_lookups_cost() {
        let period = |hits: u64, updates: u64| {
            let (benefit, clock) = (Benefit::default(), Clock::Known { behind_ns: 500, lookup_ns: 100 });
            (0..updates).for_each(|_| benefit.count_update());
            let mut last = None;
            for query in 0..100 {
                if let Some(timed) = benefit.watch(&clock) {
                    benefit.note(&timed, query < hits);
                }
                last = benefit.count_query(query < hits, 100);
            }
            last.unwrap()
        };
        assert!(period(21, 0).pays && !period(19, 0).pays);
        assert!(!period(26, 50).pays && period(80, 50).pays, "updates of what is cached cost a look");
        assert_eq!(period(80, 0), Period { queries: 100, hits: 80, pays: true });
    }
}
