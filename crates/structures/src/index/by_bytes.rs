//! Structures with keys of fixed width behind byte keys.
//!
//! [`FixedIndex`] is what an ordered structure offers; whatever offers it is a [`ByteIndex`].

use super::KeyWidth;
use crate::btree::{BTree, Placement};
use crate::error::Result;
use crate::fptree::TreeStats;
use crate::key::{KeyBytes, PairKey, TreeKey, WordKey};
use crate::lsm::PooledLsmTree;
use crate::node::{FixedKey, Layout};
use crate::range::Scan;
use crate::skiplist::{Content, SkipList, Towers};
use crate::{Change, Inserted};
use entresol_memory::{Pool, PoolOffset, Publication};
use smallvec::SmallVec;
use std::ops::{Bound, RangeInclusive};

/// Keys of a batch that need no allocation.
const BATCH_KEYS: usize = 16;

/// Verdict on an object that a check found.
pub(super) type Claim = std::result::Result<(), String>;

/// A key of fixed width as bytes in the same order.
pub(super) trait OrderedKey: FixedKey {
    /// Width of its index.
    const WIDTH: KeyWidth;
    /// Bytes of a key.
    const BYTES: usize;
    /// The greatest key.
    const MAX: Self;
    /// Reads a key, zero padded at its end; an error if it is too long.
    fn from_bytes(bytes: &[u8]) -> Result<Self>;
    /// Returns its bytes.
    fn to_bytes(self) -> KeyBytes;
}

impl OrderedKey for u64 {
    const WIDTH: KeyWidth = KeyWidth::Eight;
    const BYTES: usize = 8;
    const MAX: u64 = u64::MAX;

    #[inline]
    fn from_bytes(bytes: &[u8]) -> Result<u64> {
        WordKey::from_bytes(bytes)
    }

    #[inline]
    fn to_bytes(self) -> KeyBytes {
        KeyBytes::from_slice(&self.to_be_bytes())
    }
}

impl OrderedKey for u128 {
    const WIDTH: KeyWidth = KeyWidth::Sixteen;
    const BYTES: usize = 16;
    const MAX: u128 = u128::MAX;

    #[inline]
    fn from_bytes(bytes: &[u8]) -> Result<u128> {
        let [first, second] = PairKey::from_bytes(bytes)?;
        Ok(u128::from(first) << 64 | u128::from(second))
    }

    #[inline]
    fn to_bytes(self) -> KeyBytes {
        KeyBytes::from_slice(&self.to_be_bytes())
    }
}

/// Key that a check of any structure reports.
pub(super) trait StoredKey {
    /// Returns its bytes.
    fn stored_bytes(self) -> KeyBytes;
}

impl StoredKey for u64 {
    fn stored_bytes(self) -> KeyBytes {
        self.to_bytes()
    }
}

impl StoredKey for u128 {
    fn stored_bytes(self) -> KeyBytes {
        self.to_bytes()
    }
}

impl StoredKey for KeyBytes {
    fn stored_bytes(self) -> KeyBytes {
        self
    }
}

/// An ordered structure that can be the index of a table.
pub(super) trait FixedIndex: Scan + Send + Sync {
    /// Returns the value of a key.
    fn get(&self, key: Self::Key) -> Result<Option<u64>>;
    /// Returns the values of keys; `values` is cleared first.
    fn get_many(&self, keys: &[Self::Key], values: &mut Vec<Option<u64>>) -> Result<()>;
    /// Adds a key, atomically with the changes in `with`.
    fn insert<'p>(&'p self, key: Self::Key, value: u64, with: Publication<'p>) -> Result<Inserted>;
    /// Changes the value of a key, atomically with the changes in `with`.
    fn update<'p>(&'p self, key: Self::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>>;
    /// Removes a key, atomically with the changes in `with`.
    fn remove<'p>(&'p self, key: Self::Key, with: Publication<'p>) -> Result<Option<u64>>;
    /// Adds distinct keys; see [`BTree::insert_many`].
    fn insert_many<'p>(
        &'p self,
        keys: &[Self::Key],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()>;
    /// Applies changes in order, each failure-atomic on its own.
    fn apply_many(&self, changes: &[(Self::Key, Change)], before: &mut Vec<Option<u64>>) -> Result<()>;
    /// Returns keys that divide it into parts of about equal size.
    fn split_points(&self, wanted: usize) -> Vec<Self::Key>;
    /// Estimates the number of keys.
    fn estimated_keys(&self) -> u64;
    /// Estimates the share of the keys below a key.
    fn estimated_share_below(&self, key: Self::Key) -> f64;
    /// Keys of a leaf as random inserts fill it.
    fn usual_leaf_keys(&self) -> u64;
    /// Returns the number that its owner stored last.
    fn note(&self) -> u64;
    /// Returns its pool.
    fn pool(&self) -> &Pool;
    /// Stores a number.
    fn set_note(&self, number: u64);
    /// Counts sizes; an estimate beside writers.
    fn sizes(&self) -> TreeStats;
    /// Verifies all invariants; `object` is called with the offset of every object.
    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()>;
    /// Verifies all invariants; see [`BTree::check_damaged`].
    fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(Self::Key, u64),
    ) -> Result<()>;
}

