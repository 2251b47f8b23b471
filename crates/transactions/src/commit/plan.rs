//! The plan of a commit, made before anything is changed.
//!
//! Planning finds conflicts (first committer wins) and reserves all memory that versions need, so the usual
//! failures come while aborting is still free. The caller holds all keys of the write set.
//!
//! Memory: one [`Step`] per written key, so it is bounded by the write set.

use crate::changes::append::{Append, AppendedKeys, ChangeCollector};
use crate::context::state::{LINE_BYTES, State};
use crate::history::{EndedVersion, VersionLocation};
use crate::mvcc::chain::{self, Chain, UnlinkedVersions};
use crate::mvcc::object::{Census, ObjectLayout, VERSION_SLOTS_MAX, VersionedObject};
use crate::points::{OLD_VERSIONS_KEPT, VERSION_IN_A_FREE_SLOT};
use crate::protocol::ContextOptions;
use crate::transaction::write_set::{WriteSet, WrittenState};
use crate::visibility::active::{ActiveTransactions, Snapshots};
use crate::visibility::snapshot::Snapshot;
use crate::{Error, Protocol, Result, Timestamp};
use entresol_memory::order;
use entresol_memory::{PoolOffset, Reservation};
use entresol_structures::{KeyBytes, OrderedIndex};
use smallvec::SmallVec;
use std::sync::Arc;

/// Number of keys that are looked up together.
pub(crate) const LOOKUP_KEYS: usize = 64;

/// The change of one key.
pub(crate) enum Step<'a, 'p> {
    /// Write a version into a slot of the object, in place.
    Update {
        object: VersionedObject<'p>,
        /// Slots to take out of use first; `slot` is among them or unused.
        dead: u64,
        slot: usize,
        superseded: Option<usize>,
        value: &'a [u8],
    },
    /// End the current version.
    Delete { object: VersionedObject<'p>, current: usize, state: &'a State, key: &'a [u8] },
    /// Put a new object into the index: of a new key, or in place of one that has no room.
    Build {
        state: &'a State,
        key: &'a [u8],
        value: &'a [u8],
        reservation: Reservation<'p>,
        layout: ObjectLayout,
        replaced: Option<ReplacedObject<'p>>,
    },
    /// Put a version (None: a deletion) in front of the chain of the key, if there is one, and unlink
    /// versions that no snapshot needs.
    Chain {
        state: &'a State,
        key: &'a [u8],
        value: Option<&'a [u8]>,
        reservation: Reservation<'p>,
        before: Option<(PoolOffset, UnlinkedVersions)>,
    },
}

/// All steps of a commit.
pub(crate) struct Steps<'a, 'p> {
    /// One for each key that changes.
    pub(crate) keys: Vec<Step<'a, 'p>>,
    /// Versions that end and go into the histories of their states: those of one history in a row, their keys
    /// ascending.
    pub(crate) endings: Vec<EndedVersion<'p>>,
    /// Parts of change logs: those of one log in a row.
    pub(crate) appends: Vec<Append<'p>>,
    /// Keys that get a value, less those that lose it, of each counted state in a row.
    pub(crate) live: SmallVec<[(&'a State, i64); 2]>,
}

impl<'a> Steps<'a, '_> {
    /// Counts the keys that the steps of a state behind the first `planned` add or delete.
    #[inline]
    fn count_live(&mut self, state: &'a State, planned: usize) {
        if !state.live.is_counted() {
            return;
        }
        let added: i64 = self.keys[planned..].iter().map(keys_added_by).sum();
        match self.live.last_mut() {
            _ if added == 0 => (),
            Some((of, sum)) if std::ptr::eq(*of, state) => *sum += added,
            _ => self.live.push((state, added)),
        }
    }
}

impl Steps<'_, '_> {
    /// Keys that the commit at `cts` adds to change logs.
    pub(crate) fn appended_keys(&self, cts: Timestamp) -> AppendedKeys {
        self.appends.iter().map(|append| append.key(cts)).collect()
    }
}

/// An object that is replaced by another one; boxed, so that the steps of updates stay small.
type ReplacedObject<'p> = Box<(VersionedObject<'p>, Census)>;

/// Outcome of planning a key.
#[derive(PartialEq, Eq)]
enum PlanOutcome {
    Yes,
    TooManyVersions,
}

/// A written key: its state, the key, and the new value (None: a deletion).
type PlannedWrite<'a> = (&'a State, &'a KeyBytes, Option<&'a [u8]>);

