//! Decoding of stored rows into record batches, column by column.
//!
//! - Rows are collected as they are stored, one after another; nothing of them is looked at but what the
//!   projected columns need. Each column is then one loop over the rows.
//! - A reader may have some columns decoded before the others, and leave rows out by their values: nothing else of
//!   these rows is looked at ([`StoredRows::columns_from`], [`StoredRows::retain_from`]).
//! - Rows of another schema version than the first of their batch, and keys with strings, are decoded row by
//!   row, by [`RowView`].
//! - Whatever the bytes, the outcome is a batch or [`Error::Corrupt`]. Damage in columns that are not
//!   projected is not seen.
//! - Memory: the rows of a batch as they are stored, and its arrays.

use crate::batch::builder::ColumnBuilder;
use crate::encoding::key;
use crate::encoding::row::VERSION_BYTE_BASE;
use crate::error::{Error, Result};
use crate::schema::layout::{ColumnSlot, Layout};
use crate::schema::{ROW_BYTES_MAX, Schema, fixed_bytes};
use crate::table::row_view::RowView;
use crate::value::DataType;
use crate::value::interval::Interval;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType as ArrowType, SchemaRef};
use std::sync::Arc;

/// Stored bytes that make a batch, however few its rows.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of a row reserved at first.
const ROW_BYTES_USUAL: usize = 96;

/// Stored rows of a table, and the columns that are wanted of them; see the [module](self).
#[derive(Debug)]
pub struct StoredRows {
    table: String,
    schema: Arc<Schema>,
    /// Table column of each column of the batch.
    projection: Vec<usize>,
    arrow: SchemaRef,
    /// Keys and values, as far as they are needed.
    bytes: Vec<u8>,
    places: Vec<RowPlace>,
    /// First byte of the values; none for an empty batch.
    version: Option<u8>,
    /// True if not all values begin with it.
    is_mixed: bool,
    needs_keys: bool,
    needs_values: bool,
}

/// Place of a row among the bytes: its value follows its key.
#[derive(Debug, Clone, Copy)]
struct RowPlace {
    key: u32,
    value: u32,
    end: u32,
}

impl StoredRows {
    /// No rows; batches will have the columns `projection` of a table, and their Arrow schema is `arrow`.
    /// `rows` is the number of rows that a batch will have.
    pub fn new(
        table: &str,
        schema: &Arc<Schema>,
        projection: &[usize],
        arrow: SchemaRef,
        rows: usize,
    ) -> StoredRows {
        let stored = StoredRows {
            table: table.to_owned(),
            schema: Arc::clone(schema),
            projection: projection.to_vec(),
            arrow,
            bytes: Vec::new(),
            places: Vec::with_capacity(rows),
            version: None,
            is_mixed: false,
            // Rows of several versions are decoded one by one, from their keys too.
            needs_keys: schema.schema_versions().versions().len() > 1,
            // Key strings with U+0000 are in the value.
            needs_values: !schema.key_is_fixed(),
        };
        stored.reading(projection)
    }

    /// The same, for columns of the table that are decoded besides; before the first row.
    pub fn reading(mut self, columns: &[usize]) -> StoredRows {
        debug_assert!(self.is_empty(), "rows are stored with what is needed of them");
        let is_key = |column: &usize| self.schema.key().contains(column);
        self.needs_keys |= columns.iter().any(is_key);
        self.needs_values |= !columns.iter().all(is_key);
        if self.needs_values {
            self.bytes.reserve(self.places.capacity() * ROW_BYTES_USUAL);
        }
        self
    }

    /// Number of rows so far.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if they make a batch: so many rows, or 4 MiB as they are stored.
    pub fn is_batch(&self, rows: usize) -> bool {
        self.len() >= rows || self.bytes.len() >= BATCH_BYTES
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a row.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        // Positions are 32 bits wide: batches have some thousand rows of at most 25 KiB.
        let start = self.bytes.len() as u32;
        if self.needs_keys {
            self.bytes.extend_from_slice(key);
        }
        let middle = self.bytes.len() as u32;
        if self.needs_values {
            self.bytes.extend_from_slice(value);
            let version = value.first().copied().unwrap_or(0);
            self.is_mixed |= *self.version.get_or_insert(version) != version;
        }
        self.places.push(RowPlace { key: start, value: middle, end: self.bytes.len() as u32 });
    }

