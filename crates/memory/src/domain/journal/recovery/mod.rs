//! Recovery: replay of the journal.
//!
//! From the replay LSN on, frames are followed through the slots while each continues the one before. The
//! first that does not is the end: a torn tail is normal, since frames past the last sync may be lost or
//! arrive out of order. Only if a later frame claims that the journal was already durable beyond the end has
//! a durable frame been damaged, and that is an error that names file and offset.

pub(crate) mod read_ahead;

use super::position::JournalPosition;
use super::recovery::read_ahead::SlotReader;
use super::writing::buffer::AlignedBuffer;
use super::writing::frame::{BLOCK_BYTES, FRAME_HEADER_WORDS, FrameHeader, for_each_record, words_crc};
use super::writing::log::{Log, LogHeader, SLOT_MAGIC, SLOTS_START, Slot};
use crate::env::StorageFile;
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::offset::PoolOffset;
use crate::order::{check, value};
use crate::points::{EPOCH_ADVANCES, FRAME_CONTINUES, FRAME_IS_WHOLE, SLOT_CONTINUES};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Summary of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecoverySummary {
    /// Position at which the journal goes on.
    pub(crate) end_lsn: JournalPosition,
    /// Payload bytes replayed.
    pub(crate) replayed_bytes: u64,
    /// Bytes of frames read for it, with headers and padding.
    pub(crate) stored_bytes: u64,
    /// Duration in nanoseconds.
    pub(crate) ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct SlotHeader {
    sequence: u64,
    first_lsn: JournalPosition,
    epoch: u64,
}

impl Log {
    /// Opens a journal, calls `apply` with every surviving record in order, and prepares the log for writing
    /// at its end, in a new epoch.
    pub(crate) fn recover(
        file: Arc<dyn StorageFile>,
        path: &Path,
        uuid: [u64; 2],
        mapping: &Mapping,
        mut apply: impl FnMut(PoolOffset, &[u64]) -> Result<()>,
    ) -> Result<(Log, RecoverySummary)> {
        let mut log = Log::open(file, path)?;
        if log.header.uuid != uuid {
            return Err(Error::corrupt(path, 16, "the journal belongs to another pool"));
        }
        let slots = log.read_slot_headers()?;
        let start = log.header.replay_lsn;
        debug_assert!(log.slots.is_empty() && log.current.is_none(), "recovery alone fills in the slots");
        if log.header.closed {
            log.take_up(&slots, &[], start)?;
            let recovered = RecoverySummary { end_lsn: start, replayed_bytes: 0, stored_bytes: 0, ns: 0 };
            return Ok((log, recovered));
        }
        let (read, recovered) = log.replay(&slots, mapping, &mut apply)?;
        log.take_up(&slots, &read, recovered.end_lsn)?;
        Ok((log, recovered))
    }

    /// Applies the frames behind the replay LSN; returns their slots, and a summary.
    fn replay(
        &self,
        slots: &[Option<SlotHeader>],
        mapping: &Mapping,
        apply: &mut impl FnMut(PoolOffset, &[u64]) -> Result<()>,
    ) -> Result<(Vec<usize>, RecoverySummary)> {
        let began = Instant::now();
        let start = self.header.replay_lsn;
        let slot_bytes = self.header.slot_bytes as usize;
        let buffer = AlignedBuffer::new(slot_bytes);
        let mut reader = Reader { log: self, slots, lsn: start, epoch: 0, stored_bytes: 0, buffer };
        let mut read = Vec::new();
        let mut end_at = 0;
        let offset_of = |slot| self.slot_offset(slot);
        std::thread::scope(|scope| {
            let mut source = SlotReader::start(scope, &*self.file, slot_bytes, &offset_of, mapping, start)?;
            let mut next = reader.first_slot();
            next.into_iter().for_each(|slot| source.announce(slot));
            while let Some(slot) = next {
                read.push(slot);
                source
                    .read(slot, &mut reader.buffer, slot_bytes)
                    .map_err(|e| Error::io("read", &self.path, &e))?;
                reader.used_after(slot).into_iter().for_each(|slot| source.announce(slot));
                end_at = reader.replay_slot(slot, apply)?;
                next = reader.slot_after(slot);
            }
            Ok::<(), Error>(())
        })?;
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        reader.check_nothing_durable_is_lost(&read, end_at)?;
        let (end_lsn, stored_bytes) = (reader.lsn, reader.stored_bytes);
        assert!(end_lsn >= start, "replay goes forwards: from {start} to {end_lsn}");
        Ok((read, RecoverySummary { end_lsn, replayed_bytes: end_lsn.since(start), stored_bytes, ns }))
    }

    fn read_slot_headers(&self) -> Result<Vec<Option<SlotHeader>>> {
        let bytes = self.file.len().map_err(|e| Error::io("get the length of", &self.path, &e))?;
        let count = (bytes.saturating_sub(SLOTS_START) / self.header.slot_bytes) as usize;
        let mut blocks = AlignedBuffer::new(count * BLOCK_BYTES);
        let offsets = (0..count).map(|slot| self.slot_offset(slot));
        let mut reads: Vec<_> = offsets.zip(blocks.bytes_mut().chunks_mut(BLOCK_BYTES)).collect();
        self.file.read_many(&mut reads).map_err(|e| Error::io("read", &self.path, &e))?;
        Ok(blocks.words().chunks(BLOCK_BYTES / 8).map(|words| self.decode_slot_header(words)).collect())
    }

    fn decode_slot_header(&self, words: &[u64]) -> Option<SlotHeader> {
        let valid = words[0] == SLOT_MAGIC
            && words[4..6] == self.header.uuid
            && words[6] == u64::from(words_crc(&words[..6]));
        let first_lsn = JournalPosition::from_word(words[2]).filter(|_| valid)?;
        Some(SlotHeader { sequence: words[1], first_lsn, epoch: words[3] })
    }

    /// Sets the writing end and starts a new epoch, so that stale frames beyond the end never count again.
    /// The slots that were read are in use; all others are free, whatever their headers say.
    fn take_up(
        &mut self,
        slots: &[Option<SlotHeader>],
        read: &[usize],
        end_lsn: JournalPosition,
    ) -> Result<()> {
        assert!(end_lsn >= self.header.replay_lsn, "the journal goes on behind its replay position");
        let last = slots.iter().flatten().map(|s| s.sequence).max().unwrap_or(0);
        self.next_sequence = last + 1;
        self.slots = vec![Slot::Free; slots.len()];
        for &slot in read {
            assert!(self.slots[slot] == Slot::Free, "slot {slot} was read twice");
            let sequence = slots[slot].map_or(0, |s| s.sequence);
            // A slot's frames end where the next one's begin; too late an end only delays recycling.
            self.slots[slot] = Slot::Used { sequence, end_lsn };
        }
        // The rest of the last slot may hold stale frames; a fresh slot is simpler to reason about.
        self.current = None;
        let epoch = value(self.header.epoch + 1, self.header.epoch, EPOCH_ADVANCES);
        self.write_header(LogHeader { epoch, closed: false, ..self.header })
    }
}

struct Reader<'l> {
    log: &'l Log,
    slots: &'l [Option<SlotHeader>],
    /// Next byte of the stream.
    lsn: JournalPosition,
    /// Epoch of the last frame: epochs never go back.
    epoch: u64,
    /// Bytes of the applied frames, as they are stored.
    stored_bytes: u64,
    buffer: AlignedBuffer,
}

