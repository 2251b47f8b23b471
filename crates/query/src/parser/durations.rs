//! Lengths of time in statements: intervals of days and less, literals and values of options.

use crate::error::{Error, Result};
use datafusion::arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion::sql::sqlparser::ast::{Expr, Value as Literal};
use std::time::Duration;

const DAY_SECONDS: i64 = 86_400;

pub(crate) fn invalid(name: &str, text: &str) -> Error {
    Error::coded("22023", format!("invalid value for {}: \"{text}\"", shown(name)))
}

/// Name of an option, which has lower case, or of a clause, in messages.
fn shown(name: &str) -> String {
    if name.chars().any(char::is_lowercase) { format!("option \"{name}\"") } else { name.to_owned() }
}

/// Length of an interval of days and less.
pub(crate) fn interval(name: &str, text: &str) -> Result<Duration> {
    let parsed = parse_interval_month_day_nano(text).map_err(|_| invalid(name, text))?;
    if parsed.months != 0 {
        let message = format!("{}: months differ in length, days and hours do not", invalid(name, text));
        return Err(Error::coded("22023", message));
    }
    let nanos = i64::from(parsed.days)
        .checked_mul(DAY_SECONDS * 1_000_000_000)
        .and_then(|nanos| nanos.checked_add(parsed.nanoseconds))
        .and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| invalid(name, text))
}

/// Text of an interval: a literal, as it was written or with its unit.
pub(crate) fn interval_of(expr: &Expr) -> Option<String> {
    let text = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => Some(text.clone()),
            Literal::Number(digits, _) => Some(digits.clone()),
            _ => None,
        },
        _ => None,
    };
    match expr {
        Expr::Interval(interval) => {
            let amount = text(&interval.value)?;
            Some(match &interval.leading_field {
                Some(field) => format!("{amount} {field}"),
                None => amount,
            })
        }
        Expr::Nested(inner) => interval_of(inner),
        other => text(other),
    }
}
