//! Known bugs of published tries for persistent memory, as switches for tests: the crash checker must find
//! each. Outside of this crate's tests all of this compiles to nothing.

/// A deliberate bug, named by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests switch them on"))]
pub(super) enum Mutant {
    /// New nodes are reachable before their words are flushed (WOART, P-ART).
    NodeNotFlushed,
    /// The word that marks a value as present is stored before the value (Level Hashing's token).
    FlagBeforeValue,
    /// The pointer around a removed node stays in the caches (FAST&FAIR: delete not flushed).
    RemovalNotFlushed,
    /// The pointer is swung by a store of its own, before the new nodes are allocated (P-ART: split in two
    /// steps).
    PointerBeforeNodes,
}

crate::switches::switches!();
