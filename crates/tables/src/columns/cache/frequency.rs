//! LFU: eviction of the page that was used least often; of several, the one used least recently.
//!
//! A page that comes back has the uses that it had when it was evicted. As many evicted pages as cached ones are
//! remembered. Uses are halved whenever there were ten for each page, so that old ones lose their weight.

use super::page_key::PageKey;
use super::policy::ReplacementPolicy;
use super::queue::PageQueue;
use std::collections::{BTreeSet, HashMap};

/// Uses for each cached page after which all are halved.
const USES_PER_PAGE: u64 = 10;

/// Uses of a page, and the time of the last one.
type Rank = (u64, u64);

/// Eviction by frequency; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct LeastFrequent {
    ranks: HashMap<PageKey, Rank>,
    order: BTreeSet<(Rank, PageKey)>,
    /// Evicted pages, and their uses.
    evicted: PageQueue,
    evicted_uses: HashMap<PageKey, u64>,
    now: u64,
    uses: u64,
}

impl LeastFrequent {
    fn set(&mut self, page: PageKey, uses: u64) {
        self.now += 1;
        let rank = (uses, self.now);
        if let Some(before) = self.ranks.insert(page, rank) {
            self.order.remove(&(before, page));
        }
        self.order.insert((rank, page));
        self.uses += 1;
        if self.uses > USES_PER_PAGE * self.ranks.len() as u64 + USES_PER_PAGE {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.uses = 0;
        self.order.clear();
        for (page, rank) in &mut self.ranks {
            rank.0 = rank.0.div_ceil(2);
            self.order.insert((*rank, *page));
        }
        self.evicted_uses.values_mut().for_each(|uses| *uses /= 2);
    }
}

impl ReplacementPolicy for LeastFrequent {
    fn hit(&mut self, page: &PageKey) {
        let uses = self.ranks.get(page).map_or(0, |rank| rank.0);
        self.set(*page, uses + 1);
    }

    fn victim(&mut self, _incoming: &PageKey, _bytes: u64) -> Option<PageKey> {
        let ((uses, _), page) = self.order.pop_first()?;
        self.ranks.remove(&page);
        self.evicted.push(page, 1);
        self.evicted_uses.insert(page, uses);
        while self.evicted.len() > self.ranks.len().max(1) {
            let Some((forgotten, _)) = self.evicted.pop_first() else { break };
            self.evicted_uses.remove(&forgotten);
        }
        Some(page)
    }

    fn insert(&mut self, page: PageKey, _bytes: u64) {
        self.evicted.remove(&page);
        let uses = self.evicted_uses.remove(&page).unwrap_or(0);
        self.set(page, uses + 1);
    }

    fn remove(&mut self, page: &PageKey) {
        if let Some(rank) = self.ranks.remove(page) {
            self.order.remove(&(rank, *page));
        }
        self.evicted.remove(page);
        self.evicted_uses.remove(page);
    }
}
