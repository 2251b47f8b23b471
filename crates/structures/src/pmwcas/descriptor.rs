//! Descriptors, and the words that refer to them.

use super::{PmwCas, Swap, WORDS_MAX};
use crate::points::FORGOTTEN_ENTRY;
use entresol_memory::PoolOffset;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub(super) const DIRTY: u64 = 1 << 63;
const IN_FLIGHT: u64 = 1 << 62;
const TRIAL: u64 = 1 << 61;

pub(super) const UNDECIDED: u64 = 1;
pub(super) const SUCCEEDED: u64 = 2;
pub(super) const FAILED: u64 = 3;

pub(super) const DESCRIPTOR_BYTES: u64 = 256;
/// The header in front of the descriptors.
pub(super) const HEADER_BYTES: u64 = 256;
const ENTRIES: usize = 2;
const ENTRY_WORDS: usize = 3;
const _: () = assert!((ENTRIES + ENTRY_WORDS * WORDS_MAX) * 8 <= DESCRIPTOR_BYTES as usize);

/// Decoded state of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordState {
    Value,
    /// In flight for the operation of this descriptor.
    InFlight(u64),
    /// A trial for an entry of this descriptor.
    Trial(u64, usize),
}

/// Decodes a word, dirty or not.
pub(super) fn decode(word: u64) -> WordState {
    if word & IN_FLIGHT != 0 {
        WordState::InFlight(word & !(DIRTY | IN_FLIGHT))
    } else if word & TRIAL != 0 {
        WordState::Trial(word >> 3 & 0x3FF, (word & 7) as usize)
    } else {
        WordState::Value
    }
}

pub(super) fn in_flight(descriptor: u64) -> u64 {
    debug_assert!(descriptor < TRIAL, "descriptor {descriptor} leaves the marks of a word alone");
    IN_FLIGHT | descriptor
}

/// Returns a trial's word. Its number repeats after 2^48 trials: no thread is delayed that long.
pub(super) fn trial(number: u64, descriptor: u64, entry: usize) -> u64 {
    debug_assert!(descriptor <= 0x3FF && entry < 8, "a trial names entry {entry} of descriptor {descriptor}");
    TRIAL | (number & ((1 << 48) - 1)) << 13 | descriptor << 3 | entry as u64
}

/// The words of a descriptor.
#[derive(Clone, Copy)]
pub(super) struct Descriptor<'p> {
    pub(super) number: u64,
    /// Pool offset.
    pub(super) at: PoolOffset,
    words: &'p [AtomicU64],
}

impl Descriptor<'_> {
    pub(super) fn status(&self) -> &AtomicU64 {
        &self.words[0]
    }

    pub(super) fn count(&self) -> usize {
        (self.words[1].load(Acquire) as usize).min(WORDS_MAX)
    }

    pub(super) fn entry(&self, index: usize) -> Swap {
        let word = |i: usize| self.words[ENTRIES + index * ENTRY_WORDS + i].load(Acquire);
        Swap { at: PoolOffset::from_word(word(0)), old: word(1), new: word(2) }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Swap> {
        let descriptor = *self;
        (0..self.count()).map(move |index| descriptor.entry(index))
    }

    /// Writes the complete descriptor; returns its bytes. No other thread reads it yet.
    pub(super) fn write(&self, swaps: &[Swap]) -> usize {
        assert!(
            (1..=WORDS_MAX).contains(&swaps.len()),
            "a descriptor holds 1 to {WORDS_MAX} words, not {}",
            swaps.len()
        );
        debug_assert!(
            swaps.iter().all(|swap| (swap.old | swap.new) & (DIRTY | IN_FLIGHT | TRIAL) == 0),
            "values leave the marks of a word alone: {swaps:x?}"
        );
        self.words[1].store(swaps.len() as u64, Relaxed);
        for (words, swap) in self.words[ENTRIES..].chunks(ENTRY_WORDS).zip(swaps) {
            words[0].store(swap.at.to_word(), Relaxed);
            words[1].store(swap.old, Relaxed);
            words[2].store(swap.new, Relaxed);
        }
        self.status().store(UNDECIDED, Release);
        (ENTRIES + ENTRY_WORDS * swaps.len()) * 8
    }
}

impl PmwCas {
    /// Removes the offset of a word of this range from every entry, also from those behind the number of entries:
    /// an operation that is written there next may reach the medium in part. Recovery skips what is left.
    pub(super) fn forget_in(&self, descriptor: Descriptor<'_>, range: &Range<PoolOffset>) {
        for entry in (0..WORDS_MAX).map(|index| ENTRIES + index * ENTRY_WORDS) {
            let word = &descriptor.words[entry];
            let found = word.load(Acquire);
            // Unless an operation on other words takes the entry meanwhile.
            if range.contains(&PoolOffset::from_word(found))
                && word.compare_exchange(found, PoolOffset::NULL.to_word(), AcqRel, Acquire).is_ok()
            {
                self.pool.flush_word_at(descriptor.at.word(entry), FORGOTTEN_ENTRY);
            }
        }
    }

    pub(super) fn descriptor(&self, number: u64) -> Descriptor<'_> {
        let at = self.header.plus(HEADER_BYTES).block(number, DESCRIPTOR_BYTES);
        Descriptor { number, at, words: self.pool.words(at, DESCRIPTOR_BYTES as usize / 8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_decode_to_their_state() {
        assert_eq!(decode(super::super::VALUE_MAX | DIRTY), WordState::Value);
        assert_eq!(decode(in_flight(1023) | DIRTY), WordState::InFlight(1023));
        assert_eq!(decode(trial(u64::MAX, 1023, 7)), WordState::Trial(1023, 7));
        assert_eq!(decode(trial(1, 0, 3)), WordState::Trial(0, 3));
        assert_ne!(trial(1, 0, 3), trial(2, 0, 3));
    }
}
