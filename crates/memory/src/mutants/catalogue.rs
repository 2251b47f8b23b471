//! All mutants. A new one is an entry here and a line at its place.

/// A deliberate bug.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Name in [`active`](super::active).
    pub name: &'static str,
    /// File that contains it.
    pub place: &'static str,
    /// Effect on a crash.
    pub breaks: &'static str,
    /// Kind of published bug that it resembles.
    pub resembles: &'static str,
    /// Tests that catch it.
    pub caught_by: CaughtBy,
}

/// The tests that catch mutants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaughtBy {
    /// The crash checker: `crates/transactions/tests/mutants.rs`.
    Checker,
    /// Histories of the generic tree: `crates/structures/tests/btree/bugs.rs`.
    Trees,
    /// Histories of the sparse index of the FPTree: `crates/structures/src/fptree/tests.rs`.
    SparseIndex,
    /// Interleavings of transactions: `crates/transactions/tests/protocol_mutants.rs`.
    Interleavings,
}

const fn mutant(
    name: &'static str,
    place: &'static str,
    breaks: &'static str,
    resembles: &'static str,
) -> Mutant {
    Mutant { name, place, breaks, resembles, caught_by: CaughtBy::Checker }
}

impl Mutant {
    const fn by(self, caught_by: CaughtBy) -> Mutant {
        Mutant { caught_by, ..self }
    }
}

