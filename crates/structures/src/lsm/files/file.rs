//! Runs in files, one file each; written once, in order, and never changed.
//!
//! ```text
//! content                                position
//! blocks, 16 to a page of 4 KiB          from byte 0
//! smallest key of each page              behind the last page
//! words of the Bloom filter              behind these
//! tail, 4 KiB                            at the end, on the grid of pages
//!
//! tail word   content
//! 0           "LSMRUN" and version
//! 1, 2        identity of the tree, number of the run
//! 3           words of a key, bits of the filter an entry (from bit 32)
//! 4, 5        entries, blocks
//! 6           words of the filter
//! 7           CRC-32C of keys and filter
//! 8           CRC-32C of words 0 to 7
//! ```
//!
//! Blocks carry their own checks. A file is referred to only after it and its name are durable, and removed
//! only after the removal of the last reference is durable.

use crate::error::Result;
use crate::lsm::files::block::{BLOCK_WORDS, Block};
use crate::lsm::files::filter::Filter;
use crate::node::FixedKey;
use crate::points::FILE_SYNCED;
use entresol_memory::Error as MemoryError;
use entresol_memory::env::{Files, OpenMode, StorageFile};
use entresol_memory::order::step;
use std::path::{Path, PathBuf};

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / 8;
pub(crate) const PAGE_BLOCKS: usize = PAGE_WORDS / BLOCK_WORDS;
const MAGIC: u64 = u64::from_le_bytes(*b"LSMRUN\0\x01");
const TAIL_WORDS: usize = 9;
/// Bytes of one write.
const WRITE_BYTES: usize = 64 << 10;

/// The name of a run's file.
pub(crate) fn path_of(directory: &Path, tree: u64, run: u64) -> PathBuf {
    directory.join(format!("lsm-{tree:016x}-{run}.run"))
}

/// A run's file, open for reading.
pub(crate) struct RunFile {
    file: Box<dyn StorageFile>,
    pub(crate) path: PathBuf,
}

/// Contents of a file, without its blocks.
pub(crate) struct RunContents<K> {
    pub(crate) entries: u64,
    pub(crate) blocks: usize,
    /// The smallest key of each page.
    pub(crate) mins: Vec<K>,
    pub(crate) filter: Option<Filter>,
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|byte| bytes[byte]));
    bytes.chunks_exact(8).map(word).collect()
}

