//! The baseline: undo-log transactions of the kind of PMDK's libpmemobj, over ranges of any length.
//!
//! Steps of `pmemobj_tx_add_range(3)` and the commit (libpmemobj 1.13; "Programming Persistent Memory",
//! Scargall 2020, chapter 16): the header of the log's next entry is zeroed, flushed and fenced; the entry
//! with offset, size, generation, checksum and the old words, in whole cache lines, is written, flushed and
//! fenced; only then is the range changed in place. At commit all ranges are flushed; fence; the log is made
//! invalid by a new generation number; flush; fence. [`UndoLog::open`] puts back what a crash interrupted.
//!
//! Left out in favour of the baseline: `setjmp`, the tree that notes which ranges are in the log, lanes.

use entresol_memory::{Pool, PoolOffset, Result};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const LINE_BYTES: u64 = 64;
const LINE_WORDS: usize = 8;
/// Checksum, offset, bytes, generation.
const HEADER_WORDS: usize = 4;
/// A node of 4 KiB and some words.
const LOG_BYTES: u64 = 8 << 10;

/// A thread's log. Word 0 is the generation; entries follow from the second line on.
pub(super) struct UndoLog<'p> {
    pool: &'p Pool,
    log: PoolOffset,
    generation: u64,
    next_entry: u64,
    ranges: Vec<(PoolOffset, usize)>,
}

