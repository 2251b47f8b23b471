//! Watermarks of sources: `WATERMARK FOR at AS at - INTERVAL '2 minutes'`.
//!
//! A watermark is the greatest event time less a constant: operators keep that constant, and a tuple is late by its event time alone.
//! The constant may be a sum, or computed: `at - 3 * INTERVAL '20 seconds'`.

use crate::dml::expressions::Scope;
use crate::error::{Error, Result};
use crate::parser::durations::{interval, interval_of};
use crate::parser::names::identifier;
use datafusion::arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, IntervalMonthDayNanoType, IntervalUnit, Schema};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use entresol_tables::{Column, DataType};
use std::sync::Arc;
use std::time::Duration;

const DAY_NS: i128 = 86_400_000_000_000;

/// Event time of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventTime {
    pub(crate) column: usize,
    pub(crate) lateness: Duration,
    pub(crate) future_limit: Duration,
}

impl EventTime {
    /// Event time that a clause WATERMARK FOR column AS expression declares among these columns.
    pub(crate) fn new(
        state: &SessionState,
        columns: &[Column],
        (column, expression): (&str, &Expr),
        future_limit: Duration,
    ) -> Result<EventTime> {
        let at = columns.iter().position(|found| found.name == column);
        let at = at.ok_or_else(|| Error::coded("42703", format!("column \"{column}\" does not exist")))?;
        if !matches!(columns[at].data_type, DataType::Timestamp | DataType::TimestampTz) {
            let message =
                format!("column \"{column}\" of the watermark is {}, not a timestamp", columns[at].data_type);
            return Err(Error::coded("42804", message));
        }
        let clause = format!("WATERMARK FOR {column} AS {expression}");
        let lateness = lateness_ns(state, column, expression)?.ok_or_else(|| {
            Error::unsupported(format!(
                "{clause}: write {column} - INTERVAL '...', with the same interval for all rows"
            ))
        })?;
        let lateness = u64::try_from(lateness).map_err(|_| {
            Error::coded(
                "22023",
                format!("{clause}: the interval must not be negative, nor beyond 584 years"),
            )
        })?;
        Ok(EventTime { column: at, lateness: Duration::from_nanos(lateness), future_limit })
    }
}

/// Nanoseconds by which an expression is behind a column; none if it is anything else than the column less intervals.
fn lateness_ns(state: &SessionState, column: &str, expression: &Expr) -> Result<Option<i128>> {
    Ok(match expression {
        Expr::Identifier(ident) if identifier(ident) == column => Some(0),
        Expr::Nested(inner) => lateness_ns(state, column, inner)?,
        Expr::BinaryOp { left, op, right } if *op == BinaryOperator::Minus || *op == BinaryOperator::Plus => {
            match lateness_ns(state, column, left)? {
                None => None,
                Some(before) => {
                    let constant = constant_ns(state, right)?;
                    constant.map(|ns| if *op == BinaryOperator::Minus { before + ns } else { before - ns })
                }
            }
        }
        _ => None,
    })
}

/// Nanoseconds of an interval; none of an expression that is not a constant one.
fn constant_ns(state: &SessionState, expression: &Expr) -> Result<Option<i128>> {
    if let Some(text) = interval_of(expression) {
        return Ok(Some(interval("WATERMARK", &text)?.as_nanos().cast_signed()));
    }
    // With columns it cannot be planned.
    let Ok(planned) = Scope::new(state.clone(), &[])?.plan("WATERMARK", expression) else { return Ok(None) };
    if planned.is_volatile || planned.is_of_statement {
        return Ok(None);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let one = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
    let months_days_ns = ArrowType::Interval(IntervalUnit::MonthDayNano);
    let Ok(value) = cast(&planned.evaluate(&one)?, &months_days_ns) else { return Ok(None) };
    if value.is_null(0) {
        return Ok(None);
    }
    let value = value.as_primitive::<IntervalMonthDayNanoType>().value(0);
    if value.months != 0 {
        let message = format!("WATERMARK of {expression}: months differ in length, days and hours do not");
        return Err(Error::coded("22023", message));
    }
    Ok(Some(i128::from(value.days) * DAY_NS + i128::from(value.nanoseconds)))
}
