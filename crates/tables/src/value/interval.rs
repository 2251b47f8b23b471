//! Intervals: months, days and time, which do not carry over into each other.
//!
//! - Strings are those that PostgreSQL reads: `1 year 2 mons -3 days 04:05:06.789`, `3 4:05:06`, `1-2`,
//!   `2 weeks ago`, ISO 8601 (`P1Y2M3DT4H`, `P1-2-3T04:05:06`). A number without a unit counts seconds. Fractions of
//!   a year become months; those of months, weeks and days become days and time; months have 30 days here.
//! - The order is that of PostgreSQL, by [`Interval::span`]: a month is as long as 30 days, a day as 24 hours.
//!   Intervals that are as long and have other fields are ordered by their fields, so that equality is that of
//!   the fields.
//! - Time is in microseconds, at most [`MICROS_MAX`]: Arrow counts nanoseconds.
//! - All functions are total, whatever the string or the bytes.

use crate::value::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND};
use arrow_array::types::IntervalMonthDayNano;
use std::cmp::Ordering;

/// Greatest number of microseconds of an interval, either way: 292 years.
pub const MICROS_MAX: i64 = i64::MAX / NANOS_PER_MICRO;
/// Bytes of a stored interval.
pub(crate) const INTERVAL_BYTES: usize = 16;
const NANOS_PER_MICRO: i64 = 1_000;
const DAYS_PER_MONTH: i64 = 30;
const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;
const MICROS_PER_HOUR: i64 = 60 * MICROS_PER_MINUTE;
const MONTHS_PER_YEAR: i64 = 12;

/// Interval; see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    months: i32,
    days: i32,
    micros: i64,
}

/// Reason why a string is no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalError {
    /// Its syntax.
    Syntax,
    /// A field that is out of range.
    OutOfRange,
}

/// Unit of a number in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalUnit {
    /// Microsecond.
    Microsecond,
    /// Millisecond.
    Millisecond,
    /// Second.
    Second,
    /// Minute.
    Minute,
    /// Hour.
    Hour,
    /// Day.
    Day,
    /// Seven days.
    Week,
    /// Month.
    Month,
    /// Year.
    Year,
    /// Ten years.
    Decade,
    /// A hundred years.
    Century,
    /// A thousand years.
    Millennium,
}

impl Interval {
    /// Interval of these fields; none if the time is out of range.
    pub fn new(months: i32, days: i32, micros: i64) -> Option<Interval> {
        (-MICROS_MAX..=MICROS_MAX).contains(&micros).then_some(Interval { months, days, micros })
    }

    /// Months, years among them.
    pub fn months(self) -> i32 {
        self.months
    }

    /// Days, weeks among them.
    pub fn days(self) -> i32 {
        self.days
    }

    /// Time in microseconds.
    pub fn micros(self) -> i64 {
        self.micros
    }

    /// Microseconds with months of 30 days and days of 24 hours: the order of intervals.
    pub fn span(self) -> i128 {
        let days = i64::from(self.months) * DAYS_PER_MONTH + i64::from(self.days);
        i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(self.micros)
    }

    /// Interval of Arrow; digits below a microsecond are truncated.
    pub fn from_arrow(interval: IntervalMonthDayNano) -> Interval {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        Interval { months, days, micros: nanoseconds / NANOS_PER_MICRO }
    }

