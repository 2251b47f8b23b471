//! Bulk load: full nodes are appended behind the last.
//!
//! Each node is one publication, so a crash leaves a list with a prefix of the loaded entries.

use super::{Content, SkipList, Towers};
use crate::error::{Error, Result};
use crate::latch;
use crate::node::{Entries, FixedKey};

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Adds entries whose keys ascend and are greater than all existing ones, `fill_percent` (10 to 100) of a
    /// bucket's capacity to each node; returns their number. An error names the first key that is not
    /// greater; the entries before it are loaded.
    pub fn load(&self, entries: impl IntoIterator<Item = (K, u64)>, fill_percent: usize) -> Result<u64> {
        if !(10..=100).contains(&fill_percent) {
            return Err(Error::Invalid(format!("nodes cannot be filled to {fill_percent} percent")));
        }
        let per_node = (C::capacity::<K>() * fill_percent / 100).max(1);
        let mut node = Entries::with_capacity(per_node);
        let (mut loaded, mut previous) = (0, None);
        for (key, value) in entries {
            if previous.is_some_and(|previous| previous >= key) {
                self.append_node(&node)?;
                return Err(Error::Invalid(format!("the key {key:?} is not above the one before")));
            }
            previous = Some(key);
            node.push((key, value));
            if node.len() == per_node {
                self.append_node(&node)?;
                loaded += node.len() as u64;
                node.clear();
            }
        }
        self.append_node(&node)?;
        Ok(loaded + node.len() as u64)
    }

    fn append_node(&self, entries: &[(K, u64)]) -> Result<()> {
        let Some(&(first, _)) = entries.first() else { return Ok(()) };
        let _pinned = self.pool.pin();
        let height = self.random_height();
        let mut spins = 0;
        loop {
            let path = self.descend(first)?;
            if let Some(mut held) = self.latch_node(path.node, path.version) {
                let mut there = Entries::<K>::new();
                C::append_sorted(self.parts(path.node), &mut there);
                if path.after[0] != 0 || there.last().is_some_and(|(greatest, _)| *greatest >= first) {
                    let message = format!("the key {first:?} is not above the existing keys");
                    return Err(Error::Invalid(message));
                }
                let fresh = self.pool.reserve(Self::node_bytes(height))?;
                if self.latch_predecessors(&mut held, &path, height)
                    && held.try_add(self.latch(fresh.offset()))
                {
                    return self.link(&path, height, fresh, entries, self.pool.publication());
                }
            }
            latch::pause(&mut spins);
        }
    }
}
