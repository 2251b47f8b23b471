//! A state: one ordered key → value map of a group, an index over MVCC objects.
//!
//! Invariant: an object that the index maps a key to is changed only by the holder of its key or of the
//! state's group ([`crate::context::group`]); once it has been replaced it is not changed at all, so a reader
//! that found it before still finds its version there. A reader whose snapshot is older than the drop of a
//! state may go on reading it.

use crate::changes::ChangeLog;
use crate::context::directory::StateEntry;
use crate::context::group::Group;
use crate::context::live_keys::LiveKeys;
use crate::context::placement::PoolRole;
use crate::context::rewritten_keys::RewrittenKeys;
use crate::history::{History, HistoryBounds};
use crate::mvcc::chain::Chain;
use crate::mvcc::object::VersionedObject;
use crate::mvcc::old_versions::OldVersions;
use crate::mvcc::value_buffer::ValueBuffer;
use crate::protocol::VERSION_SLOTS_MIN;
use crate::reclamation::dead_keys::{DeadKeys, ReclaimQueue};
use crate::transaction::scan::KeyRange;
use crate::visibility::snapshot::Snapshot;
use crate::{
    AtomicTimestamp, ContextOptions, Error, GroupId, INFINITY, Protocol, Result, StateId, Tier, Timestamp,
};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::{HotMemory, IndexStructure, KEY_BYTES_MAX, KeyBytes, KeyWidth, OrderedIndex};
use parking_lot::RwLock;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: u64 = 64;

/// A state. Read and written through a [`Transaction`](crate::Transaction).
// Aligned, so that the counts of references to it, which every writing transaction changes, do not lie in a
// line that readers need.
#[repr(align(128))]
pub struct State {
    pub(crate) id: StateId,
    pub(crate) group: Arc<Group>,
    pub(crate) index: OrderedIndex,
    pub(crate) dead: DeadKeys,
    pub(crate) root: PoolOffset,
    width: KeyWidth,
    version_slots: Option<u8>,
    hot_bytes: u64,
    /// Protocol of its group, where every read finds it.
    protocol: Protocol,
    pub(crate) old_versions: Arc<OldVersions>,
    pool: Arc<Pool>,
    role: PoolRole,
    tier: Tier,
    /// Transactions with a snapshot from here on do not see the state.
    dropped_at: AtomicTimestamp,
    /// Transactions with an older snapshot cannot commit writes into the state.
    writers_from: AtomicTimestamp,
    /// Commit of the bulk load that filled the state in this run: snapshots before it find nothing in it. The
    /// versions of a load begin at the start of time.
    loaded_at: AtomicTimestamp,
    /// True while a bulk load collects rows for the state.
    is_loading: AtomicBool,
    /// Holder of the state, such as a table, for errors.
    holder: OnceLock<String>,
    /// Version history of its keys, if one is kept. Changed with the group held.
    history: RwLock<Option<Arc<History>>>,
    keeps_history: AtomicBool,
    /// Log of its changes, if it has one. Changed with the group held.
    change_log: RwLock<Option<Arc<ChangeLog>>>,
    logs_changes: AtomicBool,
    /// Number of its keys that have a value.
    pub(crate) live: LiveKeys,
    pub(crate) rewritten: RewrittenKeys,
    /// Set if its values lie over others.
    pub(crate) is_overlay: AtomicBool,
    /// Set if its writers do the work of the context before they commit.
    pub(crate) watched: AtomicBool,
}

/// Outcome of a lookup at a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// The value was copied.
    Value,
    /// The bytes are no object, or the transaction was finished meanwhile.
    Damaged,
    /// No version is visible; `dead` when none would be visible later either.
    Nothing {
        /// A candidate for removal.
        dead: bool,
    },
}

