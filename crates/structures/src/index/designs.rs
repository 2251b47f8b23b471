//! Structures of an ordered index, by name, and the types that implement them.
//!
//! The header of a structure says what it is, so an index is opened without being told; its first word is
//! `FPTREE` and the kind of keys for the FPTree, `BTREE` for a generic tree, whose second and third word are
//! layouts, placement and sizes, `SKIPL` for a skip-list, whose second word is that.

use super::KeyWidth;
use super::by_bytes::ByteIndex;
use crate::btree::instances::{FastFairTree, HybridPbpTree, HybridWbTree, PbpTree, WbTree};
use crate::error::{Error, Result};
use crate::skiplist::HybridBucketSkipList;
use entresol_memory::{Pool, PoolOffset, Publication};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Structure of an ordered index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IndexStructure {
    /// The FPTree: unsorted leaves with fingerprints, inner nodes in DRAM. The only one for keys of any length.
    #[default]
    FpTree,
    /// The wB+-tree: slot arrays in all nodes, all persistent.
    WbTree,
    /// The hybrid wB+-tree: slot arrays, inner nodes in DRAM.
    HybridWbTree,
    /// The PBP-tree: sorted nodes, all persistent.
    PbpTree,
    /// The hybrid PBP-tree: sorted nodes, inner nodes in DRAM.
    HybridPbpTree,
    /// FAST and FAIR: sorted nodes, shifted by 8-byte stores, all persistent; for keys of up to 8 bytes.
    FastFair,
    /// The skip-list of buckets: fingerprints in nodes, towers in DRAM; writers latch the nodes that they change.
    SkipList,
}

impl IndexStructure {
    /// All structures.
    pub const ALL: [IndexStructure; 7] = [
        IndexStructure::FpTree,
        IndexStructure::WbTree,
        IndexStructure::HybridWbTree,
        IndexStructure::PbpTree,
        IndexStructure::HybridPbpTree,
        IndexStructure::FastFair,
        IndexStructure::SkipList,
    ];

    /// Returns its name, as SQL has it.
    pub fn name(self) -> &'static str {
        match self {
            IndexStructure::FpTree => "fptree",
            IndexStructure::WbTree => "wbtree",
            IndexStructure::HybridWbTree => "hybrid_wbtree",
            IndexStructure::PbpTree => "pbptree",
            IndexStructure::HybridPbpTree => "hybrid_pbptree",
            IndexStructure::FastFair => "fastfair",
            IndexStructure::SkipList => "skiplist",
        }
    }

    /// Returns its number, as catalogs store it.
    pub fn number(self) -> u8 {
        match self {
            IndexStructure::FpTree => 0,
            IndexStructure::WbTree => 1,
            IndexStructure::HybridWbTree => 2,
            IndexStructure::PbpTree => 3,
            IndexStructure::HybridPbpTree => 4,
            IndexStructure::FastFair => 5,
            IndexStructure::SkipList => 6,
        }
    }

    /// Returns the structure with this number.
    pub fn from_number(number: u8) -> Option<IndexStructure> {
        IndexStructure::ALL.into_iter().find(|structure| structure.number() == number)
    }

    /// Returns the length of the longest keys that it has.
    pub fn key_bytes_max(self) -> usize {
        match self {
            IndexStructure::FpTree => crate::KEY_BYTES_MAX,
            IndexStructure::FastFair => 8,
            _ => 16,
        }
    }

    /// Returns true if it has keys of this width.
    pub fn supports(self, width: KeyWidth) -> bool {
        match width {
            KeyWidth::Eight => true,
            KeyWidth::Sixteen => self.key_bytes_max() >= 16,
            KeyWidth::Variable => self == IndexStructure::FpTree,
        }
    }
}

impl std::fmt::Display for IndexStructure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IndexStructure {
    type Err = Error;

    fn from_str(text: &str) -> Result<IndexStructure> {
        let known =
            IndexStructure::ALL.into_iter().find(|structure| structure.name().eq_ignore_ascii_case(text));
        known.ok_or_else(|| {
            let names = IndexStructure::ALL.map(IndexStructure::name).join(", ");
            Error::Invalid(format!("there is no structure \"{text}\"; there are {names}"))
        })
    }
}

