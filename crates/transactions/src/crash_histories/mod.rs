//! Operation histories with which the crash checker checks commits: for this crate's tests, for the crates
//! above, and for the lab.
//!
//! After every crash: reported commits are there, over all states; unreported ones are there completely or
//! not at all; what a crash undid stays undone after later commits and a vacuum; every object is reachable or
//! free.

mod changes;
mod directory;
mod large;
mod load;
mod past;
mod side_by_side;
mod simulated_disk;
mod tiers;

use crate::commit::plan::{CALM_NS, LOOKUP_KEYS};
use crate::context::directory::StateEntry;
use crate::context::placement::PoolRole;
use crate::mvcc::chain::Chain;
use crate::{ContextOptions, Error, GroupId, KeyRange, Result, State, StateContext, StateId, Transaction};
use entresol_memory::crash::{CrashOptions, CrashReport, Model, Recorder, check_at};
use entresol_memory::{Durability, Env, Pool, PoolOffset};
use entresol_structures::{KeyWidth, OrderedIndex};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

pub use changes::check_changes;
pub use directory::check_directory;
pub use large::check_large_commits;
pub use load::check_loads;
pub use past::check_past;
pub use side_by_side::check_side_by_side;
pub use tiers::{check_disk, check_volatile};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Changes = Vec<(u64, Option<Vec<u8>>)>;

/// The rows of the two states; none before both are there.
#[derive(Clone, PartialEq, Debug, Default)]
struct Content(Option<[Rows; 2]>);

#[derive(Clone, Debug)]
enum Operation {
    /// Makes the two states.
    Create,
    /// Commits the same changes to both states.
    Commit(Changes),
}

impl Model for Content {
    type Operation = Operation;

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create => self.0 = Some(Default::default()),
            Operation::Commit(changes) => {
                for rows in self.0.iter_mut().flatten() {
                    for (number, value) in changes {
                        match value {
                            Some(value) => drop(rows.insert(key(*number), value.clone())),
                            None => drop(rows.remove(&key(*number))),
                        }
                    }
                }
            }
        }
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?} in place of {self:?}")
    }
}

/// Distribution of the states over groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Both states in one group.
    One,
    /// Each state in a group of its own, so that a commit is atomic over two groups.
    Two,
}

/// Keys committed after a crash: one of the history and another one.
const LATER_KEYS: [u64; 2] = [1, 1000];
const LATER_VALUE: &[u8] = b"after the crash";
/// Few keys, so that slots and objects are used again.
const KEYS: u64 = 6;
/// Keys that a commit appends, as many as it takes to be seen as such; and the first of them, above the later ones.
const APPENDED: u64 = LOOKUP_KEYS as u64;
const APPENDED_FROM: u64 = 2000;

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Runs `rounds` commits of one writer beside readers, vacuums and a state that is created and dropped.
pub fn check_commits(
    groups: Groups,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    check_commits_with(groups, ContextOptions::default(), rounds, options)
}

/// The same with a protocol, and a number of version slots.
pub fn check_commits_with(
    groups: Groups,
    context_options: ContextOptions,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    check_recorded(
        options,
        move |pool, recorder| {
            let context = StateContext::open_or_create_with(Arc::clone(pool), context_options)?;
            run(&context, recorder, groups, rounds, seed)
        },
        verify,
    )
}

/// Time at which the traces of what a crash undid are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubs {
    /// Before the first commit: the announcement of what was undone is still the newest timestamp.
    First,
    /// Behind a commit: `LastCTS` has passed what was undone, so that only its range hides it.
    BehindCommit,
}

/// The same, where all that recovers also removes the traces of what a crash undid, as it does when the list of
/// invalid ranges is nearly full.
pub fn check_scrubs(
    context_options: ContextOptions,
    scrubs: Scrubs,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    let run = move |pool: &Arc<Pool>, recorder: &Recorder<Content>| {
        let context = StateContext::open_or_create_with(Arc::clone(pool), context_options)?;
        run(&context, recorder, Groups::One, rounds, seed)
    };
    let verify = match scrubs {
        Scrubs::First => scrub_and_verify,
        Scrubs::BehindCommit => commit_scrub_and_verify,
    };
    check_recorded(options, run, verify)
}

