//! Power failures while several threads commit: each thread's reported commits are there, over both states.

use crate::common::{get, key};
use entresol_memory::crash::{CrashPoint, Survivors};
use entresol_memory::{Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{StateContext, StateId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

const THREADS: usize = 3;
/// Each thread writes its counter to this many keys of both states, a new one every few commits.
const KEYS: u64 = 5;
/// To this one of one state it writes the counter before, by itself.
const ALONE: u64 = 50;

/// A counter per thread: the value it has reported, and the one it is about to commit.
#[derive(Default)]
struct Counters {
    reported: [AtomicU64; THREADS],
    attempted: [AtomicU64; THREADS],
}

struct Failure {
    image: Vec<u64>,
    reported: [u64; THREADS],
    attempted: [u64; THREADS],
}

fn options() -> PoolOptions {
    PoolOptions {
        extent_bytes: 256 << 10,
        address_space_bytes: 64 << 20,
        env: Env::simulated(1),
        ..PoolOptions::default()
    }
}

fn observe(
    counters: Arc<Counters>,
    failures: Arc<Mutex<Vec<Failure>>>,
    armed: Arc<AtomicBool>,
) -> impl FnMut(&CrashPoint<'_>) + Send {
    let random = Env::simulated(5);
    move |point| {
        if !armed.load(SeqCst) || !random.random_u64().is_multiple_of(7) {
            return;
        }
        // In this order: what was reported before the image must be in it, what is in it was attempted
        // before.
        let reported = counters.reported.each_ref().map(|counter| counter.load(SeqCst));
        let seed = random.random_u64();
        let survivors = [Survivors::Fenced, Survivors::Flushed, Survivors::Everything];
        let survivors = survivors.get(seed as usize % 6).copied().unwrap_or(Survivors::Random(seed));
        let image = point.image(survivors);
        let attempted = counters.attempted.each_ref().map(|counter| counter.load(SeqCst));
        failures.lock().unwrap().push(Failure { image, reported, attempted });
    }
}

fn verify(failure: Failure) {
    let context =
        StateContext::open_or_create(Pool::crashing(&options(), Some(failure.image), None).unwrap()).unwrap();
    let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
    let reader = context.begin().unwrap();
    for thread in 0..THREADS {
        let newest = |state: usize| {
            let counters = (0..KEYS).filter_map(|k| get(&reader, &states[state], thread as u64 * 100 + k));
            counters.map(|value| u64::from_le_bytes(value[..8].try_into().unwrap())).max().unwrap_or(0)
        };
        let (first, second) = (newest(0), newest(1));
        assert_eq!(first, second, "thread {thread}: torn over the states");
        let legal = failure.reported[thread]..=failure.attempted[thread];
        assert!(legal.contains(&first), "thread {thread}: {first} is not in {legal:?}");
        let alone = get(&reader, &states[thread % 2], thread as u64 * 100 + ALONE);
        let alone = alone.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        assert!((first..=*legal.end()).contains(&alone), "thread {thread}: {alone} came before {first}");
    }
}

fn run(one_group: bool) {
    let counters = Arc::new(Counters::default());
    let failures = Arc::new(Mutex::new(Vec::new()));
    let armed = Arc::new(AtomicBool::new(false));
    let observer = observe(Arc::clone(&counters), Arc::clone(&failures), Arc::clone(&armed));
    let pool = Pool::crashing(&options(), None, Some(Box::new(observer))).unwrap();
    let context = StateContext::open_or_create(pool).unwrap();
    let group = context.create_group().unwrap();
    let other = if one_group { group } else { context.create_group().unwrap() };
    let states = [group, other].map(|group| context.create_state(group, KeyWidth::Eight).unwrap());
    armed.store(true, SeqCst);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (context, counters, states) = (&context, &counters, &states);
            scope.spawn(move || {
                for number in 1..=crate::common::soak(150, 1500) {
                    counters.attempted[thread].store(number, SeqCst);
                    crate::common::put(
                        context,
                        &states[thread % 2],
                        thread as u64 * 100 + ALONE,
                        &number.to_le_bytes(),
                    );
                    let writer = context.begin().unwrap();
                    let at = key(thread as u64 * 100 + number / 4 % KEYS);
                    for state in states {
                        writer
                            .write(state, &at, Some(&number.to_le_bytes().repeat(1 + number as usize % 3)))
                            .unwrap();
                    }
                    writer.commit(Durability::Sync).unwrap();
                    counters.reported[thread].store(number, SeqCst);
                }
            });
        }
    });
    armed.store(false, SeqCst);
    let failures = std::mem::take(&mut *failures.lock().unwrap());
    println!("{} power failures", failures.len());
    assert!(failures.len() > 50);
    failures.into_iter().for_each(verify);
}

#[test]
fn threads_of_one_group() {
    run(true);
}

#[test]
fn threads_over_two_groups() {
    run(false);
}
