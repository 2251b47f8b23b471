//! Memory of the allocator's lists of free objects and chunks, counted in the budget as pool maps.
//!
//! A list says its bytes after each change; changes are gathered until they are [`REPORTED_BYTES`]. Lists grow in
//! the middle of operations that must not fail, by at most 0.2% of the pool, so they are counted beyond the budget
//! if need be: pages are evicted for them.

use crate::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Bytes by which lists change before the budget is told.
const REPORTED_BYTES: u64 = 64 << 10;

/// List that knows its memory, without visiting its entries.
pub(super) trait List {
    fn memory_bytes(&self) -> u64;
}

/// Memory of all lists of an allocator.
pub(super) struct ListMemory {
    /// Change that the budget has not been told of.
    unreported: AtomicI64,
    /// None without a budget: nothing is counted then, and no lock is taken.
    reserved: Option<Mutex<MemoryReservation>>,
}

impl ListMemory {
    pub(super) fn new(budget: Option<&Arc<MemoryBudget>>) -> Arc<ListMemory> {
        let reserved = budget.map(|budget| Mutex::new(budget.empty(MemoryConsumer::PoolMaps)));
        Arc::new(ListMemory { unreported: AtomicI64::new(0), reserved })
    }

    fn changed(&self, before: u64, after: u64) {
        let Some(reserved) = &self.reserved else { return };
        if before == after {
            return;
        }
        let change = after.cast_signed() - before.cast_signed();
        let all = self.unreported.fetch_add(change, Ordering::Relaxed) + change;
        if all.unsigned_abs() < REPORTED_BYTES {
            return;
        }
        let mut reserved = reserved.lock();
        let change = self.unreported.swap(0, Ordering::Relaxed);
        // Each list is locked while its change is counted.
        debug_assert!(
            reserved.bytes().checked_add_signed(change).is_some(),
            "lists do not shrink by more than they have: {change} of {} bytes",
            reserved.bytes()
        );
        let bytes = reserved.bytes().saturating_add_signed(change);
        reserved.resize_unchecked(bytes);
    }
}

/// Lock of a list whose memory is counted.
pub(super) struct CountedList<L> {
    list: Mutex<L>,
    memory: Arc<ListMemory>,
}

impl<L: List> CountedList<L> {
    pub(super) fn new(list: L, memory: &Arc<ListMemory>) -> CountedList<L> {
        CountedList { list: Mutex::new(list), memory: Arc::clone(memory) }
    }

    pub(super) fn lock(&self) -> ListGuard<'_, L> {
        let list = self.list.lock();
        ListGuard { before: list.memory_bytes(), list, memory: &self.memory }
    }
}

/// Locked list; its memory is counted when it is unlocked.
pub(super) struct ListGuard<'l, L: List> {
    list: MutexGuard<'l, L>,
    before: u64,
    memory: &'l ListMemory,
}

impl<L: List> Deref for ListGuard<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.list
    }
}

impl<L: List> DerefMut for ListGuard<'_, L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.list
    }
}

impl<L: List> Drop for ListGuard<'_, L> {
    fn drop(&mut self) {
        self.memory.changed(self.before, self.list.memory_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl List for Vec<u64> {
        fn memory_bytes(&self) -> u64 {
            self.len() as u64 * 8
        }
    }

    #[test]
    fn the_budget_knows_what_lists_hold() {
        let budget = MemoryBudget::new(64 << 20).expect("it is the minimum");
        let used = || {
            let usage = budget.usage().consumers;
            usage
                .iter()
                .find(|line| line.consumer == MemoryConsumer::PoolMaps)
                .map_or(0, |line| line.used_bytes)
        };
        let memory = ListMemory::new(Some(&budget));
        let lists = [Vec::new(), Vec::new()].map(|list: Vec<u64>| CountedList::new(list, &memory));
        lists[0].lock().resize(1000, 0);
        assert_eq!(used(), 0, "little is not reported");
        lists[1].lock().resize(10_000, 0);
        assert_eq!(used(), 88_000);
        lists[1].lock().clear();
        assert_eq!(used(), 8_000);
        drop(lists);
        drop(memory);
        assert_eq!(used(), 0);
    }

    #[test]
    fn nothing_is_counted_without_a_budget() {
        let memory = ListMemory::new(None);
        let list = CountedList::new(Vec::new(), &memory);
        list.lock().resize(100_000, 0);
        list.lock().push(0);
        assert_eq!(memory.unreported.load(Ordering::Relaxed), 0, "each change would be above the threshold");
    }
}