/// Place of a written key in its state.
#[derive(Clone, Copy)]
enum KeyPlace {
    /// Its object, or chain of versions.
    Versions(PoolOffset),
    /// None: the key is new.
    New,
    /// None: the key is one of many that are appended.
    Appended,
}

/// Finds keys that are new because they are above all others of their state: the caller of the plan holds
/// them, so no other commit adds them.
#[derive(Default)]
struct BehindAll<'a> {
    /// State that was looked at last, and its greatest key then.
    last: Option<(&'a State, Option<KeyBytes>)>,
}

impl<'a> BehindAll<'a> {
    /// Returns true if all of many keys, which ascend, are above the others of one state. Few keys only behind many of the same.
    fn has(&mut self, wanted: &[PlannedWrite<'a>]) -> Result<bool> {
        let (Some((state, first, _)), Some((last_state, ..))) = (wanted.first(), wanted.last()) else {
            return Ok(false);
        };
        let is_known = self.last.as_ref().is_some_and(|(of, _)| std::ptr::eq(*of, *state));
        if (wanted.len() < LOOKUP_KEYS && !is_known) || !std::ptr::eq(*state, *last_state) {
            return Ok(false);
        }
        let greatest = match &mut self.last {
            Some((of, greatest)) if std::ptr::eq(*of, *state) => greatest,
            last => &mut last.insert((*state, state.index.last_key()?)).1,
        };
        Ok(greatest.as_ref().is_none_or(|greatest| greatest < *first))
    }
}

/// Plans a write set; None if a key has as many versions as it can have that transactions need which begin
/// now: commits in flight are about to end them.
pub(crate) fn plan<'a>(
    snapshot: Snapshot,
    writes: &'a WriteSet,
    active: &ActiveTransactions,
    options: &ContextOptions,
) -> Result<Option<Steps<'a, 'a>>> {
    let snapshots = &active.snapshots();
    let planner = Planner { snapshot, snapshots, newest_only: snapshots.newest_only(), active, options };
    let mut steps = Steps {
        keys: Vec::with_capacity(writes.keys()),
        endings: Vec::new(),
        appends: Vec::new(),
        live: SmallVec::new(),
    };
    // Before any error about dropped states: a writer that was refused may have written one of them for good
    // reason.
    for writes in writes.states.values() {
        writes.keys.keys().next().map_or(Ok(()), |key| writes.state.check_writer(snapshot, key))?;
    }
    if let Some(dropped) = writes.states.values().find(|writes| writes.state.is_dropped()) {
        return Err(Error::NoSuchState(dropped.state.id));
    }
    Ok((planner.plan_all(writes, &mut steps)? == PlanOutcome::Yes).then_some(steps))
}

/// Time, in nanoseconds, in which a key must have got fewer versions than a small object holds for its object
/// to be made small again: one that is written all the time would grow again at once.
pub(crate) const CALM_NS: u64 = 1_000_000_000;

/// Keys that get a value by a step, less those that lose it. Chains of versions are not counted.
fn keys_added_by(step: &Step<'_, '_>) -> i64 {
    match step {
        Step::Update { superseded: None, .. } | Step::Build { replaced: None, .. } => 1,
        Step::Build { replaced: Some(replaced), .. } => i64::from(replaced.1.current.is_none()),
        Step::Delete { .. } => -1,
        Step::Update { superseded: Some(_), .. } | Step::Chain { .. } => 0,
    }
}

