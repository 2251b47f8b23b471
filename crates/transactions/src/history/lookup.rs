//! Lookups in a version history at a snapshot timestamp: of one key, or of all keys between two bounds.
//!
//! The versions of a key lie together, the newest first, so the first one from (key, timestamp) on is the
//! only one that can count. There are two ways to it. A *walk* follows the leaves: good where keys have few
//! versions. *Seeks* go straight to the version of each key whose object left the answer to the history, many
//! at once: good where keys have many. A walk that finds many versions of few keys switches to seeks.
//!
//! Keys that were removed from the state's index are in the history alone. A walk finds them; seeks check
//! behind the last version of each known key, where the next one must be a known key again. Mostly nothing
//! was removed that existed at the timestamp: the history notes when something was removed from the index
//! last.

use super::keys::{Position, reaches};
use super::{History, Record};
use crate::mvcc::value_buffer::ValueBuffer;
use crate::visibility::invalid_ranges::InvalidRanges;
use crate::{INFINITY, Result, Timestamp};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::KeyBytes;
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// Maximum number of keys that are looked up one by one rather than by a walk over all of them.
const SEEKS_AT_ONCE: usize = 8;
/// Number of versions of a key, on average of a leaf, from which on seeks are cheaper than a walk.
const VERSIONS_TO_SEEK: usize = 8;

/// A key that the state's index has.
pub(crate) struct KnownKey {
    pub(crate) key: KeyBytes,
    /// Its object does not say what the key had at the timestamp.
    pub(crate) asked: bool,
}

/// Records that were current at a timestamp, and have ended since.
#[derive(Default)]
pub(crate) struct LookupRecords {
    /// Keys with the offset of their record, ascending. Keys whose object has the answer may be among them.
    pub(crate) records: Vec<(KeyBytes, PoolOffset)>,
    /// The key at which the lookup stopped because there were too many.
    pub(crate) stopped_at: Option<KeyBytes>,
}

/// Arguments of a lookup.
#[derive(Clone, Copy)]
pub(crate) struct LookupRange<'w> {
    pub(crate) lower: Bound<&'w [u8]>,
    pub(crate) upper: Bound<&'w [u8]>,
    /// All keys between the bounds that are in the index, ascending.
    pub(crate) known: &'w [KnownKey],
    pub(crate) at: Timestamp,
    /// Maximum number of records.
    pub(crate) max: usize,
}

/// Reason for an early end of a lookup.
enum LookupError {
    /// There can be no record at this offset, or none under this key.
    Damaged(PoolOffset),
    Failed(crate::Error),
}

impl<E: Into<crate::Error>> From<E> for LookupError {
    fn from(error: E) -> LookupError {
        LookupError::Failed(error.into())
    }
}

/// Outcome of a walk.
enum WalkEnd {
    /// At its end, or stopped at the maximum.
    Through,
    /// Before the versions of other keys: it found many of few.
    Dense(Position),
}

impl History {
    /// Notes that something is removed from the state's index, whose versions have all ended by now. Called
    /// before it is removed.
    pub(crate) fn note_removed(&self, now: Timestamp) {
        assert!(now > Timestamp::START && now < INFINITY, "a key is removed at a time, not at {now}");
        self.removed_up_to.fetch_max(now, Ordering::SeqCst);
    }

    /// Notes that nothing was removed from the index that lived after this timestamp.
    pub(crate) fn begin_with_removed_up_to(&self, at_time: Timestamp) {
        assert!(at_time < INFINITY, "keys have been removed up to a time");
        self.removed_up_to.store(at_time, Ordering::SeqCst);
    }

    /// Moves the horizon: nothing before this timestamp can be read, as after each open of a volatile state.
    pub(crate) fn begin_at(&self, at_time: Timestamp) {
        self.horizon.fetch_max(at_time, Ordering::SeqCst);
    }

