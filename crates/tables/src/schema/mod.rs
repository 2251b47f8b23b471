//! Schemas: the columns of a table, its key, and the position of each column in encoded rows.
//!
//! Invariants of every `Schema` (checked by [`Schema::new`] and again when read from the catalog):
//!
//! - 1 to [`COLUMNS_MAX`] columns with distinct names of 1 to [`COLUMN_NAME_BYTES_MAX`] bytes.
//! - The key has 1 to [`KEY_COLUMNS_MAX`] distinct columns, all NOT NULL. A schema created without key
//!   columns gets a last column `rowid_` BIGINT as its hidden key; no other column may have that name.
//! - The fixed parts of a row fit [`ROW_BYTES_MAX`], its fixed key columns fit [`KEY_BYTES_MAX`].
//!
//! The format in the catalog is described at [`Schema::to_bytes`]; it fits a row whatever the schema.

pub(crate) mod clustering;
pub(crate) mod definition;
pub(crate) mod definition_bytes;
pub(crate) mod elf;
pub(crate) mod layout;
pub mod modifier;
pub(crate) mod parts;
pub(crate) mod validity;
pub(crate) mod versions;

use crate::encoding::key;
use crate::error::{Error, Result};
use crate::schema::layout::Layout;
use crate::schema::modifier::{Modifier, fitted};
use crate::schema::versions::SchemaVersions;
use crate::value::{DataType, Value};
use entresol_structures::KeyWidth;

/// Maximum number of columns of a table, the hidden key included.
pub const COLUMNS_MAX: usize = 256;
/// Maximum bytes of a column's name.
pub const COLUMN_NAME_BYTES_MAX: usize = 63;
/// Maximum number of key columns.
pub const KEY_COLUMNS_MAX: usize = 16;
/// Maximum bytes of an encoded row without its key.
pub const ROW_BYTES_MAX: usize = 24 * 1024;
/// Maximum bytes of an encoded key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Name of the hidden key column.
pub const ROWID_COLUMN: &str = "rowid_";

const SCHEMA_VERSION: u8 = 1;
const FLAG_NULLABLE: u8 = 1;
const FLAG_MODIFIER: u8 = 2;
const FLAG_HIDDEN_KEY: u8 = 1;
/// Maximum bytes of one column in the catalog: name length, name, type tag, precision, scale, flags,
/// modifier.
const COLUMN_BYTES_MAX: usize = 1 + COLUMN_NAME_BYTES_MAX + 4 + 5;
/// Maximum bytes of a schema in the catalog.
pub(crate) const SCHEMA_BYTES_MAX: usize = 4 + 2 + COLUMNS_MAX * COLUMN_BYTES_MAX + 1 + 2 * KEY_COLUMNS_MAX;
const _: () = assert!(SCHEMA_BYTES_MAX + 64 < ROW_BYTES_MAX);
const _: () = assert!(COLUMN_NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(COLUMNS_MAX <= u16::MAX as usize);

/// Column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name, case-sensitive.
    pub name: String,
    /// Type of its values.
    pub data_type: DataType,
    /// True if it may be NULL.
    pub nullable: bool,
    /// Limits that its declaration adds to the type.
    pub modifier: Modifier,
}

impl Column {
    /// Column that may be NULL.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Column {
        Column { name: name.into(), data_type, nullable: true, modifier: Modifier::None }
    }

    /// Makes the column NOT NULL.
    pub fn not_null(mut self) -> Column {
        self.nullable = false;
        self
    }

    /// Sets the modifier of the column.
    pub fn with_modifier(mut self, modifier: Modifier) -> Column {
        self.modifier = modifier;
        self
    }

    /// Parses a string as a value of the column, as [`Value::parse`] does, and applies its modifier.
    pub fn parse(&self, text: &str) -> Result<Value> {
        if let (Modifier::Exact, DataType::Decimal { scale, .. }) = (self.modifier, self.data_type)
            && crate::value::decimal::loses_digits(text.trim(), scale)
        {
            // A string that is not a number is reported as such.
            Value::parse(&self.name, text, self.data_type)?;
            return Err(self.digits_lost("", text.trim()));
        }
        let value = Value::parse(&self.name, text, self.data_type)?;
        Ok(fitted("", self, &value)?.into_owned())
    }

    /// Refuses a type whose values have no order of bytes: no key, index or dimension can have it.
    pub(crate) fn check_order(&self) -> Result<()> {
        let Some(reason) = unordered(self) else { return Ok(()) };
        Err(Error::NotOrdered { column: self.name.clone(), declared: self.declared_type(), reason })
    }

    /// Error of a value with more digits than are stored.
    pub fn digits_lost(&self, table: &str, value: &str) -> Error {
        let scale = match self.data_type {
            DataType::Decimal { scale, .. } => scale,
            _ => 0,
        };
        Error::DigitsLost {
            table: table.to_owned(),
            column: self.name.clone(),
            value: value.to_owned(),
            scale,
        }
    }

    /// Declared type.
    pub fn declared_type(&self) -> String {
        match self.modifier {
            Modifier::None => self.data_type.to_string(),
            Modifier::Varchar(length) => format!("VARCHAR({length})"),
            Modifier::Char(length) => format!("CHAR({length})"),
            Modifier::Exact => "NUMERIC".to_owned(),
            Modifier::Json => "JSON".to_owned(),
            Modifier::Jsonb => "JSONB".to_owned(),
        }
    }
}

