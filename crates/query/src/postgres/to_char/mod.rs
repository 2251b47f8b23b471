//! `to_char(value, template)` with PostgreSQL's patterns, in place of DataFusion's function, whose patterns
//! differ.
//!
//! Instants are shown in local time of their zone. Values other than numbers, dates, times and intervals are
//! refused.

mod numbers;
mod times;

use self::numbers::Template;
use self::times::Moment;
use crate::error::{Error, external};
use crate::postgres::time_zones::Zone;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result as EngineResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::calendar::MICROS_PER_SECOND;
use entresol_tables::decimal;
use std::sync::Arc;

/// Function `to_char`; see the [module](self).
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
}

/// Function for the planner.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(ToChar { signature: Signature::user_defined(Volatility::Stable) })
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> EngineResult<Vec<DataType>> {
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
            other => {
                let message = format!("function to_char({other}, text) does not exist: cast the value");
                return Err(external(Error::coded("42883", message)));
            }
        };
        Ok(vec![value, DataType::Utf8])
    }

    fn return_type(&self, _arguments: &[DataType]) -> EngineResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
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
        Ok(ColumnarValue::Array(Arc::new(shown.collect::<EngineResult<StringArray>>()?)))
    }
}

fn show(values: &ArrayRef, row: usize, template: &str) -> crate::error::Result<String> {
    match values.data_type() {
        DataType::Int64 => {
            let value = values.as_primitive::<Int64Type>().value(row);
            number(template, value < 0, |scale| decimal::rescale(value.into(), 0, scale))
        }
        DataType::Decimal128(_, scale) => {
            let value = values.as_primitive::<Decimal128Type>().value(row);
            number(template, value < 0, |kept| decimal::rescale(value, scale.unsigned_abs(), kept))
        }
        DataType::Float64 => {
            let value = values.as_primitive::<Float64Type>().value(row);
            let digits = |scale| decimal::parse(&value.to_string(), decimal::DECIMAL_PRECISION_MAX, scale);
            number(template, value.is_sign_negative(), digits)
        }
        DataType::Interval(_) => {
            let value = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
            times::show(Moment::Interval(value.months, value.days, value.nanoseconds / 1_000), template)
        }
        DataType::Timestamp(_, zone) => {
            let micros = values.as_primitive::<TimestampMicrosecondType>().value(row);
            let wall = match zone {
                Some(zone) => Zone::new(zone)?.wall(micros),
                None => Some(micros),
            };
            let moment = wall.and_then(|wall| Moment::wall(wall, (wall - micros) / MICROS_PER_SECOND));
            let moment = moment.ok_or_else(|| Error::coded("22008", "timestamp out of range"))?;
            times::show(moment, template)
        }
        other => Err(Error::Internal(format!("to_char of {other}"))),
    }
}

fn number(
    template: &str,
    negative: bool,
    digits: impl Fn(u8) -> Option<i128>,
) -> crate::error::Result<String> {
    let template = Template::parse(template)?;
    let scale = u8::try_from(template.fraction).ok().filter(|scale| *scale <= decimal::DECIMAL_PRECISION_MAX);
    let scale = scale.ok_or_else(|| {
        let most = decimal::DECIMAL_PRECISION_MAX;
        Error::coded("22023", format!("to_char: at most {most} digits behind the point"))
    })?;
    Ok(template.show(digits(scale), negative))
}