impl State {
    pub(crate) fn open(
        pool: &Arc<Pool>,
        (entry, hot): (&StateEntry, Option<HotMemory>),
        group: Arc<Group>,
        old_versions: &Arc<OldVersions>,
        reclaim: &Arc<ReclaimQueue>,
    ) -> Result<Arc<State>> {
        let mut index = OrderedIndex::open(pool, entry.root)?;
        if index.structure() != entry.structure || index.node_bytes() != entry.node_bytes {
            let found = (index.structure(), index.node_bytes());
            let expected = (entry.structure, entry.node_bytes);
            return Err(Error::Corrupt(format!("the index of {} is {found:?}, not {expected:?}", entry.id)));
        }
        if let Some(memory) = hot {
            index = index.with_hot_entries(memory)?;
        }
        let dead = DeadKeys::new(entry.id, reclaim);
        // An index of an earlier release, which has no note, may have some.
        match index.note() {
            Some(0) => (),
            noted => dead.expect(noted.unwrap_or(0)),
        }
        assert!(group.id == entry.group, "{} belongs to {}", entry.id, entry.group);
        Ok(Arc::new(State {
            id: entry.id,
            protocol: group.protocol,
            group,
            index,
            dead,
            root: entry.root,
            width: entry.width,
            version_slots: entry.version_slots,
            hot_bytes: entry.hot_bytes,
            old_versions: Arc::clone(old_versions),
            pool: Arc::clone(pool),
            role: entry.pool,
            tier: Tier::of(pool.domain()),
            dropped_at: AtomicTimestamp::new(INFINITY),
            writers_from: AtomicTimestamp::new(Timestamp::START),
            loaded_at: AtomicTimestamp::new(Timestamp::START),
            is_loading: AtomicBool::new(false),
            holder: OnceLock::new(),
            history: RwLock::new(None),
            keeps_history: AtomicBool::new(false),
            change_log: RwLock::new(None),
            logs_changes: AtomicBool::new(false),
            live: LiveKeys::default(),
            rewritten: RewrittenKeys::default(),
            is_overlay: AtomicBool::new(false),
            watched: AtomicBool::new(false),
        }))
    }

    /// The number of the state.
    pub fn id(&self) -> StateId {
        self.id
    }

    /// The group that the state is committed with.
    pub fn group(&self) -> GroupId {
        self.group.id
    }

    /// Concurrency control protocol of its transactions.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Version slots of a new object.
    pub fn version_slots(&self, options: &ContextOptions) -> usize {
        self.version_slots.map_or(options.version_slots, usize::from)
    }

    /// Returns true if the object of a key that is appended has room for one version: unless more are asked for, or
    /// appended keys are written again.
    pub(crate) fn appends_single_versions(&self, options: &ContextOptions) -> bool {
        self.version_slots.is_none() && options.version_slots == VERSION_SLOTS_MIN && self.rewritten.are_few()
    }

    /// Its versions lie in chains.
    #[inline]
    pub(crate) fn is_chained(&self) -> bool {
        self.protocol.is_chained()
    }

    /// Reads of it are validated when their transaction commits.
    pub(crate) fn validates(&self) -> bool {
        self.protocol == Protocol::Bocc
    }

    /// Names the holder of the state ("table meter"), once: errors about damage say it.
    pub fn set_holder(&self, holder: &str) {
        self.holder.get_or_init(|| holder.to_owned());
    }

    /// Holder of the state, for errors.
    pub fn holder(&self) -> String {
        self.holder.get().cloned().unwrap_or_else(|| self.id.to_string())
    }

    /// Readable part of its version history; None: it keeps none.
    pub fn past(&self) -> Option<HistoryBounds> {
        self.history().map(|history| history.bounds())
    }

    #[inline]
    pub(crate) fn history(&self) -> Option<Arc<History>> {
        if self.keeps_history.load(Ordering::Acquire) { self.history.read().clone() } else { None }
    }

    /// The caller holds the group, or has the context to itself.
    pub(crate) fn set_history(&self, history: Option<Arc<History>>) {
        let keeps = history.is_some();
        *self.history.write() = history;
        self.keeps_history.store(keeps, Ordering::Release);
    }

