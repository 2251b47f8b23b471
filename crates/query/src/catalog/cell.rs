//! One value of a catalog relation or function, and columns of them.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    ListArray, StringArray, TimestampMicrosecondArray, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};
use datafusion::common::Result as DFResult;
use datafusion::error::DataFusionError;
use std::sync::Arc;

/// Catalog value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    Texts(Vec<String>),
    Ints(Vec<i64>),
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Int(value)
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Cell {
        Cell::Int(value as i64)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        Cell::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Cell {
        Cell::Text(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Null, Into::into)
    }
}

impl Cell {
    /// The string, if the value is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if the value is one or a string that contains one.
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Cell::Int(value) => Some(*value),
            Cell::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
}

/// The Arrow type of a list.
pub(crate) fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", element, true)))
}

/// Cells as a column of a type.
pub(crate) fn column(data_type: &DataType, cells: Vec<Cell>) -> DFResult<ArrayRef> {
    let ints = || cells.iter().map(|cell| if let Cell::Int(value) = cell { Some(*value) } else { None });
    let reals = || cells.iter().map(|cell| if let Cell::Real(value) = cell { Some(*value) } else { None });
    Ok(match data_type {
        DataType::Boolean => {
            let flags = cells.iter().map(|cell| if let Cell::Bool(flag) = cell { Some(*flag) } else { None });
            Arc::new(flags.collect::<BooleanArray>())
        }
        // Values made here fit: numbers of columns, oids below 2^31.
        DataType::Int16 => {
            Arc::new(ints().map(|value| value.map(|value| value as i16)).collect::<Int16Array>())
        }
        DataType::Int32 => {
            Arc::new(ints().map(|value| value.map(|value| value as i32)).collect::<Int32Array>())
        }
        DataType::UInt32 => {
            Arc::new(ints().map(|value| value.map(|value| value as u32)).collect::<UInt32Array>())
        }
        DataType::Int64 => Arc::new(ints().collect::<Int64Array>()),
        DataType::Float32 => {
            Arc::new(reals().map(|value| value.map(|value| value as f32)).collect::<Float32Array>())
        }
        DataType::Float64 => Arc::new(reals().collect::<Float64Array>()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            Arc::new(ints().collect::<TimestampMicrosecondArray>().with_timezone_opt(zone.clone()))
        }
        DataType::Utf8 => Arc::new(cells.iter().map(Cell::text).collect::<StringArray>()),
        DataType::List(field) => list(field.data_type(), &cells)?,
        // Types without a conversion of their own: all of it is NULL.
        other => new_null_array(other, cells.len()),
    })
}

fn list(element: &DataType, cells: &[Cell]) -> DFResult<ArrayRef> {
    let ints = || {
        cells.iter().map(|cell| match cell {
            Cell::Ints(values) => Some(values.iter().map(|value| Some(*value)).collect::<Vec<_>>()),
            _ => None,
        })
    };
    Ok(match element {
        DataType::Int16 | DataType::Int32 | DataType::UInt32 | DataType::Int64 => {
            let wide = ListArray::from_iter_primitive::<Int64Type, _, _>(ints());
            cast(&wide, &list_of(element.clone()))?
        }
        DataType::Utf8 => {
            let mut builder =
                datafusion::arrow::array::ListBuilder::new(datafusion::arrow::array::StringBuilder::new());
            for cell in cells {
                match cell {
                    Cell::Texts(values) => builder.append_value(values.iter().map(Some)),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        other => new_null_array(&list_of(other.clone()), cells.len()),
    })
}

/// Converts a column to cells; values other than numbers, strings and lists of them become strings.
pub(crate) fn cells(array: &ArrayRef) -> DFResult<Vec<Cell>> {
    let rows = 0..array.len();
    let data_type = array.data_type();
    if *data_type == DataType::Null {
        return Ok(vec![Cell::Null; array.len()]);
    }
    if *data_type == DataType::Boolean {
        let flags = array.as_boolean();
        return Ok(rows.map(|row| flags.is_valid(row).then(|| flags.value(row)).into()).collect());
    }
    if data_type.is_integer() {
        let wide = cast(array, &DataType::Int64)?;
        let values = wide.as_primitive::<Int64Type>();
        return Ok(rows.map(|row| values.is_valid(row).then(|| values.value(row)).into()).collect());
    }
    if let DataType::List(field) | DataType::LargeList(field) = data_type {
        return rows.map(|row| list_cell(array, field.data_type(), row)).collect();
    }
    let texts = cast(array, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    Ok(rows.map(|row| texts.is_valid(row).then(|| texts.value(row)).into()).collect())
}

fn list_cell(array: &ArrayRef, element: &DataType, row: usize) -> DFResult<Cell> {
    if array.is_null(row) {
        return Ok(Cell::Null);
    }
    let values = match array.data_type() {
        DataType::LargeList(_) => array.as_list::<i64>().value(row),
        _ => array.as_list::<i32>().value(row),
    };
    let inner = cells(&values)?;
    Ok(if element.is_integer() {
        Cell::Ints(inner.iter().filter_map(Cell::int).collect())
    } else {
        Cell::Texts(inner.iter().filter_map(Cell::text).map(str::to_owned).collect())
    })
}

/// Arrow type of a type name in the description of a relation.
pub(crate) fn type_of(word: &str) -> DFResult<DataType> {
    if let Some(element) = word.strip_suffix("[]") {
        return Ok(list_of(type_of(element)?));
    }
    Ok(match word {
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "oid" | "xid" => DataType::UInt32,
        "int8" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "text" | "name" | "char" | "regproc" | "aclitem" => DataType::Utf8,
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        other => {
            return Err(DataFusionError::Internal(format!(
                "a catalog relation has a column of type {other}"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_out_of_columns() {
        let kinds: [(&str, Vec<Cell>); 6] = [
            ("bool", vec![Cell::Bool(true), Cell::Null]),
            ("int2", vec![Cell::Int(-3), Cell::Null]),
            ("oid", vec![Cell::Int(16384), Cell::Null]),
            ("name", vec![Cell::from("a"), Cell::Null]),
            ("int2[]", vec![Cell::Ints(vec![1, 2]), Cell::Null, Cell::Ints(vec![])]),
            ("text[]", vec![Cell::Texts(vec!["x".into(), "y".into()]), Cell::Null]),
        ];
        for (word, given) in kinds {
            let data_type = type_of(word).unwrap();
            let array = column(&data_type, given.clone()).unwrap();
            assert_eq!(*array.data_type(), data_type, "{word}");
            assert_eq!(cells(&array).unwrap(), given, "{word}");
        }
        assert!(type_of("int3").is_err());
    }
}
