//! Elf indexes: for each row group an index of some of its columns together, beside its pages.
//!
//! ```text
//!   row group     page a   page b   page c     values, column by column
//!                    │                 │
//!   Elf           codes of a        codes of c                  head: how values become codes
//!                    └──── tree ───────┘─▶ rows                 body: the tree (entresol_structures::elf)
//! ```
//!
//! - The codes of a column are those of one row group ([`codes`]); NULL has one that no comparison meets.
//! - An Elf is written with its row group, or by CREATE INDEX for those that are there, and removed with it. It is
//!   values of the same state, so snapshots, recovery and backups have it as they have the row group; one that a
//!   snapshot does not have is only not used ([`storage`]).
//! - A row group is never changed, so an Elf is right as long as its row group is there. Rows that were deleted or
//!   that the delta store overrides are left out behind it, as in any scan.
//! - It is read into the cache whole, or searched where it is stored with the cache of some of its lists ([`lists`]).
//! - Scans ask it for the rows that meet conditions if that costs less than checking the columns ([`choice`]).
//! - Columns that are younger than a row group are no dimensions of its Elf: all its rows have the same value.
//!
//! Memory: building takes 16 bytes and a code per dimension for each row of the row group, and the result.

pub(crate) mod choice;
pub(crate) mod codes;
pub(crate) mod lists;
pub(crate) mod storage;

use crate::columns::elf::codes::DimensionCodes;
use crate::columns::group::GROUP_ROWS;
use crate::columns::page::ColumnPage;
use crate::columns::store::column_id;
use crate::error::Result;
use crate::schema::Schema;
use crate::schema::elf::{DimensionOrder, ElfCaching, ElfDefinition};
use entresol_structures::elf::{ELF_DIMENSIONS_MAX, Elf, ElfLevel};
use std::sync::atomic::{AtomicBool, AtomicU64};

const FORMAT: u32 = 1;
/// Words of a head before those of its dimensions.
const HEAD_WORDS: usize = 4;
/// Maximum number of words of a body: a code and its list for each value, and an id, of the rows of a row group.
const BODY_WORDS_MAX: usize = GROUP_ROWS * (4 * ELF_DIMENSIONS_MAX + 1) + (1 << 20);
/// Words of a dimension before those of its codes.
const DIMENSION_WORDS: usize = 4;

/// Elf index as the column store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredElf {
    /// Name, for messages.
    pub(crate) name: String,
    pub(crate) number: u16,
    /// Ids of its columns.
    pub(crate) columns: Vec<u16>,
    pub(crate) order: DimensionOrder,
    pub(crate) caching: ElfCaching,
}

impl StoredElf {
    /// Elf index of a definition of a table.
    pub(crate) fn of(schema: &Schema, definition: &ElfDefinition) -> StoredElf {
        let ElfDefinition { name, number, order, caching, .. } = definition;
        let columns = definition.columns.iter().map(|column| column_id(schema, *column)).collect();
        StoredElf { name: name.clone(), number: *number, columns, order: *order, caching: *caching }
    }

    /// Tells whether an Elf with these dimensions is one of this index, of a row group that has the columns for
    /// which `has` returns true.
    pub(crate) fn is_made_of(&self, dimensions: &[ElfDimension], has: impl Fn(u16) -> bool) -> bool {
        let mut wanted: Vec<u16> = self.columns.iter().copied().filter(|column| has(*column)).collect();
        let mut found: Vec<u16> = dimensions.iter().map(|dimension| dimension.column).collect();
        if self.order == DimensionOrder::Auto {
            wanted.sort_unstable();
            found.sort_unstable();
        }
        wanted == found
    }
}

/// Dimension of the Elf of a row group.
#[derive(Debug, PartialEq)]
pub(crate) struct ElfDimension {
    /// Id of its column.
    pub(crate) column: u16,
    pub(crate) codes: DimensionCodes,
    pub(crate) level: ElfLevel,
}

