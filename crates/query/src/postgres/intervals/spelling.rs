//! Interval literals in the units that DataFusion parses.

/// Rewrites `1 day 04:05:06`, `P1DT2H`, `1-2` and `3 days ago` in units; `None` if the string is in units
/// already, or in none of these formats.
pub(crate) fn spelled(text: &str) -> Option<String> {
    let trimmed = text.trim();
    if let Some(iso) = trimmed.strip_prefix('P') {
        return designated(iso);
    }
    let (body, ago) = match trimmed.to_ascii_lowercase().strip_suffix("ago") {
        Some(body) if body.ends_with(char::is_whitespace) => (trimmed[..body.len()].trim_end(), true),
        _ => (trimmed, false),
    };
    if !ago && !body.contains([':', '-']) {
        return None;
    }
    let words: Vec<String> = body.split_whitespace().map(in_units).collect();
    let spelled = words.join(" ");
    Some(if ago { negated(&spelled) } else { spelled })
}

/// Rewrites `04:05:06` in hours, minutes and seconds; `1-2` in years and months.
fn in_units(word: &str) -> String {
    let (sign, unsigned) = match word.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let is_number =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let named = |parts: Vec<&str>, units: &[&str]| {
        let named = parts.iter().zip(units).map(|(part, unit)| format!("{sign}{part} {unit}"));
        named.collect::<Vec<_>>().join(" ")
    };
    let clock: Vec<&str> = unsigned.split(':').collect();
    if (2..=3).contains(&clock.len()) && clock.iter().all(is_number) {
        return named(clock, &["hours", "minutes", "seconds"]);
    }
    let years: Vec<&str> = unsigned.split('-').collect();
    if years.len() == 2 && years.iter().all(is_number) {
        return named(years, &["years", "months"]);
    }
    word.to_owned()
}

fn negated(text: &str) -> String {
    let number = |word: &str| match word.strip_prefix('-') {
        Some(positive) => positive.to_owned(),
        None if word.starts_with(|first: char| first.is_ascii_digit() || first == '.') => format!("-{word}"),
        None => word.to_owned(),
    };
    text.split_whitespace().map(number).collect::<Vec<_>>().join(" ")
}

/// Rewrites the designators of ISO 8601 behind its P: `1Y2M3W4DT5H6M7.8S`.
fn designated(text: &str) -> Option<String> {
    let mut parts = Vec::new();
    let (mut number, mut in_time) = (String::new(), false);
    for character in text.chars() {
        let unit = match (character.to_ascii_uppercase(), in_time) {
            ('0'..='9' | '.' | '-' | '+', _) => {
                number.push(character);
                continue;
            }
            ('T', false) if number.is_empty() => {
                in_time = true;
                continue;
            }
            ('Y', false) => "years",
            ('M', false) => "months",
            ('W', false) => "weeks",
            ('D', false) => "days",
            ('H', true) => "hours",
            ('M', true) => "minutes",
            ('S', true) => "seconds",
            _ => return None,
        };
        if number.is_empty() {
            return None;
        }
        parts.push(format!("{} {unit}", std::mem::take(&mut number)));
    }
    (number.is_empty() && !parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_intervals_are_spelled_out() {
        for (text, expected) in [
            ("1 day 04:05:06.5", Some("1 day 04 hours 05 minutes 06.5 seconds")),
            ("-00:01", Some("-00 hours -01 minutes")),
            ("1-2", Some("1 years 2 months")),
            ("1 week 2 days ago", Some("-1 week -2 days")),
            ("-3 days AGO", Some("3 days")),
            ("P1Y2M3DT4H5M6.7S", Some("1 years 2 months 3 days 4 hours 5 minutes 6.7 seconds")),
            ("PT-30M", Some("-30 minutes")),
            ("P2W", Some("2 weeks")),
            ("P1", None),
            ("P", None),
            ("1 day", None),
            ("chicago", None),
            ("-1 day", Some("-1 day")),
        ] {
            assert_eq!(spelled(text).as_deref(), expected, "{text}");
        }
    }
}
