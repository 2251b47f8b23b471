//! Reading rows of delimited text with a header, and the infrastructure's series: the two transformers'
//! hourly loads and oil temperature, and series of `timestamp,value`.
//!
//! A bad row (too few fields, no time, no number) goes to the rejects with its line and the reason, and the
//! rest goes on; `?` or nothing in place of a number is a missing value. A file without the expected header
//! is an error of the entire file.

use super::rejects::Rejects;
use super::{Channel, InfrastructureReading, ROWS_MAX};
use crate::error::{Error, Result};
use csv::{ByteRecord, ReaderBuilder};
use entresol::tables::calendar;
use std::path::Path;

/// The fields of one row in the order that was asked for.
pub struct Fields<'a> {
    names: &'a [&'a str],
    texts: &'a [&'a str],
}

impl Fields<'_> {
    /// The text of a field.
    pub fn text(&self, field: usize) -> &str {
        self.texts[field]
    }

    /// A number; `?` or nothing is a missing one.
    pub fn number(&self, field: usize) -> std::result::Result<Option<f64>, String> {
        let text = self.texts[field].trim();
        if text.is_empty() || text == "?" {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(format!("{}: '{text}' is not a number", self.names[field])),
        }
    }

    /// A time as `YYYY-MM-DD HH:MM:SS`, in microseconds.
    pub fn time_us(&self, field: usize) -> std::result::Result<i64, String> {
        let text = self.texts[field].trim();
        calendar::parse_timestamp(text)
            .ok_or_else(|| format!("{}: '{text}' is not a time (YYYY-MM-DD HH:MM:SS)", self.names[field]))
    }
}

/// Reads the named columns of every row; `row` returns the reason if it rejects one.
pub fn read_rows(
    path: &Path,
    delimiter: u8,
    names: &[&str],
    rejects: &mut Rejects,
    mut row: impl FnMut(Fields<'_>) -> std::result::Result<(), String>,
) -> Result<()> {
    // No quoting: none of these files has it, and a stray quote must not swallow the rows after it.
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .quoting(false)
        .flexible(true)
        .from_path(path)
        .map_err(|error| Error::csv(path, error))?;
    let header = reader.byte_headers().map_err(|error| Error::csv(path, error))?.clone();
    let mut places = Vec::new();
    for name in names {
        let is_named = |field: &[u8]| field.trim_ascii() == name.as_bytes();
        places.push(header.iter().position(is_named).ok_or_else(|| {
            Error::Invalid(format!("{}: the first line has no column '{name}'", path.display()))
        })?);
    }
    let mut record = ByteRecord::new();
    for _ in 0..ROWS_MAX {
        if !reader.read_byte_record(&mut record).map_err(|error| Error::csv(path, error))? {
            return Ok(());
        }
        let outcome = match texts(&record, header.len(), &places) {
            Ok(texts) => row(Fields { names, texts: &texts }),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            let line = record.position().map_or(0, csv::Position::line);
            let parts: Vec<_> = record.iter().map(String::from_utf8_lossy).collect();
            rejects.add(path, line, &reason, &parts.join(&(delimiter as char).to_string()))?;
        }
    }
    tracing::warn!("{}: only the first {ROWS_MAX} rows are read", path.display());
    Ok(())
}

fn texts<'r>(
    record: &'r ByteRecord,
    expected: usize,
    places: &[usize],
) -> std::result::Result<Vec<&'r str>, String> {
    if record.len() != expected {
        return Err(format!("{} fields, {expected} expected", record.len()));
    }
    let text = |place: &usize| std::str::from_utf8(&record[*place]).map_err(|_| "not UTF-8".to_string());
    places.iter().map(text).collect()
}

/// A series of `timestamp,value`.
pub fn read_series(
    path: &Path,
    asset: &str,
    quantity: &str,
    rejects: &mut Rejects,
) -> Result<Vec<InfrastructureReading>> {
    let channel = Channel::new(asset, quantity);
    let mut readings = Vec::new();
    read_rows(path, b',', &["timestamp", "value"], rejects, |fields| {
        let (time_us, value) = (fields.time_us(0)?, fields.number(1)?);
        readings.push(InfrastructureReading { time_us, channel: channel.clone(), value });
        Ok(())
    })?;
    readings.sort_by_key(|reading| reading.time_us);
    Ok(readings)
}

const LOAD_COLUMNS: [&str; 6] = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL"];

/// A transformer: its load (the sum of its six partial loads; missing if one is) and its oil temperature.
pub fn read_transformer(
    path: &Path,
    asset: &str,
    rejects: &mut Rejects,
) -> Result<Vec<InfrastructureReading>> {
    let (load, oil) = (Channel::new(asset, "load"), Channel::new(asset, "oil_temperature"));
    let mut names = vec!["date", "OT"];
    names.extend(LOAD_COLUMNS);
    let mut readings = Vec::new();
    read_rows(path, b',', &names, rejects, |fields| {
        let (time_us, temperature) = (fields.time_us(0)?, fields.number(1)?);
        let mut sum = Some(0.0);
        for field in 2..names.len() {
            let part = fields.number(field)?;
            sum = sum.zip(part).map(|(sum, part)| sum + part);
        }
        readings.push(InfrastructureReading { time_us, channel: load.clone(), value: sum });
        readings.push(InfrastructureReading { time_us, channel: oil.clone(), value: temperature });
        Ok(())
    })?;
    readings.sort_by_key(|reading| reading.time_us);
    Ok(readings)
}
