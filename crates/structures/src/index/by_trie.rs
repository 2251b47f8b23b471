//! PATRICIA behind the interface of indexes.

use super::KeyWidth;
use super::by_bytes::{ByteIndex, Claim};
use crate::error::Result;
use crate::fptree::TreeStats;
use crate::key::KeyBytes;
use crate::trie::PatriciaIndex;
use crate::{Change, Inserted};
use entresol_memory::{Pool, PoolOffset, Publication};
use std::ops::Bound;

impl<const BYTES: usize> ByteIndex for PatriciaIndex<BYTES> {
    fn width(&self) -> KeyWidth {
        match BYTES {
            8 => KeyWidth::Eight,
            16 => KeyWidth::Sixteen,
            _ => KeyWidth::Variable,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.padded(key).map_or(Ok(None), |key| self.trie().get(&key))
    }

    fn get_many(&self, keys: &[&[u8]], values: &mut Vec<Option<u64>>) -> Result<()> {
        values.clear();
        for key in keys {
            values.push(ByteIndex::get(self, key)?);
        }
        Ok(())
    }

    fn insert<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Inserted> {
        let key = self.padded(key)?;
        PatriciaIndex::pool(self).wait_for_room();
        self.trie().insert(&key, value, with)
    }

    fn replace<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        let key = self.padded(key)?;
        PatriciaIndex::pool(self).wait_for_room();
        self.trie().update(&key, value, with)
    }

    fn remove<'p>(&'p self, key: &[u8], with: Publication<'p>) -> Result<Option<u64>> {
        let key = self.padded(key)?;
        PatriciaIndex::pool(self).wait_for_room();
        self.trie().remove(&key, with)
    }

    fn insert_many<'p>(
        &'p self,
        keys: &[&[u8]],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        PatriciaIndex::insert_many(self, keys, carried, existing)
    }

    fn apply_many(&self, changes: &[(&[u8], Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        PatriciaIndex::apply_many(self, changes, before)
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        PatriciaIndex::scan(self, from, enough, entries)
    }

    fn scan_back(
        &self,
        before: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        PatriciaIndex::scan_back(self, before, enough, entries)
    }

    fn first_from(&self, key: &[u8]) -> Result<Option<(KeyBytes, u64)>> {
        let mut found = Vec::new();
        PatriciaIndex::scan(self, Bound::Included(&self.padded(key)?), 1, &mut found)?;
        Ok(found.pop())
    }

    fn last_key(&self) -> Result<Option<KeyBytes>> {
        let mut found = Vec::new();
        PatriciaIndex::scan_back(self, Bound::Unbounded, 1, &mut found)?;
        Ok(found.pop().map(|(key, _)| key))
    }

    fn split_points(&self, wanted: usize) -> Vec<KeyBytes> {
        PatriciaIndex::split_points(self, wanted)
    }

    fn estimated_keys(&self) -> u64 {
        PatriciaIndex::estimated_keys(self)
    }

    fn estimated_share_below(&self, key: &[u8]) -> Option<f64> {
        PatriciaIndex::estimated_share_below(self, key)
    }

    fn usual_leaf_keys(&self) -> u64 {
        1
    }

    fn note(&self) -> Option<u64> {
        Some(PatriciaIndex::note(self))
    }

    fn pool(&self) -> &Pool {
        PatriciaIndex::pool(self)
    }

    fn set_note(&self, number: u64) {
        PatriciaIndex::set_note(self, number);
    }

    fn stats(&self) -> TreeStats {
        // Beside a writer that removes nodes the walk may fail.
        let sizes = self.sizes().unwrap_or_default();
        TreeStats { keys: sizes.keys, leaves: sizes.keys, levels: sizes.depth, inner_bytes: 0 }
    }

    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        self.trie().check(object)
    }

    fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        self.trie().check_damaged(claim, entry)
    }
}
