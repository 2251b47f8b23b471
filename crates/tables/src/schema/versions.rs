//! Schema versions of a table: they make adding and dropping columns cheap.
//!
//! ```text
//!   CREATE TABLE t (k, a, b)   version 0: a b     the first byte of a row names its schema version;
//!   ADD COLUMN c DEFAULT 7     version 1: a b c   a row of version 0 has 7 in c
//!   DROP COLUMN a              version 2: b c     rows of version 0 and 1 have an invisible a
//! ```
//!
//! # Invariants
//!
//! - Every visible column has an identity, a number that no other column of the table has had. Key columns
//!   have one too, but lie in the key, so no schema version contains them.
//! - A schema version is retained as long as the table exists: rows of it may lie anywhere. There are at most
//!   [`SCHEMA_VERSIONS_MAX`].
//! - The value of older rows in a new column is fixed when the column is added, whatever its default later
//!   is.
//!
//! A crash leaves the catalog's old or new entry; both have all schema versions of rows that were committed
//! before.

use crate::encoding::key;
use crate::error::{Error, Result};
use crate::schema::{COLUMNS_MAX, Column, invalid, type_of_tag, type_tag};
use crate::value::{DataType, Value};

/// Maximum number of schema versions of a table: so often can columns be added or dropped.
pub const SCHEMA_VERSIONS_MAX: usize = 200;
// The first byte of a row is the schema version plus one.
const _: () = assert!(SCHEMA_VERSIONS_MAX < u8::MAX as usize);

/// Column as rows of a schema version store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredColumn {
    pub(crate) id: u16,
    pub(crate) data_type: DataType,
}

/// Columns of the values of rows, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaVersion(Vec<StoredColumn>);

impl SchemaVersion {
    pub(crate) fn columns(&self) -> &[StoredColumn] {
        &self.0
    }
}

/// Schema versions of a table; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaVersions {
    /// Identity of each visible column.
    ids: Vec<u16>,
    /// Value of older rows in each visible column.
    missing: Vec<Value>,
    next_id: u16,
    versions: Vec<SchemaVersion>,
    /// Schema version of rows that are written now.
    current: usize,
}

impl SchemaVersions {
    /// Versions of a new table; `key` as declared, empty for a hidden one.
    pub(crate) fn new(columns: &[Column], key: &[usize]) -> SchemaVersions {
        let count = columns.len().min(usize::from(u16::MAX)) as u16;
        let value_columns = (0..count).filter(|id| !key.contains(&usize::from(*id)));
        let stored =
            value_columns.map(|id| StoredColumn { id, data_type: columns[usize::from(id)].data_type });
        SchemaVersions {
            ids: (0..count).collect(),
            missing: vec![Value::Null; columns.len()],
            next_id: count,
            versions: vec![SchemaVersion(stored.collect())],
            current: 0,
        }
    }

    pub(crate) fn versions(&self) -> &[SchemaVersion] {
        &self.versions
    }

    pub(crate) fn current(&self) -> usize {
        self.current
    }

    pub(crate) fn missing(&self, column: usize) -> &Value {
        // The hidden key is never missing and never requested.
        &self.missing[column]
    }

    /// Identity of a visible column.
    pub(crate) fn id_of(&self, column: usize) -> Option<u16> {
        self.ids.get(column).copied()
    }

    /// Visible column of an identity; none if it was dropped.
    pub(crate) fn column_of(&self, id: u16) -> Option<usize> {
        self.ids.iter().position(|&known| known == id)
    }

    /// Returns true if no column was ever added or dropped.
    pub(crate) fn is_plain(&self) -> bool {
        self.versions.len() == 1 && usize::from(self.next_id) == self.ids.len()
    }

    pub(crate) fn with_column(&self, data_type: DataType, missing: Value) -> Result<SchemaVersions> {
        let mut changed = self.clone();
        let id = self.next_id;
        changed.next_id = id.checked_add(1).ok_or_else(|| invalid("the table has had too many columns"))?;
        changed.ids.push(id);
        changed.missing.push(missing);
        let mut columns = self.versions[self.current].0.clone();
        columns.push(StoredColumn { id, data_type });
        changed.set_current_version(SchemaVersion(columns))?;
        Ok(changed)
    }

    pub(crate) fn without_column(&self, column: usize) -> Result<SchemaVersions> {
        let mut changed = self.clone();
        let id = changed.ids.remove(column);
        changed.missing.remove(column);
        let columns =
            self.versions[self.current].0.iter().filter(|stored| stored.id != id).copied().collect();
        changed.set_current_version(SchemaVersion(columns))?;
        Ok(changed)
    }

