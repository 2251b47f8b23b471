//! The history of a state: what its keys had before, for readers of the past (`AS OF`).
//!
//! ```text
//! history index   (key, CTS descending) ──▶  DTS | CTS | length | value...
//! ```
//! The commit that ends a version puts a copy of it here, with its own timestamp as the end, before it is whole itself. So
//! at every moment each version that has ended since the history began, and not before its horizon, is here, whatever
//! becomes of its slot: slots, old versions and dead keys are given back as ever. What has not ended is in the objects.
//!
//! # Invariants
//! - A record is here before a newer version lies in front of its own in a chain, before its commit is whole, and so before
//!   any slot of that version is used again. Who
//!   reads the past looks at the object first, then here ([`crate::past`]).
//! - The first record of a key at or before `t` is the only one that can hold what was there at `t`.
//! - No timestamp at or above the horizon is refused, none below it is answered. The horizon is persistent before
//!   anything goes that ended up to it.
//!
//! # What a crash leaves
//! Records of a commit that did not finish: their end is an invalid timestamp, so they never count. The version is still the
//! current one; whoever ends it later finds such a record and corrects its end, in place. Pruning and scrubs
//! take out those that nobody came back to.
//!
//! # Cost
//! A commit pays a copy and a publication for each version that it ends. A version takes 24 bytes, its value and an entry
//! of the index, until `kept_ns` after its end; pruning looks at all records in rounds ([`PRUNE_ROUNDS`] while one is
//! kept). Memory: the inner nodes of the index.

mod clock;
mod keep;
mod keys;
mod prune;
mod record;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use entresol_memory::Pool;
use entresol_structures::{KeyBytes, KeyWidth, OrderedIndex};
use parking_lot::Mutex;

pub(crate) use clock::utc;
pub(crate) use keys::HistoryKeys;
pub use prune::PRUNE_ROUNDS;
use prune::Round;
pub(crate) use record::{Ending, Record, Superseded};

use crate::directory::{HistoryEntry, StateEntry};
use crate::invalid_ranges::InvalidRanges;
use crate::value_buffer::ValueBuffer;
use crate::{Result, StateId, Timestamp};

/// How many entries of a history are fetched in one go.
const FETCHED: usize = 64;

/// What can be asked of a state's past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryBounds {
    /// The oldest timestamp that can be read.
    pub horizon: Timestamp,
    /// How long what has ended is kept at least; None: for ever.
    pub kept: Option<Duration>,
}

/// See the [module](self).
pub(crate) struct History {
    pub(crate) id: StateId,
    pub(crate) root: u64,
    pub(crate) index: OrderedIndex,
    keys: HistoryKeys,
    horizon: AtomicU64,
    kept_ns: AtomicU64,
    round: Mutex<Round>,
    /// When the next round of pruning is due.
    prune_at_ns: AtomicU64,
}

/// What a walk over a history found to be there at its moment.
pub(crate) struct Seen {
    /// Keys with the offset of their record, ascending.
    pub(crate) records: Vec<(KeyBytes, u64)>,
    /// The key at which the walk was cut off because there were too many.
    pub(crate) cut_at: Option<KeyBytes>,
}

impl History {
    pub(crate) fn open(
        pool: &Arc<Pool>,
        entry: &StateEntry,
        history: &HistoryEntry,
        base: KeyWidth,
    ) -> Result<Arc<History>> {
        assert_eq!(entry.id, history.id, "the entry of the history's own state");
        Ok(Arc::new(History {
            id: entry.id,
            root: entry.root,
            index: OrderedIndex::open(pool, entry.root)?,
            keys: HistoryKeys::of(base),
            horizon: AtomicU64::new(history.horizon),
            kept_ns: AtomicU64::new(history.kept_ns),
            round: Mutex::default(),
            prune_at_ns: AtomicU64::new(0),
        }))
    }

    pub(crate) fn keys(&self) -> HistoryKeys {
        self.keys
    }

