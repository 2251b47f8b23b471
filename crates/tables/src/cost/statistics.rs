//! Statistics of a table, from a sample of its rows.

use super::sample::Sample;
use crate::columns::group::RowGroup;
use crate::error::Result;
use crate::table::Table;
use crate::table::stored::TOMBSTONE;
use crate::value::Value;
use entresol_transactions::{KeyRange, Transaction};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

/// Least number of runs of which each having values of its own says that values come in runs.
const RUNS_MIN: usize = 4;

/// Number of rows of the delta store that are counted: more are estimated.
const DELTA_COUNTED_MAX: u64 = 1 << 18;

/// Statistics of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnStatistics {
    /// Estimated number of different values, NULL not counted.
    pub distinct: f64,
    /// Share of NULL.
    pub nulls: f64,
    /// Mean bytes of a value in a row.
    pub bytes: f64,
}

/// Column pages of a table that are not in DRAM, and the storage that they come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorageUse {
    /// Mean bytes of a value in its page.
    pub value_bytes: f64,
    /// Share of the bytes of all pages that are not cached.
    pub uncached: f64,
    /// Bandwidth of loading pages, in bytes per second.
    pub bytes_per_second: f64,
}

/// Statistics of a table.
#[derive(Debug)]
pub struct TableStatistics {
    /// Estimated number of rows.
    pub rows: f64,
    /// Rows in the delta store.
    pub delta_rows: f64,
    /// Visible columns.
    pub columns: Vec<ColumnStatistics>,
    /// Storage of its column pages; none before a page was loaded, and of a table by rows.
    pub storage: Option<StorageUse>,
    pub(super) sample: Sample,
}

impl TableStatistics {
    /// Statistics of the rows that a transaction sees. Cost: reading a sample, some 20 ms of a large table.
    pub fn of(table: &Arc<Table>, tx: &Transaction) -> Result<TableStatistics> {
        let sample = Sample::of(table, tx)?;
        let (rows, delta_rows) = table.counted_rows(tx, &sample)?;
        let columns = 0..table.schema().visible_columns().len();
        let columns = columns.map(|column| column_statistics(&sample, column, rows)).collect();
        let storage = table.storage_use(tx)?;
        Ok(TableStatistics { rows, delta_rows, columns, storage, sample })
    }

    /// Mean bytes of a row.
    pub fn row_bytes(&self) -> f64 {
        self.columns.iter().map(|column| column.bytes).sum()
    }

    /// Sample that they are from.
    pub(crate) fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Number of rows of the sample.
    pub fn sampled_rows(&self) -> usize {
        self.sample.rows.len()
    }
}

impl Table {
    /// Number of rows, and of those in the delta store. Keys of it that were merged and are not reclaimed yet count in
    /// estimates, so they are counted one by one, up to a maximum.
    fn counted_rows(&self, tx: &Transaction, sample: &Sample) -> Result<(f64, f64)> {
        let sampled = sample.rows.len() as f64;
        let Some(columns) = self.own_columns() else {
            let rows = if sample.is_complete { sampled } else { self.estimated_rows() as f64 };
            return Ok((rows.max(sampled), 0.0));
        };
        let stored: u64 = columns.groups(tx)?.iter().map(RowGroup::live_rows).sum();
        let range = KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded };
        let (mut delta, mut from) = (0_u64, None);
        while delta < DELTA_COUNTED_MAX
            && tx.scan_batch(self.state(), &range, &mut from, |_, value| {
                delta += u64::from(value != TOMBSTONE)
            })?
        {}
        if delta >= DELTA_COUNTED_MAX {
            delta = delta.max(self.state().estimated_keys());
        }
        Ok(((stored + delta) as f64, delta as f64))
    }

    /// Storage of its column pages.
    fn storage_use(&self, tx: &Transaction) -> Result<Option<StorageUse>> {
        let Some(columns) = self.own_columns() else { return Ok(None) };
        let groups = columns.groups(tx)?;
        let bytes: f64 = groups.iter().map(|group| group.bytes as f64).sum();
        let rows: f64 = groups.iter().map(|group| f64::from(group.rows)).sum();
        let Some(bandwidths) = columns.bandwidths() else { return Ok(None) };
        if bytes == 0.0 {
            return Ok(None);
        }
        let values = rows * self.schema().columns().len() as f64;
        Ok(Some(StorageUse {
            value_bytes: bytes / values,
            uncached: (1.0 - columns.cached_bytes() as f64 / bytes).clamp(0.0, 1.0),
            bytes_per_second: bandwidths.storage,
        }))
    }
}

