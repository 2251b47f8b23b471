//! Ordered scans in both directions.
//!
//! A key that exists throughout the scan is returned once, in order; a key that is inserted or removed
//! meanwhile may be returned.

use super::{BTree, Placement};
use crate::error::{Error, Result};
use crate::latch;
use crate::node::{Entries, FixedKey, Layout};
use crate::range::{Range, Scan, truncate_to_range};
use std::ops::RangeInclusive;

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> Scan for BTree<K, L, I, P> {
    type Key = K;

    /// Appends the entries of a range in ascending order, a leaf at a time until there are at least `enough`.
    /// Returns the rest of the range, if any. Cost: one descent, then consecutive leaves.
    fn scan(
        &self,
        range: RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<RangeInclusive<K>>> {
        let _pinned = self.pool.pin();
        let wanted = entries.len() + enough;
        let (mut from, to) = range.into_inner();
        let geometry = L::geometry::<K>();
        let mut spins = 0;
        'descend: while from <= to {
            let found = self.descend(from)?;
            let (mut leaf, mut version, mut before_low) = (found.leaf, found.version, None);
            self.leaf_to_prefetch(leaf)?.prefetch_whole();
            loop {
                let node = self.leaf(leaf)?;
                let before = entries.len();
                let (low, next) = (node.load_key::<K>(geometry.spare), node.load_offset(geometry.next));
                // Not verified yet: only prefetched.
                if !next.is_null()
                    && before + L::count::<K>(node) < wanted
                    && let Ok(next) = self.leaf_to_prefetch(next)
                {
                    next.prefetch_whole();
                }
                L::append_sorted(node, entries);
                if !latch::validate(self.leaf_latch(leaf), version) {
                    entries.truncate(before);
                    latch::pause(&mut spins);
                    continue 'descend;
                }
                if before_low.is_some_and(|before| before >= low) {
                    let message = "its low key is not above that of the leaf before".to_string();
                    return Err(Error::Corrupt { offset: leaf, message });
                }
                before_low = Some(low);
                let is_last = truncate_to_range(entries, before, &from, &to);
                if let Some((greatest, _)) = entries[before..].last() {
                    match greatest.next() {
                        Some(next) => from = next,
                        None => return Ok(None),
                    }
                }
                if is_last || next.is_null() {
                    return Ok(None);
                }
                if entries.len() >= wanted {
                    return Ok((from <= to).then_some(from..=to));
                }
                // The next leaf's version first, then this one's again: it was the next leaf at that time.
                self.leaf(next)?;
                let next_version = latch::read(self.leaf_latch(next));
                if !latch::validate(self.leaf_latch(leaf), version) {
                    continue 'descend;
                }
                (leaf, version) = (next, next_version);
            }
        }
        Ok(None)
    }

    /// Same as [`Scan::scan`], in descending order. Cost: a descent for every leaf.
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
            let found = self.descend(to)?;
            let before = entries.len();
            L::append_sorted(self.leaf(found.leaf)?, entries);
            if !latch::validate(self.leaf_latch(found.leaf), found.version) {
                entries.truncate(before);
                latch::pause(&mut spins);
                continue;
            }
            truncate_to_range(entries, before, &from, &to);
            entries[before..].reverse();
            match found.low.and_then(K::previous) {
                Some(below) => to = below,
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Iterates over a range, from either end (not both).
    pub fn range(&self, range: RangeInclusive<K>) -> Range<'_, BTree<K, L, I, P>> {
        Range::new(self, range)
    }
}
