//! Mistakes that implementations of PMwCAS and of descriptors like its made, as switches that only tests can turn: the
//! crash checker must find each. Outside of this crate's tests all of this compiles to nothing.

/// A mistake. The names say what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "tests alone turn them on"))]
pub(super) enum Mutant {
    /// The descriptor is used before it is flushed.
    DescriptorNotFlushed,
    /// The status is decided before the words name the descriptor durably.
    StatusBeforeTargets,
    /// Words get their new values before the status is durable.
    StatusNotFlushed,
    /// The new values stay in the caches while the descriptor is used again.
    FinishNotFlushed,
    /// Opening does not finish what a crash left.
    NoRecovery,
}

#[cfg(test)]
static ACTIVE: parking_lot::RwLock<Option<Mutant>> = parking_lot::RwLock::new(None);

/// Whether this mistake is to be made. For all threads, since the checker's workers recover.
#[cfg(test)]
pub(super) fn is(mutant: Mutant) -> bool {
    *ACTIVE.read() == Some(mutant)
}

/// Whether this mistake is to be made: never.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn is(_: Mutant) -> bool {
    false
}

/// Held by tests, which would otherwise make each other's mistakes.
#[cfg(test)]
pub(super) static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Makes a mistake while `work` runs.
#[cfg(test)]
pub(super) fn with<T>(mutant: Option<Mutant>, work: impl FnOnce() -> T) -> T {
    *ACTIVE.write() = mutant;
    let outcome = work();
    *ACTIVE.write() = None;
    outcome
}
