//! The mutants of this floor: where each is caught.

use entresol_memory::order::faults::ExpectedOutcome::{self, Caught, Harmless, Missed};

/// Interleavings of transactions: `tests/protocol_mutants.rs`.
pub(crate) const INTERLEAVINGS: &str = "interleavings";

/// Each with the history of `tests/mutants.rs` that comes by, or `INTERLEAVINGS`.
pub(crate) const LIST: &[(&str, ExpectedOutcome<&str>)] = &[
    ("commit-announced", Caught("commits, one group")),
    ("announcement", Caught("commits, one group")),
    ("versions-after-announcement", Caught("commits, one group")),
    ("bits-after-versions", Caught("commits, one group")),
    ("last-cts-after-bits", Caught("commits, one group")),
    ("last-cts-after-versions", Caught("commits, one group")),
    ("last-cts-after-histories", Caught("past")),
    ("last-cts-after-disk", Caught("disk")),
    ("object-with-its-key", Caught("commits, one group")),
    ("loaded-states-together", Caught("loads")),
    ("load-is-dropped", Caught("loads")),
    ("replaced-object-with-its-key", Caught("commits, one group")),
    ("large-commit-declared", Caught("large commits")),
    ("large-commit-raises-last-cts", Caught("volatile")),
    ("failure-spares-declared", Caught("large commits")),
    ("slot-cleared", Caught("commits, one group")),
    ("bit-after-its-version", Caught("at once")),
    ("version-times", Caught("commits, one group")),
    ("version-value", Caught("commits, one group")),
    ("version-end", Caught("commits, one group")),
    ("version-bit", Caught("commits, one group")),
    ("new-object", Caught("commits, one group")),
    ("new-object-values", Caught("commits, one group")),
    ("version-in-a-free-slot", Caught("commits, one group")),
    ("chained-version", Caught("out of place")),
    ("voided-version", Caught("scrubs")),
    ("chain-truncated", Caught("out of place")),
    ("record-has-its-end", Caught("past")),
    ("recorded-end-corrected", Caught("past")),
    ("corrected-end", Caught("past")),
    ("horizon-moved", Caught("past")),
    ("horizon", Caught("past")),
    ("erased-after-horizon", Harmless("past", "the publication that erases a record begins with a fence")),
    ("record-with-its-key", Caught("past")),
    ("changes-of-their-commit", Caught("changes")),
    ("last-cts-after-changes", Caught("changes")),
    ("last-cts", Caught("commits, one group")),
    (
        "return-after-last-cts",
        Harmless(
            "commits, one group",
            "a commit returns when all older ones are visible, and the one that stored `LastCTS` has fenced in the \
             pool's `persist` by then",
        ),
    ),
    ("last-cts-of-all-groups", Caught("commits, two groups")),
    ("last-cts-list", Caught("directory")),
    ("last-cts-after-list", Caught("directory")),
    (
        "list-goes-after-last-cts",
        Harmless("directory", "the publication that frees the list begins with a fence"),
    ),
    ("list-carried-out", Caught("directory")),
    ("segment-with-its-place", Caught("directory")),
    ("segment-cleared", Caught("directory")),
    ("new-segment", Caught("directory")),
    ("dropped-index-with-its-entry", Caught("directory")),
    ("disk-state-before-its-name", Caught("disk")),
    ("durable-groups", Caught("commits, one group")),
    ("announced-at-open", Caught("commits, one group")),
    ("announced-not-reused", Caught("commits, one group")),
    ("invalid-range-noted", Caught("commits, one group")),
    (
        "ranges-go-after-traces",
        Missed(
            "scrubs",
            "the thread that scrubs fences in its own next commit; no history has another thread that commits between",
        ),
    ),
    (
        "range-taken-out",
        Harmless("scrubs", "a range that stays on the medium hides timestamps that no version has"),
    ),
    ("durable-groups-recovered", Caught("volatile")),
    ("dead-object-with-its-key", Caught("commits, one group")),
    ("lock-is-held", Caught(INTERLEAVINGS)),
    ("reads-validated", Caught(INTERLEAVINGS)),
    ("old-versions-kept", Caught(INTERLEAVINGS)),
];
