//! Our structures as stores: any index in a pool. Every write is failure-atomic by itself; at `sync` and `group(10)` each
//! one asks for its durability, so that two threads share syncs.

use super::{Class, GROUP_MS, Session, Store};
use crate::Error;
use crate::workload::{Kind, Op, Tally};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions, Publication};
use entresol_structures::btree::{BTree, Placement};
use entresol_structures::node::Layout;
use entresol_structures::{FpTree, HashTable, Inserted, LEAF_BYTES, WordKey};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// A segment of the hash table.
const SEGMENT_BYTES: u64 = 16 << 10;

/// An index from words to words.
pub trait Index: Send + Sync + Sized + 'static {
    /// Its root object's name in the pool.
    const ROOT: &'static str = "index";

    /// Lays out an empty one.
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<u64, Error>;
    /// Opens it.
    fn open(pool: &Arc<Pool>, root: u64) -> Result<Self, Error>;
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
}

impl Index for FpTree<WordKey> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<u64, Error> {
        Ok(FpTree::<WordKey>::create(pool, 0, with)?)
    }

    fn open(pool: &Arc<Pool>, root: u64) -> Result<Self, Error> {
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
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<u64, Error> {
        Ok(HashTable::<WordKey>::create(pool, with)?)
    }

    fn open(pool: &Arc<Pool>, root: u64) -> Result<Self, Error> {
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

    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        let stats = self.stats();
        Ok((stats.segments * SEGMENT_BYTES, stats.directory_bytes as u64))
    }
}

impl<L: Layout, I: Layout, P: Placement> Index for BTree<u64, L, I, P> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<u64, Error> {
        Ok(BTree::<u64, L, I, P>::create(pool, with)?)
    }

    fn open(pool: &Arc<Pool>, root: u64) -> Result<Self, Error> {
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
        let mut entries = Vec::with_capacity(2 * tuples);
        BTree::scan(self, key..=u64::MAX, tuples, &mut entries)?;
        values.extend(entries.iter().take(tuples).map(|(_, value)| *value));
        Ok(true)
    }

    fn node_bytes(&self) -> Result<(u64, u64), Error> {
        let stats = self.stats()?;
        Ok((stats.pool_bytes, stats.dram_bytes))
    }
}

/// An index and its pool.
pub struct Pooled<I> {
    index: I,
    pool: Arc<Pool>,
    durability: Durability,
}

impl<I: Index> Pooled<I> {
    /// Opens or creates the pool of a directory, on a domain, and the index in it.
    pub fn open(dir: &Path, domain: DomainChoice, class: Class) -> Result<Pooled<I>, Error> {
        let options = PoolOptions { domain, ..PoolOptions::default() };
        let pool = match domain {
            DomainChoice::Volatile => Pool::volatile(&options)?,
            _ => Pool::open_or_create(dir, &options)?,
        };
        let root = match pool.root(I::ROOT) {
            Some(root) => root,
            None => {
                let mut publication = pool.publication();
                let root = I::create(&pool, &mut publication)?;
                publication.set_root(I::ROOT, root)?;
                publication.publish()?;
                root
            }
        };
        let durability = match class {
            Class::None => Durability::None,
            Class::Group => Durability::Group { interval_ms: GROUP_MS },
            Class::Sync => Durability::Sync,
        };
        Ok(Pooled { index: I::open(&pool, root)?, pool, durability })
    }

    /// The index.
    pub fn index(&self) -> &I {
        &self.index
    }
}

pub(super) fn open_fptree(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Pooled::<FpTree<WordKey>>::open(dir, DomainChoice::Journal, class)?))
}

pub(super) fn open_fptree_dax(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Pooled::<FpTree<WordKey>>::open(dir, DomainChoice::DaxEmulated, class)?))
}

pub(super) fn open_hash(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Pooled::<HashTable<WordKey>>::open(dir, DomainChoice::Journal, class)?))
}

/// An index on a domain, for races that choose.
pub fn open_index<I: Index>(dir: &Path, domain: DomainChoice) -> Result<Box<Pooled<I>>, Error> {
    Ok(Box::new(Pooled::open(dir, domain, Class::None)?))
}

impl<I: Index> Store for Pooled<I> {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(PooledSession { store: self, values: Vec::new(), scanned: Vec::new() }))
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(self.pool.sync()?)
    }

    fn syncs_by_itself(&self) -> bool {
        true
    }

    fn settle(&self) -> Result<(), Error> {
        self.pool.sync()?;
        Ok(self.pool.checkpoint()?)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.pool.stats().allocated_bytes)
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(self.pool.close()?)
    }
}

struct PooledSession<'s, I> {
    store: &'s Pooled<I>,
    values: Vec<Option<u64>>,
    scanned: Vec<u64>,
}

impl<I: Index> Session for PooledSession<'_, I> {
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        let Pooled { index, pool, durability } = self.store;
        // As a reader with many keys does: pinning is a full fence, which would keep lookups apart.
        let _pinned = pool.pin();
        for op in ops {
            match op.kind() {
                Kind::Get => tally.got(op, index.get(op.key)?),
                Kind::Insert => tally.wrote(index.insert(op.key, op.value(), pool)?),
                Kind::Update => tally.wrote(index.update(op.key, op.value(), pool)?),
                Kind::Delete => tally.wrote(index.remove(op.key, pool)?),
                Kind::Scan => {
                    self.scanned.clear();
                    if !index.scan(op.key, op.length(), &mut self.scanned)? {
                        return Err(Error::Invalid("this index has no order to scan in".to_string()));
                    }
                    tally.scanned(op, self.scanned.iter().copied());
                }
                Kind::ReadModifyWrite => {
                    tally.got(op, index.get(op.key)?);
                    index.update(op.key, op.value(), pool)?;
                }
            }
            if *durability != Durability::None && op.writes() {
                pool.persist(*durability)?;
            }
        }
        Ok(pool.persist(Durability::None)?)
    }

    fn get_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        self.store.index.get_many(ops.iter().map(|op| op.key), &mut self.values)?;
        ops.iter().zip(&self.values).for_each(|(op, value)| tally.got(op, *value));
        Ok(())
    }
}
