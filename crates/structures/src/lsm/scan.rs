//! Ordered scans in both directions.
//!
//! A key that exists throughout the scan is returned once, in order; a key that is inserted or removed
//! meanwhile may be returned.

use super::LsmTree;
use super::compaction::version::Version;
use super::files::run::{Cursor, Media};
use super::merge::{Merger, Source};
use crate::error::Result;
use crate::node::{Entries, FixedKey};
use crate::range::{Range, Scan};
use std::ops::RangeInclusive;
use std::sync::Arc;

impl<K: FixedKey> Scan for LsmTree<K> {
    type Key = K;

    /// Appends the first `enough` entries of a range, ascending. Returns the rest of the range, if any. Cost:
    /// a search in each run and buffer, then a comparison with each for an entry.
    fn scan(
        &self,
        range: RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<RangeInclusive<K>>> {
        let last = self.collect::<true>(&range, enough, entries)?;
        Ok(last.and_then(K::next).filter(|from| from <= range.end()).map(|from| from..=*range.end()))
    }

    /// Same as [`Scan::scan`], in descending order.
    fn scan_back(
        &self,
        range: RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<RangeInclusive<K>>> {
        let last = self.collect::<false>(&range, enough, entries)?;
        Ok(last.and_then(K::previous).filter(|to| to >= range.start()).map(|to| *range.start()..=to))
    }
}

impl<K: FixedKey> LsmTree<K> {
    /// Appends entries; returns the last key if there may be more after it.
    fn collect<const FORWARD: bool>(
        &self,
        range: &RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<K>> {
        let core = &*self.core;
        let _pinned = core.site.pool.pin();
        let version = core.versions.current();
        let media = core.media();
        let mut merger = Merger::<K, FORWARD>::new(sources::<K, FORWARD>(&version, &media, range)?, &media)?;
        let wanted = entries.len() + enough.max(1);
        while let Some(entry) = merger.next(&media)? {
            if !range.contains(&entry.key) {
                return Ok(None);
            }
            if let Some(value) = entry.value() {
                entries.push((entry.key, value));
                if entries.len() >= wanted {
                    return Ok(Some(entry.key));
                }
            }
        }
        Ok(None)
    }

    /// Iterates over a range, from either end (not both).
    pub fn range(&self, range: RangeInclusive<K>) -> Range<'_, LsmTree<K>> {
        Range::new(self, range)
    }
}

/// Returns all sources that may have keys of a range, newest first, from its first key in the direction on.
fn sources<'v, K: FixedKey, const FORWARD: bool>(
    version: &'v Version<K>,
    media: &Media<'_>,
    range: &RangeInclusive<K>,
) -> Result<Vec<Source<'v, K>>> {
    let mut sources = Vec::new();
    for buffer in &version.buffers {
        let view = buffer.view();
        for places in [Arc::new(view.tail), view.order] {
            let next = if FORWARD {
                places.partition_point(|place| buffer.key(*place) < *range.start())
            } else {
                places.partition_point(|place| buffer.key(*place) <= *range.end())
            };
            sources.push(Source::Places { buffer, places, next });
        }
    }
    for run in version.runs() {
        if run.record.max < *range.start() || run.record.min > *range.end() {
            continue;
        }
        let cursor = if FORWARD {
            Cursor::from(run, media, *range.start())?
        } else {
            Cursor::back_from(run, media, *range.end())?
        };
        sources.push(Source::Run(cursor));
    }
    Ok(sources)
}
