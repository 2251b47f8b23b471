//! Reading the journal back.
//!
//! From the replay LSN on, frames are followed through the slots while each continues the one before. The
//! first that does not is the end: a torn tail is normal, since frames past the last sync may be lost or
//! arrive out of order. Only if a later frame says that the journal was already durable beyond the end has a
//! durable frame been damaged, and that is an error that names the place.

use super::buffer::AlignedBuffer;
use super::frame::{BLOCK_BYTES, FRAME_HEADER_WORDS, FrameHeader, for_each_record, words_crc};
use super::log::{Log, LogHeader, SLOT_MAGIC, SLOTS_START, Slot};
use crate::env::StorageFile;
use crate::error::{Error, Result};
use std::path::Path;

/// What recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Where the journal goes on.
    pub(crate) end_lsn: u64,
    /// Payload bytes that were replayed.
    pub(crate) replayed_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct SlotHeader {
    sequence: u64,
    first_lsn: u64,
    epoch: u64,
}

impl Log {
    /// Opens a journal, calls `apply` with every surviving record in order, and leaves the log ready to be
    /// written at its end, in a new epoch.
    pub(crate) fn recover(
        file: Box<dyn StorageFile>,
        path: &Path,
        mut apply: impl FnMut(u64, &[u64]) -> Result<()>,
    ) -> Result<(Log, Recovered)> {
        let mut log = Log::open(file, path)?;
        let slots = log.read_slot_headers()?;
        if log.header.closed {
            let end_lsn = log.header.replay_lsn;
            log.take_up(&slots, None, end_lsn)?;
            return Ok((log, Recovered { end_lsn, replayed_bytes: 0 }));
        }
        let mut reader = Reader {
            log: &log,
            lsn: log.header.replay_lsn,
            epoch: 0,
            buffer: AlignedBuffer::new(log.header.slot_bytes as usize),
        };
        let mut chain = reader.chain(&slots)?;
        let start = reader.lsn;
        let mut end = None;
        while let Some(slot) = chain.next() {
            let stop =
                reader.read_slot(slot, slots[slot].expect("chained slots have headers"), &mut apply)?;
            end = Some((slot, stop));
            let continued = chain.peek().is_some_and(|next| {
                let header = slots[*next].expect("chained slots have headers");
                header.first_lsn == reader.lsn && header.epoch >= reader.epoch
            });
            if !continued {
                break;
            }
        }
        let end_lsn = reader.lsn;
        if let Some((slot, stop)) = end {
            reader.check_nothing_durable_is_lost(&slots, slot, stop)?;
        }
        drop(reader);
        log.take_up(&slots, end, end_lsn)?;
        Ok((log, Recovered { end_lsn, replayed_bytes: end_lsn - start }))
    }

    fn read_slot_headers(&self) -> Result<Vec<Option<SlotHeader>>> {
        let bytes = self.file.len().map_err(|e| Error::io("look at", &self.path, &e))?;
        let count = bytes.saturating_sub(SLOTS_START) / self.header.slot_bytes;
        let mut block = AlignedBuffer::new(BLOCK_BYTES);
        (0..count as usize)
            .map(|slot| {
                self.file
                    .read_at(block.bytes_mut(), self.slot_offset(slot))
                    .map_err(|e| Error::io("read", &self.path, &e))?;
                let words = block.words();
                let valid = words[0] == SLOT_MAGIC
                    && words[4..6] == self.header.uuid
                    && words[6] == u64::from(words_crc(&words[..6]));
                Ok(valid.then_some(SlotHeader { sequence: words[1], first_lsn: words[2], epoch: words[3] }))
            })
            .collect()
    }

    /// Sets the writing end and starts a new epoch, so that stale frames beyond the end never count again.
    fn take_up(
        &mut self,
        slots: &[Option<SlotHeader>],
        end: Option<(usize, u64)>,
        end_lsn: u64,
    ) -> Result<()> {
        let last = slots.iter().flatten().map(|s| s.sequence).max().unwrap_or(0);
        self.next_sequence = last + 1;
        let end_sequence = end.and_then(|(slot, _)| slots[slot]).map_or(0, |s| s.sequence);
        self.slots = slots
            .iter()
            .map(|header| match header {
                // A slot's frames end where the next one's begin; too late an end only delays recycling.
                Some(s) if s.sequence <= end_sequence && s.first_lsn >= self.first_needed(slots) => {
                    Slot::Used { sequence: s.sequence, end_lsn }
                }
                _ => Slot::Free,
            })
            .collect();
        // The rest of the last slot may hold stale frames; a fresh slot is simpler to reason about.
        self.current = None;
        self.write_header(LogHeader { epoch: self.header.epoch + 1, closed: false, ..self.header })
    }

