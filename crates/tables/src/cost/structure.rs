//! Cost model of the structures of tables by rows, by name (`CREATE TABLE ... USING`): the formulas of the dissertation's
//! section 5.6.3, with the times of a device profile.
//!
//! ```text
//!   profile of the pool's medium ─┐   lines that a structure reads,     f(s)r, f(s)w ─▶ (5.1) f(op)r f(s)r + f(op)w f(s)w
//!   profile of DRAM ──────────────┼─▶ flushes and fences, nodes in ───▶              ─▶ (5.2) sigma size f(s)row
//!   rows, bytes of key and row ───┘   the pool and in DRAM            delta          ─▶ (5.3) delta size (f(s)r + f(s)w)
//! ```
//!
//! - A line costs what the profile says of a random access, times the share of its region that the caches do not hold. Lines
//!   of upper inner nodes are in the caches, those of the last level may not be.
//! - The work of the processor is a constant of each structure ([`STRUCTURE_WORK`]), which `lab run representations` shows
//!   beside its measurements. What a table adds, such as the versions of a row and its transaction, is the same for all.
//! - Delta of (5.3) is 0 for structures whose nodes are all in the pool, and for the FPTree, which reads a sparse index. A
//!   hybrid tree reads some lines of each leaf and builds its inner nodes.

use crate::cost::{CostConstants, MEASURED};
use crate::schema::Schema;
use crate::value::DataType;
use entresol_memory::profile::Profile;
use entresol_structures::{IndexStructure, KeyWidth};
use entresol_transactions::Tier;
use std::sync::LazyLock;

/// Bytes of a cache line, and of a word.
const LINE_BYTES: f64 = 64.0;
const WORD_BYTES: f64 = 8.0;
/// Share of a leaf that has entries after random inserts: ln 2.
const FILL: f64 = 0.69;
/// Bytes of a row beside its values: header, and room for a second version.
const ROW_HEAD_BYTES: f64 = 108.0;
/// Bytes of a string, and of a key of any length, of which nothing is known.
const TEXT_BYTES: f64 = 24.0;

/// Times of the medium of a pool, and of the DRAM beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StructureMedium {
    /// Nanoseconds of a line of the pool at a random place.
    pub pool_line: f64,
    /// Nanoseconds of a line of the pool behind another one of its block.
    pub pool_next_line: f64,
    /// Nanoseconds of a line of DRAM at a random place.
    pub dram_line: f64,
    /// Nanoseconds of a flush.
    pub flush: f64,
    /// Nanoseconds of a fence behind flushes.
    pub fence: f64,
    /// Bytes of the last cache.
    pub cache_bytes: f64,
}

impl StructureMedium {
    /// Medium of two device profiles: that of the pool, and of DRAM.
    pub fn of(pool: &Profile, dram: &Profile) -> StructureMedium {
        StructureMedium {
            pool_line: pool.read.random_ns,
            pool_next_line: if pool.transfers_per_block() > 1 {
                pool.buffered_read_ns()
            } else {
                pool.read.sequential_ns
            },
            dram_line: dram.read.random_ns,
            flush: pool.write.flush_ns,
            fence: pool.write.accept_ns,
            cache_bytes: pool.caches.last().map_or(0.0, |cache| cache.bytes as f64),
        }
    }

    /// Medium of a tier, by the profiles that come with the release.
    pub fn of_tier(tier: Tier) -> StructureMedium {
        static PMEM: LazyLock<StructureMedium> =
            LazyLock::new(|| StructureMedium::of(&embedded("optane-dcpmm"), &embedded("dram")));
        // What the journal takes for a change is work of the processor.
        static DRAM: LazyLock<StructureMedium> = LazyLock::new(|| {
            let dram = embedded("dram");
            StructureMedium { flush: 0.0, fence: 0.0, ..StructureMedium::of(&dram, &dram) }
        });
        match tier {
            Tier::Pmem => *PMEM,
            Tier::Dram | Tier::Disk => *DRAM,
        }
    }

