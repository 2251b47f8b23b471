//! PMwCAS: a persistent compare-and-swap over several words (Wang, Levandoski and Larson 2018; dissertation
//! 3.1, 3.3.4): the general-purpose way to failure atomicity that is also one to concurrency without latches.
//!
//! ```text
//!  word    content
//!  value   a word's value has 61 bits
//!  dirty   bit 63: may not be durable yet; a reader flushes it first
//!  desc    bit 62: *in flight*: the number of the descriptor of the word's operation
//!  trial   bit 61: an attempt to set *in flight*: 48 bits of its own number, then descriptor and entry
//!
//!  word of a descriptor   content
//!  0                      status: 1 undecided, 2 succeeded, 3 failed; or dirty
//!  1                      number of entries
//!  2 + 3i ..              entry i: the word's offset, the expected value, the new value
//! ```
//!
//! An operation has these phases. Every thread that finds it in a word helps: it executes the same steps.
//! 1. *Prepare.* Entries and status are written to a free descriptor, flushed; fence.
//! 2. *Install.* In order of offsets each word is swapped from the expected value to *in flight*. A trial
//!    comes first, so that this happens only while the status is undecided: otherwise the word is restored.
//! 3. *Precommit.* All words are flushed; fence: they refer to the descriptor durably.
//! 4. *Decide.* The status becomes succeeded, or failed if a word had another value; flushed; fence.
//! 5. *Finish.* Every word becomes the new value, or the old one again; flushed; fence.
//!
//! **After a crash.** A word that refers to a descriptor, or a trial of it, gets the new value if the
//! descriptor's status is succeeded, else the old one; [`PmwCas::open`] does that for all descriptors. It can
//! be interrupted and repeated, as it only changes words that refer to a descriptor. Dirty words are flushed
//! there too.
//!
//! **Reuse of descriptors.** A descriptor is reused when all participants of its operation have left, and no
//! reader can still have its number from a word: the first are counted in DRAM, the second are the pool's
//! guards. Only a participant makes trials, and finishes after them, so no word refers to a descriptor
//! without participants. Each attempt has new numbers of trials: a delayed helper cannot take another
//! thread's trial for its own and install an operation that was decided long ago.
//!
//! **Rules for callers.** The words are written by this module alone, from their first use on, and read by
//! [`PmwCas::read`]. Values have 61 bits. Before an object with such words is freed, no operation on them is
//! in flight any more, and [`PmwCas::forget`] is called: recovery reads the words of all descriptors.
//!
//! **Cost.** Four fences, `2n + 2` ranges flushed and `3n + 2` atomic operations for `n` words; nothing is
//! allocated. Memory: 256 bytes of the pool for each descriptor.
//!
//! ```
//! use entresol_memory::{Pool, PoolOptions};
//! use entresol_structures::pmwcas::{PmwCas, Swap};
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let mut publication = pool.publication();
//! let root = PmwCas::create(&pool, 16, &mut publication)?;
//! let accounts = publication.allocate(pool.reserve(64)?);
//! publication.set(accounts, 100);
//! publication.set(accounts.plus(8), 0);
//! publication.set_root("descriptors", root)?;
//! publication.publish()?;
//! let words = PmwCas::open(&pool, root)?;
//! let transfer = [Swap { at: accounts, old: 100, new: 70 }, Swap { at: accounts.plus(8), old: 0, new: 30 }];
//! assert!(words.compare_and_swap(&transfer)?);
//! assert!(!words.compare_and_swap(&transfer)?, "the first word is 70 now");
//! assert_eq!((words.read(accounts)?, words.read(accounts.plus(8))?), (70, 30));
//! # Ok::<(), entresol_structures::Error>(())
//! ```

mod descriptor;
mod lifecycle;
mod steps;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::latch;
use crate::points::FREED_AFTER_FORGOTTEN;
use descriptor::Descriptor;
use entresol_memory::{Pool, PoolOffset};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Maximum of words of one operation.
pub const WORDS_MAX: usize = 8;
/// Maximum of descriptors of a [`PmwCas`].
pub const DESCRIPTORS_MAX: usize = 1024;
/// The greatest value of a word.
pub const VALUE_MAX: u64 = (1 << 61) - 1;

/// The change of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// The word's pool offset.
    pub at: PoolOffset,
    /// Expected value.
    pub old: u64,
    /// New value.
    pub new: u64,
}

