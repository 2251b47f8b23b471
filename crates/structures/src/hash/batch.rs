//! Batches of many keys: while one key's lines are loaded, those of the next ones are prefetched.
//!
//! A key is a hash and one access, so there are no levels: keys wait in a ring until their lines had time to
//! arrive, and are then looked up like any other. A lookup whose key may be displaced would wait for a second
//! bucket: it prefetches that one's lines and is deferred until some more of its kind have come.

use super::key::{Hash, HashKey};
use super::segment::{Segment, bucket_offset};
use super::{BUCKET_LINES, HashTable};
use crate::error::Result;
use crate::key::TreeKey;
use crate::{Change, latch};
use smallvec::SmallVec;

/// Keys in flight: two lines each, as many as today's cores wait for at once.
const IN_FLIGHT: usize = 24;

/// Lookups that are deferred at a time.
const DEFERRED_MAX: usize = 8;

/// Ring of keys in flight; each comes out, in order, when [`IN_FLIGHT`] others were added after it.
struct Ring<T> {
    waiting: Vec<T>,
    oldest: usize,
}

impl<T: Copy> Ring<T> {
    fn new() -> Ring<T> {
        Ring { waiting: Vec::with_capacity(IN_FLIGHT), oldest: 0 }
    }

    #[inline]
    fn exchange(&mut self, item: T) -> Option<T> {
        if self.waiting.len() < IN_FLIGHT {
            self.waiting.push(item);
            return None;
        }
        let oldest = std::mem::replace(&mut self.waiting[self.oldest], item);
        self.oldest = if self.oldest + 1 == IN_FLIGHT { 0 } else { self.oldest + 1 };
        Some(oldest)
    }

    fn rest(&self) -> impl Iterator<Item = T> {
        let (later, earlier) = self.waiting.split_at(self.oldest);
        earlier.iter().chain(later).copied()
    }
}

/// Deferred lookups of displaced entries: index of the value, hash, key.
type DeferredLookups<K> = SmallVec<[(usize, Hash, <K as TreeKey>::Stored); DEFERRED_MAX]>;

impl<K: HashKey> HashTable<K> {
    #[inline]
    fn prepare(&self, key: K::Key<'_>) -> (Hash, K::Stored) {
        let key = K::stored(key);
        let hash = self.hash(key);
        self.prefetch(self.directory.route(hash).segment, hash, BUCKET_LINES);
        (hash, key)
    }

    /// Returns the values of keys; `values` is cleared first. On real memory several times faster than one by
    /// one.
    pub fn get_many<'k>(&self, keys: impl Iterator<Item = K::Key<'k>>, values: &mut Vec<Option<u64>>) {
        values.clear();
        values.reserve(keys.size_hint().0);
        let mut ring = Ring::new();
        let mut deferred = DeferredLookups::<K>::new();
        for key in keys {
            if let Some(prepared) = ring.exchange(self.prepare(key)) {
                self.get_or_defer(prepared, &mut deferred, values);
            }
        }
        for prepared in ring.rest() {
            self.get_or_defer(prepared, &mut deferred, values);
        }
        self.get_deferred(&mut deferred, values);
    }

    /// Looks a key up whose home was prefetched; one that may be displaced is deferred.
    #[inline]
    fn get_or_defer(
        &self,
        (hash, key): (Hash, K::Stored),
        deferred: &mut DeferredLookups<K>,
        values: &mut Vec<Option<u64>>,
    ) {
        if let Some(value) = self.get_at_home(hash, key) {
            return values.push(value);
        }
        deferred.push((values.len(), hash, key));
        values.push(None);
        if deferred.len() == DEFERRED_MAX {
            self.get_deferred(deferred, values);
        }
    }

    /// Returns the value of a key if its home bucket decides it; none on a conflict with a writer, or if the
    /// key may be in another bucket, whose lines are prefetched.
    #[inline]
    fn get_at_home(&self, hash: Hash, key: K::Stored) -> Option<Option<u64>> {
        let home = self.find_home(hash, 0);
        let bucket = home.segment.bucket(hash.home());
        let value = bucket.find(hash.fingerprint(), key).map(|slot| bucket.value(slot));
        if value.is_none() && !bucket.displaced().is_empty() {
            let mut may_be_behind = false;
            for distance in bucket.displaced().distances(hash.tag()) {
                let behind = Segment::<K>::behind(hash.home(), distance);
                let offset = bucket_offset(home.segment.offset(), behind);
                (0..BUCKET_LINES).for_each(|line| self.pool.prefetch(offset.plus(line * 64)));
                may_be_behind = true;
            }
            if may_be_behind {
                return None;
            }
        }
        latch::validate(home.latch, home.version).then_some(value)
    }

    /// Looks up the deferred keys.
    #[cold]
    fn get_deferred(&self, deferred: &mut DeferredLookups<K>, values: &mut [Option<u64>]) {
        for (index, hash, key) in deferred.drain(..) {
            values[index] = self.get_hashed(hash, key);
        }
    }

    /// Applies changes in order, each failure-atomic on its own; `before` is cleared and gets the previous
    /// value of each key. After an error it holds as many values as changes were applied.
    pub fn apply_many<'k>(
        &self,
        changes: impl Iterator<Item = (K::Key<'k>, Change)>,
        before: &mut Vec<Option<u64>>,
    ) -> Result<()> {
        before.clear();
        before.reserve(changes.size_hint().0);
        let mut ring = Ring::new();
        for (key, change) in changes {
            if let Some((prepared, change)) = ring.exchange((self.prepare(key), change)) {
                before.push(self.apply(prepared, change)?);
            }
        }
        for (prepared, change) in ring.rest() {
            before.push(self.apply(prepared, change)?);
        }
        Ok(())
    }

    #[inline]
    fn apply(&self, (hash, key): (Hash, K::Stored), change: Change) -> Result<Option<u64>> {
        let with = self.pool.publication();
        match change {
            Change::Insert(value) => Ok(self.insert_hashed(hash, key, value, with)?.before()),
            Change::Replace(value) => self.replace_hashed(hash, key, value, with),
            Change::Remove => self.remove_hashed(hash, key, with),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_gives_back_in_order() {
        for count in [0, 1, IN_FLIGHT, IN_FLIGHT + 1, 5 * IN_FLIGHT + 3] {
            let mut ring = Ring::new();
            let mut out: Vec<usize> = (0..count).filter_map(|number| ring.exchange(number)).collect();
            out.extend(ring.rest());
            assert!(out.into_iter().eq(0..count));
        }
    }
}
