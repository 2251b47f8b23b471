//! Columns in which a state table has the accumulators of groups, and their results.

use super::{Accumulators, AggregateKind, BoundAggregate};
use crate::UTC;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::DataType as ArrowType;
use entresol_tables::{Column, DataType, arrow_type, decimal};
use std::sync::Arc;

impl BoundAggregate {
    /// Returns the columns of the state table.
    pub(crate) fn state_columns(&self) -> Vec<Column> {
        match &self.kind {
            AggregateKind::Avg => (),
            AggregateKind::Sum if self.has_count() => {
                let count = Column::new(format!("{}_count", self.name), DataType::BigInt).not_null();
                return vec![self.result_column(), count];
            }
            AggregateKind::Function(function) => {
                let behind =
                    |column: Column| Column { name: format!("{}_{}", self.name, column.name), ..column };
                return function.state_columns().into_iter().map(behind).collect();
            }
            _ => return vec![self.result_column()],
        }
        let sum_type = match self.data_type {
            DataType::SmallInt | DataType::Int | DataType::BigInt => {
                DataType::Decimal { precision: 38, scale: 0 }
            }
            _ => self.sum_type(),
        };
        vec![
            Column::new(format!("{}_sum", self.name), sum_type),
            Column::new(format!("{}_count", self.name), DataType::BigInt).not_null(),
        ]
    }

    /// Arrays of the state columns of these groups.
    pub(crate) fn store(
        &self,
        accumulators: &mut Accumulators,
        groups: &[u32],
    ) -> Result<Vec<ArrayRef>, String> {
        let of = |group: &u32| *group as usize;
        if self.is_subtracted {
            self.check(accumulators, groups)?;
        }
        let sums: ArrayRef = match accumulators {
            Accumulators::States(states) => return states.store(groups),
            Accumulators::Count(counts) => {
                let counts = groups.iter().map(|group| counts[of(group)]);
                return Ok(vec![Arc::new(Int64Array::from_iter_values(counts))]);
            }
            Accumulators::DoubleSums { sums, counts } => Arc::new(Float64Array::from_iter(
                groups.iter().map(of).map(|group| (counts[group] > 0).then_some(sums[group])),
            )),
            Accumulators::Sums { sums, counts } => {
                let sums = groups.iter().map(of).map(|group| (counts[group] > 0).then_some(sums[group]));
                number_array(self.state_columns()[0].data_type, sums)
            }
            Accumulators::Numbers(extremes) => {
                number_array(self.data_type, groups.iter().map(|group| extremes[of(group)]))
            }
            Accumulators::Doubles(extremes) => {
                let values = groups.iter().map(|group| extremes[of(group)]);
                match self.data_type {
                    // Its values are those of a single.
                    DataType::Real => Arc::new(
                        values.map(|value| value.map(|value| value as f32)).collect::<Float32Array>(),
                    ),
                    _ => Arc::new(values.collect::<Float64Array>()),
                }
            }
            Accumulators::Texts(extremes) => {
                Arc::new(groups.iter().map(|group| extremes.get(of(group))).collect::<StringArray>())
            }
        };
        match accumulators {
            Accumulators::Sums { counts, .. } | Accumulators::DoubleSums { counts, .. }
                if self.has_count() =>
            {
                let counts = groups.iter().map(|group| counts[of(group)]);
                Ok(vec![sums, Arc::new(Int64Array::from_iter_values(counts))])
            }
            _ => Ok(vec![sums]),
        }
    }

