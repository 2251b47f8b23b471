//! Checkpoints: changed pages are written to the pool file, and the journal before them is recycled.
//!
//! 1. All that was appended is written out; the position then is P, a frame boundary.
//! 2. Batch by batch:
//!    - the dirty marks of some pages are taken, under the append lock, so no mark is taken whose store is
//!      still to come. Everything appended before P is in marked pages or was taken before, so it is in the
//!      copies;
//!    - the pages are copied, without a lock: appenders never wait for it;
//!    - the journal is made durable up to the end of appends after the copy. That position is read under the
//!      append lock: the copy may have seen some stores of a publication in flight, and must wait for its
//!      record;
//!    - the batch is written to the pool file, many pages at once.
//! 3. The pool file is synced, then the checksums of its pages; the journal's header moves the replay
//!    position to P and is synced; slots before P are free.
//!
//! Marks are taken as late as possible: a page that changes again before its turn is written once for both.
//!
//! A crash before the header is durable replays from the previous position, which repairs all pages written
//! since. Appenders never wait for a checkpoint's I/O, only for the append lock while a line of marks is
//! taken.

pub(crate) mod checksums;
pub(crate) mod dirty;
pub(crate) mod policy;

use super::JournalState;
use super::hook::{self, HookPoint};
use super::position::JournalPosition;
use super::writing::buffer::AlignedBuffer;
use crate::budget::MemoryConsumer;
use crate::error::{Error, Result};
use crate::mapping::PAGE_BYTES;
use crate::order::step;
use crate::placement::WriteSettings;
use crate::points::{PAGES_AFTER_JOURNAL, POSITION_AFTER_PAGES};
use std::sync::atomic::Ordering;

/// Bytes of pages copied between two syncs of the journal.
const BATCH_BYTES: usize = 8 << 20;
/// Marks are taken by the line, so a batch may be this much longer.
const BATCH_PAGES_MAX: usize = BATCH_BYTES / PAGE_BYTES as usize + 512;
/// Longest run of pages that is one write, unless a profile sets another: where many writes are in flight at
/// once, the file splits it further.
const RUN_PAGES_MAX: usize = 256;