    #[inline]
    pub(crate) fn logs_changes(&self) -> bool {
        self.logs_changes.load(Ordering::Acquire)
    }

    /// Log of its changes, if it has one.
    #[inline]
    pub fn change_log(&self) -> Option<Arc<ChangeLog>> {
        if self.logs_changes() { self.change_log.read().clone() } else { None }
    }

    /// The caller holds the group, or no transaction has begun yet.
    pub(crate) fn set_change_log(&self, log: Option<Arc<ChangeLog>>) {
        let logs = log.is_some();
        *self.change_log.write() = log;
        self.logs_changes.store(logs, Ordering::Release);
    }

    /// The error for damage under a key.
    #[cold]
    pub(crate) fn damaged(&self, key: &[u8], what: &str) -> Error {
        let holder = self.holder.get().map_or("a state", String::as_str);
        let offset = self.index.get(key).ok().flatten().map_or(PoolOffset::NULL, PoolOffset::from_word);
        let file = self.pool.file().map_or("the pool".into(), |file| file.display().to_string());
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Error::Corrupt(format!(
            "{holder} ({}): {what} at byte {offset} of {file}, key {key}; run `entresol check`, restore a backup",
            self.id
        ))
    }

    /// The width of its keys.
    pub fn width(&self) -> KeyWidth {
        self.width
    }

    /// The structure of its index.
    pub fn structure(&self) -> IndexStructure {
        self.index.structure()
    }

    /// Returns the bytes of the nodes of its index, if they are not those that the structure takes.
    pub fn node_bytes(&self) -> Option<u16> {
        self.index.node_bytes()
    }

    /// DRAM for the hot entries of its index, as asked for; 0: none.
    pub fn hot_bytes(&self) -> u64 {
        self.hot_bytes
    }

    /// Verifies the index, also a damaged one; no writer may run meanwhile. Cost: all of it is read.
    pub fn check_index(&self) -> Result<()> {
        Ok(self.index.check_damaged(|_, _| Ok(()), |_, _| {})?)
    }

    /// All keys of the index, whether visible to a snapshot or not. For small states.
    pub fn keys(&self) -> Result<Vec<KeyBytes>> {
        let _guard = self.pool.pin();
        let (mut keys, mut entries, mut from) = (Vec::new(), Vec::new(), None);
        loop {
            let lower = from.as_ref().map_or(Bound::Unbounded, |key: &KeyBytes| Bound::Included(&key[..]));
            let next = self.index.scan_batch(lower, &mut entries)?;
            keys.extend(entries.drain(..).map(|(key, _)| key));
            match next {
                Some(key) => from = Some(key),
                None => return Ok(keys),
            }
        }
    }

    /// The greatest key of the index, whether visible to a snapshot or not; a cheap upper bound.
    pub fn last_key(&self) -> Result<Option<KeyBytes>> {
        // The guard first: if the state is dropped from here on, its leaves stay until the guard is gone.
        let _guard = self.pool.pin();
        if self.is_dropped() { Ok(None) } else { Ok(self.index.last_key()?) }
    }

    /// Returns keys that divide the state into parts of about equal size, in ascending order: at least
    /// `wanted`, if it is large enough; see [`OrderedIndex::split_points`].
    pub fn split_points(&self, wanted: usize) -> Vec<KeyBytes> {
        let _guard = self.pool.pin();
        if self.is_dropped() { Vec::new() } else { self.index.split_points(wanted) }
    }

    /// Estimates the number of keys, dead ones included.
    pub fn estimated_keys(&self) -> u64 {
        let _guard = self.pool.pin();
        if self.is_dropped() { 0 } else { self.index.estimated_keys() }
    }

