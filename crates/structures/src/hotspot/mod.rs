//! The hotspot index: keeps in DRAM what is asked for often, in front of any index (Liu, Luo, Jin: Accelerating
//! Persistent Memory-based Indices Based on Hotspot Data).
//!
//! A key that is asked for [`HotspotOptions::hot_after`] times within a period gets into a circular queue; a hit in
//! its older, warm part puts it to the young end again; the oldest goes. Hits do not touch the index behind.
//!
//! Beyond the paper: it counts what it is good for. While fewer gets than [`HotspotOptions::break_even_percent`] are
//! hits, it steps aside: only one shard in 64 goes on, as a probe, and calls everything back when that pays. The
//! border between warm and hot moves to where hits increase.
//!
//! Invariant: an entry has the value that the index behind has. A writer counts itself in its key's word of
//! changes, drops the entry, and only then changes the index; whoever brings a value in checks, under the shard's
//! latch, that nobody counted since before the value was read. So a get never returns what is older than an update
//! that has returned.
//!
//! Crash: nothing here is persistent. Memory: [`HotspotOptions::budget_bytes`] at most, taken at creation.

mod shard;

use crate::error::Result;
use crate::fptree::FpTree;
use crate::hash::HashTable;
use crate::key::{PairKey, WordKey};
use crate::{Error, Inserted};
use entresol_memory::Publication;
use shard::{ENTRY_BYTES, Shard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// What a hotspot index can stand in front of.
pub trait PointIndex: Send + Sync {
    /// A key.
    type Key: Copy;
    /// A key as two words; equal for equal keys only.
    fn key_words(key: Self::Key) -> [u64; 2];
    /// The value of a key.
    fn get(&self, key: Self::Key) -> Option<u64>;
    /// Adds a key, together with all that `with` carries.
    fn insert<'p>(&'p self, key: Self::Key, value: u64, with: Publication<'p>) -> Result<Inserted>;
    /// Changes the value of a key, together with all that `with` carries; returns the old one.
    fn replace<'p>(&'p self, key: Self::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>>;
    /// Removes a key, together with all that `with` carries; returns its value.
    fn remove<'p>(&'p self, key: Self::Key, with: Publication<'p>) -> Result<Option<u64>>;
}

macro_rules! point_index {
    ($index:ty, $key:ty, $words:expr) => {
        impl PointIndex for $index {
            type Key = $key;

            #[inline]
            fn key_words(key: $key) -> [u64; 2] {
                $words(key)
            }

            #[inline]
            fn get(&self, key: $key) -> Option<u64> {
                <$index>::get(self, key)
            }

            fn insert<'p>(&'p self, key: $key, value: u64, with: Publication<'p>) -> Result<Inserted> {
                <$index>::insert(self, key, value, with)
            }

            fn replace<'p>(&'p self, key: $key, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
                <$index>::replace(self, key, value, with)
            }

            fn remove<'p>(&'p self, key: $key, with: Publication<'p>) -> Result<Option<u64>> {
                <$index>::remove(self, key, with)
            }
        }
    };
}

point_index!(FpTree<WordKey>, u64, |key| [key, 0]);
point_index!(FpTree<PairKey>, [u64; 2], |key| key);
point_index!(HashTable<WordKey>, u64, |key| [key, 0]);
point_index!(HashTable<PairKey>, [u64; 2], |key| key);

/// Shards; the first is the probe.
const SHARDS: usize = 64;
/// Words that count changes; a key's is chosen by its hash. 32 KiB.
const CHANGE_WORDS: usize = 4096;
/// A writer that begins: one more change (upper bits), one more under way (low 16 bits).
const BEGIN: u64 = (1 << 16) + 1;
const UNDER_WAY: u64 = 0xFFFF;
/// The smallest budget: eight entries for each shard.
const BUDGET_BYTES_MIN: usize = CHANGE_WORDS * 8 + SHARDS * 8 * ENTRY_BYTES;
/// Periods before it judges itself: as many as filling the queues may take.
const PERIODS_TO_JUDGE: u64 = 4;

/// How a hotspot index works.
#[derive(Debug, Clone)]
pub struct HotspotOptions {
    /// DRAM that it may take.
    pub budget_bytes: usize,
    /// Queries of a period (the paper's `MAXQUERYCNT`); 0: four times the entries that fit.
    pub period_queries: u64,
    /// Queries of a key within a period that make it hot.
    pub hot_after: u64,
    /// It steps aside while fewer gets in a hundred are hits: what a look that finds nothing costs, in hundredths
    /// of what a hit saves.
    pub break_even_percent: u64,
}

