//! States that are placed in a tier: commits over several tiers, what is left after a restart, space, memory,
//! errors.

use crate::common::{Rows, delete, get, key, put, rows};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer};
use entresol_memory::{DomainChoice, DomainKind, Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::crash_histories::check_sound;
use entresol_transactions::{
    ContextOptions, Error, GroupId, Protocol, Reclaimer, State, StateContext, StateId, StateOptions, Tier,
    TierChoice,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn journal(dir: &Path) -> PoolOptions {
    assert!(dir.is_dir());
    PoolOptions { domain: DomainChoice::Journal, extent_bytes: 1 << 20, ..PoolOptions::default() }
}

fn open(dir: &Path) -> Arc<StateContext> {
    StateContext::open_or_create(Pool::open_or_create(dir, &journal(dir)).unwrap()).unwrap()
}

fn in_dram(context: &Arc<StateContext>, group: GroupId) -> Arc<State> {
    let options = StateOptions::new(group, KeyWidth::Eight, TierChoice::Dram);
    context.create_state_with(options).unwrap()
}

/// A durable state and a volatile one of one group.
fn pair(context: &Arc<StateContext>) -> [Arc<State>; 2] {
    let group = context.create_group().unwrap();
    [context.create_state(group, KeyWidth::Eight).unwrap(), in_dram(context, group)]
}

fn put_both(context: &Arc<StateContext>, states: &[Arc<State>; 2], number: u64, value: &[u8]) {
    let writer = context.begin().unwrap();
    states.iter().for_each(|state| writer.write(state, &key(number), Some(value)).unwrap());
    writer.commit(Durability::Sync).unwrap();
}

fn all_rows(context: &Arc<StateContext>, state: &Arc<State>) -> Rows {
    rows(&context.begin().unwrap(), state)
}

#[test]
fn commits_over_two_tiers_are_seen_in_both_or_in_none() {
    for protocol in Protocol::ALL {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::create(dir.path(), &journal(dir.path())).unwrap();
        let options = ContextOptions { protocol, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(pool, options).unwrap();
        let states = pair(&context);
        assert_eq!(states.each_ref().map(|state| state.tier()), [Tier::Disk, Tier::Dram]);
        for number in 0..200 {
            put_both(&context, &states, number, b"first");
        }
        if matches!(protocol, Protocol::MvccInPlace | Protocol::MvccOutOfPlace) {
            let earlier = context.begin().unwrap();
            put_both(&context, &states, 7, b"second");
            for state in &states {
                assert_eq!(get(&earlier, state, 7).unwrap(), b"first", "{protocol}");
            }
        } else {
            put_both(&context, &states, 7, b"second");
        }
        let aborted = context.begin().unwrap();
        states.iter().for_each(|state| aborted.write(state, &key(8), None).unwrap());
        drop(aborted);
        for number in 100..150 {
            let writer = context.begin().unwrap();
            states.iter().for_each(|state| writer.write(state, &key(number), None).unwrap());
            writer.commit(Durability::None).unwrap();
        }
        let [durable, volatile] = states.each_ref().map(|state| all_rows(&context, state));
        assert_eq!(durable, volatile, "{protocol}");
        assert_eq!(volatile.len(), 150);
        context.vacuum().unwrap();
        assert_eq!(all_rows(&context, &states[1]), volatile, "{protocol}");
        check_sound(&context).unwrap();
    }
}

#[test]
fn of_two_writers_of_a_volatile_key_the_second_fails() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let states = pair(&context);
    put_both(&context, &states, 1, b"before");
    let [first, second] = [(); 2].map(|()| context.begin().unwrap());
    first.write(&states[1], &key(1), Some(b"first")).unwrap();
    states.iter().for_each(|state| second.write(state, &key(1), Some(b"second")).unwrap());
    first.commit(Durability::Sync).unwrap();
    let failed = second.commit(Durability::Sync).unwrap_err();
    assert!(matches!(failed, Error::Conflict { state, .. } if state == states[1].id()), "{failed}");
    let reader = context.begin().unwrap();
    assert_eq!(get(&reader, &states[0], 1).unwrap(), b"before");
    assert_eq!(get(&reader, &states[1], 1).unwrap(), b"first");
}

#[test]
fn a_volatile_state_is_there_and_empty_after_a_close_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let ids = {
        let context = open(dir.path());
        pair(&context).map(|state| state.id())
    };
    for round in 0..6_u64 {
        let context = open(dir.path());
        let report = context.recovery();
        assert_eq!((report.states, report.states_emptied, report.invalid_ranges), (2, 1, 0), "{report:?}");
        let states = ids.map(|id| context.state(id).unwrap());
        assert_eq!(all_rows(&context, &states[0]).len() as u64, round * 10);
        assert_eq!(all_rows(&context, &states[1]), Rows::new(), "round {round}");
        assert!(states[1].is_volatile() && states[1].width() == KeyWidth::Eight);
        for number in round * 10..round * 10 + 10 {
            put_both(&context, &states, number, &[number as u8; 300]);
        }
        put(&context, &states[1], 1_000, b"in the volatile one alone");
        assert_eq!(all_rows(&context, &states[1]).len(), 11);
        check_sound(&context).unwrap();
        if round % 2 == 0 {
            context.pool().close().unwrap();
        }
    }
}

#[test]
fn timestamps_of_a_group_without_durable_states_need_not_survive() {
    let dir = tempfile::tempdir().unwrap();
    {
        let context = open(dir.path());
        let group = context.create_group().unwrap();
        let volatile = in_dram(&context, group);
        for number in 0..10 {
            put(&context, &volatile, number, b"lost");
        }
        // A directory that survives.
        context.pool().sync().unwrap();
    }
    let context = open(dir.path());
    assert_eq!((context.recovery().commits_undone, context.recovery().invalid_ranges), (0, 0));
    let volatile = context.state(StateId(0)).unwrap();
    put(&context, &volatile, 3, b"again");
    let durable = context.create_state(volatile.group(), KeyWidth::Eight).unwrap();
    put_both(&context, &[durable, volatile], 4, b"kept in one");
    drop(context);
    let context = open(dir.path());
    assert_eq!(all_rows(&context, &context.state(StateId(1)).unwrap()).len(), 1);
    assert_eq!(all_rows(&context, &context.state(StateId(0)).unwrap()).len(), 0);
}

#[test]
fn commits_of_volatile_states_alone_write_and_wait_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let volatile = in_dram(&context, context.create_group().unwrap());
    let before = context.pool().stats();
    for number in 0..1_000 {
        put(&context, &volatile, number % 300, &number.to_le_bytes());
        if number % 7 == 0 {
            delete(&context, &volatile, number % 300);
        }
    }
    context.vacuum().unwrap();
    let after = context.pool().stats();
    let counted = |stats: &entresol_memory::PoolStats| {
        (stats.flushes, stats.fences, stats.syncs, stats.journal_appended_bytes, stats.allocated_bytes)
    };
    assert_eq!(counted(&before), counted(&after));
    // Beside a durable one all of it is as ever.
    let durable = context.create_state(volatile.group(), KeyWidth::Eight).unwrap();
    put_both(&context, &[durable, volatile], 1, b"both");
    assert!(context.pool().stats().syncs > after.syncs);
}

