//! Groups of one open window in DRAM, with what undoes the changes of transactions that do not commit.
//!
//! # Invariants
//!
//! - A `complete` window has all its groups in DRAM; the missing groups of any other one are in the table.
//! - Groups that no epoch without a commit has changed equal their rows. The others are among `touched`, `written` or
//!   `written_sealed`; of these, those in `touched` are not written.
//! - An absent group has no tuples and no row: its number stays when a transaction that began it is undone.

use crate::operators::accumulator::{Accumulators, BoundAggregate};
use crate::operators::group_index::GroupIndex;
use crate::operators::window_pages::{StoredForm, WindowPages};
use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, DataType as ArrowType};

/// Touched groups of a window are sorted by themselves if they are fewer than this part of it.
const FEW_TOUCHED: usize = 8;

pub(super) struct OpenWindow {
    pub(super) index: GroupIndex,
    pub(super) accumulators: Vec<Accumulators>,
    pub(super) flags: Vec<GroupFlags>,
    /// Groups that differ from their rows.
    pub(super) touched: Vec<u32>,
    /// Groups that were written in the open epoch, and in one that was sealed and may commit.
    written: Vec<u32>,
    written_sealed: Vec<u32>,
    /// Groups whose rows have to be read again.
    stale: Vec<u32>,
    /// All groups in the order of their keys, as of its length.
    sorted: Vec<u32>,
    /// Number of absent groups.
    absent: usize,
    pub(super) complete: bool,
    pub(super) form: StoredForm,
    /// Groups and bytes that are counted for the operator.
    pub(super) counted: (usize, usize),
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GroupFlags {
    /// True if it differs from its row.
    pub(super) touched: bool,
    /// Number of rows that it may have in the table.
    pub(super) rows: u32,
    /// True if it has no tuples.
    pub(super) absent: bool,
}

impl OpenWindow {
    /// Window without groups; `groups` is their expected number.
    pub(super) fn new(
        types: &[ArrowType],
        aggregates: &[BoundAggregate],
        groups: usize,
    ) -> Result<OpenWindow, ArrowError> {
        Ok(OpenWindow {
            index: GroupIndex::new(types, groups)?,
            accumulators: aggregates.iter().map(BoundAggregate::accumulators).collect(),
            flags: Vec::new(),
            touched: Vec::new(),
            written: Vec::new(),
            written_sealed: Vec::new(),
            stale: Vec::new(),
            sorted: Vec::new(),
            absent: 0,
            complete: true,
            form: StoredForm::Rows,
            counted: (0, 0),
        })
    }

    /// Estimated bytes of memory: vectors that grow have spare capacity. Strings among minima and maxima are
    /// extra.
    pub(super) fn bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(Accumulators::group_bytes).sum();
        let extra: usize = self.accumulators.iter().map(Accumulators::extra_bytes).sum();
        let group = size_of::<GroupFlags>() + 2 * size_of::<u32>() + accumulators;
        let undo = (self.written.capacity() + self.written_sealed.capacity()) * size_of::<u32>();
        let pages =
            if let StoredForm::Pages(_) = &self.form { WindowPages::bytes_of(self.index.len()) } else { 0 };
        2 * group * self.index.len() + self.index.bytes() + extra + undo + pages
    }

    /// Numbers of the groups of rows with these keys.
    pub(super) fn number(
        &mut self,
        keys: &[ArrayRef],
        rows: usize,
        numbers: &mut Vec<u32>,
    ) -> Result<(), ArrowError> {
        if keys.is_empty() {
            self.index.number_one(rows, numbers);
            return Ok(());
        }
        self.index.number(keys, numbers)
    }

    /// Makes room for the accumulators of all numbered groups.
    pub(super) fn resize(&mut self) {
        let groups = self.index.len();
        self.accumulators.iter_mut().for_each(|accumulators| accumulators.resize(groups));
        self.flags.resize(groups, GroupFlags::default());
    }

    pub(super) fn touch(&mut self, numbers: &[u32]) {
        for &number in numbers {
            let flags = &mut self.flags[number as usize];
            if !flags.touched {
                flags.touched = true;
                self.absent -= usize::from(std::mem::take(&mut flags.absent));
                self.touched.push(number);
            }
        }
    }

