//! Uniform tuples, column by column, and a scan of them.

use crate::measure::Random;
use entresol_structures::elf::CodeCondition;

/// Number of dimensions.
pub(super) const DIMENSIONS: usize = 10;
/// Number of codes of a dimension.
const CODES: u32 = 100;
/// Tuples of which a scan has a selection at a time.
const BLOCK: usize = 8192;

/// Tuples of codes, and the number of codes.
pub(super) struct Tuples(Vec<Vec<u32>>, u32);

impl Tuples {
    /// Tuples with uniform codes.
    pub(super) fn uniform(tuples: usize, seed: u64) -> Tuples {
        Tuples::with_codes(tuples, CODES, seed)
    }

    /// Tuples with so many uniform codes in each dimension.
    pub(super) fn with_codes(tuples: usize, codes: u32, seed: u64) -> Tuples {
        let mut random = Random::new(seed);
        let mut column = || (0..tuples).map(|_| random.below(codes.into()) as u32).collect();
        Tuples((0..DIMENSIONS).map(|_| column()).collect(), codes)
    }

    /// Number of codes of a dimension.
    pub(super) fn codes(&self) -> u32 {
        self.1
    }

    /// Codes of each dimension.
    pub(super) fn columns(&self) -> Vec<&[u32]> {
        self.0.iter().map(Vec::as_slice).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0[0].len()
    }

    pub(super) fn code(&self, dimension: usize, tuple: usize) -> u32 {
        self.0[dimension][tuple]
    }

    /// The first and the second half of the tuples.
    pub(super) fn halves(&self) -> [Tuples; 2] {
        let half = self.len() / 2;
        let first = self.0.iter().map(|codes| codes[..half].to_vec()).collect();
        let second = self.0.iter().map(|codes| codes[half..].to_vec()).collect();
        [Tuples(first, self.1), Tuples(second, self.1)]
    }

    /// Number of tuples that meet conditions, by a scan: a block at a time, one condition after another, each on the
    /// tuples that are left.
    pub(super) fn count(&self, conditions: &[CodeCondition]) -> usize {
        let mut count = 0;
        let mut selected: Vec<u32> = Vec::with_capacity(BLOCK);
        for first in (0..self.len()).step_by(BLOCK) {
            selected.clear();
            selected.extend(first as u32..(first + BLOCK).min(self.len()) as u32);
            for (condition, codes) in conditions.iter().zip(&self.0) {
                if let CodeCondition::Between { least, greatest } = condition {
                    let width = greatest - least;
                    retain(&mut selected, |tuple| codes[tuple as usize].wrapping_sub(*least) <= width);
                }
            }
            count += selected.len();
        }
        count
    }
}

/// Removes what does not meet a condition, without branches on it.
fn retain(selected: &mut Vec<u32>, is_met: impl Fn(u32) -> bool) {
    let mut count = 0;
    for at in 0..selected.len() {
        let tuple = selected[at];
        selected[count] = tuple;
        count += usize::from(is_met(tuple));
    }
    selected.truncate(count);
}
