//! System tables of streams.

use crate::schema_names::SOURCES_TABLE;
use crate::session::topologies::{Topologies, TopologyStatus};
use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as EngineResult;
use entresol_streams::ProgressSnapshot;
use entresol_tables::{Catalog, ScanRange, Value};
use std::sync::Arc;

/// The topologies, with their counters.
pub(super) fn topologies(topologies: &Topologies, catalog: &Catalog) -> EngineResult<RecordBatch> {
    let all = topologies.statuses();
    let text = |of: &dyn Fn(&TopologyStatus) -> Option<String>| -> ArrayRef {
        Arc::new(all.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&ProgressSnapshot) -> Option<u64>| -> ArrayRef {
        let numbers = all.iter().map(|status| status.progress.as_ref().and_then(of).map(u64::cast_signed));
        Arc::new(numbers.collect::<Int64Array>())
    };
    let now_ns = catalog.context().pool().env().now_ns();
    let columns: [(&str, ArrayRef); 11] = [
        ("name", text(&|status| Some(status.name.clone()))),
        ("state", text(&|status| Some(status.state.to_owned()))),
        ("tuples", number(&|progress| Some(progress.tuples))),
        ("commits", number(&|progress| Some(progress.transactions))),
        ("aborts", number(&|progress| Some(progress.aborts))),
        ("retries", number(&|progress| Some(progress.retries))),
        ("late", number(&|progress| Some(progress.late))),
        ("rejected", number(&|progress| Some(progress.rejected))),
        ("watermark_lag_ms", number(&|progress| progress.watermark_lag_ms(now_ns))),
        ("last_commit", number(&|progress| Some(progress.last_cts).filter(|cts| *cts > 0))),
        ("error", text(&|status| status.error.clone())),
    ];
    let nullable =
        |(name, column): (&'static str, ArrayRef)| (name, column, !matches!(name, "name" | "state"));
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

/// The sources, as they were created.
pub(super) fn sources(catalog: &Catalog) -> EngineResult<RecordBatch> {
    let rows = match catalog.table(SOURCES_TABLE) {
        Err(_) => Vec::new(),
        Ok(table) => {
            let transaction = catalog.begin().map_err(crate::error::external)?;
            table.scan(ScanRange::full()).rows(&transaction).map_err(crate::error::external)?
        }
    };
    let column = |at: usize| -> ArrayRef {
        let text = |row: &Vec<Value>| match row.get(at) {
            Some(Value::Varchar(text)) => text.to_string(),
            _ => String::new(),
        };
        Arc::new(StringArray::from_iter_values(rows.iter().map(text)))
    };
    Ok(RecordBatch::try_from_iter([("name", column(0)), ("definition", column(1))])?)
}
