//! Time zones: their names, and local time in them.
//!
//! - A TIMESTAMPTZ is an instant; DataFusion's type has the session's zone, in which it is printed and its
//!   fields and days are counted. A TIMESTAMP is a local time.
//! - An instant that loses its zone becomes local time in the session's, as in PostgreSQL: in casts to
//!   TIMESTAMP, DATE and TIME, and when it is assigned to a column of such a type; and the other way round.
//! - An ambiguous local time, when clocks are set back, is the second, in standard time; one that does not
//!   exist, when they are set forward, counts on from before.
//! - Offsets count to the east, as in ISO 8601, except for PostgreSQL's `GMT+2` and `UTC+2`, which count to
//!   the west, and in `AT TIME ZONE '+02:00'`.

mod local_times;
mod now;

use crate::error::Result;
use chrono::{DateTime, MappedLocalTime, Offset, TimeDelta, TimeZone};
use chrono_tz::{OffsetName, TZ_VARIANTS};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::SessionState;
use entresol_tables::calendar::{self, MICROS_PER_SECOND};
use entresol_tables::{Column, DataType, Value};
use std::sync::Arc;

pub(crate) use self::local_times::{DatesBesideTimes, LocalTimes, functions};

/// Zone in which times are stored.
pub(crate) const UTC: &str = "UTC";
/// Other names of UTC.
const UTC_NAMES: [&str; 6] = ["UTC", "Etc/UTC", "GMT", "Z", "+00", "0"];
/// DataFusion's option for the session's zone.
pub(crate) const OPTION: &str = "datafusion.execution.time_zone";
/// Largest offset.
const OFFSET_MINUTES_MAX: f64 = 16.0 * 60.0;

/// Instant given by a string, in microseconds; if the string names no zone it is local time in `zone`, the
/// name of a session's zone.
pub fn parse_instant(text: &str, zone: &str) -> Option<i64> {
    Zone::new(zone).ok()?.parse(text)
}

/// Canonical name of the zone of this name, if there is one: `Europe/Berlin`, `+02:00`, hours as in `-3.5`.
pub(crate) fn named(name: &str) -> Option<String> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    if UTC_NAMES.iter().any(is) {
        return Some(UTC.to_owned());
    }
    if let Ok(hours) = name.parse() {
        return offset(hours);
    }
    if let Some(offset) = posix(name) {
        return Some(offset);
    }
    if let Some(zone) = TZ_VARIANTS.iter().find(|zone| is(&zone.name())) {
        return Some(zone.name().to_owned());
    }
    name.parse::<Tz>().is_ok().then(|| name.to_owned())
}

/// Canonical name of the zone that an expression names: as [`named`], but offsets count to the west, as POSIX has it.
/// PostgreSQL reads a setting of hours as ISO 8601 does, and `AT TIME ZONE` so.
pub(crate) fn named_in_expression(name: &str) -> Option<String> {
    if name.trim_start_matches(['+', '-']).starts_with(|first: char| first.is_ascii_digit()) {
        west(name)
    } else {
        named(name)
    }
}

/// Zones such as `GMT+2`.
fn posix(name: &str) -> Option<String> {
    let (zone, offset) = name.split_at_checked(3)?;
    let known = ["GMT", "UTC"].iter().any(|known| known.eq_ignore_ascii_case(zone));
    if known && offset.starts_with(['+', '-']) { west(offset) } else { None }
}

/// Offset to the west, in hours and minutes.
fn west(text: &str) -> Option<String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    let is_short =
        |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_short(hours) || !is_short(minutes) {
        return None;
    }
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    let hours = f64::from(hours) + f64::from(minutes) / 60.0;
    offset(if text.starts_with('-') { hours } else { -hours })
}

fn offset(hours: f64) -> Option<String> {
    let minutes = (hours * 60.0).round();
    if minutes.is_nan() || minutes.abs() >= OFFSET_MINUTES_MAX {
        return None;
    }
    let sign = if minutes < 0.0 { '-' } else { '+' };
    // At most four digits.
    let minutes = minutes.abs() as u32;
    Some(if minutes == 0 { UTC.to_owned() } else { format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60) })
}

