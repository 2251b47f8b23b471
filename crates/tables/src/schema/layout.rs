//! Row layouts: the position of each column of a table in the values of rows of one schema version.
//!
//! A schema version lists the columns of a value ([`crate::schema::versions`]); its layout is
//! computed, never stored. Columns that rows of the version do not have are [`ColumnSlot::Missing`].

use crate::schema::versions::{SchemaVersion, SchemaVersions};
use crate::schema::{Column, fixed_bytes};
use crate::value::DataType;

/// Position of a column; offsets are in the key or in the value (see [`crate::encoding`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnSlot {
    /// The `ordinal`-th key column, of fixed width.
    KeyFixed { ordinal: usize },
    /// The `ordinal`-th key column, a VARCHAR; its string is the value's `variable`-th if that is not empty.
    KeyVarchar { ordinal: usize, variable: usize },
    /// A fixed-width column of the value.
    Fixed { null_bit: usize, offset: usize },
    /// The `variable`-th VARCHAR of the value.
    Varchar { null_bit: usize, variable: usize },
    /// The row is older than the column.
    Missing,
}

/// Positions of the columns in rows of one schema version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// One per column of the table.
    slots: Vec<ColumnSlot>,
    /// Number of strings, those of key columns included.
    variables: usize,
    /// Offset of the ends of the strings in the value.
    ends_offset: usize,
    /// Value offsets of BOOLEAN columns: the only fixed type with invalid bytes. Dropped columns are among
    /// them.
    boolean_offsets: Vec<usize>,
}

impl Layout {
    /// Layout of a schema version of a table with these columns, the hidden key included.
    pub(crate) fn new(
        columns: &[Column],
        key: &[usize],
        schema_versions: &SchemaVersions,
        version: &SchemaVersion,
    ) -> Layout {
        let mut slots = vec![ColumnSlot::Missing; columns.len()];
        let mut boolean_offsets = Vec::new();
        let (mut offset, mut variables) = (1 + version.columns().len().div_ceil(8), 0);
        for (null_bit, stored) in version.columns().iter().enumerate() {
            let slot = match fixed_bytes(stored.data_type) {
                Some(bytes) => {
                    if stored.data_type == DataType::Boolean {
                        boolean_offsets.push(offset);
                    }
                    offset += bytes;
                    ColumnSlot::Fixed { null_bit, offset: offset - bytes }
                }
                None => {
                    variables += 1;
                    ColumnSlot::Varchar { null_bit, variable: variables - 1 }
                }
            };
            if let Some(column) = schema_versions.column_of(stored.id) {
                slots[column] = slot;
            }
        }
        for (ordinal, &column) in key.iter().enumerate() {
            slots[column] = match fixed_bytes(columns[column].data_type) {
                Some(_) => ColumnSlot::KeyFixed { ordinal },
                None => {
                    variables += 1;
                    ColumnSlot::KeyVarchar { ordinal, variable: variables - 1 }
                }
            };
        }
        Layout { slots, variables, ends_offset: offset, boolean_offsets }
    }

    pub(crate) fn slot(&self, column: usize) -> ColumnSlot {
        self.slots[column]
    }

    pub(crate) fn variables(&self) -> usize {
        self.variables
    }

    pub(crate) fn ends_offset(&self) -> usize {
        self.ends_offset
    }

    pub(crate) fn boolean_offsets(&self) -> &[usize] {
        &self.boolean_offsets
    }

    /// Bytes of a value whose strings are all empty.
    pub(crate) fn value_bytes_min(&self) -> usize {
        self.ends_offset + 4 * self.variables
    }
}
