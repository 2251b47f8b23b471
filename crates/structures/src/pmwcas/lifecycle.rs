//! Creating, opening (which recovers) and destroying.
//!
//! ```text
//! header word   content
//! 0             "PMWCAS" and version
//! 1             number of descriptors
//! 2             seal: hash of both and of the header's place
//! ```
//!
//! Descriptors follow the header, in the same object: freeing the header frees all.

use super::descriptor::{DESCRIPTOR_BYTES, DIRTY, Descriptor, HEADER_BYTES, SUCCEEDED, WordState, decode};
use super::{DESCRIPTORS_MAX, PmwCas, VALUE_MAX, WORDS_MAX};
use crate::error::{Error, Result};
use crate::points::{NEW_DESCRIPTORS, OPERATIONS_FINISHED_AT_OPEN, RECOVERED_WORD, REUSE_AFTER_RECOVERY};
use entresol_memory::order::step;
use entresol_memory::{Pool, PoolOffset, Publication};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const MAGIC: u64 = u64::from_le_bytes(*b"PMWCAS\0\x01");

fn seal(descriptors: u64, header: PoolOffset) -> u64 {
    [descriptors, header.to_word()]
        .iter()
        .fold(MAGIC, |seal, word| (seal.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

impl PmwCas {
    /// Creates `descriptors` descriptors, 1 to [`DESCRIPTORS_MAX`]; they exist once the publication is
    /// published, with a reference to the returned offset. Four for each thread are enough.
    pub fn create<'p>(
        pool: &'p Pool,
        descriptors: usize,
        publication: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        if !(1..=DESCRIPTORS_MAX).contains(&descriptors) {
            return Err(Error::Invalid(format!(
                "{descriptors} descriptors were requested; 1 to {DESCRIPTORS_MAX} are allowed"
            )));
        }
        let bytes = (HEADER_BYTES + descriptors as u64 * DESCRIPTOR_BYTES) as usize;
        let object = pool.reserve(bytes)?;
        let at = object.offset();
        let words = pool.words(at, bytes / 8);
        words.iter().for_each(|word| word.store(0, Relaxed));
        words[0].store(MAGIC, Relaxed);
        words[1].store(descriptors as u64, Relaxed);
        words[2].store(seal(descriptors as u64, at), Relaxed);
        pool.flush_ranges_at([(at, bytes)], NEW_DESCRIPTORS);
        Ok(publication.allocate(object))
    }

    /// Opens the descriptors, and finishes or rolls back the operations that a crash interrupted. Cost: a
    /// read of each descriptor.
    pub fn open(pool: &Arc<Pool>, header: PoolOffset) -> Result<PmwCas> {
        let corrupt = |offset: PoolOffset, message: String| Error::Corrupt { offset, message };
        let fits = !header.is_null() && header.is_aligned(64);
        let Some(words) = pool.try_words(header, 3).filter(|_| fits) else {
            let message = "the offset cannot hold descriptors, but a reference leads to it";
            return Err(corrupt(header, message.to_string()));
        };
        let word = |i: usize| words[i].load(Acquire);
        let descriptors = word(1);
        if word(0) != MAGIC {
            let message = format!("its header starts with {:#018x}, not {MAGIC:#018x}", word(0));
            return Err(corrupt(header, message));
        }
        let words = (HEADER_BYTES + descriptors.min(DESCRIPTORS_MAX as u64) * DESCRIPTOR_BYTES) as usize / 8;
        if word(2) != seal(descriptors, header) || pool.try_words(header, words).is_none() {
            return Err(corrupt(header, "its header does not match its checksum".to_string()));
        }
        let free = Arc::new(Mutex::new((0..descriptors).rev().collect()));
        let participants = (0..descriptors).map(|_| AtomicU64::new(0)).collect();
        let opened = PmwCas { pool: pool.clone(), header, free, participants, trials: AtomicU64::new(0) };
        step(OPERATIONS_FINISHED_AT_OPEN, || {
            (0..descriptors).try_for_each(|number| opened.recover(opened.descriptor(number)))
        })?;
        // The descriptors stay as they are: recovering them again changes nothing.
        pool.fence_at(REUSE_AFTER_RECOVERY);
        Ok(opened)
    }

    /// Sets every word that refers to this descriptor, or a trial of it, as its status decides. Those written
    /// last may be dirty.
    fn recover(&self, descriptor: Descriptor<'_>) -> Result<()> {
        let status = descriptor.status().load(Acquire) & !DIRTY;
        let succeeded = status == SUCCEEDED;
        for entry in descriptor.entries() {
            let Some(words) = self.pool.try_words(entry.at, 1).filter(|_| !entry.at.is_null()) else {
                // The power failed while it was written; no word refers to it.
                continue;
            };
            let found = words[0].load(Acquire);
            let named = match decode(found) {
                WordState::Value => None,
                WordState::InFlight(number) | WordState::Trial(number, _) => Some(number),
            };
            let value = match named {
                Some(number) if number == descriptor.number => {
                    if succeeded {
                        entry.new
                    } else {
                        entry.old
                    }
                }
                Some(_) => continue,
                None if found & DIRTY != 0 && [entry.old, entry.new].contains(&(found & !DIRTY)) => {
                    found & !DIRTY
                }
                None => continue,
            };
            if value > VALUE_MAX {
                let message = format!("its value {value:#x} has more than 61 bits");
                return Err(Error::Corrupt { offset: descriptor.at, message });
            }
            words[0].store(value, Release);
            self.pool.flush_word_at(entry.at, RECOVERED_WORD);
        }
        Ok(())
    }

    /// Counts unfinished operations, some of which a crash may have left: descriptors that words refer to.
    /// For checks; there must be no concurrent writers.
    pub fn unfinished(&self) -> usize {
        let descriptors = self.pool.word(self.header.plus(8)).load(Acquire);
        let names = |number: u64, at: PoolOffset| {
            self.pool.try_words(at, 1).is_some_and(|words| match decode(words[0].load(Acquire)) {
                WordState::Value => false,
                WordState::InFlight(named) | WordState::Trial(named, _) => named == number,
            })
        };
        let is_named = |number: &u64| {
            let descriptor = self.descriptor(*number);
            descriptor.entries().take(WORDS_MAX).any(|entry| names(*number, entry.at))
        };
        (0..descriptors).filter(is_named).count()
    }
}
