//! Many keys at once: while one key's lines are on their way, those of the next ones are asked for.
//!
//! A key is a hash and one access, so there are no levels to go down in step: keys wait in a ring until their
//! lines had time to arrive, and are then looked up like any other.

use super::key::{Hash, HashKey};
use super::{BUCKET_LINES, HashTable};
use crate::error::Result;

/// Keys in flight: two lines each, as many as today's cores wait for at once.
const IN_FLIGHT: usize = 24;

/// What [`HashTable::apply_many`] does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Adds it with a value; if it is there, nothing changes.
    Insert(u64),
    /// Changes its value; if it is not there, nothing changes.
    Replace(u64),
    /// Removes it.
    Remove,
}

/// Keys on their way; each comes out, in order, when [`IN_FLIGHT`] others went in behind it.
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

impl<K: HashKey> HashTable<K> {
    #[inline]
    fn prepare(&self, key: K::Key<'_>) -> (Hash, K::Stored) {
        let key = K::stored(key);
        let hash = self.hash(key);
        self.prefetch(self.directory.route(hash).segment, hash, BUCKET_LINES);
        (hash, key)
    }

    /// The values of keys; `values` is cleared first. On real memory several times faster than one by one.
    pub fn get_many<'k>(&self, keys: impl Iterator<Item = K::Key<'k>>, values: &mut Vec<Option<u64>>) {
        values.clear();
        values.reserve(keys.size_hint().0);
        let mut ring = Ring::new();
        for key in keys {
            if let Some((hash, key)) = ring.exchange(self.prepare(key)) {
                values.push(self.get_hashed(hash, key));
            }
        }
        for (hash, key) in ring.rest() {
            values.push(self.get_hashed(hash, key));
        }
    }

    /// Carries out changes in order, each failure-atomic on its own; `before` is cleared and gets the value that
    /// each key had. After an error it holds as many values as changes were carried out.
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
            Change::Insert(value) => Ok(match self.insert_hashed(hash, key, value, with)? {
                crate::Inserted::New => None,
                crate::Inserted::Exists(old) => Some(old),
            }),
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
