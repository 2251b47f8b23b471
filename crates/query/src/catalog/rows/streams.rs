//! System tables of streams.

use crate::schema_names::SOURCES_TABLE;
use crate::session::topologies::{Topologies, TopologyStatus};
use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as EngineResult;
use entresol_streams::{ProgressSnapshot, SINKS_TABLE};
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

/// The sinks, with what they wrote.
pub(super) fn sinks(topologies: &Topologies, catalog: &Catalog) -> EngineResult<RecordBatch> {
    let all: Vec<TopologyStatus> =
        topologies.statuses().into_iter().filter(|status| status.sink.is_some()).collect();
    let stored = stored_rows(catalog, SINKS_TABLE)?;
    let text = |of: &dyn Fn(&TopologyStatus) -> Option<String>| -> ArrayRef {
        Arc::new(all.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&ProgressSnapshot) -> u64| -> ArrayRef {
        let numbers =
            all.iter().map(|status| status.progress.as_ref().map(|progress| of(progress).cast_signed()));
        Arc::new(numbers.collect::<Int64Array>())
    };
    let written = |at: usize| -> ArrayRef {
        let number = |status: &TopologyStatus| {
            let row = stored.iter().find(|row| row.first() == Some(&Value::from(status.name.as_str())))?;
            match row.get(at) {
                Some(Value::BigInt(number)) => Some(*number),
                _ => None,
            }
        };
        Arc::new(all.iter().map(number).collect::<Int64Array>())
    };
    let columns: [(&str, ArrayRef); 8] = [
        ("name", text(&|status| Some(status.name.clone()))),
        ("state", text(&|status| Some(status.state.to_owned()))),
        ("target", text(&|status| status.sink.clone())),
        ("tuples", number(&|progress| progress.tuples)),
        ("commits", number(&|progress| progress.transactions)),
        ("bytes_written", written(2)),
        ("rows_written", written(3)),
        ("error", text(&|status| status.error.clone())),
    ];
    let nullable = |(name, column): (&'static str, ArrayRef)| {
        (name, column, !matches!(name, "name" | "state" | "target"))
    };
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

/// All rows of a table; none if it does not exist.
fn stored_rows(catalog: &Catalog, table: &str) -> EngineResult<Vec<Vec<Value>>> {
    let Ok(table) = catalog.table(table) else { return Ok(Vec::new()) };
    let transaction = catalog.begin().map_err(crate::error::external)?;
    table.scan(ScanRange::full()).rows(&transaction).map_err(crate::error::external)
}

/// The sources, as they were created.
pub(super) fn sources(catalog: &Catalog) -> EngineResult<RecordBatch> {
    let rows = stored_rows(catalog, SOURCES_TABLE)?;
    let column = |at: usize| -> ArrayRef {
        let text = |row: &Vec<Value>| match row.get(at) {
            Some(Value::Varchar(text)) => text.to_string(),
            _ => String::new(),
        };
        Arc::new(StringArray::from_iter_values(rows.iter().map(text)))
    };
    Ok(RecordBatch::try_from_iter([("name", column(0)), ("definition", column(1))])?)
}
