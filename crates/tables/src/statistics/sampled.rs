//! Statistics from a sample of the rows of a table.

use super::{AnalyzedColumn, AnalyzedTable, BOUNDS_MAX, COMMON_MAX, VALUE_BYTES_MAX};
use crate::cost::{ColumnStatistics, Sample, TableStatistics};
use crate::error::Result;
use crate::table::Table;
use crate::table::range::ScanRange;
use crate::value::Value;
use entresol_transactions::{Direction, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Frequency from which on a value is common, as a multiple of the mean one.
const COMMON_FREQUENCY: f64 = 1.25;
/// Fewest occurrences of a common value in a sample.
const OCCURRENCES_MIN: usize = 2;

impl AnalyzedTable {
    /// Statistics of the rows that a transaction sees, of some visible columns or of all. Cost: a sample, some 20
    /// ms of a large table.
    pub(crate) fn of(
        table: &Arc<Table>,
        tx: &Transaction,
        (columns, analyzed_at): (Option<&[usize]>, i64),
    ) -> Result<AnalyzedTable> {
        let statistics = TableStatistics::of(table, tx)?;
        let all: Vec<usize> = (0..statistics.columns.len()).collect();
        let mut analyzed = AnalyzedTable { rows: statistics.rows, analyzed_at, columns: BTreeMap::new() };
        for &column in columns.unwrap_or(&all) {
            let Some(id) = table.schema().schema_versions().id_of(column) else { continue };
            let mut of = column_of(statistics.sample(), column, &statistics.columns[column]);
            if statistics.rows > 0.0 && table.schema().key().first() == Some(&column) {
                of.least = end(table, tx, column, Direction::Forward)?.or(of.least);
                of.greatest = end(table, tx, column, Direction::Backward)?.or(of.greatest);
            }
            analyzed.columns.insert(id, of);
        }
        Ok(analyzed)
    }
}

/// Value of a column of the first row by the key in a direction.
fn end(table: &Table, tx: &Transaction, column: usize, direction: Direction) -> Result<Option<Value>> {
    let mut cursor = table.scan(ScanRange::full()).directed(direction);
    let mut found = None;
    while found.is_none()
        && cursor.next_batch(tx, |row| {
            found.get_or_insert_with(|| row.to_row().swap_remove(column));
        })?
    {}
    Ok(found.filter(is_short))
}

fn is_short(value: &Value) -> bool {
    !matches!(value, Value::Varchar(text) if text.len() > VALUE_BYTES_MAX)
}

/// Occurrences of a value in a sample.
struct SampledValue {
    count: usize,
    run: usize,
    /// True if it is in several runs: neighbours are often alike, and tell nothing of the others.
    in_several_runs: bool,
}

fn column_of(sample: &Sample, column: usize, statistics: &ColumnStatistics) -> AnalyzedColumn {
    let mut found: BTreeMap<&Value, SampledValue> = BTreeMap::new();
    for (run, range) in sample.runs.iter().enumerate() {
        for row in &sample.rows[range.clone()] {
            let value = &row[column];
            if value.is_null() || !is_short(value) {
                continue;
            }
            let known = found.entry(value).or_insert(SampledValue { count: 0, run, in_several_runs: false });
            known.count += 1;
            known.in_several_runs |= known.run != run;
        }
    }
    let sampled = sample.rows.len().max(1) as f64;
    let counted: usize = found.values().map(|found| found.count).sum();
    let mean = counted as f64 / found.len().max(1) as f64;
    // Of a few values all are common, however alike their frequencies.
    let frequent = if found.len() <= COMMON_MAX { 0.0 } else { COMMON_FREQUENCY * mean };
    let is_common = |found: &SampledValue| {
        let is_spread = sample.is_complete || found.in_several_runs;
        found.count >= OCCURRENCES_MIN && is_spread && found.count as f64 > frequent
    };
    let is_frequent = |(_, found): &(&&Value, &SampledValue)| is_common(found);
    let mut common: Vec<(&Value, usize)> =
        found.iter().filter(is_frequent).map(|(value, found)| (*value, found.count)).collect();
    common.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    common.truncate(COMMON_MAX);
    let is_listed = |value: &Value| common.iter().any(|(listed, _)| std::ptr::eq(*listed, value));
    let others = found.iter().filter(|(value, _)| !is_listed(value));
    let others: Vec<(&Value, usize)> = others.map(|(value, found)| (*value, found.count)).collect();
    AnalyzedColumn {
        nulls: statistics.nulls,
        distinct: statistics.distinct,
        bytes: statistics.bytes,
        least: found.keys().next().map(|value| (*value).clone()),
        greatest: found.keys().next_back().map(|value| (*value).clone()),
        common: common.iter().map(|(value, count)| ((*value).clone(), *count as f64 / sampled)).collect(),
        bounds: bounds(&others),
    }
}

/// Bounds of equal shares of values, which ascend, each with its number.
fn bounds(values: &[(&Value, usize)]) -> Vec<Value> {
    let [before @ .., (last, _)] = values else { return Vec::new() };
    if before.is_empty() {
        return Vec::new();
    }
    let total: usize = values.iter().map(|(_, count)| count).sum();
    let buckets = BOUNDS_MAX.min(values.len()) - 1;
    let (mut bounds, mut passed) = (Vec::with_capacity(buckets + 1), 0);
    for (value, count) in before {
        // Bound number b lies at the share b / buckets of all; the last one is the greatest value.
        if bounds.len() < buckets && passed * buckets >= bounds.len() * (total - 1) {
            bounds.push((*value).clone());
        }
        passed += count;
    }
    bounds.push((*last).clone());
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: impl Iterator<Item = Option<i32>>, run_rows: usize, is_complete: bool) -> Sample {
        let rows = values.map(|value| vec![value.map_or(Value::Null, Value::Int)]).collect::<Vec<_>>();
        let starts = (0..rows.len()).step_by(run_rows);
        let runs = starts.map(|start| start..(start + run_rows).min(rows.len())).collect();
        Sample { rows, runs, is_complete, ..Sample::default() }
    }

    fn analyzed(sample: &Sample) -> AnalyzedColumn {
        let of = ColumnStatistics { distinct: 1.0, nulls: 0.0, bytes: 4.0 };
        column_of(sample, 0, &of)
    }

    #[test]
    fn bounds_divide_the_values_that_are_not_common() {
        // Half of the rows are 7, the others have values of their own.
        let half = analyzed(&sample((0..8000).map(|at| Some(if at % 2 == 0 { 7 } else { at })), 250, false));
        assert_eq!(half.common.len(), 1, "{:?}", half.common);
        assert_eq!(half.common[0].0, Value::Int(7));
        assert!((half.common[0].1 - 0.5).abs() < 0.001);
        assert_eq!(half.bounds.len(), BOUNDS_MAX);
        assert_eq!((&half.bounds[0], &half.bounds[BOUNDS_MAX - 1]), (&Value::Int(1), &Value::Int(7999)));
        let Value::Int(middle) = half.bounds[BOUNDS_MAX / 2] else { panic!("{:?}", half.bounds) };
        assert!((3900..4100).contains(&middle), "{middle}");
    }

    #[test]
    fn neighbours_are_not_taken_for_common_values() {
        let runs = sample((0..8192).map(|at| Some(at / 256)), 256, false);
        assert_eq!(analyzed(&runs).common, []);
        assert!(analyzed(&runs).bounds.len() > 24, "they are bounds");
        let all = sample((0..60).map(|at| Some(at / 20)), 256, true);
        let common: Vec<f64> = analyzed(&all).common.iter().map(|(_, share)| *share).collect();
        assert_eq!(common, [1.0 / 3.0; 3], "few values are all common");
        assert_eq!(analyzed(&all).bounds, []);
    }

    #[test]
    fn bounds_are_distinct_however_skewed_the_values() {
        for counts in [[1, 1, 100], [1, 100, 1], [100, 1, 1], [2, 2, 2]] {
            let values: Vec<Value> = (0..3).map(Value::Int).collect();
            let pairs: Vec<(&Value, usize)> = values.iter().zip(counts).collect();
            let bounds = bounds(&pairs);
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{counts:?}: {bounds:?}");
            assert_eq!((bounds.first(), bounds.last()), (values.first(), values.last()));
        }
        assert_eq!(analyzed(&sample([None, None].into_iter(), 2, true)).least, None);
    }
}
