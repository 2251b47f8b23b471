//! Row views: rows as the base table stores them, decoded column by column on demand.
//!
//! - Creating a view checks the bytes once (version, lengths, ends of strings, UTF-8, booleans); after that
//!   no accessor can fail, and none allocates but [`RowView::value`] and [`RowView::to_row`] for strings.
//! - Cost of creating one: O(strings of the row), no dependence on the fixed-width columns.
//! - A view borrows the bytes of the transaction's read; it cannot outlive them.

use crate::encoding::{key, row};
use crate::error::{Error, Result};
use crate::schema::layout::{ColumnSlot, Layout};
use crate::schema::{KEY_COLUMNS_MAX, ROW_BYTES_MAX, Schema};
use crate::value::interval::Interval;
use crate::value::{DataType, Row, Value};

/// Lazily decoded row.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    schema: &'a Schema,
    /// Layout of the row's schema version.
    layout: &'a Layout,
    key: &'a [u8],
    value: &'a [u8],
    /// All strings of the value.
    texts: &'a str,
    key_offsets: [u16; KEY_COLUMNS_MAX],
}

impl<'a> RowView<'a> {
    /// Checks the bytes of a row; `table` is for the error.
    pub fn new(table: &str, schema: &'a Schema, key: &'a [u8], value: &'a [u8]) -> Result<RowView<'a>> {
        let corrupt = |reason: &str| Error::corrupt(format!("row in table {table}"), reason);
        let key_offsets = key::locate(table, schema, key)?;
        let Some((&first, _)) = value.split_first() else { return Err(corrupt("wrong length")) };
        let version = usize::from(first).wrapping_sub(usize::from(row::VERSION_BYTE_BASE));
        let layout = schema.layout_of(version).ok_or_else(|| corrupt(&format!("unknown version {first}")))?;
        let texts_offset = layout.value_bytes_min();
        if value.len() < texts_offset || value.len() > ROW_BYTES_MAX {
            return Err(corrupt("wrong length"));
        }
        if layout.boolean_offsets().iter().any(|&offset| value[offset] > 1) {
            return Err(corrupt("a BOOLEAN that is neither 0 nor 1"));
        }
        let texts =
            std::str::from_utf8(&value[texts_offset..]).map_err(|_| corrupt("a string that is not UTF-8"))?;
        let view = RowView { schema, layout, key, value, texts, key_offsets };
        let mut start = 0;
        for variable in 0..layout.variables() {
            let end = view.string_end(variable);
            if end < start || !texts.is_char_boundary(end) {
                return Err(corrupt("ends of strings out of order"));
            }
            start = end;
        }
        if start != texts.len() {
            return Err(corrupt("bytes after the last string"));
        }
        view.check_key_texts().ok_or_else(|| corrupt("a key string that is not UTF-8"))?;
        Ok(view)
    }

    /// Checks that every key VARCHAR can be borrowed from the key, or is stored in the value.
    fn check_key_texts(&self) -> Option<()> {
        if self.schema.key_is_fixed() {
            return Some(());
        }
        for &index in self.schema.key() {
            if let ColumnSlot::KeyVarchar { ordinal, variable } = self.layout.slot(index)
                && self.text(variable).is_empty()
            {
                key::borrow_string(self.key_bytes(ordinal)).ok()?;
            }
        }
        Some(())
    }

    fn string_end(&self, variable: usize) -> usize {
        let at = self.layout.ends_offset() + 4 * variable;
        u32::from_le_bytes(self.array(at)) as usize
    }

    fn text(&self, variable: usize) -> &'a str {
        let start = if variable == 0 { 0 } else { self.string_end(variable - 1) };
        &self.texts[start..self.string_end(variable)]
    }

