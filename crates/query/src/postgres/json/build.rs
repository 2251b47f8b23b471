//! Functions that make JSON of other values: `to_json`, `json_build_object`, `json_build_array`, and the lists of
//! `json_agg` and `json_object_agg`.
//!
//! | value | JSON |
//! | --- | --- |
//! | booleans, numbers | themselves; NaN and infinities as strings |
//! | JSON, JSONB | itself |
//! | timestamps | strings in ISO 8601, with a `T`; instants in the zone of their type |
//! | lists, rows | arrays, objects |
//! | other values | strings, as they are shown |

use super::json_type::{JsonType, failed};
use crate::error::{Error, external};
use crate::postgres::time_zones::Zone;
use crate::postgres::type_names::no_function;
use crate::postgres::types::modifier_of;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Float32Type, Float64Type,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::json::{normal, write_string};
use entresol_tables::{DataType as ColumnType, Interval, Value, calendar};
use std::fmt::Write;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JsonFunction {
    ToJson,
    Object,
    Array,
    /// Array of JSON in a list, for `json_agg`.
    OfList,
    /// `"key" : value`, for `json_object_agg`.
    Pair,
    /// Object of pairs in a list.
    OfPairs,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: JsonFunction,
    json: JsonType,
    name: String,
    signature: Signature,
}

/// All functions of this module.
pub(super) fn named() -> impl Iterator<Item = ScalarUDF> {
    let of = |json: JsonType| {
        let prefix = json.name();
        [
            (JsonFunction::ToJson, format!("to_{prefix}")),
            (JsonFunction::Object, format!("{prefix}_build_object")),
            (JsonFunction::Array, format!("{prefix}_build_array")),
            (JsonFunction::OfList, format!("{prefix}_agg_list")),
            (JsonFunction::Pair, format!("{prefix}_pair")),
            (JsonFunction::OfPairs, format!("{prefix}_object_agg_list")),
        ]
        .map(|(kind, name)| {
            let signature = Signature::user_defined(Volatility::Stable);
            ScalarUDF::from(Function { kind, json, name, signature })
        })
    };
    of(JsonType::Json).into_iter().chain(of(JsonType::Jsonb))
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let count = match self.kind {
            JsonFunction::ToJson | JsonFunction::OfList | JsonFunction::OfPairs => arguments.len() == 1,
            JsonFunction::Pair => arguments.len() == 2,
            JsonFunction::Object | JsonFunction::Array => true,
        };
        if count {
            return Ok(arguments.iter().map(plain_type).collect());
        }
        Err(no_function(&self.name, arguments))
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs<'_>) -> DFResult<FieldRef> {
        Ok(self.json.field(&self.name))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays: Vec<ArrayRef> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let values: Vec<(&dyn Array, &Field)> =
            arrays.iter().map(AsRef::as_ref).zip(arguments.arg_fields.iter().map(AsRef::as_ref)).collect();
        let built = (0..rows).map(|row| self.row(&values, row)).collect::<DFResult<StringArray>>()?;
        Ok(ColumnarValue::Array(Arc::new(built)))
    }
}

impl Function {
    fn row(&self, values: &[(&dyn Array, &Field)], row: usize) -> DFResult<Option<String>> {
        let mut out = String::new();
        match (self.kind, values) {
            (JsonFunction::ToJson | JsonFunction::OfList | JsonFunction::OfPairs, [(array, _)])
                if is_null(*array, row) =>
            {
                return Ok(None);
            }
            (JsonFunction::ToJson, [(array, field)]) => append(*array, field, row, &mut out)?,
            (JsonFunction::Object, values) => self.object(values, row, &mut out)?,
            (JsonFunction::Array, values) => {
                out.push('[');
                for (at, (array, field)) in values.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    append(*array, field, row, &mut out)?;
                }
                out.push(']');
            }
            (JsonFunction::Pair, [key, value]) => pair(key, value, 1, row, &mut out)?,
            (JsonFunction::OfList, [(list, _)]) => joined(*list, row, ("[", "]"), &mut out)?,
            (JsonFunction::OfPairs, [(list, _)]) => joined(*list, row, ("{ ", " }"), &mut out)?,
            _ => return internal_err!("{} has other arguments", self.name),
        }
        match self.json {
            // Part of an object only.
            JsonType::Jsonb if self.kind != JsonFunction::Pair => {
                Ok(Some(normal(&out).map_err(failed)?.into_owned()))
            }
            _ => Ok(Some(out)),
        }
    }

    fn object(&self, values: &[(&dyn Array, &Field)], row: usize, out: &mut String) -> DFResult<()> {
        let (pairs, []) = values.as_chunks::<2>() else {
            let message = "argument list must have even number of elements";
            return Err(external(Error::coded("22023", message)));
        };
        out.push('{');
        for (at, [key, value]) in pairs.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            pair(key, value, 2 * at + 1, row, out)?;
        }
        out.push('}');
        Ok(())
    }
}

/// Appends `"key" : value`; `argument` is the number of the key among the arguments.
fn pair(
    (key, key_field): &(&dyn Array, &Field),
    (value, value_field): &(&dyn Array, &Field),
    argument: usize,
    row: usize,
    out: &mut String,
) -> DFResult<()> {
    if is_null(*key, row) {
        return Err(external(Error::coded("22023", format!("argument {argument} cannot be null"))));
    }
    let mut name = String::new();
    append(*key, key_field, row, &mut name)?;
    if name.starts_with('"') {
        out.push_str(&name)
    } else {
        write_string(&name, out)
    }
    out.push_str(" : ");
    append(*value, value_field, row, out)
}