/// Every deliberate bug of the workspace, by crate.
#[rustfmt::skip]
pub const CATALOGUE: &[Mutant] = &[
    mutant(
        "fingerprint-not-written",
        "structures/leaf.rs",
        "the key is there and not found after a crash",
        "FPTree: fingerprints have to be durable with their bit",
    ),
    mutant(
        "bit-before-entry",
        "structures/fptree/mod.rs",
        "a bit without its entry",
        "bitmap set before its value: Level Hashing's token",
    ),
    mutant(
        "value-replaced-in-two-stores",
        "structures/fptree/mod.rs",
        "between the stores the value is neither the old nor the new",
        "in-place update that is not atomic",
    ),
    mutant(
        "split-links-before-filled",
        "structures/fptree/structure.rs",
        "the sibling pointer leads to a leaf that is not written",
        "sibling pointer before its node: FAST&FAIR",
    ),
    mutant(
        "split-forgets-the-sibling",
        "structures/fptree/structure.rs",
        "the leaves to the right hang in DRAM only",
        "a pointer that only volatile state makes up for",
    ),
    mutant(
        "split-flushes-first-line",
        "structures/fptree/structure.rs",
        "most of the new leaf is not durable",
        "flush of a header in place of a node",
    ),
    mutant(
        "split-leaf-not-flushed",
        "structures/fptree/structure.rs",
        "the new leaf is not durable",
        "olemon111/WIPE issue 1: no flush in node expansion",
    ),
    mutant(
        "split-shrinks-before-linked",
        "structures/fptree/structure.rs",
        "the upper half of the keys is lost",
        "split that drops before it publishes",
    ),
    mutant(
        "split-shrinks-after-linked",
        "structures/fptree/structure.rs",
        "the upper half of the keys is there twice",
        "FAST&FAIR: duplicates after a crash in a split",
    ),
    mutant(
        "entries-leave-before-they-arrive",
        "structures/fptree/neighbour.rs",
        "what moves to a neighbour is lost",
        "split that drops before it publishes",
    )
    .by(CaughtBy::SparseIndex),
    mutant(
        "entries-arrive-before-they-leave",
        "structures/fptree/neighbour.rs",
        "what moves to a neighbour is there twice",
        "FAST&FAIR: duplicates after a crash in a split",
    )
    .by(CaughtBy::SparseIndex),
    mutant(
        "low-key-stays-when-entries-move",
        "structures/fptree/neighbour.rs",
        "the inner nodes that are built lead past what moved",
        "a separator that only volatile state has",
    )
    .by(CaughtBy::SparseIndex),
    mutant(
        "fingerprints-not-written-when-entries-move",
        "structures/leaf.rs",
        "what moved is not found",
        "bit before what it stands for",
    )
    .by(CaughtBy::SparseIndex),
    mutant(
        "leaf-freed-before-its-entries-arrive",
        "structures/fptree/structure.rs",
        "the entries of a leaf that is merged are in neither leaf",
        "merge in two steps",
    ),
    mutant(
        "leaf-unlinked-before-freed",
        "structures/fptree/structure.rs",
        "an empty leaf leaks",
        "leak by a crash in a delete",
    ),
    mutant(
        "tree-header-not-flushed",
        "structures/fptree/lifecycle.rs",
        "a new tree has no header",
        "root not flushed: FAST_FAIR pull request 15",
    ),
    mutant(
        "destroy-unlinks-before-it-frees",
        "structures/fptree/lifecycle.rs",
        "a leaf of a dropped tree leaks, and its objects",
        "leak by a crash in a bulk free",
    ),
    mutant(
        "key-record-not-flushed",
        "structures/key.rs",
        "a key's bytes are not durable",
        "pointer to a key that was not flushed",
    ),
    mutant(
        "batch-of-entries-in-two-publications",
        "structures/fptree/insert_many.rs",
        "what came with entries is allocated, and nothing leads to it",
        "allocation before the link",
    ),
    mutant(
        "history-after-its-commit",
        "transactions/commit.rs",
        "a version that a whole commit has ended is in no history",
        "commit record before the data",
    ),
    mutant(
        "history-without-its-end",
        "transactions/history/record.rs",
        "what was deleted is seen for ever in the past",
        "field that is not initialised",
    ),
    mutant(
        "history-end-not-corrected",
        "transactions/history/record.rs",
        "a version ends in the past when a commit ended it that did not finish",
        "recovery that trusts what it finds",
    ),
    mutant(
        "history-end-not-flushed",
        "transactions/history/record.rs",
        "the corrected end of a version is not durable",
        "missing flush",
    ),
    mutant(
        "horizon-moved-after-erasing",
        "transactions/history/prune.rs",
        "a past is answered that is not whole any more",
        "free before the mark that says so",
    ),
    mutant(
        "history-freed-before-its-key",
        "transactions/history/prune.rs",
        "the history leads to free memory",
        "free before unlink",
    ),
    mutant(
        "last-cts-before-the-versions",
        "transactions/commit.rs",
        "a commit counts before it is there",
        "commit record before the data",
    ),
    mutant(
        "chained-version-not-flushed",
        "transactions/chain.rs",
        "the index leads to a version that is not durable",
        "missing flush of a new node",
    ),
    mutant(
        "chain-freed-but-not-cut",
        "transactions/chain.rs",
        "a chain leads to free memory",
        "free before unlink",
    ),
    mutant(
        "reader-takes-no-lock",
        "transactions/locks.rs",
        "a reader of a two-phase locking group sees two moments",
        "missing lock",
    )
    .by(CaughtBy::Interleavings),
    mutant(
        "reader-is-not-validated",
        "transactions/validation_sets.rs",
        "a transaction commits that read two moments",
        "missing validation",
    )
    .by(CaughtBy::Interleavings),
    mutant(
        "old-versions-dropped",
        "transactions/plan.rs",
        "a long reader loses what it sees",
        "garbage collection that overlooks a reader",
    )
    .by(CaughtBy::Interleavings),
    mutant(
        "commit-not-announced",
        "transactions/commit.rs",
        "nobody knows that a commit was in work; it counts later",
        "missing begin record",
    ),
    mutant(
        "announcement-without-fence",
        "transactions/commit.rs",
        "versions may survive without their announcement",
        "begin record not ordered before the data",
    ),
    mutant(
        "versions-without-fence",
        "transactions/commit.rs",
        "a slot's bit may survive without its version",
        "bitmap set before its value",
    ),
    mutant(
        "bits-without-fence",
        "transactions/commit.rs",
        "LastCTS may survive without the bits",
        "commit record before the data",
    ),
    mutant(
        "large-commit-not-declared",
        "transactions/commit/large.rs",
        "small commits make half of a large one count",
        "a later commit record vouches for data of an unfinished one",
    ),
    mutant(
        "large-commit-whole-above-last-cts",
        "transactions/directory/ranges.rs",
        "a crash in a later commit takes a whole one along",
        "recovery that undoes what was committed",
    ),
    mutant(
        "failure-takes-large-commits-along",
        "transactions/context.rs",
        "a large commit that becomes whole after a smaller one failed is lost",
        "abort record that covers another transaction",
    ),
    mutant(
        "object-published-before-its-key",
        "transactions/commit.rs",
        "an object leaks",
        "leak by a crash in an insert: pmwcas",
    ),
    mutant(
        "object-freed-before-replaced",
        "transactions/commit.rs",
        "a key refers to a free object",
        "free before unlink",
    ),
    mutant(
        "announcement-not-flushed",
        "transactions/directory.rs",
        "versions may survive without their announcement",
        "begin record not flushed",
    ),
    mutant(
        "last-cts-not-flushed",
        "transactions/directory.rs",
        "a reported commit is lost",
        "missing flush of the commit record",
    ),
    mutant(
        "bit-published-with-its-version",
        "transactions/object.rs",
        "a version counts that is whole only in part",
        "commit record written together with its data",
    ),
    mutant(
        "last-cts-before-their-list",
        "transactions/directory/last_cts.rs",
        "a commit over many groups is there in some",
        "words changed before the record that says so",
    ),
    mutant(
        "list-of-last-cts-not-flushed",
        "transactions/directory/last_cts.rs",
        "a commit over many groups has a list of garbage",
        "missing flush of a log entry",
    ),
    mutant(
        "list-of-last-cts-forgotten",
        "transactions/directory/last_cts.rs",
        "the next open does not carry out what was begun",
        "missing redo in recovery",
    ),
    mutant(
        "durable-groups-taken-for-volatile",
        "transactions/group.rs",
        "timestamps of durable states are not flushed",
        "missing flush of the commit record",
    ),
    mutant(
        "groups-with-a-volatile-state-not-recovered",
        "transactions/recovery.rs",
        "an unfinished commit of the durable states beside a volatile one counts",
        "recovery that misses a log",
    ),
    mutant(
        "disk-not-durable-before-last-cts",
        "transactions/commit.rs",
        "a commit counts whose versions on disk are lost",
        "commit record before its data",
    ),
    mutant(
        "disk-state-named-before-it-is-durable",
        "transactions/context.rs",
        "the directory names a state that the disk does not have",
        "pointer to what is not durable",
    ),
    mutant(
        "segment-allocated-before-it-is-known",
        "transactions/directory.rs",
        "a segment of the directory belongs to nobody",
        "object leaked between allocation and link",
    ),
    mutant(
        "segment-not-cleared",
        "transactions/directory.rs",
        "a new segment of the directory has entries that nobody made",
        "uninitialised memory",
    ),
    mutant(
        "last-cts-group-by-group",
        "transactions/directory.rs",
        "a commit over two groups is there in one",
        "two words that must change together",
    ),
    mutant(
        "version-header-not-flushed",
        "transactions/object.rs",
        "a version has no timestamps",
        "missing flush",
    ),
    mutant(
        "version-value-not-flushed",
        "transactions/object.rs",
        "a version has another one's value",
        "missing flush of a value in place",
    ),
    mutant(
        "slot-reused-without-clearing-it",
        "transactions/object.rs",
        "an old version may come back with a new value",
        "slot reused while it counts",
    ),
    mutant(
        "deletion-not-flushed",
        "transactions/object.rs",
        "a deleted key comes back",
        "delete not flushed",
    ),
    mutant(
        "slot-bit-not-flushed",
        "transactions/object.rs",
        "a reported version does not count",
        "bitmap not flushed",
    ),
    mutant(
        "new-object-flushed-in-part",
        "transactions/object.rs",
        "the values of a new object are not durable",
        "flush of a header in place of a node",
    ),
    mutant(
        "version-written-over-the-current",
        "transactions/plan.rs",
        "a crash in a commit destroys the version before it",
        "in-place update without a copy",
    ),
    mutant(
        "recovery-trusts-what-it-finds",
        "transactions/recovery.rs",
        "versions of a commit that did not finish count later",
        "recovery without undo",
    ),
    mutant(
        "recovery-draws-announced-timestamps-again",
        "transactions/recovery.rs",
        "a new commit draws a timestamp that counts as invalid",
        "reused identifier after recovery",
    ),
    mutant(
        "invalid-range-kept-in-dram",
        "transactions/recovery.rs",
        "the second recovery does not know what the first undid",
        "recovery that is not durable",
    ),
    mutant(
        "dropped-state-forgotten-before-it-is-free",
        "transactions/directory.rs",
        "the header of a dropped state's index belongs to nobody",
        "object leaked between unlink and free",
    ),
    mutant(
        "dead-object-freed-before-its-key",
        "transactions/vacuum.rs",
        "a key refers to a free object",
        "free before unlink",
    ),
    mutant(
        "sparse-entry-before-its-key",
        "structures/fptree/sparse.rs",
        "an entry of the sparse index counts before its low key is there",
        "valid bit ahead of its entry",
    )
    .by(CaughtBy::SparseIndex),
    mutant(
        "sparse-page-not-flushed",
        "structures/fptree/sparse.rs",
        "a new page of the sparse index is reachable before it is empty",
        "missing flush",
    )
    .by(CaughtBy::SparseIndex),
    mutant(
        "sparse-entry-outlives-its-leaf",
        "structures/fptree/structure.rs",
        "the sparse index names a leaf that is free",
        "dangling pointer",
    )
    .by(CaughtBy::SparseIndex),
    // The generic tree and its node layouts.
    mutant(
        "fast-erase-not-flushed",
        "structures/node/fast.rs",
        "the key that an erase overwrites is only stored",
        "FAST and FAIR: missing flush after a delete",
    )
    .by(CaughtBy::Trees),
    mutant(
        "fast-shift-before-commit",
        "structures/node/fast.rs",
        "entries shift without order and before the insert counts",
        "FAST and FAIR: a shift across cache lines loses an entry",
    )
    .by(CaughtBy::Trees),
    mutant(
        "slot-array-changes-while-valid",
        "structures/node/indirection.rs",
        "the validity bit stays while the slot array changes",
        "wB+-tree without its validity bit",
    )
    .by(CaughtBy::Trees),
    mutant(
        "gap-copies-not-flushed",
        "structures/node/sorted.rs",
        "copies count that are not on the medium",
        "missing flush after a shift (P-family)",
    )
    .by(CaughtBy::Trees),
    mutant(
        "tree-node-not-flushed",
        "structures/btree/structure.rs",
        "a node is linked before its content is on the medium",
        "a new node that is empty after a crash (P-family)",
    )
    .by(CaughtBy::Trees),
    mutant(
        "tree-sibling-before-node",
        "structures/btree/structure.rs",
        "a leaf leads to a sibling that is not filled",
        "FAST and FAIR: the sibling pointer before the node",
    )
    .by(CaughtBy::Trees),
    mutant(
        "tree-split-truncates-first",
        "structures/btree/structure.rs",
        "the upper half leaves a leaf before it is linked",
        "a split that loses half (P-family)",
    )
    .by(CaughtBy::Trees),
    mutant(
        "tree-root-before-its-split",
        "structures/btree/structure.rs",
        "the header names a root whose left half is whole still",
        "FAST and FAIR, P-BwTree: crash in a root split",
    )
    .by(CaughtBy::Trees),
    mutant(
        "tree-parent-after-its-split",
        "structures/btree/structure.rs",
        "a split counts before its parent knows",
        "P-family: a separator that is never added",
    )
    .by(CaughtBy::Trees),
    mutant(
        "tree-merge-unlinks-first",
        "structures/btree/underflow.rs",
        "a leaf leaves the chain before its entries have moved",
        "FAST and FAIR: crash in a merge",
    )
    .by(CaughtBy::Trees),
];
