//! A bounded histogram of durations: 16 steps per power of two, so percentiles are at most 6.25% too high.
//! Fixed size (8 KiB), never fails; counters do not overflow within 2^64 samples.

const STEPS_BITS: u32 = 4;
const STEPS: usize = 1 << STEPS_BITS;
const BUCKETS: usize = (64 - STEPS_BITS as usize + 1) * STEPS;

#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    samples: u64,
    max_ns: u64,
}

/// Percentiles of durations, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latencies {
    /// Number of samples.
    pub samples: u64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]), samples: 0, max_ns: 0 }
    }

    pub(crate) fn record(&mut self, duration_ns: u64) {
        self.counts[bucket(duration_ns)] += 1;
        self.samples += 1;
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// Returns an upper bound of the duration that the fraction `share` of the samples does not exceed.
    fn percentile_ns(&self, share: f64) -> u64 {
        let wanted = (share * self.samples as f64).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper_bound(at).min(self.max_ns);
            }
        }
        self.max_ns
    }

    pub(crate) fn latencies(&self) -> Latencies {
        let us = |share: f64| self.percentile_ns(share) as f64 / 1000.0;
        Latencies {
            samples: self.samples,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: self.max_ns as f64 / 1000.0,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let exponent = value.ilog2() - STEPS_BITS;
    let step = (value >> exponent) as usize - STEPS;
    (exponent as usize + 1) * STEPS + step
}

fn upper_bound(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let exponent = (bucket / STEPS - 1) as u32;
    let step = (bucket % STEPS + STEPS) as u128;
    u64::try_from(((step + 1) << exponent) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values_within_a_sixteenth() {
        for value in (0..5000).chain([u64::MAX, u64::MAX / 3, 1 << 40]) {
            let upper = upper_bound(bucket(value));
            assert!(upper >= value && upper as f64 <= value as f64 * 1.0625 + 1.0, "{value} {upper}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.latencies(), Latencies::default());
        for us in 1..=1000 {
            histogram.record(us * 1000);
        }
        let latencies = histogram.latencies();
        assert!((500.0..=532.0).contains(&latencies.p50_us), "{latencies:?}");
        assert!((990.0..=1000.0).contains(&latencies.p99_us));
        assert_eq!(latencies.max_us, 1000.0);
    }
}
