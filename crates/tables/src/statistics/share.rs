//! Estimated shares of rows that meet conditions.

use super::{AnalyzedColumn, AnalyzedTable};
use crate::columns::condition::{ColumnCondition, ColumnFilter};
use crate::schema::Schema;
use crate::value::Value;
use crate::workload::ConditionKind;

impl AnalyzedTable {
    /// Estimated share of the rows that meet all conditions, taken as independent; none if nothing is known of a
    /// column.
    pub fn share(&self, schema: &Schema, filters: &[ColumnFilter]) -> Option<f64> {
        let shares = filters.iter().map(|filter| {
            let column = self.column(schema, filter.column)?;
            Some(column.share(&filter.condition, self.rows))
        });
        shares.product()
    }
}

impl AnalyzedColumn {
    /// Estimated share of the rows that meet a condition, of a table with so many rows; at least that of half a row.
    fn share(&self, condition: &ColumnCondition, rows: f64) -> f64 {
        let least = 0.5 / rows.max(1.0);
        let share = match condition {
            ColumnCondition::Null => self.nulls,
            ColumnCondition::NotNull => 1.0 - self.nulls,
            condition => self.share_of_values(condition),
        };
        share.clamp(least.min(1.0), 1.0)
    }

    fn share_of_values(&self, condition: &ColumnCondition) -> f64 {
        let met = self.common.iter().filter(|(value, _)| condition.is_met_by(value));
        let (met, met_values) = met.fold((0.0, 0.0), |(share, values), (_, of)| (share + of, values + 1.0));
        let listed: f64 = self.common.iter().map(|(_, share)| share).sum();
        let others = (1.0 - self.nulls - listed).max(0.0);
        let distinct = (self.distinct - self.common.len() as f64).max(1.0);
        let wanted = match condition {
            ColumnCondition::Among(set) => Some(set.len() as f64),
            condition if ConditionKind::of(condition) == ConditionKind::Equal => Some(1.0),
            _ => None,
        };
        let of_others = match wanted {
            Some(wanted) => ((wanted - met_values).max(0.0) / distinct).min(1.0),
            None => self.share_of_bounds(condition),
        };
        met + others * of_others
    }

    /// Share of the values that are not common: of the buckets between bounds whose ends meet the condition, half
    /// of those of which one end does, and of a range also what of it is within a bucket.
    fn share_of_bounds(&self, condition: &ColumnCondition) -> f64 {
        let buckets = self.bounds.len().saturating_sub(1);
        if buckets == 0 {
            return if self.bounds.iter().any(|value| condition.is_met_by(value)) { 1.0 } else { 0.0 };
        }
        let of_bucket = |ends: &[Value]| match (condition, number(&ends[0]), number(&ends[1])) {
            (ColumnCondition::Between { least, greatest }, Some(low), Some(high)) => {
                within(low, high, (*least as f64, *greatest as f64 + 1.0))
            }
            (ColumnCondition::Doubles { least, greatest }, Some(low), Some(high)) => {
                within(low, high, (*least, *greatest))
            }
            _ => {
                let ends = ends.iter().filter(|end| condition.is_met_by(end)).count();
                ends as f64 / 2.0
            }
        };
        self.bounds.windows(2).map(of_bucket).sum::<f64>() / buckets as f64
    }
}

/// Share of the values from one to another that lie in a range.
fn within(low: f64, high: f64, (least, greatest): (f64, f64)) -> f64 {
    if high <= low {
        return if (least..=greatest).contains(&low) { 1.0 } else { 0.0 };
    }
    ((greatest.min(high) - least.max(low)) / (high - low)).clamp(0.0, 1.0)
}

/// Value as a number in the unit in which conditions compare it.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Boolean(value) => Some(f64::from(u8::from(*value))),
        Value::Int(value) | Value::Date(value) => Some((*value).into()),
        Value::BigInt(value) | Value::Timestamp(value) => Some(*value as f64),
        Value::Decimal(value) => Some(*value as f64),
        Value::Double(value) => Some(*value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::condition::IntegerSet;
    use std::sync::Arc;

    fn column() -> AnalyzedColumn {
        AnalyzedColumn {
            nulls: 0.1,
            distinct: 1002.0,
            common: vec![(Value::Int(-1), 0.2), (Value::Int(-2), 0.1)],
            bounds: (0..=10).map(|bound| Value::Int(bound * 100)).collect(),
            ..AnalyzedColumn::default()
        }
    }

    #[test]
    fn shares_follow_common_values_and_bounds() {
        let between = |least, greatest| ColumnCondition::Between { least, greatest };
        let set =
            |values: &[i64]| ColumnCondition::Among(Arc::new(IntegerSet::new(values, 1 << 20).unwrap()));
        for (condition, expected) in [
            (ColumnCondition::Null, 0.1),
            (ColumnCondition::NotNull, 0.9),
            (between(-1, -1), 0.2),
            (between(7, 7), 0.6 / 1000.0),
            (between(0, 99), 0.06),
            (between(0, 9), 0.006),
            (between(-5, 499), 0.6),
            (between(5000, 6000), 0.5e-6),
            (set(&[-1, -2, 3, 4]), 0.3 + 0.6 * 2.0 / 1000.0),
        ] {
            let share = column().share(&condition, 1e6);
            assert!((share - expected).abs() < 1e-3 * expected, "{condition:?}: {share}, not {expected}");
        }
    }

    #[test]
    fn strings_are_looked_at() {
        let text = |text: &str| Value::varchar(text);
        let column = AnalyzedColumn {
            distinct: 6.0,
            common: vec![(text("MAIL"), 0.5)],
            bounds: ["AIR", "FOB", "RAIL", "SHIP", "TRUCK"].map(text).to_vec(),
            ..AnalyzedColumn::default()
        };
        let equal = |wanted: &'static str| ColumnCondition::TextsWithin {
            least: Some(wanted.into()),
            greatest: Some(wanted.into()),
            is_met: Arc::new(move |text| text == wanted),
        };
        assert_eq!(column.share(&equal("MAIL"), 1e6), 0.5);
        assert_eq!(column.share(&equal("AIR"), 1e6), 0.1);
        let starts = ColumnCondition::Texts(Arc::new(|text: &str| text >= "R"));
        assert_eq!(column.share(&starts, 1e6), 0.5 * 2.5 / 4.0);
    }
}