    /// Copies the value that the key had at a timestamp, if that version has ended since. The caller holds a
    /// guard; the key is normalised. Err: an offset where no record can be.
    pub(crate) fn copy_at(
        &self,
        key: &[u8],
        at: Timestamp,
        invalid: &InvalidRanges,
        value: &mut ValueBuffer,
    ) -> Result<std::result::Result<bool, PoolOffset>> {
        // A key that does not fit was never written.
        let Some(from) = self.keys.encode(key, at) else { return Ok(Ok(false)) };
        let Some((found, word)) = self.index.first_from(&from)? else { return Ok(Ok(false)) };
        if self.keys.decode(&found).is_none_or(|(of, _)| of[..] != *key) {
            return Ok(Ok(false));
        }
        let offset = PoolOffset::from_word(word);
        let Some(record) = Record::try_open(&self.pool, offset) else { return Ok(Err(offset)) };
        let counts = record.holds_at(at, invalid);
        if counts {
            debug_assert!(!invalid.contains(record.cts()), "a version that has ended was one of its key");
            record.copy_value(value);
        }
        Ok(Ok(counts))
    }

    /// The records of keys within bounds that were current at a timestamp. The caller holds a guard since
    /// before it took the known keys from the index and loaded their objects. Err: an offset where no record
    /// can be.
    pub(crate) fn seen_at(
        &self,
        wanted: &LookupRange<'_>,
        invalid: &InvalidRanges,
    ) -> Result<std::result::Result<LookupRecords, PoolOffset>> {
        let mut look = Lookup {
            history: self,
            pool: &self.pool,
            invalid,
            wanted: *wanted,
            // After the known keys were taken from the index.
            gone: wanted.at < self.removed_up_to.load(Ordering::SeqCst),
            seen: LookupRecords::default(),
        };
        match look.look() {
            Ok(()) => Ok(Ok(look.seen)),
            Err(LookupError::Damaged(offset)) => Ok(Err(offset)),
            Err(LookupError::Failed(error)) => Err(error),
        }
    }
}

/// A lookup of the keys between two bounds.
struct Lookup<'h> {
    history: &'h History,
    pool: &'h Pool,
    invalid: &'h InvalidRanges,
    wanted: LookupRange<'h>,
    /// There may be keys that the index does not have.
    gone: bool,
    seen: LookupRecords,
}

