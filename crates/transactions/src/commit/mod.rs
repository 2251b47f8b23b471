//! The commit: a write set becomes persistent and visible, over all its states at once.
//!
//! ```text
//!            hold the keys (or the groups), plan (conflicts, memory), assign CTS
//! phase 1    announce CTS per group; clear the bits of slots to be used again              flush, fence
//! phase 2    write versions into free slots; end superseded ones; fill new objects         flush, fence
//! phase 3    set the bits; new objects into the index (each with its allocation)           flush, fence
//! phase 4    LastCTS of all groups := CTS                                                  flush, fence
//!            release the keys; make durable as asked; finish: visible advances
//! ```
//! A commit of updates costs four fences, whatever the number of keys (and one more to make it durable); new
//! and growing keys add those of their own publications, and what goes into a history those of one
//! publication for some twenty keys. `tests/transactions/fences.txt` pins them.
//!
//! On `journal` a commit that only updates and deletes is one publication ([`at_once`]). States on a disk
//! beside persistent memory are made durable between phases 3 and 4; those in volatile memory need nothing
//! ([`crate::context::placement`]).
//!
//! Commits run side by side if their keys differ ([`crate::context::group`]); phase 4 keeps the order of
//! their timestamps in each group ([`crate::visibility::in_flight`]), and one store of `LastCTS` may serve
//! several. Commits of many keys become complete in another way, so that others need not wait for them
//! ([`large`]).
//!
//! # What a crash leaves
//! - In phase 1: announced CTS and fewer dead versions: nothing that a snapshot sees.
//! - In phases 2 and 3: versions and deletions with the announced CTS, above LastCTS: the next open declares
//!   it invalid, so the versions never count and the deletions never happened.
//! - After phase 4 the commit is complete. Commits over several groups set all LastCTS at once
//!   ([`crate::context::directory`]).
//!
//! An error after phase 1 began does the same without a crash: the timestamp is declared invalid,
//! persistently, before anything later can become visible; if that fails too, the context refuses commits
//! from then on.

mod at_once;
mod large;
mod load;
mod locks;
pub(crate) mod plan;

use crate::changes::append::{self, Append, AppendedKeys};
use crate::commit::plan::{Step, Steps, plan};
use crate::context::StateContext;
use crate::context::directory::ListRoom;
use crate::context::group::{Group, STRIPED_KEYS_MAX};
use crate::context::state::State;
use crate::history::EndedVersion;
use crate::locking::validation_sets::ValidatedReads;
use crate::mvcc::chain::{UnlinkedVersions, Version};
use crate::mvcc::object::VersionedObject;
use crate::points::{
    BITS_AFTER_VERSIONS, COMMIT_ANNOUNCED, LAST_CTS_AFTER_BITS, LAST_CTS_AFTER_CHANGES, LAST_CTS_AFTER_DISK,
    LAST_CTS_AFTER_HISTORIES, LAST_CTS_AFTER_VERSIONS, OBJECT_WITH_ITS_KEY, REPLACED_OBJECT_WITH_ITS_KEY,
    VERSIONS_AFTER_ANNOUNCEMENT,
};
use crate::transaction::reads::ReadSet;
use crate::transaction::write_set::WriteSet;
use crate::visibility::active::CommitStamp;
use crate::visibility::in_flight::{CommitsInFlight, LastOfEach, QueuedCommit};
use crate::visibility::snapshot::{Class, Snapshot};
use crate::{Error, GroupId, Protocol, Result, Timestamp, interleave};
use entresol_memory::order::{Fence, OrderPoint, not_yet, step};
use entresol_memory::{Durability, Pool, PoolOffset, Reservation};
use entresol_structures::Inserted;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

pub(crate) use large::DeclaredCommits;
use large::is_declarable;
pub(crate) use load::commit_load;
use locks::CommitLocks;

/// Maximum number of new keys that are put into an index together.
const NEW_KEYS_MAX: usize = 256;

/// Attempts of a commit, a millisecond apart, while commits in flight need all versions of one of its keys.
const VERSION_WAITS_MAX: usize = 200;

/// Maximum number of keys of a quick commit: one of more takes longer than a sync, so others do not wait for
/// it, and it may wait for theirs.
const QUICK_KEYS_MAX: usize = 4096;

/// Number of keys after which a commit checks whether the journal has room.
const STEPS_BETWEEN_WAITS: usize = 64;

