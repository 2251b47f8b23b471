//! Statistics of ANALYZE for the plans of tables by rows: of the columns of a scan, and of the conditions above it.
//!
//! All of them are inexact: they are of a sample, and may be old. DataFusion estimates sizes of joins and filters
//! from them, and no result.

use crate::planner::scans::access::columns::column_filters;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue};
use datafusion::logical_expr::Expr;
use entresol_tables::statistics::AnalyzedColumn;
use entresol_tables::{ColumnBuilder, Table, Value};

/// Fills in the statistics of the columns of a scan that returns so many rows.
pub(crate) fn fill_columns(
    statistics: &mut [ColumnStatistics],
    table: &Table,
    (projection, schema): (&[usize], &ArrowSchema),
    rows: usize,
) {
    let Some(analyzed) = table.analyzed() else { return };
    for ((of, &column), field) in statistics.iter_mut().zip(projection).zip(schema.fields()) {
        let Some(known) = analyzed.column(table.schema(), column) else { continue };
        let value = |value: &AnalyzedColumn, of: fn(&AnalyzedColumn) -> Option<&Value>| {
            let mut builder =
                ColumnBuilder::new(table.schema().columns()[column].data_type, field.data_type(), 1);
            builder.push(of(value)?);
            let array: ArrayRef = builder.finish();
            ScalarValue::try_from_array(&array, 0).ok().map(Precision::Inexact)
        };
        of.null_count = Precision::Inexact((known.nulls * rows as f64) as usize);
        of.distinct_count = Precision::Inexact((known.distinct as usize).clamp(1, rows.max(1)));
        of.min_value = value(known, |known| known.least.as_ref()).unwrap_or_default();
        of.max_value = value(known, |known| known.greatest.as_ref()).unwrap_or_default();
    }
}

/// Estimated percentage of the rows that meet filters, at least 1; none where nothing is known of one of them.
pub(crate) fn selectivity<'e>(table: &Table, filters: impl Iterator<Item = &'e Expr>) -> Option<u8> {
    let analyzed = table.analyzed()?;
    let filters: Vec<&Expr> = filters.collect();
    let conditions = column_filters(table.schema(), filters.iter().copied()).filters;
    // What is no condition on one column is taken for true, if there is anything else.
    let share = analyzed.share(table.schema(), &conditions).filter(|_| !conditions.is_empty())?;
    Some((share * 100.0).round().clamp(1.0, 100.0) as u8)
}
