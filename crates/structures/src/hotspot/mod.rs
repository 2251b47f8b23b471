//! The hotspot index: keeps in DRAM what is asked for often, in front of any index (Liu, Luo, Jin: Accelerating
//! Persistent Memory-based Indices Based on Hotspot Data).
//!
//! A key that is asked for [`HotspotOptions::hot_after`] times within a period gets into a queue; a hit in its older,
//! warm part puts it to the young end again; the oldest goes. Hits do not touch the index behind. There is a queue for
//! each [bucket] of two neighbouring lines in place of the paper's single one, so that a hit waits once.
//!
//! Beyond the paper: [it measures](benefit) what it saves and takes. While that is a loss, it steps aside: only one
//! shard in 256 goes on, as a probe, and calls everything back when it pays. The border between warm and hot moves to
//! where hits increase.
//!
//! Invariant: an entry has the value that the index behind has; [why](changes). So a get never returns what is older
//! than an update that has returned, and no two gets, one after the other, go back in time.
//!
//! Crash: nothing here is persistent. Memory: [`HotspotOptions::budget_bytes`] at most, taken at creation.
//!
//! Cost: a hit reads two lines of DRAM that come together, and writes nothing. An update or delete counts itself in and
//! out, two atomic additions, and asks for the lines that it looks at afterwards; where the key has an entry, that gets
//! the new value. A get that is passed by costs a hash and a load.

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
use benefit::{Benefit, Period, Untimed, Watch};
use bucket::{BUCKET_BYTES, QUERIES_MAX};
use changes::{Changes, UnderWay};
use entresol_memory::Publication;
use parking_lot::Mutex;
use shard::{Shard, Wanted};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Shards; the first is the probe.
const SHARDS: usize = 256;
/// Periods, one after the other, that must speak against what it does before it changes that: filling the queues
/// takes one or two, and the probe of a small cache sees few queries.
const PERIODS_TO_SWITCH: u64 = 3;

/// How a hotspot index works.
#[derive(Debug, Clone)]
pub struct HotspotOptions {
    /// DRAM that it may take.
    pub budget_bytes: usize,
    /// Queries of a period (the paper's `MAXQUERYCNT`); 0: four times the entries that it is meant for.
    pub period_queries: u64,
    /// Queries of a key within a period that make it hot; 1 to 15.
    pub hot_after: u64,
    /// The clock by which it judges whether it pays.
    pub clock: Clock,
}

impl Default for HotspotOptions {
    fn default() -> Self {
        HotspotOptions { budget_bytes: 16 << 20, period_queries: 0, hot_after: 2, clock: Clock::Real }
    }
}

/// What a hotspot index did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotspotStats {
    /// Entries in DRAM.
    pub entries: usize,
    /// Entries that fit.
    pub entries_max: usize,
    /// Bytes of DRAM.
    pub bytes: usize,
    /// Whether it stands aside.
    pub is_aside: bool,
    /// How often it stepped aside.
    pub stepped_aside: u64,
    /// How often it came back.
    pub came_back: u64,
    /// Part of the queues that is warm, in percent.
    pub warm_percent: u64,
    /// Hits among the gets of the probe's last period, in percent.
    pub hit_percent: u64,
    /// What a hit takes, as measured.
    pub hit_ns: u64,
    /// What a look that finds nothing takes, as measured.
    pub look_ns: u64,
    /// What a get of the index behind takes, as measured.
    pub behind_ns: u64,
}

/// An index with its hot entries in DRAM; see the [module](self).
pub struct HotspotIndex<I: PointIndex> {
    behind: I,
    shards: Box<[Shard]>,
    changes: Changes,
    options: HotspotOptions,
    is_aside: AtomicBool,
    /// The number of the present period.
    period: AtomicU64,
    probe: Box<Probe>,
}

/// A change of a key. If it ends by a panic, the entry goes.
struct Changing<'i> {
    change: UnderWay<'i>,
    shard: &'i Shard,
    wanted: Wanted,
    is_settled: bool,
}

impl Changing<'_> {
    /// Ends it; whether the key has, or had, an entry.
    #[inline]
    fn settle(mut self, value: Option<u64>) -> bool {
        self.is_settled = true;
        self.shard.settle(self.wanted, value, &self.change)
    }
}

impl Drop for Changing<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_settled {
            self.shard.settle(self.wanted, None, &self.change);
        }
    }
}

/// What the probe has shown. Apart from what all gets read.
#[derive(Default)]
struct Probe {
    benefit: Benefit,
    /// Periods, one after the other, that spoke against what it does.
    contrary: AtomicU64,
    /// Held while the shards are closed or opened.
    switching: Mutex<()>,
    stepped_aside: AtomicU64,
    came_back: AtomicU64,
    last_hits: AtomicU64,
    hit_percent: AtomicU64,
    warm_grows: AtomicBool,
}

impl<I: PointIndex> HotspotIndex<I> {
    /// The smallest budget: a bucket for each shard.
    pub const BUDGET_BYTES_MIN: usize = changes::CHANGE_WORDS * 8 + SHARDS * BUCKET_BYTES;

    /// The budget for so many entries: a third of the room is to spare, so that few of them find their bucket full.
    pub fn budget_bytes(entries: usize) -> usize {
        let buckets = entries.div_ceil(SHARDS * shard::entries_per_bucket(I::KEY_WORDS)).max(1);
        Changes::bytes() + SHARDS * buckets * BUCKET_BYTES
    }

