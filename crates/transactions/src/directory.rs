//! The persistent part of the state context: which groups and states there are, and which timestamps are invalid.
//!
//! ```text
//! root "context" → header   magic | format version | groups | states | invalid ranges (offsets) | protocol
//! groups          1024 x   status (0 free, 1 in use) | LastCTS | announced CTS | protocol
//! states          1024 x   status (0 free, 1 live, 2 dropping, 3 history, 4 dropping history) | group | key width | index root
//! invalid ranges   256 x   group + 1 (0: free entry) | from, exclusive | to, inclusive | -
//! histories       1024 x   of the state of the same number: its history's number + 1 (0: none) | horizon | kept ns | -
//! ```
//! The seventh word of the header leads to the histories, once there was one; a release that does not know them refuses the
//! status of their states.
//! All fields are 8-byte little-endian words. The protocol of a group says how its objects are laid out; that of the header
//! is what new groups get.
//!
//! Invariants:
//! - An entry counts from the moment its first word is set; the other words are written before or together with it.
//! - `announced >= cts` of every version that exists in a state of the group, before the version does. So after a
//!   crash exactly the timestamps in `(LastCTS, announced]` may belong to a commit that did not finish.
//! - An invalid range is taken out only when no version or deletion timestamp in it is left.
//!
//! Memory: 72 KiB in the pool, fixed; 32 KiB more once there was a history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use entresol_memory::mutants::{active, intact};
use entresol_memory::{Pool, Publication};
use entresol_structures::KeyWidth;

use crate::{Error, GroupId, Protocol, Result, StateId, Timestamp};

/// How many state groups a context can hold.
pub const GROUPS_MAX: usize = 1024;
/// How many states a context can hold.
pub const STATES_MAX: usize = 1024;
/// How many invalid ranges of timestamps are kept. When more than half are in use at open, and when three
/// quarters are later, the states of their groups are scrubbed, so that the ranges are not needed any more.
pub const INVALID_RANGES_MAX: usize = 256;

const ROOT: &str = "context";
const MAGIC: u64 = u64::from_le_bytes(*b"entr.ctx");
const FORMAT: u64 = 1;

const WORD: u64 = 8;
const HEADER_WORDS: usize = 8;
const ENTRY_WORDS: usize = 4;
const ENTRY_BYTES: u64 = ENTRY_WORDS as u64 * WORD;

const FREE: u64 = 0;
const IN_USE: u64 = 1;
const DROPPING: u64 = 2;
const HISTORY: u64 = 3;
const DROPPING_HISTORY: u64 = 4;

/// Where the header says where the histories are.
const HISTORIES_WORD: usize = 6;

/// A live or dropping state, as stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateEntry {
    pub(crate) id: StateId,
    pub(crate) group: GroupId,
    pub(crate) width: KeyWidth,
    pub(crate) root: u64,
    pub(crate) dropping: bool,
    /// It is the history of another state.
    pub(crate) history: bool,
}

/// The history of a state, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryEntry {
    /// Whose it is.
    pub(crate) of: StateId,
    /// Under which number it lies among the states.
    pub(crate) id: StateId,
    /// What is older cannot be asked for.
    pub(crate) horizon: Timestamp,
    /// How long versions are kept after their end; `u64::MAX`: for ever.
    pub(crate) kept_ns: u64,
}

/// An invalid range, as stored: timestamps in `(from, to]` never count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeEntry {
    pub(crate) entry: usize,
    pub(crate) group: GroupId,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

/// Access to the directories of one pool. Callers serialise changes to the same entry.
pub(crate) struct Directory {
    pool: Arc<Pool>,
    groups: u64,
    states: u64,
    ranges: u64,
    /// 0: there has been none.
    histories: AtomicU64,
    /// Of groups that do not ask for one.
    pub(crate) protocol: Protocol,
}

