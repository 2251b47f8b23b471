//! Known bugs of published hash tables for persistent memory, as switches for tests: the crash checker must
//! find each. Outside of this crate's tests all of this compiles to nothing.

/// A deliberate bug, named by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests switch them on"))]
pub(super) enum Mutant {
    /// The entry's words are not flushed before the word that makes it count (Level Hashing).
    EntryNotFlushed,
    /// The word that makes an entry count stays in the caches (Level Hashing, CCEH: lost bits and keys).
    ValidBitNotFlushed,
    /// A removal that stays in the caches (FAST&FAIR, Level Hashing).
    RemovalNotFlushed,
    /// The distance of a displaced entry is written after the entry (Level Hashing: moved keys that are
    /// lost).
    PlaceAfterEntry,
    /// The distance is removed before the entry is.
    PlaceForgottenFirst,
    /// The new segment is reachable before its content is on the medium (CCEH).
    NewSegmentNotFlushed,
    /// The new segment is reachable, the old one's depth grows later: a doubled directory finds both (CCEH).
    DepthAfterChain,
    /// Entries leave the old segment before the new one counts (P-CLHT: a resize that loses keys).
    ClearedBeforeSplit,
    /// The old segment is marked as undivided while it still has copies of moved entries (CCEH: duplicates
    /// after a split).
    WholeBeforeCleared,
    /// Opening leaves copies of the entries that moved (Level Hashing: duplicates after a resize).
    SplitNotFinishedAtOpen,
}

crate::switches::switches!();
