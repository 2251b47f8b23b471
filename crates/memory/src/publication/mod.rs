//! Publications: several words change together, or none does.
//!
//! The word that makes an object reachable and the word that marks it allocated are different. A
//! [`Publication`] changes both, so that no crash leaks an object or leaves a pointer to free memory.
//!
//! On `journal` it is one record of the redo journal; on `dax` and `crashing` it goes through a small redo
//! lane in the pool header ([`crate::domain::redo`]).

mod parts;

use crate::allocator::Reservation;
use crate::error::{Error, Result};
use crate::layout::{ROOT_DIRECTORY, ROOT_ENTRY_BYTES, ROOT_NAME_BYTES_MAX, ROOTS_MAX};
use crate::mapping::Mapping;
use crate::offset::PoolOffset;
use crate::order::{After, Barrier, Fault, OrderPoint, PointKind, Store};
use crate::points::{
    ALLOCATED_WITH_ITS_REFERENCE, FREED_WITH_ITS_REFERENCE, ROOT_IN_ONE_STORE, ROOT_NAME,
    ROOT_WITH_ITS_OBJECT,
};
use crate::pool::{Pool, rounded_out};
use parts::PartsGuard;
use std::sync::atomic::Ordering;

/// Maximum number of updates of one publication: those that fit a redo lane.
pub const PUBLICATION_WORDS_MAX: usize = 64;

/// Number of the latest updates among which bits of the same word are looked for: objects of several sizes may
/// be allocated in turns.
const MERGED_AMONG: usize = 8;

/// Kind of an update of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    /// The word becomes the value. The publisher must be its only writer.
    Set = 0,
    /// The value's bits are set. Other threads may change other bits at the same time.
    SetBits = 1,
    /// The value's bits are cleared. Other threads may change other bits at the same time.
    ClearBits = 2,
}

/// Change of one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) offset: PoolOffset,
    pub(crate) operation: Operation,
    pub(crate) value: u64,
}

impl Update {
    pub(crate) fn apply(&self, mapping: &Mapping) {
        debug_assert!(self.offset.is_aligned(8), "an update is of one aligned word: {}", self.offset);
        let word = &mapping.words(self.offset.bytes(), 1)[0];
        match self.operation {
            Operation::Set => word.store(self.value, Ordering::Release),
            Operation::SetBits => {
                word.fetch_or(self.value, Ordering::AcqRel);
            }
            Operation::ClearBits => {
                word.fetch_and(!self.value, Ordering::AcqRel);
            }
        }
    }
}

/// Set of changes that become visible and durable together. Dropped unpublished, it changes nothing and
/// releases its reservations.
#[must_use = "a publication that is not published changes nothing"]
pub struct Publication<'p> {
    pool: &'p Pool,
    parts: PartsGuard,
    /// Error that prevents the publication.
    failure: Option<Error>,
}

impl Drop for Publication<'_> {
    #[inline]
    fn drop(&mut self) {
        for &(offset, bytes) in &self.parts.reserved {
            self.pool.allocator().unreserve(offset, bytes);
        }
        if !self.parts.root_claims.is_empty() {
            let mut claims = self.pool.root_claims().lock();
            for (entry, _) in &self.parts.root_claims {
                claims.remove(entry);
            }
        }
    }
}

