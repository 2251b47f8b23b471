//! Persistence: pools of persistent words, domains, allocation and publications.
//!
//! A [`Pool`] is one database directory: a pool file, a journal beside it and a lock file. All persistent
//! data lies in the pool and is reached by 8-byte pool-relative offsets ([`PoolOffset`]); all of it is accessed as
//! `&[AtomicU64]` words, so the crates above need no unsafe code.
//!
//! Structures call [`Pool::flush_at`], [`Pool::fence_at`] and [`Pool::sync`]. The guarantees, on every
//! [domain](DomainKind):
//!
//! - after `flush(a); fence(); flush(b)`, a crash never leaves `b` without `a`;
//! - after `sync()`, everything flushed before is durable;
//! - a word (8 bytes, aligned) is never torn;
//! - a [`Publication`] survives a crash completely or not at all.
//!
//! There is *no* guarantee for words that were stored and not flushed. They may survive or not, each on its
//! own, even without a flush (caches evict, checkpoints copy pages).
//!
//! ```text
//!            flush / fence / sync / publish
//!   structures ─────────────┐
//!                           ▼
//!   Pool ── allocator ── domain ──┬── dax       clwb + sfence on a MAP_SYNC mapping
//!                                 ├── journal   redo log + private mapping, any file system
//!                                 ├── volatile  DRAM only
//!                                 ├── modelled  DRAM billed like a device
//!                                 └── crashing  DRAM + the image that a power failure would leave
//! ```
//!
//! Memory: on `journal` pages that were read or written stay in DRAM, within a [`MemoryBudget`] if the pool
//! has one (else up to the pool's size); two journal buffers, and the allocator's free maps (about 0.2% of
//! the partly free space).

mod allocator;
pub mod budget;
#[cfg(feature = "testkit")]
pub mod crash;
mod domain;
mod durability;
pub mod env;
mod error;
mod fault;
mod layout;
mod lock;
mod mapping;
mod offset;
pub mod order;
pub mod placement;
mod points;
mod pool;
#[cfg(feature = "testkit")]
pub mod power_failure;
pub mod profile;
mod publication;
mod spin;
mod stats;

pub use allocator::{ClassSpace, OBJECT_BYTES_MAX, Reservation, SpaceStats};
pub use budget::{MemoryBudget, MemoryConsumer, MemoryLimit, MemoryReservation, MemorySize, MemoryUsage};
pub use domain::dax::{FlushChoice, FlushInstruction, STREAM_BYTES_MIN};
pub use domain::journal::{JournalInfo, JournalOptions, JournalPosition, PageReplacement, PagesReport};
#[cfg(feature = "testkit")]
pub use domain::modelled::{Load, ModelledCost};
pub use domain::{DomainChoice, DomainKind};
pub use durability::{Durability, ParseDurabilityError};
pub use env::Env;
pub use error::{Error, Result};
pub use layout::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, ROOT_NAME_BYTES_MAX, ROOTS_MAX};
pub use offset::{AtomicPoolOffset, PoolOffset};
#[cfg(feature = "mutants")]
pub use points::POINTS;
pub use pool::{AllocationMap, BackupReport, Pool, PoolInfo, PoolOptions};
pub use publication::{PUBLICATION_WORDS_MAX, Publication, ReadyPublication};
pub use stats::PoolStats;

/// Guard that prevents the reuse of freed objects while it lives; see [`Pool::pin`].
pub use crossbeam_epoch::Guard;
