//! JoinRetention of the rows of a join of streams, and the option `state_ttl` for joins that have no bound.

use crate::error::{Error, Result};
use crate::parser::durations::{interval, invalid};
use crate::streaming::options::StreamOptions;
use datafusion::logical_expr::Expr;
use std::time::Duration;

/// Option that bounds joins which have no bound of their own.
const STATE_TTL: &str = "state_ttl";

/// Time in which rows of a join without a bound find partners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateTtl {
    /// Rows are partners only if their event times are no further apart.
    For(Duration),
    /// Rows are buffered for ever.
    Infinite,
}

impl StateTtl {
    /// Takes the option.
    pub(crate) fn take(options: &mut StreamOptions) -> Result<Option<StateTtl>> {
        let Some(text) = options.take(STATE_TTL) else { return Ok(None) };
        if text.eq_ignore_ascii_case("infinity") {
            return Ok(Some(StateTtl::Infinite));
        }
        let time = interval(STATE_TTL, &text)?;
        match i64::try_from(time.as_micros()) {
            Ok(us) if us > 0 => Ok(Some(StateTtl::For(time))),
            _ => Err(invalid(STATE_TTL, &text)),
        }
    }

    /// Microseconds of a difference of times.
    fn us(self) -> Option<i64> {
        match self {
            StateTtl::For(time) => i64::try_from(time.as_micros()).ok(),
            StateTtl::Infinite => None,
        }
    }
}

/// Times of the partners of rows: the least and greatest difference of the second event time and the first one, in
/// microseconds, and an expression over each side of the last time of a row's partners.
#[derive(Debug, Clone, Default)]
pub(crate) struct JoinRetention {
    pub(crate) difference_us: (Option<i64>, Option<i64>),
    pub(crate) last: [Option<Expr>; 2],
    /// True if `state_ttl` says more than the conditions of the join.
    pub(crate) is_by_option: bool,
}

impl JoinRetention {
    /// Partners of equal time.
    pub(crate) fn of_windows() -> JoinRetention {
        JoinRetention { difference_us: (Some(0), Some(0)), ..JoinRetention::default() }
    }

    /// Tells of each side whether its rows have a last partner.
    pub(crate) fn are_bounded(&self) -> [bool; 2] {
        let (least, greatest) = self.difference_us;
        [greatest.is_some() || self.last[0].is_some(), least.is_some() || self.last[1].is_some()]
    }

    /// Bounds the sides that are not.
    pub(crate) fn limit(&mut self, ttl: StateTtl) {
        let [first, second] = self.are_bounded();
        self.is_by_option = !(first && second);
        if !first {
            self.difference_us.1 = ttl.us();
        }
        if !second {
            self.difference_us.0 = ttl.us().map(|us| -us);
        }
    }

    /// Text for EXPLAIN; sides are swapped in a RIGHT JOIN.
    pub(crate) fn describe(&self, is_swapped: bool) -> String {
        let has_others = self.is_by_option || self.last.iter().any(Option::is_some);
        if !has_others {
            return "join of streams".to_owned();
        }
        let (least, greatest) = self.difference_us;
        let until = |us: Option<i64>, last: &Option<Expr>| match (us, last) {
            (None, None) => "for ever".to_owned(),
            (None, Some(last)) => format!("until {last}"),
            (Some(us), None) => {
                format!("until {:?} behind their time", Duration::from_micros(us.max(0).unsigned_abs()))
            }
            (Some(us), Some(last)) => {
                format!(
                    "until {last} or {:?} behind their time",
                    Duration::from_micros(us.max(0).unsigned_abs())
                )
            }
        };
        let first = until(greatest, &self.last[0]);
        let second = until(least.map(|us| us.saturating_neg()), &self.last[1]);
        let (left, right) = if is_swapped { (second, first) } else { (first, second) };
        format!("join of streams, rows of the left buffered {left}, of the right {right}")
    }
}

/// Refusal of a join with a side whose rows have no last partner.
pub(crate) fn unbounded(bounded: [bool; 2]) -> Error {
    let what = match bounded {
        [true, false] => ", with an upper bound only",
        [false, true] => ", with a lower bound only",
        _ => "",
    };
    Error::unsupported(format!(
        "a join of two streams without end{what}: bound the time between both, as in ON … AND b.at BETWEEN a.at - INTERVAL '1 minute' AND a.at + INTERVAL '1 minute', or by a column, as in b.at BETWEEN a.at AND a.until; join windows of both ON equal window_start; or say WITH ({STATE_TTL} = '1 hour'), or 'infinity'"
    ))
}
