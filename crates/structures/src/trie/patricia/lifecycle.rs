//! Creating, opening and destroying tries.
//!
//! A crash while a trie is being destroyed leaves a smaller trie that cannot be opened, and is destroyed further.

use super::{INNER_BYTES, KIND, NAME, Patricia, child_slot, is_inner, node_of};
use crate::error::{DescentError, Result};
use crate::trie::frame::TrieFrame;
use crate::trie::patricia::estimates::KeyCount;
use entresol_memory::{Pool, PoolOffset, Publication};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Returns the kind in the header of a trie whose keys have so many bytes; 0: any.
pub(super) const fn kind_of(key_bytes: usize) -> u64 {
    KIND | (key_bytes as u64) << 8
}

impl Patricia {
    /// Creates an empty trie; it exists once the publication is published, with a reference to the returned
    /// offset.
    pub fn create<'p>(pool: &'p Arc<Pool>, publication: &mut Publication<'p>) -> Result<PoolOffset> {
        TrieFrame::create(pool, KIND, 0, publication)
    }

    /// Opens a trie. Cost: constant. A trie of another kind is an error.
    pub fn open(pool: &Arc<Pool>, header: PoolOffset) -> Result<Patricia> {
        Patricia::open_kind(pool, header, KIND)
    }

    /// Same as [`Patricia::open`], for a trie of this kind.
    pub(super) fn open_kind(pool: &Arc<Pool>, header: PoolOffset, kind: u64) -> Result<Patricia> {
        let trie = Patricia { frame: TrieFrame::open(pool, header, kind, NAME)?, count: KeyCount::default() };
        let root = trie.frame.load(trie.frame.root_slot());
        if root != 0 {
            let sound = if is_inner(root) {
                trie.number(node_of(root), 0).map(drop)
            } else {
                trie.leaf_key(node_of(root), 0).map(drop)
            };
            match sound {
                Err(DescentError::Damage(error)) => return Err(error),
                _ => drop(sound),
            }
        }
        Ok(trie)
    }

    /// Frees all parts of a closed trie but its header, which the caller frees together with its reference to
    /// it. A crash in between leaves a trie that cannot be opened; call it again.
    pub fn destroy(pool: &Arc<Pool>, header: PoolOffset) -> Result<()> {
        while !Patricia::free_leaves(pool, (header, KIND), false, usize::MAX)? {}
        Ok(())
    }

    /// Frees some leaves of a closed trie of a kind, the first ones, and, if asked, the objects whose offsets its
    /// values are. Returns true when only the header is left.
    pub(super) fn free_leaves(
        pool: &Arc<Pool>,
        (header, kind): (PoolOffset, u64),
        free_values: bool,
        leaves_max: usize,
    ) -> Result<bool> {
        let frame = TrieFrame::attach(pool, header, kind, NAME)?;
        if !TrieFrame::is_in_destruction(pool, header) {
            frame.mark_destroying()?;
        }
        let trie = Patricia { frame, count: KeyCount::default() };
        for _ in 0..leaves_max {
            if !trie.free_first(free_values)? {
                return Ok(true);
            }
        }
        Ok(trie.frame.load(trie.frame.root_slot()) == 0)
    }

    /// Frees the first leaf; false if there is none. Its inner node is freed with it, and the other child replaces
    /// that.
    fn free_first(&self, free_values: bool) -> Result<bool> {
        let (frame, pool) = (&self.frame, &self.frame.pool);
        let load = |slot: PoolOffset| pool.word(slot).load(Acquire);
        let mut slot = frame.root_slot();
        let mut word = load(slot);
        if word == 0 {
            return Ok(false);
        }
        pool.wait_for_room();
        let mut with = pool.publication();
        let free_leaf = |leaf: PoolOffset, with: &mut Publication<'_>| -> Result<()> {
            frame.check_place(leaf, INNER_BYTES as u64)?;
            if free_values {
                with.free(PoolOffset::from_word(load(leaf.plus(super::VALUE))));
            }
            with.free(leaf);
            Ok(())
        };
        if !is_inner(word) {
            with.set(slot, 0);
            free_leaf(node_of(word), &mut with)?;
            with.publish()?;
            return Ok(true);
        }
        loop {
            let inner = node_of(word);
            frame.check_place(inner, INNER_BYTES as u64)?;
            let left = load(child_slot(inner, 0));
            if !is_inner(left) {
                with.set(slot, load(child_slot(inner, 1)));
                free_leaf(node_of(left), &mut with)?;
                with.free(inner);
                break;
            }
            (slot, word) = (child_slot(inner, 0), left);
        }
        with.publish()?;
        Ok(true)
    }
}
