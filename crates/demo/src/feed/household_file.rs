//! Minute readings of one household, replayed for any number of meters.
//!
//! Meter m reads the file `7 m mod 120` minutes late. At each minute of the demo a meter takes a row with the
//! same time of day; where the file has several (it is longer than a day), day after day another, and each
//! meter begins at another one. So a file of any length of a day or more is replayed without an end, and the
//! time of day stays right. A minute that the file lacks is a missing value.

use super::rejects::Rejects;
use super::series_file::{Fields, read_rows};
use super::{DAY_US, Feed, HouseholdReading, MINUTE_US};
use crate::error::{Error, Result};
use entresol::tables::calendar;
use std::path::Path;

const MINUTES_OF_DAY: i64 = DAY_US / MINUTE_US;
/// Minutes between the first and the last row of a file: ten years.
const MINUTES_MAX: i64 = 10 * 366 * MINUTES_OF_DAY;

/// Power and voltage of a minute.
type Minute = (Option<f64>, Option<f64>);

/// A household's rows by minute, without gaps.
pub struct HouseholdFile {
    first_minute: i64,
    minutes: Vec<Minute>,
}

impl HouseholdFile {
    /// Reads `Date;Time;Global_active_power;...;Voltage;...`, dates as `dd/mm/yyyy`.
    pub fn read(path: &Path, rejects: &mut Rejects) -> Result<HouseholdFile> {
        let mut rows: Vec<(i64, Minute)> = Vec::new();
        read_rows(path, b';', &["Date", "Time", "Global_active_power", "Voltage"], rejects, |fields| {
            let minute = minute(&fields)?;
            if let Some((first, _)) = rows.first()
                && (minute - first).abs() > MINUTES_MAX
            {
                return Err("more than ten years from the first row".to_string());
            }
            rows.push((minute, (fields.number(2)?, fields.number(3)?)));
            Ok(())
        })?;
        let Some(first_minute) = rows.iter().map(|(minute, _)| *minute).min() else {
            return Err(Error::Invalid(format!("{}: no readable row", path.display())));
        };
        let last_minute = rows.iter().map(|(minute, _)| *minute).max().unwrap_or(first_minute);
        // Less than a day would leave times of the day without any row.
        let length = (last_minute - first_minute + 1).max(MINUTES_OF_DAY);
        let mut minutes = vec![(None, None); length as usize];
        for (minute, values) in rows {
            minutes[(minute - first_minute) as usize] = values;
        }
        Ok(HouseholdFile { first_minute, minutes })
    }

    /// The minute of the day at which the file begins.
    pub fn first_minute_of_day(&self) -> i64 {
        self.first_minute.rem_euclid(MINUTES_OF_DAY)
    }

    fn at_minute(&self, minute: i64, turn: i64) -> Minute {
        let since = (minute - self.first_minute).rem_euclid(MINUTES_OF_DAY);
        let choices = (self.minutes.len() as i64 - since - 1) / MINUTES_OF_DAY + 1;
        self.minutes[(since + turn.rem_euclid(choices) * MINUTES_OF_DAY) as usize]
    }
}

/// The minute since the epoch of a row, from its date and time.
fn minute(fields: &Fields<'_>) -> std::result::Result<i64, String> {
    let date = fields.text(0).trim();
    let bad_date = || format!("Date: '{date}' is not a date (dd/mm/yyyy)");
    let mut parts = date.splitn(3, '/');
    let mut part = |digits| parts.next().and_then(|text| calendar::parse_digits(text, digits));
    let (day, month, year) = (part(2), part(2), part(4));
    let days = match (day, month, year) {
        (Some(day), Some(month), Some(year)) => calendar::days_from_civil(year as i32, month, day),
        _ => None,
    }
    .ok_or_else(bad_date)?;
    let time = fields.text(1).trim();
    let of_day_us =
        calendar::parse_time(time).ok_or_else(|| format!("Time: '{time}' is not a time (hh:mm:ss)"))?;
    Ok(i64::from(days) * MINUTES_OF_DAY + of_day_us / MINUTE_US)
}

