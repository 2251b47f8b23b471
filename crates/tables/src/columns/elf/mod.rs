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
//! - In the layout `elf` one of them holds the rows: its columns have no pages ([`rows`]).
//!
//! Memory: building takes 16 bytes and a code per dimension for each row of the row group, and the result.

pub(crate) mod choice;
pub(crate) mod codes;
pub(crate) mod lists;
pub(crate) mod rows;
pub(crate) mod storage;

use crate::columns::elf::codes::DimensionCodes;
use crate::columns::group::{EntryKind, GROUP_ROWS};
use crate::columns::page::ColumnPage;
use crate::columns::store::column_id;
use crate::error::Result;
use crate::schema::Schema;
use crate::schema::elf::{DimensionOrder, ElfCaching, ElfDefinition, ElfLayout};
use entresol_structures::elf::{ELF_DIMENSIONS_MAX, Elf, ElfLevel};
use std::sync::atomic::{AtomicBool, AtomicU64};

const FORMAT: u32 = 1;
/// Words of a head before those of its dimensions.
const HEAD_WORDS: usize = 4;
/// Maximum number of words of a body: a code and its list for each value, and an id, of the rows of a row group.
const BODY_WORDS_MAX: usize = GROUP_ROWS * (4 * ELF_DIMENSIONS_MAX + 1) + (1 << 20);
/// Words of a dimension before those of its codes.
const DIMENSION_WORDS: usize = 4;
const _: () = assert!(ElfLayout::NUMBER == EntryKind::ELVES_MAX);

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

    /// Returns true if it holds the values of its columns, which have no pages.
    pub(crate) fn holds_rows(&self) -> bool {
        self.number == ElfLayout::NUMBER
    }

    /// Tells whether an Elf with these dimensions is one of this index, of a row group that has the columns for
    /// which `has` returns true. Each that holds rows is: its dimensions are those that have no pages.
    pub(crate) fn is_made_of(&self, dimensions: &[ElfDimension], has: impl Fn(u16) -> bool) -> bool {
        if self.holds_rows() {
            return true;
        }
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
    /// Nanoseconds by which scans without the body cost more than searches since it was last read.
    pub(crate) spent: AtomicU64,
    /// True once the checksums of the body have been compared where it is stored.
    pub(crate) is_checked: AtomicBool,
}

/// Column of a row group as codes.
pub(crate) struct CodedColumn {
    /// Id of the column.
    pub(crate) column: u16,
    codes: DimensionCodes,
    of_rows: Vec<u32>,
}

impl CodedColumn {
    /// Codes of the values of a page. Where `is_exact`, each value has a code of its own, also two that compare as
    /// equal.
    pub(crate) fn of((column, page): (u16, &ColumnPage), is_exact: bool) -> CodedColumn {
        let (codes, of_rows) = DimensionCodes::of_page(page, is_exact);
        assert_eq!(of_rows.len(), page.rows(), "each row of column {column} has a code");
        debug_assert!(
            of_rows.iter().all(|code| u64::from(*code) <= codes.last()),
            "codes of column {column} are at most {}",
            codes.last()
        );
        CodedColumn { column, codes, of_rows }
    }

    /// Number of different codes.
    pub(crate) fn different(&self) -> usize {
        let mut codes = self.of_rows.clone();
        codes.sort_unstable();
        codes.dedup();
        codes.len()
    }
}

/// Builds the Elf of a row group over the pages of some columns, given with their ids.
pub(crate) fn build(order: DimensionOrder, pages: &[(u16, &ColumnPage)]) -> Result<(ElfHead, Elf)> {
    let mut coded: Vec<CodedColumn> = pages.iter().map(|page| CodedColumn::of(*page, false)).collect();
    if order == DimensionOrder::Auto {
        coded.sort_by_cached_key(CodedColumn::different);
    }
    build_coded(coded)
}

/// Builds the Elf of a row group over columns in their order.
pub(crate) fn build_coded(coded: Vec<CodedColumn>) -> Result<(ElfHead, Elf)> {
    let of_rows: Vec<&[u32]> = coded.iter().map(|column| &column.of_rows[..]).collect();
    let elf = Elf::build(&of_rows)?;
    assert_eq!(elf.levels().len(), coded.len(), "an Elf has a level for each column");
    let dimensions = coded.into_iter().zip(elf.levels());
    let dimensions = dimensions.map(|(CodedColumn { column, codes, .. }, level)| ElfDimension {
        column,
        codes,
        level: *level,
    });
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
        assert!(!self.dimensions.is_empty(), "an Elf has a dimension");
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
