//! COPY output: batches of rows into lines, the inverse of [`super::decode`].
//!
//! Values are formatted as in PostgreSQL ([`crate::postgres::text_output`]).

use super::CopyLines;
use crate::error::{Error, Result};
use crate::parser::own::copy_options::{Format, Options};
use crate::postgres::text_output::Printer;
use crate::postgres::types::displayed;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;

/// Maximum characters of a value in a message.
const VALUE_CHARS_MAX: usize = 100;

/// Appends the header line with the names of the columns.
pub(super) fn header(options: &Options, schema: &Schema, lines: &mut CopyLines) -> Result<()> {
    let out = &mut lines.bytes;
    let single = schema.fields().len() == 1;
    for (at, field) in schema.fields().iter().enumerate() {
        if at > 0 {
            out.push(options.delimiter);
        }
        value(options, field.name(), single, out)?;
    }
    end_line(options, lines);
    Ok(())
}

/// Appends the lines of a batch.
pub(super) fn lines(options: &Options, batch: &RecordBatch, lines: &mut CopyLines) -> Result<()> {
    let batch = displayed(batch);
    let printers: Vec<Printer<'_>> = batch.columns().iter().map(Printer::new).collect::<Result<_>>()?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        let out = &mut lines.bytes;
        for (at, printer) in printers.iter().enumerate() {
            if at > 0 {
                out.push(options.delimiter);
            }
            if printer.is_null(row) {
                out.extend_from_slice(options.null.as_bytes());
                continue;
            }
            text.clear();
            printer
                .print(row, &mut text)
                .map_err(|error| Error::coded("22000", format!("could not format a value: {error}")))?;
            value(options, &text, printers.len() == 1, out)?;
        }
        end_line(options, lines);
    }
    Ok(())
}

fn end_line(options: &Options, lines: &mut CopyLines) {
    if options.format == Format::Tbl {
        lines.bytes.push(options.delimiter);
    }
    lines.end_line();
}

/// Appends a value that is not NULL. If it is `single` on its line it must not look like the end of the data.
fn value(options: &Options, text: &str, single: bool, out: &mut Vec<u8>) -> Result<()> {
    match options.format {
        Format::Text => escape(text, options.delimiter, out),
        Format::Tbl => {
            let special = |byte: u8| byte == options.delimiter || byte == b'\n';
            if text == options.null || text.bytes().any(special) {
                return Err(no_tbl_value(options, text));
            }
            out.extend_from_slice(text.as_bytes());
        }
        Format::Csv { quote, escape } => {
            let special =
                |byte: u8| byte == options.delimiter || byte == quote || matches!(byte, b'\n' | b'\r');
            let needs_quotes = text == options.null || text.bytes().any(special) || (single && text == "\\.");
            if !needs_quotes {
                out.extend_from_slice(text.as_bytes());
                return Ok(());
            }
            out.push(quote);
            for byte in text.bytes() {
                if byte == quote || byte == escape {
                    out.push(escape);
                }
                out.push(byte);
            }
            out.push(quote);
        }
    }
    Ok(())
}

/// Error for a value that a line without quotes and escapes cannot have.
fn no_tbl_value(options: &Options, text: &str) -> Error {
    let shown: String = text.chars().take(VALUE_CHARS_MAX).collect();
    let (delimiter, null) = (char::from(options.delimiter), &options.null);
    Error::coded(
        "22P04",
        format!(
            "COPY with FORMAT tbl cannot write the value \"{shown}\": delimiter '{delimiter}', ends of lines and the \
             null string '{null}' have no escapes there; use FORMAT csv"
        ),
    )
}

fn escape(text: &str, delimiter: u8, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        let escaped = match byte {
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            byte if byte == delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
}
