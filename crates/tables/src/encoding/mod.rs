//! Encoding of rows: one key and one value per row in the base table.
//!
//! # Keys
//!
//! The key columns one after the other, in key order. Bytes compare (memcmp) as the values do, column by
//! column, which makes range scans possible. Key columns are never NULL.
//!
//! | type | bytes | encoding |
//! | --- | --- | --- |
//! | BOOLEAN | 1 | 0 or 1 |
//! | SMALLINT, INT, DATE | 4 | big-endian, sign bit flipped |
//! | BIGINT, TIMESTAMP | 8 | big-endian, sign bit flipped |
//! | REAL, DOUBLE | 8 | big-endian bits; sign bit flipped if positive, all bits if negative; -0.0 as 0.0, one NaN |
//! | DECIMAL to 18 digits | 8 | unscaled, as BIGINT |
//! | DECIMAL above | 16 | unscaled, big-endian, sign bit flipped |
//! | VARCHAR | len + 2 | UTF-8 with 00 written as 00 FF, ended by 00 00; a CHAR(n) without the blanks at its end |
//!
//! INTERVAL is in no key: intervals that are equal have several forms.
//!
//! Keys of fixed-width columns are padded with zeros to 8 or 16 bytes (the index's key width).
//!
//! # Values
//!
//! All other columns. A key column is decoded from the key and takes no room here, with one exception: a
//! VARCHAR of the key that contains U+0000 cannot be borrowed from its escaped form, so its string is stored
//! here once more. Little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | (n + 7) / 8 | bitmap of the n value columns in column order, bit set = NULL; unused bits 0 |
//! | per fixed-width column | 1, 4, 8 or 16 bytes in column order, as above but little-endian and without flips; zeros if NULL; INTERVAL: microseconds (8), days (4), months (4) |
//! | 4 each | end of each string, counted from the first string's start: value VARCHARs in column order, then key VARCHARs in key order |
//! | rest | the strings, UTF-8; that of a key VARCHAR is empty unless it contains U+0000 |
//!
//! # Invariants
//!
//! - Decoders never panic, whatever the bytes: they return `Corrupt` with the table's name.
//! - Encoded keys are at most `KEY_BYTES_MAX`, values at most `ROW_BYTES_MAX` bytes.
//! - Nothing here touches a pool; a torn row cannot be seen, because rows become visible by commits only.

pub(crate) mod key;
pub(crate) mod page;
pub(crate) mod row;

#[cfg(test)]
mod tests;
