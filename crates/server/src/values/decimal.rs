//! numeric in text and in binary: groups of four decimal digits, weights, and a scale for display.

use bytes::{BufMut, BytesMut};

/// A sign in the binary form.
const NEGATIVE: u16 = 0x4000;
/// Digits of one group.
const GROUP_DIGITS: usize = 4;
/// Base of a group.
const GROUP: u16 = 10_000;

/// Writes the digits of a number with `scale` digits behind the point; `digits` has a sign and no point.
pub(crate) fn text(digits: &str, scale: i8, out: &mut BytesMut) {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    out.put_slice(sign.as_bytes());
    let Ok(scale) = usize::try_from(scale) else {
        out.put_slice(digits.as_bytes());
        if digits != "0" {
            out.put_bytes(b'0', usize::from(scale.unsigned_abs()));
        }
        return;
    };
    if digits.len() > scale {
        out.put_slice(&digits.as_bytes()[..digits.len() - scale]);
    } else {
        out.put_u8(b'0');
    }
    if scale > 0 {
        out.put_u8(b'.');
        out.put_bytes(b'0', scale.saturating_sub(digits.len()));
        out.put_slice(&digits.as_bytes()[digits.len().saturating_sub(scale)..]);
    }
}

/// Writes the binary form.
pub(crate) fn binary(digits: &str, scale: i8, out: &mut BytesMut) {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => (NEGATIVE, rest),
        None => (0, digits),
    };
    let mut plain = digits.as_bytes().to_vec();
    let fraction = usize::from(scale.max(0).unsigned_abs());
    if scale < 0 && digits != "0" {
        plain.resize(plain.len() + usize::from(scale.unsigned_abs()), b'0');
    }
    // Integral groups on both sides of the point.
    let whole = plain.len().saturating_sub(fraction);
    let missing = fraction.saturating_sub(plain.len());
    let lead = (GROUP_DIGITS - whole % GROUP_DIGITS) % GROUP_DIGITS;
    let mut padded = vec![b'0'; lead + missing];
    padded.extend_from_slice(&plain);
    let whole_groups = (lead + whole) / GROUP_DIGITS;
    padded.resize(padded.len().next_multiple_of(GROUP_DIGITS), b'0');
    let number =
        |group: &[u8]| group.iter().fold(0u16, |number, digit| number * 10 + u16::from(digit - b'0'));
    let groups: Vec<u16> = padded.chunks(GROUP_DIGITS).map(number).collect();
    let first = groups.iter().position(|&group| group != 0).unwrap_or(groups.len());
    let end = groups.iter().rposition(|&group| group != 0).map_or(first, |last| last + 1);
    let used = &groups[first..end];
    let weight = if used.is_empty() { 0 } else { whole_groups as i16 - 1 - first as i16 };
    out.put_u16(used.len() as u16);
    out.put_i16(weight);
    out.put_u16(if used.is_empty() { 0 } else { sign });
    out.put_u16(fraction as u16);
    for &group in used {
        out.put_u16(group);
    }
}

/// A decimal that a client sent: its digits as a number, and its scale.
pub(crate) type Decimal = (i128, i8);

/// Maximum number of digits.
pub(crate) const DIGITS_MAX: u8 = 38;

/// Reads the binary form; `None` if it is none, no number, infinite, or has more than 38 digits.
pub(crate) fn from_binary(bytes: &[u8]) -> Option<Decimal> {
    let word = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let (count, weight, sign, scale) = (word(0)?, word(2)? as i16, word(4)?, word(6)?);
    if !matches!(sign, 0 | NEGATIVE) || bytes.len() != 8 + 2 * usize::from(count) {
        return None;
    }
    let scale = i8::try_from(scale).ok().filter(|&scale| scale <= DIGITS_MAX as i8)?;
    let mut value: i128 = 0;
    for at in 0..usize::from(count) {
        let group = i128::from(word(8 + 2 * at).filter(|&group| group < GROUP)?);
        // The power of ten of this group's last digit, after the point has moved by the scale.
        let power = (i32::from(weight) - at as i32) * GROUP_DIGITS as i32 + i32::from(scale);
        let part = match u32::try_from(power) {
            Ok(power) => group.checked_mul(10i128.checked_pow(power)?)?,
            // Digits behind the scale are zeros, as PostgreSQL writes them.
            Err(_) => group / 10i128.checked_pow(power.unsigned_abs())?,
        };
        value = value.checked_add(part)?;
    }
    within(value).then_some((if sign == NEGATIVE { -value } else { value }, scale))
}

/// Reads text such as `-12.50` or `1.5e3`; `None` if it is no number or has more than 38 digits.
pub(crate) fn from_text(text: &str) -> Option<Decimal> {
    let text = text.trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, unsigned) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value.checked_mul(10)?.checked_add(i128::from(digit.to_digit(10)?))?;
    }
    let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    let (value, scale) = match u32::try_from(scale.checked_neg()?) {
        Ok(zeros) => (value.checked_mul(10i128.checked_pow(zeros)?)?, 0),
        Err(_) => (value, i8::try_from(scale).ok().filter(|&scale| scale <= DIGITS_MAX as i8)?),
    };
    within(value).then_some((if negative { -value } else { value }, scale))
}

fn within(value: i128) -> bool {
    value.unsigned_abs() < 10u128.pow(u32::from(DIGITS_MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn written(digits: i128, scale: i8) -> String {
        let mut out = BytesMut::new();
        text(&digits.to_string(), scale, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn text_has_the_point_in_its_place() {
        assert_eq!(written(-12345, 3), "-12.345");
        assert_eq!(written(5, 3), "0.005");
        assert_eq!(written(-5, 1), "-0.5");
        assert_eq!(written(0, 2), "0.00");
        assert_eq!(written(12, -2), "1200");
        assert_eq!(written(7, 0), "7");
    }

    #[test]
    fn binary_is_what_postgresql_sends() {
        let mut out = BytesMut::new();
        // 12345.678: groups 1, 2345, 6780.
        binary("12345678", 3, &mut out);
        assert_eq!(out[..], [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
        out.clear();
        binary("0", 2, &mut out);
        assert_eq!(out[..], [0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for text in ["", "-", ".", "1.2.3", "abc", "NaN", "1e", "1e99", &"9".repeat(39)] {
            assert_eq!(from_text(text), None, "{text}");
        }
        assert_eq!(from_text("1.5e3"), Some((1500, 0)));
        assert_eq!(from_text("15e-3"), Some((15, 3)));
        assert_eq!(from_binary(&[0, 9, 0, 0]), None);
        assert_eq!(from_binary(&[0, 0, 0, 0, 0xc0, 0, 0, 0]), None);
        assert_eq!(from_binary(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x0f]), Some((9999, 0)));
        assert_eq!(from_binary(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]), None, "no digit of base 10000");
        assert_eq!(from_binary(&[0, 1, 0, 0, 0x20, 0, 0, 0, 0, 1]), None, "no sign");
    }

    proptest! {
        #[test]
        fn both_forms_come_back(value in any::<i64>(), high in -1_000_000i128..1_000_000, scale in 0i8..=20) {
            let value = i128::from(value) + high * i128::from(i64::MAX);
            prop_assert_eq!(from_text(&written(value, scale)), Some((value, scale)));
            let mut out = BytesMut::new();
            binary(&value.to_string(), scale, &mut out);
            prop_assert_eq!(from_binary(&out), Some((value, scale)));
        }
    }
}