/// Removes all traces, then verifies. The later commits are those of this context: another would declare the
/// timestamps invalid again.
fn scrub_and_verify(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    verify_scrubbed(&context, legal)
}

/// The same, with a commit first: from there on an open does not declare the timestamps invalid again.
fn commit_scrub_and_verify(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    if let [Some(first), Some(second)] = [0, 1].map(|id| context.state(StateId(id))) {
        let writer = context.begin().map_err(text)?;
        let changes = vec![(LATER_KEYS[0], Some(LATER_VALUE.to_vec()))];
        write(&writer, &[first, second], &changes).map_err(text)?;
        writer.commit(Durability::Sync).map_err(text)?;
    }
    verify_scrubbed(&context, legal)
}

fn verify_scrubbed(context: &Arc<StateContext>, legal: &[&Content]) -> std::result::Result<(), String> {
    context.remove_traces().map_err(|error| error.to_string())?;
    let ranges = context.directory.invalid_ranges().map_err(|error| error.to_string())?;
    if !ranges.is_empty() {
        return Err(format!("{} ranges are left", ranges.len()));
    }
    verify_context(context, legal)
}

/// The same of commits that are one publication, as small ones on `journal` are.
pub fn check_commits_at_once(
    groups: Groups,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    check_recorded(
        options,
        move |pool, recorder| {
            let context = StateContext::open_or_create(Arc::clone(pool))?;
            context.commit_at_once();
            run(&context, recorder, groups, rounds, seed)
        },
        verify,
    )
}

/// The same of commits that append many keys, whose objects have room for one version, and of the updates that outgrow them.
pub fn check_appends(
    groups: Groups,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    let run = move |pool: &Arc<Pool>, recorder: &Recorder<Content>| {
        let context = StateContext::open_or_create(Arc::clone(pool))?;
        let (states, _) = create_states(&context, recorder, groups)?;
        let random = Env::simulated(seed);
        for round in 0..rounds {
            let first = APPENDED_FROM + round * APPENDED;
            let appended = (first..first + APPENDED).map(|at| (at, Some(vec![round as u8; 20])));
            let of_appended = |changes: Changes| -> Changes {
                changes.into_iter().map(|(at, value)| (first + at, value)).collect()
            };
            let rewritten = of_appended(random_changes(&random, round));
            let again = of_appended(random_changes(&random, round + 1));
            for changes in [appended.collect(), rewritten, again] {
                let transaction = context.begin()?;
                write(&transaction, &states, &changes)?;
                recorder.run(Operation::Commit(changes), || transaction.commit(Durability::Sync))?;
            }
        }
        context.vacuum()?;
        Ok(())
    };
    check_recorded(options, run, verify)
}

/// Checks with `verify` each crash state of what `run` does: operations that have returned may be there, or
/// those and the one in flight.
fn check_recorded<M: Model + Default>(
    options: &CrashOptions,
    run: impl FnOnce(&Arc<Pool>, &Recorder<M>) -> Result<()>,
    verify: fn(&Arc<Pool>, &[&M]) -> std::result::Result<(), String>,
) -> entresol_memory::Result<CrashReport> {
    let recorder = Recorder::new(M::default());
    let recorded = Arc::clone(&recorder);
    let history = move |pool: &Arc<Pool>| {
        run(pool, &recorded).map_err(|error| entresol_memory::Error::Invalid(error.to_string()))
    };
    check_at(options, history, recorder.legal_contents(), move |pool, legal| {
        let legal = [Some(&legal.returned), legal.with_next.as_ref().map(|(_, after)| after)];
        let legal: Vec<&M> = legal.into_iter().flatten().map(|content| &**content).collect();
        verify(pool, &legal)
    })
}

