//! Reservations: parts of a budget with an owner.

use super::{MemoryBudget, MemoryConsumer, MemoryLimit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Memory reserved until this value is dropped.
pub struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    consumer: MemoryConsumer,
    bytes: u64,
}

impl MemoryReservation {
    pub(super) fn empty(budget: Arc<MemoryBudget>, consumer: MemoryConsumer) -> MemoryReservation {
        debug_assert!(!consumer.is_elastic(), "{consumer} are observed, not reserved");
        MemoryReservation { budget, consumer, bytes: 0 }
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Consumer of the reservation.
    pub fn consumer(&self) -> MemoryConsumer {
        self.consumer
    }

    /// Budget of the reservation.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Grows the reservation; unchanged if that does not fit.
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), MemoryLimit> {
        self.budget.take(self.consumer, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// As [`MemoryReservation::try_grow`], but waits up to `wait` for others to release memory.
    pub fn grow_within(&mut self, bytes: u64, wait: Duration) -> Result<(), MemoryLimit> {
        self.budget.take_within(self.consumer, bytes, wait)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Grows the reservation, beyond the budget if need be.
    pub fn grow_unchecked(&mut self, bytes: u64) {
        self.budget.take_unchecked(self.consumer, bytes);
        self.bytes += bytes;
    }

    /// Releases a part. Panics if that is more than is reserved.
    pub fn shrink(&mut self, bytes: u64) {
        self.bytes = self.bytes.checked_sub(bytes).expect("more is released than was reserved");
        self.budget.release(self.consumer, bytes);
    }

    /// Resizes the reservation; unchanged if that does not fit.
    pub fn try_resize(&mut self, bytes: u64) -> Result<(), MemoryLimit> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => Ok(()),
            Some(more) => self.try_grow(more),
            None => {
                self.shrink(self.bytes - bytes);
                Ok(())
            }
        }
    }

    /// Resizes the reservation, beyond the budget if need be.
    pub fn resize_unchecked(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow_unchecked(more),
            None => self.shrink(self.bytes - bytes),
        }
    }

    /// Releases all of it.
    pub fn clear(&mut self) {
        self.shrink(self.bytes);
    }

    /// Moves a part into a reservation of its own. Panics if that is more than is reserved.
    pub fn split(&mut self, bytes: u64) -> MemoryReservation {
        self.bytes = self.bytes.checked_sub(bytes).expect("more is split off than was reserved");
        MemoryReservation { budget: self.budget.clone(), consumer: self.consumer, bytes }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.consumer, self.bytes);
        }
    }
}

impl fmt::Debug for MemoryReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryReservation({}: {} bytes)", self.consumer, self.bytes)
    }
}
