//! The tree's header and its manifest, the list of runs.
//!
//! ```text
//! header word   content
//! 0             "LSM", version 2 (byte 6), words of a key (byte 7)
//! 1, 2          shape
//! 3             identity, in the names of files
//! 4             check word over words 0 to 3 and 8 to 15
//! 5             offset of the manifest
//! 6             offset of the list of obsolete runs, or 0
//! 7             being destroyed: 1: its parts are freed; 2, 3: the objects of its values are, 3: those up to the cursor
//! 8..16         offsets of the logs
//! 16..32        what is being built: for the run of a buffer, then for that of each level merged. The last segment
//!               of a chain, or the number of a file; 0: nothing
//! 32            a note of the tree's owner
//! 33, 34        cursor of its destruction: the last key whose value was freed
//!
//! manifest word   content
//! 0               "LSMMAN" and version
//! 1, 2            runs; numbers from this one on are not used yet
//! 3               check word over all others
//! 4..             9 words a run: level, number, entries, blocks, last segment (0: a file), smallest key, greatest key
//!
//! list word       content
//! 0, 1            "LSMOBS" and version; runs
//! 2..             2 words a run: last segment or 0, number of the file or 0
//! ```
//!
//! Runs are added and removed in one publication: the new manifest is allocated, the old one freed, the run
//! being built belongs to it from then on, removed runs are on the list of obsolete ones, and the log of a
//! moved buffer is emptied. Obsolete runs are freed afterwards, after a crash by opening.

use crate::error::{Error, Result};
use crate::lsm::files::run::RunRecord;
use crate::lsm::options::LEVELS_MAX;
use crate::node::FixedKey;
use crate::points::NEW_MANIFEST;
use entresol_memory::{Pool, PoolOffset, Reservation};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

pub(crate) const HEADER_BYTES: usize = 320;
pub(crate) const PARAMETERS: u64 = 8;
pub(crate) const IDENTITY: u64 = 3 * 8;
pub(crate) const CHECK: u64 = 4 * 8;
pub(crate) const MANIFEST: u64 = 5 * 8;
pub(crate) const OBSOLETE: u64 = 6 * 8;
pub(crate) const DESTROYED: u64 = 7 * 8;
pub(crate) const LOGS: u64 = 8 * 8;
const BUILDING: u64 = 16 * 8;
pub(crate) const NOTE: u64 = 32 * 8;
pub(crate) const CURSOR: u64 = 33 * 8;
/// Slots for runs that are being built.
pub(crate) const SLOTS: usize = LEVELS_MAX as usize + 1;

const MANIFEST_MAGIC: u64 = u64::from_le_bytes(*b"LSMMAN\0\x01");
const LIST_MAGIC: u64 = u64::from_le_bytes(*b"LSMOBS\0\x01");
const HEAD_WORDS: usize = 4;
const RUN_WORDS: usize = 9;
/// Bound on the runs of a sound tree.
const RUNS_MAX: u64 = LEVELS_MAX as u64 * 64;

pub(crate) fn magic(key_words: usize) -> u64 {
    u64::from_le_bytes([b'L', b'S', b'M', 0, 0, 0, 2, key_words as u8])
}

pub(crate) fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0x6A09_E667_F3BC_C908, |hash: u64, word| {
        (hash.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

/// Returns the check word that a header should have.
pub(crate) fn header_check(pool: &Pool, header: PoolOffset) -> u64 {
    let word = |index: u64| pool.word(header.plus(index * 8)).load(Acquire);
    hash((0..4).chain(8..16).map(word))
}

/// Returns the offset in the header of a slot for a run that is being built.
pub(crate) fn building(header: PoolOffset, slot: usize) -> PoolOffset {
    debug_assert!(slot < SLOTS, "there is no slot {slot} for a run in the making");
    header.plus(BUILDING).word(slot)
}

fn corrupt<T>(offset: PoolOffset, message: impl Into<String>) -> Result<T> {
    Err(Error::Corrupt { offset, message: message.into() })
}

/// Writes a manifest into new memory and flushes it.
pub(crate) fn lay_out<'p, K: FixedKey>(
    pool: &'p Pool,
    records: &[RunRecord<K>],
    next_number: u64,
) -> Result<Reservation<'p>> {
    assert!(records.len() as u64 <= RUNS_MAX, "a manifest of {} runs could not be read", records.len());
    debug_assert!(
        records.iter().all(|record| record.entries > 0 && record.blocks > 0 && record.min <= record.max),
        "runs of a manifest have entries, in order"
    );
    let mut words = vec![MANIFEST_MAGIC, records.len() as u64, next_number, 0];
    for record in records {
        let key = |key: K, word: usize| if word < K::WORDS { key.word(word) } else { 0 };
        words.extend([
            record.level as u64,
            record.number,
            record.entries,
            record.blocks as u64,
            record.last_segment.to_word(),
            key(record.min, 0),
            key(record.min, 1),
            key(record.max, 0),
            key(record.max, 1),
        ]);
    }
    words[3] = hash(words.iter().copied());
    store(pool, &words)
}

