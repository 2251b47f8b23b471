//! Rows of the input files, in batches for the circuit. Files are read side by side, the one next that is behind in
//! event time.

use anyhow::{Context, Result};
use csv::{ByteRecord, Reader};
use dbsp::utils::Tup2;
use dbsp::{DBData, OrdZSet, RootCircuit, Stream};
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::SyncSender;

/// Rows of one transaction.
const BATCH_ROWS: usize = 10_000;

/// A file whose rows go to an input of the circuit.
pub struct Source {
    file: &'static str,
    /// Columns that are read; the first is the event time.
    columns: &'static [&'static str],
    read_batch: Box<dyn Fn(&mut Records) -> Result<Batch> + Send>,
}

/// Rows that are ready for the circuit.
pub struct Batch {
    pub rows: usize,
    /// Hands them to the circuit.
    pub append: Box<dyn FnOnce() + Send>,
}

/// Input of a circuit, and the file that its rows are read from.
pub fn source<K: DBData>(
    circuit: &RootCircuit,
    file: &'static str,
    columns: &'static [&'static str],
    row: fn(&Records) -> Result<K>,
) -> (Stream<RootCircuit, OrdZSet<K>>, Source) {
    let (stream, handle) = circuit.add_input_zset::<K>();
    let read_batch = move |records: &mut Records| {
        let mut rows = Vec::with_capacity(BATCH_ROWS);
        while rows.len() < BATCH_ROWS && records.advance()? {
            rows.push(Tup2(row(records)?, 1));
        }
        let handle = handle.clone();
        Ok(Batch { rows: rows.len(), append: Box::new(move || handle.append(&mut rows)) })
    };
    (stream, Source { file, columns, read_batch: Box::new(read_batch) })
}

/// Records of a file, one at a time.
pub struct Records {
    reader: Reader<File>,
    record: ByteRecord,
    /// Places of the columns in a record.
    places: Vec<usize>,
}

impl Records {
    fn open(directory: &Path, source: &Source) -> Result<Records> {
        let path = directory.join(source.file).with_extension("csv");
        let mut reader = Reader::from_path(&path).with_context(|| format!("open {}", path.display()))?;
        let names = reader.headers()?;
        let place = |column: &&str| {
            let place = names.iter().position(|name| name == *column);
            place.with_context(|| format!("{} has no column {column}", path.display()))
        };
        let places = source.columns.iter().map(place).collect::<Result<_>>()?;
        Ok(Records { reader, record: ByteRecord::new(), places })
    }

    /// Reads the next record; returns false at the end of the file.
    fn advance(&mut self) -> Result<bool> {
        Ok(self.reader.read_byte_record(&mut self.record)?)
    }

    /// String in a column.
    pub fn string(&self, column: usize) -> Result<&str> {
        Ok(std::str::from_utf8(&self.record[self.places[column]])?)
    }

    /// Number in a column.
    pub fn number(&self, column: usize) -> Result<i64> {
        let string = self.string(column)?;
        string.parse().with_context(|| format!("'{string}' is not a number"))
    }
}

/// Reads all sources and sends their batches, until the receiver is gone.
pub fn read(directory: &Path, sources: Vec<Source>, to_circuit: &SyncSender<Batch>) -> Result<()> {
    let open = |source: Source| Ok((i64::MIN, Records::open(directory, &source)?, source));
    let mut open = sources.into_iter().map(open).collect::<Result<Vec<_>>>()?;
    while let Some(at) = (0..open.len()).min_by_key(|at| open[*at].0) {
        let (read_to, records, source) = &mut open[at];
        let batch = (source.read_batch)(records).with_context(|| format!("read {}.csv", source.file))?;
        let is_last = batch.rows < BATCH_ROWS;
        if is_last {
            open.swap_remove(at);
        } else {
            *read_to = records.number(0)?;
        }
        if batch.rows > 0 && to_circuit.send(batch).is_err() {
            break;
        }
    }
    Ok(())
}
