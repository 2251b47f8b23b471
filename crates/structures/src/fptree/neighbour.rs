//! Rebalancing: a full leaf moves entries to a neighbour that has room, and is split only if none has.
//!
//! Random inserts then leave leaves three quarters to four fifths full, not ln 2 of full, and inserts in
//! order do too. Only neighbours below the same inner node are used: a separator between them is in that node
//! alone, and no entry of the sparse index names their leaf, since those name first leaves
//! ([`sparse`](super::sparse)).
//!
//! One publication moves the entries: the neighbour's bitmap gets them, the leaf's loses them, and the low
//! key between the two changes. The entries are flushed before, into invalid slots. So a crash leaves every
//! key in one of the two, with a low key that agrees.
//!
//! Moving is off where every line is written back by an instruction of its own ([`pays_on`]): there a move
//! costs more than the split that it saves, and wears the medium.
//!
//! Threads: both leaves are latched, the second one only if its latch is free (else the leaf is split), and
//! the structure lock is held. A leaf's low key changes under its own latch and that of the leaf before it.

use super::inner::Child;
use super::{FpTree, LatchedLeaf};
use crate::error::Result;
use crate::key::TreeKey;
use crate::latch::{self, LatchSet};
use crate::leaf::{BITMAP_WORD, Leaf};
use crate::points::{LOW_KEY_MOVES, MOVE_IN_ONE};
use entresol_memory::DomainKind;
use entresol_memory::order::step;

/// Side of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Returns true if moving entries to neighbours pays on a domain. On persistent memory an insert would take a
/// fifth longer.
pub(super) fn pays_on(domain: DomainKind) -> bool {
    match domain {
        DomainKind::Dax | DomainKind::DaxEmulated => false,
        #[cfg(feature = "testkit")]
        DomainKind::Modelled => false,
        _ => true,
    }
}

impl<K: TreeKey> FpTree<K> {
    /// Least number of free slots of a neighbour that entries are moved to: with fewer the neighbour would
    /// soon be full, and moving a few entries costs as much as moving many.
    const ROOM_MIN: usize = Leaf::<K>::CAPACITY * 5 / 16;

    /// Moves entries of the full, latched leaf of a key to a neighbour, so that both have the same room;
    /// false if none has enough, or is latched. Cost: the lines of both leaves, one publication of three or
    /// four words.
    pub(super) fn move_to_neighbour(&self, latched: &LatchedLeaf<'_, K>, key: K::Key<'_>) -> Result<bool> {
        if !self.limits.moves_to_neighbours {
            return Ok(false);
        }
        let _structure = self.structure.lock();
        let (path, end) = self.path_by(|node| node.position(&self.pool, key));
        debug_assert!(end == Child::Leaf(latched.offset), "the path to a latched leaf does not change");
        let Some(&(id, index)) = path.last() else { return Ok(false) };
        let node = self.inner.node(id);
        let left = index.checked_sub(1).map(|at| (Side::Left, node.child(at)));
        let right = (index + 1 < node.count()).then(|| (Side::Right, node.child(index + 1)));
        // Both are prefetched before one is read.
        let beside = || left.into_iter().chain(right);
        beside().for_each(|(_, child)| {
            if let Child::Leaf(at) = child {
                self.pool.prefetch(at);
            }
        });
        let with_room = beside().filter_map(|(side, child)| match child {
            Child::Leaf(at) => Some((self.leaf(at).room(), side, at)),
            _ => None,
        });
        let Some((room, side, at)) = with_room.max_by_key(|(room, ..)| *room) else { return Ok(false) };
        if room < Self::ROOM_MIN {
            return Ok(false);
        }
        Leaf::<K>::prefetch_whole(&self.pool, at);
        let mut held = LatchSet::default();
        let latch = self.stripes.of(at);
        if !std::ptr::eq(latch, latched.latch) && !held.try_add(latch) {
            return Ok(false);
        }
        let neighbour = self.leaf(at);
        // The neighbour was read without its latch before.
        let count = neighbour.room().div_ceil(2);
        if count < Self::ROOM_MIN / 2 {
            return Ok(false);
        }
        let leaf = &latched.leaf;
        let (lower, low_leaf, separator) = match side {
            Side::Left => (count, leaf, index),
            Side::Right => (Leaf::<K>::CAPACITY - count, &neighbour, index + 1),
        };
        let parted = leaf.parted_slots(&self.pool, lower);
        assert_eq!(parted.len(), Leaf::<K>::CAPACITY, "entries of a full leaf move");
        let (lower, upper) = parted.split_at(lower);
        let (moving, staying) = if side == Side::Left { (lower, upper) } else { (upper, lower) };
        assert_eq!(moving.len(), count, "as many entries move as there is room for");
        debug_assert!(separator > 0 && separator < node.count(), "both leaves are children of one node");
        let mut publication = self.pool.publication();
        let low = K::duplicate(&self.pool, upper[0].0, &mut publication)?;
        let low_before = low_leaf.low();
        let keep = staying.iter().fold(0, |bitmap, (_, slot)| bitmap | 1u64 << slot);
        let arrived = neighbour.take_over(leaf, moving.iter().map(|(_, slot)| *slot), &mut publication);
        debug_assert_eq!(
            keep.count_ones() as usize + moving.len(),
            Leaf::<K>::CAPACITY,
            "every entry stays or moves"
        );
        publication.set(neighbour.word_offset(BITMAP_WORD), arrived);
        publication.barrier(MOVE_IN_ONE);
        publication.set(leaf.word_offset(BITMAP_WORD), keep);
        step(LOW_KEY_MOVES, || low_leaf.set_low(low, &mut publication));
        K::release(low_before, &mut publication);
        let publication = publication.ready()?;
        // Unreachable first: the old separator's record may be reused once all guards that the publication
        // preceded are dropped. Readers of the new one wait for the latches of both leaves.
        latch::lock_alone(node.latch());
        node.set_key(separator, low);
        latch::unlock(node.latch());
        publication.publish();
        Ok(true)
    }
}
