//! The state context: states, groups, active transactions (dissertation 5.3.1).
//!
//! # Locks
//! Readers take none. In this order, each only while the ones before are held or not needed: `ddl` (creating
//! and dropping) → groups, by number → stripes of keys → the commits in flight of groups, by number →
//! `ranges` → the maps of groups and states (held for a look-up) → a state's dead keys. `dropping` is taken
//! by itself.
//!
//! # What a crash leaves
//! Creating and dropping are one publication each: the state is there with its index, or it is not. A state
//! marked as dropping is destroyed in steps; the next open goes on where the last run stopped. A volatile
//! state ([`crate::context::placement`]) is there and empty.
//!
//! Memory: the directories' maxima ([`GROUPS_MAX`](crate::GROUPS_MAX), [`STATES_MAX`](crate::STATES_MAX)) and
//! what each group remembers.

pub(crate) mod check;
pub(crate) mod directory;
pub(crate) mod group;
pub(crate) mod live_keys;
pub(crate) mod placement;
pub(crate) mod rewritten_keys;
pub(crate) mod state;

use crate::changes::{ChangeLog, ChangeNotes};
use crate::commit::DeclaredCommits;
use crate::context::directory::{Directory, INVALID_RANGES_MAX};
use crate::context::group::Group;
use crate::context::placement::{DiskPool, Pools, TierChoice};
use crate::context::state::State;
use crate::history::as_of::{AsOf, AsOfReaders};
use crate::history::trusted_clock::TrustedClock;
use crate::isolation::{Isolation, Retry};
use crate::load::RUN_BYTES_MAX;
use crate::locking::locks::LockTable;
use crate::locking::stripes::Stripes;
use crate::locking::validation_sets::ValidationSets;
use crate::locking::waits::{BlockingExecutor, Waits};
use crate::mvcc::old_versions::OldVersions;
use crate::points::FAILURE_SPARES_DECLARED;
use crate::protocol::{ContextOptions, Protocol};
use crate::reclamation::dead_keys::ReclaimQueue;
use crate::reclamation::vacuum::DroppedState;
use crate::recovery::opened_states::{OpenedStates, open_states};
use crate::recovery::opening::{OpeningProgress, OpeningThreads};
use crate::recovery::{self, RecoveryReport};
use crate::transaction::maintenance::Maintenance;
use crate::transaction::{SnapshotMark, Transaction};
use crate::visibility::active::ActiveTransactions;
use crate::visibility::snapshot::{Class, Snapshot};
use crate::{Error, GroupId, Result, StateId, Tier, Timestamp};
use crossbeam_utils::CachePadded;
use entresol_memory::order::value;
use entresol_memory::{DomainKind, Durability, Pool};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// All transactional states of a pool; see the [crate](crate).
// Aligned: every transaction changes the count of references to it.
#[repr(align(128))]
pub struct StateContext {
    /// First, so that its threads end before what they read is dropped.
    opening: OpeningThreads,
    /// The main one.
    pub(crate) pool: Arc<Pool>,
    pub(crate) pools: Pools,
    pub(crate) directory: Directory,
    pub(crate) active: ActiveTransactions,
    pub(crate) clock: TrustedClock,
    pub(crate) old_versions: Arc<OldVersions>,
    pub(crate) locks: LockTable,
    pub(crate) validation_sets: ValidationSets,
    waits: Arc<Waits>,
    options: ContextOptions,
    transaction_ids: CachePadded<AtomicU64>,
    stripes: Arc<Stripes>,
    groups: RwLock<BTreeMap<GroupId, Arc<Group>>>,
    states: RwLock<BTreeMap<StateId, Arc<State>>>,
    /// States that could not be opened, with the reason.
    damaged: BTreeMap<StateId, String>,
    pub(crate) dropping: Mutex<Vec<DroppedState>>,
    pub(crate) ddl: Mutex<()>,
    /// The states with dead keys.
    pub(crate) reclaim: Arc<ReclaimQueue>,
    /// Held while the thread that reclaims space works.
    pub(crate) reclaiming: Mutex<()>,
    /// The snapshot timestamps of open AS OF transactions.
    pub(crate) as_of_readers: Mutex<AsOfReaders>,
    /// States that keep a version history.
    pub(crate) with_history: Mutex<Vec<Arc<State>>>,
    /// Set once there was one: commits read the clock.
    pub(crate) keeps_history: AtomicBool,
    /// Clock time at which the next of them is to be pruned, in nanoseconds.
    pub(crate) prune_due_ns: AtomicU64,
    /// Change logs that are in use.
    pub(crate) change_logs: Mutex<Vec<Weak<ChangeLog>>>,
    pub(crate) change_notes: ChangeNotes,
    pub(crate) maintenance: Maintenance,
    /// Set while a round of pruning takes so long that commits have to help.
    pub(crate) prune_is_late: AtomicBool,
    /// Small commits are one publication.
    at_once: AtomicBool,
    /// Maximum number of bytes that a bulk load collects before it sorts them.
    pub(crate) load_run_bytes_max: AtomicUsize,
    /// Held while the list of invalid ranges changes.
    pub(crate) ranges: Mutex<DeclaredCommits>,
    /// The next commit scrubs first.
    ranges_crowded: AtomicBool,
    report: RecoveryReport,
}