fn run(
    context: &Arc<StateContext>,
    recorder: &Recorder<Content>,
    groups: Groups,
    rounds: u64,
    seed: u64,
) -> Result<()> {
    let (states, group) = create_states(context, recorder, groups)?;
    let random = Env::simulated(seed);
    let mut reader = None;
    for round in 0..rounds {
        if round % 5 == 1 {
            // From here on versions are needed, objects grow.
            reader = Some(context.begin()?);
        }
        let changes = random_changes(&random, round);
        let transaction = context.begin()?;
        write(&transaction, &states, &changes)?;
        recorder.run(Operation::Commit(changes), || transaction.commit(Durability::Sync))?;
        if round % 5 == 4 {
            drop(reader.take());
            context.vacuum()?;
            // Time passes: objects that have grown become small again when they are written.
            context.active.catch_up(context.active.newest_assigned().plus(2 * CALM_NS));
        }
        if round % 10 == 7 {
            create_and_drop(context, group)?;
        }
    }
    Ok(())
}

/// The two states, and the group of the first.
fn create_states(
    context: &StateContext,
    recorder: &Recorder<Content>,
    groups: Groups,
) -> Result<([Arc<State>; 2], GroupId)> {
    recorder.run(Operation::Create, || {
        let group = context.create_group()?;
        let other = if groups == Groups::One { group } else { context.create_group()? };
        let first = context.create_state(group, KeyWidth::Eight)?;
        Ok(([first, context.create_state(other, KeyWidth::Variable)?], group))
    })
}

fn write(transaction: &Transaction, states: &[Arc<State>; 2], changes: &Changes) -> Result<()> {
    for (number, value) in changes {
        for state in states {
            transaction.write(state, &key(*number), value.as_deref())?;
        }
    }
    Ok(())
}

/// Creates, fills and drops a state; its space is freed in the next vacuum.
fn create_and_drop(context: &Arc<StateContext>, group: GroupId) -> Result<()> {
    let state = context.create_state(group, KeyWidth::Variable)?;
    let transaction = context.begin()?;
    for number in 0..3 {
        transaction.write(&state, &key(number), Some(b"gone soon"))?;
    }
    transaction.commit(Durability::Sync)?;
    context.drop_state(state.id())
}

fn random_changes(random: &Env, round: u64) -> Changes {
    let mut changes = BTreeMap::new();
    for _ in 0..1 + random.random_u64() % 3 {
        let bytes = [3, 8, 20, 90][(random.random_u64() % 4) as usize];
        let value = (!random.random_u64().is_multiple_of(4)).then(|| vec![round as u8; bytes]);
        changes.insert(random.random_u64() % KEYS, value);
    }
    changes.into_iter().collect()
}

fn verify(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    verify_context(&context, legal)
}

fn verify_context(context: &Arc<StateContext>, legal: &[&Content]) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    check_sound(context)?;
    let states = [0, 1].map(|id| context.state(StateId(id)));
    let [Some(first), Some(second)] = states else {
        return if legal.contains(&&Content(None)) { Ok(()) } else { Err("a state is gone".to_string()) };
    };
    let states = [first, second];
    let mut found = rows(context, &states).map_err(text)?;
    if !may_be(legal, &found) {
        return Err(format!("found {found:?}, legal is {legal:?}"));
    }
    for number in LATER_KEYS {
        let writer = context.begin().map_err(text)?;
        write(&writer, &states, &vec![(number, Some(LATER_VALUE.to_vec()))]).map_err(text)?;
        writer.commit(Durability::Sync).map_err(text)?;
        for rows in &mut found {
            rows.insert(key(number), LATER_VALUE.to_vec());
        }
        let now = rows(context, &states).map_err(text)?;
        if now != found {
            return Err(format!("after a later commit: {now:?} in place of {found:?}"));
        }
    }
    context.vacuum().map_err(text)?;
    let now = rows(context, &states).map_err(text)?;
    if now != found {
        return Err(format!("after a vacuum: {now:?} in place of {found:?}"));
    }
    nothing_leaks(context.pool(), context).map_err(text)?
}

