//! Secondary indexes: states of their own that map values of columns to rows.
//!
//! An index is in the group of its table, and its entries change in the transaction that changes the rows, so
//! both changes are committed or neither is; nothing of an index is written outside of a commit. An entry is
//! a key and a value of the index's state:
//!
//! | index | key | value |
//! | --- | --- | --- |
//! | not unique | columns, key of the row | nothing |
//! | unique, no column NULL | columns | key of the row |
//! | unique, a column NULL | columns, key of the row | nothing |
//! | hashed | hash code of the columns, key of the row | nothing |
//!
//! Each column is a byte 1 and its value as in a key ([`crate::encoding`]), or a byte 2 for NULL, so that
//! NULLs come last. Because equal values of a unique index are one key, the second of two transactions that
//! insert them gets a conflict.
//!
//! A hashed index finds the rows with a hash code, some of which may have other values: who reads compares them
//! ([`cursor`]). Its entries are short, however long the values are.
//!
//! # Invariants
//!
//! - For every snapshot from [`Index::readable_from`] on, the index has exactly one entry per row. While an
//!   index is built, `readable_from` is infinite: writers maintain it already, no transaction reads it.
//! - Entries take at most the structures' `KEY_BYTES_MAX`; [`Error::KeyTooLarge`] before anything is written.

pub(crate) mod build;
pub(crate) mod cursor;
pub(crate) mod few;
pub(crate) mod hashing;
pub(crate) mod maintenance;
pub(crate) mod unique_key;

use crate::encoding::key;
use crate::error::{Error, Result};
use crate::index::hashing::{HASH_BYTES, hash_code};
use crate::schema::definition::IndexDefinition;
use crate::schema::{Schema, fixed_bytes, invalid};
use crate::value::{DataType, Row, Value};
use entresol_structures::{KEY_BYTES_MAX, KeyBytes, KeyWidth};
use entresol_transactions::{AtomicTimestamp, INFINITY, KeyRange, State, StateId, Timestamp, Transaction};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PRESENT: u8 = 1;
const NULL: u8 = 2;

/// Secondary index of a table.
#[derive(Debug)]
pub struct Index {
    definition: IndexDefinition,
    id: StateId,
    /// State of its entries, or the damage.
    state: Result<Arc<State>, String>,
    readable_from: AtomicTimestamp,
}

/// Entry of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) key: KeyBytes,
    pub(crate) value: KeyBytes,
    /// True if no other row may have the same key.
    pub(crate) exclusive: bool,
}

impl Index {
    pub(crate) fn new(
        definition: IndexDefinition,
        id: StateId,
        state: Result<Arc<State>, String>,
        readable_from: Timestamp,
    ) -> Arc<Index> {
        state.iter().for_each(|state| state.leave_uncounted());
        Arc::new(Index { definition, id, state, readable_from: AtomicTimestamp::new(readable_from) })
    }

    /// Same index with another definition: renamed, or of columns that have moved.
    pub(crate) fn redefined(&self, definition: IndexDefinition) -> Arc<Index> {
        Index::new(definition, self.id, self.state.clone(), self.readable_from.load(Ordering::Acquire))
    }

    /// Name, columns and kind.
    pub fn definition(&self) -> &IndexDefinition {
        &self.definition
    }

    /// Name of the index.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Number of its state.
    pub fn state_id(&self) -> StateId {
        self.id
    }

    /// State of the index; an error if it is damaged.
    pub(crate) fn state(&self, table: &str) -> Result<&Arc<State>> {
        self.state.as_ref().map_err(|reason| self.corrupt(table, reason))
    }

    /// Damage of its state, if there is any.
    pub fn damage(&self) -> Option<&str> {
        self.state.as_ref().err().map(String::as_str)
    }

