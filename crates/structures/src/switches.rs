//! How a structure's deliberate mistakes are switched on, by its tests alone.

/// Makes the functions that ask for a mistake and make it, beside an enum of mistakes called `Mutant`. Outside of this
/// crate's tests all of it compiles to nothing.
macro_rules! switches {
    () => {
        #[cfg(test)]
        thread_local! {
            static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
        }

        /// Whether this mistake is to be made.
        #[cfg(test)]
        pub(super) fn is(mutant: Mutant) -> bool {
            ACTIVE.get() == Some(mutant)
        }

        /// Whether this mistake is to be made: never.
        #[cfg(not(test))]
        #[inline(always)]
        pub(super) const fn is(_: Mutant) -> bool {
            false
        }

        /// Makes a mistake, in this thread, while `work` runs.
        #[cfg(test)]
        pub(super) fn with<T>(mutant: Option<Mutant>, work: impl FnOnce() -> T) -> T {
            ACTIVE.set(mutant);
            let outcome = work();
            ACTIVE.set(None);
            outcome
        }
    };
}
pub(crate) use switches;