impl Lookup<'_> {
    fn look(&mut self) -> std::result::Result<(), LookupError> {
        let LookupRange { lower, upper, known, .. } = self.wanted;
        let asked = known.iter().filter(|known| known.asked).count();
        if asked == 0 && !self.gone {
            return Ok(());
        }
        let mut from = self.history.keys.first_of(lower);
        let mut rest = known;
        if self.gone || asked > SEEKS_AT_ONCE {
            let WalkEnd::Dense(at) = self.walk(&from, upper, true)? else { return Ok(()) };
            // The walk has decided all keys before the one of its position.
            let of = self.history.keys.decode(at.bytes());
            rest = &known[known.partition_point(|known| {
                of.as_ref().is_some_and(|(key, cts)| {
                    known.key < *key || (known.key == *key && *cts == Timestamp::START)
                })
            })..];
            from = at;
        }
        self.seek(&from, rest)
    }

    /// Walks along the leaves, from a position on. Keys that its first entries belong to are not decided
    /// before.
    fn walk(
        &mut self,
        from: &Position,
        upper: Bound<&[u8]>,
        leave_dense: bool,
    ) -> std::result::Result<WalkEnd, LookupError> {
        let (history, at) = (self.history, self.wanted.at);
        let mut from = from.clone();
        let mut entries = Vec::new();
        // The last key found, and whether the record was found that decides it.
        let (mut last, mut decided) = (None::<KeyBytes>, false);
        loop {
            entries.clear();
            let next = history.index.scan(Bound::Included(from.bytes()), 1, &mut entries)?;
            let mut keys = 1;
            for (entry, word) in &entries {
                let offset = PoolOffset::from_word(*word);
                let (key, cts) = history.keys.decode(entry).ok_or(LookupError::Damaged(offset))?;
                if !reaches(&key, upper) {
                    return Ok(WalkEnd::Through);
                }
                if last.as_ref() != Some(&key) {
                    (last, decided) = (Some(key), false);
                    keys += 1;
                }
                if !decided && cts <= at {
                    decided = true;
                    if !self.take(last.clone().unwrap_or_default(), offset)? {
                        return Ok(WalkEnd::Through);
                    }
                }
            }
            let Some(next) = next else { return Ok(WalkEnd::Through) };
            // Versions that cannot be the answer are skipped.
            let (key, cts) = history.keys.decode(&next).ok_or(LookupError::Damaged(PoolOffset::NULL))?;
            from = if last.as_ref() == Some(&key) && decided {
                history.keys.position(&key, Timestamp::START)
            } else if cts > at {
                history.keys.position(&key, at)
            } else {
                Position::of(next)
            };
            if leave_dense && entries.len() > VERSIONS_TO_SEEK * keys {
                return Ok(WalkEnd::Dense(from));
            }
        }
    }

    /// Seeks the versions of the known keys from `from` on, and the keys that may lie between them.
    fn seek(&mut self, from: &Position, known: &[KnownKey]) -> std::result::Result<(), LookupError> {
        let (history, at, upper) = (self.history, self.wanted.at, self.wanted.upper);
        let mut positions = Vec::with_capacity(1 + 2 * known.len());
        if self.gone {
            positions.push(from.clone());
        }
        for known in known {
            if known.asked {
                positions.push(history.keys.position(&known.key, at));
            }
            if self.gone {
                positions.push(history.keys.position(&known.key, Timestamp::START));
            }
        }
        let mut found = Vec::with_capacity(positions.len());
        history.index.first_from_each(&positions, &mut found)?;
        found.iter().flatten().for_each(|&(_, word)| self.pool.prefetch(PoolOffset::from_word(word)));
        let mut found = positions.into_iter().zip(found);
        if self.gone && !self.between(found.next(), bound_before(known.first(), upper))? {
            return Ok(());
        }
        for (index, of) in known.iter().enumerate() {
            if of.asked
                && let Some((_, Some((entry, word)))) = found.next()
            {
                let offset = PoolOffset::from_word(word);
                let (key, _) = history.keys.decode(&entry).ok_or(LookupError::Damaged(offset))?;
                if key == of.key && !self.take(key, offset)? {
                    return Ok(());
                }
            }
            if self.gone && !self.between(found.next(), bound_before(known.get(index + 1), upper))? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Adds keys that the index does not have, from a position with the first entry there up to a bound.
    /// False: stopped at the maximum.
    fn between(
        &mut self,
        position: Option<(Position, Option<(KeyBytes, u64)>)>,
        until: Bound<&[u8]>,
    ) -> std::result::Result<bool, LookupError> {
        let Some((position, Some((entry, word)))) = position else { return Ok(true) };
        let offset = PoolOffset::from_word(word);
        let (key, _) = self.history.keys.decode(&entry).ok_or(LookupError::Damaged(offset))?;
        if reaches(&key, until) {
            self.walk(&position, until, false)?;
        }
        Ok(self.seen.stopped_at.is_none())
    }

    /// Adds the record that decides about a key, if it holds. False: there are too many.
    fn take(&mut self, key: KeyBytes, offset: PoolOffset) -> std::result::Result<bool, LookupError> {
        let record = Record::try_open(self.pool, offset).ok_or(LookupError::Damaged(offset))?;
        if !record.holds_at(self.wanted.at, self.invalid) {
            return Ok(true);
        }
        if self.seen.records.len() == self.wanted.max {
            self.seen.stopped_at = Some(key);
            return Ok(false);
        }
        self.seen.records.push((key, offset));
        Ok(true)
    }
}

/// The bound before the next known key, or the end of all.
fn bound_before<'k>(next: Option<&'k KnownKey>, upper: Bound<&'k [u8]>) -> Bound<&'k [u8]> {
    next.map_or(upper, |known| Bound::Excluded(&known.key[..]))
}
