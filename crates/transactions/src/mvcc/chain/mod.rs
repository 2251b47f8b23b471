//! Versions out of place: one allocation for each, chained from the newest to the oldest (the variant that
//! dissertation 5.4 improves on; Wu et al. call it newest-to-oldest).
//!
//! ```text
//! index ──▶ next | CTS | length | value...  ──▶  next | CTS | length | value...  ──▶ 0
//! ```
//! A version counts from its CTS until that of the next newer one that counts. A deletion is a version of its
//! own ([`TOMBSTONE`]). All fields are words; a value is padded to words.
//!
//! # Invariants
//! - CTS descend along a chain, so a damaged one cannot be walked in circles.
//! - A version is complete and fenced before the index leads to it; afterwards only two words of it change:
//!   `next`, when versions behind it that no snapshot needs are unlinked, and `length`, when a scrub voids
//!   what an unfinished commit left.
//! - Memory of unlinked versions is not reused while a guard is held, so readers walk over it unharmed.
//!
//! # What a crash leaves
//! A commit makes a version reachable, unlinks and frees others, in one publication for each key: all of it
//! or nothing. Versions of an unfinished commit lie in front with an invalid CTS.
//!
//! Cost: an update is an allocation, a change of the index, and mostly a free.

use crate::mvcc::object::STORED_BYTES_MAX;
use crate::mvcc::value_buffer::ValueBuffer;
use crate::points::{CHAIN_TRUNCATED, CHAINED_VERSION, VOIDED_VERSION};
use crate::visibility::active::Snapshots;
use crate::visibility::invalid_ranges::InvalidRanges;
use crate::visibility::snapshot::Snapshot;
use crate::{INFINITY, Timestamp, interleave};
use entresol_memory::order::step;
use entresol_memory::{Pool, PoolOffset, Publication, STREAM_BYTES_MIN};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

const NEXT: usize = 0;
const CTS: usize = 1;
const LENGTH: usize = 2;
const VALUE: usize = 3;

/// The key was deleted at the CTS.
const TOMBSTONE: u64 = u64::MAX;
/// Length word of a version that never counts: a scrub writes it over a version with an invalid CTS.
const VOID: u64 = u64::MAX - 1;

/// Maximum number of versions that one publication unlinks from a chain: with an allocation, an insert into
/// the index and the change of a pointer they fit it.
const FREED_MAX: usize = 32;

/// The bytes of a version with this value.
pub(crate) fn version_bytes(value: Option<&[u8]>) -> usize {
    version_bytes_of(value.map_or(0, <[u8]>::len))
}

/// The bytes of a version with a value of this length.
pub(crate) fn version_bytes_of(value_bytes: usize) -> usize {
    8 * (VALUE + value_bytes.div_ceil(8))
}

/// One version in the pool. Readers hold a guard while they use it.
#[derive(Clone, Copy)]
pub(crate) struct Version<'p> {
    offset: PoolOffset,
    words: &'p [AtomicU64],
}

/// Versions to unlink from a chain.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnlinkedVersions {
    /// Pointers to change: offset of the word, value.
    relinked: SmallVec<[(PoolOffset, PoolOffset); 1]>,
    /// Versions that nothing leads to afterwards.
    freed: SmallVec<[PoolOffset; 2]>,
}

impl UnlinkedVersions {
    pub(crate) fn is_empty(&self) -> bool {
        self.freed.is_empty()
    }

    /// Adds the changes to a publication.
    pub(crate) fn add_to(&self, publication: &mut Publication<'_>) {
        assert!(
            self.freed.len() <= FREED_MAX && self.relinked.len() <= FREED_MAX / 2,
            "{} versions and {} pointers do not fit a publication",
            self.freed.len(),
            self.relinked.len()
        );
        self.relinked.iter().for_each(|&(word, next)| publication.set(word, next.to_word()));
        self.freed.iter().for_each(|&version| publication.free(version));
    }
}

