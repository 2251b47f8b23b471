//! Placement of states in the three tiers: DRAM, persistent memory, disk.
//!
//! A context has a *main* pool, which holds its directory, and pools for states that are placed elsewhere.
//! Each state is in one pool, with index, objects and version history.
//!
//! | tier | pool | content after a restart |
//! | --- | --- | --- |
//! | `Dram` | a volatile pool, made with its first state | empty; the state itself is there |
//! | `Pmem` | the main pool, if that is persistent memory | as it was |
//! | `Disk` | the main pool, if that has a journal; else a pool with a journal beside it ([`disk`]), if there is one | as it was |
//!
//! [`TierChoice::Auto`] is the main pool: the fastest tier of the database that is durable. A volatile tier
//! is never chosen by itself.
//!
//! # Invariants
//! - What is durable never depends on a volatile pool: the directory, `LastCTS` and announced timestamps lie
//!   in the main pool.
//! - A commit that writes volatile states alone flushes and fences nothing, and waits for no device.
//! - A commit that writes a state on the disk beside the main pool waits for that, whatever durability it
//!   asks for.
//!
//! Memory of the volatile pool counts in the budget of the main pool, as
//! [`VolatileStates`](entresol_memory::budget::MemoryConsumer::VolatileStates).

mod create;
mod disk;

use crate::{Error, GroupId, Result};
use entresol_memory::{DomainChoice, DomainKind, Pool, PoolOptions};
use entresol_structures::{IndexStructure, KeyWidth};
use parking_lot::Mutex;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

pub(crate) use create::hot_memory;
pub(crate) use disk::DiskPool;

/// A tier of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Volatile: the content is gone when the database is closed or crashes.
    Dram,
    /// Persistent memory, or what models it.
    Pmem,
    /// A file with a journal; its pages are in DRAM as far as the budget allows.
    Disk,
}

impl Tier {
    /// The tier of a pool's domain.
    pub fn of(domain: DomainKind) -> Tier {
        match domain {
            domain if domain.is_persistent_memory() => Tier::Pmem,
            DomainKind::Volatile => Tier::Dram,
            _ => Tier::Disk,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TierChoice::from(*self).fmt(f)
    }
}

/// Requested tier of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TierChoice {
    /// The fastest tier in which nothing is lost.
    #[default]
    Auto,
    /// DRAM.
    Dram,
    /// Persistent memory, or an error.
    Pmem,
    /// Disk, or an error.
    Disk,
}

impl TierChoice {
    /// All choices.
    pub const ALL: [TierChoice; 4] = [TierChoice::Auto, TierChoice::Dram, TierChoice::Pmem, TierChoice::Disk];
}

impl From<Tier> for TierChoice {
    fn from(tier: Tier) -> TierChoice {
        match tier {
            Tier::Dram => TierChoice::Dram,
            Tier::Pmem => TierChoice::Pmem,
            Tier::Disk => TierChoice::Disk,
        }
    }
}

impl fmt::Display for TierChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TierChoice::Auto => "auto",
            TierChoice::Dram => "dram",
            TierChoice::Pmem => "pmem",
            TierChoice::Disk => "disk",
        })
    }
}

impl FromStr for TierChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<TierChoice> {
        let named = |choice: &TierChoice| choice.to_string().eq_ignore_ascii_case(name);
        TierChoice::ALL
            .into_iter()
            .find(named)
            .ok_or_else(|| Error::Invalid(format!("no placement '{name}': use auto, dram, pmem or disk")))
    }
}

/// Options of a new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateOptions {
    /// The group that it is committed with.
    pub group: GroupId,
    /// The width of its keys.
    pub width: KeyWidth,
    /// The tier of the state.
    pub tier: TierChoice,
    /// The structure of its index, which has to have keys of the width.
    pub structure: IndexStructure,
    /// Bytes of the nodes of its index, of a structure that has a choice; `None`: as many as the structure takes.
    pub node_bytes: Option<u16>,
    /// Version slots of a new object; `None`: as many as the context's. For versions in place.
    pub version_slots: Option<u8>,
    /// DRAM for the hot entries of its index, out of the memory budget.
    pub hot_bytes: Option<u64>,
}

impl StateOptions {
    /// Options of a state with the structure and the version slots that are the default.
    pub fn new(group: GroupId, width: KeyWidth, tier: TierChoice) -> StateOptions {
        StateOptions {
            group,
            width,
            tier,
            structure: IndexStructure::default(),
            node_bytes: None,
            version_slots: None,
            hot_bytes: None,
        }
    }
}

/// The pool of a state, as the directory names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PoolRole {
    Main,
    /// Empty after each open.
    Volatile,
    /// With a journal, beside a main pool without.
    Disk,
}

