//! `entresol.indexes`: structure and options of each index but those of primary keys, which are the tables' own.

use crate::catalog::oids;
use crate::catalog::view::{IndexView, indexes_of};
use datafusion::arrow::array::{ArrayRef, BooleanArray, Int32Array, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use entresol_tables::Catalog;
use std::sync::Arc;

/// The content of `entresol.indexes`.
pub(crate) fn indexes(catalog: &Catalog) -> DFResult<RecordBatch> {
    let tables = catalog.tables();
    let is_own = |index: &IndexView<'_>| index.oid == oids::key_index(index.table.state().id());
    let indexes: Vec<IndexView<'_>> =
        tables.iter().flat_map(|table| indexes_of(table)).filter(|index| !is_own(index)).collect();
    let text = |of: &dyn Fn(&IndexView<'_>) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(indexes.iter().map(of)))
    };
    let columns = |index: &IndexView<'_>| {
        let names = (0..index.columns.len()).filter_map(|at| index.column(at));
        names.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    // An Elf is of the row groups, and has no state of its own.
    let structure = |index: &IndexView<'_>| index.elf.is_none().then(|| index.structure.name());
    let unique: BooleanArray = indexes.iter().map(|index| Some(index.unique)).collect();
    let node_bytes = indexes.iter().map(|index| index.node_bytes.map(i32::from));
    let hot_bytes = indexes.iter().map(|index| index.hot_bytes.cast_signed());
    let choice = |index: &IndexView<'_>| if index.structure_reason.is_some() { "auto" } else { "set" };
    let reason = |index: &IndexView<'_>| index.structure_reason.unwrap_or_default().to_owned();
    let columns: [(&str, ArrayRef); 10] = [
        ("name", text(&|index| index.name.clone())),
        ("table", text(&|index| index.table.name().to_owned())),
        ("columns", text(&columns)),
        ("unique", Arc::new(unique)),
        ("method", text(&|index| index.method().to_owned())),
        ("structure", Arc::new(StringArray::from_iter(indexes.iter().map(structure)))),
        ("structure_choice", text(&|index| choice(index).to_owned())),
        ("structure_reason", text(&reason)),
        ("node_bytes", Arc::new(Int32Array::from_iter(node_bytes))),
        ("hot_bytes", Arc::new(Int64Array::from_iter_values(hot_bytes))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}