/// Reason why a column can be in no key and no index; none if it can.
fn unordered(column: &Column) -> Option<&'static str> {
    match (column.data_type, column.modifier) {
        (DataType::Interval, _) => Some("equal intervals have several forms (1 month, 30 days)"),
        (_, Modifier::Json) => Some("JSON has no equality"),
        (_, Modifier::Jsonb) => {
            Some("the order of its values is not that of their strings; index a column of its own")
        }
        _ => None,
    }
}

/// Columns, key and row layouts of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    columns: Vec<Column>,
    key: Vec<usize>,
    hidden_key: bool,
    schema_versions: SchemaVersions,
    /// Layouts of the schema versions.
    layouts: Vec<Layout>,
    /// Offsets of the key columns; those behind the first VARCHAR are not used.
    key_offsets: [u16; KEY_COLUMNS_MAX],
    key_width: KeyWidth,
    /// Encoded bytes of the key without the strings.
    key_fixed_bytes: usize,
    /// Columns whose strings have a limit or a form.
    constrained_texts: Vec<usize>,
}

impl Schema {
    /// Validates and lays out a schema. Key columns become NOT NULL; without any, `rowid_` is added.
    pub fn new<K: AsRef<str>>(columns: Vec<Column>, key_columns: &[K]) -> Result<Schema> {
        if columns.iter().any(|column| column.name == ROWID_COLUMN) {
            return Err(invalid(format!("the column name {ROWID_COLUMN} is reserved")));
        }
        if columns.is_empty() {
            return Err(invalid("no columns"));
        }
        let mut key = Vec::with_capacity(key_columns.len());
        for name in key_columns {
            let name = name.as_ref();
            let index = columns.iter().position(|column| column.name == name);
            key.push(index.ok_or_else(|| invalid(format!("key column {name} is not a column")))?);
        }
        Schema::build(columns, key)
    }

    /// Validates and lays out a schema; adds the hidden key if `key` is empty.
    fn build(columns: Vec<Column>, key: Vec<usize>) -> Result<Schema> {
        let schema_versions = SchemaVersions::new(&columns, &key);
        Schema::build_with(columns, key, schema_versions)
    }

    /// As [`Schema::build`], for a table with earlier schema versions.
    fn build_with(
        mut columns: Vec<Column>,
        mut key: Vec<usize>,
        schema_versions: SchemaVersions,
    ) -> Result<Schema> {
        let hidden_key = key.is_empty();
        if hidden_key {
            key.push(columns.len());
            columns.push(Column::new(ROWID_COLUMN, DataType::BigInt));
        }
        check_columns(&columns)?;
        check_key(&columns, &key)?;
        for &index in &key {
            columns[index].nullable = false;
        }
        let schema = lay_out(columns, key, hidden_key, schema_versions);
        if schema.key_fixed_bytes > KEY_BYTES_MAX {
            return Err(invalid(format!(
                "a key takes at least {} bytes, the maximum is {KEY_BYTES_MAX}",
                schema.key_fixed_bytes
            )));
        }
        assert!(schema.layout().value_bytes_min() <= ROW_BYTES_MAX, "256 columns of 16 bytes fit a row");
        Ok(schema)
    }

    /// Same table with other schema versions, read from the catalog.
    pub(crate) fn with_schema_versions(&self, schema_versions: SchemaVersions) -> Result<Schema> {
        schema_versions.check(self.visible_columns(), if self.hidden_key { &[] } else { &self.key })?;
        Schema::build_with(self.declared_columns(), self.declared_key(), schema_versions)
    }

