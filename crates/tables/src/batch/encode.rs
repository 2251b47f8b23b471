//! Encoding of record batches, column by column: for each column one loop over the rows.

use crate::batch::ColumnArray;
use crate::encoding::key;
use crate::encoding::row::{EncodedValues, VERSION_BYTE_BASE};
use crate::error::{Error, Result};
use crate::schema::layout::ColumnSlot;
use crate::schema::{Column, KEY_BYTES_MAX, ROW_BYTES_MAX, Schema, fixed_bytes};
use crate::value::interval::Interval;
use crate::value::{DataType, decimal};
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, PrimitiveArray, StringArray};
use arrow_buffer::NullBuffer;
use entresol_structures::KeyBytes;
use std::sync::Arc;

/// Encodes rows; the arrays are those of all columns of the table, hidden key included.
pub(crate) fn encode(
    table: &str,
    schema: &Schema,
    arrays: &[ArrayRef],
) -> Result<(Vec<KeyBytes>, EncodedValues)> {
    assert_eq!(arrays.len(), schema.columns().len(), "every column has an array");
    let rows = arrays.first().map_or(0, |array| array.len());
    let mut columns = Vec::with_capacity(arrays.len());
    for (column, array) in schema.columns().iter().zip(arrays) {
        let typed = ColumnArray::new(table, column, array)?;
        check(table, column, typed)?;
        columns.push(typed);
    }
    Ok((encode_keys(table, schema, &columns, rows)?, encode_values(table, schema, &columns, rows)?))
}

/// Checks rows as [`encode`] does, without encoding them.
pub(crate) fn check_rows(table: &str, schema: &Schema, arrays: &[ArrayRef]) -> Result<()> {
    assert_eq!(arrays.len(), schema.columns().len(), "every column has an array");
    let mut text_bytes = 0;
    for (column, array) in schema.columns().iter().zip(arrays) {
        let typed = ColumnArray::new(table, column, array)?;
        check(table, column, typed)?;
        if let ColumnArray::Varchar(texts) = typed {
            text_bytes += texts.iter().flatten().map(str::len).max().unwrap_or(0);
        }
    }
    if text_bytes + schema.layout().value_bytes_min() > ROW_BYTES_MAX {
        // A row may be too large.
        encode(table, schema, arrays)?;
    }
    Ok(())
}

/// Strings as their column stores them; none if they are that already. An error for one that is too long, or no JSON.
pub fn fitted_texts(table: &str, column: &Column, array: &ArrayRef) -> Result<Option<ArrayRef>> {
    let ColumnArray::Varchar(texts) = ColumnArray::new(table, column, array)? else { return Ok(None) };
    let fit = |text| column.modifier.fit(text).map_err(|misfit| misfit.of(table, column));
    let mut changes = false;
    for text in texts.iter().flatten() {
        changes |= *fit(text)? != *text;
    }
    if !changes {
        return Ok(None);
    }
    let fitted = texts.iter().map(|text| text.map(fit).transpose());
    Ok(Some(Arc::new(fitted.collect::<Result<StringArray>>()?)))
}

/// Checks NULLs, and ranges that the type of the array does not ensure.
fn check(table: &str, column: &Column, values: ColumnArray<'_>) -> Result<()> {
    let array = values.array();
    if !column.nullable && array.null_count() > 0 {
        return Err(Error::NotNull { table: table.to_owned(), column: column.name.clone() });
    }
    if let (ColumnArray::Decimal(values), DataType::Decimal { precision, .. }) = (values, column.data_type)
        && let Some(value) = values.iter().flatten().find(|value| !decimal::fits(*value, precision))
    {
        return Err(Error::OutOfRange {
            table: table.to_owned(),
            column: column.name.clone(),
            value: crate::Value::Decimal(value).display(column.data_type).to_string(),
            expected: column.data_type,
        });
    }
    Ok(())
}

/// Encodes keys; the arrays are those of the key columns, in key order.
pub(crate) fn encode_keys_only(table: &str, schema: &Schema, arrays: &[ArrayRef]) -> Result<Vec<KeyBytes>> {
    assert_eq!(arrays.len(), schema.key().len(), "every key column has an array");
    let rows = arrays.first().map_or(0, |array| array.len());
    let mut columns = Vec::with_capacity(arrays.len());
    for (&index, array) in schema.key().iter().zip(arrays) {
        let column = &schema.columns()[index];
        let typed = ColumnArray::new(table, column, array)?;
        if array.null_count() > 0 {
            return Err(Error::NotNull { table: table.to_owned(), column: column.name.clone() });
        }
        columns.push((typed, column.data_type));
    }
    keys_of(table, schema, columns.into_iter(), rows)
}

