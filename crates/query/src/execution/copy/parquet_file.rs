//! Row groups of a Parquet file as batches of bounded size.
//!
//! A file says how many bytes its values are when encoded; strings of a dictionary may be many times as many. So the rows of a
//! batch follow from the first rows of the row group too, are fewer where there are strings ([`STRING_ROWS_MAX`]), and become
//! fewer where batches turn out too large.

use super::files;
use super::pending::{BatchPlace, GROUP_BYTES};
use super::reading::damaged;
use crate::error::Result;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type;
use parquet::file::metadata::RowGroupMetaData;
use std::fs::File;
use std::path::Path;

/// Maximum rows of a batch with strings.
const STRING_ROWS_MAX: usize = 16 << 10;
/// First rows of a row group that are measured.
const MEASURED_ROWS: usize = 256;
/// Bytes of a batch from which on the next ones have fewer rows.
const BATCH_BYTES_MAX: usize = 2 * GROUP_BYTES;

/// Parquet file that is read.
pub(super) struct ParquetFile<'p> {
    path: &'p Path,
    file: File,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// Position of each wanted column among those that are read.
    order: Vec<usize>,
}

/// Receiver of batches, with their places and the compressed bytes that they are of; false once no more are wanted.
pub(super) type BatchSink<'s> = &'s mut dyn FnMut(RecordBatch, BatchPlace, u64) -> Result<bool>;

