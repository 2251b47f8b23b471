//! Parameters of an LSM-tree, fixed at creation, and options, chosen at each open.

use crate::error::{Error, Result};
use std::path::PathBuf;

/// Maximum of levels of both kinds together.
pub(super) const LEVELS_MAX: u32 = 15;
/// Maximum of buffers, each with its log.
pub(super) const BUFFERS_MAX: u32 = 8;
const BUFFER_ENTRIES_MIN: u32 = 4;
const BUFFER_ENTRIES_MAX: u32 = 1 << 20;
const RUNS_MIN: u32 = 2;
const RUNS_MAX: u32 = 16;

/// Parameters that are fixed when a tree is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LsmParameters {
    /// Writes per buffer before it is moved to the first level. Each has 32 bytes of log in the pool.
    pub buffer_entries: u32,
    /// Buffers: one takes writes while the others are moved.
    pub buffers: u32,
    /// Tuning ratio: number of runs of a level that are merged into one of the next.
    pub runs_per_level: u32,
    /// Levels in the pool.
    pub pool_levels: u32,
    /// Levels below them, in files.
    pub disk_levels: u32,
}

impl Default for LsmParameters {
    fn default() -> LsmParameters {
        LsmParameters {
            buffer_entries: 1 << 15,
            buffers: 3,
            runs_per_level: 4,
            pool_levels: 6,
            disk_levels: 0,
        }
    }
}

impl LsmParameters {
    pub(super) fn levels(&self) -> u32 {
        self.pool_levels + self.disk_levels
    }

    /// Returns true if a level is in the pool.
    pub(super) fn is_in_pool(&self, level: usize) -> bool {
        level < self.pool_levels as usize
    }

    /// Returns the level whose run is built in a slot of the header: first that of a buffer, then those of
    /// merged levels.
    pub(super) fn slot_level(&self, slot: usize) -> usize {
        slot.min(self.levels() as usize - 1)
    }

    /// Maximum of runs of a level while a merge is running below it; at the maximum, the producer of a run
    /// waits.
    pub(super) fn runs_max(&self) -> usize {
        3 * self.runs_per_level as usize
    }

    pub(super) fn validate(&self) -> Result<()> {
        let within = |name: &str, value: u32, from: u32, to: u32| {
            if (from..=to).contains(&value) {
                return Ok(());
            }
            Err(Error::Invalid(format!("{name} is {value}; it must be from {from} to {to}")))
        };
        within("buffer_entries", self.buffer_entries, BUFFER_ENTRIES_MIN, BUFFER_ENTRIES_MAX)?;
        within("buffers", self.buffers, 2, BUFFERS_MAX)?;
        within("runs_per_level", self.runs_per_level, RUNS_MIN, RUNS_MAX)?;
        within("pool_levels", self.pool_levels, 0, LEVELS_MAX)?;
        within("disk_levels", self.disk_levels, 0, LEVELS_MAX)?;
        within("pool_levels + disk_levels", self.levels(), 1, LEVELS_MAX)
    }

    /// Encodes it as two words of the header.
    pub(super) fn to_words(self) -> [u64; 2] {
        [
            u64::from(self.buffer_entries) | u64::from(self.buffers) << 32,
            u64::from(self.runs_per_level)
                | u64::from(self.pool_levels) << 16
                | u64::from(self.disk_levels) << 32,
        ]
    }

    pub(super) fn of_words([sizes, levels]: [u64; 2]) -> LsmParameters {
        LsmParameters {
            buffer_entries: sizes as u32,
            buffers: (sizes >> 32) as u32,
            runs_per_level: u32::from(levels as u16),
            pool_levels: u32::from((levels >> 16) as u16),
            disk_levels: (levels >> 32) as u32,
        }
    }
}

/// Algorithm that merges the runs of a level into one (dissertation 3.3.2, figure 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MergeAlgorithm {
    /// All at once: no intermediate results.
    #[default]
    KWay,
    /// Two at a time. Intermediate results are in DRAM, as large as the runs; the last merge writes to the
    /// result.
    TwoWay,
}

/// Writing of runs to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunWriting {
    /// Block by block, each written when it is full.
    Direct,
    /// Collected in DRAM and copied, a segment (64 KiB) at a time.
    #[default]
    ThroughDram,
}

/// Executor of moves and merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Maintenance {
    /// A thread of the tree. Writers wait for it only if all buffers are full.
    #[default]
    Background,
    /// The writer that finds its buffer full, in its call: no thread, and one seed gives one run.
    InCaller,
}

/// Options of an open tree. May differ from open to open.
#[derive(Debug, Clone)]
pub struct LsmOptions {
    /// Merge algorithm.
    pub merge: MergeAlgorithm,
    /// Writing of runs to the pool.
    pub path: RunWriting,
    /// Bits of a Bloom filter for each entry of a run, in DRAM; 0: none.
    pub filter_bits: u32,
    /// Executor of moves and merges.
    pub maintenance: Maintenance,
    /// Directory of the files of the disk levels. A tree with disk levels needs it: an existing directory,
    /// and the same at every open.
    pub directory: Option<PathBuf>,
    /// DRAM for pages of the disk levels' files.
    pub cache_bytes: usize,
}

impl Default for LsmOptions {
    fn default() -> LsmOptions {
        LsmOptions {
            merge: MergeAlgorithm::default(),
            path: RunWriting::default(),
            filter_bits: 10,
            maintenance: Maintenance::default(),
            directory: None,
            cache_bytes: 8 << 20,
        }
    }
}
