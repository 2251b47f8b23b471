//! Values that come to the groups of an aggregate, or are taken back from them.

use super::{Accumulators, AggregateKind, BoundAggregate};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_schema::DataType as ArrowType;
use entresol_tables::normalize_double;
use std::cmp::Ordering;

/// Changes the counts of groups by one for each row; where there is a column, for each of its values.
fn count(counts: &mut [i64], groups: &[u32], values: Option<&ArrayRef>, change: i64) {
    match values {
        None => groups.iter().for_each(|&group| counts[group as usize] += change),
        Some(array) => {
            let valid = groups.iter().enumerate().filter(|(row, _)| array.is_valid(*row));
            valid.for_each(|(_, &group)| counts[group as usize] += change);
        }
    }
}

impl BoundAggregate {
    /// Takes values back from the groups with these numbers, of an aggregate that can be subtracted from.
    pub(crate) fn subtract(
        &self,
        accumulators: &mut Accumulators,
        groups: &[u32],
        columns: &[ArrayRef],
    ) -> Result<(), String> {
        match (accumulators, columns.first()) {
            (Accumulators::Count(counts), values) => count(counts, groups, values, -1),
            (Accumulators::Sums { sums, counts }, Some(array)) => {
                let mut overflows = false;
                self.each_number(array, groups, |group, value| {
                    let sum = sums[group].checked_sub(value);
                    overflows |= sum.is_none();
                    sums[group] = sum.unwrap_or(0);
                    counts[group] -= 1;
                })?;
                if overflows {
                    return Err(format!("{} overflows", self.name));
                }
            }
            _ => return Err(format!("{}: values cannot be taken back from it", self.name)),
        }
        Ok(())
    }

    /// Calls `f` with the groups whose result may be another without these values, of an aggregate that cannot be
    /// subtracted from: those of an extreme that is behind a value stay.
    pub(crate) fn each_outdated(
        &self,
        accumulators: &Accumulators,
        groups: &[u32],
        columns: &[ArrayRef],
        mut f: impl FnMut(usize),
    ) -> Result<(), String> {
        match (accumulators, columns.first()) {
            (Accumulators::Numbers(extremes), Some(array)) => {
                self.each_number(array, groups, |group, value| {
                    if !extremes[group].is_some_and(|extreme| self.is_better(extreme.cmp(&value))) {
                        f(group);
                    }
                })
            }
            (Accumulators::Doubles(extremes), Some(array)) => {
                self.each_double(array, groups, |group, value| {
                    if !extremes[group]
                        .is_some_and(|extreme| self.is_better(order_of_doubles(&extreme, &value)))
                    {
                        f(group);
                    }
                })
            }
            (Accumulators::Texts(extremes), Some(array)) => {
                let strings = array.as_string_opt::<i32>().ok_or_else(|| self.wrong_type(array))?;
                for (&group, text) in groups.iter().zip(strings.iter()) {
                    let extreme = extremes.get(group as usize);
                    let is_behind = |text| extreme.is_some_and(|extreme| self.is_better(extreme.cmp(text)));
                    if text.is_some_and(|text| !is_behind(text)) {
                        f(group as usize);
                    }
                }
                Ok(())
            }
            _ => {
                groups.iter().for_each(|group| f(*group as usize));
                Ok(())
            }
        }
    }

    /// Adds values to the groups with these numbers: those of the columns, one for each number. After an error
    /// some of them are added.
    pub(crate) fn add(
        &self,
        accumulators: &mut Accumulators,
        groups: &[u32],
        columns: &[ArrayRef],
    ) -> Result<(), String> {
        match (accumulators, columns.first()) {
            (Accumulators::States(states), _) => states.add(groups, columns)?,
            (Accumulators::Count(counts), values) => count(counts, groups, values, 1),
            (Accumulators::DoubleSums { sums, counts }, Some(array)) => {
                self.each_double(array, groups, |group, value| {
                    sums[group] += value;
                    counts[group] += 1;
                })?;
            }
            (Accumulators::Sums { sums, counts }, Some(array)) => {
                let mut overflows = false;
                self.each_number(array, groups, |group, value| {
                    // Where values are taken back, a sum that is out of range may be in it when all of them have come.
                    let is_held = |sum: &i128| self.is_subtracted || self.holds(*sum);
                    let sum = sums[group].checked_add(value).filter(is_held);
                    overflows |= sum.is_none();
                    sums[group] = sum.unwrap_or(0);
                    counts[group] += 1;
                })?;
                if overflows {
                    return Err(format!("{} overflows", self.name));
                }
            }
            (Accumulators::Numbers(extremes), Some(array)) => {
                self.each_number(array, groups, |group, value| {
                    self.replace(&mut extremes[group], value, |a, b| a.cmp(b));
                })?;
            }
            (Accumulators::Doubles(extremes), Some(array)) => {
                self.each_double(array, groups, |group, value| {
                    self.replace(&mut extremes[group], value, order_of_doubles);
                })?;
            }
            (Accumulators::Texts(extremes), Some(array)) => {
                let strings = array.as_string_opt::<i32>().ok_or_else(|| self.wrong_type(array))?;
                for (&group, text) in groups.iter().zip(strings.iter()) {
                    let group = group as usize;
                    if let Some(text) = text
                        && extremes.get(group).is_none_or(|extreme| self.is_better(text.cmp(extreme)))
                    {
                        extremes.set(group, Some(text.into()));
                    }
                }
            }
            (_, None) => unreachable!("only count has no column"),
        }
        Ok(())
    }