    /// Time of a line of the pool at a random place, by that of one of DRAM.
    pub(crate) fn pool_by_dram(&self) -> f64 {
        self.pool_line / self.dram_line
    }

    /// Seconds that so many lines at random places of DRAM take less than as many of the pool.
    pub(crate) fn gain_seconds(&self, lines: u64) -> f64 {
        (self.pool_line - self.dram_line).max(0.0) * lines as f64 * 1e-9
    }

    /// Share of the lines of a region of a size that the caches do not hold.
    fn cold(&self, bytes: f64) -> f64 {
        (1.0 - self.cache_bytes / bytes.max(1.0)).clamp(0.0, 1.0)
    }
}

/// Profile that comes with the release.
fn embedded(name: &str) -> Profile {
    Profile::embedded(name).expect("the profile comes with the release")
}

/// Place of the nodes above the leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upper {
    /// Inner nodes in DRAM.
    Dram,
    /// Inner nodes in the pool.
    Pool,
    /// Towers of a skip-list in DRAM.
    Towers,
}

/// Accesses and work of a structure.
#[derive(Debug, Clone, Copy, PartialEq)]
struct StructureWork {
    structure: IndexStructure,
    /// Bytes of a leaf, and of its parts beside the entries.
    leaf_bytes: f64,
    front_bytes: f64,
    /// Lines of a leaf that a look-up waits for; those that many look-ups read are in the caches.
    leaf_lines: f64,
    upper: Upper,
    /// Lines of an inner node that a look-up waits for.
    inner_lines: f64,
    /// Lines that a row of a range waits for, its own among them: several are in flight.
    row_lines: f64,
    /// Lines that an insert flushes, and the fences that it waits for, with lines that are read again behind a flush.
    flushes: f64,
    waits: f64,
    /// Lines of a leaf that opening reads.
    opened_lines: f64,
    /// Nanoseconds of the processor: a look-up, a row of a range, an insert, a leaf that is opened.
    look_up: f64,
    row: f64,
    insert: f64,
    opened_leaf: f64,
}

