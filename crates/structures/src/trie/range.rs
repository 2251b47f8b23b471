//! Ordered scans over ranges and prefixes, for both tries.
//!
//! A key that exists throughout the scan is returned once, in order; a key that is inserted or removed
//! meanwhile may be returned.

use crate::error::{Error, Result};
use crate::key::KeyBytes;
use entresol_memory::PoolOffset;
use std::ops::Bound;

/// Entries that an iterator fetches at a time; the first time fewer.
const BATCH_ENTRIES_MAX: usize = 1024;
const BATCH_ENTRIES_FIRST: usize = 64;

/// Key and value.
pub type TrieEntry = (KeyBytes, u64);

/// Ordered scans.
pub trait TrieScan {
    /// Appends the entries from a key on, up to a bound, in ascending order, until there are `enough` more.
    /// Returns the key to continue with, if any.
    fn scan(
        &self,
        from: &[u8],
        to: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<TrieEntry>,
    ) -> Result<Option<KeyBytes>>;
}

/// Collects the entries of a scan, in order.
pub(super) struct ScanBatch<'e> {
    to: Bound<&'e [u8]>,
    wanted: usize,
    first: usize,
    entries: &'e mut Vec<TrieEntry>,
}

/// Decision after an entry.
#[derive(PartialEq, Eq)]
pub(super) enum ScanStep {
    More,
    Enough,
    PastTheEnd,
}

impl<'e> ScanBatch<'e> {
    pub(super) fn new(to: Bound<&'e [u8]>, enough: usize, entries: &'e mut Vec<TrieEntry>) -> ScanBatch<'e> {
        ScanBatch { to, wanted: entries.len() + enough.max(1), first: entries.len(), entries }
    }

    /// Adds the next entry. An entry that does not ascend is damage of its node.
    pub(super) fn take(&mut self, node: PoolOffset, key: KeyBytes, value: u64) -> Result<ScanStep> {
        if self.entries[self.first..].last().is_some_and(|(before, _)| *before >= key) {
            let message = "its key is not above that of the one before".to_string();
            return Err(Error::Corrupt { offset: node, message });
        }
        let past = match self.to {
            Bound::Included(to) => *key > *to,
            Bound::Excluded(to) => *key >= *to,
            Bound::Unbounded => false,
        };
        if past {
            return Ok(ScanStep::PastTheEnd);
        }
        self.entries.push((key, value));
        Ok(if self.entries.len() >= self.wanted { ScanStep::Enough } else { ScanStep::More })
    }

    /// Returns the smallest key after the last one.
    pub(super) fn resume(&self) -> Option<KeyBytes> {
        self.entries[self.first..].last().map(|(key, _)| {
            let mut next = key.clone();
            next.push(0);
            next
        })
    }
}

/// Returns the end of the keys that begin with a prefix.
fn after_prefix(prefix: &[u8]) -> Option<KeyBytes> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = KeyBytes::from_slice(&prefix[..=last]);
    end[last] += 1;
    Some(end)
}

/// An iterator over a range of keys; fetches some at a time, and holds no lock in between.
pub struct TrieRange<'t, S> {
    trie: &'t S,
    from: Option<KeyBytes>,
    to: Bound<KeyBytes>,
    entries: std::vec::IntoIter<TrieEntry>,
    batch: usize,
}

impl<'t, S: TrieScan> TrieRange<'t, S> {
    pub(super) fn new(trie: &'t S, from: Bound<&[u8]>, to: Bound<&[u8]>) -> TrieRange<'t, S> {
        let from = match from {
            Bound::Unbounded => KeyBytes::new(),
            Bound::Included(from) => KeyBytes::from_slice(from),
            Bound::Excluded(from) => from.iter().copied().chain([0]).collect(),
        };
        let (to, batch) = (to.map(KeyBytes::from_slice), BATCH_ENTRIES_FIRST);
        TrieRange { trie, from: Some(from), to, entries: Vec::new().into_iter(), batch }
    }

    pub(super) fn of_prefix(trie: &'t S, prefix: &[u8]) -> TrieRange<'t, S> {
        let end = after_prefix(prefix);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        TrieRange::new(trie, Bound::Included(prefix), to)
    }
}

impl<S: TrieScan> Iterator for TrieRange<'_, S> {
    type Item = Result<TrieEntry>;

    fn next(&mut self) -> Option<Result<TrieEntry>> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            let from = self.from.take()?;
            let mut entries = Vec::new();
            let to = self.to.as_ref().map(|to| &to[..]);
            match self.trie.scan(&from, to, self.batch, &mut entries) {
                Ok(left) => self.from = left,
                Err(error) => return Some(Err(error)),
            }
            self.batch = (self.batch * 2).min(BATCH_ENTRIES_MAX);
            self.entries = entries.into_iter();
        }
    }
}
