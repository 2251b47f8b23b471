//! Keys with a Zipf distribution of any skew, drawn before they are used.

use crate::measure::Random;

/// Zipf's distribution by its cumulative sums: exact for every theta, where the usual generator stops below
/// 1.
pub(super) struct Skew {
    /// The share of the ranks up to each.
    cumulative: Vec<f64>,
    tuples: u64,
}

/// Coprime to every number of tuples that has no such factor; spreads neighbouring ranks.
const SPREAD: u64 = 2_654_435_761;

impl Skew {
    /// Cost: a power for each tuple.
    pub(super) fn new(tuples: u64, theta: f64) -> Skew {
        assert!(tuples > 0 && !tuples.is_multiple_of(SPREAD), "{tuples} tuples");
        let mut sum = 0.0;
        let mut add = |rank: u64| {
            sum += (rank as f64).powf(-theta);
            sum
        };
        let mut cumulative: Vec<f64> = (1..=tuples).map(&mut add).collect();
        cumulative.iter_mut().for_each(|share| *share /= sum);
        Skew { cumulative, tuples }
    }

    /// Numbers of tuples; the popular ones lie anywhere.
    pub(super) fn draw(&self, random: &mut Random, count: usize) -> Vec<u32> {
        let one = |_| {
            let u = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let rank = self.cumulative.partition_point(|share| *share < u) as u64;
            (rank.min(self.tuples - 1) * SPREAD % self.tuples) as u32
        };
        (0..count).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_is_that_of_the_paper() {
        const TUPLES: u64 = 10_000;
        for (theta, share) in [(0.0, 0.0001), (1.0, 0.1022), (2.9, 0.82)] {
            let drawn = Skew::new(TUPLES, theta).draw(&mut Random::new(5), 100_000);
            let mut counts = vec![0u32; TUPLES as usize];
            drawn.iter().for_each(|tuple| counts[*tuple as usize] += 1);
            let found = f64::from(counts[0]) / drawn.len() as f64;
            assert!((found - share).abs() < 0.01, "theta {theta}: {found} on one key");
        }
        let all: std::collections::HashSet<u64> = (0..TUPLES).map(|rank| rank * SPREAD % TUPLES).collect();
        assert_eq!(all.len() as u64, TUPLES);
    }
}
