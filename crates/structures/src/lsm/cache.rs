//! Page cache of run files in DRAM, with clock eviction: a page used since the last pass of the hand stays.
//!
//! Memory: the requested bytes, and about 100 bytes a page.

use super::files::file::PAGE_BYTES;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

const SHARDS: usize = 16;

pub(super) type Page = Arc<[u64]>;
/// Number of a run, and of a page in its file. Numbers of runs are not reused.
pub(super) type PageId = (u64, usize);

#[derive(Default)]
struct CacheShard {
    places: HashMap<PageId, usize>,
    frames: Vec<PageFrame>,
    hand: usize,
}

struct PageFrame {
    id: PageId,
    page: Page,
    is_used: bool,
}

pub(super) struct PageCache {
    shards: Vec<Mutex<CacheShard>>,
    frames_max: usize,
}

impl PageCache {
    /// Creates a cache of about `bytes` bytes; at least a page a shard.
    pub(super) fn new(bytes: usize) -> PageCache {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        PageCache { shards, frames_max: (bytes / PAGE_BYTES / SHARDS).max(1) }
    }

    fn shard(&self, (run, page): PageId) -> &Mutex<CacheShard> {
        let hash = (run << 32 ^ page as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(hash >> 60) as usize % SHARDS]
    }

    /// Returns a page, if it is cached.
    pub(super) fn find(&self, id: PageId) -> Option<Page> {
        self.shard(id).lock().find(id)
    }

    pub(super) fn add(&self, id: PageId, page: &Page) {
        self.shard(id).lock().add(id, page, self.frames_max);
    }

    /// Number of bytes of pages.
    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().frames.len() * PAGE_BYTES).sum()
    }
}

impl CacheShard {
    fn find(&mut self, id: PageId) -> Option<Page> {
        let frame = &mut self.frames[*self.places.get(&id)?];
        frame.is_used = true;
        Some(Arc::clone(&frame.page))
    }

    fn add(&mut self, id: PageId, page: &Page, frames_max: usize) {
        if self.places.contains_key(&id) {
            return;
        }
        let frame = PageFrame { id, page: Arc::clone(page), is_used: false };
        if self.frames.len() < frames_max {
            self.places.insert(id, self.frames.len());
            return self.frames.push(frame);
        }
        while std::mem::take(&mut self.frames[self.hand].is_used) {
            self.hand = (self.hand + 1) % self.frames.len();
        }
        self.places.remove(&self.frames[self.hand].id);
        self.places.insert(id, self.hand);
        self.frames[self.hand] = frame;
        self.hand = (self.hand + 1) % self.frames.len();
    }
}