/// Head of the Elf of a row group: all that is needed to see what a search would cost.
#[derive(Debug)]
pub(crate) struct ElfHead {
    pub(crate) dimensions: Vec<ElfDimension>,
    pub(crate) rows: u32,
    /// Words of the body.
    pub(crate) words: u32,
    /// Cost of scans that went without the body, in words that a search reads, since it was last read.
    pub(crate) spent: AtomicU64,
    /// True once the checksums of the body have been compared where it is stored.
    pub(crate) is_checked: AtomicBool,
}

/// Builds the Elf of a row group over the pages of some columns, given with their ids.
pub(crate) fn build(order: DimensionOrder, pages: &[(u16, &ColumnPage)]) -> Result<(ElfHead, Elf)> {
    let mut coded: Vec<(u16, DimensionCodes, Vec<u32>)> = Vec::with_capacity(pages.len());
    for (column, page) in pages {
        let (codes, of_rows) = DimensionCodes::of_page(page);
        coded.push((*column, codes, of_rows));
    }
    if order == DimensionOrder::Auto {
        coded.sort_by_cached_key(|(_, _, of_rows)| different(of_rows));
    }
    let of_rows: Vec<&[u32]> = coded.iter().map(|(_, _, of_rows)| &of_rows[..]).collect();
    let elf = Elf::build(&of_rows)?;
    let dimensions = coded.into_iter().zip(elf.levels());
    let dimensions =
        dimensions.map(|((column, codes, _), level)| ElfDimension { column, codes, level: *level });
    let (rows, words) = (elf.tuples() as u32, elf.words().len() as u32);
    let head = ElfHead {
        dimensions: dimensions.collect(),
        rows,
        words,
        spent: AtomicU64::new(0),
        is_checked: AtomicBool::new(false),
    };
    Ok((head, elf))
}

/// Number of different codes.
fn different(codes: &[u32]) -> usize {
    let mut codes = codes.to_vec();
    codes.sort_unstable();
    codes.dedup();
    codes.len()
}

impl ElfHead {
    /// Levels of the body.
    pub(crate) fn levels(&self) -> Vec<ElfLevel> {
        self.dimensions.iter().map(|dimension| dimension.level).collect()
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let codes = self.dimensions.iter().map(|dimension| dimension.codes.memory_bytes());
        size_of::<ElfHead>() + self.dimensions.len() * size_of::<ElfDimension>() + codes.sum::<usize>()
    }

    /// Encodes it: format, dimensions, rows, words of the body (1 word each); per dimension: column id, counts of the
    /// level (3), codes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut words = vec![FORMAT, self.dimensions.len() as u32, self.rows, self.words];
        for ElfDimension { column, codes, level } in &self.dimensions {
            words.extend([u32::from(*column), level.lists, level.entries, level.monos]);
            codes.encode(&mut words);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Decodes a head; none if it is damaged.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ElfHead> {
        let (chunks, []) = bytes.as_chunks::<4>() else { return None };
        let words: Vec<u32> = chunks.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (&[format, count, rows, of_body], mut rest) = words.split_first_chunk::<HEAD_WORDS>()?;
        (format == FORMAT).then_some(())?;
        let mut dimensions = Vec::new();
        for _ in 0..count {
            let (&[column, lists, entries, monos], codes) = rest.split_first_chunk::<DIMENSION_WORDS>()?;
            let codes = DimensionCodes::decode(codes)?;
            rest = codes.1;
            let (column, level) = (u16::try_from(column).ok()?, ElfLevel { lists, entries, monos });
            dimensions.push(ElfDimension { column, codes: codes.0, level });
        }
        let sound = rest.is_empty() && !dimensions.is_empty() && of_body as usize <= BODY_WORDS_MAX;
        sound.then_some(ElfHead {
            dimensions,
            rows,
            words: of_body,
            spent: AtomicU64::new(0),
            is_checked: AtomicBool::new(false),
        })
    }
}

#[cfg(test)]
mod tests;
