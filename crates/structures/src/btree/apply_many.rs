//! Batched writes of many keys, each failure-atomic on its own.
//!
//! The keys of a group descend together ([`super::batch`]) and prefetch what their writes will read. Then they
//! are written one after the other, in order, each with a publication of its own, as single writes are: a crash
//! leaves a prefix of them.
//!
//! A key whose leaf has changed meanwhile, mostly by a key of the same group, descends again alone.

use super::batch::{GROUP, LookupState};
use super::placement::ChildRef;
use super::{BTree, LeafGuard, Placement};
use crate::error::Result;
use crate::latch;
use crate::node::{FixedKey, Layout};
use crate::{Change, Inserted};
use entresol_memory::Publication;
use smallvec::SmallVec;

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Applies changes in order, each failure-atomic on its own; `before` is cleared and gets the previous
    /// value of each key. After an error it holds as many values as changes were applied.
    pub fn apply_many(&self, changes: &[(K, Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        before.clear();
        before.reserve(changes.len());
        for group in changes.chunks(GROUP) {
            let keys: SmallVec<[K; GROUP]> = group.iter().map(|(key, _)| *key).collect();
            self.pool.wait_for_room();
            let _pinned = self.pool.pin();
            // Before the first latch: the holder of a latch must not wait for a version.
            let states = self.descend_group(&keys);
            for (&(key, change), state) in group.iter().zip(&states) {
                before.push(self.apply_at(self.latch_found(key, state)?, key, change)?);
            }
        }
        Ok(())
    }

    /// Adds distinct keys in order, each failure-atomic together with the updates that it carries. `carried` is
    /// called with the index of a key once it is known to be new; it returns the value and adds updates to the
    /// publication. `existing` is called with those that exist already, and their values. After an error some of
    /// the keys are added.
    pub fn insert_many<'p>(
        &'p self,
        keys: &[K],
        mut carried: impl FnMut(usize, &mut Publication<'p>) -> u64,
        mut existing: impl FnMut(usize, u64),
    ) -> Result<()> {
        for (number, group) in keys.chunks(GROUP).enumerate() {
            self.pool.wait_for_room();
            let _pinned = self.pool.pin();
            let states = self.descend_group(group);
            for (place, (&key, state)) in group.iter().zip(&states).enumerate() {
                let place = number * GROUP + place;
                let latched = self.latch_found(key, state)?;
                let value = |with: &mut Publication<'p>| carried(place, with);
                if let Inserted::Exists(value) =
                    self.insert_at(latched, key, self.pool.publication(), value)?
                {
                    existing(place, value);
                }
            }
        }
        Ok(())
    }

    fn apply_at<'p>(&'p self, latched: LeafGuard<'p>, key: K, change: Change) -> Result<Option<u64>> {
        let with = self.pool.publication();
        match change {
            Change::Insert(value) => Ok(self.insert_at(latched, key, with, |_| value)?.before()),
            Change::Replace(value) => self.update_at(&latched, key, value, with),
            Change::Remove => self.remove_at(latched, key, with),
        }
    }

    /// Latches the leaf of a key as its descent found it, or after another one.
    fn latch_found<'p>(&'p self, key: K, state: &LookupState<'p>) -> Result<LeafGuard<'p>> {
        if let (ChildRef::Leaf(offset), false) = (ChildRef::decode(state.word), state.lost)
            && latch::try_lock_at(state.own, state.version)
        {
            let latched = |node| LeafGuard { node, offset, latch: state.own };
            return self.leaf(offset).map(latched).inspect_err(|_| latch::unlock(state.own));
        }
        self.lock_leaf(key)
    }
}
