//! Scanning a state in key order or against it, some leaves of the index at a time, with the transaction's
//! own writes merged in.
//!
//! Invariant: a batch covers a window of keys from where the last one ended; every key of the window that the
//! transaction sees is delivered exactly once, in order, own writes in place of what the snapshot has. Dead
//! keys that a scan finds are handed to the vacuum.
//!
//! Memory: one leaf's entries, from the second batch on at least [`ENTRIES_PER_BATCH`], and at most
//! [`OWN_WRITES_PER_BATCH`] own writes.

use crate::context::state::{LookupOutcome, State};
use crate::mvcc::value_buffer::ValueBuffer;
use crate::transaction::Transaction;
use crate::transaction::write_set::is_empty_range;
use crate::{Result, Timestamp, interleave};
use entresol_memory::PoolOffset;
use entresol_structures::KeyBytes;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of the transaction's own writes that one batch may merge in; the window ends before the
/// next one.
pub(super) const OWN_WRITES_PER_BATCH: usize = 1024;

/// Least number of index entries of a batch that continues a scan; the first one, which may be all that is
/// needed, has those of one leaf.
const ENTRIES_PER_BATCH: usize = 512;

/// Number of objects that a scan prefetches ahead.
pub(crate) const PREFETCH_OBJECTS: usize = 8;

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In key order.
    Forward,
    /// From the greatest key down.
    Backward,
}

impl Direction {
    /// Returns true if a key comes before another one.
    pub(super) fn is_before(self, key: &[u8], other: &[u8]) -> bool {
        match self {
            Direction::Forward => key < other,
            Direction::Backward => key > other,
        }
    }
}

/// A range of keys. Bounds of states with fixed-width keys are padded with zeros like the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Lower bound.
    pub lower: Bound<KeyBytes>,
    /// Upper bound.
    pub upper: Bound<KeyBytes>,
}

impl KeyRange {
    /// All keys.
    pub fn full() -> KeyRange {
        KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Tells whether a key does not lie before the range. Bounds and key have the width of the state's keys.
    pub fn begins_before(&self, key: &[u8]) -> bool {
        behind(key, as_slice(&self.lower))
    }

    /// Tells whether a key does not lie behind the range. Bounds and key have the width of the state's keys.
    pub fn reaches(&self, key: &[u8]) -> bool {
        within(key, as_slice(&self.upper))
    }

    /// Tells whether a key lies in the range. Bounds and key have the width of the state's keys.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.begins_before(key) && self.reaches(key)
    }
}

pub(super) fn as_slice(bound: &Bound<KeyBytes>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

pub(super) fn behind(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
    }
}

fn within(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
    }
}

/// Keys of a batch, and position of the next one.
struct Window {
    lower: Bound<KeyBytes>,
    upper: Bound<KeyBytes>,
    next: Option<KeyBytes>,
}

impl Window {
    /// Ends the window at a key, where the next one begins: in front of it, or behind it for a scan
    /// backwards.
    fn end_at(&mut self, key: KeyBytes, direction: Direction) {
        match direction {
            Direction::Forward => self.upper = Bound::Excluded(key.clone()),
            Direction::Backward => self.lower = Bound::Included(key.clone()),
        }
        self.next = Some(key);
    }

    /// Returns true for keys before its end in a direction.
    fn reaches(&self, key: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Forward => within(key, as_slice(&self.upper)),
            Direction::Backward => behind(key, as_slice(&self.lower)),
        }
    }

    fn holds(&self, key: &[u8]) -> bool {
        within(key, as_slice(&self.upper)) && behind(key, as_slice(&self.lower))
    }
}

impl Transaction {
    /// Calls `f` with the keys and values of one part of the range, in key order, and returns whether there
    /// is more. `from` is the position to go on at: None at first, then as the call before left it.
    pub fn scan_batch(
        &self,
        state: &Arc<State>,
        range: &KeyRange,
        from: &mut Option<KeyBytes>,
        f: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        self.scan_batch_in(state, range, Direction::Forward, from, f)
    }

