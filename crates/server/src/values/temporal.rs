//! Dates, times and intervals as PostgreSQL writes them: ISO style; binary counts from 2000-01-01, in UTC.

use bytes::BytesMut;
use entresol::arrow::array::timezone::Tz;
use entresol::arrow::datatypes::TimestampMicrosecondType;
use entresol::arrow::temporal_conversions::as_datetime_with_timezone;
use entresol::tables::calendar;
use std::fmt::Write;

/// Days from 1970-01-01 to 2000-01-01.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// Microseconds of a day.
pub(crate) const DAY_US: i64 = 86_400_000_000;
/// The same distance in microseconds.
pub(crate) const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, u32, u32) {
    // Years begin in March here, so that the leap day is the last; an era has 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

/// `2024-02-29`; years before the first end in ` BC`.
fn day(days: i64, out: &mut BytesMut) -> &'static str {
    let (year, month, day) = civil(days);
    let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
    era
}

/// A date.
pub(crate) fn date(days: i32, out: &mut BytesMut) {
    let era = day(i64::from(days), out);
    out.extend_from_slice(era.as_bytes());
}

/// A time of day, with as many digits of a second as it has.
pub(crate) fn time(microseconds: i64, out: &mut BytesMut) {
    let seconds = microseconds / 1_000_000;
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    fraction(microseconds % 1_000_000, out);
}

fn fraction(microseconds: i64, out: &mut BytesMut) {
    if microseconds != 0 {
        let digits = format!("{microseconds:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

/// The name of the zone of binary values.
pub(crate) const UTC: &str = "UTC";

/// A time zone; by default UTC.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Zone(Option<Tz>);

impl Zone {
    /// The zone of the setting's value.
    pub(crate) fn named(name: &str) -> Zone {
        Zone(Some(name).filter(|name| *name != UTC).and_then(|name| name.parse().ok()))
    }

    /// Seconds that its clocks are ahead of UTC at an instant; 0 where the calendar ends.
    fn ahead(self, microseconds: i64) -> i64 {
        let local = self.0.and_then(|zone| {
            let instant = as_datetime_with_timezone::<TimestampMicrosecondType>(microseconds, zone)?;
            Some((instant.naive_local() - instant.naive_utc()).num_seconds())
        });
        local.unwrap_or(0)
    }
}

/// A timestamp in microseconds from 1970; in a zone it ends in its offset from UTC: `+02`, `-03:30`.
pub(crate) fn timestamp(microseconds: i64, zone: Option<Zone>, out: &mut BytesMut) {
    let ahead = zone.map_or(0, |zone| zone.ahead(microseconds));
    let local = microseconds.saturating_add(ahead * 1_000_000);
    let era = day(local.div_euclid(DAY_US), out);
    out.extend_from_slice(b" ");
    time(local.rem_euclid(DAY_US), out);
    if zone.is_some() {
        let sign = if ahead < 0 { '-' } else { '+' };
        let seconds = ahead.abs();
        let _ = write!(out, "{sign}{:02}", seconds / 3600);
        if seconds % 3600 != 0 {
            let _ = write!(out, ":{:02}", seconds / 60 % 60);
        }
        if seconds % 60 != 0 {
            let _ = write!(out, ":{:02}", seconds % 60);
        }
    }
    out.extend_from_slice(era.as_bytes());
}

/// An interval: months, days and time do not carry over into each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) microseconds: i64,
}

impl Interval {
    /// The difference of two timestamps: whole days and time.
    pub(crate) fn between(microseconds: i64) -> Option<Interval> {
        let days = i32::try_from(microseconds / DAY_US).ok()?;
        Some(Interval { months: 0, days, microseconds: microseconds % DAY_US })
    }

    /// `1 year 2 mons -3 days 04:05:06.7`.
    pub(crate) fn text(self, out: &mut BytesMut) {
        // Writing to a buffer does not fail.
        let _ = calendar::format_interval(self.months, self.days, self.microseconds, out);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn written(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let date = |days| written(|out| date(days, out));
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(EPOCH_DAYS), "2000-01-01");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(-1), "1969-12-31");
        assert_eq!(date(-719_162), "0001-01-01");
        assert_eq!(date(-719_163), "0001-12-31 BC");
        assert_eq!(date(2_932_896), "9999-12-31");
    }

    #[test]
    fn times_have_the_digits_that_they_need() {
        let timestamp = |us, zone: Option<&str>| written(|out| timestamp(us, zone.map(Zone::named), out));
        assert_eq!(timestamp(0, None), "1970-01-01 00:00:00");
        assert_eq!(timestamp(1_500_000, Some("UTC")), "1970-01-01 00:00:01.5+00");
        assert_eq!(timestamp(-1, None), "1969-12-31 23:59:59.999999");
        assert_eq!(timestamp(0, Some("Europe/Berlin")), "1970-01-01 01:00:00+01");
        assert_eq!(timestamp(1_719_828_000_000_000, Some("Europe/Berlin")), "2024-07-01 12:00:00+02");
        assert_eq!(timestamp(0, Some("-03:30")), "1969-12-31 20:30:00-03:30");
        // Before there were zones, clocks showed the sun's time.
        assert_eq!(timestamp(-EPOCH_US * 4, Some("Europe/Berlin")), "1850-01-02 00:53:28+00:53:28");
        assert_eq!(timestamp(i64::MAX, Some("Europe/Berlin")), timestamp(i64::MAX, Some("UTC")));
        assert_eq!(written(|out| time(DAY_US - 1, out)), "23:59:59.999999");
    }

    #[test]
    fn intervals_read_as_postgresql_writes_them() {
        let interval =
            |months, days, microseconds| written(|out| Interval { months, days, microseconds }.text(out));
        assert_eq!(interval(0, 0, 0), "00:00:00");
        assert_eq!(interval(14, 3, 14_706_789_000), "1 year 2 mons 3 days 04:05:06.789");
        assert_eq!(interval(-1, 1, -1_000_000), "-1 mons +1 day -00:00:01");
        assert_eq!(interval(0, 1, 0), "1 day");
    }
}
