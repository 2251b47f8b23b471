//! Elf: a multi-dimensional index over tuples of codes (Broneske et al.: Accelerating Multi-Column Selection
//! Predicates in Main-Memory; dissertation 4.3).
//!
//! A level of the tree is a dimension. A *DimensionList* has the different codes of the tuples that share a
//! prefix, sorted, and the place of what follows each; a *MonoList* has the remaining codes of a prefix that
//! only one combination of codes continues, and the tuple ids of that. Conditions on any dimensions narrow the
//! descent, those on the first ones most.
//!
//! ```text
//!   tuple   codes                 dimension 0        0 ── 1
//!   0       0 3 7                                    │    └────────── [5 5] 3
//!   1       0 3 9                 dimension 1        3 ── 4
//!   2       0 4 1                                    │    └─ [1] 2
//!   3       1 5 5                 dimension 2        7 ── 9
//!                                                    │    └─ [ ] 1
//!                                                    └─ [ ] 0           [codes] tuple ids: a MonoList
//! ```
//!
//! All of it is one array of 32-bit words, depth first, so that a subtree is read from its beginning to its end:
//!
//! | words | contents |
//! | --- | --- |
//! | 1 | format, 1 |
//! | 1 | number of dimensions |
//! | 1 | number of tuples |
//! | 1 | number of words |
//! | 1 | slots of the first dimension; 0: it is a DimensionList |
//! | 3 per dimension | DimensionLists, their entries, MonoLists that begin there |
//! | 1 per slot | child of each code of the first dimension, 0: no tuple has it |
//! | DimensionList | number of entries, their codes, their children |
//! | child | offset of its first word; with the highest bit set it is a MonoList |
//! | MonoList | codes of the dimensions that remain, tuple ids; the last one has the highest bit set |
//!
//! Beyond the papers: a list has its number of entries in place of a mark at the last one, and its codes lie
//! together, so that a bound is found by a binary search; the header counts lists by dimension, from which
//! [`ElfWork`] estimates what a search costs.
//!
//! # Invariants
//!
//! - Codes, tuple ids and offsets are below 2^31. Tuple ids are 0 to the number of tuples, each once.
//! - Codes of a list ascend. Each child begins where the words of the one before end.
//! - An Elf is not changed after it was built; one of other tuples is built anew.
//!
//! [`Elf::open`] checks all of that, in one pass over the words. [`ElfInPlace`] searches words where they are stored, and
//! checks what it reads as it reads it; in front of it a [`ListCache`] has copies of some lists in DRAM ([`cache`]).
//! A search of damaged words is neither a panic nor an endless loop. Nothing here is persistent: the caller stores
//! the words, and a checksum.
//!
//! Memory: building takes 16 bytes a tuple and the words of the result; a cache of lists its bytes.

mod build;
pub mod cache;
mod check;
mod codes;
mod condition;
mod in_place;
mod lists;
mod search;
mod storage;
#[cfg(test)]
mod tests;
mod work;

pub use cache::{
    CopyMeter, FixedLists, ListCache, ListCacheOptions, ListCacheStats, ListPolicy, ListReplacement,
    ParseListPolicyError,
};
pub use condition::{CodeCondition, CodeSet};
pub use in_place::{ElfInPlace, PARALLEL_WORDS_MIN};
pub use storage::{ElfPiece, ElfPieces, ElfStorage};
pub use work::ElfWork;

use crate::error::{Error, Result};
use std::ops::ControlFlow;

/// Maximum number of dimensions.
pub const ELF_DIMENSIONS_MAX: usize = 64;
/// Greatest code, tuple id and offset.
pub const ELF_CODE_MAX: u32 = (1 << 31) - 1;

/// Number of the format.
const FORMAT: u32 = 1;
/// Words of the header before its counts of dimensions.
const HEADER_WORDS: usize = 5;
/// Words of the counts of a dimension.
const LEVEL_WORDS: usize = 3;
/// Mark of a child that is a MonoList, and of the last tuple id of a MonoList.
const MARK: u32 = 1 << 31;

/// Counts of a dimension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ElfLevel {
    /// DimensionLists.
    pub lists: u32,
    /// Entries of the DimensionLists.
    pub entries: u32,
    /// MonoLists whose first code is of this dimension.
    pub monos: u32,
}

/// Header of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ElfShape {
    levels: Vec<ElfLevel>,
    tuples: u32,
    slots: u32,
}