/// Work of each structure. Lines and waits are those of modelled Optane with caches as much smaller as the table is; the
/// processor's are estimates from a run at the small size, of a loaded machine, but for inserts, which are not measured.
/// Figures of `lsm` and `patricia` are estimates from the lines that their nodes have: `USING auto` does not take them.
const STRUCTURE_WORK: [StructureWork; 9] = [
    StructureWork {
        structure: IndexStructure::FpTree,
        leaf_bytes: 1024.0,
        front_bytes: 128.0,
        leaf_lines: 0.44,
        upper: Upper::Dram,
        inner_lines: 2.0,
        row_lines: 0.45,
        flushes: 3.0,
        waits: 5.5,
        opened_lines: 0.0,
        look_up: 15.0,
        row: 92.0,
        insert: 150.0,
        opened_leaf: 0.0,
    },
    StructureWork {
        structure: IndexStructure::WbTree,
        leaf_bytes: 1024.0,
        front_bytes: 128.0,
        leaf_lines: 0.82,
        upper: Upper::Pool,
        inner_lines: 0.64,
        row_lines: 0.49,
        flushes: 5.0,
        waits: 20.5,
        opened_lines: 0.0,
        look_up: 157.0,
        row: 63.0,
        insert: 300.0,
        opened_leaf: 0.0,
    },
    StructureWork {
        structure: IndexStructure::HybridWbTree,
        leaf_bytes: 1024.0,
        front_bytes: 128.0,
        leaf_lines: 0.82,
        upper: Upper::Dram,
        inner_lines: 2.0,
        row_lines: 0.47,
        flushes: 5.0,
        waits: 21.8,
        opened_lines: 2.0,
        look_up: 140.0,
        row: 68.0,
        insert: 300.0,
        opened_leaf: 100.0,
    },
    StructureWork {
        structure: IndexStructure::PbpTree,
        leaf_bytes: 1024.0,
        front_bytes: 64.0,
        leaf_lines: 0.79,
        upper: Upper::Pool,
        inner_lines: 0.7,
        row_lines: 0.48,
        flushes: 9.0,
        waits: 17.7,
        opened_lines: 0.0,
        look_up: 101.0,
        row: 37.0,
        insert: 400.0,
        opened_leaf: 0.0,
    },
    StructureWork {
        structure: IndexStructure::HybridPbpTree,
        leaf_bytes: 1024.0,
        front_bytes: 64.0,
        leaf_lines: 0.79,
        upper: Upper::Dram,
        inner_lines: 2.0,
        row_lines: 0.46,
        flushes: 9.0,
        waits: 19.3,
        opened_lines: 2.0,
        look_up: 82.0,
        row: 28.0,
        insert: 400.0,
        opened_leaf: 100.0,
    },
    StructureWork {
        structure: IndexStructure::FastFair,
        leaf_bytes: 512.0,
        front_bytes: 64.0,
        leaf_lines: 0.5,
        upper: Upper::Pool,
        inner_lines: 0.45,
        row_lines: 0.49,
        flushes: 4.0,
        waits: 17.2,
        opened_lines: 0.0,
        look_up: 43.0,
        row: 132.0,
        insert: 350.0,
        opened_leaf: 0.0,
    },
    StructureWork {
        structure: IndexStructure::SkipList,
        leaf_bytes: 896.0,
        front_bytes: 256.0,
        leaf_lines: 2.03,
        upper: Upper::Towers,
        inner_lines: 1.0,
        row_lines: 0.54,
        flushes: 3.0,
        waits: 17.4,
        opened_lines: 1.0,
        look_up: 150.0,
        row: 196.0,
        insert: 300.0,
        opened_leaf: 150.0,
    },
    // A block of a run, its key and filters in DRAM; writing an entry again in each level. All blocks are read for the
    // filters.
    StructureWork {
        structure: IndexStructure::Lsm,
        leaf_bytes: 256.0,
        front_bytes: 16.0,
        leaf_lines: 1.5,
        upper: Upper::Dram,
        inner_lines: 8.0,
        row_lines: 0.6,
        flushes: 4.0,
        waits: 12.0,
        opened_lines: 4.0,
        look_up: 350.0,
        row: 150.0,
        insert: 900.0,
        opened_leaf: 300.0,
    },
    // A leaf and an inner node for each key, of a line each; a line for each branch of which the caches have the first ones.
    StructureWork {
        structure: IndexStructure::Patricia,
        leaf_bytes: 128.0,
        front_bytes: 104.0,
        leaf_lines: 1.0,
        upper: Upper::Pool,
        inner_lines: 6.0,
        row_lines: 1.2,
        flushes: 4.0,
        waits: 14.0,
        opened_lines: 0.0,
        look_up: 250.0,
        row: 200.0,
        insert: 500.0,
        opened_leaf: 0.0,
    },
];

/// Time of an operation: of the processor, of the pool and of DRAM.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OperationCost {
    /// Nanoseconds of the processor.
    pub processor: f64,
    /// Nanoseconds that the medium of the pool takes.
    pub pool: f64,
    /// Nanoseconds that DRAM beside it takes.
    pub dram: f64,
}

impl OperationCost {
    /// Nanoseconds in all.
    pub fn ns(&self) -> f64 {
        self.processor + self.pool + self.dram
    }

    fn plus(self, other: OperationCost) -> OperationCost {
        OperationCost {
            processor: self.processor + other.processor,
            pool: self.pool + other.pool,
            dram: self.dram + other.dram,
        }
    }
}

/// Table whose structure is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableSize {
    /// Number of rows.
    pub rows: f64,
    /// Bytes of a key: 8 or 16, or more of keys of any length.
    pub key_bytes: f64,
    /// Bytes of a row's values.
    pub row_bytes: f64,
}

