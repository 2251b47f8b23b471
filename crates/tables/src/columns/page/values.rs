//! Values of a column of one block after another, which become an array.
//!
//! Blocks of which few rows are left are so put together before an array is made of them: operators take as
//! long for an array of ten values as for one of hundreds.

use crate::columns::page::ColumnPage;
use crate::value::interval::Interval;
use crate::value::{DataType, Value};
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType as ArrowType;
use std::sync::Arc;

/// Values of a column; see the [module](self).
#[derive(Debug)]
pub(crate) struct ColumnValues {
    data_type: DataType,
    arrow: ArrowType,
    values: NativeValues,
    /// Values that are not NULL; none while all are.
    valid: Option<BooleanBufferBuilder>,
    rows: usize,
}

/// Values as they lie in an array.
#[derive(Debug)]
enum NativeValues {
    Booleans(Vec<i16>),
    Shorts(Vec<i16>),
    Integers(Vec<i32>),
    Longs(Vec<i64>),
    Doubles(Vec<f64>),
    Wide(Vec<i128>),
    Texts(TextValues),
}

/// Strings one after another.
#[derive(Debug)]
pub(super) struct TextValues {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Default for TextValues {
    fn default() -> TextValues {
        TextValues { offsets: vec![0], bytes: Vec::new() }
    }
}

impl TextValues {
    pub(super) fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.offsets.push(self.bytes.len() as i32);
    }

    pub(super) fn finish(self, nulls: Option<NullBuffer>) -> StringArray {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        StringArray::new(offsets, Buffer::from_vec(self.bytes), nulls)
    }
}

impl ColumnValues {
    /// No values of a column type, as `arrow`, its Arrow type.
    pub(crate) fn new(data_type: DataType, arrow: &ArrowType) -> ColumnValues {
        let values = match data_type {
            DataType::Boolean => NativeValues::Booleans(Vec::new()),
            DataType::SmallInt => NativeValues::Shorts(Vec::new()),
            DataType::Int | DataType::Date => NativeValues::Integers(Vec::new()),
            DataType::BigInt | DataType::Timestamp | DataType::TimestampTz => NativeValues::Longs(Vec::new()),
            DataType::Real | DataType::Double => NativeValues::Doubles(Vec::new()),
            DataType::Decimal { .. } | DataType::Interval => NativeValues::Wide(Vec::new()),
            DataType::Varchar => NativeValues::Texts(TextValues::default()),
        };
        ColumnValues { data_type, arrow: arrow.clone(), values, valid: None, rows: 0 }
    }

    /// Bytes of strings that it has.
    pub(crate) fn text_bytes(&self) -> usize {
        if let NativeValues::Texts(texts) = &self.values { texts.bytes.len() } else { 0 }
    }

    /// Appends the rows of a block of a page, or those selected.
    pub(crate) fn append(&mut self, page: &ColumnPage, block: usize, selection: Option<&[u32]>) {
        self.append_validity(page, block, selection);
        match &mut self.values {
            NativeValues::Booleans(values) | NativeValues::Shorts(values) => {
                page.append_integers(block, selection, values);
            }
            NativeValues::Integers(values) => page.append_integers(block, selection, values),
            NativeValues::Longs(values) => page.append_integers(block, selection, values),
            NativeValues::Doubles(values) => page.append_doubles(block, selection, values),
            NativeValues::Wide(values) => page.append_wide(block, selection, values),
            NativeValues::Texts(values) => page.append_texts(block, selection, values),
        }
    }

    fn append_validity(&mut self, page: &ColumnPage, block: usize, selection: Option<&[u32]>) {
        let rows = selection.map_or(page.blocks()[block].rows, <[u32]>::len);
        let validity = page.validity(block);
        if validity.is_some() || self.valid.is_some() {
            let valid = self.validity();
            match (validity, selection) {
                (None, _) => valid.append_n(rows, true),
                (Some(validity), None) => valid.append_buffer(&validity),
                (Some(validity), Some(selected)) => {
                    selected.iter().for_each(|row| valid.append(validity.value(*row as usize)));
                }
            }
        }
        self.rows += rows;
    }

