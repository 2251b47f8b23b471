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
//! NULL values are ignored; every aggregate but count is NULL if there was no other value. Storing and
//! loading returns the same accumulator, so results do not depend on restarts.

use entresol_tables::{Column, DataType, Value, decimal};

/// An aggregate over a column: [`Aggregate::sum`] and its siblings.
#[derive(Debug, Clone)]
pub struct Aggregate {
    kind: AggregateKind,
    column: Option<String>,
    name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AggregateKind {
    Count,
    Sum,
    Avg,
    Min,
    Max,
}

impl Aggregate {
    fn new(kind: AggregateKind, column: Option<&str>) -> Aggregate {
        Aggregate { kind, column: column.map(str::to_owned), name: None }
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
        let index = match &self.column {
            None => None,
            Some(name) => {
                let found = columns.iter().position(|column| column.name == *name);
                Some(found.ok_or_else(|| format!("the stream has no column {name}"))?)
            }
        };
        let data_type = index.map_or(DataType::BigInt, |index| columns[index].data_type);
        let adds = matches!(
            data_type,
            DataType::SmallInt
                | DataType::Int
                | DataType::BigInt
                | DataType::Real
                | DataType::Double
                | DataType::Decimal { .. }
        );
        if matches!(self.kind, AggregateKind::Sum | AggregateKind::Avg) && !adds {
            return Err(format!("{:?} is not defined for {data_type} columns", self.kind).to_lowercase());
        }
        let prefix = format!("{:?}", self.kind).to_lowercase();
        let default = self.column.as_ref().map_or(prefix.clone(), |column| format!("{prefix}_{column}"));
        Ok(BoundAggregate { kind: self.kind, index, data_type, name: self.name.clone().unwrap_or(default) })
    }
}

/// Aggregate bound to its column's index and type.
#[derive(Debug, Clone)]
pub(crate) struct BoundAggregate {
    kind: AggregateKind,
    index: Option<usize>,
    data_type: DataType,
    name: String,
}

/// Accumulator of one aggregate of one group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Accumulator {
    Count(i64),
    /// Sums of integers and unscaled decimals.
    Exact {
        sum: i128,
        count: i64,
    },
    Double {
        sum: f64,
        count: i64,
    },
    Extreme(Value),
}

impl BoundAggregate {
    /// Returns the column of results.
    pub(crate) fn result_column(&self) -> Column {
        let data_type = match self.kind {
            AggregateKind::Count => DataType::BigInt,
            AggregateKind::Sum => self.sum_type(),
            AggregateKind::Avg => DataType::Double,
            AggregateKind::Min | AggregateKind::Max => self.data_type,
        };
        let column = Column::new(self.name.clone(), data_type);
        if self.kind == AggregateKind::Count { column.not_null() } else { column }
    }

