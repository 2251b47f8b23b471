//! Deliberate bugs that the crash tests must find. They are compiled in by the feature `mutants` alone; one of them
//! is switched on by the environment variable `ENTRESOL_MUTANT`.

/// Whether the mutant of this name is switched on.
#[cfg(feature = "mutants")]
pub fn active(name: &str) -> bool {
    static SELECTED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("ENTRESOL_MUTANT").ok());
    SELECTED.as_deref() == Some(name)
}

/// Whether the mutant of this name is switched on: never in this build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn active(_name: &str) -> bool {
    false
}
