//! Reads lines of a file: a JSON object each, which is a tuple or a change, or as it is.
//!
//! - A line that is no tuple becomes a [`Reject`]; empty lines of JSON are skipped.
//! - A line has at most [`RECORD_BYTES_MAX`] bytes: a longer one is rejected, and reading continues behind it.
//! - Of a file that grows, lines are read when their end is there; of another, the last may have none.

use crate::error::{Error, Result};
use crate::sources::csv_reader::RECORD_BYTES_MAX;
use crate::sources::lines::LineParser;
use crate::sources::{Position, Positions, Reject, SourceBatch};
use entresol_tables::BatchBuilder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

/// Bytes of a line that is too long, as its reject shows it.
const SHOWN_BYTES: usize = 4096;
const BOM: &[u8] = "\u{feff}".as_bytes();

/// Reader of lines.
pub(crate) struct LineReader {
    path: PathBuf,
    reader: BufReader<Take<File>>,
    parser: LineParser,
    builder: BatchBuilder,
    position: Position,
    line: Vec<u8>,
}

impl LineReader {
    /// Reader of a file from a position on, up to `end` or its own end.
    pub(crate) fn new(
        path: &Path,
        mut file: File,
        parser: &LineParser,
        from: Option<Position>,
        end: Option<u64>,
    ) -> Result<LineReader> {
        let position = from.unwrap_or(Position { offset: 0, line: 1 });
        file.seek(SeekFrom::Start(position.offset)).map_err(|source| Error::io(path, source))?;
        let rest = end.map_or(u64::MAX, |end| end.saturating_sub(position.offset));
        Ok(LineReader {
            path: path.to_owned(),
            reader: BufReader::new(file.take(rest)),
            builder: BatchBuilder::new(&parser.tuple_columns(), 0),
            parser: parser.clone(),
            position,
            line: Vec::new(),
        })
    }

    /// Reads at most so many tuples and rejects; none at the end.
    pub(crate) fn read(&mut self, lines_max: usize) -> Result<SourceBatch> {
        let (mut positions, mut rejects) = (Vec::new(), Vec::new());
        while positions.len() + rejects.len() < lines_max {
            let begin = self.position;
            let Some(made) = self.next_line()? else { break };
            let made = match made {
                Ok(()) => {
                    let Some(record) = self.parser.record(&self.line) else { continue };
                    match self.parser.tuple(record) {
                        Ok(None) => continue,
                        Ok(Some(tuple)) => self.builder.push(&tuple),
                        Err(reason) => Err(reason),
                    }
                }
                Err(reason) => Err(reason),
            };
            match made {
                Ok(()) => positions.push(self.position),
                Err(reason) => {
                    let shown = self.line.trim_ascii();
                    let shown = &shown[..shown.len().min(SHOWN_BYTES)];
                    rejects.push(Reject {
                        tuples_before: positions.len(),
                        line: begin.line,
                        offset: Some(begin.offset),
                        reason,
                        raw: String::from_utf8_lossy(shown).into_owned(),
                    });
                    if self.parser.ends_batches_at_rejects() {
                        break;
                    }
                }
            }
        }
        let tuples = self.builder.finish();
        let (positions, end) = (Positions::Listed(positions), self.position);
        Ok(SourceBatch { tuples, positions, rejects, end, split: None })
    }

    /// Reads a line, without its end if it is too long: then the reason.
    fn next_line(&mut self) -> Result<Option<Result<(), String>>> {
        let begins = self.position.offset == 0;
        self.line.clear();
        let read = (&mut self.reader).take(RECORD_BYTES_MAX).read_until(b'\n', &mut self.line);
        let mut bytes = read.map_err(|source| Error::io(&self.path, source))? as u64;
        if bytes == 0 {
            return Ok(None);
        }
        let mut made = Ok(());
        if bytes == RECORD_BYTES_MAX && self.line.last() != Some(&b'\n') {
            bytes += self.skip_line()?;
            made = Err(format!("the record is longer than {RECORD_BYTES_MAX} bytes"));
        }
        self.position.offset += bytes;
        self.position.line += 1;
        if begins && self.line.starts_with(BOM) {
            self.line.drain(..BOM.len());
        }
        Ok(Some(made))
    }

    /// Skips the rest of a line; returns its length.
    fn skip_line(&mut self) -> Result<u64> {
        let mut skipped = 0;
        loop {
            let buffer = self.reader.fill_buf().map_err(|source| Error::io(&self.path, source))?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(part);
            skipped += part as u64;
            if end.is_some() || part == 0 {
                return Ok(skipped);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::files::FileFormat;
    use entresol_tables::{Column, DataType, Value, rows_of};

    #[test]
    fn lines_that_are_no_tuples_are_rejected_and_every_position_is_one_to_go_on_from() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("lines.json");
        let mut text = "\u{feff}{\"id\": 1}\r\n\n[]\n{\"id\": \"x\"}\n{\"id\": 2, \"more\": {}}\n".to_owned();
        text.push_str(&format!("{{\"id\": \"{}\"}}\n", "y".repeat(3 << 20)));
        text.push_str("{\"id\": null}\n{\"id\": 3}");
        std::fs::write(&path, &text).unwrap();
        let columns = vec![Column::new("id", DataType::Int).not_null()];
        let parser = LineParser { format: FileFormat::Json, columns };
        let read = |from, end| {
            let file = File::open(&path).unwrap();
            let mut reader = LineReader::new(&path, file, &parser, from, end).unwrap();
            let batch = reader.read(usize::MAX).unwrap();
            let Positions::Listed(positions) = batch.positions else { panic!("positions are counted") };
            (rows_of(&batch.tuples).unwrap(), positions, batch.rejects, batch.end)
        };
        let (tuples, positions, rejects, end) = read(None, None);
        assert_eq!(tuples, [1, 2, 3].map(|id| vec![Value::Int(id)]));
        assert_eq!(end.offset, text.len() as u64);
        let lines: Vec<(u64, usize)> =
            rejects.iter().map(|reject| (reject.line, reject.tuples_before)).collect();
        assert_eq!(lines, [(3, 1), (4, 1), (6, 2), (7, 2)]);
        for (reject, begin) in rejects.iter().zip(["[]", "{\"id\": \"x\"}", "{\"id\": \"y", "{\"id\": null}"])
        {
            assert!(text[reject.offset.unwrap() as usize..].starts_with(begin), "{begin}");
        }
        assert!(rejects[2].reason.contains("longer than 1048576 bytes"), "{}", rejects[2].reason);
        assert_eq!(rejects[2].raw.len(), SHOWN_BYTES);
        assert_eq!(rejects[3].reason, "column id: NULL in a NOT NULL column");
        for (at, position) in positions.iter().enumerate() {
            let (rest, after, ..) = read(Some(*position), None);
            assert_eq!((&rest[..], &after[..]), (&tuples[at + 1..], &positions[at + 1..]));
        }
        assert_eq!(read(None, Some(positions[0].offset)).0.len(), 1);
    }

    /// Lines that say nothing are no end, however many there are.
    #[test]
    fn reading_goes_on_behind_many_empty_lines() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("lines.json");
        std::fs::write(&path, format!("{}{{\"id\": 1}}\n", "\n".repeat(5000))).unwrap();
        let parser = LineParser { format: FileFormat::Json, columns: vec![Column::new("id", DataType::Int)] };
        let mut reader = LineReader::new(&path, File::open(&path).unwrap(), &parser, None, None).unwrap();
        assert_eq!(reader.read(1024).unwrap().tuples.num_rows(), 1);
    }
}
