//! Granularity of faults: single pages while memory is short, huge pages while all fits.
//!
//! The pages of a pool that was opened again are those of the file, where those of new extents are huge from
//! the beginning. A slice that is mostly in memory gets a huge page with the same content, in one step within
//! a window; from then on it is like a new extent. This is done while the pool fits with room to spare, a
//! little at a time.

use super::super::super::JournalState;
use super::SingleFaults;
use super::{RestrictedPages, SLICE_BYTES_MAX, SLICE_PAGES_MAX, Sweeper};
use crate::fault::Window;
use crate::mapping::{Access, Mapping};
use std::io;
use std::ops::Range;

/// Number of slices that get huge pages between two pauses, and that are considered for it.
const HUGE_AT_ONCE: usize = 4;
const HUGE_LOOKS: usize = 64;

/// Returns true if the system has huge pages on request.
pub(super) fn has_huge_pages() -> bool {
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    modes.is_ok_and(|modes| !modes.contains("[never]"))
}

impl Sweeper {
    /// Makes a fault load no more than its page: memory is short. As far as the system supports it.
    pub(in super::super) fn enable_single_faults(&self, mapping: &Mapping) {
        self.for_each_of_file(mapping, |faults, range| faults.register(range));
    }

    /// Makes a fault load its neighbours again.
    pub(in super::super) fn disable_single_faults(&self, mapping: &Mapping) {
        self.for_each_of_file(mapping, |faults, range| faults.unregister(range));
    }

    fn for_each_of_file(
        &self,
        mapping: &Mapping,
        work: impl Fn(&SingleFaults, &Range<usize>) -> io::Result<()>,
    ) {
        let Some(faults) = &self.single_faults else { return };
        let slices: Vec<_> = (0..self.slices(mapping)).map(|slice| self.range(slice)).collect();
        let is_next = |one: &Range<u64>, next: &Range<u64>| self.is_of_file(one) && self.is_of_file(next);
        for run in slices.chunk_by(is_next).filter(|run| self.is_of_file(&run[0])) {
            let range = self.addresses(mapping, &(run[0].start..run[run.len() - 1].end));
            if let Err(error) = work(faults, &range) {
                // Pages are loaded in other numbers than they might; nothing depends on it.
                tracing::debug!(%error, "cannot change the fault granularity of a range of the pool");
            }
        }
    }

    /// Installs huge pages in the place of some slices of the file that are almost completely in memory,
    /// while all fits. True if there may be more. Pools that were opened again are then as fast as new ones,
    /// whose extents are huge pages from the beginning.
    pub(in super::super) fn make_huge(&mut self, shared: &JournalState) -> bool {
        let mapping = &*shared.mapping;
        let slices = (self.opened_bytes.min(mapping.mapped_bytes()) / self.slice_bytes) as usize;
        if !self.has_huge_pages || self.slice_bytes != SLICE_BYTES_MAX || !self.may_open_windows() {
            return false;
        }
        let mut made = 0;
        for _ in 0..HUGE_LOOKS {
            if self.huge_hand >= slices {
                self.huge_hand = 0;
                return false;
            }
            let range = self.range(self.huge_hand);
            self.huge_hand += 1;
            let present = if self.is_of_file(&range) { self.read(mapping, &range) } else { 0 };
            if present * 4 < SLICE_PAGES_MAX * 3 {
                continue;
            }
            // The others are read before any thread waits.
            if mapping.populate_for_readers(range.start, range.end - range.start) {
                self.make_slice_huge(shared, &range);
                made += 1;
            }
            if made == HUGE_AT_ONCE {
                break;
            }
        }
        true
    }

    #[cfg(all(test, not(feature = "mutants")))]
    pub(in super::super) fn make_all_huge(&mut self, shared: &JournalState) -> u64 {
        self.huge_hand = 0;
        while self.make_huge(shared) {}
        self.huge.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }

    fn make_slice_huge(&mut self, shared: &JournalState, range: &Range<u64>) {
        let mapping = &*shared.mapping;
        let slice = (range.start / self.slice_bytes) as usize;
        for bits in [&mut self.huge, &mut self.replaced] {
            if bits.len() <= slice / 64 {
                bits.resize(slice / 64 + 1, 0);
            }
        }
        let Some(_window) = Window::open(&self.addresses(mapping, range)) else { return };
        let Some(_closed) = RestrictedPages::to(mapping, range, Access::Readers) else { return };
        if mapping.back_by_huge_page(range.start).is_ok() {
            self.huge[slice / 64] |= 1 << (slice % 64);
            self.replaced[slice / 64] &= !(1 << (slice % 64));
        }
    }
}
