//! Decimals as unscaled 128-bit integers: `DECIMAL(precision, scale)` holds `unscaled / 10^scale`.
//!
//! Rules of every function here:
//!
//! - A value fits its type if `|unscaled| < 10^precision`; anything else is refused, never wrapped.
//! - When digits are dropped (a string or a conversion has more fraction digits than the scale), the value is
//!   rounded half away from zero: 0.125 becomes 0.13 at scale 2, -0.125 becomes -0.13.
//! - Rounding happens before the precision check: 9.99 does not fit `DECIMAL(2,1)`.
//! - Nothing here touches persistent memory.

use std::fmt;

/// Maximum number of digits of a decimal: 10^38 - 1 fits in an i128.
pub const DECIMAL_PRECISION_MAX: u8 = 38;
/// Maximum number of digits of decimals that take 8 bytes in keys and rows; others take 16.
pub const DECIMAL_SHORT_PRECISION_MAX: u8 = 18;

const _: () = assert!(10i128.pow(DECIMAL_PRECISION_MAX as u32) < i128::MAX);
const _: () = assert!(10i128.pow(DECIMAL_SHORT_PRECISION_MAX as u32) < i64::MAX as i128);

/// True if `unscaled` has at most `precision` digits.
pub fn fits(unscaled: i128, precision: u8) -> bool {
    precision <= DECIMAL_PRECISION_MAX && unscaled.unsigned_abs() < 10u128.pow(u32::from(precision))
}

/// Converts a number to another scale, rounded half away from zero; `None` on overflow of an i128.
pub fn rescale(unscaled: i128, from_scale: u8, to_scale: u8) -> Option<i128> {
    if to_scale >= from_scale {
        return unscaled.checked_mul(10i128.checked_pow(u32::from(to_scale - from_scale))?);
    }
    let dropped = u32::from(from_scale - to_scale);
    let Some(divisor) = 10i128.checked_pow(dropped) else { return Some(0) };
    let quotient = unscaled / divisor;
    let remainder = (unscaled % divisor).unsigned_abs();
    // divisor is a power of ten of at least 10, thus even.
    let away = if remainder >= divisor.unsigned_abs() / 2 { unscaled.signum() } else { 0 };
    Some(quotient + away)
}

/// Returns true if a string of digits has digits other than zero behind `scale` places after the point.
pub fn loses_digits(text: &str, scale: u8) -> bool {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    fraction.bytes().skip(usize::from(scale)).any(|digit| digit != b'0')
}

/// Returns true if a number at one scale has digits that another scale cannot represent.
pub fn rescale_loses(unscaled: i128, from_scale: u8, to_scale: u8) -> bool {
    let dropped = u32::from(from_scale.saturating_sub(to_scale));
    match 10i128.checked_pow(dropped) {
        Some(divisor) => unscaled % divisor != 0,
        None => unscaled != 0,
    }
}

/// Parses `[+-]digits[.digits]` at `scale`; `None` if it is not a number or needs more than `precision`
/// digits.
pub fn parse(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = fraction.len().min(usize::from(scale));
    let mut unscaled: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes().take(kept)) {
        unscaled = unscaled.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    unscaled = unscaled.checked_mul(10i128.checked_pow(u32::from(scale) - kept as u32)?)?;
    if fraction.as_bytes().get(kept).is_some_and(|digit| *digit >= b'5') {
        unscaled = unscaled.checked_add(1)?;
    }
    let value = if negative { -unscaled } else { unscaled };
    fits(value, precision).then_some(value)
}

/// Writes the number with `scale` fraction digits.
pub fn format(unscaled: i128, scale: u8, out: &mut impl fmt::Write) -> fmt::Result {
    if scale == 0 {
        return write!(out, "{unscaled}");
    }
    let sign = if unscaled < 0 { "-" } else { "" };
    let width = usize::from(scale) + 1;
    let digits = format!("{:0width$}", unscaled.unsigned_abs());
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    write!(out, "{sign}{whole}.{fraction}")
}

/// Nearest double. Beyond 2^53 the last digits are lost.
pub fn to_double(unscaled: i128, scale: u8) -> f64 {
    unscaled as f64 / 10f64.powi(i32::from(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unscaled: i128, scale: u8) -> String {
        let mut out = String::new();
        format(unscaled, scale, &mut out).unwrap();
        out
    }

    #[test]
    fn parses_rounds_and_checks_the_precision() {
        assert_eq!(parse("12.34", 4, 2), Some(1234));
        assert_eq!(parse("-0.125", 4, 2), Some(-13));
        assert_eq!(parse("0.125", 4, 2), Some(13));
        assert_eq!(parse("0.1249", 4, 2), Some(12));
        assert_eq!(parse("+7", 4, 2), Some(700));
        assert_eq!(parse(".5", 2, 1), Some(5));
        assert_eq!(parse("5.", 2, 1), Some(50));
        assert_eq!(parse("9.99", 2, 1), None);
        for bad in ["", "-", ".", "1e3", "1.2.3", "NaN", "--1", "0x1", "1 "] {
            assert_eq!(parse(bad, 10, 2), None, "{bad}");
        }
        assert_eq!(parse(&"9".repeat(38), 38, 0), Some(10i128.pow(38) - 1));
        assert_eq!(parse(&"9".repeat(39), 38, 0), None);
        assert_eq!(parse(&"9".repeat(400), 38, 0), None);
    }

    #[test]
    fn prints_and_rescales() {
        assert_eq!(text(-5, 2), "-0.05");
        assert_eq!(text(1234, 2), "12.34");
        assert_eq!(text(7, 0), "7");
        text(i128::MIN, 38);
        assert_eq!(rescale(125, 3, 2), Some(13));
        assert_eq!(rescale(-125, 3, 2), Some(-13));
        assert_eq!(rescale(124, 3, 2), Some(12));
        assert_eq!(rescale(1, 0, 38), Some(10i128.pow(38)));
        assert_eq!(rescale(i128::MAX, 0, 1), None);
        assert_eq!(to_double(1250, 2), 12.5);
    }
}
