//! `entresol.loads`: statements that write batches of rows, and the way that these take; `pg_stat_progress_copy`:
//! those that are a COPY.

use crate::catalog::cell::Cell;
use crate::catalog::oids;
use crate::catalog::relation::Rows;
use crate::catalog::view::View;
use crate::schema_names::CATALOG;
use crate::session::loads::LoadLine;
use crate::session::snapshots::Sessions;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use std::sync::Arc;

/// The content of `entresol.loads`.
pub(crate) fn progress(sessions: &Sessions) -> DFResult<RecordBatch> {
    let lines = sessions.loads();
    let text = |of: &dyn Fn(&LoadLine) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(lines.iter().map(of)))
    };
    let sessions = lines.iter().map(|line| line.client.process_id);
    let rows = lines.iter().map(|line| line.rows.cast_signed());
    let seconds = lines.iter().map(|line| line.elapsed.as_secs_f64());
    // NULL where the rows come from no file.
    let of_file = |of: &dyn Fn(&LoadLine) -> u64| -> ArrayRef {
        let values = lines.iter().map(|line| line.file.as_ref().map(|_| of(line).cast_signed()));
        Arc::new(Int64Array::from_iter(values))
    };
    let files = lines.iter().map(|line| line.file.as_deref());
    let columns: [(&str, ArrayRef); 9] = [
        ("session", Arc::new(Int32Array::from_iter_values(sessions))),
        ("user", text(&|line| line.client.user.clone())),
        ("table", text(&|line| line.table.clone())),
        ("rows", Arc::new(Int64Array::from_iter_values(rows))),
        ("seconds", Arc::new(Float64Array::from_iter_values(seconds))),
        ("way", text(&|line| line.way.to_owned())),
        ("file", Arc::new(StringArray::from_iter(files))),
        ("bytes", of_file(&|line| line.bytes.0)),
        ("bytes_total", of_file(&|line| line.bytes.1)),
    ];
    let nullable = |(name, column): (&'static str, ArrayRef)| {
        (name, column, matches!(name, "file" | "bytes" | "bytes_total"))
    };
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

/// The content of `pg_stat_progress_copy`.
pub(crate) fn copies(view: &View) -> DFResult<Rows> {
    let row = |line: LoadLine| {
        let table = view.tables.iter().find(|table| table.name() == line.table);
        vec![
            line.client.process_id.into(),
            oids::DATABASE.into(),
            CATALOG.into(),
            table.map(|table| oids::state(table.state().id())).into(),
            "COPY FROM".into(),
            if line.file.is_some() { "FILE" } else { "PIPE" }.into(),
            line.bytes.0.cast_signed().into(),
            line.bytes.1.cast_signed().into(),
            line.rows.cast_signed().into(),
            Cell::Int(0),
        ]
    };
    Ok(view.sessions.loads().into_iter().filter(|line| line.is_copy).map(row).collect())
}