    /// Adds a row that is looked at already.
    pub fn push_view(&mut self, row: &RowView<'_>) {
        self.push(row.key(), row.value_bytes());
    }

    /// Removes the rows.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.version = None;
        self.is_mixed = false;
    }

    /// Removes all but the first rows.
    pub fn truncate(&mut self, rows: usize) {
        self.places.truncate(rows);
    }

    /// Removes the rows behind the first ones that are not among `retained`, which begins with the row `first`.
    pub fn retain_from(&mut self, first: usize, retained: &BooleanBuffer) {
        assert_eq!(retained.len(), self.len() - first, "every row behind the first ones is judged");
        let (all, rows) = (retained.len(), retained.count_set_bits());
        if rows == all {
            return;
        }
        // Few rows move together, many leave holes, which are as long as they at most.
        let moves = 2 * rows < all;
        let mut end = self.places[first].key;
        for (at, row) in retained.set_indices().enumerate() {
            let mut place = self.places[first + row];
            if moves {
                self.bytes.copy_within(place.key as usize..place.end as usize, end as usize);
                let by = place.key - end;
                place = RowPlace { key: end, value: place.value - by, end: place.end - by };
                end = place.end;
            }
            self.places[first + at] = place;
        }
        self.places.truncate(first + rows);
        if moves {
            self.bytes.truncate(end as usize);
        }
        if self.is_empty() {
            self.clear();
        }
    }

    /// Arrays of columns of the table, with their Arrow types, of the rows from `first` on; of columns that it was
    /// made for, or made to read besides.
    pub fn columns_from(&self, first: usize, columns: &[(usize, &ArrowType)]) -> Result<Vec<ArrayRef>> {
        self.decode(&self.places[first..], columns.iter().copied())
    }

    /// Batch of the rows since the last call.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.finish_with(&[])
    }

    /// The same, with the arrays of columns that are decoded already, if there are any: one for each column.
    pub fn finish_with(&mut self, decoded: &[Option<ArrayRef>]) -> Result<RecordBatch> {
        let decoded_of = |at: usize| decoded.get(at).and_then(Option::as_ref);
        let fields = self.projection.iter().zip(self.arrow.fields()).enumerate();
        let missing = fields.filter(|(at, _)| decoded_of(*at).is_none());
        let missing = missing.map(|(_, (&column, field))| (column, field.data_type()));
        let arrays = self.decode(&self.places, missing).map(|arrays| {
            let mut arrays = arrays.into_iter();
            let array = |at: usize| decoded_of(at).cloned().or_else(|| arrays.next());
            (0..self.projection.len()).filter_map(array).collect()
        });
        let options = RecordBatchOptions::new().with_row_count(Some(self.places.len()));
        self.clear();
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.arrow), arrays?, &options);
        batch.map_err(|error| self.corrupt(&error.to_string()))
    }

    fn corrupt(&self, reason: &str) -> Error {
        Error::corrupt(format!("row in table {}", self.table), reason)
    }

    /// Decodes columns of the table.
    fn decode<'a>(
        &self,
        places: &[RowPlace],
        columns: impl Iterator<Item = (usize, &'a ArrowType)>,
    ) -> Result<Vec<ArrayRef>> {
        let layout = self.common_layout(places)?;
        let decoded = columns.map(|(column, arrow)| match layout {
            Some(layout) => self.column(places, layout, column, arrow),
            None => self.by_rows(places, column, arrow),
        });
        decoded.collect()
    }

    /// Layout of all rows, after a check of their lengths. None if they have several.
    fn common_layout(&self, places: &[RowPlace]) -> Result<Option<&Layout>> {
        let keys_fit = || {
            let key_bytes = self.schema.key_fixed_bytes() as u32;
            places.iter().all(|place| place.value - place.key >= key_bytes)
        };
        if self.needs_keys && !keys_fit() {
            return Err(self.corrupt("a key of the wrong length"));
        }
        if self.is_mixed {
            return Ok(None);
        }
        let Some(first) = self.version else { return Ok(Some(self.schema.layout())) };
        let version = usize::from(first).wrapping_sub(usize::from(VERSION_BYTE_BASE));
        let layout = self.schema.layout_of(version);
        let layout = layout.ok_or_else(|| self.corrupt(&format!("unknown version {first}")))?;
        let lengths = layout.value_bytes_min() as u32..=ROW_BYTES_MAX as u32;
        if !places.iter().all(|place| lengths.contains(&(place.end - place.value))) {
            return Err(self.corrupt("wrong length"));
        }
        Ok(Some(layout))
    }

    /// Decodes a column of rows of one layout.
    fn column(
        &self,
        places: &[RowPlace],
        layout: &Layout,
        column: usize,
        arrow: &ArrowType,
    ) -> Result<ArrayRef> {
        let data_type = self.schema.columns()[column].data_type;
        match layout.slot(column) {
            ColumnSlot::Fixed { null_bit, offset } => {
                let nulls = self.nulls(places, column, null_bit);
                let rows = places.iter().map(|place| &self.bytes[place.value as usize + offset..]);
                self.fixed::<false>(data_type, arrow, nulls, rows)
            }
            ColumnSlot::KeyFixed { ordinal } if self.schema.key_is_fixed() => {
                let offset = usize::from(self.schema.key_offsets()[ordinal]);
                let rows = places.iter().map(|place| &self.bytes[place.key as usize + offset..]);
                self.fixed::<true>(data_type, arrow, None, rows)
            }
            ColumnSlot::Varchar { null_bit, variable } => {
                self.texts(places, layout, variable, self.nulls(places, column, null_bit))
            }
            ColumnSlot::Missing => {
                let mut builder = ColumnBuilder::new(data_type, arrow, places.len());
                places.iter().for_each(|_| builder.push(self.schema.missing(column)));
                Ok(builder.finish())
            }
            ColumnSlot::KeyFixed { .. } | ColumnSlot::KeyVarchar { .. } => {
                self.by_rows(places, column, arrow)
            }
        }
    }

    /// NULLs of a column; none if it has none.
    fn nulls(&self, places: &[RowPlace], column: usize, null_bit: usize) -> Option<NullBuffer> {
        if !self.schema.columns()[column].nullable {
            return None;
        }
        let (byte, bit) = (1 + null_bit / 8, 1 << (null_bit % 8));
        let is_null = |place: &RowPlace| self.bytes[place.value as usize + byte] & bit != 0;
        if !places.iter().fold(false, |any, place| any | is_null(place)) {
            return None;
        }
        let valid = BooleanBuffer::collect_bool(places.len(), |row| !is_null(&places[row]));
        Some(NullBuffer::new(valid))
    }

    /// Decodes values of fixed width, where the bytes of `rows` begin: of a key, or of a value.
    fn fixed<'b, const KEY: bool>(
        &'b self,
        data_type: DataType,
        arrow: &ArrowType,
        nulls: Option<NullBuffer>,
        rows: impl Iterator<Item = &'b [u8]>,
    ) -> Result<ArrayRef> {
        let i32_of =
            |bytes: &[u8]| if KEY { key::decode_i32(bytes) } else { i32::from_le_bytes(head(bytes)) };
        let i64_of =
            |bytes: &[u8]| if KEY { key::decode_i64(bytes) } else { i64::from_le_bytes(head(bytes)) };
        let f64_of =
            |bytes: &[u8]| if KEY { key::decode_f64(bytes) } else { f64::from_le_bytes(head(bytes)) };
        let i128_of = |bytes: &[u8]| match (fixed_bytes(data_type), KEY) {
            (Some(8), _) => i128::from(i64_of(bytes)),
            (_, true) => key::decode_decimal(data_type, bytes),
            (_, false) => i128::from_le_bytes(head(bytes)),
        };
        Ok(match data_type {
            DataType::Boolean => {
                let values: Vec<u8> = rows.map(|bytes| bytes[0]).collect();
                if values.iter().any(|value| *value > 1) {
                    return Err(self.corrupt("a BOOLEAN that is neither 0 nor 1"));
                }
                let values = BooleanBuffer::collect_bool(values.len(), |row| values[row] == 1);
                Arc::new(BooleanArray::new(values, nulls))
            }
            // Stored values were checked to be in range.
            DataType::SmallInt => {
                primitive::<Int16Type>(rows.map(|bytes| i32_of(bytes) as i16), nulls, arrow)
            }
            DataType::Int => primitive::<Int32Type>(rows.map(i32_of), nulls, arrow),
            DataType::Date => primitive::<Date32Type>(rows.map(i32_of), nulls, arrow),
            DataType::BigInt => primitive::<Int64Type>(rows.map(i64_of), nulls, arrow),
            DataType::Timestamp | DataType::TimestampTz => {
                primitive::<TimestampMicrosecondType>(rows.map(i64_of), nulls, arrow)
            }
            DataType::Real => primitive::<Float32Type>(rows.map(|bytes| f64_of(bytes) as f32), nulls, arrow),
            DataType::Double => primitive::<Float64Type>(rows.map(f64_of), nulls, arrow),
            DataType::Decimal { .. } => primitive::<Decimal128Type>(rows.map(i128_of), nulls, arrow),
            DataType::Interval => {
                let interval = |bytes| Interval::from_bytes(head(bytes)).to_arrow();
                primitive::<IntervalMonthDayNanoType>(rows.map(interval), nulls, arrow)
            }
            DataType::Varchar => unreachable!("VARCHAR is not of fixed width"),
        })
    }

    /// Decodes the strings of a value column.
    fn texts(
        &self,
        places: &[RowPlace],
        layout: &Layout,
        variable: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let (ends_at, texts_at) = (layout.ends_offset(), layout.value_bytes_min());
        let mut offsets = Vec::with_capacity(places.len() + 1);
        offsets.push(0_i32);
        let mut texts: Vec<u8> = Vec::with_capacity(places.len() * 16);
        for place in places {
            let value = &self.bytes[place.value as usize..place.end as usize];
            let end_of =
                |variable: usize| u32::from_le_bytes(head(&value[ends_at + 4 * variable..])) as usize;
            let start = if variable == 0 { 0 } else { end_of(variable - 1) };
            let text = value[texts_at..].get(start..end_of(variable));
            texts.extend_from_slice(text.ok_or_else(|| self.corrupt("ends of strings out of order"))?);
            // At most the bytes of the rows.
            offsets.push(texts.len() as i32);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let array = StringArray::try_new(offsets, Buffer::from_vec(texts), nulls);
        Ok(Arc::new(array.map_err(|_| self.corrupt("a string that is not UTF-8"))?))
    }

    /// Decodes a column row by row.
    fn by_rows(&self, places: &[RowPlace], column: usize, arrow: &ArrowType) -> Result<ArrayRef> {
        let data_type = self.schema.columns()[column].data_type;
        let mut builder = ColumnBuilder::new(data_type, arrow, places.len());
        if !self.needs_keys {
            return Err(self.corrupt("a version that the table does not have"));
        }
        for place in places {
            let (key, value) =
                (place.key as usize..place.value as usize, place.value as usize..place.end as usize);
            let row = RowView::new(&self.table, &self.schema, &self.bytes[key], &self.bytes[value])?;
            builder.push(&row.value(column));
        }
        Ok(builder.finish())
    }
}

fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut head = [0; N];
    head.copy_from_slice(&bytes[..N]);
    head
}

/// Array of a type whose values are those of the iterator.
fn primitive<T: ArrowPrimitiveType>(
    values: impl Iterator<Item = T::Native>,
    nulls: Option<NullBuffer>,
    arrow: &ArrowType,
) -> ArrayRef {
    let values: Vec<T::Native> = values.collect();
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls).with_data_type(arrow.clone()))
}
