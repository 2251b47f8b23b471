//! Numbers by PostgreSQL's patterns: `9`, `0`, `.` and `D`, `,` and `G`, `S`, `MI`, `PL`, `SG`, `PR`, `L`,
//! `FM`, `TH`, `V`, `RN`, `EEEE`, and literal text.
//!
//! Text that is no pattern is copied. `RN` and `EEEE` stand for all of a number: other patterns of digits beside
//! `RN`, and signs beside `EEEE`, are refused.

use crate::error::{Error, Result};
use datafusion::arrow::datatypes::DECIMAL128_MAX_PRECISION;

/// Part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Digit {
        zero: bool,
    },
    Group,
    Point,
    /// `S`: `+` or `-`.
    Sign,
    /// `MI`: `-` or a blank.
    Minus,
    /// `PL`: `+` or a blank.
    Plus,
    /// `SG`: `+` or `-`, at its position.
    SignHere,
    /// `PR`: the end of `<12>`.
    Bracket,
    /// `TH` or `th`: `st`, `nd`, `rd` or `th` behind a number without a fraction.
    Ordinal {
        upper: bool,
    },
    Text(String),
}

/// A parsed template.
#[derive(Debug)]
pub(super) struct Template {
    parts: Vec<Part>,
    /// True if blanks replace absent digits, and zeros at the end stay; false with `FM`.
    fills: bool,
    /// Positions before and behind the point.
    whole: usize,
    fraction: usize,
    /// Positions behind `V`, by which the number is shifted.
    shift: Option<usize>,
    notation: Notation,
}

/// Notation of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    Plain,
    Roman { upper: bool },
    Exponent,
}

/// Patterns, longer ones first.
const PATTERNS: [(&str, Option<Part>); 12] = [
    ("MI", Some(Part::Minus)),
    ("PL", Some(Part::Plus)),
    ("SG", Some(Part::SignHere)),
    ("PR", Some(Part::Bracket)),
    ("S", Some(Part::Sign)),
    ("9", Some(Part::Digit { zero: false })),
    ("0", Some(Part::Digit { zero: true })),
    (".", Some(Part::Point)),
    ("D", Some(Part::Point)),
    (",", Some(Part::Group)),
    ("G", Some(Part::Group)),
    ("FM", None),
];

