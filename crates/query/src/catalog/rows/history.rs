//! `entresol.history`: tables with a version history, their retention, and from when on they can be read.

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray, TimestampNanosecondArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use entresol_tables::Catalog;
use std::sync::Arc;

/// The content of `entresol.history`: the tables that keep one, for how long, and from when on they can be
/// read.
pub(crate) fn bounds(catalog: &Catalog) -> DFResult<RecordBatch> {
    let tables = catalog.tables();
    let known: Vec<_> =
        tables.iter().filter_map(|table| Some((table.name(), table.history_bounds()?))).collect();
    let kept =
        |time: Option<std::time::Duration>| time.map_or("forever".to_owned(), |time| format!("{time:?}"));
    let horizons: TimestampNanosecondArray =
        known.iter().map(|(_, past)| Some(past.horizon.bigint())).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("table", Arc::new(StringArray::from_iter_values(known.iter().map(|(name, _)| name)))),
        ("kept", Arc::new(StringArray::from_iter_values(known.iter().map(|(_, past)| kept(past.kept))))),
        ("readable_from", Arc::new(horizons.with_timezone("+00:00"))),
        (
            "readable_from_transaction",
            Arc::new(Int64Array::from_iter_values(known.iter().map(|(_, past)| past.horizon.bigint()))),
        ),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}
