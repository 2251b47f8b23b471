//! PATRICIA: a radix tree of radix two that skips the bits that do not distinguish keys (dissertation 3.2.4).
//!
//! ```text
//!  word of an inner node   content                       word of a leaf   content
//!  0                       seal, number of its bit       0                seal, bytes of the key
//!  1, 2                    child for 0, child for 1      1                value
//!                                                        2 ..             the key, zero padded
//! ```
//!
//! Bits are numbered from the front, nine a byte: the first is set if there is such a byte, so that a key is
//! ordered before those that it is a prefix of. A child word is a leaf's offset, or that of an inner node
//! plus one.
//!
//! Invariants: numbers grow on the way down; all keys below an inner node agree in the bits before its
//! number, and their bit of that number is their side. Both hold for ever for a node, linked or not.

mod check;
mod estimates;
mod index;
mod lifecycle;
mod scan;

pub use index::PatriciaIndex;

use super::frame::{Attempt, TrieFrame, check_key};
use super::seal;
use crate::Inserted;
use crate::error::{DescentError, Error, Result};
use crate::key::{KEY_BYTES_MAX, KeyBytes};
use crate::latch::LatchSet;
use crate::points::{NODES_WITH_THEIR_POINTER, REMOVAL, TRIE_NODE};
use entresol_memory::{PUBLICATION_WORDS_MAX, PoolOffset, Publication};
use estimates::KeyCount;
use smallvec::SmallVec;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum of changes that a caller's publication may carry into an operation of a [`Patricia`].
pub const PATRICIA_CARRIED_WORDS_MAX: usize = 40;

// Two nodes and a pointer beside what a caller carries.
const _: () = assert!(PATRICIA_CARRIED_WORDS_MAX + 4 <= PUBLICATION_WORDS_MAX);

const KIND: u64 = 2;
const NAME: &str = "PATRICIA trie";
const INNER_BYTES: usize = 64;
/// Offset of a leaf's value.
const VALUE: u64 = 8;
/// Words of a leaf before its key.
const FRONT_WORDS: usize = 2;
/// Set in every first word, so that none is 0.
const PRESENT: u64 = 1 << 20;
const NUMBER_MASK: u64 = PRESENT - 1;

/// A persistent ordered map from byte strings to words; see the [module](super).
pub struct Patricia {
    frame: TrieFrame,
    count: KeyCount,
}

/// Sizes of a [`Patricia`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PatriciaStats {
    /// Keys, each a leaf.
    pub keys: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Inner nodes on the longest path.
    pub depth: u32,
    /// Bytes of nodes in the pool.
    pub pool_bytes: u64,
}

/// Pointer on the path to a key: its node, its offset, its target; and the other one of the same node.
#[derive(Clone, Copy)]
struct PathStep {
    owner: PoolOffset,
    slot: PoolOffset,
    word: u64,
    /// The other child: that for 1, if the path goes to the one for 0.
    other: u64,
    /// Side on which the path goes; 1 of the root.
    side: usize,
}

impl PathStep {
    /// Returns the subtree with the greater keys beside the path.
    fn above(&self) -> Option<u64> {
        (self.side == 0 && self.other != 0).then_some(self.other)
    }

    /// Returns the subtree with the smaller keys beside the path.
    fn below(&self) -> Option<u64> {
        (self.side == 1 && self.other != 0).then_some(self.other)
    }
}

/// Maker of the value of a new key, in the publication that adds it.
type ValueMaker<'v, 'p> = &'v mut dyn FnMut(&mut Publication<'p>) -> u64;

type Path = SmallVec<[PathStep; 24]>;

/// Returns a bit of a key by its number.
#[inline]
fn bit(key: &[u8], number: u64) -> usize {
    let (byte, within) = ((number / 9) as usize, number % 9);
    match (key.get(byte), within) {
        (None, _) => 0,
        (Some(_), 0) => 1,
        (Some(byte), within) => usize::from(byte >> (8 - within) & 1),
    }
}

/// Returns the number of the first bit in which two keys differ.
fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    match (a.get(same), b.get(same)) {
        (None, None) => None,
        (Some(a), Some(b)) => Some(same as u64 * 9 + 1 + u64::from((a ^ b).leading_zeros())),
        _ => Some(same as u64 * 9),
    }
}

fn inner_meta(number: u64) -> u64 {
    (seal([number, 2]) & !(PRESENT | NUMBER_MASK)) | PRESENT | number
}

