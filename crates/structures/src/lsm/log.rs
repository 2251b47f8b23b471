//! The logs: where writes that are still in a DRAM buffer survive.
//!
//! ```text
//! word of a log   what
//! 0               generation: records of another one do not count
//! 8..             records of 4 words: key (1 or 2 words), value, stamp as the last
//!
//! stamp           generation (40 bits), check over key, value and place (23 bits), 1 if a tombstone
//! ```
//!
//! A tree has as many logs as buffers, for good, and writes them in turn. A record counts once its stamp is there: one
//! published word, so writers need not wait for one another, and a writer that fails leaves a hole. A log is
//! emptied by giving it the next generation, in the publication that makes the run of its buffer count. Where a stamp
//! belongs there has never been anything but stamps, of earlier generations, or the zeros that the log began with.
//!
//! A damaged record is noticed by its check if its generation is whole; a flipped bit there makes it a record of
//! another generation: an error if that is later, a hole if it is earlier.

use super::block::Entry;
use crate::error::{Error, Result};
use crate::node::FixedKey;
use entresol_memory::{Pool, Publication};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

const HEAD_BYTES: u64 = 64;
const RECORD_WORDS: u64 = 4;
const STAMP: u64 = RECORD_WORDS - 1;
const GENERATION_SHIFT: u32 = 24;
const GENERATION_MAX: u64 = (1 << 40) - 1;

/// One log; the number of its records is that of the buffer's entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub(super) offset: u64,
    pub(super) capacity: u32,
}

/// Bytes of a log.
pub(super) fn log_bytes(capacity: u32) -> u64 {
    HEAD_BYTES + u64::from(capacity) * RECORD_WORDS * 8
}

impl Log {
    /// Lays out an empty log in memory that nobody else knows of.
    pub(super) fn lay_out(&self, pool: &Pool, generation: u64) {
        let bytes = log_bytes(self.capacity) as usize;
        pool.words(self.offset, bytes / 8).iter().for_each(|word| word.store(0, Relaxed));
        pool.word(self.offset).store(generation, Relaxed);
        pool.flush(self.offset, bytes);
    }

    pub(super) fn generation(&self, pool: &Pool) -> u64 {
        pool.word(self.offset).load(Acquire)
    }

    /// Empties it, when the publication is published.
    pub(super) fn empty(&self, generation: u64, with: &mut Publication<'_>) {
        assert!(generation <= GENERATION_MAX, "a log has at most {GENERATION_MAX} generations");
        with.set(self.offset, generation);
    }

    fn record(&self, place: u32) -> u64 {
        self.offset + HEAD_BYTES + u64::from(place) * RECORD_WORDS * 8
    }

    /// Adds a record, when the publication is published.
    #[inline]
    pub(super) fn append<K: FixedKey>(
        &self,
        place: u32,
        generation: u64,
        entry: &Entry<K>,
        with: &mut Publication<'_>,
    ) {
        let record = self.record(place);
        for word in 0..K::WORDS {
            with.write(record + 8 * word as u64, entry.key.word(word));
        }
        with.write(record + 8 * K::WORDS as u64, entry.value);
        with.set(record + 8 * STAMP, stamp(place, generation, entry));
    }

    /// A mistake for the checker to find: the stamp is there before what it vouches for.
    pub(super) fn append_badly<K: FixedKey>(
        &self,
        pool: &Pool,
        place: u32,
        generation: u64,
        entry: &Entry<K>,
    ) {
        let mut early = pool.publication();
        early.set(self.record(place) + 8 * STAMP, stamp(place, generation, entry));
        early.publish().expect("a test's pool is healthy");
    }

    /// The records that count, with their places, in order.
    pub(super) fn replay<K: FixedKey>(&self, pool: &Pool, generation: u64) -> Result<Vec<(u32, Entry<K>)>> {
        let mut entries = Vec::new();
        for place in 0..self.capacity {
            let record = self.record(place);
            let corrupt = |what: String| Err(Error::Corrupt { offset: record, what });
            let words = pool.words(record, RECORD_WORDS as usize);
            let found = words[STAMP as usize].load(Acquire);
            let written = found >> GENERATION_SHIFT;
            if written > generation {
                return corrupt(format!(
                    "the log record is of generation {written}, its log of {generation}"
                ));
            }
            if written < generation {
                continue;
            }
            let entry = Entry {
                key: K::load(&words[..K::WORDS]),
                value: words[K::WORDS].load(Relaxed),
                is_tombstone: found & 1 == 1,
            };
            if stamp(place, generation, &entry) != found {
                return corrupt("the log record does not fit its check".to_string());
            }
            entries.push((place, entry));
        }
        Ok(entries)
    }
}

#[inline]
fn stamp<K: FixedKey>(place: u32, generation: u64, entry: &Entry<K>) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut check = u64::from(place) << 1 | u64::from(entry.is_tombstone);
    for word in 0..K::WORDS {
        check = (check ^ entry.key.word(word)).wrapping_mul(FACTOR).rotate_left(31);
    }
    check = (check ^ entry.value).wrapping_mul(FACTOR);
    check ^= check >> 32;
    let check = check.wrapping_mul(FACTOR) >> 41;
    generation << GENERATION_SHIFT | check << 1 | u64::from(entry.is_tombstone)
}
