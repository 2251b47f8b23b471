//! Designs of a table, and the paths by which each finds the rows of a query.

use super::elf::levels;
use super::query::{ConditionProfile, Prefix, QueryProfile};
use super::statistics::TableStatistics;
use super::structure::{StructureMedium, TableSize};
use super::{CostConstants, MEASURED};
use crate::columns::group::GROUP_ROWS;
use crate::columns::page::BLOCK_ROWS;
use crate::index::few;
use crate::schema::clustering::BLOCK_BYTES_DEFAULT;
use crate::schema::definition::TableLayout;
use crate::schema::elf::ElfLayout;
use crate::table::Table;
use entresol_structures::IndexStructure;
use entresol_structures::elf::ElfWork;
use std::fmt;

/// btree index of a design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDesign {
    /// Name of the index.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<usize>,
    /// True if rows differ in them.
    pub unique: bool,
    /// True if it finds equal values of all columns only.
    pub hashed: bool,
}

/// Elf of a design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfDesign {
    /// Name of the index.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<usize>,
}

/// Layout of a table, and its indexes.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// Layout of the rows.
    pub layout: TableLayout,
    /// Columns of the primary key; none if it is hidden.
    pub key: Vec<usize>,
    /// btree indexes.
    pub indexes: Vec<IndexDesign>,
    /// Elfs.
    pub elves: Vec<ElfDesign>,
    /// Dimensions of a clustered table, or of the Elf that holds the rows.
    pub dimensions: Vec<usize>,
    /// Costs by row, value and block.
    pub constants: CostConstants,
}

/// Way to the rows of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessPath {
    /// Rows by their complete keys.
    Keys,
    /// Range of the primary key, row by row.
    KeyRange,
    /// All rows, row by row.
    Rows,
    /// Rows that a btree index finds.
    Index(String),
    /// Columns of the blocks that summaries, or cluster keys, leave.
    Columns,
    /// Rows that an Elf finds, and their columns.
    Elf(String),
}

/// Formats the path as EXPLAIN (COSTS) shows it.
impl fmt::Display for AccessPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessPath::Keys => f.write_str("keys"),
            AccessPath::KeyRange => f.write_str("key range"),
            AccessPath::Rows => f.write_str("all rows"),
            AccessPath::Index(name) => write!(f, "index {name}"),
            AccessPath::Columns => f.write_str("columns"),
            AccessPath::Elf(name) => write!(f, "elf {name}"),
        }
    }
}

/// Expected cost of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathCost {
    /// The path.
    pub path: AccessPath,
    /// Rows that it returns.
    pub rows: f64,
    /// Nanoseconds.
    pub ns: f64,
    /// Number of leading columns of a key that have few values, and whether the next one has a range.
    rank: (usize, bool),
}

/// Expected nanoseconds of operations on one row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteCosts {
    /// Reading it by its key.
    pub read: f64,
    /// Inserting it, with the merge that it causes.
    pub insert: f64,
    /// Replacing it.
    pub update: f64,
    /// Deleting it.
    pub delete: f64,
}

/// Constants of a table: with another structure than the default one those of its rows are others.
fn constants_of(table: &Table) -> CostConstants {
    let structure = table.definition().structure;
    if structure == IndexStructure::default() || table.has_row_groups() {
        return MEASURED;
    }
    let size = TableSize::of(table.schema(), table.estimated_rows() as f64);
    CostConstants::of_structure(structure, &size, &StructureMedium::of_tier(table.tier()))
}

