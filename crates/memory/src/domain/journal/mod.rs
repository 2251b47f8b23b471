//! Persistence on any file system: a redo journal over a private mapping.
//!
//! The pool file is mapped copy-on-write, so a store changes DRAM only. A flush appends the flushed words to
//! the journal's buffer, in order, under one short lock, at the latest with the next fence; the buffer goes
//! to the journal file as a frame; a checkpoint copies changed pages to the pool file and lets the journal be
//! recycled.
//!
//! Invariants:
//!
//! 1. *Order.* Records are in the order of their threads' fences, and a record holds every store that was
//!    flushed before it. Both are read and placed under the same lock. So any prefix of the journal, replayed
//!    over the last checkpoint, is a legal state of persistent memory. What a thread flushes between two
//!    fences has no order yet, and is appended by the second ([`stage`]).
//! 2. *Write ahead.* A page goes to the pool file only after the journal is durable up to what had been
//!    appended when the page was copied. The copy may hold stores that were not flushed yet; that is the same
//!    as a cache evicting a line.
//! 3. *Nothing truncated is needed.* A record, the dirty mark of its page and, for a publication, its stores
//!    happen under the append lock, and marks are taken under it; so a checkpoint that takes the marks after
//!    noting position P finds in the pages everything appended before P.
//! 4. *Torn pages heal.* A page torn by a crash in a checkpoint differs from an intact one only in words that
//!    the journal since the last complete checkpoint carries (or that were never flushed).
//! 5. *Poisoning.* After a failed write or sync, or a panic while one was in flight, nothing is appended any
//!    more and every persist fails: an operating system that dropped pages after an error must not be trusted
//!    with a later "ok". Syncs are made one at a time, so none after the failed one is trusted.
//! 6. *Written before used.* A slot of the journal file is full of synced zeros before a frame goes there, so
//!    that a sync is a flush of the device and no commit of the file system.
//! 7. *The clean mark is last.* Closing stops appends, then appends the mark: a state with the mark holds
//!    everything.
//!
//! Reopening after a failed sync does not trust the page cache: the journal is read with direct I/O, which
//! asks the device; where the file system has none, the cache of the file is dropped first. Pool pages that a
//! failed checkpoint left in the cache only are all named by the journal since the checkpoint before; replay
//! marks them, and the next checkpoint writes them again.
//!
//! Waits: appenders wait for the append lock (tens of ns; a checkpoint holds it for a line of marks). They
//! may hold latches, so callers that are about to append wait for the device *before* they take any
//! ([`room`]): when [`writing::append::BUFFERS_MAX`] buffers are full or the journal is at its maximum
//! ([`policy`]). For holders of latches there is a reserve of both beyond. Committers at `sync` wait for at
//! most the sync in flight and the next ([`commit`]).
//!
//! Memory: two to eight buffers of 2 MiB, up to 24 for holders of latches, one checkpoint buffer of 8 to 10
//! MiB during a checkpoint, a bit per page of the address range that is touched. While recovering: two
//! buffers of a slot, and two bits per page. The journal file is bounded by one and a half times
//! [`JournalOptions::journal_bytes_max`] plus the buffers and two slots: callers that have not begun wait for
//! a checkpoint beyond the maximum, all appenders beyond the bound.

mod background;
mod checkpoint;
pub(crate) mod copy;
mod direct;
mod hook;
mod info;
mod position;
mod recovery;
mod residency;
pub(crate) mod writing;

use crate::budget::{MemoryBudget, MemoryConsumer, MemoryReservation, Shrink};
use crate::durability::Durability;
use crate::env::{Env, OpenMode, StorageFile};
use crate::error::{Error, Result};
use crate::mapping::{Mapping, PAGE_BYTES};
use crate::offset::PoolOffset;
use crate::order::{in_order, step};
use crate::placement::WriteSettings;
use crate::points::{CLOSED_AFTER_CHECKPOINT, REPLAYED_PAGES_MARKED};
use crate::publication::{Operation, PUBLICATION_WORDS_MAX, Update};
use crate::stats::PoolStats;
pub use checkpoint::checksums::PagesReport;
pub use info::JournalInfo;
pub use position::JournalPosition;