impl Directory {
    pub(crate) fn open(pool: &Arc<Pool>) -> Result<Option<Directory>> {
        let Some(header) = pool.root(ROOT) else { return Ok(None) };
        let corrupt = |what: String| Err(Error::Corrupt(what));
        let Some(words) = pool.try_words(header, HEADER_WORDS) else {
            return corrupt(format!("no state context can be at {header:#x}"));
        };
        pool.verify(header, HEADER_WORDS * WORD as usize)?;
        let word = |index: usize| words[index].load(Ordering::Acquire);
        for (table, entries) in [(2, GROUPS_MAX), (3, STATES_MAX), (4, INVALID_RANGES_MAX)] {
            let words = entries * ENTRY_WORDS;
            if word(0) == MAGIC && pool.try_words(word(table), words).is_none() {
                return corrupt(format!("no table of the state context can be at {:#x}", word(table)));
            }
        }
        if word(0) != MAGIC || word(1) != FORMAT {
            return Err(Error::Corrupt(format!(
                "the state context at {header} has magic {:#x}, format {}",
                word(0),
                word(1)
            )));
        }
        for (table, entries) in [(2, GROUPS_MAX), (3, STATES_MAX), (4, INVALID_RANGES_MAX)] {
            pool.verify(word(table), entries * ENTRY_BYTES as usize)?;
        }
        let histories = word(HISTORIES_WORD);
        if histories != 0 {
            if pool.try_words(histories, STATES_MAX * ENTRY_WORDS).is_none() {
                return corrupt(format!("no table of histories can be at {histories:#x}"));
            }
            pool.verify(histories, STATES_MAX * ENTRY_BYTES as usize)?;
        }
        let protocol =
            Protocol::from_code(word(5)).ok_or_else(|| unknown_protocol("the state context", word(5)))?;
        Ok(Some(Directory {
            pool: Arc::clone(pool),
            groups: word(2),
            states: word(3),
            ranges: word(4),
            histories: AtomicU64::new(histories),
            protocol,
        }))
    }

    /// Creates empty directories; all at once, so a crash leaves them whole or not at all.
    pub(crate) fn create(pool: &Arc<Pool>, protocol: Protocol) -> Result<Directory> {
        let mut publication = pool.publication();
        let mut table = |words: usize| -> Result<u64> {
            let bytes = words * WORD as usize;
            let reservation = pool.reserve(bytes)?;
            pool.words(reservation.offset(), words).iter().for_each(|word| word.store(0, Ordering::Relaxed));
            pool.flush(reservation.offset(), bytes);
            Ok(publication.allocate(reservation))
        };
        let groups = table(GROUPS_MAX * ENTRY_WORDS)?;
        let states = table(STATES_MAX * ENTRY_WORDS)?;
        let ranges = table(INVALID_RANGES_MAX * ENTRY_WORDS)?;
        let header = table(HEADER_WORDS)?;
        let values = [MAGIC, FORMAT, groups, states, ranges, protocol.code()];
        for (word, value) in pool.words(header, values.len()).iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        pool.flush(header, HEADER_WORDS * WORD as usize);
        publication.set_root(ROOT, header)?;
        publication.publish()?;
        let histories = AtomicU64::new(0);
        Ok(Directory { pool: Arc::clone(pool), groups, states, ranges, histories, protocol })
    }

    /// The objects that the directory consists of, as (offset, bytes).
    pub(crate) fn objects(&self) -> Vec<(u64, u64)> {
        let header = self.pool.root(ROOT).unwrap_or(0);
        let table = |entries: usize| entries as u64 * ENTRY_BYTES;
        let mut objects = vec![
            (header, HEADER_WORDS as u64 * WORD),
            (self.groups, table(GROUPS_MAX)),
            (self.states, table(STATES_MAX)),
            (self.ranges, table(INVALID_RANGES_MAX)),
        ];
        let histories = self.histories.load(Ordering::Acquire);
        objects.extend((histories != 0).then(|| (histories, table(STATES_MAX))));
        objects
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        &self.pool.words(offset, 1)[0]
    }

    fn entry(&self, table: u64, index: usize) -> [u64; ENTRY_WORDS] {
        let words = self.pool.words(table + index as u64 * ENTRY_BYTES, ENTRY_WORDS);
        std::array::from_fn(|word| words[word].load(Ordering::Acquire))
    }