    /// Estimates the number of keys of a range, dead ones included; at least those of a leaf. Cost: some inner
    /// nodes.
    pub fn estimated_keys_within(&self, range: &KeyRange) -> u64 {
        let _guard = self.pool.pin();
        if self.is_dropped() {
            return 0;
        }
        let (lower, upper) = (range.lower.as_ref(), range.upper.as_ref());
        self.index.estimated_keys_between(lower.map(|key| &key[..]), upper.map(|key| &key[..]))
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    #[inline]
    pub(crate) fn is_in(&self, pool: &Pool) -> bool {
        std::ptr::eq(&*self.pool, pool)
    }

    pub(crate) fn role(&self) -> PoolRole {
        self.role
    }

    /// Tells whether it lies on the disk beside the main pool.
    #[inline]
    pub(crate) fn is_on_disk_beside(&self) -> bool {
        self.role == PoolRole::Disk
    }

    /// Tells whether its content is gone when the database is opened again, while its definition is not.
    #[inline]
    pub fn is_volatile(&self) -> bool {
        self.role == PoolRole::Volatile
    }

    /// Tier in which the state lies.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    pub(crate) fn set_dropped(&self, at: Timestamp) {
        self.dropped_at.store(at, Ordering::SeqCst);
    }

    pub(crate) fn set_writers_from(&self, from: Timestamp) {
        self.writers_from.store(from, Ordering::SeqCst);
    }

    /// Notes that a bulk load of the state begins; false if there is one already.
    pub(crate) fn begin_load(&self) -> bool {
        !self.is_loading.swap(true, Ordering::AcqRel)
    }

    /// Notes that the bulk load has ended.
    pub(crate) fn end_load(&self) {
        self.is_loading.store(false, Ordering::Release);
    }

    /// Notes the commit of a bulk load, before readers can find its rows. The caller holds the group.
    pub(crate) fn set_loaded(&self, at: Timestamp) {
        self.loaded_at.store(at, Ordering::SeqCst);
        self.set_writers_from(at);
    }

    /// The commit of the bulk load that filled the state in this run; the start if there was none.
    #[inline]
    pub(crate) fn loaded_at(&self) -> Timestamp {
        self.loaded_at.load(Ordering::Acquire)
    }

    /// Tells whether writers with this snapshot are not refused.
    pub(crate) fn admits_writer(&self, snapshot: Snapshot) -> bool {
        snapshot.sees(self.writers_from.load(Ordering::SeqCst))
    }

    /// Returns a conflict if writers with this snapshot are refused; `key` is one that was written.
    pub(crate) fn check_writer(&self, snapshot: Snapshot, key: &KeyBytes) -> Result<()> {
        let committed = self.writers_from.load(Ordering::SeqCst);
        if snapshot.sees(committed) {
            return Ok(());
        }
        Err(Error::Conflict {
            state: self.id,
            key: key.clone(),
            snapshot: snapshot.tells_all_up_to(),
            committed,
        })
    }

