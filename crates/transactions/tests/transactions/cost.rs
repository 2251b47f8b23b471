//! Cost of reads and commits. Prints; run with `cargo test --release -p entresol-transactions --test transactions cost --
//! --nocapture`.

use crate::common::{key, two_states};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{KeyRange, StateContext};
use std::hint::black_box;
use std::time::Instant;

const ROWS: u64 = 1000;

fn per_operation(name: &str, operations: u64, run: impl Fn()) -> f64 {
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed().as_nanos() as f64 / operations as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:<40} {:>9.0} ns", times[2]);
    times[2]
}

#[test]
fn costs_on_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(dir.path(), &options).unwrap();
    let context = StateContext::open_or_create(pool).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    for (name, durability, rounds) in [
        ("none", Durability::None, 500),
        ("group", Durability::Group { interval_ms: 10 }, 500),
        ("sync", Durability::Sync, 50),
    ] {
        for keys in [1, 1000] {
            let rounds = (rounds / keys).max(3);
            per_operation(&format!("journal, {name}: commit of {keys} keys"), rounds, || {
                for _ in 0..rounds {
                    let writer = context.begin().unwrap();
                    (0..keys).for_each(|number| writer.write(&state, &key(number), Some(&[7; 32])).unwrap());
                    writer.commit(durability).unwrap();
                }
            });
        }
    }
}

#[test]
fn costs_stay_in_their_magnitude() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let load = context.begin().unwrap();
    (0..ROWS).for_each(|number| load.write(&state, &key(number), Some(&[7; 32])).unwrap());
    load.commit(Durability::None).unwrap();
    let reader = context.begin().unwrap();
    let rounds = 20;
    let read = per_operation("snapshot read of one hot key", rounds * ROWS, || {
        for _ in 0..rounds {
            for number in 0..ROWS {
                let sum = reader.read(&state, &key(number), |value| u64::from(value[0]) + value.len() as u64);
                assert_eq!(black_box(sum.unwrap()), Some(39));
            }
        }
    });
    let keys: Vec<_> = (0..ROWS).map(key).collect();
    per_operation("the same in read_many, per key", ROWS, || {
        reader.read_many(&state, &keys, |_, value| assert!(black_box(value).is_some())).unwrap();
    });
    per_operation("the same in a scan, per row", ROWS, || {
        let mut from = None;
        let mut seen = 0;
        while reader.scan_batch(&state, &KeyRange::full(), &mut from, |_, _| seen += 1).unwrap() {}
        assert_eq!(seen, ROWS);
    });
    drop(reader);
    per_operation("begin and drop", ROWS, || (0..ROWS).for_each(|_| drop(context.begin().unwrap())));
    per_operation("commit of one update", ROWS, || {
        for number in 0..ROWS {
            let writer = context.begin().unwrap();
            writer.write(&state, &key(number), Some(&[7; 32])).unwrap();
            writer.commit(Durability::None).unwrap();
        }
    });
    per_operation("commit of 1000 updates, per key", ROWS, || {
        let writer = context.begin().unwrap();
        (0..ROWS).for_each(|number| writer.write(&state, &key(number), Some(&[7; 32])).unwrap());
        writer.commit(Durability::None).unwrap();
    });
    let next = std::cell::Cell::new(ROWS);
    let fresh = || key(next.replace(next.get() + 1));
    per_operation("commit of one insert", ROWS, || {
        for _ in 0..ROWS {
            let writer = context.begin().unwrap();
            writer.write(&state, &fresh(), Some(&[7; 32])).unwrap();
            writer.commit(Durability::None).unwrap();
        }
    });
    per_operation("commit of 1000 inserts, per key", ROWS, || {
        let writer = context.begin().unwrap();
        (0..ROWS).for_each(|_| writer.write(&state, &fresh(), Some(&[7; 32])).unwrap());
        writer.commit(Durability::None).unwrap();
    });
    assert!(read < 100_000.0, "{read} ns for a read of a hot key");
}