impl Design {
    /// Design that a table has.
    pub fn of(table: &Table) -> Design {
        let schema = table.schema();
        let index = |index: &std::sync::Arc<crate::index::Index>| IndexDesign {
            name: index.name().to_owned(),
            columns: index.definition().columns.clone(),
            unique: index.definition().unique,
            hashed: index.definition().hashed,
        };
        let clustering = table.definition().clustered_by().into_iter();
        let clustered = clustering.flat_map(|of| &of.dimensions).map(|dimension| dimension.column);
        let of_elf = table.definition().rows_elf().into_iter().flat_map(|elf| elf.columns);
        Design {
            layout: table.definition().layout,
            key: if schema.hidden_key() { Vec::new() } else { schema.key().to_vec() },
            indexes: table.indexes().iter().map(index).collect(),
            elves: (table.definition().elves.iter())
                .map(|elf| ElfDesign { name: elf.name.clone(), columns: elf.columns.clone() })
                .collect(),
            dimensions: clustered.chain(of_elf).collect(),
            constants: constants_of(table),
        }
    }

    /// Elf that holds the rows, in the layout `elf`.
    fn rows_elf(&self) -> Option<ElfDesign> {
        let (name, columns) = (ElfLayout::NAME.to_owned(), self.dimensions.clone());
        (self.layout == TableLayout::Elf).then_some(ElfDesign { name, columns })
    }

    /// Paths to the rows of a query, the cheapest first; at least one.
    pub fn paths(&self, statistics: &TableStatistics, query: &QueryProfile) -> Vec<PathCost> {
        let mut paths = match self.layout {
            TableLayout::Rows => vec![self.all_rows(statistics, query)],
            TableLayout::Columns | TableLayout::Clustered | TableLayout::Elf => {
                vec![self.by_columns(statistics, query)]
            }
        };
        paths.extend(self.by_key(statistics, query));
        paths.extend(self.indexes.iter().filter_map(|index| self.by_index(statistics, query, index)));
        if self.layout != TableLayout::Rows {
            let elves = self.elves.iter().cloned().chain(self.rows_elf());
            paths.extend(elves.filter_map(|elf| self.by_elf(statistics, query, &elf)));
        }
        paths.sort_by(|first, second| first.ns.total_cmp(&second.ns));
        paths
    }

    /// Path that the planner takes: of a table by rows the key or the index of which most columns have conditions, which
    /// gives an order too; else the cheapest one.
    pub fn taken(&self, statistics: &TableStatistics, query: &QueryProfile) -> PathCost {
        let mut paths = self.paths(statistics, query);
        let at = match self.layout {
            TableLayout::Rows => {
                let rank = |cost: &PathCost| (cost.path == AccessPath::Keys, cost.rank);
                // The first one of the best: `max_by` would take the last.
                let best = paths.iter().map(rank).max();
                paths.iter().position(|cost| Some(rank(cost)) == best)
            }
            TableLayout::Columns | TableLayout::Clustered | TableLayout::Elf => Some(0),
        };
        paths.swap_remove(at.unwrap_or(0))
    }

    /// Expected nanoseconds of a query by the path that the planner takes.
    pub fn query_ns(&self, statistics: &TableStatistics, query: &QueryProfile) -> f64 {
        self.taken(statistics, query).ns
    }

    /// Expected costs of operations on rows by key.
    pub fn write_costs(&self) -> WriteCosts {
        let costs = &self.constants;
        let entries = self.indexes.len() as f64 * costs.write_entry;
        let merge = match self.layout {
            TableLayout::Rows => 0.0,
            TableLayout::Columns | TableLayout::Elf => costs.merge,
            TableLayout::Clustered => costs.merge_clustered,
        };
        let elves = self.elves.iter().cloned().chain(self.rows_elf());
        let of_elves: usize = elves.map(|elf| elf.columns.len()).sum();
        let merge = merge + of_elves as f64 * costs.merge_elf_value;
        let read = self.point_ns();
        // Writers of an indexed table read the row before.
        let before = if self.indexes.is_empty() { 0.0 } else { read };
        WriteCosts {
            read,
            insert: costs.write + entries + merge,
            // Entries that stay as they are are not written.
            update: costs.write + before + merge,
            delete: costs.write + before + entries + merge,
        }
    }

    /// Nanoseconds of a row that is looked up by its key.
    pub(crate) fn point_ns(&self) -> f64 {
        match self.layout {
            TableLayout::Rows => self.constants.row_point,
            TableLayout::Columns | TableLayout::Elf => self.constants.column_point,
            TableLayout::Clustered => self.constants.clustered_point,
        }
    }

