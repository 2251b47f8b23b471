//! Names of cached pages and of their columns.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of an open column store; see [`StoreNumber::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreNumber(pub u64);

impl StoreNumber {
    /// Number that no other store of the process has.
    pub(crate) fn next() -> StoreNumber {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        StoreNumber(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Column of an open column store, by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnKey {
    /// Column store.
    pub store: StoreNumber,
    /// Id of the column.
    pub column: u16,
}

/// Id under which summaries of row groups are cached; no column has it.
const SUMMARIES: u16 = u16::MAX - 1;

/// Ids under which the heads and the bodies of Elfs are cached: these and the number of the index, which is below
/// 2^13. A column that has the id is not cached where there is an Elf.
const ELF_HEADS: u16 = 1 << 15;
const ELF_BODIES: u16 = ELF_HEADS + (1 << 13);

impl ColumnKey {
    /// Returns true for the summaries of a store's row groups, which are no column.
    pub(crate) fn is_of_summaries(&self) -> bool {
        self.column == SUMMARIES
    }
}

/// Page of a column of a row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// Column.
    pub column: ColumnKey,
    /// Number of the row group.
    pub group: u32,
}

impl PageKey {
    /// Key of a page.
    pub fn of_page(store: StoreNumber, column: u16, group: u32) -> PageKey {
        PageKey { column: ColumnKey { store, column }, group }
    }

    /// Key of the head of an Elf of a row group.
    pub(crate) fn of_elf_head(store: StoreNumber, number: u16, group: u32) -> PageKey {
        PageKey::of_page(store, ELF_HEADS + number, group)
    }

    /// Key of the body of an Elf of a row group.
    pub(crate) fn of_elf_body(store: StoreNumber, number: u16, group: u32) -> PageKey {
        PageKey::of_page(store, ELF_BODIES + number, group)
    }

    /// Key of the summary of a row group.
    pub(crate) fn of_summary(store: StoreNumber, group: u32) -> PageKey {
        PageKey::of_page(store, SUMMARIES, group)
    }
}