impl PoolRole {
    pub(crate) fn code(self) -> u64 {
        match self {
            PoolRole::Main => 0,
            PoolRole::Volatile => 1,
            PoolRole::Disk => 2,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<PoolRole> {
        [PoolRole::Main, PoolRole::Volatile, PoolRole::Disk].into_iter().find(|role| role.code() == code)
    }
}

/// The pools of a context.
pub(crate) struct Pools {
    main: Arc<Pool>,
    volatile: OnceLock<Arc<Pool>>,
    /// Held while a pool is created.
    making: Mutex<()>,
    disk: Option<DiskPool>,
}

impl Pools {
    pub(crate) fn new(main: Arc<Pool>, disk: Option<Arc<Pool>>) -> Result<Pools> {
        let tier = Tier::of(main.domain());
        if disk.is_some() && tier != Tier::Pmem {
            return Err(Error::Invalid(format!(
                "a pool on disk goes beside one of persistent memory; this database is on domain {}",
                main.domain()
            )));
        }
        let disk = disk.map(|pool| DiskPool::open(&main, pool)).transpose()?;
        Ok(Pools { main, volatile: OnceLock::new(), making: Mutex::new(()), disk })
    }

    /// The pool on the disk beside the main pool, if there is one.
    pub(crate) fn disk(&self) -> Option<&DiskPool> {
        self.disk.as_ref()
    }

    pub(crate) fn disk_or_error(&self) -> Result<&DiskPool> {
        self.disk.as_ref().ok_or_else(|| {
            Error::Invalid(
                "states of this database are placed on disk: open it with the pool of its disk".into(),
            )
        })
    }

    /// The volatile pool, if there is one.
    pub(crate) fn volatile(&self) -> Option<&Arc<Pool>> {
        self.volatile.get()
    }

    pub(crate) fn of(&self, role: PoolRole) -> Result<&Arc<Pool>> {
        match role {
            PoolRole::Main => Ok(&self.main),
            PoolRole::Volatile => self.volatile_or_make(),
            PoolRole::Disk => self.disk_or_error().map(DiskPool::pool),
        }
    }

    fn volatile_or_make(&self) -> Result<&Arc<Pool>> {
        let _making = self.making.lock();
        if self.volatile.get().is_none() {
            let options = PoolOptions {
                domain: DomainChoice::Volatile,
                address_space_bytes: self.main.address_space_bytes().max(PoolOptions::default().extent_bytes),
                env: self.main.env().clone(),
                memory: self.main.memory().cloned(),
                ..PoolOptions::default()
            };
            let pool = Pool::volatile(&options)?;
            self.volatile.get_or_init(|| pool);
        }
        Ok(self.volatile.get().expect("it was made just now"))
    }

    /// The pool for a new state.
    pub(crate) fn choose(&self, choice: TierChoice) -> Result<PoolRole> {
        let domain = self.main.domain();
        let main = Tier::of(domain);
        match choice {
            TierChoice::Auto => Ok(PoolRole::Main),
            choice if choice == main.into() => Ok(PoolRole::Main),
            TierChoice::Dram => Ok(PoolRole::Volatile),
            TierChoice::Disk if self.disk.is_some() => Ok(PoolRole::Disk),
            TierChoice::Pmem | TierChoice::Disk => {
                Err(Error::NoSuchTier { wanted: choice, domain, has: main })
            }
        }
    }

    /// The tier of a pool.
    pub(crate) fn tier(&self, role: PoolRole) -> Tier {
        match role {
            PoolRole::Main => Tier::of(self.main.domain()),
            PoolRole::Volatile => Tier::Dram,
            PoolRole::Disk => Tier::Disk,
        }
    }

    /// The role of one of these pools.
    pub(crate) fn role_of(&self, pool: &Arc<Pool>) -> PoolRole {
        if Arc::ptr_eq(&self.main, pool) {
            return PoolRole::Main;
        }
        if self.disk.as_ref().is_some_and(|disk| Arc::ptr_eq(disk.pool(), pool)) {
            PoolRole::Disk
        } else {
            PoolRole::Volatile
        }
    }

    pub(crate) fn has(&self, pool: &Arc<Pool>) -> bool {
        let is_it = |other: &Arc<Pool>| Arc::ptr_eq(other, pool);
        is_it(&self.main)
            || self.volatile().is_some_and(is_it)
            || self.disk.iter().any(|disk| is_it(disk.pool()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for choice in TierChoice::ALL {
            assert_eq!(choice.to_string().to_uppercase().parse::<TierChoice>().unwrap(), choice);
        }
        let unknown = "tape".parse::<TierChoice>().unwrap_err();
        assert!(unknown.to_string().contains("'tape'"), "{unknown}");
    }

    #[test]
    fn a_missing_tier_is_refused_with_the_domain() {
        let pools = Pools::new(Pool::volatile(&PoolOptions::default()).unwrap(), None).unwrap();
        assert_eq!(pools.choose(TierChoice::Auto).unwrap(), PoolRole::Main);
        assert_eq!(pools.choose(TierChoice::Dram).unwrap(), PoolRole::Main, "all of it is there");
        let refused = pools.choose(TierChoice::Pmem).unwrap_err();
        assert!(matches!(refused, Error::NoSuchTier { wanted: TierChoice::Pmem, .. }), "{refused}");
        assert!(refused.to_string().contains("volatile"), "{refused}");
        let main = Pool::crashing(&PoolOptions::default(), None, None).unwrap();
        let pools = Pools::new(main, None).unwrap();
        assert_eq!(pools.choose(TierChoice::Pmem).unwrap(), PoolRole::Main);
        assert_eq!(pools.choose(TierChoice::Dram).unwrap(), PoolRole::Volatile);
        assert!(pools.choose(TierChoice::Disk).is_err());
        assert!(pools.volatile().is_none(), "it is made with its first state");
    }
}