impl ElfShape {
    /// Reads the header.
    fn read<S: ElfStorage + ?Sized>(storage: &S) -> Result<ElfShape> {
        let found = storage.len();
        if found < HEADER_WORDS {
            return Err(damaged(0, format!("it has {found} words, fewer than a header")));
        }
        storage.touch(0, HEADER_WORDS);
        let [format, dimensions, tuples, length, slots] = std::array::from_fn(|at| storage.word(at));
        if format != FORMAT {
            return Err(damaged(0, format!("its format is {format}, known is {FORMAT}")));
        }
        if dimensions == 0 || dimensions as usize > ELF_DIMENSIONS_MAX {
            return Err(damaged(1, format!("it has {dimensions} dimensions, not 1 to {ELF_DIMENSIONS_MAX}")));
        }
        if length as usize != found {
            return Err(damaged(3, format!("it has {found} words, its header says {length}")));
        }
        let counts = dimensions as usize * LEVEL_WORDS;
        if HEADER_WORDS + counts > found {
            return Err(damaged(HEADER_WORDS, "counts of dimensions are missing".to_owned()));
        }
        storage.touch(HEADER_WORDS, counts);
        let level = |at: usize| {
            let [lists, entries, monos] = std::array::from_fn(|count| storage.word(at + count));
            ElfLevel { lists, entries, monos }
        };
        let levels = (HEADER_WORDS..HEADER_WORDS + counts).step_by(LEVEL_WORDS).map(level).collect();
        Ok(ElfShape { levels, tuples, slots })
    }

    /// Number of dimensions.
    fn dimensions(&self) -> usize {
        self.levels.len()
    }

    /// Position of the first word behind the header.
    fn root(&self) -> usize {
        HEADER_WORDS + LEVEL_WORDS * self.dimensions()
    }
}

/// Multi-dimensional index; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    words: Box<[u32]>,
    shape: ElfShape,
}

impl Elf {
    /// Index of the tuples with these codes, given as one slice per dimension; a tuple's id is its position.
    pub fn build(codes: &[&[u32]]) -> Result<Elf> {
        let elf = Elf::described(build::build(codes)?)?;
        debug_assert!(elf.check().is_ok(), "a new Elf is sound: {:?}", elf.check());
        Ok(elf)
    }

    /// Opens an index that was stored; [`Error::DamagedElf`] if the words are not those of a sound one.
    pub fn open(words: Vec<u32>) -> Result<Elf> {
        let elf = Elf::described(words)?;
        elf.check()?;
        Ok(elf)
    }

    fn described(words: Vec<u32>) -> Result<Elf> {
        Ok(Elf { shape: ElfShape::read(&words[..])?, words: words.into_boxed_slice() })
    }

    /// Calls `found` with the id of each tuple that meets the conditions, one per dimension, until it breaks;
    /// dimensions without one have none. Ids come in the order of the codes.
    pub fn search<F: FnMut(u32) -> ControlFlow<()>>(
        &self,
        conditions: &[CodeCondition],
        found: F,
    ) -> ControlFlow<()> {
        let ended = search::ended(search::search(&self.words[..], &self.shape, conditions, found));
        debug_assert!(ended.is_ok(), "it was checked when it was made: {ended:?}");
        ended.unwrap_or(ControlFlow::Continue(()))
    }

    /// Appends the ids of the tuples that meet the conditions.
    pub fn collect(&self, conditions: &[CodeCondition], ids: &mut Vec<u32>) {
        let _ = self.search(conditions, |id| {
            ids.push(id);
            ControlFlow::Continue(())
        });
    }

    /// Number of tuples that meet the conditions.
    pub fn count(&self, conditions: &[CodeCondition]) -> usize {
        let mut count = 0;
        let _ = self.search(conditions, |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }

    /// Number of dimensions.
    pub fn dimensions(&self) -> usize {
        self.shape.dimensions()
    }

    /// Number of tuples.
    pub fn tuples(&self) -> usize {
        self.shape.tuples as usize
    }

    /// Counts of each dimension.
    pub fn levels(&self) -> &[ElfLevel] {
        &self.shape.levels
    }

    /// Words to store.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&self.words[..]) + size_of_val(&self.shape.levels[..])
    }

    /// Position of the first word behind the header.
    fn root(&self) -> usize {
        self.shape.root()
    }
}

/// Error of a damaged array.
fn damaged(word: usize, message: String) -> Error {
    Error::DamagedElf { word, message }
}
