//! Reading slots ahead of the replay, and getting their pages ready.
//!
//! While one slot is replayed, a second thread reads the slot that will probably come next, determines the
//! pages that its records touch, and requests them: all are read at once and faulted in here, where the
//! replay would wait for one after the other. The records are not verified yet; garbage costs a useless read
//! at most.
//!
//! Slots of less than 1 MiB are read one by one, without a thread.
//!
//! Memory: two buffers of a slot; two bits for each page that is touched.

use crate::domain::journal::checkpoint::dirty::DirtyPages;
use crate::domain::journal::position::JournalPosition;
use crate::domain::journal::writing::buffer::AlignedBuffer;
use crate::domain::journal::writing::frame::{BLOCK_BYTES, FRAME_HEADER_WORDS, FrameHeader, for_each_record};
use crate::env::StorageFile;
use crate::error::{Error, Result};
use crate::mapping::{Mapping, PAGE_BYTES};
use crate::offset::PoolOffset;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

/// Pages so close together are read in one request.
const GAP_PAGES_MAX: u64 = 8;
/// Maximum number of pages requested together.
const PAGES_AT_ONCE: usize = 16 << 10;
/// Minimum size of slots that are read ahead.
const SLOT_BYTES_MIN: usize = 1 << 20;

/// Set of pages that have been requested.
struct ReadAhead<'m> {
    mapping: &'m Mapping,
    wanted: DirtyPages,
    asked: DirtyPages,
}

impl<'m> ReadAhead<'m> {
    fn new(mapping: &'m Mapping) -> Result<ReadAhead<'m>> {
        let marks = || {
            DirtyPages::new(mapping.capacity_bytes())
                .map_err(|e| Error::OutOfSpace { what: format!("map the marks of pages to read: {e}") })
        };
        Ok(ReadAhead { mapping, wanted: marks()?, asked: marks()? })
    }

    /// Requests the pages that the frames of a slot from a position on touch. Those before are in the pool
    /// file, and so is what an earlier use of the slot left behind its last frame.
    fn ask_for_pages(&self, slot: &[u64], from_lsn: JournalPosition) {
        let end_bytes = self.mapping.mapped_bytes();
        let mut at = BLOCK_BYTES / 8;
        while let Some(frame) = slot.get(at..).and_then(FrameHeader::decode) {
            let payload = at + FRAME_HEADER_WORDS..at + FRAME_HEADER_WORDS + frame.payload_bytes as usize / 8;
            let Some(payload) = slot.get(payload) else { break };
            at += frame.stored_bytes() / 8;
            if frame.lsn < from_lsn {
                continue;
            }
            let want = |offset: PoolOffset, words: &[u64]| {
                let bytes = words.len() as u64 * 8;
                if offset.plus(bytes).bytes() <= end_bytes && !self.asked.has(offset, bytes) {
                    self.wanted.mark(offset, bytes);
                }
            };
            // The replay reports damage of a record.
            let _ = for_each_record(payload, want);
        }
        let mut from = 0;
        loop {
            let pages = self.wanted.take(&mut from, end_bytes, PAGES_AT_ONCE, |work| work());
            if pages.is_empty() {
                return;
            }
            let near = |page: &u32, next: &u32| u64::from(*next) - u64::from(*page) <= GAP_PAGES_MAX;
            let (next_to, bytes_of) = (
                |page: &u32, next: &u32| page + 1 == *next,
                |run: &[u32]| (u64::from(run[run.len() - 1] - run[0]) + 1) * PAGE_BYTES,
            );
            for run in pages.chunk_by(near) {
                self.mapping.read_ahead(u64::from(run[0]) * PAGE_BYTES, bytes_of(run));
            }
            for run in pages.chunk_by(next_to) {
                let offset = u64::from(run[0]) * PAGE_BYTES;
                self.mapping.populate(offset, bytes_of(run));
                self.asked.mark(PoolOffset::new(offset), bytes_of(run));
            }
        }
    }
}

struct ReadSlot {
    slot: usize,
    buffer: AlignedBuffer,
    outcome: io::Result<()>,
}

/// Reader of a journal's slots into buffers; an announced slot is read in the background.
pub(crate) struct SlotReader<'s> {
    requests: Option<Sender<(usize, AlignedBuffer)>>,
    answers: Receiver<ReadSlot>,
    under_way: Option<usize>,
    spare: Option<AlignedBuffer>,
    file: &'s dyn StorageFile,
    offset_of: &'s (dyn Fn(usize) -> u64 + Sync),
}

impl<'s> SlotReader<'s> {
    pub(crate) fn start<'e>(
        scope: &'s Scope<'s, 'e>,
        file: &'s dyn StorageFile,
        slot_bytes: usize,
        offset_of: &'s (dyn Fn(usize) -> u64 + Sync),
        mapping: &'s Mapping,
        from_lsn: JournalPosition,
    ) -> Result<SlotReader<'s>> {
        let (answer, answers) = channel();
        if slot_bytes < SLOT_BYTES_MIN {
            return Ok(SlotReader { requests: None, answers, under_way: None, spare: None, file, offset_of });
        }
        let (requests, asked) = channel::<(usize, AlignedBuffer)>();
        let ahead = ReadAhead::new(mapping)?;
        scope.spawn(move || {
            for (slot, mut buffer) in asked {
                let outcome = file.read_at(&mut buffer.bytes_mut()[..slot_bytes], offset_of(slot));
                if outcome.is_ok() {
                    ahead.ask_for_pages(&buffer.words()[..slot_bytes / 8], from_lsn);
                }
                if answer.send(ReadSlot { slot, buffer, outcome }).is_err() {
                    return;
                }
            }
        });
        let spare = Some(AlignedBuffer::new(slot_bytes));
        Ok(SlotReader { requests: Some(requests), answers, under_way: None, spare, file, offset_of })
    }

    /// Fills the buffer with a slot; takes the announced read if it is of that slot.
    pub(crate) fn read(&mut self, slot: usize, buffer: &mut AlignedBuffer, bytes: usize) -> io::Result<()> {
        assert!(buffer.bytes().len() >= bytes, "the buffer has room for a slot");
        if self.under_way.take().is_some()
            && let Ok(mut read) = self.answers.recv()
        {
            if read.slot == slot && read.outcome.is_ok() {
                std::mem::swap(buffer, &mut read.buffer);
                self.spare = Some(read.buffer);
                return Ok(());
            }
            self.spare = Some(read.buffer);
        }
        self.file.read_at(&mut buffer.bytes_mut()[..bytes], (self.offset_of)(slot))
    }

    /// Announces the slot that will probably be read next.
    pub(crate) fn announce(&mut self, slot: usize) {
        debug_assert!(self.under_way.is_none(), "one slot is read ahead at a time");
        if let (Some(requests), Some(buffer)) = (&self.requests, self.spare.take())
            && requests.send((slot, buffer)).is_ok()
        {
            self.under_way = Some(slot);
        }
    }
}
