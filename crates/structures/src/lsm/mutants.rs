//! Deliberate bugs, as switches for tests: the checkers must find each. Outside of this crate's tests all of
//! this compiles to nothing.

/// A deliberate bug, named by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests switch them on"))]
pub(super) enum Mutant {
    /// A record's stamp is published before its key and value.
    StampBeforeRecord,
    /// The log is emptied before the run of its buffer is valid.
    LogEmptiedBeforeRun,
    /// The log is emptied later than the run is valid: deletes are lost if the run is merged in between.
    LogNeverEmptied,
    /// Blocks of a run are only stored.
    RunNotFlushed,
    /// Merged runs are freed while the manifest still has them.
    FreedBeforeManifest,
    /// A run that is being built is not noted: a crash leaks it.
    BuildingNotNoted,
    /// Merged runs are forgotten without a list: a crash leaks them.
    ObsoleteNotListed,
    /// A file is referred to before its content is durable.
    FileNotSynced,
    /// A file is referred to before its name is durable.
    NameNotSynced,
    /// A file is created before its number is durable in the header: a crash leaks it.
    FileBeforeNote,
    /// A file is removed before the removal of the last reference is durable.
    RemovedBeforeDurable,
}

crate::switches::switches!();
