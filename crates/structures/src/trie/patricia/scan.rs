//! Scans in both directions: a stack of subtrees beside the path to a bound, the next one on top.

use super::{Path, Patricia, bit, child_slot, first_difference, is_inner, node_of};
use crate::error::{DescentError, Error, Result};
use crate::key::KeyBytes;
use crate::trie::frame::Attempt;
use crate::trie::range::{ScanBatch, ScanStep, TrieRange, TrieScan};
use entresol_memory::PoolOffset;
use std::ops::Bound;

/// Subtree of a scan, and a number that is not above that of its bit.
type Subtree = (u64, u64);

/// Entry that a scan meets.
struct FoundLeaf {
    leaf: PoolOffset,
    key: KeyBytes,
    value: u64,
}

impl Patricia {
    /// Iterates over a range in ascending order.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> TrieRange<'_, Patricia> {
        TrieRange::new(self, from, to)
    }

    /// Iterates over the keys that begin with a prefix, in ascending order.
    pub fn prefix(&self, prefix: &[u8]) -> TrieRange<'_, Patricia> {
        TrieRange::of_prefix(self, prefix)
    }

    /// Returns the path to a bound, the step below which all keys agree with each other in the first bit that differs
    /// from it, and that bit; none if the trie is empty.
    fn path_to_bound(&self, bound: &[u8], since: u64) -> Attempt<Option<(Path, usize, Option<u64>)>> {
        let steps = self.path(bound)?;
        let leaf = node_of(steps.last().expect("the root's").word);
        if leaf.is_null() {
            return Ok(None);
        }
        let differs = first_difference(&self.leaf_key(leaf, since)?, bound);
        let above = match differs {
            Some(number) => self.step_before(&steps, number, since)?,
            None => steps.len() - 1,
        };
        Ok(Some((steps, above, differs)))
    }

    /// Returns the subtrees from a key on, the first on top.
    fn subtrees_from(&self, from: &[u8], since: u64) -> Attempt<Vec<Subtree>> {
        let Some((steps, above, differs)) = self.path_to_bound(from, since)? else { return Ok(Vec::new()) };
        let beside = steps[..=above].iter().filter_map(|step| step.above());
        let mut subtrees: Vec<Subtree> = beside.map(|word| (word, 0)).collect();
        if differs.is_none_or(|number| bit(from, number) == 0) {
            subtrees.push((steps[above].word, 0));
        }
        Ok(subtrees)
    }

    /// Returns the subtrees before a bound, the last on top.
    fn subtrees_before(&self, before: Bound<&[u8]>, since: u64) -> Attempt<Vec<Subtree>> {
        let (bound, with_bound) = match before {
            Bound::Included(bound) => (bound, true),
            Bound::Excluded(bound) => (bound, false),
            Bound::Unbounded => {
                let frame = &self.frame;
                let root = frame.stable(frame.header, || frame.load(frame.root_slot()));
                return Ok((root != 0).then_some((root, 0)).into_iter().collect());
            }
        };
        let Some((steps, above, differs)) = self.path_to_bound(bound, since)? else { return Ok(Vec::new()) };
        let beside = steps[..=above].iter().filter_map(|step| step.below());
        let mut subtrees: Vec<Subtree> = beside.map(|word| (word, 0)).collect();
        if differs.map_or(with_bound, |number| bit(bound, number) == 1) {
            subtrees.push((steps[above].word, 0));
        }
        Ok(subtrees)
    }

    /// Returns the entry of the next leaf, with the smaller keys first or the greater ones.
    fn next_leaf(
        &self,
        subtrees: &mut Vec<Subtree>,
        forward: bool,
        since: u64,
    ) -> Attempt<Option<FoundLeaf>> {
        let frame = &self.frame;
        while let Some((word, above)) = subtrees.pop() {
            if is_inner(word) {
                let inner = node_of(word);
                let number = self.number(inner, since)?;
                if number < above {
                    let message = format!("its bit {number} is not after that of its parent");
                    return Err(DescentError::Damage(Error::Corrupt { offset: inner, message }));
                }
                let children = frame.stable(inner, || [0, 1].map(|side| frame.load(child_slot(inner, side))));
                let [first, second] = if forward { children } else { [children[1], children[0]] };
                subtrees.extend([(second, number + 1), (first, number + 1)]);
                continue;
            }
            let leaf = node_of(word);
            let key = self.leaf_key(leaf, since)?;
            let (meta, value) =
                frame.stable(leaf, || (frame.load(leaf), frame.load(leaf.plus(super::VALUE))));
            if meta != 0 {
                return Ok(Some(FoundLeaf { leaf, key, value }));
            }
        }
        Ok(None)
    }

    fn try_scan(&self, from: &[u8], batch: &mut ScanBatch<'_>) -> Attempt<Option<KeyBytes>> {
        let since = self.frame.since();
        // With the number of the bit above.
        let mut subtrees = self.subtrees_from(from, since)?;
        while let Some(found) = self.next_leaf(&mut subtrees, true, since)? {
            match batch.take(found.leaf, found.key, found.value)? {
                ScanStep::More => {}
                ScanStep::Enough => return Ok(batch.resume()),
                ScanStep::PastTheEnd => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Appends the entries before a bound, in descending order, until there are `enough` more; returns the key
    /// (exclusive) to continue before.
    pub fn scan_back(
        &self,
        before: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        let _pinned = self.frame.pool.pin();
        let first = entries.len();
        self.frame.retry_conflicts(|| {
            entries.truncate(first);
            let since = self.frame.since();
            let mut subtrees = self.subtrees_before(before, since)?;
            while let Some(FoundLeaf { leaf, key, value }) = self.next_leaf(&mut subtrees, false, since)? {
                if entries[first..].last().is_some_and(|(after, _)| *after <= key) {
                    let message = "its key is not below that of the one after".to_string();
                    return Err(DescentError::Damage(Error::Corrupt { offset: leaf, message }));
                }
                entries.push((key, value));
                if entries.len() - first >= enough.max(1) {
                    return Ok(entries.last().map(|(key, _)| key.clone()));
                }
            }
            Ok(None)
        })
    }
}

impl TrieScan for Patricia {
    fn scan(
        &self,
        from: &[u8],
        to: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        let _pinned = self.frame.pool.pin();
        let before = entries.len();
        self.frame.retry_conflicts(|| {
            entries.truncate(before);
            self.try_scan(from, &mut ScanBatch::new(to, enough, entries))
        })
    }
}
