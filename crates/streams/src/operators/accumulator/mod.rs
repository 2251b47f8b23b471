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

mod changes;
mod groups;
mod stored;
#[cfg(test)]
mod tests;

use crate::operators::group_states::{AggregateFunction, GroupStates};
use arrow_array::{Array, ArrayRef};
use entresol_tables::{Column, DataType, decimal};
use entresol_transactions::Direction;
use std::sync::Arc;

pub(crate) use groups::{Accumulators, TextExtremes};

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

    /// Direction in which the first value in the order of keys is the result; none of an aggregate that is no extreme.
    pub(crate) fn extreme_direction(&self) -> Option<Direction> {
        match self.kind {
            AggregateKind::Min => Some(Direction::Forward),
            AggregateKind::Max => Some(Direction::Backward),
            _ => None,
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
}
