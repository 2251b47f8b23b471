//! Times of the partners of a row of a join of streams: they say which rows are compared, and how long one is buffered.
//!
//! | bound | partners of a row end |
//! | --- | --- |
//! | on the difference of both times | so long before or behind its own time |
//! | by an expression over the row | at that time, such as the end of an auction |
//! | none | never: the row is buffered for ever |

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::expression::{Expression, evaluate};
use crate::operators::join_state::LEFT;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Bounds of the times of partners.
pub(crate) struct JoinBounds {
    /// Least and greatest right join time minus the left one, in microseconds.
    pub(crate) difference_us: (Option<i64>, Option<i64>),
    /// Of each side, expression of the last time of the partners of a row; NULL if it has no partner.
    pub(crate) last: [Option<Box<dyn Expression>>; 2],
}

impl JoinBounds {
    /// Differences of the times of the first and the last partner of a row of a side and its own, in microseconds.
    fn differences(&self, side: usize) -> (Option<i64>, Option<i64>) {
        let (least, greatest) = self.difference_us;
        let negated = |us: Option<i64>| us.map(i64::saturating_neg);
        if side == LEFT { (least, greatest) } else { (negated(greatest), negated(least)) }
    }

    /// Times of the partners of a row of a side, by their difference alone.
    pub(crate) fn partners(&self, side: usize, join_time: EventTime) -> RangeInclusive<EventTime> {
        let (first, last) = self.differences(side);
        let time = |us: i64| join_time.plus(us);
        first.map_or(EventTime::START, time)..=last.map_or(EventTime::END, time)
    }

    /// Tells whether the partners of a row of a side have a first time.
    pub(crate) fn has_first(&self, side: usize) -> bool {
        self.differences(side).0.is_some()
    }

    /// Tells whether rows of a side may get partners for ever.
    pub(crate) fn is_unbounded(&self, side: usize) -> bool {
        self.differences(side).1.is_none() && self.last[side].is_none()
    }

    /// Last times of the partners of rows of a side; the end of time of those that may always get one.
    pub(crate) fn lasts(
        &mut self,
        operator: &str,
        side: usize,
        rows: &RecordBatch,
        join_times: &[Option<EventTime>],
    ) -> Result<Vec<EventTime>> {
        let last =
            |time: &Option<EventTime>| time.map_or(EventTime::START, |time| *self.partners(side, time).end());
        let mut lasts: Vec<EventTime> = join_times.iter().map(last).collect();
        let Some(expression) = &mut self.last[side] else { return Ok(lasts) };
        let times = evaluate(operator, &mut **expression, rows)?;
        let failed = |reason: String| Error::Tuple { operator: operator.to_owned(), reason };
        let field = Field::new("last", times.data_type().clone(), true);
        let times = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![times]);
        let times =
            Batch::from(times.map_err(|error: ArrowError| failed(error.to_string()))?).nullable_times(0);
        let times = times.ok_or_else(|| failed("the last time of partners is not a TIMESTAMP".to_owned()))?;
        for (last, time) in lasts.iter_mut().zip(times) {
            *last = (*last).min(time.map_or(EventTime::START, EventTime::from_micros));
        }
        Ok(lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::join_state::RIGHT;
    use arrow_array::Array;

    fn at(us: i64) -> EventTime {
        EventTime::from_micros(us)
    }

    #[test]
    fn partners_are_between_the_bounds_of_either_side() {
        let bounds = |difference_us| JoinBounds { difference_us, last: [None, None] };
        let both = bounds((Some(-4), Some(9)));
        assert_eq!(both.partners(LEFT, at(100)), at(96)..=at(109));
        assert_eq!(both.partners(RIGHT, at(100)), at(91)..=at(104));
        let least = bounds((Some(0), None));
        assert_eq!(least.partners(LEFT, at(100)), at(100)..=EventTime::END);
        assert_eq!(least.partners(RIGHT, at(100)), EventTime::START..=at(100));
        assert_eq!([LEFT, RIGHT].map(|side| least.is_unbounded(side)), [true, false]);
        assert_eq!([LEFT, RIGHT].map(|side| least.has_first(side)), [true, false]);
    }

    #[test]
    fn the_last_partner_is_the_earlier_of_both_bounds() {
        let times = arrow_array::TimestampMicrosecondArray::from(vec![Some(7), None, Some(120)]);
        let field = Field::new("until", times.data_type().clone(), true);
        let rows = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(times)]);
        let rows = rows.expect("one column");
        let last: Option<Box<dyn Expression>> = Some(Box::new(crate::ColumnExpression(0)));
        let mut bounds = JoinBounds { difference_us: (None, Some(10)), last: [last, None] };
        let join_times = [Some(at(0)), Some(at(0)), Some(at(100))];
        let lasts = bounds.lasts("join", LEFT, &rows, &join_times);
        assert_eq!(lasts.expect("times"), [at(7), EventTime::START, at(110)]);
        assert_eq!(bounds.lasts("join", RIGHT, &rows, &join_times[..1]).expect("times"), [EventTime::END]);
    }
}