    fn first_free(&self, table: u64, entries: usize) -> Option<usize> {
        (0..entries)
            .find(|&index| self.word(table + index as u64 * ENTRY_BYTES).load(Ordering::Acquire) == FREE)
    }

    fn group_offset(&self, group: GroupId) -> u64 {
        assert!((group.0 as usize) < GROUPS_MAX, "{group} is out of range");
        self.groups + u64::from(group.0) * ENTRY_BYTES
    }

    fn state_offset(&self, state: StateId) -> u64 {
        assert!((state.0 as usize) < STATES_MAX, "{state} is out of range");
        self.states + u64::from(state.0) * ENTRY_BYTES
    }

    // Groups.

    pub(crate) fn groups(&self) -> Vec<GroupId> {
        let in_use = |&index: &usize| self.entry(self.groups, index)[0] == IN_USE;
        (0..GROUPS_MAX).filter(in_use).map(|index| GroupId(index as u32)).collect()
    }

    /// How the states of a group are laid out and committed.
    pub(crate) fn protocol(&self, group: GroupId) -> Result<Protocol> {
        let code = self.word(self.group_offset(group) + 3 * WORD).load(Ordering::Acquire);
        Protocol::from_code(code).ok_or_else(|| unknown_protocol(&group.to_string(), code))
    }

    pub(crate) fn create_group(&self, protocol: Protocol) -> Result<GroupId> {
        let index = self
            .first_free(self.groups, GROUPS_MAX)
            .ok_or(Error::Full { what: "state group", max: GROUPS_MAX })?;
        let group = GroupId(index as u32);
        let offset = self.group_offset(group);
        let mut publication = self.pool.publication();
        publication.set(offset + WORD, 0);
        publication.set(offset + 2 * WORD, 0);
        publication.set(offset + 3 * WORD, protocol.code());
        publication.set(offset, IN_USE);
        publication.publish()?;
        Ok(group)
    }

    pub(crate) fn last_cts(&self, group: GroupId) -> Timestamp {
        self.word(self.group_offset(group) + WORD).load(Ordering::Acquire)
    }

    pub(crate) fn announced(&self, group: GroupId) -> Timestamp {
        self.word(self.group_offset(group) + 2 * WORD).load(Ordering::Acquire)
    }

    /// Announces that versions with `cts` will be written; the caller fences before it writes one.
    pub(crate) fn announce(&self, group: GroupId, cts: Timestamp) {
        let offset = self.group_offset(group) + 2 * WORD;
        assert!(self.word(offset).load(Ordering::Relaxed) < cts, "commit timestamps of {group} only grow");
        self.word(offset).store(cts, Ordering::Release);
        if intact("announcement-not-flushed") {
            self.pool.flush(offset, WORD as usize);
        }
    }

    /// Makes the commit at `cts` whole, in all its groups at once. The caller fenced all that belongs to it.
    pub(crate) fn set_last_cts(&self, groups: &[GroupId], cts: Timestamp) -> Result<()> {
        if let [group] = groups {
            // One word is atomic by itself. Recovery rule: versions up to the stored value count.
            let offset = self.group_offset(*group) + WORD;
            self.word(offset).store(cts, Ordering::Release);
            if intact("last-cts-not-flushed") {
                self.pool.flush(offset, WORD as usize);
            }
            self.pool.fence();
            return Ok(());
        }
        if active("last-cts-group-by-group") {
            return groups.iter().try_for_each(|group| self.set_last_cts(&[*group], cts));
        }
        let mut publication = self.pool.publication();
        for &group in groups {
            publication.set(self.group_offset(group) + WORD, cts);
        }
        Ok(publication.publish()?)
    }

    // States.

    pub(crate) fn states(&self) -> Result<Vec<StateEntry>> {
        (0..STATES_MAX).filter_map(|index| self.state_entry(index).transpose()).collect()
    }

