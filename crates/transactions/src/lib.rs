//! Transactions over persistent states: snapshot isolation, several states at once, back in milliseconds
//! (dissertation sections 5.3 to 5.5).
//!
//! A [`StateContext`] holds *states* (ordered key → value maps) in *state groups*. A [`Transaction`] reads
//! one snapshot over all states and collects its writes in a volatile write set; [`Transaction::commit`]
//! writes them into the MVCC objects in place and makes them visible, over all its states at once, with the
//! final store of the group's `LastCTS`.
//!
//! MVCC in place is the default [`Protocol`]; a group may have another one: versions out of place, strict
//! two-phase locking, or backward validation.
//!
//! # Invariants
//! - Nothing uncommitted is ever visible, before or after a crash; what is rolled back was never written.
//! - A version slot that a registered snapshot can see is never rewritten, so readers take no latch.
//! - Commit timestamps are assigned from one counter, so commits are totally ordered over all groups, and
//!   within a group `LastCTS` only grows.
//! - A [serializable](Isolation::Serializable) transaction that wrote commits only if what it read is still
//!   so.
//! - A state with a [`ChangeLog`] has what each commit changed there, in the order of commits.
//! - A state that keeps a history can be read AS OF any point in time back to its horizon.
//! - What lies in a volatile pool ([`Tier::Dram`]) is as atomic as all else while the database runs, and gone
//!   afterwards.
//! - With [`Durability::Sync`](entresol_memory::Durability) no transaction sees a commit that is not durable.
//!
//! # What a crash leaves
//! Versions of unfinished commits, with timestamps that their group announced, or that were declared invalid,
//! before anything was changed. Opening declares the announced ones invalid: no row is touched, so recovery
//! does not depend on the number of rows.
//!
//! # What bounds memory
//! Transactions ([`ContextOptions::transactions_max`]), groups ([`GROUPS_MAX`]), states ([`STATES_MAX`]),
//! invalid ranges ([`INVALID_RANGES_MAX`]), a write set ([`WRITE_SET_BYTES_MAX`]), versions of one key
//! ([`VERSION_SLOTS_MAX`]) and old ones beside it ([`OLD_VERSION_BYTES_MAX`]), locks ([`KEY_LOCKS_MAX`] a
//! state and transaction), write sets kept for validation ([`WRITE_SET_KEYS_BYTES_MAX`]), dead keys waiting
//! for removal ([`DEAD_KEYS_MAX`] a state).
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

mod changes;
mod commit;
mod context;
#[cfg(feature = "testkit")]
pub mod crash_histories;
mod error;
mod history;
mod interleave;
mod isolation;
mod load;
mod locking;
mod mvcc;
mod points;
mod protocol;
mod reclamation;
mod recovery;
mod timestamp;
mod transaction;
mod visibility;

pub use changes::{ChangeLog, LogPosition, LoggedChange, NotedChanges};
pub use commit::Commit;
pub use context::check::{Owner, PROBLEMS_MAX, StateProblem, StateReport};
pub use context::directory::{GROUPS_MAX, INVALID_RANGES_MAX, STATES_MAX};
pub use context::placement::{StateOptions, Tier, TierChoice};
pub use context::state::State;
pub use context::{ContextStats, StateContext};
pub use error::{Error, Result};
pub use history::{HistoryBounds, PRUNE_ROUNDS};
pub use isolation::{Isolation, Retry};
pub use load::LOADED_STATES_MAX;
pub use locking::locks::KEY_LOCKS_MAX;
pub use locking::validation_sets::WRITE_SET_KEYS_BYTES_MAX;
pub use locking::waits::BlockingExecutor;
pub use mvcc::object::{VALUE_BYTES_MAX, VERSION_SLOTS_MAX};
#[cfg(feature = "mutants")]
pub use points::POINTS;
pub use protocol::{CLOCK_JUMP_MAX, ContextOptions, OLD_VERSION_BYTES_MAX, Protocol, VERSION_SLOTS_MIN};
pub use reclamation::dead_keys::{DEAD_KEYS_MAX, QUEUED_KEYS_MAX};
pub use reclamation::reclaimer::{RETURN_AFTER, Reclaimer};
pub use reclamation::vacuum::VacuumStats;
pub use reclamation::{ReclaimingPaused, SnapshotHolder, StateReclamation};
pub use recovery::RecoveryReport;
pub use recovery::opening::OpeningProgress;
pub use timestamp::{AtomicTimestamp, GroupId, INFINITY, StateId, Timestamp};
pub use transaction::cancellation::{Cancellation, Interrupt};
pub use transaction::detached::DetachedWrites;
pub use transaction::maintenance::BeforeCommit;
pub use transaction::reads::READS_MAX;
pub use transaction::scan::{Direction, KeyRange};
pub use transaction::write_set::{Mark, WRITE_SET_BYTES_MAX};
pub use transaction::{PlacedValue, SnapshotMark, Transaction, Vote};
pub use visibility::active::TRANSACTIONS_MAX;