    /// The same in Arrow.
    pub fn to_arrow(self) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(self.months, self.days, self.micros * NANOS_PER_MICRO)
    }

    /// Stored form: microseconds, days, months, little-endian.
    pub(crate) fn to_bytes(self) -> [u8; INTERVAL_BYTES] {
        let mut bytes = [0; INTERVAL_BYTES];
        bytes[..8].copy_from_slice(&self.micros.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.days.to_le_bytes());
        bytes[12..].copy_from_slice(&self.months.to_le_bytes());
        bytes
    }

    /// Interval of its stored form. Time that is out of range, which only damage can leave, is the greatest.
    pub(crate) fn from_bytes(bytes: [u8; INTERVAL_BYTES]) -> Interval {
        let word = u128::from_le_bytes(bytes);
        let micros = (word as u64 as i64).clamp(-MICROS_MAX, MICROS_MAX);
        Interval { micros, days: (word >> 64) as u32 as i32, months: (word >> 96) as u32 as i32 }
    }

    /// Stored form as a word.
    pub(crate) fn to_word(self) -> i128 {
        i128::from_le_bytes(self.to_bytes())
    }

    /// Interval of such a word.
    pub(crate) fn from_word(word: i128) -> Interval {
        Interval::from_bytes(word.to_le_bytes())
    }

    /// Parses a string; a number without a unit counts seconds.
    pub fn parse(text: &str) -> Result<Interval, IntervalError> {
        Interval::parse_in(text, IntervalUnit::Second)
    }

    /// Parses a string; a number without a unit counts these.
    pub fn parse_in(text: &str, unit: IntervalUnit) -> Result<Interval, IntervalError> {
        let text = text.trim();
        let mut sum = Sum::default();
        match text.strip_prefix(['P', 'p']) {
            Some(iso) => designated(iso, &mut sum)?,
            None => worded(text, unit, &mut sum)?,
        }
        sum.finish()
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Interval) -> Ordering {
        let key = |of: &Interval| (of.span(), of.months, of.days);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Interval) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl IntervalUnit {
    /// Unit of a name, as PostgreSQL abbreviates them.
    pub fn named(name: &str) -> Option<IntervalUnit> {
        Some(match name.to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" => {
                IntervalUnit::Microsecond
            }
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" => {
                IntervalUnit::Millisecond
            }
            "s" | "sec" | "secs" | "second" | "seconds" => IntervalUnit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => IntervalUnit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => IntervalUnit::Hour,
            "d" | "day" | "days" => IntervalUnit::Day,
            "w" | "week" | "weeks" => IntervalUnit::Week,
            "mon" | "mons" | "month" | "months" => IntervalUnit::Month,
            "y" | "yr" | "yrs" | "year" | "years" => IntervalUnit::Year,
            "dec" | "decs" | "decade" | "decades" => IntervalUnit::Decade,
            "c" | "cent" | "century" | "centuries" => IntervalUnit::Century,
            "mil" | "mils" | "millennium" | "millennia" => IntervalUnit::Millennium,
            _ => return None,
        })
    }
}

/// Number as written: an integer and a fraction of the same sign.
#[derive(Debug, Clone, Copy)]
struct Number {
    whole: i64,
    fraction: f64,
}

impl Number {
    /// Parses `12`, `-1.5`, `.5`.
    fn parse(text: &str) -> Result<Number, IntervalError> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
            return Err(IntervalError::Syntax);
        }
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let whole: i64 =
            if whole.is_empty() { 0 } else { whole.parse().map_err(|_| IntervalError::OutOfRange)? };
        let fraction: f64 = if fraction.is_empty() {
            0.0
        } else {
            format!("0.{fraction}").parse().map_err(|_| IntervalError::Syntax)?
        };
        Ok(Number { whole: sign * whole, fraction: sign as f64 * fraction })
    }
}

/// Fields that are summed up, with room for more than an interval's.
#[derive(Debug, Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
    /// Bits of the units that were given: each once.
    units: u32,
}

impl Sum {
    fn finish(self) -> Result<Interval, IntervalError> {
        let field = |value: i64| i32::try_from(value).map_err(|_| IntervalError::OutOfRange);
        Interval::new(field(self.months)?, field(self.days)?, self.micros).ok_or(IntervalError::OutOfRange)
    }

    /// Marks a unit as given; an error if it was.
    fn mark(&mut self, unit: IntervalUnit) -> Result<(), IntervalError> {
        let bit = 1 << unit as u32;
        if self.units & bit != 0 {
            return Err(IntervalError::Syntax);
        }
        self.units |= bit;
        Ok(())
    }

