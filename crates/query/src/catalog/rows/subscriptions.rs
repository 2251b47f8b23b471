//! `entresol.subscriptions`: the subscriptions that run, and how far they are.

use crate::session::snapshots::Sessions;
use crate::session::subscriptions::SubscriptionLine;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use entresol_transactions::Timestamp;
use std::sync::Arc;

/// The content of `entresol.subscriptions`.
pub(crate) fn progress(sessions: &Sessions) -> DFResult<RecordBatch> {
    let lines = sessions.subscriptions();
    let text = |of: &dyn Fn(&SubscriptionLine) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(lines.iter().map(of)))
    };
    let sessions = lines.iter().map(|line| line.client.process_id);
    let positions = lines.iter().map(|line| line.position.map(Timestamp::bigint));
    let rows = lines.iter().map(|line| line.rows.cast_signed());
    let seconds = lines.iter().map(|line| line.elapsed.as_secs_f64());
    let columns: [(&str, ArrayRef); 7] = [
        ("session", Arc::new(Int32Array::from_iter_values(sessions))),
        ("user", text(&|line| line.client.user.clone())),
        ("relations", text(&|line| line.relations.clone())),
        ("phase", text(&|line| line.phase.to_owned())),
        ("position", Arc::new(positions.collect::<Int64Array>())),
        ("rows", Arc::new(Int64Array::from_iter_values(rows))),
        ("seconds", Arc::new(Float64Array::from_iter_values(seconds))),
    ];
    let nullable = |(name, column): (&'static str, ArrayRef)| (name, column, name == "position");
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}