impl<'p> UndoLog<'p> {
    /// An empty log, under a root's name.
    pub(super) fn create(pool: &'p Pool, name: &str) -> Result<UndoLog<'p>> {
        let object = pool.reserve(LOG_BYTES as usize)?;
        let log = object.offset();
        pool.words(log, LOG_BYTES as usize / 8).iter().for_each(|word| word.store(0, Relaxed));
        pool.word(log).store(1, Relaxed);
        pool.flush(log, LOG_BYTES as usize);
        let mut publication = pool.publication();
        publication.allocate(object);
        publication.set_root(name, log)?;
        publication.publish()?;
        Ok(UndoLog { pool, log, generation: 1, next_entry: LINE_BYTES, ranges: Vec::new() })
    }

    /// Opens a log after a crash: the ranges of an unfinished transaction are what they were before it.
    #[cfg(test)]
    pub(super) fn open(pool: &'p Pool, log: PoolOffset) -> UndoLog<'p> {
        let generation = pool.word(log).load(Acquire);
        let mut opened = UndoLog { pool, log, generation, next_entry: LINE_BYTES, ranges: Vec::new() };
        let mut undone = Vec::new();
        let mut at = log.plus(LINE_BYTES);
        while let Some(entry) = opened.entry(at) {
            undone.push((at, entry));
            at = at.plus(entry_bytes(entry.1));
        }
        // Newest first: what was noted first is what was there before.
        for (at, (offset, bytes)) in undone.into_iter().rev() {
            let copies = pool.words(at.word(HEADER_WORDS), bytes / 8);
            for (word, copy) in pool.words(offset, bytes / 8).iter().zip(copies) {
                word.store(copy.load(Acquire), Release);
            }
            pool.flush(offset, bytes);
        }
        pool.fence();
        opened.finish();
        opened
    }

    /// The range that a whole entry of this generation holds.
    #[cfg(test)]
    fn entry(&self, at: PoolOffset) -> Option<(PoolOffset, usize)> {
        let words = self.pool.try_words(at, HEADER_WORDS)?;
        let [sum, offset, bytes, generation] = std::array::from_fn(|i| words[i].load(Acquire));
        let end = self.log.plus(LOG_BYTES);
        let fits = bytes > 0 && bytes % 8 == 0 && at.checked_plus(entry_bytes(bytes as usize))? <= end;
        if !fits || generation != self.generation {
            return None;
        }
        let copies = self.pool.words(at.word(HEADER_WORDS), bytes as usize / 8);
        let data = copies.iter().map(|word| word.load(Acquire));
        (checksum([offset, bytes, generation].into_iter().chain(data)) == sum)
            .then_some((PoolOffset::from_word(offset), bytes as usize))
    }

    /// Copies a range to the log before it is changed.
    pub(super) fn add(&mut self, offset: PoolOffset, bytes: usize) {
        let at = self.log.plus(self.next_entry);
        let following = at.plus(entry_bytes(bytes));
        assert!(following.plus(LINE_BYTES) <= self.log.plus(LOG_BYTES), "the log has room for a transaction");
        self.pool.words(following, LINE_WORDS).iter().for_each(|word| word.store(0, Relaxed));
        self.pool.flush(following, LINE_BYTES as usize);
        self.pool.fence();
        let words = self.pool.words(at, HEADER_WORDS + bytes / 8);
        for (copy, word) in words[HEADER_WORDS..].iter().zip(self.pool.words(offset, bytes / 8)) {
            copy.store(word.load(Acquire), Relaxed);
        }
        let header = [offset.to_word(), bytes as u64, self.generation];
        let data = words[HEADER_WORDS..].iter().map(|word| word.load(Relaxed));
        words[0].store(checksum(header.into_iter().chain(data)), Relaxed);
        words[1..].iter().zip(header).for_each(|(word, value)| word.store(value, Relaxed));
        self.pool.flush(at, words.len() * 8);
        self.pool.fence();
        self.next_entry += entry_bytes(bytes);
        self.ranges.push((offset, bytes));
    }

    /// Makes what was changed durable, and the log's entries those of an earlier generation.
    pub(super) fn commit(&mut self) {
        for (offset, bytes) in self.ranges.drain(..) {
            self.pool.flush(offset, bytes);
        }
        self.pool.fence();
        self.finish();
    }

    fn finish(&mut self) {
        self.generation += 1;
        self.next_entry = LINE_BYTES;
        self.pool.word(self.log).store(self.generation, Release);
        self.pool.flush(self.log, 8);
        self.pool.fence();
    }
}

/// Bytes of an entry: whole lines.
fn entry_bytes(bytes: usize) -> u64 {
    ((HEADER_WORDS * 8 + bytes) as u64).next_multiple_of(LINE_BYTES)
}

/// The checksum that libpmemobj uses: Fletcher's, over 32-bit halves.
fn checksum(words: impl Iterator<Item = u64>) -> u64 {
    let (mut low, mut high) = (0u32, 0u32);
    for half in words.flat_map(|word| [word as u32, (word >> 32) as u32]) {
        low = low.wrapping_add(half);
        high = high.wrapping_add(low);
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use entresol_memory::crash::{CrashOptions, check};
    use std::sync::Arc;

    const WORDS: u64 = 6;

    /// The baseline is one: transactions over several ranges survive whole or not at all.
    #[test]
    fn transactions_are_failure_atomic() {
        let history = |pool: &Arc<Pool>| {
            let mut log = UndoLog::create(pool, "log")?;
            let object = pool.reserve(WORDS as usize * 64)?;
            let at = object.offset();
            pool.words(at, WORDS as usize * 8).iter().for_each(|word| word.store(0, Relaxed));
            pool.flush(at, WORDS as usize * 64);
            let mut with = pool.publication();
            with.allocate(object);
            with.set_root("words", at)?;
            with.publish()?;
            for round in 1..12 {
                for word in 0..WORDS {
                    log.add(at.plus(word * 64), 16);
                    pool.word(at.plus(word * 64)).store(round, Release);
                    pool.word(at.plus(word * 64 + 8)).store(round, Release);
                }
                log.commit();
            }
            Ok(())
        };
        let options = CrashOptions { random_states: 4, crash_recovery_every: 11, ..CrashOptions::default() };
        let report = check(&options, history, |pool| {
            let (Some(log), Some(at)) = (pool.root("log"), pool.root("words")) else { return Ok(()) };
            drop(UndoLog::open(pool, log));
            let value = |word: u64| pool.word(at.plus(word / 2 * 64 + word % 2 * 8)).load(Acquire);
            let first = value(0);
            if (0..2 * WORDS).all(|word| value(word) == first) {
                Ok(())
            } else {
                Err(format!("torn: {:?}", (0..2 * WORDS).map(value).collect::<Vec<_>>()))
            }
        });
        assert!(report.unwrap().explored(1000));
    }
}