    /// Bytes of DRAM for its hot entries; 0: it has none.
    pub fn hot_bytes(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.hot_bytes())
    }

    /// First timestamp whose snapshots find all rows in the index.
    pub fn readable_from(&self) -> Timestamp {
        self.readable_from.load(Ordering::Acquire)
    }

    /// Returns true if the transaction may use the index for reading.
    pub fn is_readable(&self, tx: &Transaction) -> bool {
        // Indexes have no version history.
        self.state.is_ok() && tx.sees(self.readable_from()) && tx.as_of().is_none()
    }

    pub(crate) fn set_readable_from(&self, from: Timestamp) {
        assert_eq!(self.readable_from.swap(from, Ordering::AcqRel), INFINITY, "an index is built once");
    }

    /// Entry of a row, with columns from `value` and the encoded key `primary`.
    pub(crate) fn entry(
        &self,
        table: &str,
        schema: &Schema,
        primary: &[u8],
        value: impl Fn(usize) -> Value,
    ) -> Result<IndexEntry> {
        let (mut bytes, has_null) = self.encoded_columns(schema, value);
        if self.definition.hashed {
            bytes = hash_code(&bytes);
        }
        let exclusive = self.definition.unique && !has_null;
        let mut entry = IndexEntry { key: bytes, value: KeyBytes::new(), exclusive };
        if exclusive {
            entry.value.extend_from_slice(primary)
        } else {
            entry.key.extend_from_slice(primary)
        }
        if entry.key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLarge {
                table: format!("{table}, index {}", self.name()),
                bytes: entry.key.len(),
                bytes_max: KEY_BYTES_MAX,
            });
        }
        Ok(entry)
    }

    /// Values of a row's columns, and true if one of them is NULL.
    pub(crate) fn encoded_columns(
        &self,
        schema: &Schema,
        value: impl Fn(usize) -> Value,
    ) -> (KeyBytes, bool) {
        let (mut bytes, mut has_null) = (KeyBytes::new(), false);
        for &column in &self.definition.columns {
            let value = value(column);
            has_null |= value.is_null();
            encode_column(schema.columns()[column].data_type, &value, &mut bytes);
        }
        (bytes, has_null)
    }

    /// Key of the row of an entry.
    pub(crate) fn primary<'e>(
        &self,
        table: &str,
        schema: &Schema,
        entry_key: &'e [u8],
        entry_value: &'e [u8],
    ) -> Result<&'e [u8]> {
        let corrupt = || self.corrupt(table, "an entry that is malformed");
        let (end, has_null) = self.columns_end(schema, entry_key).ok_or_else(corrupt)?;
        if self.definition.unique && !has_null {
            return Ok(entry_value);
        }
        let rest = &entry_key[end..];
        match schema.key_width() {
            KeyWidth::Eight => rest.get(..8).ok_or_else(corrupt),
            KeyWidth::Sixteen => rest.get(..16).ok_or_else(corrupt),
            KeyWidth::Variable => Ok(rest),
        }
    }

    /// End of the columns in the key of an entry, and true if one of them is NULL.
    fn columns_end(&self, schema: &Schema, bytes: &[u8]) -> Option<(usize, bool)> {
        let (mut at, mut has_null) = (0, false);
        if self.definition.hashed {
            return (bytes.len() >= HASH_BYTES).then_some((HASH_BYTES, false));
        }
        for &column in &self.definition.columns {
            match *bytes.get(at)? {
                NULL => {
                    has_null = true;
                    at += 1;
                }
                PRESENT => {
                    at += 1 + match fixed_bytes(schema.columns()[column].data_type) {
                        Some(width) => width,
                        None => key::string_end(bytes.get(at + 1..)?)? + 2,
                    };
                }
                _ => return None,
            }
        }
        (at <= bytes.len()).then_some((at, has_null))
    }

    /// Formats the values of the columns of an entry, for messages: `1, a`.
    pub(crate) fn display(&self, schema: &Schema, entry_key: &[u8]) -> String {
        let mut at = 0;
        let mut texts = Vec::new();
        if self.definition.hashed {
            let code = entry_key.get(..HASH_BYTES).unwrap_or_default();
            return code.iter().fold("hash code ".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        }
        for &column in &self.definition.columns {
            let data_type = schema.columns()[column].data_type;
            let Some((&tag, rest)) = entry_key.get(at..).and_then(<[u8]>::split_first) else { break };
            let width = match (tag, fixed_bytes(data_type)) {
                (NULL, _) => 0,
                (_, Some(width)) => width,
                (_, None) => key::string_end(rest).map_or(rest.len(), |end| end + 2),
            };
            let value = match tag {
                NULL => Some(Value::Null),
                _ => rest.get(..width).and_then(|bytes| key::decode_column(data_type, bytes)),
            };
            texts.push(value.map_or("?".to_owned(), |value| value.display(data_type).to_string()));
            at += 1 + width;
        }
        texts.join(", ")
    }

    /// Range of keys of the entries between bounds on leading columns; `None` if it is empty.
    ///
    /// If a bound has fewer columns than the other, the other restricts a further column, which excludes
    /// NULL.
    pub(crate) fn range(
        &self,
        table: &str,
        schema: &Schema,
        lower: &Bound<Row>,
        upper: &Bound<Row>,
    ) -> Result<Option<KeyRange>> {
        let columns_of = |bound: &Bound<Row>| match bound {
            Bound::Unbounded => 0,
            Bound::Included(values) | Bound::Excluded(values) => values.len(),
        };
        if self.definition.hashed {
            let code = hash_code(&self.wanted(table, schema, lower, upper)?);
            return Ok(Some(KeyRange {
                upper: key::successor(&code).map_or(Bound::Unbounded, Bound::Excluded),
                lower: Bound::Included(code),
            }));
        }
        let restricts = columns_of(lower) > columns_of(upper);
        let before_nulls = |values: &[Value]| -> Result<Option<KeyBytes>> {
            let mut bytes = self.prefix(table, schema, values)?;
            bytes.push(NULL);
            Ok(Some(bytes))
        };
        let from = match lower {
            Bound::Unbounded => None,
            Bound::Included(values) => Some(self.prefix(table, schema, values)?),
            Bound::Excluded(values) => match key::successor(&self.prefix(table, schema, values)?) {
                Some(bytes) => Some(bytes),
                None => return Ok(None),
            },
        };
        let to = match upper {
            Bound::Unbounded if restricts => before_nulls(&[])?,
            Bound::Unbounded => None,
            Bound::Included(values) if restricts => before_nulls(values)?,
            Bound::Included(values) => key::successor(&self.prefix(table, schema, values)?),
            Bound::Excluded(values) => Some(self.prefix(table, schema, values)?),
        };
        if let (Some(from), Some(to)) = (&from, &to)
            && from >= to
        {
            return Ok(None);
        }
        Ok(Some(KeyRange {
            lower: from.map_or(Bound::Unbounded, Bound::Included),
            upper: to.map_or(Bound::Unbounded, Bound::Excluded),
        }))
    }

    /// Values of all columns that bounds of a hashed index ask for; an error if they are a range.
    pub(crate) fn wanted(
        &self,
        table: &str,
        schema: &Schema,
        lower: &Bound<Row>,
        upper: &Bound<Row>,
    ) -> Result<KeyBytes> {
        match (lower, upper) {
            (Bound::Included(values), Bound::Included(others))
                if values == others && values.len() == self.definition.columns.len() =>
            {
                self.prefix(table, schema, values)
            }
            _ => Err(invalid(format!(
                "index {} of table {table} has hash codes, which find equal values only",
                self.name()
            ))),
        }
    }

    fn prefix(&self, table: &str, schema: &Schema, values: &[Value]) -> Result<KeyBytes> {
        let mut bytes = KeyBytes::new();
        for (&column, value) in self.definition.columns.iter().zip(values) {
            let column = &schema.columns()[column];
            let value = column.modifier.search_value(value);
            if !value.is_null() {
                key::check_value(table, column, &value)?;
            }
            encode_column(column.data_type, &value, &mut bytes);
        }
        Ok(bytes)
    }

    pub(crate) fn corrupt(&self, table: &str, what: &str) -> Error {
        let advice = "or drop the index and create it again";
        Error::corrupt(format!("index {} of table {table}", self.name()), format!("{what} ({advice})"))
    }
}

/// Key width of the state of an index.
pub(crate) fn key_width(schema: &Schema, index: &IndexDefinition) -> KeyWidth {
    let primary = match schema.key_width() {
        KeyWidth::Eight => 8,
        KeyWidth::Sixteen => 16,
        KeyWidth::Variable => return KeyWidth::Variable,
    };
    let bytes = if index.hashed {
        Some(primary + HASH_BYTES)
    } else {
        index.columns.iter().try_fold(primary, |bytes, &column| {
            Some(bytes + 1 + fixed_bytes(schema.columns()[column].data_type)?)
        })
    };
    match bytes {
        Some(bytes) if bytes <= 16 => KeyWidth::Sixteen,
        _ => KeyWidth::Variable,
    }
}

fn encode_column(data_type: DataType, value: &Value, bytes: &mut KeyBytes) {
    match value {
        Value::Null => bytes.push(NULL),
        value => {
            bytes.push(PRESENT);
            key::encode_value(data_type, value, bytes);
        }
    }
}
