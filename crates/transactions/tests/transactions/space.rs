//! Versions, growth and reclaiming space.

use crate::common::{delete, get, key, put, rows, two_states};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{Error, Reclaimer, State, StateContext};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_long_reader_keeps_its_version_and_never_blocks_the_writer() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"0");
    let reader = context.begin().unwrap();
    for round in 1..2000_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
    }
    assert_eq!(get(&reader, &state, 1).unwrap(), b"0");
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), 1999_u64.to_le_bytes());
}

#[test]
fn every_open_snapshot_keeps_its_own_version() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let mut readers = Vec::new();
    for round in 0..60_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
        readers.push((round, context.begin().unwrap()));
    }
    for (round, reader) in &readers {
        assert_eq!(get(reader, &state, 1).unwrap(), round.to_le_bytes());
    }
    readers.retain(|(round, _)| round % 2 == 0);
    for round in 60..100_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
    }
    for (round, reader) in &readers {
        assert_eq!(get(reader, &state, 1).unwrap(), round.to_le_bytes());
    }
    drop(readers);
    assert_eq!(context.vacuum().unwrap().objects_shrunk, 1);
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), 99_u64.to_le_bytes());
}

#[test]
fn values_grow_and_shrink() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let before = context.begin().unwrap();
    let mut readers = Vec::new();
    for bytes in [0, 1, 8, 9, 100, 10, 1000, 0, 70_000, 5] {
        put(&context, &state, 1, &vec![bytes as u8; bytes]);
        readers.push((bytes, context.begin().unwrap()));
    }
    assert_eq!(get(&before, &state, 1), None);
    for (bytes, reader) in readers {
        assert_eq!(get(&reader, &state, 1).unwrap(), vec![bytes as u8; bytes]);
    }
}

#[test]
fn deleted_keys_are_removed_when_no_snapshot_sees_them() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let empty = context.pool().stats().allocated_bytes;
    for number in 0..100 {
        put(&context, &state, number, b"value");
    }
    let reader = context.begin().unwrap();
    for number in 0..100 {
        delete(&context, &state, number);
    }
    assert_eq!(context.vacuum().unwrap().keys_removed, 0, "the reader sees them");
    assert_eq!(rows(&reader, &state).len(), 100);
    drop(reader);
    assert_eq!(context.vacuum().unwrap().keys_removed, 100);
    assert!(rows(&context.begin().unwrap(), &state).is_empty());
    assert!(context.pool().stats().allocated_bytes <= empty + 8192);
    put(&context, &state, 7, b"back");
    assert_eq!(get(&context.begin().unwrap(), &state, 7).unwrap(), b"back");
}

#[test]
fn commits_clean_up_behind_themselves() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    for number in 0..200 {
        put(&context, &state, number, b"value");
        delete(&context, &state, number);
    }
    for _ in 0..30 {
        put(&context, &other, 1, b"x");
    }
    assert_eq!(context.vacuum().unwrap().keys_seen, 1, "only the other state's key is left");
}

/// Waits until there are no dead keys.
fn reclaimed(context: &Arc<StateContext>, state: &Arc<State>) -> bool {
    let dead = || dead_keys(context, state);
    (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        dead() == 0
    })
}

fn dead_keys(context: &Arc<StateContext>, state: &Arc<State>) -> u64 {
    let all = context.reclamation();
    all.iter().find(|of| of.state == state.id()).map_or(0, |of| of.dead_keys)
}

fn fill(context: &Arc<StateContext>, state: &Arc<State>, keys: std::ops::Range<u64>, value: Option<&[u8]>) {
    let transaction = context.begin().unwrap();
    for number in keys {
        transaction.write(state, &key(number), value).unwrap();
    }
    transaction.commit(Durability::Sync).unwrap();
}

#[test]
fn a_thread_reclaims_what_one_commit_deletes_however_much_it_is() {
    const KEYS: u64 = 3 * entresol_transactions::DEAD_KEYS_MAX as u64;
    let (context, state, other) = two_states(KeyWidth::Eight);
    put(&context, &other, 1, b"the other state");
    let empty = context.pool().stats().allocated_bytes;
    let reclaimer = Reclaimer::start(&context);
    fill(&context, &state, 0..KEYS, Some(b"value"));
    let reader = context.begin().unwrap();
    fill(&context, &state, 0..KEYS, None);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(dead_keys(&context, &state), KEYS, "the reader sees them all");
    let held = context.reclamation().into_iter().find(|of| of.state == state.id()).unwrap();
    let holder = held.held_by.expect("the reader holds them back");
    assert_eq!((holder.snapshot, holder.transaction), (reader.snapshot(), reader.id()));
    assert_eq!(rows(&reader, &state).len() as u64, KEYS);
    drop(reader);
    assert!(reclaimed(&context, &state), "{} are left", dead_keys(&context, &state));
    assert_eq!(context.vacuum().unwrap().keys_seen, 1, "of the other state");
    drop(reclaimer);
    let left = context.pool().stats().allocated_bytes;
    assert!(left <= empty + (64 << 10), "{left} bytes, {empty} before");
}