impl<'p> Publication<'p> {
    #[inline]
    pub(crate) fn new(pool: &'p Pool) -> Publication<'p> {
        Publication { pool, parts: PartsGuard::take(), failure: None }
    }

    /// Pool that it changes.
    #[inline]
    pub fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// Number of updates.
    pub fn len(&self) -> usize {
        self.parts.updates.len()
    }

    /// Returns true if there are no updates.
    pub fn is_empty(&self) -> bool {
        self.parts.updates.is_empty()
    }

    #[inline]
    fn push(&mut self, update: Update) {
        // Objects that are allocated together mostly have their bits in one word.
        if update.operation == Operation::SetBits {
            let mut latest = self.parts.updates.iter_mut().rev().take(MERGED_AMONG);
            let sets_bits_there =
                |other: &&mut Update| other.operation == Operation::SetBits && other.offset == update.offset;
            if let Some(same) = latest.find(sets_bits_there) {
                debug_assert!(same.value & update.value == 0, "a bit is set once by a publication");
                same.value |= update.value;
                return;
            }
        }
        assert!(self.parts.updates.len() < PUBLICATION_WORDS_MAX, "a publication carries at most 64 updates");
        debug_assert!(
            update.operation == Operation::Set || update.value != 0,
            "an update of bits names at least one"
        );
        debug_assert!(update.offset.is_aligned(8), "an update changes a word, not {:#x}", update.offset);
        self.parts.updates.push(update);
    }

    /// Stores a word at publication, flushed before the changes: for objects that they make reachable. Other
    /// threads see these words in the order of the calls, and before the changes. Does not count as a change:
    /// a crash in between may leave some of these words stored and others not. The same as a plain store and
    /// a flush before, but cheaper.
    #[inline]
    pub fn write(&mut self, offset: PoolOffset, value: u64) {
        debug_assert!(offset.is_aligned(8), "a write stores a word, not at {offset:#x}");
        self.parts.writes.push((offset, value));
    }

    /// Flushes a range at publication, before the changes: as a [`Pool::flush_at`] right before it, but on
    /// `journal` part of the same append. The words must be stored already, and stay as they are.
    #[inline]
    pub fn flush(&mut self, offset: PoolOffset, bytes: usize) {
        if bytes > 0 {
            debug_assert!(offset.checked_plus(bytes as u64).is_some(), "a range ends inside the pool");
            self.parts.flushes.push(rounded_out(offset, bytes));
        }
    }

    /// Sets the word at `offset`. The caller prevents other changes of that word meanwhile.
    #[inline]
    pub fn set(&mut self, offset: PoolOffset, value: u64) {
        self.push(Update { offset, operation: Operation::Set, value });
    }

    /// [`Publication::set`] at a point of a protocol.
    #[inline]
    pub fn set_at(&mut self, offset: PoolOffset, value: u64, point: OrderPoint<Store>) {
        debug_assert!(offset.is_aligned(8), "an update changes a word, not {offset:#x}");
        if point.asks_for(Fault::InTwo) {
            let nothing = Update { offset, operation: Operation::Set, value: 0 };
            self.pool.domain_publish(&[], &[], &[nothing]);
        }
        if point.asks_for(Fault::StoredOnly) {
            return self.pool.word(offset).store(value, Ordering::Release);
        }
        self.set(offset, value);
    }

    /// States that what it has collected so far and what it collects from now on must survive a crash
    /// together: here a test makes two publications of it.
    #[inline(always)]
    pub fn barrier(&mut self, point: OrderPoint<Barrier>) {
        for fault in [Fault::Split, Fault::Reversed] {
            self.split_if_asked(point, fault);
        }
    }

    /// States that what it collects from now on survives a crash only together with what it has collected so
    /// far: here a test makes two publications of it, the later part first.
    #[inline(always)]
    pub fn after(&mut self, point: OrderPoint<After>) {
        self.split_if_asked(point, Fault::Reversed);
    }

    #[inline(always)]
    fn split_if_asked<K: PointKind>(&mut self, point: OrderPoint<K>, fault: Fault) {
        if point.asks_for(fault) {
            self.parts.split_here(fault);
        }
    }

    /// Makes the reserved object allocated; returns its offset. Objects that lie side by side are one update.
    #[inline]
    pub fn allocate(&mut self, reservation: Reservation<'p>) -> PoolOffset {
        self.push(reservation.allocation());
        self.barrier(ALLOCATED_WITH_ITS_REFERENCE);
        let (offset, bytes) = reservation.hand_over();
        debug_assert!(
            self.parts.reserved.iter().all(|(reserved, _)| *reserved != offset),
            "{offset:#x} is allocated twice by one publication"
        );
        self.parts.reserved.push((offset, bytes));
        offset
    }

    /// Frees an allocated object. Its memory is reused only when every present [`crate::Guard`] is gone. If
    /// the size of the object cannot be read (damage), publishing will fail.
    pub fn free(&mut self, offset: PoolOffset) {
        debug_assert!(
            self.parts.reserved.iter().all(|(reserved, _)| *reserved != offset),
            "{offset:#x} is allocated and freed by one publication"
        );
        assert!(self.parts.frees.iter().all(|(freed, _)| *freed != offset), "{offset:#x} is freed twice");
        let (update, bytes) = match self.pool.allocator().release(self.pool, offset) {
            Ok(released) => released,
            Err(error) => {
                self.failure.get_or_insert(error);
                return;
            }
        };
        self.barrier(FREED_WITH_ITS_REFERENCE);
        self.push(update);
        self.parts.frees.push((offset, bytes));
    }

    /// Names a root object; [`PoolOffset::NULL`] removes the name from the directory. Two publications in flight must not
    /// add the same new name.
    pub fn set_root(&mut self, name: &str, offset: PoolOffset) -> Result<()> {
        if name.is_empty() || name.len() > ROOT_NAME_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "root name '{name}' has {} bytes, allowed are 1 to {ROOT_NAME_BYTES_MAX}",
                name.len()
            )));
        }
        let claimed =
            self.parts.root_claims.iter().find(|(_, claimed)| claimed == name).map(|(entry, _)| *entry);
        let entry = match claimed.or_else(|| self.pool.root_entry(name)) {
            Some(entry) => entry,
            None => self.new_root_entry(name)?,
        };
        self.barrier(ROOT_WITH_ITS_OBJECT);
        self.set_at(entry, offset.to_word(), ROOT_IN_ONE_STORE);
        Ok(())
    }

    /// Claims a free entry and writes the name into it; it counts only once its offset word is published.
    fn new_root_entry(&mut self, name: &str) -> Result<PoolOffset> {
        debug_assert!((1..=ROOT_NAME_BYTES_MAX).contains(&name.len()), "the name's length was checked");
        let mut claims = self.pool.root_claims().lock();
        let entry = (0..ROOTS_MAX as u64)
            .map(|i| ROOT_DIRECTORY.block(i, ROOT_ENTRY_BYTES))
            .find(|entry| self.pool.word(*entry).load(Ordering::Acquire) == 0 && !claims.contains(entry))
            .ok_or_else(|| Error::OutOfSpace {
                what: format!("the root directory is full ({ROOTS_MAX} names)"),
            })?;
        let is_new = claims.insert(entry);
        assert!(is_new, "the directory entry at {entry:#x} is claimed by one publication at a time");
        drop(claims);
        self.parts.root_claims.push((entry, name.to_string()));
        let words = self.pool.words(entry.plus(8), 7);
        words[0].store(name.len() as u64, Ordering::Relaxed);
        for (word, bytes) in words[1..].iter().zip(padded_words(name.as_bytes())) {
            word.store(bytes, Ordering::Relaxed);
        }
        self.pool.flush_at(entry.plus(8), 56, ROOT_NAME);
        Ok(entry)
    }

    /// Carries out the changes. All earlier flushes of this thread are ordered before them, and all later
    /// ones after them.
    #[inline]
    pub fn publish(self) -> Result<()> {
        self.ready()?.publish();
        Ok(())
    }

    /// Checks everything that could prevent the changes. So actions in DRAM that accompany them can be taken
    /// between this and [`ReadyPublication::publish`], and need not be undone.
    #[inline]
    pub fn ready(mut self) -> Result<ReadyPublication<'p>> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        self.pool.check_healthy()?;
        debug_assert!(
            self.parts.updates.len() <= PUBLICATION_WORDS_MAX,
            "what is published at once fits a lane and an append"
        );
        Ok(ReadyPublication(self))
    }
}

