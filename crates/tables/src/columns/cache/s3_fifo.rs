//! S3-FIFO: a small queue for new pages, a main queue for those that were used again, and the names of pages that
//! went from the small one. Queues are not reordered by uses.

use super::page_key::PageKey;
use super::policy::ReplacementPolicy;
use super::queue::PageQueue;
use std::collections::HashMap;

/// Share of the cache for the small queue, as a divisor.
const SMALL_SHARE: u64 = 10;
/// Uses that are counted at most.
const USES_MAX: u8 = 3;

/// Eviction by three FIFO queues; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct S3Fifo {
    capacity_bytes: u64,
    small: PageQueue,
    main: PageQueue,
    /// Names of pages that went from the small queue.
    ghosts: PageQueue,
    /// Uses of the pages of both queues since they came there.
    uses: HashMap<PageKey, u8>,
}

impl S3Fifo {
    /// Evicts from the small queue; pages that were used move on to the main one.
    fn evict_small(&mut self) -> Option<PageKey> {
        while let Some((page, bytes)) = self.small.pop_first() {
            if self.uses.insert(page, 0) > Some(0) {
                self.main.push(page, bytes);
                continue;
            }
            self.uses.remove(&page);
            self.ghosts.push(page, bytes);
            self.ghosts.shrink_to(self.capacity_bytes - self.capacity_bytes / SMALL_SHARE);
            return Some(page);
        }
        None
    }

    /// Evicts from the main queue; pages that were used go round once more.
    fn evict_main(&mut self) -> Option<PageKey> {
        while let Some((page, bytes)) = self.main.pop_first() {
            let uses = self.uses.remove(&page).unwrap_or(0);
            if uses == 0 {
                return Some(page);
            }
            self.uses.insert(page, uses - 1);
            self.main.push(page, bytes);
        }
        None
    }
}

impl ReplacementPolicy for S3Fifo {
    fn set_capacity(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
    }

    fn hit(&mut self, page: &PageKey) {
        if let Some(uses) = self.uses.get_mut(page) {
            *uses = (*uses + 1).min(USES_MAX);
        }
    }

    fn victim(&mut self, _incoming: &PageKey, _bytes: u64) -> Option<PageKey> {
        if self.small.bytes() > self.capacity_bytes / SMALL_SHARE
            && let Some(page) = self.evict_small()
        {
            return Some(page);
        }
        self.evict_main().or_else(|| self.evict_small())
    }

    fn insert(&mut self, page: PageKey, bytes: u64) {
        let came_back = self.ghosts.remove(&page).is_some();
        let queue = if came_back { &mut self.main } else { &mut self.small };
        queue.push(page, bytes);
        self.uses.insert(page, 0);
    }

    fn remove(&mut self, page: &PageKey) {
        self.small.remove(page);
        self.main.remove(page);
        self.ghosts.remove(page);
        self.uses.remove(page);
    }
}
