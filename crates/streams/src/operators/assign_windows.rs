//! Assigns windows: each tuple comes once for each window that contains its event time, with the edges of it.
//!
//! Copies of a tuple stand one after another, in the order of their windows. A tuple without an event time comes once,
//! without edges. Of a tuple that is taken back all copies are.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::window::WindowSpan;
use crate::operators::{Context, Operator, Output};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take_record_batch;
use std::sync::Arc;

/// Tuples of the output that are sent together; one tuple may have more copies.
const BATCH_ROWS: usize = 8192;

pub(crate) struct AssignWindows {
    pub(crate) name: String,
    pub(crate) time_column: usize,
    pub(crate) span: WindowSpan,
    /// Columns of the input, `window_start` and `window_end`.
    pub(crate) schema: SchemaRef,
}

/// Rows of a batch with their windows.
#[derive(Default)]
struct Copies {
    rows: Vec<u32>,
    starts: Vec<Option<i64>>,
    ends: Vec<Option<i64>>,
}

impl AssignWindows {
    fn batch_of(&self, batch: &Batch, copies: Copies) -> Result<Batch, ArrowError> {
        let is_whole = copies.rows.len() == batch.len() && copies.rows.is_sorted_by(|one, next| one < next);
        let retracted = batch.retracted().map(|retracted| -> BooleanArray {
            copies.rows.iter().map(|row| Some(retracted.value(*row as usize))).collect()
        });
        let rows = if is_whole {
            batch.rows().clone()
        } else {
            take_record_batch(batch.rows(), &UInt32Array::from(copies.rows))?
        };
        let edges = [copies.starts, copies.ends].map(|times| times.into_iter().collect());
        self.with_edges(&rows, retracted, edges)
    }

    /// Batch whose tuples are each in one window: as it is, with the edges.
    fn batch_of_single(&self, batch: &Batch, times: &[i64]) -> Result<Batch, ArrowError> {
        let (mut starts, mut ends) = (Vec::with_capacity(times.len()), Vec::with_capacity(times.len()));
        // Times that follow one another are mostly in one window.
        let mut window = 0..0;
        for time in times {
            if !window.contains(time) {
                let anchor = self.span.first_anchor(EventTime::from_micros(*time));
                window = self.span.start_of(anchor).micros()..self.span.end_of(anchor).micros();
            }
            starts.push(window.start);
            ends.push(window.end);
        }
        self.with_edges(batch.rows(), batch.retracted().cloned(), [starts.into(), ends.into()])
    }

    fn with_edges(
        &self,
        rows: &RecordBatch,
        retracted: Option<BooleanArray>,
        edges: [PrimitiveArray<TimestampMicrosecondType>; 2],
    ) -> Result<Batch, ArrowError> {
        let edge_type = self.schema.field(rows.num_columns()).data_type();
        let edges = edges.map(|edges| -> ArrayRef { Arc::new(edges.with_data_type(edge_type.clone())) });
        let mut columns = rows.columns().to_vec();
        columns.extend(edges);
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok(match retracted {
            Some(retracted) => Batch::of_changes(rows, retracted),
            None => rows.into(),
        })
    }
}

impl Operator for AssignWindows {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let failed =
            |error: ArrowError| Error::Tuple { operator: self.name.clone(), reason: error.to_string() };
        if self.span.is_once()
            && let Some(times) = batch.times(self.time_column)
        {
            output.push(self.batch_of_single(batch, times).map_err(failed)?);
            return Ok(());
        }
        let mut copies = Copies::default();
        let times = batch.nullable_times(self.time_column).ok_or_else(|| Error::Tuple {
            operator: self.name.clone(),
            reason: "event times of another type than TIMESTAMP".to_owned(),
        })?;
        for (row, time) in times.into_iter().enumerate() {
            let Some(time) = time.map(EventTime::from_micros) else {
                copies.rows.push(row as u32);
                copies.starts.push(None);
                copies.ends.push(None);
                continue;
            };
            for anchor in self.span.anchors(time) {
                copies.rows.push(row as u32);
                copies.starts.push(Some(self.span.start_of(anchor).micros()));
                copies.ends.push(Some(self.span.end_of(anchor).micros()));
            }
            if copies.rows.len() >= BATCH_ROWS {
                let full = std::mem::take(&mut copies);
                output.push(self.batch_of(batch, full).map_err(failed)?);
            }
        }
        if !copies.rows.is_empty() {
            output.push(self.batch_of(batch, copies).map_err(failed)?);
        }
        Ok(())
    }
}
