//! One memory budget of a process or of a database, shared among named consumers.
//!
//! A consumer reserves before it allocates and releases when it frees ([`MemoryReservation`]). There are two
//! kinds:
//!
//! - *firm* memory is held until its owner frees it. A reservation that does not fit is a [`MemoryLimit`]
//!   error, which lists the largest consumers;
//! - *elastic* memory ([`MemoryConsumer::is_elastic`]: pages of the pool) is observed, not reserved. It has
//!   what firm consumers leave, but at least a floor ([`MemoryBudget::elastic_floor`]), and shrinks when they
//!   need more: an owner of such memory registers a [`Shrink`] and follows [`MemoryBudget::elastic_target`].
//!   What the process has beside its consumers is observed, too ([`MemoryBudget::observe_process`]).
//!
//! The memory of one owner is bounded by a part of a budget ([`MemoryBudget::part`]).
//!
//! Invariants:
//! - the firm total never exceeds `max - floor`, except by reservations of
//!   [`MemoryBudget::reserve_unchecked`];
//! - the firm total is the sum of the firm consumers whenever no call is in flight.
//!
//! Cost: a reservation is two atomic additions, and two more in a part. A lock is taken only when memory is short.

mod machine;
mod part;
mod reservation;
mod size;

pub use machine::machine_memory_bytes;
pub use reservation::MemoryReservation;
pub use size::{MemorySize, ParseMemorySizeError};

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use part::BudgetPart;
use size::Bytes;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Smallest budget: journal buffers, a checkpoint's copy, and pages to work on.
pub const MEMORY_MAX_MIN: u64 = 64 << 20;

/// Minimum share of elastic memory in a budget, as a divisor.
const ELASTIC_SHARE: u64 = 8;
/// Maximum share of the process's other memory in a budget, as a divisor: an application's own heap must not
/// take all of the database's memory.
const PROCESS_SHARE: u64 = 4;
/// Memory that the program takes itself, most of it code: more than its share of a small budget, of which it is given
/// half at most.
const PROGRAM_BYTES: u64 = 64 << 20;
/// Least time between two returns of the heap's spare memory: one visits all of the heap's free pieces.
const TRIM_PAUSE: Duration = Duration::from_millis(200);

/// Consumer of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MemoryConsumer {
    /// Pages of the pool in DRAM.
    PoolPages,
    /// Buffers of the journal and of its checkpoints.
    JournalBuffers,
    /// Maps of the pages of pools: dirty marks, checksums, page replacement.
    PoolMaps,
    /// States without a durable copy: pools of the volatile domain.
    VolatileStates,
    /// Inner nodes and other search structures in DRAM.
    InnerNodes,
    /// Hot entries of indexes.
    HotEntries,
    /// Changes of transactions that have not committed.
    WriteSets,
    /// Undo data of savepoints.
    Undo,
    /// State of continuous queries: windows, joins, queues.
    StreamState,
    /// Running statements: sorts, joins, aggregates, results.
    Queries,
    /// Plans, query texts, catalog snapshots.
    Caches,
    /// Pages of columns in DRAM.
    ColumnPages,
    /// Buffers and sessions of connections.
    Connections,
    /// Memory of the process that no consumer reserves: code, stacks, the heap's spare memory, the
    /// application.
    Process,
}

impl MemoryConsumer {
    /// All consumers, in the order of reports.
    pub const ALL: [MemoryConsumer; 14] = [
        MemoryConsumer::PoolPages,
        MemoryConsumer::JournalBuffers,
        MemoryConsumer::PoolMaps,
        MemoryConsumer::VolatileStates,
        MemoryConsumer::InnerNodes,
        MemoryConsumer::HotEntries,
        MemoryConsumer::WriteSets,
        MemoryConsumer::Undo,
        MemoryConsumer::StreamState,
        MemoryConsumer::Queries,
        MemoryConsumer::Caches,
        MemoryConsumer::ColumnPages,
        MemoryConsumer::Connections,
        MemoryConsumer::Process,
    ];

    /// Name in reports and errors.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryConsumer::PoolPages => "pool pages",
            MemoryConsumer::JournalBuffers => "journal buffers",
            MemoryConsumer::PoolMaps => "pool maps",
            MemoryConsumer::VolatileStates => "volatile states",
            MemoryConsumer::InnerNodes => "inner nodes",
            MemoryConsumer::HotEntries => "hot entries",
            MemoryConsumer::WriteSets => "write sets",
            MemoryConsumer::Undo => "undo",
            MemoryConsumer::StreamState => "stream state",
            MemoryConsumer::Queries => "queries",
            MemoryConsumer::Caches => "caches",
            MemoryConsumer::ColumnPages => "column pages",
            MemoryConsumer::Connections => "connections",
            MemoryConsumer::Process => "process",
        }
    }

    /// Returns true if it shrinks when others need memory.
    pub const fn is_elastic(self) -> bool {
        matches!(self, MemoryConsumer::PoolPages)
    }
}