/// An object that has grown for readers is small again after a write that comes when they are gone, and not
/// at once; also if the key was deleted just before.
#[test]
fn a_write_makes_an_object_small_again_that_grew_for_readers() {
    for is_deleted in [false, true] {
        let (context, state, _) = two_states(KeyWidth::Eight);
        let _reclaimer = Reclaimer::start(&context);
        // The second time with room for two versions.
        (0..2).for_each(|_| fill(&context, &state, 0..1000, Some(b"a value of some length")));
        let small = context.pool().stats().allocated_bytes;
        let mut readers = Vec::new();
        for _ in 0..5 {
            readers.push(context.begin().unwrap());
            fill(&context, &state, 0..1000, Some(b"another of that length"));
        }
        let grown = context.pool().stats().allocated_bytes;
        assert!(grown > 2 * small, "{grown} bytes, {small} at first");
        drop(readers);
        fill(&context, &state, 0..1000, Some(b"written right afterwards"));
        assert!(context.pool().stats().allocated_bytes >= grown, "a busy key keeps its room");
        // The thread lets timestamps follow the clock, a fifth of a second behind.
        std::thread::sleep(Duration::from_millis(1500));
        if is_deleted {
            fill(&context, &state, 0..1000, None);
        }
        fill(&context, &state, 0..1000, Some(b"and written later once"));
        let left = context.pool().stats().allocated_bytes;
        assert!(left < small + small / 4, "{left} bytes, {small} at first, {grown} with readers");
        let reader = context.begin().unwrap();
        assert!((0..1000).all(|number| get(&reader, &state, number).unwrap() == b"and written later once"));
    }
}

/// Large values have one slot, also those that come into an object that grew for readers.
#[test]
fn a_large_value_is_written_again_after_its_object_grew_for_readers() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let _reclaimer = Reclaimer::start(&context);
    let large = |round: u8| vec![round; 40_000];
    let readers: Vec<_> = (0..5)
        .map(|round| {
            put(&context, &state, 1, &large(round));
            context.begin().unwrap()
        })
        .collect();
    drop(readers);
    // Until then a key counts as written all the time.
    std::thread::sleep(Duration::from_millis(1500));
    for round in 5..8 {
        let reader = context.begin().unwrap();
        put(&context, &state, 1, &large(round));
        assert_eq!(get(&reader, &state, 1).unwrap(), large(round - 1));
        assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), large(round));
    }
}

/// Bytes that are allocated for each of 4,096 keys of a value of 104 bytes, appended from `first` on by commits of 256.
fn bytes_of_appended(context: &Arc<StateContext>, state: &Arc<State>, first: u64) -> u64 {
    let before = context.pool().stats().allocated_bytes;
    for commit in 0..16 {
        let begin = first + 256 * commit;
        fill(context, state, begin..begin + 256, Some(&[7; 104]));
    }
    (context.pool().stats().allocated_bytes - before) / 4096
}

#[test]
fn appended_keys_have_room_for_a_second_version_where_they_are_written_again() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    fill(&context, &state, 0..64, Some(&[7; 104]));
    let single = bytes_of_appended(&context, &state, 1000);
    let reader = context.begin().unwrap();
    fill(&context, &state, 1000..5096, Some(&[8; 104]));
    assert!(rows(&reader, &state).iter().all(|(_, value)| *value == [7; 104]));
    drop(reader);
    let double = bytes_of_appended(&context, &state, 10_000);
    assert!(double >= single + 104, "room for two versions: {double} bytes a key, {single} for one");
    for round in 0..20 {
        bytes_of_appended(&context, &state, 100_000 + round * 10_000);
    }
    let again = bytes_of_appended(&context, &state, 900_000);
    assert!(again <= single + 8, "the others were never written again: {again} bytes a key");
}

