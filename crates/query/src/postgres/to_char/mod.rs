//! `to_char(value, template)` with PostgreSQL's patterns, in place of DataFusion's function, whose patterns
//! differ.
//!
//! Instants are shown in local time of their zone. Values other than numbers, dates, times and intervals are
//! refused.

mod notations;
mod numbers;
mod patterns;
mod read;
mod reading;
mod times;

use self::numbers::{Notation, Template};
pub(crate) use self::read::TIME_OF_TEXT;
use self::times::TimeFields;
use crate::error::{Error, external};
use crate::postgres::time_zones::Zone;
use crate::postgres::type_names::no_function;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::calendar::MICROS_PER_SECOND;
use entresol_tables::{DataType as ColumnType, Value, decimal};
use std::sync::Arc;

/// Function `to_char`; see the [module](self).
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
}

/// Functions for the planner: `to_char`, and those that read strings by a template.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let own = ScalarUDF::from(ToChar { signature: Signature::user_defined(Volatility::Stable) });
    std::iter::once(own).chain(read::functions())
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let [value, _] = arguments else {
            return Err(external(Error::coded("42883", "to_char expects a value and a template")));
        };
        let value = match value {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
            DataType::Decimal128(precision, scale) if *scale >= 0 => DataType::Decimal128(*precision, *scale),
            DataType::Null => DataType::Int64,
            of if of.is_integer() => DataType::Int64,
            _ => return Err(no_function("to_char", arguments)),
        };
        Ok(vec![value, DataType::Utf8])
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let [value, template] = arguments.args.as_slice() else {
            return internal_err!("to_char expects two arguments");
        };
        let (values, templates) = (value.to_array(rows)?, template.to_array(rows)?);
        let templates = templates.as_string::<i32>();
        let shown = (0..rows).map(|row| {
            if values.is_null(row) || templates.is_null(row) {
                Ok(None)
            } else {
                show(&values, row, templates.value(row)).map(Some).map_err(external)
            }
        });
        Ok(ColumnarValue::Array(Arc::new(shown.collect::<DFResult<StringArray>>()?)))
    }
}

fn show(values: &ArrayRef, row: usize, template: &str) -> crate::error::Result<String> {
    match values.data_type() {
        DataType::Int64 => {
            let value = values.as_primitive::<Int64Type>().value(row);
            let digits = |scale| decimal::rescale(value.into(), 0, scale);
            number(template, value < 0, digits, || value.to_string())
        }
        DataType::Decimal128(_, scale) => {
            let value = values.as_primitive::<Decimal128Type>().value(row);
            let digits = |wanted| decimal::rescale(value, scale.unsigned_abs(), wanted);
            number(template, value < 0, digits, || plain_decimal(value, scale.unsigned_abs()))
        }
        DataType::Float64 => {
            let value = values.as_primitive::<Float64Type>().value(row);
            let digits = |scale| decimal::parse(&value.to_string(), decimal::DECIMAL_PRECISION_MAX, scale);
            number(template, value.is_sign_negative(), digits, || value.to_string())
        }
        DataType::Interval(_) => {
            let value = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
            times::show(TimeFields::Interval(value.months, value.days, value.nanoseconds / 1_000), template)
        }
        DataType::Timestamp(_, zone) => {
            let micros = values.as_primitive::<TimestampMicrosecondType>().value(row);
            let zone = zone.as_deref().map(Zone::new).transpose()?;
            let wall = zone.as_ref().map_or(Some(micros), |zone| zone.wall(micros));
            let abbreviation = match &zone {
                Some(zone) if template.to_ascii_uppercase().contains("TZ") => zone.abbreviation(micros),
                _ => String::new(),
            };
            let ahead = |wall: i64| (wall - micros) / MICROS_PER_SECOND;
            let fields = wall.and_then(|wall| TimeFields::local(wall, ahead(wall), &abbreviation));
            let fields = fields.ok_or_else(|| Error::coded("22008", "timestamp out of range"))?;
            times::show(fields, template)
        }
        other => Err(Error::Internal(format!("to_char of {other}"))),
    }
}

fn plain_decimal(unscaled: i128, scale: u8) -> String {
    let of = ColumnType::Decimal { precision: decimal::DECIMAL_PRECISION_MAX, scale };
    Value::Decimal(unscaled).display(of).to_string()
}

fn number(
    template: &str,
    negative: bool,
    digits: impl Fn(u8) -> Option<i128>,
    plain: impl Fn() -> String,
) -> crate::error::Result<String> {
    let template = Template::parse(template)?;
    match template.notation() {
        Notation::Plain => {}
        Notation::Roman { upper } => {
            return Ok(template.around(&notations::roman(digits(0), template.fills(), upper)));
        }
        Notation::Exponent => {
            return Ok(template.around(&notations::scientific(&plain(), template.fraction())));
        }
    }
    let scale = u8::try_from(template.scale()).ok().filter(|scale| *scale <= decimal::DECIMAL_PRECISION_MAX);
    let scale = scale.ok_or_else(|| {
        let most = decimal::DECIMAL_PRECISION_MAX;
        Error::coded("22023", format!("to_char: at most {most} digits behind the point"))
    })?;
    Ok(template.show(digits(scale), negative))
}
