//! An ordered index with its hot entries in DRAM, behind the interface of indexes.
//!
//! Accesses to one key go through the [hotspot index](crate::HotspotIndex); scans, batches of many keys, checks
//! and estimates go to the index behind it. New keys are no concern of the cache, which has only entries that the
//! index has.

use super::by_bytes::{ByteIndex, Claim};
use super::{KeyWidth, OrderedIndex};
use crate::error::{Error, Result};
use crate::fptree::TreeStats;
use crate::hotspot::{HotspotIndex, HotspotOptions, PointIndex};
use crate::key::{KeyBytes, PairKey, TreeKey};
use crate::{Change, Inserted};
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use entresol_memory::{Pool, PoolOffset, Publication};
use std::ops::Bound;

/// Keys of a batch that are looked up in the cache one by one; more are fetched together from the index.
const CACHED_BATCH_KEYS_MAX: usize = 8;

/// DRAM for the hot entries of an index, reserved in the pool's memory budget.
#[derive(Debug)]
pub struct HotMemory {
    bytes: u64,
    reservation: Option<MemoryReservation>,
}

impl HotMemory {
    /// Least number of bytes.
    pub const BYTES_MIN: u64 = HotspotIndex::<OrderedIndex>::BUDGET_BYTES_MIN as u64;

    /// Reserves memory; an error if the budget has no room, if it is too little for a cache, or if the index has
    /// keys of any length.
    pub fn reserve(pool: &Pool, width: KeyWidth, bytes: u64) -> Result<HotMemory> {
        if width == KeyWidth::Variable {
            let message = "hot entries are those of keys of up to 16 bytes; these may be longer";
            return Err(Error::Invalid(message.to_owned()));
        }
        if bytes < HotMemory::BYTES_MIN {
            let least = HotMemory::BYTES_MIN;
            return Err(Error::Invalid(format!(
                "{bytes} bytes for hot entries are too few; at least {least}"
            )));
        }
        let reserved = pool.memory().map(|memory| memory.try_reserve(MemoryConsumer::HotEntries, bytes));
        let reservation = reserved.transpose().map_err(entresol_memory::Error::from)?;
        Ok(HotMemory { bytes, reservation })
    }
}

/// An index behind a cache of its hot entries.
pub(super) struct HotIndex {
    cache: HotspotIndex<OrderedIndex>,
    /// Released with the cache.
    _memory: Option<MemoryReservation>,
}

impl HotIndex {
    pub(super) fn new(index: OrderedIndex, memory: HotMemory) -> Result<HotIndex> {
        let budget_bytes = usize::try_from(memory.bytes).unwrap_or(usize::MAX);
        let options = HotspotOptions { budget_bytes, ..HotspotOptions::default() };
        Ok(HotIndex { cache: HotspotIndex::new(index, options)?, _memory: memory.reservation })
    }

    fn behind(&self) -> &OrderedIndex {
        self.cache.behind()
    }

    /// Returns a key as the cache has it; an error if it does not fit.
    fn words(&self, key: &[u8]) -> Result<[u64; 2]> {
        let limit_bytes = self.behind().key_bytes_max();
        if key.len() > limit_bytes {
            return Err(Error::KeyTooLong { found_bytes: key.len(), limit_bytes });
        }
        PairKey::from_bytes(key)
    }
}

/// Bytes of a key as a cache has it.
fn bytes_of([first, second]: [u64; 2]) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

impl PointIndex for OrderedIndex {
    type Key = [u64; 2];
    const KEY_WORDS: usize = 2;

    fn key_words(key: [u64; 2]) -> [u64; 2] {
        key
    }

    fn get(&self, key: [u64; 2]) -> Result<Option<u64>> {
        OrderedIndex::get(self, &bytes_of(key)[..self.key_bytes_max()])
    }

    fn insert<'p>(&'p self, key: [u64; 2], value: u64, with: Publication<'p>) -> Result<Inserted> {
        OrderedIndex::insert(self, &bytes_of(key)[..self.key_bytes_max()], value, with)
    }

    fn replace<'p>(&'p self, key: [u64; 2], value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        OrderedIndex::replace(self, &bytes_of(key)[..self.key_bytes_max()], value, with)
    }

    fn remove<'p>(&'p self, key: [u64; 2], with: Publication<'p>) -> Result<Option<u64>> {
        OrderedIndex::remove(self, &bytes_of(key)[..self.key_bytes_max()], with)
    }
}

impl ByteIndex for HotIndex {
    fn width(&self) -> KeyWidth {
        self.behind().width()
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.words(key).map_or(Ok(None), |key| self.cache.get(key))
    }

    fn get_many(&self, keys: &[&[u8]], values: &mut Vec<Option<u64>>) -> Result<()> {
        if keys.len() > CACHED_BATCH_KEYS_MAX {
            return self.behind().get_many(keys, values);
        }
        values.clear();
        for key in keys {
            values.push(ByteIndex::get(self, key)?);
        }
        Ok(())
    }

    fn insert<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.cache.insert(self.words(key)?, value, with)
    }

    fn replace<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.cache.replace(self.words(key)?, value, with)
    }

    fn remove<'p>(&'p self, key: &[u8], with: Publication<'p>) -> Result<Option<u64>> {
        self.cache.remove(self.words(key)?, with)
    }

    fn insert_many<'p>(
        &'p self,
        keys: &[&[u8]],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        self.behind().insert_many(keys, carried, existing)
    }

    fn apply_many(&self, changes: &[(&[u8], Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        before.clear();
        changes.iter().try_for_each(|(key, _)| self.words(key).map(drop))?;
        let pool = self.behind().pool();
        for (key, change) in changes {
            let with = pool.publication();
            before.push(match change {
                Change::Insert(value) => ByteIndex::insert(self, key, *value, with)?.before(),
                Change::Replace(value) => ByteIndex::replace(self, key, *value, with)?,
                Change::Remove => ByteIndex::remove(self, key, with)?,
            });
        }
        Ok(())
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        self.behind().scan(from, enough, entries)
    }

    fn scan_back(
        &self,
        before: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        self.behind().scan_back(before, enough, entries)
    }

    fn first_from(&self, key: &[u8]) -> Result<Option<(KeyBytes, u64)>> {
        self.behind().first_from(key)
    }

    fn last_key(&self) -> Result<Option<KeyBytes>> {
        self.behind().last_key()
    }

    fn split_points(&self, wanted: usize) -> Vec<KeyBytes> {
        self.behind().split_points(wanted)
    }

    fn estimated_keys(&self) -> u64 {
        self.behind().estimated_keys()
    }

    fn estimated_share_below(&self, key: &[u8]) -> Option<f64> {
        self.behind().estimated_share_below(key)
    }

    fn usual_leaf_keys(&self) -> u64 {
        self.behind().usual_leaf_keys()
    }

    fn note(&self) -> Option<u64> {
        self.behind().note()
    }

    fn set_note(&self, number: u64) {
        self.behind().set_note(number);
    }

    fn segments_left(&self) -> u64 {
        self.behind().segments_left()
    }

    fn open_more(&self, segments_max: usize) -> Result<u64> {
        self.behind().open_more(segments_max)
    }

    fn stats(&self) -> TreeStats {
        self.behind().stats()
    }

    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        self.behind().check(object)
    }

    fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        self.behind().check_damaged(claim, entry)
    }

    fn pool(&self) -> &Pool {
        self.behind().pool()
    }
}
