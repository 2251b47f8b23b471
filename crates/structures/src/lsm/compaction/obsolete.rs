//! Removal of invalid runs: merged ones, and incomplete ones after a failure. Every step can be repeated
//! after a crash.

use crate::error::{Error, Result};
use crate::lsm::TreeSite;
use crate::lsm::files::file::path_of;
use crate::lsm::files::manifest;
use crate::lsm::files::run::RunRecord;
use crate::lsm::files::segments;
use crate::points::UNREFERRED_BEFORE_REMOVED;
use entresol_memory::Error as MemoryError;
use entresol_memory::PoolOffset;
use entresol_memory::order::step;
use std::sync::atomic::Ordering::Acquire;

/// Removes files of runs, if they are there, and makes that durable.
fn remove_files(site: &TreeSite, numbers: &[u64]) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let files = site.pool.env().files();
    for number in numbers {
        let path = path_of(site.directory(), site.identity, *number);
        if files.exists(&path) {
            files.remove(&path).map_err(|error| MemoryError::io("remove", &path, &error))?;
        }
    }
    let synced = files.sync_directory(site.directory());
    Ok(synced.map_err(|error| MemoryError::io("sync directory", site.directory(), &error))?)
}

/// Frees the incomplete run in a slot for a level.
pub(crate) fn clear_building(site: &TreeSite, level: usize, slot: usize) -> Result<()> {
    let word = manifest::building(site.header, slot);
    let found = site.pool.word(word).load(Acquire);
    if found == 0 {
        return Ok(());
    }
    if site.parameters.is_in_pool(level) {
        return segments::free_chain(&site.pool, word);
    }
    remove_files(site, &[found])?;
    let mut publication = site.pool.publication();
    publication.set(word, 0);
    Ok(publication.publish()?)
}

/// Frees the runs on the list of obsolete ones, and the list. No file is removed before its removal from the
/// manifest is durable.
pub(crate) fn sweep(site: &TreeSite) -> Result<()> {
    let list = PoolOffset::from_word(site.pool.word(site.header.plus(manifest::OBSOLETE)).load(Acquire));
    if list.is_null() {
        return Ok(());
    }
    let (chains, files) = manifest::read_obsolete(&site.pool, list)?;
    if !files.is_empty() {
        step(UNREFERRED_BEFORE_REMOVED, || site.pool.sync())?;
    }
    for chain in chains {
        segments::free_chain(&site.pool, chain)?;
    }
    remove_files(site, &files)?;
    let mut publication = site.pool.publication();
    publication.free(list);
    publication.set(site.header.plus(manifest::OBSOLETE), 0);
    Ok(publication.publish()?)
}

/// Returns an error if an object to free belongs to a run of the manifest, or is not allocated: a damaged
/// header. Cost: none after a close; else a walk over all objects of the pool.
pub(crate) fn check_apart<K>(site: &TreeSite, records: &[RunRecord<K>]) -> Result<()> {
    let pool = &*site.pool;
    let word = |offset: PoolOffset| pool.word(offset).load(Acquire);
    let list = PoolOffset::from_word(word(site.header.plus(manifest::OBSOLETE)));
    let (mut chains, mut files) =
        if list.is_null() { Default::default() } else { manifest::read_obsolete(pool, list)? };
    for slot in 0..manifest::SLOTS {
        let building = manifest::building(site.header, slot);
        match (word(building), site.parameters.is_in_pool(site.parameters.slot_level(slot))) {
            (0, _) => {}
            (_, true) => chains.push(building),
            (number, false) => files.push(number),
        }
    }
    if list.is_null() && chains.is_empty() && files.is_empty() {
        return Ok(());
    }
    let corrupt = |message: String| Error::Corrupt { offset: site.header, message };
    if let Some(run) = records.iter().find(|run| run.last_segment.is_null() && files.contains(&run.number)) {
        return Err(corrupt(format!(
            "its header lists run {} as obsolete, but its manifest has it",
            run.number
        )));
    }
    let mut objects = pool.allocation_map()?;
    let invalid = |message: String| corrupt(format!("its header or lists are invalid: {message}"));
    let mut claim = |offset: PoolOffset| objects.claim(offset, 1).map_err(invalid);
    if !list.is_null() {
        claim(list)?;
    }
    for last in records
        .iter()
        .map(|run| run.last_segment)
        .chain(chains.into_iter().map(|chain| PoolOffset::from_word(word(chain))))
    {
        segments::for_each(pool, last, &mut claim)?;
    }
    Ok(())
}