    pub(crate) fn horizon(&self) -> Timestamp {
        self.horizon.load(Ordering::SeqCst)
    }

    pub(crate) fn bounds(&self) -> HistoryBounds {
        let kept_ns = self.kept_ns.load(Ordering::Acquire);
        let kept = (kept_ns != u64::MAX).then(|| Duration::from_nanos(kept_ns));
        HistoryBounds { horizon: self.horizon(), kept }
    }

    pub(crate) fn set_kept(&self, kept_ns: u64) {
        self.kept_ns.store(kept_ns, Ordering::Release);
        self.prune_at_ns.store(0, Ordering::Release);
    }

    /// Copies what the key had at a moment, if that has ended since. The caller holds a guard; the key is normalised.
    /// Err: an offset where no record can be.
    pub(crate) fn copy_at(
        &self,
        pool: &Pool,
        key: &[u8],
        at: Timestamp,
        invalid: &InvalidRanges,
        value: &mut ValueBuffer,
    ) -> Result<std::result::Result<bool, u64>> {
        // A key that does not fit was never written.
        let Some(from) = self.keys.encode(key, at) else { return Ok(Ok(false)) };
        let mut entries = Vec::new();
        self.index.scan(Bound::Included(&from), 1, &mut entries)?;
        let Some((found, offset)) = entries.first() else { return Ok(Ok(false)) };
        if self.keys.decode(found).is_none_or(|(of, _)| of[..] != *key) {
            return Ok(Ok(false));
        }
        let Some(record) = Record::try_open(pool, *offset) else { return Ok(Err(*offset)) };
        let counts = record.holds_at(at, invalid);
        if counts {
            record.copy_value(value);
        }
        Ok(Ok(counts))
    }

    /// The records of keys within bounds that hold what was there at a moment, at most `max`. The caller holds a guard since
    /// before it looked at anything else of those keys.
    pub(crate) fn seen_at(
        &self,
        pool: &Pool,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        at: Timestamp,
        invalid: &InvalidRanges,
        max: usize,
    ) -> Result<std::result::Result<Seen, u64>> {
        let mut seen = Seen { records: Vec::new(), cut_at: None };
        let Some(first) = self.keys.first_of(lower) else { return Ok(Ok(seen)) };
        let mut from = first;
        let mut entries = Vec::new();
        // The last key of which the record was met that decides.
        let mut decided: Option<KeyBytes> = None;
        loop {
            entries.clear();
            let next = self.index.scan(from.as_ref().map(|key| &key[..]), FETCHED, &mut entries)?;
            for (entry, offset) in &entries {
                let Some((key, cts)) = self.keys.decode(entry) else { return Ok(Err(*offset)) };
                if !keys::reaches(&key, upper) {
                    return Ok(Ok(seen));
                }
                if cts > at || decided.as_ref() == Some(&key) {
                    continue;
                }
                let Some(record) = Record::try_open(pool, *offset) else { return Ok(Err(*offset)) };
                if record.holds_at(at, invalid) {
                    if seen.records.len() == max {
                        seen.cut_at = Some(key);
                        return Ok(Ok(seen));
                    }
                    seen.records.push((key.clone(), *offset));
                }
                decided = Some(key);
            }
            let Some(next) = next else { return Ok(Ok(seen)) };
            from = self.skip(next, at, decided.as_ref());
        }
    }

    /// Where a walk goes on whose next entry this is: versions that cannot be what it looks for are passed over.
    fn skip(&self, next: KeyBytes, at: Timestamp, decided: Option<&KeyBytes>) -> Bound<KeyBytes> {
        let Some((key, cts)) = self.keys.decode(&next) else { return Bound::Included(next) };
        let passed = match decided == Some(&key) {
            true => self.keys.encode(&key, 0).map(Bound::Excluded),
            false if cts > at => self.keys.encode(&key, at).map(Bound::Included),
            false => None,
        };
        passed.unwrap_or(Bound::Included(next))
    }
}
