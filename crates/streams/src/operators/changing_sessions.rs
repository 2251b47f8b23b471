//! Sessions of rows that are taken back: each row with the edges of its session, which are others when rows come or go.
//!
//! ```text
//!   rows ──▶ counted, by group ── at the commit ──▶ rows with the edges before, taken back
//!            (a state table)                        rows with the edges of now
//! ```
//!
//! - Rows are kept until they are taken back, as a row that goes may leave two sessions in place of one. What is sent at
//!   a commit are the rows of the sessions that have changed ([`super::changing_session_rows`]), so a commit costs what these
//!   have, not what the group has.
//! - All that is taken back is sent before all that is new: a session has the start of another, or its end.
//! - A row without a time is of no session: it is noted for the transaction alone, and sent without edges.
//! - Times play no other part: no row is late, and no watermark is sent but the end.
//!
//! State: see [`super::regular_join_state`], of which rows are on the left side. A crash or an abort leaves the rows of the
//! last commit. Memory: the rows of the groups that a transaction changes, and those that it sends; more than
//! [`JOIN_ROWS_MAX`] of these are an error.

use crate::JOIN_ROWS_MAX;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::changing_session_rows::{SessionEdges, changed_sessions};
use crate::operators::join_state::LEFT;
use crate::operators::regular_join_rows::SideRow;
use crate::operators::regular_join_state::RegularJoinState;
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_schema::SchemaRef;
use std::sync::Arc;

/// Rows that are formed together.
const ROWS: usize = 8192;

pub(crate) struct ChangingSessionsOperator {
    pub(crate) name: String,
    pub(crate) gap_us: i64,
    pub(crate) state: RegularJoinState,
    /// Columns of the output: those of the input, of which the first is the time, and both edges.
    pub(crate) schema: SchemaRef,
}

/// Rows that are sent together.
#[derive(Default)]
struct InSessions {
    rows: Vec<SideRow>,
    edges: Vec<Option<SessionEdges>>,
}

impl ChangingSessionsOperator {
    fn refused(&self, reason: &str) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: reason.to_owned() }
    }

    /// Rows with edges, of which all are taken back or none.
    fn with_edges(
        &self,
        mut columns: Vec<ArrayRef>,
        edges: impl Iterator<Item = Option<SessionEdges>> + Clone,
        retracted: BooleanArray,
    ) -> Result<Batch> {
        let edge_type = self.schema.field(columns.len()).data_type();
        let edge = |times: PrimitiveArray<TimestampMicrosecondType>| -> ArrayRef {
            Arc::new(times.with_data_type(edge_type.clone()))
        };
        let starts = edges.clone().map(|edges| edges.map(|(start, _)| start)).collect();
        let ends = edges.map(|edges| edges.map(|(_, end)| end)).collect();
        columns.extend([edge(starts), edge(ends)]);
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        Ok(Batch::of_changes(rows.map_err(|error| self.state.failed(&error))?, retracted))
    }

    fn send(&self, rows: InSessions, are_retracted: bool, output: &mut Output) -> Result<()> {
        if rows.rows.is_empty() {
            return Ok(());
        }
        let columns = self.state.columns(LEFT, rows.rows.iter().map(|row| &**row))?;
        let retracted = BooleanArray::from(vec![are_retracted; rows.rows.len()]);
        output.push(self.with_edges(columns, rows.edges.iter().copied(), retracted)?);
        Ok(())
    }

    /// Sends the rows in sessions of before, or those of now, as far as these are others; rows without a time are of none.
    fn send_changed(&self, are_retracted: bool, output: &mut Output) -> Result<()> {
        let (mut rows, mut sent) = (InSessions::default(), 0);
        let mut add = |row: &SideRow, edges: Option<SessionEdges>, change: i64| {
            if (change < 0) != are_retracted {
                return Ok(());
            }
            for _ in 0..change.unsigned_abs() {
                rows.rows.push(Arc::clone(row));
                rows.edges.push(edges);
                sent += 1;
                if sent > JOIN_ROWS_MAX {
                    let resource = format!("rows of changed sessions of {} in a transaction", self.name);
                    return Err(Error::Limit { resource, max: JOIN_ROWS_MAX });
                }
                if rows.rows.len() == ROWS {
                    self.send(std::mem::take(&mut rows), are_retracted, output)?;
                }
            }
            Ok(())
        };
        for (row, change) in self.state.alone(LEFT) {
            add(row, None, *change)?;
        }
        for (_, key) in self.state.touched_keys() {
            changed_sessions(
                &key.sides[LEFT],
                &key.changed[LEFT],
                self.gap_us,
                &mut |row, edges, change| add(row, Some(edges), change),
            )?;
        }
        self.send(rows, are_retracted, output)
    }
}

impl Operator for ChangingSessionsOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, _output: &mut Output) -> Result<()> {
        let tx = context.transaction()?;
        self.state.ensure_loaded(tx)?;
        let times = batch.nullable_times(0);
        let times = times.ok_or_else(|| self.refused("times of another type than TIMESTAMP"))?;
        let (rows, keys) = self.state.convert(LEFT, batch.rows())?;
        for (((at, row), key), time) in rows.iter().enumerate().zip(keys).zip(times) {
            let is_retracted = batch.retracted().is_some_and(|retracted| retracted.value(at));
            let change = if is_retracted { -1 } else { 1 };
            match (key, time) {
                (Some(key), Some(time)) => self.state.add(tx, LEFT, key, row.data(), (change, time))?,
                _ => self.state.add_alone(LEFT, row.data(), change),
            }
        }
        self.state.reserve()
    }

    fn watermark(&mut self, _: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        if time == EventTime::END {
            output.watermark(time);
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        let tx = context.transaction()?;
        self.state.ensure_loaded(tx)?;
        self.state.write(tx)?;
        for are_retracted in [true, false] {
            let first = output.batches.len();
            self.send_changed(are_retracted, output)?;
            let bytes = output.batches[first..].iter().map(|batch| batch.rows().get_array_memory_size());
            self.state.hold(bytes.sum())?;
        }
        Ok(())
    }

    fn committed(&mut self) -> Result<()> {
        self.state.committed();
        Ok(())
    }

    fn aborted(&mut self) {
        self.state.aborted();
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        Ok(())
    }
}