impl StateContext {
    /// Opens the context of the pool, recovering what the last run left, or creates one. Two contexts on one
    /// pool at the same time are not allowed.
    pub fn open_or_create(pool: Arc<Pool>) -> Result<Arc<StateContext>> {
        StateContext::open_or_create_with(pool, ContextOptions::default())
    }

    /// The same with options.
    pub fn open_or_create_with(pool: Arc<Pool>, options: ContextOptions) -> Result<Arc<StateContext>> {
        StateContext::open_or_create_beside(pool, None, options)
    }

    /// The same with a pool on disk, which belongs to this main pool alone, for states that are placed there.
    /// The main one is persistent memory, the other has a journal. Commits over states on disk wait for it,
    /// whatever durability they ask for. An error if states lie there and the pool is not given.
    pub fn open_or_create_beside(
        pool: Arc<Pool>,
        disk: Option<Arc<Pool>>,
        options: ContextOptions,
    ) -> Result<Arc<StateContext>> {
        options.check()?;
        let started_ns = pool.env().now_ns();
        let directory = match Directory::open(&pool)? {
            Some(directory) => directory,
            None => Directory::create(&pool, options.protocol)?,
        };
        let stripes = Arc::new(Stripes::new());
        let pools = Pools::new(Arc::clone(&pool), disk)?;
        let recovered = recovery::recover_groups(&directory, &stripes, started_ns)?;
        let groups: BTreeMap<_, _> =
            recovered.groups.iter().map(|group| (group.id, Arc::clone(group))).collect();
        let old_versions = Arc::new(OldVersions::new(options.old_version_bytes_max));
        let reclaim = Arc::new(ReclaimQueue::default());
        let OpenedStates { states, damaged, dropping, with_history, next } =
            open_states(&pools, &directory, &groups, &old_versions, &reclaim)?;
        let next = recovered.next.max(next);
        for state in &with_history {
            let Some(history) = state.history() else { continue };
            history.begin_with_removed_up_to(next);
            if state.is_volatile() {
                // Nothing is known of earlier versions.
                history.begin_at(next.previous());
            }
        }
        let mut objects_scrubbed = 0;
        for group in &recovered.to_scrub {
            let group = &groups[group];
            objects_scrubbed +=
                recovery::scrub_group(&pool, pools.disk(), &directory, group, states.values())?;
            group.invalid.reset();
        }
        let report = RecoveryReport {
            clean: pool.was_clean() && recovered.commits_undone == 0,
            commits_undone: recovered.commits_undone,
            invalid_ranges: directory.invalid_ranges()?.len(),
            groups: groups.len(),
            states: states.len(),
            states_emptied: states.values().filter(|state| state.is_volatile()).count(),
            states_dropping: dropping.len(),
            index_parts_left: states.values().map(|state| state.index.segments_left()).sum(),
            objects_scrubbed,
            duration_us: pool.env().now_ns().saturating_sub(started_ns) / 1000,
        };
        tracing::debug!(?report, "state context opened");
        let waits = Arc::new(Waits::default());
        Ok(Arc::new(StateContext {
            clock: TrustedClock::new(pool.env(), next.previous(), options.clock_jump_max),
            opening: OpeningThreads::start(&pool, states.values()),
            options: ContextOptions { protocol: directory.protocol, ..options },
            directory,
            old_versions,
            locks: LockTable::new(options.lock_wait_max, Arc::clone(&waits)),
            validation_sets: ValidationSets::new(pool.memory()),
            waits,
            active: ActiveTransactions::with(next, options.transactions_max),
            transaction_ids: CachePadded::new(AtomicU64::new(recovered.next.stored())),
            stripes,
            groups: RwLock::new(groups),
            states: RwLock::new(states),
            damaged,
            dropping: Mutex::new(dropping),
            ddl: Mutex::new(()),
            reclaim,
            reclaiming: Mutex::new(()),
            as_of_readers: Mutex::default(),
            keeps_history: AtomicBool::new(!with_history.is_empty()),
            with_history: Mutex::new(with_history),
            change_logs: Mutex::default(),
            change_notes: ChangeNotes::default(),
            maintenance: Maintenance::default(),
            prune_due_ns: AtomicU64::new(0),
            prune_is_late: AtomicBool::new(false),
            at_once: AtomicBool::new(pool.domain() == DomainKind::Journal),
            load_run_bytes_max: AtomicUsize::new(RUN_BYTES_MAX),
            ranges: Mutex::default(),
            ranges_crowded: AtomicBool::new(false),
            report,
            pools,
            pool,
        }))
    }

