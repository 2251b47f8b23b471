//! The journal file: two header blocks and a row of slots that frames are written into.
//!
//! ```text
//! byte              what
//! 0                 header block A, 4 KiB
//! 4096              header block B, 4 KiB; the valid one with the higher generation counts
//! 8192 + i * slot   slot i: a header block, then frames
//!
//! header word   what                                   slot header word   what
//! 0             magic "EJOURNAL"                       0                  magic "EJSLOT.."
//! 1             format version                         1                  sequence number of the slot's use
//! 2, 3          UUID of the pool                       2                  LSN of its first frame
//! 4             generation                             3                  epoch
//! 5             epoch: counts the opens                4, 5               UUID of the pool
//! 6             replay LSN: a recovery starts here     6                  CRC-32C of words 0 to 5
//! 7             bytes of a slot
//! 8             1 if closed with nothing to replay
//! 9             CRC-32C of words 0 to 8
//! ```
//!
//! The version is trusted only where the checksum is right: a newer release's header has the same layout.
//!
//! Slots are used in order of their sequence numbers and recycled once a checkpoint has made all of their
//! frames superfluous. Invariant: the slots in use hold all frames from the replay LSN to the end.

use crate::domain::journal::position::JournalPosition;
use crate::domain::journal::writing::buffer::AlignedBuffer;
use crate::domain::journal::writing::frame::{
    BLOCK_BYTES, FRAME_HEADER_WORDS, FrameHeader, stored_bytes, words_crc,
};
use crate::domain::journal::writing::slots::SlotSupply;
use crate::env::StorageFile;
use crate::error::{Error, Result};
use crate::layout::FORMAT_VERSION;
use crate::order::{check, value};
use crate::points::{FRAMES_SAY_WHAT_IS_DURABLE, HEADER_BESIDE_THE_OTHER, ONLY_FREE_SLOTS};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"EJOURNAL");
pub(crate) const SLOT_MAGIC: u64 = u64::from_le_bytes(*b"EJSLOT..");
pub(crate) const SLOTS_START: u64 = 2 * BLOCK_BYTES as u64;

/// Variable part of the journal header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) uuid: [u64; 2],
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    pub(crate) replay_lsn: JournalPosition,
    pub(crate) slot_bytes: u64,
    /// The pool was closed at the replay LSN: no slot holds anything that is needed.
    pub(crate) closed: bool,
}

const HEADER_WORDS: usize = 10;

impl LogHeader {
    fn encode(&self) -> [u64; HEADER_WORDS] {
        assert!(
            self.slot_bytes.is_multiple_of(BLOCK_BYTES as u64) && self.slot_bytes >= 2 * BLOCK_BYTES as u64,
            "a slot has a header and room for a frame: {} bytes",
            self.slot_bytes
        );
        let mut words = [
            MAGIC,
            u64::from(FORMAT_VERSION),
            self.uuid[0],
            self.uuid[1],
            self.generation,
            self.epoch,
            self.replay_lsn.bytes(),
            self.slot_bytes,
            u64::from(self.closed),
            0,
        ];
        words[9] = u64::from(words_crc(&words[..9]));
        words
    }

    /// Writes it to the block that is not in force, and makes it durable: from then on it is in force. One
    /// caller at a time.
    pub(crate) fn write(&self, file: &dyn StorageFile, path: &Path) -> Result<()> {
        let mut block = AlignedBuffer::new(BLOCK_BYTES);
        block.words_mut()[..HEADER_WORDS].copy_from_slice(&self.encode());
        let at = value((self.generation % 2) * BLOCK_BYTES as u64, 0, HEADER_BESIDE_THE_OTHER);
        file.write_at(block.bytes(), at)
            .and_then(|()| file.sync_data())
            .map_err(|e| Error::io("write the header of", path, &e))
    }

    /// Decodes the format version and the header; none if the words are not one.
    fn decode(words: &[u64]) -> Option<(u32, LogHeader)> {
        let words: &[u64; HEADER_WORDS] = words.first_chunk()?;
        let header = LogHeader {
            uuid: [words[2], words[3]],
            generation: words[4],
            epoch: words[5],
            replay_lsn: JournalPosition::from_word(words[6])?,
            slot_bytes: words[7],
            closed: words[8] == 1,
        };
        (words[0] == MAGIC && words[9] == u64::from(words_crc(&words[..9])))
            .then_some((words[1] as u32, header))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Free,
    /// Allocated, or being allocated, and not handed over by the supply yet.
    Coming,
    Used {
        sequence: u64,
        end_lsn: JournalPosition,
    },
}

/// Open journal file, at its writing end.
pub(crate) struct Log {
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) path: PathBuf,
    pub(crate) header: LogHeader,
    pub(crate) slots: Vec<Slot>,
    /// Supply of new slots.
    pub(crate) supply: Option<Arc<SlotSupply>>,
    /// Slot being written and the next byte in it.
    pub(crate) current: Option<(usize, u64)>,
    pub(crate) next_sequence: u64,
    block: AlignedBuffer,
}

