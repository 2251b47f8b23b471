//! Deliberate bugs, to prove that the crash checker can fail.
//!
//! Without the feature `mutants`, [`active`] is a constant `false` and nothing of them is compiled in; with it, a
//! test selects one at a time for the whole process. Release builds refuse the feature. A bug is one line at the
//! place that it breaks:
//!
//! ```text
//! if intact("redo-lane-not-flushed") { domain.flush(...); }      something is left out
//! if active("bit-before-entry") { self.set_at_once(...); }       something comes too early
//! ```
//!
//! [`CATALOGUE`] lists them all, for every floor, each with the checker that has to catch it: the `mutants` tests of
//! `transactions` and `memory`, and `make test-dax`, show that it does.

mod catalogue;

pub use catalogue::{CATALOGUE, Checker, Mutant};

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` puts deliberate bugs in; it is for tests, not for release builds");

/// Whether everything is as it should be at a mutant's place.
#[inline(always)]
pub fn intact(name: &str) -> bool {
    !active(name)
}

/// Whether a mutant is selected.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn active(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use selected::{active, select};

#[cfg(feature = "mutants")]
mod selected {
    use super::CATALOGUE;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Its place in the catalogue, from 1; 0: none.
    static SELECTED: AtomicUsize = AtomicUsize::new(0);

    /// Whether a mutant is selected.
    pub fn active(name: &str) -> bool {
        let selected = SELECTED.load(Ordering::Relaxed);
        selected > 0 && CATALOGUE[selected - 1].name == name
    }

    /// Selects a mutant, or none, for the whole process. Panics if the catalogue has none of that name.
    pub fn select(name: Option<&str>) {
        let selected = name.map_or(0, |name| place(name).expect("the catalogue has this mutant") + 1);
        SELECTED.store(selected, Ordering::Relaxed);
    }

    fn place(name: &str) -> Option<usize> {
        CATALOGUE.iter().position(|mutant| mutant.name == name)
    }
}
