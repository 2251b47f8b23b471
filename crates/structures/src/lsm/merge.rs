//! Merging of sorted sources, the newest entry of a key first: for scans in both directions, and for merges
//! of runs.

use super::buffer::Buffer;
use super::files::block::LsmEntry;
use super::files::run::{Cursor, Media};
use crate::error::Result;
use crate::node::FixedKey;
use std::sync::Arc;

/// Sorted source of entries.
#[allow(clippy::large_enum_variant, reason = "they are few, and nearly all are cursors")]
pub(super) enum Source<'v, K> {
    Run(Cursor<'v, K>),
    /// Indexes of a buffer, sorted by key; those from `next` on are still to be returned, or those before it
    /// if descending.
    Places {
        buffer: &'v Buffer<K>,
        places: Arc<Vec<u32>>,
        next: usize,
    },
    /// Result of an earlier merge; ascending.
    Entries(std::vec::IntoIter<LsmEntry<K>>),
}

impl<K: FixedKey> Source<'_, K> {
    #[inline]
    fn next<const FORWARD: bool>(&mut self, media: &Media<'_>) -> Result<Option<LsmEntry<K>>> {
        match self {
            Source::Run(cursor) => cursor.next(media),
            Source::Places { buffer, places, next } => {
                let at = if FORWARD { *next } else { next.wrapping_sub(1) };
                let Some(place) = places.get(at) else { return Ok(None) };
                *next = if FORWARD { at + 1 } else { at };
                Ok(Some(buffer.entry(*place)))
            }
            Source::Entries(entries) => Ok(entries.next()),
        }
    }
}

/// Entries of several sources in order, each key once, from the first source that has it. `FORWARD`:
/// ascending.
pub(super) struct Merger<'v, K, const FORWARD: bool> {
    sources: Vec<Source<'v, K>>,
    /// The next entry of each source.
    heads: Vec<LsmEntry<K>>,
}

impl<'v, K: FixedKey, const FORWARD: bool> Merger<'v, K, FORWARD> {
    /// Creates a merger of sources, newest first.
    pub(super) fn new(
        sources: impl IntoIterator<Item = Source<'v, K>>,
        media: &Media<'_>,
    ) -> Result<Merger<'v, K, FORWARD>> {
        let mut merger = Merger { sources: Vec::new(), heads: Vec::new() };
        for mut source in sources {
            if let Some(head) = source.next::<FORWARD>(media)? {
                merger.sources.push(source);
                merger.heads.push(head);
            }
        }
        Ok(merger)
    }

    #[inline]
    fn comes_before(left: K, right: K) -> bool {
        if FORWARD { left < right } else { left > right }
    }

    /// Returns the next entry; tombstones too.
    #[inline]
    pub(super) fn next(&mut self, media: &Media<'_>) -> Result<Option<LsmEntry<K>>> {
        let Some(mut best) = self.heads.first().copied() else { return Ok(None) };
        let mut from = 0;
        for (index, head) in self.heads.iter().enumerate().skip(1) {
            if Self::comes_before(head.key, best.key) {
                (best, from) = (*head, index);
            }
        }
        // Older ones with the same key are after it.
        let mut index = from;
        while index < self.heads.len() {
            if self.heads[index].key != best.key {
                index += 1;
                continue;
            }
            match self.sources[index].next::<FORWARD>(media)? {
                Some(head) => {
                    self.heads[index] = head;
                    index += 1;
                }
                None => {
                    self.heads.remove(index);
                    self.sources.remove(index);
                }
            }
        }
        Ok(Some(best))
    }
}
