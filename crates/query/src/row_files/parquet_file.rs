//! Row groups of a Parquet file as batches of bounded size.
//!
//! A file says how many bytes its values are when encoded; strings of a dictionary may be many times as many. So the
//! rows of a batch follow from the first rows of the row group too, are fewer where there are strings
//! ([`STRING_ROWS_MAX`]), and become fewer where batches turn out too large.

use super::{BatchPlace, damaged, failed};
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
use std::path::{Path, PathBuf};

/// Maximum rows of a batch with strings.
const STRING_ROWS_MAX: usize = 16 << 10;
/// First rows of a row group that are measured.
const MEASURED_ROWS: usize = 256;
/// Factor of the wanted bytes of a batch from which on the next ones have fewer rows.
const LARGE: usize = 2;

/// Parquet file that is read.
pub(crate) struct ParquetFile {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// Position of each wanted column among those that are read.
    order: Vec<usize>,
}

/// Wanted size of batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    pub(crate) rows: usize,
    /// Bytes, as far as they can be known before.
    pub(crate) bytes: usize,
}

/// Batch of rows, and where they come from.
pub(crate) struct ParquetBatch {
    pub(crate) rows: RecordBatch,
    pub(crate) place: BatchPlace,
    /// Bytes that they have in the file, about.
    pub(crate) compressed_bytes: u64,
}

/// Batches of a file, one after another.
pub(crate) struct ParquetBatches {
    file: ParquetFile,
    limits: BatchLimits,
    /// Row group, and its rows that were read.
    group: usize,
    read: usize,
    /// Rows of the next batches of the row group; none before its first one.
    batch_rows: Option<usize>,
    reader: Option<GroupReader>,
}

/// Reader of a row group.
struct GroupReader {
    batches: ParquetRecordBatchReader,
    batch_rows: usize,
    /// Row from which on it reads.
    from: usize,
}

impl ParquetFile {
    /// Reads what the file says of itself.
    pub(crate) fn open(path: &Path, file: File) -> Result<ParquetFile> {
        // What Arrow's writers add about their own types is left out: the types are those of Parquet.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&file, options);
        let metadata = metadata.map_err(|error| damaged(path, "Parquet", &error))?;
        Ok(ParquetFile {
            path: path.to_owned(),
            file,
            metadata,
            mask: ProjectionMask::all(),
            order: Vec::new(),
        })
    }

    /// Columns of the file.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Number of rows of the file.
    pub(crate) fn rows(&self) -> u64 {
        (0..self.groups()).map(|group| self.rows_of(group) as u64).sum()
    }

    /// Reads these columns alone, in this order.
    pub(crate) fn select(&mut self, wanted: &[usize]) {
        self.mask = ProjectionMask::roots(self.metadata.parquet_schema(), wanted.iter().copied());
        self.order = order_within(wanted);
    }

    /// Batches of all rows.
    pub(crate) fn batches(self, limits: BatchLimits) -> ParquetBatches {
        ParquetBatches { file: self, limits, group: 0, read: 0, batch_rows: None, reader: None }
    }

