//! Thread that reads the files of a source, one after another.

use crate::error::{Error, Result};
use crate::sinks::whole_lines_bytes;
use crate::sources::csv::CsvFormat;
use crate::sources::csv_reader::CsvReader;
use crate::sources::files::batches::{BatchFileFormat, BatchFileReader, decoded, ends_of};
use crate::sources::files::pattern::FilePattern;
use crate::sources::files::{FileFormat, HEAD_BYTES_MAX};
use crate::sources::line_reader::LineReader;
use crate::sources::lines::LineParser;
use crate::sources::{Head, Position, SourceBatch, Split, SplitPosition};
use crossbeam_channel::Sender;
use entresol_tables::Column;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tuples per batch.
const BATCH_TUPLES: usize = 1024;
/// Wait at the end of all files: of a few, and of many, which are asked one by one.
const WAIT: Duration = Duration::from_millis(5);
const WAIT_OF_MANY: Duration = Duration::from_millis(50);
const FEW: usize = 16;
/// Time between two looks for more files.
const LIST_EVERY: Duration = Duration::from_millis(100);

/// Content of the files.
#[derive(Clone)]
pub(super) enum Content {
    Lines { parser: LineParser, csv: CsvFormat },
    Batches { columns: Vec<Column>, format: Arc<dyn BatchFileFormat> },
}

impl Content {
    /// Columns of the tuples.
    pub(super) fn tuple_columns(&self) -> Vec<Column> {
        match self {
            Content::Lines { parser, .. } => parser.tuple_columns(),
            Content::Batches { columns, .. } => columns.clone(),
        }
    }
}

/// State of the reading.
pub(super) struct ReadState {
    files: FilePattern,
    content: Content,
    tails: bool,
    stop: Arc<AtomicBool>,
    splits: BTreeMap<String, SplitState>,
}

/// Part of a file that was read.
#[derive(Debug, Clone, Default)]
struct SplitState {
    /// None before the first record.
    position: Option<Position>,
    head: Head,
    /// Length of the complete lines of which all was read; of a file of batches, its length when it was read or found
    /// incomplete.
    read: Option<u64>,
    /// Device and inode, once it was opened.
    identity: Option<(u64, u64)>,
    /// Length of the file at the last look.
    bytes: u64,
}

/// Reader of one file.
enum FileReader {
    Csv(Box<CsvReader>),
    Lines(Box<LineReader>),
    Batches(Box<dyn BatchFileReader>),
}

impl FileReader {
    /// Next records; none at the end.
    fn read(&mut self, path: &Path) -> Result<Option<SourceBatch>> {
        let batch = match self {
            FileReader::Csv(reader) => reader.read(BATCH_TUPLES)?,
            FileReader::Lines(reader) => reader.read(BATCH_TUPLES)?,
            FileReader::Batches(reader) => return decoded(path, || reader.read()),
        };
        Ok((batch.tuples.num_rows() > 0 || !batch.rejects.is_empty()).then_some(batch))
    }
}

impl ReadState {
    pub(super) fn new(files: FilePattern, content: Content, tails: bool, stop: Arc<AtomicBool>) -> ReadState {
        ReadState { files, content, tails, stop, splits: BTreeMap::new() }
    }

    /// Sets the positions to read from.
    pub(super) fn start_at(&mut self, from: Option<Position>, splits: &[SplitPosition]) {
        for SplitPosition { split, position } in splits {
            let state = SplitState { position: Some(*position), head: split.head, ..SplitState::default() };
            self.splits.insert(split.name.to_string(), state);
        }
        // Of one file, an earlier version stored the position as that of the source.
        if splits.is_empty()
            && !self.files.is_pattern()
            && let Some(path) = self.files.path().to_str()
        {
            let position = from.filter(|from| from.offset > 0);
            self.splits.insert(path.to_owned(), SplitState { position, ..SplitState::default() });
        }
    }

