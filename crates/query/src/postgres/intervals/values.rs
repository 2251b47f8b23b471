//! Interval values: scaling and comparison, with PostgreSQL's rules for fractions of a month or day.

use crate::error::{Error, external};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::Result as DFResult;

const DAYS_PER_MONTH: i64 = 30;
pub(super) const NANOS_PER_MICRO: i64 = 1_000;
pub(super) const MICROS_PER_DAY: i64 = 86_400_000_000;
const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Nanoseconds of an interval with months of 30 days and days of 24 hours: the order of intervals.
pub(crate) fn extent(interval: IntervalMonthDayNano) -> i128 {
    let days = i64::from(interval.months) * DAYS_PER_MONTH + i64::from(interval.days);
    i128::from(days) * NANOS_PER_DAY + i128::from(interval.nanoseconds)
}

/// Interval with its fields scaled. `None` out of range.
pub(super) fn scaled(
    interval: IntervalMonthDayNano,
    scale: impl Fn(f64) -> f64,
) -> Option<IntervalMonthDayNano> {
    let micros = interval.nanoseconds as f64 / NANOS_PER_MICRO as f64;
    of_fields(scale(f64::from(interval.months)), scale(f64::from(interval.days)), scale(micros))
}

/// Interval of fields that are no whole numbers: fractions of months become days, fractions of days time. `None` out of
/// range.
pub(super) fn of_fields(
    exact_months: f64,
    exact_days: f64,
    exact_micros: f64,
) -> Option<IntervalMonthDayNano> {
    let whole = |value: f64| {
        let fits = value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX);
        fits.then_some(value.trunc() as i32)
    };
    let (months, days) = (whole(exact_months)?, whole(exact_days)?);
    // Digits that binary fractions cannot represent are rounded away, in microseconds.
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    let month_days = rounded((exact_months - f64::from(months)) * DAYS_PER_MONTH as f64);
    let seconds = rounded((exact_days - f64::from(days) + month_days - month_days.trunc()) * SECONDS_PER_DAY);
    let carried = (seconds / SECONDS_PER_DAY).trunc();
    let days = days.checked_add(whole(month_days)?)?.checked_add(whole(carried)?)?;
    let micros = (exact_micros + (seconds - carried * SECONDS_PER_DAY) * 1e6).round();
    let fits = micros.abs() < i64::MAX as f64 / NANOS_PER_MICRO as f64;
    let nanoseconds = fits.then_some(micros as i64)?.checked_mul(NANOS_PER_MICRO)?;
    Some(IntervalMonthDayNano::new(months, days, nanoseconds))
}

/// Digits behind the point of a field: those of the seconds and what has seconds in it.
pub(super) fn part_scale(unit: &str) -> u8 {
    match unit.to_ascii_lowercase().trim_end_matches('s') {
        "second" | "epoch" => 6,
        "millisecond" => 3,
        _ => 0,
    }
}

/// Field of an interval as EXTRACT has it, in millionths; a year has 365.25 days in its EPOCH, and a month 30.
pub(super) fn part(interval: IntervalMonthDayNano, unit: &str) -> DFResult<i128> {
    const MILLION: i128 = 1_000_000;
    let (years, months) = (i128::from(interval.months / 12), i128::from(interval.months % 12));
    let micros = i128::from(interval.nanoseconds / NANOS_PER_MICRO);
    let seconds = micros % (60 * MILLION);
    let lower = unit.to_ascii_lowercase();
    Ok(match lower.trim_end_matches('s') {
        "millennium" | "millennia" => years / 1_000 * MILLION,
        "century" | "centurie" => years / 100 * MILLION,
        "decade" => years / 10 * MILLION,
        "year" => years * MILLION,
        "quarter" => (months / 3 + 1) * MILLION,
        "month" => months * MILLION,
        "day" => i128::from(interval.days) * MILLION,
        "hour" => micros / (3_600 * MILLION) * MILLION,
        "minute" => micros / (60 * MILLION) % 60 * MILLION,
        "second" => seconds,
        "millisecond" => seconds * 1_000,
        "microsecond" => seconds * MILLION,
        "epoch" => {
            let day = i128::from(MICROS_PER_DAY);
            years * 1_461 * day / 4
                + (months * i128::from(DAYS_PER_MONTH) + i128::from(interval.days)) * day
                + micros
        }
        "week" | "dow" | "doy" | "isodow" | "isoyear" | "julian" | "timezone" => {
            let message = format!("unit \"{lower}\" not supported for type interval");
            return Err(external(Error::coded("0A000", message)));
        }
        _ => {
            let message = format!("unit \"{lower}\" not recognized for type interval");
            return Err(external(Error::coded("22023", message)));
        }
    })
}

