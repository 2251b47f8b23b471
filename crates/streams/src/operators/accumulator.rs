//! Aggregates and their accumulators, and the columns in which a state table stores them.
//!
//! | aggregate | of | result | columns of the state table |
//! | --- | --- | --- | --- |
//! | count | rows, or non-NULL values | BIGINT | the count |
//! | sum | INT, BIGINT | BIGINT, error on overflow | the sum, NULL before the first value |
//! | sum | DOUBLE | DOUBLE, added in order of arrival | likewise |
//! | sum | DECIMAL(p,s) | DECIMAL(38,s), error on overflow | likewise |
//! | avg | all of these | DOUBLE | `<name>_sum` (integers as DECIMAL(38,0)) and `<name>_count` |
//! | min, max | any type | the same type | the value |
//!
//! | a function | its columns | its own | its own, behind `<name>_` ([`super::group_states`]) |
//!
//! Where values are taken back, a sum has a `<name>_count` too, as it is NULL without any.
//!
//! NULL values are ignored; every aggregate but count is NULL if there was no other value. Storing and
//! loading returns the same accumulators, so results do not depend on restarts.

use crate::UTC;
use crate::operators::group_states::{AggregateFunction, GroupStates};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, PrimitiveArray, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::DataType as ArrowType;
use entresol_tables::{Column, DataType, arrow_type, decimal, normalize_double};
use entresol_transactions::Direction;
use std::cmp::Ordering;
use std::sync::Arc;

/// An aggregate over columns: [`Aggregate::sum`] and its siblings.
#[derive(Debug, Clone)]
pub struct Aggregate {
    kind: AggregateKind,
    columns: Vec<String>,
    name: Option<String>,
}

#[derive(Debug, Clone)]
enum AggregateKind {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    /// A function from outside.
    Function(Arc<dyn AggregateFunction>),
}

impl AggregateKind {
    fn name(&self) -> &'static str {
        match self {
            AggregateKind::Count => "count",
            AggregateKind::Sum => "sum",
            AggregateKind::Avg => "avg",
            AggregateKind::Min => "min",
            AggregateKind::Max => "max",
            AggregateKind::Function(_) => "function",
        }
    }
}

impl Aggregate {
    fn new(kind: AggregateKind, column: Option<&str>) -> Aggregate {
        Aggregate { kind, columns: column.into_iter().map(str::to_owned).collect(), name: None }
    }

    /// A function of another library over columns; result column `function_<columns>`, unless it is named.
    pub fn function(function: Arc<dyn AggregateFunction>, columns: &[&str]) -> Aggregate {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Aggregate { kind: AggregateKind::Function(function), columns, name: None }
    }

    /// The number of tuples; result column `count`.
    pub fn count() -> Aggregate {
        Aggregate::new(AggregateKind::Count, None)
    }

    /// The number of non-NULL values; result column `count_<column>`.
    pub fn count_of(column: &str) -> Aggregate {
        Aggregate::new(AggregateKind::Count, Some(column))
    }

    /// The sum; result column `sum_<column>`.
    pub fn sum(column: &str) -> Aggregate {
        Aggregate::new(AggregateKind::Sum, Some(column))
    }

    /// The mean; result column `avg_<column>`.
    pub fn avg(column: &str) -> Aggregate {
        Aggregate::new(AggregateKind::Avg, Some(column))
    }

    /// The least value; result column `min_<column>`.
    pub fn min(column: &str) -> Aggregate {
        Aggregate::new(AggregateKind::Min, Some(column))
    }

    /// The greatest value; result column `max_<column>`.
    pub fn max(column: &str) -> Aggregate {
        Aggregate::new(AggregateKind::Max, Some(column))
    }

    /// Names the result column.
    pub fn named(mut self, name: &str) -> Aggregate {
        self.name = Some(name.to_owned());
        self
    }

