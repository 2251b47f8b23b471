//! Memory of all running queries: a part of the database's memory budget.
//!
//! Sorts, joins and aggregates register with DataFusion's memory pool. Those that can spill share it fairly
//! among themselves, so that one of them spills before another one fails. The pool's grants are reserved in
//! the budget as [`MemoryConsumer::Queries`]: a query gets no more than write sets, caches and connections
//! have left, also where its own limit is higher.

use crate::error::Result;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::common::Result as DFResult;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer as DataFusionConsumer, MemoryLimit, MemoryPool,
    MemoryReservation as DataFusionReservation,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Memory for queries, at most `bytes_max` and the rest of the budget: sorts, joins and aggregates that need
/// more spill to temporary files or fail with [`Error::MemoryLimit`](crate::Error::MemoryLimit). Share it
/// between the sessions of a database. Without a budget `bytes_max` is the only bound.
pub fn query_memory(bytes_max: usize, budget: Option<&Arc<MemoryBudget>>) -> Result<Arc<RuntimeEnv>> {
    let shares = FairSpillPool::new(bytes_max);
    let pool: Arc<dyn MemoryPool> = match budget {
        None => Arc::new(shares),
        Some(budget) => {
            let reserved = Mutex::new(budget.empty(MemoryConsumer::Queries));
            Arc::new(BudgetedPool { shares, reserved })
        }
    };
    Ok(RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?)
}

/// Bytes of the rows of a batch, which may be a part of larger arrays.
pub(crate) fn bytes_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(bytes_of_array).sum()
}

/// Bytes of the values of an array, which may be a part of a larger one.
pub(crate) fn bytes_of_array(array: &ArrayRef) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
}

/// DataFusion's pool, with every byte of it reserved in the budget.
#[derive(Debug)]
struct BudgetedPool {
    shares: FairSpillPool,
    reserved: Mutex<MemoryReservation>,
}

impl fmt::Display for BudgetedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} within {:?}", self.shares, self.reserved.lock().budget())
    }
}

impl MemoryPool for BudgetedPool {
    fn name(&self) -> &str {
        "queries"
    }

    fn register(&self, consumer: &DataFusionConsumer) {
        self.shares.register(consumer);
    }

    fn unregister(&self, consumer: &DataFusionConsumer) {
        self.shares.unregister(consumer);
    }

    fn grow(&self, reservation: &DataFusionReservation, additional: usize) {
        self.shares.grow(reservation, additional);
        self.reserved.lock().grow_unchecked(additional as u64);
    }

    fn shrink(&self, reservation: &DataFusionReservation, shrink: usize) {
        self.reserved.lock().shrink(shrink as u64);
        self.shares.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &DataFusionReservation, additional: usize) -> DFResult<()> {
        self.shares.try_grow(reservation, additional)?;
        let reserved = self.reserved.lock().try_grow(additional as u64);
        reserved.map_err(|limit| {
            self.shares.shrink(reservation, additional);
            let consumer = reservation.consumer().name();
            DataFusionError::ResourcesExhausted(format!("{consumer}: {limit}"))
        })
    }

    fn reserved(&self) -> usize {
        self.shares.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.shares.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MIB: usize = 1 << 20;

    fn used(budget: &MemoryBudget) -> u64 {
        budget.usage().used_bytes()
    }

    #[test]
    fn queries_reserve_in_the_budget_and_release() {
        let budget = MemoryBudget::new(64 << 20).unwrap();
        let runtime = query_memory(1 << 30, Some(&budget)).unwrap();
        let other = budget.try_reserve(MemoryConsumer::WriteSets, 40 << 20).unwrap();
        let sort = DataFusionConsumer::new("sort").with_can_spill(true).register(&runtime.memory_pool);
        sort.try_grow(10 * MIB).unwrap();
        assert_eq!(used(&budget), 50 << 20);
        let error = sort.try_grow(7 * MIB).unwrap_err().to_string();
        assert!(error.contains("sort: ") && error.contains("write sets 40MiB, queries 10MiB"), "{error}");
        assert_eq!((sort.size(), runtime.memory_pool.reserved()), (10 * MIB, 10 * MIB));
        drop(other);
        sort.try_grow(7 * MIB).unwrap();
        drop(sort);
        assert_eq!((used(&budget), runtime.memory_pool.reserved()), (0, 0));
    }

    #[test]
    fn the_limit_of_queries_holds_below_the_budget() {
        let budget = MemoryBudget::new(1 << 30).unwrap();
        let runtime = query_memory(MIB, Some(&budget)).unwrap();
        let join = DataFusionConsumer::new("join").register(&runtime.memory_pool);
        assert!(join.try_grow(2 * MIB).is_err());
        assert_eq!(used(&budget), 0);
        join.try_grow(MIB).unwrap();
        assert_eq!(used(&budget), MIB as u64);
    }
}
