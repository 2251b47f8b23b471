//! Structure `auto`: `CREATE TABLE | INDEX ... USING auto` takes the structure for which the cost model expects least.
//!
//! The choice is made once, when the table or index is created, since its structure never changes: moving a history costs more
//! than copying rows. What is known by then decides, of a table:
//!
//! - the schema: the width of the keys says which structures are possible, the types of the columns how long rows are;
//! - the placement: the tier gives the device profile whose times the model takes;
//! - the recorded workload and the sizes of the tables by rows that are there, of which the new one is taken to be
//!   another; without enough of them [`OperationMix::unknown`], for [`ROWS_UNKNOWN`] rows.
//!
//! Of an index it is the width of its entries, the placement of the table, its number of rows, and what is recorded of it: queries
//! with conditions on the first columns of the index, and rows inserted and deleted.
//!
//! The default stays where no other structure spares [`STRUCTURE_GAIN_MIN`] of the expected time. The choice and its reason
//! are in the definition of the table, so a crash leaves both or no table, or index.

use super::OPERATIONS_MIN;
use crate::catalog::Catalog;
use crate::cost::{OperationMix, StructureCosts, StructureMedium, TableSize};
use crate::error::Result;
use crate::index;
use crate::schema::definition::{IndexDefinition, TableDefinition, TableLayout};
use crate::table::Table;
use entresol_structures::{IndexStructure, KeyWidth};
use std::sync::Arc;

/// Least share of the expected time that another structure than the default has to spare.
pub const STRUCTURE_GAIN_MIN: f64 = 0.1;
/// Rows of a table about which nothing is known.
const ROWS_UNKNOWN: f64 = 1e6;

/// Structure of a new table or index, and the reason as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructureChoice {
    /// Structure with the least expected costs.
    pub structure: IndexStructure,
    /// Reason, with the figures.
    pub why: String,
}

impl Catalog {
    /// Structure that a new table should have; its layout, schema and placement are those of the definition.
    pub fn choose_structure(&self, definition: &TableDefinition) -> Result<StructureChoice> {
        let default = |why: String| StructureChoice { structure: IndexStructure::default(), why };
        if let Some(layout) = definition.layout_of_row_groups() {
            return Ok(default(format!("the layout '{layout}' has a structure of its own")));
        }
        let width = definition.schema.key_width();
        if width == KeyWidth::Variable {
            let key = definition.column_names(definition.schema.key());
            let why = "is the only structure that is chosen for keys of any length, as";
            return Ok(default(format!("{} {why} ({key}) is", IndexStructure::default())));
        }
        let medium = StructureMedium::of_tier(self.context().tier(definition.placement)?);
        let known = self.similar_tables();
        let (rows, mix) = match &known {
            Some((rows, mix)) => (*rows, *mix),
            None => (ROWS_UNKNOWN, OperationMix::unknown(ROWS_UNKNOWN)),
        };
        let size = TableSize::of(&definition.schema, rows);
        let of = known.map_or(UNKNOWN, |_| "the recorded workload of tables by rows");
        Ok(chosen(&expected(width, &size, (&mix, &medium)), &size, of))
    }

    /// Structure that a new index of a table should have; its own does not count.
    pub fn choose_index_structure(&self, table: &Table, index: &IndexDefinition) -> Result<StructureChoice> {
        let width = index::key_width(table.schema(), index);
        if width == KeyWidth::Variable {
            let structure = IndexStructure::default();
            let key = table.definition().column_names(&index.columns);
            let why = format!(
                "{structure} is the only structure that is chosen for entries of any length, as those of ({key}) are"
            );
            return Ok(StructureChoice { structure, why });
        }
        let medium = StructureMedium::of_tier(self.context().tier(table.definition().placement)?);
        let rows = match table.estimated_rows() {
            0 => ROWS_UNKNOWN,
            rows => rows as f64,
        };
        let known = recorded_for(table, index);
        let mix = known.unwrap_or_else(|| OperationMix::unknown(rows));
        let size = TableSize { rows, key_bytes: ENTRY_BYTES, row_bytes: 0.0 };
        let of = known.map_or(UNKNOWN, |_| "the recorded workload of its table");
        Ok(chosen(&expected(width, &size, (&mix, &medium)), &size, of))
    }

