//! Reads of the newest commits, for protocols without snapshots (S2PL, BOCC).
//!
//! These readers are not registered with a snapshot, so a slot may be rewritten while they copy it: when
//! `visible` has passed the end of its version. So they check again: a copied value counts if its slot still
//! has the same version, and "nothing" counts if `visible` did not move meanwhile. Each attempt takes less
//! time than a commit, so there are few.
//!
//! The values they read were visible, hence durable as their committer asked, at some time during the call.

use crate::context::state::{LookupOutcome, State};
use crate::mvcc::object::VersionedObject;
use crate::mvcc::value_buffer::ValueBuffer;
use crate::visibility::active::ActiveTransactions;
use crate::visibility::snapshot::{Class, Snapshot};
use crate::{Result, Timestamp};
use entresol_memory::PoolOffset;
use std::sync::atomic::{Ordering, fence};

impl State {
    /// Copies the newest visible version under a key. The caller holds a guard.
    pub(crate) fn copy_newest(
        &self,
        key: &[u8],
        active: &ActiveTransactions,
        value: &mut ValueBuffer,
    ) -> Result<LookupOutcome> {
        loop {
            // Before the lookup: an object that is replaced later has all that is visible now.
            let now = active.visible(Class::Slow);
            let Some(word) = self.index.get(key)? else {
                return Ok(LookupOutcome::Nothing { dead: false });
            };
            if let Some(found) = self.try_copy_newest(PoolOffset::from_word(word), now, active, value) {
                return Ok(found);
            }
        }
    }

    /// The same of an object that the index led to.
    pub(crate) fn copy_newest_at(
        &self,
        offset: PoolOffset,
        active: &ActiveTransactions,
        value: &mut ValueBuffer,
    ) -> LookupOutcome {
        loop {
            if let Some(found) = self.try_copy_newest(offset, active.visible(Class::Slow), active, value) {
                return found;
            }
        }
    }

    /// None: a commit wrote meanwhile.
    fn try_copy_newest(
        &self,
        offset: PoolOffset,
        now: Timestamp,
        active: &ActiveTransactions,
        value: &mut ValueBuffer,
    ) -> Option<LookupOutcome> {
        let Some(object) = VersionedObject::try_open(self.pool(), offset) else {
            return Some(LookupOutcome::Damaged);
        };
        let Some(slot) = object.visible(Snapshot::at(now), &self.group.invalid) else {
            fence(Ordering::Acquire);
            let dead = object.seems_dead(Snapshot::at(now), &self.group.invalid);
            return (active.visible(Class::Slow) == now).then_some(LookupOutcome::Nothing { dead });
        };
        // A slot that was rewritten since has a CTS that is not visible yet.
        let cts = object.cts(slot);
        let whole = object.copy_value(slot, value);
        let found = if whole { LookupOutcome::Value } else { LookupOutcome::Damaged };
        (cts <= now && object.is_still(slot, cts)).then_some(found)
    }
}