    fn state_entry(&self, index: usize) -> Result<Option<StateEntry>> {
        let [status, group, width, root] = self.entry(self.states, index);
        if status == FREE {
            return Ok(None);
        }
        let corrupt = || Error::Corrupt(format!("state entry {index} is {status}, {group}, {width}, {root}"));
        if status > DROPPING_HISTORY || group >= GROUPS_MAX as u64 || root == 0 {
            return Err(corrupt());
        }
        Ok(Some(StateEntry {
            id: StateId(index as u32),
            group: GroupId(group as u32),
            width: width_from_code(width).ok_or_else(corrupt)?,
            root,
            dropping: matches!(status, DROPPING | DROPPING_HISTORY),
            history: matches!(status, HISTORY | DROPPING_HISTORY),
        }))
    }

    pub(crate) fn free_state(&self) -> Result<StateId> {
        let index =
            self.first_free(self.states, STATES_MAX).ok_or(Error::Full { what: "state", max: STATES_MAX })?;
        Ok(StateId(index as u32))
    }

    /// Adds the entry of a new state to the publication that allocates its index.
    pub(crate) fn add_state(&self, entry: &StateEntry, publication: &mut Publication<'_>) {
        let offset = self.state_offset(entry.id);
        publication.set(offset + WORD, u64::from(entry.group.0));
        publication.set(offset + 2 * WORD, width_code(entry.width));
        publication.set(offset + 3 * WORD, entry.root);
        publication.set(offset, if entry.history { HISTORY } else { IN_USE });
    }

    /// From now on the state and its history are gone; recovery rule: what is left of a dropping state is destroyed.
    pub(crate) fn set_dropping(&self, state: StateId, history: Option<StateId>) -> Result<()> {
        let mut publication = self.pool.publication();
        publication.set(self.state_offset(state), DROPPING);
        history.inspect(|&history| self.end_history(state, history, &mut publication));
        Ok(publication.publish()?)
    }

    // Histories.

    pub(crate) fn histories(&self) -> Result<Vec<HistoryEntry>> {
        let table = self.histories.load(Ordering::Acquire);
        let mut found = Vec::new();
        for state in (0..STATES_MAX).filter(|_| table != 0) {
            let [id, horizon, kept_ns, _] = self.entry(table, state);
            if id == FREE {
                continue;
            }
            if id > STATES_MAX as u64 {
                return Err(Error::Corrupt(format!("state {state} has the history {id} - 1")));
            }
            let (of, id) = (StateId(state as u32), StateId(id as u32 - 1));
            found.push(HistoryEntry { of, id, horizon, kept_ns });
        }
        Ok(found)
    }

    /// Makes the table of histories, if there is none yet. The caller serialises.
    pub(crate) fn prepare_histories(&self) -> Result<()> {
        if self.histories.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let header = self.pool.root(ROOT).ok_or_else(|| Error::Corrupt("no state context".to_owned()))?;
        let words = STATES_MAX * ENTRY_WORDS;
        let reservation = self.pool.reserve(words * WORD as usize)?;
        let offset = reservation.offset();
        self.pool.words(offset, words).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.pool.flush(offset, words * WORD as usize);
        let mut publication = self.pool.publication();
        publication.allocate(reservation);
        publication.set(header + HISTORIES_WORD as u64 * WORD, offset);
        publication.publish()?;
        self.histories.store(offset, Ordering::Release);
        Ok(())
    }

    fn history_offset(&self, state: StateId) -> u64 {
        let table = self.histories.load(Ordering::Acquire);
        assert!(table != 0 && (state.0 as usize) < STATES_MAX, "{state} has no place for a history");
        table + u64::from(state.0) * ENTRY_BYTES
    }

    /// Adds a history to the publication that allocates its index and adds its state.
    pub(crate) fn add_history(&self, entry: &HistoryEntry, publication: &mut Publication<'_>) {
        let offset = self.history_offset(entry.of);
        publication.set(offset + WORD, entry.horizon);
        publication.set(offset + 2 * WORD, entry.kept_ns);
        publication.set(offset, u64::from(entry.id.0) + 1);
    }

