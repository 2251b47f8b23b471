//! Parquet files of sources: rows with the columns of the source, by the rules of COPY.
//!
//! - Columns are found by name, and their types are checked before the first row; a file that lacks one is refused.
//!   Values are assigned as COPY assigns them. A row with one that does not fit its column, or with NULL in a NOT NULL
//!   column, is rejected with its row group and row; what is assigned as a whole is halved until such rows are alone.
//! - A file of which all rows were read is opened without its columns: those of the source may be others by then.
//! - Times without a zone are in UTC.
//!
//! Memory: batches of [`BATCH_ROWS`] rows and about [`BATCH_BYTES`], less where the memory budget has no room for all
//! that wait ([`BATCHES`]); they are reserved while a file is read. Of a file a page of each column is in memory, as
//! the file has it.

use crate::dml::assignment;
use crate::error::{Error, Result, as_stream_error};
use crate::postgres::time_zones::{UTC, Zone};
use crate::row_files::columns::FileColumns;
use crate::row_files::parquet_file::{BatchLimits, ParquetBatches, ParquetFile};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol_memory::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_streams::{
    BatchFileFormat, BatchFileReader, Error as StreamError, Position, Positions, READ_AHEAD_BATCHES_MAX,
    Reject, Result as StreamResult, SourceBatch,
};
use entresol_tables::{BatchBuilder, Column, arrow_schema};
use std::fmt::Write;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// Rows and bytes of a batch.
const BATCH_ROWS: usize = 4096;
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of a batch for which there must be room.
const BATCH_BYTES_MIN: usize = 64 << 10;
/// Batches that are there at once: those that wait, and the ones at both ends.
const BATCHES: usize = READ_AHEAD_BATCHES_MAX + 2;
/// Beginning and end of a file.
const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes of the shortest file: its beginning, the length of its footer, and its end.
const FILE_BYTES_MIN: u64 = 12;
/// Bytes of a rejected row that are shown.
const RECORD_BYTES_MAX: usize = 4096;

/// Format of the files of a source.
#[derive(Debug)]
pub(crate) struct ParquetSource {
    /// Name of the source.
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) memory: Option<Arc<MemoryBudget>>,
}

/// Reader of a file.
struct ParquetReader {
    name: String,
    columns: Vec<Column>,
    zone: Zone,
    /// None if all rows were read before.
    batches: Option<ParquetBatches>,
    /// Rows of the file so far.
    rows: u64,
    memory: Option<MemoryReservation>,
}

/// Rows of a batch that were assigned, and those that were rejected.
#[derive(Default)]
struct AssignedRows {
    tuples: Vec<RecordBatch>,
    positions: Vec<Position>,
    rejects: Vec<Reject>,
}

impl BatchFileFormat for ParquetSource {
    fn is_complete(&self, path: &Path, file: &mut File, bytes: u64) -> StreamResult<bool> {
        let io = |source| StreamError::Io { path: path.to_owned(), source };
        let mut read = |from: u64| -> std::io::Result<Vec<u8>> {
            let mut found = Vec::new();
            file.seek(SeekFrom::Start(from))?;
            Read::by_ref(file).take(MAGIC.len() as u64).read_to_end(&mut found)?;
            Ok(found)
        };
        let first = read(0).map_err(io)?;
        if !MAGIC.starts_with(&first) {
            let reason = "it does not begin as a Parquet file does".to_owned();
            return Err(StreamError::File { path: path.to_owned(), reason });
        }
        Ok(bytes >= FILE_BYTES_MIN && read(bytes - MAGIC.len() as u64).map_err(io)? == MAGIC)
    }

    fn open(&self, path: &Path, file: File, rows: u64) -> StreamResult<Box<dyn BatchFileReader>> {
        let failed = |error| as_file_error(format!("source {}", self.name), error);
        let mut parquet = ParquetFile::open(path, file).map_err(failed)?;
        let all = parquet.rows();
        if rows > all {
            let reason = format!("the file has {all} rows, and {rows} were read of it");
            return Err(StreamError::File { path: path.to_owned(), reason });
        }
        let mut reader = ParquetReader {
            name: self.name.clone(),
            columns: self.columns.clone(),
            zone: Zone::utc(),
            batches: None,
            rows,
            memory: self.memory.as_ref().map(|memory| memory.empty(MemoryConsumer::StreamState)),
        };
        if rows > 0 && rows == all {
            return Ok(Box::new(reader));
        }
        let relation = format!("source {}", self.name);
        let proposal = "leave the column out of the source, or the file out of its path";
        let wanted = FileColumns { relation: &relation, columns: &self.columns, proposal };
        parquet.select(&wanted.positions(path, parquet.schema()).map_err(failed)?);
        let bytes = reader.reserve().map_err(failed)?;
        let mut batches = parquet.batches(BatchLimits { rows: BATCH_ROWS, bytes });
        batches.skip(rows);
        reader.batches = Some(batches);
        Ok(Box::new(reader))
    }
}

