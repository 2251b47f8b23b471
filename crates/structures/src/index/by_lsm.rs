//! The LSM-tree behind the interface of indexes.

use super::by_bytes::{Claim, FixedIndex};
use crate::error::Result;
use crate::fptree::TreeStats;
use crate::lsm::PooledLsmTree;
use crate::node::FixedKey;
use crate::{Change, Inserted};
use entresol_memory::{Pool, PoolOffset, Publication};

impl<K: FixedKey> FixedIndex for PooledLsmTree<K> {
    fn get(&self, key: K) -> Result<Option<u64>> {
        PooledLsmTree::get(self, key)
    }

    fn get_many(&self, keys: &[K], values: &mut Vec<Option<u64>>) -> Result<()> {
        PooledLsmTree::get_many(self, keys, values)
    }

    fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
        PooledLsmTree::insert(self, key, value, with)
    }

    fn update<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        PooledLsmTree::update(self, key, value, with)
    }

    fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
        PooledLsmTree::remove(self, key, with)
    }

    fn insert_many<'p>(
        &'p self,
        keys: &[K],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        PooledLsmTree::insert_many(self, keys, carried, existing)
    }

    fn apply_many(&self, changes: &[(K, Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        PooledLsmTree::apply_many(self, changes, before)
    }

    fn split_points(&self, wanted: usize) -> Vec<K> {
        PooledLsmTree::split_points(self, wanted)
    }

    fn estimated_keys(&self) -> u64 {
        PooledLsmTree::estimated_keys(self)
    }

    fn estimated_share_below(&self, key: K) -> f64 {
        PooledLsmTree::estimated_share_below(self, key)
    }

    fn usual_leaf_keys(&self) -> u64 {
        PooledLsmTree::usual_leaf_keys(self)
    }

    fn note(&self) -> u64 {
        PooledLsmTree::note(self)
    }

    fn pool(&self) -> &Pool {
        PooledLsmTree::pool(self)
    }

    fn set_note(&self, number: u64) {
        PooledLsmTree::set_note(self, number);
    }

    fn sizes(&self) -> TreeStats {
        PooledLsmTree::sizes(self)
    }

    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        PooledLsmTree::check(self, object)
    }

    fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(K, u64),
    ) -> Result<()> {
        PooledLsmTree::check_damaged(self, claim, entry)
    }
}