    /// Adds a visible column behind the others. Existing rows have `missing` in it.
    pub fn with_column(&self, column: Column, missing: Value) -> Result<Schema> {
        if column.name == ROWID_COLUMN {
            return Err(invalid(format!("the column name {ROWID_COLUMN} is reserved")));
        }
        let missing = fitted("", &column, &missing)?.into_owned();
        key::check_value("", &column, &missing)?;
        let mut columns = self.declared_columns();
        let schema_versions = self.schema_versions.with_column(column.data_type, missing)?;
        columns.push(column);
        Schema::build_with(columns, self.declared_key(), schema_versions)
    }

    /// Removes a column that is not part of the key.
    pub fn without_column(&self, index: usize) -> Result<Schema> {
        assert!(!self.key.contains(&index), "key columns cannot be dropped");
        let mut columns = self.declared_columns();
        columns.remove(index);
        let key = self.declared_key().iter().map(|&key| if key > index { key - 1 } else { key }).collect();
        Schema::build_with(columns, key, self.schema_versions.without_column(index)?)
    }

    /// Changes name or nullability of a visible column.
    pub fn with_changed(&self, index: usize, name: &str, nullable: bool) -> Result<Schema> {
        if name == ROWID_COLUMN {
            return Err(invalid(format!("the column name {ROWID_COLUMN} is reserved")));
        }
        let mut columns = self.declared_columns();
        let Column { data_type, modifier, .. } = columns[index];
        columns[index] = Column { name: name.to_owned(), data_type, nullable, modifier };
        Schema::build_with(columns, self.declared_key(), self.schema_versions.clone())
    }

    fn declared_columns(&self) -> Vec<Column> {
        self.visible_columns().to_vec()
    }

    fn declared_key(&self) -> Vec<usize> {
        if self.hidden_key { Vec::new() } else { self.key.clone() }
    }

    /// Schema versions of the table.
    pub(crate) fn schema_versions(&self) -> &SchemaVersions {
        &self.schema_versions
    }

    /// Layout of rows that are written now.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layouts[self.schema_versions.current()]
    }

    /// Layout of rows of a schema version.
    pub(crate) fn layout_of(&self, version: usize) -> Option<&Layout> {
        self.layouts.get(version)
    }

    /// Value of rows in a column that is younger than they are.
    pub(crate) fn missing(&self, column: usize) -> &Value {
        self.schema_versions.missing(column)
    }

    /// All columns, the hidden key last.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Columns that a user declared: all but the hidden key.
    pub fn visible_columns(&self) -> &[Column] {
        &self.columns[..self.columns.len() - usize::from(self.hidden_key)]
    }

    /// Columns whose strings have a limit or a form.
    pub(crate) fn constrained_texts(&self) -> &[usize] {
        &self.constrained_texts
    }

    /// Indexes of the key columns, in key order.
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    /// Names of the key columns, in key order.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.key.iter().map(|&index| self.columns[index].name.as_str())
    }

    /// Returns true if the key is the hidden column `rowid_`.
    pub fn hidden_key(&self) -> bool {
        self.hidden_key
    }

    /// Index of a column.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Width of the keys in the base table.
    pub fn key_width(&self) -> KeyWidth {
        self.key_width
    }

    pub(crate) fn key_offsets(&self) -> &[u16; KEY_COLUMNS_MAX] {
        &self.key_offsets
    }

    pub(crate) fn key_fixed_bytes(&self) -> usize {
        self.key_fixed_bytes
    }

    /// Returns true if all key columns are of fixed width (whatever `key_width`).
    pub(crate) fn key_is_fixed(&self) -> bool {
        self.key.iter().all(|&index| self.columns[index].data_type != DataType::Varchar)
    }

    /// Encodes the schema for the catalog, little-endian:
    ///
    /// | bytes | what |
    /// | --- | --- |
    /// | 1 | version, 1 |
    /// | 1 | flags: 1 hidden key |
    /// | 2 | number of columns, without the hidden one |
    /// | per column | name length (1), name, type tag (1), precision (1), scale (1), flags (1): 1 nullable, 2 has a modifier; if so its kind (1: 1 VARCHAR(n), 2 CHAR(n), 3 exact, 4 JSON, 5 JSONB), n (4) |
    /// | 1 | number of key columns, 0 if hidden |
    /// | 2 each | index of a key column |
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        let columns = self.visible_columns();
        bytes.push(SCHEMA_VERSION);
        bytes.push(if self.hidden_key { FLAG_HIDDEN_KEY } else { 0 });
        bytes.extend_from_slice(&(columns.len() as u16).to_le_bytes());
        for column in columns {
            bytes.push(column.name.len() as u8);
            bytes.extend_from_slice(column.name.as_bytes());
            let (tag, precision, scale) = type_tag(column.data_type);
            let modifier = modifier_tag(column.modifier);
            let nullable = if column.nullable { FLAG_NULLABLE } else { 0 };
            let flags = nullable | if modifier.is_some() { FLAG_MODIFIER } else { 0 };
            bytes.extend_from_slice(&[tag, precision, scale, flags]);
            if let Some((kind, length)) = modifier {
                bytes.push(kind);
                bytes.extend_from_slice(&length.to_le_bytes());
            }
        }
        let key: &[usize] = if self.hidden_key { &[] } else { &self.key };
        bytes.push(key.len() as u8);
        for &index in key {
            bytes.extend_from_slice(&(index as u16).to_le_bytes());
        }
        assert!(bytes.len() <= SCHEMA_BYTES_MAX);
        bytes
    }

    /// Decodes the bytes of [`Schema::to_bytes`]; others are `Corrupt`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Schema> {
        read_schema(bytes).ok_or_else(|| Error::corrupt("schema in the catalog", "malformed bytes"))?
    }
}