/// The version that a step ends.
fn ended_by<'p>(state: &'p State, step: &Step<'_, 'p>) -> Option<VersionLocation<'p>> {
    match step {
        Step::Update { object, superseded, .. } => {
            superseded.map(|slot| VersionLocation::Slot(*object, slot))
        }
        Step::Delete { object, current, .. } => Some(VersionLocation::Slot(*object, *current)),
        Step::Build { replaced: Some(replaced), .. } => {
            let (object, census) = &**replaced;
            census.current.map(|slot| VersionLocation::Slot(*object, slot))
        }
        Step::Chain { before: Some((head, _)), .. } => {
            VersionLocation::of_chain(state.pool(), *head, &state.group.invalid)
        }
        Step::Build { replaced: None, .. } | Step::Chain { before: None, .. } => None,
    }
}

/// Starts to load the objects of all keys from the disk, where pools are larger than their memory.
fn read_ahead(wanted: &[PlannedWrite<'_>], words: &[Option<u64>]) {
    let mut rest = 0;
    for run in wanted.chunk_by(|(state, ..), (next, ..)| Arc::ptr_eq(state.pool(), next.pool())) {
        let of_run = &words[rest..rest + run.len()];
        run[0].0.pool().read_ahead(of_run.iter().flatten().copied().map(PoolOffset::from_word));
        rest += run.len();
    }
}

struct Planner<'s> {
    snapshot: Snapshot,
    snapshots: &'s Snapshots,
    /// Of states that are not read at snapshots.
    newest_only: Snapshots,
    active: &'s ActiveTransactions,
    options: &'s ContextOptions,
}

