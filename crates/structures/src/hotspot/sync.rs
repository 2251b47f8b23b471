//! The atomics of the cache: those of the standard library, or, in this crate's own tests, such as let a scheduler
//! try the orders in which threads meet.

#[cfg(test)]
pub(super) use shuttle::sync::atomic::{AtomicU16, AtomicU64, fence};
#[cfg(not(test))]
pub(super) use std::sync::atomic::{AtomicU16, AtomicU64, fence};

pub(super) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// Waits for a thread that is inside for a few dozen nanoseconds, or was put off the processor there.
pub(super) fn pause(spins: &mut u32) {
    #[cfg(test)]
    {
        *spins += 1;
        shuttle::thread::yield_now();
    }
    #[cfg(not(test))]
    crate::latch::pause(spins);
}
