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
    /// An emulated machine with persistent memory: `tests/dax`.
    Machine,
    /// Simulated files: the journal's own tests.
    Files,
    /// Eviction beside stores and checkpoints: `journal/residency/tests.rs`.
    Residency,
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
        "dax-no-clwb",
        "memory/domain/dax.rs",
        "lines are never written back",
        "missing flush",
    )
    .by(CaughtBy::Machine),
    mutant(
        "dax-no-sfence",
        "memory/domain/dax.rs",
        "write-backs are not ordered",
        "missing fence",
    )
    .by(CaughtBy::Machine),
    mutant(
        "word-without-fence-before",
        "memory/domain/redo.rs",
        "a single published word may survive without what it makes reachable",
        "a valid bit before its entry: ordering bugs of Level Hashing and wB+-trees",
    ),
    mutant(
        "word-not-flushed",
        "memory/domain/redo.rs",
        "a published word is only stored: a returned delete or replace is lost",
        "missing flush, the commonest kind in PMTest, XFDetector and Witcher",
    ),
    mutant(
        "word-without-fence-after",
        "memory/domain/redo.rs",
        "an operation returns before its word is durable",
        "missing fence at the end of an operation (Durinn)",
    ),
    mutant(
        "publication-flushes-nothing",
        "memory/domain/mod.rs",
        "what a publication was asked to flush is only stored",
        "missing flush",
    ),
    mutant(
        "redo-without-fence-before-lane",
        "memory/domain/redo.rs",
        "a whole lane commits updates whose objects are not durable",
        "undo or redo log entry ahead of the data it vouches for (PMTest, PMDK)",
    ),
    mutant(
        "redo-lane-not-flushed",
        "memory/domain/redo.rs",
        "updates are carried out with no lane behind them",
        "log entry not flushed (PMTest: PMFS journal)",
    ),
    mutant(
        "redo-without-fence-after-lane",
        "memory/domain/redo.rs",
        "updates may survive in part, before their lane is whole",
        "log entry not fenced before the data changes (PMTest)",
    ),
    mutant(
        "redo-lane-never-cleared",
        "memory/domain/redo.rs",
        "a recovery carries old updates out over newer ones",
        "stale log replayed: pmemobj_tx_commit, pmem/pmdk issue 5461",
    ),
    mutant(
        "redo-clear-without-fence",
        "memory/domain/redo.rs",
        "a later crash may replay a lane over newer values",
        "stale log replayed",
    ),
    mutant(
        "redo-cleared-too-early",
        "memory/domain/redo.rs",
        "the lane may be gone while its updates are half durable",
        "log truncated before the data is durable (XFDetector)",
    ),
    mutant(
        "redo-updates-not-flushed",
        "memory/domain/redo.rs",
        "updates are lost once their lane is cleared",
        "missing flush in a transaction's commit",
    ),
    mutant(
        "redo-recovery-does-not-clear",
        "memory/domain/redo.rs",
        "the next crash replays a lane that was finished long ago",
        "recovery that is not idempotent over new work (XFDetector)",
    ),
    mutant(
        "redo-recovery-clears-first",
        "memory/domain/redo.rs",
        "a crash during recovery loses half of a publication",
        "crash during recovery (XFDetector, Yat)",
    ),
    mutant(
        "redo-checksum-ignored",
        "memory/domain/redo.rs",
        "a torn lane is carried out",
        "torn log entry taken for whole (Yat: PMFS)",
    ),
    mutant(
        "entry-not-flushed",
        "memory/domain/mod.rs",
        "what a publication makes reachable was never flushed",
        "key and value not flushed before their valid bit",
    ),
    mutant(
        "entry-flushed-by-its-first-word",
        "memory/domain/mod.rs",
        "the first word of a run is flushed in place of the run",
        "flush of sizeof(pointer) in place of the object: FAST&FAIR, CCEH ports",
    ),
    mutant(
        "allocated-before-published",
        "memory/publication.rs",
        "a crash leaks an object that nothing refers to",
        "leak by a crash in an allocation: microsoft/pmwcas pull request 8",
    ),
    mutant(
        "freed-before-unlinked",
        "memory/publication.rs",
        "a crash leaves a reference to free memory",
        "free before unlink: use after free in recovered indexes",
    ),
    mutant(
        "root-set-before-published",
        "memory/publication.rs",
        "a root refers to an object that is not allocated",
        "root reachable before it is initialised: Witcher issue 1",
    ),
    mutant(
        "root-swapped-in-two-stores",
        "memory/publication.rs",
        "between the stores there is no root",
        "CCEH: directory and depth in two stores",
    ),
    mutant(
        "root-name-not-flushed",
        "memory/publication.rs",
        "a published root cannot be found by its name",
        "FAST_FAIR pull request 15: no flush in the constructor",
    ),
    mutant(
        "extent-counted-before-it-is-there",
        "memory/pool.rs",
        "the header counts an extent that the medium lacks",
        "resize published before the new table exists: P-CLHT",
    ),
    mutant(
        "extent-count-not-flushed",
        "memory/pool.rs",
        "objects lie in an extent that is not counted",
        "resize never made durable: P-CLHT, CCEH",
    ),
    mutant(
        "slab-descriptor-not-flushed",
        "memory/allocator",
        "objects lie in a chunk that counts as free",
        "allocator metadata not flushed",
    ),
    mutant(
        "slab-map-misread-at-open",
        "memory/allocator",
        "a recovered allocator hands out an object in use",
        "volatile state rebuilt wrongly after a crash",
    ),
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
    mutant(
        "checkpoint-ahead-of-journal",
        "memory/domain/journal/checkpoint.rs",
        "pages go to the pool file before the journal is durable",
        "write-ahead rule broken",
    )
    .by(CaughtBy::Files),
    mutant(
        "header-before-pool-sync",
        "memory/domain/journal/checkpoint.rs",
        "the replay position moves before the pool file is synced",
        "a root ahead of what it refers to (LMDB without sync order)",
    )
    .by(CaughtBy::Files),
    mutant(
        "slot-recycled-early",
        "memory/domain/journal/log.rs",
        "a slot is used again while its frames are needed",
        "log reused before the checkpoint is durable",
    )
    .by(CaughtBy::Files),
    mutant(
        "durable-lsn-too-far",
        "memory/domain/journal/log.rs",
        "a frame calls itself durable",
        "a promise ahead of its sync",
    )
    .by(CaughtBy::Files),
    mutant(
        "frame-crc-unchecked",
        "memory/domain/journal/recovery.rs",
        "torn frames count",
        "torn log tail replayed",
    )
    .by(CaughtBy::Files),
    mutant(
        "epoch-not-advanced",
        "memory/domain/journal/recovery.rs",
        "frames of a tail that was cut off count again",
        "a log's past life replayed",
    )
    .by(CaughtBy::Files),
    mutant(
        "sync-skipped",
        "memory/domain/journal/commit.rs",
        "a commit returns without a sync",
        "missing fsync (ALICE)",
    )
    .by(CaughtBy::Files),
    mutant(
        "gap-not-the-end",
        "memory/domain/journal/recovery.rs",
        "frames beyond a torn one count",
        "reordered log writes replayed (ALICE)",
    )
    .by(CaughtBy::Files),
    mutant(
        "closed-before-checkpoint",
        "memory/domain/journal/mod.rs",
        "the journal is marked closed before its last checkpoint",
        "clean mark ahead of the data",
    )
    .by(CaughtBy::Files),
    mutant(
        "fence-appends-nothing",
        "memory/domain/journal/append.rs",
        "what a thread has flushed is not ordered by its fence",
        "missing fence",
    )
    .by(CaughtBy::Files),
    mutant(
        "publication-overtakes-flushes",
        "memory/domain/journal/append.rs",
        "a publication makes reachable what is not flushed yet",
        "missing fence",
    )
    .by(CaughtBy::Files),
    mutant(
        "publication-not-marked",
        "memory/domain/journal/append.rs",
        "a checkpoint leaves out the page of a publication",
        "a dirty page forgotten",
    )
    .by(CaughtBy::Files),
    mutant(
        "replay-not-marked",
        "memory/domain/journal/mod.rs",
        "a checkpoint after a recovery leaves out what was replayed",
        "a recovery that is not repeatable",
    )
    .by(CaughtBy::Files),
    mutant(
        "growth-not-synced",
        "memory/pool.rs",
        "the pool is longer than its file",
        "file size not durable (ALICE)",
    )
    .by(CaughtBy::Files),
    mutant(
        "header-in-place",
        "memory/domain/journal/log.rs",
        "the journal header in force is overwritten",
        "in-place update of a header",
    )
    .by(CaughtBy::Files),
    mutant(
        "checksums-not-synced",
        "memory/domain/journal/checksums.rs",
        "the replay position moves before the checksums of pages are durable",
        "missing fsync (ALICE)",
    )
    .by(CaughtBy::Files),
    mutant(
        "released-before-freed",
        "memory/pool/space.rs",
        "the blocks of an object are gone before its end is durable",
        "space reused before the commit that frees it (ALICE)",
    )
    .by(CaughtBy::Files),
    mutant(
        "checksums-of-holes-kept",
        "memory/pool/space.rs",
        "blocks that were given back look damaged",
        "metadata left behind by a hole",
    )
    .by(CaughtBy::Files),
    mutant(
        "entries-torn-by-forgetting",
        "memory/domain/journal/checksums.rs",
        "half a checksum of a page that is given back counts",
        "in-place update without a log",
    )
    .by(CaughtBy::Files),
    mutant(
        "names-not-synced",
        "memory/pool/lifecycle.rs",
        "the pool needs a journal whose name can be lost",
        "directory not synced (ALICE)",
    )
    .by(CaughtBy::Files),
    mutant(
        "evicted-though-changed",
        "memory/domain/journal/residency/sweep.rs",
        "a page with changes that the file lacks is given back: they are lost at once, without a crash",
        "a buffer pool that drops a dirty frame",
    )
    .by(CaughtBy::Residency),
    mutant(
        "evicted-without-window",
        "memory/domain/journal/residency/sweep.rs",
        "a store between the last look at a page and its giving back is lost",
        "a frame that is evicted while it is pinned",
    )
    .by(CaughtBy::Residency),
    mutant(
        "evicted-before-pool-sync",
        "memory/domain/journal/dirty.rs",
        "a page is given back that the file has only in the device's cache: after a failed sync readers see an old one",
        "a frame that is evicted before its write is durable",
    )
    .by(CaughtBy::Residency),
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
