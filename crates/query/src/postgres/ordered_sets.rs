//! Aggregates of ordered sets: `percentile_cont`, `percentile_disc` and `mode` WITHIN GROUP (ORDER BY x).
//!
//! ```text
//! percentile_disc(0.5) WITHIN GROUP (ORDER BY x)      percentile_disc_of(array_agg(x ORDER BY x), 0.5)
//! ```
//!
//! The translation of names makes the right side of it: a list in order, of which the functions here take an element. Values
//! may have any type that has an order; those of `percentile_cont`, which may lie between two of them, are numbers. NULLs count
//! for nothing, and a group without other values has none.
//!
//! Memory: the values of the groups, as those of `array_agg`.

use crate::error::{Error, external};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, UInt64Array};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Names of the aggregates.
pub(crate) const AGGREGATES: [&str; 3] = ["percentile_cont", "percentile_disc", "mode"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Op {
    Continuous,
    Discrete,
    Mode,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfList {
    op: Op,
    signature: Signature,
}

/// Functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 3] {
    [Op::Continuous, Op::Discrete, Op::Mode]
        .map(|op| ScalarUDF::from(OfList { op, signature: Signature::user_defined(Volatility::Immutable) }))
}

impl OfList {
    /// Name of the aggregate.
    fn aggregate(&self) -> &'static str {
        match self.op {
            Op::Continuous => AGGREGATES[0],
            Op::Discrete => AGGREGATES[1],
            Op::Mode => AGGREGATES[2],
        }
    }
}

impl ScalarUDFImpl for OfList {
    fn name(&self) -> &str {
        match self.op {
            Op::Continuous => "percentile_cont_of",
            Op::Discrete => "percentile_disc_of",
            Op::Mode => "mode_of",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let numbers = || DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
        let found = match (self.op, arguments) {
            (Op::Mode, [list @ DataType::List(_)]) => Some(vec![list.clone()]),
            (Op::Discrete, [list @ DataType::List(_), part]) if part.is_numeric() || part.is_null() => {
                Some(vec![list.clone(), DataType::Float64])
            }
            (Op::Continuous, [DataType::List(element), part])
                if (element.data_type().is_numeric() || element.data_type().is_null())
                    && (part.is_numeric() || part.is_null()) =>
            {
                Some(vec![numbers(), DataType::Float64])
            }
            _ => None,
        };
        found.ok_or_else(|| {
            let message = match (self.op, arguments) {
                (Op::Continuous, [DataType::List(_), part]) if part.is_numeric() => {
                    "percentile_cont of other values than numbers: use percentile_disc, whose result is one of the values"
                        .to_owned()
                }
                (Op::Continuous | Op::Discrete, [_, DataType::List(_)]) => {
                    format!("{} of a list of fractions: call it once for each", self.aggregate())
                }
                _ => format!("these arguments of {}", self.aggregate()),
            };
            external(Error::unsupported(message))
        })
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match (self.op, arguments.first()) {
            (Op::Continuous, _) => Ok(DataType::Float64),
            (_, Some(DataType::List(element))) => Ok(element.data_type().clone()),
            (_, other) => internal_err!("{} of {other:?}", self.name()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> DFResult<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let field = Field::new(self.name(), self.return_type(&types)?, true);
        Ok(Arc::new(match arguments.arg_fields.first().map(|field| field.data_type()) {
            Some(DataType::List(element)) => field.with_metadata(element.metadata().clone()),
            _ => field,
        }))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let lists = arguments.args[0].to_array(rows)?;
        let parts = match arguments.args.get(1) {
            Some(part) => Some(cast(&part.to_array(rows)?, &DataType::Float64)?),
            None => None,
        };
        let lists = lists.as_list::<i32>();
        let (mut places, mut between) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for row in 0..rows {
            let part = match &parts {
                None => Some(0.0),
                Some(parts) if parts.is_null(row) => None,
                Some(parts) => Some(parts.as_primitive::<Float64Type>().value(row)),
            };
            if let Some(part) = part.filter(|part| !(0.0..=1.0).contains(part)) {
                let message = format!("percentile value {part} is not between 0 and 1");
                return Err(external(Error::coded("22003", message)));
            }
            let (Some(part), false) = (part, lists.is_null(row)) else {
                places.push(None);
                between.push(None);
                continue;
            };
            let first = lists.value_offsets()[row] as u64;
            let values = lists.value(row);
            let valid: Vec<u64> =
                (0..values.len() as u64).filter(|&at| values.is_valid(at as usize)).collect();
            let place = match self.op {
                Op::Mode => most_frequent(&values)?,
                Op::Discrete => {
                    valid.get(((part * valid.len() as f64).ceil() as usize).saturating_sub(1)).copied()
                }
                Op::Continuous => {
                    between.push(interpolated(&values, &valid, part));
                    None
                }
            };
            places.push(place.map(|place| first + place));
        }
        if let Op::Continuous = self.op {
            return Ok(ColumnarValue::Array(Arc::new(Float64Array::from(between))));
        }
        Ok(ColumnarValue::Array(take(lists.values(), &UInt64Array::from(places), None)?))
    }
}

/// Place of the value that is there most often, the first of several.
fn most_frequent(values: &ArrayRef) -> DFResult<Option<u64>> {
    let (mut best, mut best_count) = (None, 0);
    let mut at = 0;
    while at < values.len() {
        if values.is_null(at) {
            at += 1;
            continue;
        }
        let value = ScalarValue::try_from_array(values, at)?;
        let mut end = at + 1;
        while end < values.len() && value.eq_array(values, end)? {
            end += 1;
        }
        if end - at > best_count {
            (best, best_count) = (Some(at as u64), end - at);
        }
        at = end;
    }
    Ok(best)
}

/// Value at a part of the way from the first to the last of some places.
fn interpolated(values: &ArrayRef, places: &[u64], part: f64) -> Option<f64> {
    let values = values.as_primitive::<Float64Type>();
    let at = part * places.len().checked_sub(1)? as f64;
    let value = |at: f64| places.get(at as usize).map(|&place| values.value(place as usize));
    let (low, high) = (value(at.floor())?, value(at.ceil())?);
    Some(low + (high - low) * (at - at.floor()))
}
