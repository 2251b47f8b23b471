//! The lock table of strict two-phase locking (dissertation 5.8.1, competitor 1; Eswaran et al. 1976,
//! wait/die after Rosenkrantz et al. 1978).
//!
//! A lock is on a key or on an entire state, whose intention modes say that keys of it are locked. A scan
//! locks the state, so there are no phantoms; a key need not exist to be locked.
//!
//! # Waiting
//! A transaction is a *reader* until its first write, then a *writer*. Where a request conflicts with other
//! holders:
//! - a reader dies: it gets a restart error, at once, and also where a writer already waits;
//! - a writer waits for readers and for younger writers, and dies before older writers.
//!
//! Readers never wait and writers wait for younger ones only, so there are no cycles of waits. A reader that
//! becomes a writer while others wait for it makes those check again, within a millisecond. A transaction
//! restarted by [`StateContext::run`](crate::StateContext::run) keeps its age, so it becomes the oldest at
//! some time.
//!
//! Locks are held until the transaction has ended and what it committed is visible: *strict*. All of it is
//! volatile; a crash leaves nothing. Memory: [`KEY_LOCKS_MAX`] keys a state and transaction; beyond, the
//! state is locked.

use crate::locking::waits::Waits;
use crate::points::LOCK_IS_HELD;
use crate::{Error, Result, StateId};
use crossbeam_utils::CachePadded;
use entresol_memory::order::check;
use entresol_structures::KeyBytes;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of keys of one state that a transaction locks one by one.
pub const KEY_LOCKS_MAX: usize = 16_384;

const SHARDS: usize = 64;
/// Interval at which a writer checks whether the holders that it waits for have changed.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A set of lock modes.
type Modes = u8;

/// Mode of a lock. The value is a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// Keys of the state are locked shared.
    IntentShared = 1,
    /// Keys of the state are locked exclusively.
    IntentExclusive = 2,
    Shared = 4,
    Exclusive = 8,
}

impl Mode {
    fn bit(self) -> Modes {
        self as Modes
    }

    /// The modes of others that it does not go with.
    fn conflicts(self) -> Modes {
        match self {
            Mode::IntentShared => Mode::Exclusive.bit(),
            Mode::IntentExclusive => Mode::Shared.bit() | Mode::Exclusive.bit(),
            Mode::Shared => Mode::IntentExclusive.bit() | Mode::Exclusive.bit(),
            Mode::Exclusive => Modes::MAX,
        }
    }

    /// The modes that say as much for their holder.
    fn covered_by(self) -> Modes {
        match self {
            Mode::IntentShared => Modes::MAX,
            Mode::IntentExclusive => Mode::IntentExclusive.bit() | Mode::Exclusive.bit(),
            Mode::Shared => Mode::Shared.bit() | Mode::Exclusive.bit(),
            Mode::Exclusive => Mode::Exclusive.bit(),
        }
    }
}

/// A resource that can be locked: a key, or (None) the entire state.
type Resource = (StateId, Option<KeyBytes>);

struct Holder {
    owner: Arc<Owner>,
    modes: Modes,
}

#[derive(Default)]
struct Lock {
    holders: SmallVec<[Holder; 2]>,
    /// Writers that wait for it: new readers die.
    waiting: usize,
}

#[derive(Default)]
struct Shard {
    locks: Mutex<HashMap<Resource, Lock>>,
    released: Condvar,
}

/// Owner of locks: a transaction.
struct Owner {
    /// Start of its first attempt; the smaller the older.
    age: u64,
    writes: AtomicBool,
}

/// See the module.
pub(crate) struct LockTable {
    shards: Box<[CachePadded<Shard>]>,
    hasher: std::hash::RandomState,
    held: AtomicUsize,
    wait_max: Duration,
    waits: Arc<Waits>,
}

impl LockTable {
    pub(crate) fn new(wait_max: Duration, waits: Arc<Waits>) -> LockTable {
        LockTable {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            hasher: std::hash::RandomState::new(),
            held: AtomicUsize::new(0),
            wait_max,
            waits,
        }
    }

