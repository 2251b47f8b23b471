//! Creating, opening and destroying trees.

use super::buffer::Buffer;
use super::cache::PageCache;
use super::compaction::maintain::MaintenanceState;
use super::compaction::obsolete;
use super::compaction::version::{Version, Versions};
use super::compaction::worker::MaintenanceMonitor;
use super::files::file::{RunFile, path_of};
use super::files::log::{Log, log_bytes};
use super::files::manifest::{
    self, CHECK, DESTROYED, HEADER_BYTES, IDENTITY, LOGS, MANIFEST, OBSOLETE, PARAMETERS, SLOTS,
    header_check, magic,
};
use super::files::run::{Run, RunLocation, RunRecord};
use super::files::segments;
use super::options::{BUFFERS_MAX, LsmOptions, LsmParameters, Maintenance};
use super::{Core, Counters, LsmTree, TreeSite};
use crate::error::{Error, Result};
use crate::latch::LatchStripes;
use crate::node::FixedKey;
use crate::points::LSM_HEADER;
use entresol_memory::{Error as MemoryError, Pool, PoolOffset, Publication};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

fn corrupt<T>(offset: PoolOffset, message: impl Into<String>) -> Result<T> {
    Err(Error::Corrupt { offset, message: message.into() })
}

impl<K: FixedKey> LsmTree<K> {
    /// Creates an empty tree; it exists once the publication is published, with a reference to the returned
    /// offset. The logs must each fit an extent of the pool.
    pub fn create<'p>(
        pool: &'p Arc<Pool>,
        parameters: &LsmParameters,
        publication: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        parameters.validate()?;
        let header = pool.reserve(HEADER_BYTES)?;
        let words = pool.words(header.offset(), HEADER_BYTES / 8);
        words.iter().for_each(|word| word.store(0, Relaxed));
        let [sizes, levels] = parameters.to_words();
        let manifest = manifest::lay_out::<K>(pool, &[], 1)?;
        let values =
            [magic(K::WORDS), sizes, levels, pool.env().random_u64(), 0, manifest.offset().to_word()];
        words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
        publication.allocate(manifest);
        for number in 0..parameters.buffers {
            let log = pool.reserve(log_bytes(parameters.buffer_entries) as usize)?;
            Log { offset: log.offset(), capacity: parameters.buffer_entries }
                .lay_out(pool, u64::from(number) + 1);
            pool.word(header.offset().plus(LOGS + u64::from(number) * 8))
                .store(log.offset().to_word(), Relaxed);
            publication.allocate(log);
        }
        pool.word(header.offset().plus(CHECK)).store(header_check(pool, header.offset()), Relaxed);
        pool.flush_at(header.offset(), HEADER_BYTES, LSM_HEADER);
        Ok(publication.allocate(header))
    }

    /// Returns the tree at an offset, if it is one of this kind.
    pub(super) fn site(pool: &Arc<Pool>, header: PoolOffset, directory: Option<&Path>) -> Result<TreeSite> {
        if pool.try_words(header, HEADER_BYTES / 8).is_none() || !header.is_aligned(64) || header.is_null() {
            return corrupt(header, "the offset cannot hold an LSM-tree");
        }
        let word = |offset: u64| pool.word(header.plus(offset)).load(Acquire);
        let (found, wanted) = (word(0), magic(K::WORDS));
        if found != wanted {
            if let Some(words) = (1..=2).find(|words| magic(*words) == found) {
                return Err(Error::Invalid(format!(
                    "the LSM-tree at {header:#x} has keys of {} bytes; it was opened for keys of {}",
                    words * 8,
                    K::WORDS * 8
                )));
            }
            return corrupt(header, format!("its header starts with {found:#018x}, not {wanted:#018x}"));
        }
        let is_destroyed = word(DESTROYED) != 0;
        // The logs are freed before the header of a tree that is being destroyed.
        if !is_destroyed && word(CHECK) != header_check(pool, header) {
            return corrupt(header, "its header does not match its checksum");
        }
        let parameters = LsmParameters::of_words([word(PARAMETERS), word(PARAMETERS + 8)]);
        parameters.validate().or_else(|error| corrupt(header, error.to_string()))?;
        if parameters.disk_levels > 0 && directory.is_none() {
            return Err(Error::Invalid(format!(
                "the LSM-tree at {header:#x} has {} levels in files; the options name no directory",
                parameters.disk_levels
            )));
        }
        let (pool, directory) = (Arc::clone(pool), directory.map(Path::to_path_buf));
        Ok(TreeSite { pool, header, identity: word(IDENTITY), parameters, directory })
    }

    /// Opens a tree: replays the logs, reads a line of each block in the pool and the keys and filters of
    /// files, and frees incomplete and obsolete runs. Filters of runs in the pool are built by the thread
    /// afterwards; without one, now.
    pub fn open(pool: &Arc<Pool>, header: PoolOffset, options: &LsmOptions) -> Result<LsmTree<K>> {
        let site = Self::site(pool, header, options.directory.as_deref())?;
        if pool.word(header.plus(DESTROYED)).load(Acquire) != 0 {
            return Err(Error::Invalid(format!("the LSM-tree at {header:#x} is being destroyed")));
        }
        Self::open_site(site, options)
    }

    /// Opens a tree whose parts are all there.
    pub(super) fn open_site(site: TreeSite, options: &LsmOptions) -> Result<LsmTree<K>> {
        let (pool, header) = (&Arc::clone(&site.pool), site.header);
        let manifest = PoolOffset::from_word(pool.word(header.plus(MANIFEST)).load(Acquire));
        let (records, next_number) = manifest::read(pool, manifest)?;
        let levels = load_runs::<K>(&site, &records, next_number)?;
        let recovered = load_logs::<K>(&site)?;
        let work = MaintenanceState {
            next_number: after_building(&site, next_number),
            next_generation: recovered.next,
        };
        let core = Core {
            options: options.clone(),
            logs: recovered.logs,
            versions: Versions::new(Version { buffers: recovered.buffers, levels }),
            latches: LatchStripes::new(),
            cache: PageCache::new(options.cache_bytes),
            work: Mutex::new(work),
            monitor: MaintenanceMonitor::new(recovered.free),
            counters: Counters::default(),
            site,
        };
        // Only a tree that is known to be sound is written to.
        obsolete::check_apart(&core.site, &records)?;
        obsolete::sweep(&core.site)?;
        for slot in 0..SLOTS {
            obsolete::clear_building(&core.site, core.site.parameters.slot_level(slot), slot)?;
        }
        let core = Arc::new(core);
        let mut tree = LsmTree { core, thread: None };
        match options.maintenance {
            Maintenance::InCaller => while tree.core.build_one_filter()? {},
            Maintenance::Background => {
                let core = Arc::clone(&tree.core);
                let thread = pool.env().spawn("lsm", move || core.run_thread());
                tree.thread = Some(thread.map_err(|error| {
                    MemoryError::Unsupported(format!("the thread of the LSM-tree cannot be started: {error}"))
                })?);
            }
        }
        Ok(tree)
    }

    /// Frees all parts of a closed tree, files included, but its header, which the caller frees together with
    /// its reference to it. After a crash in between, call it again. Objects that values refer to belong to
    /// the caller.
    pub fn destroy(pool: &Arc<Pool>, header: PoolOffset, directory: Option<&Path>) -> Result<()> {
        let site = Self::site(pool, header, directory)?;
        let word = |offset: u64| PoolOffset::from_word(pool.word(header.plus(offset)).load(Acquire));
        let manifest = word(MANIFEST);
        let records = if manifest.is_null() { Vec::new() } else { manifest::read::<K>(pool, manifest)?.0 };
        obsolete::check_apart(&site, &records)?;
        // An earlier list first: the header refers to one only.
        obsolete::sweep(&site)?;
        if !manifest.is_null() {
            let mut end = pool.publication();
            end.set(header.plus(DESTROYED), 1);
            let list = manifest::write_obsolete(pool, &records)?;
            let list = end.allocate(list);
            end.set(header.plus(OBSOLETE), list.to_word());
            end.free(manifest);
            end.set(header.plus(MANIFEST), 0);
            end.publish()?;
            obsolete::sweep(&site)?;
        }
        for slot in 0..SLOTS {
            obsolete::clear_building(&site, site.parameters.slot_level(slot), slot)?;
        }
        for log in (0..u64::from(BUFFERS_MAX)).map(|log| LOGS + log * 8).filter(|log| !word(*log).is_null()) {
            let mut publication = pool.publication();
            publication.free(word(log));
            publication.set(header.plus(log), 0);
            publication.publish()?;
        }
        Ok(())
    }
}

