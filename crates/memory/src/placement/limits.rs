//! Limits of a medium, derived from its bandwidth curves.

use crate::profile::{Direction, Pattern, Profile};

/// Limits of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of writing threads that suffice for the full bandwidth.
    pub writers_min: usize,
    /// Number of writing threads beyond which it falls.
    pub writers_max: usize,
    /// Bytes of an access that reaches the full bandwidth.
    pub access_bytes: usize,
    /// Bytes of the smallest access without amplification: the device's block.
    pub small_access_bytes: usize,
    /// True if reading and writing at once reduces both by more than half.
    pub serializes_mixed: bool,
}

/// Share of the best bandwidth that counts as equal, within the scatter of measurements.
pub(super) const NEARLY: f64 = 0.95;

impl Limits {
    /// Derives the limits from a profile's curves.
    ///
    /// The access size is the smallest that reaches the highest bandwidth of threads that write in turn
    /// (grouped: the harder case). Writers are those counts that reach the highest individual bandwidth at
    /// that size and keep it with larger pieces.
    pub fn of(profile: &Profile) -> Limits {
        let grouped = profile.bandwidth.curve(Direction::Write, Pattern::Grouped);
        let column_peak = |column: usize| grouped.gb_per_s.iter().map(|row| row[column]).fold(0.0, f64::max);
        let columns = 0..grouped.access_bytes.len();
        let column = columns.clone().find(|column| column_peak(*column) >= NEARLY * grouped.peak());
        let access_bytes = column.map_or(4096, |column| grouped.access_bytes[column]);

        let curve = profile.bandwidth.curve(Direction::Write, Pattern::Individual);
        let lowest_from = |threads: u64| {
            let sizes = curve.access_bytes.iter().filter(|bytes| **bytes >= access_bytes);
            sizes.map(|bytes| curve.at(threads, *bytes)).fold(curve.at(threads, access_bytes), f64::min)
        };
        let best = curve.threads.iter().map(|threads| lowest_from(*threads)).fold(0.0, f64::max);
        let good: Vec<u64> =
            curve.threads.iter().copied().filter(|threads| lowest_from(*threads) >= NEARLY * best).collect();
        Limits {
            writers_min: good.first().map_or(1, |threads| *threads as usize),
            writers_max: good.last().map_or(1, |threads| *threads as usize),
            access_bytes: access_bytes as usize,
            small_access_bytes: profile.medium.block_bytes as usize,
            serializes_mixed: profile.mixed.as_ref().is_some_and(|mixed| {
                let shares = mixed.read_share.iter().zip(&mixed.write_share);
                shares
                    .flat_map(|(read, write)| read.iter().zip(write))
                    .any(|(read, write)| *read < 0.5 && *write < 0.5)
            }),
        }
    }
}