    /// Nanoseconds of a row that is read row by row.
    fn row_ns(&self, query: &QueryProfile) -> f64 {
        self.constants.row + self.constants.row_value * query.columns_used()
    }

    fn all_rows(&self, statistics: &TableStatistics, query: &QueryProfile) -> PathCost {
        let ns = statistics.rows * self.row_ns(query);
        PathCost { path: AccessPath::Rows, rows: statistics.rows, ns, rank: (0, false) }
    }

    /// Path by the primary key, if there are conditions on its first columns.
    fn by_key(&self, statistics: &TableStatistics, query: &QueryProfile) -> Option<PathCost> {
        let prefix = query.prefix(&self.key)?;
        let (probes, rank) = (prefix.probes(), (prefix.fixed, prefix.has_range));
        if prefix.fixed == self.key.len() {
            let ns = probes * self.point_ns();
            return Some(PathCost { path: AccessPath::Keys, rows: probes, ns, rank });
        }
        let rows = statistics.rows * query.share_of(&prefix.conditions);
        let ns = match self.layout {
            TableLayout::Rows => probes * self.constants.row_point + rows * self.row_ns(query),
            // Row groups are scanned; their summaries know the key as any column.
            TableLayout::Columns | TableLayout::Elf => return None,
            TableLayout::Clustered => rows * self.constants.place_row,
        };
        Some(PathCost { path: AccessPath::KeyRange, rows, ns, rank })
    }

    /// Path by a btree index, if there are conditions on its first columns.
    fn by_index(
        &self,
        statistics: &TableStatistics,
        query: &QueryProfile,
        index: &IndexDesign,
    ) -> Option<PathCost> {
        let is_whole = |prefix: &Prefix<'_>| prefix.fixed == index.columns.len();
        let prefix = query.prefix(&index.columns).filter(|prefix| !index.hashed || is_whole(prefix))?;
        let (probes, rank) = (prefix.probes(), (prefix.fixed, prefix.has_range));
        let mut rows = statistics.rows * query.share_of(&prefix.conditions);
        if index.unique && prefix.fixed == index.columns.len() {
            rows = rows.min(probes);
        }
        if self.layout != TableLayout::Rows && rows > few::rows_max(statistics.rows, self.point_ns()) {
            return None;
        }
        let of_row = match self.layout {
            TableLayout::Rows => self.constants.index_row + self.constants.row_value * query.columns_used(),
            _ => self.point_ns(),
        };
        let ns = probes * self.constants.row_point + rows * of_row;
        Some(PathCost { path: AccessPath::Index(index.name.clone()), rows, ns, rank })
    }

    fn by_columns(&self, statistics: &TableStatistics, query: &QueryProfile) -> PathCost {
        let (groups, blocks) = self.left(statistics, query);
        let rows = (statistics.rows - statistics.delta_rows).max(0.0) * blocks;
        let found = rows.min((statistics.rows - statistics.delta_rows) * query.share());
        let all: Vec<&ConditionProfile> = query.conditions.iter().collect();
        let checks = self.checks_ns(query, &all, rows);
        let values = self.values_ns(query, found, rows);
        let ns = groups * self.constants.group
            + checks
            + values
            + self.loading_ns(statistics, query, rows)
            + self.delta_ns(statistics, query);
        PathCost { path: AccessPath::Columns, rows: statistics.rows * query.share(), ns, rank: (0, false) }
    }