/// Tells whether rows are legal, perhaps with commits of a verification that was itself interrupted.
fn may_be(legal: &[&Content], found: &[Rows; 2]) -> bool {
    legal.iter().filter_map(|content| content.0.as_ref()).any(|legal| {
        let mut later = legal.clone();
        legal == found
            || LATER_KEYS.iter().any(|number| {
                for rows in &mut later {
                    rows.insert(key(*number), LATER_VALUE.to_vec());
                }
                later == *found
            })
    })
}

fn rows(context: &Arc<StateContext>, states: &[Arc<State>; 2]) -> Result<[Rows; 2]> {
    let reader = context.begin()?;
    let mut found = <[Rows; 2]>::default();
    for (state, rows) in states.iter().zip(&mut found) {
        let mut from = None;
        let mut take = |key: &[u8], value: &[u8]| drop(rows.insert(key.to_vec(), value.to_vec()));
        while reader.scan_batch(state, &KeyRange::full(), &mut from, &mut take)? {}
        for (key, value) in rows {
            assert_eq!(
                reader.read(state, key, <[u8]>::to_vec)?.as_ref(),
                Some(&*value),
                "scan and look-up agree"
            );
        }
    }
    Ok(found)
}

/// Checks all that a context consists of, dropped states among it: nothing is damaged, and everything that is
/// allocated belongs to something. For pools with nothing but a context, whatever a crash has left; no writer
/// may run meanwhile.
pub fn check_sound(context: &Arc<StateContext>) -> std::result::Result<(), String> {
    let mut map = context.pool().allocation_map().map_err(|error| error.to_string())?;
    let reports = context.check(|_, offset, bytes| map.claim(offset, bytes), |_| {});
    let reports = reports.map_err(|error| error.to_string())?;
    if let Some(report) = reports.iter().find(|report| !report.problems.is_empty()) {
        return Err(format!("a check finds {report:?}"));
    }
    let leaked: Vec<_> = map.unclaimed().collect();
    if leaked.is_empty() { Ok(()) } else { Err(format!("nothing refers to {leaked:x?}")) }
}

/// Checks that after a vacuum without snapshots exactly what the directories and the live states refer to is
/// allocated.
pub(crate) fn nothing_leaks(
    pool: &Arc<Pool>,
    context: &StateContext,
) -> Result<std::result::Result<(), String>> {
    let directory = context.directory.objects();
    let mut reachable: Vec<PoolOffset> = directory.iter().map(|(offset, _)| *offset).collect();
    let in_main = |entry: &StateEntry| entry.pool == PoolRole::Main;
    for entry in context.directory.states()?.into_iter().filter(in_main) {
        let index = OrderedIndex::open(pool, entry.root)?;
        index.check(|offset| reachable.push(offset))?;
        let mut entries = Vec::new();
        let mut next = index.scan_batch(std::ops::Bound::Unbounded, &mut entries)?;
        while let Some(from) = next {
            next = index.scan_batch(std::ops::Bound::Included(&from), &mut entries)?;
        }
        let chained = context.directory.protocol(entry.group)?.is_chained() && !entry.history;
        for object in entries.iter().map(|&(_, word)| PoolOffset::from_word(word)) {
            if chained { reachable.extend(Chain::at(pool, object).offsets()) } else { reachable.push(object) }
        }
    }
    reachable.sort_unstable();
    let mut allocated = Vec::new();
    pool.for_each_object(|offset, _| allocated.push(offset));
    allocated.sort_unstable();
    if reachable == allocated {
        return Ok(Ok(()));
    }
    let only = |these: &[PoolOffset], those: &[PoolOffset]| -> Vec<PoolOffset> {
        these.iter().copied().filter(|offset| !those.contains(offset)).collect()
    };
    Ok(Err(format!(
        "leaked {:x?}, dangling {:x?}, {} reachable, {} allocated",
        only(&allocated, &reachable),
        only(&reachable, &allocated),
        reachable.len(),
        allocated.len()
    )))
}
