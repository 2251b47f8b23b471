//! The binary format of COPY, of PostgreSQL's manual:
//!
//! ```text
//!   header    "PGCOPY\n\xff\r\n\0", flags (i32: bit 16 would be OIDs), length of an extension (i32), the extension
//!   a row     fields (i16), each: its length (i32, -1 is NULL) and its value as in binary parameters
//!   trailer   -1 (i16)
//! ```
//!
//! Memory: one row, and the bytes that were pushed last. A row is at most [`LINE_BYTES_MAX`] long, as a line
//! is.

use super::cell::Column;
use super::temporal::{UTC, Zone};
use super::types::declared;
use super::{Format, parameter};
use crate::error::{Outcome, Report};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use entresol::arrow::datatypes::{DataType, Field};
use entresol::arrow::record_batch::RecordBatch;
use entresol::query::LINE_BYTES_MAX;
use entresol::query::datafusion::common::ScalarValue;
use pgwire::api::Type;

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const HEADER_BYTES: usize = SIGNATURE.len() + 4 + 4;
/// Bits of the flags without which the rest cannot be read; of them OIDs is the only one that ever was.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// Header of the data.
pub(crate) fn header() -> Vec<u8> {
    [SIGNATURE, &[0; 8]].concat()
}

/// Trailer of the data.
pub(crate) const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

/// The rows of a batch, in order.
pub(crate) struct Rows<'a> {
    columns: Vec<Column<'a>>,
    count: i16,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(batch: &'a RecordBatch) -> Outcome<Rows<'a>> {
        let columns: Outcome<Vec<_>> = batch
            .schema_ref()
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, array)| Column::of_field(field, array, Format::Binary, Zone::default()))
            .collect();
        let count = i16::try_from(batch.num_columns());
        let count = count.map_err(|_| Report::error("54011", "too many columns for the binary format"))?;
        Ok(Rows { columns: columns?, count })
    }

    /// Appends a row.
    pub(crate) fn write(&self, row: usize, out: &mut BytesMut) -> Outcome<()> {
        out.put_i16(self.count);
        self.columns.iter().try_for_each(|column| column.write(row, out))
    }
}

/// Reader of rows from pieces of any length.
pub(crate) struct Reader {
    /// Type of each column on the wire, and in Arrow.
    columns: Vec<(Type, DataType)>,
    rest: BytesMut,
    expects: ExpectedBytes,
    /// The rows that were read.
    rows: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedBytes {
    Header,
    /// Remaining bytes of the header's extension.
    Extension(usize),
    Row,
    /// Nothing: the trailer was there.
    End,
}

fn malformed(message: impl Into<String>) -> Report {
    Report::error("22P04", message)
}

impl Reader {
    /// Rows of these columns.
    pub(crate) fn new(fields: &[Field]) -> Reader {
        let columns = fields.iter().map(|field| (declared(field).0, field.data_type().clone())).collect();
        Reader { columns, rest: BytesMut::new(), expects: ExpectedBytes::Header, rows: 0 }
    }

