//! Loads: an index that is built beside an empty one, and takes its place.

use super::{OrderedIndex, Tree, on_tree};
use crate::error::{Error, Result};
use crate::fptree::{FpTree, TakenContent};
use crate::key::{ByteKey, PairKey, TreeKey, WordKey};
use entresol_memory::Publication;

/// Content of another index that is about to become that of an index.
pub struct IndexContent(ContentByWidth);

enum ContentByWidth {
    Eight(TakenContent<WordKey>),
    Sixteen(TakenContent<PairKey>),
    Variable(TakenContent<ByteKey>),
}

impl OrderedIndex {
    /// Returns true if it can be filled with the content of another index: an FPTree without hot entries.
    pub fn takes_content(&self) -> bool {
        !matches!(self.tree, Tree::Other(..))
    }

    /// Returns true if there is no key, dead or alive, in an index that [takes
    /// content](OrderedIndex::takes_content).
    pub fn has_no_keys(&self) -> Result<bool> {
        on_tree!(self, tree => tree.has_no_keys(), _other => Ok(false))
    }

    /// Adds keys that ascend, all above the others of an index that [takes
    /// content](OrderedIndex::takes_content) and has no other user; see [`FpTree::append_sorted`].
    pub fn append_sorted<'p, B: AsRef<[u8]>>(
        &'p self,
        keys: &[B],
        carried: impl FnMut(usize, &mut Publication<'p>) -> u64,
    ) -> Result<()> {
        fn append_sorted<'p, K: TreeKey, B: AsRef<[u8]>>(
            tree: &'p FpTree<K>,
            keys: &[B],
            carried: impl FnMut(usize, &mut Publication<'p>) -> u64,
        ) -> Result<()> {
            let keys: Result<Vec<K::Key<'_>>> = keys.iter().map(|key| K::from_bytes(key.as_ref())).collect();
            tree.append_sorted(&keys?, carried)
        }
        on_tree!(self, tree => append_sorted(tree, keys, carried), _other => Err(takes_none()))
    }

    /// Adds the exchange of contents with another index of the same width to a publication; see
    /// [`FpTree::take_content`].
    pub fn take_content(&self, from: &OrderedIndex, with: &mut Publication<'_>) -> Result<IndexContent> {
        let kind = match (&self.tree, &from.tree) {
            (Tree::Eight(own), Tree::Eight(from)) => ContentByWidth::Eight(own.take_content(from, with)?),
            (Tree::Sixteen(own), Tree::Sixteen(from)) => {
                ContentByWidth::Sixteen(own.take_content(from, with)?)
            }
            (Tree::Variable(own), Tree::Variable(from)) => {
                ContentByWidth::Variable(own.take_content(from, with)?)
            }
            _ => return Err(takes_none()),
        };
        Ok(IndexContent(kind))
    }

    /// Leads readers to content that was taken by a publication.
    pub fn use_content(&self, content: IndexContent) {
        match (&self.tree, content.0) {
            (Tree::Eight(tree), ContentByWidth::Eight(content)) => tree.use_content(content),
            (Tree::Sixteen(tree), ContentByWidth::Sixteen(content)) => tree.use_content(content),
            (Tree::Variable(tree), ContentByWidth::Variable(content)) => tree.use_content(content),
            _ => unreachable!("content is used by the index that took it"),
        }
    }
}

fn takes_none() -> Error {
    Error::Invalid(
        "an index takes the content of one of the same kind, an FPTree without hot entries".to_owned(),
    )
}
