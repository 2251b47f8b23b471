//! Numbers in Roman numerals (`RN`) and with an exponent (`EEEE`).

/// Least and greatest number that has Roman numerals.
const ROMAN_RANGE: std::ops::RangeInclusive<i128> = 1..=3_999;
/// Characters of Roman numerals with blanks in front.
const ROMAN_CHARS: usize = 15;
const NUMERALS: [(i128, &str); 13] = [
    (1_000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
];

/// Roman numerals of a number, with blanks in front if they fill the place; `#` for one that has none.
pub(super) fn roman(number: Option<i128>, fills: bool, is_upper: bool) -> String {
    let Some(mut rest) = number.filter(|number| ROMAN_RANGE.contains(number)) else {
        return "#".repeat(ROMAN_CHARS);
    };
    let mut text = String::new();
    for (value, numeral) in NUMERALS {
        while rest >= value {
            text.push_str(numeral);
            rest -= value;
        }
    }
    let text = if is_upper { text } else { text.to_ascii_lowercase() };
    if fills { format!("{text:>ROMAN_CHARS$}") } else { text }
}

/// Number with an exponent and so many digits behind the point, rounded half away from zero, with a blank or its sign
/// in front. `plain` has its digits without an exponent.
pub(super) fn scientific(plain: &str, fraction: usize) -> String {
    let (sign, unsigned) = match plain.strip_prefix('-') {
        Some(unsigned) => ('-', unsigned),
        None => (' ', plain),
    };
    let (whole, behind) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all = [whole, behind].concat();
    let significant = all.trim_start_matches('0');
    let mut exponent = whole.len() as i64 - 1 - (all.len() - significant.len()) as i64;
    let mut digits: Vec<u8> = significant.bytes().map(|digit| digit - b'0').collect();
    if digits.is_empty() {
        (digits, exponent) = (vec![0], 0);
    }
    let rounds_up = digits.get(fraction + 1).is_some_and(|digit| *digit >= 5);
    digits.resize(fraction + 1, 0);
    if rounds_up {
        let mut at = digits.len();
        while at > 0 && digits[at - 1] == 9 {
            at -= 1;
            digits[at] = 0;
        }
        match at {
            0 => {
                digits.insert(0, 1);
                digits.pop();
                exponent += 1;
            }
            at => digits[at - 1] += 1,
        }
    }
    let text: String = digits.iter().map(|digit| char::from(digit + b'0')).collect();
    let (first, rest) = text.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values from PostgreSQL 15.
    #[test]
    fn numbers_are_in_the_notations_of_postgresql() {
        assert_eq!(roman(Some(485), true, true), "        CDLXXXV");
        assert_eq!(roman(Some(3999), false, false), "mmmcmxcix");
        assert_eq!(roman(Some(0), false, true), "###############");
        for (plain, fraction, expected) in [
            ("0.0004859", 2, " 4.86e-04"),
            ("485", 3, " 4.850e+02"),
            ("-12345.678", 2, "-1.23e+04"),
            ("9.996", 2, " 1.00e+01"),
            ("0", 2, " 0.00e+00"),
            ("7", 0, " 7e+00"),
        ] {
            assert_eq!(scientific(plain, fraction), expected, "{plain}");
        }
    }
}
