//! Values between Arrow and PostgreSQL: corresponding types, and both formats of each, in both directions.
//!
//! | Arrow | PostgreSQL |
//! | --- | --- |
//! | Boolean | bool |
//! | Int8, Int16, UInt8 | int2 |
//! | Int32, UInt16 | int4 |
//! | Int64 | int8 |
//! | UInt32 | oid |
//! | UInt64, decimals | numeric |
//! | Float16, Float32 | float4 |
//! | Float64 | float8 |
//! | Utf8 and its kin, NULL, all others | text |
//! | Binary and its kin | bytea |
//! | Date32, Date64 | date |
//! | Time32, Time64 | time |
//! | Timestamp, without and with zone | timestamp, timestamptz |
//! | Interval, Duration | interval |
//! | lists of these | their arrays |

pub(crate) mod binary_copy;
pub(crate) mod cell;
pub(crate) mod decimal;
pub(crate) mod list;
pub(crate) mod parameter;
pub(crate) mod rows;
pub(crate) mod temporal;
pub(crate) mod types;

/// Format of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

impl Format {
    /// The format of a code of the protocol.
    pub(crate) fn of(code: i16) -> Option<Format> {
        match code {
            0 => Some(Format::Text),
            1 => Some(Format::Binary),
            _ => None,
        }
    }

    /// Its code.
    pub(crate) fn code(self) -> i16 {
        match self {
            Format::Text => 0,
            Format::Binary => 1,
        }
    }
}