#[test]
fn a_commit_over_more_groups_than_one_publication_takes_has_volatile_ones_among_them() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let states: Vec<_> = (0..40)
        .map(|number| {
            let group = context.create_group().unwrap();
            match number % 2 {
                0 => context.create_state(group, KeyWidth::Eight).unwrap(),
                _ => in_dram(&context, group),
            }
        })
        .collect();
    let writer = context.begin().unwrap();
    states.iter().for_each(|state| writer.write(state, &key(1), Some(b"all")).unwrap());
    let cts = writer.commit(Durability::Sync).unwrap().cts;
    assert!(states.iter().all(|state| context.last_cts(state.group()) == cts));
    drop((writer, states, context));
    let context = open(dir.path());
    for state in context.states() {
        let expected = usize::from(!state.is_volatile());
        assert_eq!(all_rows(&context, &state).len(), expected, "{}", state.id());
    }
}

#[test]
fn dropped_volatile_states_give_their_space_and_their_entry_back() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let group = context.create_group().unwrap();
    let first = in_dram(&context, group);
    let used = || context.volatile_pool().unwrap().stats().allocated_bytes;
    let empty = used();
    for round in 0..4 {
        let state = in_dram(&context, group);
        assert_eq!(state.id(), StateId(1), "round {round}: its number was free");
        for number in 0..500 {
            put(&context, &state, number, &[1; 200]);
        }
        let reader = context.begin().unwrap();
        assert!(used() > empty + 100_000);
        context.drop_state(state.id()).unwrap();
        assert_eq!(rows(&reader, &state).len(), 500, "whoever began before reads on");
        drop(reader);
        context.vacuum().unwrap();
        assert_eq!(used(), empty, "round {round}");
        check_sound(&context).unwrap();
    }
    // Dropped, and not destroyed yet when the run ends.
    let doomed = in_dram(&context, group);
    put(&context, &doomed, 1, b"gone");
    let reader = context.begin().unwrap();
    context.drop_state(doomed.id()).unwrap();
    context.pool().sync().unwrap();
    drop((reader, doomed, first, context));
    let context = open(dir.path());
    assert_eq!((context.recovery().states, context.recovery().states_dropping), (1, 0));
    check_sound(&context).unwrap();
    assert_eq!(in_dram(&context, group).id(), StateId(1), "its entry is free");
}

