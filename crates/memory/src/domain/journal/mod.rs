//! Persistence on any file system: a redo journal over a private mapping.
//!
//! The pool file is mapped copy-on-write, so a store changes DRAM only. A flush appends the flushed words to
//! the journal's buffer, in order, under one short lock; the buffer goes to the journal file as a frame; a
//! checkpoint copies changed pages to the pool file and lets the journal be recycled.
//!
//! Invariants:
//!
//! 1. *Order.* Records are in the order of their flushes, and a record holds every store that was flushed
//!    before it. Both are read and placed under the same lock. So any prefix of the journal, replayed over the
//!    last checkpoint, is a legal state of persistent memory.
//! 2. *Write ahead.* A page goes to the pool file only after the journal is durable up to what had been
//!    appended when the page was copied. The copy may hold stores that were not flushed yet; that is the same
//!    as a cache evicting a line.
//! 3. *Nothing cut is needed.* A record, the dirty mark of its page and, for a publication, its stores happen
//!    under the append lock, and marks are taken under it; so a checkpoint that takes the marks after noting
//!    position P finds in the pages all that was appended before P.
//! 4. *Torn pages heal.* A page torn by a crash in a checkpoint differs from a whole one only in words that
//!    the journal since the last complete checkpoint carries (or that were never flushed).
//! 5. *Latch.* After a failed write or sync nothing is appended any more and every persist fails: an
//!    operating system that dropped pages after an error must not be trusted with a later "ok".
//!
//! Memory: two buffers of [`BUFFER_BYTES_MAX`], one checkpoint buffer, a bit per page of the address range.
//! The journal file is bounded by [`JournalOptions::journal_bytes_max`] plus two buffers: appenders wait for a
//! checkpoint beyond it.

mod background;
pub(crate) mod buffer;
mod checkpoint;
mod checksums;
pub(crate) mod copy;
mod dirty;
mod frame;
mod info;
mod log;
mod recovery;

use crate::durability::Durability;
use crate::env::{Env, OpenMode, StorageFile};
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::mutants;
use crate::publication::{Operation, Update};
use crate::spin::SpinLock;
use crate::stats::PoolStats;
pub use checksums::PagesReport;
pub use info::JournalInfo;

use crate::layout::CHECKSUMS_FILE;
use background::Background;
use buffer::AlignedBuffer;
use checksums::{ChecksumParts, Checksums};
use dirty::DirtyPages;
use frame::{FRAME_HEADER_WORDS, RECORD_WORDS_MAX, record_head};
use log::Log;
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The largest journal buffer; there are two.
const BUFFER_BYTES_MAX: usize = 2 << 20;
const SLOT_BYTES_MIN: u64 = 64 << 10;
const SLOT_BYTES_MAX: u64 = 1 << 30;

/// Sizes of the journal.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    /// Bytes of one slot of the journal file, the unit of recycling. At least 64 KiB.
    pub slot_bytes: u64,
    /// A checkpoint starts when so many bytes would have to be replayed. Bounds recovery time.
    pub checkpoint_bytes: u64,
    /// Writers wait for the checkpoint when so many bytes would have to be replayed.
    pub journal_bytes_max: u64,
    /// Slots that are made when the pool is created.
    pub preallocated_slots: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            slot_bytes: 8 << 20,
            checkpoint_bytes: 64 << 20,
            journal_bytes_max: 256 << 20,
            preallocated_slots: 4,
        }
    }
}

impl JournalOptions {
    pub(crate) fn validate(&self) -> Result<()> {
        let in_range = (SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&self.slot_bytes);
        if !in_range || !self.slot_bytes.is_multiple_of(4096) {
            return Err(Error::Invalid(format!(
                "journal slot_bytes is {}; it must be a multiple of 4096 from {SLOT_BYTES_MIN} to {SLOT_BYTES_MAX}",
                self.slot_bytes
            )));
        }
        if self.checkpoint_bytes == 0 || self.journal_bytes_max < self.checkpoint_bytes {
            return Err(Error::Invalid(format!(
                "journal_bytes_max ({}) must be at least checkpoint_bytes ({}), and both above 0",
                self.journal_bytes_max, self.checkpoint_bytes
            )));
        }
        Ok(())
    }
}

/// The buffer that is being appended to.
struct Active {
    buffer: AlignedBuffer,
    payload_words: usize,
    payload_words_max: usize,
    flushes: u64,
}

