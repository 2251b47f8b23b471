//! The dissertation's section 5.8.1: concurrency protocols beside each other (figures 5.10 to 5.15, table
//! 5.1), what versions and transactions cost beside the bare base table.
//!
//! Its workload: two states of one group with a million tuples each, keys of 8 bytes, values of 32; one
//! stream that writes both, queries that read both, keys with a Zipf distribution from even (theta 0) to 82%
//! on one key (2.9); transactions of 2, 10 and 100 operations. A key is written in both states with the same
//! number, so every reader can tell whether it saw one snapshot: that is checked for every transaction that
//! committed.
//!
//! Threads share the cores of this machine, where the paper had twenty for each socket: compare protocols,
//! not figures.

mod bare;
mod bench;
mod contention;
mod modelled;
mod overhead;
mod skew;
mod versions;

pub(super) use contention::{abort_rate, long, medium, short};
pub(super) use overhead::run as overhead;
pub(super) use versions::run as versions;

use crate::RunOptions;
use std::time::Duration;

/// Operations of a transaction.
const MEDIUM: usize = 10;

/// Sizes of a measurement.
#[derive(Clone, Copy)]
struct Sizes {
    tuples: u64,
    phase: Duration,
    rounds: usize,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        if options.quick {
            Sizes { tuples: 4_000, phase: Duration::from_millis(12), rounds: 1 }
        } else {
            Sizes { tuples: 1_000_000, phase: Duration::from_millis(400), rounds: 3 }
        }
    }
}
