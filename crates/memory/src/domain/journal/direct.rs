//! Direct reads of large objects: from the pool file, past the mapping and the system's page cache.
//!
//! A page that is read through the mapping stays in the page cache and in the process until the keeper takes it back,
//! and a fault reads as much as the system thinks fit. A column page goes into a cache of its own at once, and its
//! length is known: one read brings exactly its bytes.
//!
//! - *Right* for words that do not change while they are read. They were flushed before a reader could find them, and
//!   so were the marks of their pages; a page that has no mark any more, and none that a checkpoint under way has
//!   taken, is in the file with all of them ([`DirtyPages`](super::checkpoint::dirty::DirtyPages)). Eviction relies on
//!   the same. Later checkpoints write the same words there again.
//! - *Used* where most of the object's pages are neither in the process nor in the page cache; else the mapping is
//!   faster. A fault reads megabytes ahead while the pool fits its memory, and one page when it does not: then one
//!   call reads an object in place of a fault for each of its pages. A file system without direct I/O, and a pool
//!   without a memory budget, have no direct reads.
//! - *Memory*: a buffer of the object's pages while it is read, reserved in the budget; without room for it the mapping
//!   is read, whose pages make room.
//! - A read that fails is an error of its reader, where a fault of the mapping would end the process.

use super::writing::buffer::AlignedBuffer;
use super::{Journal, JournalState};
use crate::budget::MemoryConsumer;
use crate::error::{Error, Result};
use crate::mapping::PAGE_BYTES;
use crate::offset::PoolOffset;
use crate::stats::PoolStats;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least length of an object that is read directly: the call costs as much as some faults.
const DIRECT_BYTES_MIN: usize = 32 << 10;

