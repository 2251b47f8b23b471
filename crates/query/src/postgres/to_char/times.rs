//! Times by PostgreSQL's patterns ([`super::patterns`]).
//!
//! Names are English. `TZ` is the abbreviation of an instant's zone, or its offset if it has none.

use super::patterns::{Part, Pattern, parts};
use crate::error::{Error, Result};
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use std::fmt::Write;

/// 1970-01-01 as a Julian day.
pub(super) const EPOCH_JULIAN: i64 = 2_440_588;
const SECONDS_PER_DAY: i64 = 86_400;
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
pub(super) const ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];
/// Characters of the longest name of a month or a day.
const NAME_CHARS: usize = 9;

/// Time to format.
#[derive(Debug, Clone, Copy)]
pub(super) enum TimeFields<'z> {
    /// Local time, seconds that its clocks are ahead of UTC, and the abbreviation of its zone.
    Local(NaiveDateTime, i64, &'z str),
    /// Interval: months, days, microseconds.
    Interval(i32, i32, i64),
}

impl<'z> TimeFields<'z> {
    /// Local time from microseconds; `None` where the calendar ends.
    pub(super) fn local(micros: i64, ahead: i64, zone: &'z str) -> Option<TimeFields<'z>> {
        Some(TimeFields::Local(DateTime::from_timestamp_micros(micros)?.naive_utc(), ahead, zone))
    }
}

/// Formats a time.
pub(super) fn show(fields: TimeFields<'_>, template: &str) -> Result<String> {
    let mut out = String::new();
    for part in parts(template) {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Exact => {}
            Part::Pattern(pattern) => {
                let number = write_pattern(fields, pattern, &mut out)?;
                if let (Some(number), Some(written)) = (number, pattern.ordinal) {
                    let ordinal = ordinal(number);
                    let upper = written.starts_with('T');
                    out.push_str(&if upper { ordinal.to_ascii_uppercase() } else { ordinal.to_owned() });
                }
            }
        }
    }
    Ok(out)
}

pub(super) fn ordinal(number: i64) -> &'static str {
    match (number % 10, number / 10 % 10) {
        (_, 1) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    }
}

/// Writes the value of a pattern; returns the number, if it is one.
fn write_pattern(fields: TimeFields<'_>, pattern: Pattern<'_>, out: &mut String) -> Result<Option<i64>> {
    let Pattern { name: pattern, written, is_bare: bare, .. } = pattern;
    let digits = |number: i64, width: usize, out: &mut String| {
        let width = if bare { 0 } else { width };
        // Writing to a `String` does not fail.
        let _ =
            if number < 0 { write!(out, "-{:0width$}", -number) } else { write!(out, "{number:0width$}") };
        Ok(Some(number))
    };
    if let Some((number, width)) = number_of(fields, pattern) {
        return digits(number, width, out);
    }
    let TimeFields::Local(time, ahead, zone) = fields else {
        return Err(Error::coded(
            "22007",
            format!("invalid format specification for an interval value: \"{written}\""),
        ));
    };
    let name = |name: &str, padded: bool, out: &mut String| {
        let name = cased(name, written);
        let _ = if padded && !bare { write!(out, "{name:NAME_CHARS$}") } else { write!(out, "{name}") };
    };
    let month = time.month0() as usize;
    let day = time.weekday().num_days_from_sunday() as usize;
    match pattern {
        "Y,YYY" => {
            let year = shown_year(time.year());
            let _ = write!(out, "{},{:03}", year / 1000, year % 1000);
            return Ok(Some(year));
        }
        "MONTH" => name(MONTHS[month], true, out),
        "MON" => name(&MONTHS[month][..3], false, out),
        "DAY" => name(DAYS[day], true, out),
        "DY" => name(&DAYS[day][..3], false, out),
        "RM" => {
            let roman = if written.starts_with('r') {
                ROMAN[month].to_ascii_lowercase()
            } else {
                ROMAN[month].to_owned()
            };
            let _ = if bare { write!(out, "{roman}") } else { write!(out, "{roman:4}") };
        }
        "A.M." | "P.M." | "AM" | "PM" | "A.D." | "B.C." | "AD" | "BC" => {
            let text = half_or_era(pattern, time.hour() < 12, time.year() > 0);
            let lower = written.starts_with(|c: char| c.is_ascii_lowercase());
            out.push_str(&if lower { text.to_ascii_lowercase() } else { text.to_owned() });
        }
        "TZ" if written.starts_with('t') => out.push_str(&zone.to_lowercase()),
        "TZ" => out.push_str(zone),
        "TZH" => {
            let _ = write!(out, "{}{:02}", sign(ahead), ahead.abs() / 3600);
        }
        "TZM" => {
            let _ = write!(out, "{:02}", ahead.abs() / 60 % 60);
        }
        _ => {
            let (hours, minutes) = (ahead.abs() / 3600, ahead.abs() / 60 % 60);
            let _ = write!(out, "{}{hours:02}", sign(ahead));
            if minutes != 0 {
                let _ = write!(out, ":{minutes:02}");
            }
        }
    }
    Ok(None)
}

