//! Sizes and invariants of a tree.

use super::files::log::log_bytes;
use super::files::manifest::{self, HEADER_BYTES, LOGS, MANIFEST, OBSOLETE, SLOTS};
use super::files::segments;
use super::options::BUFFERS_MAX;
use super::{LsmTree, TreeSite};
use crate::error::{Error, Result};
use crate::node::FixedKey;
use entresol_memory::PoolOffset;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Bytes of the smallest object.
const OBJECT_BYTES_MIN: u64 = 64;

/// Verdict on an object that a check found.
pub(super) type Claim = std::result::Result<(), String>;

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
        self.check_objects(&mut |offset, _| {
            object(offset);
            Ok(())
        })
    }

    /// Same as [`LsmTree::check`]; `claim` is called with offset and least bytes of every object before it is read,
    /// and returns an error text for a wrong one.
    pub(super) fn check_objects(&self, claim: &mut dyn FnMut(PoolOffset, u64) -> Claim) -> Result<()> {
        let core = &*self.core;
        // Nothing is moved or merged meanwhile.
        let _work = core.work.lock();
        let (pool, header) = (&*core.site.pool, core.site.header);
        core.site.claim_parts(claim)?;
        let version = core.versions.current();
        for run in version.runs() {
            if run.is_in_pool() {
                segments::for_each(pool, run.record.last_segment, claimed(claim))?;
            }
            run.verify(&core.media())?;
        }
        let manifest = PoolOffset::from_word(pool.word(header.plus(MANIFEST)).load(Acquire));
        let (records, _) = manifest::read::<K>(pool, manifest)?;
        if !records.iter().eq(version.runs().map(|run| &run.record)) {
            let message = "its manifest differs from the runs in use".to_string();
            return Err(Error::Corrupt { offset: manifest, message });
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

/// Claims an object of the least size.
fn claimed(
    claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
) -> impl FnMut(PoolOffset) -> Result<()> + use<'_> {
    |offset| claim_object(claim, offset, OBJECT_BYTES_MIN)
}

fn claim_object(
    claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
    offset: PoolOffset,
    bytes: u64,
) -> Result<()> {
    claim(offset, bytes).map_err(|message| Error::Corrupt { offset, message })
}

impl TreeSite {
    /// Claims the objects of a tree but those of the runs in its manifest; of one in destruction those that are left.
    pub(super) fn claim_parts(&self, claim: &mut dyn FnMut(PoolOffset, u64) -> Claim) -> Result<()> {
        let (pool, header) = (&*self.pool, self.header);
        let stored = |place: PoolOffset| PoolOffset::from_word(pool.word(place).load(Acquire));
        let word = |offset: u64| stored(header.plus(offset));
        claim_object(claim, header, HEADER_BYTES as u64)?;
        let (manifest, list) = (word(MANIFEST), word(OBSOLETE));
        for object in [manifest, list].into_iter().filter(|object| !object.is_null()) {
            claim_object(claim, object, OBJECT_BYTES_MIN)?;
        }
        let logs = (0..u64::from(BUFFERS_MAX)).map(|log| word(LOGS + log * 8));
        for log in logs.filter(|log| !log.is_null()) {
            claim_object(claim, log, log_bytes(self.parameters.buffer_entries))?;
        }
        if !list.is_null() {
            for chain in manifest::read_obsolete(pool, list)?.0 {
                segments::for_each(pool, stored(chain), claimed(claim))?;
            }
        }
        let parameters = &self.parameters;
        for slot in (0..SLOTS).filter(|slot| parameters.is_in_pool(parameters.slot_level(*slot))) {
            segments::for_each(pool, stored(manifest::building(header, slot)), claimed(claim))?;
        }
        Ok(())
    }
}
