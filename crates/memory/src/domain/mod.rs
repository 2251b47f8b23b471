//! Persistence domains: the meaning of flush, fence and sync on each medium.

#[cfg(feature = "testkit")]
pub(crate) mod crashing;
pub(crate) mod dax;
pub(crate) mod journal;
#[cfg(feature = "testkit")]
pub(crate) mod modelled;
pub(crate) mod redo;

use crate::durability::Durability;
use crate::error::Result;
use crate::mapping::Mapping;
use crate::offset::PoolOffset;
use crate::order;
use crate::points::{PUBLICATION_FLUSHES, PUBLICATION_WRITES};
use crate::publication::Update;
use crate::stats::PoolStats;
#[cfg(feature = "testkit")]
use crashing::CrashingDomain;
use dax::Dax;
use journal::Journal;
#[cfg(feature = "testkit")]
use modelled::ModelledDomain;
#[cfg(feature = "testkit")]
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Domain to use when a pool is created or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DomainChoice {
    /// `dax` if the file system can map persistent memory, else `journal`.
    #[default]
    Auto,
    /// Persistent memory behind a DAX file system, or an error.
    Dax,
    /// The instructions of `dax` on an ordinary shared mapping: survives the process, **not** the power.
    /// For measurements and tests.
    DaxEmulated,
    /// A redo journal on any file system.
    Journal,
    /// DRAM only: nothing survives.
    Volatile,
}

/// Domain of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainKind {
    /// Persistent memory: cache-line flushes and fences.
    Dax,
    /// The same instructions on ordinary memory; see [`DomainChoice::DaxEmulated`].
    DaxEmulated,
    /// A redo journal.
    Journal,
    /// DRAM only.
    Volatile,
    /// DRAM billed like a device; see [`crate::Pool::modelled`].
    #[cfg(feature = "testkit")]
    Modelled,
    /// Domain of the crash checker.
    #[cfg(feature = "testkit")]
    Crashing,
}

impl DomainKind {
    /// Returns true for persistent memory, and for the domains of tests that stand for it.
    pub fn is_persistent_memory(self) -> bool {
        match self {
            DomainKind::Dax | DomainKind::DaxEmulated => true,
            DomainKind::Journal | DomainKind::Volatile => false,
            #[cfg(feature = "testkit")]
            DomainKind::Modelled | DomainKind::Crashing => true,
        }
    }
}

impl std::fmt::Display for DomainKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DomainKind::Dax => "dax",
            DomainKind::DaxEmulated => "dax (emulated)",
            DomainKind::Journal => "journal",
            DomainKind::Volatile => "volatile",
            #[cfg(feature = "testkit")]
            DomainKind::Modelled => "modelled",
            #[cfg(feature = "testkit")]
            DomainKind::Crashing => "crashing",
        })
    }
}

/// A pool's domain.
pub(crate) enum Domain {
    Dax(Dax),
    Journal(Journal),
    Volatile,
    #[cfg(feature = "testkit")]
    Modelled(Arc<ModelledDomain>),
    #[cfg(feature = "testkit")]
    Crashing(Box<CrashingDomain>),
}

impl Domain {
    pub(crate) fn kind(&self) -> DomainKind {
        match self {
            Domain::Dax(dax) => dax.kind(),
            Domain::Journal(_) => DomainKind::Journal,
            Domain::Volatile => DomainKind::Volatile,
            #[cfg(feature = "testkit")]
            Domain::Modelled(_) => DomainKind::Modelled,
            #[cfg(feature = "testkit")]
            Domain::Crashing(_) => DomainKind::Crashing,
        }
    }

    /// Returns true if pages are loaded one by one: the pool is larger than its memory.
    pub(crate) fn loads_single_pages(&self) -> bool {
        matches!(self, Domain::Journal(journal) if journal.loads_single_pages())
    }

    /// See [`crate::Pool::wait_for_room`].
    #[inline]
    pub(crate) fn wait_for_room(&self) {
        if let Domain::Journal(journal) = self {
            journal.wait_for_room();
        }
    }

    #[inline]
    pub(crate) fn flush(&self, mapping: &Mapping, ranges: &[(PoolOffset, usize)]) {
        match self {
            Domain::Dax(dax) => dax.flush(mapping, ranges),
            Domain::Journal(journal) => journal.flush(ranges),
            Domain::Volatile => {}
            #[cfg(feature = "testkit")]
            Domain::Modelled(modelled) => modelled.flush(mapping, ranges),
            #[cfg(feature = "testkit")]
            Domain::Crashing(crashing) => crashing.flush(mapping, ranges),
        }
    }