/// Half of a day or era of a pattern, with points if the pattern has some.
fn half_or_era(pattern: &str, is_morning: bool, is_year_of_christ: bool) -> &'static str {
    match pattern {
        "A.M." | "P.M." if is_morning => "A.M.",
        "A.M." | "P.M." => "P.M.",
        "AM" | "PM" if is_morning => "AM",
        "AM" | "PM" => "PM",
        "A.D." | "B.C." if is_year_of_christ => "A.D.",
        "A.D." | "B.C." => "B.C.",
        _ if is_year_of_christ => "AD",
        _ => "BC",
    }
}

fn sign(ahead: i64) -> char {
    if ahead < 0 { '-' } else { '+' }
}

/// Year as shown: there is no year 0 before year 1.
fn shown_year(year: i32) -> i64 {
    i64::from(if year > 0 { year } else { 1 - year })
}

/// Number of a pattern, and its minimum number of digits.
fn number_of(fields: TimeFields<'_>, pattern: &str) -> Option<(i64, usize)> {
    let (micros_of_day, time) = match fields {
        TimeFields::Local(time, ..) => {
            let seconds = i64::from(time.num_seconds_from_midnight());
            (seconds * 1_000_000 + i64::from(time.nanosecond() / 1_000), Some(time))
        }
        TimeFields::Interval(_, _, micros) => (micros, None),
    };
    let (seconds, micros) = (micros_of_day / 1_000_000, micros_of_day % 1_000_000);
    let clock = match pattern {
        "HH24" => Some((seconds / 3600, 2)),
        "HH12" | "HH" => Some(((seconds / 3600 + 11).rem_euclid(12) + 1, 2)),
        "MI" => Some((seconds / 60 % 60, 2)),
        "SS" => Some((seconds % 60, 2)),
        "SSSSS" | "SSSS" => Some((seconds, 0)),
        "MS" | "FF3" => Some((micros / 1_000, 3)),
        "US" | "FF6" => Some((micros, 6)),
        "FF1" => Some((micros / 100_000, 1)),
        "FF2" => Some((micros / 10_000, 2)),
        "FF4" => Some((micros / 100, 4)),
        "FF5" => Some((micros / 10, 5)),
        _ => None,
    };
    if clock.is_some() {
        return clock;
    }
    let Some(time) = time else {
        let TimeFields::Interval(months, days, _) = fields else { return None };
        return match pattern {
            "YYYY" => Some((i64::from(months / 12), 4)),
            "MM" => Some((i64::from(months % 12), 2)),
            "DD" => Some((i64::from(days), 2)),
            _ => None,
        };
    };
    date_number(time, pattern)
}

fn date_number(time: NaiveDateTime, pattern: &str) -> Option<(i64, usize)> {
    let (year, week) = (shown_year(time.year()), time.iso_week());
    let of_week = shown_year(week.year());
    Some(match pattern {
        "YYYY" => (year, 4),
        "YYY" => (year % 1000, 3),
        "YY" => (year % 100, 2),
        "Y" => (year % 10, 1),
        "IYYY" => (of_week, 4),
        "IYY" => (of_week % 1000, 3),
        "IY" => (of_week % 100, 2),
        "I" => (of_week % 10, 1),
        "MM" => (i64::from(time.month()), 2),
        "DDD" => (i64::from(time.ordinal()), 3),
        "DD" => (i64::from(time.day()), 2),
        "D" => (i64::from(time.weekday().number_from_sunday()), 1),
        "IDDD" => {
            let day = i64::from(week.week() - 1) * 7 + i64::from(time.weekday().number_from_monday());
            (day, 3)
        }
        "ID" => (i64::from(time.weekday().number_from_monday()), 1),
        "IW" => (i64::from(week.week()), 2),
        "WW" => (i64::from(time.ordinal0()) / 7 + 1, 2),
        "W" => (i64::from(time.day0()) / 7 + 1, 1),
        "CC" => ((i64::from(time.year()) + 99).div_euclid(100), 2),
        "J" => (time.and_utc().timestamp().div_euclid(SECONDS_PER_DAY) + EPOCH_JULIAN, 0),
        "Q" => (i64::from(time.month0()) / 3 + 1, 1),
        _ => return None,
    })
}