fn bytes_of(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

impl RunFile {
    /// Opens a file and reads all parts but its blocks.
    pub(crate) fn open<K: FixedKey>(
        files: &dyn Files,
        path: &Path,
        tree: u64,
        run: u64,
    ) -> Result<(RunFile, RunContents<K>)> {
        let io = |action| move |error: std::io::Error| MemoryError::io(action, path, &error);
        let corrupt = |offset: u64, message: &str| MemoryError::corrupt(path, offset, message);
        let file = files.open(path, OpenMode::Open).map_err(io("open"))?;
        let length = file.len().map_err(io("get the length of"))?;
        if length < PAGE_BYTES as u64 || !length.is_multiple_of(PAGE_BYTES as u64) {
            Err(corrupt(length, "the file does not have the length of a run"))?;
        }
        let tail_at = length - PAGE_BYTES as u64;
        let mut tail = vec![0; TAIL_WORDS * 8];
        file.read_at(&mut tail, tail_at).map_err(io("read"))?;
        let words = words_of(&tail);
        if words[0] != MAGIC || words[8] != u64::from(crc32c::crc32c(&tail[..64])) {
            Err(corrupt(tail_at, "its tail is not that of a run"))?;
        }
        if words[1] != tree || words[2] != run || words[3] as u32 as usize != K::WORDS {
            Err(corrupt(tail_at, "it is a run of another tree, or another run of this one"))?;
        }
        let (entries, blocks, filter_words) = (words[4], words[5] as usize, words[6] as usize);
        let pages = blocks.div_ceil(PAGE_BLOCKS);
        let index_words = pages.saturating_mul(K::WORDS);
        let rest_bytes = index_words.saturating_add(filter_words).saturating_mul(8);
        let end = pages.saturating_mul(PAGE_BYTES).saturating_add(rest_bytes);
        if end > tail_at as usize {
            Err(corrupt(tail_at, "its tail describes more than the file contains"))?;
        }
        let mut rest = vec![0; rest_bytes];
        file.read_at(&mut rest, (pages * PAGE_BYTES) as u64).map_err(io("read"))?;
        if words[7] != u64::from(crc32c::crc32c(&rest)) {
            Err(corrupt((pages * PAGE_BYTES) as u64, "its keys and filter do not match their checksum"))?;
        }
        let rest = words_of(&rest);
        let (index, filter) = rest.split_at(index_words);
        let mins = index.chunks_exact(K::WORDS).map(K::of_words).collect();
        let filter = Filter::of_words(filter, (words[3] >> 32) as u32);
        Ok((RunFile { file, path: path.to_path_buf() }, RunContents { entries, blocks, mins, filter }))
    }

    /// Reads `count` pages.
    pub(crate) fn read_pages(&self, first: usize, count: usize) -> Result<Vec<u64>> {
        let mut bytes = vec![0; count * PAGE_BYTES];
        let read = self.file.read_at(&mut bytes, (first * PAGE_BYTES) as u64);
        read.map_err(|error| MemoryError::io("read", &self.path, &error))?;
        Ok(words_of(&bytes))
    }
}

/// Writes a run's file.
pub(crate) struct FileWriter {
    file: Box<dyn StorageFile>,
    pub(crate) path: PathBuf,
    /// Bytes that are not written yet.
    pending: Vec<u8>,
    written: u64,
    blocks: usize,
}

impl FileWriter {
    /// Creates the file, which must not exist.
    pub(crate) fn create(files: &dyn Files, path: PathBuf) -> Result<FileWriter> {
        let file =
            files.open(&path, OpenMode::Create).map_err(|error| MemoryError::io("create", &path, &error))?;
        Ok(FileWriter { file, path, pending: Vec::with_capacity(WRITE_BYTES), written: 0, blocks: 0 })
    }

    pub(crate) fn push(&mut self, block: &Block) -> Result<()> {
        self.blocks += 1;
        self.write(bytes_of(block.words().iter().copied()))
    }

    fn write(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.pending.extend_from_slice(&bytes);
        if self.pending.len() >= WRITE_BYTES { self.write_pending() } else { Ok(()) }
    }

    fn write_pending(&mut self) -> Result<()> {
        let write = self.file.write_at(&self.pending, self.written);
        write.map_err(|error| MemoryError::io("write to", &self.path, &error))?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn pad(&mut self) -> Result<()> {
        let end = self.written as usize + self.pending.len();
        self.write(vec![0; end.next_multiple_of(PAGE_BYTES) - end])
    }

    /// Writes keys, filter and tail, and makes the content durable.
    pub(crate) fn finish<K: FixedKey>(
        mut self,
        tree: u64,
        run: u64,
        entries: u64,
        mins: &[K],
        filter: Option<&Filter>,
    ) -> Result<()> {
        self.pad()?;
        let mut rest = bytes_of(mins.iter().flat_map(|key| (0..K::WORDS).map(|word| key.word(word))));
        let filter_words = filter.map_or(0, |filter| {
            let before = rest.len();
            filter.words().for_each(|word| rest.extend_from_slice(&word.to_le_bytes()));
            (rest.len() - before) / 8
        });
        let kinds = K::WORDS as u64 | u64::from(filter.map_or(0, Filter::bits)) << 32;
        let crc = u64::from(crc32c::crc32c(&rest));
        self.write(rest)?;
        self.pad()?;
        let words = [MAGIC, tree, run, kinds, entries, self.blocks as u64, filter_words as u64, crc];
        let mut tail = bytes_of(words);
        tail.extend_from_slice(&u64::from(crc32c::crc32c(&tail)).to_le_bytes());
        tail.resize(PAGE_BYTES, 0);
        self.write(tail)?;
        self.write_pending()?;
        let synced = step(FILE_SYNCED, || self.file.sync_data());
        Ok(synced.map_err(|error| MemoryError::io("sync", &self.path, &error))?)
    }
}
