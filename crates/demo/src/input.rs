//! Input files of the script: feeds written as CSV, which the sources of the topologies read.
//!
//! - A file has the first rows of its feed, so it can be extended at any time; a line that a crash tore
//!   is written again.
//! - About 45 bytes per reading.

use crate::error::{Error, Result};
use crate::feed::{Feed, Feeds, HouseholdReading, InfrastructureReading, Revision, feeder_name};
use entresol::tables::calendar;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// File of the readings of households.
pub const HOUSEHOLD_FILE: &str = "household.csv";
/// File of the readings of the infrastructure.
pub const INFRASTRUCTURE_FILE: &str = "infrastructure.csv";
/// File of the revisions of the specification.
pub const SPECIFICATION_FILE: &str = "specification.csv";

const HOUSEHOLD_HEADER: &str = "at,meter,feeder,kw,voltage";
const INFRASTRUCTURE_HEADER: &str = "at,asset,quantity,reading";
const SPECIFICATION_HEADER: &str = "valid_from,asset,quantity,low,high,per_demand_max,revision";

/// The three files.
pub struct InputFiles {
    household: InputFile<HouseholdReading>,
    infrastructure: InputFile<InfrastructureReading>,
    specification: InputFile<Revision>,
}

/// CSV file of the first items of a feed.
struct InputFile<T> {
    path: PathBuf,
    items: u64,
    write_line: fn(&T, &mut String) -> std::fmt::Result,
}

impl InputFiles {
    /// Opens the files in a folder, or makes them.
    pub fn open(folder: &Path) -> Result<InputFiles> {
        fs::create_dir_all(folder).map_err(|error| Error::file("make", folder, error))?;
        Ok(InputFiles {
            household: InputFile::open(folder.join(HOUSEHOLD_FILE), HOUSEHOLD_HEADER, household_line)?,
            infrastructure: InputFile::open(
                folder.join(INFRASTRUCTURE_FILE),
                INFRASTRUCTURE_HEADER,
                infrastructure_line,
            )?,
            specification: InputFile::open(
                folder.join(SPECIFICATION_FILE),
                SPECIFICATION_HEADER,
                revision_line,
            )?,
        })
    }

    /// Extends the files to so many readings, or to the ends of the feeds, and the specification to the time of
    /// the last reading of the infrastructure.
    pub fn extend(&mut self, feeds: &mut Feeds, household: u64, infrastructure: u64) -> Result<()> {
        let last = infrastructure.max(self.infrastructure.items);
        self.household.extend(&mut *feeds.household, |at, _| at < household)?;
        self.infrastructure.extend(&mut *feeds.infrastructure, |at, _| at < last)?;
        let end = self.infrastructure.items.checked_sub(1).and_then(|at| feeds.infrastructure.at(at));
        // Without readings there is nothing to specify, and the feed may have no end.
        let end_us = end.map_or(i64::MIN, |reading| reading.time_us);
        self.specification.extend(&mut *feeds.specification, |_, revision| revision.time_us <= end_us)
    }
}

impl<T> InputFile<T> {
    fn open(
        path: PathBuf,
        header: &str,
        write_line: fn(&T, &mut String) -> std::fmt::Result,
    ) -> Result<InputFile<T>> {
        let failed = |error| Error::file("write", &path, error);
        let mut file = OpenOptions::new().create(true).append(true).read(true).open(&path).map_err(failed)?;
        let (lines, bytes) = whole_lines(&file).map_err(failed)?;
        file.set_len(bytes).map_err(failed)?;
        if lines == 0 {
            writeln!(file, "{header}").map_err(failed)?;
        }
        Ok(InputFile { path, items: lines.saturating_sub(1), write_line })
    }

