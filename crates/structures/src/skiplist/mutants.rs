//! Known bugs of published lists and trees for persistent memory, as switches for tests: the crash checker
//! must find each. Outside of this crate's tests all of this compiles to nothing.

/// A deliberate bug, named by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests switch them on"))]
pub(super) enum Mutant {
    /// A new node is reachable before its words are flushed (FAST&FAIR, WIPE).
    NodeNotFlushed,
    /// A new node is linked by a store of its own, before it is allocated.
    LinkBeforeNode,
    /// The link around a removed node stays in the caches (FAST&FAIR: delete not flushed).
    UnlinkNotFlushed,
    /// A removed node is freed before it is unlinked.
    FreedBeforeUnlinked,
    /// Levels above the lowest are unlinked after the node is removed.
    TowersUnlinkedLater,
    /// A bucket's bound is raised after its entry is valid.
    BoundAfterEntry,
    /// A split shrinks the old bucket before the new one is linked.
    SplitShrinksFirst,
}

crate::switches::switches!();
