//! Ordered queue of pages with removal from the middle, which the replacement policies are made of.
//!
//! Cost: a hash and a search in a tree per operation. Memory: about 100 bytes a page.

use super::page_key::PageKey;
use std::collections::{BTreeMap, HashMap};

/// Queue of pages, each at most once, with the bytes that they take.
#[derive(Debug, Default)]
pub(super) struct PageQueue {
    order: BTreeMap<u64, PageKey>,
    pages: HashMap<PageKey, QueuedPage>,
    next: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct QueuedPage {
    at: u64,
    bytes: u64,
}

impl PageQueue {
    /// Bytes of all pages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of pages.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Adds a page at the end, or moves it there.
    pub(super) fn push(&mut self, page: PageKey, bytes: u64) {
        self.remove(&page);
        self.order.insert(self.next, page);
        self.pages.insert(page, QueuedPage { at: self.next, bytes });
        self.next += 1;
        self.bytes += bytes;
    }

    /// Moves a page to the end; false if it is not there.
    pub(super) fn touch(&mut self, page: &PageKey) -> bool {
        let bytes = self.remove(page);
        bytes.is_some_and(|bytes| {
            self.push(*page, bytes);
            true
        })
    }

    /// Removes a page and returns its bytes.
    pub(super) fn remove(&mut self, page: &PageKey) -> Option<u64> {
        let queued = self.pages.remove(page)?;
        self.order.remove(&queued.at);
        self.bytes -= queued.bytes;
        Some(queued.bytes)
    }

    /// Removes the first page.
    pub(super) fn pop_first(&mut self) -> Option<(PageKey, u64)> {
        let page = *self.order.first_key_value()?.1;
        self.remove(&page).map(|bytes| (page, bytes))
    }

    /// Removes the last page.
    pub(super) fn pop_last(&mut self) -> Option<(PageKey, u64)> {
        let page = *self.order.last_key_value()?.1;
        self.remove(&page).map(|bytes| (page, bytes))
    }

    /// Removes all pages, in order.
    pub(super) fn drain(&mut self) -> Vec<(PageKey, u64)> {
        std::iter::from_fn(|| self.pop_first()).collect()
    }

    /// Removes the first pages until the others take so many bytes at most.
    pub(super) fn shrink_to(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max && self.pop_first().is_some() {}
    }
}