    /// Validity of the values so far.
    fn validity(&mut self) -> &mut BooleanBufferBuilder {
        let rows = self.rows;
        self.valid.get_or_insert_with(|| {
            let mut valid = BooleanBufferBuilder::new(rows);
            valid.append_n(rows, true);
            valid
        })
    }

    /// Appends a value of the column's type, or NULL, several times.
    pub(crate) fn append_value(&mut self, value: &Value, times: usize) {
        if value.is_null() || self.valid.is_some() {
            self.validity().append_n(times, !value.is_null());
        }
        self.rows += times;
        let rows = self.rows;
        match (&mut self.values, value) {
            (NativeValues::Booleans(values), Value::Boolean(value)) => values.resize(rows, (*value).into()),
            // Values are in range of their column.
            (NativeValues::Shorts(values), Value::Int(value)) => values.resize(rows, *value as i16),
            (NativeValues::Integers(values), Value::Int(value) | Value::Date(value)) => {
                values.resize(rows, *value)
            }
            (NativeValues::Longs(values), Value::BigInt(value) | Value::Timestamp(value)) => {
                values.resize(rows, *value);
            }
            (NativeValues::Doubles(values), Value::Double(value)) => values.resize(rows, *value),
            (NativeValues::Wide(values), Value::Decimal(value)) => values.resize(rows, *value),
            (NativeValues::Wide(values), Value::Interval(value)) => values.resize(rows, value.to_word()),
            (NativeValues::Texts(values), Value::Varchar(text)) => (0..times).for_each(|_| values.push(text)),
            (values, value) => {
                debug_assert!(value.is_null(), "{value} is of another type than the column");
                values.append_nulls(rows, times);
            }
        }
    }

    /// Array of the values.
    pub(crate) fn finish(self) -> ArrayRef {
        let nulls = self.valid.map(|mut valid| NullBuffer::new(valid.finish()));
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        let arrow = &self.arrow;
        match self.values {
            NativeValues::Booleans(values) => {
                let values = BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0);
                Arc::new(BooleanArray::new(values, nulls))
            }
            NativeValues::Shorts(values) => primitive::<Int16Type>(values, nulls, arrow),
            NativeValues::Integers(values) if self.data_type == DataType::Date => {
                primitive::<Date32Type>(values, nulls, arrow)
            }
            NativeValues::Integers(values) => primitive::<Int32Type>(values, nulls, arrow),
            NativeValues::Longs(values) if self.data_type == DataType::BigInt => {
                primitive::<Int64Type>(values, nulls, arrow)
            }
            NativeValues::Longs(values) => primitive::<TimestampMicrosecondType>(values, nulls, arrow),
            NativeValues::Doubles(values) if self.data_type == DataType::Real => {
                let values = values.into_iter().map(|value| value as f32).collect();
                primitive::<Float32Type>(values, nulls, arrow)
            }
            NativeValues::Doubles(values) => primitive::<Float64Type>(values, nulls, arrow),
            NativeValues::Wide(values) if self.data_type == DataType::Interval => {
                let interval = |word| Interval::from_word(word).to_arrow();
                let values = values.into_iter().map(interval).collect();
                primitive::<IntervalMonthDayNanoType>(values, nulls, arrow)
            }
            NativeValues::Wide(values) => primitive::<Decimal128Type>(values, nulls, arrow),
            NativeValues::Texts(values) => Arc::new(values.finish(nulls)),
        }
    }
}

impl NativeValues {
    /// Appends values for NULLs, so that there are as many as `rows`.
    fn append_nulls(&mut self, rows: usize, times: usize) {
        match self {
            NativeValues::Booleans(values) | NativeValues::Shorts(values) => values.resize(rows, 0),
            NativeValues::Integers(values) => values.resize(rows, 0),
            NativeValues::Longs(values) => values.resize(rows, 0),
            NativeValues::Doubles(values) => values.resize(rows, 0.0),
            NativeValues::Wide(values) => values.resize(rows, 0),
            NativeValues::Texts(values) => (0..times).for_each(|_| values.push("")),
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    arrow: &ArrowType,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls).with_data_type(arrow.clone()))
}
