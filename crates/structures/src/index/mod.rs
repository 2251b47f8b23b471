//! Byte keys in memcmp order over the tree that fits their width: an FPTree, or another structure by its name
//! ([`IndexStructure`]).

mod by_bytes;
mod by_trie;
mod designs;
mod hot;
mod load;
#[cfg(test)]
mod tests;

pub use designs::IndexStructure;
pub use hot::HotMemory;
pub use load::IndexContent;

use crate::error::{Error, Result};
use crate::fptree::{FpTree, TreeStats};
use crate::key::{ByteKey, KeyBytes, PairKey, TreeKey, WordKey};
use crate::{Change, Inserted};
use by_bytes::ByteIndex;
use designs::Design;
use entresol_memory::{Pool, PoolOffset, Publication};
use hot::HotIndex;
use smallvec::SmallVec;
use std::ops::Bound;
use std::sync::Arc;

/// Lengths of the keys of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KeyWidth {
    /// At most 8 bytes; shorter keys are zero padded at the end.
    Eight = 1,
    /// At most 16 bytes; shorter keys are zero padded at the end.
    Sixteen = 2,
    /// Any length up to [`crate::KEY_BYTES_MAX`].
    Variable = 3,
}

impl KeyWidth {
    /// Returns the width with this number, as stored.
    pub fn from_number(number: u8) -> Option<KeyWidth> {
        match number {
            1 => Some(KeyWidth::Eight),
            2 => Some(KeyWidth::Sixteen),
            3 => Some(KeyWidth::Variable),
            _ => None,
        }
    }
}

enum Tree {
    Eight(FpTree<WordKey>),
    Sixteen(FpTree<PairKey>),
    Variable(FpTree<ByteKey>),
    Other(Design, Box<dyn ByteIndex>),
}

/// A persistent ordered map from byte keys to words, for many readers and writers at once.
pub struct OrderedIndex {
    tree: Tree,
}

/// Calls a generic method of the FPTree in use, or one of another structure.
macro_rules! on_tree {
    ($self:expr, $tree:ident => $call:expr, $other:ident => $other_call:expr) => {
        match &$self.tree {
            Tree::Eight($tree) => $call,
            Tree::Sixteen($tree) => $call,
            Tree::Variable($tree) => $call,
            Tree::Other(_, $other) => $other_call,
        }
    };
}

use on_tree;

