//! Bulk load: filled leaves are appended at the right end.
//!
//! Each leaf is one publication, so a crash leaves a tree with a prefix of the loaded entries.

use super::{BTree, LeafGuard, Placement, placement::ChildRef};
use crate::error::{Error, Result};
use crate::latch;
use crate::node::{Entries, FixedKey, Layout, Medium};
use entresol_memory::PoolOffset;
use std::sync::atomic::Ordering;

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Adds entries whose keys ascend and are greater than all existing ones, `fill_percent` (10 to 100) of a
    /// leaf's capacity to each leaf; returns their number. An error names the first key that is not greater;
    /// the entries before it are loaded.
    pub fn load(&self, entries: impl IntoIterator<Item = (K, u64)>, fill_percent: usize) -> Result<u64> {
        if !(10..=100).contains(&fill_percent) {
            return Err(Error::Invalid(format!("leaves cannot be filled to {fill_percent} percent")));
        }
        let per_leaf = (L::geometry::<K>().capacity * fill_percent / 100).max(1);
        let mut leaf = Entries::with_capacity(per_leaf);
        let (mut loaded, mut previous) = (0, None);
        for (key, value) in entries {
            if previous.is_some_and(|previous| previous >= key) {
                self.append_leaf(&leaf)?;
                return Err(Error::Invalid(format!("the key {key:?} is not above the one before")));
            }
            previous = Some(key);
            leaf.push((key, value));
            if leaf.len() == per_leaf {
                self.append_leaf(&leaf)?;
                loaded += leaf.len() as u64;
                leaf.clear();
            }
        }
        self.append_leaf(&leaf)?;
        Ok(loaded + leaf.len() as u64)
    }

    fn append_leaf(&self, entries: &[(K, u64)]) -> Result<()> {
        let Some(&(first, _)) = entries.first() else { return Ok(()) };
        let _pinned = self.pool.pin();
        let mut spins = 0;
        loop {
            let structure = self.structure.lock();
            let offset = self.last_leaf()?;
            let latch = self.leaf_latch(offset);
            // The holder of the latch may be waiting for `structure`.
            if latch::try_lock(latch) {
                let latched = LeafGuard { node: self.leaf(offset)?, offset, latch };
                return self.append_behind(&latched, first, entries);
            }
            drop(structure);
            latch::pause(&mut spins);
        }
    }

    fn append_behind(&self, last: &LeafGuard<'_>, first: K, entries: &[(K, u64)]) -> Result<()> {
        debug_assert!(
            entries.is_sorted_by(|one, next| one.0 < next.0),
            "the keys of a loaded leaf ascend from {first:?} on"
        );
        let geometry = L::geometry::<K>();
        let greatest = L::sorted::<K>(last.node).last().map(|(key, _)| *key);
        let low = (last.offset != self.first_leaf()).then(|| last.node.load_key::<K>(geometry.spare));
        if greatest.is_some_and(|key| key >= first) || low.is_some_and(|low| low > first) {
            return Err(Error::Invalid(format!("the key {first:?} is not above the existing keys")));
        }
        let mut with = self.pool.publication();
        if greatest.is_none() {
            L::append(last.node, entries, &mut Medium::Pool(&self.pool, &mut with))?;
            return Ok(with.publish()?);
        }
        let path = self.make_room(first, true)?;
        let fresh = self.pool.reserve(L::BYTES)?;
        self.fill_leaf(self.leaf(fresh.offset())?, entries, first, PoolOffset::NULL);
        let right = with.allocate(fresh).to_word();
        with.set(last.node.word_offset(geometry.next), right);
        let parent = path.last().copied();
        let _latches = self.latch_inner(parent.as_slice(), parent.is_none())?;
        self.publish_with_inner(with, |with| self.link(parent, last.offset.to_word(), (first, right), with))
    }

    /// Returns the last leaf. The caller holds `structure`.
    fn last_leaf(&self) -> Result<PoolOffset> {
        let mut word = self.root.load(Ordering::Acquire);
        loop {
            match ChildRef::decode(word) {
                ChildRef::Leaf(leaf) => {
                    self.leaf(leaf)?;
                    return Ok(leaf);
                }
                ChildRef::Inner(reference) => {
                    let node = self.inner(reference)?;
                    let last = I::sorted::<K>(node).last().map(|(_, word)| *word);
                    word = last.unwrap_or(node.load(I::geometry::<K>().spare));
                }
            }
        }
    }
}
