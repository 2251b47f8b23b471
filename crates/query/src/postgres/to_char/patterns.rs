//! Reader of PostgreSQL's templates of dates and times, for [`to_char`](super) and the functions that read strings by
//! them.
//!
//! `FM` and `TM` in front of a pattern belong to it alone, as do `TH` and `th` behind it; `FX` is for the rest of the
//! template. Letters that are no pattern, and strings in quotes, are text.

/// Part of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Text(&'t str),
    Pattern(Pattern<'t>),
    /// `FX`: strings are read exactly.
    Exact,
}

/// Pattern of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern<'t> {
    pub(super) name: &'static str,
    /// As it is written: its case is that of names.
    pub(super) written: &'t str,
    /// True with `FM` or `TM`: without padding.
    pub(super) is_bare: bool,
    /// `TH` or `th`.
    pub(super) ordinal: Option<&'t str>,
}

/// Patterns, each before those that it begins with.
const PATTERNS: [&str; 53] = [
    "SSSSS", "SSSS", "Y,YYY", "YYYY", "YYY", "YY", "Y", "IYYY", "IYY", "IY", "IDDD", "ID", "IW", "I", "HH24",
    "HH12", "HH", "MI", "MM", "MONTH", "MON", "MS", "SS", "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6",
    "DDD", "DD", "DAY", "DY", "D", "A.M.", "P.M.", "AM", "PM", "A.D.", "B.C.", "AD", "BC", "WW", "W", "CC",
    "J", "Q", "RM", "TZH", "TZM", "TZ", "OF",
];

/// Parts of a template, in their order.
pub(super) fn parts(template: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let inner = &rest[1..];
            let (quoted, after) = inner.split_once('"').unwrap_or((inner, ""));
            parts.push(Part::Text(quoted));
            rest = after;
            continue;
        }
        if let Some(escaped) = rest.strip_prefix("\\\"") {
            parts.push(Part::Text(&rest[1..2]));
            rest = escaped;
            continue;
        }
        let prefix = ["FM", "FX", "TM"].into_iter().find(|prefix| begins(rest, prefix));
        let behind = &rest[prefix.map_or(0, str::len)..];
        if prefix == Some("FX") {
            parts.push(Part::Exact);
        }
        if let Some(name) = PATTERNS.into_iter().find(|pattern| begins(behind, pattern)) {
            let (written, after) = behind.split_at(name.len());
            rest = after;
            let ordinal = takes_ordinal(name) && begins(rest, "TH");
            let (ordinal, after) = if ordinal { (Some(&rest[..2]), &rest[2..]) } else { (None, rest) };
            rest = after;
            let is_bare = matches!(prefix, Some("FM" | "TM"));
            parts.push(Part::Pattern(Pattern { name, written, is_bare, ordinal }));
        } else if prefix.is_some() {
            rest = behind;
        } else {
            parts.push(Part::Text(&rest[..first.len_utf8()]));
            rest = &rest[first.len_utf8()..];
        }
    }
    parts
}

fn begins(text: &str, pattern: &str) -> bool {
    text.get(..pattern.len()).is_some_and(|start| start.eq_ignore_ascii_case(pattern))
}

/// Returns true for the patterns of numbers.
pub(super) fn takes_ordinal(pattern: &str) -> bool {
    !matches!(
        pattern,
        "MONTH"
            | "MON"
            | "DAY"
            | "DY"
            | "A.M."
            | "P.M."
            | "AM"
            | "PM"
            | "A.D."
            | "B.C."
            | "AD"
            | "BC"
            | "RM"
            | "TZH"
            | "TZM"
            | "TZ"
            | "OF"
    )
}
