//! ASOF joins of two streams: each tuple of the left one with the nearest tuple of the right one in time.

use crate::UTC;
use crate::graph::Writer;
use crate::join::{JoinSide, times_of_side};
use crate::operators::asof_join::AsofJoinOperator;
use crate::operators::join_bounds::JoinBounds;
use crate::operators::join_state::{JoinKeys, JoinState, LEFT, RIGHT};
use crate::stream::Stream;
use entresol_tables::arrow_schema;
use std::time::Duration;

/// ASOF join of two streams by equal keys; see [`Stream::asof_join`].
pub struct AsofJoin {
    /// Order of the event times of partners.
    pub nearest: AsofMatch,
    /// Maximum difference of the event times of partners. Joins with a tuple at or behind the left one need one.
    pub within: Option<Duration>,
    /// Table of the tuples that are buffered, which only this operator may write.
    pub state_table: String,
    /// Side of the stream that [`Stream::asof_join`] is called on.
    pub left: JoinSide,
    /// Side of the other stream.
    pub right: JoinSide,
}

/// Order of the event times of a tuple of the left side and its partner, the nearest one of the right side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsofMatch {
    /// The last tuple at or before the time of the left one: `left >= right`.
    AtOrBefore,
    /// The last tuple before it: `left > right`.
    Before,
    /// The first tuple at or behind it: `left <= right`.
    AtOrBehind,
    /// The first tuple behind it: `left < right`.
    Behind,
}

impl AsofMatch {
    /// Tells whether partners are not later than the tuples of the left side.
    pub(crate) fn is_backward(self) -> bool {
        matches!(self, AsofMatch::AtOrBefore | AsofMatch::Before)
    }

    /// Least difference of the times of partners, in microseconds.
    fn least_us(self) -> i64 {
        i64::from(matches!(self, AsofMatch::Before | AsofMatch::Behind))
    }
}

impl AsofJoin {
    /// Times of the candidates of a tuple; an error says why there are none.
    fn bounds(&self) -> Result<JoinBounds, String> {
        let micros = |within: Duration| i64::try_from(within.as_micros()).map_err(|_| within);
        let within = self.within.map(micros).transpose();
        let within = within.map_err(|within| format!("partners within {within:?}"))?;
        let least = self.nearest.least_us();
        if within.is_some_and(|within| within < least) {
            return Err(format!("partners within {:?}", self.within.unwrap_or_default()));
        }
        let difference_us = if self.nearest.is_backward() {
            (within.map(|within| -within), Some(-least))
        } else {
            (Some(least), within)
        };
        let bounds = JoinBounds { difference_us, last: [None, None] };
        if bounds.is_unbounded(LEFT) {
            return Err("left tuples may always get a partner: none is known to have no partner".to_owned());
        }
        Ok(bounds)
    }
}

impl Stream {
    /// Joins each tuple with the nearest one of the other stream in time, among those with equal keys: the columns of this
    /// stream, then those of the other, NULLs if there is none. Of tuples of the other stream with equal keys and times the
    /// last to arrive counts if it is before, the first one if it is behind. A tuple is sent when the watermark of the other
    /// stream says that no nearer one comes; late ones are counted and dropped. Of the other stream, the last tuple of each
    /// key is buffered for ever, if there is no maximum of the difference of times.
    pub fn asof_join(&self, other: &Stream, join: AsofJoin) -> Stream {
        self.check_appended("an ASOF join");
        other.check_appended("an ASOF join");
        let table = join.state_table.clone();
        match self.try_asof_join(other, join) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("ASOF join with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    fn try_asof_join(&self, other: &Stream, join: AsofJoin) -> Result<Stream, String> {
        let bounds = join.bounds()?;
        let AsofJoin { nearest, state_table, left, right, .. } = join;
        left.check(self)?;
        right.check(other)?;
        if left.keys.len() != right.keys.len() {
            return Err("the sides have different numbers of keys".to_owned());
        }
        let sides = [&left, &right];
        if sides.iter().any(|side| side.edge.is_some() || side.last.is_some()) {
            return Err("windows, or last times of partners".to_owned());
        }
        let spans = [left.span()?, right.span()?];
        self.plan_state(&state_table, self.joined_state(other)?)?;
        let columns = self.joined_columns(other, [true, false]);
        let (schema, table, width) = (arrow_schema(&columns, UTC), state_table.clone(), self.columns.len());
        let mut joined = self.add(format!("ASOF join {table}"), columns.into(), move |made| {
            let name = made.name.to_owned();
            let columns = [left.time, right.time];
            let times = |side: usize| times_of_side(made, &table, side, (columns[side], None), spans[side]);
            let times = [times(LEFT), times(RIGHT)];
            let memory = made.memory;
            let keys = JoinKeys::new(left.keys, right.keys);
            let state =
                JoinState::new(name.clone(), made.catalog.table(&table)?, width, keys, bounds, memory)?;
            Ok(Box::new(AsofJoinOperator::new(name, nearest, times, state, schema)))
        });
        let mut graph = self.graph.borrow_mut();
        graph.nodes[joined.node].inputs = vec![self.node, other.node];
        graph.writers.push(Writer { table: state_table, node: joined.node, is_to_table: false });
        drop(graph);
        joined.from_sources = false;
        Ok(joined)
    }
}