    /// Path by an Elf, if there is a condition on one of its columns.
    fn by_elf(
        &self,
        statistics: &TableStatistics,
        query: &QueryProfile,
        elf: &ElfDesign,
    ) -> Option<PathCost> {
        let costs = &self.constants;
        let (used, others): (Vec<&ConditionProfile>, Vec<&ConditionProfile>) =
            query.conditions.iter().partition(|condition| elf.columns.contains(&condition.column));
        if used.is_empty() {
            return None;
        }
        let (groups, blocks) = self.left(statistics, query);
        let stored = (statistics.rows - statistics.delta_rows).max(0.0) * blocks;
        let of_group = (stored / groups).max(1.0);
        let shares = elf.columns.iter().map(|column| {
            let on: Vec<&ConditionProfile> = query.on(*column).collect();
            query.share_of(&on)
        });
        let shares: Vec<f64> = shares.collect();
        let work = ElfWork::of(&levels(statistics, &elf.columns, of_group), &shares);
        let candidates = stored * query.share_of(&used);
        let found = stored.min((statistics.rows - statistics.delta_rows) * query.share());
        let ns = groups * (costs.group + costs.elf_search(&work, 1.0))
            + candidates * (costs.elf_row + costs.recheck * others.len() as f64)
            + self.values_ns(query, found, stored)
            + self.delta_ns(statistics, query);
        let rows = statistics.rows * query.share();
        Some(PathCost { path: AccessPath::Elf(elf.name.clone()), rows, ns, rank: (0, false) })
    }

    /// Number of row groups, and share of all rows, that are left to a scan by columns.
    fn left(&self, statistics: &TableStatistics, query: &QueryProfile) -> (f64, f64) {
        if self.layout != TableLayout::Clustered {
            let blocks = query.blocks_left();
            return ((statistics.rows / GROUP_ROWS as f64).max(1.0), blocks);
        }
        let blocks =
            (statistics.rows * statistics.row_bytes() / f64::from(BLOCK_BYTES_DEFAULT)).ceil().max(1.0);
        let bits = (blocks.log2() / self.dimensions.len().max(1) as f64).max(0.0);
        let of_dimension = |column: &usize| {
            let on: Vec<&ConditionProfile> = query.on(*column).collect();
            if on.is_empty() {
                return 1.0;
            }
            // A range reaches into a bin at each of its ends.
            let bin = (1.0 / statistics.columns[*column].distinct).max((-bits).exp2());
            (query.share_of(&on) + bin).min(1.0)
        };
        let left: f64 = self.dimensions.iter().map(of_dimension).product();
        let left = left.max(1.0 / blocks);
        // Pruned blocks cost a comparison of keys in the directory.
        (blocks * left + blocks * DIRECTORY_SHARE, left)
    }

    /// Checks of conditions on the rows of blocks, one condition after another on the rows that are left.
    fn checks_ns(&self, query: &QueryProfile, conditions: &[&ConditionProfile], rows: f64) -> f64 {
        let checked = |at: usize| {
            let left = (at > 0).then(|| query.share_of(&conditions[..at]));
            rows * self.constants.check_of_row(left)
        };
        (0..conditions.len()).map(checked).sum()
    }

    /// Values of the rows that are found in blocks with so many rows.
    fn values_ns(&self, query: &QueryProfile, found: f64, rows: f64) -> f64 {
        let sparse = found * self.constants.sparse_value;
        let touched = rows * (1.0 - (-found * BLOCK_ROWS as f64 / rows.max(1.0)).exp());
        let dense = touched.max(found) * self.constants.value;
        query.columns.len() as f64 * sparse.min(dense)
    }

    /// Loading of the pages that are not cached.
    fn loading_ns(&self, statistics: &TableStatistics, query: &QueryProfile, rows: f64) -> f64 {
        let Some(storage) = &statistics.storage else { return 0.0 };
        let bytes = rows * query.columns_used() * storage.value_bytes * storage.uncached;
        bytes / storage.bytes_per_second * 1e9
    }

    /// Rows of the delta store, which are read row by row.
    fn delta_ns(&self, statistics: &TableStatistics, query: &QueryProfile) -> f64 {
        statistics.delta_rows * self.row_ns(query)
    }
}

/// Share of a block's cost that its entry in the directory costs when it is left out.
const DIRECTORY_SHARE: f64 = 0.01;

impl Prefix<'_> {
    /// Number of searches that it needs.
    fn probes(&self) -> f64 {
        self.conditions.iter().map(|condition| condition.values).product()
    }
}