#[test]
fn deleted_keys_of_volatile_states_are_reclaimed_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let states = pair(&context);
    let reclaimer = Reclaimer::start(&context);
    for number in 0..2_000 {
        put(&context, &states[1], number, &[7; 100]);
    }
    let full = context.volatile_pool().unwrap().stats().allocated_bytes;
    for number in 0..2_000 {
        delete(&context, &states[1], number);
    }
    let dead = || context.reclamation().iter().map(|state| state.dead_keys).sum::<u64>();
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while dead() > 0 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(dead(), 0);
    reclaimer.stop();
    assert!(context.volatile_pool().unwrap().stats().allocated_bytes < full / 4);
    check_sound(&context).unwrap();
}

#[test]
fn the_history_of_a_volatile_state_begins_anew_with_each_open() {
    let dir = tempfile::tempdir().unwrap();
    let before_restart = {
        let context = open(dir.path());
        let states = pair(&context);
        for state in &states {
            context.keep_history(state.id(), None).unwrap();
        }
        put_both(&context, &states, 1, b"one");
        let then = context.newest_commit();
        put_both(&context, &states, 1, b"two");
        let past = context.begin_as_of(then).unwrap();
        for state in &states {
            assert_eq!(get(&past, state, 1).unwrap(), b"one");
        }
        check_sound(&context).unwrap();
        context.pool().close().unwrap();
        then
    };
    let context = open(dir.path());
    check_sound(&context).unwrap();
    let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
    let past = context.begin_as_of(before_restart).unwrap();
    assert_eq!(get(&past, &states[0], 1).unwrap(), b"one");
    let lost = past.read(&states[1], &key(1), <[u8]>::to_vec).unwrap_err();
    assert!(matches!(lost, Error::SnapshotTooOld { .. }), "{lost}");
    drop(past);
    let at_open = context.newest_commit();
    put_both(&context, &states, 1, b"three");
    let then = context.newest_commit();
    put_both(&context, &states, 1, b"four");
    let past = context.begin_as_of(then).unwrap();
    assert_eq!(get(&past, &states[1], 1).unwrap(), b"three");
    assert_eq!(get(&context.begin_as_of(at_open).unwrap(), &states[1], 1), None);
    drop(past);
    context.drop_history(states[1].id()).unwrap();
    context.vacuum().unwrap();
    check_sound(&context).unwrap();
}