/// Sets the zone of DataFusion, and of the functions that depend on it.
pub(crate) fn set(state: &mut SessionState, zone: &str) -> Result<()> {
    state.config_mut().options_mut().set(OPTION, zone)?;
    let options = state.config_options();
    let functions = state.scalar_functions().values();
    let changed: Vec<_> =
        functions.filter_map(|function| function.inner().with_updated_config(options)).collect();
    for function in changed {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

/// Time zone to compute with.
#[derive(Debug, Clone)]
pub(crate) struct Zone {
    name: Arc<str>,
    rules: Tz,
}

impl Zone {
    /// Zone of a setting's value ([`named`]) or of DataFusion's type.
    pub(crate) fn new(name: &str) -> Result<Zone> {
        Ok(Zone { name: name.into(), rules: name.parse()? })
    }

    pub(crate) fn utc() -> Zone {
        Zone { name: UTC.into(), rules: UTC.parse().unwrap_or_else(|_| unreachable!("UTC is a zone")) }
    }

    /// The zone of a session.
    pub(crate) fn of(options: &ConfigOptions) -> Result<Zone> {
        Zone::new(options.execution.time_zone.as_deref().unwrap_or(UTC))
    }

    /// Name in DataFusion's types.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Seconds that its clocks are ahead of UTC at an instant; `None` where the calendar ends.
    fn ahead(&self, instant: i64) -> Option<i64> {
        let utc = DateTime::from_timestamp_micros(instant)?.naive_utc();
        Some(i64::from(self.rules.offset_from_utc_datetime(&utc).fix().local_minus_utc()))
    }

    /// Abbreviation of the zone at an instant: `CEST`; its offset from UTC if it has none.
    pub(crate) fn abbreviation(&self, micros: i64) -> String {
        let utc = DateTime::from_timestamp_micros(micros).map(|time| time.naive_utc());
        let zone = self.name.parse::<chrono_tz::Tz>().ok();
        let named = zone
            .zip(utc)
            .and_then(|(zone, utc)| zone.offset_from_utc_datetime(&utc).abbreviation().map(str::to_owned));
        named.unwrap_or_else(|| {
            let seconds = self.ahead(micros).unwrap_or(0);
            let sign = if seconds < 0 { '-' } else { '+' };
            let (hours, minutes) = (seconds.abs() / 3600, seconds.abs() / 60 % 60);
            let minutes = if minutes == 0 { String::new() } else { format!(":{minutes:02}") };
            format!("{sign}{hours:02}{minutes}")
        })
    }

    /// Local time at an instant, both in microseconds.
    pub(crate) fn wall(&self, instant: i64) -> Option<i64> {
        instant.checked_add(self.ahead(instant)? * MICROS_PER_SECOND)
    }

    /// Instant of a local time, both in microseconds.
    pub(crate) fn instant(&self, wall: i64) -> Option<i64> {
        /// Bound on the gap of local times in any zone.
        const GAP_HOURS_MAX: i64 = 24;
        let local = DateTime::from_timestamp_micros(wall)?.naive_utc();
        let ahead = match self.rules.offset_from_local_datetime(&local) {
            MappedLocalTime::Single(offset) | MappedLocalTime::Ambiguous(_, offset) => offset,
            MappedLocalTime::None => {
                let before = local.checked_sub_signed(TimeDelta::hours(GAP_HOURS_MAX))?;
                self.rules.offset_from_local_datetime(&before).latest()?
            }
        };
        wall.checked_sub(i64::from(ahead.fix().local_minus_utc()) * MICROS_PER_SECOND)
    }

    /// Instant given by a string; local time in this zone if the string names none.
    pub(crate) fn parse(&self, text: &str) -> Option<i64> {
        let text = text.trim();
        match calendar::parse_zoned(text) {
            Some((wall, Some(ahead))) => wall.checked_sub(ahead * MICROS_PER_SECOND),
            Some((wall, None)) => self.instant(wall),
            // `2024-07-01 12:00:00 Europe/Berlin` and other formats that casts accept.
            None => Some(string_to_datetime(&self.rules, text).ok()?.timestamp_micros()),
        }
    }

    /// Parses a value like [`Column::parse`], with local times in this zone.
    pub(crate) fn value(&self, column: &Column, text: &str) -> entresol_tables::Result<Value> {
        if column.data_type != DataType::TimestampTz {
            return column.parse(text);
        }
        self.parse(text).map(Value::Timestamp).ok_or_else(|| entresol_tables::Error::Parse {
            column: column.name.clone(),
            value: text.to_owned(),
            expected: column.data_type,
        })
    }

    /// Formats an instant as local time in this zone.
    pub(crate) fn print(&self, instant: i64, out: &mut impl std::fmt::Write) -> std::fmt::Result {
        calendar::format_timestamptz(instant, self.ahead(instant).unwrap_or(0), out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_many_names() {
        for (name, expected) in [
            ("europe/berlin", Some("Europe/Berlin")),
            ("CET", Some("CET")),
            ("etc/utc", Some("UTC")),
            ("0", Some("UTC")),
            ("2", Some("+02:00")),
            ("-3.5", Some("-03:30")),
            ("+05:45", Some("+05:45")),
            ("GMT-02:00", Some("+02:00")),
            ("utc+3", Some("-03:00")),
            ("Europe/Nowhere", None),
            ("99", None),
            ("NaN", None),
            ("GMT+x", None),
            ("", None),
        ] {
            assert_eq!(named(name).as_deref(), expected, "{name}");
        }
    }

    /// Expected values from PostgreSQL 15.
    #[test]
    fn offsets_of_expressions_count_to_the_west() {
        for (name, expected) in [
            ("+03:00", Some("-03:00")),
            ("-03:30", Some("+03:30")),
            ("3", Some("-03:00")),
            ("-11", Some("+11:00")),
            ("+0330", None),
            ("UTC+3", Some("-03:00")),
            ("0", Some("UTC")),
            ("Europe/Berlin", Some("Europe/Berlin")),
            ("+03:99x", None),
        ] {
            assert_eq!(named_in_expression(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn clocks_that_are_set_leave_hours_out_and_repeat_them() {
        let berlin = Zone::new("Europe/Berlin").unwrap();
        let utc = |text: &str| calendar::parse_timestamp(text).unwrap();
        for (wall, expected, back) in [
            ("2024-07-01 12:00", "2024-07-01 10:00", "2024-07-01 12:00"),
            ("2024-03-31 01:59", "2024-03-31 00:59", "2024-03-31 01:59"),
            ("2024-03-31 02:30", "2024-03-31 01:30", "2024-03-31 03:30"),
            ("2024-10-27 02:30", "2024-10-27 01:30", "2024-10-27 02:30"),
            ("2024-10-27 03:00", "2024-10-27 02:00", "2024-10-27 03:00"),
        ] {
            let instant = berlin.instant(utc(wall)).unwrap();
            assert_eq!((instant, berlin.wall(instant).unwrap()), (utc(expected), utc(back)), "{wall}");
        }
        // A day that Samoa skipped.
        let apia = Zone::new("Pacific/Apia").unwrap();
        assert_eq!(apia.instant(utc("2011-12-30 12:00")), Some(utc("2011-12-30 22:00")));
        for end in [i64::MIN, i64::MAX] {
            assert_eq!((berlin.instant(end), berlin.wall(end)), (None, None));
        }
    }

    #[test]
    fn a_text_is_in_the_zone_or_says_its_own() {
        let zone = Zone::new("Europe/Berlin").unwrap();
        let noon = calendar::parse_timestamp("2024-07-01 12:00").unwrap();
        for text in [
            " 2024-07-01 14:00 ",
            "2024-07-01T12:00:00Z",
            "2024-07-01 17:30:00+05:30",
            "2024-07-01 08:00:00 America/New_York",
        ] {
            assert_eq!(zone.parse(text), Some(noon), "{text}");
        }
        for text in ["", "noon", "2024-07-01 24:00", "2024-07-01 12:00:00 Mars/Olympus", "12:00"] {
            assert_eq!(zone.parse(text), None, "{text}");
        }
        let mut printed = String::new();
        zone.print(noon, &mut printed).unwrap();
        assert_eq!(printed, "2024-07-01 14:00:00+02");
    }
}
