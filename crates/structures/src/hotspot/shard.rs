//! One shard of the cache: buckets, and their state.
//!
//! ```text
//!   open ── close ──▸ closed ── all buckets cleared ──▸ empty ── open ──▸ open
//! ```
//!
//! Only an open shard is read and filled. A thread that fills it has seen it open under the bucket's latch,
//! so once all buckets of a closed shard were cleared it is empty, and writers of an empty one have no entry
//! to update.

use super::bucket::{self, BUCKET_BYTES, CacheBucket, Key};
use super::changes::{ChangeGuard, ChangeSnapshot};
use super::sync::{AtomicU64, Relaxed, SeqCst};

/// Planned entries of a bucket, for keys of `key_words` words: two thirds of its slots, so that few are too
/// full.
pub(super) const fn entries_per_bucket(key_words: usize) -> usize {
    (bucket::slots(key_words) * 2).div_ceil(3)
}

/// The words of a key and their hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedKey {
    pub(super) key: Key,
    pub(super) hash: u64,
}

impl HashedKey {
    /// Creates it for a key of `words` words; the others are 0.
    #[inline]
    pub(super) fn new(key: [u64; 2], words: usize) -> HashedKey {
        let mix = |word: u64| (word ^ (word >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let first = mix(key[0]);
        let hash = if words > 1 { mix(first.rotate_left(29) ^ key[1]) } else { first };
        HashedKey { key: Key { words: key, count: words }, hash: mix(hash ^ (hash >> 29)) }
    }
}

/// Lower bits of a state; the others count how often it was closed or opened.
const OPEN: u64 = 0;
const CLOSED: u64 = 1;
const EMPTY: u64 = 2;
const MODES: u64 = 4;

/// See the [module](self).
#[repr(align(64))]
pub(super) struct Shard {
    state: AtomicU64,
    warm_percent: AtomicU64,
    key_words: usize,
    buckets: Box<[CacheBucket]>,
}

/// An entry that was found.
pub(super) struct FoundEntry {
    pub(super) value: u64,
    pub(super) is_warm: bool,
}

impl Shard {
    /// Creates an open shard with `buckets` buckets, at least one.
    pub(super) fn new(buckets: usize, key_words: usize) -> Shard {
        Shard {
            state: AtomicU64::new(OPEN),
            warm_percent: AtomicU64::new(50),
            key_words,
            buckets: (0..buckets.max(1)).map(|_| CacheBucket::new()).collect(),
        }
    }

    /// Number of planned entries.
    pub(super) fn capacity(&self) -> u64 {
        (self.buckets.len() * entries_per_bucket(self.key_words)) as u64
    }

    /// Number of entries that fit.
    pub(super) fn slots(&self) -> usize {
        self.buckets.len() * bucket::slots(self.key_words)
    }

    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * BUCKET_BYTES
    }

    pub(super) fn warm_percent(&self) -> u64 {
        self.warm_percent.load(Relaxed)
    }

    pub(super) fn set_warm_percent(&self, percent: u64) {
        debug_assert!((1..100).contains(&percent), "a part of the entries is warm, another hot: {percent}");
        self.warm_percent.store(percent, Relaxed);
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &CacheBucket {
        // The eight upper bits chose the shard.
        let fraction = (hash << 8) >> 32;
        &self.buckets[((fraction * self.buckets.len() as u64) >> 32) as usize]
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.state.load(SeqCst) % MODES == OPEN
    }

    /// Prefetches the lines that all other functions read.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if self.state.load(Relaxed) % MODES != EMPTY {
            self.bucket(hash).prefetch();
        }
    }

    /// Returns the entry of a key. None also on a conflict with a writer of its bucket.
    #[inline]
    pub(super) fn find(&self, wanted: HashedKey) -> Option<FoundEntry> {
        let found = self.bucket(wanted.hash).find(wanted.key)?;
        let warm = u64::from(found.entries) * self.warm_percent.load(Relaxed);
        Some(FoundEntry { value: found.value, is_warm: u64::from(found.age) * 100 < warm })
    }

    /// Makes a warm entry that was hit the youngest, if it is still there.
    pub(super) fn renew(&self, wanted: HashedKey) {
        if let Some(latched) = self.bucket(wanted.hash).try_lock() {
            latched.renew(wanted.key);
        }
    }

    /// Adds an entry whose value was read after `snapshot`, if no change began or ended since.
    pub(super) fn fill(&self, wanted: HashedKey, value: u64, snapshot: ChangeSnapshot<'_>) -> bool {
        let Some(latched) = self.bucket(wanted.hash).try_lock() else { return false };
        // After the latch: a writer that begins later finds the latch locked, or the entry, in a shard that
        // is open.
        if !self.is_open() || !snapshot.holds() {
            return false;
        }
        latched.add(wanted.key, value);
        true
    }

    /// Updates the entry of a changed key, if it has one, to the new value, or removes it. Returns true if
    /// there was one.
    #[inline]
    pub(super) fn settle(&self, wanted: HashedKey, value: Option<u64>, change: &ChangeGuard<'_>) -> bool {
        if self.state.load(SeqCst) % MODES == EMPTY {
            return false;
        }
        let bucket = self.bucket(wanted.hash);
        let Some(look) = bucket.snapshot(wanted.key) else { return false };
        bucket.settle(wanted.key, look, || value.filter(|_| change.is_alone()))
    }

    /// Drops all entries and takes none until it is opened again.
    pub(super) fn close(&self) {
        let closed = self.turn(CLOSED);
        self.buckets.iter().for_each(|bucket| bucket.lock().clear());
        // Unless it was opened, or closed again, meanwhile.
        let _ = self.state.compare_exchange(closed, closed - CLOSED + EMPTY, SeqCst, Relaxed);
    }

    /// Accepts entries again.
    pub(super) fn open(&self) {
        self.turn(OPEN);
    }

    fn turn(&self, to: u64) -> u64 {
        loop {
            let before = self.state.load(SeqCst);
            let after = before - before % MODES + MODES + to;
            if self.state.compare_exchange(before, after, SeqCst, Relaxed).is_ok() {
                return after;
            }
        }
    }

    /// Number of valid entries.
    pub(super) fn entries(&self) -> usize {
        self.buckets.iter().map(CacheBucket::len).sum()
    }

    /// See [`CacheBucket::note_query`].
    #[inline]
    pub(super) fn note_query(&self, hash: u64, period: u64) -> u64 {
        self.bucket(hash).note_query(hash, period)
    }
}
