//! The generic B+-tree in all its instances: against a model, under crashes, with threads, with damage.
//!
//! The tests see the instances as `dyn Tree`, so that each is compiled once.

#![allow(missing_docs, unreachable_pub)]

mod bugs;
mod concurrency;
mod crash;
mod damage;
mod limits;
mod model;

use entresol_memory::{DomainChoice, Env, JournalOptions, Pool, PoolOffset, PoolOptions, Publication};
use entresol_structures::btree::instances::*;
use entresol_structures::btree::{BTree, BTreeStats, Placement};
use entresol_structures::node::{FixedKey, Layout};
use entresol_structures::{Inserted, Result};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A tree of any kind, with keys given as numbers.
pub trait Tree: Send + Sync {
    fn get(&self, key: u64) -> Result<Option<u64>>;
    fn get_many(&self, keys: &[u64]) -> Result<Vec<Option<u64>>>;
    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted>;
    fn update<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>>;
    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>>;
    fn range(&self, range: RangeInclusive<u64>, descending: bool) -> Result<Vec<(u64, u64)>>;
    fn load(&self, entries: &[(u64, u64)], fill_percent: usize) -> Result<u64>;
    fn set_underflow_handling(&self, on: bool);
    fn stats(&self) -> Result<BTreeStats>;
    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()>;
}

/// Keys of every width, by number; the numbers fill both words of wide ones.
pub trait Numbered: FixedKey {
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
}

impl Numbered for u64 {
    fn of(number: u64) -> u64 {
        number
    }
    fn number(self) -> u64 {
        self
    }
}

impl Numbered for u128 {
    fn of(number: u64) -> u128 {
        u128::from(number / 5) << 64 | u128::from(number % 5) << 60
    }
    fn number(self) -> u64 {
        (self >> 64) as u64 * 5 + (self as u64 >> 60)
    }
}

impl<K: Numbered, L: Layout, I: Layout, P: Placement> Tree for BTree<K, L, I, P> {
    fn get(&self, key: u64) -> Result<Option<u64>> {
        BTree::get(self, K::of(key))
    }
    fn get_many(&self, keys: &[u64]) -> Result<Vec<Option<u64>>> {
        let keys: Vec<K> = keys.iter().map(|key| K::of(*key)).collect();
        // Previous contents must be cleared.
        let mut values = vec![Some(1)];
        BTree::get_many(self, &keys, &mut values)?;
        Ok(values)
    }
    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
        BTree::insert(self, K::of(key), value, with)
    }
    fn update<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        BTree::update(self, K::of(key), value, with)
    }
    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
        BTree::remove(self, K::of(key), with)
    }
    fn range(&self, range: RangeInclusive<u64>, descending: bool) -> Result<Vec<(u64, u64)>> {
        let range = BTree::range(self, K::of(*range.start())..=K::of(*range.end()));
        let number = |entry: Result<(K, u64)>| entry.map(|(key, value)| (key.number(), value));
        if descending { range.rev().map(number).collect() } else { range.map(number).collect() }
    }
    fn load(&self, entries: &[(u64, u64)], fill_percent: usize) -> Result<u64> {
        BTree::load(self, entries.iter().map(|(key, value)| (K::of(*key), *value)), fill_percent)
    }
    fn set_underflow_handling(&self, on: bool) {
        BTree::set_underflow_handling(self, on);
    }
    fn stats(&self) -> Result<BTreeStats> {
        BTree::stats(self)
    }
    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        BTree::check(self, object)
    }
}

type Open = fn(&Arc<Pool>, PoolOffset) -> Result<Box<dyn Tree>>;

/// A kind of tree.
#[derive(Clone, Copy)]
pub struct Instance {
    pub name: &'static str,
    pub create: for<'p> fn(&'p Arc<Pool>, &mut Publication<'p>) -> Result<PoolOffset>,
    pub open: Open,
    pub destroy: fn(&Arc<Pool>, PoolOffset) -> Result<()>,
}

impl Instance {
    /// A new tree under the root name "tree".
    pub fn new_tree(&self, pool: &Arc<Pool>) -> Box<dyn Tree> {
        let mut publication = pool.publication();
        let root = (self.create)(pool, &mut publication).unwrap();
        publication.set_root("tree", root).unwrap();
        publication.publish().unwrap();
        (self.open)(pool, root).unwrap()
    }

    pub fn reopen(&self, pool: &Arc<Pool>) -> Box<dyn Tree> {
        (self.open)(pool, pool.root("tree").unwrap()).unwrap()
    }
}

macro_rules! instance {
    ($tree:ident<$key:ty, $leaf:literal, $inner:literal>) => {
        Instance {
            name: concat!(stringify!($tree), " ", stringify!($key), " ", $leaf, "/", $inner),
            create: |pool, publication| $tree::<$key, $leaf, $inner>::create(pool, publication),
            open: |pool, root| Ok(Box::new($tree::<$key, $leaf, $inner>::open(pool, root)?)),
            destroy: |pool, root| $tree::<$key, $leaf, $inner>::destroy(pool, root),
        }
    };
}

macro_rules! sizes {
    ($($tree:ident)*) => {
        vec![$(
            instance!($tree<u64, 256, 256>),
            instance!($tree<u64, 1024, 512>),
            instance!($tree<u64, 4096, 2048>),
        )*]
    };
}

/// Returns every design in small nodes, which change most.
pub fn small_instances() -> Vec<Instance> {
    instances().into_iter().filter(|instance| instance.name.ends_with("256/256")).collect()
}

/// Returns every design in several sizes.
pub fn instances() -> Vec<Instance> {
    let mut all = sizes!(FpLikeTree WbTree HybridWbTree PbpTree HybridPbpTree UnsortedTree
        HybridUnsortedTree BitmapTree HybridBitmapTree FastFairTree);
    all.extend([
        instance!(FpLikeTree<u128, 256, 256>),
        instance!(WbTree<u128, 256, 256>),
        instance!(PbpTree<u128, 256, 256>),
        instance!(UnsortedTree<u128, 256, 256>),
        instance!(BitmapTree<u128, 256, 256>),
        instance!(FpLikeTree<u64, 512, 4096>),
        instance!(PbpTree<u64, 2048, 1024>),
        instance!(FastFairTree<u64, 512, 2048>),
        instance!(WbTree<u64, 2048, 4096>),
    ]);
    all
}

pub fn volatile_pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap()
}

pub fn journal_pool(directory: &std::path::Path) -> Arc<Pool> {
    let options = PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes: 256 << 10,
            journal_bytes_max: 1 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        env: Env::real(),
        ..PoolOptions::default()
    };
    Pool::open_or_create(directory, &options).unwrap()
}