/// Returns a number without file: files that were being built have numbers from the manifest's next on.
fn after_building(site: &TreeSite, next_number: u64) -> u64 {
    let in_files = |slot: &usize| !site.parameters.is_in_pool(site.parameters.slot_level(*slot));
    let building = (0..SLOTS).filter(in_files).map(|slot| manifest::building(site.header, slot));
    building.map(|word| site.pool.word(word).load(Acquire) + 1).fold(next_number, u64::max)
}

fn load_runs<K: FixedKey>(
    site: &TreeSite,
    records: &[RunRecord<K>],
    next_number: u64,
) -> Result<Vec<Vec<Arc<Run<K>>>>> {
    let mut levels: Vec<Vec<Arc<Run<K>>>> = vec![Vec::new(); site.parameters.levels() as usize];
    for record in records {
        let known = record.level < levels.len() && record.number < next_number && record.blocks > 0;
        if !known || site.parameters.is_in_pool(record.level) == record.last_segment.is_null() {
            return corrupt(site.header, format!("its manifest has an invalid run: {record:?}"));
        }
        if record.blocks as u64 > record.entries {
            return corrupt(site.header, format!("a run has more blocks than entries: {record:?}"));
        }
        let run = if record.last_segment.is_null() {
            let path = path_of(site.directory(), site.identity, record.number);
            let files = &**site.pool.env().files();
            let (file, contents) = RunFile::open::<K>(files, &path, site.identity, record.number)?;
            if contents.entries != record.entries || contents.blocks != record.blocks {
                Err(MemoryError::corrupt(
                    &path,
                    0,
                    format!("it is not the run in the manifest: {record:?}"),
                ))?;
            }
            Run::new(*record, RunLocation::File(file), contents.mins, contents.filter)
        } else {
            let segments = segments::chain(&site.pool, record.last_segment, record.blocks)?;
            Run::of_segments(&site.pool, *record, segments)?
        };
        levels[record.level].push(Arc::new(run));
    }
    Ok(levels)
}

