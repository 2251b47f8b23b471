//! Deliberate bugs, compiled in by the feature `mutants`, one switched on at a time: the crash tests must find each.

/// The mutants on the level of files: name, and what it breaks.
#[cfg(feature = "mutants")]
pub(crate) const FILE_MUTANTS: [(&str, &str); 15] = [
    ("checkpoint-ahead-of-journal", "pages go to the pool file before the journal is durable"),
    ("header-before-pool-sync", "the replay position moves before the pool file is synced"),
    ("slot-recycled-early", "a slot is used again while its frames are needed"),
    ("durable-lsn-too-far", "a frame calls itself durable"),
    ("frame-crc-unchecked", "torn frames count"),
    ("epoch-not-advanced", "frames of a tail that was cut off count again"),
    ("sync-skipped", "a commit returns without a sync"),
    ("gap-not-the-end", "frames beyond a torn one count"),
    ("closed-before-checkpoint", "the journal is marked closed before its last checkpoint"),
    ("publication-not-marked", "a checkpoint leaves out the page of a publication"),
    ("replay-not-marked", "a checkpoint after a recovery leaves out what was replayed"),
    ("growth-not-synced", "the pool is longer than its file"),
    ("header-in-place", "the journal header in force is overwritten"),
    ("checksums-not-synced", "the replay position moves before the checksums of pages are durable"),
    ("names-not-synced", "the pool needs a journal whose name can be lost"),
];

#[cfg(feature = "mutants")]
static ACTIVE: parking_lot::RwLock<&str> = parking_lot::RwLock::new("");

/// Whether a mutant is on.
#[cfg(feature = "mutants")]
pub(crate) fn active(name: &str) -> bool {
    debug_assert!(FILE_MUTANTS.iter().any(|(known, _)| *known == name), "{name} is not in the catalogue");
    *ACTIVE.read() == name
}

/// Whether a mutant is on.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn active(_name: &str) -> bool {
    false
}

/// Switches a mutant on for the whole process; the empty name: none.
#[cfg(all(test, feature = "mutants"))]
pub(crate) fn activate(name: &'static str) {
    *ACTIVE.write() = name;
}