/// Operations over several words; see the [module](self). Any number of threads may share one.
pub struct PmwCas {
    pool: Arc<Pool>,
    header: PoolOffset,
    /// Free descriptors.
    free: Arc<Mutex<Vec<u64>>>,
    /// Number of participants of each descriptor's operation; 0: none may enter.
    participants: Box<[AtomicU64]>,
    /// Number of trials so far.
    trials: AtomicU64,
}

impl PmwCas {
    /// Returns the pool offset of the header, for [`PmwCas::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.header
    }

    /// Changes all words atomically if each has its old value; returns true if it did. When it returns, the
    /// outcome is durable (on a journal: ordered; see [`Pool::sync`]). Waits if all descriptors are in use.
    /// An error if a word is named twice or cannot be in the pool, if there are none or more than
    /// [`WORDS_MAX`], or a value is above [`VALUE_MAX`].
    pub fn compare_and_swap(&self, swaps: &[Swap]) -> Result<bool> {
        self.pool.check_healthy()?;
        let mut swaps: SmallVec<[Swap; WORDS_MAX]> = SmallVec::from_slice(swaps);
        // In one order for all, so that two operations cannot each wait for the other's word.
        swaps.sort_unstable_by_key(|swap| swap.at);
        self.check_swaps(&swaps)?;
        let descriptor = self.claim();
        let _pinned = self.pool.pin();
        self.prepare(descriptor, &swaps);
        let succeeded = self.execute(descriptor);
        self.leave(descriptor.number);
        succeeded
    }

    /// Returns a word's value, which is durable then. The word must be one that operations change; a word
    /// that is marked as in flight without an operation is damaged: an error.
    pub fn read(&self, at: PoolOffset) -> Result<u64> {
        if self.pool.try_words(at, 1).is_none() {
            return Err(Error::Invalid(format!("{at:#x} is not the offset of a word")));
        }
        let _pinned = self.pool.pin();
        self.settled(at)
    }

    fn check_swaps(&self, swaps: &[Swap]) -> Result<()> {
        if swaps.is_empty() || swaps.len() > WORDS_MAX {
            return Err(Error::Invalid(format!(
                "a swap has {} words; 1 to {WORDS_MAX} are allowed",
                swaps.len()
            )));
        }
        if let Some(pair) = swaps.windows(2).find(|pair| pair[0].at == pair[1].at) {
            return Err(Error::Invalid(format!("the word at {:#x} is listed twice", pair[0].at)));
        }
        for swap in swaps {
            if swap.at.is_null() || self.pool.try_words(swap.at, 1).is_none() {
                return Err(Error::Invalid(format!("{:#x} is not the offset of a word", swap.at)));
            }
            if swap.old.max(swap.new) > VALUE_MAX {
                let greatest = swap.old.max(swap.new);
                return Err(Error::Invalid(format!("the value {greatest:#x} has more than 61 bits")));
            }
        }
        Ok(())
    }

    /// Claims a free descriptor.
    fn claim(&self) -> Descriptor<'_> {
        let mut spins = 0;
        loop {
            {
                let mut free = self.free.lock();
                if let Some(number) = free.pop() {
                    self.participants[number as usize].store(1, Release);
                    return self.descriptor(number);
                }
            }
            // Released descriptors become free when their readers have left.
            self.pool.pin().flush();
            latch::pause(&mut spins);
        }
    }

    /// Joins the operation of a descriptor, unless it is over.
    fn enter(&self, number: u64) -> bool {
        let one_more = |count: u64| (count > 0).then_some(count + 1);
        self.participants[number as usize].fetch_update(AcqRel, Acquire, one_more).is_ok()
    }

    /// Leaves an operation; the last participant releases the descriptor.
    fn leave(&self, number: u64) {
        if self.participants[number as usize].fetch_sub(1, AcqRel) == 1 {
            let free = Arc::downgrade(&self.free);
            self.pool.pin().defer(move || {
                if let Some(free) = free.upgrade() {
                    free.lock().push(number);
                }
            });
        }
    }

    /// Ensures that recovery does not read words of a range that is about to be freed. No operation on them
    /// may be in flight. Cost: a read of each descriptor; a fence.
    pub fn forget(&self, at: PoolOffset, bytes: u64) {
        let range = at..at.plus(bytes);
        let descriptors = 0..self.participants.len() as u64;
        descriptors.for_each(|number| self.forget_in(self.descriptor(number), &range));
        self.pool.fence_at(FREED_AFTER_FORGOTTEN);
    }
}
