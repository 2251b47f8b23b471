//! Three ways to write a range so that a power failure leaves it before or after (dissertation 3.3.4, figure
//! 3.6), as E6 and E7 compare them.

use super::bench::{free, object};
use crate::Error;
use entresol_memory::{Pool, PoolOffset};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Failure atomicity of a range that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Atomicity {
    /// Everything is flushed, in no order.
    None,
    /// The range is flushed; then one word, by which it counts.
    Individual,
    /// An undo-log transaction of the kind of PMDK's around the whole: what the range holds is copied to a
    /// log first.
    Transaction,
}

impl Atomicity {
    pub(super) const ALL: [Atomicity; 3] = [Atomicity::None, Atomicity::Individual, Atomicity::Transaction];

    pub(super) fn name(self) -> &'static str {
        match self {
            Atomicity::None => "no failure atomicity",
            Atomicity::Individual => "individual",
            Atomicity::Transaction => "transaction",
        }
    }
}

/// Target of writes: a log, and the word that says which ranges count.
pub(super) struct Target<'p> {
    pool: &'p Pool,
    log: PoolOffset,
    next_free: PoolOffset,
}

/// Bytes of a log's entry in front of what it keeps: offset and bytes.
const ENTRY_BYTES: u64 = 16;

impl<'p> Target<'p> {
    /// A log for ranges of at most so many bytes.
    pub(super) fn new(pool: &'p Pool, bytes_max: usize) -> Result<Target<'p>, Error> {
        let log = object(pool, bytes_max + ENTRY_BYTES as usize)?;
        Ok(Target { pool, log, next_free: object(pool, 64)? })
    }

    /// Writes entries to a fresh range. A transaction has to log `logged_bytes` of it: as much as it may
    /// become.
    pub(super) fn write(
        &self,
        atomicity: Atomicity,
        offset: PoolOffset,
        logged_bytes: usize,
        entries: &[(u64, u64)],
    ) {
        self.begin(atomicity, offset, logged_bytes);
        let words = self.pool.view(offset, entries.len() * 2);
        for (pair, (key, value)) in words.chunks_exact(2).zip(entries) {
            pair[0].store(*key, Relaxed);
            pair[1].store(*value, Relaxed);
        }
        self.commit(atomicity, offset, entries.len() * 16);
    }

    /// Goes before the first store to a fresh range: a transaction logs `logged_bytes` of it.
    pub(super) fn begin(&self, atomicity: Atomicity, offset: PoolOffset, logged_bytes: usize) {
        if atomicity == Atomicity::Transaction {
            self.log(offset, logged_bytes);
        }
    }

    /// Goes behind the last store: flushes `bytes` of the range and makes it count.
    pub(super) fn commit(&self, atomicity: Atomicity, offset: PoolOffset, bytes: usize) {
        self.pool.flush(offset, bytes);
        match atomicity {
            Atomicity::None => self.pool.fence(),
            Atomicity::Individual => {
                self.pool.fence();
                self.store(self.next_free, offset.to_word());
            }
            Atomicity::Transaction => {
                self.store(self.next_free, offset.to_word());
                // The log is void from here on.
                self.store(self.log, 0);
            }
        }
    }

    /// Gives its log back.
    pub(super) fn free(self) -> Result<(), Error> {
        free(self.pool, [self.log, self.next_free])
    }

    /// Copies what the range holds to the log; then the entry counts.
    fn log(&self, offset: PoolOffset, bytes: usize) {
        let old = self.pool.words(offset, bytes / 8);
        let entry = self.pool.view(self.log, (ENTRY_BYTES as usize + bytes) / 8);
        entry[1].store(bytes as u64, Relaxed);
        entry[2..].iter().zip(old).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        self.pool.flush(self.log, ENTRY_BYTES as usize + bytes);
        self.pool.fence();
        self.store(self.log, offset.to_word());
    }

    fn store(&self, offset: PoolOffset, value: u64) {
        self.pool.view(offset, 1)[0].store(value, Release);
        self.pool.flush(offset, 8);
        self.pool.fence();
    }

    /// Returns true if a range holds the entries, and is the last that counts where a word says so.
    pub(super) fn holds(&self, atomicity: Atomicity, offset: PoolOffset, entries: &[(u64, u64)]) -> bool {
        let words = self.pool.view(offset, entries.len() * 2);
        let stored = words.chunks_exact(2).map(|pair| (pair[0].load(Relaxed), pair[1].load(Relaxed)));
        let counts = self.pool.view(self.next_free, 1)[0].load(Relaxed) == offset.to_word();
        stored.eq(entries.iter().copied()) && (atomicity == Atomicity::None || counts)
    }
}
