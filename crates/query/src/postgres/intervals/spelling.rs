//! Interval literals: PostgreSQL's strings, as [`Interval`] reads them, in the units that DataFusion parses.

use entresol_tables::{Interval, IntervalUnit};

/// Microseconds of an hour and of a minute.
const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = 60_000_000;

/// Rewrites a string in units; `None` if it is no interval.
pub(crate) fn spelled(text: &str) -> Option<String> {
    Interval::parse(text).ok().map(in_units)
}

/// Rewrites the string of `INTERVAL 'string' FIELD`: numbers without a unit count the field, and smaller units are
/// removed. `None` if it is no interval.
pub(crate) fn spelled_in(text: &str, field: &str) -> Option<String> {
    let unit = IntervalUnit::named(field)?;
    let interval = Interval::parse_in(text, unit).ok()?;
    let (months, days, micros) = (interval.months(), interval.days(), interval.micros());
    let (months, days, micros) = match unit {
        IntervalUnit::Year => (months / 12 * 12, 0, 0),
        IntervalUnit::Month => (months, 0, 0),
        IntervalUnit::Day => (months, days, 0),
        IntervalUnit::Hour => (months, days, micros / HOUR * HOUR),
        IntervalUnit::Minute => (months, days, micros / MINUTE * MINUTE),
        _ => (months, days, micros),
    };
    Interval::new(months, days, micros).map(in_units)
}

/// Rewrites a string in units, with the opposite sign of each.
pub(crate) fn negated(text: &str) -> Option<String> {
    let interval = Interval::parse(text).ok()?;
    let (months, days) = (interval.months().checked_neg()?, interval.days().checked_neg()?);
    Interval::new(months, days, -interval.micros()).map(in_units)
}

fn in_units(interval: Interval) -> String {
    let (months, days, micros) = (interval.months(), interval.days(), interval.micros());
    format!("{months} months {days} days {micros} microseconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_spelled_in_units() {
        assert_eq!(
            spelled("1-2 3 -04:05:06.5").as_deref(),
            Some("14 months 3 days -14706500000 microseconds")
        );
        assert_eq!(spelled("chicago"), None);
        // A number without a unit at the end has seconds.
        assert_eq!(negated("1-2 -3").as_deref(), Some("-14 months 0 days 3000000 microseconds"));
        for (text, field, expected) in [
            ("1", "YEAR", Some("12 months 0 days 0 microseconds")),
            ("5", "MINUTE", Some("0 months 0 days 300000000 microseconds")),
            ("1 day 02:03:04", "HOUR", Some("0 months 1 days 7200000000 microseconds")),
            ("1 year 3 mons", "YEAR", Some("12 months 0 days 0 microseconds")),
            ("1.5", "DAY", Some("0 months 1 days 0 microseconds")),
            ("x", "DAY", None),
            ("1", "FORTNIGHT", None),
        ] {
            assert_eq!(spelled_in(text, field).as_deref(), expected, "{text} {field}");
        }
    }
}
