//! Parquet files of sinks: rows wait as Arrow IPC, a stream for each transaction, and become row groups of a file.
//!
//! | option | |
//! | --- | --- |
//! | `path` | with `{n}` in the file's name, for the number of a file |
//! | `rows_max` (1,000,000), `bytes_max` (256 MiB of the rows that wait), `interval` (a minute behind the first row) | a file is complete with the transaction that reaches the first of them |
//! | `compression` | as of COPY: `snappy`, `none`, `lz4`, `zstd` |
//!
//! Columns have the types of COPY TO. INTERVAL is refused: Parquet's writer has none.
//!
//! Memory: the batch that is read, and a row group, encoded.

use crate::error::{Error, Result};
use crate::parser::durations::invalid;
use crate::parser::own::copy_options::Compression;
use crate::postgres::time_zones::UTC;
use crate::row_files::parquet_writer::{ParquetWriter, call_of};
use crate::streaming::options::StreamOptions;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use entresol_memory::MemorySize;
use entresol_streams::{RolledFileFormat, RolledFiles, Stream};
use entresol_tables::{Column, DataType, arrow_schema};
use parquet::errors::ParquetError;
use std::fs::File;
use std::io::{BufRead, Error as IoError, ErrorKind, Result as IoResult, Write};
use std::sync::Arc;
use std::time::Duration;

const ROWS_MAX: u64 = 1_000_000;
const BYTES_MAX: u64 = 256 << 20;
const INTERVAL: Duration = Duration::from_secs(60);

/// Options of the Parquet files of a sink.
#[derive(Debug, Clone)]
pub(crate) struct ParquetSink {
    compression: Compression,
    rows_max: u64,
    bytes_max: u64,
    interval: Duration,
}

/// Format of the files of a sink with these columns.
#[derive(Debug)]
struct ParquetFormat {
    schema: SchemaRef,
    compression: Compression,
}

impl ParquetSink {
    /// Takes the options.
    pub(crate) fn new(options: &mut StreamOptions) -> Result<ParquetSink> {
        let compression = match options.take("compression") {
            None => Compression::default(),
            Some(name) => Compression::named(&name).map_err(|_| invalid("compression", &name))?,
        };
        let rows_max = options.parsed("rows_max")?.unwrap_or(ROWS_MAX);
        if rows_max == 0 {
            return Err(invalid("rows_max", "0"));
        }
        let bytes_max = match options.take("bytes_max") {
            None => BYTES_MAX,
            Some(text) => match text.parse() {
                Ok(MemorySize::Bytes(bytes)) if bytes > 0 => bytes,
                _ => return Err(invalid("bytes_max", &text)),
            },
        };
        let interval = options.interval("interval")?.unwrap_or(INTERVAL);
        if interval.is_zero() {
            return Err(invalid("interval", "0"));
        }
        Ok(ParquetSink { compression, rows_max, bytes_max, interval })
    }

    /// Sends a stream into files of a path.
    pub(crate) fn attach(&self, stream: &Stream, path: &str) -> Result<()> {
        if let Some(column) = stream.columns().iter().find(|column| column.data_type == DataType::Interval) {
            return Err(Error::unsupported(format!(
                "column \"{}\" of type INTERVAL in a sink of ENCODE PARQUET: cast it to text, or to a number of seconds",
                column.name
            )));
        }
        let format = ParquetFormat { schema: nullable(stream.columns()), compression: self.compression };
        let files = RolledFiles {
            format: Arc::new(format),
            rows_max: self.rows_max,
            bytes_max: self.bytes_max,
            interval: self.interval,
        };
        stream.rolled_sink(path, files);
        Ok(())
    }
}

/// Schema of columns any of which may be NULL: all files of a sink have the same one.
fn nullable(columns: &[Column]) -> SchemaRef {
    let fields = arrow_schema(columns, UTC)
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect::<Vec<_>>();
    Arc::new(ArrowSchema::new(fields))
}

impl RolledFileFormat for ParquetFormat {
    fn append(&self, rows: &[&RecordBatch], waiting: &mut dyn Write) -> IoResult<()> {
        let mut writer = StreamWriter::try_new(waiting, &self.schema).map_err(of_arrow)?;
        for rows in rows {
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), rows.columns().to_vec());
            writer.write(&rows.map_err(of_arrow)?).map_err(of_arrow)?;
        }
        writer.finish().map_err(of_arrow)
    }

    fn complete(&self, waiting: &mut dyn BufRead, file: File) -> IoResult<u64> {
        let mut writer = ParquetWriter::new(file, &self.schema, self.compression).map_err(of_parquet)?;
        let mut rows = 0;
        while !waiting.fill_buf()?.is_empty() {
            for batch in StreamReader::try_new(&mut *waiting, None).map_err(of_arrow)? {
                let batch = batch.map_err(of_arrow)?;
                writer.write(&batch).map_err(of_parquet)?;
                rows += batch.num_rows() as u64;
            }
        }
        writer.complete().map_err(of_parquet)?;
        Ok(rows)
    }
}

fn of_arrow(error: ArrowError) -> IoError {
    match error {
        ArrowError::IoError(_, error) => error,
        other => IoError::new(ErrorKind::InvalidData, other),
    }
}

fn of_parquet(error: ParquetError) -> IoError {
    call_of(error).unwrap_or_else(|other| IoError::new(ErrorKind::InvalidData, other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_files::parquet_file::{BatchLimits, ParquetFile};
    use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
    use datafusion::arrow::datatypes::Int64Type;
    use std::io::BufReader;

    #[test]
    fn transactions_become_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.parquet");
        let columns = [Column::new("n", DataType::BigInt).not_null(), Column::new("text", DataType::Varchar)];
        let schema = nullable(&columns);
        let format = ParquetFormat { schema: Arc::clone(&schema), compression: Compression::Zstd };
        let mut waiting = Vec::new();
        for transaction in 0..50_i64 {
            let batch = |from: i64| {
                let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 10));
                let texts: ArrayRef = Arc::new(
                    (from..from + 10).map(|n| (n % 3 > 0).then(|| n.to_string())).collect::<StringArray>(),
                );
                RecordBatch::try_new(arrow_schema(&columns, UTC), vec![numbers, texts]).unwrap()
            };
            let (one, two) = (batch(transaction * 20), batch(transaction * 20 + 10));
            format.append(&[&one, &two], &mut waiting).unwrap();
        }
        let rows = format.complete(&mut BufReader::new(&waiting[..]), File::create(&path).unwrap()).unwrap();
        assert_eq!(rows, 1000);
        let mut parquet = ParquetFile::open(&path, File::open(&path).unwrap()).unwrap();
        parquet.select(&[0, 1]);
        let mut batches = parquet.batches(BatchLimits { rows: 10_000, bytes: 1 << 20 });
        let batch = batches.next().unwrap().unwrap();
        let numbers: Vec<i64> = batch.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        assert_eq!(batch.rows.column(1).null_count(), 334);
        // A stream that ends within a batch is an error, and no shorter file.
        let shorter = &waiting[..waiting.len() - 20];
        format.complete(&mut BufReader::new(shorter), File::create(&path).unwrap()).unwrap_err();
    }
}
