//! Clearing away what does not count: runs that were merged, and what was being built when something failed. Every
//! step can be repeated after a crash.

use super::file::path_of;
use super::mutants::{self, Mutant};
use super::{Site, manifest, segments};
use crate::error::Result;
use entresol_memory::Error as MemoryError;
use std::sync::atomic::Ordering::Acquire;

/// Removes files of runs, if they are there, and makes that durable.
fn remove_files(site: &Site, numbers: &[u64]) -> Result<()> {
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

/// Clears a slot of what is being built for a level.
pub(super) fn clear_building(site: &Site, level: usize, slot: usize) -> Result<()> {
    let word = manifest::building(site.header, slot);
    let found = site.pool.word(word).load(Acquire);
    if found == 0 {
        return Ok(());
    }
    if site.shape.is_in_pool(level) {
        return segments::free_chain(&site.pool, word);
    }
    remove_files(site, &[found])?;
    let mut publication = site.pool.publication();
    publication.set(word, 0);
    Ok(publication.publish()?)
}

/// Frees the runs on the list of obsolete ones, and the list. No file goes before it is durable that no manifest has
/// it.
pub(super) fn sweep(site: &Site) -> Result<()> {
    let list = site.pool.word(site.header + manifest::OBSOLETE).load(Acquire);
    if list == 0 {
        return Ok(());
    }
    let (chains, files) = manifest::read_obsolete(&site.pool, list)?;
    if !files.is_empty() && !mutants::is(Mutant::RemovedBeforeDurable) {
        site.pool.sync()?;
    }
    for chain in chains {
        segments::free_chain(&site.pool, chain)?;
    }
    remove_files(site, &files)?;
    let mut publication = site.pool.publication();
    publication.free(list);
    publication.set(site.header + manifest::OBSOLETE, 0);
    Ok(publication.publish()?)
}
