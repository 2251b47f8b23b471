//! Last key of a range that a transaction sees: a scan backwards that copies one value.
//!
//! Invariant: the result is what a scan of the range would deliver last, own writes included. A serializable transaction
//! has read the keys from it on, none before it.

use crate::Result;
use crate::context::state::State;
use crate::transaction::Transaction;
use crate::transaction::scan::{Direction, KeyRange, OWN_WRITES_PER_BATCH, as_slice, behind, normalised};
use crate::transaction::write_set::is_empty_range;
use entresol_structures::KeyBytes;
use std::ops::Bound;
use std::sync::Arc;

impl Transaction {
    /// Calls `f` with the last key of a range that the transaction sees, and its value. Cost: a descent and a read, more if
    /// there are keys behind it that the transaction does not see. AS OF a point in time the range is read.
    pub fn last_in<R>(
        &self,
        state: &Arc<State>,
        range: &KeyRange,
        mut f: impl FnMut(&[u8], &[u8]) -> R,
    ) -> Result<Option<R>> {
        if self.as_of().is_some() {
            let (mut last, mut from) = (None, None);
            while last.is_none()
                && self.scan_batch_in(state, range, Direction::Backward, &mut from, |key, value| {
                    last.get_or_insert_with(|| f(key, value));
                })?
            {}
            return Ok(last);
        }
        let (lower, mut upper) = (normalised(state, &range.lower)?, normalised(state, &range.upper)?);
        let mut entries: Vec<(KeyBytes, u64)> = Vec::new();
        // The last own write is mostly enough; of deleted ones more are looked at together.
        let mut own_max = 1;
        while !is_empty_range(as_slice(&lower), as_slice(&upper)) {
            entries.clear();
            self.lock_range(state)?;
            let next = {
                let _guard = state.pool().pin();
                self.check_readable(state)?;
                state.index.scan_back(as_slice(&upper), 1, &mut entries)?
            };
            // Keys from here on are looked at now.
            let next = next.filter(|next| !is_empty_range(as_slice(&lower), Bound::Excluded(&next[..])));
            let mut begin = next.map_or_else(|| lower.clone(), Bound::Included);
            let (from, to) = (as_slice(&begin), as_slice(&upper));
            let own = self.own_range(state, from, to, Direction::Backward, own_max);
            if let Some((last, _)) = own.last().filter(|_| own.len() == own_max) {
                begin = Bound::Included(last.clone());
            }
            own_max = (own_max * 4).min(OWN_WRITES_PER_BATCH);
            entries.retain(|(key, _)| behind(key, as_slice(&begin)));
            let found = self.last_of(state, &entries, &own, &mut f)?;
            let noted =
                || found.as_ref().map_or_else(|| begin.clone(), |(key, _)| Bound::Included((*key).clone()));
            self.note_range(state, || KeyRange { lower: noted(), upper: upper.clone() });
            if let Some((_, found)) = found {
                return Ok(Some(found));
            }
            if begin == lower {
                return Ok(None);
            }
            upper = match begin {
                Bound::Included(key) => Bound::Excluded(key),
                Bound::Excluded(_) | Bound::Unbounded => return Ok(None),
            };
        }
        Ok(None)
    }

    /// Calls `f` with the first of index entries and own writes, both from the greatest key down, that is seen; returns its
    /// key too.
    fn last_of<'e, R>(
        &self,
        state: &Arc<State>,
        entries: &'e [(KeyBytes, u64)],
        own: &'e [(KeyBytes, Option<Box<[u8]>>)],
        f: &mut impl FnMut(&[u8], &[u8]) -> R,
    ) -> Result<Option<(&'e KeyBytes, R)>> {
        let mut own = own.iter().peekable();
        for (key, _) in entries {
            while let Some((own_key, value)) = own.next_if(|(own_key, _)| own_key >= key) {
                if let Some(value) = value {
                    return Ok(Some((own_key, f(own_key, value))));
                }
            }
            // It knows of own writes of this key, too.
            if let Some(found) = self.read(state, key, |value| f(key, value))? {
                return Ok(Some((key, found)));
            }
        }
        Ok(own.find_map(|(key, value)| value.as_ref().map(|value| (key, f(key, value)))))
    }
}
