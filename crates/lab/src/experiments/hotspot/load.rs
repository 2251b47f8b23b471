//! Keys of the lookups, and kinds of changes.

use super::meter::{Meter, ProcessorCost};
use crate::Error;
use crate::measure::Random;
use entresol_memory::Pool;
use entresol_structures::{Inserted, PointIndex};
use std::sync::Arc;

/// The key of a number: one to one, without order.
pub(super) fn key(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Distribution of accesses over keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skew {
    /// All alike.
    Uniform,
    /// This percentage of the accesses on a fifth of the keys, the rest on the others.
    Hot(u64),
    /// Zipf's distribution, exponent 0.99.
    Zipf,
}

impl Skew {
    pub(super) fn name(self) -> String {
        match self {
            Skew::Uniform => "uniform".to_string(),
            Skew::Hot(percent) => format!("{percent}%"),
            Skew::Zipf => "zipf .99".to_string(),
        }
    }

    /// Numbers of keys below `keys`; the hot ones are those from `first` on, around the end.
    pub(super) fn draw(self, random: &mut Random, keys: u64, first: u64, count: usize) -> Vec<u64> {
        let sums = if self == Skew::Zipf { zipf_sums(keys) } else { Vec::new() };
        let total = sums.last().copied().unwrap_or(1.0);
        let mut one = || match self {
            Skew::Uniform => random.below(keys),
            Skew::Hot(percent) if random.below(100) < percent => random.below(keys / 5),
            Skew::Hot(_) => keys / 5 + random.below(keys - keys / 5),
            Skew::Zipf => {
                let at = random.next_u64() as f64 / u64::MAX as f64 * total;
                (sums.partition_point(|sum| *sum < at) as u64).min(keys - 1)
            }
        };
        (0..count).map(|_| (first + one()) % keys).collect()
    }
}

/// Sums of the weights of the ranks up to each.
fn zipf_sums(keys: u64) -> Vec<f64> {
    (1..=keys)
        .scan(0.0, |sum, rank| {
            *sum += (rank as f64).powf(-0.99);
            Some(*sum)
        })
        .collect()
}

/// Kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Update,
    DeleteAndInsert,
}

impl Change {
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Change::Update => &["update"],
            Change::DeleteAndInsert => &["delete", "insert"],
        }
    }

    /// Processor time of each, in the order of their names.
    pub(super) fn work_ns(self, work: &ProcessorCost) -> Vec<f64> {
        match self {
            Change::Update => vec![work.update],
            Change::DeleteAndInsert => vec![work.delete, work.insert],
        }
    }

    /// ns of each operation, in the order of their names. New values are a key's number plus `offset`.
    pub(super) fn ns(
        self,
        meter: &Meter,
        index: &impl PointIndex<Key = u64>,
        pool: &Arc<Pool>,
        numbers: &[u64],
        offset: u64,
    ) -> Result<Vec<f64>, Error> {
        let with = || pool.publication();
        let update = |number| Ok(index.replace(key(number), number + offset, with())?.is_some());
        let delete = |number| Ok(index.remove(key(number), with())?.is_some());
        let insert = |number| Ok(index.insert(key(number), number + offset, with())? == Inserted::New);
        Ok(match self {
            Change::Update => vec![meter.ns(numbers, update)?],
            Change::DeleteAndInsert => vec![meter.ns(numbers, delete)?, meter.ns(numbers, insert)?],
        })
    }
}
