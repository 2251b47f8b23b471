//! The figures that everything else stands on: the FPTree beside the standard library's volatile B-tree,
//! snapshot reads, opening a large database, and the demo's rate.

mod databases;
mod tree;

use crate::report::Report;
use crate::{Error, RunOptions};

/// Keys that are looked up, or rows that are written, together.
const BATCH: usize = 1024;

struct Sizes {
    keys: usize,
    rounds: usize,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        if options.quick { Sizes { keys: 100_000, rounds: 1 } } else { Sizes { keys: 10_000_000, rounds: 3 } }
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    tree::beside_map(options, &sizes, report)?;
    databases::snapshot_reads(options, report)?;
    databases::opening(options, &sizes, report)?;
    databases::demo(options, report)
}
