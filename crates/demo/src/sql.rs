//! Rows of queries as strings.

use crate::error::{Error, Result};
use entresol::Session;
use entresol::arrow::array::RecordBatch;
use entresol::arrow::util::display::{ArrayFormatter, FormatOptions};

/// Rows as strings; NULL is an empty string.
pub fn strings(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::new();
    let mut rows = Vec::new();
    for batch in batches {
        let formatters: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| Error::Check(error.to_string()))?;
        for row in 0..batch.num_rows() {
            rows.push(formatters.iter().map(|formatter| formatter.value(row).to_string()).collect());
        }
    }
    Ok(rows)
}

/// Rows of a query.
pub fn rows(session: &mut Session, sql: &str) -> Result<Vec<Vec<String>>> {
    strings(&session.query(sql)?)
}

/// A single number; NULL and nothing are 0.
pub fn number(session: &mut Session, sql: &str) -> Result<i64> {
    let rows = rows(session, sql)?;
    Ok(rows.first().and_then(|row| row.first()).and_then(|text| text.parse().ok()).unwrap_or(0))
}