impl Log {
    /// Creates a journal with `slots` preallocated slots (written with zeros, so that later writes need no
    /// allocation on the way to the disk).
    pub(crate) fn create(
        file: Arc<dyn StorageFile>,
        path: &Path,
        uuid: [u64; 2],
        slot_bytes: u64,
        slots: usize,
    ) -> Result<Log> {
        assert!(slots > 0, "a journal has a slot to begin with");
        let replay_lsn = JournalPosition::START;
        let header = LogHeader { uuid, generation: 0, epoch: 0, replay_lsn, slot_bytes, closed: false };
        let mut log = Log::assemble(file, path, header);
        let io = |e: &std::io::Error| Error::io("preallocate", path, e);
        let bytes = SLOTS_START + slots as u64 * slot_bytes;
        log.file.allocate(0, bytes).map_err(|e| io(&e))?;
        let zeros = AlignedBuffer::new(1 << 20);
        let mut at = 0;
        while at < bytes {
            let step = (bytes - at).min(1 << 20);
            log.file.write_at(&zeros.bytes()[..step as usize], at).map_err(|e| io(&e))?;
            at += step;
        }
        log.slots = vec![Slot::Free; slots];
        log.write_header(log.header)?;
        Ok(log)
    }

    /// Reads the header of an existing journal; recovery fills in the slots.
    pub(crate) fn open(file: Arc<dyn StorageFile>, path: &Path) -> Result<Log> {
        let mut block = AlignedBuffer::new(2 * BLOCK_BYTES);
        file.read_at(block.bytes_mut(), 0)
            .map_err(|e| Error::read(path, 0, &e, "the journal is shorter than its header"))?;
        let words = block.words();
        let blocks = [LogHeader::decode(words), LogHeader::decode(&words[BLOCK_BYTES / 8..])];
        let (version, header) = blocks
            .into_iter()
            .flatten()
            .max_by_key(|(_, header)| header.generation)
            .ok_or_else(|| Error::corrupt(path, 0, "both header blocks of the journal are unreadable"))?;
        if version > FORMAT_VERSION {
            let file = path.to_path_buf();
            return Err(Error::NewerVersion { file, found: version, supported: FORMAT_VERSION });
        }
        let slot_bytes_ok = header.slot_bytes >= 2 * BLOCK_BYTES as u64
            && header.slot_bytes.is_multiple_of(BLOCK_BYTES as u64);
        if !slot_bytes_ok {
            return Err(Error::corrupt(path, 56, format!("slot size {}", header.slot_bytes)));
        }
        Ok(Log::assemble(file, path, header))
    }

    fn assemble(file: Arc<dyn StorageFile>, path: &Path, header: LogHeader) -> Log {
        Log {
            file,
            path: path.to_path_buf(),
            header,
            slots: Vec::new(),
            supply: None,
            current: None,
            next_sequence: 1,
            block: AlignedBuffer::new(BLOCK_BYTES),
        }
    }

    pub(crate) fn slot_offset(&self, slot: usize) -> u64 {
        SLOTS_START + slot as u64 * self.header.slot_bytes
    }