    /// Puts DRAM in front of an index. From then on the index is changed through this only.
    pub fn new(behind: I, mut options: HotspotOptions) -> Result<HotspotIndex<I>> {
        let invalid = |what: String| Err(Error::Memory(entresol_memory::Error::Invalid(what)));
        if options.budget_bytes < Self::BUDGET_BYTES_MIN {
            return invalid(format!(
                "a hotspot index has {} bytes; it needs {}",
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
            is_aside: AtomicBool::new(false),
            period: AtomicU64::new(1),
            probe: Box::default(),
        })
    }

    /// The index behind.
    pub fn behind(&self) -> &I {
        &self.behind
    }

    #[inline]
    fn shard_number(wanted: Wanted) -> usize {
        (wanted.hash >> 56) as usize
    }

    /// The value of a key: from DRAM, or from the index behind.
    #[inline]
    pub fn get(&self, key: I::Key) -> Result<Option<u64>> {
        let wanted = Wanted::new(I::key_words(key), I::KEY_WORDS);
        let number = Self::shard_number(wanted);
        if number == 0 {
            return self.probe(key, wanted);
        }
        if self.is_aside.load(Relaxed) {
            return self.behind.get(key);
        }
        Ok(self.look_up(&self.shards[number], key, wanted, &mut Untimed)?.0)
    }

    /// The value of a key, and whether it was in DRAM.
    #[inline]
    fn look_up(
        &self,
        shard: &Shard,
        key: I::Key,
        wanted: Wanted,
        watch: &mut impl Watch,
    ) -> Result<(Option<u64>, bool)> {
        // Before the value is read: a writer that begins later is seen.
        let noted = self.changes.note(wanted.hash);
        if let Some(hit) = shard.find(wanted)
            && noted.holds()
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
            shard.fill(wanted, value, noted);
        }
        Ok((value, false))
    }

    /// A get of a key of the probe: counted, and now and then timed.
    #[inline(never)]
    fn probe(&self, key: I::Key, wanted: Wanted) -> Result<Option<u64>> {
        let (shard, benefit) = (&self.shards[0], &self.probe.benefit);
        let (value, is_hit) = match benefit.watch(&self.options.clock) {
            None => self.look_up(shard, key, wanted, &mut Untimed)?,
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

    /// At the end of a period: step aside, come back, or move the border between warm and hot.
    #[cold]
    fn judge(&self, period: Period) {
        let probe = &self.probe;
        self.period.fetch_add(1, Relaxed);
        probe.hit_percent.store(100 * period.hits / period.queries, Relaxed);
        let is_aside = self.is_aside.load(Relaxed);
        let contrary = if period.pays == is_aside { probe.contrary.load(Relaxed) + 1 } else { 0 };
        probe.contrary.store(contrary % PERIODS_TO_SWITCH, Relaxed);
        if contrary == PERIODS_TO_SWITCH {
            self.switch(!is_aside);
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
        if self.is_aside.swap(to_aside, Relaxed) == to_aside {
            return;
        }
        if to_aside {
            self.probe.stepped_aside.fetch_add(1, Relaxed);
            // Entries that nobody asks for cost every writer a look; the probe keeps its own.
            self.shards[1..].iter().for_each(Shard::close);
        } else {
            self.probe.came_back.fetch_add(1, Relaxed);
            self.shards[1..].iter().for_each(Shard::open);
        }
    }

    /// Adds a key, together with all that `with` carries. Costs nothing here: only keys that are in the index
    /// behind are in DRAM.
    #[inline]
    pub fn insert<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.behind.insert(key, value, with)
    }

    /// Changes the value of a key, together with all that `with` carries; returns the old one.
    #[inline]
    pub fn replace<'p>(&'p self, key: I::Key, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.change(key, Some(value), || self.behind.replace(key, value, with))
    }

    /// Removes a key, together with all that `with` carries; returns its value.
    #[inline]
    pub fn remove<'p>(&'p self, key: I::Key, with: Publication<'p>) -> Result<Option<u64>> {
        self.change(key, None, || self.behind.remove(key, with))
    }

    /// Carries out a change of a key behind, and settles its entry.
    #[inline]
    fn change(
        &self,
        key: I::Key,
        value: Option<u64>,
        carry_out: impl FnOnce() -> Result<Option<u64>>,
    ) -> Result<Option<u64>> {
        let wanted = Wanted::new(I::key_words(key), I::KEY_WORDS);
        let number = Self::shard_number(wanted);
        let shard = &self.shards[number];
        let change = Changing { change: self.changes.begin(wanted.hash), shard, wanted, is_settled: false };
        shard.prefetch(wanted.hash);
        let old = carry_out();
        let value = value.filter(|_| matches!(old, Ok(Some(_))));
        let had_entry = change.settle(value);
        if number == 0 && had_entry {
            self.probe.benefit.count_kept();
        }
        old
    }

    /// What it did. Cost: a look at the whole cache.
    pub fn stats(&self) -> HotspotStats {
        let probe = &self.probe;
        let [hit_ns, look_ns, behind_ns] = probe.benefit.times_ns();
        HotspotStats {
            entries: self.shards.iter().map(Shard::entries).sum(),
            entries_max: self.shards.iter().map(Shard::slots).sum(),
            bytes: self.shards.iter().map(Shard::bytes).sum::<usize>() + Changes::bytes(),
            is_aside: self.is_aside.load(Relaxed),
            stepped_aside: probe.stepped_aside.load(Relaxed),
            came_back: probe.came_back.load(Relaxed),
            warm_percent: self.shards[0].warm_percent(),
            hit_percent: probe.hit_percent.load(Relaxed),
            hit_ns,
            look_ns,
            behind_ns,
        }
    }
}