    /// Adds the values of one group to another; the first one keeps them.
    pub(crate) fn merge(&self, accumulators: &mut Accumulators, from: u32, to: u32) -> Result<(), String> {
        let (from, to) = (from as usize, to as usize);
        match accumulators {
            Accumulators::States(states) => states.merge(from, to)?,
            Accumulators::Count(counts) => counts[to] += counts[from],
            Accumulators::Sums { sums, counts } => {
                let sum = sums[to].checked_add(sums[from]).filter(|sum| self.holds(*sum));
                sums[to] = sum.ok_or_else(|| format!("{} overflows", self.name))?;
                counts[to] += counts[from];
            }
            Accumulators::DoubleSums { sums, counts } => {
                sums[to] += sums[from];
                counts[to] += counts[from];
            }
            Accumulators::Numbers(extremes) => {
                if let Some(value) = extremes[from] {
                    self.replace(&mut extremes[to], value, |a, b| a.cmp(b));
                }
            }
            Accumulators::Doubles(extremes) => {
                if let Some(value) = extremes[from] {
                    self.replace(&mut extremes[to], value, order_of_doubles);
                }
            }
            Accumulators::Texts(extremes) => {
                if let Some(text) = extremes.get(from)
                    && extremes.get(to).is_none_or(|extreme| self.is_better(text.cmp(extreme)))
                {
                    let text = Some(text.into());
                    extremes.set(to, text);
                }
            }
        }
        Ok(())
    }

    fn is_better(&self, order: Ordering) -> bool {
        order == if matches!(self.kind, AggregateKind::Min) { Ordering::Less } else { Ordering::Greater }
    }

    fn replace<T>(&self, extreme: &mut Option<T>, value: T, order: impl Fn(&T, &T) -> Ordering) {
        if extreme.as_ref().is_none_or(|extreme| self.is_better(order(&value, extreme))) {
            *extreme = Some(value);
        }
    }

    pub(super) fn each_double(
        &self,
        array: &ArrayRef,
        groups: &[u32],
        f: impl FnMut(usize, f64),
    ) -> Result<(), String> {
        match array.data_type() {
            ArrowType::Float64 => each(array.as_primitive::<Float64Type>(), groups, |value| value, f),
            ArrowType::Float32 => each(array.as_primitive::<Float32Type>(), groups, f64::from, f),
            _ => return Err(self.wrong_type(array)),
        }
        Ok(())
    }

    pub(super) fn each_number(
        &self,
        array: &ArrayRef,
        groups: &[u32],
        mut f: impl FnMut(usize, i128),
    ) -> Result<(), String> {
        match array.data_type() {
            ArrowType::Boolean => {
                for (&group, value) in groups.iter().zip(array.as_boolean().iter()) {
                    value.into_iter().for_each(|value| f(group as usize, value.into()));
                }
            }
            ArrowType::Int16 => each(array.as_primitive::<Int16Type>(), groups, i128::from, f),
            ArrowType::Int32 => each(array.as_primitive::<Int32Type>(), groups, i128::from, f),
            ArrowType::Int64 => each(array.as_primitive::<Int64Type>(), groups, i128::from, f),
            ArrowType::Date32 => each(array.as_primitive::<Date32Type>(), groups, i128::from, f),
            ArrowType::Timestamp(..) => {
                each(array.as_primitive::<TimestampMicrosecondType>(), groups, i128::from, f);
            }
            ArrowType::Decimal128(..) => {
                each(array.as_primitive::<Decimal128Type>(), groups, |value| value, f);
            }
            _ => return Err(self.wrong_type(array)),
        }
        Ok(())
    }
}

/// Order in which zeros are equal and NaN is the greatest.
fn order_of_doubles(a: &f64, b: &f64) -> Ordering {
    normalize_double(*a).total_cmp(&normalize_double(*b))
}

/// Calls `f` with the group and the value of each row that is not NULL.
fn each<T: ArrowPrimitiveType, V>(
    array: &PrimitiveArray<T>,
    groups: &[u32],
    convert: impl Fn(T::Native) -> V,
    mut f: impl FnMut(usize, V),
) {
    let rows = groups.iter().zip(array.values());
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => rows.for_each(|(&group, &value)| f(group as usize, convert(value))),
        Some(nulls) => {
            let valid = rows.zip(nulls.iter()).filter(|(_, is_valid)| *is_valid);
            valid.for_each(|((&group, &value), _)| f(group as usize, convert(value)));
        }
    }
}