impl Default for HotspotOptions {
    fn default() -> Self {
        HotspotOptions { budget_bytes: 16 << 20, period_queries: 0, hot_after: 2, break_even_percent: 20 }
    }
}

/// What a hotspot index did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotspotStats {
    /// Entries in DRAM.
    pub entries: usize,
    /// Bytes of DRAM.
    pub bytes: usize,
    /// Whether it stands aside.
    pub is_aside: bool,
    /// How often it stepped aside.
    pub stepped_aside: u64,
    /// How often it came back.
    pub came_back: u64,
    /// Part of the probe's queue that is warm, in percent.
    pub warm_percent: u64,
}

/// An index with its hot entries in DRAM; see the [module](self).
pub struct HotspotIndex<I: PointIndex> {
    behind: I,
    shards: Box<[Shard]>,
    changes: Box<[AtomicU64]>,
    options: HotspotOptions,
    is_aside: AtomicBool,
    judged: Judged,
}

/// What the periods have shown, for all shards by the first.
#[derive(Default)]
struct Judged {
    periods: AtomicU64,
    stepped_aside: AtomicU64,
    came_back: AtomicU64,
    last_hits: AtomicU64,
    warm_grows: AtomicBool,
}

impl<I: PointIndex> HotspotIndex<I> {
    /// Puts DRAM in front of an index. From then on the index is changed through this only.
    pub fn new(behind: I, mut options: HotspotOptions) -> Result<HotspotIndex<I>> {
        let invalid = |what: String| Err(Error::Memory(entresol_memory::Error::Invalid(what)));
        if options.budget_bytes < BUDGET_BYTES_MIN {
            return invalid(format!(
                "a hotspot index has {} bytes; it needs {BUDGET_BYTES_MIN}",
                options.budget_bytes
            ));
        }
        if options.hot_after == 0 || options.hot_after > 200 || options.break_even_percent > 100 {
            return invalid(format!("hot_after must be 1 to 200, break_even_percent 0 to 100: {options:?}"));
        }
        let entries = (options.budget_bytes - CHANGE_WORDS * 8) / ENTRY_BYTES / SHARDS;
        let capacity = (entries + 1).next_power_of_two() / 2;
        if options.period_queries == 0 {
            options.period_queries = (4 * capacity * SHARDS) as u64;
        }
        Ok(HotspotIndex {
            behind,
            shards: (0..SHARDS).map(|_| Shard::new(capacity)).collect(),
            changes: (0..CHANGE_WORDS).map(|_| AtomicU64::new(0)).collect(),
            options,
            is_aside: AtomicBool::new(false),
            judged: Judged::default(),
        })
    }

    /// The index behind.
    pub fn behind(&self) -> &I {
        &self.behind
    }

