//! Our structures behind one face: indexes from words to words.

use crate::Error;
use entresol_memory::{Pool, PoolOffset, Publication};
use entresol_structures::btree::{BTree, Placement};
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree};
use entresol_structures::node::Layout;
use entresol_structures::skiplist::{Content, SkipList, Towers};
use entresol_structures::trie::Patricia;
use entresol_structures::{Change, FpTree, HashTable, Inserted, LEAF_BYTES, Scan, WordKey};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A segment of the hash table.
const SEGMENT_BYTES: u64 = 16 << 10;
/// Bytes of a write in the log of an LSM-tree's buffer.
const LSM_LOG_BYTES: u64 = 32;
/// Segments of a tree that are opened between two looks at whether to stop.
const SEGMENTS_PER_STEP: usize = 64;

/// An index from words to words.
pub trait Index: Send + Sync + Sized + 'static {
    /// Its root object's name in the pool.
    const ROOT: &'static str = "index";

    /// Lays out an empty one.
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset, Error>;
    /// Opens it.
    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self, Error>;
    /// The value of a key.
    fn get(&self, key: u64) -> Result<Option<u64>, Error>;
    /// The values of keys; `values` is cleared first.
    fn get_many(&self, keys: impl Iterator<Item = u64>, values: &mut Vec<Option<u64>>) -> Result<(), Error>;
    /// Adds a key; whether it was new.
    fn insert(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error>;
    /// Changes a value; whether the key was there.
    fn update(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error>;
    /// Removes a key; whether it was there.
    fn remove(&self, key: u64, pool: &Pool) -> Result<bool, Error>;
    /// Appends the values of so many tuples from a key on; false if it has no order.
    fn scan(&self, key: u64, tuples: usize, values: &mut Vec<u64>) -> Result<bool, Error>;
    /// Bytes of nodes in the pool, and in DRAM.
    fn node_bytes(&self) -> Result<(u64, u64), Error>;

    /// Carries out changes in order, in one call if it has one. Reports of each whether a key to insert was
    /// new, or any other key was there.
    fn apply_many(
        &self,
        changes: impl Iterator<Item = (u64, Change)> + Clone,
        pool: &Pool,
        mut as_expected: impl FnMut(bool),
    ) -> Result<(), Error> {
        for (key, change) in changes {
            as_expected(match change {
                Change::Insert(value) => self.insert(key, value, pool)?,
                Change::Replace(value) => self.update(key, value, pool)?,
                Change::Remove => self.remove(key, pool)?,
            });
        }
        Ok(())
    }

    /// Opens what it was opened without, until told to stop: what a database does in the background.
    fn open_rest(&self, _stop: &AtomicBool) -> Result<(), Error> {
        Ok(())
    }
}

impl Index for FpTree<WordKey> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset, Error> {
        Ok(FpTree::<WordKey>::create(pool, 0, with)?)
    }

    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self, Error> {
        Ok(FpTree::open(pool, root, 0)?)
    }

    #[inline]
    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(FpTree::get(self, key)?)
    }

    fn get_many(&self, keys: impl Iterator<Item = u64>, values: &mut Vec<Option<u64>>) -> Result<(), Error> {
        FpTree::get_many(self, keys, values)?;
        Ok(())
    }

    #[inline]
    fn insert(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.insert(key, value, with))? == Inserted::New)
    }

    #[inline]
    fn update(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.replace(key, value, with))?.is_some())
    }

    #[inline]
    fn remove(&self, key: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.remove(key, with))?.is_some())
    }

    fn scan(&self, key: u64, tuples: usize, values: &mut Vec<u64>) -> Result<bool, Error> {
        let end = values.len() + tuples;
        self.visit(Bound::Included(key), tuples, |_, value| values.push(value))?;
        values.truncate(end);
        Ok(true)
    }

    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        let stats = self.stats();
        Ok((stats.leaves * LEAF_BYTES as u64, stats.inner_bytes as u64))
    }

    fn apply_many(
        &self,
        changes: impl Iterator<Item = (u64, Change)> + Clone,
        _: &Pool,
        as_expected: impl FnMut(bool),
    ) -> Result<(), Error> {
        let mut before = Vec::new();
        FpTree::apply_many(self, changes.clone(), &mut before)?;
        changes.zip(&before).map(was_expected).for_each(as_expected);
        Ok(())
    }

    fn open_rest(&self, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) && self.open_more(SEGMENTS_PER_STEP)? > 0 {}
        Ok(())
    }
}

