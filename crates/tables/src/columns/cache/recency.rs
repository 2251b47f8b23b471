//! LRU and MRU: one queue in the order of use, evicted at one end or the other.

use super::page_key::PageKey;
use super::policy::ReplacementPolicy;
use super::queue::PageQueue;

/// Eviction of the page that was used least recently.
#[derive(Debug, Default)]
pub(super) struct LeastRecent(PageQueue);

impl ReplacementPolicy for LeastRecent {
    fn hit(&mut self, page: &PageKey) {
        self.0.touch(page);
    }

    fn victim(&mut self, _incoming: &PageKey, _bytes: u64) -> Option<PageKey> {
        self.0.pop_first().map(|(page, _)| page)
    }

    fn insert(&mut self, page: PageKey, bytes: u64) {
        self.0.push(page, bytes);
    }

    fn remove(&mut self, page: &PageKey) {
        self.0.remove(page);
    }
}

/// Eviction of the page that was used most recently.
#[derive(Debug, Default)]
pub(super) struct MostRecent(PageQueue);

impl ReplacementPolicy for MostRecent {
    fn hit(&mut self, page: &PageKey) {
        self.0.touch(page);
    }

    fn victim(&mut self, _incoming: &PageKey, _bytes: u64) -> Option<PageKey> {
        self.0.pop_last().map(|(page, _)| page)
    }

    fn insert(&mut self, page: PageKey, bytes: u64) {
        self.0.push(page, bytes);
    }

    fn remove(&mut self, page: &PageKey) {
        self.0.remove(page);
    }
}
