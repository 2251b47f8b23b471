//! Insertion and removal of nodes, and their latches.

use super::descent::{TowerPath, meta};
use super::{Content, FORWARD, LEVELS_MAX, LOW, META, Parts, SkipList, Towers, check_carried};
use crate::error::{Error, Result};
use crate::latch::LatchSet;
use crate::node::{Entries, FixedKey, Medium, Node};
use crate::points::{
    BUCKET_SPLIT_IN_ONE, LEVELS_TOGETHER, LINK_AROUND, LINK_AROUND_WITH_ITS_FREEING, LIST_NODE,
    NODE_WITH_ITS_LINK,
};
use entresol_memory::{PoolOffset, Publication};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Latches a node, if it is unchanged.
    pub(super) fn latch_node(&self, node: PoolOffset, version: u64) -> Option<LatchSet<'_>> {
        LatchSet::at(self.latch(node), version)
    }

    /// Returns true if a node is linked. The caller holds its latch.
    fn is_linked(&self, node: PoolOffset) -> bool {
        self.pool.word(node.word(META)).load(Acquire) != 0
    }

    /// Latches the predecessors on the levels above 0 of a node of this height, if they still lead where the
    /// path says.
    pub(super) fn latch_predecessors<'t>(
        &'t self,
        held: &mut LatchSet<'t>,
        path: &TowerPath,
        height: usize,
    ) -> bool {
        (1..height).all(|level| {
            let (before, after) = (path.before[level], path.after[level]);
            let node = self.node_of(before);
            held.try_add(self.latch(node))
                && self.is_linked(node)
                && self.forward(before, level).is_ok_and(|forward| forward == after)
        })
    }

    /// Returns the offset of the pointer of a level in a node.
    fn forward_word(node: PoolOffset, level: usize) -> PoolOffset {
        node.word(FORWARD + level)
    }

    /// Returns the number of levels of a node of this height that are in the pool.
    fn levels_in_pool(height: usize) -> usize {
        if T::PERSISTENT { height } else { 1 }
    }

    /// Returns the bytes of a node of this height.
    pub(super) fn node_bytes(height: usize) -> usize {
        C::head_bytes(Self::levels_in_pool(height)) + C::BYTES
    }

    /// Makes room for a key beside a full node, which is latched with its predecessors: a node of its own,
    /// with the key (true), or the upper half of the node in another. False also on a conflict with another
    /// writer.
    pub(super) fn grow<'p>(
        &'p self,
        held: &mut LatchSet<'p>,
        path: &TowerPath,
        height: usize,
        (key, value): (K, &mut dyn FnMut(&mut Publication<'p>) -> u64),
        with: &mut Option<Publication<'p>>,
    ) -> Result<bool> {
        let parts = self.parts(path.node);
        let mut entries = Entries::new();
        C::append_sorted(parts, &mut entries);
        let fresh = self.pool.reserve(Self::node_bytes(height))?;
        // Readers that reach it from above wait until it is durable.
        if !held.try_add(self.latch(fresh.offset())) {
            return Ok(false);
        }
        // Ascending keys fill the nodes.
        if entries.last().is_none_or(|(greatest, _)| *greatest < key) {
            let mut with = with.take().expect("it is published once");
            let value = value(&mut with);
            check_carried(&with)?;
            self.link(path, height, fresh, &[(key, value)], with)?;
            return Ok(true);
        }
        if entries.len() < 2 {
            let message = "it is full, but has fewer than two entries".to_string();
            return Err(Error::Corrupt { offset: path.node, message });
        }
        let keep = entries.len() / 2;
        let mut split = self.pool.publication();
        C::truncate(parts, &entries, keep, &mut Medium::Pool(&self.pool, &mut split))?;
        split.barrier(BUCKET_SPLIT_IN_ONE);
        self.link(path, height, fresh, &entries[keep..], split)?;
        Ok(false)
    }

    /// Fills a fresh node and publishes it after the path. All changed nodes are latched.
    pub(super) fn link<'p>(
        &'p self,
        path: &TowerPath,
        height: usize,
        fresh: entresol_memory::Reservation<'p>,
        entries: &[(K, u64)],
        mut with: Publication<'p>,
    ) -> Result<()> {
        let (offset, low) = (fresh.offset(), entries[0].0);
        let in_pool = Self::levels_in_pool(height);
        debug_assert!(
            self.pool.word(Self::forward_word(path.node, 0)).load(Acquire) == path.after[0]
                && (1..height).all(|level| {
                    self.forward(path.before[level], level).is_ok_and(|forward| forward == path.after[level])
                }),
            "nothing was linked between the latched nodes of the path"
        );
        self.fill(offset, in_pool, low, entries);
        for level in 0..in_pool {
            self.pool.word(Self::forward_word(offset, level)).store(path.after[level], Release);
        }
        self.pool.flush_at(offset, C::head_bytes(in_pool) + C::BYTES, LIST_NODE);
        with.allocate(fresh);
        with.barrier(NODE_WITH_ITS_LINK);
        with.set(Self::forward_word(path.node, 0), offset.to_word());
        for level in 1..in_pool {
            with.set(Self::forward_word(self.node_of(path.before[level]), level), offset.to_word());
        }
        with.publish()?;
        if !T::PERSISTENT && height > 1 {
            let tower = self.arena.allocate(offset, low, height);
            for level in 1..height {
                self.arena.forward(tower, level).store(path.after[level], Release);
            }
            for level in 1..height {
                self.arena.forward(path.before[level], level).store(tower, Release);
            }
        }
        self.levels.fetch_max(height, AcqRel);
        Ok(())
    }

    /// Fills an unreachable node, with null pointers. The caller flushes it.
    pub(super) fn fill(&self, offset: PoolOffset, in_pool: usize, low: K, entries: &[(K, u64)]) {
        let head_bytes = C::head_bytes(in_pool);
        assert!(
            offset.is_aligned(64) && (1..=LEVELS_MAX).contains(&in_pool),
            "a node of {in_pool} levels may lie at {offset:#x}"
        );
        let words = self.pool.words(offset, head_bytes / 8);
        let head = Node::new(words, offset);
        (0..words.len()).for_each(|word| head.store(word, 0));
        head.store(META, meta(low, in_pool));
        head.store_key(LOW, low);
        let body: &[AtomicU64] = match C::BYTES {
            0 => &[],
            bytes => self.pool.words(offset.plus(head_bytes as u64), bytes / 8),
        };
        C::fill(Parts { head, body: Node::new(body, offset.plus(head_bytes as u64)), holds: true }, entries);
    }

    /// Unlinks and frees the node with this low key, whose only key is `key`, in the publication `with`.
    /// Returns the key's value, or that it is missing; nothing on a conflict with another writer, or if the
    /// node has got more entries.
    pub(super) fn try_unlink<'p>(
        &'p self,
        low: K,
        key: K,
        with: &mut Option<Publication<'p>>,
    ) -> Result<Option<Option<u64>>> {
        let path = self.descend_to(low, true)?;
        let removed = PoolOffset::from_word(path.after[0]);
        if removed.is_null() || self.head_words(removed)?.load_key::<K>(LOW) != low {
            return Ok((C::BYTES == 0).then_some(None));
        }
        let leads_there =
            |level: &usize| path.after[*level] != 0 && self.node_of(path.after[*level]) == removed;
        let height = 1 + (1..LEVELS_MAX).take_while(leads_there).count();
        let Some(mut held) = self.latch_node(path.node, path.version) else { return Ok(None) };
        if !held.try_add(self.latch(removed)) || !self.latch_predecessors(&mut held, &path, height) {
            return Ok(None);
        }
        let parts = self.parts(removed);
        // Its tower may have been incomplete when the path was read; now that it is latched, it is complete.
        // And other threads write to buckets.
        let is_complete = height == self.height_of(removed, low)?;
        let Some((_, old)) = C::find(parts, key) else { return Ok(None) };
        if !is_complete || C::count::<K>(parts) != 1 {
            return Ok(None);
        }
        let tower = path.after[1];
        debug_assert!(removed != self.head && removed != path.node, "the head stays, and a node before it");
        if !T::PERSISTENT {
            for level in (1..height).rev() {
                let behind = self.arena.forward(tower, level).load(Acquire);
                self.arena.forward(path.before[level], level).store(behind, Release);
            }
        }
        let with = with.take().expect("it is published once");
        self.publish_unlinked(&path, removed, Self::levels_in_pool(height), with)?;
        // First the count, then the mark: a reader of the mark sees the count.
        self.unlinked.fetch_add(1, AcqRel);
        self.pool.word(removed.word(META)).store(0, Release);
        if !T::PERSISTENT && height > 1 {
            self.arena.release(tower, height, &self.pool.pin());
        }
        Ok(Some(Some(old)))
    }

    /// Returns the height of a node, which the caller has latched.
    fn height_of(&self, node: PoolOffset, low: K) -> Result<usize> {
        if T::PERSISTENT {
            return Ok((self.pool.word(node.word(META)).load(Acquire) & 0xFF) as usize);
        }
        let (mut tower, mut height) = (self.head_tower(), 1);
        for level in (1..self.levels.load(Acquire)).rev() {
            let mut next = self.forward(tower, level)?;
            while next != 0 && self.arena.low::<K>(next) < low {
                tower = next;
                next = self.forward(tower, level)?;
            }
            if next != 0 && height == 1 && self.node_of(next) == node {
                height = level + 1;
            }
        }
        Ok(height)
    }

    fn publish_unlinked<'p>(
        &'p self,
        path: &TowerPath,
        removed: PoolOffset,
        in_pool: usize,
        mut with: Publication<'p>,
    ) -> Result<()> {
        debug_assert_eq!(
            self.pool.word(Self::forward_word(path.node, 0)).load(Acquire),
            removed.to_word(),
            "the node that goes is the next of the one before"
        );
        with.free(removed);
        with.barrier(LINK_AROUND_WITH_ITS_FREEING);
        for level in 0..in_pool {
            let before = if level == 0 { path.node } else { self.node_of(path.before[level]) };
            let behind = self.pool.word(Self::forward_word(removed, level)).load(Acquire);
            if level == 1 {
                with.barrier(LEVELS_TOGETHER);
            }
            with.set_at(Self::forward_word(before, level), behind, LINK_AROUND);
        }
        with.publish()?;
        Ok(())
    }
}
