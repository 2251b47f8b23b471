//! Statistics of reclamation.

pub(crate) mod dead_keys;
pub(crate) mod reclaim;
pub(crate) mod reclaimer;
pub(crate) mod vacuum;

use crate::context::StateContext;
use crate::context::state::State;
use crate::{StateId, Timestamp};
use parking_lot::MutexGuard;

/// The dead keys of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateReclamation {
    /// The state.
    pub state: StateId,
    /// Deleted keys that are still in its index, as far as is known.
    pub dead_keys: u64,
    /// Keys that were removed since it was opened.
    pub reclaimed: u64,
    /// Time of its last pass, in nanoseconds since 1970.
    pub last_pass_ns: Option<u64>,
    /// The snapshot that it waits for.
    pub held_by: Option<SnapshotHolder>,
}

/// Holder of the oldest snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHolder {
    /// Timestamp up to which it sees all commits.
    pub snapshot: Timestamp,
    /// The number of the transaction.
    pub transaction: u64,
}

/// Pause of reclamation: while it lives, no thread reclaims space.
pub struct ReclaimingPaused<'c>(#[allow(dead_code)] MutexGuard<'c, ()>);

impl StateContext {
    /// Lets the thread that reclaims space finish its slice, and pauses it: for a check of the entire
    /// database.
    pub fn pause_reclaiming(&self) -> ReclaimingPaused<'_> {
        ReclaimingPaused(self.reclaiming.lock())
    }

    /// Number of dead keys of a state that are known.
    pub fn dead_keys(&self, state: &State) -> u64 {
        state.dead.count()
    }

    /// The dead keys of all states, and the snapshots that hold them back.
    pub fn reclamation(&self) -> Vec<StateReclamation> {
        let holder = self.oldest_snapshot();
        let of = |counts: crate::reclamation::dead_keys::DeadKeyCounts, state| StateReclamation {
            state,
            dead_keys: counts.dead,
            reclaimed: counts.reclaimed,
            last_pass_ns: (counts.last_pass_ns > 0).then_some(counts.last_pass_ns),
            held_by: holder.filter(|holder| counts.ready_at.is_some_and(|at| at > holder.snapshot)),
        };
        self.states().iter().map(|state| of(state.dead.counts(), state.id())).collect()
    }

    /// The transaction with the oldest snapshot; None: there is none.
    pub fn oldest_snapshot(&self) -> Option<SnapshotHolder> {
        let (snapshot, transaction) = self.active.oldest()?;
        Some(SnapshotHolder { snapshot, transaction })
    }
}