/// Objects that stay after a burst are spread over many slabs; rewriting them brings them together, and frees
/// slabs.
#[test]
fn rewriting_brings_objects_together() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let numbers = || (0..80_000).filter(|number| number % 8 == 0);
    // The second time with room for two versions.
    (0..2).for_each(|_| fill(&context, &state, 0..80_000, Some(b"a value of some length")));
    for number in (0..80_000).filter(|number| number % 8 != 0) {
        delete(&context, &state, number);
    }
    context.vacuum().unwrap();
    let pool = context.pool();
    // Slabs of all classes that are in use.
    let slabs = || pool.space().classes.iter().map(|class| class.slabs).sum::<u64>();
    let rewrite = || numbers().for_each(|number| put(&context, &state, number, b"another of that length"));
    pool.return_space().unwrap();
    let spread = slabs();
    rewrite();
    assert!(slabs() + 2 >= spread, "nothing moves before it is asked for");
    for _ in 0..4 {
        pool.pack();
        rewrite();
        pool.return_space().unwrap();
    }
    assert!(slabs() * 2 < spread, "{} slabs, {spread} before", slabs());
    let reader = context.begin().unwrap();
    assert!(numbers().all(|number| get(&reader, &state, number).unwrap() == b"another of that length"));
}

/// Keys that a long reader sees do not keep those back that it does not see, anywhere in the index.
#[test]
fn keys_that_wait_do_not_block_others() {
    const BEYOND: u64 = entresol_transactions::DEAD_KEYS_MAX as u64 + 5000;
    // With as many as are known one by one, and with more.
    for (first, keys) in [(0, 2000), (0, BEYOND), (1 << 32, 2000), (1 << 32, BEYOND)] {
        let (context, state, _) = two_states(KeyWidth::Eight);
        let old = (1 << 31)..(1 << 31) + keys;
        fill(&context, &state, old.clone(), Some(b"value"));
        fill(&context, &state, first..first + keys, Some(b"value"));
        fill(&context, &state, old, None);
        let reader = context.begin().unwrap();
        fill(&context, &state, first..first + keys, None);
        let reclaimer = Reclaimer::start(&context);
        let old_are_gone = || dead_keys(&context, &state) <= keys;
        let gone = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            old_are_gone()
        });
        assert!(gone, "{} of {keys} that wait and as many that need not", dead_keys(&context, &state));
        assert_eq!(rows(&reader, &state).len() as u64, keys);
        drop(reader);
        assert!(reclaimed(&context, &state), "{} are left", dead_keys(&context, &state));
        drop(reclaimer);
        assert_eq!(context.vacuum().unwrap().keys_seen, 0);
    }
}

/// A state with a longer version history than commits of that time can visit is pruned all the same.
#[test]
fn a_thread_prunes_a_history_however_long_it_is() {
    const KEYS: u64 = 30_000;
    let (context, state, _) = two_states(KeyWidth::Eight);
    // The second time with room for two versions.
    (0..2).for_each(|_| fill(&context, &state, 0..KEYS, Some(b"value")));
    context.keep_history(state.id(), Some(Duration::from_millis(200))).unwrap();
    let one = context.pool().stats().allocated_bytes;
    (0..3).for_each(|_| fill(&context, &state, 0..KEYS, Some(b"other")));
    let all = context.pool().stats().allocated_bytes;
    let reclaimer = Reclaimer::start(&context);
    // On a busy machine the commits have pruned most of it already.
    let allowed = ((all - one) / 10).max(64 << 10);
    let is_pruned = || context.pool().stats().allocated_bytes < one + allowed;
    let pruned = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_pruned()
    });
    let left = context.pool().stats().allocated_bytes;
    assert!(pruned, "{left} bytes of {all}, {one} before there was a past");
    drop(reclaimer);
    assert_eq!(rows(&context.begin().unwrap(), &state).len() as u64, KEYS);
}

/// The count survives closing and crashing, so that the work goes on.
#[test]
fn dead_keys_are_known_again_after_opening() {
    let directory = tempfile::TempDir::new().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::create(directory.path(), &options).unwrap();
    let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    fill(&context, &state, 0..10_000, Some(b"value"));
    let reader = context.begin().unwrap();
    fill(&context, &state, 100..10_000, None);
    pool.sync().unwrap();
    drop((reader, context, state, pool));
    for close in [true, false] {
        let pool = Pool::open(directory.path(), &options).unwrap();
        let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
        let state = context.states()[0].clone();
        let known = dead_keys(&context, &state);
        assert!((9_000..=9_900).contains(&known), "{known} dead keys after opening");
        if close {
            drop(state);
            drop(context);
            pool.close().unwrap();
            continue;
        }
        let _reclaimer = Reclaimer::start(&context);
        assert!(reclaimed(&context, &state), "{} are left", dead_keys(&context, &state));
        assert_eq!(context.vacuum().unwrap().keys_seen, 100);
    }
}

