//! 2Q, the full version: new pages go through a FIFO of a quarter of the cache; those that come back soon after
//! they left it go to an LRU of the rest.

use super::page_key::PageKey;
use super::policy::ReplacementPolicy;
use super::queue::PageQueue;

/// Share of the cache for pages that came once, and for the names of those that went, as divisors (`Kin` and
/// `Kout` of the paper).
const INCOMING_SHARE: u64 = 4;
const EVICTED_SHARE: u64 = 2;

/// Eviction by two queues; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct TwoQueues {
    capacity_bytes: u64,
    /// Pages that came once, in the order in which they came (`A1in`).
    incoming: PageQueue,
    /// Names of pages that went from there (`A1out`).
    evicted: PageQueue,
    /// Pages that came back, in the order of use (`Am`).
    frequent: PageQueue,
}

impl ReplacementPolicy for TwoQueues {
    fn set_capacity(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
    }

    fn hit(&mut self, page: &PageKey) {
        // Uses soon after the first one count as one with it.
        self.frequent.touch(page);
    }

    fn victim(&mut self, _incoming: &PageKey, _bytes: u64) -> Option<PageKey> {
        let incoming_max = self.capacity_bytes / INCOMING_SHARE;
        if self.incoming.bytes() <= incoming_max
            && let Some((page, _)) = self.frequent.pop_first()
        {
            return Some(page);
        }
        let (page, bytes) = self.incoming.pop_first()?;
        self.evicted.push(page, bytes);
        self.evicted.shrink_to(self.capacity_bytes / EVICTED_SHARE);
        Some(page)
    }

    fn insert(&mut self, page: PageKey, bytes: u64) {
        let came_back = self.evicted.remove(&page).is_some();
        let queue = if came_back { &mut self.frequent } else { &mut self.incoming };
        queue.push(page, bytes);
    }

    fn remove(&mut self, page: &PageKey) {
        self.incoming.remove(page);
        self.evicted.remove(page);
        self.frequent.remove(page);
    }
}
