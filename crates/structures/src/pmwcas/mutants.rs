//! Known bugs of implementations of PMwCAS and of similar descriptors, as switches for tests: the crash
//! checker must find each. Outside of this crate's tests all of this compiles to nothing.

/// A deliberate bug, named by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests switch them on"))]
pub(super) enum Mutant {
    /// The descriptor is used before it is flushed.
    DescriptorNotFlushed,
    /// The status is decided before the words refer to the descriptor durably.
    StatusBeforeTargets,
    /// Words get their new values before the status is durable.
    StatusNotFlushed,
    /// The new values stay in the caches while the descriptor is reused.
    FinishNotFlushed,
    /// Opening does not finish interrupted operations.
    NoRecovery,
}

#[cfg(test)]
static ACTIVE: parking_lot::RwLock<Option<Mutant>> = parking_lot::RwLock::new(None);

/// Returns true if this bug is switched on. For all threads, since the checker's workers recover.
#[cfg(test)]
pub(super) fn is(mutant: Mutant) -> bool {
    *ACTIVE.read() == Some(mutant)
}

/// Returns false: no bug is switched on.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn is(_: Mutant) -> bool {
    false
}

/// Locked by tests, which would otherwise switch each other's bugs.
#[cfg(test)]
pub(super) static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Switches a bug on while `work` runs.
#[cfg(test)]
pub(super) fn with<T>(mutant: Option<Mutant>, work: impl FnOnce() -> T) -> T {
    *ACTIVE.write() = mutant;
    let outcome = work();
    *ACTIVE.write() = None;
    outcome
}