    /// Same as [`Transaction::scan_batch`] in either direction. A transaction AS OF scans the whole range at
    /// once to deliver it backwards, and takes memory for it.
    pub fn scan_batch_in(
        &self,
        state: &Arc<State>,
        range: &KeyRange,
        direction: Direction,
        from: &mut Option<KeyBytes>,
        mut f: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        let (mut lower, mut upper) = (normalised(state, &range.lower)?, normalised(state, &range.upper)?);
        if let Some(at) = self.as_of() {
            return self.scan_as_of_in(state, (lower, upper), direction, at, from, f);
        }
        let enough = if from.is_some() { ENTRIES_PER_BATCH } else { 1 };
        match (from.take(), direction) {
            (Some(key), Direction::Forward) => lower = Bound::Included(key),
            (Some(key), Direction::Backward) => upper = Bound::Excluded(key),
            (None, _) => {}
        }
        let mut window = Window { lower, upper, next: None };
        if is_empty_range(as_slice(&window.lower), as_slice(&window.upper)) {
            return Ok(false);
        }
        let mut entries = Vec::with_capacity(enough * 9 / 8);
        self.lock_range(state)?;
        let guard = state.pool().pin();
        self.check_readable(state)?;
        match direction {
            Direction::Forward => {
                let next = state.index.scan(as_slice(&window.lower), enough, &mut entries)?;
                if let Some(next) = next.filter(|next| within(next, as_slice(&window.upper))) {
                    window.end_at(next, direction);
                }
            }
            Direction::Backward => {
                let next = state.index.scan_back(as_slice(&window.upper), enough, &mut entries)?;
                let has_keys_before =
                    |next: &KeyBytes| !is_empty_range(as_slice(&window.lower), Bound::Excluded(&next[..]));
                if let Some(next) = next.filter(has_keys_before) {
                    window.end_at(next, direction);
                }
            }
        }
        let (from_key, to_key) = (as_slice(&window.lower), as_slice(&window.upper));
        let mut own = self.own_range(state, from_key, to_key, direction, OWN_WRITES_PER_BATCH + 1);
        if own.len() > OWN_WRITES_PER_BATCH
            && let Some((key, _)) = own.pop()
        {
            match direction {
                Direction::Forward => window.end_at(key, direction),
                // The next window ends before the last key of this one.
                Direction::Backward => {
                    let last = own.last().map(|(key, _)| key.clone());
                    last.into_iter().for_each(|last| window.end_at(last, direction));
                }
            }
        }
        // They are in the order of the direction.
        let end = entries.partition_point(|(key, _)| window.reaches(key, direction));
        entries.truncate(end);
        let first = entries.partition_point(|(key, _)| !window.holds(key));
        entries.drain(..first);
        if enough > 1 {
            state.pool().read_ahead(entries.iter().map(|(_, word)| PoolOffset::from_word(*word)));
        }
        self.note_range(state, || KeyRange { lower: window.lower.clone(), upper: window.upper.clone() });
        self.merge(state, &entries, &own, direction, &mut f)?;
        drop(guard);
        *from = window.next;
        Ok(from.is_some())
    }

    /// Reads a range AS OF a point in time, in either direction.
    fn scan_as_of_in(
        &self,
        state: &Arc<State>,
        (lower, upper): (Bound<KeyBytes>, Bound<KeyBytes>),
        direction: Direction,
        at: Timestamp,
        from: &mut Option<KeyBytes>,
        mut f: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        if direction == Direction::Forward {
            let lower = from.take().map_or(lower, Bound::Included);
            return self.scan_as_of(state, (lower, upper), at, from, f);
        }
        let mut found: Vec<(KeyBytes, Box<[u8]>)> = Vec::new();
        let (mut lower, mut next) = (lower, None);
        while self.scan_as_of(state, (lower.clone(), upper.clone()), at, &mut next, |key, value| {
            found.push((KeyBytes::from_slice(key), value.into()));
        })? {
            lower = next.take().map_or(lower, Bound::Included);
        }
        found.iter().rev().for_each(|(key, value)| f(key, value));
        Ok(false)
    }

    /// Delivers index entries and own writes, both in the order of the direction. The caller holds a guard
    /// since before the entries were read.
    fn merge(
        &self,
        state: &State,
        entries: &[(KeyBytes, u64)],
        own: &[(KeyBytes, Option<Box<[u8]>>)],
        direction: Direction,
        f: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let pool = state.pool();
        let snapshot = self.seen();
        let mut value = ValueBuffer::new();
        let mut own = own.iter().peekable();
        let prefetch = |word: u64| pool.prefetch(PoolOffset::from_word(word));
        entries.iter().take(PREFETCH_OBJECTS).for_each(|&(_, word)| prefetch(word));
        for (index, (key, word)) in entries.iter().enumerate() {
            let offset = PoolOffset::from_word(*word);
            if let Some(&(_, ahead)) = entries.get(index + PREFETCH_OBJECTS) {
                prefetch(ahead);
            }
            while let Some((own_key, own_value)) =
                own.next_if(|(own_key, _)| direction.is_before(own_key, key))
            {
                own_value.as_ref().inspect(|value| f(own_key, value));
            }
            if let Some((own_key, own_value)) = own.next_if(|(own_key, _)| own_key == key) {
                own_value.as_ref().inspect(|value| f(own_key, value));
                continue;
            }
            interleave::point();
            let found = if state.protocol().reads_snapshots() {
                state.copy_visible(key, offset, snapshot, &mut value)
            } else {
                state.copy_newest_at(offset, &self.context().active, &mut value)
            };
            self.check_still_open()?;
            match found {
                LookupOutcome::Value => f(key, &value),
                LookupOutcome::Nothing { dead: true } => state.dead.push_found(key),
                LookupOutcome::Nothing { dead: false } => (),
                LookupOutcome::Damaged => return Err(state.damaged(key, "a damaged MVCC object")),
            }
        }
        for (own_key, own_value) in own {
            own_value.as_ref().inspect(|value| f(own_key, value));
        }
        Ok(())
    }
}

pub(super) fn normalised(state: &State, bound: &Bound<KeyBytes>) -> Result<Bound<KeyBytes>> {
    Ok(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(state.normalise(key)?),
        Bound::Excluded(key) => Bound::Excluded(state.normalise(key)?),
    })
}