pub(crate) fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidSchema { reason: reason.into() }
}

fn check_columns(columns: &[Column]) -> Result<()> {
    if columns.len() > COLUMNS_MAX {
        return Err(invalid(format!("{} columns, at most {COLUMNS_MAX} are allowed", columns.len())));
    }
    let mut names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(invalid(format!("column {} appears twice", pair[0])));
    }
    for column in columns {
        let name = &column.name;
        column.modifier.check(name, column.data_type)?;
        if name.is_empty() || name.len() > COLUMN_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(invalid(format!(
                "column name {name:?}: 1 to {COLUMN_NAME_BYTES_MAX} bytes without control characters"
            )));
        }
        if let DataType::Decimal { precision, scale } = column.data_type
            && !((1..=crate::value::decimal::DECIMAL_PRECISION_MAX).contains(&precision)
                && scale <= precision)
        {
            return Err(invalid(format!(
                "column {name}: {} needs a precision of 1 to 38 and a scale within it",
                column.data_type
            )));
        }
    }
    Ok(())
}

fn check_key(columns: &[Column], key: &[usize]) -> Result<()> {
    if key.len() > KEY_COLUMNS_MAX {
        return Err(invalid(format!("{} key columns, at most {KEY_COLUMNS_MAX} are allowed", key.len())));
    }
    for (at, &index) in key.iter().enumerate() {
        if key[..at].contains(&index) {
            return Err(invalid(format!("key column {} appears twice", columns[index].name)));
        }
        columns[index].check_order()?;
    }
    Ok(())
}

/// Bytes of a fixed-width type in keys and values; `None` for VARCHAR.
pub(crate) fn fixed_bytes(data_type: DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        // The same bytes as an INT's and a DOUBLE's: their decoders read these too.
        DataType::SmallInt | DataType::Int | DataType::Date => Some(4),
        DataType::BigInt
        | DataType::Real
        | DataType::Double
        | DataType::Timestamp
        | DataType::TimestampTz => Some(8),
        DataType::Decimal { precision, .. }
            if precision <= crate::value::decimal::DECIMAL_SHORT_PRECISION_MAX =>
        {
            Some(8)
        }
        DataType::Decimal { .. } | DataType::Interval => Some(16),
        DataType::Varchar => None,
    }
}

fn lay_out(
    columns: Vec<Column>,
    key: Vec<usize>,
    hidden_key: bool,
    schema_versions: SchemaVersions,
) -> Schema {
    let mut key_offsets = [0u16; KEY_COLUMNS_MAX];
    let (mut key_fixed_bytes, mut fixed) = (0, true);
    for (ordinal, &index) in key.iter().enumerate() {
        key_offsets[ordinal] = key_fixed_bytes as u16;
        match fixed_bytes(columns[index].data_type) {
            Some(bytes) => key_fixed_bytes += bytes,
            None => {
                key_fixed_bytes += 2;
                fixed = false;
            }
        }
    }
    let key_width = match key_fixed_bytes {
        0..=8 if fixed => KeyWidth::Eight,
        9..=16 if fixed => KeyWidth::Sixteen,
        _ => KeyWidth::Variable,
    };
    let layouts = schema_versions
        .versions()
        .iter()
        .map(|version| Layout::new(&columns, &key, &schema_versions, version))
        .collect();
    let constrained_texts =
        (0..columns.len()).filter(|&index| columns[index].modifier.constrains_text()).collect();
    Schema {
        columns,
        key,
        hidden_key,
        schema_versions,
        layouts,
        key_offsets,
        key_width,
        key_fixed_bytes,
        constrained_texts,
    }
}

