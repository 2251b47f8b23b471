//! Transactions over persistent states: snapshot isolation, several states at once, back in milliseconds
//! (dissertation sections 5.3 to 5.5).
//!
//! A [`StateContext`] holds *states* (ordered key → value maps) in *state groups*. A [`Transaction`] reads one
//! snapshot over all states and collects its writes in a volatile write set; [`Transaction::commit`] writes them
//! into the MVCC objects in place and makes them visible, over all its states at once, with the final store of
//! the group's `LastCTS`.
//!
//! MVCC in place is the default [`Protocol`]; a group may have another one: versions out of place, strict two-phase
//! locking, or backward validation.
//!
//! # Invariants
//! - Nothing uncommitted is ever visible, before or after a crash; what is rolled back was never written.
//! - A version slot that a registered snapshot can see is never rewritten, so readers take no latch.
//! - Commit timestamps are assigned from one counter, so commits are totally ordered over all groups, and within a
//!   group `LastCTS` only grows.
//! - A [serializable](Isolation::Serializable) transaction that wrote commits only if what it read is still so.
//! - A state that keeps a history can be read AS OF any point in time back to its horizon.
//! - What lies in a volatile pool ([`Tier::Dram`]) is as atomic as all else while the database runs, and gone
//!   afterwards.
//! - With [`Durability::Sync`](entresol_memory::Durability) no transaction sees a commit that is not durable.
//!
//! # What a crash leaves
//! Versions of unfinished commits, with timestamps that their group announced, or that were declared invalid, before
//! anything was changed. Opening declares the announced ones invalid: no row is touched, so recovery does
//! not depend on the number of rows.
//!
//! # What bounds memory
//! Transactions ([`ContextOptions::transactions_max`]), groups ([`GROUPS_MAX`]), states ([`STATES_MAX`]), invalid
//! ranges ([`INVALID_RANGES_MAX`]), a write set ([`WRITE_SET_BYTES_MAX`]), versions of one key
//! ([`VERSION_SLOTS_MAX`]) and old ones beside it ([`OLD_VERSION_BYTES_MAX`]), locks ([`KEY_LOCKS_MAX`] a state and
//! transaction), write sets kept for validation ([`WRITE_SET_KEYS_BYTES_MAX`]), dead keys waiting for removal
//! ([`DEAD_KEYS_MAX`] a state).
//!
//! ```
//! use entresol_memory::{Durability, Pool, PoolOptions};
//! use entresol_structures::KeyWidth;
//! use entresol_transactions::StateContext;
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let context = StateContext::open_or_create(pool)?;
//! let group = context.create_group()?;
//! let state = context.create_state(group, KeyWidth::Eight)?;
//!
//! let writer = context.begin()?;
//! writer.write(&state, b"meter-1", Some(b"17 kWh"))?;
//! let earlier = context.begin()?;
//! writer.commit(Durability::Sync)?;
//!
//! assert_eq!(earlier.read(&state, b"meter-1", |v| v.to_vec())?, None);
//! assert_eq!(context.begin()?.read(&state, b"meter-1", |v| v.to_vec())?, Some(b"17 kWh".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod active;
mod as_of;
mod cancellation;
mod chain;
mod check;
#[cfg(test)]
mod claim_protocol;
mod commit;
mod context;
#[cfg(feature = "testkit")]
pub mod crash_histories;
mod dead_keys;
mod directory;
mod error;
mod group;
mod history;
mod in_flight;
mod interleave;
mod invalid_ranges;
mod isolation;
mod locks;
mod newest;
mod object;
mod old_versions;
mod opened_states;
mod opening;
mod placement;
mod plan;
mod points;
mod predicate_locks;
mod protocol;
mod reads;
mod reclaim;
mod reclaimer;
mod reclamation;
mod recovery;
mod scan;
mod snapshot;
mod state;
mod state_writes;
mod stripes;
mod timestamp;
mod transaction;
mod trusted_clock;
mod vacuum;
mod validation_sets;
mod value_buffer;
mod waits;
mod write_set;

pub use active::TRANSACTIONS_MAX;
pub use cancellation::{Cancellation, Interrupt};
pub use check::{Owner, PROBLEMS_MAX, StateProblem, StateReport};
pub use commit::Commit;
pub use context::{ContextStats, StateContext};
pub use dead_keys::{DEAD_KEYS_MAX, QUEUED_KEYS_MAX};
pub use directory::{GROUPS_MAX, INVALID_RANGES_MAX, STATES_MAX};
pub use error::{Error, Result};
pub use history::{HistoryBounds, PRUNE_ROUNDS};
pub use isolation::{Isolation, Retry};
pub use locks::KEY_LOCKS_MAX;
pub use object::{VALUE_BYTES_MAX, VERSION_SLOTS_MAX};
pub use opening::OpeningProgress;
pub use placement::{StateOptions, Tier, TierChoice};
#[cfg(feature = "mutants")]
pub use points::POINTS;
pub use protocol::{CLOCK_JUMP_MAX, ContextOptions, OLD_VERSION_BYTES_MAX, Protocol, VERSION_SLOTS_MIN};
pub use reads::READS_MAX;
pub use reclaimer::{RETURN_AFTER, Reclaimer};
pub use reclamation::{ReclaimingPaused, SnapshotHolder, StateReclamation};
pub use recovery::RecoveryReport;
pub use scan::KeyRange;
pub use state::State;
pub use timestamp::{GroupId, INFINITY, StateId, Timestamp};
pub use transaction::{Transaction, Vote};
pub use vacuum::VacuumStats;
pub use validation_sets::WRITE_SET_KEYS_BYTES_MAX;
pub use waits::BlockingExecutor;
pub use write_set::{Mark, WRITE_SET_BYTES_MAX};
