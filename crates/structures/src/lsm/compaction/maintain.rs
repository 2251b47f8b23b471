//! Moving buffers to the first level and merging full levels into the next.
//!
//! One thread at a time does this, under the mutex `work`. A merge of a deep level takes long; so every few
//! thousand entries it maintains the levels above: it moves waiting buffers and merges full levels there, as
//! long as no level gets more than three times its runs. Writers wait only if all buffers are full, and then
//! for a moved buffer, not for a deep merge. If levels cannot keep up, every level fills to its maximum and
//! merging bounds the rate of writers.
//!
//! A failure (a full pool or disk, an error of a file) leaves the tree as it was before that step. Writers
//! continue while there is a free buffer; then they get the error, and each of them requests another attempt.

use crate::error::{Error, Result};
use crate::lsm::Core;
use crate::lsm::buffer::Buffer;
use crate::lsm::compaction::obsolete;
use crate::lsm::compaction::version::Version;
use crate::lsm::files::manifest::{self, MANIFEST, OBSOLETE};
use crate::lsm::files::run::{Cursor, Media, Run, RunRecord};
use crate::lsm::files::writer::RunWriter;
use crate::lsm::merge::{Merger, Source};
use crate::lsm::options::{Maintenance, MergeAlgorithm};
use crate::node::FixedKey;
use crate::points::{LOG_EMPTIED, LOG_EMPTIED_AFTER_ITS_RUN, OBSOLETE_WITH_THE_MANIFEST};
use entresol_memory::PoolOffset;
use entresol_memory::order::step;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Entries after which a merge maintains the levels above it.
const RELIEF_ENTRIES: u64 = 4096;

/// State of the holder of the mutex.
pub(crate) struct MaintenanceState {
    pub(crate) next_number: u64,
    pub(crate) next_generation: u64,
}

/// Change of the runs: the new run, the obsolete ones, and the moved buffer.
struct RunChange<'c, K> {
    slot: usize,
    level: usize,
    new: Option<Run<K>>,
    merged: &'c [Arc<Run<K>>],
    moved: Option<&'c Buffer<K>>,
}

impl<K: FixedKey> Core<K> {
    /// Moves all sealed buffers and merges all full levels.
    pub(crate) fn maintain(&self) -> Result<()> {
        let mut work = self.work.lock();
        self.settle(&mut work, self.site.parameters.levels() as usize)
    }

    /// Maintains the levels above a level.
    fn settle(&self, work: &mut MaintenanceState, below: usize) -> Result<()> {
        loop {
            if self.is_stopping() {
                return Err(Error::Invalid("the tree is being closed".to_string()));
            }
            if !self.move_oldest(work)? {
                let Some(level) = self.due(below) else { return Ok(()) };
                self.merge(work, level)?;
            }
        }
    }

    /// Returns the first level above `below` that is full and whose target has room.
    fn due(&self, below: usize) -> Option<usize> {
        let version = self.versions.read();
        let last = version.levels.len() - 1;
        let (full, most) = (self.site.parameters.runs_per_level as usize, self.site.parameters.runs_max());
        (0..below).find(|level| {
            let has_room = *level == last || version.levels[level + 1].len() < most;
            version.levels[*level].len() >= full && has_room
        })
    }

    /// Moves the oldest sealed buffer to the first level; false if there is none, or no room for it.
    fn move_oldest(&self, work: &mut MaintenanceState) -> Result<bool> {
        let version = self.versions.current();
        let Some(buffer) = version.buffers[1..].last() else { return Ok(false) };
        if version.levels[0].len() >= self.site.parameters.runs_max() {
            return Ok(false);
        }
        self.move_buffer(work, &version, buffer).inspect_err(|_| self.discard_output(0, 0))?;
        self.log_is_free(buffer.log);
        Ok(true)
    }