    /// Stores the bytes and flushes them.
    pub(crate) fn store_flushed(&self, mapping: &Mapping, offset: PoolOffset, bytes: &[u8]) {
        assert!(offset.is_aligned(8), "bytes are stored from a word on, not from {offset:#x}");
        if let Domain::Dax(dax) = self {
            return dax.store_flushed(mapping, offset, bytes);
        }
        self.store_bytes(mapping, offset, bytes);
        self.flush(mapping, &[(offset, 8 * bytes.len().div_ceil(8))]);
    }

    /// Stores the bytes as words, the last one zero padded.
    pub(crate) fn store_bytes(&self, mapping: &Mapping, offset: PoolOffset, bytes: &[u8]) {
        dax::store(mapping.words(offset.bytes(), bytes.len().div_ceil(8)), bytes);
    }

    #[inline]
    #[cfg_attr(not(feature = "testkit"), allow(unused_variables, reason = "domains of tests need it"))]
    pub(crate) fn fence(&self, mapping: &Mapping) {
        match self {
            Domain::Dax(dax) => dax.fence(),
            Domain::Journal(journal) => {
                fence(Ordering::Release);
                journal.fence();
            }
            Domain::Volatile => fence(Ordering::Release),
            #[cfg(feature = "testkit")]
            Domain::Modelled(modelled) => modelled.fence(),
            #[cfg(feature = "testkit")]
            Domain::Crashing(crashing) => crashing.fence(mapping),
        }
    }

    /// Flushes the ranges, stores and flushes the writes, then carries out the updates so that a crash leaves
    /// all or none of them.
    #[inline]
    pub(crate) fn publish(
        &self,
        mapping: &Mapping,
        flushes: &[(PoolOffset, usize)],
        writes: &[(PoolOffset, u64)],
        updates: &[Update],
    ) {
        debug_assert!(
            writes.iter().all(|(offset, _)| offset.is_aligned(8))
                && updates.iter().all(|update| update.offset.is_aligned(8)),
            "a publication stores words"
        );
        if let Domain::Journal(journal) = self {
            return journal.publish(flushes, writes, updates);
        }
        if !flushes.is_empty() {
            order::step(PUBLICATION_FLUSHES, || self.flush(mapping, flushes));
        }
        for (offset, value) in writes {
            mapping.words(offset.bytes(), 1)[0].store(*value, Ordering::Release);
        }
        for run in runs(writes) {
            let bytes = run.len() * 8;
            order::flush(PUBLICATION_WRITES, bytes, |bytes| self.flush(mapping, &[(run[0].0, bytes)]));
        }
        match self {
            Domain::Dax(dax) => redo::publish(mapping, updates, dax.lanes(), self),
            #[cfg(feature = "testkit")]
            Domain::Modelled(modelled) => redo::publish(mapping, updates, modelled.lanes(), self),
            #[cfg(feature = "testkit")]
            Domain::Crashing(crashing) => redo::publish(mapping, updates, crashing.lanes(), self),
            Domain::Volatile | Domain::Journal(_) => {
                updates.iter().for_each(|update| update.apply(mapping));
            }
        }
    }

    /// See [`crate::Pool::publishes_at_once`].
    pub(crate) fn publishes_at_once(&self, written_words: usize) -> bool {
        match self {
            Domain::Journal(journal) => journal.publishes_at_once(written_words),
            _ => false,
        }
    }

    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        match self {
            Domain::Journal(journal) => journal.persist(durability),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_healthy(&self) -> Result<()> {
        match self {
            Domain::Journal(journal) => journal.check_healthy(),
            _ => Ok(()),
        }
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        match self {
            Domain::Dax(dax) => dax.add_stats(stats),
            Domain::Journal(journal) => journal.add_stats(stats),
            Domain::Volatile => {}
            #[cfg(feature = "testkit")]
            Domain::Modelled(modelled) => modelled.add_stats(stats),
            #[cfg(feature = "testkit")]
            Domain::Crashing(crashing) => crashing.add_stats(stats),
        }
    }
}

/// Splits the writes where the words are not neighbours.
pub(crate) fn runs(writes: &[(PoolOffset, u64)]) -> impl Iterator<Item = &[(PoolOffset, u64)]> {
    writes.chunk_by(|before, after| before.0.plus(8) == after.0)
}