    /// Returns the columns of the state table.
    pub(crate) fn state_columns(&self) -> Vec<Column> {
        if self.kind != AggregateKind::Avg {
            return vec![self.result_column()];
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

    fn sum_type(&self) -> DataType {
        match self.data_type {
            DataType::SmallInt | DataType::Int | DataType::BigInt => DataType::BigInt,
            DataType::Real => DataType::Double,
            DataType::Decimal { scale, .. } => DataType::Decimal { precision: 38, scale },
            other => other,
        }
    }

    pub(crate) fn start(&self) -> Accumulator {
        match self.kind {
            AggregateKind::Count => Accumulator::Count(0),
            AggregateKind::Min | AggregateKind::Max => Accumulator::Extreme(Value::Null),
            AggregateKind::Sum | AggregateKind::Avg
                if matches!(self.data_type, DataType::Real | DataType::Double) =>
            {
                Accumulator::Double { sum: 0.0, count: 0 }
            }
            AggregateKind::Sum | AggregateKind::Avg => Accumulator::Exact { sum: 0, count: 0 },
        }
    }

    /// Adds a tuple.
    pub(crate) fn add(&self, accumulator: &mut Accumulator, tuple: &[Value]) -> Result<(), String> {
        let value = match self.index {
            Some(index) => &tuple[index],
            None => &Value::Boolean(true),
        };
        match (accumulator, value) {
            (_, Value::Null) => {}
            (Accumulator::Count(count), _) => *count += 1,
            (Accumulator::Double { sum, count }, Value::Double(value)) => {
                *sum += value;
                *count += 1;
            }
            (Accumulator::Exact { sum, count }, value) => {
                let value = match value {
                    Value::Int(value) => i128::from(*value),
                    Value::BigInt(value) => i128::from(*value),
                    Value::Decimal(value) => *value,
                    _ => return Err(self.wrong_type(value)),
                };
                *sum = sum.checked_add(value).ok_or_else(|| self.overflow())?;
                *count += 1;
                self.check_sum(*sum)?;
            }
            (Accumulator::Extreme(extreme), value) => {
                if !value.is_of(self.data_type) {
                    return Err(self.wrong_type(value));
                }
                let better = match self.kind {
                    AggregateKind::Min => value < extreme,
                    _ => value > extreme,
                };
                if better || extreme.is_null() {
                    *extreme = value.clone();
                }
            }
            (Accumulator::Double { .. }, value) => return Err(self.wrong_type(value)),
        }
        Ok(())
    }

    fn check_sum(&self, sum: i128) -> Result<(), String> {
        let fits = match (self.kind, self.data_type) {
            (AggregateKind::Sum, DataType::SmallInt | DataType::Int | DataType::BigInt) => {
                i64::try_from(sum).is_ok()
            }
            _ => decimal::fits(sum, decimal::DECIMAL_PRECISION_MAX),
        };
        if fits { Ok(()) } else { Err(self.overflow()) }
    }

    fn overflow(&self) -> String {
        format!("{} overflows", self.name)
    }

    fn wrong_type(&self, value: &Value) -> String {
        format!("{}: expected {}, found {} '{value}'", self.name, self.data_type, value.type_name())
    }

    /// Appends the values of the state columns.
    pub(crate) fn store(&self, accumulator: &Accumulator, row: &mut Vec<Value>) {
        let (sum, count) = match accumulator {
            Accumulator::Count(count) => return row.push(Value::BigInt(*count)),
            Accumulator::Extreme(value) => return row.push(value.clone()),
            Accumulator::Double { sum, count } => (Value::Double(*sum), *count),
            Accumulator::Exact { sum, count } => match self.result_type() {
                // The range was checked when the value was added.
                DataType::BigInt => (Value::BigInt(*sum as i64), *count),
                _ => (Value::Decimal(*sum), *count),
            },
        };
        row.push(if count == 0 { Value::Null } else { sum });
        if self.kind == AggregateKind::Avg {
            row.push(Value::BigInt(count));
        }
    }

    fn result_type(&self) -> DataType {
        self.result_column().data_type
    }

    /// Reads the values that `store` appended, from the front of `row`; `None` if they have other types.
    pub(crate) fn load(&self, row: &mut std::slice::Iter<'_, Value>) -> Option<Accumulator> {
        let first = row.next()?;
        let loaded = match (self.start(), first) {
            (Accumulator::Count(_), Value::BigInt(count)) => Accumulator::Count(*count),
            (Accumulator::Extreme(_), value) => Accumulator::Extreme(value.clone()),
            (start @ (Accumulator::Double { .. } | Accumulator::Exact { .. }), Value::Null) => start,
            (Accumulator::Double { .. }, Value::Double(sum)) => Accumulator::Double { sum: *sum, count: 1 },
            (Accumulator::Exact { .. }, Value::BigInt(sum)) => {
                Accumulator::Exact { sum: i128::from(*sum), count: 1 }
            }
            (Accumulator::Exact { .. }, Value::Decimal(sum)) => Accumulator::Exact { sum: *sum, count: 1 },
            _ => return None,
        };
        if self.kind != AggregateKind::Avg {
            return Some(loaded);
        }
        let Value::BigInt(counted) = row.next()? else { return None };
        Some(match loaded {
            Accumulator::Double { sum, .. } => Accumulator::Double { sum, count: *counted },
            Accumulator::Exact { sum, .. } => Accumulator::Exact { sum, count: *counted },
            other => other,
        })
    }

    /// Returns the result.
    pub(crate) fn result(&self, accumulator: &Accumulator) -> Value {
        match (self.kind, accumulator) {
            (
                AggregateKind::Avg,
                Accumulator::Double { count: 0, .. } | Accumulator::Exact { count: 0, .. },
            ) => Value::Null,
            (AggregateKind::Avg, Accumulator::Double { sum, count }) => Value::Double(sum / *count as f64),
            (AggregateKind::Avg, Accumulator::Exact { sum, count }) => {
                let scale = match self.data_type {
                    DataType::Decimal { scale, .. } => scale,
                    _ => 0,
                };
                Value::Double(decimal::to_double(*sum, scale) / *count as f64)
            }
            _ => {
                let mut row = Vec::with_capacity(1);
                self.store(accumulator, &mut row);
                row.pop().unwrap_or(Value::Null)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        vec![
            Column::new("i", DataType::BigInt),
            Column::new("d", DataType::Double),
            Column::new("m", DataType::Decimal { precision: 10, scale: 2 }),
            Column::new("t", DataType::Varchar),
        ]
    }

    fn run(aggregate: &Aggregate, values: &[Value]) -> (BoundAggregate, Accumulator) {
        let bound = aggregate.resolve(&columns()).unwrap();
        let mut accumulator = bound.start();
        for value in values {
            let mut tuple = vec![Value::Null; 4];
            if let Some(index) = bound.index {
                tuple[index] = value.clone();
            }
            bound.add(&mut accumulator, &tuple).unwrap();
        }
        (bound, accumulator)
    }

    #[test]
    fn results_and_stored_forms() {
        let ints = [Value::BigInt(4), Value::Null, Value::BigInt(-1)];
        let doubles = [Value::Double(0.5), Value::Double(0.25)];
        let decimals = [Value::Decimal(150), Value::Decimal(50)];
        let texts = [Value::from("b"), Value::from("a"), Value::Null];
        let cases: Vec<(Aggregate, &[Value], Value)> = vec![
            (Aggregate::count(), &ints, Value::BigInt(3)),
            (Aggregate::count_of("i"), &ints, Value::BigInt(2)),
            (Aggregate::sum("i"), &ints, Value::BigInt(3)),
            (Aggregate::avg("i"), &ints, Value::Double(1.5)),
            (Aggregate::min("i"), &ints, Value::BigInt(-1)),
            (Aggregate::sum("d"), &doubles, Value::Double(0.75)),
            (Aggregate::avg("d"), &doubles, Value::Double(0.375)),
            (Aggregate::sum("m"), &decimals, Value::Decimal(200)),
            (Aggregate::avg("m"), &decimals, Value::Double(1.0)),
            (Aggregate::max("t"), &texts, Value::from("b")),
            (Aggregate::min("t"), &texts, Value::from("a")),
            (Aggregate::sum("i"), &[], Value::Null),
            (Aggregate::avg("m"), &[Value::Null], Value::Null),
        ];
        for (aggregate, values, expected) in cases {
            let (bound, accumulator) = run(&aggregate, values);
            assert_eq!(bound.result(&accumulator), expected, "{aggregate:?}");
            let mut row = Vec::new();
            bound.store(&accumulator, &mut row);
            assert_eq!(row.len(), bound.state_columns().len());
            for (value, column) in row.iter().zip(bound.state_columns()) {
                assert!(value.is_of(column.data_type), "{column:?} {value:?}");
            }
            let loaded = bound.load(&mut row.iter()).unwrap();
            assert_eq!(bound.result(&loaded), expected, "{aggregate:?} after a restart");
        }
    }

    #[test]
    fn overflow_and_wrong_types_are_errors() {
        let bound = Aggregate::sum("i").resolve(&columns()).unwrap();
        let mut accumulator = bound.start();
        let tuple = |value: i64| vec![Value::BigInt(value), Value::Null, Value::Null, Value::Null];
        bound.add(&mut accumulator, &tuple(i64::MAX)).unwrap();
        assert_eq!(bound.add(&mut accumulator, &tuple(1)).unwrap_err(), "sum_i overflows");
        assert!(bound.add(&mut accumulator, &[Value::from("x")]).is_err());
        assert!(Aggregate::sum("t").resolve(&columns()).is_err());
        assert!(Aggregate::sum("zz").resolve(&columns()).is_err());
    }
}
