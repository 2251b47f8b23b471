//! The persistent part of the state context: groups, states, and invalid timestamps.
//!
//! ```text
//! root "context" → header   magic | format version | groups | states | invalid ranges (offsets) | protocol | histories | extension
//! groups                   status (0 free, 1 in use) | LastCTS | announced CTS | protocol
//! states                   status (0 free, 1 live, 2 dropping, 3 history, 4 dropping history) | group | key width, pool | index root
//! histories                of the state of the same number: its history's number + 1 (0: none) | horizon | kept ns | -
//! invalid ranges   256 x   group + 1 (0: free entry) | from, exclusive | to, inclusive | -
//! ```
//! Groups, states and histories are tables that grow ([`table`]). The seventh word of the header leads to the
//! first 1,024 histories, once there was one; a release that does not know them refuses the status of their
//! states. The eighth leads to the extension, once there was more than fits the first segments, or a commit
//! over many groups ([`last_cts`]); then the format is 2, which a release that does not know it refuses. All
//! fields are 8-byte little-endian words. The third word of a state has the key width in its low byte, the
//! pool of the state in the next (0 main, 1 volatile, 2 disk: then there is no root here), in the third the
//! version slots of a new object (0: as many as the context's), in the fourth the structure of the index, and above the
//! DRAM for its hot entries, in units of 64 KiB; a release that does not know one of these refuses the entry. The protocol of a group says how its objects are laid out; that of the
//! header is what new groups get.
//!
//! Invariants:
//! - An entry counts from when its first word is set; the other words are written before or together with it.
//! - A segment is full of zeros before the extension leads to it.
//! - `announced >= cts` of every version that exists in a state of the group, before the version does. So
//!   after a crash exactly the timestamps in `(LastCTS, announced]` may belong to a commit that did not
//!   finish.
//! - An invalid range is taken out only when no version or deletion timestamp in it is left.
//!
//! Memory: 72 KiB in the pool; 32 KiB more for each 1,024 groups, states, and states with a history.

mod histories;
mod last_cts;
mod ranges;
mod table;

use crate::context::placement::PoolRole;
use crate::mvcc::object::VERSION_SLOTS_MAX;
use crate::points::{
    DROPPED_INDEX_WITH_ITS_ENTRY, LOAD_IS_DROPPED, NEW_SEGMENT, SEGMENT_CLEARED, SEGMENT_WITH_ITS_PLACE,
};
use crate::{Error, GroupId, Protocol, Result, StateId};
use entresol_memory::order::{step, value};
use entresol_memory::{AtomicPoolOffset, Pool, PoolOffset, Publication};
use entresol_structures::{IndexStructure, KeyWidth};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use histories::HistoryEntry;
pub(crate) use last_cts::ListRoom;
pub(crate) use ranges::DeclaredIn;
pub use ranges::INVALID_RANGES_MAX;
use table::{ENTRIES_MAX, EXTENSION_WORDS, SEGMENT_BYTES, SEGMENT_ENTRIES, SEGMENT_WORDS, Table, TableKind};

/// Maximum number of state groups of a context.
pub const GROUPS_MAX: usize = ENTRIES_MAX;
/// Maximum number of states of a context.
pub const STATES_MAX: usize = ENTRIES_MAX;

const ROOT: &str = "context";
const MAGIC: u64 = u64::from_le_bytes(*b"entr.ctx");
const FORMAT: u64 = 1;
/// With an extension.
const FORMAT_EXTENDED: u64 = 2;

const WORD: u64 = 8;
const HEADER_WORDS: usize = 8;
const ENTRY_WORDS: usize = 4;
const ENTRY_BYTES: u64 = ENTRY_WORDS as u64 * WORD;
const RANGE_WORDS: usize = INVALID_RANGES_MAX * ENTRY_WORDS;

const FREE: u64 = 0;
const IN_USE: u64 = 1;
const DROPPING: u64 = 2;
const HISTORY: u64 = 3;
const DROPPING_HISTORY: u64 = 4;

/// Shift of the pool in the third word of a state.
const POOL_SHIFT: u32 = 8;
const BYTE_MASK: u64 = 0xFF;
/// Shift of the version slots in the third word of a state.
const SLOTS_SHIFT: u32 = 16;
/// Shift of the structure in the third word of a state; the number of its node size is in the upper half of its byte.
const STRUCTURE_SHIFT: u32 = 24;
const STRUCTURE_MASK: u8 = 0xF;
const NODE_SIZE_SHIFT: u8 = 4;
/// Shift of the DRAM for hot entries in the third word of a state.
const HOT_SHIFT: u32 = 32;
/// Unit of the DRAM for hot entries.
pub(crate) const HOT_UNIT_BYTES: u64 = 64 << 10;