    /// Appends items while they are `wanted`, by their number and themselves.
    fn extend(
        &mut self,
        feed: &mut (impl Feed<Item = T> + ?Sized),
        wanted: impl Fn(u64, &T) -> bool,
    ) -> Result<()> {
        let failed = |error| Error::file("write", &self.path, error);
        let file = OpenOptions::new().append(true).open(&self.path).map_err(failed)?;
        let mut file = BufWriter::new(file);
        let mut line = String::new();
        while let Some(item) = feed.at(self.items).filter(|item| wanted(self.items, item)) {
            line.clear();
            // Writing to a string never fails.
            let _ = (self.write_line)(&item, &mut line);
            file.write_all(line.as_bytes()).map_err(failed)?;
            self.items += 1;
        }
        file.flush().map_err(failed)
    }
}

/// Number and bytes of the lines of a file that have an end.
fn whole_lines(file: &File) -> std::io::Result<(u64, u64)> {
    let (mut lines, mut bytes) = (0, 0);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        lines += 1;
        bytes += line.len() as u64;
        line.clear();
    }
    Ok((lines, bytes))
}

fn household_line(reading: &HouseholdReading, line: &mut String) -> std::fmt::Result {
    calendar::format_timestamp(reading.time_us, line)?;
    write!(line, ",{},{},", reading.meter, feeder_name(reading.feeder))?;
    number(reading.active_kw, line)?;
    line.push(',');
    number(reading.voltage, line)?;
    line.write_char('\n')
}

fn infrastructure_line(reading: &InfrastructureReading, line: &mut String) -> std::fmt::Result {
    calendar::format_timestamp(reading.time_us, line)?;
    write!(line, ",{},{},", reading.channel.asset, reading.channel.quantity)?;
    number(reading.value, line)?;
    line.write_char('\n')
}

fn revision_line(revision: &Revision, line: &mut String) -> std::fmt::Result {
    calendar::format_timestamp(revision.time_us, line)?;
    let Revision { channel, low, high, per_demand_max, revision, .. } = revision;
    write!(line, ",{},{},{low},{high},", channel.asset, channel.quantity)?;
    number(*per_demand_max, line)?;
    writeln!(line, ",{revision}")
}

/// A missing value is an empty field.
fn number(value: Option<f64>, line: &mut String) -> std::fmt::Result {
    value.map_or(Ok(()), |value| write!(line, "{value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{LimitedFeed, simulator};

    fn feeds() -> Feeds {
        Feeds {
            household: Box::new(LimitedFeed::new(simulator::Households::new(1, 2), 3000)),
            infrastructure: Box::new(simulator::Infrastructure::new(1, 2)),
            specification: Box::new(simulator::Specification::new(1, 2)),
            failures: Vec::new(),
            judged: Vec::new(),
            rejected_rows: 0,
        }
    }

    #[test]
    fn files_are_extended_and_mended() {
        let directory = tempfile::tempdir().unwrap();
        let (whole, parts) = (directory.path().join("whole"), directory.path().join("parts"));
        InputFiles::open(&whole).unwrap().extend(&mut feeds(), 5000, 900).unwrap();
        for (household, infrastructure) in [(10, 0), (1700, 500), (5000, 900)] {
            InputFiles::open(&parts).unwrap().extend(&mut feeds(), household, infrastructure).unwrap();
            let mut cut = OpenOptions::new().append(true).open(parts.join(HOUSEHOLD_FILE)).unwrap();
            cut.write_all(b"2025-01-0").unwrap();
        }
        InputFiles::open(&parts).unwrap();
        for (name, lines) in [(HOUSEHOLD_FILE, 3001), (INFRASTRUCTURE_FILE, 901), (SPECIFICATION_FILE, 7)] {
            let text = fs::read_to_string(whole.join(name)).unwrap();
            assert_eq!(text.lines().count(), lines, "{name}");
            assert_eq!(text, fs::read_to_string(parts.join(name)).unwrap(), "{name}");
        }
        let text = fs::read_to_string(whole.join(HOUSEHOLD_FILE)).unwrap();
        assert!(
            text.lines().nth(2).unwrap().starts_with("2025-01-06 00:00:00,1,transformer-2,"),
            "{text:.200}"
        );
    }
}
