//! Recovery of a state context when it is opened (dissertation 5.5).
//!
//! A group whose announced CTS lies above its LastCTS had commits in flight when the last run ended; the
//! range in between is declared invalid. That is all: no row is read, so the time depends on the number of
//! groups and states, not of rows. The indexes of large states are opened while transactions run
//! ([`crate::recovery::opening`]).
//!
//! The one exception is bounded in number: when the list of invalid ranges is more than half full, the states
//! of its groups are scrubbed once, and the list is empty again. A crash in the middle leaves the ranges in
//! place and a part of the objects scrubbed, which means the same; the next open starts over.

pub(crate) mod opened_states;
pub(crate) mod opening;

use crate::context::StateContext;
use crate::context::directory::{Directory, INVALID_RANGES_MAX, StateEntry};
use crate::context::group::Group;
use crate::context::placement::{DiskPool, PoolRole};
use crate::context::state::State;
use crate::locking::stripes::Stripes;
use crate::mvcc::chain::Chain;
use crate::mvcc::object::VersionedObject;
use crate::points::{
    ANNOUNCED_AT_OPEN, ANNOUNCED_NOT_REUSED, DURABLE_GROUPS_RECOVERED, INVALID_RANGE_NOTED,
    RANGES_GO_AFTER_TRACES,
};
use crate::{GroupId, Result, Timestamp};
use entresol_memory::order::{step, value};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::OrderedIndex;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Findings and actions of opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last run closed the pool and left no commit in flight.
    pub clean: bool,
    /// Groups in which a commit was in flight: their timestamps were declared invalid now.
    pub commits_undone: usize,
    /// Invalid ranges of timestamps that readers have to check.
    pub invalid_ranges: usize,
    /// State groups found.
    pub groups: usize,
    /// States found.
    pub states: usize,
    /// States found that have no durable copy: they are empty now.
    pub states_emptied: usize,
    /// States found whose destruction goes on.
    pub states_dropping: usize,
    /// Parts of indexes that are left to be opened while transactions run; see
    /// [`crate::StateContext::opening`].
    pub index_parts_left: u64,
    /// Objects repaired because the list of invalid ranges was getting full.
    pub objects_scrubbed: u64,
    /// Duration in microseconds.
    pub duration_us: u64,
}

/// The groups of the directory with their invalid timestamps.
pub(crate) struct RecoveredGroups {
    pub(crate) groups: Vec<Arc<Group>>,
    /// Groups whose objects must be scrubbed before the first transaction.
    pub(crate) to_scrub: BTreeSet<GroupId>,
    pub(crate) commits_undone: usize,
    /// Above every timestamp that is stored anywhere.
    pub(crate) next: Timestamp,
}

/// Loads groups and ranges, and declares invalid what unfinished commits left.
pub(crate) fn recover_groups(
    directory: &Directory,
    stripes: &Arc<Stripes>,
    now_ns: u64,
) -> Result<RecoveredGroups> {
    let mut recovered = RecoveredGroups {
        groups: Vec::new(),
        to_scrub: BTreeSet::new(),
        commits_undone: 0,
        next: Timestamp::from_nanoseconds(now_ns).max(Timestamp::START.next()),
    };
    for id in directory.groups() {
        recovered.groups.push(Arc::new(Group::new(id, directory.protocol(id)?, stripes)));
    }
    debug_assert!(recovered.groups.is_sorted_by_key(|group| group.id), "the directory lists groups in order");
    // The versions that they hid are gone.
    let volatile = only_volatile(directory)?;
    directory.remove_ranges_of(&volatile)?;
    let ranges = directory.invalid_ranges()?;
    let crowded = ranges.len() > INVALID_RANGES_MAX / 2;
    for range in ranges {
        let found = recovered.groups.binary_search_by_key(&range.group, |group| group.id);
        let group = found.map(|at| &recovered.groups[at]).map_err(|_| {
            crate::Error::Corrupt(format!(
                "invalid range {} names {}, which does not exist",
                range.entry, range.group
            ))
        })?;
        let added = group.invalid.add(range.from, range.to);
        assert!(added, "the persistent list is shorter than the volatile one may be");
        recovered.next = recovered.next.max(range.to.next());
        if crowded {
            recovered.to_scrub.insert(range.group);
        }
    }
    for group in &recovered.groups {
        let (last, announced) = (directory.last_cts(group.id), directory.announced(group.id));
        let announced = value(announced, last, ANNOUNCED_AT_OPEN);
        recovered.next = recovered.next.max(last.next());
        step(ANNOUNCED_NOT_REUSED, || recovered.next = recovered.next.max(announced.next()));
        if announced <= last || group.invalid.contains(announced) || volatile.contains(&group.id) {
            continue;
        }
        recovered.commits_undone += 1;
        let ranges = step(INVALID_RANGE_NOTED, || directory.add_invalid_range(group.id, last, announced))?;
        if ranges > INVALID_RANGES_MAX {
            // No room: without the range, the scrub has to be through before the first commit.
            recovered.to_scrub.insert(group.id);
        }
        let added = group.invalid.add(last, announced);
        assert!(added, "the persistent list is shorter than the volatile one may be");
    }
    let all_below = || recovered.groups.iter().all(|group| directory.last_cts(group.id) < recovered.next);
    debug_assert!(all_below(), "a commit of the last run has a timestamp from {} on", recovered.next);
    Ok(recovered)
}