    /// Sets groups to the values that [`BoundAggregate::store`] returned, at the front of `columns`; false if
    /// they have other types.
    pub(crate) fn load(
        &self,
        accumulators: &mut Accumulators,
        groups: &[u32],
        columns: &mut std::slice::Iter<'_, ArrayRef>,
    ) -> bool {
        if let Accumulators::States(states) = accumulators {
            let stored =
                columns.by_ref().take(self.state_columns().len()).cloned().collect::<Vec<ArrayRef>>();
            return states.load(groups, &stored).is_ok();
        }
        let (Some(first), has_count) = (columns.next(), self.has_count()) else { return false };
        // Without a count of its own, a sum that is not NULL is of some value.
        let stored_counts = if has_count { columns.next() } else { None };
        if has_count && stored_counts.is_none_or(|counts| *counts.data_type() != ArrowType::Int64) {
            return false;
        }
        let set_counts = |counts: &mut [i64]| {
            for (row, &group) in groups.iter().enumerate() {
                counts[group as usize] = match stored_counts {
                    Some(stored) => stored.as_primitive::<Int64Type>().value(row),
                    None => i64::from(first.is_valid(row)),
                };
            }
        };
        match accumulators {
            Accumulators::States(_) => false,
            Accumulators::Count(counts) => {
                self.each_number(first, groups, |group, value| counts[group] = value as i64).is_ok()
            }
            Accumulators::DoubleSums { sums, counts } => {
                set_counts(counts);
                self.each_double(first, groups, |group, value| sums[group] = value).is_ok()
            }
            Accumulators::Sums { sums, counts } => {
                set_counts(counts);
                self.each_number(first, groups, |group, value| sums[group] = value).is_ok()
            }
            Accumulators::Numbers(extremes) => {
                self.each_number(first, groups, |group, value| extremes[group] = Some(value)).is_ok()
            }
            Accumulators::Doubles(extremes) => {
                self.each_double(first, groups, |group, value| extremes[group] = Some(value)).is_ok()
            }
            Accumulators::Texts(extremes) => {
                let Some(texts) = first.as_string_opt::<i32>() else { return false };
                for (&group, text) in groups.iter().zip(texts.iter()) {
                    extremes.set(group as usize, text.map(Into::into));
                }
                true
            }
        }
    }

    /// Array of the results of these groups.
    pub(crate) fn results(
        &self,
        accumulators: &mut Accumulators,
        groups: &[u32],
    ) -> Result<ArrayRef, String> {
        let scale = if let DataType::Decimal { scale, .. } = self.data_type { scale } else { 0 };
        let of = |group: &u32| *group as usize;
        let means: Float64Array = match accumulators {
            Accumulators::States(states) => return states.results(groups),
            Accumulators::DoubleSums { sums, counts } if self.is_avg() => {
                let mean = |group: usize| (counts[group] > 0).then(|| sums[group] / counts[group] as f64);
                groups.iter().map(of).map(mean).collect()
            }
            Accumulators::Sums { sums, counts } if self.is_avg() => {
                let mean = |group: usize| {
                    (counts[group] > 0).then(|| decimal::to_double(sums[group], scale) / counts[group] as f64)
                };
                groups.iter().map(of).map(mean).collect()
            }
            _ => return Ok(self.store(accumulators, groups)?.swap_remove(0)),
        };
        Ok(Arc::new(means))
    }
}

/// Array of numbers of a column; they are in its range.
fn number_array(data_type: DataType, values: impl Iterator<Item = Option<i128>>) -> ArrayRef {
    match data_type {
        DataType::Boolean => {
            Arc::new(values.map(|value| value.map(|value| value != 0)).collect::<BooleanArray>())
        }
        DataType::SmallInt => {
            Arc::new(values.map(|value| value.map(|value| value as i16)).collect::<Int16Array>())
        }
        DataType::Int => {
            Arc::new(values.map(|value| value.map(|value| value as i32)).collect::<Int32Array>())
        }
        DataType::Date => {
            Arc::new(values.map(|value| value.map(|value| value as i32)).collect::<Date32Array>())
        }
        DataType::Timestamp | DataType::TimestampTz => {
            let array = values.map(|value| value.map(|value| value as i64));
            let array = array.collect::<TimestampMicrosecondArray>();
            Arc::new(array.with_data_type(arrow_type(data_type, UTC)))
        }
        DataType::Decimal { .. } => {
            Arc::new(values.collect::<Decimal128Array>().with_data_type(arrow_type(data_type, UTC)))
        }
        _ => Arc::new(values.map(|value| value.map(|value| value as i64)).collect::<Int64Array>()),
    }
}