    /// Binds the aggregate to a stream's columns.
    pub(crate) fn resolve(&self, columns: &[Column]) -> Result<BoundAggregate, String> {
        let place = |name: &String| {
            let found = columns.iter().position(|column| column.name == *name);
            found.ok_or_else(|| format!("the stream has no column {name}"))
        };
        let places = self.columns.iter().map(place).collect::<Result<Vec<usize>, String>>()?;
        let data_type = places.first().map_or(DataType::BigInt, |&place| columns[place].data_type);
        let adds = matches!(
            data_type,
            DataType::SmallInt
                | DataType::Int
                | DataType::BigInt
                | DataType::Real
                | DataType::Double
                | DataType::Decimal { .. }
        );
        let called = self.kind.name();
        if matches!(self.kind, AggregateKind::Sum | AggregateKind::Avg) && !adds {
            return Err(format!("{called} is not defined for {data_type} columns").to_lowercase());
        }
        if matches!(self.kind, AggregateKind::Min | AggregateKind::Max) && data_type == DataType::Interval {
            return Err(format!("{called} is not defined for interval columns"));
        }
        let words = std::iter::once(called).chain(self.columns.iter().map(String::as_str));
        let default = words.collect::<Vec<&str>>().join("_");
        let name = self.name.clone().unwrap_or(default);
        Ok(BoundAggregate { kind: self.kind.clone(), columns: places, data_type, name, is_subtracted: false })
    }
}

/// Aggregate bound to its columns' indexes, and the type of the first one.
#[derive(Debug, Clone)]
pub(crate) struct BoundAggregate {
    kind: AggregateKind,
    columns: Vec<usize>,
    data_type: DataType,
    name: String,
    /// True if values are taken back: a sum needs to know how many it is of.
    is_subtracted: bool,
}

/// Extremes of strings, by the numbers of the groups.
#[derive(Debug, Default)]
pub(crate) struct TextExtremes {
    values: Vec<Option<Box<str>>>,
    /// Bytes of all strings.
    bytes: usize,
}

impl TextExtremes {
    fn get(&self, group: usize) -> Option<&str> {
        self.values[group].as_deref()
    }

    fn set(&mut self, group: usize, text: Option<Box<str>>) {
        self.bytes += text.as_deref().map_or(0, str::len);
        let before = std::mem::replace(&mut self.values[group], text);
        self.bytes -= before.as_deref().map_or(0, str::len);
    }
}

/// Accumulators of an aggregate, by the numbers of the groups.
#[derive(Debug)]
pub(crate) enum Accumulators {
    Count(Vec<i64>),
    /// Sums of integers and unscaled decimals, and the number of their values.
    Sums {
        sums: Vec<i128>,
        counts: Vec<i64>,
    },
    DoubleSums {
        sums: Vec<f64>,
        counts: Vec<i64>,
    },
    /// Extremes of truth values, integers, unscaled decimals, days and times.
    Numbers(Vec<Option<i128>>),
    Doubles(Vec<Option<f64>>),
    Texts(TextExtremes),
    States(GroupStates),
}

impl BoundAggregate {
    /// Returns the column of results.
    pub(crate) fn result_column(&self) -> Column {
        let data_type = match &self.kind {
            AggregateKind::Function(function) => function.result_type(),
            AggregateKind::Count => DataType::BigInt,
            AggregateKind::Sum => self.sum_type(),
            AggregateKind::Avg => DataType::Double,
            AggregateKind::Min | AggregateKind::Max => self.data_type,
        };
        let column = Column::new(self.name.clone(), data_type);
        if matches!(self.kind, AggregateKind::Count) { column.not_null() } else { column }
    }

    /// The aggregate where values are taken back.
    pub(crate) fn subtracted(self) -> BoundAggregate {
        BoundAggregate { is_subtracted: true, ..self }
    }

    /// Returns true if values can be taken back exactly: of counts, and of sums and means of exact numbers.
    pub(crate) fn is_subtractable(&self) -> bool {
        let is_exact = !matches!(self.data_type, DataType::Real | DataType::Double);
        match self.kind {
            AggregateKind::Count => true,
            AggregateKind::Sum | AggregateKind::Avg => is_exact,
            AggregateKind::Min | AggregateKind::Max | AggregateKind::Function(_) => false,
        }
    }