#[test]
fn a_volatile_state_uses_the_free_budget_and_releases_it() {
    let budget = MemoryBudget::tiny(24 << 20);
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        address_space_bytes: 1 << 30,
        memory: Some(Arc::clone(&budget)),
        ..PoolOptions::default()
    };
    let dir = tempfile::tempdir().unwrap();
    // The memory of the main pool is not under test here.
    let main = PoolOptions { domain: DomainChoice::DaxEmulated, ..options };
    let context = StateContext::open_or_create(Pool::create(dir.path(), &main).unwrap()).unwrap();
    let states = pair(&context);
    let used = || {
        let usage = budget.usage();
        let mut lines = usage.consumers.iter();
        lines.find(|line| line.consumer == MemoryConsumer::VolatileStates).unwrap().used_bytes
    };
    let empty = used();
    assert!((1..=4 << 20).contains(&empty), "{empty}");
    let fill = |from: u64| -> (u64, Error) {
        for number in from.. {
            let writer = context.begin().unwrap();
            writer.write(&states[1], &key(number), Some(&[3; 10_000])).unwrap();
            if let Err(error) = writer.commit(Durability::None) {
                return (number, error);
            }
        }
        unreachable!("the budget ends it")
    };
    let (written, full) = fill(0);
    let message = full.to_string();
    assert!(full.is_out_of_space() && written > 100, "{written} keys: {message}");
    assert!(
        message.contains("volatile states need") && message.contains("(in use: volatile states"),
        "{message}"
    );
    assert!(used() > 16 << 20);
    put(&context, &states[0], 1, b"others go on");
    assert_eq!(all_rows(&context, &states[1]).len() as u64, written);
    for number in 0..written {
        delete(&context, &states[1], number);
    }
    // A commit that finds no room makes some.
    let (more, _) = fill(written);
    assert!(more > written + 100, "{written} keys, then up to {more}");
    for number in written..more {
        delete(&context, &states[1], number);
    }
    let full = used();
    // In the background it keeps 8 MiB; asked to, it gives all of it back.
    let reclaimer = Reclaimer::start_returning_after(&context, Duration::from_millis(100));
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while used() + (4 << 20) > full && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(used() + (4 << 20) <= full, "{} of {full} bytes are in use", used());
    reclaimer.stop();
    context.vacuum().unwrap();
    context.volatile_pool().unwrap().return_space().unwrap();
    assert!(used() <= empty + (4 << 20), "{} bytes are in use", used());
    put(&context, &states[1], 1, b"and again");
    check_sound(&context).unwrap();
    drop((states, reclaimer, context));
    assert_eq!(used(), 0);
}

#[test]
fn a_tier_that_the_database_does_not_have_is_refused_with_its_domain() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let group = context.create_group().unwrap();
    let with = |tier| StateOptions::new(group, KeyWidth::Eight, tier);
    let refused = context.create_state_with(with(TierChoice::Pmem)).unwrap_err();
    let expected = "cannot place anything in 'pmem': the domain of this database is journal, which has 'dram' and 'disk'";
    assert_eq!(refused.to_string(), expected);
    assert_eq!(context.states().len(), 0);
    for (choice, tier) in
        [(TierChoice::Auto, Tier::Disk), (TierChoice::Disk, Tier::Disk), (TierChoice::Dram, Tier::Dram)]
    {
        assert_eq!(context.create_state_with(with(choice)).unwrap().tier(), tier);
        assert_eq!(context.tier(choice).unwrap(), tier);
    }
    let dax = PoolOptions { domain: DomainChoice::DaxEmulated, ..PoolOptions::default() };
    let dir = tempfile::tempdir().unwrap();
    let context = StateContext::open_or_create(Pool::create(dir.path(), &dax).unwrap()).unwrap();
    let group = context.create_group().unwrap();
    let with = |tier| StateOptions::new(group, KeyWidth::Eight, tier);
    assert_eq!(context.create_state_with(with(TierChoice::Pmem)).unwrap().tier(), Tier::Pmem);
    let refused = context.create_state_with(with(TierChoice::Disk)).unwrap_err();
    let is_named = matches!(refused, Error::NoSuchTier { domain: DomainKind::DaxEmulated, .. });
    assert!(is_named && refused.to_string().contains("'dram' and 'pmem'"), "{refused}");
}