/// A commit that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its timestamp; the transaction's snapshot if it wrote nothing.
    pub cts: Timestamp,
    /// Number of states that it wrote.
    pub states: usize,
    /// Number of keys that it wrote.
    pub keys: usize,
}

/// Groups, by number, each once.
pub(crate) type Groups<'g> = SmallVec<[&'g Group; 4]>;

/// The groups of a write set.
pub(crate) fn groups(writes: &WriteSet) -> Groups<'_> {
    let written = writes.states.values().filter(|writes| !writes.keys.is_empty());
    each_once(written.map(|writes| &*writes.state.group))
}

/// The same, and the groups that were read.
fn with_read_groups<'g>(written: &[&'g Group], reads: &'g ReadSet) -> Groups<'g> {
    each_once(written.iter().copied().chain(reads.groups().map(|group| &**group)))
}

fn each_once<'g>(all: impl Iterator<Item = &'g Group>) -> Groups<'g> {
    let mut groups = Groups::new();
    for group in all {
        if let Err(place) = groups.binary_search_by_key(&group.id, |group| group.id) {
            groups.insert(place, group);
        }
    }
    groups
}

/// Arguments of a commit.
pub(crate) struct Request<'t> {
    /// Slot of its transaction among the active ones.
    pub(crate) slot: usize,
    pub(crate) snapshot: Snapshot,
    /// Not empty.
    pub(crate) writes: &'t WriteSet,
    /// Reads of a serializable transaction at its snapshot, which must still hold.
    pub(crate) reads: Option<&'t ReadSet>,
    /// Reads of groups that validate backwards.
    pub(crate) validated: &'t ValidatedReads,
    /// None: it writes volatile states only.
    pub(crate) durability: Option<Durability>,
}

impl<'t> Request<'t> {
    /// The same, without durability if nothing that it writes survives a restart.
    fn as_its_states_need(&self) -> Request<'t> {
        let mut written = self.writes.states.values().filter(|writes| !writes.keys.is_empty());
        let is_durable = written.any(|writes| !writes.state.is_volatile());
        Request { durability: self.durability.filter(|_| is_durable), ..*self }
    }
}

/// Commits a write set, if the reads still hold.
pub(crate) fn commit(context: &StateContext, request: &Request<'_>) -> Result<Commit> {
    let request = &request.as_its_states_need();
    let Request { slot, snapshot, writes, reads, durability, .. } = *request;
    let groups = groups(writes);
    assert!(!groups.is_empty(), "a write set that is committed names a group");
    let states = writes.states.values().filter(|writes| !writes.keys.is_empty()).count();
    let with_read = reads.map(|reads| with_read_groups(&groups, reads));
    let groups_touched = with_read.as_ref().unwrap_or(&groups);
    let disk = disk_of(context, writes);
    let declarable = is_declarable(&groups, writes) && request.validated.is_empty();
    let alone = writes.keys() > STRIPED_KEYS_MAX && !declarable;
    context.make_room_for_ranges()?;
    for attempt in 0..VERSION_WAITS_MAX {
        if attempt > 0 {
            context.wait(|| std::thread::sleep(Duration::from_millis(1)));
        }
        if durability.is_some() {
            context.pool().wait_for_room();
        }
        disk.iter().for_each(|disk| disk.wait_for_room());
        let locks = CommitLocks::acquire(context, groups_touched, writes, reads, alone);
        interleave::at("a commit holds what it names");
        context.check_accepts_commits()?;
        reads.map_or(Ok(()), |reads| reads.validate(snapshot))?;
        let planned = plan(snapshot, writes, &context.active, context.options());
        let Some(mut steps) = planned? else { continue };
        if steps.keys.is_empty() {
            let cts = timestamp_of_empty_commit(context, &groups, snapshot)?;
            context.validation_sets.validate(request.validated)?;
            return Ok(Commit { cts, states, keys: writes.keys() });
        }
        assert!(steps.keys.len() <= writes.keys(), "a key has one step at most");
        let room = context.directory.list_room(context.pool(), groups.len())?;
        let is_durable = durability.is_some();
        let execution = Execution { context, pool: context.pool(), groups: &groups, is_durable, disk };
        let live = std::mem::take(&mut steps.live);
        let stamp = execution.run(slot, steps, room, request, declarable)?;
        let cts = stamp.cts();
        // It is complete, and no snapshot sees it yet.
        live.iter().for_each(|(state, added)| state.live.note(cts, *added));
        drop(locks);
        assert!(cts > snapshot.none_above(), "commit timestamps lie above every snapshot");
        complete(context, stamp, durability)?;
        if logs_changes(writes) {
            context.change_notes.note(cts);
        }
        return Ok(Commit { cts, states, keys: writes.keys() });
    }
    Err(Error::Busy("commits in flight need every version slot of a key"))
}