impl fmt::Display for MemoryConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Owner of elastic memory.
pub trait Shrink: Send + Sync {
    /// Requests that the owner shrink to its target soon. Must not block.
    fn shrink(&self);
}

#[derive(Default)]
struct Account {
    used: AtomicU64,
    peak: AtomicU64,
}

impl Account {
    fn add(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.note_peak(used);
    }

    fn note_peak(&self, used: u64) {
        // Most of the time a load.
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
    }
}

/// Memory budget; see the [module](self). Shared by all consumers.
pub struct MemoryBudget {
    max: AtomicU64,
    firm: CachePadded<AtomicU64>,
    accounts: [CachePadded<Account>; MemoryConsumer::ALL.len()],
    shrinks: Mutex<Vec<Weak<dyn Shrink>>>,
    /// Number of callers that wait in [`MemoryBudget::reserve_within`]; releases wake them.
    waiting: AtomicU64,
    wait_lock: Mutex<()>,
    released: Condvar,
    /// Time of the last return of the heap's spare memory.
    trimmed: Mutex<Option<Instant>>,
    /// Bound of the part that it is, if it is one.
    part: Option<BudgetPart>,
}

/// Memory use of a consumer in a [`MemoryUsage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerUsage {
    /// The consumer.
    pub consumer: MemoryConsumer,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Peak of the bytes in use.
    pub peak_bytes: u64,
}

/// Memory in use. Consumers are read one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Bytes of the budget.
    pub max_bytes: u64,
    /// The consumers, in the order of [`MemoryConsumer::ALL`].
    pub consumers: Vec<ConsumerUsage>,
}

impl MemoryUsage {
    /// Sum over the consumers.
    pub fn used_bytes(&self) -> u64 {
        self.consumers.iter().map(|line| line.used_bytes).sum()
    }
}

/// Error of a reservation that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Consumer that made the reservation.
    pub consumer: MemoryConsumer,
    /// Bytes requested.
    pub wanted_bytes: u64,
    /// Bytes available.
    pub free_bytes: u64,
    /// Memory in use at that time.
    pub usage: MemoryUsage,
    /// Name of the bound, if it is that of a part of the budget ([`MemoryBudget::part`]).
    pub part: Option<String>,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = self.part.as_deref().unwrap_or("memory_max");
        write!(
            f,
            "out of memory: {} need {} more, but only {} of {bound} = {} are available (in use: ",
            self.consumer,
            Bytes(self.wanted_bytes),
            Bytes(self.free_bytes),
            Bytes(self.usage.max_bytes),
        )?;
        let mut lines: Vec<_> = self.usage.consumers.iter().filter(|line| line.used_bytes > 0).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.used_bytes));
        for (at, line) in lines.iter().take(4).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{} {}", line.consumer, Bytes(line.used_bytes))?;
        }
        f.write_str(match &self.part {
            Some(_) => "); raise that",
            None => "); run fewer statements at once, or raise memory_max",
        })
    }
}

impl std::error::Error for MemoryLimit {}

/// Error of a budget that is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBudget {
    /// Below the minimum of a database.
    #[error("memory_max is {}; it must be at least {}", Bytes(*.0), Bytes(MEMORY_MAX_MIN))]
    TooSmall(u64),
    /// Percentage out of range.
    #[error("memory_max is {0} percent of the machine's memory; it must be above 0 and at most 100")]
    NoShare(u8),
}

impl MemoryBudget {
    /// Budget of `max_bytes`.
    pub fn new(max_bytes: u64) -> Result<Arc<MemoryBudget>, InvalidBudget> {
        if max_bytes < MEMORY_MAX_MIN {
            return Err(InvalidBudget::TooSmall(max_bytes));
        }
        Ok(Arc::new(MemoryBudget::of(max_bytes)))
    }

    /// Budget of a size that may depend on this machine.
    pub fn of_size(size: MemorySize) -> Result<Arc<MemoryBudget>, InvalidBudget> {
        MemoryBudget::new(size.bytes_of(machine_memory_bytes())?)
    }

