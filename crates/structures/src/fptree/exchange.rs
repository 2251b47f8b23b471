//! Exchange of contents: what was built in a tree of its own becomes that of an empty one, by one publication.
//!
//! The headers exchange their first leaves and sparse indexes; the other tree, closed, is then empty, and is
//! destroyed as any other. Before and after a crash each of the two is a tree. The inner nodes are lazily built
//! over the new leaves, as those of a tree that is opened ([`super::opening`]).
//!
//! Readers of the empty tree go on, on its old leaf or on the new ones. No writer changes it meanwhile.

use super::FpTree;
use super::inner::Child;
use super::lifecycle::FIRST_LEAF;
use super::opening::SegmentedChain;
use super::sparse::{FIRST_PAGE, SparseIndex};
use crate::error::Result;
use crate::key::TreeKey;
use crate::points::CONTENTS_EXCHANGED_IN_ONE;
use entresol_memory::Publication;
use std::sync::atomic::Ordering;

/// Content of another tree that is about to become that of a tree.
pub struct TakenContent<K: TreeKey> {
    chain: SegmentedChain<K>,
    sparse: SparseIndex<K>,
}

impl<K: TreeKey> FpTree<K> {
    /// Returns true if the tree has no key, dead or alive: one leaf without entries.
    pub fn has_no_keys(&self) -> Result<bool> {
        let _pinned = self.pool.pin();
        let root = Child::decode(self.root.load(Ordering::Acquire));
        if let Child::Segment(_) = root {
            self.open_at(|_| 0)?;
        }
        let first = self.sound_leaf(self.first_leaf())?;
        Ok(first.next().is_null() && first.bitmap() == 0)
    }

    /// Adds to a publication that this tree, which [has no keys](FpTree::has_no_keys), and the other one exchange
    /// their contents. Neither has a writer from now on; the other is closed once it is published, and
    /// [`FpTree::use_content`] called.
    pub fn take_content(&self, from: &FpTree<K>, with: &mut Publication<'_>) -> Result<TakenContent<K>> {
        assert!(self.header != from.header, "a tree takes the content of another one");
        let (sparse, entries) = SparseIndex::read(&self.pool, from.header, self.limits.page_entries_max)?;
        let chain = self.chain_from(from.first_leaf(), entries)?;
        let fields = [FIRST_LEAF, FIRST_PAGE];
        let content = |of: &FpTree<K>| {
            fields.map(|field| (field, self.pool.word(of.header.plus(field)).load(Ordering::Acquire)))
        };
        let (own, other) = (content(self), content(from));
        other.into_iter().for_each(|(field, word)| with.set(self.header.plus(field), word));
        with.barrier(CONTENTS_EXCHANGED_IN_ONE);
        own.into_iter().for_each(|(field, word)| with.set(from.header.plus(field), word));
        Ok(TakenContent { chain, sparse })
    }

    /// Leads readers to a content that was taken by a publication.
    pub fn use_content(&self, content: TakenContent<K>) {
        let mut structure = self.structure.lock();
        structure.sparse = content.sparse;
        self.use_chain(&mut structure, content.chain);
    }
}