/// The journal file and the spare buffer; whoever holds it writes.
struct Writer {
    log: Log,
    spare: AlignedBuffer,
}

struct Shared {
    mapping: Arc<Mapping>,
    pool_file: Arc<dyn StorageFile>,
    pool_path: std::path::PathBuf,
    options: JournalOptions,
    active: SpinLock<Active>,
    writer: Mutex<Writer>,
    dirty: DirtyPages,
    checksums: Checksums,
    /// One checkpoint at a time.
    checkpointing: Mutex<()>,
    appended: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    replay_from: AtomicU64,
    /// Bytes of frames written since open, with headers and padding, and what that was at the replay position.
    stored_bytes: AtomicU64,
    stored_from: AtomicU64,
    /// The most words that one append takes: half a buffer, so that it fits after at most one write.
    append_words_max: usize,
    failure: OnceLock<Error>,
    closed: AtomicBool,
    background: Background,
    /// Signalled when a checkpoint has moved `replay_from`, or the journal has failed.
    room: Condvar,
    room_lock: Mutex<()>,
    syncs: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_bytes: AtomicU64,
    opened_at: u64,
    replayed_bytes: u64,
}

/// The journal of an open pool. Dropping it writes and syncs what is buffered, without a checkpoint.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// What a journal is opened on.
pub(crate) struct JournalParts {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) pool_file: Arc<dyn StorageFile>,
    pub(crate) pool_path: std::path::PathBuf,
    pub(crate) options: JournalOptions,
}

impl Journal {
    /// Makes an empty journal, under a temporary name until it is whole.
    pub(crate) fn create(parts: JournalParts, path: &Path, uuid: [u64; 2], env: &Env) -> Result<Journal> {
        let io = |e: &std::io::Error| Error::io("create", path, e);
        let unfinished = path.with_extension("new");
        if env.files().exists(&unfinished) {
            env.files().remove(&unfinished).map_err(|e| io(&e))?;
        }
        drop(env.files().open(&unfinished, OpenMode::Create).map_err(|e| io(&e))?);
        let file = env.files().open(&unfinished, OpenMode::OpenDirect).map_err(|e| io(&e))?;
        let slots = parts.options.preallocated_slots.max(1);
        let log = Log::create(file, path, uuid, parts.options.slot_bytes, slots)?;
        env.files().rename(&unfinished, path).map_err(|e| io(&e))?;
        let dirty = dirty_pages(&parts)?;
        Journal::start(parts, log, 0, 0, dirty, env)
    }

    /// Opens the journal and replays it into the mapping.
    pub(crate) fn open(parts: JournalParts, path: &Path, uuid: [u64; 2], env: &Env) -> Result<Journal> {
        let file = env.files().open(path, OpenMode::OpenDirect).map_err(|e| Error::io("open", path, &e))?;
        let mapping = parts.mapping.clone();
        let dirty = dirty_pages(&parts)?;
        let mapped = mapping.mapped_bytes();
        let (log, recovered) = Log::recover(file, path, uuid, |offset, words| {
            let bytes = words.len() as u64 * 8;
            if offset.checked_add(bytes).is_none_or(|end| end > mapped) {
                let what = format!("a record reaches byte {offset} (+{bytes}) of a pool of {mapped} bytes");
                return Err(Error::corrupt(path, 0, what));
            }
            for (word, value) in mapping.words(offset, words.len()).iter().zip(words) {
                word.store(*value, Ordering::Relaxed);
            }
            if !mutants::active("replay-not-marked") {
                dirty.mark(offset, bytes);
            }
            Ok(())
        })?;
        Journal::start(parts, log, recovered.end_lsn, recovered.replayed_bytes, dirty, env)
    }