use crate::layout::CHECKSUMS_FILE;
use background::Background;
use checkpoint::checksums::{ChecksumParts, Checksums};
use checkpoint::dirty::DirtyPages;
use checkpoint::policy::{CheckpointPolicy, ReplayMeasurement};
use direct::DirectReads;
use parking_lot::{Condvar, Mutex};
use position::AtomicPosition;
use recovery::RecoverySummary;
pub use residency::PageReplacement;
use residency::Residency;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use writing::append::{Appender, BUFFER_BYTES_MAX};
use writing::commit::Rounds;
use writing::frame::{FRAME_HEADER_WORDS, RECORD_WORDS_MAX};
use writing::log::{Log, LogHeader};
use writing::slots::SlotSupply;
use writing::stage::JournalId;

const SLOT_BYTES_MIN: u64 = 64 << 10;
const SLOT_BYTES_MAX: u64 = 1 << 30;

/// Sizes of the journal.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    /// Bytes of one slot of the journal file, the unit of recycling. At least 64 KiB.
    pub slot_bytes: u64,
    /// A checkpoint starts at the latest when a recovery would replay this many bytes.
    pub checkpoint_bytes: u64,
    /// Writers wait for the checkpoint, before they take latches, when a recovery would replay this many
    /// bytes; holders of latches wait at half as many again.
    pub journal_bytes_max: u64,
    /// Number of slots allocated when the pool is created.
    pub preallocated_slots: usize,
    /// A checkpoint starts when a recovery would take about this long, in ms. Later means that a page is
    /// written once for more changes. Writers wait for the checkpoint when it would take twice as long.
    pub recovery_ms_target: u32,
    /// Policy that chooses the pages to evict when a pool is larger than its memory budget.
    pub page_replacement: PageReplacement,
    /// Write settings of checkpoints, as the profile of the disk gives them ([`WriteSettings::of`]); none:
    /// defaults.
    pub writing: Option<WriteSettings>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            slot_bytes: 8 << 20,
            checkpoint_bytes: 192 << 20,
            journal_bytes_max: 256 << 20,
            preallocated_slots: 4,
            recovery_ms_target: 500,
            page_replacement: PageReplacement::default(),
            writing: None,
        }
    }
}

impl JournalOptions {
    pub(crate) fn validate(&self) -> Result<()> {
        let in_range = (SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&self.slot_bytes);
        if !in_range || !self.slot_bytes.is_multiple_of(4096) {
            return Err(Error::Invalid(format!(
                "journal slot_bytes is {}; it must be a multiple of 4096 from {SLOT_BYTES_MIN} to {SLOT_BYTES_MAX}",
                self.slot_bytes
            )));
        }
        if self.checkpoint_bytes == 0 || self.journal_bytes_max < self.checkpoint_bytes {
            return Err(Error::Invalid(format!(
                "journal_bytes_max ({}) must be at least checkpoint_bytes ({}), and both above 0",
                self.journal_bytes_max, self.checkpoint_bytes
            )));
        }
        if let Some(WriteSettings { piece_bytes, at_once, .. }) = self.writing
            && (!WriteSettings::PIECE_BYTES.contains(&piece_bytes)
                || !piece_bytes.is_multiple_of(PAGE_BYTES as usize)
                || !(1..=WriteSettings::AT_ONCE_MAX).contains(&at_once))
        {
            return Err(Error::Invalid(format!(
                "journal writing has pieces of {piece_bytes} bytes, {at_once} at once; pieces must be a multiple of \
                 {PAGE_BYTES} from {} to {}, and 1 to {} at once",
                WriteSettings::PIECE_BYTES.start(),
                WriteSettings::PIECE_BYTES.end(),
                WriteSettings::AT_ONCE_MAX
            )));
        }
        if self.recovery_ms_target == 0 {
            return Err(Error::Invalid("journal recovery_ms_target is 0; it must be at least 1".to_string()));
        }
        Ok(())
    }
}

/// Writing end of the journal file; the lock's holder writes.
struct Writer {
    log: Log,
}

