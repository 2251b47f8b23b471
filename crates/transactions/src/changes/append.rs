//! Changes of a commit on their way into the log: collected while it is planned, written and published with
//! its versions.
//!
//! A part is a sequence of changes, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | values: 1 new, 2 old, 3 both |
//! | 2 | length of the key |
//! | 4 | length of the new value; 0 if there is none |
//! | 4 | length of the old value; 0 if there is none |
//! | rest | key, new value, old value |

use super::{ChangeLog, KEY_BYTES, LoggedChange, PART_BYTES, PART_BYTES_MAX, PART_MAX, key_of};
use crate::changes::overlay::Overlaid;
use crate::context::state::State;
use crate::history::VersionLocation;
use crate::mvcc::chain::{self, Version};
use crate::mvcc::object::{ObjectLayout, VALUE_BYTES_MAX, VersionedObject};
use crate::mvcc::value_buffer::ValueBuffer;
use crate::points::CHANGES_OF_THEIR_COMMIT;
use crate::{Error, Result, Timestamp};
use entresol_memory::{Reservation, order};
use entresol_structures::KeyBytes;
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes of a change before its key.
pub(super) const HEAD_BYTES: usize = 11;
const HAS_NEW: u8 = 1;
const HAS_OLD: u8 = 2;

/// Part of the changes of a commit, with its memory reserved.
pub(crate) struct Append<'p> {
    log: Arc<ChangeLog>,
    part: u64,
    changes: Vec<u8>,
    /// Layout of the object; none where versions lie in chains.
    layout: Option<ObjectLayout>,
    /// Until it is published.
    reservation: Option<Reservation<'p>>,
}

/// Changes of a commit that is being planned.
#[derive(Default)]
pub(crate) struct ChangeCollector<'p> {
    /// State whose changes are collected, with its log and its next part.
    current: Option<(&'p State, Arc<ChangeLog>, u64)>,
    changes: Vec<u8>,
    appends: Vec<Append<'p>>,
}

impl<'p> ChangeCollector<'p> {
    /// Adds the change of a key. The caller holds the key, and passes those of a state in a row.
    pub(crate) fn add(
        &mut self,
        state: &'p State,
        key: &[u8],
        new: Option<&[u8]>,
        (old, overlaid): (Option<&VersionLocation<'_>>, &Overlaid),
    ) -> Result<()> {
        if overlaid.is_moving {
            return Ok(());
        }
        if self.current.as_ref().is_none_or(|(current, ..)| !std::ptr::eq(*current, state)) {
            self.end_part()?;
            self.current = state.change_log().map(|log| (state, log, 0));
        }
        if self.current.is_none() {
            return Ok(());
        }
        let mut before = ValueBuffer::new();
        if let Some(old) = old {
            old.copy_value(&mut before);
        }
        let (mut has_old, mut new) = (old.is_some(), new);
        if state.is_overlay() {
            if let (None, Some(beneath)) = (old, overlaid.beneath(state.id, key)) {
                before.set(beneath);
            }
            // An empty value is a deletion.
            (has_old, new) = (!before.is_empty(), new.filter(|value| !value.is_empty()));
            if !has_old && new.is_none() {
                return Ok(());
            }
        }
        let kind = if new.is_some() { HAS_NEW } else { 0 } | if has_old { HAS_OLD } else { 0 };
        assert!(kind != 0, "a change has a value before or after");
        let after = new.unwrap_or_default();
        assert!(
            key.len() <= usize::from(u16::MAX) && after.len().max(before.len()) <= VALUE_BYTES_MAX,
            "lengths fit their fields: a key of {} bytes, values of {} and {}",
            key.len(),
            after.len(),
            before.len()
        );
        self.changes.push(kind);
        self.changes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.changes.extend_from_slice(&(after.len() as u32).to_le_bytes());
        self.changes.extend_from_slice(&(before.len() as u32).to_le_bytes());
        [key, after, &before[..]].into_iter().for_each(|bytes| self.changes.extend_from_slice(bytes));
        if self.changes.len() >= PART_BYTES { self.end_part() } else { Ok(()) }
    }

    /// Reserves the memory of what was added since the last part.
    fn end_part(&mut self) -> Result<()> {
        let Some((state, log, part)) = &mut self.current else { return Ok(()) };
        if self.changes.is_empty() {
            return Ok(());
        }
        let changes = std::mem::take(&mut self.changes);
        assert!(
            changes.len() <= PART_BYTES_MAX,
            "a part of {} bytes is more than one change behind",
            changes.len()
        );
        // The log lies in the pool of its state.
        let (layout, reservation) = if state.is_chained() {
            (None, state.pool().reserve(chain::version_bytes(Some(&changes)))?)
        } else {
            let layout = ObjectLayout::of_one(changes.len());
            (Some(layout), state.pool().reserve(layout.bytes())?)
        };
        let reservation = Some(reservation);
        self.appends.push(Append { log: Arc::clone(log), part: *part, changes, layout, reservation });
        *part += 1;
        assert!(*part <= PART_MAX, "a commit has fewer parts than bytes");
        Ok(())
    }

    /// All parts, those of a log in a row.
    pub(crate) fn finish(mut self) -> Result<Vec<Append<'p>>> {
        self.end_part()?;
        Ok(self.appends)
    }
}