    /// Adds a number of units; parts of one become smaller units.
    fn add(&mut self, number: Number, unit: IntervalUnit) -> Result<(), IntervalError> {
        match unit {
            IntervalUnit::Microsecond => self.add_micros(number, 1),
            IntervalUnit::Millisecond => self.add_micros(number, 1_000),
            IntervalUnit::Second => self.add_micros(number, MICROS_PER_SECOND),
            IntervalUnit::Minute => self.add_micros(number, MICROS_PER_MINUTE),
            IntervalUnit::Hour => self.add_micros(number, MICROS_PER_HOUR),
            IntervalUnit::Day => self.add_days(number, 1),
            IntervalUnit::Week => self.add_days(number, 7),
            IntervalUnit::Month => {
                self.months = added(self.months, number.whole, 1)?;
                self.add_days(Number { whole: 0, ..number }, DAYS_PER_MONTH)
            }
            IntervalUnit::Year => self.add_years(number, 1),
            IntervalUnit::Decade => self.add_years(number, 10),
            IntervalUnit::Century => self.add_years(number, 100),
            IntervalUnit::Millennium => self.add_years(number, 1_000),
        }
    }

    fn add_micros(&mut self, number: Number, scale: i64) -> Result<(), IntervalError> {
        self.micros = added(self.micros, number.whole, scale)?;
        // A part of one unit: it fits.
        self.micros = added(self.micros, (number.fraction * scale as f64).round_ties_even() as i64, 1)?;
        Ok(())
    }

    fn add_days(&mut self, number: Number, scale: i64) -> Result<(), IntervalError> {
        self.days = added(self.days, number.whole, scale)?;
        let part = number.fraction * scale as f64;
        self.days = added(self.days, part.trunc() as i64, 1)?;
        self.add_micros(Number { whole: 0, fraction: part - part.trunc() }, MICROS_PER_DAY)
    }

    fn add_years(&mut self, number: Number, scale: i64) -> Result<(), IntervalError> {
        let months = scale * MONTHS_PER_YEAR;
        self.months = added(self.months, number.whole, months)?;
        self.months = added(self.months, (number.fraction * months as f64).round_ties_even() as i64, 1)?;
        Ok(())
    }
}

fn added(sum: i64, count: i64, scale: i64) -> Result<i64, IntervalError> {
    count.checked_mul(scale).and_then(|more| sum.checked_add(more)).ok_or(IntervalError::OutOfRange)
}

/// Part of a string: a word of letters, or digits with their sign and points, colons and hyphens.
fn next_field(text: &str) -> Option<(&str, &str)> {
    let ignored = |c: char| c.is_whitespace() || (c.is_ascii_punctuation() && !matches!(c, '+' | '-' | '.'));
    let text = text.trim_start_matches(ignored);
    let first = text.chars().next()?;
    let is_word = first.is_alphabetic();
    let sign = usize::from(matches!(first, '+' | '-'));
    let after = text[sign..].trim_start();
    let signed = text.len() - after.len();
    let is_part = |c: char| {
        if is_word { c.is_alphabetic() } else { c.is_ascii_digit() || matches!(c, '.' | ':' | '-') }
    };
    let end = after.find(|c: char| !is_part(c));
    let end = signed + end.unwrap_or(after.len());
    // A sign alone, or a character that is in no interval.
    Some(text.split_at(end.max(first.len_utf8())))
}

/// Units that seconds with a fraction exclude.
const SECONDS: [IntervalUnit; 3] =
    [IntervalUnit::Second, IntervalUnit::Millisecond, IntervalUnit::Microsecond];

