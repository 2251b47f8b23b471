//! Writer of a run: entries become blocks, blocks go to segments or a file; index and filter are built with
//! them.

use crate::error::Result;
use crate::lsm::Core;
use crate::lsm::compaction::obsolete;
use crate::lsm::files::block::{Block, LsmEntry, capacity};
use crate::lsm::files::file::{FileWriter, PAGE_BLOCKS, RunFile, path_of};
use crate::lsm::files::filter::{Filter, KeyHash};
use crate::lsm::files::manifest;
use crate::lsm::files::run::{Run, RunLocation, RunRecord};
use crate::lsm::files::segments::SegmentWriter;
use crate::node::FixedKey;
use crate::points::{NAME_SYNCED, NOTE_BEFORE_FILE};
use entresol_memory::Error as MemoryError;
use entresol_memory::PoolOffset;
use entresol_memory::order::step;

enum RunSink<'c> {
    Pool(SegmentWriter<'c>),
    File(FileWriter),
}

/// A run that is being written.
pub(crate) struct RunWriter<'c, K: FixedKey> {
    core: &'c Core<K>,
    level: usize,
    slot: usize,
    number: u64,
    sink: RunSink<'c>,
    block: Block,
    blocks: usize,
    entries: u64,
    ends: Option<(K, K)>,
    mins: Vec<K>,
    filter: Option<Filter>,
}

impl<'c, K: FixedKey> RunWriter<'c, K> {
    /// Begins a run of a level, with at most `entries_max` entries, recorded in a slot of the header until it
    /// is valid. The incomplete run of a failed attempt in the slot is freed first.
    pub(crate) fn begin(
        core: &'c Core<K>,
        level: usize,
        slot: usize,
        number: u64,
        entries_max: u64,
    ) -> Result<RunWriter<'c, K>> {
        obsolete::clear_building(&core.site, level, slot)?;
        let building = manifest::building(core.site.header, slot);
        let blocks_max = entries_max.div_ceil(capacity::<K>() as u64) as usize;
        let sink = if core.site.parameters.is_in_pool(level) {
            RunSink::Pool(SegmentWriter::new(&core.site.pool, building, core.options.path, blocks_max))
        } else {
            RunSink::File(Self::create_file(core, building, number)?)
        };
        let bits = core.options.filter_bits;
        Ok(RunWriter {
            core,
            level,
            slot,
            number,
            sink,
            block: Block::empty(),
            blocks: 0,
            entries: 0,
            ends: None,
            mins: Vec::new(),
            filter: (bits > 0).then(|| Filter::new(entries_max, bits)),
        })
    }

    /// Records the number of the file, and creates it when the record is durable: so no file is ever leaked.
    fn create_file(core: &Core<K>, building: PoolOffset, number: u64) -> Result<FileWriter> {
        let mut publication = core.site.pool.publication();
        publication.set(building, number);
        publication.publish()?;
        step(NOTE_BEFORE_FILE, || core.site.pool.sync())?;
        let path = path_of(core.site.directory(), core.site.identity, number);
        FileWriter::create(&**core.site.pool.env().files(), path)
    }

    /// Adds the next entry; keys ascend.
    #[inline]
    pub(crate) fn push(&mut self, entry: &LsmEntry<K>) -> Result<()> {
        assert!(
            self.ends.is_none_or(|(_, last)| last < entry.key),
            "the keys of run {} ascend, each once: entry {}",
            self.number,
            self.entries
        );
        let min = self.ends.map_or(entry.key, |(min, _)| min);
        self.ends = Some((min, entry.key));
        self.entries += 1;
        if let Some(filter) = &mut self.filter {
            filter.add(KeyHash::of(entry.key));
        }
        if self.block.push(entry) { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<()> {
        let mut block = std::mem::replace(&mut self.block, Block::empty());
        block.seal(self.number, self.blocks);
        match &mut self.sink {
            RunSink::Pool(segments) => {
                segments.push(&block)?;
                self.mins.push(block.key(0));
            }
            RunSink::File(file) => {
                file.push(&block)?;
                if self.blocks.is_multiple_of(PAGE_BLOCKS) {
                    self.mins.push(block.key(0));
                }
            }
        }
        self.blocks += 1;
        Ok(())
    }

    /// Returns the complete, durable run; none if nothing was added. It is valid once a manifest has it.
    pub(crate) fn finish(mut self) -> Result<Option<Run<K>>> {
        if self.block.len() > 0 {
            self.end_block()?;
        }
        let Some((min, max)) = self.ends else {
            // Nothing but tombstones, in the last level: the file must be removed before its record.
            drop(self.sink);
            obsolete::clear_building(&self.core.site, self.level, self.slot)?;
            return Ok(None);
        };
        if let Some(filter) = &mut self.filter {
            filter.shrink(self.entries);
        }
        assert!(
            self.entries > 0 && self.blocks as u64 == self.entries.div_ceil(capacity::<K>() as u64),
            "all blocks of a run but the last are full: {} entries in {}",
            self.entries,
            self.blocks
        );
        debug_assert!(min <= max, "a run ends at or behind its begin");
        let mut record = RunRecord {
            level: self.level,
            number: self.number,
            entries: self.entries,
            blocks: self.blocks,
            last_segment: PoolOffset::NULL,
            min,
            max,
        };
        match self.sink {
            RunSink::Pool(segments) => {
                let segments = segments.finish();
                record.last_segment = *segments.last().expect("a run with entries has a segment");
                Ok(Some(Run::new(record, RunLocation::Pool(segments.into()), self.mins, self.filter)))
            }
            RunSink::File(file) => {
                let core = self.core;
                let path = file.path.clone();
                let filter = self.filter.as_ref();
                file.finish(core.site.identity, self.number, self.entries, &self.mins, filter)?;
                let files = &**core.site.pool.env().files();
                step(NAME_SYNCED, || files.sync_directory(core.site.directory()))
                    .map_err(|error| MemoryError::io("sync directory", core.site.directory(), &error))?;
                let (file, contents) = RunFile::open::<K>(files, &path, core.site.identity, self.number)?;
                Ok(Some(Run::new(record, RunLocation::File(file), contents.mins, self.filter)))
            }
        }
    }
}
