//! Ordered scans in both directions.
//!
//! A key that exists throughout the scan is returned once, in order; a key that is inserted or removed
//! meanwhile may be returned.

use super::{Content, LOW, SkipList, Towers};
use crate::error::Result;
use crate::latch;
use crate::node::{Entries, FixedKey};
use crate::range::{Range, Scan, truncate_to_range};
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;

impl<K: FixedKey, C: Content, T: Towers> Scan for SkipList<K, C, T> {
    type Key = K;

    /// Appends the entries of a range in ascending order, a node at a time until there are at least `enough`.
    /// Returns the rest of the range, if any. Cost: one descent, then consecutive nodes.
    fn scan(
        &self,
        range: RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<RangeInclusive<K>>> {
        let _pinned = self.pool.pin();
        let wanted = entries.len() + enough;
        let (mut from, to) = range.into_inner();
        let mut spins = 0;
        'descend: while from <= to {
            let path = self.descend(from)?;
            let (mut node, mut version) = (path.node, path.version);
            loop {
                let before = entries.len();
                C::append_sorted(self.parts(node), entries);
                let next = self.next_of(node);
                if !latch::validate(self.latch(node), version) {
                    entries.truncate(before);
                    latch::pause(&mut spins);
                    continue 'descend;
                }
                let is_last = truncate_to_range(entries, before, &from, &to);
                if let Some((greatest, _)) = entries[before..].last() {
                    match greatest.next() {
                        Some(next) => from = next,
                        None => return Ok(None),
                    }
                }
                if is_last || next.is_null() || from > to {
                    return Ok(None);
                }
                if entries.len() >= wanted {
                    return Ok(Some(from..=to));
                }
                let low: K = self.head_words(next)?.load_key(LOW);
                // The next node's version first, then this one's again: it was the next node at that time.
                let next_version = latch::read(self.latch(next));
                if !latch::validate(self.latch(node), version) {
                    continue 'descend;
                }
                if low > to {
                    return Ok(None);
                }
                // A cycle would end here: low keys ascend, and a descent reports an error if they do not.
                if low < from {
                    continue 'descend;
                }
                (node, version) = (next, next_version);
            }
        }
        Ok(None)
    }

    /// Same as [`Scan::scan`], in descending order. Cost: a descent for every node.
    fn scan_back(
        &self,
        range: RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<RangeInclusive<K>>> {
        let _pinned = self.pool.pin();
        let wanted = entries.len() + enough;
        let (from, mut to) = range.into_inner();
        let mut spins = 0;
        while from <= to {
            if entries.len() >= wanted {
                return Ok(Some(from..=to));
            }
            let path = self.descend(to)?;
            let parts = self.parts(path.node);
            let before = entries.len();
            C::append_sorted(parts, entries);
            let low: K = parts.head.load_key(LOW);
            if !latch::validate(self.latch(path.node), path.version) {
                entries.truncate(before);
                latch::pause(&mut spins);
                continue;
            }
            truncate_to_range(entries, before, &from, &to);
            entries[before..].reverse();
            match (path.node != self.head).then(|| low.previous()).flatten() {
                Some(below) => to = below,
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Iterates over a range, from either end (not both).
    pub fn range(&self, range: RangeInclusive<K>) -> Range<'_, SkipList<K, C, T>> {
        Range::new(self, range)
    }

    /// Iterates over all entries, from either end (not both).
    pub fn iter(&self) -> Range<'_, SkipList<K, C, T>> {
        let greatest = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];
        self.range(K::MIN..=K::load(&greatest))
    }
}

impl<'t, K: FixedKey, C: Content, T: Towers> IntoIterator for &'t SkipList<K, C, T> {
    type Item = Result<(K, u64)>;
    type IntoIter = Range<'t, SkipList<K, C, T>>;

    fn into_iter(self) -> Range<'t, SkipList<K, C, T>> {
        self.iter()
    }
}