    fn key_bytes(&self, ordinal: usize) -> &'a [u8] {
        &self.key[usize::from(self.key_offsets[ordinal])..]
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.value[offset..offset + N]);
        array
    }

    fn expect_type(&self, column: usize, expected: &[DataType]) {
        debug_assert!(
            expected.contains(&self.schema.columns()[column].data_type),
            "column {} is {}",
            self.schema.columns()[column].name,
            self.schema.columns()[column].data_type
        );
    }

    /// Schema of the row.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Encoded key.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Encoded value.
    pub(crate) fn value_bytes(&self) -> &'a [u8] {
        self.value
    }

    /// Bytes of the encoded key and value.
    pub fn encoded_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    /// Returns true if the column is NULL. The typed accessors return zero or the empty string for NULL.
    pub fn is_null(&self, column: usize) -> bool {
        match self.layout.slot(column) {
            ColumnSlot::Fixed { null_bit, .. } | ColumnSlot::Varchar { null_bit, .. } => {
                self.value[1 + null_bit / 8] & (1 << (null_bit % 8)) != 0
            }
            ColumnSlot::KeyFixed { .. } | ColumnSlot::KeyVarchar { .. } => false,
            ColumnSlot::Missing => self.schema.missing(column).is_null(),
        }
    }

    /// Value of a BOOLEAN column. Like its siblings it panics if the column is of another width than
    /// requested.
    pub fn boolean(&self, column: usize) -> bool {
        self.expect_type(column, &[DataType::Boolean]);
        match self.layout.slot(column) {
            ColumnSlot::Fixed { offset, .. } => self.value[offset] != 0,
            ColumnSlot::KeyFixed { ordinal } => self.key_bytes(ordinal)[0] != 0,
            ColumnSlot::Missing => matches!(self.schema.missing(column), Value::Boolean(true)),
            _ => panic!("column {column} is a VARCHAR"),
        }
    }

    /// Value of an INT or SMALLINT column.
    pub fn int(&self, column: usize) -> i32 {
        self.expect_type(column, &[DataType::Int, DataType::SmallInt, DataType::Date]);
        match self.layout.slot(column) {
            ColumnSlot::Fixed { offset, .. } => i32::from_le_bytes(self.array(offset)),
            ColumnSlot::KeyFixed { ordinal } => key::decode_i32(self.key_bytes(ordinal)),
            ColumnSlot::Missing => match self.schema.missing(column) {
                Value::Int(value) | Value::Date(value) => *value,
                _ => 0,
            },
            _ => panic!("column {column} is a VARCHAR"),
        }
    }

    /// Value of a DATE column, in days.
    pub fn date(&self, column: usize) -> i32 {
        self.int(column)
    }

    /// Value of a BIGINT column.
    pub fn bigint(&self, column: usize) -> i64 {
        self.expect_type(column, &[DataType::BigInt, DataType::Timestamp, DataType::TimestampTz]);
        self.eight(column)
    }

    /// Value of a TIMESTAMP or TIMESTAMPTZ column, in microseconds.
    pub fn timestamp(&self, column: usize) -> i64 {
        self.bigint(column)
    }

    fn eight(&self, column: usize) -> i64 {
        match self.layout.slot(column) {
            ColumnSlot::Fixed { offset, .. } => i64::from_le_bytes(self.array(offset)),
            ColumnSlot::KeyFixed { ordinal } => key::decode_i64(self.key_bytes(ordinal)),
            ColumnSlot::Missing => match self.schema.missing(column) {
                Value::BigInt(value) | Value::Timestamp(value) => *value,
                _ => 0,
            },
            _ => panic!("column {column} is a VARCHAR"),
        }
    }

    /// Value of a DOUBLE or REAL column.
    pub fn double(&self, column: usize) -> f64 {
        self.expect_type(column, &[DataType::Double, DataType::Real]);
        match self.layout.slot(column) {
            ColumnSlot::Fixed { offset, .. } => f64::from_bits(u64::from_le_bytes(self.array(offset))),
            ColumnSlot::KeyFixed { ordinal } => key::decode_f64(self.key_bytes(ordinal)),
            ColumnSlot::Missing => match self.schema.missing(column) {
                Value::Double(value) => *value,
                _ => 0.0,
            },
            _ => panic!("column {column} is a VARCHAR"),
        }
    }

    /// Value of a DECIMAL column, unscaled.
    pub fn decimal(&self, column: usize) -> i128 {
        let data_type = self.schema.columns()[column].data_type;
        match (crate::schema::fixed_bytes(data_type), self.layout.slot(column)) {
            (_, ColumnSlot::Missing) => match self.schema.missing(column) {
                Value::Decimal(value) => *value,
                _ => 0,
            },
            (Some(8), _) => i128::from(self.eight(column)),
            (Some(16), ColumnSlot::Fixed { offset, .. }) => i128::from_le_bytes(self.array(offset)),
            (Some(16), ColumnSlot::KeyFixed { ordinal }) => {
                key::decode_decimal(data_type, self.key_bytes(ordinal))
            }
            _ => panic!("column {column} is a {data_type}"),
        }
    }

    /// Value of an INTERVAL column.
    pub fn interval(&self, column: usize) -> Interval {
        self.expect_type(column, &[DataType::Interval]);
        match self.layout.slot(column) {
            ColumnSlot::Fixed { offset, .. } => Interval::from_bytes(self.array(offset)),
            ColumnSlot::Missing => match self.schema.missing(column) {
                Value::Interval(value) => *value,
                _ => Interval::default(),
            },
            _ => panic!("column {column} is not an INTERVAL of a value"),
        }
    }

    /// Value of a VARCHAR column.
    pub fn varchar(&self, column: usize) -> &'a str {
        match self.layout.slot(column) {
            ColumnSlot::Varchar { variable, .. } => self.text(variable),
            ColumnSlot::KeyVarchar { ordinal, variable } => match self.text(variable) {
                // Checked when the view was created: an empty string here means that it is borrowed from the
                // key.
                "" => key::borrow_string(self.key_bytes(ordinal)).unwrap_or(""),
                text => text,
            },
            ColumnSlot::Missing => match self.schema.missing(column) {
                Value::Varchar(text) => text,
                _ => "",
            },
            _ => panic!("column {column} is not a VARCHAR"),
        }
    }

    /// Value of any column.
    pub fn value(&self, column: usize) -> Value {
        if self.is_null(column) {
            return Value::Null;
        }
        match self.schema.columns()[column].data_type {
            DataType::Boolean => Value::Boolean(self.boolean(column)),
            DataType::Int | DataType::SmallInt => Value::Int(self.int(column)),
            DataType::BigInt => Value::BigInt(self.bigint(column)),
            DataType::Double | DataType::Real => Value::Double(self.double(column)),
            DataType::Decimal { .. } => Value::Decimal(self.decimal(column)),
            DataType::Date => Value::Date(self.date(column)),
            DataType::Timestamp | DataType::TimestampTz => Value::Timestamp(self.timestamp(column)),
            DataType::Interval => Value::Interval(self.interval(column)),
            DataType::Varchar => Value::Varchar(self.varchar(column).into()),
        }
    }

    /// Values of all columns, the hidden key included.
    pub fn to_row(&self) -> Row {
        (0..self.schema.columns().len()).map(|column| self.value(column)).collect()
    }
}

impl std::fmt::Debug for RowView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..self.schema.columns().len()).map(|column| self.value(column))).finish()
    }
}