/// Publication that cannot fail any more.
#[must_use = "a publication that is not published changes nothing"]
pub struct ReadyPublication<'p>(Publication<'p>);

impl ReadyPublication<'_> {
    /// As [`Publication::publish`]. If the pool fails meanwhile, the changes are made in DRAM and never
    /// become durable, as those of any publication before the failure was known.
    #[inline]
    pub fn publish(mut self) {
        debug_assert!(self.0.failure.is_none(), "a publication with a failure is not ready");
        let Publication { pool, parts, .. } = &mut self.0;
        parts.hand_over(|flushes, writes, updates| pool.domain_publish(flushes, writes, updates));
        parts.reserved.clear();
        if !parts.frees.is_empty() {
            pool.allocator().retire(*pool, &parts.frees);
        }
    }
}

/// The bytes as little-endian words, zero padded to the length of a root's name.
fn padded_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    assert!(bytes.len() <= ROOT_NAME_BYTES_MAX, "a name of {} bytes has no place", bytes.len());
    let mut padded = [0u8; ROOT_NAME_BYTES_MAX];
    padded[..bytes.len()].copy_from_slice(bytes);
    (0..ROOT_NAME_BYTES_MAX / 8).map(move |i| {
        let mut word = [0u8; 8];
        word.copy_from_slice(&padded[8 * i..8 * i + 8]);
        u64::from_le_bytes(word)
    })
}