/// Joins the JSON in a list of strings.
fn joined(list: &dyn Array, row: usize, (open, close): (&str, &str), out: &mut String) -> DFResult<()> {
    let Some(lists) = list.as_list_opt::<i32>() else { return internal_err!("a list expected") };
    let texts = lists.value(row);
    let Some(texts) = texts.as_string_opt::<i32>() else {
        return internal_err!("a list of strings expected");
    };
    out.push_str(open);
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        out.push_str(text.unwrap_or("null"));
    }
    out.push_str(close);
    Ok(())
}

/// Type of a column of tables, or of what is written as one; other types stay as they are.
fn plain_type(of: &DataType) -> DataType {
    match of {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Date64 => DataType::Date32,
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        other => other.clone(),
    }
}

fn is_null(array: &dyn Array, row: usize) -> bool {
    array.is_null(row) || *array.data_type() == DataType::Null
}

/// Appends a value as JSON.
fn append(array: &dyn Array, field: &Field, row: usize, out: &mut String) -> DFResult<()> {
    if is_null(array, row) {
        out.push_str("null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Utf8 if JsonType::of_field(field).is_some() => {
            out.push_str(array.as_string::<i32>().value(row))
        }
        DataType::Utf8 => write_string(&modifier_of(field).padded(array.as_string::<i32>().value(row)), out),
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            append_double(f64::from(value), &format!("{value:e}"), 6, out);
        }
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            append_double(value, &format!("{value:e}"), 15, out);
        }
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            let of = ColumnType::Decimal { precision: *precision, scale: scale.unsigned_abs() };
            let value = Value::Decimal(array.as_primitive::<Decimal128Type>().value(row));
            // Writing to a `String` does not fail.
            let _ = write!(out, "{}", value.display(of));
        }
        DataType::Boolean => out.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        DataType::Date32 => {
            let value = Value::Date(array.as_primitive::<Date32Type>().value(row));
            write_string(&value.to_string(), out);
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            append_time(micros, zone.as_deref(), out)?;
        }
        DataType::Interval(_) if array.as_primitive_opt::<IntervalMonthDayNanoType>().is_some() => {
            let interval = Interval::from_arrow(array.as_primitive::<IntervalMonthDayNanoType>().value(row));
            write_string(&Value::Interval(interval).to_string(), out);
        }
        DataType::List(element) => {
            let elements = array.as_list::<i32>().value(row);
            append_list(&elements, element, out)?;
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            // DataFusion numbers the fields of ROW from c0.
            let is_row = fields.iter().enumerate().all(|(at, field)| *field.name() == format!("c{at}"));
            out.push('{');
            for (at, (column, field)) in columns.iter().zip(fields).enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let name = if is_row { &format!("f{}", at + 1) } else { field.name() };
                write_string(name, out);
                out.push(':');
                append(column.as_ref(), field, row, out)?;
            }
            out.push('}');
        }
        of => {
            let is_number = of.is_numeric();
            let options = FormatOptions::default();
            let text = ArrayFormatter::try_new(array, &options)?.value(row).to_string();
            if is_number { out.push_str(&text) } else { write_string(&text, out) }
        }
    }
    Ok(())
}

fn append_list(elements: &ArrayRef, field: &Field, out: &mut String) -> DFResult<()> {
    out.push('[');
    for row in 0..elements.len() {
        if row > 0 {
            out.push(',');
        }
        append(elements.as_ref(), field, row, out)?;
    }
    out.push(']');
    Ok(())
}

/// Appends the shortest digits of a double, with an exponent where PostgreSQL writes one.
fn append_double(value: f64, scientific: &str, digits_max: i32, out: &mut String) {
    if !value.is_finite() {
        let name = if value.is_nan() { "NaN" } else { "Infinity" };
        let _ = write!(out, "\"{}{name}\"", if value < 0.0 { "-" } else { "" });
        return;
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let _ = if (-4..digits_max).contains(&exponent) {
        // The digits of a REAL are those of its own.
        let plain = entresol_tables::json::plain_number(scientific);
        write!(out, "{}", plain.unwrap_or_default())
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.abs())
    };
}

/// Appends a timestamp in ISO 8601: `2024-01-01T12:00:00+01:00`.
fn append_time(micros: i64, zone: Option<&str>, out: &mut String) -> DFResult<()> {
    let out_of_range = || external(Error::coded("22008", "timestamp out of range"));
    let wall = match zone {
        Some(zone) => Zone::new(zone).map_err(external)?.wall(micros).ok_or_else(out_of_range)?,
        None => micros,
    };
    let mut text = String::new();
    // Writing to a `String` does not fail.
    let _ = calendar::format_timestamp(wall, &mut text);
    let mut text = text.replacen(' ', "T", 1);
    if zone.is_some() {
        let ahead = (wall - micros) / calendar::MICROS_PER_SECOND;
        let (sign, seconds) = (if ahead < 0 { '-' } else { '+' }, ahead.abs());
        let _ = write!(text, "{sign}{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
    }
    write_string(&text, out);
    Ok(())
}