/// Implements the interface by the structure's own functions of the same names.
macro_rules! fixed_index {
    ($index:ident<K $(, $parameter:ident: $bound:ident)*>) => {
        impl<K: FixedKey $(, $parameter: $bound)*> FixedIndex for $index<K $(, $parameter)*> {
            fn get(&self, key: K) -> Result<Option<u64>> {
                $index::get(self, key)
            }

            fn get_many(&self, keys: &[K], values: &mut Vec<Option<u64>>) -> Result<()> {
                $index::get_many(self, keys, values)
            }

            fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
                $index::insert(self, key, value, with)
            }

            fn update<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
                $index::update(self, key, value, with)
            }

            fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
                $index::remove(self, key, with)
            }

            fn insert_many<'p>(
                &'p self,
                keys: &[K],
                carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
                existing: &mut dyn FnMut(usize, u64),
            ) -> Result<()> {
                $index::insert_many(self, keys, carried, existing)
            }

            fn apply_many(&self, changes: &[(K, Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
                $index::apply_many(self, changes, before)
            }

            fn split_points(&self, wanted: usize) -> Vec<K> {
                $index::split_points(self, wanted)
            }

            fn estimated_keys(&self) -> u64 {
                $index::estimated_keys(self)
            }

            fn estimated_share_below(&self, key: K) -> f64 {
                $index::estimated_share_below(self, key)
            }

            fn usual_leaf_keys(&self) -> u64 {
                $index::usual_leaf_keys(self)
            }

            fn note(&self) -> u64 {
                $index::note(self)
            }

            fn pool(&self) -> &Pool {
                $index::pool(self)
            }

            fn set_note(&self, number: u64) {
                $index::set_note(self, number);
            }

            fn sizes(&self) -> TreeStats {
                $index::sizes(self)
            }

            fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
                $index::check(self, object)
            }

            fn check_damaged(
                &self,
                claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
                entry: &mut dyn FnMut(K, u64),
            ) -> Result<()> {
                $index::check_damaged(self, claim, entry)
            }
        }
    };
}

fixed_index!(BTree<K, L: Layout, I: Layout, P: Placement>);
fixed_index!(SkipList<K, C: Content, T: Towers>);
fixed_index!(PooledLsmTree<K>);

/// A [`FixedIndex`] with byte keys; the methods are those of [`super::OrderedIndex`].
pub(super) trait ByteIndex: Send + Sync {
    fn width(&self) -> KeyWidth;
    fn get(&self, key: &[u8]) -> Result<Option<u64>>;
    fn get_many(&self, keys: &[&[u8]], values: &mut Vec<Option<u64>>) -> Result<()>;
    fn insert<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Inserted>;
    fn replace<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Option<u64>>;
    fn remove<'p>(&'p self, key: &[u8], with: Publication<'p>) -> Result<Option<u64>>;
    fn insert_many<'p>(
        &'p self,
        keys: &[&[u8]],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()>;
    fn apply_many(&self, changes: &[(&[u8], Change)], before: &mut Vec<Option<u64>>) -> Result<()>;
    fn scan(
        &self,
        from: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>>;
    fn scan_back(
        &self,
        before: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>>;
    fn first_from(&self, key: &[u8]) -> Result<Option<(KeyBytes, u64)>>;
    fn last_key(&self) -> Result<Option<KeyBytes>>;
    fn split_points(&self, wanted: usize) -> Vec<KeyBytes>;
    fn estimated_keys(&self) -> u64;
    fn estimated_share_below(&self, key: &[u8]) -> Option<f64>;
    fn usual_leaf_keys(&self) -> u64;
    fn note(&self) -> Option<u64>;
    fn pool(&self) -> &Pool;
    fn segments_left(&self) -> u64 {
        0
    }
    fn open_more(&self, _segments_max: usize) -> Result<u64> {
        Ok(0)
    }
    fn set_note(&self, number: u64);
    fn stats(&self) -> TreeStats;
    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()>;
    fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()>;
}

/// Reads the keys of a batch; an error if one does not fit.
fn fixed_keys<K: OrderedKey>(keys: &[&[u8]]) -> Result<SmallVec<[K; BATCH_KEYS]>> {
    keys.iter().map(|key| K::from_bytes(key)).collect()
}

/// Returns the range from a bound on; none if it is empty. A bound longer than a key is truncated, and lies behind it.
fn range_from<K: OrderedKey>(from: Bound<&[u8]>) -> Result<Option<RangeInclusive<K>>> {
    let first = match from {
        Bound::Unbounded => Some(K::MIN),
        Bound::Included(bytes) if bytes.len() <= K::BYTES => Some(K::from_bytes(bytes)?),
        Bound::Included(bytes) | Bound::Excluded(bytes) => {
            K::from_bytes(&bytes[..bytes.len().min(K::BYTES)])?.next()
        }
    };
    Ok(first.map(|first| first..=K::MAX))
}

/// Returns the range up to a bound; none if it is empty. A bound longer than a key is truncated, and lies behind it.
fn range_before<K: OrderedKey>(before: Bound<&[u8]>) -> Result<Option<RangeInclusive<K>>> {
    let last = match before {
        Bound::Unbounded => Some(K::MAX),
        Bound::Excluded(bytes) if bytes.len() <= K::BYTES => K::from_bytes(bytes)?.previous(),
        Bound::Included(bytes) | Bound::Excluded(bytes) => {
            Some(K::from_bytes(&bytes[..bytes.len().min(K::BYTES)])?)
        }
    };
    Ok(last.map(|last| K::MIN..=last))
}

fn append<K: OrderedKey>(found: Vec<(K, u64)>, entries: &mut Vec<(KeyBytes, u64)>) {
    entries.extend(found.into_iter().map(|(key, value)| (key.to_bytes(), value)));
}

impl<T: FixedIndex> ByteIndex for T
where
    T::Key: OrderedKey,
{
    fn width(&self) -> KeyWidth {
        T::Key::WIDTH
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        T::Key::from_bytes(key).map_or(Ok(None), |key| FixedIndex::get(self, key))
    }

    fn get_many(&self, keys: &[&[u8]], values: &mut Vec<Option<u64>>) -> Result<()> {
        if let Ok(keys) = fixed_keys::<T::Key>(keys) {
            return FixedIndex::get_many(self, &keys, values);
        }
        values.clear();
        for key in keys {
            values.push(ByteIndex::get(self, key)?);
        }
        Ok(())
    }

    fn insert<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Inserted> {
        FixedIndex::insert(self, T::Key::from_bytes(key)?, value, with)
    }

    fn replace<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        FixedIndex::update(self, T::Key::from_bytes(key)?, value, with)
    }

    fn remove<'p>(&'p self, key: &[u8], with: Publication<'p>) -> Result<Option<u64>> {
        FixedIndex::remove(self, T::Key::from_bytes(key)?, with)
    }