    /// Mean rows of the tables by rows of this database, and their recorded workload; none without enough of it.
    fn similar_tables(&self) -> Option<(f64, OperationMix)> {
        let is_similar = |table: &Arc<Table>| {
            let definition = table.definition();
            definition.layout == TableLayout::Rows && definition.owner.is_none()
        };
        let tables: Vec<Arc<Table>> = self.tables().into_iter().filter(is_similar).collect();
        let mut mix = OperationMix { reads: 0.0, writes: 0.0, rows: 0.0, openings: 1.0 };
        for table in &tables {
            let rows = table.workload().row_counts();
            mix.reads += (rows.read + rows.updated + rows.deleted) as f64;
            mix.writes += rows.inserted as f64;
            for (class, counts) in table.workload().classes() {
                let key = table.schema().key();
                let is_point = !table.schema().hidden_key()
                    && key.iter().all(|column| {
                        class.conditions.iter().any(|(known, kind)| known == column && kind.fixes_values())
                    });
                if is_point {
                    mix.reads += counts.rows.max(counts.runs) as f64;
                } else {
                    mix.reads += counts.runs as f64;
                    mix.rows += counts.rows as f64;
                }
            }
        }
        let operations = mix.reads + mix.writes + mix.rows;
        let rows: f64 = tables.iter().map(|table| table.estimated_rows() as f64).sum();
        (operations >= OPERATIONS_MIN as f64 && rows > 0.0).then(|| (rows / tables.len() as f64, mix))
    }
}

/// Recorded accesses that an index would have had: queries with conditions on its first columns, and rows that come and go;
/// none without enough of them.
fn recorded_for(table: &Table, index: &IndexDefinition) -> Option<OperationMix> {
    let changed = table.workload().row_counts();
    let writes = (changed.inserted + changed.deleted) as f64;
    let mut mix = OperationMix { reads: 0.0, writes, rows: 0.0, openings: 1.0 };
    for (class, counts) in table.workload().classes() {
        let condition = |column: &usize| class.conditions.iter().find(|(known, _)| known == column);
        if condition(&index.columns[0]).is_none() {
            continue;
        }
        let is_fixed = |column| condition(column).is_some_and(|(_, kind)| kind.fixes_values());
        if index.unique && index.columns.iter().all(is_fixed) {
            mix.reads += counts.rows.max(counts.runs) as f64;
        } else {
            mix.reads += counts.runs as f64;
            mix.rows += counts.rows as f64;
        }
    }
    (mix.reads + mix.rows >= OPERATIONS_MIN as f64).then_some(mix)
}

/// Structures with keys of a width and the nanoseconds that are expected of them, the least first; of equal ones the default.
fn expected(
    width: KeyWidth,
    size: &TableSize,
    (mix, medium): (&OperationMix, &StructureMedium),
) -> Vec<(IndexStructure, f64)> {
    let is_possible =
        |structure: &IndexStructure| structure.supports(width) && !NOT_MEASURED.contains(structure);
    let possible = IndexStructure::ALL.into_iter().filter(is_possible);
    let costs = possible.map(|structure| (structure, mix.ns(&StructureCosts::new(structure, size, medium))));
    let mut costs: Vec<(IndexStructure, f64)> = costs.collect();
    costs.sort_by(|(_, first), (_, second)| first.total_cmp(second));
    costs
}

/// Workload of a reason, where none was recorded.
const UNKNOWN: &str = "an unknown workload";
/// Bytes of the entries of an index whose keys do not have any length.
const ENTRY_BYTES: f64 = 16.0;
/// Structures whose costs are not fitted to measurements.
const NOT_MEASURED: [IndexStructure; 2] = [IndexStructure::Lsm, IndexStructure::Patricia];

/// Choice among structures with their expected nanoseconds, the least first.
fn chosen(expected: &[(IndexStructure, f64)], size: &TableSize, of: &str) -> StructureChoice {
    let default = IndexStructure::default();
    let ns_of =
        |structure| expected.iter().find(|(of, _)| *of == structure).map_or(f64::INFINITY, |(_, ns)| *ns);
    let &(best, best_ns) = expected.first().expect("the default structure has keys of each width");
    let spares = 1.0 - best_ns / ns_of(default);
    let structure = if spares >= STRUCTURE_GAIN_MIN { best } else { default };
    let other = expected.iter().find(|(of, _)| *of != structure);
    let stays = if structure != best { ", too little less to leave the default" } else { "" };
    let other = other.map_or_else(String::new, |(of, ns)| format!(", {of} {:.0} ms{stays}", ns / 1e6));
    let why = format!(
        "{structure} is expected to take {:.0} ms for {of}{other}; {:.0} rows, keys of {} bytes",
        ns_of(structure) / 1e6,
        size.rows,
        size.key_bytes
    );
    StructureChoice { structure, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: TableSize = TableSize { rows: 1000.0, key_bytes: 8.0, row_bytes: 20.0 };

    #[test]
    fn the_default_stays_where_little_is_spared() {
        let of = |ns: f64| [(IndexStructure::WbTree, ns), (IndexStructure::FpTree, 100e6)];
        let few = chosen(&of(95e6), &SIZE, UNKNOWN);
        assert_eq!(few.structure, IndexStructure::FpTree);
        assert!(
            few.why.contains("fptree is expected to take 100 ms")
                && few.why.contains("wbtree 95 ms, too little less to leave the default"),
            "{few:?}"
        );
        let many = chosen(&of(60e6), &SIZE, "the recorded workload");
        assert_eq!(many.structure, IndexStructure::WbTree);
        assert!(many.why.contains("recorded") && many.why.contains("fptree 100 ms"), "{many:?}");
    }
}