impl<'p> ParquetFile<'p> {
    /// Reads what the file says of itself.
    pub(super) fn open(path: &'p Path, file: File) -> Result<ParquetFile<'p>> {
        // What Arrow's writers add about their own types is left out: the types are those of Parquet.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&file, options);
        let metadata = metadata.map_err(|error| damaged(path, "Parquet", &error))?;
        Ok(ParquetFile { path, file, metadata, mask: ProjectionMask::all(), order: Vec::new() })
    }

    /// Columns of the file.
    pub(super) fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Reads these columns alone, in this order.
    pub(super) fn select(&mut self, wanted: &[usize]) {
        self.mask = ProjectionMask::roots(self.metadata.parquet_schema(), wanted.iter().copied());
        self.order = order_within(wanted);
    }

    /// Passes on all rows, in batches of at most so many.
    pub(super) fn read(&self, rows_max: usize, send: BatchSink<'_>) -> Result<()> {
        for group in 0..self.metadata.metadata().num_row_groups() {
            if !self.read_group(group, rows_max, send)? {
                break;
            }
        }
        Ok(())
    }

    fn read_group(&self, group: usize, rows_max: usize, send: BatchSink<'_>) -> Result<bool> {
        let of = self.metadata.metadata().row_group(group);
        let rows = usize::try_from(of.num_rows()).unwrap_or(0);
        let mut batch_rows = self.rows_of_batch(group, rows_max)?;
        let mut read = 0;
        while read < rows {
            let (begin, reader_rows) = (read, batch_rows);
            for batch in self.reader(group, reader_rows, (read, None))? {
                let batch = batch.and_then(|batch| batch.project(&self.order));
                let failed = |error: ArrowError| {
                    format!("row group {}, rows {} to {rows}: {error}", group + 1, read + 1)
                };
                let batch = batch.map_err(|error| damaged(self.path, "Parquet", &failed(error)))?;
                let place = BatchPlace { group: group + 1, row: read + 1 };
                read += batch.num_rows();
                batch_rows = batch_rows.min(rows_within(&batch));
                let share = batch.num_rows() as f64 / rows as f64;
                if !send(batch, place, (of.compressed_size() as f64 * share) as u64)? {
                    return Ok(false);
                }
                if batch_rows < reader_rows {
                    break;
                }
            }
            if read == begin {
                let missing = format!("row group {} has {rows} rows, and {read} were found", group + 1);
                return Err(damaged(self.path, "Parquet", &missing));
            }
        }
        Ok(true)
    }

    /// Rows of a batch of a row group, of which some are looked at if it has strings.
    fn rows_of_batch(&self, group: usize, rows_max: usize) -> Result<usize> {
        let of = self.metadata.metadata().row_group(group);
        let rows = usize::try_from(of.num_rows()).unwrap_or(0).max(1);
        let encoded = usize::try_from(of.total_byte_size()).unwrap_or(usize::MAX) / rows;
        let row_bytes = encoded.max(self.fixed_bytes(of)).max(1);
        let batch_rows = (GROUP_BYTES / row_bytes).clamp(1, rows_max);
        if !self.has_strings(of) {
            return Ok(batch_rows);
        }
        let batch_rows = batch_rows.min(STRING_ROWS_MAX);
        let first = self.reader(group, MEASURED_ROWS.min(batch_rows), (0, Some(MEASURED_ROWS)))?.next();
        // An error comes again when the rows are read.
        Ok(first
            .and_then(|batch| batch.ok())
            .map_or(batch_rows, |batch| batch_rows.min(rows_within_group(&batch))))
    }

    /// Reader of a row group behind an offset.
    fn reader(
        &self,
        group: usize,
        batch_rows: usize,
        (offset, limit): (usize, Option<usize>),
    ) -> Result<ParquetRecordBatchReader> {
        let file = self.file.try_clone().map_err(|error| files::failed("read", self.path, &error))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(self.mask.clone())
            .with_row_groups(vec![group])
            .with_batch_size(batch_rows);
        let builder = if offset > 0 { builder.with_offset(offset) } else { builder };
        let builder = if let Some(limit) = limit { builder.with_limit(limit) } else { builder };
        builder.build().map_err(|error| damaged(self.path, "Parquet", &error))
    }

    fn has_strings(&self, group: &RowGroupMetaData) -> bool {
        let mut columns = group.columns().iter().enumerate();
        columns
            .any(|(leaf, column)| self.mask.leaf_included(leaf) && column.column_type() == Type::BYTE_ARRAY)
    }

    /// Bytes of the values of a row that have a fixed width.
    fn fixed_bytes(&self, group: &RowGroupMetaData) -> usize {
        let columns = group.columns().iter().enumerate().filter(|(leaf, _)| self.mask.leaf_included(*leaf));
        let bytes = columns.map(|(_, column)| match column.column_type() {
            Type::BOOLEAN | Type::BYTE_ARRAY => 1,
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY => 16,
        });
        bytes.sum()
    }
}

/// Rows of the next batches behind one; any number if it was not too large.
fn rows_within(batch: &RecordBatch) -> usize {
    if batch.get_array_memory_size() <= BATCH_BYTES_MAX { usize::MAX } else { rows_within_group(batch) }
}

/// Rows like these that are about [`GROUP_BYTES`].
fn rows_within_group(batch: &RecordBatch) -> usize {
    let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
    (GROUP_BYTES / row_bytes.max(1)).max(1)
}

/// Position of each wanted column among those that are read, which come in the order of the file, each once.
fn order_within(wanted: &[usize]) -> Vec<usize> {
    let mut ascending = wanted.to_vec();
    ascending.sort_unstable();
    ascending.dedup();
    wanted.iter().map(|column| ascending.partition_point(|other| other < column)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::arrow::array::{ArrayRef, StringArray};
    use parquet::arrow::ArrowWriter;
    use std::sync::Arc;

    /// Strings of a dictionary, of which the file has one copy, and each row another.
    #[test]
    fn large_strings_come_in_batches_of_bounded_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("strings.parquet");
        let (short, long) = ("s".to_owned(), "l".repeat(64 << 10));
        // The rows that are measured are short.
        let value = |row: usize| if row < 1000 { &short } else { &long };
        let strings: StringArray = (0..4000).map(|row| Some(value(row))).collect();
        let rows = RecordBatch::try_from_iter([("s", Arc::new(strings) as ArrayRef)]).unwrap();
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        assert!(path.metadata().unwrap().len() < 1 << 20, "the strings are in a dictionary");
        let mut parquet = ParquetFile::open(&path, File::open(&path).unwrap()).unwrap();
        parquet.select(&[0]);
        let mut found = Vec::new();
        let mut send = |batch: RecordBatch, place: BatchPlace, _: u64| {
            found.push((place.row, batch.num_rows()));
            Ok(true)
        };
        parquet.read(3000, &mut send).unwrap();
        let mut next = 1;
        for (row, rows) in &found {
            assert_eq!(*row, next);
            next += rows;
        }
        assert_eq!(next, 4001, "each row once");
        let (first, others) = found.split_first().unwrap();
        assert_eq!(first.1, 3000, "as large as the rows that were measured let it be");
        assert!(others.iter().all(|(_, rows)| rows * long.len() <= BATCH_BYTES_MAX), "{others:?}");
    }
}
