//! The logs: the durable form of writes that are still in a DRAM buffer.
//!
//! ```text
//! word of a log   content
//! 0               generation (40 bits), its check (24 bits): records of another one are invalid
//! 8..             records of 4 words: key (1 or 2 words), value, stamp as the last
//!
//! stamp           generation (40 bits), check over it, key, value and place (23 bits), 1 if a tombstone
//! ```
//!
//! A tree has a constant number of logs, one a buffer, and writes them in turn. A record is valid once its
//! stamp is there: one published word, so writers need not wait for one another, and a writer that fails
//! leaves a hole. A log is emptied by giving it the next generation, in the publication that makes the run of
//! its buffer valid. The words of stamps have only ever had stamps, of earlier generations, or the initial
//! zeros.
//!
//! A flipped bit is detected, in a record by its check. A flipped bit in the generation of a stamp could make
//! it a record of another generation; it is detected if the check still fits the log's generation.

use crate::error::{Error, Result};
use crate::lsm::files::block::LsmEntry;
use crate::node::FixedKey;
use crate::points::{NEW_LOG, STAMP_AFTER_RECORD};
use entresol_memory::{Pool, PoolOffset, Publication};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

const HEAD_BYTES: u64 = 64;
const RECORD_WORDS: u64 = 4;
const STAMP: u64 = RECORD_WORDS - 1;
const GENERATION_SHIFT: u32 = 24;
const GENERATION_MAX: u64 = (1 << 40) - 1;

/// One log; it has as many records as the buffer has entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    pub(crate) offset: PoolOffset,
    pub(crate) capacity: u32,
}

/// Bytes of a log.
pub(crate) fn log_bytes(capacity: u32) -> u64 {
    HEAD_BYTES + u64::from(capacity) * RECORD_WORDS * 8
}

impl Log {
    /// Initialises an empty log in unreachable memory.
    pub(crate) fn lay_out(&self, pool: &Pool, generation: u64) {
        assert!(generation <= GENERATION_MAX, "a log has at most {GENERATION_MAX} generations");
        let bytes = log_bytes(self.capacity) as usize;
        pool.words(self.offset, bytes / 8).iter().for_each(|word| word.store(0, Relaxed));
        pool.word(self.offset).store(generation_word(generation), Relaxed);
        pool.flush_at(self.offset, bytes, NEW_LOG);
    }

    pub(crate) fn generation(&self, pool: &Pool) -> Result<u64> {
        let word = pool.word(self.offset).load(Acquire);
        let generation = word >> GENERATION_SHIFT;
        if word != generation_word(generation) {
            let message = format!("the generation of the log, {word:#x}, does not match its checksum");
            return Err(Error::Corrupt { offset: self.offset, message });
        }
        Ok(generation)
    }

    /// Empties it, in the publication.
    pub(crate) fn empty(&self, generation: u64, with: &mut Publication<'_>) {
        assert!(generation <= GENERATION_MAX, "a log has at most {GENERATION_MAX} generations");
        with.set(self.offset, generation_word(generation));
    }

    fn record(&self, place: u32) -> PoolOffset {
        debug_assert!(place < self.capacity, "record {place} lies in the log");
        self.offset.plus(HEAD_BYTES).block(u64::from(place), RECORD_WORDS * 8)
    }

    /// Adds a record, in the publication.
    #[inline]
    pub(crate) fn append<K: FixedKey>(
        &self,
        place: u32,
        generation: u64,
        entry: &LsmEntry<K>,
        with: &mut Publication<'_>,
    ) {
        let record = self.record(place);
        debug_assert!(generation <= GENERATION_MAX, "a stamp has room for generation {generation}");
        for word in 0..K::WORDS {
            with.write(record.word(word), entry.key.word(word));
        }
        with.write(record.word(K::WORDS), entry.value);
        with.after(STAMP_AFTER_RECORD);
        with.set(record.plus(8 * STAMP), stamp(place, generation, entry));
    }

    /// Returns the valid records, with their indexes, in order.
    pub(crate) fn replay<K: FixedKey>(
        &self,
        pool: &Pool,
        generation: u64,
    ) -> Result<Vec<(u32, LsmEntry<K>)>> {
        let mut entries = Vec::new();
        for place in 0..self.capacity {
            let record = self.record(place);
            let corrupt = |message: String| Err(Error::Corrupt { offset: record, message });
            let words = pool.words(record, RECORD_WORDS as usize);
            let found = words[STAMP as usize].load(Acquire);
            let written = found >> GENERATION_SHIFT;
            if written > generation {
                return corrupt(format!(
                    "the log record is of generation {written}, its log of {generation}"
                ));
            }
            let entry = LsmEntry {
                key: K::load(&words[..K::WORDS]),
                value: words[K::WORDS].load(Relaxed),
                is_tombstone: found & 1 == 1,
            };
            let expected = stamp(place, generation, &entry);
            let is_one_bit_off = (expected ^ found).is_power_of_two();
            if is_one_bit_off || written == generation && expected != found {
                return corrupt("the log record does not match its checksum".to_string());
            }
            if written == generation {
                entries.push((place, entry));
            }
        }
        Ok(entries)
    }
}

#[inline]
fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word ^ word >> 32
}

fn generation_word(generation: u64) -> u64 {
    generation << GENERATION_SHIFT | mixed(!generation) & ((1 << GENERATION_SHIFT) - 1)
}

#[inline]
fn stamp<K: FixedKey>(place: u32, generation: u64, entry: &LsmEntry<K>) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut check = mixed(generation ^ u64::from(place) << 41 ^ u64::from(entry.is_tombstone) << 40);
    for word in 0..K::WORDS {
        check = (check ^ entry.key.word(word)).wrapping_mul(FACTOR).rotate_left(31);
    }
    check = (check ^ entry.value).wrapping_mul(FACTOR);
    check ^= check >> 32;
    let check = check.wrapping_mul(FACTOR) >> 41;
    generation << GENERATION_SHIFT | check << 1 | u64::from(entry.is_tombstone)
}