    /// Number of locks held now.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn shard(&self, resource: &Resource) -> &Shard {
        &self.shards[self.hasher.hash_one(resource) as usize % SHARDS]
    }

    /// Waits or dies as the module says. Returns the modes held then.
    fn acquire(&self, owner: &Arc<Owner>, resource: &Resource, mode: Mode) -> Result<Modes> {
        let shard = self.shard(resource);
        let mut locks = shard.locks.lock();
        let (mut waits, mut since) = (false, None);
        loop {
            let lock = match locks.entry(resource.clone()) {
                Entry::Occupied(lock) => lock.into_mut(),
                Entry::Vacant(place) => place.insert(Lock::default()),
            };
            let mine = lock.holders.iter().position(|holder| Arc::ptr_eq(&holder.owner, owner));
            let writes = owner.writes.load(Ordering::Acquire);
            let verdict = lock.judge(owner, mine, mode, writes);
            if verdict == Verdict::Grant {
                lock.waiting -= usize::from(waits);
                let Some(mine) = mine else {
                    self.held.fetch_add(1, Ordering::Relaxed);
                    lock.holders.push(Holder { owner: Arc::clone(owner), modes: mode.bit() });
                    return Ok(mode.bit());
                };
                lock.holders[mine].modes |= mode.bit();
                return Ok(lock.holders[mine].modes);
            }
            let began = *since.get_or_insert_with(Instant::now);
            if verdict == Verdict::Die || began.elapsed() >= self.wait_max {
                lock.waiting -= usize::from(waits);
                if lock.holders.is_empty() && lock.waiting == 0 {
                    locks.remove(resource);
                }
                let reason = match verdict {
                    Verdict::Die => "another transaction holds its lock",
                    _ => "lock wait timeout: another transaction holds its lock for too long",
                };
                let key = resource.1.clone().unwrap_or_default();
                return Err(Error::Restart { state: resource.0, key, reason });
            }
            lock.waiting += usize::from(!waits);
            waits = true;
            self.waits.run(|| shard.released.wait_for(&mut locks, LOOK_AGAIN));
        }
    }

    fn release(&self, owner: &Arc<Owner>, resource: &Resource) {
        let shard = self.shard(resource);
        let mut locks = shard.locks.lock();
        let Some(lock) = locks.get_mut(resource) else { return };
        lock.holders.retain(|holder| !Arc::ptr_eq(&holder.owner, owner));
        self.held.fetch_sub(1, Ordering::Relaxed);
        if lock.waiting > 0 {
            shard.released.notify_all();
        } else if lock.holders.is_empty() {
            locks.remove(resource);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Grant,
    Wait,
    Die,
}

impl Lock {
    fn judge(&self, owner: &Owner, mine: Option<usize>, mode: Mode, writes: bool) -> Verdict {
        let others = || {
            let conflicting = |holder: &&Holder| holder.modes & mode.conflicts() != 0;
            let not_mine = |(index, holder)| (Some(index) != mine).then_some(holder);
            self.holders.iter().enumerate().filter_map(not_mine).filter(conflicting)
        };
        if others().next().is_none() {
            let jumps_the_queue = !writes && mine.is_none() && self.waiting > 0 && mode != Mode::IntentShared;
            return if jumps_the_queue { Verdict::Die } else { Verdict::Grant };
        }
        let younger =
            |holder: &Holder| !holder.owner.writes.load(Ordering::Acquire) || owner.age < holder.owner.age;
        if writes && others().all(younger) { Verdict::Wait } else { Verdict::Die }
    }
}

#[derive(Default)]
struct HeldLocks {
    modes: HashMap<Resource, Modes>,
    /// Keys locked one by one, of each state.
    keys: HashMap<StateId, usize>,
    /// The transaction has ended: it gets no locks any more.
    closed: bool,
}

/// The locks of one transaction.
pub(crate) struct TransactionLocks {
    owner: Arc<Owner>,
    held: Mutex<HeldLocks>,
}

impl TransactionLocks {
    pub(crate) fn new(age: u64) -> TransactionLocks {
        let owner = Arc::new(Owner { age, writes: AtomicBool::new(false) });
        TransactionLocks { owner, held: Mutex::default() }
    }

    /// For reading a key.
    pub(crate) fn read_key(&self, table: &LockTable, state: StateId, key: &KeyBytes) -> Result<()> {
        self.lock_key(table, state, key, [Mode::IntentShared, Mode::Shared])
    }

    /// For reading any part of a state, missing keys included.
    pub(crate) fn read_state(&self, table: &LockTable, state: StateId) -> Result<()> {
        self.lock(table, &mut self.held.lock(), (state, None), Mode::Shared)
    }

    /// For writing a key; makes the transaction a writer.
    pub(crate) fn write_key(&self, table: &LockTable, state: StateId, key: &KeyBytes) -> Result<()> {
        self.owner.writes.store(true, Ordering::Release);
        self.lock_key(table, state, key, [Mode::IntentExclusive, Mode::Exclusive])
    }

    fn lock_key(
        &self,
        table: &LockTable,
        state: StateId,
        key: &KeyBytes,
        [intent, mode]: [Mode; 2],
    ) -> Result<()> {
        let mut held = self.held.lock();
        let of_state = held.modes.get(&(state, None)).copied().unwrap_or(0);
        if of_state & mode.covered_by() != 0 {
            return held.check_open();
        }
        if held.keys.get(&state).is_some_and(|&keys| keys >= KEY_LOCKS_MAX) {
            return self.lock(table, &mut held, (state, None), mode);
        }
        if of_state & intent.covered_by() == 0 {
            self.lock(table, &mut held, (state, None), intent)?;
        }
        self.lock(table, &mut held, (state, Some(key.clone())), mode)
    }

    fn lock(&self, table: &LockTable, held: &mut HeldLocks, resource: Resource, mode: Mode) -> Result<()> {
        held.check_open()?;
        let is_held = held.modes.get(&resource).is_some_and(|modes| modes & mode.covered_by() != 0);
        if check(is_held, LOCK_IS_HELD) {
            return Ok(());
        }
        let modes = table.acquire(&self.owner, &resource, mode)?;
        let state = resource.0;
        let is_key = resource.1.is_some();
        if held.modes.insert(resource, modes).is_none() && is_key {
            *held.keys.entry(state).or_default() += 1;
        }
        Ok(())
    }

    /// Releases everything, for good.
    pub(crate) fn release(&self, table: &LockTable) {
        let mut held = self.held.lock();
        held.closed = true;
        for resource in std::mem::take(&mut held.modes).into_keys() {
            table.release(&self.owner, &resource);
        }
        held.keys.clear();
    }
}

impl HeldLocks {
    fn check_open(&self) -> Result<()> {
        if self.closed { Err(Error::Finished) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    const STATE: StateId = StateId(3);

    fn key(number: u8) -> KeyBytes {
        KeyBytes::from_slice(&[number])
    }

    fn table() -> LockTable {
        LockTable::new(Duration::from_millis(30), Arc::default())
    }

    fn dies(result: Result<()>) -> bool {
        matches!(result, Err(error) if error.is_retryable())
    }

    #[test]
    fn readers_share_and_die_before_writers() {
        let table = table();
        let [first, second, writer] = [1, 2, 3].map(TransactionLocks::new);
        first.read_key(&table, STATE, &key(1)).unwrap();
        second.read_key(&table, STATE, &key(1)).unwrap();
        writer.write_key(&table, STATE, &key(2)).unwrap();
        assert!(dies(second.read_key(&table, STATE, &key(2))), "not even an older reader waits");
        assert!(dies(second.read_state(&table, STATE)), "a scan meets the writer of any key");
        writer.release(&table);
        second.read_key(&table, STATE, &key(2)).unwrap();
        [&first, &second].iter().for_each(|locks| locks.release(&table));
        assert_eq!(table.held(), 0);
        assert!(table.shards.iter().all(|shard| shard.locks.lock().is_empty()), "nothing stays in the table");
        assert!(matches!(first.read_key(&table, STATE, &key(1)), Err(Error::Finished)));
    }

    #[test]
    fn a_writer_waits_for_a_reader_and_none_gets_ahead_of_it() {
        let table = LockTable::new(Duration::from_secs(20), Arc::default());
        let [reader, writer, late] = [1, 2, 3].map(TransactionLocks::new);
        reader.read_key(&table, STATE, &key(1)).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_key(&table, STATE, &key(1)).unwrap();
                sender.send(()).unwrap();
                writer.release(&table);
            });
            while !dies(late.read_key(&table, STATE, &key(1))) {
                late.held
                    .lock()
                    .modes
                    .drain()
                    .for_each(|(resource, _)| table.release(&late.owner, &resource));
            }
            assert!(receiver.try_recv().is_err(), "the reader still has it");
            reader.release(&table);
            receiver.recv().unwrap();
        });
    }

    #[test]
    fn the_younger_writer_dies_also_if_the_older_one_only_read_at_first() {
        let table = LockTable::new(Duration::from_secs(20), Arc::default());
        let [old, young] = [1, 2].map(TransactionLocks::new);
        old.read_key(&table, STATE, &key(1)).unwrap();
        young.write_key(&table, STATE, &key(2)).unwrap();
        thread::scope(|scope| {
            // The young one waits for a reader, the reader becomes a writer and wants what the young one has.
            let waits = scope.spawn(|| {
                let dead = dies(young.write_key(&table, STATE, &key(1)));
                young.release(&table);
                dead
            });
            old.write_key(&table, STATE, &key(2)).unwrap();
            assert!(waits.join().unwrap());
        });
        assert!(dies(TransactionLocks::new(9).write_key(&table, STATE, &key(1))));
    }

    #[test]
    fn a_lock_wait_that_is_too_long_restarts() {
        let table = table();
        let [reader, writer] = [1, 2].map(TransactionLocks::new);
        reader.read_key(&table, STATE, &key(1)).unwrap();
        let error = writer.write_key(&table, STATE, &key(1)).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
    }

    #[test]
    fn many_keys_become_the_state() {
        let table = table();
        let (locks, writer) = (TransactionLocks::new(1), TransactionLocks::new(2));
        let wide = |number: u32| KeyBytes::from_slice(&number.to_be_bytes());
        for number in 0..2 * KEY_LOCKS_MAX as u32 {
            locks.read_key(&table, STATE, &wide(number)).unwrap();
        }
        assert!(table.held() <= KEY_LOCKS_MAX + 1);
        assert!(writer.write_key(&table, STATE, &wide(u32::MAX)).is_err(), "all of the state is locked");
        locks.release(&table);
        writer.write_key(&table, STATE, &wide(u32::MAX)).unwrap();
    }
}
