//! Cached objects within a number of bytes, replaced by a policy.

use super::model::Shares;
use super::page_key::{ColumnKey, PageKey, StoreNumber};
use super::policy::{CachePolicy, ReplacementPolicy};
use entresol_memory::budget::MemoryReservation;
use std::collections::{BTreeMap, HashMap};

/// Use of the cache by the pages of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ColumnUse {
    /// Pages that are cached.
    pub pages: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Look-ups that found their page.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
}

/// Cached objects; see the [module](self). `V` is a cheap handle.
#[derive(Debug)]
pub struct Frames<V> {
    pages: HashMap<PageKey, (V, u64)>,
    policy: Box<dyn ReplacementPolicy>,
    columns: BTreeMap<ColumnKey, ColumnUse>,
    bytes: u64,
    reserved: Option<MemoryReservation>,
}

impl<V: Clone> Frames<V> {
    /// Empty cache. What it takes is reserved by `reserved`, if there is one.
    pub fn new(policy: CachePolicy, reserved: Option<MemoryReservation>) -> Frames<V> {
        let (pages, columns) = (HashMap::new(), BTreeMap::new());
        Frames { pages, policy: policy.start(), columns, bytes: 0, reserved }
    }

    /// Replaces the policy; the pages stay, in no order.
    pub fn set_policy(&mut self, policy: CachePolicy) {
        self.policy = policy.start();
        self.pages.iter().for_each(|(page, (_, bytes))| self.policy.insert(*page, *bytes));
    }

    /// Sets the shares of columns, for a policy that has such.
    pub fn set_shares(&mut self, shares: &Shares) {
        self.policy.set_shares(shares);
    }

    /// Removes objects that the policy does not need, as long as all take more than `bytes_max`.
    pub fn shrink_to(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max
            && let Some(page) = self.policy.surplus()
        {
            self.release(&page);
        }
    }

    /// Removes objects until all take at most so many bytes.
    pub(crate) fn evict_to(&mut self, bytes_max: u64) {
        // Room for a summary is made out of anything.
        let incoming = PageKey::of_summary(StoreNumber(0), 0);
        while self.bytes > bytes_max
            && let Some(page) = self.policy.victim(&incoming, 0)
        {
            self.release(&page);
        }
    }

    /// Returns true if there is an object with this key, which does not count as a use.
    pub fn contains(&self, page: &PageKey) -> bool {
        self.pages.contains_key(page)
    }

    /// Object with this key, which counts as a use.
    pub fn get(&mut self, page: &PageKey) -> Option<V> {
        let counts = self.columns.entry(page.column).or_default();
        let Some((value, _)) = self.pages.get(page) else {
            counts.misses += 1;
            return None;
        };
        counts.hits += 1;
        self.policy.hit(page);
        Some(value.clone())
    }

    /// Adds an object, if it fits into `bytes_max` and its room can be had; returns true if it is cached.
    pub fn put(&mut self, page: PageKey, value: V, bytes: u64, bytes_max: u64) -> bool {
        if bytes > bytes_max || self.pages.contains_key(&page) {
            return false;
        }
        self.policy.set_capacity(bytes_max);
        while self.bytes + bytes > bytes_max {
            if !self.evict(&page, bytes) {
                return false;
            }
        }
        while self.reserved.as_mut().is_some_and(|reserved| reserved.try_grow(bytes).is_err()) {
            if !self.evict(&page, bytes) {
                return false;
            }
        }
        self.bytes += bytes;
        let counts = self.columns.entry(page.column).or_default();
        (counts.pages, counts.bytes) = (counts.pages + 1, counts.bytes + bytes);
        self.policy.insert(page, bytes);
        self.pages.insert(page, (value, bytes));
        true
    }

    /// Removes one object to make room for another; false if none should go.
    fn evict(&mut self, incoming: &PageKey, bytes: u64) -> bool {
        self.policy.victim(incoming, bytes).is_some_and(|victim| {
            assert!(self.pages.contains_key(&victim), "a policy evicts pages that are cached");
            self.release(&victim);
            true
        })
    }

    fn release(&mut self, page: &PageKey) {
        let Some((_, bytes)) = self.pages.remove(page) else { return };
        self.bytes -= bytes;
        if let Some(counts) = self.columns.get_mut(&page.column) {
            (counts.pages, counts.bytes) = (counts.pages - 1, counts.bytes - bytes);
        }
        if let Some(reserved) = &mut self.reserved {
            reserved.shrink(bytes);
        }
    }

    /// Removes the objects that a function selects.
    pub(crate) fn remove_if(&mut self, is_gone: impl Fn(&PageKey) -> bool) {
        let gone: Vec<PageKey> = self.pages.keys().filter(|page| is_gone(page)).copied().collect();
        for page in gone {
            self.policy.remove(&page);
            self.release(&page);
        }
    }

    /// Forgets the counts of columns that a function selects.
    pub(crate) fn forget_columns(&mut self, is_gone: impl Fn(&ColumnKey) -> bool) {
        self.columns.retain(|column, _| !is_gone(column));
    }

    /// Use by column.
    pub fn columns(&self) -> &BTreeMap<ColumnKey, ColumnUse> {
        &self.columns
    }

    /// Objects, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.values().map(|(value, _)| value)
    }

    /// Objects of a column, in no order.
    pub(crate) fn of_column(&self, column: &ColumnKey) -> impl Iterator<Item = &V> {
        self.pages.iter().filter(|(page, _)| page.column == *column).map(|(_, (value, _))| value)
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns true if there is no object.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}
