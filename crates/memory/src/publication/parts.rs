//! Lists of a publication, reused by its thread for the next one.
//!
//! Publications are passed from function to function by value. In place of about 300 bytes that would be
//! copied at each step, right after they were written, one has a pointer to its parts. A thread keeps the
//! parts of its last publication, emptied, so that the next one allocates nothing.

use super::Update;
use crate::offset::PoolOffset;
use crate::order::Fault;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Maximum number of writes of parts that are reused.
const WRITES_KEPT_MAX: usize = 256;

/// Lists of a publication.
#[derive(Default)]
pub(super) struct Parts {
    /// Ranges of words to flush, as (offset, bytes).
    pub(super) flushes: Vec<(PoolOffset, usize)>,
    /// Words to store, with their values.
    pub(super) writes: Vec<(PoolOffset, u64)>,
    pub(super) updates: Vec<Update>,
    /// Objects that are released unless they are published: (offset, bytes).
    pub(super) reserved: Vec<(PoolOffset, u64)>,
    pub(super) frees: Vec<(PoolOffset, u64)>,
    /// Directory entries that this publication claims until it is published or dropped, and the names in
    /// them.
    pub(super) root_claims: Vec<(PoolOffset, String)>,
    /// Split in two for a test: how many writes and updates come before the split.
    #[cfg(feature = "mutants")]
    split: Option<(Fault, usize, usize)>,
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.flushes.is_empty()
            && self.writes.is_empty()
            && self.updates.is_empty()
            && self.reserved.is_empty()
            && self.frees.is_empty()
            && self.root_claims.is_empty()
    }

    fn clear(&mut self) {
        self.flushes.clear();
        self.writes.clear();
        self.updates.clear();
        self.reserved.clear();
        self.frees.clear();
        self.root_claims.clear();
        #[cfg(feature = "mutants")]
        self.split.take();
    }

    /// Splits it in two where it is now.
    pub(super) fn split_here(&mut self, _fault: Fault) {
        debug_assert!(self.updates.len() <= super::PUBLICATION_WORDS_MAX, "the split lies among the updates");
        #[cfg(feature = "mutants")]
        self.split.replace((_fault, self.writes.len(), self.updates.len()));
    }

    /// Gives what it carries to `publish`: flushes, writes and updates.
    #[inline(always)]
    pub(super) fn hand_over(
        &self,
        publish: impl Fn(&[(PoolOffset, usize)], &[(PoolOffset, u64)], &[Update]),
    ) {
        #[cfg(feature = "mutants")]
        if let Some((fault, writes, updates)) = self.split {
            let (writes, later_writes) = self.writes.split_at(writes);
            let (updates, later_updates) = self.updates.split_at(updates);
            if fault == Fault::Reversed {
                publish(&[], later_writes, later_updates);
                return publish(&self.flushes, writes, updates);
            }
            publish(&self.flushes, writes, updates);
            return publish(&[], later_writes, later_updates);
        }
        debug_assert!(
            self.writes.iter().all(|(offset, _)| offset.is_aligned(8)),
            "written words are aligned"
        );
        publish(&self.flushes, &self.writes, &self.updates);
    }
}

/// Parts that return to their thread on drop.
pub(super) struct PartsGuard(Option<Box<Parts>>);

thread_local! {
    static SPARE: Cell<Option<Box<Parts>>> = const { Cell::new(None) };
}

impl PartsGuard {
    /// Takes empty parts.
    #[inline]
    pub(super) fn take() -> PartsGuard {
        // An ending thread has no parts any more.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        debug_assert!(spare.as_deref().is_none_or(Parts::is_empty), "spare parts are empty");
        PartsGuard(Some(spare.unwrap_or_default()))
    }
}

impl Drop for PartsGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut parts) = self.0.take()
            && parts.writes.capacity() <= WRITES_KEPT_MAX
        {
            parts.clear();
            // Without a thread to keep them, they are freed.
            let _ = SPARE.try_with(|spare| spare.set(Some(parts)));
        }
    }
}

impl Deref for PartsGuard {
    type Target = Parts;

    #[inline]
    fn deref(&self) -> &Parts {
        self.0.as_deref().expect("parts are held until they are dropped")
    }
}

impl DerefMut for PartsGuard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Parts {
        self.0.as_deref_mut().expect("parts are held until they are dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_empty_and_two_at_once_are_two() {
        let (mut first, mut second) = (PartsGuard::take(), PartsGuard::take());
        first.writes.extend((0..100).map(|i| (PoolOffset::new(8 * i), i)));
        second.frees.push((PoolOffset::new(64), 1));
        let at = std::ptr::from_ref::<Parts>(&second);
        drop(first);
        drop(second);
        let again = PartsGuard::take();
        assert!(std::ptr::eq(at, &raw const *again), "the last that was dropped is kept");
        assert!(again.writes.is_empty() && again.frees.is_empty());
        let mut large = PartsGuard::take();
        large.writes.extend((0..10_000).map(|i| (PoolOffset::new(8 * i), i)));
        drop((again, large));
        assert!(PartsGuard::take().writes.capacity() <= WRITES_KEPT_MAX);
    }
}
