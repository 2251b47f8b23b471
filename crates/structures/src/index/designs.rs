//! Structures of an ordered index, by name, and the types that implement them.
//!
//! The header of a structure says what it is, so an index is opened without being told; its first word is
//! `FPTREE` and the kind of keys for the FPTree, `BTREE` for a generic tree, whose second and third word are
//! layouts, placement and sizes, `SKIPL` for a skip-list, whose second word is that, `LSM` and the words of a key for an
//! LSM-tree, `TRIE` for a trie, whose second word has the bytes of a key.

use super::KeyWidth;
use super::by_bytes::ByteIndex;
use crate::btree::instances::{FastFairTree, HybridPbpTree, HybridWbTree, PbpTree, WbTree};
use crate::error::{Error, Result};
use crate::lsm::PooledLsmTree;
use crate::skiplist::HybridBucketSkipList;
use crate::trie::PatriciaIndex;
use entresol_memory::{Pool, PoolOffset, Publication};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Structure of an ordered index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IndexStructure {
    /// The FPTree: unsorted leaves with fingerprints, inner nodes in DRAM; for keys of any length.
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
    /// The LSM-tree with all of its levels in the pool: writes go to a buffer with a log, and to sorted runs.
    Lsm,
    /// PATRICIA: a radix tree of radix two over keys of any length, all persistent.
    Patricia,
}