/// Admission of appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Gate {
    Open,
    /// The journal is at its maximum: callers that have not begun wait for a checkpoint.
    Full,
    /// The reserve is used up, too: all appenders wait for a checkpoint.
    ReserveUsed,
    /// The journal has failed or is closed: nothing is appended any more.
    Shut,
}

struct JournalState {
    id: JournalId,
    mapping: Arc<Mapping>,
    /// Pool file past the page cache, where the file system allows it: for checkpoints.
    pages_file: Box<dyn StorageFile>,
    writing: Option<WriteSettings>,
    pool_path: PathBuf,
    journal_file: Arc<dyn StorageFile>,
    journal_path: PathBuf,
    policy: CheckpointPolicy,
    appender: Appender,
    writer: Mutex<Writer>,
    supply: Arc<SlotSupply>,
    /// Slots that stay when the journal is closed.
    slots_kept: usize,
    /// Lock of a sync of the journal file. Taken after `writer` where both are held.
    syncing: Mutex<()>,
    rounds: Rounds,
    /// Running mean of the duration of a sync.
    sync_ns: AtomicU64,
    dirty: DirtyPages,
    /// Number of pages whose marks the checkpoint in flight has taken, and of the groups of neighbours that
    /// they are in.
    pages_taken: AtomicU64,
    groups_taken: AtomicU64,
    checksums: Checksums,
    /// Lock of a checkpoint.
    checkpointing: Mutex<()>,
    written: AtomicPosition,
    durable: AtomicPosition,
    replay_from: AtomicPosition,
    /// Bytes of frames written since open, with headers and padding, and their value at the replay position.
    /// They begin with the replayed bytes.
    stored_bytes: AtomicU64,
    stored_from: AtomicU64,
    /// Maximum number of words of one append: half a buffer, so that it fits after at most one write.
    append_words_max: usize,
    failure: OnceLock<Error>,
    /// Value of a [`Gate`]. Changed under the room lock.
    gate: AtomicU8,
    /// True if as many buffers are full as there may be: callers that have not begun write one. Changed under
    /// the append lock.
    is_behind: AtomicBool,
    background: Background,
    /// Keeper of the pool's pages within the budget, if there is one.
    residency: Option<Residency>,
    memory: Option<Arc<MemoryBudget>>,
    /// Budget taken by the buffers, if there is one.
    buffers: Mutex<Option<MemoryReservation>>,
    /// Budget taken by the maps of pages.
    maps: Mutex<Option<MemoryReservation>>,
    /// Signalled when a checkpoint has moved `replay_from`, or the journal has failed.
    room: Condvar,
    room_lock: Mutex<()>,
    syncs: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_bytes: AtomicU64,
    direct_reads: DirectReads,
    opened_at: JournalPosition,
    replayed: ReplayMeasurement,
    replayed_bytes: u64,
}

/// Journal of an open pool. Dropping it writes and syncs the buffered records, without a checkpoint.
pub(crate) struct Journal {
    shared: Arc<JournalState>,
}

/// Arguments of opening a journal.
pub(crate) struct JournalParts {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) pool_file: Arc<dyn StorageFile>,
    pub(crate) pool_path: PathBuf,
    pub(crate) options: JournalOptions,
    pub(crate) memory: Option<Arc<MemoryBudget>>,
    pub(crate) extent_bytes: u64,
}

impl JournalParts {
    /// Keeper of the pool's pages within the budget; none without one, or where the system does not support
    /// it.
    fn residency(&self) -> Option<Residency> {
        let memory = self.memory.clone()?;
        let replacement = self.options.page_replacement;
        Residency::new(memory, &self.mapping, self.extent_bytes, &self.pool_path, replacement)
    }

    /// Checksums of the pool's pages, brought to the position from which the journal is replayed.
    fn checksums(&self, header: &LogHeader, dirty: &DirtyPages, env: &Env) -> Result<Checksums> {
        let parts = ChecksumParts {
            path: &self.pool_path.with_file_name(CHECKSUMS_FILE),
            uuid: header.uuid,
            pool_file: self.pool_file.clone(),
            pool_path: &self.pool_path,
            position: header.replay_lsn,
            replayed: dirty.marked(self.mapping.mapped_bytes()),
            capacity_bytes: self.mapping.capacity_bytes(),
        };
        Checksums::open_or_create(parts, env)
    }
}