/// Fields in words and numbers: units stand behind their numbers.
fn worded(text: &str, unit: IntervalUnit, sum: &mut Sum) -> Result<(), IntervalError> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((field, after)) = next_field(rest) {
        fields.push(field);
        rest = after;
    }
    // Unit of the next number; none behind `ago`.
    let (mut unit, mut negated, mut numbers) = (Some(unit), false, 0);
    for (at, field) in fields.iter().enumerate().rev() {
        if field.starts_with(char::is_alphabetic) {
            if field.eq_ignore_ascii_case("ago") && at + 1 == fields.len() {
                (negated, unit) = (true, None);
            } else {
                unit = Some(IntervalUnit::named(field).ok_or(IntervalError::Syntax)?);
            }
            continue;
        }
        numbers += 1;
        let compact: String = field.chars().filter(|c| !c.is_whitespace()).collect();
        if compact.contains(':') {
            [IntervalUnit::Hour, IntervalUnit::Minute]
                .into_iter()
                .chain(SECONDS)
                .try_for_each(|unit| sum.mark(unit))?;
            // As in PostgreSQL, in place of parts of days that came before.
            sum.micros = clock(&compact)?;
            unit = Some(IntervalUnit::Day);
        } else if let Some(months) = years_and_months(&compact)? {
            sum.mark(IntervalUnit::Month)?;
            sum.months = added(sum.months, months, 1)?;
            unit = Some(IntervalUnit::Month);
        } else {
            let (of, number) = (unit.ok_or(IntervalError::Syntax)?, Number::parse(&compact)?);
            match of {
                IntervalUnit::Second if number.fraction != 0.0 => {
                    SECONDS.into_iter().try_for_each(|unit| sum.mark(unit))?;
                }
                _ => sum.mark(of)?,
            }
            sum.add(number, of)?;
            // `1 02 hours` is a day and two hours.
            unit = if of == IntervalUnit::Hour { Some(IntervalUnit::Day) } else { unit };
        }
    }
    if numbers == 0 {
        return Err(IntervalError::Syntax);
    }
    if negated {
        sum.months = sum.months.checked_neg().ok_or(IntervalError::OutOfRange)?;
        sum.days = sum.days.checked_neg().ok_or(IntervalError::OutOfRange)?;
        sum.micros = sum.micros.saturating_neg();
    }
    Ok(())
}

/// Months of `1-2`, a year and two months; none if it is a number.
fn years_and_months(field: &str) -> Result<Option<i64>, IntervalError> {
    let unsigned = field.strip_prefix(['-', '+']).unwrap_or(field);
    let Some((years, months)) = unsigned.split_once('-') else { return Ok(None) };
    let whole = |part: &str| -> Result<i64, IntervalError> {
        let number = Number::parse(part)?;
        if part.contains(['.', '-', '+']) { Err(IntervalError::Syntax) } else { Ok(number.whole) }
    };
    let (years, months) = (whole(years)?, whole(months)?);
    if months >= MONTHS_PER_YEAR {
        return Err(IntervalError::OutOfRange);
    }
    let sum = added(months, years, MONTHS_PER_YEAR)?;
    Ok(Some(if field.starts_with('-') { -sum } else { sum }))
}

/// Microseconds of `04:05:06.789`, `04:05`, or `05:06.789`.
fn clock(field: &str) -> Result<i64, IntervalError> {
    let unsigned = field.strip_prefix(['-', '+']).unwrap_or(field);
    let parts: Vec<&str> = unsigned.split(':').collect();
    let whole = |part: &str| {
        if part.contains(['.', '-', '+']) {
            return Err(IntervalError::Syntax);
        }
        Ok(Number::parse(part)?.whole)
    };
    let (hours, minutes, seconds) = match parts.as_slice() {
        [minutes, seconds] if seconds.contains('.') => (0, whole(minutes)?, *seconds),
        [hours, minutes] => (whole(hours)?, whole(minutes)?, "0"),
        [hours, minutes, seconds] => (whole(hours)?, whole(minutes)?, *seconds),
        _ => return Err(IntervalError::Syntax),
    };
    let seconds =
        if seconds.contains(['-', '+']) { Err(IntervalError::Syntax) } else { Number::parse(seconds) }?;
    if minutes > 59 || seconds.whole > 60 {
        return Err(IntervalError::OutOfRange);
    }
    let mut sum = Sum::default();
    sum.add(Number { whole: hours, fraction: 0.0 }, IntervalUnit::Hour)?;
    sum.add(Number { whole: minutes, fraction: 0.0 }, IntervalUnit::Minute)?;
    sum.add(seconds, IntervalUnit::Second)?;
    Ok(if field.starts_with('-') { -sum.micros } else { sum.micros })
}

