//! Choice between the Elf of a row group and a scan of its columns, and the rows that the Elf finds.
//!
//! Costs are those of the cost model ([`crate::cost`]), in nanoseconds. A scan checks one condition after another on the rows that
//! are left; a search does what [`ElfWork`] says, with the share of the codes that meets each condition as the share of the
//! rows, and delivers rows. Lists that are searched where they are stored take the time of lines of that medium. An Elf that is
//! not in the cache is read once the scans that went without it have cost as much as
//! reading it: so reading never costs more than twice what it has to, whether conditions come once or often, and an
//! Elf that the cache cannot hold is not read for each query. One that holds the rows is read at once where a page that
//! the scan needs is not cached, since that is made of it; once such searches have cost as much more than the scans as
//! making the pages, these are made.

use crate::columns::condition::ColumnCondition;
use crate::columns::elf::codes::CodedCondition;
use crate::columns::elf::{ElfHead, StoredElf};
use crate::columns::group::{GroupSummary, RowGroup};
use crate::columns::page::BLOCK_ROWS;
use crate::columns::store::ColumnStore;
use crate::cost::{MEASURED, StructureMedium};
use crate::error::Result;
use crate::schema::elf::ElfCaching;
use entresol_structures::elf::{CodeCondition, CodeSet, Elf, ElfLevel, ElfWork};
use entresol_transactions::Transaction;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Cost of reading a word of a body that is not in the cache, in words that a search reads.
const READ_WORDS: f64 = 2.0;
/// Rows that are sorted as a list, at most.
const LIST_ROWS_MAX: usize = 512;

/// Condition of a scan on a column.
pub(crate) struct ScanCondition<'s> {
    /// Id of the column.
    pub(crate) column: u16,
    pub(crate) condition: &'s ColumnCondition,
}

/// Rows of a row group that may meet the conditions of a scan.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// In ascending order.
    pub(crate) rows: Vec<u32>,
    /// Tells of each condition whether all of the rows meet it.
    pub(crate) is_met: Vec<bool>,
}

impl Candidates {
    /// Rows of a block, counted from its first one.
    pub(crate) fn of_block(&self, block: usize) -> Vec<u32> {
        let (first, end) = ((block * BLOCK_ROWS) as u32, ((block + 1) * BLOCK_ROWS) as u32);
        let from = self.rows.partition_point(|row| *row < first);
        let to = self.rows.partition_point(|row| *row < end);
        self.rows[from..to].iter().map(|row| row - first).collect()
    }
}

/// Search of an Elf, with its cost and that of the scan that it stands for.
struct ElfPlan<'s> {
    elf: &'s StoredElf,
    head: Arc<ElfHead>,
    conditions: Vec<CodeCondition>,
    is_met: Vec<bool>,
    cost: f64,
    scan_cost: f64,
    /// True if a scan would have to read the body, too.
    is_needed: bool,
}

