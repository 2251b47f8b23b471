//! A batch as DataRow messages.

use super::Format;
use super::cell::Column;
use super::temporal::Zone;
use crate::error::{Outcome, Report};
use bytes::{BufMut, BytesMut};
use entresol::arrow::record_batch::RecordBatch;

/// Appends rows from `from` on until the buffer has `bytes` or more, or `rows_max` rows are written; returns
/// their number. A row is written completely or not at all.
pub(crate) fn write(
    batch: &RecordBatch,
    formats: &[Format],
    zone: Zone,
    from: usize,
    rows_max: usize,
    bytes: usize,
    out: &mut BytesMut,
) -> Outcome<usize> {
    let formats = formats.iter().copied().chain(std::iter::repeat(Format::Text));
    let schema = batch.schema_ref();
    let fields = schema.fields().iter().zip(batch.columns());
    let columns: Outcome<Vec<Column<'_>>> = fields
        .zip(formats)
        .map(|((field, array), format)| Column::of_field(field, array, format, zone))
        .collect();
    let columns = columns?;
    let last = batch.num_rows().min(from.saturating_add(rows_max));
    for row in from..last {
        if out.len() >= bytes {
            return Ok(row - from);
        }
        let at = out.len();
        if let Err(error) = write_row(&columns, row, out) {
            out.truncate(at);
            return Err(error);
        }
    }
    Ok(last - from)
}

fn write_row(columns: &[Column<'_>], row: usize, out: &mut BytesMut) -> Outcome<()> {
    let at = out.len();
    out.put_u8(b'D');
    out.put_u32(0);
    let count = i16::try_from(columns.len()).map_err(|_| {
        Report::error(
            "54011",
            format!("target lists can have at most {} entries, not {}", i16::MAX, columns.len()),
        )
    })?;
    out.put_i16(count);
    columns.iter().try_for_each(|column| column.write(row, out))?;
    let Ok(length) = u32::try_from(out.len() - at - 1) else {
        return Err(Report::error("54000", "row exceeds the maximum length of the protocol"));
    };
    out[at + 1..at + 5].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
