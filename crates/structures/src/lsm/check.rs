//! Sizes and invariants of a tree.

use super::LsmTree;
use super::files::manifest::{self, LOGS, MANIFEST, OBSOLETE, SLOTS};
use super::files::segments;
use super::options::BUFFERS_MAX;
use crate::error::{Error, Result};
use crate::node::FixedKey;
use entresol_memory::PoolOffset;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Sizes of one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// True if it is in the pool; otherwise in files.
    pub is_in_pool: bool,
    /// Runs.
    pub runs: usize,
    /// Entries, tombstones and overwritten ones included.
    pub entries: u64,
    /// Bytes of blocks.
    pub bytes: u64,
}

/// Sizes of an [`LsmTree`], and its counters since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LsmStats {
    /// Entries in buffers, overwritten ones included.
    pub buffered_entries: u64,
    /// The levels, first to last.
    pub levels: Vec<LevelStats>,
    /// DRAM of buffers.
    pub buffer_bytes: usize,
    /// DRAM of Bloom filters.
    pub filter_bytes: usize,
    /// DRAM of the smallest keys of blocks and pages.
    pub index_bytes: usize,
    /// DRAM of cached pages of files.
    pub cache_bytes: usize,
    /// Buffers moved to the first level.
    pub moves: u64,
    /// Entries written by these.
    pub moved_entries: u64,
    /// Merges.
    pub merges: u64,
    /// Entries written by these.
    pub merged_entries: u64,
    /// Writers that had to wait for a free buffer.
    pub stalls: u64,
}

impl LsmStats {
    /// Runs of all levels.
    pub fn runs(&self) -> usize {
        self.levels.iter().map(|level| level.runs).sum()
    }

    /// Returns the entries written to runs per entry that left a buffer; 0 before the first.
    pub fn write_amplification(&self) -> f64 {
        let written = self.moved_entries + self.merged_entries;
        if self.moved_entries == 0 { 0.0 } else { written as f64 / self.moved_entries as f64 }
    }
}

impl<K: FixedKey> LsmTree<K> {
    /// Returns the sizes. Cost: a read of each run's head in DRAM.
    pub fn stats(&self) -> LsmStats {
        let core = &*self.core;
        let version = core.versions.current();
        let counters = &core.counters;
        let level = |(number, runs): (usize, &Vec<_>)| {
            let runs: &Vec<std::sync::Arc<super::files::run::Run<K>>> = runs;
            LevelStats {
                is_in_pool: core.site.parameters.is_in_pool(number),
                runs: runs.len(),
                entries: runs.iter().map(|run| run.record.entries).sum(),
                bytes: runs.iter().map(|run| run.record.blocks as u64 * 256).sum(),
            }
        };
        LsmStats {
            buffered_entries: version.buffers.iter().map(|buffer| buffer.claimed() as u64).sum(),
            levels: version.levels.iter().enumerate().map(level).collect(),
            buffer_bytes: version.buffers.iter().map(|buffer| buffer.bytes()).sum(),
            filter_bytes: version.runs().map(|run| run.filter_bytes()).sum(),
            index_bytes: version.runs().map(|run| run.index_bytes()).sum(),
            cache_bytes: core.cache.bytes(),
            moves: counters.moves.load(Relaxed),
            moved_entries: counters.moved_entries.load(Relaxed),
            merges: counters.merges.load(Relaxed),
            merged_entries: counters.merged_entries.load(Relaxed),
            stalls: counters.stalls.load(Relaxed),
        }
    }

    /// Verifies all invariants of the tree, every block included; there must be no concurrent writers.
    /// `object` is called with the offset of every pool object that the tree consists of (not those that its
    /// values may refer to).
    pub fn check(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        let core = &*self.core;
        // Nothing is moved or merged meanwhile.
        let _work = core.work.lock();
        let (pool, header) = (&*core.site.pool, core.site.header);
        let stored = |place: PoolOffset| PoolOffset::from_word(pool.word(place).load(Acquire));
        let word = |offset: u64| stored(header.plus(offset));
        object(header);
        object(word(MANIFEST));
        (0..u64::from(BUFFERS_MAX))
            .map(|log| word(LOGS + log * 8))
            .filter(|log| !log.is_null())
            .for_each(&mut object);
        let list = word(OBSOLETE);
        if !list.is_null() {
            object(list);
            for chain in manifest::read_obsolete(pool, list)?.0 {
                segments::for_each(pool, stored(chain), &mut object)?;
            }
        }
        let parameters = &core.site.parameters;
        for slot in (0..SLOTS).filter(|slot| parameters.is_in_pool(parameters.slot_level(*slot))) {
            segments::for_each(pool, stored(manifest::building(header, slot)), &mut object)?;
        }
        let version = core.versions.current();
        for run in version.runs() {
            if run.is_in_pool() {
                segments::for_each(pool, run.record.last_segment, &mut object)?;
            }
            run.verify(&core.media())?;
        }
        let (records, _) = manifest::read::<K>(pool, word(MANIFEST))?;
        if !records.iter().eq(version.runs().map(|run| &run.record)) {
            let message = "its manifest differs from the runs in use".to_string();
            return Err(Error::Corrupt { offset: word(MANIFEST), message });
        }
        for buffer in &version.buffers {
            let records = core.logs[buffer.log].replay::<K>(pool, buffer.generation)?;
            if records.iter().any(|(place, entry)| buffer.entry(*place) != *entry) {
                let message = format!("log {} differs from its buffer", buffer.log);
                return Err(Error::Corrupt { offset: core.logs[buffer.log].offset, message });
            }
        }
        Ok(())
    }
}