    /// Budget below the minimum, for tests of exhausted memory.
    #[doc(hidden)]
    pub fn tiny(max_bytes: u64) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget::of(max_bytes))
    }

    fn of(max_bytes: u64) -> MemoryBudget {
        MemoryBudget {
            max: AtomicU64::new(max_bytes),
            firm: CachePadded::default(),
            accounts: Default::default(),
            shrinks: Mutex::default(),
            waiting: AtomicU64::new(0),
            wait_lock: Mutex::new(()),
            released: Condvar::new(),
            trimmed: Mutex::new(None),
            part: None,
        }
    }

    /// Bytes of the budget.
    pub fn max_bytes(&self) -> u64 {
        self.max.load(Ordering::Acquire)
    }

    /// Changes the budget. Reservations beyond a smaller one remain until they are released.
    pub fn set_max_bytes(&self, max_bytes: u64) -> Result<(), InvalidBudget> {
        if max_bytes < MEMORY_MAX_MIN {
            return Err(InvalidBudget::TooSmall(max_bytes));
        }
        self.max.store(max_bytes, Ordering::Release);
        self.ask_to_shrink();
        self.wake_waiting();
        Ok(())
    }

    /// Minimum of elastic memory, whatever firm consumers reserve.
    pub fn elastic_floor(&self) -> u64 {
        if self.part.is_some() { 0 } else { self.max_bytes() / ELASTIC_SHARE }
    }

    /// Target of elastic memory now.
    pub fn elastic_target(&self) -> u64 {
        let process = self.account(MemoryConsumer::Process).used.load(Ordering::Acquire);
        let others = self.firm.load(Ordering::Acquire) + process;
        self.max_bytes().saturating_sub(others).max(self.elastic_floor())
    }

    /// Part of [`MemoryBudget::elastic_target`] for an owner of `has_bytes`: what the others leave, or an
    /// equal share.
    pub fn elastic_target_of(&self, has_bytes: u64) -> u64 {
        let target = self.elastic_target();
        let all = self.account(MemoryConsumer::PoolPages).used.load(Ordering::Acquire);
        let owners = self.shrinks.lock().iter().filter(|owner| owner.strong_count() > 0).count() as u64;
        target.saturating_sub(all.saturating_sub(has_bytes)).max(target / owners.max(1))
    }

    /// Bytes available to firm consumers.
    pub fn free_bytes(&self) -> u64 {
        let firm = self.firm.load(Ordering::Acquire);
        let own = (self.max_bytes() - self.elastic_floor()).saturating_sub(firm);
        self.budget().map_or(own, |budget| own.min(budget.free_bytes()))
    }

    /// Reserves memory; the error lists the largest consumers.
    pub fn try_reserve(
        self: &Arc<Self>,
        consumer: MemoryConsumer,
        bytes: u64,
    ) -> Result<MemoryReservation, MemoryLimit> {
        let mut reservation = self.empty(consumer);
        reservation.try_grow(bytes)?;
        Ok(reservation)
    }

    /// As [`MemoryBudget::try_reserve`], but waits up to `wait` for others to release memory.
    pub fn reserve_within(
        self: &Arc<Self>,
        consumer: MemoryConsumer,
        bytes: u64,
        wait: Duration,
    ) -> Result<MemoryReservation, MemoryLimit> {
        let mut reservation = self.empty(consumer);
        reservation.grow_within(bytes, wait)?;
        Ok(reservation)
    }

    /// Reserves memory beyond the budget if need be: for memory that is in use already or that must be had.
    pub fn reserve_unchecked(self: &Arc<Self>, consumer: MemoryConsumer, bytes: u64) -> MemoryReservation {
        let mut reservation = self.empty(consumer);
        reservation.grow_unchecked(bytes);
        reservation
    }

    /// Empty reservation, which can grow.
    pub fn empty(self: &Arc<Self>, consumer: MemoryConsumer) -> MemoryReservation {
        MemoryReservation::empty(self.clone(), consumer)
    }

    /// Reports the elastic memory of an owner: before and now.
    pub fn observe(&self, consumer: MemoryConsumer, before_bytes: u64, now_bytes: u64) {
        debug_assert!(consumer.is_elastic(), "{consumer} are reserved, not observed");
        let account = self.account(consumer);
        if now_bytes >= before_bytes {
            account.add(now_bytes - before_bytes);
        } else {
            account.used.fetch_sub(before_bytes - now_bytes, Ordering::AcqRel);
        }
    }

    /// Reports the resident memory of the process. What no consumer explains is counted as
    /// [`MemoryConsumer::Process`], up to a quarter of the budget, or half of a small one; elastic memory makes room for
    /// it. Beyond the budget the heap returns to the system what it keeps spare.
    pub fn observe_process(&self, resident_bytes: u64) {
        let max = self.max_bytes();
        if resident_bytes > max {
            self.trim_heap();
        }
        let explained = self.firm.load(Ordering::Acquire)
            + self.account(MemoryConsumer::PoolPages).used.load(Ordering::Acquire);
        let most = (max / PROCESS_SHARE).max(PROGRAM_BYTES.min(max / 2));
        let bytes = resident_bytes.saturating_sub(explained).min(most);
        let account = self.account(MemoryConsumer::Process);
        account.used.store(bytes, Ordering::Release);
        account.note_peak(bytes);
    }

    /// Returns the heap's spare memory to the system, unless that was done just now.
    fn trim_heap(&self) {
        let mut trimmed = self.trimmed.lock();
        if trimmed.is_none_or(|last| last.elapsed() >= TRIM_PAUSE) {
            *trimmed = Some(Instant::now());
            machine::return_spare_heap();
        }
    }

    /// Registers an owner of elastic memory.
    pub fn register(&self, owner: Weak<dyn Shrink>) {
        let mut owners = self.shrinks.lock();
        owners.retain(|owner| owner.strong_count() > 0);
        owners.push(owner);
    }

    /// Memory in use now.
    pub fn usage(&self) -> MemoryUsage {
        let line = |consumer| {
            let account = self.account(consumer);
            ConsumerUsage {
                consumer,
                used_bytes: account.used.load(Ordering::Acquire),
                peak_bytes: account.peak.load(Ordering::Acquire),
            }
        };
        MemoryUsage { max_bytes: self.max_bytes(), consumers: MemoryConsumer::ALL.map(line).to_vec() }
    }

    fn account(&self, consumer: MemoryConsumer) -> &Account {
        &self.accounts[consumer as usize]
    }

    fn try_take(&self, consumer: MemoryConsumer, bytes: u64) -> bool {
        let room = self.max_bytes() - self.elastic_floor();
        // A request that never fits must not wrap the sum around, not even briefly.
        if bytes > room {
            return false;
        }
        let before = self.firm.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes > room {
            self.firm.fetch_sub(bytes, Ordering::AcqRel);
            return false;
        }
        self.account(consumer).add(bytes);
        self.shrink_if_short(before, bytes);
        true
    }

    fn take_own_unchecked(&self, consumer: MemoryConsumer, bytes: u64) {
        let before = self.firm.fetch_add(bytes, Ordering::AcqRel);
        self.account(consumer).add(bytes);
        self.shrink_if_short(before, bytes);
    }

    fn shrink_if_short(&self, firm_before: u64, bytes: u64) {
        let elastic = self.account(MemoryConsumer::PoolPages).used.load(Ordering::Relaxed);
        if elastic > 0 && firm_before + bytes + elastic > self.max_bytes() {
            self.ask_to_shrink();
        }
    }

    fn take_own_within(
        &self,
        consumer: MemoryConsumer,
        bytes: u64,
        wait: Duration,
    ) -> Result<(), MemoryLimit> {
        if self.try_take(consumer, bytes) {
            return Ok(());
        }
        let until = Instant::now() + wait;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut held = self.wait_lock.lock();
        let taken = loop {
            if self.try_take(consumer, bytes) {
                break true;
            }
            if self.released.wait_until(&mut held, until).timed_out() {
                break self.try_take(consumer, bytes);
            }
        };
        drop(held);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if taken { Ok(()) } else { Err(self.limit(consumer, bytes)) }
    }

    fn release_own(&self, consumer: MemoryConsumer, bytes: u64) {
        self.account(consumer).used.fetch_sub(bytes, Ordering::AcqRel);
        // In one order with the count of waiting callers: one of both sees the other.
        self.firm.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake_waiting();
        }
    }

    #[cold]
    fn wake_waiting(&self) {
        drop(self.wait_lock.lock());
        self.released.notify_all();
    }

    #[cold]
    fn ask_to_shrink(&self) {
        let owners: Vec<_> = self.shrinks.lock().iter().filter_map(Weak::upgrade).collect();
        owners.iter().for_each(|owner| owner.shrink());
    }

    #[cold]
    fn limit(&self, consumer: MemoryConsumer, wanted_bytes: u64) -> MemoryLimit {
        let part = self.part.as_ref().map(|part| part.name.clone());
        MemoryLimit { consumer, wanted_bytes, free_bytes: self.free_bytes(), usage: self.usage(), part }
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = self.usage();
        write!(f, "MemoryBudget({} of {})", Bytes(usage.used_bytes()), Bytes(usage.max_bytes))
    }
}

#[cfg(test)]
mod tests;
