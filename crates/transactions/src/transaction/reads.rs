//! The reads of a serializable transaction, and their validation when it commits.
//!
//! A transaction reads at its snapshot and becomes visible at its commit timestamp. If nothing that it read
//! was written in between, it could have read at the commit timestamp as well, so the transactions are as
//! good as run one after another, in the order of their timestamps (backward validation; dissertation 5.3,
//! BOCC). Ranges are remembered as ranges, so a row that appears in one counts (no phantoms). A read-only
//! transaction needs no validation: the snapshot itself is a position in that order. Groups with the protocol
//! BOCC validate against write sets in place of versions ([`crate::locking::validation_sets`]), and all
//! transactions.
//!
//! Memory: at most [`READS_MAX`] keys and ranges a state; beyond, all of the state counts as read.

use crate::context::group::Group;
use crate::context::state::State;
use crate::visibility::snapshot::Snapshot;
use crate::{Error, KeyRange, Result, StateId};
use entresol_memory::PoolOffset;
use entresol_structures::KeyBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of keys and ranges of one state that are remembered one by one.
pub const READS_MAX: usize = 16_384;

/// Number of keys that are looked up together.
const LOOKUP_KEYS: usize = 64;

struct StateReads {
    state: Arc<State>,
    keys: BTreeSet<KeyBytes>,
    ranges: Vec<KeyRange>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ReadSet {
    states: BTreeMap<StateId, StateReads>,
}

impl ReadSet {
    fn of(&mut self, state: &Arc<State>) -> &mut StateReads {
        self.states.entry(state.id).or_insert_with(|| StateReads {
            state: Arc::clone(state),
            keys: BTreeSet::new(),
            ranges: Vec::new(),
        })
    }

    pub(crate) fn add_key(&mut self, state: &Arc<State>, key: KeyBytes) {
        let reads = self.of(state);
        if reads.is_all() {
            return;
        }
        reads.keys.insert(key);
        reads.bound();
    }

    /// Adds a range with normalised bounds. One that goes on where the last one ended makes that one longer.
    pub(crate) fn add_range(&mut self, state: &Arc<State>, range: KeyRange) {
        let reads = self.of(state);
        if reads.is_all() {
            return;
        }
        match reads.ranges.last_mut() {
            Some(last) if is_continued(&last.upper, &range.lower) => last.upper = range.upper,
            _ => reads.ranges.push(range),
        }
        reads.bound();
    }

    /// The states that were read.
    pub(crate) fn states(&self) -> impl Iterator<Item = &Arc<State>> {
        self.states.values().map(|reads| &reads.state)
    }

    /// The first of some keys of a state, ascending, that was read. Cost: the smaller of the two sets, times
    /// a search in the larger.
    pub(crate) fn first_read_of<'k>(&self, state: StateId, keys: &'k [KeyBytes]) -> Option<&'k KeyBytes> {
        let reads = self.states.get(&state)?;
        let in_range = reads.ranges.iter().filter_map(|range| {
            let from = keys.partition_point(|key| !range.begins_before(key));
            keys.get(from).filter(|key| range.reaches(key))
        });
        let mut found = in_range.min();
        if reads.keys.len() < keys.len() {
            let known = reads.keys.iter().filter_map(|key| keys.binary_search(key).ok());
            found = found.into_iter().chain(known.map(|index| &keys[index])).min();
        } else {
            found = found.into_iter().chain(keys.iter().find(|key| reads.keys.contains(*key))).min();
        }
        found
    }

    /// The groups that were read.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.states.values().map(|reads| &reads.state.group)
    }

    /// Reads of each state: keys, and ranges.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StateId, &BTreeSet<KeyBytes>, &[KeyRange])> {
        self.states.iter().map(|(id, reads)| (*id, &reads.keys, &reads.ranges[..]))
    }

    /// The keys that were read, if there are no ranges.
    pub(crate) fn keys(&self) -> Option<Vec<(StateId, &[u8])>> {
        let only_keys = self.states.values().all(|reads| reads.ranges.is_empty());
        let keys = self.states.iter().flat_map(|(id, reads)| reads.keys.iter().map(|key| (*id, &key[..])));
        only_keys.then(|| keys.collect())
    }

    /// An error if something that was read has been written after the snapshot. The caller holds the keys, or
    /// the groups. Cost: each key and range is read again.
    pub(crate) fn validate(&self, snapshot: Snapshot) -> Result<()> {
        self.states.values().try_for_each(|reads| reads.validate(snapshot))
    }
}

/// Tells whether a range with this end is continued by one with this beginning.
fn is_continued(upper: &Bound<KeyBytes>, lower: &Bound<KeyBytes>) -> bool {
    matches!((upper, lower), (Bound::Excluded(upper), Bound::Included(lower)) if upper == lower)
}

impl StateReads {
    /// All of the state counts as read: nothing more has to be remembered.
    fn is_all(&self) -> bool {
        self.ranges.last().is_some_and(|range| *range == KeyRange::full())
    }

    fn bound(&mut self) {
        if self.keys.len() + self.ranges.len() > READS_MAX {
            self.keys.clear();
            self.ranges = vec![KeyRange::full()];
        }
    }

    fn validate(&self, snapshot: Snapshot) -> Result<()> {
        if self.state.is_dropped() {
            return Err(Error::NoSuchState(self.state.id));
        }
        let (mut keys, mut words) = (Vec::with_capacity(LOOKUP_KEYS), Vec::new());
        let mut all = self.keys.iter();
        loop {
            keys.clear();
            keys.extend(all.by_ref().take(LOOKUP_KEYS));
            if keys.is_empty() {
                break;
            }
            self.state.index.get_many(&keys, &mut words)?;
            for (&key, word) in keys.iter().zip(&words) {
                word.map_or(Ok(()), |word| self.check(key, PoolOffset::from_word(word), snapshot))?;
            }
        }
        self.ranges.iter().try_for_each(|range| self.validate_range(range, snapshot))
    }

    fn validate_range(&self, range: &KeyRange, snapshot: Snapshot) -> Result<()> {
        let mut entries = Vec::new();
        let mut lower = range.lower.clone();
        loop {
            entries.clear();
            let next = self.state.index.scan_batch(lower.as_ref().map(|key| &key[..]), &mut entries)?;
            for (key, word) in &entries {
                if !range.reaches(key) {
                    return Ok(());
                }
                self.check(key, PoolOffset::from_word(*word), snapshot)?;
            }
            match next {
                Some(key) => lower = Bound::Included(key),
                None => return Ok(()),
            }
        }
    }

    fn check(&self, key: &[u8], offset: PoolOffset, snapshot: Snapshot) -> Result<()> {
        match self.state.newest_at(key, offset)? {
            newest if !snapshot.sees(newest) => Err(Error::ReadConflict {
                state: self.state.id,
                key: KeyBytes::from_slice(key),
                snapshot: snapshot.tells_all_up_to(),
                committed: newest,
            }),
            _ => Ok(()),
        }
    }
}