    /// Takes values back from the groups with these numbers, of an aggregate that can be subtracted from.
    pub(crate) fn subtract(
        &self,
        accumulators: &mut Accumulators,
        groups: &[u32],
        columns: &[ArrayRef],
    ) -> Result<(), String> {
        match (accumulators, columns.first()) {
            (Accumulators::Count(counts), None) => {
                groups.iter().for_each(|&group| counts[group as usize] -= 1);
            }
            (Accumulators::Count(counts), Some(array)) => {
                let valid = groups.iter().enumerate().filter(|(row, _)| array.is_valid(*row));
                valid.for_each(|(_, &group)| counts[group as usize] -= 1);
            }
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

    /// Direction in which the first value in the order of keys is the result; none of an aggregate that is no extreme.
    pub(crate) fn extreme_direction(&self) -> Option<Direction> {
        match self.kind {
            AggregateKind::Min => Some(Direction::Forward),
            AggregateKind::Max => Some(Direction::Backward),
            _ => None,
        }
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

    /// Checks that the sums of these groups are in their range.
    pub(crate) fn check(&self, accumulators: &Accumulators, groups: &[u32]) -> Result<(), String> {
        let Accumulators::Sums { sums, .. } = accumulators else { return Ok(()) };
        let holds = groups.iter().all(|group| self.holds(sums[*group as usize]));
        holds.then_some(()).ok_or_else(|| format!("{} overflows", self.name))
    }

    /// Returns true if the number of values is stored beside a sum.
    fn has_count(&self) -> bool {
        self.is_avg() || (self.is_subtracted && matches!(self.kind, AggregateKind::Sum))
    }

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

    /// Returns true if its state has strings that may grow with what is aggregated.
    pub(crate) fn has_texts(&self) -> bool {
        let is_text = |column: &Column| column.data_type == DataType::Varchar;
        matches!(self.kind, AggregateKind::Function(_)) && self.state_columns().iter().any(is_text)
    }

    /// Indexes of the columns that it aggregates; none if it counts tuples.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn is_avg(&self) -> bool {
        matches!(self.kind, AggregateKind::Avg)
    }

    fn sum_type(&self) -> DataType {
        match self.data_type {
            DataType::SmallInt | DataType::Int | DataType::BigInt => DataType::BigInt,
            DataType::Real => DataType::Double,
            DataType::Decimal { scale, .. } => DataType::Decimal { precision: 38, scale },
            other => other,
        }
    }

    /// Accumulators of no group.
    pub(crate) fn accumulators(&self) -> Accumulators {
        match (&self.kind, self.data_type) {
            (AggregateKind::Function(function), _) => Accumulators::States(GroupStates::new(function)),
            (AggregateKind::Count, _) => Accumulators::Count(Vec::new()),
            (AggregateKind::Min | AggregateKind::Max, data_type) => match data_type {
                DataType::Varchar => Accumulators::Texts(TextExtremes::default()),
                DataType::Real | DataType::Double => Accumulators::Doubles(Vec::new()),
                _ => Accumulators::Numbers(Vec::new()),
            },
            (_, DataType::Real | DataType::Double) => {
                Accumulators::DoubleSums { sums: Vec::new(), counts: Vec::new() }
            }
            _ => Accumulators::Sums { sums: Vec::new(), counts: Vec::new() },
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
            (Accumulators::Count(counts), None) => {
                groups.iter().for_each(|&group| counts[group as usize] += 1);
            }
            (Accumulators::Count(counts), Some(array)) => {
                let valid = groups.iter().enumerate().filter(|(row, _)| array.is_valid(*row));
                valid.for_each(|(_, &group)| counts[group as usize] += 1);
            }
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

    fn each_double(&self, array: &ArrayRef, groups: &[u32], f: impl FnMut(usize, f64)) -> Result<(), String> {
        match array.data_type() {
            ArrowType::Float64 => each(array.as_primitive::<Float64Type>(), groups, |value| value, f),
            ArrowType::Float32 => each(array.as_primitive::<Float32Type>(), groups, f64::from, f),
            _ => return Err(self.wrong_type(array)),
        }
        Ok(())
    }

    fn each_number(
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

    /// Returns true if a sum is in the range of its column.
    fn holds(&self, sum: i128) -> bool {
        match (&self.kind, self.data_type) {
            (AggregateKind::Sum, DataType::SmallInt | DataType::Int | DataType::BigInt) => {
                i64::try_from(sum).is_ok()
            }
            _ => decimal::fits(sum, decimal::DECIMAL_PRECISION_MAX),
        }
    }

    fn wrong_type(&self, array: &ArrayRef) -> String {
        format!("{}: expected {}, found an array of {}", self.name, self.data_type, array.data_type())
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

impl Accumulators {
    /// Adds groups without values, up to this number in all.
    pub(crate) fn resize(&mut self, groups: usize) {
        match self {
            Accumulators::Count(counts) => counts.resize(groups, 0),
            Accumulators::Sums { sums, counts } => {
                sums.resize(groups, 0);
                counts.resize(groups, 0);
            }
            Accumulators::DoubleSums { sums, counts } => {
                sums.resize(groups, 0.0);
                counts.resize(groups, 0);
            }
            Accumulators::Numbers(extremes) => extremes.resize(groups, None),
            Accumulators::Doubles(extremes) => extremes.resize(groups, None),
            Accumulators::Texts(extremes) => extremes.values.resize(groups, None),
            Accumulators::States(states) => states.resize(groups),
        }
    }

    /// Makes a group one without values.
    pub(crate) fn clear(&mut self, group: u32) {
        let group = group as usize;
        match self {
            Accumulators::Count(counts) => counts[group] = 0,
            Accumulators::Sums { sums, counts } => (sums[group], counts[group]) = (0, 0),
            Accumulators::DoubleSums { sums, counts } => (sums[group], counts[group]) = (0.0, 0),
            Accumulators::Numbers(extremes) => extremes[group] = None,
            Accumulators::Doubles(extremes) => extremes[group] = None,
            Accumulators::Texts(extremes) => extremes.set(group, None),
            Accumulators::States(states) => states.clear(group),
        }
    }

    /// Bytes of a group, without its strings.
    pub(crate) fn group_bytes(&self) -> usize {
        match self {
            Accumulators::Count(_) => size_of::<i64>(),
            Accumulators::Sums { .. } => size_of::<i128>() + size_of::<i64>(),
            Accumulators::DoubleSums { .. } => size_of::<f64>() + size_of::<i64>(),
            Accumulators::Numbers(_) => size_of::<Option<i128>>(),
            Accumulators::Doubles(_) => size_of::<Option<f64>>(),
            Accumulators::Texts(_) => size_of::<Option<Box<str>>>(),
            Accumulators::States(_) => size_of::<usize>() * 2,
        }
    }

    /// Bytes that groups have beside these: of strings, and of states.
    pub(crate) fn extra_bytes(&self) -> usize {
        match self {
            Accumulators::Texts(extremes) => extremes.bytes,
            Accumulators::States(states) => states.bytes(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::{BatchBuilder, Value};

    fn columns() -> Vec<Column> {
        vec![
            Column::new("i", DataType::BigInt),
            Column::new("d", DataType::Double),
            Column::new("m", DataType::Decimal { precision: 10, scale: 2 }),
            Column::new("t", DataType::Varchar),
            Column::new("at", DataType::TimestampTz),
        ]
    }

    /// Adds the values to the second of three groups.
    fn run(aggregate: &Aggregate, values: &[Value]) -> Result<(BoundAggregate, Accumulators), String> {
        let bound = aggregate.resolve(&columns()).unwrap();
        let mut batch = BatchBuilder::new(&columns(), values.len());
        for value in values {
            let mut tuple = vec![Value::Null; 5];
            tuple[bound.columns().first().copied().unwrap_or(0)] = value.clone();
            batch.push(&tuple).unwrap();
        }
        let batch = batch.finish();
        let mut accumulators = bound.accumulators();
        accumulators.resize(3);
        let columns: Vec<ArrayRef> = bound.columns().iter().map(|&at| Arc::clone(batch.column(at))).collect();
        bound.add(&mut accumulators, &vec![1; values.len()], &columns)?;
        Ok((bound, accumulators))
    }

    fn value(array: &ArrayRef) -> Value {
        let field = arrow_schema::Field::new("v", array.data_type().clone(), true);
        let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
        let batch = arrow_array::RecordBatch::try_new(schema, vec![Arc::clone(array)]).unwrap();
        entresol_tables::rows_of(&batch).unwrap().remove(0).remove(0)
    }

    #[test]
    fn results_and_stored_forms() {
        let ints = [Value::BigInt(4), Value::Null, Value::BigInt(-1)];
        let doubles = [Value::Double(0.5), Value::Double(0.25)];
        let decimals = [Value::Decimal(150), Value::Decimal(50)];
        let texts = [Value::from("b"), Value::from("a"), Value::Null];
        let times = [Value::Timestamp(7), Value::Timestamp(-7)];
        let cases: Vec<(Aggregate, &[Value], Value)> = vec![
            (Aggregate::count(), &ints, Value::BigInt(3)),
            (Aggregate::count_of("i"), &ints, Value::BigInt(2)),
            (Aggregate::sum("i"), &ints, Value::BigInt(3)),
            (Aggregate::avg("i"), &ints, Value::Double(1.5)),
            (Aggregate::min("i"), &ints, Value::BigInt(-1)),
            (Aggregate::sum("d"), &doubles, Value::Double(0.75)),
            (Aggregate::avg("d"), &doubles, Value::Double(0.375)),
            (Aggregate::max("d"), &doubles, Value::Double(0.5)),
            (Aggregate::sum("m"), &decimals, Value::Decimal(200)),
            (Aggregate::avg("m"), &decimals, Value::Double(1.0)),
            (Aggregate::max("t"), &texts, Value::from("b")),
            (Aggregate::min("t"), &texts, Value::from("a")),
            (Aggregate::min("at"), &times, Value::Timestamp(-7)),
            (Aggregate::sum("i"), &[], Value::Null),
            (Aggregate::avg("m"), &[Value::Null], Value::Null),
        ];
        for (aggregate, values, expected) in cases {
            let (bound, mut accumulators) = run(&aggregate, values).unwrap();
            assert_eq!(value(&bound.results(&mut accumulators, &[1]).unwrap()), expected, "{aggregate:?}");
            let stored = bound.store(&mut accumulators, &[1]).unwrap();
            let columns = bound.state_columns();
            assert_eq!(stored.len(), columns.len());
            for (array, column) in stored.iter().zip(&columns) {
                assert_eq!(*array.data_type(), arrow_type(column.data_type, UTC), "{column:?}");
            }
            let mut loaded = bound.accumulators();
            loaded.resize(5);
            assert!(bound.load(&mut loaded, &[4], &mut stored.iter()));
            let results = bound.results(&mut loaded, &[4]).unwrap();
            assert_eq!(value(&results), expected, "{aggregate:?} after a restart");
        }
    }

    #[test]
    fn values_are_taken_back_from_counts_and_exact_sums() {
        let array: ArrayRef = Arc::new(Int64Array::from(vec![Some(4), None, Some(-1)]));
        let first = array.slice(0, 2);
        for (aggregate, after, at_last) in [
            (Aggregate::count_of("i"), Value::BigInt(1), Value::BigInt(0)),
            (Aggregate::sum("i"), Value::BigInt(-1), Value::Null),
            (Aggregate::avg("i"), Value::Double(-1.0), Value::Null),
        ] {
            let bound = aggregate.resolve(&columns()).unwrap().subtracted();
            assert!(bound.is_subtractable());
            let mut accumulators = bound.accumulators();
            accumulators.resize(1);
            bound.add(&mut accumulators, &[0; 3], std::slice::from_ref(&array)).unwrap();
            bound.subtract(&mut accumulators, &[0; 2], std::slice::from_ref(&first)).unwrap();
            let stored = bound.store(&mut accumulators, &[0]).unwrap();
            let mut loaded = bound.accumulators();
            loaded.resize(1);
            assert!(bound.load(&mut loaded, &[0], &mut stored.iter()));
            assert_eq!(value(&bound.results(&mut loaded, &[0]).unwrap()), after, "{aggregate:?}");
            bound.subtract(&mut loaded, &[0], &[array.slice(2, 1)]).unwrap();
            assert_eq!(value(&bound.results(&mut loaded, &[0]).unwrap()), at_last, "{aggregate:?}");
        }
        for aggregate in [Aggregate::sum("d"), Aggregate::min("i"), Aggregate::max("t")] {
            assert!(!aggregate.resolve(&columns()).unwrap().is_subtractable(), "{aggregate:?}");
        }
    }

    /// A sum may be out of range between two values of a transaction, not at its end.
    #[test]
    fn sums_over_changes_are_checked_when_all_values_have_come() {
        let bound = Aggregate::sum("i").resolve(&columns()).unwrap().subtracted();
        let mut accumulators = bound.accumulators();
        accumulators.resize(1);
        let least: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, -1]));
        bound.subtract(&mut accumulators, &[0; 2], &[Arc::clone(&least)]).unwrap();
        for error in [
            bound.check(&accumulators, &[0]).unwrap_err(),
            bound.store(&mut accumulators, &[0]).unwrap_err(),
            bound.results(&mut accumulators, &[0]).unwrap_err(),
        ] {
            assert_eq!(error, "sum_i overflows");
        }
        bound.add(&mut accumulators, &[0; 2], &[Arc::clone(&least)]).unwrap();
        let greatest: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, 1]));
        bound.add(&mut accumulators, &[0; 2], &[Arc::clone(&greatest)]).unwrap();
        assert!(bound.store(&mut accumulators, &[0]).is_err());
        bound.subtract(&mut accumulators, &[0], &[greatest.slice(1, 1)]).unwrap();
        assert_eq!(value(&bound.results(&mut accumulators, &[0]).unwrap()), Value::BigInt(i64::MAX));
    }

    /// Only the extreme itself, or a value that has not come yet, makes a group be computed again.
    #[test]
    fn extremes_are_outdated_by_values_that_reach_them() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), Some(5), Some(7), None, Some(9)]));
        let doubles: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(3.0), Some(5.0), Some(7.0), None, Some(9.0)]));
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("3"), Some("5"), Some("7"), None, Some("9")]));
        for (column, array) in [("i", numbers), ("d", doubles), ("t", texts)] {
            for (aggregate, expected) in
                [(Aggregate::max(column), vec![2, 4]), (Aggregate::min(column), vec![0])]
            {
                let bound = aggregate.resolve(&columns()).unwrap();
                let mut accumulators = bound.accumulators();
                accumulators.resize(1);
                bound.add(&mut accumulators, &[0; 3], &[array.slice(0, 3)]).unwrap();
                let mut outdated = Vec::new();
                for row in 0..array.len() {
                    let each = |group: usize| outdated.push((row, group));
                    bound.each_outdated(&accumulators, &[0], &[array.slice(row, 1)], each).unwrap();
                }
                let expected: Vec<(usize, usize)> = expected.into_iter().map(|row| (row, 0)).collect();
                assert_eq!(outdated, expected, "{aggregate:?}");
            }
        }
    }

    #[test]
    fn strings_among_extremes_are_counted() {
        let (bound, mut accumulators) =
            run(&Aggregate::max("t"), &["a", "ccc", "bb"].map(Value::from)).unwrap();
        assert_eq!(accumulators.extra_bytes(), 3);
        let long: ArrayRef = Arc::new(StringArray::from(vec!["d".repeat(1000)]));
        bound.add(&mut accumulators, &[2], &[long]).unwrap();
        bound.merge(&mut accumulators, 2, 1).unwrap();
        assert_eq!(accumulators.extra_bytes(), 2000);
        accumulators.clear(2);
        assert_eq!(accumulators.extra_bytes(), 1000);
        let stored = bound.store(&mut accumulators, &[1]).unwrap();
        assert!(bound.load(&mut accumulators, &[0], &mut stored.iter()));
        assert_eq!(accumulators.extra_bytes(), 2000);
    }

    #[test]
    fn sums_out_of_range_and_wrong_types_are_errors() {
        let error = run(&Aggregate::sum("i"), &[Value::BigInt(i64::MAX), Value::BigInt(1)]).err().unwrap();
        assert_eq!(error, "sum_i overflows");
        let bound = Aggregate::sum("i").resolve(&columns()).unwrap();
        let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
        let mut accumulators = bound.accumulators();
        accumulators.resize(1);
        let error = bound.add(&mut accumulators, &[0], &[text]).unwrap_err();
        assert_eq!(error, "sum_i: expected BIGINT, found an array of Utf8");
        let no_sum = Aggregate::sum("t").resolve(&columns()).err().unwrap();
        assert_eq!(no_sum, "sum is not defined for varchar columns");
    }

    #[test]
    fn negative_zero_is_zero_and_nan_the_greatest() {
        let values = [0.0, -0.0, f64::NAN, f64::INFINITY].map(Value::Double);
        let extreme = |aggregate: Aggregate| {
            let (bound, mut accumulators) = run(&aggregate, &values).unwrap();
            value(&bound.results(&mut accumulators, &[1]).unwrap())
        };
        assert_eq!(extreme(Aggregate::min("d")), Value::Double(0.0));
        assert_eq!(extreme(Aggregate::max("d")), Value::Double(f64::NAN));
    }
}