pub(crate) fn type_tag(data_type: DataType) -> (u8, u8, u8) {
    match data_type {
        DataType::Boolean => (1, 0, 0),
        DataType::Int => (2, 0, 0),
        DataType::BigInt => (3, 0, 0),
        DataType::Double => (4, 0, 0),
        DataType::Decimal { precision, scale } => (5, precision, scale),
        DataType::Date => (6, 0, 0),
        DataType::Timestamp => (7, 0, 0),
        DataType::Varchar => (8, 0, 0),
        DataType::TimestampTz => (9, 0, 0),
        DataType::SmallInt => (10, 0, 0),
        DataType::Real => (11, 0, 0),
        DataType::Interval => (12, 0, 0),
    }
}

pub(crate) fn type_of_tag(tag: u8, precision: u8, scale: u8) -> Option<DataType> {
    let data_type = match tag {
        1 => DataType::Boolean,
        2 => DataType::Int,
        3 => DataType::BigInt,
        4 => DataType::Double,
        5 => DataType::Decimal { precision, scale },
        6 => DataType::Date,
        7 => DataType::Timestamp,
        8 => DataType::Varchar,
        9 => DataType::TimestampTz,
        10 => DataType::SmallInt,
        11 => DataType::Real,
        12 => DataType::Interval,
        _ => return None,
    };
    Some(data_type)
}

fn modifier_tag(modifier: Modifier) -> Option<(u8, u32)> {
    match modifier {
        Modifier::None => None,
        Modifier::Varchar(length) => Some((1, length)),
        Modifier::Char(length) => Some((2, length)),
        Modifier::Exact => Some((3, 0)),
        Modifier::Json => Some((4, 0)),
        Modifier::Jsonb => Some((5, 0)),
    }
}

fn modifier_of_tag(kind: u8, length: u32) -> Option<Modifier> {
    match (kind, length) {
        (1, length) => Some(Modifier::Varchar(length)),
        (2, length) => Some(Modifier::Char(length)),
        (3, 0) => Some(Modifier::Exact),
        (4, 0) => Some(Modifier::Json),
        (5, 0) => Some(Modifier::Jsonb),
        _ => None,
    }
}

/// `None` if the bytes are malformed, `Some(Err)` if they break a rule of schemas.
fn read_schema(mut bytes: &[u8]) -> Option<Result<Schema>> {
    let mut take = |count: usize| -> Option<&[u8]> {
        let (head, tail) = bytes.split_at_checked(count)?;
        bytes = tail;
        Some(head)
    };
    let header = take(4)?;
    if header[0] != SCHEMA_VERSION || header[1] & !FLAG_HIDDEN_KEY != 0 {
        return None;
    }
    let column_count = usize::from(u16::from_le_bytes([header[2], header[3]]));
    let mut columns = Vec::with_capacity(column_count.min(COLUMNS_MAX));
    for _ in 0..column_count {
        let name_bytes = usize::from(take(1)?[0]);
        let name = std::str::from_utf8(take(name_bytes)?).ok()?.to_owned();
        let rest = take(4)?;
        let data_type = type_of_tag(rest[0], rest[1], rest[2])?;
        let flags = rest[3];
        let modifier = if flags & FLAG_MODIFIER == 0 {
            Modifier::None
        } else {
            let modifier = take(5)?;
            let length = u32::from_le_bytes([modifier[1], modifier[2], modifier[3], modifier[4]]);
            modifier_of_tag(modifier[0], length)?
        };
        columns.push(Column { name, data_type, nullable: flags & FLAG_NULLABLE != 0, modifier });
    }
    let key_count = usize::from(take(1)?[0]);
    let mut key = Vec::with_capacity(key_count);
    for _ in 0..key_count {
        let index = take(2)?;
        let index = usize::from(u16::from_le_bytes([index[0], index[1]]));
        if index >= columns.len() {
            return None;
        }
        key.push(index);
    }
    let hidden = header[1] & FLAG_HIDDEN_KEY != 0;
    if !bytes.is_empty() || hidden != key.is_empty() || columns.is_empty() {
        return None;
    }
    Some(
        Schema::build(columns, key)
            .map_err(|error| Error::corrupt("schema in the catalog", error.to_string())),
    )
}