    /// Touched groups in the order of their keys; they are stored now.
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        let mut touched = std::mem::take(&mut self.touched);
        if touched.len() * FEW_TOUCHED < self.index.len() {
            self.index.sort(&mut touched);
        } else {
            self.sort();
            let is_touched = |number: &u32| self.flags[*number as usize].touched;
            touched = self.sorted.iter().copied().filter(is_touched).collect();
        }
        for &number in &touched {
            let flags = &mut self.flags[number as usize];
            (flags.touched, flags.rows) = (false, flags.rows.max(1));
        }
        self.written.extend_from_slice(&touched);
        touched
    }

    fn sort(&mut self) {
        let groups = self.index.len();
        if self.sorted.len() < groups {
            // Only the new ones are out of place.
            self.sorted.extend(self.sorted.len() as u32..groups as u32);
            self.index.sort(&mut self.sorted);
        }
    }

    /// Groups that have tuples, in the order of their keys.
    pub(super) fn present(&mut self) -> Vec<u32> {
        self.sort();
        if self.absent == 0 {
            return self.sorted.clone();
        }
        self.sorted.iter().copied().filter(|&number| !self.flags[number as usize].absent).collect()
    }

    /// Notes that all groups that have tuples are stored.
    pub(super) fn all_stored(&mut self) {
        for flags in self.flags.iter_mut().filter(|flags| !flags.absent) {
            flags.rows = flags.rows.max(1);
        }
    }

    /// Tells whether no group of it may have a row.
    pub(super) fn is_new(&self) -> bool {
        self.complete && self.flags.iter().all(|flags| flags.rows == 0)
    }

    /// Groups that may have rows, in the order of their keys.
    pub(super) fn stored(&mut self) -> Vec<u32> {
        self.sort();
        self.sorted.iter().copied().filter(|&number| self.flags[number as usize].rows > 0).collect()
    }

    /// Numbers of rows that groups may have.
    pub(super) fn rows(&self, groups: &[u32]) -> Vec<u32> {
        groups.iter().map(|&number| self.flags[number as usize].rows).collect()
    }

    /// Notes the numbers of rows that groups have.
    pub(super) fn note_rows(&mut self, groups: &[u32], rows: &[u32]) {
        for (&number, &rows) in groups.iter().zip(rows) {
            self.flags[number as usize].rows = rows;
        }
    }

    /// Tells whether no group of it in DRAM has tuples.
    pub(super) fn has_none(&self) -> bool {
        self.absent == self.index.len()
    }

    /// Notes the end of the epoch.
    pub(super) fn sealed(&mut self) {
        self.written_sealed.append(&mut self.written);
    }

    /// Notes the commit of the sealed epoch.
    pub(super) fn committed(&mut self) {
        self.written_sealed.clear();
    }

    /// Makes the groups stale that were changed and not committed.
    pub(super) fn aborted(&mut self) {
        for &number in &self.touched {
            self.flags[number as usize].touched = false;
        }
        let stale = &mut self.stale;
        for groups in [&mut self.touched, &mut self.written, &mut self.written_sealed] {
            stale.append(groups);
        }
        stale.sort_unstable();
        stale.dedup();
        if let StoredForm::Pages(_) = self.form {
            self.form = StoredForm::Unknown;
        }
    }

    /// Takes the stale groups in the order of their keys; they are absent until their rows are found.
    pub(super) fn take_stale(&mut self) -> Vec<u32> {
        let mut stale = std::mem::take(&mut self.stale);
        for &number in &stale {
            self.accumulators.iter_mut().for_each(|accumulators| accumulators.clear(number));
            let flags = &mut self.flags[number as usize];
            self.absent += usize::from(!flags.absent);
            *flags = GroupFlags { absent: true, ..GroupFlags::default() };
        }
        self.index.sort(&mut stale);
        stale
    }

    /// Makes groups stale again, as those whose rows could not be read.
    pub(super) fn release_stale(&mut self, groups: &[u32]) {
        self.stale.extend_from_slice(groups);
    }

    /// Notes that groups have rows, and how many.
    pub(super) fn found(&mut self, groups: &[u32], rows: &[u32]) {
        self.note_rows(groups, rows);
        for &number in groups {
            let flags = &mut self.flags[number as usize];
            self.absent -= usize::from(std::mem::take(&mut flags.absent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Aggregate;
    use arrow_array::Int32Array;
    use std::sync::Arc;

    fn touched(window: &mut OpenWindow, keys: &[i32]) {
        let keys: ArrayRef = Arc::new(Int32Array::from(keys.to_vec()));
        let mut numbers = Vec::new();
        window.number(&[keys], 0, &mut numbers).unwrap();
        window.resize();
        window.touch(&numbers);
    }

    #[test]
    fn only_changed_groups_become_stale() {
        let count = Aggregate::count().resolve(&[]).unwrap();
        let mut window = OpenWindow::new(&[ArrowType::Int32], &[count], 0).unwrap();
        touched(&mut window, &[30, 10, 20]);
        assert_eq!(window.take_touched(), [1, 2, 0], "in the order of the keys");
        window.sealed();
        window.committed();
        touched(&mut window, &[10]);
        window.take_touched();
        window.sealed();
        touched(&mut window, &[10, 40]);
        window.aborted();
        assert_eq!(window.take_stale(), [1, 3], "of both epochs, each once");
        assert_eq!(window.present(), [2, 0]);
        assert_eq!(window.stored(), [2, 0]);
        window.found(&[1], &[3]);
        assert_eq!(window.rows(&[1, 2]), [3, 1]);
        assert_eq!(window.present(), [1, 2, 0]);
        assert!(!window.has_none());
        touched(&mut window, &[40]);
        assert_eq!(window.present(), [1, 2, 0, 3], "a group begins again");
        assert_eq!(window.take_touched(), [3]);
    }
}