    /// The first LSN of the slot that holds the replay LSN.
    fn first_needed(&self, slots: &[Option<SlotHeader>]) -> u64 {
        let replay = self.header.replay_lsn;
        slots.iter().flatten().map(|s| s.first_lsn).filter(|lsn| *lsn <= replay).max().unwrap_or(0)
    }
}

struct Reader<'l> {
    log: &'l Log,
    /// The next byte of the stream.
    lsn: u64,
    /// The epoch of the last frame: epochs never go back.
    epoch: u64,
    buffer: AlignedBuffer,
}

impl Reader<'_> {
    /// The slots to read, in order, from the one that holds the replay LSN.
    fn chain(&self, slots: &[Option<SlotHeader>]) -> Result<std::iter::Peekable<std::vec::IntoIter<usize>>> {
        let mut used: Vec<(u64, usize, u64)> = slots
            .iter()
            .enumerate()
            .filter_map(|(slot, header)| header.map(|h| (h.sequence, slot, h.first_lsn)))
            .collect();
        used.sort_unstable();
        let first = used.iter().rposition(|(_, _, first_lsn)| *first_lsn <= self.lsn);
        let order = match first {
            Some(first) => used[first..].iter().map(|(_, slot, _)| *slot).collect(),
            None if used.is_empty() => Vec::new(),
            None => {
                let what = format!("no slot of the journal holds position {}, where replay starts", self.lsn);
                return Err(Error::corrupt(&self.log.path, SLOTS_START, what));
            }
        };
        Ok(Vec::into_iter(order).peekable())
    }

    /// Applies the frames of a slot that continue the stream; returns the byte in the slot where they end.
    fn read_slot(
        &mut self,
        slot: usize,
        header: SlotHeader,
        apply: &mut impl FnMut(u64, &[u64]) -> Result<()>,
    ) -> Result<u64> {
        let log = self.log;
        let start = log.slot_offset(slot);
        let slot_bytes = log.header.slot_bytes as usize;
        log.file
            .read_at(&mut self.buffer.bytes_mut()[..slot_bytes], start)
            .map_err(|e| Error::io("read", &log.path, &e))?;
        self.epoch = self.epoch.max(header.epoch);
        let mut expected = header.first_lsn;
        let mut at = BLOCK_BYTES;
        while let Some(frame) = self.valid_frame(at, expected) {
            let payload_words = frame.payload_bytes as usize / 8;
            let first = at / 8 + FRAME_HEADER_WORDS;
            expected = frame.lsn + u64::from(frame.payload_bytes);
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
            }
            self.epoch = frame.epoch;
            at += frame.stored_bytes();
        }
        Ok(at as u64)
    }

    /// The frame at a byte of the buffered slot, if it is whole and continues the stream.
    fn valid_frame(&self, at: usize, expected_lsn: u64) -> Option<FrameHeader> {
        let words = self.buffer.words().get(at / 8..)?;
        let frame = FrameHeader::decode(words)?;
        let follows = frame.lsn == expected_lsn
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
        (crc32c::crc32c(payload) == frame.payload_crc).then_some(frame)
    }

    /// Looks for a frame behind the end that proves that the end was durable.
    fn check_nothing_durable_is_lost(
        &mut self,
        slots: &[Option<SlotHeader>],
        end_slot: usize,
        end_at: u64,
    ) -> Result<()> {
        let log = self.log;
        let end_sequence = slots[end_slot].map_or(0, |s| s.sequence);
        for (slot, header) in slots.iter().enumerate() {
            let later = header.is_some_and(|h| h.sequence > end_sequence);
            if slot != end_slot && !later {
                continue;
            }
            log.file
                .read_at(
                    &mut self.buffer.bytes_mut()[..log.header.slot_bytes as usize],
                    log.slot_offset(slot),
                )
                .map_err(|e| Error::io("read", &log.path, &e))?;
            for at in (BLOCK_BYTES..log.header.slot_bytes as usize).step_by(BLOCK_BYTES) {
                let Some(frame) = FrameHeader::decode(&self.buffer.words()[at / 8..]) else { continue };
                let stale = frame.uuid != log.header.uuid || frame.epoch < self.epoch || frame.lsn < self.lsn;
                if !stale && frame.durable_lsn > self.lsn {
                    let what = format!(
                        "the journal breaks off at position {}, but was durable up to {}; \
                         restore the directory from a backup",
                        self.lsn, frame.durable_lsn
                    );
                    return Err(Error::corrupt(&log.path, log.slot_offset(end_slot) + end_at, what));
                }
            }
        }
        Ok(())
    }
}
