//! The phases of an operation, for its owner and for all helpers.

use super::descriptor::{
    DIRTY, Descriptor, FAILED, SUCCEEDED, UNDECIDED, WordState, decode, in_flight, trial,
};
use super::{PmwCas, Swap};
use crate::error::{Error, Result};
use crate::points::{
    CLEAN_AFTER_DURABLE, DESCRIPTOR, DIRTY_WORD, FINISHED_WORD, REUSE_AFTER_VALUES, STATUS,
    STATUS_AFTER_TARGETS, TARGET, VALUES_AFTER_STATUS, WORDS_AFTER_DESCRIPTOR,
};
use entresol_memory::PoolOffset;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Swaps a word; returns its old value, as an error if it differed.
fn swap(word: &AtomicU64, from: u64, to: u64) -> std::result::Result<u64, u64> {
    word.compare_exchange(from, to, AcqRel, Acquire)
}

impl PmwCas {
    /// Writes an operation to its descriptor.
    pub(super) fn prepare(&self, descriptor: Descriptor<'_>, swaps: &[Swap]) {
        let bytes = descriptor.write(swaps);
        self.pool.flush_at(descriptor.at, bytes, DESCRIPTOR);
        self.pool.fence_at(WORDS_AFTER_DESCRIPTOR);
    }

    /// Executes the rest of an operation; returns true if it succeeded. The caller is pinned, and a
    /// participant.
    pub(super) fn execute(&self, descriptor: Descriptor<'_>) -> Result<bool> {
        let mut installed = Ok(true);
        if descriptor.status().load(Acquire) == UNDECIDED {
            installed = self.install(descriptor);
            let decision = if let Ok(true) = installed { SUCCEEDED } else { FAILED };
            if decision == SUCCEEDED {
                descriptor.entries().for_each(|entry| self.pool.flush_word_at(entry.at, TARGET));
                self.pool.fence_at(STATUS_AFTER_TARGETS);
            }
            // The first thread decides.
            let _ = swap(descriptor.status(), UNDECIDED, decision | DIRTY);
        }
        let status = descriptor.status().load(Acquire);
        if status & DIRTY != 0 {
            self.pool.flush_word_at(descriptor.at, STATUS);
            self.pool.fence_at(VALUES_AFTER_STATUS);
            let _ = swap(descriptor.status(), status, status & !DIRTY);
        }
        let succeeded = status & !DIRTY == SUCCEEDED;
        self.finish(descriptor, succeeded);
        installed.map(|_| succeeded)
    }

    /// Installs the descriptor in every word; false if one has another value.
    fn install(&self, descriptor: Descriptor<'_>) -> Result<bool> {
        for index in 0..descriptor.count() {
            if !self.install_entry(descriptor, index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn install_entry(&self, descriptor: Descriptor<'_>, index: usize) -> Result<bool> {
        let entry = descriptor.entry(index);
        let word = self.pool.word(entry.at);
        let mut spins = 0;
        loop {
            // Once it is decided there is nothing to install, and the word may have another owner.
            if descriptor.status().load(Acquire) != UNDECIDED {
                return Ok(true);
            }
            let mine = trial(self.trials.fetch_add(1, Relaxed), descriptor.number, index);
            match swap(word, entry.old, mine) {
                Ok(_) => self.decide_trial(entry, mine, descriptor),
                Err(found) => match decode(found) {
                    WordState::InFlight(number) if number == descriptor.number => return Ok(true),
                    WordState::Value if found & DIRTY == 0 => return Ok(false),
                    _ => {
                        self.help(entry.at, found)?;
                        if spins > 0 {
                            crate::latch::pause(&mut spins);
                        }
                        spins += 1;
                    }
                },
            }
        }
    }

    /// Ends a trial: the word refers to the operation if that is undecided, else it gets its old value.
    fn decide_trial(&self, entry: Swap, trial: u64, descriptor: Descriptor<'_>) {
        let word = self.pool.word(entry.at);
        if descriptor.status().load(Acquire) == UNDECIDED {
            let _ = swap(word, trial, in_flight(descriptor.number) | DIRTY);
        } else if swap(word, trial, entry.old | DIRTY).is_ok() {
            // The trial may have reached the medium, where it would stay unnoticed.
            self.make_durable(entry.at, entry.old | DIRTY);
        }
    }

    /// Sets all words to the decided values.
    fn finish(&self, descriptor: Descriptor<'_>, succeeded: bool) {
        let value = |entry: Swap| if succeeded { entry.new } else { entry.old };
        let named = in_flight(descriptor.number);
        for entry in descriptor.entries() {
            let word = self.pool.word(entry.at);
            // Dirty or not.
            if swap(word, named | DIRTY, value(entry) | DIRTY).is_err() {
                let _ = swap(word, named, value(entry) | DIRTY);
            }
            // Also if another thread did that, which may not have flushed it yet.
            self.pool.flush_word_at(entry.at, FINISHED_WORD);
        }
        self.pool.fence_at(REUSE_AFTER_VALUES);
        for entry in descriptor.entries() {
            let _ = swap(self.pool.word(entry.at), value(entry) | DIRTY, value(entry));
        }
    }

    /// Flushes a dirty word and marks it as clean, if it still is that word.
    fn make_durable(&self, at: PoolOffset, found: u64) {
        self.pool.flush_word_at(at, DIRTY_WORD);
        self.pool.fence_at(CLEAN_AFTER_DURABLE);
        let _ = swap(self.pool.word(at), found, found & !DIRTY);
    }

    /// Resolves a word that is not a plain value. The caller is pinned. An error if that is impossible: the
    /// word refers to a descriptor without participants.
    fn help(&self, at: PoolOffset, found: u64) -> Result<()> {
        let number = match decode(found) {
            WordState::Value => {
                self.make_durable(at, found);
                return Ok(());
            }
            WordState::Trial(number, _) | WordState::InFlight(number) => number,
        };
        let is_over = match self.participants.get(number as usize) {
            None => true,
            Some(participants) => participants.load(Acquire) == 0,
        };
        if is_over {
            // Then no word refers to it any more: this one has changed, or it is damaged.
            if self.pool.word(at).load(Acquire) != found {
                return Ok(());
            }
            let message =
                format!("the word {found:#018x} refers to descriptor {number}, which has no operation");
            return Err(Error::Corrupt { offset: at, message });
        }
        match decode(found) {
            // Its maker is a participant, and finishes; other threads that end it need not.
            WordState::Trial(number, index) => {
                let descriptor = self.descriptor(number);
                self.decide_trial(descriptor.entry(index), found, descriptor);
            }
            _ => {
                if found & DIRTY != 0 {
                    self.make_durable(at, found);
                }
                if self.enter(number) {
                    let helped = self.execute(self.descriptor(number));
                    self.leave(number);
                    helped?;
                }
            }
        }
        Ok(())
    }

    /// Returns the value of a word once no operation is in flight on it.
    pub(super) fn settled(&self, at: PoolOffset) -> Result<u64> {
        loop {
            let found = self.pool.word(at).load(Acquire);
            if decode(found) == WordState::Value && found & DIRTY == 0 {
                return Ok(found);
            }
            self.help(at, found)?;
        }
    }
}