impl ParquetReader {
    /// Reserves memory for the batches that may be there at once; returns the bytes of one.
    fn reserve(&mut self) -> Result<usize> {
        let Some(memory) = &mut self.memory else { return Ok(BATCH_BYTES) };
        let mut bytes = BATCH_BYTES;
        loop {
            match memory.try_resize((bytes * BATCHES) as u64) {
                Ok(()) => return Ok(bytes),
                Err(_) if bytes / 2 >= BATCH_BYTES_MIN => bytes /= 2,
                Err(limit) => return Err(entresol_transactions::Error::Memory(limit.into()).into()),
            }
        }
    }

    /// Reserves more where a batch is larger than it was to be: each row may be.
    fn reserve_for(&mut self, batch: &RecordBatch) -> Result<()> {
        let bytes = (batch.get_array_memory_size() * BATCHES) as u64;
        if let Some(memory) = self.memory.as_mut().filter(|memory| memory.bytes() < bytes) {
            let grown = memory.try_resize(bytes);
            grown.map_err(|limit| entresol_transactions::Error::Memory(limit.into()))?;
        }
        Ok(())
    }

    /// Assigns rows, of which the first is behind so many of the file and has a place.
    fn assign(&self, rows: &RecordBatch, before: u64, place: &dyn Fn(u64) -> String, to: &mut AssignedRows) {
        let count = rows.num_rows();
        match self.assigned(rows) {
            Ok(tuples) => {
                to.positions.extend((1..=count as u64).map(|row| position_behind(before + row)));
                to.tuples.push(tuples);
            }
            Err(error) if count <= 1 => to.rejects.push(Reject {
                tuples_before: to.positions.len(),
                line: before + 1,
                offset: None,
                reason: format!("{}: {}", place(before), reason_of(&error)),
                raw: record(rows),
            }),
            Err(_) => {
                let half = count / 2;
                self.assign(&rows.slice(0, half), before, place, to);
                self.assign(&rows.slice(half, count - half), before + half as u64, place, to);
            }
        }
    }