/// Returns true if one of the written states has a change log.
fn logs_changes(writes: &WriteSet) -> bool {
    writes.states.values().any(|writes| writes.state.logs_changes() && !writes.keys.is_empty())
}

/// The pool on the disk beside the main one, if a state there is written.
fn disk_of<'c>(context: &'c StateContext, writes: &WriteSet) -> Option<&'c Pool> {
    let disk = context.disk_pool()?;
    let mut written = writes.states.values().filter(|writes| !writes.keys.is_empty());
    written.any(|writes| writes.state.is_on_disk_beside()).then_some(disk)
}

/// Timestamp in the order of commits for a commit that found nothing to change.
fn timestamp_of_empty_commit(
    context: &StateContext,
    groups: &[&Group],
    snapshot: Snapshot,
) -> Result<Timestamp> {
    let newest = groups.iter().filter(|group| !group.protocol.reads_snapshots());
    let Some(last) = newest.map(|group| context.directory.last_cts(group.id)).max() else {
        return Ok(snapshot.tells_all_up_to());
    };
    // Without a snapshot, a deletion that it found may come from a commit that is complete and not visible
    // yet. All commits of such groups are slow.
    context.active.wait_until_class_visible(Class::Slow, last.min(context.active.newest_assigned()))?;
    Ok(context.active.visible(Class::Slow))
}

/// Makes a complete commit durable as asked, then visible.
fn complete(context: &StateContext, stamp: CommitStamp<'_>, durability: Option<Durability>) -> Result<()> {
    let cts = stamp.cts();
    if let Some(durability) = durability
        && let Err(source) = context.pool().persist(durability)
    {
        // The stamp is dropped unfinished: nothing from this commit on becomes visible.
        tracing::error!(%cts, %source, "a commit could not be made durable");
        return Err(Error::OutcomeUnknown { cts, source: Box::new(source.into()) });
    }
    stamp.finish();
    context.wait_until_visible(cts)
}

/// Execution of a commit: it enters the queues of commits in flight, and leaves them complete or declared
/// invalid.
struct Execution<'c> {
    context: &'c StateContext,
    pool: &'c Pool,
    groups: &'c [&'c Group],
    /// Set if it writes a state that survives a restart.
    is_durable: bool,
    /// Pool of the states that it writes on the disk beside the main pool.
    disk: Option<&'c Pool>,
}