    fn start(
        parts: JournalParts,
        log: Log,
        end_lsn: u64,
        replayed_bytes: u64,
        dirty: DirtyPages,
        env: &Env,
    ) -> Result<Journal> {
        let payload_bytes = log.payload_bytes_max().min(BUFFER_BYTES_MAX - FRAME_HEADER_WORDS * 8);
        let buffer = || AlignedBuffer::new(payload_bytes + FRAME_HEADER_WORDS * 8);
        let replay_from = log.header.replay_lsn;
        let checksum_parts = ChecksumParts {
            path: &parts.pool_path.with_file_name(CHECKSUMS_FILE),
            uuid: log.header.uuid,
            pool_file: parts.pool_file.clone(),
            pool_path: &parts.pool_path,
            position: replay_from,
            replayed: dirty.marked(parts.mapping.mapped_bytes()),
            capacity_bytes: parts.mapping.capacity_bytes(),
        };
        let checksums = Checksums::open_or_create(checksum_parts, env)?;
        let shared = Arc::new(Shared {
            dirty,
            checksums,
            mapping: parts.mapping,
            pool_file: parts.pool_file,
            pool_path: parts.pool_path,
            options: parts.options,
            active: SpinLock::new(Active {
                buffer: buffer(),
                payload_words: 0,
                payload_words_max: payload_bytes / 8,
                flushes: 0,
            }),
            writer: Mutex::new(Writer { log, spare: buffer() }),
            checkpointing: Mutex::new(()),
            appended: AtomicU64::new(end_lsn),
            written: AtomicU64::new(end_lsn),
            durable: AtomicU64::new(end_lsn),
            replay_from: AtomicU64::new(replay_from),
            stored_bytes: AtomicU64::new(0),
            stored_from: AtomicU64::new(0),
            append_words_max: (payload_bytes / 16).min(RECORD_WORDS_MAX),
            failure: OnceLock::new(),
            closed: AtomicBool::new(false),
            background: Background::default(),
            room: Condvar::new(),
            room_lock: Mutex::new(()),
            syncs: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            checkpoint_bytes: AtomicU64::new(0),
            opened_at: end_lsn,
            replayed_bytes,
        });
        let threads = background::start(&shared, env)?;
        Ok(Journal { shared, threads })
    }

    /// Appends the words of the ranges, each longest as a record allows.
    #[inline]
    pub(crate) fn flush(&self, ranges: &[(u64, usize)]) {
        self.shared.flush(ranges);
    }

    /// Appends the updates as records of one frame, then carries them out.
    pub(crate) fn publish(&self, writes: &[(u64, u64)], updates: &[Update]) {
        self.shared.publish(writes, updates);
    }

    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        let shared = &self.shared;
        shared.check_healthy()?;
        match durability {
            Durability::Sync => shared.sync_to(shared.appended.load(Ordering::Acquire)),
            Durability::Group { interval_ms } => {
                shared.background.arm_sync(interval_ms);
                Ok(())
            }
            Durability::None => {
                shared.background.arm_write();
                Ok(())
            }
        }
    }

    pub(crate) fn check_healthy(&self) -> Result<()> {
        self.shared.check_healthy()
    }

    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint()
    }

    /// Makes a last checkpoint, notes that nothing has to be replayed, and refuses all further appends.
    pub(crate) fn close(&self) -> Result<()> {
        let shared = &self.shared;
        if mutants::active("closed-before-checkpoint") {
            shared.writer.lock().log.mark_closed()?;
        }
        shared.checkpoint()?;
        shared.closed.store(true, Ordering::SeqCst);
        let mut writer = shared.writer.lock();
        let appended = shared.appended.load(Ordering::Acquire);
        if writer.log.header.replay_lsn == appended {
            writer.log.mark_closed().map_err(|error| shared.fail(error))?;
        }
        Ok(())
    }

    /// Copies the journal, its pool file and the checksums; see [`copy`].
    pub(crate) fn copy_to(&self, targets: &copy::Targets<'_>) -> Result<copy::Copied> {
        self.shared.copy_to(targets)
    }

    /// Verifies the pages of a range of the pool file, once; see [`checksums`].
    pub(crate) fn verify(&self, offset: u64, bytes: u64) -> Result<()> {
        self.shared.checksums.verify(offset, bytes)
    }

    /// Verifies all pages of the pool file; checkpoints pause.
    pub(crate) fn verify_pages(&self, progress: impl FnMut(u64)) -> Result<PagesReport> {
        let _paused = self.shared.checkpointing.lock();
        self.shared.checksums.verify_all(progress)
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        let shared = &self.shared;
        let appended = shared.appended.load(Ordering::Relaxed);
        stats.journal_bytes += appended.saturating_sub(shared.replay_from.load(Ordering::Relaxed));
        stats.journal_appended_bytes += appended - shared.opened_at;
        stats.checkpoints += shared.checkpoints.load(Ordering::Relaxed);
        stats.checkpoint_bytes += shared.checkpoint_bytes.load(Ordering::Relaxed);
        stats.syncs += shared.syncs.load(Ordering::Relaxed);
        stats.flushes += shared.active.lock().flushes;
        stats.replayed_bytes += shared.replayed_bytes;
    }
}