/// A household replayed for many meters, from a minute of the demo's time on, without an end.
pub struct Replay {
    file: HouseholdFile,
    from_minute: i64,
    meters: u32,
    feeders: u32,
}

impl Replay {
    /// Replays a file; its first row falls on or after `from_us`, at its own time of day.
    pub fn new(file: HouseholdFile, from_us: i64, meters: u32, feeders: u32) -> Replay {
        let from = from_us.div_euclid(MINUTE_US);
        let wait = (file.first_minute - from).rem_euclid(MINUTES_OF_DAY);
        Replay { file, from_minute: from + wait, meters, feeders }
    }
}

impl Feed for Replay {
    type Item = HouseholdReading;

    fn at(&mut self, index: u64) -> Option<HouseholdReading> {
        let meters = u64::from(self.meters);
        let (since, meter) = ((index / meters) as i64, (index % meters) as u32);
        let minute = self.from_minute + since;
        let late = i64::from(meter) * 7 % 120;
        let turn = since / MINUTES_OF_DAY + i64::from(meter);
        let (active_kw, voltage) = self.file.at_minute(minute - late, turn);
        Some(HouseholdReading {
            time_us: minute * MINUTE_US,
            meter,
            feeder: meter % self.feeders,
            active_kw,
            voltage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rows: &str, rejects: &mut Rejects) -> Result<HouseholdFile> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("household.txt");
        std::fs::write(&path, format!("Date;Time;Global_active_power;Voltage\n{rows}")).unwrap();
        HouseholdFile::read(&path, rejects)
    }

    #[test]
    fn replays_by_time_of_day() {
        let rejects_dir = tempfile::tempdir().unwrap();
        let mut rejects = Rejects::new(rejects_dir.path().join("rejected.csv"));
        let file = file("1/1/2020;00:10:00;1.5;230\n01/01/2020;00:11:00;?;231\n", &mut rejects).unwrap();
        assert_eq!(file.first_minute_of_day(), 10);
        let mut replay = Replay::new(file, 1000 * DAY_US, 2, 1);
        let first = replay.at(0).unwrap();
        assert_eq!((first.time_us, first.active_kw), (1000 * DAY_US + 10 * MINUTE_US, Some(1.5)));
        assert_eq!(replay.at(2).unwrap().active_kw, None);
        assert_eq!(replay.at(2).unwrap().voltage, Some(231.0));
        // The second meter is seven minutes late.
        assert_eq!(replay.at(7 * 2 + 1).unwrap().active_kw, Some(1.5));
        // The next day comes again.
        assert_eq!(replay.at(2 * MINUTES_OF_DAY as u64).unwrap().active_kw, Some(1.5));
        assert_eq!(rejects.count(), 0);
    }

    #[test]
    fn bad_rows_are_rejected_with_line_and_reason() {
        let rejects_dir = tempfile::tempdir().unwrap();
        let mut rejects = Rejects::new(rejects_dir.path().join("rejected.csv"));
        let rows = "1/1/2020;00:10:00;1.5;230\n32/1/2020;00:11:00;1;1\n1/1/2020;00:12:00;abc;1\n1/1/2020;00:13\n\
                    1/1/2020;00:14:00;\"2;230\n1/1/2020;00:15:00;2;230\n";
        file(rows, &mut rejects).unwrap();
        rejects.finish().unwrap();
        assert_eq!(rejects.count(), 4);
        let text = std::fs::read_to_string(rejects.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "file,line,reason,row");
        assert!(lines[1].contains(",3,Date: '32/1/2020' is not a date (dd/mm/yyyy),"), "{}", lines[1]);
        assert!(lines[2].contains(",4,Global_active_power: 'abc' is not a number,"), "{}", lines[2]);
        assert!(lines[3].contains(",5,\"2 fields, 4 expected\","), "{}", lines[3]);
        assert!(lines[4].contains(",6,"), "{}", lines[4]);
    }
}