impl JournalState {
    /// Brings the pool file up to date with everything appended before the call.
    pub(super) fn checkpoint(&self) -> Result<()> {
        let _alone = self.checkpointing.lock();
        let position = self.write_out()?;
        let stored = self.stored_bytes.load(Ordering::Acquire);
        debug_assert!(
            position >= self.replay_from.load(Ordering::Acquire),
            "a checkpoint begins at or behind the replay position"
        );
        let outcome = self.copy_pages().and_then(|()| self.finish_checkpoint(position));
        self.pages_taken.store(0, Ordering::Relaxed);
        self.groups_taken.store(0, Ordering::Relaxed);
        match outcome {
            Ok(()) => {
                self.dirty.settle(self.mapping.mapped_bytes());
                self.stored_from.store(stored, Ordering::Release);
                self.checkpoints.fetch_add(1, Ordering::Relaxed);
                self.count_maps();
                if self.residency.is_some() {
                    self.background.wake_keeper();
                }
                let _held = self.room_lock.lock();
                self.set_gate();
                self.room.notify_all();
                Ok(())
            }
            // The pool file may now hold part of the pages and the marks are taken: poison the journal.
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Write settings of checkpoints: those of the profile, or defaults that suit most drives.
    pub(super) fn writing(&self) -> WriteSettings {
        let is_parallel = self.pages_file.writes_in_parallel();
        let plain =
            WriteSettings { piece_bytes: RUN_PAGES_MAX * PAGE_BYTES as usize, ..WriteSettings::UNCALIBRATED };
        let how = self.writing.unwrap_or(if is_parallel { WriteSettings::UNCALIBRATED } else { plain });
        WriteSettings { at_once: if is_parallel { how.at_once } else { 1 }, ..how }
    }

    fn copy_pages(&self) -> Result<()> {
        let end_bytes = self.mapping.mapped_bytes();
        let pages_min = BATCH_BYTES / PAGE_BYTES as usize;
        let mut buffer = AlignedBuffer::new(0);
        let mut reserved = self.memory.as_ref().map(|memory| memory.empty(MemoryConsumer::JournalBuffers));
        let mut from = 0;
        loop {
            let pages = self.dirty.take(&mut from, end_bytes, pages_min, |work| {
                let _held = self.appender.active.lock();
                work();
            });
            if pages.is_empty() {
                return Ok(());
            }
            let groups = pages.chunk_by(|page, next| page / 64 == next / 64).count();
            self.pages_taken.fetch_add(pages.len() as u64, Ordering::Relaxed);
            self.groups_taken.fetch_add(groups as u64, Ordering::Relaxed);
            hook::pass(HookPoint::MarksTaken);
            if buffer.bytes().len() < pages.len() * PAGE_BYTES as usize {
                buffer = AlignedBuffer::new(
                    pages.len().next_power_of_two().min(BATCH_PAGES_MAX) * PAGE_BYTES as usize,
                );
                if let Some(reserved) = &mut reserved {
                    reserved.clear();
                    reserved.grow_unchecked(buffer.bytes().len() as u64);
                }
            }
            assert!(
                buffer.bytes().len() >= pages.len() * PAGE_BYTES as usize,
                "the buffer has room for {} pages",
                pages.len()
            );
            debug_assert!(pages.is_sorted(), "pages are copied in order");
            self.copy_batch(&pages, &mut buffer);
            let appended = {
                let _held = self.appender.active.lock();
                self.appender.appended.load(Ordering::Acquire)
            };
            step(PAGES_AFTER_JOURNAL, || self.sync_to(appended))?;
            self.checksums.before_write(&pages)?;
            self.write_runs(&pages, buffer.bytes())?;
            self.checksums.note(&pages, buffer.bytes())?;
            hook::pass(HookPoint::PagesWritten);
        }
    }

    fn copy_batch(&self, pages: &[u32], buffer: &mut AlignedBuffer) {
        for (page, to) in pages.iter().zip(buffer.words_mut().chunks_exact_mut(PAGE_BYTES as usize / 8)) {
            let from = self.mapping.words(u64::from(*page) * PAGE_BYTES, to.len());
            for (to, from) in to.iter_mut().zip(from) {
                *to = from.load(Ordering::Acquire);
            }
        }
    }

    /// Writes the copied pages, neighbours in one write.
    fn write_runs(&self, pages: &[u32], copies: &[u8]) -> Result<()> {
        let mut writes = Vec::new();
        let mut rest = copies;
        let run_pages = self.writing.map_or(RUN_PAGES_MAX, |how| how.piece_bytes / PAGE_BYTES as usize);
        for run in pages.chunk_by(|page, next| page + 1 == *next).flat_map(|run| run.chunks(run_pages)) {
            let (bytes, after) = rest.split_at(run.len() * PAGE_BYTES as usize);
            writes.push((u64::from(run[0]) * PAGE_BYTES, bytes));
            rest = after;
        }
        debug_assert_eq!(
            writes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
            pages.len() * PAGE_BYTES as usize,
            "all pages of the batch are written"
        );
        self.pages_file.write_many(&writes).map_err(|e| Error::io("write to", &self.pool_path, &e))?;
        self.checkpoint_bytes.fetch_add(pages.len() as u64 * PAGE_BYTES, Ordering::Relaxed);
        Ok(())
    }

    fn finish_checkpoint(&self, position: JournalPosition) -> Result<()> {
        assert!(
            position >= self.replay_from.load(Ordering::Acquire),
            "the replay position never goes back: {position}"
        );
        step(POSITION_AFTER_PAGES, || self.pages_file.sync_data())
            .map_err(|e| Error::io("sync", &self.pool_path, &e))?;
        self.checksums.commit(position)?;
        // The replay position must never lie beyond the durable end.
        self.sync_to(position)?;
        // Frames are written meanwhile, to slots that the previous header does not need: only the checkpoint
        // in flight writes a header, and slots are free once it is in force.
        assert!(
            self.durable.load(Ordering::Acquire) >= position,
            "the journal is durable up to {position} before a recovery begins there"
        );
        let header = self.writer.lock().log.header_from(position);
        {
            let _alone = self.syncing.lock();
            self.check_not_failed()?;
            header.write(&*self.journal_file, &self.journal_path).map_err(|error| self.fail(error))?;
        }
        self.writer.lock().log.advance_replay(header);
        self.replay_from.store(position, Ordering::Release);
        Ok(())
    }
}