/// Contents of the logs.
struct RecoveredLogs<K> {
    logs: Vec<Log>,
    /// Newest first; the first is active.
    buffers: Vec<Arc<Buffer<K>>>,
    free: VecDeque<usize>,
    /// A generation that no log has had.
    next: u64,
}

fn load_logs<K: FixedKey>(site: &TreeSite) -> Result<RecoveredLogs<K>> {
    let pool = &*site.pool;
    let capacity = site.parameters.buffer_entries;
    let words = log_bytes(capacity) as usize / 8;
    let mut logs = Vec::new();
    for number in 0..u64::from(site.parameters.buffers) {
        let offset = PoolOffset::from_word(pool.word(site.header.plus(LOGS + number * 8)).load(Acquire));
        if pool.try_words(offset, words).is_none() || offset.is_null() {
            return corrupt(site.header, format!("{offset:#x} cannot hold a log"));
        }
        logs.push(Log { offset, capacity });
    }
    let mut by_age: Vec<(u64, usize)> = logs
        .iter()
        .enumerate()
        .map(|(number, log)| Ok((log.generation(pool)?, number)))
        .collect::<Result<_>>()?;
    by_age.sort_unstable();
    if let Some(pair) = by_age.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return corrupt(site.header, format!("two of its logs are of generation {}", pair[0].0));
    }
    let mut next = by_age.last().map_or(0, |(generation, _)| *generation) + 1;
    let mut buffers = Vec::new();
    let mut free = Vec::new();
    for &(generation, log) in &by_age {
        let records = logs[log].replay::<K>(pool, generation)?;
        if records.is_empty() {
            free.push((generation, log));
        } else {
            buffers.insert(0, Arc::new(Buffer::recovered(log, generation, capacity, &records)));
        }
    }
    // Writes to a free log must be newer than the entries of the others.
    let newest = buffers.first().map_or(0, |buffer: &Arc<Buffer<K>>| buffer.generation);
    for (generation, log) in free.iter_mut().filter(|(generation, _)| *generation < newest) {
        let mut publication = pool.publication();
        logs[*log].empty(next, &mut publication);
        publication.publish()?;
        *generation = next;
        next += 1;
    }
    free.sort_unstable();
    let mut free: VecDeque<usize> = free.into_iter().map(|(_, log)| log).collect();
    if buffers.first().is_none_or(|buffer| buffer.is_full()) {
        match free.pop_front() {
            Some(log) => {
                let generation = logs[log].generation(pool)?;
                buffers.insert(0, Arc::new(Buffer::new(log, generation, capacity)));
            }
            // All logs are full: the first write moves one.
            None => buffers[0].seal(),
        }
    }
    buffers[1..].iter().for_each(|buffer| buffer.seal());
    Ok(RecoveredLogs { logs, buffers, free, next })
}
