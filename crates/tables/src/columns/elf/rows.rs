//! Layout `elf`: an Elf of each row group holds its dimensions, which have no pages.
//!
//! ```text
//!   row group     Elf of a, b, c ──▶ rows          page d   page e        what is stored
//!                    │
//!                    └──▶ page b                                          made when a scan needs it, and cached
//! ```
//!
//! - Dimensions are those that the definition names, in its order; or else, for each row group, the columns in which a
//!   value is met twice on average, those with the fewest different values first. Strings that are mostly different
//!   have no codes that are shorter than they are, and stay pages.
//! - The rows of a row group stay in key order, and a tuple id is the place of a row in it, as it is in pages: so all
//!   that reads row groups reads these, a dimension's page out of the Elf. Each value comes back as it was, -0.0 and
//!   NaN too.
//! - The directory has the dimensions of a row group. Row groups of other dimensions, or of pages alone, stand beside
//!   them until a merge writes them anew.
//!
//! A crash leaves an Elf with its row group or neither: they are of one transaction. Memory: to make a page, the body
//! if it is not cached, and 4 bytes and the value of each row.

use crate::columns::elf::codes::NULL_CODE;
use crate::columns::elf::storage::damaged;
use crate::columns::elf::{CodedColumn, ElfHead, StoredElf, build_coded};
use crate::columns::group::{ColumnSummary, GroupSummary, RowGroup, SummaryKind, store_code};
use crate::columns::page::{ColumnPage, PageKind, encode_values};
use crate::columns::store::{ColumnStore, PAGE_BYTES_MAX, column_id};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::schema::elf::{DimensionOrder, ElfCaching};
use entresol_structures::elf::{ELF_DIMENSIONS_MAX, Elf};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Rows for each different value of a column that is chosen as a dimension, at least.
const ROWS_PER_VALUE: usize = 2;

/// Elf that holds the dimensions of the rows of a row group which is being written.
pub(crate) struct RowsElf {
    pub(crate) elf: StoredElf,
    /// Head, encoded.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Elf,
    /// Ids of its columns, in the order of its levels.
    pub(crate) dimensions: Vec<u16>,
}

impl RowsElf {
    /// Returns true if its head is small enough for a row group of several rows.
    pub(crate) fn fits(&self) -> bool {
        self.head.len() <= PAGE_BYTES_MAX
    }

    /// Elf over the pages of a row group; none if no column can be a dimension.
    fn build(elf: &StoredElf, pages: &[(u16, ColumnPage)]) -> Result<Option<RowsElf>> {
        let coded = match elf.order {
            DimensionOrder::Auto => chosen(elf, pages),
            DimensionOrder::Written => {
                let page_of = |column: &u16| pages.iter().find(|(id, _)| id == column);
                let pages = elf.columns.iter().filter_map(page_of);
                pages.map(|(column, page)| CodedColumn::of((*column, page), true)).collect()
            }
        };
        if coded.is_empty() {
            return Ok(None);
        }
        let dimensions = coded.iter().map(|column| column.column).collect();
        let (head, body) = build_coded(coded)?;
        Ok(Some(RowsElf { elf: elf.clone(), head: head.to_bytes(), body, dimensions }))
    }
}

/// Dimensions for a row group: of the columns of an Elf those whose values repeat, or else the one with the fewest
/// different values.
fn chosen(elf: &StoredElf, pages: &[(u16, ColumnPage)]) -> Vec<CodedColumn> {
    let is_candidate =
        |(column, page): &&(u16, ColumnPage)| elf.columns.contains(column) && page.kind() != PageKind::Texts;
    let mut coded: Vec<(usize, CodedColumn)> = Vec::new();
    for (column, page) in pages.iter().filter(is_candidate) {
        let column = CodedColumn::of((*column, page), true);
        coded.push((column.different(), column));
    }
    coded.sort_by_key(|(different, _)| *different);
    let rows = pages.first().map_or(0, |(_, page)| page.rows());
    let repeat = coded.partition_point(|(different, _)| different * ROWS_PER_VALUE <= rows);
    coded.truncate(repeat.clamp(1, ELF_DIMENSIONS_MAX));
    if coded.is_empty() {
        // Nothing but strings that do not repeat: one of them.
        let first = pages.iter().find(|(column, _)| elf.columns.contains(column));
        return first.map(|(column, page)| CodedColumn::of((*column, page), true)).into_iter().collect();
    }
    coded.into_iter().map(|(_, column)| column).collect()
}

impl ColumnStore {
    /// Elf that holds the dimensions of new row groups, if they have one.
    pub(crate) fn rows_elf(&self) -> Option<Arc<StoredElf>> {
        self.rows_elf.read().clone()
    }

    /// Sets the Elf that holds the dimensions of new row groups, in the table's current definition.
    pub(crate) fn set_rows_elf(&self, elf: Option<StoredElf>) {
        *self.rows_elf.write() = elf.map(Arc::new);
    }

    /// Tells whether a row group in key order has its columns where the layout wants them: in an Elf or in pages.
    pub(crate) fn has_form(&self, group: &RowGroup, elf: Option<&StoredElf>) -> bool {
        if group.store != self.object_store().map_or(0, |url| store_code(&url)) {
            return false;
        }
        match elf {
            None => group.dimensions.is_empty(),
            Some(elf) if elf.order == DimensionOrder::Auto => !group.dimensions.is_empty(),
            Some(elf) => group.dimensions == elf.columns,
        }
    }