impl<'p> Append<'p> {
    /// Log and key of the part in the commit at `cts`.
    pub(crate) fn key(&self, cts: Timestamp) -> (Arc<ChangeLog>, [u8; KEY_BYTES]) {
        (Arc::clone(&self.log), key_of(cts, self.part))
    }

    /// Phase 2 of the commit at `cts`: copies and flushes.
    pub(crate) fn write(&self, cts: Timestamp) {
        let pool = self.log.state.pool();
        let cts = order::value(cts, Timestamp::START.next(), CHANGES_OF_THEIR_COMMIT);
        let offset = self.reservation.as_ref().expect("it is written before it is published").offset();
        debug_assert!(!self.changes.is_empty(), "a part has changes");
        match self.layout {
            Some(layout) => {
                VersionedObject::initialise(pool, offset, layout).build(None, Some((cts, &self.changes)));
            }
            None => Version::write(pool, offset, 0, cts, Some(&self.changes)),
        }
    }

    /// Phase 3: the indexes lead to them, with few publications.
    pub(crate) fn publish_all(cts: Timestamp, mut appends: Vec<Append<'p>>) -> Result<()> {
        appends
            .chunk_by_mut(|append, next| Arc::ptr_eq(&append.log, &next.log))
            .try_for_each(|of_one| Append::publish_in(cts, of_one))
    }

    /// All in one log.
    fn publish_in(cts: Timestamp, appends: &mut [Append<'p>]) -> Result<()> {
        let Some(log) = appends.first().map(|append| Arc::clone(&append.log)) else { return Ok(()) };
        let keys: SmallVec<[_; 4]> = appends.iter().map(|append| key_of(cts, append.part)).collect();
        let keys: SmallVec<[&[u8]; 4]> = keys.iter().map(|key| &key[..]).collect();
        assert!(
            keys.windows(2).all(|pair| pair[0] < pair[1]),
            "parts of a commit in a log ascend: commit {cts}"
        );
        let mut existing = None;
        log.state.index.insert_many(
            &keys,
            |place, publication| {
                let reservation = appends[place].reservation.take().expect("a part is published once");
                publication.allocate(reservation).to_word()
            },
            |_, other| existing = Some(other),
        )?;
        match existing {
            None => Ok(()),
            Some(other) => {
                let holder = log.state.holder();
                Err(Error::Corrupt(format!("{holder}: commit {cts} has changes at {other:#x} already")))
            }
        }
    }
}

/// Changes of a part.
pub(crate) struct ChangeReader<'a> {
    cts: Timestamp,
    rest: &'a [u8],
}

impl<'a> ChangeReader<'a> {
    pub(crate) fn of(cts: Timestamp, changes: &'a [u8]) -> ChangeReader<'a> {
        ChangeReader { cts, rest: changes }
    }

    /// Returns true if all changes were read: false at the end says that the part is damaged.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next change; none at the end, or where none can begin.
    pub(crate) fn next(&mut self) -> Option<LoggedChange<'a>> {
        let (kind, rest) = self.rest.split_first()?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let (new_bytes, rest) = rest.split_first_chunk()?;
        let (old_bytes, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_bytes)))?;
        let (new, rest) = rest.split_at_checked(u32::from_le_bytes(*new_bytes) as usize)?;
        let (old, rest) = rest.split_at_checked(u32::from_le_bytes(*old_bytes) as usize)?;
        if !(1..=HAS_NEW | HAS_OLD).contains(kind) {
            return None;
        }
        self.rest = rest;
        let new = (kind & HAS_NEW != 0).then_some(new);
        Some(LoggedChange { cts: self.cts, key, new, old: (kind & HAS_OLD != 0).then_some(old) })
    }
}

/// Keys of parts, for a commit that fails after it began to publish them.
pub(crate) type AppendedKeys = Vec<(Arc<ChangeLog>, [u8; KEY_BYTES])>;

/// Notes keys of the logs that a failed commit may have left without a version.
pub(crate) fn note_dead(cts: Timestamp, keys: &AppendedKeys) {
    keys.iter().for_each(|(log, key)| log.state.dead.push(cts, &KeyBytes::from_slice(key)));
}
