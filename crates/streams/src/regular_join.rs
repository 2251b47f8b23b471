//! Joins of two streams of which rows are taken back, or may always get a partner: all rows of both are kept.

use crate::UTC;
use crate::expression::Expression;
use crate::graph::{OperatorArguments, Writer};
use crate::operators::Operator;
use crate::operators::join_state::{JoinKeys, LEFT, RIGHT};
use crate::operators::regular_join::{JoinLifeTimes, RegularJoinOperator};
use crate::operators::regular_join_state::{
    LifeColumn, RegularJoinState, RowTimes, STATE_KEY, columns_before,
};
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::window_aggregate::SourceTimes;
use crate::stream::Stream;
use entresol_tables::{DataType, Schema, arrow_schema};
use std::time::Duration;

/// Join of all rows of two streams by equal keys; see [`Stream::regular_join`].
pub struct RegularJoin {
    /// Sides, the left and the right one, whose tuples are sent without partner too.
    pub preserved: [bool; 2],
    /// Table of the tuples that are there, which only this operator may write.
    pub state_table: String,
    /// Expressions over the columns of the left stream, at least one, that equal those of the right one, of the same
    /// types.
    pub left_keys: Vec<Box<dyn Expression>>,
    /// Expressions over the columns of the right stream.
    pub right_keys: Vec<Box<dyn Expression>>,
    /// Condition over the columns of the left and then of the right stream; partners are tuples for which it is true.
    pub condition: Option<Box<dyn Expression>>,
    /// Life of the tuples of a side, if they do not stay for ever.
    pub life: Option<JoinLife>,
    /// Maximum of keys that are cached in DRAM, at least 1.
    pub keys_in_dram: usize,
}

/// Life of the tuples of one side of a regular join, which takes nothing back. When the watermark has passed their event
/// time by the time to live, they leave the state: what was sent for them stays as it is.
#[derive(Debug, Clone, Copy)]
pub struct JoinLife {
    /// True if they are those of the left side.
    pub is_left: bool,
    /// Column of their event time.
    pub time: usize,
    /// Time for which they are kept behind their event time.
    pub ttl: Duration,
    /// Time for which the event times may be out of order.
    pub lateness: Duration,
    /// Time ahead of the clock up to which an event time moves the watermark.
    pub future_limit: Duration,
}

impl JoinLife {
    /// Checks it against the sides.
    fn check(&self, sides: [&Stream; 2], preserved: [bool; 2]) -> Result<(), String> {
        let side = self.side();
        if sides[side].changes {
            return Err("a time to live of tuples that are taken back".to_owned());
        }
        if preserved[1 - side] {
            let reason = "a time to live of the partners of tuples that are sent without partner: when these leave they would have none";
            return Err(reason.to_owned());
        }
        let column = sides[side].columns.get(self.time);
        let is_time = column
            .is_some_and(|column| matches!(column.data_type, DataType::Timestamp | DataType::TimestampTz));
        if is_time { Ok(()) } else { Err("the event time is not a TIMESTAMP".to_owned()) }
    }

    fn side(&self) -> usize {
        if self.is_left { LEFT } else { RIGHT }
    }

    fn times(&self, made: &OperatorArguments<'_>, table: &str) -> JoinLifeTimes {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let sources = made.sources_of_inputs.get(self.side()).copied().unwrap_or_default();
        JoinLifeTimes {
            of: LifeColumn { side: self.side(), column: self.time },
            ttl_us: micros(self.ttl),
            lateness_us: micros(self.lateness),
            future_us: micros(self.future_limit),
            watermark: StoredWatermark::new(made.watermarks, made.topology, table),
            progress: SourceTimes::new(sources),
        }
    }
}

impl Stream {
    /// Joins all tuples of both streams, which may be taken back: the columns of this stream, then those of the other.
    /// The tuples are kept until they are taken back, for ever if they are not, or as long as they live. Results are
    /// sent at the commit, as far
    /// as they have changed; those that are gone are taken back.
    pub fn regular_join(&self, other: &Stream, join: RegularJoin) -> Stream {
        let table = join.state_table.clone();
        match self.try_regular_join(other, join) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("join with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    fn try_regular_join(&self, other: &Stream, join: RegularJoin) -> Result<Stream, String> {
        let RegularJoin { preserved, state_table, left_keys, right_keys, condition, life, keys_in_dram } =
            join;
        if left_keys.is_empty() || left_keys.len() != right_keys.len() {
            return Err("the sides have no keys, or different numbers of them".to_owned());
        }
        life.map_or(Ok(()), |life| life.check([self, other], preserved))?;
        let mut stored = columns_before();
        self.add_both_sides(other, &mut stored);
        self.plan_state(&state_table, Schema::new(stored, &STATE_KEY).map_err(|error| error.to_string())?)?;
        let columns = self.joined_columns(other, preserved);
        let (schema, table, width) = (arrow_schema(&columns, UTC), state_table.clone(), self.columns.len());
        let mut joined = self.add(format!("join {table}"), columns.into(), move |made| {
            let (name, keys) = (made.name.to_owned(), JoinKeys::new(left_keys, right_keys));
            let life = life.map(|life| life.times(made, &table));
            let (memory, table) = (made.memory_of_caches.as_ref(), made.catalog.table(&table)?);
            let keys_in_dram = keys_in_dram.max(1);
            let state = RegularJoinState::new(
                name.clone(),
                table,
                width,
                keys,
                RowTimes::None,
                keys_in_dram,
                memory,
            )?;
            Ok(Box::new(RegularJoinOperator { name, preserved, condition, state, life, schema })
                as Box<dyn Operator>)
        });
        let mut graph = self.graph.borrow_mut();
        graph.nodes[joined.node].inputs = vec![self.node, other.node];
        graph.writers.push(Writer { table: state_table, node: joined.node, is_to_table: false });
        drop(graph);
        joined.from_sources = false;
        joined.changes = self.changes || other.changes || preserved != [false; 2];
        Ok(joined)
    }
}