    fn end_history(&self, state: StateId, history: StateId, publication: &mut Publication<'_>) {
        publication.set(self.history_offset(state), FREE);
        publication.set(self.state_offset(history), DROPPING_HISTORY);
    }

    /// From now on the state has no history; recovery rule: what is left of it is destroyed.
    pub(crate) fn drop_history(&self, state: StateId, history: StateId) -> Result<()> {
        let mut publication = self.pool.publication();
        self.end_history(state, history, &mut publication);
        Ok(publication.publish()?)
    }

    /// Moves the horizon of a state's history; fenced. Recovery rule: what ended up to there cannot be asked for.
    pub(crate) fn set_horizon(&self, state: StateId, horizon: Timestamp) {
        self.set_history_word(state, 1, horizon);
    }

    /// Changes how long the history of a state is kept; fenced.
    pub(crate) fn set_kept(&self, state: StateId, kept_ns: u64) {
        self.set_history_word(state, 2, kept_ns);
    }

    fn set_history_word(&self, state: StateId, word: u64, value: u64) {
        let offset = self.history_offset(state) + word * WORD;
        self.word(offset).store(value, Ordering::Release);
        self.pool.flush(offset, WORD as usize);
        self.pool.fence();
    }

    /// Frees the entry and the empty index of a dropping state.
    pub(crate) fn remove_state(&self, state: StateId, root: u64) -> Result<()> {
        let mut publication = self.pool.publication();
        publication.set(self.state_offset(state), FREE);
        if active("dropped-state-forgotten-before-it-is-free") {
            std::mem::replace(&mut publication, self.pool.publication()).publish()?;
        }
        publication.free(root);
        Ok(publication.publish()?)
    }

    // Invalid ranges.

    pub(crate) fn invalid_ranges(&self) -> Result<Vec<RangeEntry>> {
        let mut ranges = Vec::new();
        for entry in 0..INVALID_RANGES_MAX {
            let [group, from, to, _] = self.entry(self.ranges, entry);
            if group == FREE {
                continue;
            }
            if group > GROUPS_MAX as u64 || from >= to {
                return Err(Error::Corrupt(format!(
                    "invalid range {entry} is ({from}, {to}] of group {group} - 1"
                )));
            }
            ranges.push(RangeEntry { entry, group: GroupId(group as u32 - 1), from, to });
        }
        Ok(ranges)
    }

    /// Declares `(from, to]` invalid for the group, persistently. A range of the same group with the same start grows:
    /// no commit happened in between. Returns how many ranges there are then; if that is more than
    /// [`INVALID_RANGES_MAX`] there was no room.
    pub(crate) fn add_invalid_range(&self, group: GroupId, from: Timestamp, to: Timestamp) -> Result<usize> {
        assert!(from < to, "the range ({from}, {to}] is empty");
        let ranges = self.invalid_ranges()?;
        let same = ranges.iter().find(|range| range.group == group && range.from == from);
        let used = ranges.len() + usize::from(same.is_none());
        let index =
            same.map(|range| range.entry).or_else(|| self.first_free(self.ranges, INVALID_RANGES_MAX));
        let Some(index) = index else { return Ok(used) };
        let offset = self.ranges + index as u64 * ENTRY_BYTES;
        let mut publication = self.pool.publication();
        publication.set(offset + WORD, from);
        publication.set(offset + 2 * WORD, to);
        publication.set(offset, u64::from(group.0) + 1);
        publication.publish()?;
        Ok(used)
    }

    /// Takes ranges out. The caller made sure (and fenced) that nothing is left that they hide.
    pub(crate) fn remove_invalid_ranges(&self, ranges: &[RangeEntry]) {
        for range in ranges {
            let offset = self.ranges + range.entry as u64 * ENTRY_BYTES;
            self.word(offset).store(FREE, Ordering::Release);
            self.pool.flush(offset, WORD as usize);
        }
        self.pool.fence();
    }
}

fn unknown_protocol(whose: &str, code: u64) -> Error {
    Error::Corrupt(format!("{whose} has the protocol {code}: damage, or a newer version wrote it"))
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
