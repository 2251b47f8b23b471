//! The concurrency control protocols of a state group (dissertation 5.3, 5.4 and 5.8.1), and the options of a
//! context.
//!
//! All of them keep the promises of a commit: all states at once or not at all, the durability that was asked
//! for, recovery without reading rows. They share the write set, the timestamps, `LastCTS` and recovery, and
//! differ in visibility, waiting, and the placement of versions.
//!
//! | protocol | a reader | a writer | versions |
//! | --- | --- | --- | --- |
//! | MVCC in place | its snapshot; never waits, never restarts | first committer wins | slots of one object |
//! | MVCC out of place | the same | the same | one allocation each, in a chain |
//! | S2PL | the newest commit, locked until it ends; restarts where a writer is | locks; waits for readers and younger writers | slots; only the newest is kept |
//! | BOCC | the newest commits, *not* of one point in time; its commit says whether they were | validates what it read | the same |
//!
//! S2PL and BOCC are serializable whatever level was asked for: a level is a minimum. A transaction over
//! groups of different protocols gets from each the promise of that one, and not one serial order over all.
//!
//! Choosing costs one predictable branch in a read and in a commit.

use crate::mvcc::object::VERSION_SLOTS_MAX;
use crate::visibility::active::TRANSACTIONS_MAX;
use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Concurrency control protocol of a group; see the table in the [crate's design](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// Snapshots over versions in fixed slots, written in place (dissertation 5.3 and 5.4).
    #[default]
    MvccInPlace,
    /// Snapshots over versions that are allocated one by one and chained, newest first: what 5.4 improves on.
    MvccOutOfPlace,
    /// Strict two-phase locking; readers restart, writers wait (5.8.1, competitor 1). Serializable.
    S2pl,
    /// Backward-oriented optimistic concurrency control (5.8.1, competitor 2). Serializable. Reads of a
    /// transaction count only when its commit succeeded, also if it wrote nothing.
    Bocc,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 4] =
        [Protocol::MvccInPlace, Protocol::MvccOutOfPlace, Protocol::S2pl, Protocol::Bocc];

    /// Readers see the commits before their transaction began.
    #[inline]
    pub(crate) fn reads_snapshots(self) -> bool {
        matches!(self, Protocol::MvccInPlace | Protocol::MvccOutOfPlace)
    }

    /// Versions lie in chains, not in slots.
    #[inline]
    pub(crate) fn is_chained(self) -> bool {
        self == Protocol::MvccOutOfPlace
    }

    /// Name, as SQL has it.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::MvccInPlace => "mvcc",
            Protocol::MvccOutOfPlace => "mvcc_chains",
            Protocol::S2pl => "s2pl",
            Protocol::Bocc => "bocc",
        }
    }

    /// The number stored in the directory. 0 is the protocol of groups of releases without a choice.
    pub(crate) fn code(self) -> u64 {
        match self {
            Protocol::MvccInPlace => 0,
            Protocol::MvccOutOfPlace => 1,
            Protocol::S2pl => 2,
            Protocol::Bocc => 3,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.code() == code)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::MvccInPlace => "MVCC in place",
            Protocol::MvccOutOfPlace => "MVCC out of place",
            Protocol::S2pl => "S2PL",
            Protocol::Bocc => "BOCC",
        })
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Protocol> {
        let known = Protocol::ALL.into_iter().find(|protocol| protocol.name().eq_ignore_ascii_case(text));
        let names = Protocol::ALL.map(Protocol::name).join(", ");
        known.ok_or_else(|| Error::Invalid(format!("no protocol '{text}'; there are {names}")))
    }
}

/// The least number of version slots: the current version and the next one.
pub const VERSION_SLOTS_MIN: usize = 2;

/// Options for opening a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextOptions {
    /// The protocol of groups that do not ask for one. Stored with a new database; later opens take the
    /// stored one.
    pub protocol: Protocol,
    /// Version slots of a new object: [`VERSION_SLOTS_MIN`] to [`VERSION_SLOTS_MAX`].
    pub version_slots: usize,
    /// Maximum number of slots that an object may grow to for old snapshots, from `version_slots` to
    /// [`VERSION_SLOTS_MAX`]. Beyond, versions that only old snapshots need move to DRAM.
    pub version_slots_max: usize,
    /// Maximum number of bytes of such versions in DRAM at a time; a commit that needs more fails with
    /// [`Error::OldVersionsFull`].
    pub old_version_bytes_max: usize,
    /// Maximum time that a writer waits for a lock of another transaction (S2PL) before it is restarted.
    pub lock_wait_max: Duration,
    /// Maximum jump of the machine's clock that timestamps follow, while version histories are kept.
    pub clock_jump_max: Duration,
    /// Maximum number of transactions that may be active at once; [`Error::Busy`] beyond. Each takes 128
    /// bytes of DRAM.
    pub transactions_max: usize,
}

/// Default maximum of bytes of old versions that a context keeps in DRAM.
pub const OLD_VERSION_BYTES_MAX: usize = 256 << 20;

/// Default maximum jump of the clock that timestamps follow.
pub const CLOCK_JUMP_MAX: Duration = Duration::from_secs(300);

impl Default for ContextOptions {
    fn default() -> ContextOptions {
        ContextOptions {
            protocol: Protocol::default(),
            version_slots: VERSION_SLOTS_MIN,
            version_slots_max: VERSION_SLOTS_MAX,
            old_version_bytes_max: OLD_VERSION_BYTES_MAX,
            lock_wait_max: Duration::from_secs(5),
            clock_jump_max: CLOCK_JUMP_MAX,
            transactions_max: TRANSACTIONS_MAX,
        }
    }
}

impl ContextOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let legal = (VERSION_SLOTS_MIN..=VERSION_SLOTS_MAX).contains(&self.version_slots)
            && (self.version_slots..=VERSION_SLOTS_MAX).contains(&self.version_slots_max);
        if legal {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} to {} version slots; possible are {VERSION_SLOTS_MIN} to {VERSION_SLOTS_MAX}",
            self.version_slots, self.version_slots_max
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_bounds() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::from_code(protocol.code()), Some(protocol));
        }
        assert_eq!(Protocol::from_code(4), None);
        let options = |version_slots, version_slots_max| ContextOptions {
            version_slots,
            version_slots_max,
            ..ContextOptions::default()
        };
        for (slots, max, legal) in
            [(2, 64, true), (1, 64, false), (4, 3, false), (64, 64, true), (2, 65, false)]
        {
            assert_eq!(options(slots, max).check().is_ok(), legal, "{slots} to {max}");
        }
    }
}