    /// Sets the executor for blocking waits, from now on: for locks of others, for a slot among the active
    /// transactions. In an asynchronous runtime such waits would hold a thread that the lock holder needs.
    /// Only the first call counts.
    pub fn set_blocking_executor(&self, run: BlockingExecutor) {
        self.waits.run_with(run);
    }

    /// Runs a wait that may be long with the blocking executor.
    pub fn wait<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.waits.run(wait)
    }

    /// Registers a transaction at the newest snapshot. Waits a bounded time for a free slot.
    pub(crate) fn claim(&self) -> Result<(usize, Snapshot)> {
        match self.active.try_claim() {
            Some(claimed) => Ok(claimed),
            None => self.waits.run(|| self.active.claim()),
        }
    }

    /// The main pool: all that survives a restart lies in it.
    #[inline]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The pool of volatile states, if there are or were any.
    pub fn volatile_pool(&self) -> Option<&Arc<Pool>> {
        self.pools.volatile()
    }

    /// The pool on disk beside the main one, if it was opened with one.
    pub fn disk_pool(&self) -> Option<&Arc<Pool>> {
        self.pools.disk().map(DiskPool::pool)
    }

    /// The tier that a choice means here; an error if the database has no such tier.
    pub fn tier(&self, choice: TierChoice) -> Result<Tier> {
        Ok(self.pools.tier(self.pools.choose(choice)?))
    }

    /// Findings and actions of opening.
    pub fn recovery(&self) -> RecoveryReport {
        self.report
    }

    /// Progress of opening the indexes that were too large to be opened at once. They answer meanwhile.
    pub fn opening(&self) -> OpeningProgress {
        self.opening.progress()
    }

    /// The options it was opened with; the protocol is the one that the database was created with.
    pub fn options(&self) -> &ContextOptions {
        &self.options
    }

    /// Statistics of its protocols' data in DRAM. Cost: takes locks; not for every commit.
    pub fn stats(&self) -> ContextStats {
        ContextStats {
            protocol: self.options.protocol,
            protocols: self.groups.read().values().map(|group| (group.id, group.protocol)).collect(),
            old_versions: self.old_versions.count(),
            old_version_bytes: self.old_versions.bytes(),
            locks: self.locks.held(),
            validation_sets: self.validation_sets.count(),
        }
    }

    /// Creates a state group with the protocol of the database. It is permanent: groups are not dropped.
    pub fn create_group(&self) -> Result<GroupId> {
        self.create_group_with(self.options.protocol)
    }

    /// The same with a protocol of its own.
    pub fn create_group_with(&self, protocol: Protocol) -> Result<GroupId> {
        let _ddl = self.ddl.lock();
        let id = self.directory.create_group(protocol)?;
        self.groups.write().insert(id, Arc::new(Group::new(id, protocol, &self.stripes)));
        Ok(id)
    }

    pub(crate) fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.groups.read().get(&id).cloned()
    }

    /// Concurrency control protocol of a group; None: there is no such group.
    pub fn protocol(&self, group: GroupId) -> Option<Protocol> {
        self.groups.read().get(&group).map(|group| group.protocol)
    }

    /// The groups that exist.
    pub fn groups(&self) -> Vec<GroupId> {
        self.groups.read().keys().copied().collect()
    }

    /// Adds a state that was created.
    pub(crate) fn adopt(&self, state: &Arc<State>) {
        self.states.write().insert(state.id, Arc::clone(state));
    }

    /// The state with this number.
    pub fn state(&self, id: StateId) -> Option<Arc<State>> {
        self.states.read().get(&id).cloned()
    }

    /// The states that could not be opened because they are damaged, with the reason. They are left as they
    /// are; all others can be used.
    pub fn damaged_states(&self) -> &BTreeMap<StateId, String> {
        &self.damaged
    }

    /// All states, by number.
    pub fn states(&self) -> Vec<Arc<State>> {
        self.states.read().values().cloned().collect()
    }

    /// Drops a state. Transactions that began before may go on reading it; its space is freed, in steps, once
    /// they have ended. Like a creation it survives a crash with the next commit that does.
    pub fn drop_state(&self, id: StateId) -> Result<()> {
        let _ddl = self.ddl.lock();
        let state = self.state(id).ok_or(Error::NoSuchState(id))?;
        let history = state.history();
        let (slot, _) = self.claim()?;
        let dropped_at = {
            let _pruning = history.as_ref().map(|history| history.hold_pruning());
            // No commit into the state is in flight, and none comes after.
            let _writer = state.group.hold();
            self.directory.set_dropping(id, history.as_ref().map(|history| history.id)).map(|()| {
                state.set_history(None);
                if !state.is_volatile() {
                    state.group.remove_durable_state();
                }
                let stamp = self.active.stamp(slot, Class::Slow);
                let dropped_at = stamp.cts();
                state.set_dropped(dropped_at);
                stamp.finish();
                dropped_at
            })
        };
        self.active.release(slot);
        let dropped_at = dropped_at?;
        self.states.write().remove(&id);
        self.dropping.lock().push(DroppedState::new(
            state.pool(),
            id,
            state.root,
            dropped_at,
            state.is_chained(),
        ));
        history.inspect(|history| self.forget_history(&state, history, dropped_at));
        self.wait_until_visible(dropped_at)
    }

    /// Refuses the older writers of a state: transactions that began before, and wrote it, fail with a conflict
    /// when they commit; no such commit is in flight when this returns. `at` is called with the timestamp
    /// from which on snapshots may write again, before any transaction can have such a snapshot. Nothing of
    /// it is persistent.
    pub fn refuse_older_writers(&self, id: StateId, at: impl FnOnce(Timestamp)) -> Result<Timestamp> {
        let _ddl = self.ddl.lock();
        let state = self.state(id).ok_or(Error::NoSuchState(id))?;
        let (slot, _) = self.claim()?;
        let from = {
            let _writer = state.group.hold();
            let stamp = self.active.stamp(slot, Class::Slow);
            let from = stamp.cts();
            state.set_writers_from(from);
            at(from);
            stamp.finish();
            from
        };
        self.active.release(slot);
        // Of all classes: transactions that begin from now on see all earlier writes.
        self.active.wait_until_all_visible(from)?;
        Ok(from)
    }

    /// Begins a transaction at the newest snapshot, with [`Isolation::Snapshot`].
    pub fn begin(self: &Arc<Self>) -> Result<Arc<Transaction>> {
        self.begin_at(Isolation::Snapshot)
    }

    /// Begins a transaction at the newest snapshot.
    pub fn begin_at(self: &Arc<Self>, isolation: Isolation) -> Result<Arc<Transaction>> {
        self.begin_aged(isolation, None)
    }

    /// The same AS OF a point in time.
    pub(crate) fn begin_past(self: &Arc<Self>, past: AsOf) -> Result<Arc<Transaction>> {
        self.begin_with(Isolation::Snapshot, None, Some(past))
    }

    /// The same; `age` is that of the attempt that it repeats, or the statement that it follows.
    pub(crate) fn begin_aged(
        self: &Arc<Self>,
        isolation: Isolation,
        age: Option<u64>,
    ) -> Result<Arc<Transaction>> {
        self.begin_with(isolation, age, None)
    }

    fn begin_with(
        self: &Arc<Self>,
        isolation: Isolation,
        age: Option<u64>,
        past: Option<AsOf>,
    ) -> Result<Arc<Transaction>> {
        let claimed = self.claim()?;
        let id = self.transaction_ids.fetch_add(1, Ordering::Relaxed);
        self.active.name(claimed.0, id);
        Ok(Transaction::new(self, claimed, id, isolation, age.unwrap_or(id), past))
    }

    /// Runs `work` in a transaction and commits it; a failure caused by other transactions is retried, in a
    /// new transaction. Any other error, and the last of [`Retry::attempts_max`] conflicts, is returned.
    pub fn run<R, E: From<Error>>(
        self: &Arc<Self>,
        isolation: Isolation,
        durability: Durability,
        retry: Retry,
        mut work: impl FnMut(&Arc<Transaction>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let mut age = None;
        for attempt in 1.. {
            let transaction = self.begin_aged(isolation, age)?;
            age.get_or_insert(transaction.id());
            let failed = match work(&transaction) {
                Ok(result) => match transaction.commit(durability) {
                    Ok(_) => return Ok(result),
                    Err(error) if error.is_retryable() => error.into(),
                    Err(error) => return Err(error.into()),
                },
                // Whatever the error became on its way, it is a consequence of this one.
                Err(error) if transaction.must_restart() => error,
                Err(error) => return Err(error),
            };
            if attempt >= retry.attempts_max {
                return Err(failed);
            }
            drop(transaction);
            std::thread::sleep(retry.pause(attempt, self.pool.env().random_u64()));
        }
        unreachable!("attempts are counted up to their maximum")
    }

    /// Returns true if every transaction, now or later, sees the commit with this timestamp. Cost: a visit of
    /// each open transaction.
    pub fn is_seen_by_all(&self, timestamp: Timestamp) -> bool {
        self.active.snapshots().all_see(timestamp)
    }

    /// Returns true if every transaction, now or later, sees all commits that a snapshot sees. Cost: as of
    /// [`StateContext::is_seen_by_all`].
    pub fn all_see_all_of(&self, snapshot: &SnapshotMark) -> bool {
        self.active.snapshots().all_see_all_of(snapshot.snapshot())
    }

    /// The newest commit of the group (0: none); it may still be waiting for durability.
    pub fn last_cts(&self, group: GroupId) -> Timestamp {
        self.directory.last_cts(group)
    }

    /// Small commits that only update and delete are one publication.
    #[inline]
    pub(crate) fn commits_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Makes bulk loads sort after so many bytes.
    #[cfg(feature = "testkit")]
    pub fn sort_loads_after(&self, bytes: usize) {
        self.load_run_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// From now on they are, whatever the domain.
    #[cfg(feature = "testkit")]
    pub(crate) fn commit_at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_dropping(&self) -> bool {
        self.dropping.try_lock().is_some_and(|dropping| !dropping.is_empty())
    }

    pub(crate) fn check_accepts_commits(&self) -> Result<()> {
        self.pool.check_healthy()?;
        self.active.check_not_poisoned()
    }

    /// Waits until a finished timestamp is visible. If that will never be in this run, because an older
    /// commit is in doubt, the commit is there all the same after a restart: it has not failed.
    pub fn wait_until_visible(&self, cts: Timestamp) -> Result<()> {
        self.active
            .wait_until_visible(cts)
            .map_err(|source| Error::OutcomeUnknown { cts, source: Box::new(source) })
    }

    pub(crate) fn check_owns(&self, state: &State) -> Result<()> {
        if self.pools.has(state.pool()) { Ok(()) } else { Err(Error::NoSuchState(state.id)) }
    }

    /// Makes sure that the writes of the commit at `cts` in the group never count. No older one of the group
    /// is in flight.
    pub(crate) fn declare_invalid(&self, group: &Group, cts: Timestamp) -> Result<()> {
        let declared = self.ranges.lock();
        // No version with a timestamp in between counts: older commits of the group are whole or declared. Of
        // those that declared themselves the newest may yet become whole.
        let newest_declared =
            value(declared.newest_before(group.id, cts), Timestamp::START, FAILURE_SPARES_DECLARED);
        let from = self.directory.last_cts(group.id).max(newest_declared);
        let used = self.directory.add_invalid_range(group.id, from, cts)?;
        if !group.invalid.add(from, cts) {
            return Err(Error::Full { what: "invalid range", max: INVALID_RANGES_MAX });
        }
        self.ranges_crowded.store(used > INVALID_RANGES_MAX * 3 / 4, Ordering::Relaxed);
        match used {
            used if used > INVALID_RANGES_MAX => {
                Err(Error::Full { what: "invalid range", max: INVALID_RANGES_MAX })
            }
            _ => Ok(()),
        }
    }

    /// Removes the traces of what never counts, and all invalid ranges.
    #[cfg(feature = "testkit")]
    pub(crate) fn remove_traces(&self) -> Result<()> {
        self.ranges_crowded.store(true, Ordering::Relaxed);
        self.make_room_for_ranges()
    }

    /// Makes room for invalid ranges while there is still some. The caller holds nothing.
    pub(crate) fn make_room_for_ranges(&self) -> Result<()> {
        // Only a load at first: every commit comes by, and a line that no thread writes is shared by all of
        // them.
        if !self.ranges_crowded.load(Ordering::Relaxed) || !self.ranges_crowded.swap(false, Ordering::Relaxed)
        {
            return Ok(());
        }
        let groups: Vec<_> = self.groups.read().values().cloned().collect();
        for group in groups.iter().filter(|group| !group.invalid.is_empty()) {
            let _held = group.hold();
            self.check_accepts_commits()?;
            let _ranges = self.ranges.lock();
            let states = self.states();
            recovery::scrub_group(&self.pool, self.pools.disk(), &self.directory, group, states.iter())?;
        }
        Ok(())
    }
}

/// Statistics of the data that a context keeps in DRAM for its protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextStats {
    /// The protocol of groups that did not ask for one.
    pub protocol: Protocol,
    /// Protocol of each group.
    pub protocols: Vec<(GroupId, Protocol)>,
    /// Versions beside the objects, for old snapshots.
    pub old_versions: usize,
    /// Bytes that they take.
    pub old_version_bytes: usize,
    /// Locks that transactions hold (S2PL).
    pub locks: usize,
    /// Write sets that transactions may have to be validated against (BOCC).
    pub validation_sets: usize,
}

impl std::fmt::Debug for StateContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StateContext({:?})", self.report)
    }
}