    /// Frees the incomplete run after a failure, as far as that is possible. The rest is freed by the next
    /// attempt, or by opening.
    fn discard_output(&self, level: usize, slot: usize) {
        if let Err(error) = obsolete::clear_building(&self.site, level, slot) {
            tracing::warn!(%error, "the output of a failed merge could not be removed yet");
        }
    }

    fn move_buffer(
        &self,
        work: &mut MaintenanceState,
        version: &Version<K>,
        buffer: &Buffer<K>,
    ) -> Result<()> {
        buffer.wait_for_writers();
        let entries = buffer.sorted_entries();
        // Without older entries to hide, a tombstone is not needed any more.
        let is_oldest = version.runs().next().is_none();
        let number = work.number();
        let mut writer = RunWriter::begin(self, 0, 0, number, entries.len() as u64)?;
        for entry in entries.iter().filter(|entry| !(is_oldest && entry.is_tombstone)) {
            writer.push(entry)?;
        }
        let new = writer.finish()?;
        self.counters.moved_entries.fetch_add(new.as_ref().map_or(0, |run| run.record.entries), Relaxed);
        self.counters.moves.fetch_add(1, Relaxed);
        self.change(work, RunChange { slot: 0, level: 0, new, merged: &[], moved: Some(buffer) })
    }

    /// Merges the runs of a level into one of the next; those of the last level into one of their own.
    fn merge(&self, work: &mut MaintenanceState, level: usize) -> Result<()> {
        let target = (level + 1).min(self.site.parameters.levels() as usize - 1);
        self.merge_into(work, level, target).inspect_err(|_| self.discard_output(target, level + 1))
    }

    fn merge_into(&self, work: &mut MaintenanceState, level: usize, target: usize) -> Result<()> {
        let version = self.versions.current();
        let runs = &version.levels[level];
        let is_oldest = target == level || version.levels[target..].iter().all(Vec::is_empty);
        let entries: u64 = runs.iter().map(|run| run.record.entries).sum();
        let number = work.number();
        let media = self.media();
        let mut merger = self.merger(work, &media, level, runs)?;
        let mut writer = RunWriter::begin(self, target, level + 1, number, entries)?;
        let mut taken = 0u64;
        while let Some(entry) = merger.next(&media)? {
            if !(is_oldest && entry.is_tombstone) {
                writer.push(&entry)?;
            }
            taken += 1;
            if taken.is_multiple_of(RELIEF_ENTRIES) {
                self.settle(work, level)?;
            }
        }
        let new = writer.finish()?;
        self.counters.merged_entries.fetch_add(new.as_ref().map_or(0, |run| run.record.entries), Relaxed);
        self.counters.merges.fetch_add(1, Relaxed);
        self.change(work, RunChange { slot: level + 1, level: target, new, merged: runs, moved: None })
    }

