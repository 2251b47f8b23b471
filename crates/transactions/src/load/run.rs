//! A run: rows of a load that did not come in the order of their keys, until they are sorted.
//!
//! Memory: [`RUN_BYTES_MAX`], reserved in the memory budget; a run ends early where the budget has no room.

use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_structures::KeyBytes;
use std::sync::Arc;

/// Maximum number of bytes of a run.
pub(crate) const RUN_BYTES_MAX: usize = 64 << 20;
/// Bytes that are reserved at a time.
const RESERVED_BYTES_STEP: usize = 1 << 20;
/// Bytes of a row beside its key and value: the places of both.
const ROW_BYTES: usize = 48;

/// Collected rows.
#[derive(Default)]
pub(super) struct Run {
    keys: Vec<KeyBytes>,
    values: Vec<u8>,
    /// End of each row's value.
    ends: Vec<usize>,
    bytes: usize,
    memory: Option<MemoryReservation>,
}

impl Run {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Collects a row; false if it has no room beside the others.
    pub(super) fn push(
        &mut self,
        (memory, bytes_max): (Option<&Arc<MemoryBudget>>, usize),
        key: &KeyBytes,
        value: &[u8],
    ) -> bool {
        let bytes = self.bytes + ROW_BYTES + key.len() + value.len();
        if !self.is_empty() && (bytes > bytes_max || !self.reserve(memory, bytes)) {
            return false;
        }
        self.bytes = bytes;
        self.keys.push(key.clone());
        self.values.extend_from_slice(value);
        self.ends.push(self.values.len());
        debug_assert_eq!(self.ends.len(), self.keys.len(), "each row has a key and the end of its value");
        true
    }

    fn reserve(&mut self, memory: Option<&Arc<MemoryBudget>>, bytes: usize) -> bool {
        let Some(memory) = memory else { return true };
        let reserved = self.memory.get_or_insert_with(|| memory.empty(MemoryConsumer::WriteSets));
        reserved.bytes() >= bytes as u64
            || reserved.try_resize(bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64).is_ok()
    }

    /// Returns the keys in their order, and the place of each row; an error with a key that is there twice.
    pub(super) fn sorted(&self) -> Result<(Vec<KeyBytes>, Vec<usize>), KeyBytes> {
        let mut places: Vec<usize> = (0..self.keys.len()).collect();
        places.sort_unstable_by(|&left, &right| self.keys[left].cmp(&self.keys[right]));
        let keys: Vec<KeyBytes> = places.iter().map(|&place| self.keys[place].clone()).collect();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(pair[0].clone()),
            None => Ok((keys, places)),
        }
    }

    /// Value of a row.
    pub(super) fn value(&self, place: usize) -> &[u8] {
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        debug_assert!(begin <= self.ends[place], "the value of row {place} ends behind its begin");
        &self.values[begin..self.ends[place]]
    }
}