    /// Reads until the end of all files, or until the topology stops.
    pub(super) fn run(&mut self, sender: &Sender<Result<SourceBatch>>) -> Result<()> {
        let mut names = self.files.files()?;
        if names.is_empty() && !self.tails {
            let reason = "no file has a name of this form".to_owned();
            return Err(Error::File { path: self.files.path().to_owned(), reason });
        }
        let mut listed = Instant::now();
        loop {
            let mut moved = false;
            for name in &names {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                moved |= self.read_file(name, sender)?;
            }
            if !self.tails {
                return Ok(());
            }
            if !moved {
                std::thread::sleep(if names.len() <= FEW { WAIT } else { WAIT_OF_MANY });
            }
            if self.files.is_pattern() && listed.elapsed() >= LIST_EVERY {
                names = self.files.files()?;
                listed = Instant::now();
            }
        }
    }

    /// Reads a file up to its end; returns false if it has nothing new.
    fn read_file(&mut self, name: &str, sender: &Sender<Result<SourceBatch>>) -> Result<bool> {
        let path = Path::new(name);
        let mut state = self.splits.get(name).cloned().unwrap_or_default();
        let io = |source| Error::io(path, source);
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            // It was there when the folder was read.
            Err(error) if error.kind() == ErrorKind::NotFound && self.files.is_pattern() && self.tails => {
                return Ok(false);
            }
            Err(error) => return Err(io(error)),
        };
        let is_lines = matches!(self.content, Content::Lines { .. });
        state.check(path, &metadata, is_lines)?;
        if state.read.is_some() && state.bytes == metadata.len() {
            return Ok(false);
        }
        let mut file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(ErrorKind::IsADirectory.into()));
        }
        state.check(path, &metadata, is_lines)?;
        if let Content::Batches { format, .. } = &self.content {
            let is_moved = self.read_batches(name, &mut state, (file, &metadata), &**format, sender)?;
            self.splits.insert(name.to_owned(), state);
            return Ok(is_moved);
        }
        let Content::Lines { parser, csv } = &self.content else { return Ok(false) };
        state.check_content(path, &mut file)?;
        state.identity = Some(identity(&metadata));
        state.bytes = metadata.len();
        let end = if self.tails { whole_lines_bytes(&mut file).map_err(io)? } else { metadata.len() };
        if end == 0 || state.read == Some(end) {
            self.splits.insert(name.to_owned(), state);
            return Ok(false);
        }
        let mut reader = self.reader((parser, csv), (path, &file), state.position, end)?;
        let is_moved = self.send(name, &mut state, &mut file, &mut reader, sender)?;
        state.read = Some(end);
        self.splits.insert(name.to_owned(), state);
        Ok(is_moved)
    }

    /// Reads a file of batches, unless its end is not there yet.
    fn read_batches(
        &self,
        name: &str,
        state: &mut SplitState,
        (mut file, metadata): (File, &Metadata),
        format: &dyn BatchFileFormat,
        sender: &Sender<Result<SourceBatch>>,
    ) -> Result<bool> {
        let (path, bytes) = (Path::new(name), metadata.len());
        let io = |source| Error::io(path, source);
        let ends = ends_of(&mut file, bytes).map_err(io)?;
        if let Some(position) = state.position
            && state.head != ends
        {
            return Err(other_content(path, position.offset));
        }
        state.identity = Some(identity(metadata));
        (state.bytes, state.read) = (bytes, Some(bytes));
        if self.tails && !decoded(path, || format.is_complete(path, &mut file, bytes))? {
            return Ok(false);
        }
        state.head = ends;
        let rows = state.position.map_or(0, |position| position.offset);
        let copy = file.try_clone().map_err(io)?;
        let mut reader = FileReader::Batches(decoded(path, || format.open(path, copy, rows))?);
        self.send(name, state, &mut file, &mut reader, sender)
    }

    fn reader(
        &self,
        (parser, csv): (&LineParser, &CsvFormat),
        (path, file): (&Path, &File),
        from: Option<Position>,
        end: u64,
    ) -> Result<FileReader> {
        let mut file = file.try_clone().map_err(|source| Error::io(path, source))?;
        file.seek(SeekFrom::Start(0)).map_err(|source| Error::io(path, source))?;
        let growing_end = self.tails.then_some(end);
        Ok(match &parser.format {
            FileFormat::Json | FileFormat::Plain | FileFormat::Changes(_) => {
                FileReader::Lines(Box::new(LineReader::new(path, file, parser, from, growing_end)?))
            }
            FileFormat::Csv { separator, null } => {
                let format = CsvFormat {
                    path: path.to_owned(),
                    separator: *separator,
                    null: null.clone(),
                    growing_end,
                    ..csv.clone()
                };
                FileReader::Csv(Box::new(CsvReader::new(format, file, from)?))
            }
        })
    }

    /// Sends the batches of a file; returns false if there are none.
    fn send(
        &self,
        name: &str,
        state: &mut SplitState,
        file: &mut File,
        reader: &mut FileReader,
        sender: &Sender<Result<SourceBatch>>,
    ) -> Result<bool> {
        let shared: Arc<str> = name.into();
        let mut is_moved = false;
        loop {
            let Some(mut batch) = reader.read(Path::new(name))? else { return Ok(is_moved) };
            is_moved = true;
            if self.files.is_pattern() {
                for reject in &mut batch.rejects {
                    reject.reason = format!("{name}: {}", reject.reason);
                }
            }
            state.position = Some(batch.end);
            if !matches!(reader, FileReader::Batches(_)) {
                state.note_head(Path::new(name), file, batch.end.offset)?;
            }
            batch.split = Some(Split { name: Arc::clone(&shared), head: state.head });
            if sender.send(Ok(batch)).is_err() {
                self.stop.store(true, Ordering::Relaxed);
                return Ok(is_moved);
            }
        }
    }
}

