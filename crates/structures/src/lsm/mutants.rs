//! Deliberate mistakes, as switches that only tests can turn: the checkers must find each. Outside of this crate's
//! tests all of this compiles to nothing.

/// A mistake. The names say what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "tests alone turn them on"))]
pub(super) enum Mutant {
    /// A record's stamp is published before its key and value.
    StampBeforeRecord,
    /// The log is emptied before the run of its buffer counts.
    LogEmptiedBeforeRun,
    /// The log is emptied later than the run counts: deletes come back if the run is merged away in between.
    LogNeverEmptied,
    /// Blocks of a run are only stored.
    RunNotFlushed,
    /// Runs that were merged are freed while the manifest still has them.
    FreedBeforeManifest,
    /// What is being built is not noted: a crash leaks it.
    BuildingNotNoted,
    /// Merged runs are forgotten without a list: a crash leaks them.
    ObsoleteNotListed,
    /// A file is referred to before its content is durable.
    FileNotSynced,
    /// A file is referred to before its name is durable.
    NameNotSynced,
    /// A file is made before it is durable that it is being built: a crash leaves it for ever.
    FileBeforeNote,
    /// A file is removed before it is durable that nothing refers to it.
    RemovedBeforeDurable,
}

crate::switches::switches!();