/// Name in the case of its pattern: MONTH, Month, month.
fn cased(name: &str, written: &str) -> String {
    let mut letters = written.chars();
    match (letters.next().is_some_and(char::is_uppercase), letters.next().is_some_and(char::is_uppercase)) {
        (true, true) => name.to_uppercase(),
        (true, false) => name.to_owned(),
        (false, _) => name.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::calendar::parse_timestamp;

    /// Expected values from PostgreSQL 15.
    #[test]
    fn times_are_shown_as_in_postgresql() {
        let at =
            |text: &str, ahead| TimeFields::local(parse_timestamp(text).unwrap(), ahead, "CEST").unwrap();
        let afternoon = at("2024-03-05 14:07:09.123456", 0);
        for (template, expected) in [
            ("YYYY-MM-DD HH24:MI:SS", "2024-03-05 14:07:09"),
            ("YYYY-MM-DD\"T\"HH24:MI:SS.US", "2024-03-05T14:07:09.123456"),
            ("HH12:MI AM", "02:07 PM"),
            ("HH:MI pm", "02:07 pm"),
            ("Month DD", "March     05"),
            ("FMMonth FMDD, YYYY", "March 5, 2024"),
            ("MONTH", "MARCH    "),
            ("Mon", "Mar"),
            ("Day|", "Tuesday  |"),
            ("FMDay", "Tuesday"),
            ("D DDD ID IDDD W WW IW IYYY", "3 065 2 065 1 10 10 2024"),
            ("CC J Q RM| rm|", "21 2460375 1 III | iii |"),
            ("MS US FF3 FF1", "123 123456 123 1"),
            ("SSSS", "50829"),
            ("Y,YYY YYY YY Y", "2,024 024 24 4"),
            ("DDth DDTH FMDDth YYYYth", "05th 05TH 5th 2024th"),
            ("A.M. a.m. AD B.C.", "P.M. p.m. AD A.D."),
            ("yyyymmdd hh24miss", "20240305 140709"),
            ("FMHH24:FMMI", "14:7"),
            ("\"week\" IW \\\"x\\\"", "week 10 \"x\""),
            ("TZH OF", "+00 +00"),
            ("quarter Q", "1uarter 1"),
            ("no pattern: xz", "no pattern: xz"),
            ("TMMonth FXDD", "March 05"),
        ] {
            assert_eq!(show(afternoon, template).unwrap(), expected, "{template}");
        }
        assert_eq!(
            show(at("0044-03-15 00:00", 0), "YYYY FMYYYY HH12 SSSS J").unwrap(),
            "0044 44 12 0 1737205"
        );
        assert_eq!(show(at("2024-07-05 16:07", 7200), "HH24OF TZH:TZM").unwrap(), "16+02 +02:00");
        assert_eq!(show(at("2024-07-05 16:07", -12_600), "OF").unwrap(), "-03:30");
        assert_eq!(show(afternoon, "TZ tz").unwrap(), "CEST cest");
    }

    #[test]
    fn intervals_have_hours_beyond_a_day_and_no_names() {
        let interval = TimeFields::Interval(38, 15, 97_445_500_000);
        for (template, expected) in [
            ("HH24:MI:SS", "27:04:05"),
            ("YYYY-MM-DD", "0003-02-15"),
            ("DD HH24", "15 27"),
            ("HH12", "03"),
            ("MS", "500"),
        ] {
            assert_eq!(show(interval, template).unwrap(), expected, "{template}");
        }
        assert_eq!(show(interval, "Mon").unwrap_err().sqlstate(), "22007");
    }
}