/// Words of the header.
const FORMAT_WORD: usize = 1;
const HISTORIES_WORD: usize = 6;
const EXTENSION_WORD: usize = 7;

/// A live or dropping state, as stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateEntry {
    pub(crate) id: StateId,
    pub(crate) group: GroupId,
    pub(crate) width: KeyWidth,
    /// Pool of the state.
    pub(crate) pool: PoolRole,
    /// Version slots of a new object, if it does not take the context's.
    pub(crate) version_slots: Option<u8>,
    /// Structure of its index.
    pub(crate) structure: IndexStructure,
    /// Bytes of the nodes of its index, if it does not take the structure's.
    pub(crate) node_bytes: Option<u16>,
    /// DRAM for the hot entries of its index; 0: none.
    pub(crate) hot_bytes: u64,
    /// Offset of its index in that pool; stored for the main pool alone.
    pub(crate) root: PoolOffset,
    pub(crate) dropping: bool,
    /// It is the history of another state.
    pub(crate) history: bool,
}

/// Access to the directories of one pool. Callers serialise changes to the same entry.
pub(crate) struct Directory {
    pool: Arc<Pool>,
    header: PoolOffset,
    groups: Table,
    states: Table,
    histories: Table,
    ranges: PoolOffset,
    /// Null: there is none.
    extension: AtomicPoolOffset,
    /// Held while the extension is made, and segments are added to it.
    extending: Mutex<()>,
    /// Held while there is a list of `LastCTS`.
    listing: Mutex<()>,
    /// Of groups that do not ask for one.
    pub(crate) protocol: Protocol,
}

impl Directory {
    pub(crate) fn open(pool: &Arc<Pool>) -> Result<Option<Directory>> {
        let Some(header) = pool.root(ROOT) else { return Ok(None) };
        let Some(words) = pool.try_words(header, HEADER_WORDS) else {
            return Err(Error::Corrupt(format!("no state context can be at {header:#x}")));
        };
        pool.verify(header, HEADER_WORDS * WORD as usize)?;
        let word = |index: usize| words[index].load(Ordering::Acquire);
        let is_known = word(FORMAT_WORD) == FORMAT || word(FORMAT_WORD) == FORMAT_EXTENDED;
        if word(0) != MAGIC || !is_known {
            return Err(Error::Corrupt(format!(
                "the state context at {header} has magic {:#x}, format {}",
                word(0),
                word(FORMAT_WORD)
            )));
        }
        let stored = |index: usize| PoolOffset::from_word(word(index));
        for (at, words) in [(2, SEGMENT_WORDS), (3, SEGMENT_WORDS), (4, RANGE_WORDS)] {
            verify(pool, "table", stored(at), words)?;
        }
        let protocol =
            Protocol::from_code(word(5)).ok_or_else(|| unknown_protocol("the state context", word(5)))?;
        let histories = stored(HISTORIES_WORD);
        if !histories.is_null() {
            verify(pool, "table of histories", histories, SEGMENT_WORDS)?;
        }
        let tables = [stored(2), stored(3), histories];
        let directory = Directory::with(pool, header, tables, stored(4), protocol);
        if word(FORMAT_WORD) == FORMAT_EXTENDED {
            directory.open_extension(stored(EXTENSION_WORD))?;
            directory.finish_list()?;
        }
        Ok(Some(directory))
    }

    fn with(
        pool: &Arc<Pool>,
        header: PoolOffset,
        [groups, states, histories]: [PoolOffset; 3],
        ranges: PoolOffset,
        protocol: Protocol,
    ) -> Directory {
        Directory {
            pool: Arc::clone(pool),
            header,
            groups: Table::new(groups),
            states: Table::new(states),
            histories: Table::new(histories),
            ranges,
            extension: AtomicPoolOffset::default(),
            extending: Mutex::new(()),
            listing: Mutex::new(()),
            protocol,
        }
    }

    fn open_extension(&self, extension: PoolOffset) -> Result<()> {
        debug_assert!(self.try_extension_offset().is_none(), "an extension is opened once");
        verify(&self.pool, "extension", extension, EXTENSION_WORDS)?;
        self.extension.store(extension, Ordering::Release);
        for kind in TableKind::ALL {
            for segment in 1..ENTRIES_MAX / SEGMENT_ENTRIES {
                let place = extension.word(kind.extension_word(segment));
                let offset = PoolOffset::from_word(self.word(place).load(Ordering::Acquire));
                if !offset.is_null() {
                    verify(&self.pool, "table", offset, SEGMENT_WORDS)?;
                    self.table(kind).set_segment(segment, offset);
                }
            }
        }
        Ok(())
    }