    #[inline]
    fn hash(key: [u64; 2]) -> u64 {
        let mix = |word: u64| (word ^ (word >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = mix(mix(key[0]).rotate_left(29) ^ key[1]);
        mix(hash ^ (hash >> 29))
    }

    #[inline]
    fn shard(&self, hash: u64) -> (usize, &Shard) {
        let number = (hash >> 58) as usize;
        (number, &self.shards[number])
    }

    #[inline]
    fn changes_of(&self, hash: u64) -> &AtomicU64 {
        &self.changes[(hash >> 20) as usize % CHANGE_WORDS]
    }

    /// The value of a key: from DRAM, or from the index behind.
    #[inline]
    pub fn get(&self, key: I::Key) -> Option<u64> {
        let words = I::key_words(key);
        let hash = Self::hash(words);
        let (number, shard) = self.shard(hash);
        if number != 0 && self.is_aside.load(Relaxed) {
            return self.behind.get(key);
        }
        let found = shard.find(hash, words);
        self.count(number, shard, found.is_some());
        if let Some(hit) = found {
            if hit.is_warm {
                shard.renew(hash, words);
            }
            return Some(hit.value);
        }
        let changes = self.changes_of(hash);
        // Before the value is read: a writer that begins later is seen by `fill`.
        let noted = changes.load(SeqCst);
        let value = self.behind.get(key)?;
        if shard.note_query(hash) >= self.options.hot_after && noted & UNDER_WAY == 0 {
            shard.fill(hash, words, value, changes, noted);
        }
        Some(value)
    }

    /// Counts a query. Threads may lose each other's counts, which changes nothing but a period's length.
    #[inline]
    fn count(&self, number: usize, shard: &Shard, is_hit: bool) {
        shard.hits.store(shard.hits.load(Relaxed) + u64::from(is_hit), Relaxed);
        let queries = shard.queries.load(Relaxed) + 1;
        shard.queries.store(queries, Relaxed);
        if queries * SHARDS as u64 >= self.options.period_queries {
            shard.queries.store(0, Relaxed);
            let hits = shard.hits.swap(0, Relaxed);
            shard.period.fetch_add(1, Relaxed);
            if number == 0 {
                self.judge(queries, hits);
            }
        }
    }

    /// At the end of the probe's period: step aside, come back, or move the border between warm and hot.
    #[cold]
    fn judge(&self, queries: u64, hits: u64) {
        let judged = &self.judged;
        let pays = hits * 100 >= queries * self.options.break_even_percent;
        let periods = judged.periods.fetch_add(1, Relaxed) + 1;
        if self.is_aside.load(Relaxed) {
            if pays && self.is_aside.swap(false, SeqCst) {
                judged.came_back.fetch_add(1, Relaxed);
                judged.periods.store(0, Relaxed);
            }
        } else if !pays && periods >= PERIODS_TO_JUDGE && !self.is_aside.swap(true, SeqCst) {
            judged.stepped_aside.fetch_add(1, Relaxed);
            // Entries that nobody asks for cost every writer a look; the probe keeps its own.
            self.shards[1..].iter().for_each(Shard::clear);
        }
        if hits < judged.last_hits.swap(hits, Relaxed) {
            judged.warm_grows.fetch_xor(true, Relaxed);
        }
        let present = self.shards[0].warm_percent.load(Relaxed);
        let step = if judged.warm_grows.load(Relaxed) { present + 5 } else { present - 5 };
        let warm_percent = step.clamp(10, 90);
        self.shards.iter().for_each(|shard| shard.warm_percent.store(warm_percent, Relaxed));
    }

    /// Adds a key, together with all that `with` carries. Costs nothing here: only keys that are in the index
    /// behind are in DRAM.
    pub fn insert<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.behind.insert(key, value, with)
    }

    /// Changes the value of a key, together with all that `with` carries; returns the old one.
    pub fn replace<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.change(key, Some(value), || self.behind.replace(key, value, with))
    }

    /// Removes a key, together with all that `with` carries; returns its value.
    pub fn remove<'p>(&'p self, key: I::Key, with: Publication<'p>) -> Result<Option<u64>> {
        self.change(key, None, || self.behind.remove(key, with))
    }

    /// Carries out a change of a key behind, with its entry out of the way.
    fn change(
        &self,
        key: I::Key,
        value: Option<u64>,
        carry_out: impl FnOnce() -> Result<Option<u64>>,
    ) -> Result<Option<u64>> {
        let words = I::key_words(key);
        let hash = Self::hash(words);
        let (_, shard) = self.shard(hash);
        let changes = self.changes_of(hash);
        let noted = changes.fetch_add(BEGIN, SeqCst).wrapping_add(BEGIN);
        let was_hot = shard.forget(hash, words);
        let outcome = carry_out();
        if let (true, Some(value), Ok(Some(_))) = (was_hot, value, &outcome)
            && noted & UNDER_WAY == 1
        {
            // Nobody else changed it: what this wrote is what the index has.
            shard.fill(hash, words, value, changes, noted);
        }
        changes.fetch_sub(1, SeqCst);
        outcome
    }

    /// What it did. Cost: a look at the whole index into the queues.
    pub fn stats(&self) -> HotspotStats {
        HotspotStats {
            entries: self.shards.iter().map(Shard::entries).sum(),
            bytes: self.shards.iter().map(Shard::bytes).sum::<usize>() + self.changes.len() * 8,
            is_aside: self.is_aside.load(Relaxed),
            stepped_aside: self.judged.stepped_aside.load(Relaxed),
            came_back: self.judged.came_back.load(Relaxed),
            warm_percent: self.shards[0].warm_percent.load(Relaxed),
        }
    }
}