/// Writers of other keys go on while dead keys are removed, and nothing is lost.
#[test]
fn keys_come_and_go_beside_the_thread() {
    let (context, state, _) = two_states(KeyWidth::Variable);
    let reclaimer = Reclaimer::start(&context);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (context, state) = (&context, &state);
            scope.spawn(move || {
                for round in 0..400_u64 {
                    let keys = thread * 1000..thread * 1000 + 50;
                    fill(context, state, keys.clone(), Some(&round.to_le_bytes()));
                    let reader = context.begin().unwrap();
                    fill(context, state, keys.start..keys.end - 1, None);
                    assert!(keys.clone().all(|number| get(&reader, state, number).is_some()));
                }
            });
        }
    });
    assert!(reclaimed(&context, &state));
    drop(reclaimer);
    assert_eq!(rows(&context.begin().unwrap(), &state).len(), 3);
    assert_eq!(context.vacuum().unwrap().keys_seen, 3);
    entresol_transactions::crash_histories::check_sound(&context).unwrap();
}

#[test]
fn a_deleted_key_can_be_inserted_again_at_once() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"first");
    let reader = context.begin().unwrap();
    delete(&context, &state, 1);
    let gap = context.begin().unwrap();
    put(&context, &state, 1, b"second");
    assert_eq!(get(&reader, &state, 1).unwrap(), b"first");
    assert_eq!(get(&gap, &state, 1), None);
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), b"second");
}

#[test]
fn a_dropped_state_is_destroyed_after_its_last_reader() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    let before = context.pool().stats().allocated_bytes;
    let doomed = context.create_state(state.group(), KeyWidth::Variable).unwrap();
    for number in 0..500 {
        put(&context, &doomed, number, b"some value");
    }
    let reader = context.begin().unwrap();
    let writer = context.begin().unwrap();
    writer.write(&doomed, &key(1), Some(b"late")).unwrap();
    context.drop_state(doomed.id()).unwrap();
    assert!(context.state(doomed.id()).is_none());
    assert!(matches!(context.drop_state(doomed.id()), Err(Error::NoSuchState(_))));
    assert!(matches!(writer.commit(Durability::Sync), Err(Error::NoSuchState(_))));
    assert!(matches!(context.begin().unwrap().read(&doomed, &key(1), |_| ()), Err(Error::NoSuchState(_))));
    assert_eq!(context.vacuum().unwrap().states_waiting, 1);
    put(&context, &other, 1, b"x");
    assert_eq!(rows(&reader, &doomed).len(), 500);
    drop(reader);
    assert_eq!(context.vacuum().unwrap().states_destroyed, 1);
    let reused = context.create_state(state.group(), KeyWidth::Eight).unwrap();
    assert_eq!(reused.id(), doomed.id());
    assert!(rows(&context.begin().unwrap(), &reused).is_empty());
    context.drop_state(reused.id()).unwrap();
    context.vacuum().unwrap();
    assert!(context.pool().stats().allocated_bytes <= before + 1024);
}

/// A state that is dropped while a vacuum works on it is left to the freeing of dropped states.
#[test]
fn a_vacuum_leaves_a_state_that_is_dropped_under_it() {
    // Dropped before its turn, in the midst of it, and after it.
    for drop_at in [1, 2, 3, 20] {
        let (context, state, other) = two_states(KeyWidth::Eight);
        let empty = context.pool().stats().allocated_bytes;
        let doomed = context.create_state(state.group(), KeyWidth::Eight).unwrap();
        for state in [&state, &doomed, &other] {
            fill(&context, state, 0..3000, Some(b"value"));
            fill(&context, state, 0..2990, None);
        }
        let mut steps = 0;
        let states = [&doomed, &state, &other].map(Arc::clone);
        let vacuumed = context.vacuum_states(&states, |_| {
            steps += 1;
            if steps == drop_at { context.drop_state(doomed.id()) } else { Ok(()) }
        });
        let stats = vacuumed.unwrap_or_else(|error| panic!("dropped at step {drop_at}: {error}"));
        assert!(steps > drop_at, "it had {steps} steps");
        assert!(stats.keys_removed > 0, "{stats:?}");
        assert_eq!([&state, &other].map(|state| dead_keys(&context, state)), [0, 0]);
        context.vacuum().unwrap();
        for state in [&state, &other] {
            assert_eq!(rows(&context.begin().unwrap(), state).len(), 10);
            state.check_index().unwrap();
        }
        assert!(context.state(doomed.id()).is_none());
        fill(&context, &state, 0..3000, None);
        fill(&context, &other, 0..3000, None);
        context.vacuum().unwrap();
        let left = context.pool().stats().allocated_bytes;
        assert!(left <= empty + 8192, "{left} bytes, {empty} at first");
    }
}