    /// Creates empty directories; all at once, so a crash leaves them complete or not at all.
    pub(crate) fn create(pool: &Arc<Pool>, protocol: Protocol) -> Result<Directory> {
        let mut publication = pool.publication();
        let groups = zeros(pool, &mut publication, SEGMENT_WORDS)?;
        let states = zeros(pool, &mut publication, SEGMENT_WORDS)?;
        let ranges = zeros(pool, &mut publication, RANGE_WORDS)?;
        let header = zeros(pool, &mut publication, HEADER_WORDS)?;
        let [first, second, third] = [groups, states, ranges].map(PoolOffset::to_word);
        let values = [MAGIC, FORMAT, first, second, third, protocol.code()];
        (0..).zip(values).for_each(|(word, value)| publication.write(header.word(word), value));
        debug_assert!(pool.root(ROOT).is_none(), "a pool has one state context");
        publication.set_root(ROOT, header)?;
        publication.publish()?;
        Ok(Directory::with(pool, header, [groups, states, PoolOffset::NULL], ranges, protocol))
    }

    /// The objects that the directory consists of, as (offset, bytes).
    pub(crate) fn objects(&self) -> Vec<(PoolOffset, u64)> {
        let mut objects =
            vec![(self.header, HEADER_WORDS as u64 * WORD), (self.ranges, RANGE_WORDS as u64 * WORD)];
        let extension = self.try_extension_offset();
        objects.extend(extension.map(|offset| (offset, EXTENSION_WORDS as u64 * WORD)));
        for kind in TableKind::ALL {
            objects.extend(self.table(kind).segments().map(|offset| (offset, SEGMENT_BYTES as u64)));
        }
        objects
    }

    fn table(&self, kind: TableKind) -> &Table {
        match kind {
            TableKind::Groups => &self.groups,
            TableKind::States => &self.states,
            TableKind::Histories => &self.histories,
        }
    }

    fn word(&self, offset: PoolOffset) -> &AtomicU64 {
        &self.pool.words(offset, 1)[0]
    }

    fn entry(&self, offset: PoolOffset) -> [u64; ENTRY_WORDS] {
        let words = self.pool.words(offset, ENTRY_WORDS);
        std::array::from_fn(|word| words[word].load(Ordering::Acquire))
    }

    fn group_offset(&self, group: GroupId) -> PoolOffset {
        self.groups.offset(group.0 as usize)
    }

    fn state_offset(&self, state: StateId) -> PoolOffset {
        self.states.offset(state.0 as usize)
    }

    // Growth.

    fn try_extension_offset(&self) -> Option<PoolOffset> {
        self.extension.load(Ordering::Acquire).non_null()
    }

    fn extension_offset(&self) -> PoolOffset {
        self.try_extension_offset().expect("the extension is made before it is needed")
    }

    /// Makes the extension, if there is none yet.
    fn extend(&self) -> Result<()> {
        if self.try_extension_offset().is_some() {
            return Ok(());
        }
        let _extending = self.extending.lock();
        if self.try_extension_offset().is_some() {
            return Ok(());
        }
        debug_assert_eq!(
            self.word(self.header.word(EXTENSION_WORD)).load(Ordering::Acquire),
            0,
            "an extension is made once"
        );
        let mut publication = self.pool.publication();
        let extension = zeros(&self.pool, &mut publication, EXTENSION_WORDS)?;
        publication.set(self.header.word(FORMAT_WORD), FORMAT_EXTENDED);
        publication.set(self.header.word(EXTENSION_WORD), extension.to_word());
        publication.publish()?;
        self.extension.store(extension, Ordering::Release);
        Ok(())
    }

    /// Makes a segment of a table that is not there yet. The caller serialises those of one table.
    fn add_segment(&self, kind: TableKind, segment: usize) -> Result<()> {
        let place = match (kind, segment) {
            (TableKind::Histories, 0) => self.header.word(HISTORIES_WORD),
            _ => {
                self.extend()?;
                self.extension_offset().word(kind.extension_word(segment))
            }
        };
        debug_assert_eq!(
            self.word(place).load(Ordering::Acquire),
            0,
            "segment {segment} of {kind:?} is made once"
        );
        let mut publication = self.pool.publication();
        let offset = zeros(&self.pool, &mut publication, SEGMENT_WORDS)?;
        publication.barrier(SEGMENT_WITH_ITS_PLACE);
        publication.set(place, offset.to_word());
        publication.publish()?;
        self.table(kind).set_segment(segment, offset);
        Ok(())
    }

