//! Columns of a source that are computed from those of its records.
//!
//! ```text
//!   read      ms, celsius          1700000000000, 21.5
//!   columns   ms, at, celsius      1700000000000, 2023-11-14 22:13:20, 21.5      at AS to_timestamp(ms / 1000)
//! ```
//! - A record of which a value cannot be computed, or is NULL in a NOT NULL column, is rejected, as one that cannot be read: it is
//!   known by its values, and of a file by the line on which it ends.
//! - Cost: the expressions over each batch. A batch with such records is halved until they are alone.

use crate::UTC;
use crate::execution::rejects_table::TEXT_BYTES_MAX;
use crate::execution::skipped::record;
use crate::expression::Expression;
use crate::sources::mapped::BatchMap;
use crate::sources::{Next, Position, Positions, Reject, SourceBatch, Split};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use entresol_tables::{Column, arrow_schema};
use std::sync::Arc;

/// Column of a source with computed columns.
pub enum SourceColumn {
    /// Column of its records, by its index.
    Read(usize),
    /// Column whose values are those of an expression over the record.
    Computed {
        /// Name and type.
        column: Column,
        /// Expression over the columns of the records, with arrays of the column's type.
        value: Box<dyn Expression>,
    },
}

/// Columns that are read, and computed.
pub(crate) struct ComputedColumns {
    columns: Vec<SourceColumn>,
    declared: Vec<Column>,
    schema: SchemaRef,
    /// True if the records are lines of files.
    has_lines: bool,
    /// End of the batch before.
    end: Option<(Option<Split>, Position)>,
}

impl ComputedColumns {
    pub(crate) fn new(columns: Vec<SourceColumn>, read: Vec<Column>, has_lines: bool) -> ComputedColumns {
        let declared: Vec<Column> = columns.iter().map(|column| column.declared(&read)).collect();
        let schema = arrow_schema(&declared, UTC);
        ComputedColumns { columns, declared, schema, has_lines, end: None }
    }