    /// Returns the merger of the last merge of these runs: over all of them, or over the results of merging
    /// two at a time.
    fn merger<'v>(
        &self,
        work: &mut MaintenanceState,
        media: &Media<'_>,
        level: usize,
        runs: &'v [Arc<Run<K>>],
    ) -> Result<Merger<'v, K, true>> {
        let cursor = |run: &'v Arc<Run<K>>| Source::Run(Cursor::first(run, true));
        let mut sources: Vec<Source<'v, K>> = runs.iter().map(cursor).collect();
        while self.options.merge == MergeAlgorithm::TwoWay && sources.len() > 2 {
            let mut merged = Vec::with_capacity(sources.len().div_ceil(2));
            let mut left = sources.into_iter();
            while let Some(newer) = left.next() {
                let Some(older) = left.next() else {
                    merged.push(newer);
                    break;
                };
                let mut pair = Merger::<K, true>::new([newer, older], media)?;
                let mut entries = Vec::new();
                while let Some(entry) = pair.next(media)? {
                    entries.push(entry);
                    if (entries.len() as u64).is_multiple_of(RELIEF_ENTRIES) {
                        self.settle(work, level)?;
                    }
                }
                merged.push(Source::Entries(entries.into_iter()));
            }
            sources = merged;
        }
        Merger::new(sources, media)
    }

    /// Makes a new run valid and old ones obsolete in one publication; then installs the next version; then
    /// frees the old runs.
    fn change(&self, work: &mut MaintenanceState, change: RunChange<'_, K>) -> Result<()> {
        // An earlier attempt may have failed.
        obsolete::sweep(&self.site)?;
        let pool = &*self.site.pool;
        let new = change.new.map(Arc::new);
        let levels = next_levels(&self.versions.current(), change.level, new.as_ref(), change.merged);
        let records: Vec<RunRecord<K>> = levels.iter().flatten().map(|run| run.record).collect();
        let before = PoolOffset::from_word(pool.word(self.site.header.plus(MANIFEST)).load(Acquire));
        let manifest = manifest::lay_out(pool, &records, work.next_number)?;
        let mut with = pool.publication();
        let manifest = with.allocate(manifest);
        with.set(self.site.header.plus(MANIFEST), manifest.to_word());
        with.free(before);
        with.set(manifest::building(self.site.header, change.slot), 0);
        let merged: Vec<RunRecord<K>> = change.merged.iter().map(|run| run.record).collect();
        with.barrier(OBSOLETE_WITH_THE_MANIFEST);
        if !merged.is_empty() {
            let list = manifest::write_obsolete(pool, &merged)?;
            let list = with.allocate(list);
            with.set(self.site.header.plus(OBSOLETE), list.to_word());
        }
        if let Some(buffer) = change.moved {
            with.after(LOG_EMPTIED_AFTER_ITS_RUN);
            let log = &self.logs[buffer.log];
            step(LOG_EMPTIED, || log.empty(work.next_generation, &mut with));
        }
        with.publish()?;
        work.next_generation += u64::from(change.moved.is_some());
        self.versions.change(|version| Version {
            buffers: version.buffers.iter().filter(|b| !is_same(b, change.moved)).cloned().collect(),
            levels,
        });
        if let Err(error) = obsolete::sweep(&self.site) {
            // The change is durable; obsolete runs are freed by the next one, or by opening.
            tracing::warn!(%error, "merged runs could not be freed yet");
        }
        Ok(())
    }

    /// Builds the filter of a run opened without; false if no run lacks one.
    pub(crate) fn build_one_filter(&self) -> Result<bool> {
        let bits = self.options.filter_bits;
        let version = self.versions.current();
        let without = version.runs().find(|run| bits > 0 && run.is_in_pool() && !run.has_filter());
        let Some(run) = without else { return Ok(false) };
        let _pinned = self.site.pool.pin();
        run.build_filter(&self.media(), bits)?;
        Ok(true)
    }

    /// Returns true if writers move and merge.
    pub(crate) fn is_in_caller(&self) -> bool {
        self.options.maintenance == Maintenance::InCaller
    }
}

impl MaintenanceState {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }
}

fn is_same<K>(buffer: &Arc<Buffer<K>>, other: Option<&Buffer<K>>) -> bool {
    other.is_some_and(|other| std::ptr::eq(&**buffer, other))
}

/// Returns the levels after a change: the new run is the newest of its level, or replaces those it was merged
/// from.
fn next_levels<K: FixedKey>(
    version: &Version<K>,
    level: usize,
    new: Option<&Arc<Run<K>>>,
    merged: &[Arc<Run<K>>],
) -> Vec<Vec<Arc<Run<K>>>> {
    let is_merged = |run: &Arc<Run<K>>| merged.iter().any(|other| Arc::ptr_eq(run, other));
    let mut levels = version.levels.clone();
    let is_own = merged.first().is_some_and(|run| run.record.level == level);
    let at = if is_own { levels[level].iter().position(is_merged).unwrap_or(0) } else { 0 };
    if let Some(new) = new {
        levels[level].insert(at, Arc::clone(new));
    }
    levels.iter_mut().for_each(|runs| runs.retain(|run| !is_merged(run)));
    levels
}