fn encode_keys(
    table: &str,
    schema: &Schema,
    columns: &[ColumnArray<'_>],
    rows: usize,
) -> Result<Vec<KeyBytes>> {
    let key = schema.key().iter().map(|&index| (columns[index], schema.columns()[index].data_type));
    keys_of(table, schema, key, rows)
}

fn keys_of<'b>(
    table: &str,
    schema: &Schema,
    columns: impl Iterator<Item = (ColumnArray<'b>, DataType)>,
    rows: usize,
) -> Result<Vec<KeyBytes>> {
    let mut keys = vec![KeyBytes::new(); rows];
    for (values, data_type) in columns {
        encode_key_column(values, data_type, &mut keys);
    }
    for key in &mut keys {
        if key.len() > KEY_BYTES_MAX {
            let (bytes, bytes_max) = (key.len(), KEY_BYTES_MAX);
            return Err(Error::KeyTooLarge { table: table.to_owned(), bytes, bytes_max });
        }
        key::pad(key, schema.key_width());
    }
    Ok(keys)
}

/// Appends the values of a column, which has no NULL, to the keys.
fn encode_key_column(values: ColumnArray<'_>, data_type: DataType, keys: &mut [KeyBytes]) {
    fn each<T>(
        keys: &mut [KeyBytes],
        values: impl IntoIterator<Item = T>,
        append: impl Fn(T, &mut KeyBytes),
    ) {
        keys.iter_mut().zip(values).for_each(|(key, value)| append(value, key));
    }
    match values {
        ColumnArray::Boolean(array) => {
            each(keys, array.values().iter(), |value, key| key.push(u8::from(value)));
        }
        ColumnArray::SmallInt(array) => {
            each(keys, array.values(), |value, key| key::append_i32(i32::from(*value), key));
        }
        ColumnArray::Int(array) => each(keys, array.values(), |value, key| key::append_i32(*value, key)),
        ColumnArray::Date(array) => each(keys, array.values(), |value, key| key::append_i32(*value, key)),
        ColumnArray::BigInt(array) => each(keys, array.values(), |value, key| key::append_i64(*value, key)),
        ColumnArray::Timestamp(array) => {
            each(keys, array.values(), |value, key| key::append_i64(*value, key));
        }
        ColumnArray::Real(array) => {
            each(keys, array.values(), |value, key| key::append_f64(f64::from(*value), key));
        }
        ColumnArray::Double(array) => each(keys, array.values(), |value, key| key::append_f64(*value, key)),
        ColumnArray::Decimal(array) => {
            each(keys, array.values(), |value, key| key::append_decimal(data_type, *value, key));
        }
        ColumnArray::Interval(_) => unreachable!("INTERVAL is in no key"),
        ColumnArray::Varchar(array) => {
            each(keys, array.iter(), |text, key| {
                key::append_text(text.unwrap_or_default().as_bytes(), key);
            });
        }
    }
}

/// Rows that are being encoded, one after another.
struct Values {
    bytes: Vec<u8>,
    /// Offset of each row, and the end of the last.
    starts: Vec<usize>,
}

fn encode_values(
    table: &str,
    schema: &Schema,
    columns: &[ColumnArray<'_>],
    rows: usize,
) -> Result<EncodedValues> {
    let layout = schema.layout();
    let mut texts: Vec<Text<'_>> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        if let (ColumnSlot::Varchar { variable, .. }, ColumnArray::Varchar(array)) = (layout.slot(at), column)
        {
            texts.push(Text { variable, array, is_key: false });
        }
    }
    for &at in schema.key() {
        if let (ColumnSlot::KeyVarchar { variable, .. }, ColumnArray::Varchar(array)) =
            (layout.slot(at), columns[at])
        {
            texts.push(Text { variable, array, is_key: true });
        }
    }
    assert_eq!(texts.len(), layout.variables(), "every VARCHAR has an end");
    let mut values = place_rows(table, layout.value_bytes_min(), &texts, rows)?;
    let version = VERSION_BYTE_BASE + schema.schema_versions().current() as u8;
    for &start in &values.starts[..rows] {
        values.bytes[start] = version;
    }
    for (at, column) in columns.iter().enumerate() {
        if let ColumnSlot::Fixed { null_bit, offset } = layout.slot(at) {
            values.put_nulls(column.array().nulls(), null_bit);
            values.put_column(*column, schema.columns()[at].data_type, offset);
        } else if let ColumnSlot::Varchar { null_bit, .. } = layout.slot(at) {
            values.put_nulls(column.array().nulls(), null_bit);
        }
    }
    let mut ends = vec![0_u32; rows];
    for (variable, text) in texts.iter().enumerate() {
        assert_eq!(variable, text.variable, "strings are appended in order");
        values.put_texts(text, layout.ends_offset() + 4 * variable, layout.value_bytes_min(), &mut ends);
    }
    Ok(EncodedValues::of_rows(values.bytes, values.starts))
}

/// Strings of a column, as values have them.
struct Text<'b> {
    variable: usize,
    array: &'b StringArray,
    /// True for a key column, whose strings are in the value only if they contain U+0000.
    is_key: bool,
}

