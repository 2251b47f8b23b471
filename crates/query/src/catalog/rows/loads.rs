//! `entresol.loads`: statements that write batches of rows, and the way that these take.

use crate::session::loads::LoadLine;
use crate::session::snapshots::Sessions;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as EngineResult;
use std::sync::Arc;

/// The content of `entresol.loads`.
pub(crate) fn progress(sessions: &Sessions) -> EngineResult<RecordBatch> {
    let lines = sessions.loads();
    let text = |of: &dyn Fn(&LoadLine) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(lines.iter().map(of)))
    };
    let sessions = lines.iter().map(|line| line.client.process_id);
    let rows = lines.iter().map(|line| line.rows.cast_signed());
    let seconds = lines.iter().map(|line| line.elapsed.as_secs_f64());
    let columns: [(&str, ArrayRef); 6] = [
        ("session", Arc::new(Int32Array::from_iter_values(sessions))),
        ("user", text(&|line| line.client.user.clone())),
        ("table", text(&|line| line.table.clone())),
        ("rows", Arc::new(Int64Array::from_iter_values(rows))),
        ("seconds", Arc::new(Float64Array::from_iter_values(seconds))),
        ("way", text(&|line| line.way.to_owned())),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}