impl ColumnStore {
    /// Rows of a row group that meet the conditions which an Elf of it covers; none if a scan costs less.
    pub(crate) fn candidates(
        &self,
        tx: &Transaction,
        elves: &[StoredElf],
        (group, summary): (&RowGroup, &GroupSummary),
        conditions: &[ScanCondition<'_>],
    ) -> Result<Option<Candidates>> {
        let mut best: Option<ElfPlan<'_>> = None;
        for elf in elves {
            if !conditions.iter().any(|condition| elf.columns.contains(&condition.column)) {
                continue;
            }
            let Some(head) = self.elf_head(tx, group.number, summary, elf)? else { continue };
            let mut plan = ElfPlan::new(elf, head, conditions, self.line_by_dram(elf));
            if elf.holds_rows() && !self.has_pages(group.number, &plan.head, conditions) {
                plan.is_needed = true;
                plan.scan_cost += plan.pages_cost();
            }
            let gain = |plan: &ElfPlan<'_>| plan.scan_cost - plan.cost;
            if gain(&plan) > best.as_ref().map_or(0.0, gain) {
                best = Some(plan);
            }
        }
        let Some(plan) = best else { return Ok(None) };
        let mut rows = Vec::new();
        let is_found = match plan.elf.caching {
            ElfCaching::Whole => match self.body(tx, group.number, &plan)? {
                Some(body) => {
                    body.collect(&plan.conditions, &mut rows);
                    true
                }
                None => false,
            },
            ElfCaching::Lists { .. } => {
                let is_due = plan.is_needed || plan.head.is_checked.load(Ordering::Relaxed) || plan.is_due();
                is_due
                    && self.search_lists(
                        tx,
                        group.number,
                        (plan.elf, &plan.head),
                        &plan.conditions,
                        &mut rows,
                    )?
            }
        };
        Ok(is_found.then(|| plan.candidates(rows)))
    }

    /// Body of an Elf, if it is in the cache or has to be read now.
    fn body(&self, tx: &Transaction, group: u32, plan: &ElfPlan<'_>) -> Result<Option<Arc<Elf>>> {
        if let Some(body) = self.cached_elf(tx, group, plan.elf) {
            return Ok(Some(body));
        }
        if !plan.is_needed && !plan.is_due() {
            return Ok(None);
        }
        self.read_elf(tx, group, plan.elf, &plan.head).map(Some)
    }

    /// Time of a line of the medium in which an Elf is searched, by that of one of DRAM.
    fn line_by_dram(&self, elf: &StoredElf) -> f64 {
        match elf.caching {
            ElfCaching::Whole => 1.0,
            ElfCaching::Lists { .. } => StructureMedium::of_tier(self.state().tier()).pool_by_dram(),
        }
    }

    /// Tells whether the pages of the dimensions with conditions are in the cache.
    fn has_pages(&self, group: u32, head: &ElfHead, conditions: &[ScanCondition<'_>]) -> bool {
        let has_condition = |column: u16| conditions.iter().any(|condition| condition.column == column);
        let mut columns = head.dimensions.iter().map(|dimension| dimension.column);
        columns.all(|column| !has_condition(column) || self.has_cached(group, column))
    }
}

impl<'s> ElfPlan<'s> {
    fn new(
        elf: &'s StoredElf,
        head: Arc<ElfHead>,
        conditions: &[ScanCondition<'_>],
        line_by_dram: f64,
    ) -> ElfPlan<'s> {
        let mut is_met = vec![false; conditions.len()];
        let mut shares = Vec::with_capacity(head.dimensions.len());
        let mut coded = Vec::with_capacity(head.dimensions.len());
        let mut checked = Vec::with_capacity(conditions.len());
        for dimension in &head.dimensions {
            let mut joined = CodeCondition::Any;
            for (at, wanted) in conditions.iter().enumerate().filter(|(_, c)| c.column == dimension.column) {
                if let Some(CodedCondition { condition, share }) = dimension.codes.coded(wanted.condition) {
                    joined = both(joined, condition);
                    checked.push(share);
                    is_met[at] = true;
                }
            }
            shares.push(dimension.codes.share(&joined));
            coded.push(joined);
        }
        let rows = f64::from(head.rows);
        let cost = search_cost(&head.levels(), rows, &shares, line_by_dram);
        let scan_cost = scan_cost(rows, checked);
        ElfPlan { elf, head, conditions: coded, is_met, cost, scan_cost, is_needed: false }
    }

    /// Cost of the pages that a scan would have to make; none once searches in its place have cost as much more than it.
    fn pages_cost(&self) -> f64 {
        let making = reading_cost(&self.head);
        let more = (self.cost - self.scan_cost).max(0.0) as u64;
        let spent = self.head.spent.fetch_add(more, Ordering::Relaxed) + more;
        if (spent as f64) < making {
            return making;
        }
        self.head.spent.store(0, Ordering::Relaxed);
        0.0
    }

    /// Notes that a scan goes without a body that was not read yet; returns true if it has to be read now.
    fn is_due(&self) -> bool {
        let more = (self.scan_cost - self.cost) as u64;
        let spent = self.head.spent.fetch_add(more, Ordering::Relaxed) + more;
        let is_due = spent as f64 >= reading_cost(&self.head);
        if is_due {
            self.head.spent.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// Rows that were found, in order.
    fn candidates(self, mut rows: Vec<u32>) -> Candidates {
        if rows.len() > LIST_ROWS_MAX {
            rows = sorted_by_bits(&rows, self.head.rows as usize);
        } else {
            rows.sort_unstable();
        }
        Candidates { rows, is_met: self.is_met }
    }
}

/// Cost of a search of a row group with so many rows, and of what it finds.
fn search_cost(levels: &[ElfLevel], rows: f64, shares: &[f64], line_by_dram: f64) -> f64 {
    let found = rows * shares.iter().product::<f64>();
    MEASURED.elf_search(&ElfWork::of(levels, shares), line_by_dram) + MEASURED.elf_row * found
}

/// Cost of checking conditions on so many rows, given the share that satisfies each: a scan begins with the least.
fn scan_cost(rows: f64, mut shares: Vec<f64>) -> f64 {
    shares.sort_by(f64::total_cmp);
    let mut left = None;
    let mut cost = 0.0;
    for share in shares {
        cost += rows * MEASURED.check_of_row(left);
        left = Some(left.unwrap_or(1.0) * share);
    }
    cost
}

/// Cost of reading a body that is not in the cache.
fn reading_cost(head: &ElfHead) -> f64 {
    READ_WORDS * MEASURED.elf_word * f64::from(head.words)
}

/// Different rows in ascending order, of which a row group has so many.
fn sorted_by_bits(rows: &[u32], of: usize) -> Vec<u32> {
    let mut bits = vec![0_u64; of.div_ceil(64)];
    rows.iter().for_each(|row| bits[*row as usize / 64] |= 1 << (row % 64));
    let mut sorted = Vec::with_capacity(rows.len());
    for (at, word) in bits.into_iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            sorted.push(at as u32 * 64 + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
    sorted
}

/// Condition that a code meets which meets both.
fn both(first: CodeCondition, second: CodeCondition) -> CodeCondition {
    match (first, second) {
        (CodeCondition::Any, other) | (other, CodeCondition::Any) => other,
        (
            CodeCondition::Between { least, greatest },
            CodeCondition::Between { least: other_least, greatest: other_greatest },
        ) => CodeCondition::Between { least: least.max(other_least), greatest: greatest.min(other_greatest) },
        (CodeCondition::Among(set), other) | (other, CodeCondition::Among(set)) => {
            let codes = set.codes().iter().copied().filter(|code| other.is_met(*code));
            CodeCondition::Among(CodeSet::new(codes.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::elf::codes::DimensionCodes;
    use crate::columns::group::GROUP_ROWS;
    use entresol_transactions::Tier;

    /// Different values of the columns of `elf-sql`: days, discounts, quantities, modes, suppliers.
    const WRITTEN: [u32; 5] = [2_526, 11, 50, 7, 10_000];
    /// The same in the order `auto`.
    const AUTO: [u32; 5] = [7, 11, 50, 2_526, 10_000];

    /// Levels of an Elf of a row group with random values.
    fn levels(different: &[u32]) -> Vec<ElfLevel> {
        let mut state = 1_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as u32) % below
        };
        let codes: Vec<Vec<u32>> =
            different.iter().map(|of| (0..GROUP_ROWS).map(|_| random(*of)).collect()).collect();
        let codes: Vec<&[u32]> = codes.iter().map(Vec::as_slice).collect();
        Elf::build(&codes).unwrap().levels().to_vec()
    }

    /// Returns true if a search costs less than a scan, where conditions leave these shares; 1: there is none.
    fn is_searched(levels: &[ElfLevel], shares: &[f64], line_by_dram: f64) -> bool {
        let rows = GROUP_ROWS as f64;
        let checked = shares.iter().copied().filter(|share| *share < 1.0).collect();
        search_cost(levels, rows, shares, line_by_dram) < scan_cost(rows, checked)
    }

    #[test]
    fn a_search_is_taken_for_conditions_that_fit_the_order() {
        let written = levels(&WRITTEN);
        let day = 1.0 / 2_526.0;
        let (discount, quantity, mode, supplier) = (1.0 / 11.0, 1.0 / 50.0, 1.0 / 7.0, 1.0 / 10_000.0);
        let cases = [
            ("the first", [day, 1.0, 1.0, 1.0, 1.0], true),
            ("1% of the first", [0.01, 1.0, 1.0, 1.0, 1.0], true),
            ("10% of the first", [0.1, 1.0, 1.0, 1.0, 1.0], false),
            ("the first three", [day, discount, quantity, 1.0, 1.0], true),
            ("a year, discounts, quantities", [1.0 / 7.0, 3.0 / 11.0, 0.46, 1.0, 1.0], true),
            ("the second", [1.0, discount, 1.0, 1.0, 1.0], false),
            ("the third", [1.0, 1.0, quantity, 1.0, 1.0], false),
            ("half of the third", [1.0, 1.0, 0.5, 1.0, 1.0], false),
            ("all in the middle", [1.0, discount, quantity, mode, 1.0], false),
            ("the last", [1.0, 1.0, 1.0, 1.0, supplier], false),
            ("10% of the last", [1.0, 1.0, 1.0, 1.0, 0.1], false),
            ("the first and the last", [day, 1.0, 1.0, 1.0, supplier], true),
            ("half of the first and the last", [0.5, 1.0, 1.0, 1.0, supplier], false),
        ];
        for (name, shares, expected) in cases {
            // Whole, and lists that are in a file behind the page cache.
            let disk = StructureMedium::of_tier(Tier::Disk).pool_by_dram();
            for line in [1.0, disk] {
                assert_eq!(is_searched(&written, &shares, line), expected, "{name}, line {line}");
            }
        }
        let auto = levels(&AUTO);
        assert!(!is_searched(&auto, &[1.0, 1.0, 1.0, day, 1.0], 1.0), "a day is the fourth of them");
        assert!(is_searched(&auto, &[mode, discount, quantity, 1.0, 1.0], 1.0));
    }

    #[test]
    fn two_bounds_of_a_dimension_leave_the_codes_between() {
        let codes = DimensionCodes::Offset { least: 1, greatest: 99 };
        let until = CodeCondition::Between { least: 1, greatest: 60 };
        let from = CodeCondition::Between { least: 51, greatest: 99 };
        assert!((codes.share(&both(until, from)) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn lists_on_a_slower_medium_are_searched_for_fewer_conditions() {
        let written = levels(&WRITTEN);
        let line = StructureMedium::of_tier(Tier::Pmem).pool_by_dram();
        assert!(line > 3.0, "{line}");
        let year = [1.0 / 7.0, 3.0 / 11.0, 0.46, 1.0, 1.0];
        assert!(is_searched(&written, &year, 1.0) && !is_searched(&written, &year, line));
        assert!(is_searched(&written, &[1.0 / 2_526.0, 1.0 / 11.0, 1.0, 1.0, 1.0], line));
    }
}
