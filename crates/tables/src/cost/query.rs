//! Conditions of a query beside a sample of a table's rows: the share that meets any of them together, and the share of
//! blocks that may have such rows.

use super::statistics::TableStatistics;
use crate::columns::condition::ColumnFilter;
use crate::value::Value;
use crate::workload::ConditionKind;

/// Rows of a sample that meet a condition, and its share of all.
#[derive(Debug, Clone)]
pub(super) struct ConditionProfile {
    pub(super) column: usize,
    pub(super) kind: ConditionKind,
    /// Number of values of an equality or of a list.
    pub(super) values: f64,
    /// Estimated share of the rows that meet it.
    pub(super) share: f64,
    /// A bit for each row of the sample.
    met: Vec<u64>,
    /// Tells of each run in key order whether its block may have rows that meet it, by least and greatest value.
    reached: Vec<bool>,
}

/// Conditions on the leading columns of a key.
pub(super) struct Prefix<'q> {
    pub(super) conditions: Vec<&'q ConditionProfile>,
    /// Number of columns that have a few values.
    pub(super) fixed: usize,
    /// True if the next one has a range.
    pub(super) has_range: bool,
}

/// Query beside a table; see the [module](self).
#[derive(Debug, Clone)]
pub struct QueryProfile {
    pub(super) conditions: Vec<ConditionProfile>,
    /// Columns that are read, those of conditions not counted.
    pub(super) columns: Vec<usize>,
    sampled: usize,
    runs: usize,
}

impl QueryProfile {
    /// Profile of a query that reads some columns of the rows that meet all conditions.
    pub fn new(statistics: &TableStatistics, filters: &[ColumnFilter], columns: &[usize]) -> QueryProfile {
        let known = filters.iter().filter(|filter| filter.column < statistics.columns.len());
        QueryProfile {
            conditions: known.map(|filter| ConditionProfile::new(statistics, filter)).collect(),
            columns: columns.iter().copied().filter(|column| *column < statistics.columns.len()).collect(),
            sampled: statistics.sample.rows.len(),
            runs: statistics.sample.key_runs.len(),
        }
    }

    /// Estimated share of the rows that meet all conditions.
    pub fn share(&self) -> f64 {
        self.share_of(&self.conditions.iter().collect::<Vec<_>>())
    }

    /// Estimated share of the rows that meet some of the conditions. What no row of the sample meets is taken for
    /// independent, and for less than half a row of it.
    pub(super) fn share_of(&self, conditions: &[&ConditionProfile]) -> f64 {
        let independent: f64 = conditions.iter().map(|condition| condition.share).product();
        match conditions {
            [] => return 1.0,
            [alone] => return alone.share,
            _ => {}
        }
        let words = self.sampled.div_ceil(64);
        let both = (0..words).map(|at| conditions.iter().fold(u64::MAX, |bits, of| bits & of.met[at]));
        let met: u32 = both.map(u64::count_ones).sum();
        let least = conditions.iter().map(|condition| condition.share).fold(1.0, f64::min);
        match met {
            0 => independent.min(0.5 / self.sampled.max(1) as f64),
            met => (f64::from(met) / self.sampled as f64).min(least),
        }
    }

    /// Share of the blocks that summaries leave, of rows in the order of their keys.
    pub(super) fn blocks_left(&self) -> f64 {
        let left = |run: &usize| self.conditions.iter().all(|condition| condition.reached[*run]);
        match self.runs {
            0 => 1.0,
            // A range may begin and end within a block that no run hits.
            runs => ((0..runs).filter(left).count() as f64 / runs as f64).max(self.share()),
        }
    }

    /// Columns with conditions that are not read otherwise, and the columns that are read.
    pub(super) fn columns_used(&self) -> f64 {
        let more = self.conditions.iter().filter(|condition| !self.columns.contains(&condition.column));
        (self.columns.len() + more.count()) as f64
    }

    /// Estimated share of the rows that meet the conditions on a column.
    pub(crate) fn share_on(&self, column: usize) -> f64 {
        self.share_of(&self.on(column).collect::<Vec<_>>())
    }

    /// Conditions on a column.
    pub(super) fn on(&self, column: usize) -> impl Iterator<Item = &ConditionProfile> {
        self.conditions.iter().filter(move |condition| condition.column == column)
    }

    /// Conditions that an ordered key of these columns can use: equalities on the leading ones, then what the next one
    /// has; none if it has none on the first column.
    pub(super) fn prefix(&self, key: &[usize]) -> Option<Prefix<'_>> {
        let (mut used, mut fixed, mut has_range) = (Vec::new(), 0, false);
        for column in key {
            let on: Vec<_> = self.on(*column).filter(|on| on.kind != ConditionKind::Null).collect();
            let fixes = on.iter().any(|condition| condition.kind.fixes_values());
            has_range = !fixes && !on.is_empty();
            used.extend(on);
            if !fixes {
                break;
            }
            fixed += 1;
        }
        (!used.is_empty()).then_some(Prefix { conditions: used, fixed, has_range })
    }
}

impl ConditionProfile {
    fn new(statistics: &TableStatistics, filter: &ColumnFilter) -> ConditionProfile {
        let sample = &statistics.sample;
        let mut met = vec![0_u64; sample.rows.len().div_ceil(64)];
        let mut count = 0_usize;
        for (at, row) in sample.rows.iter().enumerate() {
            if filter.condition.is_met_by(&row[filter.column]) {
                met[at / 64] |= 1 << (at % 64);
                count += 1;
            }
        }
        let reached = sample.key_runs.iter().map(|run| {
            let values = run.iter().map(|at| &sample.rows[*at as usize][filter.column]);
            may_have(filter, values)
        });
        let kind = ConditionKind::of(&filter.condition);
        let values = values_of(filter);
        let column = &statistics.columns[filter.column];
        let sampled = sample.rows.len().max(1) as f64;
        let by_values = (1.0 - column.nulls) * values / column.distinct;
        let share = match (kind.fixes_values(), count) {
            _ if sample.is_complete => count as f64 / sampled,
            // A few rows of a sample say less than the number of different values.
            (true, 0..=2) => by_values.min(1.0),
            (false, 0) => 0.5 / sampled,
            (_, count) => count as f64 / sampled,
        };
        ConditionProfile { column: filter.column, kind, values, share, met, reached: reached.collect() }
    }
}

/// Number of values that a condition lists.
fn values_of(filter: &ColumnFilter) -> f64 {
    match &filter.condition {
        crate::columns::condition::ColumnCondition::Among(set) => set.len().max(1) as f64,
        _ => 1.0,
    }
}

/// Integer by which summaries rule blocks out.
fn summarised(value: &Value) -> Option<i64> {
    match value {
        Value::Boolean(value) => Some((*value).into()),
        Value::Int(value) | Value::Date(value) => Some((*value).into()),
        Value::BigInt(value) | Value::Timestamp(value) => Some(*value),
        Value::Decimal(value) => i64::try_from(*value).ok(),
        Value::Null | Value::Double(_) | Value::Interval(_) | Value::Varchar(_) => None,
    }
}

/// Tells whether a block with such values may have rows that meet a filter.
fn may_have<'v>(filter: &ColumnFilter, values: impl Iterator<Item = &'v Value>) -> bool {
    let Some((least, greatest)) = filter.condition.bounds() else { return true };
    let bounds = values.filter_map(summarised).fold(None, |bounds: Option<(i64, i64)>, value| {
        Some(bounds.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    });
    bounds.is_none_or(|(low, high)| low <= greatest && least <= high)
}