    /// The row that is being read, from 1.
    pub(crate) fn row(&self) -> u64 {
        self.rows + 1
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The next complete row; `None` if there is none yet.
    pub(crate) fn next(&mut self) -> Outcome<Option<Vec<ScalarValue>>> {
        loop {
            match self.expects {
                ExpectedBytes::Header if self.rest.len() < HEADER_BYTES => {
                    // Data of another format is refused at its first bytes.
                    let seen = self.rest.len().min(SIGNATURE.len());
                    return if self.rest[..seen] == SIGNATURE[..seen] {
                        Ok(None)
                    } else {
                        Err(malformed("COPY file signature not recognized"))
                    };
                }
                ExpectedBytes::Header => self.header()?,
                ExpectedBytes::Extension(left) => {
                    let here = left.min(self.rest.len());
                    self.rest.advance(here);
                    if here < left {
                        self.expects = ExpectedBytes::Extension(left - here);
                        return Ok(None);
                    }
                    self.expects = ExpectedBytes::Row;
                }
                ExpectedBytes::Row => {
                    if self.rest.len() >= 2 && self.rest[..2] == TRAILER {
                        self.rest.advance(2);
                        self.expects = ExpectedBytes::End;
                        continue;
                    }
                    let row = self.take_row()?;
                    self.rows += u64::from(row.is_some());
                    return Ok(row);
                }
                ExpectedBytes::End if self.rest.is_empty() => return Ok(None),
                ExpectedBytes::End => return Err(malformed("received copy data after EOF marker")),
            }
        }
    }

    /// The end of the data.
    pub(crate) fn finish(&self) -> Outcome<()> {
        // A file may end between rows, as before there were trailers.
        let between = self.expects == ExpectedBytes::Row && self.rest.is_empty();
        if between || self.expects == ExpectedBytes::End {
            Ok(())
        } else {
            Err(malformed("unexpected EOF in COPY data"))
        }
    }

    fn header(&mut self) -> Outcome<()> {
        if !self.rest.starts_with(SIGNATURE) {
            return Err(malformed("COPY file signature not recognized"));
        }
        self.rest.advance(SIGNATURE.len());
        if self.rest.get_u32() & CRITICAL_FLAGS != 0 {
            return Err(malformed("unrecognized critical flags in COPY file header"));
        }
        let extension = usize::try_from(self.rest.get_i32());
        self.expects = ExpectedBytes::Extension(
            extension.map_err(|_| malformed("invalid COPY file header (wrong length)"))?,
        );
        Ok(())
    }

    /// The row at the beginning of the buffer, if it is complete.
    fn take_row(&mut self) -> Outcome<Option<Vec<ScalarValue>>> {
        let Some(length) = self.row_length()? else {
            return if self.rest.len() > LINE_BYTES_MAX {
                Err(Report::error("54000", format!("row exceeds the maximum of {LINE_BYTES_MAX} bytes")))
            } else {
                Ok(None)
            };
        };
        let mut row = self.rest.split_to(length).freeze();
        row.advance(2);
        let values = self.columns.iter().map(|(of, wanted)| value(&mut row, of, wanted));
        values.collect::<Outcome<Vec<_>>>().map(Some)
    }

    /// Length of the row; `None` if it goes on beyond the buffer.
    fn row_length(&self) -> Outcome<Option<usize>> {
        let Some(fields) = i16_at(&self.rest, 0) else { return Ok(None) };
        let expected = self.columns.len();
        if usize::try_from(fields) != Ok(expected) {
            return Err(malformed(format!("row field count is {fields}, expected {expected}")));
        }
        let mut at = 2;
        for _ in 0..expected {
            let Some(length) = i32_at(&self.rest, at) else { return Ok(None) };
            at += 4 + match length {
                -1 => 0,
                length => usize::try_from(length).map_err(|_| malformed("invalid field size"))?,
            };
            if at > LINE_BYTES_MAX {
                return Err(Report::error(
                    "54000",
                    format!("row exceeds the maximum of {LINE_BYTES_MAX} bytes"),
                ));
            }
        }
        Ok((at <= self.rest.len()).then_some(at))
    }
}

/// The next field of a complete row.
fn value(row: &mut Bytes, of: &Type, wanted: &DataType) -> Outcome<ScalarValue> {
    let bytes = match usize::try_from(row.get_i32()) {
        Ok(length) => Some(row.split_to(length)),
        Err(_) => None,
    };
    let value = parameter::read(bytes.as_ref(), Format::Binary, of.oid(), wanted, UTC)?;
    if value.data_type() == *wanted {
        return Ok(value);
    }
    // A number with more digits than the column has is rounded, as in an INSERT.
    let shown = value.to_string();
    value.cast_to(wanted).map_err(|_| {
        Report::error("22003", format!("value \"{shown}\" is out of range for type {}", of.name()))
    })
}

fn i16_at(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Vec<Field> {
        let types = [DataType::Int32, DataType::Utf8, DataType::Decimal128(5, 1)];
        types.into_iter().map(|of| Field::new("column", of, true)).collect()
    }

    fn row(id: i32, text: Option<&str>) -> Vec<u8> {
        let mut row = vec![0, 3, 0, 0, 0, 4];
        row.extend(id.to_be_bytes());
        match text {
            None => row.extend((-1i32).to_be_bytes()),
            Some(text) => {
                row.extend((text.len() as i32).to_be_bytes());
                row.extend(text.as_bytes());
            }
        }
        // 1.25: two digits of base 10000, weight 0, two digits behind the point.
        row.extend([0, 0, 0, 12, 0, 2, 0, 0, 0, 0, 0, 2, 0, 1]);
        row.extend(2500i16.to_be_bytes());
        row
    }

    fn read(bytes: &[u8], piece: usize) -> Outcome<Vec<Vec<ScalarValue>>> {
        let mut reader = Reader::new(&fields());
        let mut rows = Vec::new();
        for piece in bytes.chunks(piece) {
            reader.push(piece);
            while let Some(row) = reader.next()? {
                rows.push(row);
            }
        }
        reader.finish()?;
        Ok(rows)
    }

    #[test]
    fn rows_arrive_in_pieces_of_any_length() {
        let mut extended = [SIGNATURE, &[0, 0, 0, 5, 0, 0, 0, 3], b"abc"].concat();
        for bytes in [&mut header(), &mut extended] {
            bytes.extend(row(1, Some("one")));
            bytes.extend(row(-2, None));
            let without_trailer = bytes.clone();
            bytes.extend(TRAILER);
            for piece in 1..bytes.len() {
                let rows = read(bytes, piece).unwrap();
                assert_eq!(rows.len(), 2);
                assert_eq!(rows[0][..2], [ScalarValue::from(1), ScalarValue::from("one")]);
                assert_eq!(rows[1][..2], [ScalarValue::from(-2), ScalarValue::Utf8(None)]);
                assert_eq!(rows[0][2], ScalarValue::Decimal128(Some(13), 5, 1), "rounded");
            }
            assert_eq!(read(&without_trailer, 7).unwrap().len(), 2);
        }
    }

    #[test]
    fn malformed_data_is_refused() {
        let with = |rest: &[u8]| [&header()[..], rest].concat();
        let flags = [SIGNATURE, &[0, 1, 0, 0, 0, 0, 0, 0]].concat();
        let extension = [SIGNATURE, &[0, 0, 0, 0, 255, 255, 255, 255]].concat();
        let cut = &row(1, Some("x"))[..9];
        let mut long = row(1, None)[..10].to_vec();
        long.extend((LINE_BYTES_MAX as i32).to_be_bytes());
        for (bytes, code, message) in [
            (b"1\tx\n".to_vec(), "22P04", "COPY file signature not recognized"),
            (flags, "22P04", "unrecognized critical flags in COPY file header"),
            (extension, "22P04", "invalid COPY file header (wrong length)"),
            (SIGNATURE.to_vec(), "22P04", "unexpected EOF in COPY data"),
            (with(cut), "22P04", "unexpected EOF in COPY data"),
            (with(&[0, 2]), "22P04", "row field count is 2, expected 3"),
            (with(&[0, 3, 255, 255, 255, 254]), "22P04", "invalid field size"),
            (with(&[255, 255, 0]), "22P04", "received copy data after EOF marker"),
            (
                with(&[0, 3, 0, 0, 0, 1, 7, 255, 255, 255, 255, 255, 255, 255, 255]),
                "22P03",
                "incorrect binary",
            ),
            (with(&long), "54000", "row exceeds the maximum of"),
        ] {
            for piece in [1, 4096] {
                let report = read(&bytes, piece).unwrap_err();
                assert_eq!(report.code, code, "{bytes:?}");
                assert!(report.message.contains(message), "{}", report.message);
            }
        }
    }
}