impl Planner<'_> {
    /// Looks up keys of all states together: while one is waited for the others are on their way.
    fn plan_all<'a>(&self, writes: &'a WriteSet, steps: &mut Steps<'a, 'a>) -> Result<PlanOutcome> {
        let room = writes.keys().min(LOOKUP_KEYS);
        let (mut wanted, mut words) =
            (Vec::<PlannedWrite<'a>>::with_capacity(room), Vec::with_capacity(room));
        let of_state =
            |writes: &'a WrittenState| writes.keys.iter().map(|(key, value)| (&*writes.state, key, value));
        let mut remaining = writes.states.values().flat_map(of_state);
        let (mut behind, mut changes) = (BehindAll::default(), ChangeCollector::default());
        loop {
            wanted.clear();
            wanted.extend(remaining.by_ref().take(LOOKUP_KEYS));
            if wanted.is_empty() {
                steps.appends = changes.finish()?;
                return Ok(PlanOutcome::Yes);
            }
            let are_appended = behind.has(&wanted)?;
            if are_appended {
                wanted.first().inspect(|(state, ..)| state.rewritten.count_appended(wanted.len()));
                words.clear();
                words.resize(wanted.len(), None);
            } else {
                let lookups = wanted.iter().map(|&(state, key, _)| (&state.index, &key[..]));
                OrderedIndex::get_many_of(lookups, &mut words)?;
            }
            assert_eq!(words.len(), wanted.len(), "the index answers every key");
            read_ahead(&wanted, &words);
            for (&(state, ..), &word) in wanted.iter().zip(&words) {
                let Some(offset) = word.map(PoolOffset::from_word) else { continue };
                state.pool().prefetch(offset);
                // Most values are short, and lie there.
                state.pool().prefetch(offset.plus(LINE_BYTES));
            }
            let absent = if are_appended { KeyPlace::Appended } else { KeyPlace::New };
            for (&(state, key, value), &word) in wanted.iter().zip(&words) {
                let place = word.map_or(absent, |word| KeyPlace::Versions(PoolOffset::from_word(word)));
                let planned = steps.keys.len();
                if self.plan_key(state, key, value, place, &mut steps.keys)? == PlanOutcome::TooManyVersions {
                    return Ok(PlanOutcome::TooManyVersions);
                }
                steps.count_live(state, planned);
                let history = state.history();
                if let [step] = &steps.keys[planned..]
                    && (history.is_some() || state.logs_changes())
                {
                    let ended = ended_by(state, step);
                    changes.add(state, key, value, (ended.as_ref(), &writes.overlaid))?;
                    if let (Some(history), Some(ended)) = (history, ended) {
                        steps.endings.push(EndedVersion::plan(state, &history, key, ended)?);
                    }
                }
            }
        }
    }

    fn plan_key<'a>(
        &self,
        state: &'a State,
        key: &'a [u8],
        value: Option<&'a [u8]>,
        place: KeyPlace,
        steps: &mut Vec<Step<'a, 'a>>,
    ) -> Result<PlanOutcome> {
        if state.is_chained() {
            return self.plan_chained(state, key, value, place, steps);
        }
        let KeyPlace::Versions(offset) = place else {
            let Some(value) = value else { return Ok(PlanOutcome::Yes) };
            let is_single =
                matches!(place, KeyPlace::Appended) && state.appends_single_versions(self.options);
            let layout = if is_single {
                ObjectLayout::of_one(value.len())
            } else {
                ObjectLayout::for_new(value.len(), state.version_slots(self.options))
            };
            return self.build(state, key, value, (layout, None), steps);
        };
        let Some(object) = VersionedObject::try_open(state.pool(), offset) else {
            return Err(state.damaged(key, "a damaged MVCC object"));
        };
        let snapshots = if state.protocol().reads_snapshots() { self.snapshots } else { &self.newest_only };
        let census = object.census(&state.group.invalid, snapshots);
        debug_assert!(
            census.needed & census.dead == 0 && census.old & !census.needed == 0,
            "a used slot is needed or dead, and old ones are needed: {census:?}"
        );
        debug_assert!(
            census.current.is_none_or(|current| census.needed & (1 << current) != 0),
            "the current version is needed: {census:?}"
        );
        self.first_committer_wins(state, key, census.newest)?;
        let Some(value) = value else {
            steps.extend(census.current.map(|current| Step::Delete { object, current, state, key }));
            return Ok(PlanOutcome::Yes);
        };
        if let Some(layout) = self.shrunk(&object, &census, (value.len(), state.version_slots(self.options)))
        {
            return self.build(state, key, value, (layout, Some(Box::new((object, census)))), steps);
        }
        // With room for the version that this one ends.
        if object.holds(value.len())
            && census.needed.count_ones() <= 1
            && object.layout().slots() > census.needed.count_ones() as usize
            && let Some(reservation) = state.pool().reserve_before(offset, object.layout().bytes())?
        {
            let layout = object.layout().filling(reservation.bytes());
            let replaced = Some(Box::new((object, census)) as ReplacedObject<'_>);
            steps.push(Step::Build { state, key, value, reservation, layout, replaced });
            return Ok(PlanOutcome::Yes);
        }
        let free = object.free_slot(&census).map(|slot| (slot, census.dead, census.current));
        let current = census.current.map(|slot| (slot, 1 << slot, None));
        if let Some((slot, dead, superseded)) = order::value(free, current, VERSION_IN_A_FREE_SLOT)
            && object.holds(value.len())
        {
            debug_assert!(
                superseded != Some(slot) && slot < object.layout().slots(),
                "a version goes beside the one that it ends: slot {slot}"
            );
            steps.push(Step::Update { object, dead, slot, superseded, value });
            return Ok(PlanOutcome::Yes);
        }
        let slots_max = match state.protocol() {
            // Commits in flight may supersede each other before any of them is visible.
            Protocol::Bocc => VERSION_SLOTS_MAX,
            _ => self.options.version_slots_max.max(state.version_slots(self.options)),
        };
        if object.layout().slots() == 1 {
            state.rewritten.count_rewritten();
        }
        let grown =
            |versions: u64| object.layout().grown(versions.count_ones() as usize + 1, value.len(), slots_max);
        if let Some(layout) = grown(census.needed) {
            return self.build(state, key, value, (layout, Some(Box::new((object, census)))), steps);
        }
        let recent = census.needed & !census.old;
        let Some(layout) = grown(recent) else { return Ok(PlanOutcome::TooManyVersions) };
        let kept = order::value(census.old, 0, OLD_VERSIONS_KEPT);
        let copies = object.copies(kept, &state.group.invalid);
        state.old_versions.keep(state.id, key, copies, snapshots)?;
        let replaced = Box::new((object, Census { needed: recent, ..census }));
        self.build(state, key, value, (layout, Some(replaced)), steps)
    }

    /// A smaller layout for the object of a key that is written rarely, and has grown for snapshots that have
    /// ended.
    fn shrunk(
        &self,
        object: &VersionedObject<'_>,
        census: &Census,
        (value_bytes, slots): (usize, usize),
    ) -> Option<ObjectLayout> {
        if object.layout().slots() <= slots || census.needed.count_ones() > 1 {
            return None;
        }
        let recently = self.active.newest_assigned().minus(CALM_NS);
        if object.versions_after(recently) >= slots {
            return None;
        }
        let kept_bytes =
            (census.needed != 0).then(|| object.value_bytes(census.needed.trailing_zeros() as usize));
        let layout = ObjectLayout::for_new(value_bytes.max(kept_bytes.unwrap_or(0)), slots);
        Some(layout.with_slots(census.needed.count_ones() as usize + 1))
    }

    /// Checks for conflicts at a snapshot; elsewhere locks or validation ensure that the last one to commit
    /// knew what it overwrote.
    fn first_committer_wins(&self, state: &State, key: &[u8], newest: Timestamp) -> Result<()> {
        if self.snapshot.sees(newest) || !state.protocol().reads_snapshots() {
            return Ok(());
        }
        Err(Error::Conflict {
            state: state.id,
            key: KeyBytes::from_slice(key),
            snapshot: self.snapshot.tells_all_up_to(),
            committed: newest,
        })
    }

    fn plan_chained<'a>(
        &self,
        state: &'a State,
        key: &'a [u8],
        value: Option<&'a [u8]>,
        place: KeyPlace,
        steps: &mut Vec<Step<'a, 'a>>,
    ) -> Result<PlanOutcome> {
        let (mut lives, mut before) = (false, None);
        if let KeyPlace::Versions(offset) = place {
            let census = Chain::at(state.pool(), offset).census(&state.group.invalid, self.snapshots);
            let census = census.map_err(|_| state.damaged(key, "a damaged chain of versions"))?;
            self.first_committer_wins(state, key, census.newest)?;
            lives = census.lives;
            before = Some((offset, census.pruned));
        }
        if value.is_none() && !lives {
            return Ok(PlanOutcome::Yes);
        }
        let reservation = state.pool().reserve(chain::version_bytes(value))?;
        steps.push(Step::Chain { state, key, value, reservation, before });
        Ok(PlanOutcome::Yes)
    }

    fn build<'a>(
        &self,
        state: &'a State,
        key: &'a [u8],
        value: &'a [u8],
        (layout, replaced): (ObjectLayout, Option<ReplacedObject<'a>>),
        steps: &mut Vec<Step<'a, 'a>>,
    ) -> Result<PlanOutcome> {
        debug_assert!(
            replaced.as_ref().is_none_or(|replaced| layout.slots() > replaced.1.needed.count_ones() as usize),
            "an object has room for the versions that are needed and the new one: {layout:?}"
        );
        let reservation = state.pool().reserve(layout.bytes())?;
        let layout = layout.filling(reservation.bytes());
        steps.push(Step::Build { state, key, value, reservation, layout, replaced });
        Ok(PlanOutcome::Yes)
    }
}