    fn insert_many<'p>(
        &'p self,
        keys: &[&[u8]],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        FixedIndex::insert_many(self, &fixed_keys::<T::Key>(keys)?, carried, existing)
    }

    fn apply_many(&self, changes: &[(&[u8], Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        before.clear();
        let fixed = changes.iter().map(|(key, change)| Ok((T::Key::from_bytes(key)?, *change)));
        let changes = fixed.collect::<Result<SmallVec<[_; BATCH_KEYS]>>>()?;
        FixedIndex::apply_many(self, &changes, before)
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        let Some(range) = range_from::<T::Key>(from)? else { return Ok(None) };
        let mut found = Vec::new();
        let rest = Scan::scan(self, range, enough.max(1), &mut found)?;
        append(found, entries);
        Ok(rest.map(|rest| rest.start().to_bytes()))
    }

    fn scan_back(
        &self,
        before: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        let Some(range) = range_before::<T::Key>(before)? else { return Ok(None) };
        let mut found = Vec::new();
        let rest = Scan::scan_back(self, range, enough.max(1), &mut found)?;
        append(found, entries);
        // The key after the rest, which has ended before an entry that was found.
        Ok(rest.and_then(|rest| rest.end().next()).map(T::Key::to_bytes))
    }

    fn first_from(&self, key: &[u8]) -> Result<Option<(KeyBytes, u64)>> {
        let mut found = Vec::new();
        Scan::scan(self, T::Key::from_bytes(key)?..=T::Key::MAX, 1, &mut found)?;
        Ok(found.first().map(|(key, value)| (key.to_bytes(), *value)))
    }

    fn last_key(&self) -> Result<Option<KeyBytes>> {
        let mut found = Vec::new();
        Scan::scan_back(self, T::Key::MIN..=T::Key::MAX, 1, &mut found)?;
        Ok(found.first().map(|(key, _)| key.to_bytes()))
    }

    fn split_points(&self, wanted: usize) -> Vec<KeyBytes> {
        FixedIndex::split_points(self, wanted).into_iter().map(T::Key::to_bytes).collect()
    }

    fn estimated_keys(&self) -> u64 {
        FixedIndex::estimated_keys(self)
    }

    fn estimated_share_below(&self, key: &[u8]) -> Option<f64> {
        let key = T::Key::from_bytes(&key[..key.len().min(T::Key::BYTES)]).ok()?;
        Some(FixedIndex::estimated_share_below(self, key))
    }

    fn usual_leaf_keys(&self) -> u64 {
        FixedIndex::usual_leaf_keys(self)
    }

    fn note(&self) -> Option<u64> {
        Some(FixedIndex::note(self))
    }

    fn pool(&self) -> &Pool {
        FixedIndex::pool(self)
    }

    fn set_note(&self, number: u64) {
        FixedIndex::set_note(self, number);
    }

    fn stats(&self) -> TreeStats {
        self.sizes()
    }

    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        FixedIndex::check(self, object)
    }

    fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        FixedIndex::check_damaged(self, claim, &mut |key, value| entry(&key.to_bytes(), value))
    }
}