/// The groups that have states, all of them volatile: no version of theirs is left.
fn only_volatile(directory: &Directory) -> Result<BTreeSet<GroupId>> {
    let states = directory.states()?;
    let of = |role| move |state: &StateEntry| (state.pool == role).then_some(state.group);
    let of_durable = [PoolRole::Main, PoolRole::Disk].map(|role| states.iter().filter_map(of(role)));
    let durable: BTreeSet<GroupId> = of_durable.into_iter().flatten().collect();
    let durable = value(durable, BTreeSet::new(), DURABLE_GROUPS_RECOVERED);
    let volatile = states.iter().filter_map(of(PoolRole::Volatile));
    Ok(volatile.filter(|group| !durable.contains(group)).collect())
}

/// Removes every trace of invalid timestamps from the states of one group, then its ranges. The caller holds
/// the group exclusively, or has the context to itself. Returns the number of objects repaired.
pub(crate) fn scrub_group<'s>(
    pool: &Pool,
    disk: Option<&DiskPool>,
    directory: &Directory,
    group: &Group,
    states: impl Iterator<Item = &'s Arc<State>>,
) -> Result<u64> {
    debug_assert!(!group.invalid.is_empty(), "{} has invalid timestamps whose traces are removed", group.id);
    let mut scrubbed = 0;
    for state in states.filter(|state| state.group.id == group.id) {
        let scrub = |offset| {
            if state.is_chained() {
                Chain::at(state.pool(), offset).scrub(&group.invalid)
            } else {
                // Damaged objects are reported when they are read; they hide nothing that a reader could see.
                VersionedObject::try_open(state.pool(), offset)
                    .is_some_and(|object| object.scrub(&group.invalid))
            }
        };
        for_each_object(state, |offset| scrubbed += u64::from(scrub(offset)))?;
        scrubbed += StateContext::scrub_history(state)?;
    }
    // Recovery rule: a range goes only after everything that it hides.
    pool.fence_at(RANGES_GO_AFTER_TRACES);
    pool.check_healthy()?;
    if let Some(disk) = disk {
        disk.pool().sync()?;
    }
    let mut ranges = directory.invalid_ranges()?;
    ranges.retain(|range| range.group == group.id);
    debug_assert!(
        ranges.iter().all(|range| group.invalid.contains(range.to)),
        "{} has a range that the scrub did not know",
        group.id
    );
    directory.remove_invalid_ranges(&ranges);
    Ok(scrubbed)
}

fn for_each_object(state: &State, mut f: impl FnMut(PoolOffset)) -> Result<()> {
    for_each_entry(&state.index, |_, offset| f(offset))
}

/// All entries of an index, in order.
pub(crate) fn for_each_entry(index: &OrderedIndex, mut f: impl FnMut(&[u8], PoolOffset)) -> Result<()> {
    let mut entries = Vec::new();
    let mut from = None;
    loop {
        let lower = from
            .as_ref()
            .map_or(Bound::Unbounded, |key: &entresol_structures::KeyBytes| Bound::Included(&key[..]));
        entries.clear();
        let next = index.scan_batch(lower, &mut entries)?;
        entries.iter().for_each(|(key, word)| f(key, PoolOffset::from_word(*word)));
        match next {
            Some(key) => from = Some(key),
            None => return Ok(()),
        }
    }
}