#[test]
fn a_backup_has_volatile_states_without_their_content() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let states = pair(&context);
    put_both(&context, &states, 1, b"both");
    let copy = dir.path().join("copy");
    context.pool().backup(&copy).unwrap();
    let restored = open(&copy);
    let rows_of = |id| all_rows(&restored, &restored.state(StateId(id)).unwrap()).len();
    assert_eq!((rows_of(0), rows_of(1)), (1, 0));
    check_sound(&restored).unwrap();
    assert_eq!(all_rows(&context, &states[1]).len(), 1);
}

#[test]
fn a_database_in_dram_has_one_pool() {
    let context = crate::common::context();
    let states = pair(&context);
    assert!(states.iter().all(|state| state.tier() == Tier::Dram && !state.is_volatile()));
    assert!(context.volatile_pool().is_none());
}

#[test]
fn large_commits_and_readers_of_ranges_go_over_two_tiers() {
    let options = PoolOptions { env: Env::simulated(5), ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::crashing(&options, None, None).unwrap()).unwrap();
    let states = pair(&context);
    let writer = context.begin_at(entresol_transactions::Isolation::Serializable).unwrap();
    assert!(rows(&writer, &states[1]).is_empty());
    for number in 0..3_000 {
        states.iter().for_each(|state| writer.write(state, &key(number), Some(b"many")).unwrap());
    }
    writer.commit(Durability::Sync).unwrap();
    let reader = context.begin().unwrap();
    for state in &states {
        let mut found = 0;
        let keys: Vec<_> = (0..3_100).map(key).collect();
        reader.read_many(state, &keys, |_, value| found += u64::from(value == Some(b"many"))).unwrap();
        assert_eq!(found, 3_000);
    }
    check_sound(&context).unwrap();
}

