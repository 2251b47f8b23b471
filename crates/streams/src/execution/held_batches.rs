//! Memory of batches that are held until a transaction ends.

use crate::element::Batch;
use crate::error::Result;
use arrow_array::Array;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use std::sync::Arc;

/// Tuples that are held without a reservation, so that short transactions touch no shared counter.
const UNCOUNTED_TUPLES_MAX: usize = 1 << 14;
/// Bytes that are reserved at a time.
const RESERVED_BYTES_STEP: u64 = 1 << 20;

/// Reservation for batches.
pub(crate) struct HeldBatches {
    tuples: usize,
    bytes: u64,
    memory: Option<MemoryReservation>,
}

impl HeldBatches {
    pub(crate) fn new(memory: Option<&Arc<MemoryBudget>>) -> HeldBatches {
        let memory = memory.map(|memory| memory.empty(MemoryConsumer::StreamState));
        HeldBatches { tuples: 0, bytes: 0, memory }
    }

    /// Number of tuples that are held.
    pub(crate) fn tuples(&self) -> usize {
        self.tuples
    }

    /// Counts a batch; an error if the memory budget has no room for it.
    pub(crate) fn add(&mut self, batch: &Batch) -> Result<()> {
        self.tuples += batch.len();
        let Some(memory) = self.memory.as_mut().filter(|_| self.tuples > UNCOUNTED_TUPLES_MAX) else {
            return Ok(());
        };
        let columns = batch.rows().columns().iter();
        let bytes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0) as u64);
        self.bytes += bytes.sum::<u64>();
        if self.bytes > memory.bytes() {
            let reserved = memory.try_resize(self.bytes.next_multiple_of(RESERVED_BYTES_STEP));
            reserved.map_err(|limit| entresol_transactions::Error::Memory(limit.into()))?;
        }
        Ok(())
    }

    /// Notes that none are held any more.
    pub(crate) fn clear(&mut self) {
        self.tuples = 0;
        self.bytes = 0;
        self.memory.iter_mut().for_each(MemoryReservation::clear);
    }
}