impl IndexStructure {
    /// All structures.
    pub const ALL: [IndexStructure; 9] = [
        IndexStructure::FpTree,
        IndexStructure::WbTree,
        IndexStructure::HybridWbTree,
        IndexStructure::PbpTree,
        IndexStructure::HybridPbpTree,
        IndexStructure::FastFair,
        IndexStructure::SkipList,
        IndexStructure::Lsm,
        IndexStructure::Patricia,
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
            IndexStructure::Lsm => "lsm",
            IndexStructure::Patricia => "patricia",
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
            IndexStructure::Lsm => 7,
            IndexStructure::Patricia => 8,
        }
    }

    /// Returns the structure with this number.
    pub fn from_number(number: u8) -> Option<IndexStructure> {
        IndexStructure::ALL.into_iter().find(|structure| structure.number() == number)
    }

    /// Returns the length of the longest keys that it has.
    pub fn key_bytes_max(self) -> usize {
        match self {
            IndexStructure::FpTree | IndexStructure::Patricia => crate::KEY_BYTES_MAX,
            IndexStructure::FastFair => 8,
            _ => 16,
        }
    }

    /// Returns the sizes that its nodes may have, in bytes, that which it takes itself first.
    pub fn node_sizes(self) -> &'static [u16] {
        match self {
            IndexStructure::WbTree
            | IndexStructure::HybridWbTree
            | IndexStructure::PbpTree
            | IndexStructure::HybridPbpTree => &[1024, 512, 2048],
            IndexStructure::FastFair => &[512, 1024],
            IndexStructure::FpTree => &[1024],
            IndexStructure::SkipList => &[768],
            IndexStructure::Lsm => &[256],
            IndexStructure::Patricia => &[64],
        }
    }

    /// Returns the bytes of the nodes that it takes itself.
    pub fn usual_node_bytes(self) -> u16 {
        self.node_sizes()[0]
    }

    /// Returns the bytes of its nodes if they are to be others than it takes itself; an error if they cannot have as many
    /// as asked for.
    pub fn chosen_node_bytes(self, bytes: Option<u16>) -> Result<Option<u16>> {
        let sizes = self.node_sizes();
        let Some(wanted) = bytes.filter(|bytes| !sizes.contains(bytes)) else {
            return Ok(bytes.filter(|bytes| *bytes != self.usual_node_bytes()));
        };
        let possible = sizes.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let with_choice = IndexStructure::ALL.into_iter().filter(|other| other.node_sizes().len() > 1);
        let others = with_choice.map(IndexStructure::name).collect::<Vec<_>>().join(", ");
        let other = if sizes.len() > 1 { String::new() } else { format!("; there is a choice of {others}") };
        Err(Error::Invalid(format!("{self} has nodes of {possible} bytes, not {wanted}{other}")))
    }

    /// Returns the number of a size of its nodes, as directories store it; 0: that which it takes itself.
    pub fn number_of_size(self, bytes: Option<u16>) -> u8 {
        let number = self.node_sizes().iter().position(|size| Some(*size) == bytes);
        number.unwrap_or(0) as u8
    }

    /// Returns the size of its nodes with this number; the inner none if it is that which it takes itself.
    pub fn node_bytes_of(self, number: u8) -> Option<Option<u16>> {
        let bytes = *self.node_sizes().get(usize::from(number))?;
        Some((number > 0).then_some(bytes))
    }

    /// Returns true if it has keys of this width.
    pub fn supports(self, width: KeyWidth) -> bool {
        match width {
            KeyWidth::Eight => true,
            KeyWidth::Sixteen => self.key_bytes_max() >= 16,
            KeyWidth::Variable => matches!(self, IndexStructure::FpTree | IndexStructure::Patricia),
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

/// Calls a generic expression with the type that implements a design; `None` for the
/// FPTree, which has types of its own, and where there is none.
macro_rules! on_design {
    ($design:expr, $tree:ident => $call:expr) => {
        on_design!(@all $design, $tree, $call,
            WbTree Eight 1024 WbTree<u64>, WbTree Eight 512 WbTree<u64, 512, 512>,
            WbTree Eight 2048 WbTree<u64, 2048, 2048>, WbTree Sixteen 1024 WbTree<u128>,
            WbTree Sixteen 512 WbTree<u128, 512, 512>, WbTree Sixteen 2048 WbTree<u128, 2048, 2048>,
            HybridWbTree Eight 1024 HybridWbTree<u64>, HybridWbTree Eight 512 HybridWbTree<u64, 512, 512>,
            HybridWbTree Eight 2048 HybridWbTree<u64, 2048, 2048>,
            HybridWbTree Sixteen 1024 HybridWbTree<u128>,
            HybridWbTree Sixteen 512 HybridWbTree<u128, 512, 512>,
            HybridWbTree Sixteen 2048 HybridWbTree<u128, 2048, 2048>, PbpTree Eight 1024 PbpTree<u64>,
            PbpTree Eight 512 PbpTree<u64, 512, 512>, PbpTree Eight 2048 PbpTree<u64, 2048, 2048>,
            PbpTree Sixteen 1024 PbpTree<u128>, PbpTree Sixteen 512 PbpTree<u128, 512, 512>,
            PbpTree Sixteen 2048 PbpTree<u128, 2048, 2048>, HybridPbpTree Eight 1024 HybridPbpTree<u64>,
            HybridPbpTree Eight 512 HybridPbpTree<u64, 512, 512>,
            HybridPbpTree Eight 2048 HybridPbpTree<u64, 2048, 2048>,
            HybridPbpTree Sixteen 1024 HybridPbpTree<u128>,
            HybridPbpTree Sixteen 512 HybridPbpTree<u128, 512, 512>,
            HybridPbpTree Sixteen 2048 HybridPbpTree<u128, 2048, 2048>,
            FastFair Eight 512 FastFairTree<u64>, FastFair Eight 1024 FastFairTree<u64, 1024, 1024>,
            SkipList Eight 768 HybridBucketSkipList<u64>, SkipList Sixteen 768 HybridBucketSkipList<u128>,
            Lsm Eight 256 PooledLsmTree<u64>, Lsm Sixteen 256 PooledLsmTree<u128>,
            Patricia Eight 64 PatriciaIndex<8>, Patricia Sixteen 64 PatriciaIndex<16>,
            Patricia Variable 64 PatriciaIndex<0>)
    };
    (@all $design:expr, $tree:ident, $call:expr,
        $($name:ident $wide:ident $bytes:literal $type:ty),*) => {
        match ($design.structure, $design.width, $design.node_bytes) {
            $((IndexStructure::$name, KeyWidth::$wide, $bytes) => {
                type $tree = $type;
                Some($call)
            })*
            _ => None,
        }
    };
}

/// Structure, key width and bytes of nodes of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Design {
    pub(super) structure: IndexStructure,
    pub(super) width: KeyWidth,
    pub(super) node_bytes: u16,
}

impl Design {
    /// Returns a design with nodes of a size, or of that which the structure takes.
    pub(super) fn new(structure: IndexStructure, width: KeyWidth, node_bytes: Option<u16>) -> Design {
        Design { structure, width, node_bytes: node_bytes.unwrap_or(structure.usual_node_bytes()) }
    }

    /// Returns the design of the index with this header, which is inside the pool and sound; none for an FPTree.
    pub(super) fn stored(pool: &Pool, root: PoolOffset) -> Option<Design> {
        let words = pool.try_words(root, 3)?;
        let [magic, kind, sizes] = [0, 1, 2].map(|word: usize| words[word].load(Acquire));
        if magic.to_le_bytes()[..6] == *b"FPTREE" {
            return None;
        }
        let widths = [KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable];
        let mut all = IndexStructure::ALL
            .into_iter()
            .flat_map(|structure| widths.map(|width| (structure, width)))
            .flat_map(|(structure, width)| {
                structure.node_sizes().iter().map(move |bytes| Design {
                    structure,
                    width,
                    node_bytes: *bytes,
                })
            });
        all.find(|design| on_design!(design, Tree => Tree::header_begins(magic, [kind, sizes])) == Some(true))
    }

    fn missing(self) -> Error {
        let Design { structure, width, .. } = self;
        let bytes = structure.key_bytes_max();
        Error::Invalid(format!(
            "{structure} has keys of up to {bytes} bytes, and none of the width {width:?}"
        ))
    }

    /// Creates an empty index; returns its root offset.
    pub(super) fn create<'p>(self, pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset> {
        let created = on_design!(self, Tree => Tree::create(pool, with));
        created.unwrap_or_else(|| Err(self.missing()))
    }

    /// Opens an index.
    pub(super) fn open(self, pool: &Arc<Pool>, root: PoolOffset) -> Result<Box<dyn ByteIndex>> {
        let opened = on_design!(self, Tree => {
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
        let done = on_design!(self, Tree => {
            Tree::destroy_step(pool, root, free_values, leaves_max)
        });
        done.unwrap_or_else(|| Err(self.missing()))
    }

    /// Returns true once parts of it may be freed.
    pub(super) fn is_in_destruction(self, pool: &Pool, root: PoolOffset) -> bool {
        on_design!(self, Tree => Tree::is_in_destruction(pool, root)).unwrap_or(false)
    }

    /// Verifies what is left of an index in destruction.
    pub(super) fn check_remains(
        self,
        pool: &Arc<Pool>,
        root: PoolOffset,
        claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        mut entry: impl FnMut(&[u8], u64),
    ) -> Result<()> {
        use super::by_bytes::StoredKey;
        let checked = on_design!(self, Tree => {
            Tree::check_remains(pool, root, claim, |key, value| entry(&key.stored_bytes(), value))
        });
        checked.unwrap_or_else(|| Err(self.missing()))
    }
}