/// Statistics of a column of a sample, for a table of so many rows.
fn column_statistics(sample: &Sample, column: usize, rows: f64) -> ColumnStatistics {
    let mut places: HashMap<&Value, Occurrence> = HashMap::new();
    let (mut nulls, mut bytes) = (0_usize, 0_usize);
    for (run, range) in sample.runs.iter().enumerate() {
        for row in &sample.rows[range.clone()] {
            let value = &row[column];
            bytes += value_bytes(value);
            if value.is_null() {
                nulls += 1;
                continue;
            }
            let seen = places.entry(value).or_insert(Occurrence { run, count: 0, in_several_runs: false });
            seen.count += 1;
            seen.in_several_runs |= seen.run != run;
        }
    }
    let sampled = sample.rows.len().max(1) as f64;
    let nulls = nulls as f64 / sampled;
    ColumnStatistics {
        distinct: distinct(&places, sample, rows * (1.0 - nulls)).max(1.0),
        nulls,
        bytes: bytes as f64 / sampled,
    }
}

/// Occurrences of a value in a sample.
struct Occurrence {
    run: usize,
    count: usize,
    in_several_runs: bool,
}

/// Estimate of the different values of a column with so many values that are not NULL.
///
/// Where each run has values of its own, values come in runs, and the other rows have as many for each row. Else it is
/// the estimator of Haas and Stokes (1998) that PostgreSQL takes: `n d / (n - f + f n / N)`, for `d` different values
/// in `n` of `N` rows, `f` of them once.
fn distinct(places: &HashMap<&Value, Occurrence>, sample: &Sample, rows: f64) -> f64 {
    let found = places.len() as f64;
    let sampled: f64 = places.values().map(|seen| seen.count as f64).sum();
    if sample.is_complete || sampled == 0.0 || sampled >= rows {
        return found;
    }
    let alone = places.values().all(|seen| !seen.in_several_runs);
    if alone && sample.runs.len() >= RUNS_MIN && places.len() > sample.runs.len() {
        return (found * rows / sampled).min(rows);
    }
    let once = places.values().filter(|seen| seen.count == 1).count() as f64;
    (sampled * found / (sampled - once + once * sampled / rows)).clamp(found, rows)
}

/// Bytes of a value in a row.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Boolean(_) => 1,
        Value::Int(_) | Value::Date(_) => 4,
        Value::BigInt(_) | Value::Timestamp(_) | Value::Double(_) => 8,
        Value::Decimal(_) | Value::Interval(_) => 16,
        Value::Varchar(text) => text.len() + 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(of: impl Fn(usize, usize) -> i32, run_rows: usize) -> Sample {
        let mut sample = Sample::default();
        for run in 0..32 {
            let first = sample.rows.len();
            sample.rows.extend((0..run_rows).map(|at| vec![Value::Int(of(run, at))]));
            sample.runs.push(first..sample.rows.len());
        }
        sample
    }

    fn estimate(sample: &Sample, rows: f64) -> f64 {
        column_statistics(sample, 0, rows).distinct
    }

    #[test]
    fn different_values_are_estimated_from_a_sample() {
        // Pseudo-random of 1,000 and of 10,000 values, ascending in fours, unique, one value.
        let mixed = |at: usize| {
            let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 33
        };
        let random = |of: u64| sample(move |run, at| (mixed(run * 256 + at) % of) as i32, 256);
        let within = |found: f64, wanted: f64| (wanted / 1.5..wanted * 1.5).contains(&found);
        assert!(within(estimate(&random(1_000), 1e6), 1_000.0));
        assert!(within(estimate(&random(10_000), 1e6), 10_000.0), "{}", estimate(&random(10_000), 1e6));
        let fours = sample(|run, at| (run * 30_000 + at / 4) as i32, 256);
        assert!(within(estimate(&fours, 1e6), 250_000.0));
        let unique = sample(|run, at| (run * 30_000 + at) as i32, 256);
        assert_eq!(estimate(&unique, 1e6), 1e6);
        assert_eq!(estimate(&sample(|_, _| 5, 256), 1e6), 1.0);
    }

    #[test]
    fn a_complete_sample_is_counted() {
        let mut all = sample(|run, at| (run * at % 10) as i32, 10);
        all.is_complete = true;
        all.rows.push(vec![Value::Null]);
        all.runs.push(320..321);
        let found = column_statistics(&all, 0, 321.0);
        assert_eq!(found.distinct, 10.0);
        assert!((found.nulls - 1.0 / 321.0).abs() < 1e-9);
    }
}
