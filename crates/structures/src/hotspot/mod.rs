//! The hotspot index: caches frequently queried entries of any index in DRAM (Liu, Luo, Jin: Accelerating
//! Persistent Memory-based Indices Based on Hotspot Data).
//!
//! A key that is queried [`HotspotOptions::hot_after`] times within a period enters a queue; a hit in its
//! older, warm part moves it to the young end; the oldest is evicted. Hits do not touch the backing index.
//! There is a queue for each [bucket] of two neighbouring lines in place of the paper's single one, so that a
//! hit waits once.
//!
//! Beyond the paper: [it measures](benefit) its savings and costs. While they are a loss, it is bypassed:
//! only one shard in 256 stays in use, as a probe, and all others are used again when it pays. The border
//! between warm and hot moves to where hits increase.
//!
//! Invariant: an entry has the value of the backing index; [changes] has the proof. So a get never returns a
//! value older than an update that has returned, and of two consecutive gets the second never returns an
//! older value.
//!
//! Crash: nothing here is persistent. Memory: [`HotspotOptions::budget_bytes`] at most, allocated at
//! creation.
//!
//! Cost: a hit reads two lines of DRAM, loaded together, and writes nothing. An update or delete counts
//! itself in and out, two atomic additions, and prefetches the lines that it reads afterwards; where the key
//! has an entry, that gets the new value. A get of a bypassed shard costs a hash and a load.

mod benefit;
mod bucket;
mod changes;
mod point_index;
mod shard;
mod sync;
#[cfg(test)]
mod tests;

pub use benefit::Clock;
pub use point_index::PointIndex;

use crate::error::Result;
use crate::{Error, Inserted};
use benefit::{Benefit, NoWatch, Period, Watch};
use bucket::{BUCKET_BYTES, QUERIES_MAX};
use changes::{ChangeGuard, Changes};
use entresol_memory::Publication;
use parking_lot::Mutex;
use shard::{HashedKey, Shard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Shards; the first is the probe.
const SHARDS: usize = 256;
/// Consecutive periods that must contradict the present mode before it changes: filling the queues takes one
/// or two, and the probe of a small cache sees few queries.
const PERIODS_TO_SWITCH: u64 = 3;

/// Options of a hotspot index.
#[derive(Debug, Clone)]
pub struct HotspotOptions {
    /// Maximum of DRAM.
    pub budget_bytes: usize,
    /// Queries of a period (the paper's `MAXQUERYCNT`); 0: four times the entries of the budget.
    pub period_queries: u64,
    /// Queries of a key within a period that make it hot; 1 to 15.
    pub hot_after: u64,
    /// Clock of the measurements.
    pub clock: Clock,
}

impl Default for HotspotOptions {
    fn default() -> Self {
        HotspotOptions { budget_bytes: 16 << 20, period_queries: 0, hot_after: 2, clock: Clock::Real }
    }
}

/// Counters of a hotspot index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotspotStats {
    /// Entries in DRAM.
    pub entries: usize,
    /// Entries that fit.
    pub entries_max: usize,
    /// Bytes of DRAM.
    pub bytes: usize,
    /// True while it is bypassed.
    pub is_bypassed: bool,
    /// Number of times it was bypassed.
    pub times_bypassed: u64,
    /// Number of times it was used again.
    pub times_resumed: u64,
    /// Warm part of the queues, in percent.
    pub warm_percent: u64,
    /// Hits among the gets of the probe's last period, in percent.
    pub hit_percent: u64,
    /// Latency of a hit, as measured.
    pub hit_ns: u64,
    /// Latency of a miss in the cache, as measured.
    pub lookup_ns: u64,
    /// Latency of a get of the backing index, as measured.
    pub behind_ns: u64,
}

/// An index with its hot entries in DRAM; see the [module](self).
pub struct HotspotIndex<I: PointIndex> {
    behind: I,
    shards: Box<[Shard]>,
    changes: Changes,
    options: HotspotOptions,
    is_bypassed: AtomicBool,
    /// The number of the present period.
    period: AtomicU64,
    probe: Box<Probe>,
}

/// Change of a key. If it ends by a panic, the entry is removed.
struct PendingChange<'i> {
    change: ChangeGuard<'i>,
    shard: &'i Shard,
    wanted: HashedKey,
    is_settled: bool,
}

impl PendingChange<'_> {
    /// Ends the change; returns true if the key has, or had, an entry.
    #[inline]
    fn settle(mut self, value: Option<u64>) -> bool {
        self.is_settled = true;
        self.shard.settle(self.wanted, value, &self.change)
    }
}