    /// Returns true once it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped_at.load(Ordering::SeqCst) != INFINITY
    }

    #[inline]
    pub(crate) fn check_exists(&self, snapshot: Snapshot) -> Result<()> {
        if !snapshot.sees(self.dropped_at.load(Ordering::Acquire)) {
            Ok(())
        } else {
            Err(Error::NoSuchState(self.id))
        }
    }

    /// Checks that the key fits; returns the length to which it is padded.
    #[inline]
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<usize> {
        let (max, width) = match self.width {
            KeyWidth::Eight => (8, 8),
            KeyWidth::Sixteen => (16, 16),
            KeyWidth::Variable => (KEY_BYTES_MAX, 0),
        };
        if key.len() <= max {
            Ok(width)
        } else {
            Err(Error::KeyLength { state: self.id, bytes: key.len(), max })
        }
    }

    /// The key as the index stores it: padded with zeros to the key width.
    pub(crate) fn normalise(&self, key: &[u8]) -> Result<KeyBytes> {
        let width = self.check_key(key)?;
        let mut bytes = KeyBytes::from_slice(key);
        if bytes.len() < width {
            bytes.resize(width, 0);
        }
        Ok(bytes)
    }

    /// Copies the version of the object at `offset` that the snapshot sees. The caller holds a guard since
    /// before it took the offset from the index.
    #[inline]
    pub(crate) fn copy_visible(
        &self,
        key: &[u8],
        offset: PoolOffset,
        snapshot: Snapshot,
        value: &mut ValueBuffer,
    ) -> LookupOutcome {
        if !snapshot.sees(self.loaded_at()) {
            return LookupOutcome::Nothing { dead: false };
        }
        if self.is_chained() {
            return self.copy_from_chain(offset, snapshot, value);
        }
        let Some(object) = VersionedObject::try_open(&self.pool, offset) else {
            return LookupOutcome::Damaged;
        };
        // Only the first line says which value is needed; short values lie in the second one. Behind a load
        // of the first, which the processor does not wait for here: a prefetch that finds no translation
        // holds up what follows it.
        self.pool.prefetch(offset.plus(LINE_BYTES));
        match object.visible(snapshot, &self.group.invalid) {
            Some(slot) if object.copy_value(slot, value) => LookupOutcome::Value,
            Some(_) => LookupOutcome::Damaged,
            None if self.copy_old_version(key, snapshot, value) => LookupOutcome::Value,
            None => LookupOutcome::Nothing { dead: object.seems_dead(snapshot, &self.group.invalid) },
        }
    }

    /// Pool offset and bytes of the value that the snapshot sees in the object at `offset`; none if it has none, or is
    /// damaged. The caller holds a guard since before it took the offset from the index.
    pub(crate) fn place_visible(
        &self,
        offset: PoolOffset,
        snapshot: Snapshot,
    ) -> Option<(PoolOffset, usize)> {
        if self.is_chained() || !snapshot.sees(self.loaded_at()) {
            return None;
        }
        let object = VersionedObject::try_open(&self.pool, offset)?;
        object.place(object.visible(snapshot, &self.group.invalid)?)
    }

    fn copy_from_chain(
        &self,
        offset: PoolOffset,
        snapshot: Snapshot,
        value: &mut ValueBuffer,
    ) -> LookupOutcome {
        let chain = Chain::at(&self.pool, offset);
        match chain.copy_visible(snapshot, &self.group.invalid, value) {
            Ok(true) => LookupOutcome::Value,
            Ok(false) => LookupOutcome::Nothing { dead: chain.seems_dead(snapshot, &self.group.invalid) },
            Err(_) => LookupOutcome::Damaged,
        }
    }

    fn copy_old_version(&self, key: &[u8], snapshot: Snapshot, value: &mut ValueBuffer) -> bool {
        self.old_versions.bytes() != 0
            && self
                .normalise(key)
                .is_ok_and(|key| self.old_versions.copy_visible(self.id, &key, snapshot, value))
    }

    /// The newest timestamp at which a key was written or deleted; None if it is not in the index. The caller
    /// holds a guard.
    pub(crate) fn newest(&self, key: &[u8]) -> Result<Option<Timestamp>> {
        let Some(word) = self.index.get(key)? else { return Ok(None) };
        self.newest_at(key, PoolOffset::from_word(word)).map(Some)
    }

    /// The same of an object that the index led to.
    pub(crate) fn newest_at(&self, key: &[u8], offset: PoolOffset) -> Result<Timestamp> {
        let invalid = &self.group.invalid;
        let newest = if self.is_chained() {
            Chain::at(&self.pool, offset).newest(invalid).ok()
        } else {
            VersionedObject::try_open(&self.pool, offset).map(|object| object.newest(invalid))
        };
        // No key is older than the load, whose versions begin earlier.
        let newest = newest.map(|newest| newest.max(self.loaded_at()));
        newest.ok_or_else(|| self.damaged(key, "a damaged MVCC object"))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State({}, {})", self.id, self.group.id)
    }
}
