//! Rows of a block that meet the conditions of a scan: each condition leaves fewer of them.
//!
//! - Conditions on integers are checked on the stored differences to the base of a block: bounds become those of
//!   differences, and the bits of a set are found by the difference and the distance of the two bases.
//! - Bounds of doubles become bounds of the integers that stand for them ([`crate::columns::doubles`]).
//! - Strings of a dictionary are checked once for each entry of a page, which gives a set of codes
//!   ([`DictionaryMatches`]).
//! - The loops over rows have no branch that depends on a value: most conditions are met by some of the rows.
//! - Memory: the positions of a block's rows; the sets of codes of the pages in use.

use crate::columns::condition::{ColumnCondition, IntegerSet};
use crate::columns::doubles::{DoubleCoding, Precision};
use crate::columns::page::{Block, ColumnPage, PageKind};
use crate::columns::texts::Dictionary;
use parking_lot::Mutex;
use std::sync::Arc;

/// Share of the entries of a dictionary, as a divisor: if fewer rows are left, their entries are checked, not all.
const FEW_SHARE: usize = 16;

/// Rows of a block that are left.
#[derive(Debug, Default)]
pub(crate) struct RowSelection {
    /// True if all rows of the block are left; then there is no list of them.
    is_all: bool,
    /// Positions of the rows that are left, which ascend.
    rows: Vec<u32>,
}

/// Codes of dictionary entries that meet a condition on strings, for one page.
#[derive(Debug, Default)]
pub(crate) struct DictionaryMatches(Mutex<Option<Arc<IntegerSet>>>);

impl DictionaryMatches {
    /// Codes of the entries of a page's dictionary that meet the condition; the first caller asks it.
    fn of(&self, dictionary: &Dictionary, is_met: &dyn Fn(&str) -> bool) -> Arc<IntegerSet> {
        let mut known = self.0.lock();
        let codes = known.get_or_insert_with(|| {
            let codes = (0..dictionary.len()).filter(|code| is_met(dictionary.entry(*code)));
            let codes: Vec<i64> = codes.map(|code| code as i64).collect();
            Arc::new(IntegerSet::of_codes(&codes))
        });
        Arc::clone(codes)
    }