/// Interval down to a unit, as `date_trunc` has it.
pub(super) fn truncated(interval: IntervalMonthDayNano, unit: &str) -> DFResult<IntervalMonthDayNano> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let years = |years: i32| IntervalMonthDayNano::new(months / (12 * years) * (12 * years), 0, 0);
    let time = |nanos: i64| IntervalMonthDayNano::new(months, days, nanoseconds / nanos * nanos);
    Ok(match unit.to_ascii_lowercase().as_str() {
        "millennium" => years(1_000),
        "century" => years(100),
        "decade" => years(10),
        "year" | "years" => years(1),
        "quarter" => IntervalMonthDayNano::new(months / 3 * 3, 0, 0),
        "month" | "months" => IntervalMonthDayNano::new(months, 0, 0),
        "day" | "days" => IntervalMonthDayNano::new(months, days, 0),
        "hour" | "hours" => time(3_600_000_000_000),
        "minute" | "minutes" => time(60_000_000_000),
        "second" | "seconds" => time(1_000_000_000),
        "millisecond" | "milliseconds" => time(1_000_000),
        "microsecond" | "microseconds" => time(1_000),
        "week" | "weeks" => {
            let message =
                "unit \"week\" not supported for type interval: months usually have fractional weeks";
            return Err(external(Error::coded("0A000", message)));
        }
        _ => {
            let message = format!("unit \"{unit}\" not recognized for type interval");
            return Err(external(Error::coded("22023", message)));
        }
    })
}

/// Time between two timestamps, in days and a remainder.
pub(super) fn of_micros(micros: i64) -> Option<IntervalMonthDayNano> {
    let days = i32::try_from(micros / MICROS_PER_DAY).ok()?;
    Some(IntervalMonthDayNano::new(0, days, (micros % MICROS_PER_DAY).checked_mul(NANOS_PER_MICRO)?))
}

