//! Statistics of tables for the planner: made by ANALYZE and behind large loads from a sample of the rows, stored
//! in the catalog.
//!
//! ```text
//!   sample (cost::sample) ─▶ per column: share of NULL, different values, bytes, least and greatest value,
//!                            common values with their shares, bounds of equal shares of the others
//!                        ─▶ row of the catalog ─▶ lineage of the table ─▶ shares of conditions, pg_stats
//! ```
//!
//! # Invariants
//!
//! - No result depends on statistics: they are as old as the last ANALYZE, and of a sample.
//! - They belong to the table, whatever its name and definition, and name columns by their numbers in the schema
//!   versions, which are never used again: another name of a column changes nothing, a dropped column has none.
//! - They are one row of the catalog, written in a commit of its own, deleted in the commit that drops the table. A
//!   crash leaves the statistics before or after it. Damaged ones are as if they were missing.
//!
//! Memory: [`COMMON_MAX`] and [`BOUNDS_MAX`] values of at most [`VALUE_BYTES_MAX`] bytes for each column, and fewer strings
//! where all of them would take more than [`STATISTICS_BYTES_MAX`].

mod encoding;
mod sampled;
mod share;

use crate::schema::Schema;
use crate::value::Value;
use std::collections::BTreeMap;

/// Maximum number of common values of a column.
pub const COMMON_MAX: usize = 32;
/// Maximum number of bounds of a column's histogram.
pub const BOUNDS_MAX: usize = 65;
/// Maximum bytes of a string in statistics; longer ones are left out of them.
pub const VALUE_BYTES_MAX: usize = 256;

/// Maximum bytes of the statistics of a table, which are one value of the catalog behind its header.
pub const STATISTICS_BYTES_MAX: usize = entresol_transactions::VALUE_BYTES_MAX - 1024;

/// Statistics of a column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AnalyzedColumn {
    /// Share of NULL.
    pub nulls: f64,
    /// Estimated number of different values, NULL not counted.
    pub distinct: f64,
    /// Mean bytes of a value in a row.
    pub bytes: f64,
    /// Least value that was found.
    pub least: Option<Value>,
    /// Greatest value that was found.
    pub greatest: Option<Value>,
    /// Values that are found often, with their shares of all rows, the most frequent one first.
    pub common: Vec<(Value, f64)>,
    /// Bounds, ascending, between which there are equal shares of the other values.
    pub bounds: Vec<Value>,
}

/// Statistics of a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AnalyzedTable {
    /// Number of rows.
    pub rows: f64,
    /// Microseconds since 1970-01-01T00:00:00Z at which they were made.
    pub analyzed_at: i64,
    /// By the number of the column in the schema versions.
    columns: BTreeMap<u16, AnalyzedColumn>,
}

impl AnalyzedColumn {
    /// Leaves out the least frequent ones of the common strings, and bounds between others, so that there are at most so
    /// many of each.
    fn thin_out(&mut self, values: usize) {
        if !matches!(self.least.as_ref().or(self.bounds.first()), Some(Value::Varchar(_))) {
            return;
        }
        self.common.truncate(values);
        let last = self.bounds.len().saturating_sub(1);
        if values < 2 {
            self.bounds.clear();
        } else if last >= values {
            self.bounds = (0..values).map(|at| self.bounds[at * last / (values - 1)].clone()).collect();
        }
    }
}

impl AnalyzedTable {
    /// Statistics of a column of a schema of the table.
    pub fn column(&self, schema: &Schema, column: usize) -> Option<&AnalyzedColumn> {
        self.columns.get(&schema.schema_versions().id_of(column)?)
    }

    /// The same with fewer common values and bounds of strings, until they are stored in so many bytes.
    pub(crate) fn within(mut self, schema: &Schema, bytes_max: usize) -> AnalyzedTable {
        let mut values = COMMON_MAX.max(BOUNDS_MAX);
        while values > 0 && self.to_bytes(schema).len() > bytes_max {
            values /= 2;
            self.columns.values_mut().for_each(|column| column.thin_out(values));
        }
        self
    }

    /// The same with the columns of earlier statistics that these lack.
    pub(crate) fn over(mut self, earlier: &AnalyzedTable, schema: &Schema) -> AnalyzedTable {
        for (id, column) in &earlier.columns {
            if schema.schema_versions().column_of(*id).is_some() {
                self.columns.entry(*id).or_insert_with(|| column.clone());
            }
        }
        self
    }
}
