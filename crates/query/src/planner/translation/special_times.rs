//! Times that PostgreSQL has names for, in literals: those of the statement, and the beginning of 1970.
//!
//! | written | planned |
//! | --- | --- |
//! | `date 'today'`, `'tomorrow'::date`, `date 'yesterday'`, `date 'now'` | the date of `now()`, and a day more or less |
//! | `timestamp 'now'`, `timestamptz 'now'` | `now()` as such |
//! | `timestamp 'today'`, `timestamptz 'tomorrow'` | the midnight at which the date begins |
//! | `date 'epoch'`, `timestamp 'epoch'` | 1970-01-01 00:00:00 UTC |
//!
//! They are computed in each run of a statement; of a view and of a DEFAULT too. There are no infinite times: `infinity`
//! is left to the cast, which refuses it.

use super::build::{call, cast_to, sum, text};
use super::types::timestamp;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr, TimezoneInfo};

/// Expression of a named time, of the type of its literal; `None` for other types and names.
pub(super) fn named(data_type: &SqlType, literal: &str) -> Option<Expr> {
    let name = literal.trim().to_ascii_lowercase();
    match data_type {
        SqlType::Date => date(&name),
        SqlType::Timestamp(_, zone) => {
            let of = |expr: Expr| cast_to(expr, timestamp(*zone));
            let is_instant = matches!(zone, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz);
            match name.as_str() {
                "now" => Some(of(now())),
                "epoch" if is_instant => Some(of(text("1970-01-01 00:00:00+00"))),
                // Midnight of the session's zone.
                _ => date(&name).map(|date| of(cast_to(date, timestamp(TimezoneInfo::None)))),
            }
        }
        _ => None,
    }
}

fn now() -> Expr {
    call("now", Vec::new())
}

fn date(name: &str) -> Option<Expr> {
    let today = || cast_to(now(), SqlType::Date);
    Some(match name {
        "today" | "now" => today(),
        "tomorrow" => sum(today(), 1),
        "yesterday" => sum(today(), -1),
        "epoch" => cast_to(text("1970-01-01"), SqlType::Date),
        _ => return None,
    })
}

/// Text of a time of day with colons between its fields: `040506` is `04:05:06`.
pub(super) fn with_colons(literal: &str) -> Option<String> {
    let (digits, fraction) = match literal.trim().split_once('.') {
        Some((digits, fraction)) => (digits, format!(".{fraction}")),
        None => (literal.trim(), String::new()),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match digits.len() {
        4 if fraction.is_empty() => Some(format!("{}:{}", &digits[..2], &digits[2..])),
        6 => Some(format!("{}:{}:{}{fraction}", &digits[..2], &digits[2..4], &digits[4..])),
        _ => None,
    }
}
