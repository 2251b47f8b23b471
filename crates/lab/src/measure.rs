//! Timing and workloads.

use std::time::Instant;

/// A reproducible stream of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Puts the items in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Nanoseconds per operation of work that does `operations` of them.
pub fn ns_per_operation<E>(operations: usize, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64 / operations as f64)
}

/// Touches memory that is about to be used, and frees it. A virtual machine's host may hold free memory: then
/// the first store to each page waits for the host, 10 to 20 us where the kernel's own work is 0.3, and a
/// store that takes more memory would be measured by that. Lasts a second or two: the kernel offers what
/// stays free to the host again.
pub fn back_memory(bytes: usize) {
    // From the kernel as one zeroed range of its own, so that dropping it gives all of it back.
    let mut memory = vec![0u8; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&mut memory);
}

/// The middle one; the mean of the two middle ones of an even number.
pub fn median(samples: &[f64]) -> f64 {
    assert!(!samples.is_empty(), "a median needs a sample");
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_bounds() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(10) < 10));
    }
}
