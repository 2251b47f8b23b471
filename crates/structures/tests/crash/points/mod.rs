//! The mutants of this floor: which test comes by each, and catches it or shows that it does no harm.

use entresol_memory::order::faults::ExpectedOutcome::{self, Caught, Harmless};

/// A test that comes by mutants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// Histories of ordered indexes: `tests/crash/crash.rs`.
    Index,
    /// A tree with all that it owns: `tests/crash/crash_destroy.rs`.
    Destroyed,
    /// Histories of many leaves: `src/fptree/tests.rs`.
    SparseIndex,
    /// A history of generic trees: `tests/crash/btree/bugs.rs`.
    Tree(&'static str),
    /// `src/hash/tests.rs`.
    Hash,
    /// `src/pmwcas/tests.rs`.
    PmwCas,
    /// `src/skiplist/tests.rs`.
    List,
    /// `src/trie/tests.rs`.
    Trie,
    /// `src/lsm/tests/crash.rs`.
    Lsm,
    /// `src/lsm/tests/power_failure.rs`.
    LsmFiles,
}

const STALE_PLACE: &str = "a place without its entry costs look-ups, until the next split; it is flushed as pages that leave \
    DRAM are read again from the medium";

const DECIDED: &str = "a word is dirty when the status of its operation is durable, so that a recovery sets it again; only \
    threads that do not take turns undo the trials of others";

pub(crate) const LIST: &[(&str, ExpectedOutcome<Test>)] = &[
    ("key-record", Caught(Test::Index)),
    ("fingerprint", Caught(Test::Index)),
    ("bit-with-its-entry", Caught(Test::Destroyed)),
    ("replaced-value", Caught(Test::Index)),
    ("batch-with-its-entries", Caught(Test::Destroyed)),
    ("new-leaf", Caught(Test::Index)),
    ("new-leaf-leads-on", Caught(Test::Index)),
    ("new-leaf-with-its-link", Caught(Test::Index)),
    ("split-in-one", Caught(Test::Index)),
    ("built-leaf", Caught(Test::Destroyed)),
    ("built-leaves-with-their-link", Caught(Test::Destroyed)),
    ("contents-exchanged-in-one", Caught(Test::Destroyed)),
    ("move-in-one", Caught(Test::SparseIndex)),
    ("moved-fingerprints", Caught(Test::SparseIndex)),
    ("low-key-moves", Caught(Test::SparseIndex)),
    ("unlinked-with-its-freeing", Caught(Test::Index)),
    ("merged-with-its-freeing", Caught(Test::Index)),
    ("leaf-of-a-new-tree", Caught(Test::Index)),
    ("tree-header", Caught(Test::Index)),
    ("dropped-leaf-with-its-link", Caught(Test::Destroyed)),
    ("sparse-entry-after-its-key", Caught(Test::SparseIndex)),
    ("sparse-page", Caught(Test::SparseIndex)),
    ("sparse-entry-goes", Caught(Test::SparseIndex)),
    ("note", Caught(Test::Index)),
    ("return-after-note", Caught(Test::Index)),
    ("filled-node", Caught(Test::Tree("crash_between_a_split_and_its_parent"))),
    ("sibling-with-its-split", Caught(Test::Tree("crash_between_a_split_and_its_parent"))),
    ("parent-with-its-split", Caught(Test::Tree("crash_between_a_split_and_its_parent"))),
    ("root-with-its-split", Caught(Test::Tree("crash_in_root_split"))),
    ("merge-in-one", Caught(Test::Tree("crash_in_merge"))),
    ("erased-key", Caught(Test::Tree("fast_fair_missing_flush_after_delete"))),
    ("shift-with-its-insert", Caught(Test::Tree("fast_fair_crash_while_entries_shift_across_lines"))),
    ("invalid-before-it-changes", Caught(Test::Tree("crash_while_a_slot_array_changes"))),
    ("gap-copies", Caught(Test::Tree("fast_fair_crash_while_entries_shift_across_lines"))),
    ("entry-copy", Caught(Test::Tree("crash_while_many_entries_shift"))),
    ("state-after-copies", Caught(Test::Tree("crash_while_many_entries_shift"))),
    ("prepared-word", Caught(Test::Tree("crash_while_a_slot_array_changes"))),
    ("step-after-step", Caught(Test::Tree("crash_while_a_slot_array_changes"))),
    ("appended-entries", Caught(Test::Tree("crash_in_merge"))),
    ("appended-fingerprints", Caught(Test::Tree("crash_in_merge"))),
    ("slot-after-its-entry", Caught(Test::Hash)),
    ("bucket-meta", Caught(Test::Hash)),
    ("entry-after-its-place", Caught(Test::Hash)),
    ("place-after-its-entry", Caught(Test::Hash)),
    ("new-segment", Caught(Test::Hash)),
    ("depth-with-the-link", Caught(Test::Hash)),
    ("cleared-after-split", Caught(Test::Hash)),
    ("cleared-slots", Caught(Test::Hash)),
    ("forgotten-place", Harmless(Test::Hash, STALE_PLACE)),
    ("whole-after-clearing", Caught(Test::Hash)),
    ("splits-finished-at-open", Caught(Test::Hash)),
    ("descriptor", Caught(Test::PmwCas)),
    ("words-after-descriptor", Caught(Test::PmwCas)),
    ("target", Caught(Test::PmwCas)),
    ("status-after-targets", Caught(Test::PmwCas)),
    ("status", Caught(Test::PmwCas)),
    ("values-after-status", Caught(Test::PmwCas)),
    ("finished-word", Caught(Test::PmwCas)),
    ("reuse-after-values", Caught(Test::PmwCas)),
    ("operations-finished-at-open", Caught(Test::PmwCas)),
    ("new-descriptors", Caught(Test::PmwCas)),
    ("dirty-word", Harmless(Test::PmwCas, DECIDED)),
    ("clean-after-durable", Harmless(Test::PmwCas, DECIDED)),
    ("recovered-word", Caught(Test::PmwCas)),
    ("reuse-after-recovery", Caught(Test::PmwCas)),
    ("forgotten-entry", Caught(Test::PmwCas)),
    ("freed-after-forgotten", Caught(Test::PmwCas)),
    ("list-node", Caught(Test::List)),
    ("node-with-its-link", Caught(Test::List)),
    ("link-around-with-its-freeing", Caught(Test::List)),
    ("link-around", Caught(Test::List)),
    ("levels-together", Caught(Test::List)),
    ("entry-after-its-bound", Caught(Test::List)),
    ("bucket-split-in-one", Caught(Test::List)),
    ("trie-node", Caught(Test::Trie)),
    ("nodes-with-their-pointer", Caught(Test::Trie)),
    ("flag-after-value", Caught(Test::Trie)),
    ("removal", Caught(Test::Trie)),
    ("lsm-header", Caught(Test::Lsm)),
    ("new-log", Caught(Test::Lsm)),
    ("new-manifest", Caught(Test::Lsm)),
    ("stamp-after-record", Caught(Test::Lsm)),
    ("log-emptied-after-its-run", Caught(Test::Lsm)),
    ("log-emptied", Caught(Test::Lsm)),
    ("run-block", Caught(Test::Lsm)),
    ("obsolete-with-the-manifest", Caught(Test::Lsm)),
    ("segment-with-its-note", Caught(Test::Lsm)),
    ("file-synced", Caught(Test::LsmFiles)),
    ("name-synced", Caught(Test::LsmFiles)),
    ("note-before-file", Caught(Test::LsmFiles)),
    ("unreferred-before-removed", Caught(Test::LsmFiles)),
];
