//! Races: transfers between two states keep a sum; readers check it while writers, a vacuum and long readers
//! run.

use crate::common::{key, scan, two_states};
use entresol_memory::{Durability, Env};
use entresol_structures::KeyWidth;
use entresol_transactions::{Error, KeyRange, State, StateContext, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: u64 = 16;
const EACH: u64 = 1000;

fn amount(transaction: &Transaction, state: &Arc<State>, number: u64) -> u64 {
    let value = transaction.read(state, &key(number), |value| {
        // Every word of the value says the same, so a torn one is noticed.
        let words: Vec<_> =
            value.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert!(words.iter().all(|word| *word == words[0]), "torn value {words:?}");
        words[0]
    });
    value.unwrap().unwrap_or(0)
}

/// An amount as a value of a length that varies with it; zero is a missing key.
fn value(amount: u64) -> Option<Vec<u8>> {
    (amount > 0).then(|| amount.to_le_bytes().repeat(1 + amount as usize % 7))
}

fn transfer(context: &Arc<StateContext>, states: &[Arc<State>; 2], random: &Env) -> bool {
    let transaction = context.begin().unwrap();
    let [from, to] = [(); 2].map(|()| (random.random_u64() % 2) as usize);
    let [from_key, to_key] = [(); 2].map(|()| random.random_u64() % KEYS);
    if (from, from_key) == (to, to_key) {
        return false;
    }
    let available = amount(&transaction, &states[from], from_key);
    let moved = if random.random_u64().is_multiple_of(4) { available } else { available / 3 };
    let target = amount(&transaction, &states[to], to_key) + moved;
    transaction.write(&states[from], &key(from_key), value(available - moved).as_deref()).unwrap();
    transaction.write(&states[to], &key(to_key), value(target).as_deref()).unwrap();
    match transaction.commit(Durability::None) {
        Ok(_) => true,
        Err(Error::Conflict { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn check(transaction: &Transaction, states: &[Arc<State>; 2]) {
    let by_key: u64 = states.iter().map(|s| (0..KEYS).map(|k| amount(transaction, s, k)).sum::<u64>()).sum();
    assert_eq!(by_key, 2 * KEYS * EACH, "snapshot {}", transaction.snapshot());
    let scanned = states.iter().flat_map(|state| scan(transaction, state, &KeyRange::full()));
    let by_scan: u64 = scanned.map(|(_, value)| u64::from_le_bytes(value[..8].try_into().unwrap())).sum();
    assert_eq!(by_scan, 2 * KEYS * EACH, "scan at snapshot {}", transaction.snapshot());
}

#[test]
fn the_sum_over_two_states_is_constant() {
    let (context, first, second) = two_states(KeyWidth::Eight);
    run(&context, &[first, second]);
}

#[test]
fn the_sum_over_two_groups_is_constant() {
    let context = crate::common::context();
    let states =
        [(); 2].map(|()| context.create_state(context.create_group().unwrap(), KeyWidth::Sixteen).unwrap());
    run(&context, &states);
}

fn run(context: &Arc<StateContext>, states: &[Arc<State>; 2]) {
    let load = context.begin().unwrap();
    for state in states {
        (0..KEYS).for_each(|number| load.write(state, &key(number), value(EACH).as_deref()).unwrap());
    }
    load.commit(Durability::None).unwrap();
    let stop = AtomicBool::new(false);
    let (commits, checks) = (AtomicU64::new(0), AtomicU64::new(0));
    let stopped = || stop.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (commits, stopped) = (&commits, &stopped);
            scope.spawn(move || {
                let random = Env::simulated(seed);
                while !stopped() {
                    commits.fetch_add(u64::from(transfer(context, states, &random)), Ordering::Relaxed);
                }
            });
        }
        for rounds in [1, 20] {
            let (checks, stopped) = (&checks, &stopped);
            scope.spawn(move || {
                while !stopped() {
                    let transaction = context.begin().unwrap();
                    (0..rounds).for_each(|_| check(&transaction, states));
                    checks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !stopped() {
                context.vacuum().unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(crate::common::soak(3, 60)) {
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    check(&context.begin().unwrap(), states);
    let (commits, checks) = (commits.into_inner(), checks.into_inner());
    assert!(commits > 100 && checks > 10, "{commits} commits, {checks} checks");
}

/// Reads through a transaction that another thread finishes: a value or `Finished`, never a torn one.
#[test]
fn a_read_that_overlaps_the_end_of_its_transaction_is_refused() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    crate::common::put(&context, &state, 1, &value(1).unwrap());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000 {
                crate::common::put(&context, &state, 1, &7_u64.to_le_bytes().repeat(1 + round % 30));
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            let transaction = context.begin().unwrap();
            let reader = Arc::clone(&transaction);
            let state = &state;
            scope.spawn(move || {
                let whole = |value: &[u8]| value.chunks(8).all(|word| word[0] == value[0]);
                while let Ok(read) = reader.read(state, &key(1), whole) {
                    assert_eq!(read, Some(true));
                }
            });
            thread::sleep(Duration::from_micros(50));
            transaction.abort();
        }
    });
}
