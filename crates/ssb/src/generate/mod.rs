//! Generator of the five tables, by the benchmark's specification and, where it refers to it, that of TPC-H.
//!
//! - The values of a row depend on seed, table and row number only ([`random`]): files are the same for any
//!   number of threads, and no table is in memory.
//! - Values are independent and uniform, but for prices, which follow from the part, the quantity and the
//!   discount ([`lineorder`]).

mod calendar;
mod geography;
mod line;
mod lineorder;
mod output;
mod part;
mod random;
mod scale;

pub use scale::Scale;

use crate::GenerateArguments;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::tables::{TABLES, file};
use calendar::Calendar;
use geography::Addresses;
use lineorder::Lineorders;
use part::Parts;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;

/// Rows of a table, made in any order.
trait Rows {
    /// Number of units: rows, or orders of several rows.
    fn units(&self) -> u64;

    /// Appends the lines of these units; returns their number.
    fn write(&self, units: Range<u64>, bytes: &mut Vec<u8>) -> u64;
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct TableFile {
    /// The table.
    pub table: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Its rows.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

fn rows_of(table: &str, scale: &Scale, seed: u64) -> Option<Box<dyn Rows + Sync>> {
    Some(match table {
        "customer" => Box::new(Addresses::customers(scale, seed)),
        "supplier" => Box::new(Addresses::suppliers(scale, seed)),
        "part" => Box::new(Parts::new(scale, seed)),
        "date" => Box::new(Calendar::new()),
        "lineorder" => Box::new(Lineorders::new(scale, seed)),
        _ => return None,
    })
}

/// Lines of some units of a table as they stand in its file: rows from 0, for lineorder orders from 0. `None` if it
/// is none of the [`TABLES`].
///
/// ```
/// use entresol_ssb::generate::lines;
/// let scale = "0.01".parse()?;
/// let first = String::from_utf8(lines("supplier", &scale, 1, 0..1).ok_or("no table")?)?;
/// assert!(first.starts_with("1|Supplier#000000001|") && first.ends_with('\n'));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lines(table: &str, scale: &Scale, seed: u64, units: Range<u64>) -> Option<Vec<u8>> {
    let rows = rows_of(table, scale, seed)?;
    let mut bytes = Vec::new();
    rows.write(units.start..units.end.min(rows.units()), &mut bytes);
    Some(bytes)
}

/// Writes the files. Errors: [`Error::Invalid`] if one of them is there and is not to be replaced.
pub fn generate(arguments: &GenerateArguments) -> Result<Vec<TableFile>> {
    let GenerateArguments { sf, out, seed, threads, force } = arguments;
    fs::create_dir_all(out).map_err(|error| Error::file("make", out, error))?;
    let there: Vec<String> =
        TABLES.iter().map(|table| file(out, table)).filter(|path| path.exists()).map(shown).collect();
    if !force && !there.is_empty() {
        return Err(Error::Invalid(format!("{} exists: --force replaces such files", there.join(", "))));
    }
    let threads = threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut files = Vec::new();
    for table in TABLES {
        let path = file(out, table);
        let mut progress = Progress::new(table);
        let makers = rows_of(table, sf, *seed).expect("there are rows of all tables");
        let (rows, bytes) = output::write_table(&path, &*makers, threads, &mut progress)?;
        progress.finish(rows);
        files.push(TableFile { table, path, rows, bytes, seconds: progress.seconds() });
    }
    Ok(files)
}

fn shown(path: PathBuf) -> String {
    path.display().to_string()
}