impl Drop for PendingChange<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_settled {
            self.shard.settle(self.wanted, None, &self.change);
        }
    }
}

/// State of the probe. Apart from the words that all gets read.
#[derive(Default)]
struct Probe {
    benefit: Benefit,
    /// Consecutive periods that contradict the present mode.
    contrary: AtomicU64,
    /// Locked while the shards are closed or opened.
    switching: Mutex<()>,
    times_bypassed: AtomicU64,
    times_resumed: AtomicU64,
    last_hits: AtomicU64,
    hit_percent: AtomicU64,
    warm_grows: AtomicBool,
}

impl<I: PointIndex> HotspotIndex<I> {
    /// The smallest budget: a bucket for each shard.
    pub const BUDGET_BYTES_MIN: usize = changes::CHANGE_WORDS * 8 + SHARDS * BUCKET_BYTES;

    /// Returns the budget for `entries` entries: a third of the room is spare, so that few of them find their
    /// bucket full.
    pub fn budget_bytes(entries: usize) -> usize {
        let buckets = entries.div_ceil(SHARDS * shard::entries_per_bucket(I::KEY_WORDS)).max(1);
        Changes::bytes() + SHARDS * buckets * BUCKET_BYTES
    }

    /// Creates a cache in front of an index. From then on the index must be changed through it only.
    pub fn new(behind: I, mut options: HotspotOptions) -> Result<HotspotIndex<I>> {
        let invalid = |message: String| Err(Error::Memory(entresol_memory::Error::Invalid(message)));
        if options.budget_bytes < Self::BUDGET_BYTES_MIN {
            return invalid(format!(
                "a budget of {} bytes is too small for a hotspot index; it needs at least {}",
                options.budget_bytes,
                Self::BUDGET_BYTES_MIN
            ));
        }
        if options.hot_after == 0 || options.hot_after > QUERIES_MAX {
            return invalid(format!("hot_after is {}; it must be 1 to {QUERIES_MAX}", options.hot_after));
        }
        let buckets = (options.budget_bytes - Changes::bytes()) / BUCKET_BYTES / SHARDS;
        let shards: Box<[Shard]> = (0..SHARDS).map(|_| Shard::new(buckets, I::KEY_WORDS)).collect();
        if options.period_queries == 0 {
            options.period_queries = 4 * shards[0].capacity() * SHARDS as u64;
        }
        Ok(HotspotIndex {
            behind,
            shards,
            changes: Changes::new(),
            options,
            is_bypassed: AtomicBool::new(false),
            period: AtomicU64::new(1),
            probe: Box::default(),
        })
    }

    /// The backing index.
    pub fn behind(&self) -> &I {
        &self.behind
    }

    #[inline]
    fn shard_number(wanted: HashedKey) -> usize {
        (wanted.hash >> 56) as usize
    }

    /// Returns the value of a key: from DRAM, or from the backing index.
    #[inline]
    pub fn get(&self, key: I::Key) -> Result<Option<u64>> {
        let wanted = HashedKey::new(I::key_words(key), I::KEY_WORDS);
        let number = Self::shard_number(wanted);
        if number == 0 {
            return self.probe(key, wanted);
        }
        if self.is_bypassed.load(Relaxed) {
            return self.behind.get(key);
        }
        Ok(self.look_up(&self.shards[number], key, wanted, &mut NoWatch)?.0)
    }

    /// Returns the value of a key, and true if it was in DRAM.
    #[inline]
    fn look_up(
        &self,
        shard: &Shard,
        key: I::Key,
        wanted: HashedKey,
        watch: &mut impl Watch,
    ) -> Result<(Option<u64>, bool)> {
        // Before the value is read: a writer that begins later is seen.
        let snapshot = self.changes.note(wanted.hash);
        if let Some(hit) = shard.find(wanted)
            && snapshot.holds()
        {
            if hit.is_warm {
                shard.renew(wanted);
            }
            return Ok((Some(hit.value), true));
        }
        let queries = shard.note_query(wanted.hash, self.period.load(Relaxed));
        watch.behind_begins();
        let value = self.behind.get(key);
        watch.behind_ends();
        let value = value?;
        if let Some(value) = value
            && queries >= self.options.hot_after
        {
            shard.fill(wanted, value, snapshot);
        }
        Ok((value, false))
    }