impl<'c> Execution<'c> {
    /// Runs all phases; returns a complete commit. An error leaves nothing that counts, now or after a crash.
    fn run<'a>(
        &self,
        slot: usize,
        steps: Steps<'a, 'a>,
        room: ListRoom<'_>,
        request: &Request<'_>,
        declarable: bool,
    ) -> Result<CommitStamp<'c>> {
        let writes = request.writes;
        // For reads by time of states with a version history.
        if self.context.keeps_history() {
            self.context.active.catch_up(self.context.clock.now());
        }
        let class = self.class(request);
        if declarable && let Some((declaration, stamp)) = self.declare(slot, class)? {
            return self.run_declared(&declaration, stamp, steps, writes);
        }
        // Timestamps are assigned in the order of validation.
        let turn = if self.is_validated(request) {
            Some(self.context.validation_sets.validate_writer(request.validated)?)
        } else {
            None
        };
        let queues = self.groups.iter().map(|group| &*group.in_flight);
        let (entry, stamp) = CommitsInFlight::enter(queues, || self.next_timestamp(slot, class));
        let cts = stamp.cts();
        debug_assert!(
            self.groups.iter().all(|group| self.context.directory.last_cts(group.id) < cts),
            "LastCTS lies below every commit in flight: {cts}"
        );
        if let Some(turn) = turn {
            turn.enter(cts, writes, || self.context.active.snapshots().oldest(Class::Slow));
        }
        if let Some(words) = self.words_at_once(&steps, writes) {
            return self.run_at_once(words, entry, stamp, steps, writes);
        }
        let appended = steps.appended_keys(cts);
        if let Err(error) = self.write_all(cts, steps).and_then(|()| self.sync_disk()) {
            self.give_up(entry, stamp, room, writes, &appended);
            return Err(error);
        }
        entry.end(|last| self.set_last_cts(last, room))?;
        Ok(stamp)
    }

    /// Class of the commit: slow ones become visible after quick ones, and in the order of timestamps where
    /// commits need not have seen what they overwrite.
    fn class(&self, request: &Request<'_>) -> Class {
        let keys = request.writes.keys();
        let waits_for_device = request.durability == Some(Durability::Sync) || self.disk.is_some();
        match (keys > STRIPED_KEYS_MAX, waits_for_device || keys > QUICK_KEYS_MAX) {
            _ if self.groups.iter().any(|group| !group.protocol.reads_snapshots()) => Class::Slow,
            (false, false) => Class::Quick,
            (false, true) => Class::Slow,
            (true, false) => Class::Large,
            (true, true) => Class::LargeSlow,
        }
    }

    fn is_validated(&self, request: &Request<'_>) -> bool {
        !request.validated.is_empty() || self.groups.iter().any(|group| group.protocol == Protocol::Bocc)
    }

    /// Assigns a timestamp and announces it in all groups: timestamps of a group are announced in their
    /// order.
    fn next_timestamp(&self, slot: usize, class: Class) -> (Timestamp, CommitStamp<'c>) {
        let stamp = self.context.active.stamp(slot, class);
        for group in self.groups {
            step(COMMIT_ANNOUNCED, || self.context.directory.announce(group, stamp.cts()));
        }
        (stamp.cts(), stamp)
    }

    /// Sets `LastCTS` of those of its groups that have a new one, in all at once.
    fn set_last_cts(&self, last: &LastOfEach, room: ListRoom<'_>) -> Result<()> {
        debug_assert_eq!(last.len(), self.groups.len(), "each group has its new LastCTS, or none");
        match &self.last_of_groups(last)[..] {
            [] => Ok(()),
            durable => self.context.directory.set_last_cts(durable, room),
        }
    }

    /// The new `LastCTS` of durable groups; of others it is moved right away, since no recovery reads it.
    fn last_of_groups(&self, last: &LastOfEach) -> SmallVec<[(GroupId, Timestamp); 4]> {
        let mut durable = SmallVec::new();
        for (group, last) in self.groups.iter().zip(last) {
            match *last {
                Some(last) if group.is_durable() => durable.push((group.id, last)),
                Some(last) => self.context.directory.set_volatile_last_cts(group.id, last),
                None => (),
            }
        }
        durable
    }

    /// Sets `LastCTS` too early: a deliberate bug.
    fn set_last_cts_to(&self, cts: Timestamp) -> Result<()> {
        self.set_last_cts(&self.groups.iter().map(|_| Some(cts)).collect(), ListRoom::default())
    }

    /// Makes sure that the writes of a failed commit never count.
    fn give_up(
        &self,
        entry: QueuedCommit<'_>,
        stamp: CommitStamp<'_>,
        room: ListRoom<'_>,
        writes: &WriteSet,
        appended: &AppendedKeys,
    ) {
        let cts = stamp.cts();
        let declare = || self.groups.iter().try_for_each(|group| self.context.declare_invalid(group, cts));
        match entry.fail(declare, |last| self.set_last_cts(last, room)) {
            Ok(()) => stamp.finish(),
            // The stamp is dropped unfinished: commits are refused until the next open declares the range
            // invalid.
            Err(error) => tracing::error!(%cts, %error, "a failed commit could not be declared invalid"),
        }
        self.note_dead(cts, writes, appended);
    }

    /// Notes keys that the failed commit may have left without a version.
    fn note_dead(&self, cts: Timestamp, writes: &WriteSet, appended: &AppendedKeys) {
        append::note_dead(cts, appended);
        for writes in writes.states.values() {
            writes.keys.keys().for_each(|key| writes.state.dead.push(cts, key));
        }
    }

    /// Phases 1 to 3.
    fn write_all<'a>(&self, cts: Timestamp, steps: Steps<'a, 'a>) -> Result<()> {
        self.clear_dead(&steps.keys);
        not_yet(LAST_CTS_AFTER_VERSIONS, || self.set_last_cts_to(cts))?;
        interleave::point();
        self.write(cts, &steps);
        interleave::at("versions are written, and no bits set");
        self.activate(cts, steps)?;
        interleave::point();
        Ok(())
    }

    /// Phase 1, after the announcement.
    fn clear_dead(&self, steps: &[Step<'_, '_>]) {
        for step in steps {
            if let Step::Update { object, dead, .. } = step {
                object.clear(*dead);
            }
        }
        self.fence_at(VERSIONS_AFTER_ANNOUNCEMENT);
        // Pairs with `Transaction::check_still_open`.
        fence(Ordering::Release);
    }

    /// Phase 2.
    fn write(&self, cts: Timestamp, steps: &Steps<'_, '_>) {
        for (number, step) in steps.keys.iter().enumerate() {
            if number % STEPS_BETWEEN_WAITS == STEPS_BETWEEN_WAITS - 1 {
                self.wait_for_room();
            }
            match step {
                Step::Update { object, slot, superseded, value, .. } => {
                    object.write(*slot, cts, value, *superseded);
                }
                Step::Delete { object, current, .. } => object.end(*current, cts),
                Step::Build { state, value, reservation, layout, replaced, .. } => {
                    assert!(layout.bytes() <= reservation.bytes(), "an object fits its memory: {layout:?}");
                    let object = VersionedObject::initialise(state.pool(), reservation.offset(), *layout);
                    object.build(replaced.as_deref().map(|(old, census)| (old, census)), Some((cts, value)));
                }
                Step::Chain { state, value, reservation, before, .. } => {
                    let next = before.as_ref().map_or(PoolOffset::NULL, |(head, _)| *head);
                    assert_ne!(next, reservation.offset(), "a version does not lead to itself");
                    Version::write(state.pool(), reservation.offset(), next.to_word(), cts, *value);
                }
            }
        }
        steps.endings.iter().for_each(|ending| ending.write(cts));
        steps.appends.iter().for_each(|append| append.write(cts));
        self.fence_at(BITS_AFTER_VERSIONS);
    }

    /// Phase 3.
    fn activate<'a>(&self, cts: Timestamp, steps: Steps<'a, 'a>) -> Result<()> {
        for step in &steps.keys {
            if let Step::Update { object, slot, .. } = step {
                object.activate(*slot);
            }
        }
        // First: who finds a newer version in a chain finds this one in the history.
        not_yet(LAST_CTS_AFTER_HISTORIES, || self.set_last_cts_to(cts))?;
        EndedVersion::publish_all(cts, steps.endings)?;
        not_yet(LAST_CTS_AFTER_CHANGES, || self.set_last_cts_to(cts))?;
        Append::publish_all(cts, steps.appends)?;
        let mut remaining = steps.keys.into_iter().peekable();
        while let Some(step) = remaining.next() {
            match step {
                Step::Update { .. } => (),
                Step::Delete { state, key, .. } => state.dead.push(cts, key),
                Step::Build { state, key, reservation, replaced: None, .. } => {
                    let mut new = NewObjects::of(state, key, reservation);
                    while let Some(step) = remaining.next_if(|step| new.takes(step)) {
                        new.push(step);
                    }
                    new.publish()?;
                }
                Step::Build { state, key, reservation, replaced: Some(replaced), .. } => {
                    let (old, _) = &*replaced;
                    let mut publication = state.pool().publication();
                    let offset = publication.allocate(reservation);
                    publication.barrier(OBJECT_WITH_ITS_KEY);
                    publication.free(old.offset());
                    publication.barrier(REPLACED_OBJECT_WITH_ITS_KEY);
                    debug_assert_ne!(offset, old.offset(), "an object is replaced by another one");
                    let before = state.index.replace(key, offset.to_word(), publication)?;
                    if before != Some(old.offset().to_word()) {
                        return Err(unexpected(state.id, old.offset(), before));
                    }
                }
                Step::Chain { state, key, value, reservation, before } => {
                    self.prepend(state, key, reservation, before)?;
                    if value.is_none() {
                        state.dead.push(cts, key);
                    }
                }
            }
        }
        self.fence_at(LAST_CTS_AFTER_BITS);
        Ok(())
    }
}

