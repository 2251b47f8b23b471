//! Scanning a state in key order, one leaf of the index at a time, with the transaction's own writes merged
//! in.
//!
//! Invariant: a batch covers a window of keys from where the last one ended; every key of the window that the
//! transaction sees is delivered exactly once, in order, own writes in place of what the snapshot has. Dead
//! keys that a scan finds are handed to the vacuum.
//!
//! Memory: one leaf's entries and at most [`OWN_WRITES_PER_BATCH`] own writes.

use crate::context::state::{LookupOutcome, State};
use crate::mvcc::value_buffer::ValueBuffer;
use crate::transaction::Transaction;
use crate::transaction::write_set::is_empty_range;
use crate::{Result, interleave};
use entresol_structures::KeyBytes;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of the transaction's own writes that one batch may merge in; the window ends before the
/// next one.
const OWN_WRITES_PER_BATCH: usize = 1024;

/// Number of objects that a scan prefetches ahead.
pub(crate) const PREFETCH_OBJECTS: usize = 8;

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

    /// Tells whether a key does not lie before the range. Bounds and key are normalised.
    pub(crate) fn begins_before(&self, key: &[u8]) -> bool {
        match as_slice(&self.lower) {
            Bound::Unbounded => true,
            Bound::Included(lower) => key >= lower,
            Bound::Excluded(lower) => key > lower,
        }
    }

    /// Tells whether a key does not lie behind the range. Bounds and key are normalised.
    pub(crate) fn reaches(&self, key: &[u8]) -> bool {
        within(key, as_slice(&self.upper))
    }
}

fn as_slice(bound: &Bound<KeyBytes>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

fn within(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
    }
}

/// End of a batch, and position of the next one.
struct Window {
    upper: Bound<KeyBytes>,
    next: Option<KeyBytes>,
}

impl Transaction {
    /// Calls `f` with the keys and values of one part of the range, in key order, and returns whether there
    /// is more. `from` is the position to go on at: None at first, then as the call before left it.
    pub fn scan_batch(
        &self,
        state: &Arc<State>,
        range: &KeyRange,
        from: &mut Option<KeyBytes>,
        mut f: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        let lower = match from.take() {
            Some(key) => Bound::Included(key),
            None => normalised(state, &range.lower)?,
        };
        let upper = normalised(state, &range.upper)?;
        if let Some(at) = self.as_of() {
            return self.scan_as_of(state, (lower, upper), at, from, f);
        }
        if is_empty_range(as_slice(&lower), as_slice(&upper)) {
            return Ok(false);
        }
        let mut entries = Vec::new();
        self.lock_range(state)?;
        let guard = state.pool().pin();
        self.check_readable(state)?;
        let next = state.index.scan_batch(as_slice(&lower), &mut entries)?;
        let mut window = match next {
            Some(next) if within(&next, as_slice(&upper)) => {
                Window { upper: Bound::Excluded(next.clone()), next: Some(next) }
            }
            _ => Window { upper, next: None },
        };
        let mut own =
            self.own_range(state, as_slice(&lower), as_slice(&window.upper), OWN_WRITES_PER_BATCH + 1);
        if own.len() > OWN_WRITES_PER_BATCH
            && let Some((key, _)) = own.pop()
        {
            window = Window { upper: Bound::Excluded(key.clone()), next: Some(key) };
        }
        entries.retain(|(key, _)| within(key, as_slice(&window.upper)));
        self.note_range(state, || KeyRange { lower, upper: window.upper.clone() });
        self.merge(state, &entries, &own, &mut f)?;
        drop(guard);
        *from = window.next;
        Ok(from.is_some())
    }

    /// Delivers index entries and own writes in key order. The caller holds a guard since before the entries
    /// were read.
    fn merge(
        &self,
        state: &State,
        entries: &[(KeyBytes, u64)],
        own: &[(KeyBytes, Option<Box<[u8]>>)],
        f: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let pool = state.pool();
        let snapshot = self.seen();
        let mut value = ValueBuffer::new();
        let mut own = own.iter().peekable();
        entries.iter().take(PREFETCH_OBJECTS).for_each(|&(_, offset)| pool.prefetch(offset));
        for (index, (key, offset)) in entries.iter().enumerate() {
            if let Some(&(_, ahead)) = entries.get(index + PREFETCH_OBJECTS) {
                pool.prefetch(ahead);
            }
            while let Some((own_key, own_value)) = own.next_if(|(own_key, _)| own_key < key) {
                own_value.as_ref().inspect(|value| f(own_key, value));
            }
            if let Some((own_key, own_value)) = own.next_if(|(own_key, _)| own_key == key) {
                own_value.as_ref().inspect(|value| f(own_key, value));
                continue;
            }
            interleave::point();
            let found = if state.protocol().reads_snapshots() {
                state.copy_visible(key, *offset, snapshot, &mut value)
            } else {
                state.copy_newest_at(*offset, &self.context().active, &mut value)
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

fn normalised(state: &State, bound: &Bound<KeyBytes>) -> Result<Bound<KeyBytes>> {
    Ok(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(state.normalise(key)?),
        Bound::Excluded(key) => Bound::Excluded(state.normalise(key)?),
    })
}
