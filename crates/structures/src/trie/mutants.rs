//! Mistakes that published tries for persistent memory made, as switches that only tests can turn: the crash checker
//! must find each. Outside of this crate's tests all of this compiles to nothing.

/// A mistake. The names say what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "tests alone turn them on"))]
pub(super) enum Mutant {
    /// New nodes are reachable before their words are flushed (WOART, P-ART).
    NodeNotFlushed,
    /// The word that says that there is a value comes before the value (Level Hashing's token).
    FlagBeforeValue,
    /// The pointer around a removed node stays in the caches (FAST&FAIR: delete not flushed).
    RemovalNotFlushed,
    /// The pointer is swung by a store of its own, before the new nodes count (P-ART: split in two steps).
    PointerBeforeNodes,
}

crate::switches::switches!();
