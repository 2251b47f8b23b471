//! Words of a partition, out of which copies take and return runs.
//!
//! Runs that are free lie side by side as one, so that room is lost only between runs that are in use. The arena grows
//! as its owner lets it, and never moves a run.

use super::copies::UNIT;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU32;

/// Words with free runs among them.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pub(super) words: Vec<AtomicU32>,
    /// Length of each free run by its first word.
    free: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
}

impl Arena {
    /// Words that a run of so many takes.
    pub(super) fn rounded(words: usize) -> usize {
        words.next_multiple_of(UNIT)
    }

    /// Takes the shortest free run that suffices; returns its first word.
    pub(super) fn take(&mut self, words: usize) -> Option<usize> {
        let words = Arena::rounded(words);
        let (length, first) = *self.by_length.range((words, 0)..).next()?;
        self.forget(first, length);
        if length > words {
            self.note(first + words, length - words);
        }
        Some(first)
    }

    /// Makes room for so many words at the end; returns the first one. None if all would be more than `words_max`.
    pub(super) fn grow(&mut self, words: usize, words_max: usize) -> Option<usize> {
        let words = Arena::rounded(words);
        let first = self.words.len();
        if first + words > words_max {
            return None;
        }
        if self.words.capacity() < first + words {
            // More than is needed now, so that growing does not cost much.
            self.words.reserve_exact(words.max(first / 2).min(words_max - first));
        }
        self.words.resize_with(first + words, AtomicU32::default);
        Some(first)
    }

    /// Returns a run.
    pub(super) fn release(&mut self, first: usize, words: usize) {
        let (mut first, mut length) = (first, Arena::rounded(words));
        debug_assert!(first + length <= self.words.len(), "a run is inside of its arena");
        if let Some((&before, &of_before)) = self.free.range(..first).next_back()
            && before + of_before == first
        {
            self.forget(before, of_before);
            (first, length) = (before, of_before + length);
        }
        if let Some(&of_next) = self.free.get(&(first + length)) {
            self.forget(first + length, of_next);
            length += of_next;
        }
        self.note(first, length);
    }

    fn note(&mut self, first: usize, length: usize) {
        self.free.insert(first, length);
        self.by_length.insert((length, first));
    }

    fn forget(&mut self, first: usize, length: usize) {
        self.free.remove(&first);
        self.by_length.remove(&(length, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_disjoint_and_freed_ones_become_one_run() {
        let mut arena = Arena::default();
        let sizes = [5, 13, 4, 104, 7, 60];
        let runs: Vec<usize> = sizes.iter().map(|words| arena.grow(*words, 200).unwrap()).collect();
        let ends = runs.iter().zip(sizes).map(|(first, words)| first + Arena::rounded(words));
        assert!(runs.iter().skip(1).zip(ends).all(|(next, end)| *next == end));
        assert_eq!(arena.take(1), None);
        assert_eq!(arena.grow(1, 200), None);
        // In another order than they lie.
        for at in [1, 3, 2, 5, 0] {
            arena.release(runs[at], sizes[at]);
        }
        assert_eq!(arena.free.len(), 2, "all but the fifth");
        assert_eq!(arena.take(120), Some(0), "the first four are one run");
        assert_eq!(arena.take(60), Some(runs[5]), "the shortest that suffices");
        assert_eq!(arena.take(9), Some(120));
    }
}