    /// Maximum payload of one frame.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.header.slot_bytes as usize - BLOCK_BYTES - FRAME_HEADER_WORDS * 8
    }

    /// Header that comes next, with a few fields changed.
    fn next_header(&self, changed: LogHeader) -> LogHeader {
        LogHeader { generation: self.header.generation + 1, ..changed }
    }

    pub(crate) fn write_header(&mut self, changed: LogHeader) -> Result<()> {
        assert!(
            changed.epoch >= self.header.epoch && changed.replay_lsn >= self.header.replay_lsn,
            "neither the epoch nor the replay position goes back: {changed:?} after {:?}",
            self.header
        );
        let header = self.next_header(changed);
        header.write(&*self.file, &self.path)?;
        self.header = header;
        Ok(())
    }

    /// Opens the supply of further slots; call it once all slots of the file are known.
    pub(crate) fn open_supply(&mut self) -> Arc<SlotSupply> {
        let count = self.slots.len();
        let supply =
            SlotSupply::new(self.file.clone(), self.path.clone(), SLOTS_START, self.header.slot_bytes, count);
        self.supply.insert(Arc::new(supply)).clone()
    }

    /// Writes the payload as one frame. The buffer holds the header's room and the payload; not durable until
    /// the file is synced. True if a slot should be prepared ahead.
    pub(crate) fn write_frame(
        &mut self,
        buffer: &mut AlignedBuffer,
        payload_words: usize,
        lsn: JournalPosition,
        durable_lsn: JournalPosition,
    ) -> Result<bool> {
        assert!(
            (1..=self.payload_bytes_max() / 8).contains(&payload_words),
            "a frame has records, and fits a slot: {payload_words} words"
        );
        assert!(
            self.header.replay_lsn <= lsn && durable_lsn <= lsn,
            "a frame at {lsn} lies behind what is replayed from ({}) and durable ({durable_lsn})",
            self.header.replay_lsn
        );
        let payload_bytes = payload_words * 8;
        let stored = stored_bytes(payload_bytes);
        assert!(stored <= buffer.bytes().len(), "the padding of a frame lies in its buffer");
        let position = match self.current {
            Some((slot, at)) if at + stored as u64 <= self.header.slot_bytes => (slot, at),
            _ => self.start_slot(lsn)?,
        };
        let frame_words = FRAME_HEADER_WORDS + payload_words;
        let payload = FRAME_HEADER_WORDS * 8..frame_words * 8;
        let header = FrameHeader {
            lsn,
            payload_bytes: payload_bytes as u32,
            payload_crc: crc32c::crc32c(&buffer.bytes()[payload]),
            epoch: self.header.epoch,
            durable_lsn: value(durable_lsn, lsn.plus(8), FRAMES_SAY_WHAT_IS_DURABLE),
            uuid: self.header.uuid,
        };
        buffer.words_mut()[..FRAME_HEADER_WORDS].copy_from_slice(&header.encode());
        buffer.words_mut()[frame_words..stored / 8].fill(0);
        let (slot, at) = position;
        assert!(
            at >= BLOCK_BYTES as u64
                && at.is_multiple_of(BLOCK_BYTES as u64)
                && at + stored as u64 <= self.header.slot_bytes,
            "a frame of {stored} bytes at byte {at} of a slot lies behind its header, in whole blocks"
        );
        self.file
            .write_at(&buffer.bytes()[..stored], self.slot_offset(slot) + at)
            .map_err(|e| Error::io("write to", &self.path, &e))?;
        self.current = Some((slot, at + stored as u64));
        let Slot::Used { end_lsn, .. } = &mut self.slots[slot] else {
            unreachable!("frames are written into used slots only");
        };
        assert_eq!(*end_lsn, lsn, "frames of a slot continue each other");
        *end_lsn = lsn.plus(payload_bytes as u64);
        Ok(at == BLOCK_BYTES as u64 && !self.slots.contains(&Slot::Free))
    }

    /// Takes a free slot, or a new one, and writes its header.
    fn start_slot(&mut self, lsn: JournalPosition) -> Result<(usize, u64)> {
        debug_assert!(lsn >= self.header.replay_lsn, "slots begin behind the replay position");
        let slot = match self.slots.iter().position(|slot| check(*slot == Slot::Free, ONLY_FREE_SLOTS)) {
            Some(slot) => slot,
            None => {
                let supply = self.supply.as_ref().expect("the supply is open before anything is appended");
                let slot = supply.take_or_make()?;
                // Slots may come in another order than they were numbered; those in between are on their way.
                self.slots.resize(self.slots.len().max(slot + 1), Slot::Coming);
                slot
            }
        };
        let sequence = self.next_sequence;
        debug_assert!(
            self.slots
                .iter()
                .all(|slot| !matches!(slot, Slot::Used { sequence: used, .. } if *used >= sequence)),
            "a slot's sequence number is above those of all slots in use"
        );
        let words = self.block.words_mut();
        words.fill(0);
        words[..6].copy_from_slice(&[
            SLOT_MAGIC,
            sequence,
            lsn.bytes(),
            self.header.epoch,
            self.header.uuid[0],
            self.header.uuid[1],
        ]);
        words[6] = u64::from(words_crc(&words[..6]));
        self.file
            .write_at(self.block.bytes(), self.slot_offset(slot))
            .map_err(|e| Error::io("write to", &self.path, &e))?;
        self.next_sequence += 1;
        self.slots[slot] = Slot::Used { sequence, end_lsn: lsn };
        Ok((slot, BLOCK_BYTES as u64))
    }

    /// Notes that nothing has to be replayed: everything written is in the pool file.
    pub(crate) fn mark_closed(&mut self) -> Result<()> {
        self.write_header(LogHeader { closed: true, ..self.header })
    }

    /// Header with which recovery starts at `replay_lsn`.
    pub(crate) fn header_from(&self, replay_lsn: JournalPosition) -> LogHeader {
        assert!(
            replay_lsn >= self.header.replay_lsn,
            "the replay position goes back from {} to {replay_lsn}",
            self.header.replay_lsn
        );
        self.next_header(LogHeader { replay_lsn, ..self.header })
    }

    /// Puts the header of [`Log::header_from`] in force: frees the slots that lie before its replay LSN.
    pub(crate) fn advance_replay(&mut self, header: LogHeader) {
        assert_eq!(
            header.generation,
            self.header.generation + 1,
            "headers are put in force one after the other"
        );
        assert!(header.replay_lsn >= self.header.replay_lsn, "the replay position never goes back");
        self.header = header;
        let current = self.current.map(|(slot, _)| slot);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Slot::Used { end_lsn, .. } = *slot
                && end_lsn <= header.replay_lsn
                && Some(index) != current
            {
                *slot = Slot::Free;
            }
        }
    }
}
