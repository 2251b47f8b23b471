//! Indexes that a hotspot index can cache.

use super::HotspotIndex;
use crate::Inserted;
use crate::btree::{BTree, Placement};
use crate::error::Result;
use crate::fptree::FpTree;
use crate::hash::HashTable;
use crate::key::{PairKey, WordKey};
use crate::node::{FixedKey, Layout};
use entresol_memory::Publication;

/// An index of keys of one or two words, with the operations on one key.
pub trait PointIndex: Send + Sync {
    /// A key.
    type Key: Copy;
    /// Words of a key: 1 or 2.
    const KEY_WORDS: usize;
    /// A key as words; of a key of one word the second is 0. Equal for equal keys only.
    fn key_words(key: Self::Key) -> [u64; 2];
    /// The value of a key.
    fn get(&self, key: Self::Key) -> Result<Option<u64>>;
    /// Adds a key, atomically with the changes in `with`.
    fn insert<'p>(&'p self, key: Self::Key, value: u64, with: Publication<'p>) -> Result<Inserted>;
    /// Changes the value of a key, atomically with the changes in `with`; returns the old one.
    fn replace<'p>(&'p self, key: Self::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>>;
    /// Removes a key, atomically with the changes in `with`; returns its value.
    fn remove<'p>(&'p self, key: Self::Key, with: Publication<'p>) -> Result<Option<u64>>;
}

macro_rules! point_index {
    ($index:ty, $key:ty, $key_words:expr, $words:expr, $get:expr) => {
        impl PointIndex for $index {
            type Key = $key;
            const KEY_WORDS: usize = $key_words;

            #[inline]
            fn key_words(key: $key) -> [u64; 2] {
                $words(key)
            }

            #[inline]
            fn get(&self, key: $key) -> Result<Option<u64>> {
                $get(<$index>::get(self, key))
            }

            #[inline]
            fn insert<'p>(&'p self, key: $key, value: u64, with: Publication<'p>) -> Result<Inserted> {
                <$index>::insert(self, key, value, with)
            }

            #[inline]
            fn replace<'p>(&'p self, key: $key, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
                <$index>::replace(self, key, value, with)
            }

            #[inline]
            fn remove<'p>(&'p self, key: $key, with: Publication<'p>) -> Result<Option<u64>> {
                <$index>::remove(self, key, with)
            }
        }
    };
}

point_index!(FpTree<WordKey>, u64, 1, |key| [key, 0], std::convert::identity);
point_index!(FpTree<PairKey>, [u64; 2], 2, |key| key, std::convert::identity);
point_index!(HashTable<WordKey>, u64, 1, |key| [key, 0], Ok);
point_index!(HashTable<PairKey>, [u64; 2], 2, |key| key, Ok);

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> PointIndex for BTree<K, L, I, P> {
    type Key = K;
    const KEY_WORDS: usize = K::WORDS;

    #[inline]
    fn key_words(key: K) -> [u64; 2] {
        [key.word(0), if K::WORDS > 1 { key.word(1) } else { 0 }]
    }

    #[inline]
    fn get(&self, key: K) -> Result<Option<u64>> {
        BTree::get(self, key)
    }

    #[inline]
    fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
        BTree::insert(self, key, value, with)
    }

    #[inline]
    fn replace<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.update(key, value, with)
    }

    #[inline]
    fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
        BTree::remove(self, key, with)
    }
}

/// A borrowed index; it must be changed through one hotspot index only.
impl<I: PointIndex> PointIndex for &I {
    type Key = I::Key;
    const KEY_WORDS: usize = I::KEY_WORDS;

    #[inline]
    fn key_words(key: I::Key) -> [u64; 2] {
        I::key_words(key)
    }

    #[inline]
    fn get(&self, key: I::Key) -> Result<Option<u64>> {
        (**self).get(key)
    }

    #[inline]
    fn insert<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Inserted> {
        (**self).insert(key, value, with)
    }

    #[inline]
    fn replace<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        (**self).replace(key, value, with)
    }

    #[inline]
    fn remove<'p>(&'p self, key: I::Key, with: Publication<'p>) -> Result<Option<u64>> {
        (**self).remove(key, with)
    }
}

/// A hotspot index is an index.
impl<I: PointIndex> PointIndex for HotspotIndex<I> {
    type Key = I::Key;
    const KEY_WORDS: usize = I::KEY_WORDS;

    #[inline]
    fn key_words(key: I::Key) -> [u64; 2] {
        I::key_words(key)
    }

    #[inline]
    fn get(&self, key: I::Key) -> Result<Option<u64>> {
        HotspotIndex::get(self, key)
    }

    #[inline]
    fn insert<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Inserted> {
        HotspotIndex::insert(self, key, value, with)
    }

    #[inline]
    fn replace<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        HotspotIndex::replace(self, key, value, with)
    }

    #[inline]
    fn remove<'p>(&'p self, key: I::Key, with: Publication<'p>) -> Result<Option<u64>> {
        HotspotIndex::remove(self, key, with)
    }
}