/// Calls a generic expression with the type that implements a structure for keys of a width; `None` for the
/// FPTree, which has types of its own, and where there is none.
macro_rules! on_design {
    ($structure:expr, $width:expr, $tree:ident => $call:expr) => {
        on_design!(@all $structure, $width, $tree, $call,
            WbTree Eight WbTree<u64>, WbTree Sixteen WbTree<u128>,
            HybridWbTree Eight HybridWbTree<u64>, HybridWbTree Sixteen HybridWbTree<u128>,
            PbpTree Eight PbpTree<u64>, PbpTree Sixteen PbpTree<u128>,
            HybridPbpTree Eight HybridPbpTree<u64>, HybridPbpTree Sixteen HybridPbpTree<u128>,
            FastFair Eight FastFairTree<u64>,
            SkipList Eight HybridBucketSkipList<u64>, SkipList Sixteen HybridBucketSkipList<u128>)
    };
    (@all $structure:expr, $width:expr, $tree:ident, $call:expr,
        $($name:ident $wide:ident $type:ty),*) => {
        match ($structure, $width) {
            $((IndexStructure::$name, KeyWidth::$wide) => {
                type $tree = $type;
                Some($call)
            })*
            _ => None,
        }
    };
}

/// Structure and key width of an index other than an FPTree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Design {
    pub(super) structure: IndexStructure,
    pub(super) width: KeyWidth,
}

impl Design {
    /// Returns the design of the index with this header, which is inside the pool and sound; none for an FPTree.
    pub(super) fn stored(pool: &Pool, root: PoolOffset) -> Option<Design> {
        let words = pool.try_words(root, 3)?;
        let [magic, kind, sizes] = [0, 1, 2].map(|word: usize| words[word].load(Acquire));
        if magic.to_le_bytes()[..6] == *b"FPTREE" {
            return None;
        }
        let widths = [KeyWidth::Eight, KeyWidth::Sixteen];
        let mut all = IndexStructure::ALL
            .into_iter()
            .flat_map(|structure| widths.map(|width| Design { structure, width }));
        all.find(|design| {
            on_design!(design.structure, design.width, Tree => Tree::header_begins(magic, [kind, sizes]))
                == Some(true)
        })
    }

    fn missing(self) -> Error {
        let Design { structure, width } = self;
        let bytes = structure.key_bytes_max();
        Error::Invalid(format!(
            "{structure} has keys of up to {bytes} bytes, and none of the width {width:?}"
        ))
    }

    /// Creates an empty index; returns its root offset.
    pub(super) fn create<'p>(self, pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset> {
        let created = on_design!(self.structure, self.width, Tree => Tree::create(pool, with));
        created.unwrap_or_else(|| Err(self.missing()))
    }

    /// Opens an index.
    pub(super) fn open(self, pool: &Arc<Pool>, root: PoolOffset) -> Result<Box<dyn ByteIndex>> {
        let opened = on_design!(self.structure, self.width, Tree => {
            Tree::open(pool, root).map(|tree| Box::new(tree) as Box<dyn ByteIndex>)
        });
        opened.unwrap_or_else(|| Err(self.missing()))
    }

    /// Frees a part of a closed index.
    pub(super) fn destroy_step(
        self,
        pool: &Arc<Pool>,
        root: PoolOffset,
        free_values: bool,
        leaves_max: usize,
    ) -> Result<bool> {
        let done = on_design!(self.structure, self.width, Tree => {
            Tree::destroy_step(pool, root, free_values, leaves_max)
        });
        done.unwrap_or_else(|| Err(self.missing()))
    }

    /// Returns true once parts of it may be freed.
    pub(super) fn is_in_destruction(self, pool: &Pool, root: PoolOffset) -> bool {
        on_design!(self.structure, self.width, Tree => Tree::is_in_destruction(pool, root)).unwrap_or(false)
    }

    /// Verifies what is left of an index in destruction.
    pub(super) fn check_remains(
        self,
        pool: &Arc<Pool>,
        root: PoolOffset,
        claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        mut entry: impl FnMut(&[u8], u64),
    ) -> Result<()> {
        use super::by_bytes::OrderedKey;
        let checked = on_design!(self.structure, self.width, Tree => {
            Tree::check_remains(pool, root, claim, |key, value| entry(&key.to_bytes(), value))
        });
        checked.unwrap_or_else(|| Err(self.missing()))
    }
}
