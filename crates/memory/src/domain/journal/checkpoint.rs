//! Checkpoints: changed pages go to the pool file, the journal before them is recycled.
//!
//! 1. The buffer is written out; the position then is P, a frame boundary.
//! 2. The dirty marks are taken, under the append lock: all that was appended before P is in the marked pages,
//!    and no mark is taken whose store is still to come.
//! 3. Batch by batch: pages are copied; the journal is made durable up to what is appended after the copy; the
//!    batch is written to the pool file. "Appended" is read under the append lock: the copy may have seen some
//!    stores of a publication that was under way, and must wait for its record.
//! 4. The pool file is synced, then the checksums of the pages; the journal's header moves the replay position to P and is synced; slots before
//!    P are free.
//!
//! A crash before the header counts replays from the previous position, which heals whatever was written.
//! Writers never wait for a checkpoint's I/O, only for the append lock in step 1.

use super::Shared;
use super::buffer::AlignedBuffer;
use super::dirty::PAGE_BYTES;
use crate::error::{Error, Result};
use crate::mutants;
use std::sync::atomic::Ordering;

/// Bytes of pages copied between two syncs of the journal.
const BATCH_BYTES: usize = 8 << 20;

impl Shared {
    /// Brings the pool file up to date with all that was appended before the call.
    pub(super) fn checkpoint(&self) -> Result<()> {
        let _alone = self.checkpointing.lock();
        let position = self.write_out()?;
        let stored = self.stored_bytes.load(Ordering::Acquire);
        let pages = self.dirty.take(self.mapping.mapped_bytes(), |work| {
            let _held = self.active.lock();
            work();
        });
        let outcome = self.copy_pages(&pages).and_then(|()| self.finish_checkpoint(position));
        let bytes = pages.len() as u64 * PAGE_BYTES;
        match outcome {
            Ok(()) => {
                self.stored_from.store(stored, Ordering::Release);
                self.checkpoints.fetch_add(1, Ordering::Relaxed);
                self.checkpoint_bytes.fetch_add(bytes, Ordering::Relaxed);
                let _held = self.room_lock.lock();
                self.room.notify_all();
                Ok(())
            }
            // The pool file may now hold part of the pages and the marks are gone: latch.
            Err(error) => Err(self.fail(error)),
        }
    }

    fn copy_pages(&self, pages: &[u32]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let batch_pages = (BATCH_BYTES as u64 / PAGE_BYTES) as usize;
        let mut buffer = AlignedBuffer::new(pages.len().min(batch_pages) * PAGE_BYTES as usize);
        for batch in pages.chunks(batch_pages) {
            for (page, to) in batch.iter().zip(buffer.words_mut().chunks_exact_mut(PAGE_BYTES as usize / 8)) {
                let from = self.mapping.words(u64::from(*page) * PAGE_BYTES, to.len());
                for (to, from) in to.iter_mut().zip(from) {
                    *to = from.load(Ordering::Acquire);
                }
            }
            let appended = {
                let _held = self.active.lock();
                self.appended.load(Ordering::Acquire)
            };
            if !mutants::active("checkpoint-ahead-of-journal") {
                self.sync_to(appended)?;
            }
            self.checksums.before_write(batch)?;
            self.write_runs(batch, buffer.bytes())?;
            self.checksums.note(batch, buffer.bytes());
        }
        Ok(())
    }

    /// Writes the copied pages, neighbours in one call.
    fn write_runs(&self, pages: &[u32], copies: &[u8]) -> Result<()> {
        let mut start = 0;
        while start < pages.len() {
            let mut end = start + 1;
            while end < pages.len() && pages[end] == pages[end - 1] + 1 {
                end += 1;
            }
            let bytes = &copies[start * PAGE_BYTES as usize..end * PAGE_BYTES as usize];
            self.pool_file
                .write_at(bytes, u64::from(pages[start]) * PAGE_BYTES)
                .map_err(|e| Error::io("write to", &self.pool_path, &e))?;
            start = end;
        }
        Ok(())
    }

    fn finish_checkpoint(&self, position: u64) -> Result<()> {
        if !mutants::active("header-before-pool-sync") {
            self.pool_file.sync_data().map_err(|e| Error::io("sync", &self.pool_path, &e))?;
        }
        self.checksums.commit(position)?;
        // The replay position must never lie beyond what is durable.
        self.sync_to(position)?;
        self.writer.lock().log.advance_replay(position)?;
        self.replay_from.store(position, Ordering::Release);
        Ok(())
    }
}
