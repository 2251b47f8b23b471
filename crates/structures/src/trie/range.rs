//! Ordered scans over ranges and prefixes, for both tries.
//!
//! A key that exists throughout the scan is returned once, in order; a key that is inserted or removed
//! meanwhile may be returned.

use crate::error::{Error, Result};
use crate::key::KeyBytes;
use std::ops::Bound;

/// Entries that an iterator fetches at a time; the first time fewer.
const BATCH_ENTRIES_MAX: usize = 1024;
const BATCH_ENTRIES_FIRST: usize = 64;

/// Key and value.
pub type Entry = (KeyBytes, u64);

/// Ordered scans.
pub trait Scan {
    /// Appends the entries from a key on, up to a bound, in ascending order, until there are `enough` more.
    /// Returns the key to continue with, if any.
    fn scan(
        &self,
        from: &[u8],
        to: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<Entry>,
    ) -> Result<Option<KeyBytes>>;
}

/// Collects the entries of a scan, in order.
pub(super) struct Taken<'e> {
    to: Bound<&'e [u8]>,
    wanted: usize,
    first: usize,
    entries: &'e mut Vec<Entry>,
}

/// Decision after an entry.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    More,
    Enough,
    PastTheEnd,
}

impl<'e> Taken<'e> {
    pub(super) fn new(to: Bound<&'e [u8]>, enough: usize, entries: &'e mut Vec<Entry>) -> Taken<'e> {
        Taken { to, wanted: entries.len() + enough.max(1), first: entries.len(), entries }
    }

    /// Adds the next entry. An entry that does not ascend is damage of its node.
    pub(super) fn take(&mut self, node: u64, key: KeyBytes, value: u64) -> Result<Next> {
        if self.entries[self.first..].last().is_some_and(|(before, _)| *before >= key) {
            let what = "its key is not above that of the one before".to_string();
            return Err(Error::Corrupt { offset: node, what });
        }
        let past = match self.to {
            Bound::Included(to) => *key > *to,
            Bound::Excluded(to) => *key >= *to,
            Bound::Unbounded => false,
        };
        if past {
            return Ok(Next::PastTheEnd);
        }
        self.entries.push((key, value));
        Ok(if self.entries.len() >= self.wanted { Next::Enough } else { Next::More })
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
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = KeyBytes::from_slice(&prefix[..=kept]);
    end[kept] += 1;
    Some(end)
}

/// An iterator over a range of keys; fetches some at a time, and holds no lock in between.
pub struct Range<'t, S> {
    trie: &'t S,
    from: Option<KeyBytes>,
    to: Bound<KeyBytes>,
    entries: std::vec::IntoIter<Entry>,
    batch: usize,
}

impl<'t, S: Scan> Range<'t, S> {
    pub(super) fn new(trie: &'t S, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Range<'t, S> {
        let from = match from {
            Bound::Unbounded => KeyBytes::new(),
            Bound::Included(from) => KeyBytes::from_slice(from),
            Bound::Excluded(from) => from.iter().copied().chain([0]).collect(),
        };
        let (to, batch) = (to.map(KeyBytes::from_slice), BATCH_ENTRIES_FIRST);
        Range { trie, from: Some(from), to, entries: Vec::new().into_iter(), batch }
    }

    pub(super) fn of_prefix(trie: &'t S, prefix: &[u8]) -> Range<'t, S> {
        let end = after_prefix(prefix);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        Range::new(trie, Bound::Included(prefix), to)
    }
}

impl<S: Scan> Iterator for Range<'_, S> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
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