    /// Tuples of rows, if each has values for all columns.
    fn assigned(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let arrays = self.columns.iter().zip(rows.columns()).map(|(column, array)| {
            let assigned = assignment::fitted_array(&self.name, column, array, &self.zone)?;
            if !column.nullable && assigned.null_count() > 0 {
                let message = format!("column {}: NULL in a NOT NULL column", column.name);
                return Err(Error::coded("23502", message));
            }
            Ok(assigned)
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        Ok(RecordBatch::try_new(arrow_schema(&self.columns, UTC), arrays)?)
    }
}

impl BatchFileReader for ParquetReader {
    fn read(&mut self) -> StreamResult<Option<SourceBatch>> {
        let operator = || format!("source {}", self.name);
        let Some(batches) = &mut self.batches else { return Ok(None) };
        let next = batches.next().map_err(|error| as_file_error(operator(), error))?;
        let Some(batch) = next else { return Ok(None) };
        self.reserve_for(&batch.rows)
            .map_err(|error| as_stream_error(format!("source {}", self.name), error))?;
        let before = self.rows;
        self.rows += batch.rows.num_rows() as u64;
        let mut made = AssignedRows::default();
        let place = |row: u64| batch.place.shown((row - before) as usize);
        self.assign(&batch.rows, before, &place, &mut made);
        let AssignedRows { mut tuples, positions, rejects } = made;
        let tuples = match tuples.len() {
            0 => BatchBuilder::new(&self.columns, 0).finish(),
            1 => tuples.remove(0),
            _ => concat_batches(&arrow_schema(&self.columns, UTC), &tuples)
                .map_err(|error| as_stream_error(format!("source {}", self.name), error.into()))?,
        };
        let (positions, end) = (Positions::Listed(positions), position_behind(self.rows));
        Ok(Some(SourceBatch { tuples, positions, rejects, end, split: None }))
    }
}

/// Error of a file that is read, which is none of its rows.
fn as_file_error(operator: String, error: Error) -> StreamError {
    match as_stream_error(operator, error) {
        StreamError::Computation { operator, reason } => {
            StreamError::Query { operator, reason, is_retriable: false }
        }
        other => other,
    }
}

/// Position behind so many rows.
fn position_behind(rows: u64) -> Position {
    Position { offset: rows, line: rows + 1 }
}

/// Reason why a row is rejected.
fn reason_of(error: &Error) -> String {
    match error {
        Error::Assignment { column, value, expected, .. } => {
            format!("column {column}: {value} does not fit {expected}")
        }
        error => error.to_string(),
    }
}

/// Values of a row with the names of their columns, as far as they are shown.
fn record(row: &RecordBatch) -> String {
    let mut text = String::new();
    for (array, field) in row.columns().iter().zip(row.schema().fields()) {
        let formatter = ArrayFormatter::try_new(array, &FormatOptions::default().with_null("NULL"));
        let value = match &formatter {
            Ok(formatter) if !array.is_empty() => formatter.value(0).try_to_string().unwrap_or_default(),
            _ => String::new(),
        };
        let comma = if text.is_empty() { "" } else { ", " };
        let end = value.floor_char_boundary(RECORD_BYTES_MAX);
        // Writing into a string does not fail.
        let _ = write!(text, "{comma}{} = {}", field.name(), &value[..end]);
        if text.len() >= RECORD_BYTES_MAX {
            text.truncate(text.floor_char_boundary(RECORD_BYTES_MAX));
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, StringArray};
    use entresol_tables::{DataType, Value};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    /// File of numbers from 0 on, each as a string too; every seventh string is no number.
    fn file(path: &Path, rows: i64) {
        let text = |n: i64| if n % 7 == 6 { Some(format!("x{n}")) } else { (n != 3).then(|| n.to_string()) };
        let columns: [(&str, ArrayRef); 2] = [
            ("text", Arc::new((0..rows).map(text).collect::<StringArray>())),
            ("n", Arc::new(Int64Array::from_iter_values(0..rows))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
        let to = File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(to, rows.schema(), Some(properties)).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }

    fn format(memory: Option<Arc<MemoryBudget>>) -> ParquetSource {
        let columns = vec![
            Column::new("n", DataType::Int).not_null(),
            Column::new("text", DataType::SmallInt).not_null(),
        ];
        ParquetSource { name: "numbers".to_owned(), columns, memory }
    }

    #[test]
    fn rows_that_do_not_fit_are_rejected_alone_and_positions_count_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n.parquet");
        file(&path, 25);
        for from in [0, 4, 9, 10, 24] {
            let mut reader = format(None).open(&path, File::open(&path).unwrap(), from).unwrap();
            let (mut tuples, mut rejects, mut end) = (Vec::new(), Vec::new(), from);
            while let Some(batch) = reader.read().unwrap() {
                let rows = entresol_tables::rows_of(&batch.tuples).unwrap();
                for (at, row) in rows.into_iter().enumerate() {
                    let Positions::Listed(positions) = &batch.positions else { panic!("listed") };
                    assert_eq!(row[0], Value::Int(positions[at].offset as i32 - 1));
                    tuples.push(positions[at].offset - 1);
                }
                rejects.extend(batch.rejects.into_iter().map(|reject| (reject.line - 1, reject)));
                end = batch.end.offset;
            }
            let is_bad = |n: &u64| n % 7 == 6 || *n == 3;
            assert_eq!(end, 25);
            assert_eq!(tuples, (from..25).filter(|n| !is_bad(n)).collect::<Vec<_>>());
            let bad: Vec<u64> = rejects.iter().map(|(row, _)| *row).collect();
            assert_eq!(bad, (from..25).filter(is_bad).collect::<Vec<_>>());
            if let Some((_, reject)) = rejects.iter().find(|(row, _)| *row == 13) {
                assert_eq!(reject.reason, "row group 2, row 4: column text: 'x13' does not fit SMALLINT");
                assert_eq!(reject.raw, "n = 13, text = x13");
            }
            if let Some((_, reject)) = rejects.iter().find(|(row, _)| *row == 3) {
                assert_eq!(reject.reason, "row group 1, row 4: column text: NULL in a NOT NULL column");
            }
        }
    }

    #[test]
    fn files_are_incomplete_until_their_end_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n.parquet");
        file(&path, 25);
        let bytes = std::fs::read(&path).unwrap();
        let is_complete = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut opened = File::open(&path).unwrap();
            format(None).is_complete(&path, &mut opened, bytes.len() as u64)
        };
        for end in [0, 1, 4, 11, 100, bytes.len() - 1] {
            assert!(!is_complete(&bytes[..end]).unwrap(), "{end}");
        }
        assert!(is_complete(&bytes).unwrap());
        let error = is_complete(b"id,name\n1,one\n").unwrap_err().to_string();
        assert!(error.contains("does not begin as a Parquet file"), "{error}");
    }

    #[test]
    fn batches_are_smaller_where_memory_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n.parquet");
        file(&path, 25);
        let budget = MemoryBudget::tiny(4 << 20);
        let open = || format(Some(Arc::clone(&budget))).open(&path, File::open(&path).unwrap(), 0);
        let mut reader = open().unwrap();
        let used = budget.usage().used_bytes();
        assert!((BATCHES * BATCH_BYTES_MIN) as u64 <= used && used <= 4 << 20, "{used}");
        assert!(reader.read().unwrap().is_some());
        drop(reader);
        assert_eq!(budget.usage().used_bytes(), 0, "it is free again");
        let others = budget.try_reserve(MemoryConsumer::StreamState, budget.free_bytes());
        let error = open().err().unwrap().to_string();
        assert!(error.contains("memory"), "{error}");
        drop(others);
    }
}
