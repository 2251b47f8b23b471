//! The version history of a state: earlier versions of its keys, for time travel (`AS OF`).
//!
//! ```text
//! history index   (key, CTS descending) ──▶  DTS | CTS | length | value...
//! ```
//! The commit that ends a version puts a copy of it here, with its own timestamp as the end, before it is
//! complete itself. So at any time each version that has ended since the history began, and not before its
//! horizon, is here, whatever becomes of its slot: slots, old versions and dead keys are reclaimed as always.
//! Versions that have not ended are in the objects.
//!
//! # Invariants
//! - A record is here before a newer version lies in front of its own in a chain, before its commit is
//!   complete, and so before any slot of that version is used again. An AS OF reader loads the object first,
//!   then the history ([`crate::past`]).
//! - The first record of a key at or before `t` is the only one that can hold what was there at `t`.
//! - A key that the state's index has lost had no version at `removed_up_to` or later.
//! - No timestamp at or above the horizon is refused, none below it is answered. The horizon is persistent
//!   before any record is removed that ended up to it.
//!
//! # What a crash leaves
//! Records of a commit that did not finish: their end is an invalid timestamp, so they never count. The
//! version is still the current one; a later commit that ends it finds such a record and corrects its end, in
//! place. Pruning and scrubs remove the others.
//!
//! # Cost
//! A commit pays a copy of each version that it ends, and a publication for some twenty of them. A version
//! takes 24 bytes, its value and an entry of the index, until `retention_ns` after its end; pruning visits
//! all records in rounds ([`PRUNE_ROUNDS`] per retention time). Memory: the inner nodes of the index.

pub(crate) mod as_of;
mod clock;
mod keys;
mod lookup;
mod prune;
mod record;
mod retention;
pub(crate) mod trusted_clock;

use entresol_memory::{Pool, PoolOffset};
use entresol_structures::{KeyWidth, OrderedIndex};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use clock::utc;
pub(crate) use keys::HistoryKeys;
pub(crate) use lookup::{KnownKey, LookupRange};
pub use prune::PRUNE_ROUNDS;
use prune::Round;
pub(crate) use record::{EndedVersion, Record, VersionLocation};

use crate::context::directory::{HistoryEntry, StateEntry};
use crate::{AtomicTimestamp, INFINITY, Result, StateId, Timestamp};

/// Readable part of a state's version history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryBounds {
    /// The oldest timestamp that can be read.
    pub horizon: Timestamp,
    /// Minimum retention of versions after their end; None: for ever.
    pub kept: Option<Duration>,
}

/// See the [module](self).
pub(crate) struct History {
    pub(crate) id: StateId,
    pub(crate) root: PoolOffset,
    pub(crate) index: OrderedIndex,
    /// Pool of its state.
    pub(crate) pool: Arc<Pool>,
    keys: HistoryKeys,
    horizon: AtomicTimestamp,
    retention_ns: AtomicU64,
    round: Mutex<Round>,
    /// Clock time at which the next round of pruning is due.
    prune_at_ns: AtomicU64,
    /// Timestamp by which all that was removed from the state's index had ended. Volatile: after opening, all
    /// that could have.
    removed_up_to: AtomicTimestamp,
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
            pool: Arc::clone(pool),
            keys: HistoryKeys::of(base),
            horizon: AtomicTimestamp::new(history.horizon),
            retention_ns: AtomicU64::new(history.retention_ns),
            round: Mutex::default(),
            prune_at_ns: AtomicU64::new(0),
            removed_up_to: AtomicTimestamp::new(INFINITY),
        }))
    }

    pub(crate) fn keys(&self) -> HistoryKeys {
        self.keys
    }

    pub(crate) fn horizon(&self) -> Timestamp {
        self.horizon.load(Ordering::SeqCst)
    }

    pub(crate) fn bounds(&self) -> HistoryBounds {
        let retention_ns = self.retention_ns.load(Ordering::Acquire);
        let kept = (retention_ns != u64::MAX).then(|| Duration::from_nanos(retention_ns));
        HistoryBounds { horizon: self.horizon(), kept }
    }

    pub(crate) fn set_retention(&self, retention_ns: u64) {
        self.retention_ns.store(retention_ns, Ordering::Release);
        self.prune_at_ns.store(0, Ordering::Release);
    }
}