impl Journal {
    /// Creates an empty journal, under a temporary name until it is complete.
    pub(crate) fn create(parts: JournalParts, path: &Path, uuid: [u64; 2], env: &Env) -> Result<Journal> {
        let io = |e: &std::io::Error| Error::io("create", path, e);
        let unfinished = path.with_extension("new");
        if env.files().exists(&unfinished) {
            env.files().remove(&unfinished).map_err(|e| io(&e))?;
        }
        drop(env.files().open(&unfinished, OpenMode::Create).map_err(|e| io(&e))?);
        let file = env.files().open(&unfinished, OpenMode::OpenDirect).map_err(|e| io(&e))?;
        let slots = parts.options.preallocated_slots.max(1);
        let log = Log::create(file.into(), path, uuid, parts.options.slot_bytes, slots)?;
        env.files().rename(&unfinished, path).map_err(|e| io(&e))?;
        let dirty = dirty_pages(&parts)?;
        let nothing =
            RecoverySummary { end_lsn: JournalPosition::START, replayed_bytes: 0, stored_bytes: 0, ns: 0 };
        Journal::start(parts, log, nothing, dirty, env)
    }

    /// Opens the journal and replays it into the mapping.
    pub(crate) fn open(parts: JournalParts, path: &Path, uuid: [u64; 2], env: &Env) -> Result<Journal> {
        let file = env.files().open(path, OpenMode::OpenDirect).map_err(|e| Error::io("open", path, &e))?;
        // A sync that failed before this open may have left frames in the page cache that the device never
        // got.
        file.forget_cached().map_err(|e| Error::io("drop the page cache of", path, &e))?;
        let mapping = parts.mapping.clone();
        let dirty = dirty_pages(&parts)?;
        let mapped = mapping.mapped_bytes();
        let (log, recovered) = Log::recover(file.into(), path, uuid, &mapping, |offset, words| {
            let bytes = words.len() as u64 * 8;
            if offset.checked_plus(bytes).is_none_or(|end| end.bytes() > mapped) {
                let what = format!("a record reaches byte {offset} (+{bytes}) of a pool of {mapped} bytes");
                return Err(Error::corrupt(path, 0, what));
            }
            for (word, value) in mapping.words(offset.bytes(), words.len()).iter().zip(words) {
                word.store(*value, Ordering::Relaxed);
            }
            step(REPLAYED_PAGES_MARKED, || dirty.mark(offset, bytes));
            Ok(())
        })?;
        Journal::start(parts, log, recovered, dirty, env)
    }

