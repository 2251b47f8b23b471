//! Batches of look-ups and writes, each key after the other. Each write is failure-atomic on its own, so a crash leaves
//! those of some first keys.

use super::{Content, SkipList, Towers};
use crate::error::Result;
use crate::node::FixedKey;
use crate::{Change, Inserted};
use entresol_memory::Publication;

/// Keys that are written between two looks whether the pool has room for them.
const GROUP: usize = 32;

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Returns the values of keys; `values` is cleared first.
    pub fn get_many(&self, keys: &[K], values: &mut Vec<Option<u64>>) -> Result<()> {
        values.clear();
        values.reserve(keys.len());
        let _pinned = self.pool.pin();
        for key in keys {
            values.push(self.get(*key)?);
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
        for (place, key) in keys.iter().enumerate() {
            if place % GROUP == 0 {
                self.pool.wait_for_room();
            }
            let mut value = |with: &mut Publication<'p>| carried(place, with);
            if let Inserted::Exists(value) = self.insert_with(*key, self.pool.publication(), &mut value)? {
                existing(place, value);
            }
        }
        Ok(())
    }

    /// Applies changes in order, each failure-atomic on its own; `before` is cleared and gets the previous
    /// value of each key. After an error it holds as many values as changes were applied.
    pub fn apply_many(&self, changes: &[(K, Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        before.clear();
        before.reserve(changes.len());
        for (place, (key, change)) in changes.iter().enumerate() {
            if place % GROUP == 0 {
                self.pool.wait_for_room();
            }
            let with = self.pool.publication();
            before.push(match *change {
                Change::Insert(value) => self.insert(*key, value, with)?.before(),
                Change::Replace(value) => self.update(*key, value, with)?,
                Change::Remove => self.remove(*key, with)?,
            });
        }
        Ok(())
    }
}
