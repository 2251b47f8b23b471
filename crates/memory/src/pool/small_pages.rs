//! Small pages where a part of the memory behind a huge page was freed.
//!
//! The system restores huge pages behind ranges that may have them (`khugepaged`), and the first store to an
//! empty one allocates all of it: either way freed memory would be allocated again, 2 MiB at a time, with
//! nothing in it.

use crate::allocator::Allocator;
use crate::mapping::Mapping;
use crate::offset::PoolOffset;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Bytes of a huge page.
const SLICE_BYTES: u64 = 2 << 20;
/// Each slice may split a mapping of the process, of which a system has some 65,000.
const SLICES_MAX: usize = 8192;

/// Numbers of the slices of a pool that have small pages.
#[derive(Default)]
pub(super) struct SmallPages(Mutex<BTreeSet<u64>>);

impl SmallPages {
    /// Enables small pages at the ends of a range that is about to be freed, where these lie inside of huge
    /// ones.
    pub(super) fn note_released(&self, mapping: &Mapping, offset: PoolOffset, bytes: u64) {
        let (start, end) = (offset.bytes(), offset.plus(bytes).bytes());
        let mut slices = self.0.lock();
        for slice in [start / SLICE_BYTES, (end - 1) / SLICE_BYTES] {
            let (from, to) = (slice * SLICE_BYTES, (slice + 1) * SLICE_BYTES);
            let is_whole = start <= from && to <= end;
            if is_whole
                || to > mapping.mapped_bytes()
                || slices.len() >= SLICES_MAX
                || slices.contains(&slice)
            {
                continue;
            }
            if mapping.advise_huge(from, SLICE_BYTES, false) {
                slices.insert(slice);
            }
        }
    }

    /// Enables huge pages again where no part is free any more.
    pub(super) fn forget_used(&self, mapping: &Mapping, allocator: &Allocator) {
        self.0.lock().retain(|&slice| {
            let from = slice * SLICE_BYTES;
            allocator.has_hole(PoolOffset::new(from), SLICE_BYTES)
                || !mapping.advise_huge(from, SLICE_BYTES, true)
        });
    }
}