    fn start(
        parts: JournalParts,
        mut log: Log,
        recovered: RecoverySummary,
        dirty: DirtyPages,
        env: &Env,
    ) -> Result<Journal> {
        let payload_bytes = log.payload_bytes_max().min(BUFFER_BYTES_MAX - FRAME_HEADER_WORDS * 8);
        assert!(
            recovered.end_lsn >= log.header.replay_lsn,
            "the journal goes on behind its replay position: {recovered:?}"
        );
        let checksums = parts.checksums(&log.header, &dirty, env)?;
        let pages_file = env
            .files()
            .open(&parts.pool_path, OpenMode::OpenDirect)
            .map_err(|e| Error::io("open", &parts.pool_path, &e))?;
        // Two from the beginning, each with its frame's header; see [`append`].
        let buffers = parts.memory.as_ref().map(|memory| {
            let bytes = 2 * (payload_bytes + FRAME_HEADER_WORDS * 8) as u64;
            memory.reserve_unchecked(MemoryConsumer::JournalBuffers, bytes)
        });
        if let Some(how) = parts.options.writing {
            pages_file.set_writing(how);
        }
        let may_drop = pages_file.has_coherent_mapping() && !env.is_simulated();
        let residency = may_drop.then(|| parts.residency()).flatten();
        let end_lsn = recovered.end_lsn;
        let replayed = ReplayMeasurement {
            stored_bytes: recovered.stored_bytes,
            pages: dirty.count(),
            ns: recovered.ns,
        };
        let shared = Arc::new(JournalState {
            id: JournalId::new(),
            dirty,
            checksums,
            pages_taken: AtomicU64::new(0),
            groups_taken: AtomicU64::new(0),
            mapping: parts.mapping,
            pages_file,
            writing: parts.options.writing,
            pool_path: parts.pool_path,
            journal_file: log.file.clone(),
            journal_path: log.path.clone(),
            policy: CheckpointPolicy::new(&parts.options, replayed),
            appender: Appender::new(payload_bytes, end_lsn),
            replay_from: AtomicPosition::new(log.header.replay_lsn),
            supply: log.open_supply(),
            slots_kept: parts.options.preallocated_slots.max(1),
            writer: Mutex::new(Writer { log }),
            syncing: Mutex::new(()),
            rounds: Rounds::default(),
            sync_ns: AtomicU64::new(0),
            checkpointing: Mutex::new(()),
            written: AtomicPosition::new(end_lsn),
            durable: AtomicPosition::new(end_lsn),
            stored_bytes: AtomicU64::new(recovered.stored_bytes),
            stored_from: AtomicU64::new(0),
            append_words_max: (payload_bytes / 16).min(RECORD_WORDS_MAX),
            failure: OnceLock::new(),
            gate: AtomicU8::new(Gate::Open as u8),
            is_behind: AtomicBool::new(false),
            background: Background::default(),
            residency,
            memory: parts.memory.clone(),
            buffers: Mutex::new(buffers),
            maps: Mutex::new(parts.memory.as_ref().map(|memory| memory.empty(MemoryConsumer::PoolMaps))),
            room: Condvar::new(),
            room_lock: Mutex::new(()),
            syncs: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            checkpoint_bytes: AtomicU64::new(0),
            direct_reads: DirectReads::default(),
            opened_at: end_lsn,
            replayed,
            replayed_bytes: recovered.replayed_bytes,
        });
        assert!(
            (1..=RECORD_WORDS_MAX).contains(&shared.append_words_max),
            "an append of up to {} words fits a record and half a buffer",
            shared.append_words_max
        );
        if let (Some(memory), Some(_)) = (&parts.memory, &shared.residency) {
            let owner: Weak<dyn Shrink> = Arc::downgrade(&(shared.clone() as Arc<dyn Shrink>));
            memory.register(owner);
        }
        shared.count_maps();
        background::start(&shared, env)?;
        Ok(Journal { shared })
    }

    /// Returns true if pages are loaded one by one: the pool is larger than its memory.
    pub(crate) fn loads_single_pages(&self) -> bool {
        self.shared.loads_single_pages()
    }

    /// Waits until there is room for what the caller is about to append; see [`room`].
    #[inline]
    pub(crate) fn wait_for_room(&self) {
        self.shared.wait_for_room();
    }

    /// Appends the words of the ranges, at the latest with the next fence of this thread.
    #[inline]
    pub(crate) fn flush(&self, ranges: &[(PoolOffset, usize)]) {
        self.shared.flush(ranges);
    }

    /// Appends what this thread has flushed.
    #[inline]
    pub(crate) fn fence(&self) {
        self.shared.append_noted();
    }

    /// Appends the words of the ranges, the writes and the updates as records of one frame, and carries them
    /// out.
    #[inline]
    /// Returns true if one append takes a publication with this many written words, in one frame.
    pub(crate) fn publishes_at_once(&self, written_words: usize) -> bool {
        let others = writing::stage::WORDS_MAX + 2 * PUBLICATION_WORDS_MAX;
        written_words * 2 + others <= self.shared.append_words_max
    }

