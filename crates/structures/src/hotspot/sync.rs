//! Atomics of the cache: those of the standard library, or, in this crate's own tests, those of a scheduler
//! that explores the interleavings of threads.

#[cfg(test)]
pub(super) use shuttle::sync::atomic::{AtomicU16, AtomicU64, fence};
#[cfg(not(test))]
pub(super) use std::sync::atomic::{AtomicU16, AtomicU64, fence};

pub(super) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// Waits for a thread that holds a latch for a few dozen nanoseconds, or was preempted meanwhile.
pub(super) fn pause(spins: &mut u32) {
    #[cfg(test)]
    {
        *spins += 1;
        shuttle::thread::yield_now();
    }
    #[cfg(not(test))]
    crate::latch::pause(spins);
}
