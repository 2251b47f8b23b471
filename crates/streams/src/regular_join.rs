//! Joins of two streams of which rows are taken back, or may always get a partner: all rows of both are kept.

use crate::UTC;
use crate::expression::Expression;
use crate::graph::Writer;
use crate::operators::Operator;
use crate::operators::join_state::JoinKeys;
use crate::operators::lookup_join::JoinKind;
use crate::operators::regular_join::RegularJoinOperator;
use crate::operators::regular_join_state::{RegularJoinState, STATE_KEY, columns_before};
use crate::stream::Stream;
use entresol_tables::{Schema, arrow_schema};

/// Join of all rows of two streams by equal keys; see [`Stream::regular_join`].
pub struct RegularJoin {
    /// Treatment of left tuples without partner.
    pub kind: JoinKind,
    /// Table of the tuples that are there, which only this operator may write.
    pub state_table: String,
    /// Expressions over the columns of the left stream, at least one, that equal those of the right one, of the same
    /// types.
    pub left_keys: Vec<Box<dyn Expression>>,
    /// Expressions over the columns of the right stream.
    pub right_keys: Vec<Box<dyn Expression>>,
    /// Condition over the columns of the left and then of the right stream; a partner is one for which it is true. Of
    /// inner joins only.
    pub condition: Option<Box<dyn Expression>>,
    /// Maximum of keys that are cached in DRAM, at least 1.
    pub keys_in_dram: usize,
}

impl Stream {
    /// Joins all tuples of both streams, which may be taken back: the columns of this stream, then those of the other.
    /// The tuples are kept until they are taken back, for ever if they are not. Results are sent at the commit, as far
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
        let RegularJoin { kind, state_table, left_keys, right_keys, condition, keys_in_dram } = join;
        if left_keys.is_empty() || left_keys.len() != right_keys.len() {
            return Err("the sides have no keys, or different numbers of them".to_owned());
        }
        if kind == JoinKind::Left && condition.is_some() {
            return Err("a condition besides the keys, of a left join".to_owned());
        }
        let mut stored = columns_before();
        self.add_both_sides(other, &mut stored);
        self.plan_state(&state_table, Schema::new(stored, &STATE_KEY).map_err(|error| error.to_string())?)?;
        let columns = self.joined_columns(other, kind);
        let (schema, table, width) = (arrow_schema(&columns, UTC), state_table.clone(), self.columns.len());
        let mut joined = self.add(columns.into(), move |made| {
            let (name, keys) = (format!("join {table}"), JoinKeys::new(left_keys, right_keys));
            let (memory, table) = (made.catalog.context().pool().memory(), made.catalog.table(&table)?);
            let keys_in_dram = keys_in_dram.max(1);
            let state = RegularJoinState::new(name.clone(), table, width, keys, keys_in_dram, memory)?;
            Ok(Box::new(RegularJoinOperator { name, kind, condition, state, schema }) as Box<dyn Operator>)
        });
        let mut graph = self.graph.borrow_mut();
        graph.nodes[joined.node].inputs = vec![self.node, other.node];
        graph.writers.push(Writer { table: state_table, node: joined.node, is_to_table: false });
        drop(graph);
        joined.from_sources = false;
        joined.changes = self.changes || other.changes || kind == JoinKind::Left;
        Ok(joined)
    }
}