fn dirty_pages(parts: &JournalParts) -> Result<DirtyPages> {
    DirtyPages::new(parts.mapping.capacity_bytes())
        .map_err(|e| Error::OutOfSpace { what: format!("map the marks of changed pages: {e}") })
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.background.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a journal thread panicked");
            }
        }
        let appended = self.shared.appended.load(Ordering::Acquire);
        if self.shared.failure.get().is_none()
            && let Err(error) = self.shared.sync_to(appended)
        {
            tracing::warn!(%error, "the journal's last records could not be written");
        }
    }
}

impl Shared {
    fn check_healthy(&self) -> Result<()> {
        if let Some(cause) = self.failure.get() {
            return Err(Error::Failed { cause: cause.to_string() });
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Latches the first failure and wakes all who wait; returns the error.
    fn fail(&self, error: Error) -> Error {
        if self.failure.set(error.clone()).is_ok() {
            tracing::error!(%error, "the journal failed; the database is read-only from now on");
        }
        let _held = self.room_lock.lock();
        self.room.notify_all();
        error
    }

    /// Bytes that a recovery would replay.
    fn backlog_bytes(&self) -> u64 {
        let since = |to: &AtomicU64, from: &AtomicU64| {
            to.load(Ordering::Relaxed).saturating_sub(from.load(Ordering::Relaxed))
        };
        // Small syncs store many more bytes than they append.
        since(&self.appended, &self.replay_from).max(since(&self.stored_bytes, &self.stored_from))
    }

    #[inline]
    fn flush(&self, ranges: &[(u64, usize)]) {
        let words: usize = ranges.iter().map(|(_, bytes)| bytes / 8 + 1).sum();
        if words > self.append_words_max {
            return self.flush_large(ranges);
        }
        // Panics here on an offset outside the pool, not under the lock.
        ranges.iter().for_each(|(offset, bytes)| self.mapping.assert_mapped(*offset, bytes / 8));
        self.append(words, |active, at| {
            active.flushes += ranges.len() as u64;
            let mut rest = &mut active.buffer.words_mut()[FRAME_HEADER_WORDS + at..];
            for &(offset, bytes) in ranges {
                let count = bytes / 8;
                self.dirty.mark(offset, bytes as u64);
                rest[0] = record_head(offset, count);
                let source = self.mapping.words(offset, count);
                for (to, from) in rest[1..=count].iter_mut().zip(source) {
                    *to = from.load(Ordering::Acquire);
                }
                rest = &mut rest[count + 1..];
            }
        });
    }

    /// Flushes ranges that need several appends: allowed, since a flush of many words is not atomic.
    #[cold]
    fn flush_large(&self, ranges: &[(u64, usize)]) {
        let step = (self.append_words_max - 1) * 8;
        for &(offset, bytes) in ranges {
            let mut done = 0;
            while done < bytes {
                let part = step.min(bytes - done);
                self.flush(&[(offset + done as u64, part)]);
                done += part;
            }
        }
    }

    /// Stores and flushes writes that are too many for one append. They need not be atomic, only come before
    /// the updates.
    #[cold]
    fn write_large(&self, writes: &[(u64, u64)]) {
        for part in writes.chunks(self.append_words_max / 2) {
            for run in super::runs(part) {
                let words = self.mapping.words(run[0].0, run.len());
                words.iter().zip(run).for_each(|(word, (_, value))| word.store(*value, Ordering::Relaxed));
                self.flush(&[(run[0].0, run.len() * 8)]);
            }
        }
    }

    fn publish(&self, writes: &[(u64, u64)], updates: &[Update]) {
        let mut writes = writes;
        if writes.len() * 2 + updates.len() * 2 > self.append_words_max {
            self.write_large(writes);
            writes = &[];
        }
        // Panics here on an offset outside the pool, not under the lock.
        writes.iter().for_each(|(offset, _)| self.mapping.assert_mapped(*offset, 1));
        updates.iter().for_each(|update| self.mapping.assert_mapped(update.offset, 1));
        let runs = super::runs(writes).count();
        let appended = self.append(runs + writes.len() + updates.len() * 2, |active, at| {
            active.flushes += runs as u64;
            let mut rest = &mut active.buffer.words_mut()[FRAME_HEADER_WORDS + at..];
            for run in super::runs(writes) {
                self.dirty.mark(run[0].0, run.len() as u64 * 8);
                let words = self.mapping.words(run[0].0, run.len());
                rest[0] = record_head(run[0].0, run.len());
                for ((record, word), (_, value)) in rest[1..].iter_mut().zip(words).zip(run) {
                    *record = *value;
                    word.store(*value, Ordering::Relaxed);
                }
                rest = &mut rest[run.len() + 1..];
            }
            for (update, record) in updates.iter().zip(rest.chunks_exact_mut(2)) {
                if !mutants::active("publication-not-marked") {
                    self.dirty.mark(update.offset, 8);
                }
                let word = &self.mapping.words(update.offset, 1)[0];
                let value = match update.operation {
                    Operation::Set => update.value,
                    Operation::SetBits => word.load(Ordering::Acquire) | update.value,
                    Operation::ClearBits => word.load(Ordering::Acquire) & !update.value,
                };
                record[0] = record_head(update.offset, 1);
                record[1] = value;
                word.store(value, Ordering::Release);
            }
        });
        if !appended {
            // The journal has failed. What is in DRAM stays consistent for readers; it never becomes durable.
            for (offset, value) in writes {
                self.mapping.words(*offset, 1)[0].store(*value, Ordering::Relaxed);
            }
            updates.iter().for_each(|update| update.apply(&self.mapping));
        }
    }

    /// Makes room for `words` in the buffer and lets `fill` write them, all under the append lock. False if
    /// the journal has failed.
    #[inline]
    fn append(&self, words: usize, fill: impl FnOnce(&mut Active, usize)) -> bool {
        assert!(
            words <= self.append_words_max,
            "an append of {words} words does not fit the journal's buffer"
        );
        loop {
            let backlog = self.backlog_bytes();
            if backlog >= self.options.checkpoint_bytes {
                self.background.request_checkpoint();
                if backlog >= self.options.journal_bytes_max {
                    self.wait_for_room();
                }
            }
            if self.failure.get().is_some() {
                return false;
            }
            let mut active = self.active.lock();
            let at = active.payload_words;
            if at + words <= active.payload_words_max {
                fill(&mut active, at);
                active.payload_words += words;
                // Under the lock, so that positions and buffer contents never disagree.
                let before = self.appended.load(Ordering::Relaxed);
                self.appended.store(before + words as u64 * 8, Ordering::Release);
                let half_full = active.payload_words * 2 > active.payload_words_max;
                drop(active);
                if half_full {
                    self.background.request_write();
                }
                return true;
            }
            drop(active);
            if self.write_out().is_err() {
                return false;
            }
        }
    }

    /// Waits until a checkpoint has made room, or the journal has failed.
    #[cold]
    fn wait_for_room(&self) {
        let mut held = self.room_lock.lock();
        while self.backlog_bytes() >= self.options.journal_bytes_max && self.failure.get().is_none() {
            self.background.request_checkpoint();
            self.room.wait_for(&mut held, std::time::Duration::from_millis(100));
        }
    }

    /// Writes the buffer to the file as a frame; returns the position that is then written.
    fn write_out(&self) -> Result<u64> {
        let mut writer = self.writer.lock();
        self.write_out_locked(&mut writer)
    }

    fn write_out_locked(&self, writer: &mut Writer) -> Result<u64> {
        self.failure.get().map_or(Ok(()), |cause| Err(Error::Failed { cause: cause.to_string() }))?;
        let payload_words = {
            let mut active = self.active.lock();
            std::mem::swap(&mut active.buffer, &mut writer.spare);
            std::mem::take(&mut active.payload_words)
        };
        let start = self.written.load(Ordering::Relaxed);
        if payload_words == 0 {
            return Ok(start);
        }
        let durable = self.durable.load(Ordering::Relaxed);
        writer
            .log
            .write_frame(&mut writer.spare, payload_words, start, durable)
            .map_err(|error| self.fail(error))?;
        let stored = frame::stored_bytes(payload_words * 8) as u64;
        self.stored_bytes.fetch_add(stored, Ordering::AcqRel);
        let end = start + payload_words as u64 * 8;
        self.written.store(end, Ordering::Release);
        Ok(end)
    }

    /// Makes the journal durable up to a position. Callers that wait together share one sync.
    fn sync_to(&self, lsn: u64) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= lsn {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        if self.durable.load(Ordering::Acquire) >= lsn {
            return Ok(());
        }
        let end = self.write_out_locked(&mut writer)?;
        writer.log.sync().map_err(|error| self.fail(error))?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.durable.fetch_max(end, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