    /// Elf of a new row group with these pages of all columns; none in other layouts.
    pub(crate) fn new_rows_elf(&self, schema: &Schema, pages: &[Vec<u8>]) -> Result<Option<RowsElf>> {
        let Some(elf) = self.rows_elf() else { return Ok(None) };
        let mut opened = Vec::with_capacity(pages.len());
        for (at, encoded) in pages.iter().enumerate() {
            let page = ColumnPage::open(encoded);
            let page = page.ok_or_else(|| self.damaged(0, "its page was not encoded right"))?;
            opened.push((column_id(schema, at), page));
        }
        RowsElf::build(&elf, &opened)
    }

    /// Body of the Elf that holds the dimensions of a row group, and its head.
    fn rows_of_elf(
        &self,
        tx: &Transaction,
        group: u32,
        summary: &GroupSummary,
    ) -> Result<(Arc<ElfHead>, Arc<Elf>)> {
        let current = self.rows_elf();
        let elf = current.map_or_else(StoredElf::of_rows, |elf| StoredElf::clone(&elf));
        let head = self.elf_head(tx, group, summary, &elf)?;
        let head = head.ok_or_else(|| damaged(self, group, &elf, "its head is missing"))?;
        let body = match (self.cached_elf(tx, group, &elf), elf.caching) {
            (Some(body), _) => body,
            (None, ElfCaching::Whole) => self.read_elf(tx, group, &elf, &head)?,
            // In the cache are lists.
            (None, ElfCaching::Lists { .. }) => Arc::new(self.open_elf(tx, group, &elf, &head)?),
        };
        Ok((head, body))
    }

    /// Page of a dimension of a row group, made of its Elf.
    pub(crate) fn page_of_elf(
        &self,
        tx: &Transaction,
        group: u32,
        (column, summary): (u16, &GroupSummary),
    ) -> Result<ColumnPage> {
        tx.check_running()?;
        let (head, body) = self.rows_of_elf(tx, group, summary)?;
        let at = head.dimensions.iter().position(|dimension| dimension.column == column);
        let page = at.and_then(|at| {
            let (values, valid) = head.dimensions[at].codes.values(&body.codes(at));
            ColumnPage::open(&encode_values(&values, &valid))
        });
        page.ok_or_else(|| damaged(self, group, &StoredElf::of_rows(), &format!("it lacks column {column}")))
    }

    /// Compares the Elfs that hold the rows of row groups with what directory and summaries say of these; says what
    /// is wrong.
    pub(crate) fn check_rows_elves(&self, tx: &Transaction) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for group in self.groups(tx)? {
            match self.check_rows_elf(tx, &group) {
                Ok(None) => {}
                Ok(Some(what)) => wrong.push(format!("the Elf of its row group {} {what}", group.number)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        Ok(wrong)
    }

    fn check_rows_elf(&self, tx: &Transaction, group: &RowGroup) -> Result<Option<String>> {
        let summary = self.summary(tx, group.number)?;
        let mut in_elf: Vec<u16> =
            summary.columns.iter().filter(|column| column.is_in_elf).map(|column| column.column).collect();
        let mut dimensions = group.dimensions.clone();
        in_elf.sort_unstable();
        dimensions.sort_unstable();
        if in_elf != dimensions {
            return Ok(Some(format!(
                "has the dimensions {in_elf:?}, its directory entry says {dimensions:?}"
            )));
        }
        if dimensions.is_empty() {
            return Ok(None);
        }
        let (head, body) = self.rows_of_elf(tx, group.number, &summary)?;
        let of_head: Vec<u16> = head.dimensions.iter().map(|dimension| dimension.column).collect();
        if of_head != group.dimensions || head.rows != group.rows {
            return Ok(Some(format!("has {} rows of {of_head:?}, not of the directory's", head.rows)));
        }
        for (at, dimension) in head.dimensions.iter().enumerate() {
            tx.check_running()?;
            let codes = body.codes(at);
            let last = dimension.codes.last();
            if codes.iter().any(|code| *code != NULL_CODE && u64::from(*code) > last) {
                return Ok(Some(format!("has a code of no value of column {}", dimension.column)));
            }
            let (values, valid) = dimension.codes.values(&codes);
            let page = ColumnPage::open(&encode_values(&values, &valid));
            let known = summary.column(dimension.column);
            let found = page.map(|page| ColumnSummary::of(dimension.column, &page, 0));
            let is_same = found.zip(known).is_some_and(|(found, known)| {
                // Of strings the numbers are those of one way to encode them.
                let bounds =
                    |of: &ColumnSummary| (of.kind != SummaryKind::Opaque).then_some((of.least, of.greatest));
                (found.kind, found.nulls, bounds(&found)) == (known.kind, known.nulls, bounds(known))
            });
            if !is_same {
                return Ok(Some(format!("has other values of column {} than its summary", dimension.column)));
            }
        }
        Ok(None)
    }
}

impl StoredElf {
    /// Elf that holds the rows of a row group, of a table whose definition has none any more, or has another one.
    fn of_rows() -> StoredElf {
        StoredElf {
            name: String::new(),
            number: crate::schema::elf::ElfLayout::NUMBER,
            columns: Vec::new(),
            order: DimensionOrder::Auto,
            caching: ElfCaching::Whole,
        }
    }
}

/// Error of the Elf of a row group, which holds its rows.
pub(super) fn damaged_rows(store: &ColumnStore, group: u32, what: &str) -> Error {
    store.damaged(group, &format!("of its Elf: {what}"))
}
