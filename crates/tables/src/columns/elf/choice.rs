//! Choice between the Elf of a row group and a scan of its columns, and the rows that the Elf finds.
//!
//! Costs are estimates in words that a search reads. A scan checks each condition on all rows; a search reads what
//! [`ElfLevel::words_read`] says, with the share of the codes that meets each condition as the share of the rows, and
//! delivers rows. An Elf that is not in the cache is read once the scans that went without it have cost as much as
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
use crate::error::Result;
use crate::schema::elf::ElfCaching;
use entresol_structures::elf::{CodeCondition, CodeSet, Elf, ElfLevel};
use entresol_transactions::Transaction;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Cost of checking a condition on a row of a scan.
const CHECK_COST: f64 = 0.25;
/// Cost of a row that is found.
const ROW_COST: f64 = 4.0;
/// Cost of reading a word of a body that is not in the cache.
const READ_COST: f64 = 2.0;
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
            let mut plan = ElfPlan::new(elf, head, conditions);
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

    /// Tells whether the pages of the dimensions with conditions are in the cache.
    fn has_pages(&self, group: u32, head: &ElfHead, conditions: &[ScanCondition<'_>]) -> bool {
        let has_condition = |column: u16| conditions.iter().any(|condition| condition.column == column);
        let mut columns = head.dimensions.iter().map(|dimension| dimension.column);
        columns.all(|column| !has_condition(column) || self.has_cached(group, column))
    }
}

impl<'s> ElfPlan<'s> {
    fn new(elf: &'s StoredElf, head: Arc<ElfHead>, conditions: &[ScanCondition<'_>]) -> ElfPlan<'s> {
        let mut is_met = vec![false; conditions.len()];
        let mut shares = Vec::with_capacity(head.dimensions.len());
        let mut coded = Vec::with_capacity(head.dimensions.len());
        for dimension in &head.dimensions {
            let (mut joined, mut share) = (CodeCondition::Any, 1.0_f64);
            for (at, wanted) in conditions.iter().enumerate().filter(|(_, c)| c.column == dimension.column) {
                if let Some(CodedCondition { condition, share: of }) = dimension.codes.coded(wanted.condition)
                {
                    (joined, share) = (both(joined, condition), share.min(of));
                    is_met[at] = true;
                }
            }
            coded.push(joined);
            shares.push(share);
        }
        let rows = f64::from(head.rows);
        let found: f64 = rows * shares.iter().product::<f64>();
        let cost = ElfLevel::words_read(&head.levels(), &shares) + ROW_COST * found;
        let covered = is_met.iter().filter(|met| **met).count();
        let scan_cost = CHECK_COST * rows * covered as f64;
        ElfPlan { elf, head, conditions: coded, is_met, cost, scan_cost, is_needed: false }
    }

    /// Cost of the pages that a scan would have to make; none once searches in its place have cost as much more than it.
    fn pages_cost(&self) -> f64 {
        let making = READ_COST * f64::from(self.head.words);
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
        let is_due = spent as f64 >= READ_COST * f64::from(self.head.words);
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