/// Free blocks of the file go back to the disk while the database is open, and are there again when they are
/// needed.
#[test]
fn the_file_returns_freed_blocks_to_the_disk() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::TempDir::new().unwrap();
    let options =
        PoolOptions { domain: DomainChoice::Journal, extent_bytes: 8 << 20, ..PoolOptions::default() };
    let pool = Pool::create(directory.path(), &options).unwrap();
    let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let reclaimer = Reclaimer::start_returning_after(&context, Duration::from_millis(300));
    let blocks = || std::fs::metadata(directory.path().join("pool.entresol")).unwrap().blocks() * 512;
    let value = [7; 2000];
    fill(&context, &state, 0..30_000, Some(&value));
    pool.checkpoint().unwrap();
    let full = blocks();
    assert!(full > 60 << 20, "{full} bytes of 30,000 rows");
    fill(&context, &state, 0..30_000, None);
    let shrunk = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        blocks() < full / 3
    });
    assert!(shrunk, "{} of {full} bytes are left", blocks());
    fill(&context, &state, 0..1000, Some(&value));
    assert_eq!(rows(&context.begin().unwrap(), &state).len(), 1000);
    drop(reclaimer);
    drop((context, state));
    pool.close().unwrap();
    drop(pool);
    let context = StateContext::open_or_create(Pool::open(directory.path(), &options).unwrap()).unwrap();
    entresol_transactions::crash_histories::check_sound(&context).unwrap();
    assert_eq!(rows(&context.begin().unwrap(), &context.states()[0]).len(), 1000);
}

/// A commit that finds no room takes the space of dead versions.
#[test]
fn the_space_of_dead_versions_is_found_before_a_commit_is_refused() {
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        extent_bytes: 256 << 10,
        address_space_bytes: 4 << 20,
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let value = [1; 500];
    let fits =
        (0..).find(|number| try_fill(&context, &state, number * 100..(number + 1) * 100, &value).is_err());
    let keys = fits.unwrap() * 100;
    assert!(keys >= 1000, "{keys} fit");
    let reader = context.begin().unwrap();
    fill(&context, &state, 0..keys, None);
    assert!(try_fill(&context, &state, keys..keys + 500, &value).unwrap_err().is_out_of_space());
    drop(reader);
    try_fill(&context, &state, keys..keys + keys / 2, &value).unwrap();
    assert_eq!(rows(&context.begin().unwrap(), &state).len() as u64, keys / 2);
    entresol_transactions::crash_histories::check_sound(&context).unwrap();
}

fn try_fill(
    context: &Arc<StateContext>,
    state: &Arc<State>,
    keys: std::ops::Range<u64>,
    value: &[u8],
) -> Result<(), Error> {
    let transaction = context.begin().unwrap();
    keys.for_each(|number| transaction.write(state, &key(number), Some(value)).unwrap());
    transaction.commit(Durability::None).map(drop)
}

/// Commits until space runs out: each failure must leave all of the earlier commits and nothing of itself.
#[test]
fn running_out_of_space_aborts_whole_transactions() {
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        extent_bytes: 256 << 10,
        address_space_bytes: 1 << 20,
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let group = context.create_group().unwrap();
    let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    let mut committed = Vec::new();
    let mut failures = 0;
    for number in 0..20_000_u64 {
        let writer = context.begin().unwrap();
        for state in &states {
            // Scattered, so that all leaves fill and split.
            let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            writer.write(state, &key(scattered), Some(&number.to_le_bytes())).unwrap();
        }
        match writer.commit(Durability::Sync) {
            Ok(_) => committed.push(number),
            Err(Error::Memory(_) | Error::Structures(_)) => failures += 1,
            Err(other) => panic!("{other}"),
        }
        if failures == 300 {
            break;
        }
    }
    assert!(failures > 0 && committed.len() > 100, "{failures} failures, {} commits", committed.len());
    let reader = context.begin().unwrap();
    for state in &states {
        let mut seen: Vec<u64> = rows(&reader, state)
            .into_values()
            .map(|value| u64::from_le_bytes(value.try_into().unwrap()))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, committed);
    }
    drop(reader);
    context.vacuum().unwrap();
}
