//! Row groups in key order get the form of the layout: what a merge does to a table that got the layout `elf`, ceased
//! to have it, or has other dimensions.
//!
//! ```text
//!   columns      pages   pages   pages     row of the catalog ─▶ new row groups have an Elf; merges write the others anew
//!   elf          Elf     Elf     pages
//! ```
//!
//! Each row group is a transaction: readers see its rows once, in one form or the other, and a crash leaves both forms
//! side by side. Rows that the delta store overrides move as well: it goes on overriding them. One for which the memory
//! budget has no room stays as it is until the next merge. Memory: the rows of a row group as arrays, and as it is
//! stored.

use crate::columns::group::RowGroup;
use crate::columns::merge::MergeStats;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::table::Table;
use entresol_memory::Durability;
use std::sync::Arc;

impl Table {
    /// Writes row groups in key order anew whose columns are not where the layout wants them.
    pub(crate) fn write_in_form(
        &self,
        columns: &Arc<ColumnStore>,
        stats: &mut MergeStats,
        progress: &mut impl FnMut(&MergeStats) -> Result<()>,
    ) -> Result<()> {
        let elf = columns.rows_elf();
        let is_other = |group: &RowGroup| group.cluster.is_none() && !columns.has_form(group, elf.as_deref());
        let tx = columns.begin()?;
        self.check_readable(&tx)?;
        let mut others = columns.groups(&tx)?;
        drop(tx);
        others.retain(is_other);
        for group in others {
            match self.write_group_in_form(columns, group.number) {
                Ok(rows) => stats.rows += rows,
                Err(error) if error.is_memory_limit() => {}
                // No other merge writes row groups: the table was redefined.
                Err(error) if error.is_conflict() => return Ok(()),
                Err(error) => return Err(error),
            }
            progress(stats)?;
        }
        Ok(())
    }

    /// Writes a row group anew; returns the number of its rows.
    fn write_group_in_form(&self, columns: &Arc<ColumnStore>, number: u32) -> Result<u64> {
        let tx = columns.begin_move()?;
        self.check_readable(&tx)?;
        let mut groups = columns.groups(&tx)?;
        groups.retain(|group| group.number == number);
        let pieces = self.rows_in_order(columns, &tx, &groups)?;
        columns.write_rows(&tx, self.named_schema(), &pieces)?;
        groups.iter().try_for_each(|group| columns.remove_group(&tx, group))?;
        tx.commit(Durability::None).map_err(Error::from)?;
        columns.forget(number);
        Ok(groups.iter().map(RowGroup::live_rows).sum())
    }
}