/// Returns true if a key to insert was new, and any other key was there.
fn was_expected(((_, change), before): ((u64, Change), &Option<u64>)) -> bool {
    matches!(change, Change::Insert(_)) == before.is_none()
}

/// Calls an operation with a publication of the pool that the index lives in.
#[inline]
fn with_pool_of<'p, I, R>(
    index: &'p I,
    pool: &'p Pool,
    call: impl FnOnce(&'p I, Publication<'p>) -> entresol_structures::Result<R>,
) -> Result<R, Error> {
    Ok(call(index, pool.publication())?)
}

impl Index for HashTable<WordKey> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset, Error> {
        Ok(HashTable::<WordKey>::create(pool, with)?)
    }

    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self, Error> {
        Ok(HashTable::open(pool, root)?)
    }

    #[inline]
    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(HashTable::get(self, key))
    }

    fn get_many(&self, keys: impl Iterator<Item = u64>, values: &mut Vec<Option<u64>>) -> Result<(), Error> {
        HashTable::get_many(self, keys, values);
        Ok(())
    }

    #[inline]
    fn insert(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |table, with| table.insert(key, value, with))? == Inserted::New)
    }

    #[inline]
    fn update(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |table, with| table.replace(key, value, with))?.is_some())
    }

    #[inline]
    fn remove(&self, key: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |table, with| table.remove(key, with))?.is_some())
    }

    fn scan(&self, _: u64, _: usize, _: &mut Vec<u64>) -> Result<bool, Error> {
        Ok(false)
    }

    fn apply_many(
        &self,
        changes: impl Iterator<Item = (u64, Change)> + Clone,
        _: &Pool,
        as_expected: impl FnMut(bool),
    ) -> Result<(), Error> {
        let mut before = Vec::new();
        HashTable::apply_many(self, changes.clone(), &mut before)?;
        changes.zip(&before).map(was_expected).for_each(as_expected);
        Ok(())
    }

    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        let stats = self.stats();
        Ok((stats.segments * SEGMENT_BYTES, stats.directory_bytes as u64))
    }
}

impl<L: Layout, I: Layout, P: Placement> Index for BTree<u64, L, I, P> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset, Error> {
        Ok(BTree::<u64, L, I, P>::create(pool, with)?)
    }

    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self, Error> {
        Ok(BTree::open(pool, root)?)
    }

    #[inline]
    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(BTree::get(self, key)?)
    }

    fn get_many(&self, keys: impl Iterator<Item = u64>, values: &mut Vec<Option<u64>>) -> Result<(), Error> {
        let keys: Vec<u64> = keys.collect();
        Ok(BTree::get_many(self, &keys, values)?)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.insert(key, value, with))? == Inserted::New)
    }

    #[inline]
    fn update(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.update(key, value, with))?.is_some())
    }

    #[inline]
    fn remove(&self, key: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.remove(key, with))?.is_some())
    }

    fn scan(&self, key: u64, tuples: usize, values: &mut Vec<u64>) -> Result<bool, Error> {
        scan_entries(self, key, tuples, values)
    }

    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        let stats = self.stats()?;
        Ok((stats.pool_bytes, stats.dram_bytes))
    }
}

/// With its levels in the pool and its thread beside it.
impl Index for LsmTree<u64> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset, Error> {
        Ok(LsmTree::<u64>::create(pool, &LsmParameters::default(), with)?)
    }

    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self, Error> {
        Ok(LsmTree::open(pool, root, &LsmOptions::default())?)
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(LsmTree::get(self, key)?)
    }

    fn get_many(&self, keys: impl Iterator<Item = u64>, values: &mut Vec<Option<u64>>) -> Result<(), Error> {
        *values = LsmTree::get_many(self, &keys.collect::<Vec<_>>())?;
        Ok(())
    }

    fn insert(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.insert(key, value, with))? == Inserted::New)
    }

    fn update(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.update(key, value, with))?.is_some())
    }

    fn remove(&self, key: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |tree, with| tree.remove(key, with))?.is_some())
    }

    fn scan(&self, key: u64, tuples: usize, values: &mut Vec<u64>) -> Result<bool, Error> {
        scan_entries(self, key, tuples, values)
    }

    /// After it has come to rest; the logs of its buffers are counted.
    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        self.settle()?;
        let (stats, parameters) = (self.stats(), self.parameters());
        let logs = u64::from(parameters.buffers) * u64::from(parameters.buffer_entries) * LSM_LOG_BYTES;
        let runs: u64 = stats.levels.iter().map(|level| level.bytes).sum();
        let dram = stats.buffer_bytes + stats.filter_bytes + stats.index_bytes + stats.cache_bytes;
        Ok((logs + runs, dram as u64))
    }
}

