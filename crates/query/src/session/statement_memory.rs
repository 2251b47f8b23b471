//! Memory limit of the statements of one session, within the limit of all.
//!
//! One session's sorts and joins cannot take the memory that others need: operators beyond its share spill or
//! fail, as beyond the limit of all.

use crate::error::Result;
use datafusion::common::Result as DFResult;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of a session: at most `bytes_max` at a time out of `shared`, which all sessions share.
pub fn statement_memory(shared: &Arc<RuntimeEnv>, bytes_max: usize) -> Result<Arc<RuntimeEnv>> {
    let share = Share { all: Arc::clone(&shared.memory_pool), used: AtomicUsize::new(0), bytes_max };
    Ok(RuntimeEnvBuilder::from_runtime_env(shared).with_memory_pool(Arc::new(share)).build_arc()?)
}

#[derive(Debug)]
struct Share {
    all: Arc<dyn MemoryPool>,
    used: AtomicUsize,
    bytes_max: usize,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} bytes of {}", self.bytes_max, self.all)
    }
}

impl MemoryPool for Share {
    fn name(&self) -> &str {
        "statement"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.all.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.all.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.all.grow(reservation, additional);
        self.used.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.all.shrink(reservation, shrink);
        self.used.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DFResult<()> {
        let grown = |used: usize| used.checked_add(additional).filter(|&used| used <= self.bytes_max);
        if let Err(used) = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} could not reserve {additional} bytes: its statement uses {used} of at most {}",
                reservation.consumer().name(),
                self.bytes_max
            )));
        }
        self.all.try_grow(reservation, additional).inspect_err(|_| {
            self.used.fetch_sub(additional, Ordering::Relaxed);
        })
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes_max)
    }
}