    pub(crate) fn publish(
        &self,
        flushes: &[(PoolOffset, usize)],
        writes: &[(PoolOffset, u64)],
        updates: &[Update],
    ) {
        debug_assert!(updates.len() <= PUBLICATION_WORDS_MAX, "a publication has room for no more updates");
        self.shared.publish(flushes, writes, updates);
    }

    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        let shared = &self.shared;
        shared.check_healthy()?;
        match durability {
            Durability::Sync => shared.sync_to(shared.appender.appended.load(Ordering::Acquire)),
            Durability::Group { interval_ms } => {
                shared.background.arm_sync(interval_ms);
                Ok(())
            }
            Durability::None => {
                shared.background.arm_write();
                Ok(())
            }
        }
    }

    /// Position behind what was appended.
    pub(crate) fn appended(&self) -> JournalPosition {
        self.shared.appender.appended.load(Ordering::Acquire)
    }

    /// Position up to which everything is durable.
    pub(crate) fn durable(&self) -> JournalPosition {
        self.shared.durable.load(Ordering::Acquire)
    }

    pub(crate) fn check_healthy(&self) -> Result<()> {
        self.shared.check_healthy()
    }

    /// Write settings of checkpoints.
    pub(crate) fn writing(&self) -> WriteSettings {
        self.shared.writing()
    }

    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.shared.append_noted();
        self.shared.checkpoint()
    }

    /// Refuses all further appends, sets the word at `clean` to 1 as the last record of all, makes a
    /// checkpoint, and notes that nothing has to be replayed.
    pub(crate) fn close(&self, clean: PoolOffset) -> Result<()> {
        assert!(clean.is_aligned(8), "the clean mark is a word, not at {clean:#x}");
        let shared = &self.shared;
        shared.append_noted();
        shared.shut();
        shared.check_not_failed()?;
        let checkpoint = || {
            shared.append_last(&[Update { offset: clean, operation: Operation::Set, value: 1 }])?;
            shared.checkpoint()?;
            assert_eq!(
                shared.writer.lock().log.header.replay_lsn,
                shared.appender.appended.load(Ordering::Acquire),
                "appended after closing"
            );
            Ok(())
        };
        in_order(CLOSED_AFTER_CHECKPOINT, checkpoint, || {
            // No other thread writes a header now.
            let _paused = shared.checkpointing.lock();
            let mut writer = shared.writer.lock();
            let _alone = shared.syncing.lock();
            writer.log.mark_closed().map_err(|error| shared.fail(error))
        })?;
        if let Err(error) = shared.supply.return_slots(shared.slots_kept) {
            tracing::warn!(%error, "the journal keeps the space of its slots");
        }
        Ok(())
    }

    /// Copies the journal, its pool file and the checksums; see [`copy`].
    pub(crate) fn copy_to(&self, targets: &copy::Targets<'_>) -> Result<copy::CopySummary> {
        self.shared.copy_to(targets)
    }

    /// Allocates checksum entries for a pool that is about to have `pool_bytes`.
    pub(crate) fn make_room(&self, pool_bytes: u64) -> Result<()> {
        if self.shared.residency.is_some() {
            self.shared.background.wake_keeper();
        }
        self.shared.checksums.make_room(pool_bytes)
    }

    /// Verifies the pages of a range of the pool file, once; see [`checksums`].
    pub(crate) fn verify(&self, offset: PoolOffset, bytes: u64) -> Result<()> {
        self.shared.checksums.verify(offset, bytes)
    }

    /// Verifies the pages of a range that will probably be read; damage is reported when they are.
    pub(crate) fn verify_ahead(&self, offset: PoolOffset, bytes: u64) -> Result<()> {
        self.shared.checksums.verify_ahead(offset, bytes)
    }

    /// Verifies all pages of the pool file; checkpoints pause.
    pub(crate) fn verify_pages(&self, progress: impl FnMut(u64)) -> Result<PagesReport> {
        let _paused = self.shared.checkpointing.lock();
        self.shared.checksums.verify_all(progress)
    }

    /// Discards the checksums of pages whose blocks are about to be freed, durably.
    pub(crate) fn forget_checksums(&self, ranges: impl Iterator<Item = (PoolOffset, u64)>) -> Result<()> {
        let _alone = self.shared.checkpointing.lock();
        self.shared.checksums.forget(ranges, self.shared.replay_from.load(Ordering::Acquire))
    }

    /// Prevents the eviction of pages while the guard lives.
    pub(crate) fn hold_pages(&self) -> Option<impl Drop + '_> {
        self.shared.residency.as_ref().map(Residency::hold)
    }

    /// Evicts all clean pages; returns their number.
    #[cfg(test)]
    pub(crate) fn drop_clean_pages(&self) -> u64 {
        self.shared.residency.as_ref().map_or(0, |residency| residency.drop_all_clean(&self.shared))
    }

    /// Installs huge pages wherever that is possible; returns their number.
    #[cfg(all(test, not(feature = "mutants")))]
    pub(crate) fn make_huge_pages(&self) -> u64 {
        self.shared.residency.as_ref().map_or(0, |residency| residency.make_all_huge(&self.shared))
    }

    /// Number of pages that are in memory because they were stored to.
    #[cfg(test)]
    pub(crate) fn stored_pages(&self) -> u64 {
        self.shared.residency.as_ref().map_or(0, |residency| residency.stored_pages(&self.shared))
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        let shared = &self.shared;
        let appended = shared.appender.appended.load(Ordering::Relaxed);
        stats.journal_bytes += appended.since(shared.replay_from.load(Ordering::Relaxed));
        stats.journal_appended_bytes += appended.since(shared.opened_at);
        stats.journal_stored_bytes +=
            shared.stored_bytes.load(Ordering::Relaxed) - shared.replayed.stored_bytes;
        stats.checkpoints += shared.checkpoints.load(Ordering::Relaxed);
        stats.checkpoint_bytes += shared.checkpoint_bytes.load(Ordering::Relaxed);
        stats.syncs += shared.syncs.load(Ordering::Relaxed);
        stats.flushes += shared.appender.active.lock().flushes;
        stats.replayed_bytes += shared.replayed_bytes;
        stats.replayed_stored_bytes += shared.replayed.stored_bytes;
        stats.replay_us += shared.replayed.ns / 1000;
        stats.predicted_recovery_ms += shared.predicted_recovery_ms();
        stats.direct_io |= shared.journal_file.is_direct();
        stats.io_uring |= shared.pages_file.writes_in_parallel();
        shared.direct_reads.add_stats(stats);
    }
}