impl<'b> Text<'b> {
    fn get(&self, row: usize) -> &'b str {
        let text = if self.array.is_null(row) { "" } else { self.array.value(row) };
        if self.is_key && !text.contains('\0') { "" } else { text }
    }
}

/// Places rows one after another, by the lengths of their strings.
fn place_rows(table: &str, bytes_min: usize, texts: &[Text<'_>], rows: usize) -> Result<Values> {
    let mut starts = Vec::with_capacity(rows + 1);
    let mut end = 0;
    for row in 0..rows {
        starts.push(end);
        let bytes = bytes_min + texts.iter().map(|text| text.get(row).len()).sum::<usize>();
        if bytes > ROW_BYTES_MAX {
            return Err(Error::RowTooLarge { table: table.to_owned(), bytes, bytes_max: ROW_BYTES_MAX });
        }
        end += bytes;
    }
    starts.push(end);
    Ok(Values { bytes: vec![0; end], starts })
}

impl Values {
    fn rows(&self) -> &[usize] {
        &self.starts[..self.starts.len() - 1]
    }

    fn put_nulls(&mut self, nulls: Option<&NullBuffer>, null_bit: usize) {
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return };
        for (row, &start) in self.starts[..self.starts.len() - 1].iter().enumerate() {
            self.bytes[start + 1 + null_bit / 8] |= u8::from(nulls.is_null(row)) << (null_bit % 8);
        }
    }

    /// Writes the values of a column at an offset of each row; zeros for NULL.
    fn put_column(&mut self, values: ColumnArray<'_>, data_type: DataType, offset: usize) {
        match values {
            ColumnArray::Boolean(array) => {
                for (row, start) in self.starts[..self.starts.len() - 1].iter().enumerate() {
                    self.bytes[start + offset] = u8::from(array.is_valid(row) && array.value(row));
                }
            }
            ColumnArray::SmallInt(array) => self.put(array, offset, |value| i32::from(value).to_le_bytes()),
            ColumnArray::Int(array) => self.put(array, offset, i32::to_le_bytes),
            ColumnArray::Date(array) => self.put(array, offset, i32::to_le_bytes),
            ColumnArray::BigInt(array) => self.put(array, offset, i64::to_le_bytes),
            ColumnArray::Timestamp(array) => self.put(array, offset, i64::to_le_bytes),
            ColumnArray::Real(array) => self.put(array, offset, |value| f64::from(value).to_le_bytes()),
            ColumnArray::Double(array) => self.put(array, offset, f64::to_le_bytes),
            // The sign of a short decimal survives the truncation to 8 bytes: it was checked to fit.
            ColumnArray::Decimal(array) if fixed_bytes(data_type) == Some(8) => {
                self.put(array, offset, |value| (value as i64).to_le_bytes());
            }
            ColumnArray::Decimal(array) => self.put(array, offset, i128::to_le_bytes),
            ColumnArray::Interval(array) => {
                self.put(array, offset, |value| Interval::from_arrow(value).to_bytes());
            }
            ColumnArray::Varchar(_) => unreachable!("VARCHAR is not of fixed width"),
        }
    }

    fn put<T: ArrowPrimitiveType, const N: usize>(
        &mut self,
        array: &PrimitiveArray<T>,
        offset: usize,
        bytes: impl Fn(T::Native) -> [u8; N],
    ) {
        let has_nulls = array.null_count() > 0;
        for (row, (value, &start)) in array.values().iter().zip(&self.starts).enumerate() {
            if !has_nulls || array.is_valid(row) {
                self.bytes[start + offset..][..N].copy_from_slice(&bytes(*value));
            }
        }
    }

    /// Writes the strings of a column behind those that are there, and their ends.
    fn put_texts(&mut self, text: &Text<'_>, end_offset: usize, texts_offset: usize, ends: &mut [u32]) {
        debug_assert_eq!(ends.len(), self.rows().len(), "every row has the end of its strings");
        for (row, end) in ends.iter_mut().enumerate() {
            let (start, text) = (self.rows()[row], text.get(row));
            let at = start + texts_offset + *end as usize;
            debug_assert!(
                at + text.len() <= self.starts[row + 1],
                "the strings of row {row} end before the next row"
            );
            self.bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
            // A row has at most 24 KiB.
            *end += text.len() as u32;
            self.bytes[start + end_offset..][..4].copy_from_slice(&end.to_le_bytes());
        }
    }
}