impl Execution<'_> {
    /// Waits for room in the journals that it writes to.
    fn wait_for_room(&self) {
        if self.is_durable {
            self.pool.wait_for_room();
        }
        self.disk.iter().for_each(|disk| disk.wait_for_room());
    }

    /// Orders the writes before it before those after it: on the medium, if any of them goes there.
    fn fence_at(&self, point: OrderPoint<Fence>) {
        if self.is_durable {
            self.pool.fence_at(point);
        } else {
            fence(Ordering::Release);
        }
        self.disk.iter().for_each(|disk| disk.fence_at(point));
    }

    /// Makes the writes to the disk beside the main pool durable, where `LastCTS` is about to cover them.
    fn sync_disk(&self) -> Result<()> {
        match self.disk {
            Some(disk) => step(LAST_CTS_AFTER_DISK, || Ok(disk.sync()?)),
            None => Ok(()),
        }
    }

    /// Phase 3: the index leads to a version in front of the chain, and versions behind it that no snapshot
    /// needs are freed.
    fn prepend(
        &self,
        state: &State,
        key: &[u8],
        reservation: Reservation<'_>,
        before: Option<(PoolOffset, UnlinkedVersions)>,
    ) -> Result<()> {
        debug_assert!(state.is_chained(), "versions are prepended to chains only: {}", state.id);
        let mut publication = state.pool().publication();
        let version = publication.allocate(reservation);
        let Some((head, pruned)) = before else {
            return match state.index.insert(key, version.to_word(), publication)? {
                Inserted::New => Ok(()),
                Inserted::Exists(other) => Err(unexpected(state.id, version, Some(other))),
            };
        };
        pruned.add_to(&mut publication);
        let replaced = state.index.replace(key, version.to_word(), publication)?;
        if replaced == Some(head.to_word()) { Ok(()) } else { Err(unexpected(state.id, head, replaced)) }
    }
}