impl TableSize {
    /// Size of a table of so many rows by the types of its columns.
    pub fn of(schema: &Schema, rows: f64) -> TableSize {
        let columns = schema.columns().iter().map(|column| match column.data_type {
            DataType::Boolean => 1.0,
            DataType::SmallInt | DataType::Int | DataType::Real | DataType::Date => 4.0,
            DataType::Decimal { .. } | DataType::Interval => 16.0,
            DataType::Varchar => TEXT_BYTES,
            _ => 8.0,
        });
        let key_bytes = match schema.key_width() {
            KeyWidth::Eight => 8.0,
            KeyWidth::Sixteen => 16.0,
            KeyWidth::Variable => TEXT_BYTES,
        };
        TableSize { rows, key_bytes, row_bytes: columns.sum() }
    }
}

/// Expected costs of a structure under a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StructureCosts {
    /// The structure.
    pub structure: IndexStructure,
    /// Reading a row by its key: `f(s)r`.
    pub read: OperationCost,
    /// Looking a key up that is not there.
    pub absent: OperationCost,
    /// Inserting a row, with its commit among others: `f(s)w`.
    pub write: OperationCost,
    /// Row of a range.
    pub row: OperationCost,
    /// Row at opening: delta times what reading and writing it take; (5.3) without the number of rows.
    pub opened_row: OperationCost,
    /// Bytes of a row in the pool, and of its share of the structure.
    pub row_bytes: f64,
    /// Rows of the table.
    pub rows: f64,
}

impl StructureCosts {
    /// Expected costs of a structure under a table of a size.
    pub fn new(structure: IndexStructure, size: &TableSize, medium: &StructureMedium) -> StructureCosts {
        let work = STRUCTURE_WORK.into_iter().find(|work| work.structure == structure);
        let work = work.expect("each structure has its work");
        let entry_bytes = size.key_bytes.max(WORD_BYTES) + WORD_BYTES;
        let entries = ((work.leaf_bytes - work.front_bytes) / entry_bytes).max(1.0) * FILL;
        let leaves = (size.rows / entries).max(1.0);
        let object_bytes = size.row_bytes + ROW_HEAD_BYTES;
        let region_bytes = size.rows * object_bytes + leaves * work.leaf_bytes;
        let descent = work.descent((leaves, region_bytes), entry_bytes, medium);
        // The row's first line is waited for, the others come together with it or behind it.
        let lines = (object_bytes / LINE_BYTES).ceil() - 1.0;
        let object = medium.cold(region_bytes) * (medium.pool_line + lines.min(3.0) * medium.pool_next_line);
        let of_leaf = work.leaf_lines * medium.cold(region_bytes) * medium.pool_line;
        let common = OperationCost { processor: TABLE_READ, pool: object, dram: 0.0 };
        let index = OperationCost { processor: work.look_up, pool: of_leaf, dram: 0.0 }.plus(descent);
        let written = OperationCost {
            processor: TABLE_WRITE + work.insert,
            pool: (work.flushes + lines + 1.0) * medium.flush + work.waits * medium.fence,
            dram: 0.0,
        };
        let opened = OperationCost {
            processor: work.opened_leaf,
            pool: work.opened_lines * medium.cold(region_bytes) * medium.pool_line,
            dram: 0.0,
        };
        let share = |cost: f64| cost / entries;
        StructureCosts {
            structure,
            read: common.plus(index),
            absent: index,
            write: index.plus(written),
            row: OperationCost {
                processor: TABLE_ROW + work.row,
                pool: work.row_lines * medium.cold(region_bytes) * medium.pool_line,
                dram: 0.0,
            },
            opened_row: OperationCost {
                processor: share(opened.processor),
                pool: share(opened.pool),
                dram: 0.0,
            },
            row_bytes: object_bytes + work.leaf_bytes / entries * (1.0 + work.inner_share()),
            rows: size.rows,
        }
    }