/// Interval with 24 hours as days, 30 days as months; signs are made the same.
pub(super) fn justified(
    interval: IntervalMonthDayNano,
    hours: bool,
    days: bool,
) -> Option<IntervalMonthDayNano> {
    let (mut months, mut day_count, mut nanos) =
        (i64::from(interval.months), i64::from(interval.days), i128::from(interval.nanoseconds));
    if hours {
        day_count += (nanos / NANOS_PER_DAY) as i64;
        nanos %= NANOS_PER_DAY;
    }
    if days {
        months += day_count / DAYS_PER_MONTH;
        day_count %= DAYS_PER_MONTH;
        let time = if hours { nanos.signum() as i64 } else { 0 };
        if months > 0 && (day_count, time) < (0, 0) {
            (months, day_count) = (months - 1, day_count + DAYS_PER_MONTH);
        } else if months < 0 && (day_count, time) > (0, 0) {
            (months, day_count) = (months + 1, day_count - DAYS_PER_MONTH);
        }
    }
    if hours && day_count > 0 && nanos < 0 {
        (day_count, nanos) = (day_count - 1, nanos + NANOS_PER_DAY);
    } else if hours && day_count < 0 && nanos > 0 {
        (day_count, nanos) = (day_count + 1, nanos - NANOS_PER_DAY);
    }
    let (months, days) = (i32::try_from(months).ok()?, i32::try_from(day_count).ok()?);
    Some(IntervalMonthDayNano::new(months, days, i64::try_from(nanos).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn interval(months: i32, days: i32, nanoseconds: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, nanoseconds)
    }

    /// Expected values from PostgreSQL 15.
    #[test]
    fn fractions_become_smaller_units() {
        for (of, factor, expected) in [
            (interval(0, 1, 0), 3.0, interval(0, 3, 0)),
            (interval(0, 1, 0), 0.5, interval(0, 0, 12 * HOUR)),
            (interval(1, 0, 0), 0.5, interval(0, 15, 0)),
            (interval(1, 0, 0), 1.5, interval(1, 15, 0)),
            (interval(1, 1, HOUR), 0.1, interval(0, 3, 2 * HOUR + HOUR / 2)),
            (interval(0, 0, HOUR), -2.5, interval(0, 0, -5 * HOUR / 2)),
            (interval(14, 3, 0), 2.0, interval(28, 6, 0)),
        ] {
            assert_eq!(scaled(of, |field| field * factor), Some(expected), "{of:?} * {factor}");
        }
        for (of, by, expected) in [
            (interval(0, 10, 0), 3.0, interval(0, 3, 8 * HOUR)),
            (interval(49, 49, 0), 49.0, interval(1, 1, 0)),
        ] {
            assert_eq!(scaled(of, |field| field / by), Some(expected), "{of:?} / {by}");
        }
        for factor in [f64::INFINITY, f64::NAN, 1e18] {
            assert_eq!(scaled(interval(1, 1, HOUR), |field| field * factor), None, "{factor}");
        }
    }

    #[test]
    fn a_day_is_as_long_as_24_hours_and_a_month_as_30_days() {
        assert_eq!(extent(interval(0, 1, 0)), extent(interval(0, 0, 24 * HOUR)));
        assert_eq!(extent(interval(1, 0, 0)), extent(interval(0, 30, 0)));
        assert!(extent(interval(1, 0, 0)) < extent(interval(0, 31, 0)));
        assert!(extent(interval(i32::MAX, i32::MAX, i64::MAX)) > 0);
    }

    /// Expected values from PostgreSQL 15.
    #[test]
    fn fields_are_extracted() {
        let of = interval(14, -3, 4 * HOUR + 306_789_000_000);
        for (unit, expected) in [
            ("epoch", 36_497_106_789_000),
            ("YEAR", 1_000_000),
            ("months", 2_000_000),
            ("day", -3_000_000),
            ("hour", 4_000_000),
            ("minute", 5_000_000),
            ("second", 6_789_000),
            ("milliseconds", 6_789_000_000),
            ("quarter", 1_000_000),
        ] {
            assert_eq!(part(of, unit).unwrap(), expected, "{unit}");
        }
        assert!(part(of, "week").is_err() && part(of, "fortnight").is_err());
    }

    #[test]
    fn units_are_carried_where_it_is_asked_for() {
        assert_eq!(justified(interval(0, 0, 27 * HOUR), true, false), Some(interval(0, 1, 3 * HOUR)));
        assert_eq!(justified(interval(0, 35, 0), false, true), Some(interval(1, 5, 0)));
        assert_eq!(justified(interval(1, 0, -HOUR), true, true), Some(interval(0, 29, 23 * HOUR)));
        assert_eq!(justified(interval(0, 1, -HOUR), true, false), Some(interval(0, 0, 23 * HOUR)));
        assert_eq!(justified(interval(i32::MAX, 60, 0), false, true), None);
    }

    #[test]
    fn differences_have_whole_days() {
        assert_eq!(of_micros(MICROS_PER_DAY + 1), Some(interval(0, 1, 1_000)));
        assert_eq!(of_micros(-MICROS_PER_DAY - 1), Some(interval(0, -1, -1_000)));
        assert_eq!(of_micros(i64::MAX), Some(interval(0, 106_751_991, 14_454_775_807_000)));
    }
}