    fn is_known(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl RowSelection {
    /// Selects all rows of a block.
    pub(crate) fn select_all(&mut self) {
        self.is_all = true;
        self.rows.clear();
    }

    /// Selects some rows, which ascend.
    pub(crate) fn select(&mut self, rows: Vec<u32>) {
        (self.is_all, self.rows) = (false, rows);
    }

    /// Returns true if no row is left.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_all && self.rows.is_empty()
    }

    /// Number of rows that are left of a block of so many.
    pub(crate) fn len(&self, of: usize) -> usize {
        if self.is_all { of } else { self.rows.len() }
    }

    /// Positions of the rows that are left; none if that are all of so many.
    pub(crate) fn rows(&self, of: usize) -> Option<&[u32]> {
        (!self.is_all && self.rows.len() < of).then_some(&self.rows[..])
    }

    /// Leaves rows for which a function returns true, of a block of so many.
    pub(crate) fn retain(&mut self, of: usize, is_left: impl Fn(u32) -> bool) {
        self.list(of);
        let mut count = 0;
        for at in 0..self.rows.len() {
            let row = self.rows[at];
            self.rows[count] = row;
            count += usize::from(is_left(row));
        }
        self.rows.truncate(count);
    }

    /// Lists the rows that are left of a block of so many.
    fn list(&mut self, of: usize) {
        if self.is_all {
            self.is_all = false;
            self.rows.clear();
            self.rows.extend(0..of as u32);
        }
    }

    fn clear(&mut self) {
        self.select(Vec::new());
    }

    /// Leaves the rows of a block that meet a condition; `sets` are those of the page and the condition.
    pub(crate) fn narrow(
        &mut self,
        page: &ColumnPage,
        block: usize,
        condition: &ColumnCondition,
        sets: &DictionaryMatches,
    ) {
        let summary = page.blocks()[block];
        match (page.kind(), condition) {
            (_, ColumnCondition::Null) if summary.nulls == 0 => return self.clear(),
            (_, ColumnCondition::Null) => {
                return self.retain(summary.rows, |row| !page.is_valid(block, row));
            }
            (_, ColumnCondition::NotNull) => {}
            (PageKind::Integers, ColumnCondition::Between { least, greatest }) => {
                self.narrow_between(page, block, (*least, *greatest));
            }
            (PageKind::Integers, ColumnCondition::Among(set)) => self.narrow_among(page, block, set),
            (PageKind::Doubles(precision), ColumnCondition::Doubles { least, greatest }) => {
                self.narrow_doubles(page, block, precision, (*least, *greatest));
            }
            (
                PageKind::Dictionary,
                ColumnCondition::Texts(is_met) | ColumnCondition::TextsWithin { is_met, .. },
            ) => {
                self.narrow_dictionary(page, block, &**is_met, sets);
            }
            _ => self.narrow_decoded(page, block, &summary, condition),
        }
        if summary.nulls > 0 && !self.is_empty() {
            self.retain(summary.rows, |row| page.is_valid(block, row));
        }
    }

    fn narrow_between(&mut self, page: &ColumnPage, block: usize, (least, greatest): (i64, i64)) {
        let summary = page.blocks()[block];
        if least > greatest || greatest < summary.least || least > summary.greatest {
            return self.clear();
        }
        if least <= summary.least && greatest >= summary.greatest {
            return;
        }
        self.narrow_integers(page, block, (least, greatest));
    }

    /// Leaves the rows whose encoded integers lie within bounds.
    fn narrow_integers(&mut self, page: &ColumnPage, block: usize, (least, greatest): (i64, i64)) {
        let (integers, words) = page.integers_of(block);
        let rows = page.blocks()[block].rows;
        if std::mem::take(&mut self.is_all) {
            return integers.select_between(words, rows, (least, greatest), &mut self.rows);
        }
        let (low, span) = match integers.bounds_of_differences(least, greatest) {
            Some(bounds) => bounds,
            None if integers.has_differences() || least > greatest => return self.clear(),
            None => (0, 0),
        };
        let width = greatest.wrapping_sub(least) as u64;
        let is_met = |value: i64| value.wrapping_sub(least) as u64 <= width;
        let is_difference_met = |difference: u32| difference.wrapping_sub(low) <= span;
        integers.refine_where(words, rows, &mut self.rows, is_difference_met, is_met);
    }

    /// Leaves the rows whose doubles lie within bounds, and NaN: by the integers of a block, and one by one those that
    /// are exceptions.
    fn narrow_doubles(
        &mut self,
        page: &ColumnPage,
        block: usize,
        precision: Precision,
        (least, greatest): (f64, f64),
    ) {
        let condition = ColumnCondition::Doubles { least, greatest };
        let summary = page.blocks()[block];
        let (lowest, highest) = summary.double_bounds();
        let has_nan = lowest.is_nan() || highest.is_nan();
        if !has_nan && (least > greatest || highest < least || lowest > greatest) {
            return self.clear();
        }
        if !has_nan && least <= lowest && highest <= greatest {
            return;
        }
        let (doubles, exceptions) = page.doubles_of(block);
        if has_nan && doubles.coding == DoubleCoding::Ordered {
            // NaN lie at both ends of the integers.
            return self.narrow_decoded(page, block, &summary, &condition);
        }
        let mut met: Vec<u32> = Vec::new();
        if let Some(exceptions) = exceptions {
            let is_left = |row: &u32| self.is_all || self.rows.binary_search(row).is_ok();
            let numbered = exceptions.positions.iter().enumerate().filter(|(_, row)| is_left(row));
            let numbered = numbered.filter(|(at, _)| condition.is_met_by_double(exceptions.value(*at)));
            met.extend(numbered.map(|(_, row)| *row));
        }
        self.narrow_integers(page, block, doubles.integer_bounds(precision, least, greatest));
        let Some(exceptions) = exceptions else { return };
        // Both ascend.
        let mut positions = exceptions.positions.iter().peekable();
        self.rows.retain(|row| {
            while positions.next_if(|position| *position < row).is_some() {}
            positions.peek() != Some(&row)
        });
        if !met.is_empty() {
            self.rows.extend(met);
            self.rows.sort();
        }
    }

    fn narrow_among(&mut self, page: &ColumnPage, block: usize, set: &IntegerSet) {
        let summary = page.blocks()[block];
        let (least, greatest) = set.bounds();
        if set.is_empty() || greatest < summary.least || least > summary.greatest {
            return self.clear();
        }
        if set.is_contiguous() {
            return self.narrow_between(page, block, (least, greatest));
        }
        // Bounds are checked faster, and leave less to look up.
        let span = |(least, greatest): (i64, i64)| i128::from(greatest) - i128::from(least);
        let common = (least.max(summary.least), greatest.min(summary.greatest));
        if self.is_all && span(common) * 2 < span((summary.least, summary.greatest)) {
            self.narrow_integers(page, block, (least, greatest));
        }
        let (integers, words) = page.integers_of(block);
        let is_met = |value: i64| set.contains(value);
        let test = set.relative_to(integers.base);
        if std::mem::take(&mut self.is_all) {
            integers.select_in(words, summary.rows, &mut self.rows, &test, is_met);
        } else {
            let is_difference_met = |difference: u32| test.contains(difference);
            integers.refine_where(words, summary.rows, &mut self.rows, is_difference_met, is_met);
        }
    }

    /// Leaves the rows whose entry of the dictionary meets a condition.
    fn narrow_dictionary(
        &mut self,
        page: &ColumnPage,
        block: usize,
        is_met: &dyn Fn(&str) -> bool,
        sets: &DictionaryMatches,
    ) {
        let Some(dictionary) = page.dictionary() else { return };
        let (integers, words) = page.integers_of(block);
        let rows = page.blocks()[block].rows;
        if self.len(rows) * FEW_SHARE < dictionary.len() && !sets.is_known() {
            let is_code_met = |code: i64| is_met(dictionary.entry(code as usize));
            let is_difference_met =
                |difference: u32| is_code_met(integers.base.wrapping_add(difference.into()));
            self.list(rows);
            return integers.refine_where(words, rows, &mut self.rows, is_difference_met, is_code_met);
        }
        let codes = sets.of(dictionary, is_met);
        self.narrow_among(page, block, &codes);
    }

    /// Leaves the rows that meet a condition which is checked on decoded values.
    fn narrow_decoded(
        &mut self,
        page: &ColumnPage,
        block: usize,
        summary: &Block,
        condition: &ColumnCondition,
    ) {
        match (page.kind(), condition) {
            (
                PageKind::Texts,
                ColumnCondition::Texts(is_met) | ColumnCondition::TextsWithin { is_met, .. },
            ) => {
                let texts = page.block_texts(block);
                self.retain(summary.rows, |row| is_met(texts.value(row as usize)));
            }
            (PageKind::Doubles(_), condition) => {
                let doubles = page.block_doubles(block);
                self.retain(summary.rows, |row| condition.is_met_by_double(doubles[row as usize]));
            }
            (PageKind::Wide, condition) => {
                let values = page.block_wide(block);
                self.retain(summary.rows, |row| {
                    i64::try_from(values[row as usize]).is_ok_and(|value| condition.is_met_by_integer(value))
                });
            }
            // Conditions are made for the type of their column.
            _ => self.clear(),
        }
    }
}
