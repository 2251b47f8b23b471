//! Iterators over a range of keys, for any structure that scans.
//!
//! A [`Scan`] fetches a run of entries at a time and returns the rest of the range; [`Range`] makes an
//! iterator of that. It holds no lock between two fetches, so writers and a paused reader do not block each
//! other.

use crate::error::Result;
use crate::node::{Entries, FixedKey};
use std::ops::RangeInclusive;

/// Entries that an iterator fetches at a time, roughly; the first time fewer.
const BATCH_ENTRIES_MAX: usize = 1024;
const BATCH_ENTRIES_FIRST: usize = 64;

/// Ordered scans in both directions.
///
/// A key that exists throughout a scan is returned once, in order; a key that is inserted or removed
/// meanwhile may be returned.
pub trait Scan {
    /// Type of its keys.
    type Key: FixedKey;

    /// Appends the entries of a range in ascending order until there are at least `enough`, or none are left.
    /// Returns the rest of the range, if any.
    fn scan(
        &self,
        range: RangeInclusive<Self::Key>,
        enough: usize,
        entries: &mut Entries<Self::Key>,
    ) -> Result<Option<RangeInclusive<Self::Key>>>;

    /// Same as [`Scan::scan`], in descending order.
    fn scan_back(
        &self,
        range: RangeInclusive<Self::Key>,
        enough: usize,
        entries: &mut Entries<Self::Key>,
    ) -> Result<Option<RangeInclusive<Self::Key>>>;
}

/// An iterator over a range, from either end (not both).
pub struct Range<'s, S: Scan> {
    structure: &'s S,
    left: Option<RangeInclusive<S::Key>>,
    entries: std::vec::IntoIter<(S::Key, u64)>,
    batch: usize,
    is_descending: Option<bool>,
}

impl<'s, S: Scan> Range<'s, S> {
    pub(crate) fn new(structure: &'s S, range: RangeInclusive<S::Key>) -> Range<'s, S> {
        Range {
            structure,
            left: Some(range),
            entries: Entries::new().into_iter(),
            batch: BATCH_ENTRIES_FIRST,
            is_descending: None,
        }
    }

    fn advance(&mut self, descending: bool) -> Option<Result<(S::Key, u64)>> {
        assert!(*self.is_descending.get_or_insert(descending) == descending, "a range has one direction");
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            let range = self.left.take()?;
            let mut entries = Entries::new();
            let fetched = if descending {
                self.structure.scan_back(range, self.batch, &mut entries)
            } else {
                self.structure.scan(range, self.batch, &mut entries)
            };
            self.batch = (self.batch * 2).min(BATCH_ENTRIES_MAX);
            match fetched {
                Ok(left) => self.left = left,
                Err(error) => return Some(Err(error)),
            }
            self.entries = entries.into_iter();
        }
    }
}

impl<S: Scan> Iterator for Range<'_, S> {
    type Item = Result<(S::Key, u64)>;

    fn next(&mut self) -> Option<Result<(S::Key, u64)>> {
        self.advance(false)
    }
}

impl<S: Scan> DoubleEndedIterator for Range<'_, S> {
    fn next_back(&mut self) -> Option<Result<(S::Key, u64)>> {
        self.advance(true)
    }
}

/// Truncates the sorted entries from an index on to a range; returns true if there was one above it.
pub(crate) fn truncate_to_range<K: FixedKey>(
    entries: &mut Entries<K>,
    before: usize,
    from: &K,
    to: &K,
) -> bool {
    let above = before + entries[before..].partition_point(|(key, _)| key <= to);
    let is_last = above < entries.len();
    entries.truncate(above);
    let below = entries[before..].partition_point(|(key, _)| key < from);
    entries.drain(before..before + below);
    is_last
}