fn dirty_pages(parts: &JournalParts) -> Result<DirtyPages> {
    let make = if parts.memory.is_some() { DirtyPages::with_taken } else { DirtyPages::new };
    make(parts.mapping.capacity_bytes())
        .map_err(|e| Error::OutOfSpace { what: format!("map the marks of changed pages: {e}") })
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.append_noted();
        self.shared.background.stop();
        let appended = self.shared.appender.appended.load(Ordering::Acquire);
        if self.shared.failure.get().is_none()
            && let Err(error) = self.shared.sync_to(appended)
        {
            tracing::warn!(%error, "the journal's last records could not be written");
        }
    }
}

impl JournalState {
    fn check_not_failed(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |cause| Err(Error::Failed { cause: cause.to_string() }))
    }

    fn check_healthy(&self) -> Result<()> {
        self.check_not_failed()?;
        if self.gate() == Gate::Shut { Err(Error::Closed) } else { Ok(()) }
    }

    #[inline]
    fn gate(&self) -> Gate {
        match self.gate.load(Ordering::Acquire) {
            gate if gate == Gate::Open as u8 => Gate::Open,
            gate if gate == Gate::Full as u8 => Gate::Full,
            gate if gate == Gate::ReserveUsed as u8 => Gate::ReserveUsed,
            _ => Gate::Shut,
        }
    }

    /// Poisons the journal with the first failure and wakes all waiting threads; returns the error.
    fn fail(&self, error: Error) -> Error {
        if self.failure.set(error.clone()).is_ok() {
            tracing::error!(%error, "the journal failed; the database is read-only from now on");
        }
        self.shut();
        error
    }

    /// Refuses further appends. Those that hold the append lock finish first, if the caller does not hold it
    /// itself.
    fn shut(&self) {
        let _held = self.room_lock.lock();
        self.put_gate(Gate::Shut);
        self.room.notify_all();
    }

    /// Sets the gate. Under the room lock.
    fn put_gate(&self, gate: Gate) {
        debug_assert!(self.room_lock.is_locked(), "the gate changes under the room lock");
        self.gate.store(gate as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod tests;
