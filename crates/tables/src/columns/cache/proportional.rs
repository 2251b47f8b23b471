//! HPCache: of each column a share of its pages is cached, no more. The paper is Nicholson, Chrysogelos and
//! Ailamaki, "HPCache: Memory-Efficient OLAP Through Proportional Caching", DaMoN 2022.
//!
//! - Pages beyond the share of their column are on one free list, which is evicted first. They are found there as
//!   all others until they go.
//! - The pages of a share are spread over the row groups, and those of a smaller share are among those of a larger
//!   one, so a scan finds cached pages between those that it loads, and new shares move few pages. Columns begin at
//!   other row groups than their neighbours, so that a scan has about as much to load of each row group.
//! - Columns without a share (no scan has read them, or it is not known yet) have the room that is left.
//! - Summaries of row groups are small and read by every scan; they go last.

use super::model::Shares;
use super::page_key::{ColumnKey, PageKey};
use super::policy::ReplacementPolicy;
use super::queue::PageQueue;
use std::collections::BTreeMap;

/// Fraction of the golden ratio, times 2^32: multiples of it spread evenly over the numbers of 32 bits.
const GOLDEN: u32 = 0x9E37_79B9;
/// Square root of two less one, times 2^32, by which neighbouring columns differ.
const SILVER: u32 = 0x6A09_E667;

/// Place of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PagePlace {
    /// Within the share of its column.
    Share,
    /// Of a column without a share.
    Unshared,
    /// On the free list.
    Free,
}

/// Eviction by the shares of columns; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct ProportionalPolicy {
    shares: Shares,
    columns: BTreeMap<ColumnKey, PageQueue>,
    /// Pages of columns without a share, in the order of use.
    unshared: PageQueue,
    free: PageQueue,
    summaries: PageQueue,
}

/// Tells whether a page is among those of a share of its column.
fn is_within(page: &PageKey, proportion: f64) -> bool {
    let offset = u32::from(page.column.column).wrapping_mul(SILVER);
    let spread = f64::from(page.group.wrapping_mul(GOLDEN).wrapping_add(offset)) / f64::from(u32::MAX);
    spread < proportion || proportion >= 1.0
}

impl ProportionalPolicy {
    fn place(&self, page: &PageKey, bytes: u64) -> PagePlace {
        let Some(share) = self.shares.get(&page.column) else {
            return if self.shares.is_empty() { PagePlace::Share } else { PagePlace::Unshared };
        };
        let cached = self.columns.get(&page.column).map_or(0, PageQueue::bytes);
        let fits = cached + bytes <= share.bytes || share.proportion >= 1.0;
        if fits && is_within(page, share.proportion) { PagePlace::Share } else { PagePlace::Free }
    }

    fn queue(&mut self, place: PagePlace, column: ColumnKey) -> &mut PageQueue {
        match place {
            PagePlace::Share => self.columns.entry(column).or_default(),
            PagePlace::Unshared => &mut self.unshared,
            PagePlace::Free => &mut self.free,
        }
    }
}

impl ReplacementPolicy for ProportionalPolicy {
    fn hit(&mut self, page: &PageKey) {
        self.unshared.touch(page);
    }

    fn victim(&mut self, incoming: &PageKey, bytes: u64) -> Option<PageKey> {
        let is_summary = incoming.column.is_of_summaries();
        let place = if is_summary { PagePlace::Share } else { self.place(incoming, bytes) };
        if place == PagePlace::Free {
            return None;
        }
        if let Some((page, _)) = self.free.pop_first() {
            return Some(page);
        }
        if place == PagePlace::Share
            && let Some((page, _)) = self.unshared.pop_first()
        {
            return Some(page);
        }
        if !is_summary {
            return None;
        }
        let largest = self.columns.values_mut().max_by_key(|queue| queue.bytes());
        let evicted = largest.and_then(PageQueue::pop_last).or_else(|| self.summaries.pop_first());
        evicted.map(|(page, _)| page)
    }

    fn insert(&mut self, page: PageKey, bytes: u64) {
        if page.column.is_of_summaries() {
            self.summaries.push(page, bytes);
            return;
        }
        let place = self.place(&page, bytes);
        self.queue(place, page.column).push(page, bytes);
    }

    fn remove(&mut self, page: &PageKey) {
        self.free.remove(page);
        self.unshared.remove(page);
        self.summaries.remove(page);
        if let Some(queue) = self.columns.get_mut(&page.column) {
            queue.remove(page);
            if queue.len() == 0 {
                self.columns.remove(&page.column);
            }
        }
    }

    fn set_shares(&mut self, shares: &Shares) {
        self.shares.clone_from(shares);
        let mut pages: Vec<(PageKey, u64)> = Vec::new();
        for queue in std::mem::take(&mut self.columns).values_mut() {
            pages.extend(queue.drain());
        }
        pages.extend(self.unshared.drain());
        pages.extend(self.free.drain());
        pages.into_iter().for_each(|(page, bytes)| self.insert(page, bytes));
    }

    fn surplus(&mut self) -> Option<PageKey> {
        self.free.pop_first().map(|(page, _)| page)
    }
}
