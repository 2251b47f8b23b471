//! Deliberate bugs, to prove that the crash checker can fail.
//!
//! Without the feature `mutants`, [`active`] is a constant `false` and nothing of them is compiled in; with it, a
//! test selects one at a time for the whole process, or the environment does ([`SELECT`]). Only the low floors have
//! the feature: no crate that a user builds upon passes it on. A bug is one line at the place that it breaks:
//!
//! ```text
//! if intact("redo-lane-not-flushed") { domain.flush(...); }      something is left out
//! if active("bit-before-entry") { self.set_at_once(...); }       something comes too early
//! ```
//!
//! [`CATALOGUE`] lists them all, for every floor, with the tests that catch them.

mod catalogue;

pub use catalogue::{CATALOGUE, CaughtBy, Mutant};

/// Environment variable that selects a mutant when the process starts.
pub const SELECT: &str = "ENTRESOL_MUTANT";

/// Returns true unless the mutant is selected.
#[inline(always)]
pub fn intact(name: &str) -> bool {
    !active(name)
}

/// Returns true if the mutant is selected.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn active(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use selected::{active, select};

#[cfg(feature = "mutants")]
mod selected {
    use super::{CATALOGUE, SELECT};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Value of [`SELECTED`] before the environment was read.
    const UNKNOWN: usize = usize::MAX;

    /// Index of the selected mutant in the catalogue, from 1; 0: none.
    static SELECTED: AtomicUsize = AtomicUsize::new(UNKNOWN);

    /// Returns true if the mutant is selected.
    pub fn active(name: &str) -> bool {
        let selected = match SELECTED.load(Ordering::Relaxed) {
            UNKNOWN => {
                let asked_for =
                    std::env::var(SELECT).ok().filter(|name| !name.is_empty() && !name.contains(':'));
                select(asked_for.as_deref());
                SELECTED.load(Ordering::Relaxed)
            }
            selected => selected,
        };
        selected > 0 && CATALOGUE[selected - 1].name == name
    }

    /// Selects a mutant, or none, for the whole process. Panics if the catalogue has none of that name.
    pub fn select(name: Option<&str>) {
        let place = |name| CATALOGUE.iter().position(|mutant| mutant.name == name);
        let selected = name.map_or(0, |name| {
            place(name).unwrap_or_else(|| panic!("the catalogue has no mutant '{name}'")) + 1
        });
        SELECTED.store(selected, Ordering::Relaxed);
    }
}
