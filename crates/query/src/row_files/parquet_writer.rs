//! Parquet file that is written, with row groups of [`GROUP_ROWS`] rows at most, which end early at [`GROUP_BYTES`].
//!
//! Memory: a row group, encoded.

use super::{GROUP_BYTES, GROUP_ROWS, failed, unwritable};
use crate::error::Error;
use crate::parser::own::copy_options::Compression;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::Path;

/// Writer of a Parquet file.
pub(crate) struct ParquetWriter(ArrowWriter<File>);

impl ParquetWriter {
    /// Begins a file of rows with these columns.
    pub(crate) fn new(file: File, schema: &SchemaRef, compression: Compression) -> Result<ParquetWriter> {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_compression(compression_of(compression))
            .build();
        ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(properties)).map(ParquetWriter)
    }

    /// Adds rows.
    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let ParquetWriter(writer) = self;
        writer.write(rows)?;
        if writer.memory_size() >= GROUP_BYTES { writer.flush() } else { Ok(()) }
    }

    /// Completes the file.
    pub(crate) fn complete(self) -> Result<()> {
        self.0.close().map(drop)
    }
}

fn compression_of(compression: Compression) -> basic::Compression {
    match compression {
        Compression::None => basic::Compression::UNCOMPRESSED,
        Compression::Snappy => basic::Compression::SNAPPY,
        Compression::Lz4 => basic::Compression::LZ4_RAW,
        Compression::Zstd => basic::Compression::ZSTD(basic::ZstdLevel::default()),
    }
}

/// Error of a Parquet file that is written: of a call, or of rows that the format cannot express.
pub(crate) fn call_of(error: ParquetError) -> std::result::Result<std::io::Error, ParquetError> {
    match error {
        ParquetError::External(inner) => inner.downcast().map(|error| *error).map_err(ParquetError::External),
        other => Err(other),
    }
}

/// Error of the Parquet file of a path that is written.
pub(crate) fn of_parquet(path: &Path, error: ParquetError) -> Error {
    match call_of(error) {
        Ok(error) => failed("write", path, &error),
        Err(other) => unwritable(path, "Parquet", &other),
    }
}