    /// Cost of an operator that reads and writes so many rows by key (5.1), in nanoseconds.
    pub fn update_ns(&self, reads: f64, writes: f64) -> f64 {
        reads * self.read.ns() + writes * self.write.ns()
    }

    /// Cost of reading a share of the rows in key order (5.2), in nanoseconds: the way to the first one, and each.
    pub fn query_ns(&self, selectivity: f64) -> f64 {
        self.read.ns() + selectivity * self.rows * self.row.ns()
    }

    /// Cost of recovery beside what is constant for all structures (5.3), in nanoseconds.
    pub fn recovery_ns(&self) -> f64 {
        self.rows * self.opened_row.ns()
    }
}

/// Nanoseconds of the processor that a table takes beside its structure: a row that is read by key, a row of a range, a
/// row that is written.
const TABLE_READ: f64 = 250.0;
const TABLE_ROW: f64 = 150.0;
const TABLE_WRITE: f64 = 1_100.0;

impl StructureWork {
    /// Cost of the way to a leaf.
    fn descent(
        &self,
        (leaves, region_bytes): (f64, f64),
        entry_bytes: f64,
        medium: &StructureMedium,
    ) -> OperationCost {
        // In DRAM the lowest level above the leaves may be out of the caches, of a list each hop to a tower; inner nodes
        // in the pool leave room for rows and leaves.
        let inner_bytes = leaves * entry_bytes / FILL;
        let levels = (leaves.ln() / (self.leaf_bytes / entry_bytes * FILL).max(2.0).ln()).ceil().max(1.0);
        let (pool, dram) = match self.upper {
            Upper::Pool => (self.inner_lines * medium.cold(region_bytes) * medium.pool_line, 0.0),
            Upper::Dram => (0.0, self.inner_lines * medium.cold(inner_bytes) * medium.dram_line),
            Upper::Towers => {
                let hops = leaves.ln() / 4.0_f64.ln() * 2.0;
                (0.0, self.inner_lines * hops * medium.cold(leaves * LINE_BYTES) * medium.dram_line)
            }
        };
        OperationCost { processor: levels * LEVEL, pool, dram }
    }

    /// Bytes of inner nodes in the pool for each of the leaves.
    fn inner_share(&self) -> f64 {
        if self.upper == Upper::Pool { 0.025 } else { 0.0 }
    }
}

/// Nanoseconds of the processor for an inner level.
const LEVEL: f64 = 25.0;

/// Operations that a table is chosen for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperationMix {
    /// Rows read by key.
    pub reads: f64,
    /// Rows written.
    pub writes: f64,
    /// Rows read in key order.
    pub rows: f64,
    /// Times that the database is opened.
    pub openings: f64,
}

impl OperationMix {
    /// Mix for a table of which nothing is known: each row is written once, read twice by key and ten times in order,
    /// and the database is opened once.
    pub fn unknown(rows: f64) -> OperationMix {
        OperationMix { reads: 2.0 * rows, writes: rows, rows: 10.0 * rows, openings: 1.0 }
    }

    /// Expected nanoseconds of all of it.
    pub fn ns(&self, costs: &StructureCosts) -> f64 {
        costs.update_ns(self.reads, self.writes)
            + self.rows * costs.row.ns()
            + self.openings * costs.recovery_ns()
    }
}

impl CostConstants {
    /// Constants of tables over a structure: those of the default one, as many times as the structure's costs are its.
    pub fn of_structure(
        structure: IndexStructure,
        size: &TableSize,
        medium: &StructureMedium,
    ) -> CostConstants {
        let [of, default] = [structure, IndexStructure::default()]
            .map(|structure| StructureCosts::new(structure, size, medium));
        let times = |of: OperationCost, default: OperationCost| of.ns() / default.ns();
        CostConstants {
            row_point: MEASURED.row_point * times(of.read, default.read),
            row: MEASURED.row * times(of.row, default.row),
            write: MEASURED.write * times(of.write, default.write),
            ..MEASURED
        }
    }
}