/// Counts of direct reads since the pool was opened.
#[derive(Debug, Default)]
pub(super) struct DirectReads {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl DirectReads {
    pub(super) fn add_stats(&self, stats: &mut PoolStats) {
        stats.direct_reads += self.reads.load(Ordering::Relaxed);
        stats.direct_read_bytes += self.bytes.load(Ordering::Relaxed);
    }
}

impl Journal {
    /// See [`crate::Pool::read_direct`].
    pub(crate) fn read_direct<R>(
        &self,
        offset: PoolOffset,
        bytes: usize,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.shared.read_direct(offset, bytes, f)
    }
}

impl JournalState {
    fn read_direct<R>(
        &self,
        offset: PoolOffset,
        bytes: usize,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let may_read = bytes >= DIRECT_BYTES_MIN && self.residency.is_some() && self.pages_file.is_direct();
        let Some(memory) = self.memory.as_ref().filter(|_| may_read) else { return Ok(None) };
        let pages = offset.bytes() / PAGE_BYTES..(offset.bytes() + bytes as u64).div_ceil(PAGE_BYTES);
        let (start, length) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
        if 2 * self.mapping.resident_pages(start, length) > pages.end - pages.start
            || !pages.clone().all(|page| self.dirty.is_clean(page))
        {
            return Ok(None);
        }
        let Ok(_reserved) = memory.try_reserve(MemoryConsumer::JournalBuffers, length) else {
            return Ok(None);
        };
        let mut buffer = AlignedBuffer::new(length as usize);
        let read = self.pages_file.read_at(buffer.bytes_mut(), start);
        read.map_err(|error| Error::io("read", &self.pool_path, &error))?;
        self.direct_reads.reads.fetch_add(1, Ordering::Relaxed);
        self.direct_reads.bytes.fetch_add(length, Ordering::Relaxed);
        let first = (offset.bytes() - start) as usize;
        Ok(Some(f(&buffer.bytes()[first..first + bytes])))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::budget::MemoryBudget;
    use crate::env::{CallFailure, Env, FailingFiles, FileOperation, Files, OpenMode, RealFiles};
    use crate::{DomainChoice, Durability, Pool, PoolOptions};
    use std::path::Path;
    use std::sync::Arc;
    use tempfile::TempDir;

    const OBJECT_BYTES: usize = 300_000;

    fn value(word: usize) -> u64 {
        (word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn make_object(pool: &Pool) -> PoolOffset {
        let object = pool.reserve(OBJECT_BYTES).unwrap();
        let at = object.offset();
        let words = pool.words(at, OBJECT_BYTES / 8).iter().enumerate();
        words.for_each(|(number, word)| word.store(value(number), Ordering::Relaxed));
        let mut publication = pool.publication();
        publication.flush(at, OBJECT_BYTES);
        let at = publication.allocate(object);
        publication.publish().unwrap();
        pool.persist(Durability::Sync).unwrap();
        at
    }

    fn is_right(bytes: &[u8]) -> bool {
        let (words, rest) = bytes.as_chunks::<8>();
        rest.is_empty() && words.iter().enumerate().all(|(at, word)| u64::from_le_bytes(*word) == value(at))
    }

    /// Takes the pool file out of the system's page cache.
    fn drop_cached(dir: &Path) {
        let file = RealFiles.open(&dir.join("pool.entresol"), OpenMode::Open).unwrap();
        file.forget_cached().unwrap();
    }

    /// Pool that was opened again, with an object of which nothing is in memory; none where the file system of the
    /// directory keeps files in memory, or refuses direct I/O.
    fn reopened(dir: &Path, files: Arc<dyn Files>) -> (Arc<Pool>, PoolOffset) {
        let memory = MemoryBudget::new(256 << 20).unwrap();
        let domain = DomainChoice::Journal;
        let options = PoolOptions { domain, memory: Some(memory), ..PoolOptions::default() };
        let pool = Pool::create(dir, &options).unwrap();
        let at = make_object(&pool);
        pool.close().unwrap();
        drop(pool);
        let options = PoolOptions { env: Env::real().with_files(files), ..options };
        drop_cached(dir);
        let pool = Pool::open(dir, &options).unwrap();
        drop_cached(dir);
        (pool, at)
    }

    #[test]
    fn an_object_on_the_disk_is_read_past_the_mapping_and_one_in_memory_is_not() {
        let dir = TempDir::new().unwrap();
        let (pool, at) = reopened(dir.path(), Arc::new(RealFiles));
        let Some(right) = pool.read_direct(at, OBJECT_BYTES, is_right).unwrap() else {
            return eprintln!("skipped: no direct I/O in {}", dir.path().display());
        };
        assert!(right);
        let stats = pool.stats();
        assert_eq!(stats.direct_reads, 1);
        assert!(stats.direct_read_bytes >= OBJECT_BYTES as u64);
        assert_eq!(pool.read_direct(at, DIRECT_BYTES_MIN - 8, is_right).unwrap(), None, "a short object");
        // Words of the mapping bring their pages into memory.
        pool.words(at, OBJECT_BYTES / 8).iter().for_each(|word| assert_ne!(word.load(Ordering::Relaxed), 1));
        assert_eq!(pool.read_direct(at, OBJECT_BYTES, is_right).unwrap(), None, "an object in memory");
        assert_eq!(pool.stats().direct_reads, 1);
    }

    #[test]
    fn an_object_with_changes_that_the_file_does_not_have_is_not_read_from_it() {
        let dir = TempDir::new().unwrap();
        let (pool, at) = reopened(dir.path(), Arc::new(RealFiles));
        let last = at.plus(OBJECT_BYTES as u64 / 16 * 8);
        pool.word(last).store(7, Ordering::Relaxed);
        pool.flush(last, 8);
        pool.fence();
        pool.persist(Durability::Sync).unwrap();
        assert_eq!(pool.read_direct(at, OBJECT_BYTES, is_right).unwrap(), None);
        pool.checkpoint().unwrap();
        drop_cached(dir.path());
        if let Some(found) = pool.read_direct(at, OBJECT_BYTES, |bytes| bytes.to_vec()).unwrap() {
            let word = OBJECT_BYTES / 16 * 8;
            assert_eq!(found[word..word + 8], 7_u64.to_le_bytes());
        }
    }

    #[test]
    fn a_read_that_fails_is_an_error_and_the_next_one_succeeds() {
        let dir = TempDir::new().unwrap();
        let files = FailingFiles::new();
        let (pool, at) = reopened(dir.path(), Arc::new(files.clone()));
        if pool.read_direct(at, OBJECT_BYTES, is_right).unwrap().is_none() {
            return eprintln!("skipped: no direct I/O in {}", dir.path().display());
        }
        files.fail(files.calls() + 1, CallFailure::Io);
        let error = pool.read_direct(at, OBJECT_BYTES, is_right).unwrap_err().to_string();
        assert!(error.contains("read") && error.contains("pool.entresol"), "{error}");
        assert_eq!(files.failed().map(|(operation, _)| operation), Some(FileOperation::Read));
        assert_eq!(pool.read_direct(at, OBJECT_BYTES, is_right).unwrap(), Some(true));
    }
}