/// Objects of new keys of one state, in a row.
struct NewObjects<'a> {
    state: &'a State,
    keys: SmallVec<[&'a [u8]; 4]>,
    reservations: SmallVec<[Option<Reservation<'a>>; 4]>,
}

impl<'a> NewObjects<'a> {
    fn of(state: &'a State, key: &'a [u8], reservation: Reservation<'a>) -> NewObjects<'a> {
        NewObjects { state, keys: smallvec![key], reservations: smallvec![Some(reservation)] }
    }

    /// Returns true if a step makes an object that can be published with these.
    fn takes(&self, step: &Step<'_, '_>) -> bool {
        let is_of_state = |state: &State| std::ptr::eq(state, self.state);
        matches!(step, Step::Build { state, replaced: None, .. } if is_of_state(state))
            && self.keys.len() < NEW_KEYS_MAX
    }

    fn push(&mut self, step: Step<'a, 'a>) {
        if let Step::Build { key, reservation, .. } = step {
            self.keys.push(key);
            self.reservations.push(Some(reservation));
        }
    }

    /// Puts the objects into the index, each with its key: several with one publication.
    fn publish(mut self) -> Result<()> {
        assert_eq!(self.keys.len(), self.reservations.len(), "every new key has its object");
        debug_assert!(
            self.keys.windows(2).all(|pair| pair[0] < pair[1]),
            "the new keys of a state ascend, each once"
        );
        let state = self.state;
        if let ([key], [reservation]) = (&self.keys[..], &mut self.reservations[..]) {
            let mut publication = state.pool().publication();
            let reservation = reservation.take().expect("an object is published once");
            let offset = publication.allocate(reservation);
            publication.barrier(OBJECT_WITH_ITS_KEY);
            return match state.index.insert(key, offset.to_word(), publication)? {
                Inserted::New => Ok(()),
                Inserted::Exists(other) => Err(unexpected(state.id, offset, Some(other))),
            };
        }
        let mut existing = None;
        let reservations = &mut self.reservations;
        state.index.insert_many(
            &self.keys,
            |at, publication| {
                let reservation = reservations[at].take().expect("an object is published once");
                publication.allocate(reservation).to_word()
            },
            |_, other| existing = Some(other),
        )?;
        existing.map_or(Ok(()), |other| Err(unexpected(state.id, PoolOffset::NULL, Some(other))))
    }
}

fn unexpected(state: crate::StateId, expected: PoolOffset, found: Option<u64>) -> Error {
    Error::Corrupt(format!("the index of {state} holds {found:?} in place of {expected}"))
}

#[cfg(test)]
mod tests;