/// Fields of ISO 8601 behind the P: `1Y2M3W4DT5H6M7.8S`, or `1-2-3T04:05:06`.
fn designated(text: &str, sum: &mut Sum) -> Result<(), IntervalError> {
    let (date, time) = match text.split_once(['T', 't']) {
        Some((_, "")) => return Err(IntervalError::Syntax),
        Some((date, time)) => (date, Some(time)),
        None if text.is_empty() => return Err(IntervalError::Syntax),
        None => (text, None),
    };
    let date_unit = |unit| match unit {
        'Y' => Some(IntervalUnit::Year),
        'M' => Some(IntervalUnit::Month),
        'W' => Some(IntervalUnit::Week),
        'D' => Some(IntervalUnit::Day),
        _ => None,
    };
    let time_unit = |unit| match unit {
        'H' => Some(IntervalUnit::Hour),
        'M' => Some(IntervalUnit::Minute),
        'S' => Some(IntervalUnit::Second),
        _ => None,
    };
    let is_plain = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_alphabetic());
    if is_plain(date) {
        let units = [IntervalUnit::Year, IntervalUnit::Month, IntervalUnit::Day];
        for (part, unit) in date.split('-').zip(units) {
            sum.add(Number::parse(part)?, unit)?;
        }
        if date.split('-').count() > units.len() {
            return Err(IntervalError::Syntax);
        }
    } else {
        units_behind(date, date_unit, sum)?;
    }
    match time {
        Some(time) if is_plain(time) => {
            let micros = if time.contains(':') { clock(time)? } else { clock(&format!("{time}:00"))? };
            sum.micros = added(sum.micros, micros, 1)?;
            Ok(())
        }
        Some(time) => units_behind(time, time_unit, sum),
        None => Ok(()),
    }
}

