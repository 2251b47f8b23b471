//! Creating, opening and destroying trees.
//!
//! ```text
//! header word   content
//! 0             "BTREE" and version
//! 1             layout of leaves, layout of inner nodes, placement, words of a key, words of a value: a byte each
//! 2             bytes of a leaf, bytes of an inner node: 4 bytes each
//! 3             child word of the root, if inner nodes are persistent
//! 4             offset of the first leaf
//! 5             1: the tree is being destroyed
//! 6             seal: hash of words 0, 1, 2 and 4, which never change
//! 7             a note of the tree's owner
//! ```

use super::placement::{ChildRef, inner_word};
use super::{BTree, LEVELS_MAX, Placement};
use crate::error::{Error, Result};
use crate::latch::LatchStripes;
use crate::node::{Entries, FixedKey, Layout, Medium};
use crate::note;
use entresol_memory::{Pool, PoolOffset, Publication};
use parking_lot::Mutex;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) const HEADER_BYTES: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"BTREE\0\0\x01");
const ROOT: u64 = 3 * 8;
const FIRST_LEAF: u64 = 4 * 8;
const DESTROYING: u64 = 5 * 8;
const SEAL: usize = 6;
const NOTE: u64 = 7 * 8;
/// Values of a leaf that are freed in one publication, which also has the words that its layout changes.
const VALUES_FREED_MAX: usize = 24;
/// Fill grade of rebuilt inner nodes, in percent: room for some splits.
const REBUILD_FILL_PERCENT: usize = 85;

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Header words 1 and 2 of this kind of tree.
    fn kind() -> [u64; 2] {
        let kind = [L::NUMBER, I::NUMBER, P::NUMBER, K::WORDS as u8, 1, 0, 0, 0];
        [u64::from_le_bytes(kind), L::BYTES as u64 | (I::BYTES as u64) << 32]
    }

    /// Returns true for the first three words of a header of this kind of tree.
    pub(crate) fn header_begins(magic: u64, kind: [u64; 2]) -> bool {
        magic == MAGIC && kind == Self::kind()
    }

    /// Checksum that detects flipped bits of a header.
    fn seal(first_leaf: PoolOffset) -> u64 {
        let [kind, sizes] = Self::kind();
        [MAGIC, kind, sizes, first_leaf.to_word()]
            .iter()
            .fold(0, |seal: u64, word| (seal.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Describes the kind of tree, for messages.
    pub fn describe() -> String {
        let (leaves, inner, placement) = (L::NAME, I::NAME, P::NAME);
        let (leaf_bytes, inner_bytes, key_bytes) = (L::BYTES, I::BYTES, K::WORDS * 8);
        format!(
            "{leaves} leaves of {leaf_bytes} bytes, {inner} inner nodes of {inner_bytes} bytes ({placement}), \
             keys of {key_bytes} bytes"
        )
    }

    /// Creates an empty tree; it exists once the publication is published, with a reference to the returned
    /// offset.
    pub fn create<'p>(pool: &'p Arc<Pool>, publication: &mut Publication<'p>) -> Result<PoolOffset> {
        let first = pool.reserve(L::BYTES)?;
        let header = pool.reserve(HEADER_BYTES)?;
        let at = header.offset();
        assert!(
            at.is_aligned(64) && first.offset().is_aligned(64),
            "the header at {at:#x} and the leaf at {:#x} lie where a reference may lead",
            first.offset()
        );
        let kind = Self::kind();
        let first_leaf = first.offset().to_word();
        let seal = Self::seal(first.offset());
        let values = [MAGIC, kind[0], kind[1], first_leaf, first_leaf, 0, seal, 0];
        for (word, value) in (0..).zip(values) {
            publication.write(at.word(word), value);
        }
        let tree = Self::unopened(pool, at);
        tree.fill_leaf(tree.leaf(first.offset())?, &[], K::MIN, PoolOffset::NULL);
        publication.allocate(first);
        Ok(publication.allocate(header))
    }

    fn unopened(pool: &Arc<Pool>, header: PoolOffset) -> Self {
        BTree {
            pool: pool.clone(),
            header,
            root: AtomicU64::new(0),
            root_latch: AtomicU64::new(0),
            placement: P::new(pool, I::BYTES),
            latches: LatchStripes::of_pool(pool),
            structure: Mutex::new(()),
            handles_underflow: AtomicBool::new(false),
            kinds: PhantomData,
        }
    }

    /// Opens a tree. Cost: constant if inner nodes are persistent; else a line or two of every leaf, since
    /// they are rebuilt. A tree of another kind is an error, and so is damage that is found.
    pub fn open(pool: &Arc<Pool>, header: PoolOffset) -> Result<Self> {
        let tree = Self::attach(pool, header)?;
        if pool.word(header.plus(DESTROYING)).load(Ordering::Acquire) != 0 {
            return Err(Error::Invalid(format!("the tree at {header:#x} is being destroyed")));
        }
        if P::PERSISTENT {
            let root = pool.word(header.plus(ROOT)).load(Ordering::Acquire);
            tree.root.store(root, Ordering::Release);
            tree.check_node_sound(root)?;
            tree.check_first_leaf()?;
        } else {
            tree.rebuild()?;
        }
        Ok(tree)
    }

    /// Returns the tree with this header, if it is one of this kind.
    pub(super) fn attach(pool: &Arc<Pool>, header: PoolOffset) -> Result<Self> {
        super::check_offset(pool, header, HEADER_BYTES)?;
        let words = pool.words(header, HEADER_BYTES / 8);
        let word = |i: usize| words[i].load(Ordering::Acquire);
        if word(0) != MAGIC {
            let message = format!("its header starts with {:#018x}, not {MAGIC:#018x}", word(0));
            return Err(Error::Corrupt { offset: header, message });
        }
        let found = [word(1), word(2)];
        if found != Self::kind() {
            return Err(Error::Invalid(format!(
                "the tree at {header:#x} is of another kind (layouts and sizes {:#x}, {:#x}) than {} ({:#x}, {:#x})",
                found[0],
                found[1],
                Self::describe(),
                Self::kind()[0],
                Self::kind()[1],
            )));
        }
        Ok(Self::unopened(pool, header))
    }

    /// Returns an error if the node that a child word refers to is damaged.
    fn check_node_sound(&self, word: u64) -> Result<()> {
        let (checked, offset) = match ChildRef::decode(word) {
            ChildRef::Leaf(leaf) => (L::check::<K>(self.leaf(leaf)?), leaf),
            ChildRef::Inner(reference) => {
                (I::check::<K>(self.inner(reference)?), PoolOffset::from_word(reference))
            }
        };
        checked.map_err(|message| Error::Corrupt { offset, message })
    }

    /// Verifies that the first leaf's low key is the smallest of all.
    fn check_first_leaf(&self) -> Result<()> {
        let first = self.first_leaf();
        if self.pool.word(self.header.word(SEAL)).load(Ordering::Acquire) != Self::seal(first) {
            let message = "its header does not match its checksum".to_string();
            return Err(Error::Corrupt { offset: self.header, message });
        }
        if self.leaf(first)?.load_key::<K>(L::geometry::<K>().spare) != K::MIN {
            let message = "the first leaf in the header is not a valid first leaf".to_string();
            return Err(Error::Corrupt { offset: first, message });
        }
        Ok(())
    }

    pub(super) fn first_leaf(&self) -> PoolOffset {
        PoolOffset::from_word(self.pool.word(self.header.plus(FIRST_LEAF)).load(Ordering::Acquire))
    }

    /// Returns the number that the tree's owner stored last, 0 in a new tree. A hint: after a crash it may be any
    /// earlier one.
    pub fn note(&self) -> u64 {
        self.pool.word(self.header.plus(NOTE)).load(Ordering::Acquire)
    }

    /// Stores a number. The tree must not be in destruction.
    pub fn set_note(&self, number: u64) {
        note::store(&self.pool, self.header.plus(NOTE), number);
    }

    pub(super) fn root_word_offset(&self) -> PoolOffset {
        self.header.plus(ROOT)
    }

    /// Builds the inner nodes bottom-up from the chain of leaves.
    fn rebuild(&self) -> Result<()> {
        self.check_first_leaf()?;
        let geometry = L::geometry::<K>();
        let leaves_max = self.pool.bytes() / L::BYTES as u64;
        let mut children: Entries<K> = Vec::new();
        let mut next = self.first_leaf();
        while !next.is_null() || children.is_empty() {
            let leaf = self.leaf(next)?;
            L::check::<K>(leaf).map_err(|message| Error::Corrupt { offset: next, message })?;
            let low = leaf.load_key::<K>(geometry.spare);
            if children.last().is_some_and(|(before, _)| *before >= low) {
                let message = "its low key is not above that of the leaf before".to_string();
                return Err(Error::Corrupt { offset: next, message });
            }
            children.push((low, next.to_word()));
            if children.len() as u64 > leaves_max {
                let message = "its chain of leaves has a cycle".to_string();
                return Err(Error::Corrupt { offset: self.header, message });
            }
            next = leaf.load_offset(geometry.next);
        }
        debug_assert!(children[0].0 == K::MIN, "the smallest low key is that of the first leaf");
        self.root.store(self.build_inner(children)?, Ordering::Release);
        Ok(())
    }

    /// Makes inner nodes in DRAM above children with their low keys; returns the root's word.
    fn build_inner(&self, mut children: Entries<K>) -> Result<u64> {
        let fan_out = (I::geometry::<K>().capacity * REBUILD_FILL_PERCENT / 100).max(2);
        let mut unused = self.pool.publication();
        while children.len() > 1 {
            let groups = children.len().div_ceil(fan_out);
            debug_assert!(children.is_sorted_by(|one, next| one.0 < next.0), "low keys ascend");
            let mut upper = Entries::with_capacity(groups);
            for share in shares(children.len(), groups) {
                let group = &children[share];
                assert!(group.len() > 1, "an inner node has several children");
                let reference = self.placement.allocate(&self.pool, &mut unused)?;
                self.fill_inner(self.inner(reference)?, group[0].1, &group[1..], 0);
                upper.push((group[0].0, inner_word(reference)));
            }
            children = upper;
        }
        Ok(children[0].1)
    }

    /// Frees all parts of a closed tree but its header, which the caller frees together with its reference to
    /// it. A crash in between leaves a tree that cannot be opened; call it again.
    pub fn destroy(pool: &Arc<Pool>, header: PoolOffset) -> Result<()> {
        while !Self::destroy_step(pool, header, false, usize::MAX)? {}
        Ok(())
    }

    /// Frees some leaves of a closed tree and, if asked, the objects whose offsets its values are. Returns true
    /// when only the header is left. A crash in between leaves a smaller tree that cannot be opened; call it
    /// again.
    pub fn destroy_step(
        pool: &Arc<Pool>,
        header: PoolOffset,
        free_values: bool,
        leaves_max: usize,
    ) -> Result<bool> {
        let tree = Self::attach(pool, header)?;
        if !Self::is_in_destruction(pool, header) {
            let mut mark = pool.publication();
            mark.set(header.plus(DESTROYING), 1);
            mark.publish()?;
        }
        for _ in 0..leaves_max {
            let any =
                if P::PERSISTENT { tree.free_last(free_values)? } else { tree.free_first(free_values)? };
            if !any {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true once parts of the tree may be freed.
    pub(crate) fn is_in_destruction(pool: &Pool, header: PoolOffset) -> bool {
        pool.word(header.plus(DESTROYING)).load(Ordering::Acquire) != 0
    }

    /// Frees the first leaf of the chain; returns false if there is none.
    fn free_first(&self, free_values: bool) -> Result<bool> {
        assert!(Self::is_in_destruction(&self.pool, self.header), "the tree cannot be opened any more");
        let first = self.first_leaf();
        if first.is_null() {
            return Ok(false);
        }
        self.empty_leaf(first, free_values)?;
        let mut publication = self.pool.publication();
        publication.set(self.header.plus(FIRST_LEAF), self.leaf(first)?.load(L::geometry::<K>().next));
        publication.free(first);
        publication.publish()?;
        Ok(true)
    }

    /// Frees the last node below the root that has no nodes below it, together with the word that refers to it;
    /// returns false if there is none.
    fn free_last(&self, free_values: bool) -> Result<bool> {
        let mut word = self.pool.word(self.header.plus(ROOT)).load(Ordering::Acquire);
        if word == 0 {
            return Ok(false);
        }
        let mut link = NodeLink::Root;
        for _ in 0..=LEVELS_MAX {
            let reference = match ChildRef::decode(word) {
                ChildRef::Leaf(leaf) => {
                    self.empty_leaf(leaf, free_values)?;
                    self.free_linked(&link, leaf)?;
                    return Ok(true);
                }
                ChildRef::Inner(reference) => reference,
            };
            let node = self.inner(reference)?;
            let offset = PoolOffset::from_word(reference);
            I::check::<K>(node).map_err(|message| Error::Corrupt { offset, message })?;
            let leftmost = node.load(I::geometry::<K>().spare);
            (word, link) = match I::sorted::<K>(node).pop() {
                Some((key, child)) => (child, NodeLink::Separator(reference, key)),
                None if leftmost != 0 => (leftmost, NodeLink::Leftmost(reference)),
                None => {
                    self.free_linked(&link, offset)?;
                    return Ok(true);
                }
            };
        }
        Err(Error::Corrupt { offset: self.header, message: format!("it has more than {LEVELS_MAX} levels") })
    }

    /// Frees a node of a persistent tree together with the link to it.
    fn free_linked(&self, link: &NodeLink<K>, offset: PoolOffset) -> Result<()> {
        assert!(Self::is_in_destruction(&self.pool, self.header), "the tree cannot be opened any more");
        let mut with = self.pool.publication();
        with.free(offset);
        match *link {
            NodeLink::Root => with.set(self.header.plus(ROOT), 0),
            NodeLink::Leftmost(parent) => {
                with.set(self.inner(parent)?.word_offset(I::geometry::<K>().spare), 0);
            }
            NodeLink::Separator(parent, key) => {
                let node = self.inner(parent)?;
                let slot = I::find(node, key).ok_or_else(|| Error::Corrupt {
                    offset: PoolOffset::from_word(parent),
                    message: format!("a search does not find its key {key:?}"),
                })?;
                I::erase::<K>(node, slot, &mut Medium::Pool(&self.pool, &mut with))?;
            }
        }
        Ok(with.publish()?)
    }

    /// Frees the values of a leaf together with their entries, the greatest first.
    fn empty_leaf(&self, offset: PoolOffset, free_values: bool) -> Result<()> {
        let node = self.leaf(offset)?;
        L::check::<K>(node).map_err(|message| Error::Corrupt { offset, message })?;
        let mut entries = if free_values { L::sorted::<K>(node) } else { Entries::new() };
        while !entries.is_empty() {
            let left = entries.len().saturating_sub(VALUES_FREED_MAX);
            debug_assert_eq!(L::count::<K>(node), entries.len(), "a leaf loses entries with their values");
            let mut with = self.pool.publication();
            entries.drain(left..).for_each(|(_, value)| with.free(PoolOffset::from_word(value)));
            L::truncate::<K>(node, left, &mut Medium::Pool(&self.pool, &mut with))?;
            with.publish()?;
        }
        Ok(())
    }
}

/// Children of each of some nodes, one after another: none has two more than another.
fn shares(children: usize, nodes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..nodes).map(move |node| node * children / nodes..(node + 1) * children / nodes)
}

/// Place of the reference to a node of a persistent tree.
enum NodeLink<K> {
    /// The header.
    Root,
    /// The leftmost child of an inner node.
    Leftmost(u64),
    /// The child beside a separator of an inner node.
    Separator(u64, K),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rebuilt_inner_node_has_a_single_child_or_too_many() {
        for fan_out in [6, 17, 52] {
            for children in 2..60 * fan_out {
                let mut end = 0;
                for share in shares(children, children.div_ceil(fan_out)) {
                    assert_eq!(share.start, end, "{children} children, at most {fan_out} each");
                    assert!((2..=fan_out).contains(&share.len()), "{share:?} of {children}, {fan_out} each");
                    end = share.end;
                }
                assert_eq!(end, children);
            }
        }
    }
}
