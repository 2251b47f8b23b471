//! Cost of an allocation: reserve, initialise and publish a node, beside the same through undo-log
//! transactions of libpmemobj's kind, on the same medium, in the same run, turn by turn; what mixed sizes
//! leave of the space; and how much of a tree's split is allocation (dissertation E5: about 80% with PMDK).
//!
//! Times are medians of runs of [`RUN`] operations, so that neither a time slice of another process nor a
//! checkpoint counts; objects of earlier rounds are freed, so that rounds after the first use memory that was
//! used before.

mod churn;
mod nodes;
mod split;
mod undo_log;

use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{DomainChoice, Pool, PoolOptions};
use std::sync::Arc;
use tempfile::TempDir;

/// Operations that are timed together.
const RUN: usize = 500;

struct Sizes {
    /// Runs of a round, per thread.
    runs: usize,
    rounds: usize,
    churn_bytes: u64,
    keys: u64,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        if options.quick {
            Sizes { runs: 4, rounds: 2, churn_bytes: 2 << 20, keys: 3_000 }
        } else {
            Sizes { runs: 100, rounds: 5, churn_bytes: 128 << 20, keys: 100_000 }
        }
    }
}

/// A medium to measure on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Journal,
    DaxEmulated,
    Volatile,
}

impl Medium {
    const ALL: [Medium; 3] = [Medium::Journal, Medium::DaxEmulated, Medium::Volatile];

    fn name(self) -> &'static str {
        match self {
            Medium::Journal => "journal, none",
            Medium::DaxEmulated => "dax (emulated)",
            Medium::Volatile => "volatile",
        }
    }

    /// A new pool; none where this machine has no cache-line flush.
    fn pool(self, dir: &TempDir) -> Result<Option<Arc<Pool>>, Error> {
        let domain = match self {
            Medium::Journal => DomainChoice::Journal,
            Medium::DaxEmulated => DomainChoice::DaxEmulated,
            Medium::Volatile => return Ok(Some(Pool::volatile(&PoolOptions::default())?)),
        };
        match Pool::open_or_create(dir.path(), &PoolOptions { domain, ..PoolOptions::default() }) {
            Err(entresol_memory::Error::Unsupported(_)) => Ok(None),
            pool => Ok(Some(pool?)),
        }
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    for medium in Medium::ALL {
        nodes::beside_undo_log(options, &sizes, medium, report)?;
    }
    churn::mixed_sizes(options, &sizes, report)?;
    split::share_of_allocation(options, &sizes, report)?;

    Ok(())
}