    /// Counted, and sometimes measured, get of a key of the probe.
    #[inline(never)]
    fn probe(&self, key: I::Key, wanted: HashedKey) -> Result<Option<u64>> {
        let (shard, benefit) = (&self.shards[0], &self.probe.benefit);
        let (value, is_hit) = match benefit.watch(&self.options.clock) {
            None => self.look_up(shard, key, wanted, &mut NoWatch)?,
            Some(mut timed) => {
                let found = self.look_up(shard, key, wanted, &mut timed)?;
                benefit.note(&timed, found.1);
                found
            }
        };
        let period_queries = self.options.period_queries.div_ceil(SHARDS as u64);
        if let Some(period) = benefit.count_query(is_hit, period_queries) {
            self.judge(period);
        }
        Ok(value)
    }

    /// Decides at the end of a period: bypass, use again, or move the border between warm and hot.
    #[cold]
    fn judge(&self, period: Period) {
        let probe = &self.probe;
        assert!(
            period.queries > 0 && period.hits <= period.queries,
            "{period:?} has queries, some of them hits"
        );
        self.period.fetch_add(1, Relaxed);
        probe.hit_percent.store(100 * period.hits / period.queries, Relaxed);
        let is_bypassed = self.is_bypassed.load(Relaxed);
        let contrary = if period.pays == is_bypassed { probe.contrary.load(Relaxed) + 1 } else { 0 };
        probe.contrary.store(contrary % PERIODS_TO_SWITCH, Relaxed);
        if contrary == PERIODS_TO_SWITCH {
            self.switch(!is_bypassed);
        }
        if period.hits < probe.last_hits.swap(period.hits, Relaxed) {
            probe.warm_grows.fetch_xor(true, Relaxed);
        }
        let present = self.shards[0].warm_percent();
        let step = if probe.warm_grows.load(Relaxed) { present + 5 } else { present - 5 };
        self.shards.iter().for_each(|shard| shard.set_warm_percent(step.clamp(10, 90)));
    }

    #[cold]
    fn switch(&self, to_aside: bool) {
        let Some(_switching) = self.probe.switching.try_lock() else { return };
        if self.is_bypassed.swap(to_aside, Relaxed) == to_aside {
            return;
        }
        if to_aside {
            self.probe.times_bypassed.fetch_add(1, Relaxed);
            // Unqueried entries cost every writer a lookup; the probe keeps its own.
            self.shards[1..].iter().for_each(Shard::close);
        } else {
            self.probe.times_resumed.fetch_add(1, Relaxed);
            self.shards[1..].iter().for_each(Shard::open);
        }
    }

    /// Adds a key, atomically with the changes in `with`. No cost here: only keys that are in the index
    /// behind are in DRAM.
    #[inline]
    pub fn insert<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.behind.insert(key, value, with)
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one.
    #[inline]
    pub fn replace<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.change(key, Some(value), || self.behind.replace(key, value, with))
    }

    /// Removes a key, atomically with the changes in `with`; returns its value.
    #[inline]
    pub fn remove<'p>(&'p self, key: I::Key, with: Publication<'p>) -> Result<Option<u64>> {
        self.change(key, None, || self.behind.remove(key, with))
    }

    /// Applies a change of a key to the backing index, and updates its entry.
    #[inline]
    fn change(
        &self,
        key: I::Key,
        value: Option<u64>,
        carry_out: impl FnOnce() -> Result<Option<u64>>,
    ) -> Result<Option<u64>> {
        let wanted = HashedKey::new(I::key_words(key), I::KEY_WORDS);
        let number = Self::shard_number(wanted);
        let shard = &self.shards[number];
        let change =
            PendingChange { change: self.changes.begin(wanted.hash), shard, wanted, is_settled: false };
        shard.prefetch(wanted.hash);
        let old = carry_out();
        let value = value.filter(|_| matches!(old, Ok(Some(_))));
        let had_entry = change.settle(value);
        if number == 0 && had_entry {
            self.probe.benefit.count_update();
        }
        old
    }

    /// Returns the counters. Cost: a read of the complete cache.
    pub fn stats(&self) -> HotspotStats {
        let probe = &self.probe;
        let [hit_ns, lookup_ns, behind_ns] = probe.benefit.times_ns();
        HotspotStats {
            entries: self.shards.iter().map(Shard::entries).sum(),
            entries_max: self.shards.iter().map(Shard::slots).sum(),
            bytes: self.shards.iter().map(Shard::bytes).sum::<usize>() + Changes::bytes(),
            is_bypassed: self.is_bypassed.load(Relaxed),
            times_bypassed: probe.times_bypassed.load(Relaxed),
            times_resumed: probe.times_resumed.load(Relaxed),
            warm_percent: self.shards[0].warm_percent(),
            hit_percent: probe.hit_percent.load(Relaxed),
            hit_ns,
            lookup_ns,
            behind_ns,
        }
    }
}