fn leaf_meta(key: &[u8]) -> u64 {
    (seal(words_of(key)) & !(PRESENT | NUMBER_MASK)) | PRESENT | key.len() as u64
}

/// Returns the key as zero padded words.
fn words_of(key: &[u8]) -> impl Iterator<Item = u64> {
    key.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    })
}

/// Returns true if a child word leads to an inner node.
#[inline]
fn is_inner(word: u64) -> bool {
    word & 1 == 1
}

/// Returns the node to which a child word leads.
#[inline]
fn node_of(word: u64) -> PoolOffset {
    PoolOffset::from_word(word & !1)
}

/// Returns the offset of the child word of a side of an inner node.
#[inline]
fn child_slot(inner: PoolOffset, side: usize) -> PoolOffset {
    inner.word(1 + side)
}

/// Returns an error for keys that are too long, and for publications that carry too many changes.
fn check_carried(key: &[u8], with: &Publication<'_>) -> Result<()> {
    if with.len() > PATRICIA_CARRIED_WORDS_MAX {
        return Err(Error::Invalid(format!(
            "the publication carries {} changes; an operation of a PATRICIA trie allows {PATRICIA_CARRIED_WORDS_MAX}",
            with.len()
        )));
    }
    check_key(key)
}

impl Patricia {
    /// Returns the pool offset of the trie's header, for [`Patricia::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.frame.header
    }

    /// Returns the number of an inner node's bit.
    #[inline]
    fn number(&self, inner: PoolOffset, since: u64) -> Attempt<u64> {
        self.frame.check_place(inner, INNER_BYTES as u64)?;
        let found = self.frame.load(inner);
        let number = found & NUMBER_MASK;
        if found != inner_meta(number) {
            return Err(self.frame.removed_or_damaged(inner, found, since));
        }
        Ok(number)
    }

    /// Returns the key of a leaf.
    fn leaf_key(&self, leaf: PoolOffset, since: u64) -> Attempt<KeyBytes> {
        self.frame.check_place(leaf, INNER_BYTES as u64)?;
        let found = self.frame.load(leaf);
        let bytes = (found & NUMBER_MASK) as usize;
        let words = self.frame.pool.try_words(leaf.word(FRONT_WORDS), bytes.div_ceil(8));
        let Some(words) = words.filter(|_| bytes <= KEY_BYTES_MAX) else {
            return Err(self.frame.removed_or_damaged(leaf, found, since));
        };
        self.frame.verify(leaf, (FRONT_WORDS + words.len()) * 8)?;
        let mut key = KeyBytes::with_capacity(words.len() * 8);
        words.iter().for_each(|word| key.extend_from_slice(&word.load(Relaxed).to_le_bytes()));
        key.truncate(bytes);
        if found != leaf_meta(&key) {
            return Err(self.frame.removed_or_damaged(leaf, found, since));
        }
        Ok(key)
    }

    /// Returns true if a leaf's key is this one.
    #[inline]
    fn leaf_is(&self, leaf: PoolOffset, key: &[u8], since: u64) -> Attempt<bool> {
        self.frame.check_place(leaf, INNER_BYTES as u64)?;
        let found = self.frame.load(leaf);
        if found & PRESENT == 0 {
            return Err(self.frame.removed_or_damaged(leaf, found, since));
        }
        let words = self.frame.pool.try_words(leaf.word(FRONT_WORDS), key.len().div_ceil(8));
        if let Some(words) = words {
            self.frame.verify(leaf, (FRONT_WORDS + words.len()) * 8)?;
        }
        let is_equal =
            |words: &[AtomicU64]| words.iter().zip(words_of(key)).all(|(a, b)| a.load(Relaxed) == b);
        Ok(found & NUMBER_MASK == key.len() as u64 && words.is_some_and(is_equal))
    }

    /// Returns the path to the position of a key. The last word is 0 (of an empty trie) or a leaf's.
    fn path(&self, key: &[u8]) -> Attempt<Path> {
        let (frame, since) = (&self.frame, self.frame.since());
        let slot = frame.root_slot();
        let mut steps = Path::new();
        let root = frame.stable(frame.header, || frame.load(slot));
        steps.push(PathStep { owner: frame.header, slot, word: root, other: 0, side: 1 });
        let (mut word, mut last) = (root, None);
        while is_inner(word) {
            let inner = node_of(word);
            let number = self.number(inner, since)?;
            if last.is_some_and(|last| last >= number) {
                let message = format!("its bit {number} is not after that of its parent");
                return Err(DescentError::Damage(Error::Corrupt { offset: inner, message }));
            }
            last = Some(number);
            let children = frame.stable(inner, || [0, 1].map(|side| frame.load(child_slot(inner, side))));
            let side = bit(key, number);
            word = children[side];
            let (slot, other) = (child_slot(inner, side), children[1 - side]);
            steps.push(PathStep { owner: inner, slot, word, other, side });
            if word == 0 {
                let message = "one of its children is missing".to_string();
                return Err(DescentError::Damage(Error::Corrupt { offset: inner, message }));
            }
        }
        Ok(steps)
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        check_key(key)?;
        let _pinned = self.frame.pool.pin();
        self.frame.retry_conflicts(|| {
            let since = self.frame.since();
            let leaf = node_of(self.path(key)?.last().expect("the root's").word);
            if leaf.is_null() {
                return Ok(None);
            }
            if !self.leaf_is(leaf, key, since)? {
                return Ok(None);
            }
            let value =
                self.frame.stable(leaf, || (self.frame.load(leaf), self.frame.load(leaf.plus(VALUE))));
            match value {
                (0, _) => Err(DescentError::Conflict),
                (_, value) => Ok(Some(value)),
            }
        })
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped.
    pub fn insert<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.insert_with(key, with, &mut |_| value)
    }

    /// Same as [`Patricia::insert`]; `value` is called once the key is known to be new, and may add changes.
    fn insert_with<'p>(
        &'p self,
        key: &[u8],
        with: Publication<'p>,
        value: ValueMaker<'_, 'p>,
    ) -> Result<Inserted> {
        check_carried(key, &with)?;
        let _pinned = self.frame.pool.pin();
        let mut with = Some(with);
        self.frame.retry_conflicts(|| {
            let since = self.frame.since();
            let steps = self.path(key)?;
            let leaf = node_of(steps.last().expect("the root's").word);
            let mut held = LatchSet::default();
            if leaf.is_null() {
                return self.attach(&mut held, (steps[0], None), (key, &mut *value), &mut with);
            }
            let Some(differs) = first_difference(&self.leaf_key(leaf, since)?, key) else {
                if !held.try_add(self.frame.latch(leaf)) || !self.frame.is_linked(leaf) {
                    return Err(DescentError::Conflict);
                }
                return Ok(Inserted::Exists(self.frame.load(leaf.plus(VALUE))));
            };
            let above = self.step_before(&steps, differs, since)?;
            self.attach(&mut held, (steps[above], Some(differs)), (key, &mut *value), &mut with)
        })
    }

    /// Returns the first step that leads to keys which agree in all bits before this one, and in this one.
    fn step_before(&self, steps: &Path, number: u64, since: u64) -> Attempt<usize> {
        for (index, step) in steps.iter().enumerate() {
            if !is_inner(step.word) || self.number(node_of(step.word), since)? > number {
                return Ok(index);
            }
        }
        Ok(steps.len() - 1)
    }

    /// Adds a leaf where a step leads: alone, or under a new inner node beside the present child.
    fn attach<'p>(
        &'p self,
        held: &mut LatchSet<'p>,
        (step, differs): (PathStep, Option<u64>),
        (key, value): (&[u8], ValueMaker<'_, 'p>),
        with: &mut Option<Publication<'p>>,
    ) -> Attempt<Inserted> {
        let (frame, pool) = (&self.frame, &self.frame.pool);
        if !held.try_add(frame.latch(step.owner))
            || !frame.is_linked(step.owner)
            || frame.load(step.slot) != step.word
        {
            return Err(DescentError::Conflict);
        }
        debug_assert!(
            differs.is_none() == (step.word == 0),
            "a leaf is alone, or under an inner node beside the child {:#x}",
            step.word
        );
        let leaf_bytes = (FRONT_WORDS + key.len().div_ceil(8)) * 8;
        let leaf = pool.reserve(leaf_bytes).map_err(Error::from)?;
        let inner = differs.map(|_| pool.reserve(INNER_BYTES)).transpose().map_err(Error::from)?;
        let at = leaf.offset();
        let mut with = with.take().expect("it is published once");
        let value = value(&mut with);
        for (word, value) in pool
            .words(at, leaf_bytes / 8)
            .iter()
            .zip([leaf_meta(key), value].into_iter().chain(words_of(key)))
        {
            word.store(value, Relaxed);
        }
        pool.flush_at(at, leaf_bytes, TRIE_NODE);
        with.allocate(leaf);
        let mut word = at.to_word();
        if let (Some(inner), Some(number)) = (inner, differs) {
            let mut children = [word, step.word];
            if bit(key, number) == 1 {
                children.swap(0, 1);
            }
            let words = pool.words(inner.offset(), INNER_BYTES / 8);
            for (word, value) in
                words.iter().zip([inner_meta(number), children[0], children[1], 0, 0, 0, 0, 0])
            {
                word.store(value, Relaxed);
            }
            pool.flush_at(inner.offset(), INNER_BYTES, TRIE_NODE);
            word = with.allocate(inner).to_word() | 1;
        }
        with.barrier(NODES_WITH_THEIR_POINTER);
        with.set(step.slot, word);
        with.publish().map_err(Error::from)?;
        self.count.add(1);
        Ok(Inserted::New)
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one. If the key is
    /// missing, `with` is dropped.
    pub fn update<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        check_carried(key, &with)?;
        let _pinned = self.frame.pool.pin();
        let mut with = Some(with);
        self.frame.retry_conflicts(|| {
            let since = self.frame.since();
            let leaf = node_of(self.path(key)?.last().expect("the root's").word);
            if leaf.is_null() || !self.leaf_is(leaf, key, since)? {
                return Ok(None);
            }
            let mut held = LatchSet::default();
            if !held.try_add(self.frame.latch(leaf)) || !self.frame.is_linked(leaf) {
                return Err(DescentError::Conflict);
            }
            let old = self.frame.load(leaf.plus(VALUE));
            let mut with = with.take().expect("it is published once");
            with.set(leaf.plus(VALUE), value);
            with.publish().map_err(Error::from)?;
            Ok(Some(old))
        })
    }

    /// Removes a key, atomically with the changes in `with`; returns its value. If the key is missing, `with`
    /// is dropped.
    pub fn remove<'p>(&'p self, key: &[u8], with: Publication<'p>) -> Result<Option<u64>> {
        check_carried(key, &with)?;
        let _pinned = self.frame.pool.pin();
        let mut with = Some(with);
        self.frame.retry_conflicts(|| {
            let (frame, since) = (&self.frame, self.frame.since());
            let steps = self.path(key)?;
            let last = *steps.last().expect("the root's");
            let leaf = node_of(last.word);
            if leaf.is_null() || !self.leaf_is(leaf, key, since)? {
                return Ok(None);
            }
            // The pointer to the leaf's inner node, which is freed with it; or to the leaf, if it is the only
            // node.
            let above = steps[steps.len().saturating_sub(2)];
            let mut held = LatchSet::default();
            let owners = [above.owner, last.owner, leaf];
            let is_as_seen =
                owners.iter().all(|owner| held.try_add(frame.latch(*owner)) && frame.is_linked(*owner))
                    && frame.load(above.slot) == above.word
                    && frame.load(last.slot) == last.word;
            if !is_as_seen {
                return Err(DescentError::Conflict);
            }
            let old = frame.load(leaf.plus(VALUE));
            let mut with = with.take().expect("it is published once");
            let mut removed: SmallVec<[PoolOffset; 2]> = SmallVec::from_slice(&[leaf]);
            let mut sibling = 0;
            if steps.len() > 1 {
                removed.push(last.owner);
                // The other child.
                let side = usize::from(last.slot == child_slot(last.owner, 0));
                sibling = frame.load(child_slot(last.owner, side));
            }
            with.set_at(above.slot, sibling, REMOVAL);
            removed.iter().for_each(|node| with.free(*node));
            with.publish().map_err(Error::from)?;
            frame.mark_removed(&removed);
            self.count.add(-1);
            Ok(Some(old))
        })
    }
}

#[cfg(test)]
mod bit_tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_bit_that_differs_orders_keys(a in prop::collection::vec(0u8..4, 0..6), b in prop::collection::vec(0u8..4, 0..6)) {
            match first_difference(&a, &b) {
                None => prop_assert_eq!(a, b),
                Some(number) => {
                    prop_assert!((0..number).all(|n| bit(&a, n) == bit(&b, n)));
                    prop_assert_eq!(bit(&a, number) < bit(&b, number), a < b);
                    prop_assert_ne!(bit(&a, number), bit(&b, number));
                }
            }
        }
    }
}