    fn set_current_version(&mut self, version: SchemaVersion) -> Result<()> {
        self.current = match self.versions.iter().position(|known| *known == version) {
            Some(known) => known,
            None if self.versions.len() >= SCHEMA_VERSIONS_MAX => {
                return Err(invalid(format!(
                    "the table has {SCHEMA_VERSIONS_MAX} schema versions, the maximum: copy it with CREATE TABLE AS"
                )));
            }
            None => {
                self.versions.push(version);
                self.versions.len() - 1
            }
        };
        Ok(())
    }

    /// Validates schema versions that were read against the columns and the declared key of their table.
    pub(crate) fn check(&self, columns: &[Column], key: &[usize]) -> Result<()> {
        let corrupt = |reason: &str| Err(Error::corrupt("schema in the catalog", reason));
        if self.ids.len() != columns.len() || self.missing.len() != columns.len() {
            return corrupt("not every column has an identity");
        }
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) || ids.last().is_some_and(|&id| id >= self.next_id) {
            return corrupt("two columns with one identity");
        }
        let Some(version) = self.versions.get(self.current) else {
            return corrupt("no current schema version");
        };
        let value_columns = (0..columns.len()).filter(|column| !key.contains(column));
        let mut expected: Vec<(u16, DataType)> =
            value_columns.map(|column| (self.ids[column], columns[column].data_type)).collect();
        let mut stored: Vec<_> = version.0.iter().map(|stored| (stored.id, stored.data_type)).collect();
        expected.sort_unstable_by_key(|(id, _)| *id);
        stored.sort_unstable_by_key(|(id, _)| *id);
        if expected != stored {
            return corrupt("the current schema version differs from the columns");
        }
        let is_alien = |stored: &StoredColumn| match self.column_of(stored.id) {
            Some(column) => key.contains(&column) || columns[column].data_type != stored.data_type,
            None => stored.id >= self.next_id,
        };
        if self.versions.iter().flat_map(|version| &version.0).any(is_alien) {
            return corrupt("a schema version has an unknown column");
        }
        for (column, missing) in columns.iter().zip(&self.missing) {
            if !missing.is_of(column.data_type) {
                return corrupt("a value of the wrong type for older rows");
            }
        }
        Ok(())
    }

    /// Encodes the schema versions for the catalog, little-endian:
    ///
    /// | bytes | what |
    /// | --- | --- |
    /// | 2 | next identity |
    /// | per visible column | identity (2), length of older rows' value (2; 0: NULL), that value, encoded as in a key |
    /// | 1, 1 | number of schema versions, the current one |
    /// | per version | number of columns (2); per column identity (2), type tag, precision, scale |
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.next_id.to_le_bytes().to_vec();
        for (id, missing) in self.ids.iter().zip(&self.missing) {
            bytes.extend_from_slice(&id.to_le_bytes());
            let encoded = key::encode_one(missing);
            bytes.extend_from_slice(&(encoded.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&encoded);
        }
        bytes.extend_from_slice(&[self.versions.len() as u8, self.current as u8]);
        for version in &self.versions {
            bytes.extend_from_slice(&(version.0.len() as u16).to_le_bytes());
            for stored in &version.0 {
                bytes.extend_from_slice(&stored.id.to_le_bytes());
                let (tag, precision, scale) = type_tag(stored.data_type);
                bytes.extend_from_slice(&[tag, precision, scale]);
            }
        }
        bytes
    }

    /// Decodes the bytes of [`SchemaVersions::to_bytes`] of a table with these columns; `None` if they are
    /// malformed.
    pub(crate) fn from_bytes(columns: &[Column], mut bytes: &[u8]) -> Option<SchemaVersions> {
        let mut take = |count: usize| -> Option<&[u8]> {
            let (head, tail) = bytes.split_at_checked(count)?;
            bytes = tail;
            Some(head)
        };
        let short = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let next_id = short(take(2)?);
        let (mut ids, mut missing) = (Vec::new(), Vec::new());
        for column in columns {
            ids.push(short(take(2)?));
            let length = usize::from(short(take(2)?));
            missing.push(key::decode_one(column.data_type, take(length)?)?);
        }
        let counts = take(2)?;
        let (version_count, current) = (usize::from(counts[0]), usize::from(counts[1]));
        if version_count > SCHEMA_VERSIONS_MAX {
            return None;
        }
        let mut versions = Vec::with_capacity(version_count);
        for _ in 0..version_count {
            let count = usize::from(short(take(2)?));
            if count > COLUMNS_MAX {
                return None;
            }
            let mut stored = Vec::with_capacity(count);
            for _ in 0..count {
                let column = take(5)?;
                let data_type = type_of_tag(column[2], column[3], column[4])?;
                stored.push(StoredColumn { id: short(column), data_type });
            }
            versions.push(SchemaVersion(stored));
        }
        bytes.is_empty().then_some(SchemaVersions { ids, missing, next_id, versions, current })
    }
}