    fn groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    fn rows_of(&self, group: usize) -> usize {
        usize::try_from(self.metadata.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    /// Rows of a batch of a row group, of which some are looked at if it has strings.
    fn rows_of_batch(&self, group: usize, limits: BatchLimits) -> Result<usize> {
        let of = self.metadata.metadata().row_group(group);
        let rows = self.rows_of(group).max(1);
        let encoded = usize::try_from(of.total_byte_size()).unwrap_or(usize::MAX) / rows;
        let row_bytes = encoded.max(self.fixed_bytes(of)).max(1);
        let batch_rows = (limits.bytes / row_bytes).clamp(1, limits.rows);
        if !self.has_strings(of) {
            return Ok(batch_rows);
        }
        let batch_rows = batch_rows.min(STRING_ROWS_MAX);
        let first = self.reader(group, MEASURED_ROWS.min(batch_rows), (0, Some(MEASURED_ROWS)))?.next();
        // An error comes again when the rows are read.
        Ok(first
            .and_then(|batch| batch.ok())
            .map_or(batch_rows, |batch| batch_rows.min(rows_within(&batch, limits.bytes))))
    }

    /// Reader of a row group behind an offset.
    fn reader(
        &self,
        group: usize,
        batch_rows: usize,
        (offset, limit): (usize, Option<usize>),
    ) -> Result<ParquetRecordBatchReader> {
        let file = self.file.try_clone().map_err(|error| failed("read", &self.path, &error))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(self.mask.clone())
            .with_row_groups(vec![group])
            .with_batch_size(batch_rows);
        let builder = if offset > 0 { builder.with_offset(offset) } else { builder };
        let builder = if let Some(limit) = limit { builder.with_limit(limit) } else { builder };
        builder.build().map_err(|error| damaged(&self.path, "Parquet", &error))
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

impl ParquetBatches {
    /// Goes on behind so many rows of the file, which has as many.
    pub(crate) fn skip(&mut self, rows: u64) {
        let mut left = usize::try_from(rows).unwrap_or(usize::MAX);
        (self.group, self.read, self.batch_rows, self.reader) = (0, 0, None, None);
        while self.group < self.file.groups() && left >= self.file.rows_of(self.group) {
            left -= self.file.rows_of(self.group);
            self.group += 1;
        }
        self.read = left;
    }

    /// Next rows, of which there is at least one; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ParquetBatch>> {
        while self.group < self.file.groups() {
            if self.read == self.file.rows_of(self.group) {
                (self.group, self.read, self.batch_rows, self.reader) = (self.group + 1, 0, None, None);
            } else if let Some(batch) = self.next_of_group()? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Next rows of the row group, which has some; none at the end of a reader.
    fn next_of_group(&mut self) -> Result<Option<ParquetBatch>> {
        let (group, rows) = (self.group, self.file.rows_of(self.group));
        let batch_rows = match self.batch_rows {
            Some(batch_rows) => batch_rows,
            None => *self.batch_rows.insert(self.file.rows_of_batch(group, self.limits)?),
        };
        let reader = match self.reader.take() {
            Some(reader) if reader.batch_rows <= batch_rows => reader,
            _ => {
                let batches = self.file.reader(group, batch_rows, (self.read, None))?;
                GroupReader { batches, batch_rows, from: self.read }
            }
        };
        let reader = self.reader.insert(reader);
        let Some(batch) = reader.batches.next() else {
            if reader.from < self.read {
                self.reader = None;
                return Ok(None);
            }
            let missing = format!("row group {} has {rows} rows, and {} were found", group + 1, self.read);
            return Err(damaged(&self.file.path, "Parquet", &missing));
        };
        let batch = batch.and_then(|batch| batch.project(&self.file.order));
        let failed =
            |error: ArrowError| format!("row group {}, rows {} to {rows}: {error}", group + 1, self.read + 1);
        let batch = batch.map_err(|error| damaged(&self.file.path, "Parquet", &failed(error)))?;
        let place = BatchPlace { group: group + 1, row: self.read + 1 };
        self.read = rows.min(self.read + batch.num_rows());
        if batch.get_array_memory_size() > LARGE * self.limits.bytes {
            self.batch_rows = Some(batch_rows.min(rows_within(&batch, self.limits.bytes)));
        }
        let share = batch.num_rows() as f64 / rows as f64;
        let compressed_bytes =
            (self.file.metadata.metadata().row_group(group).compressed_size() as f64 * share) as u64;
        Ok(Some(ParquetBatch { rows: batch, place, compressed_bytes }))
    }
}

/// Rows like these that have about so many bytes.
fn rows_within(batch: &RecordBatch, bytes: usize) -> usize {
    let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
    (bytes / row_bytes.max(1)).max(1)
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
    use super::super::GROUP_BYTES;
    use super::*;
    use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array, StringArray};
    use datafusion::arrow::datatypes::Int32Type;
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
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
        let mut batches = parquet.batches(BatchLimits { rows: 3000, bytes: GROUP_BYTES });
        while let Some(batch) = batches.next().unwrap() {
            found.push((batch.place.row, batch.rows.num_rows()));
        }
        let mut next = 1;
        for (row, rows) in &found {
            assert_eq!(*row, next);
            next += rows;
        }
        assert_eq!(next, 4001, "each row once");
        let (first, others) = found.split_first().unwrap();
        assert_eq!(first.1, 3000, "as large as the rows that were measured let it be");
        assert!(others.iter().all(|(_, rows)| rows * long.len() <= LARGE * GROUP_BYTES), "{others:?}");
    }

    #[test]
    fn reading_goes_on_behind_any_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers.parquet");
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..25));
        let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
        let mut writer =
            ArrowWriter::try_new(File::create(&path).unwrap(), rows.schema(), Some(properties)).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        for from in 0..=25 {
            let mut parquet = ParquetFile::open(&path, File::open(&path).unwrap()).unwrap();
            assert_eq!(parquet.rows(), 25);
            parquet.select(&[0]);
            let mut batches = parquet.batches(BatchLimits { rows: 4, bytes: GROUP_BYTES });
            batches.skip(from);
            let mut found = Vec::new();
            while let Some(batch) = batches.next().unwrap() {
                let first = found.len() + usize::try_from(from).unwrap();
                assert_eq!(batch.place, BatchPlace { group: first / 10 + 1, row: first % 10 + 1 });
                let numbers = batch.rows.column(0).as_primitive::<Int32Type>();
                found.extend(numbers.values().iter().copied());
                assert!(numbers.len() <= 4);
            }
            assert_eq!(found, (i32::try_from(from).unwrap()..25).collect::<Vec<_>>());
        }
    }
}