impl Template {
    pub(super) fn parse(text: &str) -> Result<Template> {
        let mut template = Template {
            parts: Vec::new(),
            fills: true,
            whole: 0,
            fraction: 0,
            shift: None,
            notation: Notation::Plain,
        };
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let begins = |pattern: &str| {
                rest.get(..pattern.len()).is_some_and(|start| start.eq_ignore_ascii_case(pattern))
            };
            if begins("EEEE") {
                template.notation = Notation::Exponent;
                rest = &rest[4..];
            } else if begins("RN") {
                template.notation = Notation::Roman { upper: rest.starts_with('R') };
                rest = &rest[2..];
            } else if begins("TH") {
                template.parts.push(Part::Ordinal { upper: rest.starts_with('T') });
                rest = &rest[2..];
            } else if begins("V") {
                template.shift = Some(0);
                rest = &rest[1..];
            } else if first == '"' {
                let inner = &rest[1..];
                let (quoted, after) = inner.split_once('"').unwrap_or((inner, ""));
                template.parts.push(Part::Text(quoted.to_owned()));
                rest = after;
            } else if let Some((pattern, part)) = PATTERNS.iter().find(|(pattern, _)| begins(pattern)) {
                match part {
                    Some(part) => template.push(part.clone(), text)?,
                    None => template.fills = false,
                }
                rest = &rest[pattern.len()..];
            } else {
                // There is no currency symbol: it is a blank.
                let shown = if first.eq_ignore_ascii_case(&'L') { ' ' } else { first };
                template.parts.push(Part::Text(shown.to_string()));
                rest = &rest[first.len_utf8()..];
            }
        }
        template.check(text)?;
        Ok(template)
    }

    /// Refuses patterns that do not stand beside each other.
    fn check(&self, text: &str) -> Result<()> {
        let is_digit = |part: &Part| matches!(part, Part::Digit { .. } | Part::Point);
        let is_sign = |part: &Part| {
            matches!(
                part,
                Part::Sign | Part::Minus | Part::Plus | Part::SignHere | Part::Bracket | Part::Group
            )
        };
        let wrong = match self.notation {
            Notation::Roman { .. } if self.parts.iter().any(is_digit) => "RN beside digits",
            Notation::Exponent if self.parts.iter().any(is_sign) || self.shift.is_some() => {
                "EEEE beside a sign"
            }
            _ if self.shift.is_some() && self.parts.contains(&Part::Point) => {
                let message = "cannot use \"V\" and decimal point together";
                return Err(Error::coded("42601", message));
            }
            _ => return Ok(()),
        };
        Err(Error::unsupported(format!("{wrong} in the template \"{text}\" of to_char")))
    }

    /// Number of digits behind the point that a number is wanted with.
    pub(super) fn scale(&self) -> usize {
        self.shift.unwrap_or(self.fraction)
    }

    /// Digits behind the point of the template.
    pub(super) fn fraction(&self) -> usize {
        self.fraction
    }

    pub(super) fn notation(&self) -> Notation {
        self.notation
    }

    /// False with `FM`.
    pub(super) fn fills(&self) -> bool {
        self.fills
    }

    /// Signs and text around the number of another notation.
    pub(super) fn around(&self, number: &str) -> String {
        let is_digit = |part: &&Part| matches!(part, Part::Digit { .. } | Part::Point);
        let first = self.parts.iter().take_while(|part| !is_digit(part)).count();
        let (mut out, mut rest) = (String::new(), String::new());
        for (at, part) in self.parts.iter().enumerate() {
            if let Part::Text(text) = part {
                if at < first { &mut out } else { &mut rest }.push_str(text);
            }
        }
        out + number + &rest
    }

    fn push(&mut self, part: Part, text: &str) -> Result<()> {
        let point = self.parts.contains(&Part::Point);
        match part {
            Part::Point if point => {
                return Err(Error::coded("42601", format!("multiple decimal points in \"{text}\"")));
            }
            Part::Digit { .. } if point => self.fraction += 1,
            Part::Digit { .. } => {
                self.whole += 1;
                if let Some(shift) = &mut self.shift {
                    *shift += 1;
                }
            }
            _ => {}
        }
        self.parts.push(part);
        Ok(())
    }

    /// Formats the number `unscaled / 10^fraction`, already rounded; `None` is one too large for any
    /// template.
    pub(super) fn show(&self, unscaled: Option<i128>, negative: bool) -> String {
        let digits = match unscaled {
            None => None,
            Some(unscaled) => {
                let padded = format!("{:0>width$}", unscaled.unsigned_abs(), width = self.fraction + 1);
                let (whole, fraction) = padded.split_at(padded.len() - self.fraction);
                let whole = if self.fraction > 0 { whole.trim_start_matches('0') } else { whole };
                (whole.len() <= self.whole).then(|| (whole.to_owned(), fraction.to_owned()))
            }
        };
        let is_zero = unscaled == Some(0);
        let shown = FormattedNumber { template: self, negative: negative && !is_zero, digits, is_zero };
        shown.write()
    }
}

/// Number of a string by a template, unscaled, and the digits behind its point: those of the template.
pub(super) fn number_of(text: &str, template: &str) -> Result<(i128, u8)> {
    let parsed = Template::parse(template)?;
    if parsed.notation != Notation::Plain || parsed.shift.is_some() {
        return Err(Error::unsupported(format!(
            "RN, EEEE and V in the template \"{template}\" of to_number"
        )));
    }
    let fraction = parsed.fraction;
    let scale = u8::try_from(fraction).ok().filter(|scale| *scale <= DECIMAL128_MAX_PRECISION);
    let scale = scale.ok_or_else(|| {
        let message = format!(
            "the template \"{template}\" of to_number has {fraction} digits behind the point, at most {DECIMAL128_MAX_PRECISION} \
             are possible"
        );
        Error::coded("22023", message)
    })?;
    let invalid = || Error::coded("22P02", format!("invalid input syntax for type numeric: \"{text}\""));
    let mut rest = text.trim_start();
    let (mut digits, mut negative, mut behind) = (String::new(), false, None);
    let take = |rest: &mut &str, wanted: fn(char) -> bool| {
        let first = rest.chars().next().filter(|first| wanted(*first))?;
        *rest = &rest[first.len_utf8()..];
        Some(first)
    };
    for part in &parsed.parts {
        if !matches!(part, Part::Text(_)) {
            rest = rest.trim_start();
            while let Some(sign) = take(&mut rest, |c| matches!(c, '-' | '+' | '<')) {
                negative |= sign != '+';
            }
        }
        match part {
            Part::Digit { .. } => {
                if let Some(digit) = take(&mut rest, |c| c.is_ascii_digit()) {
                    digits.push(digit);
                    behind = behind.map(|behind| behind + 1);
                }
            }
            Part::Point => {
                if take(&mut rest, |c| c == '.').is_some() {
                    behind = Some(0_usize);
                }
            }
            Part::Group => {
                take(&mut rest, |c| c == ',');
            }
            Part::Bracket => {
                take(&mut rest, |c| c == '>');
            }
            Part::Ordinal { .. } => {
                take(&mut rest, char::is_alphabetic);
                take(&mut rest, char::is_alphabetic);
            }
            // A character of the string for each of the text, unless it belongs to the number.
            Part::Text(text) => text.chars().for_each(|_| {
                take(&mut rest, |c| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '-' | '+'));
            }),
            Part::Sign | Part::Minus | Part::Plus | Part::SignHere => {}
        }
    }
    let missing = fraction.saturating_sub(behind.unwrap_or(0));
    digits.push_str(&"0".repeat(missing));
    let number: i128 = digits.parse().map_err(|_| invalid())?;
    Ok((if negative { -number } else { number }, scale))
}