/// Numbers with a letter behind each.
fn units_behind(
    text: &str,
    unit_of: impl Fn(char) -> Option<IntervalUnit>,
    sum: &mut Sum,
) -> Result<(), IntervalError> {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_alphabetic()) {
        let unit = rest[at..].chars().next().map(|unit| unit.to_ascii_uppercase());
        let unit = unit.and_then(&unit_of).ok_or(IntervalError::Syntax)?;
        if rest.starts_with('+') {
            return Err(IntervalError::Syntax);
        }
        sum.add(Number::parse(&rest[..at])?, unit)?;
        rest = &rest[at + 1..];
    }
    if rest.is_empty() { Ok(()) } else { Err(IntervalError::Syntax) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = MICROS_PER_SECOND;

    /// Expected values from PostgreSQL 15.
    #[test]
    fn strings_are_those_of_postgresql() {
        let time = |hours: i64, minutes: i64, seconds: i64| (hours * 3600 + minutes * 60 + seconds) * SECOND;
        for (text, months, days, micros) in [
            ("3 4:05:06", 0, 3, time(4, 5, 6)),
            ("1 year 2 mons -3 days 04:05:06.789", 14, -3, time(4, 5, 6) + 789_000),
            ("1-2", 14, 0, 0),
            ("-1-2 3 4:05", -14, 3, time(4, 5, 0)),
            ("5", 0, 0, 5 * SECOND),
            ("1.5 days", 0, 1, time(12, 0, 0)),
            ("1.5 months", 1, 15, 0),
            ("1.5 weeks", 0, 10, time(12, 0, 0)),
            ("1.25 years", 15, 0, 0),
            ("2 weeks 3 days ago", 0, -17, 0),
            ("@ 1 minute", 0, 0, time(0, 1, 0)),
            ("1h30m", 0, 0, time(1, 30, 0)),
            ("-00:01", 0, 0, -time(0, 1, 0)),
            ("04:05.5", 0, 0, time(0, 4, 5) + 500_000),
            ("- 3 days", 0, -3, 0),
            ("100:00:00", 0, 0, time(100, 0, 0)),
            ("1 decade 1 century 1 millennium", 12 * 1110, 0, 0),
            ("1 ms 3 us", 0, 0, 1_003),
            ("P1Y2M", 14, 0, 0),
            ("P1Y2M3DT4H5M6.7S", 14, 3, time(4, 5, 6) + 700_000),
            ("P2W", 0, 14, 0),
            ("PT-30M", 0, 0, -time(0, 30, 0)),
            ("P1-2-3T04:05:06", 14, 3, time(4, 5, 6)),
            ("0.0000005 seconds", 0, 0, 0),
        ] {
            assert_eq!(Interval::parse(text), Ok(Interval { months, days, micros }), "{text}");
        }
        let least = i64::MIN;
        for text in [format!("{least} months ago"), format!("{least} days ago"), format!("{least} us ago")] {
            assert_eq!(Interval::parse(&text), Err(IntervalError::OutOfRange), "{text}");
        }
        assert_eq!(
            Interval::parse_in("3", IntervalUnit::Day),
            Ok(Interval { months: 0, days: 3, micros: 0 })
        );
    }

    #[test]
    fn other_strings_are_refused() {
        for text in [
            "",
            "days",
            "P",
            "PT",
            "P1",
            "1 day 2 days",
            "chicago",
            "1 fortnight",
            "1:2:3:4",
            "ago",
            "-",
            "1e3 days",
            "€",
        ] {
            // PostgreSQL reads a number behind P as years.
            let expected = if text == "P1" {
                Ok(Interval { months: 12, days: 0, micros: 0 })
            } else {
                Err(IntervalError::Syntax)
            };
            assert_eq!(Interval::parse(text), expected, "{text}");
        }
        for text in ["1:60", "99999999999 days", "1-12", "3000000 hours", "9223372036854775808 us"] {
            assert_eq!(Interval::parse(text), Err(IntervalError::OutOfRange), "{text}");
        }
    }

    #[test]
    fn the_order_is_that_of_their_lengths() {
        let of = |text: &str| Interval::parse(text).unwrap();
        assert_eq!(of("1 mon").span(), of("30 days").span());
        assert_eq!(of("1 day").span(), of("24:00").span());
        assert!(of("1 mon") < of("31 days") && of("1 mon") > of("29 days 23:59:59"));
        assert!(of("1 mon") != of("30 days"));
        let all = ["-1 mon", "-1 day", "00:00", "1 day", "24:00", "30 days", "1 mon", "1 year"];
        for (at, text) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                assert_ne!(of(text), of(other));
                assert!(of(text).span() <= of(other).span(), "{text} {other}");
            }
        }
    }

    #[test]
    fn stored_bytes_come_back_and_damage_stays_in_range() {
        for (months, days, micros) in [(0, 0, 0), (-1, 2, -3), (i32::MAX, i32::MIN, MICROS_MAX)] {
            let interval = Interval::new(months, days, micros).unwrap();
            assert_eq!(Interval::from_bytes(interval.to_bytes()), interval);
            assert_eq!(Interval::from_arrow(interval.to_arrow()), interval);
        }
        assert_eq!(Interval::new(0, 0, MICROS_MAX + 1), None);
        assert_eq!(Interval::from_bytes([0x7f; 16]).micros(), MICROS_MAX);
    }
}
