//! Rows of the connector `generator`, computed from their numbers: times in steps, and values that depend on the
//! number, the column and the seed alone.

use crate::error::Result;
use crate::parser::durations::invalid;
use crate::streaming::options::StreamOptions;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, TimestampMicrosecondArray};
use entresol_streams::{GeneratorSource, Source, mixed};
use entresol_tables::{Column, ColumnBuilder, DataType, Interval, Value, arrow_schema, interval};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// 2026-01-01 00:00:00 in microseconds.
const START_US: i64 = 1_767_225_600_000_000;
const STEP: Duration = Duration::from_secs(1);
/// Distinct values of a generated column, and the end of generated doubles.
const CARDINALITY: u64 = 100;
const MAX: f64 = 100.0;
const UTC: &str = "UTC";
/// Number that the delays of rows are mixed with, of no column.
const SKEW: u64 = 0xff << 56;

/// Rows of the connector `generator`.
#[derive(Debug, Clone)]
pub(super) struct Generator {
    pub(super) rows: u64,
    pub(super) rows_per_second: Option<u64>,
    start_us: i64,
    step_us: i64,
    /// Longest time that a row's timestamps are behind those of its place; 0 if rows are in their order.
    skew_us: u64,
    /// Number that all values are mixed with; 0 is none.
    seed: u64,
    /// Per column.
    cardinalities: Vec<u64>,
    maxima: Vec<f64>,
}

/// Rate of the option `rows_per_second`.
pub(super) fn rows_per_second(options: &mut StreamOptions) -> Result<Option<u64>> {
    let rate = options.parsed("rows_per_second")?;
    if rate == Some(0) {
        return Err(invalid("rows_per_second", "0"));
    }
    Ok(rate)
}

/// Microseconds of the option `start`, a timestamp.
pub(super) fn start_us(options: &mut StreamOptions) -> Result<Option<i64>> {
    let Some(start) = options.take("start") else { return Ok(None) };
    match Column::new("start", DataType::Timestamp).parse(&start) {
        Ok(Value::Timestamp(start_us)) => Ok(Some(start_us)),
        _ => Err(invalid("start", &start)),
    }
}

impl Generator {
    /// Takes the options.
    pub(super) fn new(columns: &[Column], options: &mut StreamOptions) -> Result<Generator> {
        let step = options.interval("step")?.unwrap_or(STEP);
        let skew = options.interval("skew")?.unwrap_or_default();
        let mut generator = Generator {
            rows: options.parsed("rows")?.unwrap_or(u64::MAX),
            rows_per_second: rows_per_second(options)?,
            start_us: start_us(options)?.unwrap_or(START_US),
            step_us: i64::try_from(step.as_micros()).unwrap_or(i64::MAX),
            skew_us: u64::try_from(skew.as_micros()).unwrap_or(u64::MAX),
            seed: options.parsed("seed")?.map_or(0, |seed: u64| if seed == 0 { 0 } else { mixed(seed) }),
            cardinalities: Vec::new(),
            maxima: Vec::new(),
        };
        for column in columns {
            let cardinality = options.parsed(&format!("{}.cardinality", column.name))?.unwrap_or(CARDINALITY);
            if cardinality == 0 {
                return Err(invalid(&format!("{}.cardinality", column.name), "0"));
            }
            generator.cardinalities.push(cardinality);
            generator.maxima.push(options.parsed(&format!("{}.max", column.name))?.unwrap_or(MAX));
        }
        Ok(generator)
    }

    /// Source of the rows.
    pub(super) fn source(self, columns: &[Column]) -> Box<dyn Source> {
        let schema = arrow_schema(columns, UTC);
        let declared = columns.to_vec();
        Box::new(GeneratorSource::batches(columns.to_vec(), move |first, tuples_max| {
            let range = first.min(self.rows)..self.rows.min(first.saturating_add(tuples_max as u64));
            let rows = (range.end - range.start) as usize;
            let columns = declared.iter().zip(schema.fields()).enumerate().map(|(at, (column, field))| {
                if let Some(array) = self.array(column, at, range.clone()) {
                    return array;
                }
                let mut builder = ColumnBuilder::new(column.data_type, field.data_type(), rows);
                range.clone().for_each(|n| self.push(&mut builder, column, at, n));
                builder.finish()
            });
            let columns = columns.collect();
            datafusion::arrow::array::RecordBatch::try_new(Arc::clone(&schema), columns)
                .expect("the arrays are of the columns")
        }))
    }

    /// Array of a column of one of the usual types.
    fn array(&self, column: &Column, at: usize, rows: Range<u64>) -> Option<ArrayRef> {
        let seed = self.seed;
        let random = move |n: u64| mixed(n ^ seed ^ ((at as u64 + 1) << 56));
        let (cardinality, max) = (self.cardinalities[at], self.maxima[at]);
        Some(match column.data_type {
            DataType::Int => Arc::new(Int32Array::from_iter_values(
                rows.map(|n| (random(n) % cardinality % i32::MAX as u64) as i32),
            )),
            DataType::Double => Arc::new(Float64Array::from_iter_values(rows.map(|n| part(random(n)) * max))),
            DataType::Timestamp => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(rows.map(|n| self.time_us(n))))
            }
            _ => return None,
        })
    }

    fn time_us(&self, n: u64) -> i64 {
        let in_order = self.start_us.saturating_add(self.step_us.saturating_mul(n as i64));
        match self.skew_us {
            0 => in_order,
            longest => {
                let behind = mixed(n ^ self.seed ^ SKEW) % longest.saturating_add(1);
                in_order.saturating_sub(i64::try_from(behind).unwrap_or(i64::MAX))
            }
        }
    }

    /// Adds the value of a column in row number `n`.
    fn push(&self, builder: &mut ColumnBuilder, column: &Column, at: usize, n: u64) {
        let random = mixed(n ^ self.seed ^ ((at as u64 + 1) << 56));
        let number = random % self.cardinalities[at];
        let time_us = self.time_us(n);
        const DAY_US: i64 = 86_400_000_000;
        builder.push(&match column.data_type {
            DataType::Boolean => Value::Boolean(random & 1 == 1),
            DataType::SmallInt => Value::Int((number % i16::MAX as u64) as i32),
            DataType::Int => Value::Int((number % i32::MAX as u64) as i32),
            DataType::BigInt => Value::BigInt((number % i64::MAX as u64) as i64),
            DataType::Real | DataType::Double => {
                let value = part(random) * self.maxima[at];
                Value::Double(if column.data_type == DataType::Real {
                    f64::from(value as f32)
                } else {
                    value
                })
            }
            DataType::Decimal { precision, .. } => {
                Value::Decimal(i128::from(number) % 10_i128.pow(u32::from(precision)))
            }
            DataType::Date => Value::Date(time_us.div_euclid(DAY_US) as i32),
            DataType::Timestamp | DataType::TimestampTz => Value::Timestamp(time_us),
            DataType::Interval => {
                let micros = (number % interval::MICROS_MAX as u64) as i64;
                Interval::new(0, 0, micros).map_or(Value::Null, Value::Interval)
            }
            DataType::Varchar if column.modifier.is_json() => {
                let value = number;
                let document = format!("{{\"name\": \"value {value}\", \"count\": {value}}}");
                return builder.push_text(&document);
            }
            DataType::Varchar => return builder.push_text(&format!("{} {number}", column.name)),
        });
    }
}

/// Part of one: from 0 to below 1.
fn part(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
