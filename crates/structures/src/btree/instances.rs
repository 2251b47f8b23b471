//! The designs of the papers as instances of [`BTree`]: kinds of keys first, then bytes of leaves, then of
//! inner nodes.
//!
//! | alias | leaves | inner nodes | source |
//! | --- | --- | --- | --- |
//! | [`FpLikeTree`] | hashing | sorted, DRAM | FPTree (Oukid et al. 2016) |
//! | [`WbTree`] | indirection | indirection | wB+-tree (Chen and Jin 2015) |
//! | [`HybridWbTree`] | indirection | indirection, DRAM | dissertation 3.2.2 |
//! | [`PbpTree`] | sorted | sorted | dissertation 3.2.2, own adaptions |
//! | [`HybridPbpTree`] | sorted | sorted, DRAM | the same |
//! | [`UnsortedTree`] | unsorted | unsorted | the same |
//! | [`HybridUnsortedTree`] | unsorted | sorted, DRAM | the same |
//! | [`BitmapTree`] | bitmap | bitmap | the same |
//! | [`HybridBitmapTree`] | bitmap | sorted, DRAM | the same |
//! | [`FastFairTree`] | FAST | FAST, linked | FAST and FAIR (Hwang et al. 2018) |
//!
//! The recommended sizes: leaves of 1 KiB, inner nodes in DRAM of up to 4 KiB, persistent ones of at most 1
//! KiB (dissertation 3.5.2).

use super::{BTree, Dram, Persistent};
use crate::node::{Bitmap, Fast, Hashing, Indirection, Sorted, Unsorted};

/// Hashing leaves, sorted inner nodes in DRAM. For tables use [`crate::FpTree`], which is tuned for them.
pub type FpLikeTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Hashing<LEAF>, Sorted<INNER>, Dram>;
/// The wB+-tree: indirection everywhere, all persistent.
pub type WbTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Indirection<LEAF>, Indirection<INNER>, Persistent>;
/// The hybrid wB+-tree: indirection everywhere, inner nodes in DRAM.
pub type HybridWbTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Indirection<LEAF>, Indirection<INNER>, Dram>;
/// The PBP-tree: sorted everywhere, all persistent.
pub type PbpTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Sorted<LEAF>, Sorted<INNER>, Persistent>;
/// The hybrid PBP-tree: sorted everywhere, inner nodes in DRAM.
pub type HybridPbpTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Sorted<LEAF>, Sorted<INNER>, Dram>;
/// Unsorted everywhere, all persistent.
pub type UnsortedTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Unsorted<LEAF>, Unsorted<INNER>, Persistent>;
/// Unsorted leaves, sorted inner nodes in DRAM.
pub type HybridUnsortedTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Unsorted<LEAF>, Sorted<INNER>, Dram>;
/// Bitmaps everywhere, all persistent.
pub type BitmapTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Bitmap<LEAF>, Bitmap<INNER>, Persistent>;
/// Leaves with bitmaps, sorted inner nodes in DRAM.
pub type HybridBitmapTree<K, const LEAF: usize = 1024, const INNER: usize = 1024> =
    BTree<K, Bitmap<LEAF>, Sorted<INNER>, Dram>;
/// FAST and FAIR: shifted by 8-byte stores, linked to the right on every level, all persistent. Keys of one
/// word.
pub type FastFairTree<K, const LEAF: usize = 512, const INNER: usize = 512> =
    BTree<K, Fast<LEAF>, Fast<INNER>, Persistent>;