impl SplitState {
    /// Checks that a file is the one that was read, as far as its metadata say.
    fn check(&self, path: &Path, metadata: &Metadata, is_lines: bool) -> Result<()> {
        let refused = |reason: String| Err(Error::File { path: path.to_owned(), reason });
        let offset = self.position.map_or(0, |position| position.offset);
        if !is_lines && self.position.is_some() && metadata.len() != self.head.bytes {
            return refused(format!(
                "the file has {} bytes, and had {} when it was read up to row {offset}: it was truncated or replaced",
                metadata.len(),
                self.head.bytes
            ));
        }
        if is_lines && metadata.len() < offset {
            return refused(format!(
                "the file is shorter than the stored position {offset}: it was truncated or replaced"
            ));
        }
        if self.position.is_some() && self.identity.is_some_and(|known| known != identity(metadata)) {
            return refused(format!(
                "the file was replaced by another after it had been read up to position {offset}"
            ));
        }
        Ok(())
    }

    /// Checks that a file begins as it did, and that the position is behind a line.
    fn check_content(&self, path: &Path, file: &mut File) -> Result<()> {
        let Some(position) = self.position else { return Ok(()) };
        let io = |source| Error::io(path, source);
        let begins = self.head.bytes == 0 || head(file, self.head.bytes).map_err(io)? == self.head;
        let is_end = position.offset == file.metadata().map_err(io)?.len();
        if begins && (is_end || is_behind_line(file, position.offset).map_err(io)?) {
            return Ok(());
        }
        Err(other_content(path, position.offset))
    }

    /// Notes the beginning of a file that was read up to an offset.
    fn note_head(&mut self, path: &Path, file: &mut File, offset: u64) -> Result<()> {
        let bytes = offset.min(HEAD_BYTES_MAX);
        if bytes > self.head.bytes {
            // The reader has the same file, and its place in it.
            let place = file.stream_position().map_err(|source| Error::io(path, source))?;
            self.head = head(file, bytes).map_err(|source| Error::io(path, source))?;
            file.seek(SeekFrom::Start(place)).map_err(|source| Error::io(path, source))?;
        }
        Ok(())
    }
}

/// Error of a file that is not the one that was read.
fn other_content(path: &Path, offset: u64) -> Error {
    let reason = format!("the file has other content than when it was read up to position {offset}");
    Error::File { path: path.to_owned(), reason }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// First bytes of a file; fewer if it is shorter.
fn head(file: &mut File, bytes: u64) -> std::io::Result<Head> {
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(bytes).read_to_end(&mut read)?;
    Ok(Head { bytes: read.len() as u64, checksum: crc32c::crc32c(&read) })
}

/// Returns true if a line ends before an offset, or at it.
fn is_behind_line(file: &mut File, offset: u64) -> std::io::Result<bool> {
    let Some(before) = offset.checked_sub(1) else { return Ok(true) };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(before))?;
    file.take(2).read_to_end(&mut bytes)?;
    Ok(bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r')))
}
