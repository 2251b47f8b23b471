//! Pages in which the groups of an open window are stored, known to its only writer: a page is written from DRAM, and nothing
//! is read.
//!
//! # Invariants
//!
//! - Every group that is written is in one page, whose groups ascend by their keys; the pages do, too.
//! - A page is stored under the key of its first group, as of the last write of it in this epoch.
//!
//! Pages are not undone: behind an abort those of the window are unknown ([`StoredForm::Unknown`]), and rows are
//! written into them as they are found, or the window is written anew.
//!
//! Memory: a number for each group, and one in the list of its page.

use crate::operators::group_index::GroupIndex;
use std::cmp::Ordering;

/// Page of a group that is in none.
const NONE: u32 = u32::MAX;

/// Form in which the groups of a window are stored.
#[derive(Debug, Default)]
pub(super) enum StoredForm {
    /// Each as a row; or none is stored.
    #[default]
    Rows,
    /// All in these pages.
    Pages(WindowPages),
    /// Some may be in pages.
    Unknown,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct WindowPages {
    /// Page of each group, by number.
    of_group: Vec<u32>,
    /// Groups of each page.
    groups: Vec<Vec<u32>>,
    /// Pages in the order of their keys.
    order: Vec<u32>,
    /// Places of the pages that are to be written, in `order`.
    dirty: Vec<usize>,
}

/// Groups of pages that are to be written, page by page, in the order of their keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DirtyPages {
    pub(super) groups: Vec<u32>,
    /// Ends of the pages.
    pub(super) ends: Vec<usize>,
    /// Groups that were the first of a page, and are not any more: nothing is stored under their keys.
    pub(super) moved: Vec<u32>,
}

impl WindowPages {
    /// Pages of groups, in the order of their keys, up to these ends.
    pub(super) fn of(groups: &[u32], ends: &[usize]) -> WindowPages {
        let mut pages = WindowPages::default();
        let mut begin = 0;
        for &end in ends {
            pages.add(pages.order.len(), groups[begin..end].to_vec());
            begin = end;
        }
        pages
    }

    /// Adds a page at a place.
    fn add(&mut self, place: usize, groups: Vec<u32>) {
        let page = self.groups.len() as u32;
        for &group in &groups {
            self.set(group, page);
        }
        self.groups.push(groups);
        self.order.insert(place, page);
    }

    fn set(&mut self, group: u32, page: u32) {
        let at = group as usize;
        if self.of_group.len() <= at {
            self.of_group.resize(at + 1, NONE);
        }
        self.of_group[at] = page;
    }

    /// Bytes of memory of so many groups.
    pub(super) fn bytes_of(groups: usize) -> usize {
        2 * size_of::<u32>() * groups
    }

    /// Pages with these groups, of which new ones are put into the pages where they belong. They are written until
    /// [`WindowPages::made`]. There is a page at least.
    pub(super) fn dirty(&mut self, index: &GroupIndex, touched: &[u32]) -> DirtyPages {
        let mut dirty = DirtyPages::default();
        let mut is_dirty = vec![false; self.groups.len()];
        let mut is_out_of_order = vec![false; self.groups.len()];
        let firsts: Vec<u32> = self.order.iter().map(|page| self.groups[*page as usize][0]).collect();
        for &group in touched {
            let mut page = self.of_group.get(group as usize).copied().unwrap_or(NONE);
            if page == NONE {
                let behind = |first: &u32| index.compare(*first, group) != Ordering::Greater;
                page = self.order[firsts.partition_point(behind).saturating_sub(1)];
                self.groups[page as usize].push(group);
                self.set(group, page);
                is_out_of_order[page as usize] = true;
            }
            is_dirty[page as usize] = true;
        }
        self.dirty.clear();
        for (place, &page) in self.order.iter().enumerate().filter(|(_, page)| is_dirty[**page as usize]) {
            let groups = &mut self.groups[page as usize];
            if is_out_of_order[page as usize] {
                index.sort(groups);
                if groups[0] != firsts[place] {
                    dirty.moved.push(firsts[place]);
                }
            }
            dirty.groups.extend_from_slice(groups);
            dirty.ends.push(dirty.groups.len());
            self.dirty.push(place);
        }
        dirty
    }

    /// Notes the ends of the pages that were made of the groups of dirty pages: some may have become several.
    pub(super) fn made(&mut self, dirty: &DirtyPages, ends: &[usize]) {
        let mut ends = ends.iter().copied().peekable();
        let (mut begin, mut added) = (0, 0);
        for (place, end) in std::mem::take(&mut self.dirty).into_iter().zip(&dirty.ends) {
            let page = self.order[place + added] as usize;
            let first = ends.next().unwrap_or(*end);
            self.groups[page].truncate(first - begin);
            begin = first;
            while let Some(next) = ends.next_if(|next| next <= end) {
                added += 1;
                self.add(place + added, dirty.groups[begin..next].to_vec());
                begin = next;
            }
        }
    }

    /// Number of pages.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int32Array};
    use arrow_schema::DataType as ArrowType;
    use std::sync::Arc;

    fn numbered(index: &mut GroupIndex, keys: &[i32]) -> Vec<u32> {
        let keys: ArrayRef = Arc::new(Int32Array::from(keys.to_vec()));
        let mut numbers = Vec::new();
        index.number(&[keys], &mut numbers).unwrap();
        index.sort(&mut numbers);
        numbers
    }

    #[test]
    fn new_groups_go_into_the_pages_where_they_belong() {
        let mut index = GroupIndex::new(&[ArrowType::Int32], 0).unwrap();
        let groups = numbered(&mut index, &[10, 20, 30, 40]);
        let mut pages = WindowPages::of(&groups, &[2, 4]);
        let touched = numbered(&mut index, &[20]);
        let dirty = pages.dirty(&index, &touched);
        assert_eq!((&dirty.groups[..], &dirty.ends[..], &dirty.moved[..]), (&groups[..2], &[2][..], &[][..]));
        pages.made(&dirty, &[2]);
        // Before the first, in between, and behind the last; the second page becomes three.
        let touched = numbered(&mut index, &[5, 35, 50, 60]);
        let dirty = pages.dirty(&index, &touched);
        assert_eq!(dirty.groups, numbered(&mut index, &[5, 10, 20, 30, 35, 40, 50, 60]));
        assert_eq!((&dirty.ends[..], &dirty.moved[..]), (&[3, 8][..], &groups[..1]), "10 is stored under 5");
        pages.made(&dirty, &[3, 5, 7, 8]);
        assert_eq!(pages.len(), 4);
        for (keys, page) in [(&[5, 10, 20][..], [5]), (&[30, 35], [35]), (&[40, 50], [50]), (&[60], [60])] {
            let touched = numbered(&mut index, &page);
            let dirty = pages.dirty(&index, &touched);
            assert_eq!(dirty.groups, numbered(&mut index, keys), "{keys:?}");
            pages.made(&dirty, &dirty.ends);
        }
    }
}
