//! States too large to be loaded at once: they answer before their indexes are loaded.

use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{KeyRange, State, StateContext, StateId};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: u64 = 100_000;
/// Keys that are found again in the pool file.
const FIRST: u64 = 0x00AB_CDEF_0000_0000;

fn key(i: u64) -> [u8; 8] {
    (FIRST + i).to_be_bytes()
}

fn options(env: Env) -> PoolOptions {
    PoolOptions { domain: DomainChoice::Journal, env, ..PoolOptions::default() }
}

fn open(dir: &Path, env: Env) -> (Arc<StateContext>, Arc<State>) {
    let context = StateContext::open_or_create(Pool::open(dir, &options(env)).unwrap()).unwrap();
    let state = context.state(StateId(0)).unwrap();
    (context, state)
}

/// A state of so many keys, the value of each is its number; killed after a last commit, or closed.
fn filled(dir: &Path, closed: bool) {
    let pool = Pool::create(dir, &options(Env::real())).unwrap();
    let context = StateContext::open_or_create(pool.clone()).unwrap();
    let group = context.create_group().unwrap();
    let state = context.create_state(group, KeyWidth::Eight).unwrap();
    for from in (0..KEYS).step_by(2_000) {
        let transaction = context.begin().unwrap();
        (from..from + 2_000)
            .try_for_each(|i| transaction.write(&state, &key(i), Some(&i.to_le_bytes())))
            .unwrap();
        transaction.commit(Durability::None).unwrap();
    }
    if closed { pool.close().unwrap() } else { pool.sync().unwrap() }
}

fn read(
    context: &Arc<StateContext>,
    state: &Arc<State>,
    i: u64,
) -> entresol_transactions::Result<Option<u64>> {
    let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    context.begin()?.read(state, &key(i), number)
}

fn wait_until_opened(context: &StateContext) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while context.opening().is_running {
        assert!(Instant::now() < deadline, "{:?}", context.opening());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_large_state_answers_while_the_rest_of_its_index_is_opened() {
    for closed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), closed);
        let (context, state) = open(dir.path(), Env::real());
        assert!(context.recovery().index_parts_left > 32, "{:?}", context.recovery());
        assert_eq!(context.recovery().clean, closed);
        for i in (0..KEYS).step_by(997) {
            assert_eq!(read(&context, &state, i).unwrap(), Some(i));
        }
        let transaction = context.begin().unwrap();
        transaction.write(&state, &key(17), Some(&1_000_017u64.to_le_bytes())).unwrap();
        transaction.commit(Durability::Sync).unwrap();
        wait_until_opened(&context);
        let progress = context.opening();
        assert_eq!((progress.parts_left, progress.parts_damaged), (0, 0));
        assert_eq!(read(&context, &state, 17).unwrap(), Some(1_000_017));
        state.check_index().unwrap();
    }
}

#[test]
fn dropping_a_context_ends_the_threads_that_load_its_indexes() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), true);
    for _ in 0..20 {
        // The next open finds the directory free: no thread of the last one has the pool any more.
        let (context, state) = open(dir.path(), Env::real());
        assert_eq!(read(&context, &state, 5).unwrap(), Some(5));
    }
    let (context, state) = open(dir.path(), Env::real());
    context.drop_state(state.id()).unwrap();
    drop(state);
    context.vacuum().unwrap();
    wait_until_opened(&context);
    let mut allocated = 0;
    context.pool().for_each_object(|_, _| allocated += 1);
    assert!(allocated < 100, "{allocated} objects are left of a state that was dropped");
}

#[test]
fn a_simulated_world_loads_parts_on_first_use_only() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), true);
    let (context, state) = open(dir.path(), Env::simulated(1));
    let parts = context.opening().parts_left;
    assert_eq!(read(&context, &state, KEYS / 2).unwrap(), Some(KEYS / 2));
    assert_eq!(context.opening().parts_left, parts - 1);
    assert!(!context.opening().is_running);
}

#[test]
fn damage_in_a_large_index_is_an_error_of_its_reader() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), true);
    let path = dir.path().join("pool.entresol");
    let mut file = std::fs::read(&path).unwrap();
    let wanted = FIRST + KEYS / 2;
    let places: Vec<usize> =
        (0..file.len()).step_by(8).filter(|at| file[*at..*at + 8] == wanted.to_le_bytes()).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| file[at + 9] ^= 0x04);
    std::fs::write(&path, &file).unwrap();
    let (context, state) = open(dir.path(), Env::real());
    wait_until_opened(&context);
    assert!(context.opening().parts_damaged > 0, "{:?}", context.opening());
    let error = read(&context, &state, KEYS / 2).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    let transaction = context.begin().unwrap();
    let mut from = None;
    let mut batches =
        (0..KEYS).map(|_| transaction.scan_batch(&state, &KeyRange::full(), &mut from, |_, _| {}));
    let ended = batches.find(|batch| !matches!(batch, Ok(true)));
    assert!(ended.unwrap().is_err_and(|error| error.is_corrupt()), "a scan does not pass over it");
    transaction.write(&state, &key(KEYS / 2), Some(&[0; 8])).unwrap();
    let error = transaction.commit(Durability::Sync).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    // The others remain usable.
    assert_eq!(read(&context, &state, 10).unwrap(), Some(10));
    let transaction = context.begin().unwrap();
    transaction.write(&state, &key(10), Some(&11u64.to_le_bytes())).unwrap();
    transaction.commit(Durability::Sync).unwrap();
    assert_eq!(read(&context, &state, 10).unwrap(), Some(11));
}
