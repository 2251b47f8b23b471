//! Ranges that a thread has flushed since its last fence.
//!
//! A flush promises nothing before the next fence of its thread. So it only notes its range here, without a
//! lock, and the fence appends all noted ranges under one hold of the append lock: a commit of ten updates
//! takes the lock four times in place of forty, and threads that write different keys rarely contend for it.
//!
//! Invariants:
//! 1. *Read when appended.* A noted range is copied when it is appended, under the lock, not when it is
//!    noted. So a record still holds every store that was flushed before it, by any thread, and an older
//!    content never comes behind a newer one.
//! 2. *Nothing overtakes.* Every end of an interval between fences (a fence, a publication, a sync, closing)
//!    appends the noted ranges of its thread first, or in the same append in front.
//! 3. *One journal at a time.* While a thread has noted ranges of one journal, its flushes of others are
//!    appended at once.
//!
//! After a crash: a range that was noted and not appended is a flush without a fence, which may be lost. That
//! also holds for a thread that flushes and ends without a fence.
//!
//! Memory: 1 KiB a thread.

use crate::offset::PoolOffset;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of noted ranges, and of the words of their records.
const RANGES_MAX: usize = 64;
pub(crate) const WORDS_MAX: usize = 512;

/// Identity of a journal within the process; 0 is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JournalId(u64);

/// Open journals: only the cold path of [`note`] reads this.
static OPEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

impl JournalId {
    pub(crate) fn new() -> JournalId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let is_new = OPEN.lock().insert(id);
        assert!(is_new, "a journal has a number of its own, not {id}");
        JournalId(id)
    }
}

impl Drop for JournalId {
    fn drop(&mut self) {
        OPEN.lock().remove(&self.0);
    }
}

/// Range of words: offset and bytes.
type Range = (PoolOffset, usize);

struct Stage {
    /// Journal of the noted ranges, if there are any.
    journal: Cell<u64>,
    count: Cell<usize>,
    /// Number of words of their records.
    words: Cell<usize>,
    ranges: [Cell<Range>; RANGES_MAX],
}

thread_local! {
    // Nothing to drop, so that reaching it is one instruction.
    static STAGE: Stage = const {
        Stage {
            journal: Cell::new(0),
            count: Cell::new(0),
            words: Cell::new(0),
            ranges: [const { Cell::new((PoolOffset::NULL, 0)) }; RANGES_MAX],
        }
    };
}

/// Result of noting ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteResult {
    Yes,
    /// The stage is full: the noted ranges have to be appended first.
    Full,
    /// Too many ranges, or another journal has noted ranges.
    Never,
}

/// Notes ranges whose records take `words` words.
#[inline]
pub(crate) fn note(journal: &JournalId, ranges: &[Range], words: usize) -> NoteResult {
    debug_assert!(words > ranges.len() || ranges.is_empty(), "a range's record has a head and words");
    STAGE.with(|stage| {
        let count = stage.count.get();
        if count == 0 {
            stage.journal.set(journal.0);
        } else if stage.journal.get() != journal.0 {
            return stage.note_of_another(journal, ranges, words);
        }
        if count + ranges.len() > RANGES_MAX || stage.words.get() + words > WORDS_MAX {
            return if ranges.len() > RANGES_MAX || words > WORDS_MAX {
                NoteResult::Never
            } else {
                NoteResult::Full
            };
        }
        for (to, range) in stage.ranges[count..].iter().zip(ranges) {
            to.set(*range);
        }
        debug_assert!(count > 0 || stage.words.get() == 0, "without ranges there are no words of records");
        stage.count.set(count + ranges.len());
        stage.words.set(stage.words.get() + words);
        NoteResult::Yes
    })
}

impl Stage {
    #[cold]
    fn note_of_another(&self, journal: &JournalId, ranges: &[Range], words: usize) -> NoteResult {
        assert_ne!(self.journal.get(), journal.0, "the noted ranges are of another journal");
        if OPEN.lock().contains(&self.journal.get()) {
            return NoteResult::Never;
        }
        // Its pool was dropped, and no thread will fence the ranges noted for it.
        self.forget();
        note(journal, ranges, words)
    }

    fn forget(&self) {
        self.count.set(0);
        self.words.set(0);
    }
}

/// Number of words of the records of this thread's noted ranges.
#[inline]
pub(crate) fn words(journal: &JournalId) -> usize {
    STAGE.with(|stage| if stage.journal.get() == journal.0 { stage.words.get() } else { 0 })
}

/// Calls `visit` with every range that this thread has noted, in order, and removes them; returns their
/// number.
#[inline]
pub(crate) fn take(journal: &JournalId, mut visit: impl FnMut(Range)) -> usize {
    STAGE.with(|stage| {
        if stage.journal.get() != journal.0 {
            return 0;
        }
        let count = stage.count.get();
        stage.ranges[..count].iter().for_each(|range| visit(range.get()));
        debug_assert!(count <= RANGES_MAX, "no more ranges are noted than the stage has room for");
        stage.forget();
        count
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges at numbers of bytes.
    fn at<const N: usize>(ranges: [(u64, usize); N]) -> [Range; N] {
        ranges.map(|(offset, bytes)| (PoolOffset::new(offset), bytes))
    }

    fn taken(journal: &JournalId) -> Vec<Range> {
        let mut ranges = Vec::new();
        take(journal, |range| ranges.push(range));
        ranges
    }

    #[test]
    fn ranges_come_back_in_order_and_once() {
        let journal = JournalId::new();
        assert_eq!(note(&journal, &at([(8, 8), (64, 16)]), 5), NoteResult::Yes);
        assert_eq!(note(&journal, &at([(0, 8)]), 2), NoteResult::Yes);
        assert_eq!(words(&journal), 7);
        assert_eq!(taken(&journal), at([(8, 8), (64, 16), (0, 8)]));
        assert_eq!((words(&journal), taken(&journal)), (0, vec![]));
    }

    #[test]
    fn what_does_not_fit_is_full_and_what_never_fits_says_so() {
        let journal = JournalId::new();
        assert_eq!(note(&journal, &at([(0, 8)]), WORDS_MAX + 1), NoteResult::Never);
        (0..RANGES_MAX).for_each(|_| assert_eq!(note(&journal, &at([(0, 8)]), 2), NoteResult::Yes));
        assert_eq!(note(&journal, &at([(0, 8)]), 2), NoteResult::Full);
        assert_eq!(taken(&journal).len(), RANGES_MAX);
        assert_eq!(note(&journal, &at([(0, 8)]), WORDS_MAX), NoteResult::Yes);
        assert_eq!(note(&journal, &at([(0, 8)]), 2), NoteResult::Full);
        taken(&journal);
    }

    #[test]
    fn one_journal_at_a_time_and_none_that_is_gone() {
        let (first, second) = (JournalId::new(), JournalId::new());
        assert_eq!(note(&first, &at([(8, 8)]), 2), NoteResult::Yes);
        assert_eq!(note(&second, &at([(16, 8)]), 2), NoteResult::Never);
        assert_eq!((words(&second), taken(&second)), (0, vec![]));
        assert_eq!(words(&first), 2);
        drop(first);
        assert_eq!(note(&second, &at([(16, 8)]), 2), NoteResult::Yes, "notes of a closed pool are discarded");
        assert_eq!(taken(&second), at([(16, 8)]));
    }
}