    /// A free entry of a table. The caller serialises those of one table.
    fn free_entry(&self, kind: TableKind, what: &'static str) -> Result<usize> {
        let table = self.table(kind);
        let index = table.first_free(&self.pool).ok_or(Error::Full { what, max: ENTRIES_MAX })?;
        if table.try_offset(index).is_none() {
            self.add_segment(kind, index / SEGMENT_ENTRIES)?;
        }
        assert!(table.try_offset(index).is_some(), "entry {index} of {kind:?} has its segment");
        Ok(index)
    }

    /// Counts all entries that are there as used: the next one comes into a new segment.
    #[cfg(feature = "testkit")]
    pub(crate) fn skip_all(&self) {
        self.groups.skip_all();
        self.states.skip_all();
    }

    // Groups.

    pub(crate) fn groups(&self) -> Vec<GroupId> {
        let in_use = |&(_, offset): &(usize, PoolOffset)| self.word(offset).load(Ordering::Acquire) == IN_USE;
        self.groups.entries().filter(in_use).map(|(index, _)| GroupId(index as u32)).collect()
    }

    /// Concurrency control protocol of the states of a group.
    pub(crate) fn protocol(&self, group: GroupId) -> Result<Protocol> {
        let code = self.word(self.group_offset(group).word(3)).load(Ordering::Acquire);
        Protocol::from_code(code).ok_or_else(|| unknown_protocol(&group.to_string(), code))
    }

    pub(crate) fn create_group(&self, protocol: Protocol) -> Result<GroupId> {
        let group = GroupId(self.free_entry(TableKind::Groups, "state group")? as u32);
        let offset = self.group_offset(group);
        debug_assert_eq!(self.word(offset).load(Ordering::Acquire), FREE, "the entry of {group} is free");
        let mut publication = self.pool.publication();
        publication.set(offset.plus(WORD), 0);
        publication.set(offset.plus(2 * WORD), 0);
        publication.set(offset.plus(3 * WORD), protocol.code());
        publication.set(offset, IN_USE);
        publication.publish()?;
        Ok(group)
    }

    // States.

    pub(crate) fn states(&self) -> Result<Vec<StateEntry>> {
        let entries = self.states.entries();
        entries.filter_map(|(index, offset)| self.state_entry(index, offset).transpose()).collect()
    }

    fn state_entry(&self, index: usize, offset: PoolOffset) -> Result<Option<StateEntry>> {
        let [status, group, width, root] = self.entry(offset);
        if status == FREE {
            return Ok(None);
        }
        let corrupt = || Error::Corrupt(format!("state entry {index} is {status}, {group}, {width}, {root}"));
        let pool = PoolRole::from_code(width >> POOL_SHIFT & BYTE_MASK).ok_or_else(corrupt)?;
        let slots = (width >> SLOTS_SHIFT & BYTE_MASK) as u8;
        let structure = (width >> STRUCTURE_SHIFT & BYTE_MASK) as u8;
        let (structure, size) = (structure & STRUCTURE_MASK, structure >> NODE_SIZE_SHIFT);
        let structure = IndexStructure::from_number(structure).ok_or_else(corrupt)?;
        let wrong_slots = slots == 1 || usize::from(slots) > VERSION_SLOTS_MAX;
        let has_root = root != 0;
        if status > DROPPING_HISTORY
            || group >= GROUPS_MAX as u64
            || wrong_slots
            || has_root != (pool == PoolRole::Main)
        {
            return Err(corrupt());
        }
        Ok(Some(StateEntry {
            id: StateId(index as u32),
            group: GroupId(group as u32),
            width: width_from_code(width & BYTE_MASK).ok_or_else(corrupt)?,
            pool,
            version_slots: (slots > 0).then_some(slots),
            structure,
            node_bytes: structure.node_bytes_of(size).ok_or_else(corrupt)?,
            hot_bytes: (width >> HOT_SHIFT) * HOT_UNIT_BYTES,
            root: PoolOffset::from_word(root),
            dropping: matches!(status, DROPPING | DROPPING_HISTORY),
            history: matches!(status, HISTORY | DROPPING_HISTORY),
        }))
    }

    pub(crate) fn free_state(&self) -> Result<StateId> {
        Ok(StateId(self.free_entry(TableKind::States, "state")? as u32))
    }

    /// Entry, not yet added, of an index in the main pool that is dropped from its beginning on.
    pub(crate) fn dropped_entry(&self, group: GroupId, width: KeyWidth) -> Result<StateEntry> {
        Ok(StateEntry {
            id: self.free_state()?,
            group,
            width,
            pool: PoolRole::Main,
            version_slots: None,
            structure: IndexStructure::FpTree,
            node_bytes: None,
            hot_bytes: 0,
            root: PoolOffset::NULL,
            dropping: true,
            history: false,
        })
    }

