//! A part of a budget that somebody holds.

use super::{MemoryBudget, MemoryConsumer, MemoryLimit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Memory that is reserved until this value is dropped.
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

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The consumer that it counts for.
    pub fn consumer(&self) -> MemoryConsumer {
        self.consumer
    }

    /// The budget that it is part of.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Holds more, or as much as before if that does not fit.
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), MemoryLimit> {
        self.budget.take(self.consumer, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// As [`MemoryReservation::try_grow`], but waits so long for others to free what is missing.
    pub fn grow_within(&mut self, bytes: u64, wait: Duration) -> Result<(), MemoryLimit> {
        self.budget.take_within(self.consumer, bytes, wait)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Holds more, whatever the budget.
    pub fn grow_unchecked(&mut self, bytes: u64) {
        self.budget.take_unchecked(self.consumer, bytes);
        self.bytes += bytes;
    }

    /// Gives a part back. Panics if it does not hold so much.
    pub fn shrink(&mut self, bytes: u64) {
        self.bytes = self.bytes.checked_sub(bytes).expect("more is given back than was reserved");
        self.budget.give_back(self.consumer, bytes);
    }

    /// Holds so much from now on, or as much as before if that does not fit.
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

    /// Holds so much from now on, whatever the budget.
    pub fn resize_unchecked(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow_unchecked(more),
            None => self.shrink(self.bytes - bytes),
        }
    }

    /// Gives all of it back.
    pub fn clear(&mut self) {
        self.shrink(self.bytes);
    }

    /// Hands a part over to a reservation of its own. Panics if it does not hold so much.
    pub fn split(&mut self, bytes: u64) -> MemoryReservation {
        self.bytes = self.bytes.checked_sub(bytes).expect("more is split off than was reserved");
        MemoryReservation { budget: self.budget.clone(), consumer: self.consumer, bytes }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.consumer, self.bytes);
        }
    }
}

impl fmt::Debug for MemoryReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryReservation({}: {} bytes)", self.consumer, self.bytes)
    }
}
