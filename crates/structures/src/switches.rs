//! Switches of a structure's deliberate bugs, for its tests only.

/// Generates the functions that test and set a switch, beside an enum of bugs named `Mutant`. Outside of this
/// crate's tests all of it compiles to nothing.
macro_rules! switches {
    () => {
        #[cfg(test)]
        thread_local! {
            static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
        }

        /// Returns true if this bug is switched on.
        #[cfg(test)]
        pub(super) fn is(mutant: Mutant) -> bool {
            ACTIVE.get() == Some(mutant)
        }

        /// Returns false: no bug is switched on.
        #[cfg(not(test))]
        #[inline(always)]
        pub(super) const fn is(_: Mutant) -> bool {
            false
        }

        /// Switches a bug on, in this thread, while `work` runs.
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