impl Reader<'_> {
    /// Slot that holds the replay LSN: of those that begin at or before it, the one used last. None: nothing
    /// was written since, or nothing of it reached the disk.
    fn first_slot(&self) -> Option<usize> {
        let begins_before = |header: &SlotHeader| header.first_lsn <= self.lsn;
        self.latest(begins_before)
    }

    /// Slot that continues the stream. Slots of a tail that an earlier recovery truncated do not: they begin
    /// elsewhere, or belong to an older epoch.
    fn slot_after(&self, slot: usize) -> Option<usize> {
        let sequence = self.slots[slot].map_or(0, |header| header.sequence);
        self.latest(|header| {
            header.sequence > sequence
                && check(header.first_lsn == self.lsn, SLOT_CONTINUES)
                && header.epoch >= self.epoch
        })
    }

    /// Slot that was used next, which probably continues the stream.
    fn used_after(&self, slot: usize) -> Option<usize> {
        let sequence = self.slots[slot].map_or(0, |header| header.sequence);
        let used = self.slots.iter().enumerate().filter_map(|(slot, header)| {
            header.filter(|header| header.sequence > sequence).map(|header| (header.sequence, slot))
        });
        used.min().map(|(_, slot)| slot)
    }

    fn latest(&self, wanted: impl Fn(&SlotHeader) -> bool) -> Option<usize> {
        let matching = self.slots.iter().enumerate().filter_map(|(slot, header)| {
            header.filter(|header| wanted(header)).map(|header| (header.sequence, slot))
        });
        matching.max().map(|(_, slot)| slot)
    }

    /// Applies the frames of the slot in the buffer that continue the stream; returns the byte in the slot
    /// where they end.
    fn replay_slot(
        &mut self,
        slot: usize,
        apply: &mut impl FnMut(PoolOffset, &[u64]) -> Result<()>,
    ) -> Result<u64> {
        let log = self.log;
        let header = self.slots[slot].expect("only slots with headers are read");
        let start = log.slot_offset(slot);
        self.epoch = self.epoch.max(header.epoch);
        let mut expected = header.first_lsn;
        let mut at = BLOCK_BYTES;
        while let Some(frame) = self.valid_frame(at, expected) {
            debug_assert!(at.is_multiple_of(BLOCK_BYTES), "frames begin at blocks");
            let payload_words = frame.payload_bytes as usize / 8;
            let first = at / 8 + FRAME_HEADER_WORDS;
            expected = frame.lsn.plus(u64::from(frame.payload_bytes));
            // Frames before the replay LSN are in the pool file already.
            if frame.lsn >= self.lsn {
                let mut outcome = Ok(());
                for_each_record(&self.buffer.words()[first..first + payload_words], |offset, words| {
                    if outcome.is_ok() {
                        outcome = apply(offset, words);
                    }
                })
                .map_err(|e| Error::corrupt(&log.path, start + at as u64, e.to_string()))?;
                outcome?;
                self.lsn = expected;
                self.stored_bytes += frame.stored_bytes() as u64;
            }
            self.epoch = frame.epoch;
            at += frame.stored_bytes();
        }
        assert!(at as u64 <= log.header.slot_bytes, "frames end inside their slot");
        Ok(at as u64)
    }

    /// Frame at a byte of the buffered slot, if it is intact and continues the stream.
    fn valid_frame(&self, at: usize, expected_lsn: JournalPosition) -> Option<FrameHeader> {
        let words = self.buffer.words().get(at / 8..)?;
        let frame = FrameHeader::decode(words)?;
        let follows = check(frame.lsn == expected_lsn, FRAME_CONTINUES)
            && frame.uuid == self.log.header.uuid
            && frame.epoch >= self.epoch
            && frame.epoch <= self.log.header.epoch;
        let payload_bytes = frame.payload_bytes as usize;
        let end = at + FRAME_HEADER_WORDS * 8 + payload_bytes;
        let fits = end <= self.log.header.slot_bytes as usize && payload_bytes.is_multiple_of(8);
        if !follows || !fits {
            return None;
        }
        let payload = &self.buffer.bytes()[at + FRAME_HEADER_WORDS * 8..end];
        check(crc32c::crc32c(payload) == frame.payload_crc, FRAME_IS_WHOLE).then_some(frame)
    }

    /// Searches for a frame that proves that the journal was durable beyond its end. Frames of a truncated
    /// tail are no such proof: the positions that they call durable came before them.
    fn check_nothing_durable_is_lost(&mut self, read: &[usize], end_at: u64) -> Result<()> {
        debug_assert!(end_at.is_multiple_of(BLOCK_BYTES as u64), "frames end at blocks");
        let first_sequence = read.first().and_then(|slot| self.slots[*slot]).map_or(0, |s| s.sequence);
        let end_slot = read.last().copied();
        // The slot that was read last is still in the buffer.
        let mut behind_end = None;
        if end_slot.is_some() {
            let slot_words = self.log.header.slot_bytes as usize / 8;
            let behind = self.buffer.words()[..slot_words].get(end_at as usize / 8..).unwrap_or_default();
            behind_end = self.latest_durable_in(behind);
        }
        for slot in 0..self.slots.len() {
            // Slots recycled before the replay position lie before the end.
            let recycled = self.slots[slot].is_some_and(|s| s.sequence < first_sequence);
            let is_end = Some(slot) == end_slot;
            if recycled || (read.contains(&slot) && !is_end) {
                continue;
            }
            let found = if is_end { behind_end } else { self.durable_lsn_in(slot)? };
            let Some(durable_lsn) = found else { continue };
            if durable_lsn > self.lsn {
                let what = format!(
                    "the journal ends at position {}, but was durable up to {durable_lsn}; \
                     restore the directory from a backup",
                    self.lsn
                );
                let at = self.log.slot_offset(end_slot.unwrap_or(slot)) + end_at;
                return Err(Error::corrupt(&self.log.path, at, what));
            }
        }
        Ok(())
    }

    /// Greatest durable position that a frame of the slot names.
    fn durable_lsn_in(&mut self, slot: usize) -> Result<Option<JournalPosition>> {
        let log = self.log;
        let start = log.slot_offset(slot);
        let read_failed = |e: &std::io::Error| Error::io("read", &log.path, e);
        let mut begun = self.slots[slot].is_some();
        if !begun {
            // Without a valid header the slot was never used, or its header is damaged: then a frame follows.
            let block = &mut self.buffer.bytes_mut()[..BLOCK_BYTES];
            log.file.read_at(block, start + BLOCK_BYTES as u64).map_err(|e| read_failed(&e))?;
            begun = FrameHeader::decode(self.buffer.words()).is_some();
        }
        if !begun {
            return Ok(None);
        }
        let bytes = log.header.slot_bytes as usize - BLOCK_BYTES;
        log.file
            .read_at(&mut self.buffer.bytes_mut()[..bytes], start + BLOCK_BYTES as u64)
            .map_err(|e| read_failed(&e))?;
        Ok(self.latest_durable_in(&self.buffer.words()[..bytes / 8]))
    }

    /// Greatest durable position that a frame in these blocks names.
    fn latest_durable_in(&self, blocks: &[u64]) -> Option<JournalPosition> {
        let header = &self.log.header;
        let frames = blocks.chunks(BLOCK_BYTES / 8).filter_map(FrameHeader::decode);
        let ours = frames.filter(|f| f.uuid == header.uuid && f.epoch <= header.epoch);
        ours.map(|frame| frame.durable_lsn).max()
    }
}
