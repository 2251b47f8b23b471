//! Estimates for the planner: share of the rows that meet conditions, and number of different values of columns.
//!
//! - Integers are taken as spread evenly over the range that the summaries of row groups have.
//! - Strings and doubles are looked at: up to [`SAMPLE_ROWS`] rows of a row group in the middle. A scan needs the page
//!   of the column anyway.
//! - Conditions are taken as independent. Rows of the delta store are taken as like the others.

use crate::columns::condition::{ColumnCondition, ColumnFilter};
use crate::columns::group::{ColumnSummary, GroupSummary, RowGroup, SummaryKind};
use crate::columns::page::BLOCK_ROWS;
use crate::columns::selection::{DictionaryMatches, RowSelection};
use crate::columns::store::{ColumnStore, column_id};
use crate::error::Result;
use crate::table::Table;
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Rows that are looked at for the share of a condition.
const SAMPLE_ROWS: u32 = 1024;

/// Estimates of a scan by columns; see the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnEstimates {
    /// Share of the rows that meet all conditions, more than 0.
    pub share: f64,
    /// Number of different values of each column, over all rows; none where nothing is known.
    pub distinct: Vec<Option<u64>>,
}

/// Integers of a column over all row groups.
#[derive(Debug, Default, Clone, Copy)]
struct Spread {
    bounds: Option<(i64, i64)>,
    nulls: u64,
    rows: u64,
    /// True if a row group has no such integers.
    is_unknown: bool,
}

impl Spread {
    fn of(groups: &[(RowGroup, Arc<GroupSummary>)], column: u16) -> Spread {
        let mut spread = Spread::default();
        for (group, summary) in groups {
            spread.rows += u64::from(group.rows);
            match summary.column(column) {
                Some(ColumnSummary { kind: SummaryKind::Integers, least, greatest, nulls, .. }) => {
                    spread.nulls += u64::from(*nulls);
                    if *nulls < group.rows {
                        let (low, high) = spread.bounds.unwrap_or((*least, *greatest));
                        spread.bounds = Some((low.min(*least), high.max(*greatest)));
                    }
                }
                Some(other) => {
                    spread.nulls += u64::from(other.nulls);
                    spread.is_unknown = true;
                }
                None => spread.is_unknown = true,
            }
        }
        spread
    }

    fn known_bounds(&self) -> Option<(i64, i64)> {
        self.bounds.filter(|_| !self.is_unknown)
    }

    fn share_of_nulls(&self) -> f64 {
        self.nulls as f64 / self.rows.max(1) as f64
    }

    /// Share of the values between bounds.
    fn share_between(&self, (low, high): (i64, i64), (least, greatest): (i64, i64)) -> f64 {
        let (from, to) = (low.max(least), high.min(greatest));
        if from > to { 0.0 } else { width(from, to) / width(low, high) }
    }
}

/// Number of integers from one to another.
fn width(from: i64, to: i64) -> f64 {
    to as f64 - from as f64 + 1.0
}

impl Table {
    /// Estimates for a scan by columns; none for a table without row groups.
    ///
    /// Cost: the directory and summaries of row groups, and a page for each condition on strings or doubles.
    pub fn column_estimates(
        &self,
        tx: &Transaction,
        filters: &[ColumnFilter],
        columns: &[usize],
    ) -> Result<Option<ColumnEstimates>> {
        self.check_readable(tx)?;
        let Some(store) = self.columns() else { return Ok(None) };
        let mut groups = Vec::new();
        for group in store.groups(tx)? {
            let summary = store.summary(tx, group.number)?;
            groups.push((group, summary));
        }
        if groups.is_empty() {
            return Ok(None);
        }
        let id = |column: usize| column_id(self.schema(), column);
        let mut share = 1.0;
        for filter in filters {
            share *= estimated_share(store, tx, &groups, (id(filter.column), &filter.condition))?;
        }
        let distinct = columns.iter().map(|&column| {
            let spread = Spread::of(&groups, id(column));
            let (low, high) = spread.known_bounds()?;
            Some(width(low, high).min(spread.rows as f64) as u64)
        });
        Ok(Some(ColumnEstimates { share, distinct: distinct.collect() }))
    }
}

/// Share of the rows that meet a condition.
fn estimated_share(
    store: &ColumnStore,
    tx: &Transaction,
    groups: &[(RowGroup, Arc<GroupSummary>)],
    (column, condition): (u16, &ColumnCondition),
) -> Result<f64> {
    let spread = Spread::of(groups, column);
    let least_share = 0.5 / spread.rows.max(1) as f64;
    let share = match (condition, spread.known_bounds()) {
        (ColumnCondition::Null, _) => spread.share_of_nulls(),
        (ColumnCondition::NotNull, _) => 1.0 - spread.share_of_nulls(),
        (ColumnCondition::Between { least, greatest }, Some(bounds)) => {
            spread.share_between(bounds, (*least, *greatest))
        }
        (ColumnCondition::Among(set), Some((low, high))) => set.len() as f64 / width(low, high),
        _ => sampled_share(store, tx, groups, (column, condition))?,
    };
    Ok(share.clamp(least_share, 1.0))
}

/// Share of the rows of a sample that meet a condition; at least that of half a row.
fn sampled_share(
    store: &ColumnStore,
    tx: &Transaction,
    groups: &[(RowGroup, Arc<GroupSummary>)],
    (column, condition): (u16, &ColumnCondition),
) -> Result<f64> {
    let (group, summary) = &groups[groups.len() / 2];
    if summary.column(column).is_none() {
        return Ok(1.0);
    }
    let page = store.page(tx, group.number, column)?;
    let rows = (group.rows.min(BLOCK_ROWS as u32)).min(SAMPLE_ROWS);
    let mut selection = RowSelection::default();
    selection.select((0..rows).collect());
    selection.narrow(&page, 0, condition, &DictionaryMatches::default());
    let met = selection.len(rows as usize) as f64;
    Ok(met.max(0.5) / f64::from(rows.max(1)))
}