impl<C: Content, T: Towers> Index for SkipList<u64, C, T> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset, Error> {
        Ok(SkipList::<u64, C, T>::create(pool, with)?)
    }

    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self, Error> {
        Ok(SkipList::open(pool, root)?)
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(SkipList::get(self, key)?)
    }

    fn get_many(&self, keys: impl Iterator<Item = u64>, values: &mut Vec<Option<u64>>) -> Result<(), Error> {
        one_by_one(keys, values, |key| SkipList::get(self, key))
    }

    fn insert(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |list, with| list.insert(key, value, with))? == Inserted::New)
    }

    fn update(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |list, with| list.update(key, value, with))?.is_some())
    }

    fn remove(&self, key: u64, pool: &Pool) -> Result<bool, Error> {
        Ok(with_pool_of(self, pool, |list, with| list.remove(key, with))?.is_some())
    }

    fn scan(&self, key: u64, tuples: usize, values: &mut Vec<u64>) -> Result<bool, Error> {
        scan_entries(self, key, tuples, values)
    }

    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        let stats = self.stats()?;
        Ok((stats.pool_bytes, stats.dram_bytes))
    }
}

/// Appends the values of so many tuples from a key on.
fn scan_entries<S: Scan<Key = u64>>(
    structure: &S,
    key: u64,
    tuples: usize,
    values: &mut Vec<u64>,
) -> Result<bool, Error> {
    let mut entries = Vec::with_capacity(2 * tuples);
    structure.scan(key..=u64::MAX, tuples, &mut entries)?;
    values.extend(entries.iter().take(tuples).map(|(_, value)| *value));
    Ok(true)
}

/// The values of keys, of a structure that has no call for many.
fn one_by_one(
    keys: impl Iterator<Item = u64>,
    values: &mut Vec<Option<u64>>,
    get: impl Fn(u64) -> entresol_structures::Result<Option<u64>>,
) -> Result<(), Error> {
    values.clear();
    keys.map(get).try_for_each(|value| value.map(|value| values.push(value)))?;
    Ok(())
}

/// Its keys are bytes: words the greatest byte first, so that their order is the same.
impl Index for Patricia {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset, Error> {
        Ok(Patricia::create(pool, with)?)
    }

    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self, Error> {
        Ok(Patricia::open(pool, root)?)
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(Patricia::get(self, &key.to_be_bytes())?)
    }

    fn get_many(&self, keys: impl Iterator<Item = u64>, values: &mut Vec<Option<u64>>) -> Result<(), Error> {
        one_by_one(keys, values, |key| Patricia::get(self, &key.to_be_bytes()))
    }

    fn insert(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        let key = key.to_be_bytes();
        Ok(with_pool_of(self, pool, |trie, with| trie.insert(&key, value, with))? == Inserted::New)
    }

    fn update(&self, key: u64, value: u64, pool: &Pool) -> Result<bool, Error> {
        let key = key.to_be_bytes();
        Ok(with_pool_of(self, pool, |trie, with| trie.update(&key, value, with))?.is_some())
    }

    fn remove(&self, key: u64, pool: &Pool) -> Result<bool, Error> {
        let key = key.to_be_bytes();
        Ok(with_pool_of(self, pool, |trie, with| trie.remove(&key, with))?.is_some())
    }

    fn scan(&self, key: u64, tuples: usize, values: &mut Vec<u64>) -> Result<bool, Error> {
        for entry in self.range(Bound::Included(&key.to_be_bytes()), Bound::Unbounded).take(tuples) {
            values.push(entry?.1);
        }
        Ok(true)
    }

    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        Ok((self.stats()?.pool_bytes, 0))
    }
}
