//! Cost model of tables: expected time of queries and writes in a design, that is a layout with its indexes.
//!
//! The model is that of the dissertation's section 5.6, for tables. Its cost of querying a state, sigma x size x f (5.2), is
//! [`Design::paths`]: the share of the rows that an access path reaches, the rows, and what each costs by
//! representation; its cost of updating one (5.1) is [`Design::write_costs`]. Recovery (5.3) is 0 in all layouts: opening
//! looks at no rows.
//!
//! ```text
//!   sample of the rows ─▶ statistics ─┐
//!   conditions of a query ────────────┼─▶ paths of a design, each with rows and nanoseconds
//!   costs by row, value, block ───────┤
//!   storage: bandwidth, share cached ─┘
//! ```
//!
//! - Times are of one processor. What planning and the operators above a scan take is not in them.
//! - [`MEASURED`] are the constants, in nanoseconds, and the one place for them: the choices of indexes, of the iterator
//!   of clustered tables and of Elfs take their ratios from here. `lab run cost-model` measures each (its first table)
//!   and compares predictions with measurements. Another machine is faster or slower by a factor that is about the
//!   same for all; advice measures it from the recorded times.
//! - The bandwidth of storage is what the cache of column pages measures, or the calibrated profile of the disk before.
//!
//! Memory: a sample of at most [`SAMPLE_ROWS_MAX`] rows of a table.

mod design;
mod elf;
mod query;
mod sample;
mod statistics;
mod structure;

pub use design::{AccessPath, Design, ElfDesign, IndexDesign, PathCost, WriteCosts};
pub use query::QueryProfile;
pub use sample::SAMPLE_ROWS_MAX;
pub(crate) use sample::Sample;
pub use statistics::{ColumnStatistics, StorageUse, TableStatistics};
pub use structure::{OperationCost, OperationMix, StructureCosts, StructureMedium, TableSize};

use entresol_structures::elf::ElfWork;

/// Costs in nanoseconds, of one processor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostConstants {
    /// Row that is looked up by its key, in the layout `rows`.
    pub row_point: f64,
    /// Row that is looked up by its key in row groups.
    pub column_point: f64,
    /// Row that is looked up by its key in a clustered table.
    pub clustered_point: f64,
    /// Row of a range of keys of a clustered table that is looked up by its place.
    pub place_row: f64,
    /// Row of a scan in key order, layout `rows`.
    pub row: f64,
    /// Value of such a row.
    pub row_value: f64,
    /// Row that a btree index finds in the layout `rows`.
    pub index_row: f64,
    /// Row group or block of a clustered table that a scan opens.
    pub group: f64,
    /// Condition that is checked on a value of a page, by scanning all of its block.
    pub check: f64,
    /// Condition that is checked on a value of a row that others left.
    pub recheck: f64,
    /// Value of a page that is decoded with all others of its block.
    pub value: f64,
    /// Value of a page that is decoded alone.
    pub sparse_value: f64,
    /// Word of an Elf that a search reads.
    pub elf_word: f64,
    /// List of an Elf in DRAM that a search reaches past a line or more that it does not read: a part of the latency of a
    /// line, since several are in flight.
    pub elf_jump: f64,
    /// Row that an Elf finds.
    pub elf_row: f64,
    /// Row that is written, in its transaction.
    pub write: f64,
    /// Entry of a btree index that is written.
    pub write_entry: f64,
    /// Row that a merge moves into row groups.
    pub merge: f64,
    /// Row that a merge moves into blocks of a clustered table, with those that are written anew.
    pub merge_clustered: f64,
    /// Value that a merge adds to an Elf.
    pub merge_elf_value: f64,
}

/// Costs by the figures of docs/design 0049, 0052 and 0053 (two cores of a virtual machine, demo profile), and estimates
/// between those. `lab run cost-model` shows what a machine measures beside each.
pub const MEASURED: CostConstants = CostConstants {
    row_point: 1_200.0,
    column_point: 200_000.0,
    clustered_point: 42_000.0,
    place_row: 6_400.0,
    row: 90.0,
    row_value: 12.0,
    index_row: 1_500.0,
    group: 20_000.0,
    check: 0.6,
    recheck: 2.0,
    value: 4.0,
    sparse_value: 12.0,
    elf_word: 1.2,
    elf_jump: 40.0,
    elf_row: 8.0,
    write: 1_500.0,
    write_entry: 1_500.0,
    merge: 600.0,
    merge_clustered: 2_000.0,
    merge_elf_value: 15.0,
};

impl CostConstants {
    /// Check of a condition, for each row of a scan, where conditions before it leave this share of the rows; none for the first
    /// one. Rows that are many are checked as a block is.
    pub(crate) fn check_of_row(&self, left: Option<f64>) -> f64 {
        left.map_or(self.check, |left| (left.min(1.0) * self.recheck).min(self.check))
    }

    /// Search of an Elf, in a medium whose lines take so many times as long as those of DRAM.
    pub(crate) fn elf_search(&self, work: &ElfWork, line_by_dram: f64) -> f64 {
        self.elf_word * work.words + self.elf_jump * line_by_dram * work.jumps
    }
}