struct FormattedNumber<'t> {
    template: &'t Template,
    negative: bool,
    /// Digits before and behind the point; `None` if they are too many.
    digits: Option<(String, String)>,
    is_zero: bool,
}

impl FormattedNumber<'_> {
    fn write(&self) -> String {
        let Template { parts, fills, whole, .. } = self.template;
        let first_digit = parts.iter().position(|part| matches!(part, Part::Digit { .. } | Part::Point));
        let sign_ahead = parts
            .iter()
            .position(|part| *part == Part::Sign)
            .is_some_and(|at| first_digit.is_none_or(|first| at < first));
        let has = |part: &Part| parts.contains(part);
        let blank = if *fills { " " } else { "" };
        let minus = |otherwise: &'static str| if self.negative { "-" } else { otherwise };
        // Sign directly before the first digit.
        let mut sign = Some(match () {
            () if sign_ahead => minus("+"),
            () if has(&Part::Bracket) && self.negative => "<",
            () if has(&Part::Sign) || has(&Part::Minus) || has(&Part::SignHere) => "",
            () => minus(blank),
        });
        let (digits, fraction) = match &self.digits {
            Some((digits, fraction)) => (Some(digits.as_bytes()), fraction.as_bytes()),
            None => (None, &[][..]),
        };
        let from = self.first_shown(digits);
        let kept = self.kept_fraction(fraction);
        let (mut out, mut place, mut behind, mut after_point) = (String::new(), 0, 0, false);
        for part in parts {
            match part {
                Part::Digit { .. } if after_point => {
                    match digits {
                        None => out.push('#'),
                        Some(_) if behind < kept => out.push(char::from(fraction[behind])),
                        Some(_) => {}
                    }
                    behind += 1;
                }
                Part::Digit { .. } => {
                    if place < from {
                        out.push_str(blank);
                    } else {
                        out.push_str(sign.take().unwrap_or_default());
                        out.push(match digits {
                            None => '#',
                            Some(digits) => {
                                let missing = whole - digits.len();
                                place.checked_sub(missing).map_or('0', |at| char::from(digits[at]))
                            }
                        });
                    }
                    place += 1;
                }
                Part::Group if place > from => out.push(','),
                Part::Group => out.push_str(blank),
                Part::Point => {
                    out.push_str(sign.take().unwrap_or_default());
                    // PostgreSQL shows a zero without positions for it, if nothing else is shown.
                    if self.is_zero && !fills && from >= *whole && kept == 0 {
                        out.push('0');
                    }
                    out.push('.');
                    after_point = true;
                }
                Part::Sign if sign_ahead => {}
                Part::Sign | Part::SignHere => out.push_str(minus("+")),
                Part::Minus => out.push_str(minus(blank)),
                Part::Plus => out.push_str(if self.negative { blank } else { "+" }),
                Part::Bracket => out.push_str(if self.negative { ">" } else { blank }),
                Part::Ordinal { upper } => out.push_str(&self.ordinal(digits, *upper)),
                Part::Text(text) => out.push_str(text),
            }
        }
        out
    }

    /// Ending of an ordinal; none behind negative numbers and fractions.
    fn ordinal(&self, digits: Option<&[u8]>, upper: bool) -> String {
        let whole = digits.map(|digits| String::from_utf8_lossy(digits).into_owned());
        let number = whole.filter(|_| !self.negative && self.template.fraction == 0);
        let last: String = number.unwrap_or_default().chars().rev().take(2).collect();
        let Ok(number) = last.chars().rev().collect::<String>().parse() else { return String::new() };
        let ending = super::times::ordinal(number);
        if upper { ending.to_ascii_uppercase() } else { ending.to_owned() }
    }

    /// First position before the point that has a digit.
    fn first_shown(&self, digits: Option<&[u8]>) -> usize {
        let places = self.template.parts.iter().take_while(|part| **part != Part::Point);
        let mut zeros = places.filter(|part| matches!(part, Part::Digit { .. }));
        let zero = zeros.position(|part| *part == Part::Digit { zero: true });
        let own = digits.map_or(0, |digits| self.template.whole - digits.len());
        zero.map_or(own, |zero| zero.min(own))
    }

    /// Number of digits shown behind the point: FM omits zeros at the end, except for those at a `0`.
    fn kept_fraction(&self, fraction: &[u8]) -> usize {
        if self.template.fills {
            return fraction.len();
        }
        let behind = self.template.parts.iter().skip_while(|part| **part != Part::Point);
        let places = behind.filter(|part| matches!(part, Part::Digit { .. }));
        let zero = places.enumerate().filter(|(_, part)| **part == Part::Digit { zero: true }).last();
        let digits = fraction.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        digits.max(zero.map_or(0, |(last, _)| last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::decimal;

    /// Expected values from PostgreSQL 15.
    #[test]
    fn numbers_are_shown_as_in_postgresql() {
        for (value, template, expected) in [
            ("12.5", "999.99", "  12.50"),
            ("-12.5", "999.99", " -12.50"),
            ("0.5", "999.99", "    .50"),
            ("0.5", "90.99", "  0.50"),
            ("1234567", "999", " ###"),
            ("1234.5", "999.9", " ###.#"),
            ("1234", "9,999", " 1,234"),
            ("12", "9,999", "    12"),
            ("12.50", "FM999.99", "12.5"),
            ("12.5", "FM999.00", "12.50"),
            ("12", "FM999.99", "12."),
            ("-1", "999", "  -1"),
            ("-1", "000", "-001"),
            ("1", "S999", "  +1"),
            ("-12", "S999", " -12"),
            ("12", "999S", " 12+"),
            ("-12", "999MI", " 12-"),
            ("12", "999MI", " 12 "),
            ("-12", "FM999MI", "12-"),
            ("-12", "999PR", " <12>"),
            ("12", "999PR", "  12 "),
            ("0", "999", "   0"),
            ("0", "99.99", "   .00"),
            ("0", "FM99.99", "0."),
            ("-0.1", "99.99", "  -.10"),
            ("0.1", "0.9", " 0.1"),
            ("148.5", "999D999", " 148.500"),
            ("1485", "9G999", " 1,485"),
            ("485", "L999", "  485"),
            ("485", "\"Good number:\"999", "Good number: 485"),
            ("485", "PL999", "+ 485"),
            ("-485", "PL999", " -485"),
            ("485", "SG999", "+485"),
            ("-485", "9SG99", "4-85"),
            ("485.8", "\"Pre:\"999\" Post:\" .999", "Pre: 485 Post: .800"),
            ("0.1", "FM9.99", ".1"),
            ("1234567.891", "FM999,999,999.99", "1,234,567.89"),
            ("-1234.567", "FM9,999.9", "-1,234.6"),
            ("5", "09", " 05"),
            ("99.995", "99.99", " ##.##"),
            ("12.345", "FM990.00", "12.35"),
            ("-0.001", "99.9", "   .0"),
            ("12345", "99,999.00", " 12,345.00"),
            ("12", "0,999", " 0,012"),
            ("7", "FM0,000", "0,007"),
            ("2.5", "9", " 3"),
            ("-5", "MI99", "- 5"),
            ("5", "MI99", "  5"),
            ("12", "99x", " 12x"),
            ("3.14", "9.9 EUR", " 3.1 EUR"),
            ("485", "999th", " 485th"),
            ("482", "999TH", " 482ND"),
            ("-482", "999th", "-482"),
            ("12", "99V999", " 12000"),
            ("12.4", "99V999", " 12400"),
            ("12.45", "99V9", " 125"),
        ] {
            let parsed = Template::parse(template).unwrap();
            let unscaled = decimal::parse(value, 38, parsed.scale() as u8);
            assert_eq!(parsed.show(unscaled, value.starts_with('-')), expected, "{value} {template}");
        }
        for (text, template, expected) in [
            ("12,454.8-", "99G999D9S", (-124_548, 1)),
            ("-34,338,492", "99G999G999", (-34_338_492, 0)),
            ("$1,234.56", "L9,999.99", (123_456, 2)),
            ("<12>", "99PR", (-12, 0)),
            ("1.5", "99.99", (150, 2)),
            ("0012", "9999", (12, 0)),
        ] {
            assert_eq!(number_of(text, template).unwrap(), expected, "{text} {template}");
        }
        assert_eq!(number_of("x", "99").unwrap_err().sqlstate(), "22P02");
        assert_eq!(Template::parse("S9.9EEEE").unwrap_err().sqlstate(), "0A000");
        assert_eq!(Template::parse("9.9V9").unwrap_err().sqlstate(), "42601");
        assert_eq!(Template::parse("RN").unwrap().notation(), Notation::Roman { upper: true });
    }
}