fn store<'p>(pool: &'p Pool, words: &[u64]) -> Result<Reservation<'p>> {
    let object = pool.reserve(words.len() * 8)?;
    let to = pool.words(object.offset(), words.len());
    to.iter().zip(words).for_each(|(to, word)| to.store(*word, Relaxed));
    pool.flush_at(object.offset(), words.len() * 8, NEW_MANIFEST);
    Ok(object)
}

/// Reads a manifest: returns its runs, level by level and newest first, and the next number.
pub(crate) fn read<K: FixedKey>(pool: &Pool, offset: PoolOffset) -> Result<(Vec<RunRecord<K>>, u64)> {
    let Some(head) = pool.try_words(offset, HEAD_WORDS).filter(|_| !offset.is_null()) else {
        return corrupt(offset, "the offset cannot hold a manifest");
    };
    let runs = head[1].load(Acquire);
    if head[0].load(Acquire) != MANIFEST_MAGIC || runs > RUNS_MAX {
        return corrupt(offset, "its first word is not that of a manifest");
    }
    let Some(words) = pool.try_words(offset, HEAD_WORDS + runs as usize * RUN_WORDS) else {
        return corrupt(offset, format!("the offset cannot hold a manifest with {runs} runs"));
    };
    let words: Vec<u64> = words.iter().map(|word| word.load(Acquire)).collect();
    let unchecked = words.iter().enumerate().map(|(index, word)| if index == 3 { 0 } else { *word });
    if hash(unchecked) != words[3] {
        return corrupt(offset, "the manifest does not match its checksum");
    }
    let record = |words: &[u64]| RunRecord {
        level: words[0] as usize,
        number: words[1],
        entries: words[2],
        blocks: words[3] as usize,
        last_segment: PoolOffset::from_word(words[4]),
        min: K::of_words(&words[5..5 + K::WORDS]),
        max: K::of_words(&words[7..7 + K::WORDS]),
    };
    Ok((words[HEAD_WORDS..].chunks_exact(RUN_WORDS).map(record).collect(), words[2]))
}

/// Writes a list of obsolete runs into new memory and flushes it.
pub(crate) fn write_obsolete<'p, K: FixedKey>(
    pool: &'p Pool,
    records: &[RunRecord<K>],
) -> Result<Reservation<'p>> {
    assert!(records.len() as u64 <= RUNS_MAX, "a list of {} runs could not be read", records.len());
    let mut words = vec![LIST_MAGIC, records.len() as u64];
    for record in records {
        let number = if record.last_segment.is_null() { record.number } else { 0 };
        words.extend([record.last_segment.to_word(), number]);
    }
    store(pool, &words)
}

/// Reads the list of obsolete runs: returns the offset of the word of each chain, and the number of each
/// file.
pub(crate) fn read_obsolete(pool: &Pool, offset: PoolOffset) -> Result<(Vec<PoolOffset>, Vec<u64>)> {
    let runs = pool.try_words(offset, 2).map(|words| [words[0].load(Acquire), words[1].load(Acquire)]);
    let runs = match runs {
        Some([LIST_MAGIC, runs]) if runs <= RUNS_MAX => runs,
        _ => return corrupt(offset, "its first word is not that of a list of obsolete runs"),
    };
    if pool.try_words(offset, 2 + 2 * runs as usize).is_none() {
        return corrupt(offset, format!("the offset cannot hold a list of {runs} obsolete runs"));
    }
    let places = (0..runs).map(|run| offset.plus(16).block(run, 16));
    let chains = places.clone().filter(|place| pool.word(*place).load(Acquire) != 0).collect();
    let files =
        places.map(|place| pool.word(place.plus(8)).load(Acquire)).filter(|number| *number != 0).collect();
    Ok((chains, files))
}