impl OrderedIndex {
    /// Creates an empty index; it exists once the publication is published. Returns its root offset.
    pub fn create<'p>(
        pool: &'p Arc<Pool>,
        width: KeyWidth,
        with: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        match width {
            KeyWidth::Eight => FpTree::<WordKey>::create(pool, width as u8, with),
            KeyWidth::Sixteen => FpTree::<PairKey>::create(pool, width as u8, with),
            KeyWidth::Variable => FpTree::<ByteKey>::create(pool, width as u8, with),
        }
    }

    /// Creates an empty index of a structure; it exists once the publication is published. Returns its root
    /// offset. An error if the structure has no keys of that width.
    pub fn create_as<'p>(
        pool: &'p Arc<Pool>,
        structure: IndexStructure,
        width: KeyWidth,
        with: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        OrderedIndex::create_sized(pool, (structure, None), width, with)
    }

    /// Same as [`OrderedIndex::create_as`], with nodes of a size that the structure may have
    /// ([`IndexStructure::node_sizes`]); none: of that which it takes.
    pub fn create_sized<'p>(
        pool: &'p Arc<Pool>,
        (structure, node_bytes): (IndexStructure, Option<u16>),
        width: KeyWidth,
        with: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        let node_bytes = structure.chosen_node_bytes(node_bytes)?;
        match structure {
            IndexStructure::FpTree => OrderedIndex::create(pool, width, with),
            structure => Design::new(structure, width, node_bytes).create(pool, with),
        }
    }

    /// Opens an index by its root offset, whatever its structure is; rebuilds its parts in DRAM.
    pub fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<OrderedIndex> {
        if let Some(design) = OrderedIndex::stored_design(pool, root)? {
            return Ok(OrderedIndex { tree: Tree::Other(design, design.open(pool, root)?) });
        }
        let tree = match OrderedIndex::stored_width(pool, root)? {
            KeyWidth::Eight => Tree::Eight(FpTree::open(pool, root, KeyWidth::Eight as u8)?),
            KeyWidth::Sixteen => Tree::Sixteen(FpTree::open(pool, root, KeyWidth::Sixteen as u8)?),
            KeyWidth::Variable => Tree::Variable(FpTree::open(pool, root, KeyWidth::Variable as u8)?),
        };
        Ok(OrderedIndex { tree })
    }

    /// Puts a cache of hot entries in front of an index, for keys of fixed width.
    pub fn with_hot_entries(self, memory: HotMemory) -> Result<OrderedIndex> {
        let design = Design::new(self.structure(), self.width(), self.node_bytes());
        let hot = HotIndex::new(self, memory)?;
        Ok(OrderedIndex { tree: Tree::Other(design, Box::new(hot)) })
    }

    /// Returns its pool.
    fn pool(&self) -> &Pool {
        on_tree!(self, tree => tree.pool(), other => other.pool())
    }

    /// Keys of a leaf as random inserts fill it.
    fn usual_leaf_keys(&self) -> u64 {
        on_tree!(self, tree => tree.usual_leaf_keys(), other => other.usual_leaf_keys())
    }

    /// Estimates the share of the keys below a key; none for one that does not fit.
    fn estimated_share_below(&self, key: &[u8]) -> Option<f64> {
        fn share_below<K: TreeKey>(tree: &FpTree<K>, key: &[u8], width_bytes: usize) -> Option<f64> {
            let key = K::from_bytes(&key[..key.len().min(width_bytes)]).ok()?;
            Some(tree.estimated_share_below(key))
        }
        let width_bytes = self.key_bytes_max();
        on_tree!(
            self,
            tree => share_below(tree, key, width_bytes),
            other => other.estimated_share_below(key)
        )
    }

    /// Returns the design of a structure other than the FPTree.
    fn stored_design(pool: &Pool, root: PoolOffset) -> Result<Option<Design>> {
        if root.is_null() || !root.is_aligned(64) || !pool.contains(root, 64) {
            let message = "the offset cannot hold an index".to_string();
            return Err(Error::Corrupt { offset: root, message });
        }
        pool.verify(root, 64)?;
        Ok(Design::stored(pool, root))
    }

    /// Returns the key width of an FPTree.
    fn stored_width(pool: &Pool, root: PoolOffset) -> Result<KeyWidth> {
        let magic = pool.word(root).load(std::sync::atomic::Ordering::Acquire).to_le_bytes();
        KeyWidth::from_number(magic[6]).ok_or_else(|| Error::Corrupt {
            offset: root,
            message: format!("its header has the unknown key width {}", magic[6]),
        })
    }

    /// Returns the width of its keys.
    pub fn width(&self) -> KeyWidth {
        match &self.tree {
            Tree::Eight(_) => KeyWidth::Eight,
            Tree::Sixteen(_) => KeyWidth::Sixteen,
            Tree::Variable(_) => KeyWidth::Variable,
            Tree::Other(_, tree) => tree.width(),
        }
    }

    /// Returns its structure.
    pub fn structure(&self) -> IndexStructure {
        if let Tree::Other(design, _) = &self.tree { design.structure } else { IndexStructure::FpTree }
    }

    /// Returns the bytes of its nodes, if they are others than its structure takes itself.
    pub fn node_bytes(&self) -> Option<u16> {
        let Tree::Other(Design { structure, node_bytes, .. }, _) = &self.tree else { return None };
        (*node_bytes != structure.usual_node_bytes()).then_some(*node_bytes)
    }

    /// Returns the value of a key, none for a key that does not fit. An error where the index is damaged.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        fn get<K: TreeKey>(tree: &FpTree<K>, key: &[u8]) -> Result<Option<u64>> {
            K::from_bytes(key).map_or(Ok(None), |key| tree.get(key))
        }
        on_tree!(self, tree => get(tree, key), other => other.get(key))
    }

    /// Returns the values of keys, fetched together; `values` is cleared first.
    pub fn get_many<B: AsRef<[u8]>>(&self, keys: &[B], values: &mut Vec<Option<u64>>) -> Result<()> {
        fn get_many<K: TreeKey, B: AsRef<[u8]>>(
            tree: &FpTree<K>,
            keys: &[B],
            values: &mut Vec<Option<u64>>,
        ) -> Result<()> {
            if keys.iter().any(|key| K::from_bytes(key.as_ref()).is_err()) {
                values.clear();
                for key in keys {
                    values.push(K::from_bytes(key.as_ref()).map_or(Ok(None), |key| tree.get(key))?);
                }
                return Ok(());
            }
            tree.get_many(keys.iter().filter_map(|key| K::from_bytes(key.as_ref()).ok()), values)
        }
        on_tree!(self, tree => get_many(tree, keys, values), other => other.get_many(&slices(keys), values))
    }

    /// Returns the values of keys of several indexes, fetched together where the indexes have keys of one
    /// width and are in one pool; `values` is cleared first. For few keys of each index.
    pub fn get_many_of<'i>(
        lookups: impl Iterator<Item = (&'i OrderedIndex, &'i [u8])> + Clone,
        values: &mut Vec<Option<u64>>,
    ) -> Result<()> {
        /// Returns false if the indexes are not all of this kind.
        fn together<'i, K: TreeKey>(
            lookups: impl Iterator<Item = (&'i OrderedIndex, &'i [u8])> + Clone,
            tree: impl Fn(&'i OrderedIndex) -> Option<&'i FpTree<K>>,
            values: &mut Vec<Option<u64>>,
        ) -> Result<bool> {
            let lookup = |(index, key)| Some((tree(index)?, K::from_bytes(key).ok()?));
            if !lookups.clone().all(|wanted| lookup(wanted).is_some()) {
                return Ok(false);
            }
            FpTree::get_many_of(lookups.filter_map(lookup), values)?;
            Ok(true)
        }
        let Some((first, _)) = lookups.clone().next() else {
            values.clear();
            return Ok(());
        };
        let done = match &first.tree {
            Tree::Eight(_) => together(lookups.clone(), OrderedIndex::as_eight, values)?,
            Tree::Sixteen(_) => together(lookups.clone(), OrderedIndex::as_sixteen, values)?,
            Tree::Variable(_) => together(lookups.clone(), OrderedIndex::as_variable, values)?,
            Tree::Other(..) => false,
        };
        if done { Ok(()) } else { OrderedIndex::get_many_by_index(lookups, values) }
    }

    /// Same as [`OrderedIndex::get_many_of`], one index after the other.
    fn get_many_by_index<'i>(
        lookups: impl Iterator<Item = (&'i OrderedIndex, &'i [u8])>,
        values: &mut Vec<Option<u64>>,
    ) -> Result<()> {
        let mut lookups = lookups.peekable();
        let (mut keys, mut found) = (Vec::new(), Vec::new());
        values.clear();
        while let Some((index, key)) = lookups.next() {
            keys.clear();
            keys.push(key);
            while let Some((_, key)) = lookups.next_if(|(next, _)| std::ptr::eq(*next, index)) {
                keys.push(key);
            }
            index.get_many(&keys, &mut found)?;
            values.append(&mut found);
        }
        Ok(())
    }

    fn as_eight(&self) -> Option<&FpTree<WordKey>> {
        if let Tree::Eight(tree) = &self.tree { Some(tree) } else { None }
    }

    fn as_sixteen(&self) -> Option<&FpTree<PairKey>> {
        if let Tree::Sixteen(tree) = &self.tree { Some(tree) } else { None }
    }

    fn as_variable(&self) -> Option<&FpTree<ByteKey>> {
        if let Tree::Variable(tree) = &self.tree { Some(tree) } else { None }
    }

    /// Adds a key, atomically with the changes in `with`.
    pub fn insert<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Inserted> {
        fn insert<'p, K: TreeKey>(
            tree: &'p FpTree<K>,
            key: &[u8],
            value: u64,
            with: Publication<'p>,
        ) -> Result<Inserted> {
            tree.insert(K::from_bytes(key)?, value, with)
        }
        on_tree!(self, tree => insert(tree, key, value, with), other => other.insert(key, value, with))
    }

    /// Adds distinct keys with few publications; see [`FpTree::insert_many`].
    pub fn insert_many<'p, B: AsRef<[u8]>>(
        &'p self,
        keys: &[B],
        mut carried: impl FnMut(usize, &mut Publication<'p>) -> u64,
        mut existing: impl FnMut(usize, u64),
    ) -> Result<()> {
        fn insert_many<'p, K: TreeKey, B: AsRef<[u8]>>(
            tree: &'p FpTree<K>,
            keys: &[B],
            carried: impl FnMut(usize, &mut Publication<'p>) -> u64,
            existing: impl FnMut(usize, u64),
        ) -> Result<()> {
            let keys: Result<SmallVec<[K::Key<'_>; 16]>> =
                keys.iter().map(|key| K::from_bytes(key.as_ref())).collect();
            tree.insert_many(&keys?, carried, existing)
        }
        on_tree!(
            self,
            tree => insert_many(tree, keys, carried, existing),
            other => other.insert_many(&slices(keys), &mut carried, &mut existing)
        )
    }

    /// Applies changes in order, each failure-atomic on its own; see [`FpTree::apply_many`]. If a key does
    /// not fit, none is applied.
    pub fn apply_many<B: AsRef<[u8]>>(
        &self,
        changes: &[(B, Change)],
        before: &mut Vec<Option<u64>>,
    ) -> Result<()> {
        fn apply_many<K: TreeKey, B: AsRef<[u8]>>(
            tree: &FpTree<K>,
            changes: &[(B, Change)],
            before: &mut Vec<Option<u64>>,
        ) -> Result<()> {
            before.clear();
            let with_key = changes.iter().map(|(key, change)| Ok((K::from_bytes(key.as_ref())?, *change)));
            let changes = with_key.collect::<Result<SmallVec<[_; 16]>>>()?;
            tree.apply_many(changes.into_iter(), before)
        }
        let as_slices = || -> SmallVec<[(&[u8], Change); 16]> {
            changes.iter().map(|(key, change)| (key.as_ref(), *change)).collect()
        };
        on_tree!(
            self,
            tree => apply_many(tree, changes, before),
            other => other.apply_many(&as_slices(), before)
        )
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one.
    pub fn replace<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        fn replace<'p, K: TreeKey>(
            tree: &'p FpTree<K>,
            key: &[u8],
            value: u64,
            with: Publication<'p>,
        ) -> Result<Option<u64>> {
            tree.replace(K::from_bytes(key)?, value, with)
        }
        on_tree!(self, tree => replace(tree, key, value, with), other => other.replace(key, value, with))
    }

    /// Removes a key, atomically with the changes in `with`; returns its value.
    pub fn remove<'p>(&'p self, key: &[u8], with: Publication<'p>) -> Result<Option<u64>> {
        fn remove<'p, K: TreeKey>(
            tree: &'p FpTree<K>,
            key: &[u8],
            with: Publication<'p>,
        ) -> Result<Option<u64>> {
            tree.remove(K::from_bytes(key)?, with)
        }
        on_tree!(self, tree => remove(tree, key, with), other => other.remove(key, with))
    }

    /// Appends the entries of one leaf from a key on, in key order; returns the key (inclusive) to continue
    /// from. A bound longer than the keys is truncated and excluded: keys that are prefixes of it are less
    /// than it.
    pub fn scan_batch(
        &self,
        from: Bound<&[u8]>,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        self.scan(from, 1, entries)
    }

    /// Same as [`OrderedIndex::scan_batch`], leaf after leaf until there are at least `enough` entries more:
    /// one descent.
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        fn scan<K: TreeKey>(
            tree: &FpTree<K>,
            from: Bound<&[u8]>,
            (width_bytes, enough): (usize, usize),
            entries: &mut Vec<(KeyBytes, u64)>,
        ) -> Result<Option<KeyBytes>> {
            let cut = |bytes: &[u8]| bytes.len() > width_bytes;
            let key = |bytes| K::from_bytes(bytes).expect("truncated to the width");
            let bound = match from {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(bytes) | Bound::Excluded(bytes) if cut(bytes) => {
                    Bound::Excluded(key(&bytes[..width_bytes]))
                }
                Bound::Included(bytes) => Bound::Included(key(bytes)),
                Bound::Excluded(bytes) => Bound::Excluded(key(bytes)),
            };
            tree.scan(bound, enough, entries)
        }
        let width_bytes = self.key_bytes_max();
        on_tree!(
            self,
            tree => scan(tree, from, (width_bytes, enough), entries),
            other => other.scan(from, enough, entries)
        )
    }

    /// Appends the entries before a key, in descending order, leaf after leaf until there are at least
    /// `enough` more; returns the key (exclusive) to continue before. A bound longer than the keys is
    /// truncated and included. Cost: a descent for each leaf.
    pub fn scan_back(
        &self,
        before: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        fn scan_back<K: TreeKey>(
            tree: &FpTree<K>,
            before: Bound<&[u8]>,
            (width_bytes, enough): (usize, usize),
            entries: &mut Vec<(KeyBytes, u64)>,
        ) -> Result<Option<KeyBytes>> {
            let cut = |bytes: &[u8]| bytes.len() > width_bytes;
            let key = |bytes| K::from_bytes(bytes).expect("truncated to the width");
            let bound = match before {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(bytes) | Bound::Excluded(bytes) if cut(bytes) => {
                    Bound::Included(key(&bytes[..width_bytes]))
                }
                Bound::Included(bytes) => Bound::Included(key(bytes)),
                Bound::Excluded(bytes) => Bound::Excluded(key(bytes)),
            };
            tree.visit_back(bound, enough, |stored, value| {
                entries.push((K::to_bytes(tree.pool(), stored), value));
            })
        }
        let width_bytes = self.key_bytes_max();
        on_tree!(
            self,
            tree => scan_back(tree, before, (width_bytes, enough), entries),
            other => other.scan_back(before, enough, entries)
        )
    }

    /// Returns keys that divide the index into parts of about equal size, in ascending order; see
    /// [`FpTree::split_points`].
    pub fn split_points(&self, wanted: usize) -> Vec<KeyBytes> {
        on_tree!(self, tree => tree.split_points(wanted), other => other.split_points(wanted))
    }

    /// Estimates the number of keys; see [`FpTree::estimated_keys`].
    pub fn estimated_keys(&self) -> u64 {
        on_tree!(self, tree => tree.estimated_keys(), other => other.estimated_keys())
    }

    /// Estimates the number of keys between two bounds, not below those of one leaf; keys longer than the index's
    /// count as their beginning. Cost: that of [`OrderedIndex::estimated_keys`], and two descents.
    pub fn estimated_keys_between(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> u64 {
        let share = |bound: Bound<&[u8]>, unbounded: f64| match bound {
            Bound::Unbounded => unbounded,
            Bound::Included(bytes) | Bound::Excluded(bytes) => {
                self.estimated_share_below(bytes).unwrap_or(unbounded)
            }
        };
        let keys = self.estimated_keys();
        let share = (share(upper, 1.0) - share(lower, 0.0)).clamp(0.0, 1.0);
        ((keys as f64 * share) as u64).max(self.usual_leaf_keys()).min(keys)
    }

    /// Finds the first entry at or after each of some keys, which fit the index, in any order; `found` is
    /// cleared first.
    pub fn first_from_each<B: AsRef<[u8]>>(
        &self,
        keys: &[B],
        found: &mut Vec<Option<(KeyBytes, u64)>>,
    ) -> Result<()> {
        fn first_from_each<K: TreeKey, B: AsRef<[u8]>>(
            tree: &FpTree<K>,
            keys: &[B],
            found: &mut Vec<Option<(KeyBytes, u64)>>,
        ) -> Result<()> {
            let keys: Result<SmallVec<[K::Key<'_>; 16]>> =
                keys.iter().map(|key| K::from_bytes(key.as_ref())).collect();
            tree.first_from_each(keys?.into_iter(), found)
        }
        found.clear();
        on_tree!(self, tree => first_from_each(tree, keys, found), other => {
            for key in keys {
                found.push(other.first_from(key.as_ref())?);
            }
            Ok(())
        })
    }

    /// Returns the first entry at or after a key that fits the index. Cost: a descent and one leaf.
    pub fn first_from(&self, key: &[u8]) -> Result<Option<(KeyBytes, u64)>> {
        fn first_from<K: TreeKey>(tree: &FpTree<K>, key: &[u8]) -> Result<Option<(KeyBytes, u64)>> {
            tree.first_from(K::from_bytes(key)?)
        }
        on_tree!(self, tree => first_from(tree, key), other => other.first_from(key))
    }

    /// Returns the length of the longest key that fits.
    pub fn key_bytes_max(&self) -> usize {
        match &self.tree {
            Tree::Eight(_) => 8,
            Tree::Sixteen(_) => 16,
            Tree::Variable(_) => crate::KEY_BYTES_MAX,
            Tree::Other(_, tree) => match tree.width() {
                KeyWidth::Eight => 8,
                KeyWidth::Sixteen => 16,
                KeyWidth::Variable => crate::KEY_BYTES_MAX,
            },
        }
    }

    /// Returns the greatest key.
    pub fn last_key(&self) -> Result<Option<KeyBytes>> {
        on_tree!(self, tree => tree.last_key(), other => other.last_key())
    }

    /// Returns the number that its owner stored last; see [`FpTree::note`].
    pub fn note(&self) -> Option<u64> {
        on_tree!(self, tree => tree.note(), other => other.note())
    }

    /// Stores a number; see [`FpTree::set_note`].
    pub fn set_note(&self, number: u64) {
        on_tree!(self, tree => tree.set_note(number), other => other.set_note(number));
    }

    /// Returns the number of unopened segments; see [`FpTree::segments_left`].
    pub fn segments_left(&self) -> u64 {
        on_tree!(self, tree => tree.segments_left(), other => other.segments_left())
    }

    /// Opens unopened segments ahead of need; see [`FpTree::open_more`].
    pub fn open_more(&self, segments_max: usize) -> Result<u64> {
        on_tree!(self, tree => tree.open_more(segments_max), other => other.open_more(segments_max))
    }

    /// Sizes; see [`FpTree::stats`].
    pub fn stats(&self) -> TreeStats {
        on_tree!(self, tree => tree.stats(), other => other.stats())
    }

    /// Verifies all invariants; see [`FpTree::check`].
    pub fn check(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        on_tree!(self, tree => tree.check(object), other => other.check(&mut object))
    }

    /// Same as [`OrderedIndex::check`] for an index that may be damaged anywhere; see
    /// [`FpTree::check_damaged`].
    pub fn check_damaged(
        &self,
        mut claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        mut entry: impl FnMut(&[u8], u64),
    ) -> Result<()> {
        on_tree!(
            self,
            tree => tree.check_damaged(claim, entry),
            other => other.check_damaged(&mut claim, &mut entry)
        )
    }

    /// Same as [`OrderedIndex::check_damaged`] for an index partly freed by [`OrderedIndex::destroy_step`];
    /// see [`FpTree::check_remains`].
    pub fn check_remains(
        pool: &Arc<Pool>,
        root: PoolOffset,
        claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        entry: impl FnMut(&[u8], u64),
    ) -> Result<()> {
        if let Some(design) = OrderedIndex::stored_design(pool, root)? {
            return design.check_remains(pool, root, claim, entry);
        }
        match OrderedIndex::stored_width(pool, root)? {
            KeyWidth::Eight => FpTree::<WordKey>::check_remains(pool, root, claim, entry),
            KeyWidth::Sixteen => FpTree::<PairKey>::check_remains(pool, root, claim, entry),
            KeyWidth::Variable => FpTree::<ByteKey>::check_remains(pool, root, claim, entry),
        }
    }

    /// Returns true if parts of a closed index may have been freed by [`OrderedIndex::destroy_step`], so that it
    /// cannot be opened.
    pub fn is_in_destruction(pool: &Pool, root: PoolOffset) -> Result<bool> {
        Ok(match OrderedIndex::stored_design(pool, root)? {
            Some(design) => design.is_in_destruction(pool, root),
            // Its leaves are freed from the first on, and it can be opened as long as there is one.
            None => pool.word(root.plus(8)).load(std::sync::atomic::Ordering::Acquire) == 0,
        })
    }

    /// Frees a part of a closed index; see [`FpTree::destroy_step`]. Returns true when only its root object
    /// is left.
    pub fn destroy_step(
        pool: &Arc<Pool>,
        root: PoolOffset,
        free_values: bool,
        leaves_max: usize,
    ) -> Result<bool> {
        if let Some(design) = OrderedIndex::stored_design(pool, root)? {
            return design.destroy_step(pool, root, free_values, leaves_max);
        }
        match OrderedIndex::stored_width(pool, root)? {
            KeyWidth::Eight => FpTree::<WordKey>::destroy_step(pool, root, free_values, leaves_max),
            KeyWidth::Sixteen => FpTree::<PairKey>::destroy_step(pool, root, free_values, leaves_max),
            KeyWidth::Variable => FpTree::<ByteKey>::destroy_step(pool, root, free_values, leaves_max),
        }
    }
}

/// Keys of a batch as slices.
fn slices<B: AsRef<[u8]>>(keys: &[B]) -> SmallVec<[&[u8]; 16]> {
    keys.iter().map(AsRef::as_ref).collect()
}
