//! Parts of a budget: bounds of what one owner reserves out of it.
//!
//! A reservation in a part is one in its budget, too, so a part promises no memory: that may be short before the bound is
//! reached. It has no elastic memory. An error names the part if its own bound is short, and is that of the budget
//! otherwise.

use super::{MemoryBudget, MemoryConsumer, MemoryLimit};
use std::sync::Arc;
use std::time::Duration;

/// Bound of a part.
pub(super) struct BudgetPart {
    /// Budget out of which all of it is reserved; `None` if there is none.
    budget: Option<Arc<MemoryBudget>>,
    /// Name of the bound in errors.
    pub(super) name: String,
}

impl MemoryBudget {
    /// Part of a budget, or of a part of one, of at most `max_bytes`; or such a bound alone. `name` is that of the bound in errors.
    pub fn part(budget: Option<&Arc<MemoryBudget>>, name: &str, max_bytes: u64) -> Arc<MemoryBudget> {
        let part = BudgetPart { budget: budget.cloned(), name: name.to_owned() };
        Arc::new(MemoryBudget { part: Some(part), ..MemoryBudget::of(max_bytes) })
    }

    pub(super) fn budget(&self) -> Option<&Arc<MemoryBudget>> {
        self.part.as_ref().and_then(|part| part.budget.as_ref())
    }

    pub(super) fn take(&self, consumer: MemoryConsumer, bytes: u64) -> Result<(), MemoryLimit> {
        if !self.try_take(consumer, bytes) {
            return Err(self.limit(consumer, bytes));
        }
        let taken = self.budget().map_or(Ok(()), |budget| budget.take(consumer, bytes));
        taken.inspect_err(|_| self.release_own(consumer, bytes))
    }

    pub(super) fn take_within(
        &self,
        consumer: MemoryConsumer,
        bytes: u64,
        wait: Duration,
    ) -> Result<(), MemoryLimit> {
        self.take_own_within(consumer, bytes, wait)?;
        let taken = self.budget().map_or(Ok(()), |budget| budget.take_within(consumer, bytes, wait));
        taken.inspect_err(|_| self.release_own(consumer, bytes))
    }

    pub(super) fn take_unchecked(&self, consumer: MemoryConsumer, bytes: u64) {
        self.take_own_unchecked(consumer, bytes);
        if let Some(budget) = self.budget() {
            budget.take_unchecked(consumer, bytes);
        }
    }

    pub(super) fn release(&self, consumer: MemoryConsumer, bytes: u64) {
        self.release_own(consumer, bytes);
        if let Some(budget) = self.budget() {
            budget.release(consumer, bytes);
        }
    }
}