/// Summary of a chain for a writer.
#[derive(Debug)]
pub(crate) struct ChainCensus {
    /// The key has a current value.
    pub(crate) lives: bool,
    /// The newest timestamp at which the key was written or deleted.
    pub(crate) newest: Timestamp,
    /// Number of versions that some snapshot, now or later, may read; tombstones do not count.
    pub(crate) needed: usize,
    /// Versions that can be unlinked behind the first one.
    pub(crate) pruned: UnlinkedVersions,
}

impl<'p> Version<'p> {
    /// The version at an offset, if there can be one.
    #[inline]
    pub(crate) fn try_open(pool: &'p Pool, offset: PoolOffset) -> Option<Version<'p>> {
        let length = pool.try_words(offset, VALUE)?[LENGTH].load(Ordering::Acquire);
        let value_words = match length {
            TOMBSTONE | VOID => 0,
            bytes if bytes <= STORED_BYTES_MAX as u64 => (bytes as usize).div_ceil(8),
            _ => return None,
        };
        Some(Version { offset, words: pool.try_words(offset, VALUE + value_words)? })
    }

    /// Fills reserved memory and flushes it. The first word is that of the next version in a chain; a history
    /// has the end of the version there.
    pub(crate) fn write(
        pool: &Pool,
        offset: PoolOffset,
        first_word: u64,
        cts: Timestamp,
        value: Option<&[u8]>,
    ) {
        assert!(
            value.is_none_or(|value| value.len() <= STORED_BYTES_MAX),
            "a version that is written can be opened: {:?} bytes",
            value.map(<[u8]>::len)
        );
        debug_assert!(
            !offset.is_null() && offset.to_word() != first_word,
            "a version does not lead to itself: {offset:#x}"
        );
        debug_assert!(Timestamp::START < cts && cts < INFINITY, "{cts} is not a timestamp of a commit");
        let words = pool.words(offset, version_bytes(value) / 8);
        words[NEXT].store(first_word, Ordering::Relaxed);
        words[CTS].store(cts.stored(), Ordering::Relaxed);
        words[LENGTH].store(value.map_or(TOMBSTONE, |value| value.len() as u64), Ordering::Relaxed);
        let value = value.unwrap_or_default();
        if value.len() >= STREAM_BYTES_MIN {
            pool.store_flushed_at(offset.word(VALUE), value, CHAINED_VERSION);
            return pool.flush_at(offset, 8 * VALUE, CHAINED_VERSION);
        }
        for (word, bytes) in words[VALUE..].iter().zip(value.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        pool.flush_at(offset, 8 * words.len(), CHAINED_VERSION);
    }

    #[inline]
    pub(crate) fn cts(&self) -> Timestamp {
        Timestamp::from_stored(self.words[CTS].load(Ordering::Acquire))
    }

    fn length(&self) -> u64 {
        self.words[LENGTH].load(Ordering::Acquire)
    }

    fn next(&self) -> PoolOffset {
        PoolOffset::from_word(self.words[NEXT].load(Ordering::Acquire))
    }

    fn counts(&self, invalid: &InvalidRanges) -> bool {
        self.length() != VOID && !invalid.contains(self.cts())
    }

    /// Tells whether there is a value: neither a deletion nor void.
    pub(crate) fn has_value(&self) -> bool {
        self.length() < VOID
    }

    /// Bytes in memory, header included.
    pub(crate) fn bytes(&self) -> usize {
        8 * self.words.len()
    }

    pub(crate) fn value_bytes(&self) -> usize {
        debug_assert!(self.has_value(), "a deletion at {:#x} has no length", self.offset);
        self.length() as usize
    }

    /// The first word, which a history has for the end of the version ([`crate::history`]).
    pub(crate) fn first_word(&self) -> &'p AtomicU64 {
        &self.words[NEXT]
    }

    pub(crate) fn copy_value(&self, buffer: &mut ValueBuffer) {
        let words = &self.words[VALUE..];
        buffer.copy_words(words, (self.length() as usize).min(8 * words.len()));
    }
}

/// The versions of a key. Readers hold a guard of the pool, writers the key.
#[derive(Clone, Copy)]
pub(crate) struct Chain<'p> {
    pool: &'p Pool,
    head: PoolOffset,
}