/// Persistent memory in one directory, a disk beside it in another.
fn open_beside(dir: &Path) -> Result<Arc<StateContext>, Error> {
    let main =
        PoolOptions { domain: DomainChoice::DaxEmulated, extent_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Pool::open_or_create(&dir.join("main"), &main).unwrap();
    let disk = dir.join("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let disk = Pool::open_or_create(&disk, &journal(&disk)).unwrap();
    StateContext::open_or_create_beside(pool, Some(disk), ContextOptions::default())
}

fn on_disk(context: &Arc<StateContext>, group: GroupId) -> Arc<State> {
    let options = StateOptions::new(group, KeyWidth::Eight, TierChoice::Disk);
    context.create_state_with(options).unwrap()
}

#[test]
fn states_on_a_disk_beside_persistent_memory_are_as_durable_and_as_atomic() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4_u64 {
        let context = open_beside(dir.path()).unwrap();
        if round == 0 {
            let group = context.create_group().unwrap();
            context.create_state(group, KeyWidth::Eight).unwrap();
            on_disk(&context, group);
            in_dram(&context, group);
        }
        check_sound(&context).unwrap();
        let states = [0, 1, 2].map(|id| context.state(StateId(id)).unwrap());
        assert_eq!(states.each_ref().map(|state| state.tier()), [Tier::Pmem, Tier::Disk, Tier::Dram]);
        let [pmem, disk, dram] = states.each_ref().map(|state| all_rows(&context, state));
        assert_eq!((pmem.len() as u64, &disk, dram.len()), (round * 45, &pmem, 0), "round {round}");
        for number in round * 50..round * 50 + 50 {
            let writer = context.begin().unwrap();
            states.iter().for_each(|state| writer.write(state, &key(number), Some(&[7; 100])).unwrap());
            writer.commit(Durability::None).unwrap();
        }
        let syncs = || context.disk_pool().unwrap().stats().syncs;
        let before = syncs();
        for number in round * 50..round * 50 + 5 {
            let writer = context.begin().unwrap();
            states.iter().for_each(|state| writer.write(state, &key(number), None).unwrap());
            writer.commit(Durability::None).unwrap();
        }
        assert!(syncs() >= before + 5, "each of them waits for the disk");
        let before = syncs();
        put(&context, &states[0], 0, b"in persistent memory alone");
        delete(&context, &states[0], 0);
        assert_eq!(syncs(), before);
        if round % 2 == 1 {
            context.vacuum().unwrap();
        }
        check_sound(&context).unwrap();
        if round == 2 {
            context.disk_pool().unwrap().close().unwrap();
            context.pool().close().unwrap();
        }
    }
}

#[test]
fn states_on_disk_are_created_and_dropped_and_keep_their_history() {
    let dir = tempfile::tempdir().unwrap();
    let then = {
        let context = open_beside(dir.path()).unwrap();
        let kept = on_disk(&context, context.create_group().unwrap());
        context.keep_history(kept.id(), None).unwrap();
        put(&context, &kept, 1, b"one");
        let then = context.newest_commit();
        put(&context, &kept, 1, b"two");
        let used = || context.disk_pool().unwrap().stats().allocated_bytes;
        let before = used();
        for _ in 0..3 {
            let doomed = on_disk(&context, kept.group());
            assert_eq!(doomed.id(), StateId(2), "its number is free again");
            (0..200).for_each(|number| put(&context, &doomed, number, &[1; 200]));
            assert!(used() > before);
            context.drop_state(doomed.id()).unwrap();
            context.vacuum().unwrap();
            assert_eq!(used(), before);
            check_sound(&context).unwrap();
        }
        // Dropped, and destroyed by the next run.
        let doomed = on_disk(&context, kept.group());
        put(&context, &doomed, 1, b"gone");
        let reader = context.begin().unwrap();
        context.drop_state(doomed.id()).unwrap();
        drop(reader);
        then
    };
    let context = open_beside(dir.path()).unwrap();
    assert_eq!((context.recovery().states, context.recovery().states_dropping), (1, 1));
    check_sound(&context).unwrap();
    let past = context.begin_as_of(then).unwrap();
    assert_eq!(get(&past, &context.state(StateId(0)).unwrap(), 1).unwrap(), b"one");
    drop(past);
    context.vacuum().unwrap();
    check_sound(&context).unwrap();
    assert_eq!(context.vacuum().unwrap().states_waiting, 0);
}

#[test]
fn a_database_is_not_opened_without_its_disk_nor_with_another() {
    let dir = tempfile::tempdir().unwrap();
    {
        let context = open_beside(dir.path()).unwrap();
        put(&context, &on_disk(&context, context.create_group().unwrap()), 1, b"there");
    }
    let main = || {
        let options = PoolOptions {
            domain: DomainChoice::DaxEmulated,
            extent_bytes: 1 << 20,
            ..PoolOptions::default()
        };
        Pool::open_or_create(&dir.path().join("main"), &options).unwrap()
    };
    let without = StateContext::open_or_create(main()).unwrap_err();
    assert!(without.to_string().contains("are placed on disk"), "{without}");
    let other = tempfile::tempdir().unwrap();
    drop(open_beside(other.path()).unwrap());
    let path = other.path().join("disk");
    let wrong = Pool::open_or_create(&path, &journal(&path)).unwrap();
    let wrong =
        StateContext::open_or_create_beside(main(), Some(wrong), ContextOptions::default()).unwrap_err();
    assert!(wrong.to_string().contains("belongs to another database"), "{wrong}");
    // A new disk has not what the directory names.
    let path = other.path().join("new");
    std::fs::create_dir(&path).unwrap();
    let empty = Pool::open_or_create(&path, &journal(&path)).unwrap();
    let lost =
        StateContext::open_or_create_beside(main(), Some(empty), ContextOptions::default()).unwrap_err();
    assert!(lost.is_corrupt(), "{lost}");
    let [first, second] = ["a", "b"].map(|name| {
        let path = other.path().join(name);
        std::fs::create_dir(&path).unwrap();
        Pool::open_or_create(&path, &journal(&path)).unwrap()
    });
    let beside = StateContext::open_or_create_beside(first, Some(second), ContextOptions::default());
    assert!(beside.unwrap_err().to_string().contains("domain journal"));
    let context = open_beside(dir.path()).unwrap();
    assert_eq!(all_rows(&context, &context.state(StateId(0)).unwrap()).len(), 1);
}