    /// Columns of some records; else the reason.
    fn compute(&mut self, records: &RecordBatch) -> Result<RecordBatch, String> {
        if records.num_rows() == 0 {
            // An expression may fail without a row.
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        let arrays = self.columns.iter_mut().zip(self.schema.fields()).map(|(column, field)| {
            let array = column.array(records)?;
            if array.len() != records.num_rows() {
                let (values, rows) = (array.len(), records.num_rows());
                return Err(format!("column {}: {values} values for {rows} records", field.name()));
            }
            if !field.is_nullable() && array.null_count() > 0 {
                return Err(format!("column {}: NULL in a NOT NULL column", field.name()));
            }
            Ok(array)
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>, String>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|error| error.to_string())
    }

    /// Records of which a column cannot be computed, with the reasons, in their order.
    fn failures(&mut self, records: &RecordBatch) -> Vec<(usize, String)> {
        let mut failures = Vec::new();
        let mut parts = vec![(0, records.num_rows())];
        while let Some((first, rows)) = parts.pop() {
            let Err(reason) = self.compute(&records.slice(first, rows)) else { continue };
            if rows == 1 {
                failures.push((first, reason));
                continue;
            }
            let half = rows / 2;
            parts.push((first + half, rows - half));
            parts.push((first, half));
        }
        failures
    }

    /// Batch without the records of which a column cannot be computed.
    fn without_failures(&mut self, batch: SourceBatch) -> Result<SourceBatch, String> {
        let SourceBatch { tuples, positions, rejects, end, split } = batch;
        let mut before = rejects.into_iter().peekable();
        let mut failures = self.failures(&tuples).into_iter().peekable();
        let (mut kept, mut rejects): (Vec<u32>, Vec<Reject>) = (Vec::new(), Vec::new());
        // End of what is before the record; none behind a rejected one.
        let mut start = self.end.take().filter(|(of, _)| *of == split).map(|(_, end)| end);
        for (at, number) in (0..tuples.num_rows()).zip(0..) {
            while let Some(reject) = before.next_if(|reject| reject.tuples_before <= at) {
                rejects.push(Reject { tuples_before: kept.len(), ..reject });
                start = None;
            }
            let after = positions.after(at);
            match failures.next_if(|(failed, _)| *failed == at) {
                None => kept.push(number),
                Some((_, reason)) => {
                    let offset = start.filter(|_| self.has_lines).map(|start| start.offset);
                    let raw = record(&tuples.slice(at, 1).into(), TEXT_BYTES_MAX)
                        .map_err(|error| error.to_string())?;
                    let (tuples_before, line) = (kept.len(), after.line.saturating_sub(1));
                    rejects.push(Reject { tuples_before, line, offset, reason, raw });
                }
            }
            start = Some(after);
        }
        rejects.extend(before.map(|reject| Reject { tuples_before: kept.len(), ..reject }));
        let listed = kept.iter().map(|&at| positions.after(at as usize)).collect();
        let tuples =
            take_record_batch(&tuples, &UInt32Array::from(kept)).map_err(|error| error.to_string())?;
        let tuples = self.compute(&tuples)?;
        Ok(SourceBatch { tuples, positions: Positions::Listed(listed), rejects, end, split })
    }
}

impl BatchMap for ComputedColumns {
    fn columns(&self, _read: Vec<Column>) -> Vec<Column> {
        self.declared.clone()
    }

    fn map(&mut self, batch: SourceBatch) -> Next {
        let end = (batch.split.clone(), batch.end);
        let made = match self.compute(&batch.tuples) {
            Ok(tuples) => Ok(SourceBatch { tuples, ..batch }),
            Err(_) => self.without_failures(batch),
        };
        self.end = Some(end);
        made.map_or_else(Next::Invalid, Next::Batch)
    }
}

impl SourceColumn {
    fn declared(&self, read: &[Column]) -> Column {
        match self {
            SourceColumn::Read(index) => read[*index].clone(),
            SourceColumn::Computed { column, .. } => column.clone(),
        }
    }

    fn array(&mut self, records: &RecordBatch) -> Result<ArrayRef, String> {
        match self {
            SourceColumn::Read(index) => Ok(Arc::clone(records.column(*index))),
            SourceColumn::Computed { column, value } => {
                value.evaluate(records).map_err(|reason| format!("column {}: {reason}", column.name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use entresol_tables::DataType;

    /// Column `tenth` of 10 / n, NOT NULL, before n itself.
    fn tenths() -> ComputedColumns {
        let value = |rows: &RecordBatch| -> Result<ArrayRef, String> {
            let divided = |n: Option<i64>| match n {
                Some(0) => Err("division by zero".to_owned()),
                n => Ok(n.map(|n| 10 / n)),
            };
            let values = rows.column(0).as_primitive::<Int64Type>().iter().map(divided);
            Ok(Arc::new(values.collect::<Result<Int64Array, String>>()?))
        };
        let column = Column::new("tenth", DataType::BigInt).not_null();
        let computed = SourceColumn::Computed { column, value: Box::new(value) };
        let read = vec![Column::new("n", DataType::BigInt)];
        ComputedColumns::new(vec![computed, SourceColumn::Read(0)], read, true)
    }

    /// Batch of a file with a line of 10 bytes for each value, and rejected lines before some of them.
    fn lines(values: &[Option<i64>], rejected: &[usize], first: u64) -> SourceBatch {
        let schema = arrow_schema(&[Column::new("n", DataType::BigInt)], UTC);
        let array: ArrayRef = Arc::new(values.iter().copied().collect::<Int64Array>());
        let (mut line, mut positions, mut rejects) = (first, Vec::new(), Vec::new());
        for at in 0..values.len() {
            if rejected.contains(&at) {
                let (offset, raw) = (Some((line - 1) * 10), "?".to_owned());
                rejects.push(Reject { tuples_before: at, line, offset, reason: "bad".to_owned(), raw });
                line += 1;
            }
            line += 1;
            positions.push(Position { offset: (line - 1) * 10, line });
        }
        let end = Position { offset: (line - 1) * 10, line };
        let tuples = RecordBatch::try_new(schema, vec![array]).unwrap();
        SourceBatch { tuples, positions: Positions::Listed(positions), rejects, end, split: None }
    }

    fn mapped(columns: &mut ComputedColumns, batch: SourceBatch) -> SourceBatch {
        match columns.map(batch) {
            Next::Batch(batch) => batch,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn records_that_cannot_be_computed_are_rejected_where_they_are() {
        let mut columns = tenths();
        let batch = mapped(&mut columns, lines(&[Some(1), Some(2), Some(5)], &[1], 1));
        let values: Vec<i64> = batch.tuples.column(0).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!((values, batch.rejects.len()), (vec![10, 5, 2], 1));
        assert_eq!(batch.end.line, 5);

        let batch = mapped(&mut columns, lines(&[Some(0), Some(4), None, Some(0), Some(3)], &[1, 3], 5));
        let values: Vec<i64> = batch.tuples.column(1).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(values, [4, 3]);
        let rejected: Vec<_> = batch
            .rejects
            .iter()
            .map(|reject| (reject.tuples_before, reject.line, reject.offset, &*reject.reason, &*reject.raw))
            .collect();
        let null = "column tenth: NULL in a NOT NULL column";
        assert_eq!(
            rejected,
            [
                (0, 5, Some(40), "column tenth: division by zero", "n = 0"),
                (0, 6, Some(50), "bad", "?"),
                (1, 8, Some(70), null, "n = NULL"),
                (1, 9, Some(80), "bad", "?"),
                (1, 10, None, "column tenth: division by zero", "n = 0"),
            ]
        );
        let Positions::Listed(positions) = &batch.positions else { panic!("counted") };
        assert_eq!(positions.iter().map(|position| position.line).collect::<Vec<_>>(), [8, 12]);
        assert_eq!(batch.end.line, 12);
    }

    #[test]
    fn an_expression_that_fails_without_rows_is_not_asked() {
        let value = |_: &RecordBatch| -> Result<ArrayRef, String> { Err("always".to_owned()) };
        let column = Column::new("never", DataType::BigInt);
        let columns = vec![SourceColumn::Computed { column, value: Box::new(value) }];
        let mut columns = ComputedColumns::new(columns, vec![Column::new("n", DataType::BigInt)], false);
        let batch = mapped(&mut columns, lines(&[], &[], 1));
        assert_eq!((batch.tuples.num_rows(), batch.rejects.len()), (0, 0));
        let batch = mapped(&mut columns, lines(&[Some(1), Some(2)], &[], 1));
        let rejects: Vec<_> = batch.rejects.iter().map(|reject| (reject.line, reject.offset)).collect();
        assert_eq!((batch.tuples.num_rows(), rejects), (0, vec![(1, None), (2, None)]));
    }

    #[test]
    fn a_batch_without_a_record_that_can_be_computed_is_empty() {
        let batch = mapped(&mut tenths(), lines(&[Some(0), None], &[], 1));
        assert_eq!((batch.tuples.num_rows(), batch.tuples.num_columns(), batch.rejects.len()), (0, 2, 2));
        // Where the first record begins is not known: the source may have been opened anywhere.
        assert_eq!(batch.rejects.iter().map(|reject| reject.offset).collect::<Vec<_>>(), [None, Some(10)]);
    }
}