/// Step of a walk: a version, or the offset where none can be.
type WalkStep<'p> = Result<Version<'p>, PoolOffset>;

impl<'p> Chain<'p> {
    pub(crate) fn at(pool: &'p Pool, head: PoolOffset) -> Chain<'p> {
        Chain { pool, head }
    }

    /// All versions, the newest first; ends after damage.
    fn walk(self) -> impl Iterator<Item = WalkStep<'p>> {
        let (mut at, mut before) = (self.head, INFINITY);
        std::iter::from_fn(move || {
            if at.is_null() {
                return None;
            }
            let found = Version::try_open(self.pool, at).filter(|version| version.cts() < before);
            let walked = found.ok_or(at);
            at = found.map_or(PoolOffset::NULL, |version| version.next());
            before = found.map_or(Timestamp::START, |version| version.cts());
            interleave::point();
            Some(walked)
        })
    }

    /// Copies the version that the snapshot sees. `Ok(false)`: it sees none; an error is an offset where no
    /// version can be.
    #[inline]
    pub(crate) fn copy_visible(
        self,
        snapshot: Snapshot,
        invalid: &InvalidRanges,
        value: &mut ValueBuffer,
    ) -> Result<bool, PoolOffset> {
        for version in self.walk() {
            let version = version?;
            if snapshot.sees(version.cts()) && version.counts(invalid) {
                if version.length() == TOMBSTONE {
                    return Ok(false);
                }
                version.copy_value(value);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The newest version that counts, if there is one and it is no deletion.
    pub(crate) fn current(self, invalid: &InvalidRanges) -> Result<Option<Version<'p>>, PoolOffset> {
        for version in self.walk() {
            let version = version?;
            if version.counts(invalid) {
                return Ok(version.has_value().then_some(version));
            }
        }
        Ok(None)
    }

    /// The newest version that counts, a deletion too, if it existed at this timestamp already. The chain
    /// does not say when the others ended: versions in between may have been unlinked.
    pub(crate) fn newest_at(
        self,
        at: Timestamp,
        invalid: &InvalidRanges,
    ) -> Result<Option<Version<'p>>, PoolOffset> {
        for version in self.walk() {
            let version = version?;
            if version.counts(invalid) {
                return Ok((version.cts() <= at).then_some(version));
            }
        }
        Ok(None)
    }

    /// The newest timestamp at which the key was written or deleted; the start if that never counted.
    pub(crate) fn newest(self, invalid: &InvalidRanges) -> Result<Timestamp, PoolOffset> {
        for version in self.walk() {
            let version = version?;
            if version.counts(invalid) {
                return Ok(version.cts());
            }
        }
        Ok(Timestamp::START)
    }

    /// Tells whether the key may be dead, as far as this snapshot can tell.
    pub(crate) fn seems_dead(self, snapshot: Snapshot, invalid: &InvalidRanges) -> bool {
        let newest = self.walk().flatten().find(|version| version.counts(invalid));
        newest.is_none_or(|version| version.length() == TOMBSTONE && snapshot.sees(version.cts()))
    }

    /// Tells whether there is more than one version, or damage.
    pub(crate) fn has_several(self) -> bool {
        self.walk().take(2).count() > 1
    }

    /// Sorts the versions by the snapshots that need them, and selects those behind the first that none
    /// needs, some at a time.
    pub(crate) fn census(
        self,
        invalid: &InvalidRanges,
        snapshots: &Snapshots,
    ) -> Result<ChainCensus, PoolOffset> {
        let mut census = ChainCensus {
            lives: false,
            newest: Timestamp::START,
            needed: 0,
            pruned: UnlinkedVersions::default(),
        };
        // The last version that stays, and whether something behind it goes.
        let (mut stays, mut unlinks): (Option<Version<'p>>, bool) = (None, false);
        let mut dts = INFINITY;
        for version in self.walk() {
            let version = version?;
            let (counts, cts) = (version.counts(invalid), version.cts());
            let needed = counts && snapshots.needs(cts, dts);
            let tombstone = version.length() == TOMBSTONE;
            if counts {
                census.needed += usize::from(needed && !tombstone);
                if dts == INFINITY {
                    (census.newest, census.lives) = (cts, !tombstone);
                }
                dts = cts;
            }
            if stays.is_none() || needed || census.pruned.freed.len() == FREED_MAX {
                if unlinks && let Some(stays) = stays {
                    census.pruned.relinked.push((stays.offset.word(NEXT), version.offset));
                }
                unlinks = false;
                stays = Some(version);
                if census.pruned.relinked.len() >= FREED_MAX / 2 {
                    debug_assert!(
                        census.pruned.relinked.is_empty() == census.pruned.freed.is_empty(),
                        "what is unlinked is behind a version that stays: {:?}",
                        census.pruned
                    );
                    return Ok(census);
                }
            } else {
                census.pruned.freed.push(version.offset);
                unlinks = true;
            }
        }
        if unlinks && let Some(stays) = stays {
            census.pruned.relinked.push((stays.offset.word(NEXT), PoolOffset::NULL));
        }
        Ok(census)
    }

    /// Frees versions behind the first, as many as fit a publication; returns true if only the first is left.
    pub(crate) fn unlink_behind_first(self, publication: &mut Publication<'p>) -> bool {
        let all: Vec<PoolOffset> = self.walk().flatten().skip(1).map(|version| version.offset).collect();
        if all.is_empty() {
            return true;
        }
        // From the far end, so that what is left is still a chain.
        let stays = all.len().saturating_sub(FREED_MAX);
        debug_assert!(!all.contains(&self.head), "the first version stays");
        let last = if stays == 0 { self.head } else { all[stays - 1] };
        step(CHAIN_TRUNCATED, || publication.set(last.word(NEXT), 0));
        all[stays..].iter().for_each(|&version| publication.free(version));
        stays == 0
    }

    /// Voids versions with an invalid timestamp; returns true if there was one. Idempotent, in any order.
    pub(crate) fn scrub(self, invalid: &InvalidRanges) -> bool {
        let mut changed = false;
        for version in self.walk().flatten() {
            if version.length() != VOID && invalid.contains(version.cts()) {
                debug_assert!(
                    version.cts() > Timestamp::START,
                    "an invalid version has the timestamp of a commit"
                );
                version.words[LENGTH].store(VOID, Ordering::Release);
                self.pool.flush_word_at(version.offset.word(LENGTH), VOIDED_VERSION);
                changed = true;
            }
        }
        changed
    }

    /// Checks a chain that may be damaged; `claim` gets offset and bytes of each version. Returns their
    /// number and bytes.
    pub(crate) fn check(
        self,
        claim: &mut impl FnMut(PoolOffset, u64) -> Result<(), String>,
    ) -> Result<(usize, usize), String> {
        let (mut versions, mut bytes) = (0, 0);
        for version in self.walk() {
            let version = version.map_err(|at| format!("no version of it can be at {at:#x}"))?;
            let here = 8 * version.words.len();
            claim(version.offset, here as u64)?;
            (versions, bytes) = (versions + 1, bytes + here);
        }
        Ok((versions, bytes))
    }

    /// Offsets of its versions.
    #[cfg(feature = "testkit")]
    pub(crate) fn offsets(self) -> impl Iterator<Item = PoolOffset> {
        self.walk().flatten().map(|version| version.offset)
    }
}

#[cfg(test)]
mod tests;
