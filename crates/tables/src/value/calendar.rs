//! Dates and timestamps as strings: the proleptic Gregorian calendar, UTC.
//!
//! - A date is the number of days since 1970-01-01, a timestamp the number of microseconds since
//!   1970-01-01T00:00:00Z; both may be negative.
//! - Strings are accepted for the years 1 to 9999 only, so that every parsed value prints back to itself.
//! - All functions are total: any bit pattern prints as something, no input makes them panic.
//! - They own no memory and touch no storage.

use std::fmt;

/// Microseconds of a second.
pub const MICROS_PER_SECOND: i64 = 1_000_000;
/// Microseconds of a day.
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// Seconds of an hour.
const SECONDS_PER_HOUR: i64 = 3600;
/// Limit of a zone's offset from UTC, in seconds: all are less.
const AHEAD_MAX: i64 = 16 * SECONDS_PER_HOUR;
/// First and last year that a string may name.
const YEARS: std::ops::RangeInclusive<i32> = 1..=9999;

/// Days since 1970-01-01 of a civil date; `None` if there is no such day or the year is out of 1 to 9999.
pub fn days_from_civil(year: i32, month: u32, day: u32) -> Option<i32> {
    if !YEARS.contains(&year) || !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    // Howard Hinnant's algorithm: years begin in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = month as i32;
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day as i32 - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn civil_from_days(days: i32) -> (i64, u32, u32) {
    let shifted = i64::from(days) + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = (if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 }) as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Parses an unsigned number of one to `digits_max` ASCII digits.
pub fn parse_digits(text: &str, digits_max: usize) -> Option<u32> {
    if text.is_empty() || text.len() > digits_max.min(9) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Parses `YYYY-MM-DD`.
pub fn parse_date(text: &str) -> Option<i32> {
    let mut parts = text.splitn(3, '-');
    let year = parse_digits(parts.next()?, 4)?;
    let month = parse_digits(parts.next()?, 2)?;
    let day = parse_digits(parts.next()?, 2)?;
    days_from_civil(year as i32, month, day)
}

/// Parses `HH:MM`, `HH:MM:SS` or `HH:MM:SS.ffffff` into microseconds of the day.
pub fn parse_time(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let hour = parse_digits(parts.next()?, 2)?;
    let minute = parse_digits(parts.next()?, 2)?;
    let (second, micros) = match parts.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            None => (parse_digits(seconds, 2)?, 0),
            Some((whole, fraction)) => {
                let digits = parse_digits(fraction, 6)?;
                (parse_digits(whole, 2)?, digits * 10u32.pow(6 - fraction.len() as u32))
            }
        },
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(i64::from(hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + i64::from(micros))
}

/// Strips the zone behind the time of a timestamp: `Z`, or `+HH`, `-HH:MM` and the like. A timestamp without
/// a zone ignores it, as in other implementations of SQL.
pub fn without_zone(text: &str) -> &str {
    split_zone(text).0
}

/// Splits the zone off a timestamp; its offset from UTC in seconds, if there is one.
fn split_zone(text: &str) -> (&str, Option<i64>) {
    if let Some(rest) = text.strip_suffix('Z') {
        return (rest, Some(0));
    }
    let Some(colon) = text.find(':') else { return (text, None) };
    let Some(sign) = text[colon..].find(['+', '-']).map(|at| colon + at) else { return (text, None) };
    let (mut ahead, mut unit) = (0, SECONDS_PER_HOUR);
    for part in text[sign + 1..].split(':') {
        match parse_digits(part, 2) {
            Some(digits) if part.len() == 2 && unit > 0 => ahead += i64::from(digits) * unit,
            _ => return (text, None),
        }
        unit /= 60;
    }
    let ahead = if text[sign..].starts_with('-') { -ahead } else { ahead };
    (text[..sign].trim_end(), Some(ahead))
}

/// Parses `YYYY-MM-DD`, or the same followed by a blank or `T` and a time, perhaps with a zone, which is
/// ignored.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    parse_local(without_zone(text))
}

/// Parses a TIMESTAMPTZ; without a zone it is in UTC. Returns microseconds since 1970-01-01 UTC.
pub fn parse_timestamptz(text: &str) -> Option<i64> {
    let (wall, ahead) = parse_zoned(text)?;
    Some(wall - ahead.unwrap_or(0) * MICROS_PER_SECOND)
}

/// Parses a timestamp with its zone, if it has one: the local time in microseconds, and the zone's offset
/// from UTC in seconds.
pub fn parse_zoned(text: &str) -> Option<(i64, Option<i64>)> {
    let (wall, ahead) = split_zone(text);
    if ahead.is_some_and(|ahead| ahead.abs() >= AHEAD_MAX) {
        return None;
    }
    Some((parse_local(wall)?, ahead))
}

fn parse_local(text: &str) -> Option<i64> {
    let (date, time) = match text.find([' ', 'T']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let days = i64::from(parse_date(date)?);
    let micros = match time {
        Some(time) => parse_time(time)?,
        None => 0,
    };
    Some(days * MICROS_PER_DAY + micros)
}

/// Writes a date as `YYYY-MM-DD`.
pub fn format_date(days: i32, out: &mut impl fmt::Write) -> fmt::Result {
    let (year, month, day) = civil_from_days(days);
    write!(out, "{year:04}-{month:02}-{day:02}")
}

/// Writes a timestamp as `YYYY-MM-DD HH:MM:SS`, with the digits of its fraction of a second behind it.
pub fn format_timestamp(micros: i64, out: &mut impl fmt::Write) -> fmt::Result {
    let days = micros.div_euclid(MICROS_PER_DAY);
    let of_day = micros.rem_euclid(MICROS_PER_DAY);
    // i64 microseconds span about 107 million days either way: they fit in i32.
    format_date(days as i32, out)?;
    let seconds = of_day / MICROS_PER_SECOND;
    write!(out, " {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    match of_day % MICROS_PER_SECOND {
        0 => Ok(()),
        mut fraction => {
            let mut digits = 6;
            while fraction % 10 == 0 {
                (fraction, digits) = (fraction / 10, digits - 1);
            }
            write!(out, ".{fraction:0digits$}")
        }
    }
}

/// Writes a TIMESTAMPTZ in local time and the zone's offset from UTC, `ahead` seconds: `+02`, `-03:30`.
pub fn format_timestamptz(micros: i64, ahead: i64, out: &mut impl fmt::Write) -> fmt::Result {
    format_timestamp(micros.saturating_add(ahead * MICROS_PER_SECOND), out)?;
    let (sign, seconds) = (if ahead < 0 { '-' } else { '+' }, ahead.abs());
    write!(out, "{sign}{:02}", seconds / SECONDS_PER_HOUR)?;
    if seconds % SECONDS_PER_HOUR != 0 {
        write!(out, ":{:02}", seconds / 60 % 60)?;
    }
    if seconds % 60 != 0 {
        write!(out, ":{:02}", seconds % 60)?;
    }
    Ok(())
}

/// Writes an interval as PostgreSQL does: `1 year 2 mons -3 days +04:05:06.7`.
pub fn format_interval(months: i32, days: i32, micros: i64, out: &mut impl fmt::Write) -> fmt::Result {
    let parts = [(months / 12, "year"), (months % 12, "mon"), (days, "day")];
    let (mut space, mut negative) = ("", false);
    for (count, unit) in parts.into_iter().filter(|(count, _)| *count != 0) {
        // A positive part behind a negative one has a sign.
        let sign = if negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        write!(out, "{space}{sign}{count} {unit}{plural}")?;
        (space, negative) = (" ", count < 0);
    }
    if micros == 0 && !space.is_empty() {
        return Ok(());
    }
    let sign = match micros {
        time if time < 0 => "-",
        _ if negative => "+",
        _ => "",
    };
    let magnitude = micros.unsigned_abs();
    let seconds = magnitude / 1_000_000;
    write!(out, "{space}{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    match magnitude % 1_000_000 {
        0 => Ok(()),
        fraction => out.write_str(format!(".{fraction:06}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_behind_a_timestamp_is_ignored() {
        let plain = parse_timestamp("2024-01-01 12:30:00.5");
        assert!(plain.is_some());
        for zone in ["Z", "+00", "-07", "+05:30", " +01", "+00:19:32"] {
            assert_eq!(parse_timestamp(&format!("2024-01-01 12:30:00.5{zone}")), plain, "{zone}");
        }
        for broken in
            ["2024-01-01 12:30:00+1", "2024-01-01 12:30:00+", "2024-01-01 12:30:00+aa", "2024-01-01+00"]
        {
            assert_eq!(parse_timestamp(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_zone_shifts_a_moment() {
        let utc = parse_timestamp("2024-01-01 12:30:00");
        assert!(utc.is_some());
        for text in
            ["12:30:00Z", "12:30", "14:30:00+02", "05:30:00-07:00", "18:00:00 +05:30", "12:49:32+00:19:32"]
        {
            assert_eq!(parse_timestamptz(&format!("2024-01-01 {text}")), utc, "{text}");
        }
        assert_eq!(parse_zoned("2024-01-01 12:30"), Some((utc.unwrap(), None)));
        assert_eq!(parse_zoned("2024-01-01 12:30-01"), Some((utc.unwrap(), Some(-3600))));
        for (ahead, text) in [(0, "13:30:00+00"), (7200, "15:30:00+02"), (-12_600, "10:00:00-03:30")] {
            let mut printed = String::new();
            format_timestamptz(utc.unwrap() + 3600 * MICROS_PER_SECOND, ahead, &mut printed).unwrap();
            assert_eq!(printed, format!("2024-01-01 {text}"));
            assert_eq!(parse_timestamptz(&printed), Some(utc.unwrap() + 3600 * MICROS_PER_SECOND));
        }
        for broken in ["12:30:00+16", "12:30:00+1", "12:30:00+01:00:00:00", "25:00:00+01", "12:30:00+"] {
            assert_eq!(parse_timestamptz(&format!("2024-01-01 {broken}")), None, "{broken}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_round_trips() {
        let mut expected = days_from_civil(1799, 12, 31).unwrap();
        for year in 1800..2200 {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    let days = days_from_civil(year, month, day).unwrap();
                    assert_eq!(days, expected + 1);
                    assert_eq!(civil_from_days(days), (i64::from(year), month, day));
                    expected = days;
                }
            }
        }
        assert_eq!(days_from_civil(1970, 1, 1), Some(0));
        assert_eq!(days_from_civil(2000, 3, 1), Some(11_017));
    }

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        for text in [
            "1970-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "2026-02-28 12:30:01",
            "2026-02-28 12:30:01.5",
            "2026-02-28 12:30:01.00205",
            "9999-12-31 23:59:59",
        ] {
            let mut printed = String::new();
            format_timestamp(parse_timestamp(text).unwrap(), &mut printed).unwrap();
            assert_eq!(printed, text);
        }
        assert_eq!(parse_timestamp("1970-01-02T01:00Z"), Some(MICROS_PER_DAY + 3600 * MICROS_PER_SECOND));
        assert_eq!(parse_timestamp("1970-01-01 00:00:00.5"), Some(500_000));
        for bad in [
            "",
            "2026-02-29",
            "2026-13-01",
            "2026-1",
            "0000-01-01",
            "26-1-1-1",
            "2026-01-01 24:00:00",
            "2026-01-01 ",
            "+202-01-01",
            "2026-01-01 00:00:00.1234567",
            "ä2026-01-01",
        ] {
            assert_eq!(parse_timestamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn any_number_prints() {
        for micros in [i64::MIN, i64::MAX, -1, 0] {
            format_timestamp(micros, &mut String::new()).unwrap();
        }
        for days in [i32::MIN, i32::MAX] {
            format_date(days, &mut String::new()).unwrap();
        }
    }
}
