//! Sessions of rows that are taken back: all rows are kept, as one that goes may split a session.

use crate::UTC;
use crate::graph::Writer;
use crate::operators::Operator;
use crate::operators::changing_sessions::ChangingSessionsOperator;
use crate::operators::join_state::JoinKeys;
use crate::operators::regular_join_state::{RegularJoinState, RowTimes, STATE_KEY, columns_before};
use crate::stream::Stream;
use crate::windowed::{WINDOW_END, WINDOW_START};
use crate::{ColumnExpression, Expression};
use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use entresol_tables::{Column, DataType, Schema, arrow_schema};
use std::sync::Arc;
use std::time::Duration;

/// Sessions of a stream whose tuples are taken back; see [`Stream::sessions_of_changes`].
pub struct ChangingSessions {
    /// Columns of the groups, of which each has sessions of its own; NULL is a group too.
    pub groups: Vec<usize>,
    /// Time between two tuples of different sessions, and from the last tuple of one to its end.
    pub gap: Duration,
    /// Table of the tuples that are there, which only this operator may write.
    pub state_table: String,
    /// Maximum of groups that are cached in DRAM, at least 1.
    pub groups_in_dram: usize,
}

impl Stream {
    /// Adds the columns `window_start` and `window_end` of the session of each tuple, whose time is the first column, a
    /// TIMESTAMP. Tuples may be taken back, and are kept until they are. At the commit, those whose session is another
    /// are taken back with the edges before, and sent with those of now. A tuple without a time is of no session.
    pub fn sessions_of_changes(&self, sessions: ChangingSessions) -> Stream {
        let table = sessions.state_table.clone();
        match self.try_sessions_of_changes(sessions) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("sessions with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    fn try_sessions_of_changes(&self, sessions: ChangingSessions) -> Result<Stream, String> {
        let ChangingSessions { groups, gap, state_table, groups_in_dram } = sessions;
        let time = self.columns.first().ok_or("the stream has no columns")?;
        if !matches!(time.data_type, DataType::Timestamp | DataType::TimestampTz) {
            return Err(format!("the first column, {}, is not a TIMESTAMP", time.name));
        }
        if groups.iter().any(|column| *column >= self.columns.len()) {
            return Err("a column of the groups is not in the stream".to_owned());
        }
        if let Some(name) = [WINDOW_START, WINDOW_END].iter().find(|name| self.column(name).is_some()) {
            return Err(format!("the stream has a column {name} already"));
        }
        let gap_us = i64::try_from(gap.as_micros()).ok().filter(|gap| *gap > 0);
        let gap_us = gap_us.ok_or("the gap is not a time of some microseconds")?;
        let mut stored = columns_before();
        self.add_side("left", &mut stored);
        self.plan_state(&state_table, Schema::new(stored, &STATE_KEY).map_err(|error| error.to_string())?)?;
        let edge = |name: &str| Column { nullable: true, ..Column::new(name, time.data_type) };
        let columns = self.columns.iter().cloned().chain([WINDOW_START, WINDOW_END].map(edge));
        let columns: Vec<Column> = columns.collect();
        let (schema, table, width) = (arrow_schema(&columns, UTC), state_table.clone(), self.columns.len());
        let sent = self.add(format!("sessions {table}"), columns.into(), move |made| {
            let (name, keys) = (made.name.to_owned(), JoinKeys::of_groups(group_expressions(&groups)));
            let (memory, table) = (made.memory_of_caches.as_ref(), made.catalog.table(&table)?);
            let (groups, times) = (groups_in_dram.max(1), RowTimes::First);
            let state = RegularJoinState::new(name.clone(), table, width, keys, times, groups, memory)?;
            Ok(Box::new(ChangingSessionsOperator { name, gap_us, state, schema }) as Box<dyn Operator>)
        });
        let writer = Writer { table: state_table, node: sent.node, is_to_table: false };
        self.graph.borrow_mut().writers.push(writer);
        Ok(Stream { changes: true, from_sources: false, ..sent })
    }
}

/// Expressions of the groups; of all tuples together a constant.
fn group_expressions(groups: &[usize]) -> Vec<Box<dyn Expression>> {
    if groups.is_empty() {
        let all = |rows: &RecordBatch| -> Result<ArrayRef, String> {
            Ok(Arc::new(Int32Array::from(vec![0; rows.num_rows()])))
        };
        return vec![Box::new(all)];
    }
    groups.iter().map(|column| Box::new(ColumnExpression(*column)) as Box<dyn Expression>).collect()
}