    /// Adds the entry of a new state to the publication that allocates its index.
    pub(crate) fn add_state(&self, entry: &StateEntry, publication: &mut Publication<'_>) {
        let offset = self.state_offset(entry.id);
        debug_assert_eq!(
            self.word(offset).load(Ordering::Acquire),
            FREE,
            "the entry of {} is free",
            entry.id
        );
        publication.set(offset.plus(WORD), u64::from(entry.group.0));
        let slots = u64::from(entry.version_slots.unwrap_or(0)) << SLOTS_SHIFT;
        let size = entry.structure.number_of_size(entry.node_bytes) << NODE_SIZE_SHIFT;
        let structure = u64::from(entry.structure.number() | size) << STRUCTURE_SHIFT;
        debug_assert!(entry.hot_bytes / HOT_UNIT_BYTES <= u64::from(u32::MAX), "hot entries fit their field");
        let hot = (entry.hot_bytes / HOT_UNIT_BYTES) << HOT_SHIFT;
        let choices = entry.pool.code() << POOL_SHIFT | slots | structure | hot;
        publication.set(offset.plus(2 * WORD), width_code(entry.width) | choices);
        publication
            .set(offset.plus(3 * WORD), if entry.pool == PoolRole::Main { entry.root.to_word() } else { 0 });
        let status = match (entry.history, entry.dropping) {
            (true, _) => HISTORY,
            (false, true) => value(DROPPING, IN_USE, LOAD_IS_DROPPED),
            (false, false) => IN_USE,
        };
        publication.set(offset, status);
    }

    /// Marks the state and its history as dropped; recovery rule: what is left of a dropping state is
    /// destroyed.
    pub(crate) fn set_dropping(&self, state: StateId, history: Option<StateId>) -> Result<()> {
        debug_assert_ne!(
            self.word(self.state_offset(state)).load(Ordering::Acquire),
            FREE,
            "{state} is there"
        );
        let mut publication = self.pool.publication();
        publication.set(self.state_offset(state), DROPPING);
        history.inspect(|&history| self.end_history(state, history, &mut publication));
        Ok(publication.publish()?)
    }

    /// Frees the entry and the empty index, if that is in the main pool, of a dropping state.
    pub(crate) fn remove_state(&self, state: StateId, root: Option<PoolOffset>) -> Result<()> {
        debug_assert_ne!(
            self.word(self.state_offset(state)).load(Ordering::Acquire),
            FREE,
            "{state} is there"
        );
        let mut publication = self.pool.publication();
        publication.set(self.state_offset(state), FREE);
        publication.barrier(DROPPED_INDEX_WITH_ITS_ENTRY);
        root.into_iter().for_each(|root| publication.free(root));
        publication.publish()?;
        self.states.freed(state.0 as usize);
        Ok(())
    }
}

/// An object full of zeros in the publication that allocates it; flushed.
fn zeros<'p>(pool: &'p Pool, publication: &mut Publication<'p>, words: usize) -> Result<PoolOffset> {
    let bytes = words * WORD as usize;
    let reservation = pool.reserve(bytes)?;
    assert!(reservation.bytes() >= bytes, "a reservation has the bytes that were asked for");
    step(SEGMENT_CLEARED, || {
        pool.words(reservation.offset(), words).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    });
    pool.flush_at(reservation.offset(), bytes, NEW_SEGMENT);
    Ok(publication.allocate(reservation))
}

/// Checks a part of the directory.
fn verify(pool: &Pool, what: &str, offset: PoolOffset, words: usize) -> Result<()> {
    if pool.try_words(offset, words).is_none() {
        return Err(Error::Corrupt(format!("no {what} of the state context can be at {offset:#x}")));
    }
    Ok(pool.verify(offset, words * WORD as usize)?)
}

fn unknown_protocol(whose: &str, code: u64) -> Error {
    Error::Corrupt(format!(
        "{whose} has the unknown protocol {code}: it is damaged, or a newer release wrote it"
    ))
}

fn width_code(width: KeyWidth) -> u64 {
    match width {
        KeyWidth::Eight => 8,
        KeyWidth::Sixteen => 16,
        KeyWidth::Variable => 0,
    }
}

fn width_from_code(code: u64) -> Option<KeyWidth> {
    match code {
        8 => Some(KeyWidth::Eight),
        16 => Some(KeyWidth::Sixteen),
        0 => Some(KeyWidth::Variable),
        _ => None,
    }
}
