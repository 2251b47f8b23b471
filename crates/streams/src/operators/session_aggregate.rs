//! Sessions over event time, with aggregates per group.
//!
//! - A session is of one group: tuples each less than a gap after another. It begins with the first one, and ends a gap
//!   after the last one.
//! - The watermark moves as that of other windows ([`super::window_aggregate`]). A session is closed once the watermark
//!   has reached its end, and sends one tuple: group columns, window_start, window_end, results; sessions in the order
//!   of their ends.
//! - A tuple is late if it is behind the watermark and in no open session: it could be of one that is closed. So the
//!   sessions are those of all tuples that were not late, in whatever order these came.
//! - The watermark that it sends is the start of the first open session, or its own: what is sent later does not start
//!   earlier.
//!
//! State: open sessions in the state table ([`super::session_state`]), the watermark in `streams_watermarks`.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::session_state::SessionState;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::to_table::ToTableOperator;
use crate::operators::window::{SessionSpan, watermark_after};
use crate::operators::window_aggregate::{SourceTimes, store_late};
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub(crate) struct SessionAggregate {
    pub(crate) name: String,
    pub(crate) time_column: usize,
    pub(crate) span: SessionSpan,
    pub(crate) state: SessionState,
    pub(crate) watermark: StoredWatermark,
    pub(crate) progress: SourceTimes,
    /// Columns of the output.
    pub(crate) schema: SchemaRef,
    /// Table of late tuples.
    pub(crate) late: Option<ToTableOperator>,
}

impl SessionAggregate {
    /// Loads the state that is not in DRAM, and returns the watermark.
    fn load(&mut self, context: &Context<'_>) -> Result<EventTime> {
        self.state.ensure_loaded(context.transaction()?)?;
        self.watermark.load(context)
    }

    /// Moves the watermark, and sends the sessions that it closes.
    fn close_until(&mut self, watermark: EventTime, output: &mut Output) -> Result<()> {
        self.watermark.raise(watermark);
        if let Some(closed) = self.state.close(watermark)? {
            let mut columns = closed.keys;
            columns.extend([closed.starts, closed.ends]);
            columns.extend(closed.results);
            let batch = RecordBatch::try_new(std::sync::Arc::clone(&self.schema), columns);
            let failed = |error: arrow_schema::ArrowError| Error::Tuple {
                operator: self.name.clone(),
                reason: error.to_string(),
            };
            output.push(batch.map_err(failed)?.into());
        }
        output.watermark(self.state.first_start().map_or(watermark, |start| start.min(watermark)));
        Ok(())
    }
}

impl Operator for SessionAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        let times = batch.times(self.time_column).ok_or_else(|| {
            let reason = "an event time is NULL".to_owned();
            Error::Tuple { operator: self.name.clone(), reason }
        })?;
        let keys = self.state.keys(batch.rows())?;
        let (mut watermark, mut late, mut future) = (before, Vec::new(), 0);
        for (row, &micros) in times.iter().enumerate() {
            let time = EventTime::from_micros(micros);
            let is_future = time > context.now.plus(self.span.future_us);
            let reached = if is_future { EventTime::START } else { self.progress.advance(context, time) };
            future += u64::from(is_future);
            if !self.state.put(batch.rows(), row as u32, keys.get(row), time, watermark)? {
                late.push(row as u32);
                continue;
            }
            if !is_future {
                watermark = watermark.max(watermark_after(reached, self.span.lateness_us));
            }
        }
        self.state.add_pending(batch.rows())?;
        context.count_late(late.len() as u64);
        if let Some(table) = &mut self.late {
            store_late(&self.name, table, context, batch, late)?;
        }
        context.count_future(future);
        if watermark > before {
            self.close_until(watermark, output)?;
        }
        Ok(())
    }

    fn watermark(&mut self, context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        let before = self.load(context)?;
        if time == EventTime::END {
            // The watermark becomes the end of the last session: tuples of a later run that belong to one are late,
            // and others are not.
            let last = self.state.last_end().unwrap_or(before).max(before);
            self.close_until(last, output)?;
            output.watermark(EventTime::END);
        } else if time > before {
            self.close_until(time, output)?;
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        self.load(context)?;
        self.state.write_touched(context.transaction()?)?;
        self.watermark.write(context)?;
        self.state.table.vote_commit(context.transaction()?)?;
        self.late.as_mut().map_or(Ok(()), |late| late.commit(context, output))
    }

    fn sealed(&mut self) {
        self.watermark.sealed();
        self.progress.sealed();
    }

    fn committed(&mut self) -> Result<()> {
        self.watermark.committed();
        self.progress.committed();
        self.state.committed();
        Ok(())
    }

    fn redefined(&mut self) -> Result<()> {
        self.state.table = current_of(&self.name, &self.state.table, |old, new| old == new)?;
        self.late.as_mut().map_or(Ok(()), Operator::redefined)
    }

    fn aborted(&mut self) {
        self.state.aborted();
        self.watermark.aborted();
        self.progress.aborted();
    }
}
