//! Results as tables, CSV or JSON.
//!
//! - Table: with borders and the number of rows; statements without rows print their verb and count.
//! - CSV: a header, then rows (RFC 4180); NULL is an empty field, an empty string is `""`.
//! - JSON: per statement with rows an array of objects, one to a line; numbers and booleans bare, NULL as
//!   null.
//! - In CSV and JSON, statements without rows print nothing.

use crate::error::{Error, Result};
use clap::ValueEnum;
use entresol::StatementResult;
use entresol::arrow::array::{Array, RecordBatch};
use entresol::arrow::datatypes::{DataType, SchemaRef};
use entresol::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol::arrow::util::pretty::pretty_format_batches_with_options;
use entresol::query::displayed;
use std::io::{self, Write};

/// Format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables with borders.
    Table,
    /// Comma separated values with a header.
    Csv,
    /// Arrays of objects.
    Json,
}

/// Formatting of values in every format.
fn options() -> FormatOptions<'static> {
    FormatOptions::new()
        .with_display_error(true)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
}

/// Prints the result of a statement.
pub fn print(result: &StatementResult, format: Format, out: &mut dyn Write) -> Result<()> {
    match result {
        StatementResult::Rows(rows) | StatementResult::Returned { returned: rows, .. } => {
            let schema = &rows.schema;
            let batches: Vec<RecordBatch> = rows.batches.iter().map(displayed).collect();
            let batches = batches.as_slice();
            match format {
                Format::Table => print_table(schema, batches, out),
                Format::Csv => print_csv(schema, batches, out),
                Format::Json => print_json(schema, batches, out),
            }
        }
        StatementResult::Count { verb, rows } if format == Format::Table => {
            Ok(writeln!(out, "{verb} {rows}")?)
        }
        StatementResult::Done { verb } if format == Format::Table => Ok(writeln!(out, "{verb}")?),
        _ => Ok(()),
    }
}

fn print_table(schema: &SchemaRef, batches: &[RecordBatch], out: &mut dyn Write) -> Result<()> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let empty = [RecordBatch::new_empty(schema.clone())];
    let batches = if batches.is_empty() { &empty[..] } else { batches };
    let options = options().with_null("NULL");
    let drawn = pretty_format_batches_with_options(batches, &options).map_err(format_error)?;
    writeln!(out, "{drawn}")?;
    writeln!(out, "({rows} {})", if rows == 1 { "row" } else { "rows" })?;
    Ok(())
}

fn format_error(error: impl std::fmt::Display) -> Error {
    Error::Format(error.to_string())
}

fn formatters(batch: &RecordBatch) -> Result<Vec<ArrayFormatter<'_>>> {
    static OPTIONS: std::sync::OnceLock<FormatOptions<'static>> = std::sync::OnceLock::new();
    let options = OPTIONS.get_or_init(options);
    batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, options).map_err(format_error))
        .collect()
}

fn print_csv(schema: &SchemaRef, batches: &[RecordBatch], out: &mut dyn Write) -> Result<()> {
    let header: Vec<String> = schema.fields().iter().map(|field| csv_field(field.name())).collect();
    writeln!(out, "{}", header.join(","))?;
    let mut line = String::new();
    for batch in batches {
        let formatters = formatters(batch)?;
        for row in 0..batch.num_rows() {
            line.clear();
            for (place, (formatter, column)) in formatters.iter().zip(batch.columns()).enumerate() {
                if place > 0 {
                    line.push(',');
                }
                if !column.is_null(row) {
                    line.push_str(&csv_field(&formatter.value(row).to_string()));
                }
            }
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Quotes a field where it must be; an empty string is quoted to tell it from NULL.
fn csv_field(text: &str) -> String {
    if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_string()
}

fn print_json(schema: &SchemaRef, batches: &[RecordBatch], out: &mut dyn Write) -> Result<()> {
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| serde_json::Value::from(field.name().as_str()).to_string())
        .collect();
    write!(out, "[")?;
    let mut first = true;
    for batch in batches {
        let formatters = formatters(batch)?;
        for row in 0..batch.num_rows() {
            out.write_all(if first { b"\n  {" } else { b",\n  {" })?;
            first = false;
            for (place, (formatter, column)) in formatters.iter().zip(batch.columns()).enumerate() {
                let comma = if place > 0 { ", " } else { "" };
                write!(out, "{comma}{}: {}", names[place], json_value(formatter, column, row))?;
            }
            out.write_all(b"}")?;
        }
    }
    writeln!(out, "{}", if first { "]" } else { "\n]" })?;
    Ok(())
}

fn json_value(formatter: &ArrayFormatter<'_>, column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "null".to_string();
    }
    let text = formatter.value(row).to_string();
    let data_type = column.data_type();
    let bare = data_type.is_numeric() || *data_type == DataType::Boolean;
    // NaN and the infinities are no JSON numbers; they stay text.
    if bare && (*data_type == DataType::Boolean || text.parse::<f64>().is_ok_and(f64::is_finite)) {
        return text;
    }
    serde_json::Value::from(text).to_string()
}

/// Standard output, buffered, where a closed reader is an error and not a panic.
pub fn stdout() -> io::BufWriter<io::StdoutLock<'static>> {
    io::BufWriter::new(io::stdout().lock())
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol::CollectedRows;
    use entresol::arrow::array::{BooleanArray, Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    fn result() -> StatementResult {
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![Some(1), None])) as Arc<dyn Array>),
            ("x", Arc::new(Float64Array::from(vec![1.5, f64::NAN]))),
            ("b", Arc::new(BooleanArray::from(vec![true, false]))),
            ("t", Arc::new(StringArray::from(vec![Some("a,\"b\""), Some("")]))),
        ])
        .unwrap();
        StatementResult::Rows(CollectedRows { schema: batch.schema(), batches: vec![batch] })
    }

    fn printed(result: &StatementResult, format: Format) -> String {
        let mut out = Vec::new();
        print(result, format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_tells_null_from_empty() {
        assert_eq!(printed(&result(), Format::Csv), "n,x,b,t\n1,1.5,true,\"a,\"\"b\"\"\"\n,NaN,false,\"\"\n");
    }

    #[test]
    fn json_is_typed() {
        let text = printed(&result(), Format::Json);
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            parsed,
            serde_json::json!([
                {"n": 1, "x": 1.5, "b": true, "t": "a,\"b\""},
                {"n": null, "x": "NaN", "b": false, "t": ""}
            ])
        );
    }

    #[test]
    fn tables_are_drawn() {
        let text = printed(&result(), Format::Table);
        assert!(text.starts_with("+--"), "{text}");
        assert!(text.contains("NULL") && text.ends_with("(2 rows)\n"), "{text}");
        let count = StatementResult::Count { verb: "INSERT", rows: 3 };
        assert_eq!(printed(&count, Format::Table), "INSERT 3\n");
        assert_eq!(printed(&count, Format::Json), "");
    }
}
